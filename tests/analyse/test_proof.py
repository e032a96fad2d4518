# SPDX-License-Identifier: Apache-2.0
"""The verdict on an accusation, from planted intervals: confirmed, refuted, or undecided, each with its reason."""

from dataclasses import replace

import pytest

from virtune.analyse.study.thresholds import judge_proof
from virtune.model.bottleneck import Cause
from virtune.model.reason import Reason
from virtune.model.verdict import (
    OUTCOMES,
    Comparison,
    Interval,
    Outcome,
    Proof,
    ProofOutcome,
    ProofReason,
    ThresholdResult,
    Verdict,
)
from virtune.plan.goal import parse_condition


def comparison(arm: str, low: float, high: float, *, metric: str = "iops") -> Comparison:
    ratio = Interval(estimate=(low * high) ** 0.5, low=low, high=high, confidence=0.95)
    return Comparison(
        workload="w", metric=metric, baseline="as-is", candidate=arm, rounds=6, ratio=ratio,
        verdict=Verdict.BETTER, why="", reason=Reason.BETTER_SIDE,
    )  # fmt: skip


def ruling(condition: str, low: float, high: float) -> ThresholdResult:
    found = parse_condition(condition)
    held = low > found.limit if found.relation == "<" else high < found.limit
    breached = high < found.limit if found.relation == "<" else low > found.limit
    outcome = Outcome.HELD if held else Outcome.BREACHED if breached else Outcome.UNDECIDED
    one = comparison("without", low, high, metric=found.metric)
    return ThresholdResult(
        condition=found, comparison=one, outcome=outcome, why="crosses", reason=Reason.CROSSES_LIMIT
    )


Ends = tuple[float, float]


def judged(
    condition: str,
    low: float,
    high: float,
    *,
    again: Cause | None = Cause.DEVICE,
    stand: Ends | None = None,
    share: float | None = 0.6,
) -> Proof:
    found = ruling(condition, low, high)
    beside = None if stand is None else comparison("stand-in", *stand, metric=found.condition.metric)
    return judge_proof(found, cause=Cause.DEVICE, again=again, share=share, stand_in=beside)


MORE = "iops < +43%"


@pytest.mark.parametrize(
    ("low", "high", "again", "reason"),
    [
        (1.9, 2.4, Cause.DEVICE, ProofReason.AS_SAID),
        (1.9, 2.4, Cause.HOST_CPU, ProofReason.AS_SAID),
        (1.0, 1.2, Cause.DEVICE, ProofReason.LESS_THAN_SAID),
        (0.5, 0.7, Cause.DEVICE, ProofReason.LESS_THAN_SAID),
        (1.0, 1.2, Cause.HOST_CPU, ProofReason.NOT_ACCUSED_AGAIN),
        (1.0, 1.2, Cause.UNDECIDED, ProofReason.NOT_ACCUSED_AGAIN),
        (1.0, 1.2, None, ProofReason.NOT_ACCUSED_AGAIN),
        (1.2, 2.4, Cause.DEVICE, ProofReason.NOISE),
    ],
)
def test_the_verdict_follows_from_the_interval(
    low: float, high: float, again: Cause | None, reason: ProofReason
) -> None:
    found = judged(MORE, low, high, again=again)
    assert (found.reason, found.outcome) == (reason, OUTCOMES[reason])
    sized = reason in (ProofReason.AS_SAID, ProofReason.LESS_THAN_SAID)
    assert ("follows from its share of the time" in found.why) is sized
    without = judged(MORE, low, high, again=again, share=None)
    assert without.reason is reason
    assert "share" not in without.why
    assert (without.why == found.why) is not sized
    assert (found.change, found.least, found.falls) == (ruling(MORE, low, high).comparison.ratio, 1.43, False)


@pytest.mark.parametrize(("low", "high"), [(1.9, 2.4), (0.8, 1.2), (1.2, 2.4)])
def test_an_undecided_proof_shows_no_interval_that_looks_decided(low: float, high: float) -> None:
    """Five rounds cannot decide, nor does an interval with which another test does not agree."""
    few = replace(ruling(MORE, low, high), outcome=Outcome.UNDECIDED, reason=Reason.TOO_FEW, why="5 are too few")
    found = judge_proof(few, cause=Cause.DEVICE, again=Cause.DEVICE, share=None, stand_in=None)
    assert found.outcome is ProofOutcome.UNDECIDED
    assert "5 are too few" in found.why
    crosses = low <= 1.43 <= high
    assert (found.change is not None) is crosses
    assert ("the change in the mean: " in found.why) is not crosses


@pytest.mark.parametrize(
    ("stand", "reason"),
    [
        ((0.95, 1.05), ProofReason.AS_SAID),
        ((0.5, 0.6), ProofReason.AS_SAID),
        ((1.8, 2.2), ProofReason.NOT_THE_DEVICE),
        ((1.1, 1.7), ProofReason.NOISE),
    ],
)
def test_a_device_of_the_same_latency_must_bring_the_time_back(stand: Ends, reason: ProofReason) -> None:
    assert judged(MORE, 1.9, 2.1, stand=stand).reason is reason


def test_a_latency_that_falls_is_a_load_that_gets_faster() -> None:
    found = judged("latency.mean > -30%", 0.4, 0.5, stand=(0.96, 1.02))
    assert (found.reason, found.falls) == (ProofReason.AS_SAID, False)
    assert "faster" in found.why
    assert judged("latency.mean > -30%", 0.4, 0.5, stand=(0.42, 0.48)).reason is ProofReason.NOT_THE_DEVICE


def test_a_load_that_memory_served_must_get_slower() -> None:
    found = judged("iops > -3%", 0.1, 0.2)
    assert (found.reason, found.falls) == (ProofReason.AS_SAID, True)
    assert "slower" in found.why
    assert judged("iops > -3%", 0.99, 1.01).reason is ProofReason.LESS_THAN_SAID


def test_every_reason_has_an_outcome() -> None:
    assert set(OUTCOMES) == set(ProofReason)
    assert set(OUTCOMES.values()) == set(ProofOutcome)
