# SPDX-License-Identifier: Apache-2.0
"""The values of a table differ between arms by what the verdicts say, also where some rounds were disturbed."""

import random
from dataclasses import replace
from datetime import datetime, timedelta

import pytest
from tests.report.records import WHEN, record

from virtune.analyse.study.summarise import summarise
from virtune.analyse.study.thresholds import rule
from virtune.model.evidence import StudyRecord
from virtune.model.measurement import Histogram
from virtune.plan.arms import base_stack
from virtune.plan.goal import parse_condition
from virtune.report.pages.evidence import count_words, drift_warnings
from virtune.report.pages.result import render
from virtune.report.render.terminal import set_at
from virtune.report.view import workload_view

ROUNDS = 13


def planted(growth: float = 1.0, dip: float = 0.2) -> StudyRecord:
    """Rounds in which native has 80 % of the IOPS of threads and twice its p99, but for its first, a dip, and one in
    which a fifth of the I/Os of both take 30 ms. From trial to trial, every 2.5 s, the IOPS of both grow by `growth`.
    """
    kept, noise = record(ROUNDS), random.Random(3)
    begun = datetime.fromisoformat(WHEN)
    trials = []
    for number, one in enumerate(kept.trials):
        assert one.measurement is not None
        native, bad = one.trial.arm == "native", one.trial.round == 5
        iops = 1000 * (0.8 if native else 1) * (dip if native and one.trial.round == 1 else 1) * growth**number
        tail = 1.5e6 * (20 if bad else 2 if native else 1)
        values = (("iops", iops * 1.02 ** noise.gauss(0, 1)), ("latency.p99", tail * 1.05 ** noise.gauss(0, 1)))
        spread = Histogram(bins=((100_000, 80_000 if bad else 98_000), (int(tail), 20_000 if bad else 2_000)))
        measured = replace(one.measurement, values=values, histogram=spread)
        when = (begun + timedelta(seconds=2.5 * number)).isoformat()
        trials.append(replace(one, measurement=measured, ended=when))
    study = replace(kept.study, sequential=True, looks=((ROUNDS, 1.0),), pairs="baseline", confidence=0.95)
    return replace(kept, study=study, trials=tuple(trials))


@pytest.mark.parametrize(("bounds", "interval", "shown"), [
    (True, False, False), (True, True, True), (False, False, True),
])  # fmt: skip
def test_a_change_without_an_interval_is_not_put_beside_bounds(bounds: bool, interval: bool, shown: bool) -> None:
    """\">=7.63 ms, >=5.47 ms, +42 %\": of all I/Os together, and of runs."""
    found = summarise(planted())
    ends = {"typical": None, "low": 1e6, "high": None if bounds else 2e6, "resolved": False}
    arms = tuple(
        replace(one, values=tuple(replace(v, **ends) if v.metric == "latency.p99" else v for v in one.values))  # type: ignore[arg-type]
        for one in found.arms
    )
    differences = tuple(one if interval else replace(one, ratio=None, change=1.42) for one in found.differences)
    result = replace(found, arms=arms, differences=differences)
    (row,) = (one for one in workload_view(result, result.study.workloads[0]).rows if one.metric.id == "latency.p99")
    assert any(cell.change is not None for cell in row.cells) is shown


def test_values_are_as_far_apart_as_the_verdicts_say_whatever_single_rounds_did() -> None:
    found = summarise(planted())
    (verdict,) = found.verdicts
    assert verdict.ratio is not None
    assert verdict.ratio.estimate == pytest.approx(0.8, rel=0.05), "one dip has little weight in a change"
    for one in found.differences:
        base, other = (found.value(arm, one.workload, one.metric) for arm in (one.baseline, one.candidate))
        assert one.ratio is not None
        assert base is not None
        assert base.typical is not None
        assert other is not None
        assert other.typical == pytest.approx(base.typical * one.ratio.estimate)
    native, threads = (found.value(arm, "randread-4k", "iops") for arm in ("native", "threads"))
    assert native is not None
    assert threads is not None
    assert native.value < 0.75 * threads.value, "the dip is in the mean of all rounds"


def test_no_arm_has_a_value_that_it_never_had_where_some_rounds_of_the_baseline_were_slow() -> None:
    kept, trials = planted(), []
    for one in kept.trials:
        assert one.measurement is not None
        slow = one.trial.arm == "threads" and one.trial.round % 3 == 0
        values = (("iops", 700.0 if slow else 1000.0), *one.measurement.values[1:])
        trials.append(replace(one, measurement=replace(one.measurement, values=values)))
    found = summarise(replace(kept, trials=tuple(trials)))
    native = found.value("native", "randread-4k", "iops")
    assert native is not None
    assert native.typical == pytest.approx(1000)


