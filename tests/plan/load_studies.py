# SPDX-License-Identifier: Apache-2.0
"""Studies at offered loads."""

from virtune.fio.workloads import parse_workload
from virtune.model.stack import Stack
from virtune.model.study import Arm, Study, StudyKind
from virtune.plan.loads import read_loads


def study(workload: str, *loads: str) -> Study:
    return Study(
        id="x", created="", kind=StudyKind.COMPARE, arms=(Arm(name="a", stack=Stack()), Arm(name="b", stack=Stack())),
        baseline="a", workloads=parse_workload(workload), rounds=6, seconds=1, ramp_seconds=0, seed=1, scratch="/",
        span_bytes=1 << 26, at_load=read_loads(loads),
    )  # fmt: skip
