# SPDX-License-Identifier: Apache-2.0
"""Whatever is said together shares one error: each verdict, condition, limit and look at halves has a part."""

import math
from dataclasses import replace
from random import Random

import numpy as np
import pytest
from tests.analyse.test_thresholds import study as two_arms
from tests.analyse.test_warm_up import noisy
from tests.report.test_documents import study

from virtune.analyse.search.constraints import check_limits
from virtune.analyse.search.race import standing_after
from virtune.analyse.stats.anytime import blocks_to_decide, contrasts
from virtune.analyse.stats.noise import lag1_of
from virtune.analyse.stats.paired import compare_at_any_time
from virtune.analyse.stats.unpaired import compare_unpaired
from virtune.analyse.study.thresholds import rule
from virtune.analyse.study.verdicts import confidence_of_one
from virtune.analyse.trial.warm_up import ramp_of
from virtune.model.condition import Outcome
from virtune.model.evidence import StudyRecord
from virtune.model.goal import Limit
from virtune.model.metric import BY_ID
from virtune.model.standing import RaceRules
from virtune.model.verdict import ROUNDS_MIN, Verdict
from virtune.model.workload import Job, Workload
from virtune.plan.thresholds import parse_conditions

FEW_CARRY_IT = [99.0, 99.9, 101.4, 98.6, 97.8], [88.9, 91.4, 88.8, 87.1, 99.1]
"""Two arms whose means are apart by Welch at 0.90, while the ranks do not tell them apart (p = 0.056)."""


def drawn(mean: float, rounds: int, *, seed: int, sd: float = 0.02) -> list[float]:
    chance = Random(seed)
    return [math.exp(chance.gauss(mean, sd)) for _ in range(rounds)]


def with_arms_and_workloads(record: StudyRecord, arms: int, workloads: int) -> StudyRecord:
    asked = record.study
    names = [f"w{number}" for number in range(workloads - 1)]
    extra = tuple(Workload(name=name, meaning="", jobs=(Job(name="j", options=()),)) for name in names)
    more = tuple(replace(asked.arms[0], name=f"more{number}") for number in range(arms - 2))
    return replace(record, study=replace(asked, arms=(*asked.arms, *more), workloads=(*asked.workloads, *extra)))


@pytest.mark.parametrize(("arms", "workloads", "conditions"), [(2, 1, 1), (2, 1, 2), (4, 1, 1), (3, 2, 2)])
def test_conditions_share_the_error_with_arms_and_workloads(arms: int, workloads: int, conditions: int) -> None:
    record = with_arms_and_workloads(two_arms(drawn(9, 8, seed=1), drawn(9, 8, seed=2)), arms, workloads)
    asked = parse_conditions(["iops < -3%", "iops < -5%"][:conditions])
    found = [one.comparison.ratio for one in rule(record, asked) if one.comparison.ratio is not None]
    assert len(found) == conditions
    for ratio in found:
        assert 1 - ratio.confidence == pytest.approx(0.1 / (conditions * workloads * (arms - 1)))


def test_a_condition_does_not_rest_on_an_interval_that_the_ranks_refute() -> None:
    base, other = FEW_CARRY_IT
    found = compare_unpaired(BY_ID["iops"], ("a", base), ("b", other), workload="w", margin=0.03, confidence=0.9)
    assert found.ratio is not None
    assert found.ratio.high < 0.97
    assert (found.verdict, found.why.partition(":")[0]) == (Verdict.UNDECIDED, "the rank test is not significant")
    (ruling,) = rule(two_arms(base, other, paired=False), parse_conditions(["iops < -3%"]))
    assert ruling.outcome is Outcome.UNDECIDED


@pytest.mark.parametrize(
    ("pairs", "workloads", "judged"), [("all", 1, 1), ("all", 2, 1), ("all", 1, 3), ("all", 3, 2)]
)
def test_verdicts_share_the_error_with_pairs_workloads_and_metrics(pairs: str, workloads: int, judged: int) -> None:
    record = with_arms_and_workloads(two_arms([1.0], [1.0], confidence=0.94), 3, workloads)
    also = ("latency.p99", "bandwidth")[: judged - 1]
    asked = replace(record.study, pairs="all", also=also)
    assert len(asked.judged) == judged
    assert 1 - confidence_of_one(asked) == pytest.approx(0.06 / (3 * workloads * judged))


