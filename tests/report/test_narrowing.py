# SPDX-License-Identifier: Apache-2.0
"""Intervals as they were after each round, what a limit looks like in the pictures, and pictures that stand alone."""

import json
from dataclasses import replace

import pytest
from tests.report.records import record

from virtune.analyse.study.summarise import summarise
from virtune.analyse.study.thresholds import LOOKS_MAX, looked_back
from virtune.analyse.study.verdicts import judge
from virtune.cli import run
from virtune.flows.reports.report import charts, svgs
from virtune.model.evidence import Waiver
from virtune.model.measurement import Histogram
from virtune.model.remark import Remark, Weight
from virtune.model.verdict import Threshold, Verdict
from virtune.report.charts.distribution import percentile_curve, rounds_in_time
from virtune.report.charts.forest import forest, narrowing
from virtune.report.charts.stacked import cpu_by_thread
from virtune.store.store import Store

pytestmark = pytest.mark.xdist_group("narrowing")  # what is made for the module is made once

WORKLOAD = "randread-4k"
DISTURBED = Remark(id="cpu-wait", weight=Weight.INVALID, text="", advice="")


@pytest.fixture(scope="module")
def simulated(tmp_path_factory: pytest.TempPathFactory) -> Store:
    """A store of a noisy comparison that was looked at after each round, and of a sweep with a limit."""
    place = tmp_path_factory.mktemp("narrowing") / "s.sqlite"
    words = ["--seed", "2", "--store", str(place), "-q"]
    arms = ["--arm", "one:rig=simulated:noisy", "--arm", "two:rig=simulated:noisy,disk.aio=native"]
    assert run(["compare", *arms, "--rounds", "16", "--fail-if", "latency.p99 > 90ms", *words]) in (0, 4, 5)
    assert run(["sweep", "--rig", "simulated", "--subject-to", "latency.p99<=1ms", *words]) == 0
    with Store(place) as found:
        return found


def test_each_look_is_that_of_the_run_and_the_last_one_that_of_the_result(simulated: Store) -> None:
    name = simulated.page(words="", kind="compare", limit=1, offset=0).rows[0].study.id  # type: ignore[union-attr]
    kept = simulated.get(name)
    looked = looked_back(kept)
    assert [number for number, _ in looked] == [number for number, _ in kept.study.looks or ()]
    assert looked[0][0] == 6
    assert looked[-1][1] == judge(kept)
    widths = [one.ratio.high / one.ratio.low for _, (one,) in looked if one.ratio is not None]
    assert widths[-1] < widths[0]


def test_many_rounds_are_thinned_and_the_last_one_stays() -> None:
    looked = looked_back(record(200))
    assert len(looked) <= LOOKS_MAX + 1
    assert looked[-1][0] == 200
    assert looked_back(replace(record(8), trials=(), attempts=())) == ()


def test_the_picture_has_every_interval_and_says_why_it_stopped(simulated: Store) -> None:
    made = {one.name.partition("-")[0]: one for one in charts(simulated, simulated.page(
        words="", kind="compare", limit=1, offset=0).rows[0].study.id)}  # type: ignore[union-attr]  # fmt: skip
    chart = made["narrowing"]
    rows = chart.spec["data"]["values"]
    assert len(rows) == len(chart.rows) == 11
    assert all(row["low"] <= row["estimate"] <= row["high"] for row in rows)
    assert "after 16 rounds" in chart.title
    assert "1 of 1 pair decided, so it stopped" in chart.title
    limit = made["percentiles"].spec["layer"][-2]["data"]["values"]
    assert limit == [{"from": 1.0, "to": pytest.approx(100.0), "limit": 90.0, "text": "latency.p99 > 90ms"}]


def test_one_round_is_no_picture_and_a_hostile_name_is_text() -> None:
    kept = record(8)
    result = summarise(kept)
    assert narrowing(result, WORKLOAD) is None
    assert narrowing(replace(result, looked=looked_back(kept)[:1]), WORKLOAD) is None
    named = replace(kept.study.arms[1], name="<script>\x1b[31m" + "x" * 10_000)
    trials = tuple(
        replace(one, trial=replace(one.trial, arm=named.name)) if one.trial.arm == "native" else one
        for one in kept.trials
    )
    study = replace(kept.study, arms=(kept.study.arms[0], named), trials=tuple(one.trial for one in trials))
    hostile = replace(kept, study=study, trials=trials, attempts=trials if kept.attempts else ())
    chart = narrowing(replace(summarise(hostile), looked=looked_back(hostile)), kept.study.workloads[0].name)
    assert chart is not None
    (svg,) = svgs([chart])
    assert "<script" not in svg
    assert "\x1b" not in svg


def test_the_title_counts_the_pairs_that_are_not_drawn_too() -> None:
    kept = record(8)
    result = replace(summarise(kept), looked=looked_back(kept))
    (own,) = (one for one in result.verdicts if one.metric == result.study.metric)
    others = tuple(replace(own, candidate=f"other {number}", verdict=Verdict.UNDECIDED) for number in range(7))
    chart = narrowing(replace(result, verdicts=(own, *others)), own.workload)
    assert chart is not None
    assert "after 8 rounds 1 of 8 pairs decided" in chart.title
    above = forest(replace(result, verdicts=(own, *(replace(one, ratio=None) for one in others))), own.workload)
    assert above is not None
    assert "1 of 8 pairs are decided" in above.title
    assert len(above.rows) == 1
    assert "1 of 8 pairs are shown" in chart.reading
    alone = narrowing(result, own.workload)
    assert alone is not None
    assert "are shown" not in alone.reading


