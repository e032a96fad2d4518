# SPDX-License-Identifier: Apache-2.0
"""The rules of a study, each by itself on made-up figures: what rounds are worth, what is shown, who is lost."""

import math
from dataclasses import replace
from random import Random
from statistics import geometric_mean

import numpy as np
import pytest
from tests.analyse.attempts import attempts
from tests.analyse.interim_studies import study, workload
from tests.analyse.noisy_trials import noisy
from tests.analyse.unpaired_runs import compared
from tests.analyse.verdict_runs import asked_of, run
from tests.report.records import study as two_arms

from virtune.analyse.stats.anytime import blocks_to_decide, contrasts
from virtune.analyse.stats.paired import Family, compare_at_any_time, compare_planned
from virtune.analyse.stats.planned import planned_contrasts, rounds_to_decide
from virtune.analyse.study.summarise import basis_of, summarise
from virtune.analyse.study.thresholds import rule
from virtune.analyse.study.verdicts import judge, lost_of
from virtune.analyse.trial.rejection import pardons, ramp_of
from virtune.model.evidence import InForce, StudyRecord, TrialRecord
from virtune.model.measurement import Histogram, Measurement
from virtune.model.metric import BY_ID
from virtune.model.stack import Stack
from virtune.model.study import Arm, Trial
from virtune.model.verdict import ROUNDS_MIN, Interval, Outcome, Verdict
from virtune.plan.goal import parse_conditions


def test_rounds_that_are_alike_are_worth_fewer() -> None:
    record = run(asked_of("ab", rounds=60), 40)
    (found,) = judge(record)
    for lag1, worth in ((0.0, 40.0), (0.5, 40 / 3)):
        (basis,) = basis_of(record, [replace(found, lag1=lag1)])
        assert basis.effective == pytest.approx(worth)


def test_the_error_of_an_interval_at_any_time_is_the_one_that_was_asked_for() -> None:
    chance = Random(3)
    arms = {name: [math.exp(chance.gauss(9, 0.03)) for _ in range(12)] for name in "ab"}
    family = Family(metric=BY_ID["iops"], workload="w", margin=0.03, confidence=0.95)
    (found,) = compare_at_any_time(family, arms, [("a", "b")])
    values = [[math.log(one) for one in arms[name]] for name in "ba"]
    (theirs,) = contrasts(np.array(values).T, [(0, 1)], alpha=0.05)
    assert found.ratio is not None
    assert math.log(found.ratio.high / found.ratio.low) == pytest.approx(2 * theirs.radius)


def test_few_rounds_that_look_independent_are_doubted_and_their_bias_is_added_back() -> None:
    values = np.random.default_rng(1).standard_normal((400, 12, 2))
    doubted = [contrasts(one, [(0, 1)], alpha=0.05)[0].lag1 for one in values]
    plain = [contrasts(one, [(0, 1)], alpha=0.05, doubt=0.0)[0].lag1 for one in values]
    # the measured one is 0 on average once 1/12 is added: half of it is then above, as far as its error of 0.29
    assert 0.08 < float(np.mean(plain)) < 0.15
    assert float(np.mean([one > 0 for one in plain])) == pytest.approx(0.5, abs=0.08)
    assert float(np.mean(doubted)) - float(np.mean(plain)) > 0.15


def test_the_rounds_that_are_left_are_those_beyond_the_ones_that_were_run() -> None:
    chance = Random(8)
    arms = {name: [math.exp(chance.gauss(9, 0.1)) for _ in range(20)] for name in "ab"}
    family = Family(metric=BY_ID["iops"], workload="w", margin=0.03, confidence=0.95)
    values = np.array([[math.log(one) for one in arms[name]] for name in "ba"]).T
    (found,) = compare_at_any_time(family, arms, [("a", "b")])
    whole = blocks_to_decide(contrasts(values, [(0, 1)], alpha=0.05)[0], margin=0.03, alpha=0.05)
    assert found.verdict is Verdict.UNDECIDED
    assert whole is not None
    assert found.rounds_left == whole - 20
    (found,) = compare_planned(family, arms, [("a", "b")], level=0.01)
    whole = rounds_to_decide(planned_contrasts(values, [(0, 1)], level=0.01)[0], margin=0.03, alpha=0.05)
    assert whole is not None
    assert found.rounds_left == whole - 20


def test_an_interval_that_the_second_opinion_refutes_breaches_no_condition() -> None:
    """Twenty rounds of which a few are far below and most a little above: the sign test does not agree."""
    chance = Random(5)
    base = [1000.0 * math.exp(chance.gauss(0, 0.001)) for _ in range(8)]
    shares = [1.001, 0.60, 1.001, 0.60, 1.002, 0.60, 1.001, 0.6]
    asked = replace(study(workload("w"), rounds=8), sequential=False, confidence=0.5)
    made = list[TrialRecord]()
    for number, (one, share) in enumerate(zip(base, shares, strict=True), 1):
        for arm, value in (("a", one), ("b", one * share)):
            trial = Trial(number=len(made) + 1, round=number, arm=arm, workload="w")
            measurement = Measurement(values=(("iops", value),))
            made.append(TrialRecord(trial=trial, ended="", in_force=InForce(), measurement=measurement))
    record = StudyRecord(study=asked, facts="", finished=True, trials=tuple(made))
    (found,) = rule(record, parse_conditions(["iops < -1%"]))
    assert found.comparison.ratio is not None
    assert found.comparison.ratio.high < 0.99
    assert found.outcome is Outcome.UNDECIDED


