# SPDX-License-Identifier: Apache-2.0
"""The end of a run is one screen: the verdict first, a row for each arm, the first warnings, what is left out."""

import json
from dataclasses import replace

import pytest
from rich.console import Console
from tests.report.records import record
from tests.report.warned import with_warnings

from virtune.analyse.study.summarise import summarise
from virtune.model.evidence import Check, StudyRecord, TrialRecord
from virtune.model.measurement import Histogram
from virtune.model.study import StudyKind
from virtune.report.pages.result import render
from virtune.report.pages.whole import Screen
from virtune.report.render.terminal import set_at

ROOM = 20


def screen(kept: StudyRecord, width: int = 80, lines: int | None = ROOM) -> list[str]:
    console = Console(width=width, no_color=True)
    with console.capture() as captured:
        console.print(Screen(result=summarise(kept), facts=kept.facts, lines=lines), crop=False, end="")
    return captured.get().splitlines()


def with_arms(kept: StudyRecord, count: int) -> StudyRecord:
    """Return a study with as many arms, all like the second."""
    base, other = kept.study.arms
    names = [f"arm-{number}" for number in range(count - 1)]
    arms = (base, *(replace(other, name=name) for name in names))
    trials: list[TrialRecord] = []
    for each in kept.trials:
        for name in [base.name] if each.trial.arm == base.name else names:
            number = len(trials) + 1
            trials.append(replace(each, trial=replace(each.trial, number=number, arm=name)))
    study = replace(kept.study, arms=arms, trials=tuple(one.trial for one in trials))
    return replace(kept, study=study, trials=tuple(trials))


@pytest.mark.parametrize("arms", [2, 5, 40])
@pytest.mark.parametrize("warnings", [0, 1, 12])
@pytest.mark.parametrize("width", [60, 80, 160])
def test_it_is_one_screen_however_much_there_is_to_say(arms: int, warnings: int, width: int) -> None:
    lines = screen(with_warnings(with_arms(record(8), arms), warnings), width)
    assert len(lines) <= ROOM + (2 if width < 80 else 0), "\n".join(lines)
    assert all(len(line) <= width for line in lines)
    told = "\n".join(lines)
    assert "+10" in told
    assert warnings == 0 or "warning: " in told
    assert warnings < 12 or "more, in `virtune show`" in told
    assert arms < 40 or "more arms" in told


@pytest.mark.parametrize("arms", range(3, 9))
def test_no_line_says_that_one_arm_is_left_out_whose_row_would_have_fit(arms: int) -> None:
    told = "\n".join(screen(with_warnings(with_arms(record(8), arms), 12)))
    assert "more, in `virtune show`" in told
    assert "1 more arm\n" not in told


def test_the_host_gives_way_to_the_answer_on_a_low_screen() -> None:
    programs = {"storage_daemon": {"version": "7.2.22"}, "emulators": []}
    scratch = {"backing": {"devices": [{"name": "vda"}], "filesystem": "ext4"}}
    host = {
        "cpu": {"model": "A CPU with a long name " * 5, "online": 2}, "kernel": {"release": "6.1"}, "qemu": programs,
        "fio": {"program": None}, "disks": [], "scratch": scratch,
    }  # fmt: skip
    kept = with_warnings(with_arms(replace(record(8), facts=json.dumps({"host": host})), 5), 12)
    low, high = screen(kept, lines=ROOM - 2), screen(kept, lines=ROOM + 20)
    assert len(low) <= ROOM - 2
    assert not any("A CPU with" in line for line in low)
    assert any("A CPU with" in line for line in high)
    assert any(line.startswith("8 rounds x 5 arms") for line in low)
    assert "arm-3" in "\n".join(low)


