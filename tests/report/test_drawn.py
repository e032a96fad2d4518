# SPDX-License-Identifier: Apache-2.0
"""What a picture shows is the data: each mark is read back from the values that are drawn, for studies at random."""

import math
from collections import Counter
from dataclasses import replace
from datetime import datetime, timedelta
from functools import cache
from random import Random
from typing import Any

import pytest
from tests.report.layer_parts import LAYERS
from tests.report.records import WHEN, study

from virtune.analyse.study.summarise import summarise
from virtune.analyse.study.thresholds import looked_back
from virtune.model.evidence import InForce, StudyRecord, TrialRecord
from virtune.model.measurement import Histogram, Measurement
from virtune.model.metric import BY_ID
from virtune.model.remark import Remark, Weight
from virtune.model.result import Result
from virtune.model.study import Trial
from virtune.model.verdict import Comparison, Interval, Verdict
from virtune.plan.arms import arms_from_vary, base_stack
from virtune.report.charts import charts_of
from virtune.report.charts.chart import Chart
from virtune.report.charts.forest import forest_row
from virtune.report.charts.stacked import layer_times
from virtune.report.charts.tradeoff import iops_bars
from virtune.report.pages.result import is_told, largest_decided, value_text
from virtune.report.render.forest import COLUMNS, axis, axis_of, bar
from virtune.report.words import quantity

WORKLOAD = "randread-4k"
DISTURBED = Remark(id="cpu-wait", weight=Weight.INVALID, text="", advice="")
SEEDS = range(12)


@cache
def at_random(seed: int) -> tuple[Result, StudyRecord]:
    """A study of three arms that may be much slower or faster than the baseline, with trials that were repeated."""
    chance = Random(seed)
    rounds, spread = chance.choice((2, 6, 9, 14)), chance.choice((0.003, 0.05, 0.4))
    arms = arms_from_vary(base_stack(())[0], ["disk.aio=threads,native,io_uring"])
    levels = {one.name: 40_000.0 * (1 if not at else chance.choice((0.004, 0.1, 0.8, 1.0, 1.5, 60))) for at, one in
              enumerate(arms)}  # fmt: skip
    trials = tuple(
        Trial(number=3 * number + at + 1, round=number + 1, arm=one.name, workload=WORKLOAD)
        for number in range(rounds)
        for at, one in enumerate(arms)
    )
    asked = replace(study(rounds), arms=arms, trials=trials, sequential=True, looks=())
    attempts = [
        _attempt(trial, number, of, levels[trial.arm] * math.exp(chance.gauss(0, spread)), chance)
        for trial in trials
        for of in [chance.choice((1, 1, 1, 2, 3))]
        for number in range(1, of + 1)
    ]
    last = {one.trial.number: one for one in attempts}
    record = StudyRecord(study=asked, facts="", finished=True, trials=tuple(last.values()), attempts=tuple(attempts))
    return replace(summarise(record), looked=looked_back(record)), record


def _attempt(trial: Trial, number: int, of: int, iops: float, chance: Random) -> TrialRecord:
    """One of so many attempts: what was repeated was disturbed, and sometimes the last one is too."""
    disturbed = number < of or chance.random() < 0.05
    ended = datetime.fromisoformat(WHEN) + timedelta(seconds=10 * trial.number + number)
    bins = ((int(1e9 / iops), 9_000), (int(5e9 / iops), 950 + chance.randrange(100)))
    spent = 1e-5 * math.exp(chance.gauss(0, 0.2))
    measured = Measurement(
        values=(("iops", iops), ("cpu_per_io", spent), ("cpu.io.load", spent * 0.4), ("cpu.io.main", spent * 0.7)),
        remarks=(DISTURBED,) if disturbed else (),
        histogram=Histogram(bins=bins),
    )
    return TrialRecord(trial=trial, attempt=number, ended=ended.isoformat(), in_force=InForce(checks=()),
                       measurement=measured)  # fmt: skip


def drawn(chart: Chart) -> list[dict[str, Any]]:
    found: list[dict[str, Any]] = chart.spec["data"]["values"]
    return found


def against(result: Result, metric: str) -> dict[str, Comparison]:
    every = (*reversed(result.differences), *reversed(result.verdicts))
    return {one.candidate: one for one in every if (one.metric, one.baseline) == (metric, result.study.baseline)}