def test_a_comparison_has_the_confidence_that_was_asked_for() -> None:
    base, other = drawn(9, 12, seed=3), drawn(9.01, 12, seed=4)
    (found,) = compare_at_any_time(
        BY_ID["iops"], {"a": base, "b": other}, [("a", "b")], workload="w", margin=0.03, confidence=0.95
    )
    (known,) = contrasts(np.log(np.array([base, other])).T, [(1, 0)], alpha=0.05)
    assert found.ratio is not None
    assert math.log(found.ratio.low) == pytest.approx(known.mean - known.radius)
    assert math.log(found.ratio.high) == pytest.approx(known.mean + known.radius)
    assert found.verdict is Verdict.UNDECIDED
    count = blocks_to_decide(known, margin=0.03, alpha=0.05)
    assert count is not None
    assert count > ROUNDS_MIN
    assert found.rounds_left == max(1, count - 12), "rounds that are done are not left"


def test_blocks_that_look_independent_are_doubted() -> None:
    chance = np.random.default_rng(5)
    draws = [chance.normal(0, 0.02, (20, 2)) for _ in range(20)]
    doubted = sum(contrasts(values, [(0, 1)], alpha=0.05)[0].radius for values in draws)
    believed = sum(contrasts(values, [(0, 1)], alpha=0.05, doubt=0.0)[0].radius for values in draws)
    assert doubted > 1.05 * believed


@pytest.mark.parametrize("blocks", [5, 8, 20])
def test_independent_blocks_have_no_lag_1_correlation_on_average(blocks: int) -> None:
    chance = np.random.default_rng(blocks)
    found = [lag1_of(chance.normal(0, 1, (blocks, 3))) for _ in range(400)]
    assert abs(float(np.mean(found))) < 0.5 / blocks


def test_a_race_keeps_a_share_of_its_error_for_arms_that_join_later() -> None:
    chance = np.random.default_rng(7)
    history = [{"a": chance.normal(0.01, 0.02), "b": chance.normal(0, 0.02)} for _ in range(10)]

    def reach(rules: RaceRules) -> float:
        found = [one.against_leader for one in standing_after(["a", "b"], rules, history).runners]
        return max(one.radius for one in found if one is not None)

    assert reach(RaceRules(arms_max=64)) > 1.1 * reach(RaceRules())


def test_limits_share_the_error_with_arms() -> None:
    limit = Limit(metric="iops", sense=">=", value=8000.0, text="iops>=8000")
    slices = [{"iops": value} for value in drawn(9, 8, seed=6)]
    (alone,) = check_limits([limit], {("a", "w"): slices}, error=0.05)
    among = check_limits([limit], {(name, "w"): slices for name in "abcdefgh"}, error=0.05)[0]
    assert alone.low is not None
    assert among.low is not None
    assert among.low < alone.low


def test_many_steady_arms_are_called_unsteady_together_as_seldom_as_two() -> None:
    asked = study(5)
    names = [f"arm{number}" for number in range(32)]
    trials = [replace(asked.trials[0], number=0, round=number, arm=name) for number in range(1, 6) for name in names]
    crowd = replace(asked, arms=tuple(replace(asked.arms[0], name=name) for name in names), trials=tuple(trials))
    found = [
        bool(ramp_of(crowd, noisy(crowd, lambda *_: 1.0, seed=seed, sd=0.12, rho=0.7)).findings)
        for seed in range(150)
    ]
    assert sum(found) <= 6  # one in a hundred is promised: 6 of 150 are four standard deviations above


def test_a_difference_of_halves_that_nobody_would_mind_is_no_start_up() -> None:
    asked = study(8)
    found = ramp_of(asked, noisy(asked, lambda _, slice_: 1.004 if slice_ < 8 else 1.0, seed=1, sd=0.0005))
    assert found.findings == ()
