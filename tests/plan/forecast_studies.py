# SPDX-License-Identifier: Apache-2.0
"""Studies on each rig, whose time is forecast."""

from virtune.model.stack import Stack
from virtune.model.study import Arm, Study, StudyKind
from virtune.model.workload import Workload


def study_on(*stacks: Stack) -> Study:
    return Study(
        id="s",
        created="2026-01-01T00:00:00Z",
        kind=StudyKind.COMPARE,
        arms=tuple(Arm(name=f"arm{number}", stack=stack) for number, stack in enumerate(stacks)),
        baseline="arm0",
        workloads=(Workload(name="w", meaning="", jobs=()),),
        rounds=10,
        seconds=2,
        ramp_seconds=1,
        seed=1,
        scratch="/s",
        span_bytes=1,
    )


METAL, DAEMON, GUEST = Stack(rig="metal"), Stack(), Stack(rig="qemu")