@pytest.mark.parametrize("seed", SEEDS)
def test_every_mark_is_the_number_of_the_tables(seed: int) -> None:
    result, record = at_random(seed)
    made = {one.name.removesuffix(f"-{WORKLOAD}"): one for one in charts_of(result, record)}
    titles = [one.title for one in made.values()]
    assert len(set(titles)) == len(titles), "what two pictures show is not one finding"
    made["bars"] = iops_bars(result, WORKLOAD) or made["bars"]
    checks = {"forest": _forest, "rounds": _rounds, "narrowing": _narrowing, "bars": _bars, "cost": _cost,
              "threads": _threads, "percentiles": _percentiles, "heat": _heat}  # fmt: skip
    assert set(made) <= set(checks), "each kind of picture is read back"
    for name, chart in made.items():
        checks[name](chart, result, record)
        assert "\n" not in chart.title


def test_each_kind_is_drawn_of_some_study() -> None:
    names = Counter(one.name.partition("-")[0] for seed in SEEDS for one in charts_of(*at_random(seed)))
    assert set(names) == {"forest", "rounds", "narrowing", "cost", "threads", "percentiles", "heat"}


def _forest(chart: Chart, result: Result, _: StudyRecord) -> None:
    """The axis holds every estimate, only an end may be cut, and then it has an arrow; the terminal has that axis."""
    told = [(one, one.ratio) for one in result.verdicts if one.ratio is not None and is_told(one)]
    reach = axis_of(ratio for _, ratio in told)
    low, high = chart.spec["encoding"]["x"]["scale"]["domain"]
    assert (low, high) == (pytest.approx(-math.log1p(reach)), pytest.approx(math.log1p(reach)))
    ticks = chart.spec["encoding"]["x"]["axis"]["values"]
    assert low <= min(ticks) < max(ticks) <= high
    for row, (one, ratio) in zip(drawn(chart), told, strict=True):
        assert row["pair"] == f"{one.candidate} against {one.baseline}"
        assert math.exp(row["estimate"]) == pytest.approx(ratio.estimate)
        assert low <= row["estimate"] <= high
        for end, value, cut in (("low", ratio.low, low), ("high", ratio.high, high)):
            exact = math.log(max(value, 1e-9))
            assert row[end] == pytest.approx(cut if row[f"beyond_{end}"] else exact)
            assert row[f"beyond_{end}"] is (not low <= exact <= high)
        text = bar(ratio.low, ratio.estimate, ratio.high, reach)
        place = (text.index("●") - COLUMNS // 2) / (COLUMNS // 2)
        assert place == pytest.approx(row["estimate"] / high, abs=0.51 / (COLUMNS // 2))


def _rounds(chart: Chart, result: Result, record: StudyRecord) -> None:
    """Marks that are filled are the trials that the text says were used."""
    rows, last = drawn(chart), {(one.trial.number, one.attempt) for one in record.trials}
    assert len(rows) == len(record.attempts)
    for row, one, told in zip(rows, record.attempts, chart.rows, strict=True):
        assert one.measurement is not None
        assert row["value"] == one.measurement.get("iops")
        assert told[3] == quantity(BY_ID["iops"], row["value"])
        assert told[4].startswith("yes") is row["counts"]
        assert ("repeated" in told[4]) is ((one.trial.number, one.attempt) not in last)
    for arm in result.arms:
        value, filled = arm.get("iops"), sum(row["counts"] for row in rows if row["arm"] == arm.arm)
        assert value is not None
        assert filled == value.rounds


def _narrowing(chart: Chart, result: Result, _: StudyRecord) -> None:
    low, high = chart.spec["encoding"]["y"]["scale"]["domain"]
    base = result.study.baseline
    found = [(number, one, one.ratio) for number, some in result.looked for one in some if one.ratio is not None]
    known = {(number, one.candidate): ratio for number, one, ratio in found if one.baseline == base}
    for row in drawn(chart):
        ratio = known[row["round"], row["arm"]]
        assert math.exp(row["estimate"]) == pytest.approx(ratio.estimate)
        assert low <= row["low"] <= row["estimate"] <= row["high"] <= high
        for end, value in (("low", ratio.low), ("high", ratio.high)):
            assert row[end] in (low, high) or math.exp(row[end]) == pytest.approx(value)


def _bars(chart: Chart, result: Result, _: StudyRecord) -> None:
    for row, told in zip(drawn(chart), chart.rows, strict=True):
        value = result.value_of_a_round(row["arm"], WORKLOAD, "iops")
        assert value is not None
        assert row["iops"] == value.value
        assert told[1] == row["text"] == value_text(BY_ID["iops"], value)


def _cost(chart: Chart, result: Result, _: StudyRecord) -> None:
    for row in drawn(chart):
        for name, metric, scale in (("iops", "iops", 1.0), ("cost", "cpu_per_io", 1e6)):
            value = result.value_of_a_round(row["arm"], WORKLOAD, metric)
            assert value is not None
            assert row[name] == pytest.approx(value.value * scale)


def _threads(chart: Chart, result: Result, _: StudyRecord) -> None:
    """A bar is as long as the table's CPU time per I/O."""
    for arm in result.arms:
        value = result.value_of_a_round(arm.arm, WORKLOAD, "cpu_per_io")
        assert value is not None
        assert max(row["to"] for row in drawn(chart) if row["arm"] == arm.arm) == pytest.approx(value.value * 1e6)


def _percentiles(chart: Chart, result: Result, _: StudyRecord) -> None:
    for row in drawn(chart) if "data" in chart.spec else ():
        summary = result.summary(row["arm"], WORKLOAD)
        assert summary is not None
        assert summary.histogram is not None
        exact = summary.histogram.percentile(100 * (1 - 1 / row["x"]))
        assert exact is not None
        assert row["latency"] == pytest.approx(exact / 1e6)


def _heat(chart: Chart, _: Result, record: StudyRecord) -> None:
    """A round lies about its tick, and its shares are all of its I/Os."""
    for arm in record.study.arms:
        mine = [row for row in drawn(chart) if row["arm"] == arm.name]
        for number in {one.trial.round for one in record.trials}:
            here = [row for row in mine if row["round"] < number < row["to"]]
            assert {(row["round"] + row["to"]) / 2 for row in here} == {number}
            assert math.fsum(10 ** row["share"] for row in here) == pytest.approx(100)


@pytest.mark.parametrize("seed", SEEDS)
def test_a_title_names_what_a_verdict_decides_and_nothing_else(seed: int) -> None:
    result, record = at_random(seed)
    for metric in ("iops", "cpu_per_io", "latency.p99"):
        pairs = against(result, metric)
        decided = {name for name, one in pairs.items() if one.verdict in (Verdict.BETTER, Verdict.WORSE)}
        title = largest_decided(result, WORKLOAD, metric)
        named = {arm.name for arm in result.study.arms if f" of {arm.name} is " in title}
        assert named == (set() if not decided else named & decided), title
        assert bool(named) is bool(decided), title
        for name in named:
            assert value_text(BY_ID[metric], result.value_of_a_round(name, WORKLOAD, metric)) in title
    open_ = replace(
        result,
        verdicts=tuple(replace(one, verdict=Verdict.UNDECIDED) for one in result.verdicts),
        differences=tuple(replace(one, verdict=Verdict.UNDECIDED) for one in result.differences),
    )
    for chart in (*charts_of(open_, record), iops_bars(open_, WORKLOAD)):
        assert chart is not None
        words = chart.title.partition(": ")[2]
        assert not any(arm.name in words for arm in result.study.arms), "no winner where none is decided"


@pytest.mark.parametrize(
    ("sizes", "said"),
    [
        (((50.0, None, None), (50.0, None, None)), "load generator and host block layer and device (a)"),
        (((45.0, 40.0, 50.0), (55.0, 48.0, 62.0)), "load generator and host block layer and device (a)"),
        (((20.0, 18.0, 22.0), (80.0, 70.0, 90.0)), "host block layer and device (a)"),
        (((80.0, None, None), (20.0, None, None)), "load generator (a)"),
    ],
)
def test_layers_that_are_alike_are_both_named(sizes: tuple[tuple[Any, ...], ...], said: str) -> None:
    layers = tuple(
        replace(one, mean_ns=mean, low_ns=low, high_ns=high, share=mean / 100)
        for one, (mean, low, high) in zip(LAYERS.layers, sizes, strict=True)
    )
    result, _ = at_random(0)
    (first, *_) = result.arms
    chart = layer_times(
        replace(result, arms=(replace(first, arm="a", layers=replace(LAYERS, layers=layers)),)), WORKLOAD
    )
    assert chart is not None
    assert chart.title == f"{WORKLOAD}: most of a request's time goes to: {said}"


@pytest.mark.parametrize("factor", [1e-5, 0.003, 0.07, 0.25, 0.999, 1.0, 1.3, 8.0, 11.0, 450.0, 2e4])
def test_an_axis_holds_an_estimate_however_far_it_lies(factor: float) -> None:
    ratio = Interval(low=factor / 300, estimate=factor, high=factor * 300, confidence=0.95)
    reach = axis_of([ratio])
    row = forest_row("a against b", "undecided", ratio, math.log1p(reach), text="")
    assert abs(row["estimate"]) <= math.log1p(reach)
    assert "●" in bar(ratio.low, ratio.estimate, ratio.high, reach)
    assert len(axis(reach, "0")) == COLUMNS