def test_equal_tails_are_no_range() -> None:
    result = summarise(record(8))
    histogram = Histogram(bins=((100_000, 9_000), (1_000_000, 1_000)))
    equal = tuple(replace(one, histogram=histogram) for one in result.arms)
    chart = percentile_curve(replace(result, arms=equal), equal[0].workload)
    assert chart is not None
    assert chart.title.endswith("latency p99 is 1 ms in all arms")


def test_a_limit_on_reads_alone_is_no_line_in_the_curve_of_all_i_os() -> None:
    result = summarise(record(8))
    histogram = Histogram(bins=((100_000, 9_000), (1_000_000, 1_000)))
    one = replace(result.arms[0], histogram=histogram)
    for metric, layers in (("latency.p99", 4), ("read.latency.p99", 2)):
        limit = Threshold(metric=metric, relation=">", limit=1.0, text=f"{metric} > 1ms", value=1e6)
        limited = replace(result, arms=(one,), study=replace(result.study, conditions=(limit,)))
        chart = percentile_curve(limited, one.workload)
        assert chart is not None
        assert len(chart.spec["layer"]) == layers, metric


def test_the_curve_of_a_sweep_has_the_latency_that_was_limited_and_its_limit(simulated: Store) -> None:
    name = simulated.find("last")
    (chart,) = charts(simulated, name)
    assert "latency p99" in chart.columns
    data = [layer["data"]["values"] for layer in chart.spec["layer"] if "data" in layer]
    assert [{"limit": 1.0, "text": "latency.p99<=1ms"}] in data


def test_a_picture_alone_has_its_title_and_what_it_is_of(
    simulated: Store, capsys: pytest.CaptureFixture[str]
) -> None:
    assert run(["show", "report", "--spec", "--store", str(simulated.place)]) == 0
    for spec in json.loads(capsys.readouterr().out).values():
        title = spec["title"]
        assert "SIMULATED" in " ".join(title["text"])
        assert "the knee is at" in " ".join(title["text"])
        assert simulated.find("last") in " ".join(title["subtitle"])


def test_trials_whose_cause_is_waived_count_in_the_pictures() -> None:
    """A host that disturbs every trial: its trials are kept, and pictures must show what the table shows."""
    kept = record(8)
    disturbed = tuple(
        replace(one, ended=f"2026-01-02T03:{one.trial.number:02}:05+00:00", measurement=replace(
            one.measurement, remarks=(DISTURBED,), values=(*one.measurement.values, ("cpu.io.load", 1e-5))))
        for one in kept.trials if one.measurement is not None
    )  # fmt: skip
    kept = replace(kept, trials=disturbed, attempts=())
    waived = replace(summarise(kept), pardons=(Waiver(cause="cpu-wait", arm=None, text=""),))
    chart = rounds_in_time(waived, kept, kept.study.workloads[0].name)
    assert chart is not None
    assert all(row["counts"] for row in chart.spec["data"]["values"])
    assert "did not count" not in chart.title
    assert chart.rows[0][-1] == "yes, although: CPU contention"
    rejected = replace(waived, pardons=())
    chart = rounds_in_time(rejected, kept, kept.study.workloads[0].name)
    assert chart is not None
    assert not any(row["counts"] for row in chart.spec["data"]["values"])
    first = disturbed[0]
    assert first.measurement is not None
    sound = replace(first, measurement=replace(first.measurement, remarks=(), values=(("cpu.io.load", 9e-5),)))
    mixed = replace(kept, trials=(sound, *disturbed[1:]))
    of_all, of_one = (
        cpu_by_thread(replace(result, arms=()), mixed, kept.study.workloads[0].name) for result in (waived, rejected)
    )
    assert of_all is not None
    assert of_one is not None
    arm = first.trial.arm
    assert [row[2] for row in of_all.rows if row[0] == arm] == ["20 us"]
    assert [row[2] for row in of_one.rows if row[0] == arm] == ["90 us"]


def test_a_single_arm_s_curve_says_what_half_and_nearly_all_of_its_i_os_take() -> None:
    result = summarise(record(8))
    histogram = Histogram(bins=((100_000, 9_000), (1_000_000, 1_000)))
    one = replace(result.arms[0], histogram=histogram)
    chart = percentile_curve(replace(result, arms=(one,)), one.workload)
    assert chart is not None
    assert f"half of the I/Os of {one.arm} take at most 100 us, 99 % at most 1 ms" in chart.title
    limited = replace(result.study, conditions=(Threshold(metric="iops", relation="<", limit=0.97, text="iops"),))
    bare = percentile_curve(replace(result, arms=(one,), study=limited), one.workload)
    assert bare is not None
    assert len(bare.spec["layer"]) == 2


def test_intervals_in_the_numbers_of_pictures_are_what_they_can_tell() -> None:
    kept = record(12)
    found = summarise(replace(kept, study=replace(kept.study, confidence=0.95)))
    (one,) = found.verdicts
    assert one.ratio is not None
    wide = replace(one, ratio=replace(one.ratio, low=0.2, high=1940.0))
    drawn = narrowing(replace(found, looked=((6, (wide,)), (12, (one,)))), WORKLOAD)
    assert drawn is not None
    assert drawn.rows[0][2:5] == ("-80.0 %", "+10.0 %", "x10 or more")
    alone = forest(replace(found, verdicts=(replace(one, ratio=replace(one.ratio, confidence=0.983)),)), WORKLOAD)
    assert alone is not None
    assert "its 95 % confidence interval." in alone.reading, "all verdicts hold together at that"
