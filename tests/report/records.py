# SPDX-License-Identifier: Apache-2.0
"""A study with a known result, as it is stored."""

import json
from dataclasses import replace
from typing import Any

from tests.published import strictly

from virtune.fio.workloads import parse_workload
from virtune.model.evidence import Check, InForce, StudyRecord, TrialRecord
from virtune.model.measurement import Measurement
from virtune.model.remark import Remark, Weight
from virtune.model.study import Study, StudyKind, Trial
from virtune.plan.arms import arms_from_vary, base_stack

WHEN = "2026-01-02T03:04:05+00:00"


def as_read(document: object) -> Any:
    """A document as another program reads it."""
    return strictly(json.dumps(document))


def study(rounds: int) -> Study:
    names = ("threads", "native")
    return Study(
        id="20260102-030405-abcd",
        created=WHEN,
        kind=StudyKind.COMPARE,
        arms=arms_from_vary(base_stack(())[0], ["disk.aio=threads,native"]),
        baseline="threads",
        workloads=parse_workload("randread-4k"),
        rounds=rounds,
        seconds=4.0,
        ramp_seconds=0.5,
        seed=1,
        scratch="/var/tmp/virtune",
        span_bytes=2**30,
        trials=tuple(
            Trial(number=2 * number + index + 1, round=number + 1, arm=arm, workload="randread-4k")
            for number in range(rounds)
            for index, arm in enumerate(names)
        ),
    )


def record(rounds: int, *, facts: str = "", failing: bool = False) -> StudyRecord:
    """A study with a known result; of a failing one the last trial gave nothing."""
    asked = study(rounds)
    remark = Remark(id="depth", weight=Weight.WARNING, text="the queue never filled", advice="more jobs")
    check = Check(setting="disk.aio", asked="threads", found="threads", proof="no ring")
    unseen = Check(setting="disk.discard", asked="unmap", found=None, proof="QEMU does not show it")
    trials = tuple(
        TrialRecord(
            trial=trial,
            ended=WHEN,
            in_force=InForce(checks=(check, unseen)),
            measurement=Measurement(
                values=(("iops", 1000.0 + trial.number % 5 + 100 * (trial.arm == "native")), ("cpu_per_io", 1e-6)),
                remarks=(remark,),
            ),
        )
        for trial in asked.trials
    )
    if failing:
        trials = (*trials[:-1], replace(trials[-1], measurement=None, failure="fio went away", attempt=2))
    return StudyRecord(study=asked, facts=facts, finished=not failing, trials=trials)
