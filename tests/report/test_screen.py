# SPDX-License-Identifier: Apache-2.0
"""The end of a run has twelve lines: the finding first, a row for each arm, and all that limits it."""

import random
import re
from collections.abc import Sequence
from dataclasses import replace

import pytest
from rich.console import Console
from tests.report.records import record
from tests.report.warned import with_warnings

from virtune.analyse.study.summarise import summarise
from virtune.analyse.study.thresholds import rule
from virtune.cli.common.result_output import exit_code
from virtune.model.evidence import Check, StudyRecord, TrialRecord
from virtune.model.measurement import Histogram
from virtune.model.metric import BY_ID
from virtune.model.reason import Reason
from virtune.model.study import Checked, StudyKind
from virtune.model.verdict import Comparison, Verdict
from virtune.plan.goal import parse_conditions
from virtune.report.charts.forest import forest
from virtune.report.html.page import page_of
from virtune.report.markdown import markdown
from virtune.report.pages.brief import LINES, finding, limits, of_result
from virtune.report.pages.result import condition_lines, largest_decided, render, value_text
from virtune.report.render.terminal import set_at


def screen(kept: StudyRecord, width: int = 80, conditions: Sequence[str] = ()) -> list[str]:
    console = Console(width=width, no_color=True)
    rulings = tuple(rule(kept, parse_conditions(conditions)))
    with console.capture() as captured:
        console.print(of_result(summarise(kept), kept.facts, rulings), crop=False, end="")
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
@pytest.mark.parametrize("warnings", [0, 1])
@pytest.mark.parametrize("width", [100, 160])
def test_it_has_twelve_lines_however_many_arms_there_are(arms: int, warnings: int, width: int) -> None:
    lines = screen(with_warnings(with_arms(record(8), arms), warnings), width)
    assert len(lines) <= LINES, "\n".join(lines)
    assert all(len(line) <= width for line in lines)
    told = "\n".join(lines)
    assert "+10" in lines[0]
    assert warnings == 0 or "warnings: " in told
    assert arms < 40 or "more arms" in told
    assert arms > 6 or sum(line.startswith(("arm-", "threads ")) for line in lines) == arms, "every arm has its row"
    assert lines[-1].startswith("next: ")


@pytest.mark.parametrize("arms", [2, 4, 6])
def test_of_few_arms_each_has_its_row_whatever_there_is_to_say(arms: int) -> None:
    """The headline names arms, and what limits them gets fewer words, of which none is left out."""
    lines = screen(with_warnings(with_arms(record(8), arms), 12))
    assert sum(line.startswith(("arm-", "threads ")) for line in lines) == arms
    told = " ".join(" ".join(lines).split())
    assert all(f"{number} is a warning" in told for number in range(12))
    assert not any("more arm" in line for line in lines)


@pytest.mark.parametrize("arms", [2, 3, 5, 7, 30])
@pytest.mark.parametrize("warnings", [0, 12])
def test_conditions_are_never_left_out_nor_pairs_without_the_baseline(arms: int, warnings: int) -> None:
    """Where the rows of few arms left no room, the conditions went with what was shortened, and no line told."""
    kept = with_warnings(with_arms(record(8), arms), warnings)
    kept = replace(kept, study=replace(kept.study, pairs="all"))
    told = " ".join(" ".join(screen(kept, 80, ["iops < -50%", "iops < 1"])).split())
    for one in range(arms - 1):
        assert f"iops < -50%: held for arm-{one} against threads" in told
        assert f"iops < 1: held for arm-{one} " in told
    decided = [one for one in summarise(kept).verdicts if one.baseline != "threads" and one.verdict is Verdict.SAME]
    assert not decided or f"also: {decided[0].candidate} is the same as {decided[0].baseline}" in told


@pytest.mark.parametrize(
    ("conditions", "first", "code"),
    [
        (("iops < -50%",), "PASSED: 1 of 1 condition held", 0),
        (("iops < -50%", "iops < 1"), "PASSED: 3 of 3 conditions held", 0),
        (("iops > +1%",), "FAILED: 1 of 1 condition breached", 4),
        (
            ("iops > +1%", "cpu_per_io > +900%", "iops < 1"),
            "FAILED: 1 of 4 conditions breached, 1 undecided, 2 held",
            4,
        ),
        (("cpu_per_io > +900%", "iops < 1"), "UNDECIDED whether it passes: 1 of 3 conditions undecided, 2 held", 5),
    ],
)
def test_the_first_line_says_whether_the_conditions_passed_as_the_exit_code_does(
    conditions: Sequence[str], first: str, code: int
) -> None:
    """`undecided` stood above `held`, and the exit code was 0."""
    kept = record(8)
    rulings = tuple(rule(kept, parse_conditions(conditions)))
    lines = screen(kept, 100, conditions)
    assert lines[0] == first
    assert lines[1].startswith("▲ native is better than threads, ")
    assert exit_code([one.outcome for one in rulings]) == code
    comment = markdown(summarise(kept), rulings).splitlines()
    assert comment[0] == f"### {first}"
    assert comment[2].startswith("**▲ native is better than threads, "), comment[:4]
    assert screen(kept, 100)[0].startswith("▲ native is better than threads, ")


