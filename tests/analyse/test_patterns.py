# SPDX-License-Identifier: Apache-2.0
"""What all figures of a study show together: planted tails that are alike or not, first trials that differ or not."""

import random
from collections.abc import Sequence
from dataclasses import replace

import pytest

from virtune.analyse.study.verdicts import patterns_of
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


def summaries(bodies: Sequence[float], tails: Sequence[float]) -> list[ArmSummary]:
    """Two arms with their median, p99 and p99.9."""
    return [
        ArmSummary(
            arm=arm.name, workload=LOAD, rounds=6, histogram=None, in_force=(), remarks=(), failures=(),
            values=(
                Value(metric="latency.p50", value=body, rounds=6, spread=None),
                Value(metric="latency.p99", value=3 * body, rounds=6, spread=None),
                Value(metric="latency.p99.9", value=tail, rounds=6, spread=None),
            ),
        )
        for arm, body, tail in zip(ARMS, bodies, tails, strict=True)
    ]  # fmt: skip


def rounds(bodies: Sequence[float], tails: Sequence[float], noise: float, seed: int = 3) -> list[TrialRecord]:
    """Ten rounds of two arms; the p99 follows the body, and the p99.9 is the tail. Both are as noisy as `noise`."""
    chance = random.Random(seed)
    return [
        TrialRecord(
            trial=Trial(number=2 * number + index, round=number, arm=arm.name, workload=LOAD, restart=False),
            ended="", in_force=InForce(checks=()), measurement=Measurement(values=(
                ("latency.p50", bodies[index] * chance.lognormvariate(0, 0.05)),
                ("latency.p99", 3 * bodies[index] * chance.lognormvariate(0, noise)),
                ("latency.p99.9", tails[index] * chance.lognormvariate(0, noise)),
            )),
        )
        for number in range(1, 11) for index, arm in enumerate(ARMS)
    ]  # fmt: skip


def tail_said(
    bodies: Sequence[float], tails: Sequence[float], *, noise: float = 0.1, seed: int = 3
) -> tuple[str, ...]:
    return patterns_of(STUDY, summaries(bodies, tails), rounds(bodies, tails, noise, seed))


def trials(first: float, others: Sequence[float]) -> list[TrialRecord]:
    """Rounds of one arm with these IOPS."""
    return [
        TrialRecord(
            trial=Trial(number=number, round=number, arm="metal", workload=LOAD, restart=False), ended="",
            in_force=InForce(checks=()), measurement=Measurement(values=(("iops", iops),)),
        )
        for number, iops in enumerate((first, *others), 1)
    ]  # fmt: skip


BODIES, ALIKE = (80e3, 140e3), (5e6, 5.2e6)


def test_a_tail_that_all_arms_share_comes_from_below_them() -> None:
    (said,) = tail_said(BODIES, ALIKE)
    assert said.startswith("the tail is alike in all arms, the disk without QEMU included: p99.9 is 5 ms to 5.20 ms")
    assert "medians differ by a factor of 1.8" in said
    assert "percentiles from p99.9 on say more of that than of the arms" in said, "the p99 of these follows the body"


def test_from_the_lowest_percentile_on_that_is_alike() -> None:
    found = [
        replace(one, values=tuple((name, 1e6 if name == "latency.p99" else value) for name, value in one.values))
        for one in (trial.measurement for trial in rounds(BODIES, ALIKE, 0.1)) if one is not None
    ]  # fmt: skip
    trials = [replace(one, measurement=two) for one, two in zip(rounds(BODIES, ALIKE, 0.1), found, strict=True)]
    (said,) = patterns_of(STUDY, summaries(BODIES, ALIKE), trials)
    assert "percentiles from p99 on say more of that" in said


@pytest.mark.parametrize(
    ("bodies", "tails", "noise"),
    [
        (BODIES, (5e6, 9e6), 0.1),
        ((80e3, 90e3), ALIKE, 0.1),
        (BODIES, ALIKE, 1.0),
        ((80e3, 100e3), (5e6, 6.25e6), 0.1),
        ((80e3, 180e3), (5e6, 6.5e6), 0.1),
    ],
    ids=["other-tails", "like-bodies", "nothing-shown", "tails-that-follow-the-body", "tails-that-surely-differ"],
)
def test_arms_that_differ_there_too_or_are_alike_everywhere_say_nothing(
    bodies: Sequence[float], tails: Sequence[float], noise: float
) -> None:
    assert tail_said(bodies, tails, noise=noise) == ()


def test_tails_that_differ_as_the_bodies_do_are_seldom_called_alike() -> None:
    told = sum(bool(tail_said(BODIES, (5e6, 8.75e6), noise=0.3, seed=seed)) for seed in range(200))
    assert told <= 2, f"of 200 studies {told}"
    found = sum(bool(tail_said(BODIES, (5e6, 5e6), noise=0.2, seed=seed)) for seed in range(200))
    assert found >= 180, f"of 200 studies with one tail {found}"


def test_a_first_trial_that_differs_is_told() -> None:
    (said,) = patterns_of(STUDY, (), trials(700, (1000, 1010, 990, 1005, 995)))
    assert said.startswith(
        "the first trial of all differs: metal did 30 % fewer IOPS in it than in its other 5 rounds"
    )
    assert patterns_of(STUDY, (), trials(985, (1000, 1001, 1000, 999, 1000))) == (), "too little to matter"
    assert patterns_of(STUDY, (), trials(700, (1000, 1010, 990))) == (), "too few to compare with"


def test_first_trials_like_the_others_are_told_to_differ_once_in_a_hundred() -> None:
    chance = random.Random(5)
    told = 0
    for _ in range(2000):
        first, *others = (1000 * 1.1 ** chance.gauss(0, 1) for _ in range(6))
        told += bool(patterns_of(STUDY, (), trials(first, others)))
    assert told <= 35, "20 are expected, and 35 are three standard deviations more"