def test_the_baseline_has_the_value_that_a_condition_on_it_is_judged_by() -> None:
    kept = planted()
    (held, *_) = rule(kept, [parse_condition("latency.p99 > 2ms")])
    threads = summarise(kept).value("threads", "randread-4k", "latency.p99")
    assert held.comparison.candidate == "threads"
    assert held.comparison.ratio is not None
    assert threads is not None
    assert threads.typical == pytest.approx(2e6 * held.comparison.ratio.estimate)


def test_percentiles_of_all_rounds_stand_apart_from_those_of_a_typical_one() -> None:
    found = summarise(planted())
    view = workload_view(found, found.study.workloads[0])
    (together,) = (row for row in view.together if row.metric.id == "latency.p99")
    assert [cell.value.value for cell in together.cells if cell.value] == pytest.approx([3e7, 3e7], rel=0.1)
    assert not together.changes
    (typical,) = (row for row in view.rows if row.metric.id == "latency.p99")
    assert [cell.value.value for cell in typical.cells if cell.value] == pytest.approx([1.5e6, 3e6], rel=0.1)
    assert typical.changes
    text = set_at(100, render(found))
    heads = ["\ntypical round ", "the mean of its own rounds", "\nall rounds together ", "\nchange from threads "]
    places = [text.index(words) for words in heads]
    assert places == sorted(places)


@pytest.mark.parametrize(("rounds", "factor"), [(ROUNDS // 2, 4.0), (ROUNDS, 0.1)], ids=["few", "impossible"])
def test_no_percentile_of_a_typical_round_rests_on_few_rounds_or_is_below_a_lower_one(
    rounds: int, factor: float
) -> None:
    kept = planted()
    trials = []
    for one in kept.trials:
        assert one.measurement is not None
        tail = 5e6 * (factor if one.trial.arm == "native" else 1) * (1 + one.trial.number % 3 / 100)
        more = (("latency.p99.9", tail),) if one.trial.round <= rounds else ()
        trials.append(replace(one, measurement=replace(one.measurement, values=(*one.measurement.values, *more))))
    found = summarise(replace(kept, trials=tuple(trials)))
    values = [found.value(arm, "randread-4k", "latency.p99.9") for arm in ("threads", "native")]
    assert [None if one is None else one.typical is None for one in values] == [rounds < ROUNDS, True]
    rows = workload_view(found, found.study.workloads[0]).rows
    assert not any(row.changes for row in rows if row.metric.id == "latency.p99.9"), "nor is there a change alone"
    p99 = found.value("native", "randread-4k", "latency.p99")
    assert p99 is not None
    assert p99.typical is not None


def test_a_host_that_becomes_faster_while_it_is_measured_is_a_warning() -> None:
    steady, faster = (summarise(planted(growth, dip=1.0)) for growth in (1.0, 1.02))
    assert list(drift_warnings(steady)) == []
    (said,) = drift_warnings(faster)
    assert said.startswith("IOPS of all arms changed by +")
    assert "no arm gains from it" in said
    assert (count_words(faster), count_words(steady)) == ("2 warnings", "1 warning")
    assert said.partition(".")[0] in " ".join(set_at(300, render(faster)).split())
    (slower,) = drift_warnings(summarise(planted(0.98, dip=1.0)))
    assert slower.startswith("IOPS of all arms changed by -")


def test_of_a_vm_that_looks_for_completions_all_the_time_the_cost_of_an_io_says_so() -> None:
    kept = planted()
    used = (("cpu_per_io", 1e4), ("cpu.rig", 0.5))
    measured = [
        replace(one.measurement, values=(*one.measurement.values, *used)) for one in kept.trials if one.measurement
    ]
    trials = tuple(replace(one, measurement=had) for one, had in zip(kept.trials, measured, strict=True))
    words = "CPU per I/O of native: its vCPU looks for completions all the time"
    for settings, said in ((["rig=qemu", "guest.system=bare"], True), (["rig=qemu", "guest.system=linux"], False)):
        stack = base_stack(settings)[0]
        arms = tuple(replace(arm, stack=stack) if arm.name == "native" else arm for arm in kept.study.arms)
        text = set_at(200, render(summarise(replace(kept, trials=trials, study=replace(kept.study, arms=arms)))))
        assert (words in text) == said
