# SPDX-License-Identifier: Apache-2.0
"""What all figures of a study show together: planted tails that are alike or not, first trials that differ or not."""

import random
from collections.abc import Sequence

import pytest

from virtune.analyse.study.patterns import patterns_of
from virtune.fio.workloads import parse_workload
from virtune.model.evidence import InForce, TrialRecord
from virtune.model.measurement import Measurement
from virtune.model.result import ArmSummary, Value
from virtune.model.stack import Stack
from virtune.model.study import Arm, Study, StudyKind, Trial

ARMS = (Arm(name="metal", stack=Stack(rig="metal")), Arm(name="threads", stack=Stack()))
STUDY = Study(
    id="s", created="", kind=StudyKind.COMPARE, arms=ARMS, baseline="metal", rounds=6, seconds=1, ramp_seconds=0,
    seed=1, workloads=parse_workload("rw=randread,bs=4k,iodepth=8"), scratch="", span_bytes=1,
)  # fmt: skip
LOAD = STUDY.workloads[0].name


def summaries(bodies: Sequence[float], tails: Sequence[tuple[float, float, float]]) -> list[ArmSummary]:
    """Two arms with their median and p99.9 (value, low, high)."""
    return [
        ArmSummary(
            arm=arm.name, workload=LOAD, rounds=6, histogram=None, in_force=(), remarks=(), failures=(),
            values=(
                Value(metric="latency.p50", value=body, rounds=6, spread=None),
                Value(metric="latency.p99.9", value=tail[0], rounds=6, spread=None, low=tail[1], high=tail[2]),
            ),
        )
        for arm, body, tail in zip(ARMS, bodies, tails, strict=True)
    ]  # fmt: skip


def trials(first: float, others: Sequence[float]) -> list[TrialRecord]:
    """Rounds of one arm with these IOPS."""
    return [
        TrialRecord(
            trial=Trial(number=number, round=number, arm="metal", workload=LOAD, restart=False), ended="",
            in_force=InForce(checks=()), measurement=Measurement(values=(("iops", iops),)),
        )
        for number, iops in enumerate((first, *others), 1)
    ]  # fmt: skip


ALIKE = [(5e6, 4.6e6, 5.4e6), (5.2e6, 4.8e6, 5.7e6)]


def test_a_tail_that_all_arms_share_comes_from_below_them() -> None:
    (said,) = patterns_of(STUDY, summaries((80e3, 140e3), ALIKE), ())
    assert said.startswith("the tail is alike in all arms, bare metal included: p99.9 is 5 ms to 5.20 ms")
    assert "medians differ by a factor of 1.8" in said


@pytest.mark.parametrize(
    ("bodies", "tails"),
    [
        ((80e3, 140e3), [(5e6, 4.6e6, 5.4e6), (9e6, 8.5e6, 9.5e6)]),
        ((80e3, 90e3), ALIKE),
        ((80e3, 140e3), [(5e6, 1e6, 9e6), (5.2e6, 4.8e6, 5.7e6)]),
    ],
    ids=["other-tails", "like-bodies", "wide-interval"],
)
def test_arms_that_differ_there_too_or_are_alike_everywhere_say_nothing(
    bodies: Sequence[float], tails: Sequence[tuple[float, float, float]]
) -> None:
    assert patterns_of(STUDY, summaries(bodies, tails), ()) == ()


def test_a_first_trial_that_differs_is_told() -> None:
    (said,) = patterns_of(STUDY, (), trials(700, (1000, 1010, 990, 1005, 995)))
    assert said.startswith("the first trial of all differs: metal did -30 % IOPS in it against its other 5 rounds")
    assert patterns_of(STUDY, (), trials(985, (1000, 1001, 1000, 999, 1000))) == (), "too little to matter"
    assert patterns_of(STUDY, (), trials(700, (1000, 1010, 990))) == (), "too few to compare with"


def test_first_trials_like_the_others_are_told_to_differ_once_in_a_hundred() -> None:
    chance = random.Random(5)
    told = 0
    for _ in range(2000):
        first, *others = (1000 * 1.1 ** chance.gauss(0, 1) for _ in range(6))
        told += bool(patterns_of(STUDY, (), trials(first, others)))
    assert told <= 35, "20 are expected, and 35 are three standard deviations more"