def failing(rounds: int) -> list[TrialRecord]:
    trials = (Trial(number=one, round=one, arm="b", workload="w") for one in range(1, rounds + 1))
    return [TrialRecord(trial=one, ended="", in_force=InForce(), failure="gone") for one in trials]


def test_an_arm_is_lost_after_three_rounds_and_not_before() -> None:
    assert lost_of(failing(1)) == lost_of(failing(2)) == {}
    assert list(lost_of(failing(3))) == [("b", "w")]


def test_halves_that_differ_by_less_than_matters_leave_the_ramp() -> None:
    """A quiet host shows a start-up of 1 % for certain; a ramp twice as long would cost more than it helps."""
    small = noisy(two_arms(8), lambda _, slice_: 0.99 if slice_ < 8 else 1.0, seed=1, sd=0.0005)
    assert ramp_of(two_arms(8), small).findings == ()
    large = noisy(two_arms(8), lambda _, slice_: 0.95 if slice_ < 8 else 1.0, seed=1, sd=0.0005)
    assert ramp_of(two_arms(8), large).findings


def test_many_arms_share_the_chance_of_a_longer_ramp() -> None:
    """What one of two arms would show clearly, one of forty shows by chance."""
    found = []
    for arms in (2, 40):
        made = list[TrialRecord]()
        for number, off in enumerate((-1.4, -0.7, 0.0, 0.7, 1.4), 1):
            for arm in range(arms):
                later = math.exp(0.05 + 0.0155 * off) if arm == 0 else 1.0
                profile = tuple(1000.0 * (later if slice_ >= 8 else 1.0) for slice_ in range(16))
                trial = Trial(number=len(made) + 1, round=number, arm=f"a{arm}", workload="w")
                measurement = Measurement(values=(), profile=profile, profile_seconds=0.25)
                made.append(TrialRecord(trial=trial, ended="", in_force=InForce(), measurement=measurement))
        names = tuple(Arm(name=f"a{arm}", stack=Stack()) for arm in range(arms))
        asked = replace(study(workload("w")), arms=names, baseline="a0", ramp_seconds=0.5)
        found.append(bool(ramp_of(asked, made).findings))
    assert found == [True, False]


def test_a_load_generator_at_its_limit_may_be_let_in() -> None:
    found = pardons(attempts(rejected={"a": 9, "b": 9}, tried={"a": 10, "b": 10}, cause="generator"))
    assert [(one.cause, one.arm) for one in found] == [("generator", None)]


def measured(*values: Measurement) -> StudyRecord:
    asked = study(workload("w"))
    trials = tuple(
        TrialRecord(
            trial=Trial(number=number, round=number, arm="a", workload="w"), ended="", in_force=InForce(),
            measurement=value,
        )
        for number, value in enumerate(values, 1)
    )  # fmt: skip
    return StudyRecord(study=asked, facts="", finished=True, trials=trials)


def test_percentiles_come_from_added_histograms_and_rates_are_geometric_means() -> None:
    """A fast round of 9,000 I/Os and a slow one of 1,000: the mean of their percentiles would be 5 ms."""
    fast = Histogram(bins=((100_000, 9000),))
    slow = Histogram(bins=((10_000_000, 1000),))
    found = summarise(
        measured(
            *(
                Measurement(values=(("iops", rate), ("latency.p50", float(one.bins[0][0]))), histogram=one)
                for rate, one in ((100.0, fast), (10_000.0, slow))
            )
        )
    ).summary("a", "w")
    assert found is not None
    iops, median = found.get("iops"), found.get("latency.p50")
    assert iops is not None
    assert median is not None
    assert iops.value == pytest.approx(geometric_mean([100.0, 10_000.0]))
    assert median.value == pytest.approx(100_000, rel=0.01)


def test_runs_whose_ranks_do_not_agree_decide_nothing() -> None:
    """Welch's interval leaves out no change, and two of six runs lie among those of the other arm."""
    base = [1000.0, 1001.0, 1002.0, 1003.0, 1004.0, 1005.0]
    other = [1003.5, 1002.5, 1001.5, 1100.0, 1100.0, 1100.0]
    found = compared(base, other, confidence=0.8)
    assert found.ratio is not None
    assert found.ratio.low > 1.0
    assert found.verdict is Verdict.UNDECIDED
    assert "rank test" in found.why


def test_six_rounds_are_the_fewest_that_a_sign_test_can_tell_by() -> None:
    assert 2 * 0.5**ROUNDS_MIN < 0.05 < 2 * 0.5 ** (ROUNDS_MIN - 1)


@pytest.mark.parametrize(
    ("low", "high", "within"), [(0.98, 1.02, True), (0.9715, 1.02, True), (0.9705, 1.02, False), (0.98, 1.031, False)]
)
def test_a_margin_is_a_factor_up_or_down(low: float, high: float, within: bool) -> None:
    assert Interval(estimate=1.0, low=low, high=high, confidence=0.95).within(0.03) is within
    assert Interval(estimate=1.0, low=1 / high, high=1 / low, confidence=0.95).within(0.03) is within