def test_the_verdict_comes_first_and_its_interval_is_drawn() -> None:
    lines = screen(record(8))
    assert lines[1] == "better than threads: native"
    row = next(line for line in lines if line.startswith("native "))
    for part in ("better", "+10.0 % [", "●", "1,102"):
        assert part in row
    assert any(line.split()[:2] == ["threads", "baseline"] for line in lines)
    assert not any("latency p99" in line for line in lines), "it was not measured"


def test_why_a_percentile_stays_undecided_is_said_and_not_only_that_it_is() -> None:
    """The table had a dash, and the reason was in `virtune show` alone."""
    kept = record(8)
    few = Histogram(bins=((1000, 300), (2000, 100)))
    trials = [
        replace(one, measurement=replace(one.measurement, values=(("latency.p99", 2000.0),), histogram=few))
        for one in kept.trials
        if one.measurement is not None
    ]
    lines = screen(replace(kept, study=replace(kept.study, metric="latency.p99"), trials=tuple(trials)), 160)
    (line,) = [one for one in lines if one.startswith("undecided: native: p99 needs 2,000 I/Os a run")]
    assert line.endswith("let each run 5 times as long (--seconds, fio's runtime)")


def test_several_workloads_are_a_row_each_and_a_single_stack_is_its_figures() -> None:
    kept = record(8)
    (workload,) = kept.study.workloads
    several = tuple(replace(workload, name=f"job-{number}") for number in range(30))
    trials = [replace(one, trial=replace(one.trial, workload=job.name)) for job in several for one in kept.trials]
    trials = [replace(one, trial=replace(one.trial, number=number)) for number, one in enumerate(trials, 1)]
    lines = screen(replace(kept, study=replace(kept.study, workloads=several), trials=tuple(trials)))
    assert len(lines) <= ROOM
    assert lines[1] == "30 pairs against threads: 30 better"
    assert any(line.split()[:2] == ["job-1", "better"] for line in lines)
    assert any("more workloads" in line for line in lines)
    alone = replace(kept.study, arms=kept.study.arms[:1], kind=StudyKind.MEASURE)
    (row,) = (line for line in screen(replace(kept, study=alone)) if line.startswith("threads "))
    assert row.split()[1] == "1,002"


def test_where_there_is_no_screen_no_warning_is_left_out() -> None:
    lines = screen(with_warnings(with_arms(record(8), 40), 12), lines=None)
    assert sum(line.startswith("warning: ") for line in lines) == 12
    assert sum(line.startswith("arm-") for line in lines) == 39


def test_a_setting_that_was_not_verified_is_named() -> None:
    kept = record(8)
    told = " ".join(screen(kept))
    assert "settings not verified: disk.cache=none, disk.detect_zeroes=off" in told
    assert "(threads" in told
    checks = (Check(setting="disk.aio", asked="threads", found="native", proof="a ring"),)
    trials = tuple(replace(one, in_force=replace(one.in_force, checks=checks)) for one in kept.trials)
    assert "disk.aio=threads is native" in " ".join(screen(replace(kept, trials=trials)))


def test_a_change_stands_under_the_metric_that_it_is_of() -> None:
    head = next(line for line in screen(record(8)) if " change" in line)
    row = next(line for line in screen(record(8)) if line.startswith("native "))
    assert head.index("IOPS change") == row.index("+10.0 %")


def test_of_several_workloads_each_drawing_says_of_which_metric_it_is() -> None:
    kept = record(8)
    (workload,) = kept.study.workloads
    several = (workload, replace(workload, name="other"))
    trials = [replace(one, trial=replace(one.trial, workload=job.name)) for job in several for one in kept.trials]
    trials = [replace(one, trial=replace(one.trial, number=number)) for number, one in enumerate(trials, 1)]
    changed = replace(kept, study=replace(kept.study, workloads=several), trials=tuple(trials))
    lines = set_at(100, render(summarise(changed))).splitlines()
    drawn = [number for number, line in enumerate(lines) if line.startswith("  native ") and "●" in line]
    assert len(drawn) == 2
    assert all(lines[number - 2] == "IOPS against threads" for number in drawn)
