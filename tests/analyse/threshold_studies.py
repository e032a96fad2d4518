# SPDX-License-Identifier: Apache-2.0
"""Studies with conditions, with made-up figures."""

from virtune.model.evidence import InForce, StudyRecord, TrialRecord
from virtune.model.measurement import Measurement
from virtune.model.stack import Stack
from virtune.model.study import Arm, Study, StudyKind, Trial
from virtune.model.workload import Job, Workload


def study(
    base: list[float], other: list[float], *, paired: bool = True, confidence: float = 0.9, metric: str = "iops"
) -> StudyRecord:
    """A study of two arms whose rounds gave these values of a metric."""
    pairs = [
        (arm, number, value) for arm, values in (("a", base), ("b", other)) for number, value in enumerate(values)
    ]
    trials = tuple(
        Trial(number=index, round=number + 1, arm=arm, workload="w")
        for index, (arm, number, _) in enumerate(pairs, 1)
    )
    records = tuple(
        TrialRecord(
            trial=trial,
            ended="2026-01-01T00:00:01+00:00",
            in_force=InForce(),
            measurement=Measurement(values=((metric, value),)),
        )
        for trial, (_, _, value) in zip(trials, pairs, strict=True)
    )
    asked = Study(
        id="s",
        created="2026-01-01T00:00:00+00:00",
        kind=StudyKind.COMPARE,
        arms=(Arm(name="a", stack=Stack()), Arm(name="b", stack=Stack())),
        baseline="a",
        workloads=(Workload(name="w", meaning="", jobs=(Job(name="j", options=()),)),),
        rounds=max(len(base), len(other)),
        seconds=1.0,
        ramp_seconds=0.0,
        seed=1,
        scratch="",
        span_bytes=1,
        confidence=confidence,
        trials=trials,
        paired=paired,
    )
    return StudyRecord(study=asked, facts="", finished=True, trials=records)
