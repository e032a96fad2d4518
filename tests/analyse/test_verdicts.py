# SPDX-License-Identifier: Apache-2.0
"""Verdicts share one error, are those of the last look, and stand in the table with the interval that decides."""

import math
from dataclasses import replace

import pytest
from tests.analyse.interim_studies import workload
from tests.analyse.verdict_runs import asked_of, run

from virtune.analyse.stats.group_sequential import dunnett_alpha, level_of
from virtune.analyse.study.interim_analysis import look
from virtune.analyse.study.summarise import summarise
from virtune.analyse.study.thresholds import rule
from virtune.analyse.study.verdicts import confidence_of_one, judge, looks_of, pairs_of
from virtune.model.evidence import StudyRecord, TrialRecord
from virtune.model.remark import Remark, Weight
from virtune.model.verdict import ROUNDS_MIN, Verdict
from virtune.plan.thresholds import parse_conditions


def test_verdicts_share_their_error_among_pairs_workloads_and_metrics() -> None:
    one = asked_of()
    of_one = {
        "baseline": 1 - confidence_of_one(one),
        "all": 1 - confidence_of_one(replace(one, pairs="all")),
        "workloads": 1 - confidence_of_one(replace(one, workloads=(workload("w"), workload("x")))),
        "metrics": 1 - confidence_of_one(replace(one, also=("latency.p99", "latency.p50"))),
        "two arms": 1 - confidence_of_one(asked_of("ab")),
    }
    assert of_one == pytest.approx(
        {
            "baseline": dunnett_alpha(3, 0.05),
            "all": 0.05 / 6,
            "workloads": dunnett_alpha(3, 0.025),
            "metrics": dunnett_alpha(3, 0.05 / 3),
            "two arms": 0.05,
        }
    )
    assert 0.05 / 3 < of_one["baseline"] < 0.02


def test_the_pairs_with_the_baseline_get_verdicts_unless_all_are_asked_for() -> None:
    assert pairs_of(asked_of("abc")) == [("a", "b"), ("a", "c")]
    assert pairs_of(asked_of("abc", pairs="all")) == [("a", "b"), ("a", "c"), ("b", "c")]
    record = run(asked_of("abc"), 8)
    assert [(one.baseline, one.candidate) for one in judge(record)] == [("a", "b"), ("a", "c")]
    assert {one.ratio.confidence for one in judge(record) if one.ratio} == {confidence_of_one(record.study)}


def test_one_figure_has_one_interval_and_other_metrics_stand_by_themselves() -> None:
    result = summarise(run(asked_of(), 20, better=1.2))
    rows = {(one.candidate, one.metric): one for one in result.differences}
    for one in result.verdicts:
        assert rows[one.candidate, "iops"] == one
    alone = rows["d", "latency.p99"].ratio
    assert alone is not None
    assert alone.confidence == pytest.approx(0.95)
    assert rows["d", "iops"].ratio is not None
    assert rows["d", "iops"].ratio.confidence > 0.975


def test_a_look_counts_the_rounds_of_its_workload_from_the_sixth_on() -> None:
    one = replace(asked_of(), looks=((5, 0.1), (6, 0.2), (7, 0.3), (9, 0.4), (12, 0.5)))
    assert looks_of(one, range(1, 13)) == ((6, 0.2), (7, 0.3), (9, 0.4), (12, 0.5))
    assert looks_of(one, range(1, 8)) == ((6, 0.2), (7, 0.3))  # it was decided then, and has no more rounds
    assert looks_of(one, range(3, 13)) == ((7, 0.4), (10, 0.5))  # it began in the third round
    assert looks_of(replace(one, looks=None), range(1, 13)) == ()


def test_rounds_after_the_last_look_wait_for_the_next_one() -> None:
    record = run(asked_of("ab"), 12)
    early = replace(record, study=replace(record.study, looks=(record.study.looks or ())[:8]))
    first = StudyRecord(
        study=early.study,
        facts="",
        finished=False,
        trials=tuple(one for one in record.trials if one.trial.round <= 8),
    )
    assert judge(early) == judge(first)
    assert judge(early)[0].rounds == 8


def test_the_interval_is_wide_early_in_a_plan_and_narrow_at_its_end_for_the_same_rounds() -> None:
    widths = []
    for planned in (200, 20):
        (one,) = judge(run(asked_of("ab", rounds=planned), 20))
        assert one.ratio is not None
        widths.append(math.log(one.ratio.high / one.ratio.low))
    early = level_of(tuple((float(n), n / 200) for n in range(6, 21)), 0.05)
    assert early < 0.001
    assert widths[0] > 1.5 * widths[1]


def test_an_older_study_is_judged_as_it_was() -> None:
    """By intervals that hold at any time, over all pairs: they know nothing of looks."""
    record = run(asked_of("abc"), 12, better=1.1)
    old = replace(record, study=replace(record.study, looks=None, pairs="all"))
    found = judge(old)
    assert len(found) == 3
    assert {one.ratio.confidence for one in found if one.ratio} == {1 - 0.05 / 3}
    assert found[1].ratio is not None
    assert found[1].ratio.low != judge(record)[1].ratio.low  # type: ignore[union-attr]


def test_trials_that_do_not_count_are_not_compared() -> None:
    record = run(asked_of("ab", rounds=60), 30, noise=0.01)
    bad = Remark(id="steal", weight=Weight.INVALID, text="stolen", advice="")

    def disturbed(one: TrialRecord) -> TrialRecord:
        assert one.measurement is not None
        slow = tuple((name, value / 3) for name, value in one.measurement.values)
        return replace(one, measurement=replace(one.measurement, values=slow, remarks=(bad,)))

    trials = tuple(
        disturbed(one) if one.trial.round in (3, 11) and one.trial.arm == "b" else one for one in record.trials
    )
    (found,) = judge(replace(record, trials=trials))
    assert found.rounds == 28
    assert found.verdict is Verdict.SAME


def test_conditions_share_the_error_among_themselves_workloads_and_arms() -> None:
    record = run(asked_of("abc"), 20)
    for texts, count in ((["iops < -3%"], 2), (["iops < -3%", "latency.p99 > +5%"], 4)):
        found = rule(record, parse_conditions(texts))
        assert len(found) == count
        assert {round(1 - one.comparison.ratio.confidence, 9) for one in found if one.comparison.ratio} == {
            round(0.05 / count, 9)
        }


def test_a_study_is_decided_at_a_look_and_not_before_six_rounds() -> None:
    for count, decided in ((ROUNDS_MIN - 1, False), (ROUNDS_MIN, True)):
        seen = look(run(asked_of("ab"), count, better=3.0, noise=0.01))
        assert (seen.workloads == frozenset()) is decided