@pytest.mark.parametrize("seed", range(6))
def test_the_arm_that_the_headline_names_has_a_row_however_many_there_are(seed: int) -> None:
    kept, chance = with_arms(record(8), 30), random.Random(seed)
    factors = {arm.name: chance.choice((0.7, 1.0, 1.3)) * (1 + chance.random() / 9) for arm in kept.study.arms}

    def other(one: TrialRecord) -> TrialRecord:
        assert one.measurement is not None
        values = tuple((name, value * factors[one.trial.arm]) for name, value in one.measurement.values)
        return replace(one, measurement=replace(one.measurement, values=values))

    lines = screen(with_warnings(replace(kept, trials=tuple(map(other, kept.trials))), 9), 100)
    named = set(re.findall(r"most (arm-\d+)", lines[0]))
    assert named
    assert {f"{name} " for name in named} <= {line[: line.find(" ") + 1] for line in lines[1:]}
    assert any(line.startswith("threads ") for line in lines), "the baseline"


def test_no_warning_is_left_out_and_the_arms_give_way() -> None:
    lines = screen(with_warnings(with_arms(record(8), 40), 12))
    assert all(f"{number} is a warning" in " ".join(lines) for number in range(12))
    assert sum(line.startswith("arm-") for line in lines) == 1


def test_the_finding_comes_first_and_its_interval_is_drawn() -> None:
    lines = screen(record(8), 100)
    assert lines[0].startswith("▲ native is better than threads, +10.0 % [")
    row = next(line for line in lines if line.startswith("native "))
    for part in ("▲ better", "+10.0 % [", "●", "1,102"):
        assert part in row
    assert any(line.split()[:2] == ["threads", "baseline"] for line in lines)
    assert not any("latency p99" in line for line in lines), "it was not measured"
    several = screen(with_arms(record(8), 3))
    assert several[0] == "▲ better: arm-0 +10.0 %, arm-1 +10.0 % (IOPS against threads)"
    assert screen(with_arms(record(8), 40))[0].startswith("▲ 39 of 39 better, most arm-")


def less_sure(one: Comparison) -> Comparison:
    lasting = "the whole interval is on its side, unless ...: the change is -3.0 % [-24.0, +24.0]"
    return replace(one, reason=Reason.UNLESS_LASTING, why=lasting)


def test_the_finding_says_of_which_verdict_it_is_less_sure_before_the_figure() -> None:
    """A colleague copies the first line, and a second run need not repeat what is only perhaps so."""
    found = summarise(with_arms(record(8), 3))
    first, second, *_ = found.verdicts
    told = str(finding(replace(found, verdicts=(first, less_sure(second)))))
    assert told == "▲ better: arm-0 +10.0 %; ▲ perhaps better: arm-1 +10.0 % (IOPS against threads)"
    alone = summarise(record(8))
    (one,) = alone.verdicts
    said = str(finding(replace(alone, verdicts=(less_sure(one),))))
    assert said.startswith("▲ native is perhaps better than threads, +10.0 % ["), said
    worse = replace(one, verdict=Verdict.WORSE)
    said = str(finding(replace(alone, verdicts=(less_sure(worse),))))
    assert said.startswith("▼ native is perhaps worse than threads, "), said


@pytest.mark.parametrize("seed", range(20))
def test_what_is_sure_comes_first_however_large_what_is_less_so(seed: int) -> None:
    chance = random.Random(seed)
    found = summarise(with_arms(record(8), 7))
    (*pairs,) = (one for one in found.verdicts if one.baseline == "threads")
    ratio = pairs[0].ratio
    assert ratio is not None
    made = []
    for one in pairs:
        verdict = chance.choice([*Verdict])
        away = replace(ratio, estimate=chance.uniform(0.5, 2))
        moved = replace(one, verdict=verdict, ratio=away, reason=Reason.BETTER_SIDE)
        made.append(less_sure(moved) if verdict in ("better", "worse") and chance.random() < 0.5 else moved)
    told = str(finding(replace(found, verdicts=tuple(made))))
    words = ("better", "worse", "same", "perhaps better", "perhaps worse", "undecided")
    there = [one for one in words if one in {each.said for each in made}]
    claims = [re.sub(r"^. (\d+ of \d+ )?| \(.*", "", one) for one in told.split("; ")]
    assert len(claims) == len(there), told
    for claim, word in zip(claims, there, strict=True):
        assert re.match(rf"{word}(:|, most|$)", claim), told


