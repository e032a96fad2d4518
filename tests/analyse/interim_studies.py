# SPDX-License-Identifier: Apache-2.0
"""Studies that are looked at while they run, with made-up figures."""

from collections.abc import Callable

from virtune.model.evidence import InForce, TrialRecord
from virtune.model.measurement import Measurement
from virtune.model.stack import Stack
from virtune.model.study import Arm, Study, StudyKind, Trial
from virtune.model.workload import Job, Workload

Disk = Callable[[Trial], dict[str, float] | str]
"""What a trial gives: values by metric, or why it failed."""


def workload(name: str, offered: float | None = None) -> Workload:
    return Workload(name=name, meaning="", jobs=(Job(name="j", options=()),), offered_iops=offered)


def study(*workloads: Workload, arms: str = "ab", metric: str = "iops", rounds: int = 100) -> Study:
    return Study(
        id="s", created="", kind=StudyKind.COMPARE, arms=tuple(Arm(name=name, stack=Stack()) for name in arms),
        baseline="a", workloads=workloads, rounds=rounds, seconds=2.0, ramp_seconds=0.0, seed=1, scratch="",
        span_bytes=1, metric=metric, confidence=0.95, sequential=True,
    )  # fmt: skip


def measured(trial: Trial, disk: Disk) -> TrialRecord:
    found = disk(trial)
    if isinstance(found, str):
        return TrialRecord(trial=trial, ended="", in_force=InForce(), failure=found)
    values = tuple(found.items())
    return TrialRecord(trial=trial, ended="", in_force=InForce(), measurement=Measurement(values=values))