def test_a_verdict_that_is_less_sure_is_so_in_every_output() -> None:
    """The table, the sentence, the picture, the page and the comment take the word from the same place."""
    kept = record(8)
    found = summarise(kept)
    found = replace(found, verdicts=tuple(map(less_sure, found.verdicts)), differences=())
    (one,) = found.verdicts
    assert one.said == "perhaps better"
    assert "▲ perhaps better" in set_at(100, of_result(found, kept.facts))
    assert "native is perhaps better than threads, IOPS +10.0 %" in set_at(100, render(found))
    assert "### ▲ native is perhaps better than threads, +10.0 %" in markdown(found, ())
    page = page_of(found, kept)
    assert "is perhaps better than" in page.headline[0][1]
    assert page.forests[0].rows[0].word == "perhaps better"
    assert page.counts == "1 verdicts: 1 perhaps better"
    chart = forest(found, "randread-4k")
    assert chart is not None
    assert chart.rows[0][1] == "perhaps better"
    assert largest_decided(found, "randread-4k", "iops", valued=False).startswith("IOPS of native is perhaps +10.0 %")


def test_the_largest_decided_difference_is_a_sure_one_where_there_is_one() -> None:
    found = summarise(with_arms(record(8), 3))
    first, second, *_ = found.verdicts
    assert second.ratio is not None
    larger = less_sure(replace(second, ratio=replace(second.ratio, estimate=1.9)))
    told = largest_decided(replace(found, verdicts=(first, larger), differences=()), "randread-4k", "iops")
    assert told.startswith("IOPS of arm-0 is 1,102, +10.0 % against threads (2 of 2 arms differ"), told


def test_what_undoes_a_verdict_has_a_line_of_its_own() -> None:
    found = summarise(record(8))
    (one,) = found.verdicts
    undone = less_sure(one)
    rare = replace(one, verdict=Verdict.UNDECIDED, reason=Reason.RARE_ROUNDS, why="uncertain")
    told = [*map(str, limits(replace(found, verdicts=(undone, rare))))]
    assert "perhaps: native: if an arm keeps a level for some rounds, the change is -3.0 % [-24.0, +24.0]" in told
    assert "undecided: native: an arm is far off in a few of its rounds" in told
    unknown = replace(rare, reason=Reason.SATURATED, why="native is saturated")
    assert "undecided: native: native is saturated" in [*map(str, limits(replace(found, verdicts=(unknown,))))]
    checked = Checked(study="s", created="2026-11-23T00:00:00+00:00", verdict=Verdict.WORSE, low=0.8, high=0.9)
    distrusted = replace(found, study=replace(found.study, checked=checked))
    assert any("distrust all verdicts" in str(line) for line in limits(distrusted))


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
    said = " ".join(lines)
    assert "undecided: native: p99 needs 2,000 I/Os a run" in said
    assert "let each run 5 times as long (--seconds, fio's runtime)" in said


def test_several_workloads_are_a_row_each_and_a_single_stack_is_its_figures() -> None:
    kept = record(8)
    (workload,) = kept.study.workloads
    several = tuple(replace(workload, name=f"job-{number}") for number in range(30))
    trials = [replace(one, trial=replace(one.trial, workload=job.name)) for job in several for one in kept.trials]
    trials = [replace(one, trial=replace(one.trial, number=number)) for number, one in enumerate(trials, 1)]
    lines = screen(replace(kept, study=replace(kept.study, workloads=several), trials=tuple(trials)))
    assert len(lines) <= LINES
    assert lines[0].startswith("▲ 30 of 30 better, most native +10.0 %")
    assert any(line.split()[:3] == ["job-1", "▲", "better"] for line in lines)
    assert any("more workloads" in line for line in lines)
    alone = replace(kept.study, arms=kept.study.arms[:1], kind=StudyKind.MEASURE)
    first, _, row, *_ = screen(replace(kept, study=alone))
    assert first == "threads under randread-4k: IOPS 1,002"
    assert row.split()[1] == "1,002"


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


def test_a_limit_says_how_the_table_has_the_percentile_that_it_judges() -> None:
    """A limit is judged by rounds, a table of one stack has the I/Os of all: one bad round decides that."""
    kept = record(8)
    trials: list[TrialRecord] = []
    for one in kept.trials:
        if one.trial.arm == "threads" and one.measurement is not None:
            at = 1_000_000 if one.trial.round == 3 else 2000 + one.trial.round
            slow = Histogram(bins=((1000, 9000), (at, 1000)))
            values = (("iops", 1000.0), ("latency.p99", float(at)))
            trials.append(replace(one, measurement=replace(one.measurement, values=values, histogram=slow)))
    alone = replace(kept.study, arms=kept.study.arms[:1], kind=StudyKind.MEASURE)
    measure = replace(kept, study=alone, trials=tuple(trials))
    result = summarise(measure)
    rulings = rule(measure, parse_conditions(["latency.p99 > 9s", "iops < 1"]))
    p99, iops = map(str, condition_lines(result, rulings))
    value = result.value_of_a_round("threads", "randread-4k", "latency.p99")
    assert value is not None
    shown = value_text(BY_ID["latency.p99"], value)
    assert f" ({shown} in the table: of the I/Os of all rounds together): " in p99
    assert "in the table" not in iops, "which is the same"
    assert f" ({shown} in the table: of the I/Os of all rounds together) |" in markdown(result, rulings)
