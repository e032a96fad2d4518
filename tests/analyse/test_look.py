# SPDX-License-Identifier: Apache-2.0
"""What a study that stops when it knows goes on with after a round: simulated rounds, judged by the product."""

import math
from collections.abc import Callable
from dataclasses import replace
from random import Random

from virtune.analyse.verdicts import judge
from virtune.model.evidence import InForce, StudyRecord, TrialRecord
from virtune.model.measurement import Measurement
from virtune.model.stack import Stack
from virtune.model.study import Arm, Study, Trial
from virtune.model.workload import Job, Workload
from virtune.plan.interleave import propose

Disk = Callable[[Trial], dict[str, float] | str]
"""What a trial gives: values by metric, or why it failed."""


def workload(name: str, offered: float | None = None) -> Workload:
    return Workload(name=name, meaning="", jobs=(Job(name="j", options=()),), offered_iops=offered)


def study(*workloads: Workload, arms: str = "ab", metric: str = "iops", rounds: int = 100) -> Study:
    return Study(
        id="s", created="", kind="compare", arms=tuple(Arm(name=name, stack=Stack()) for name in arms), baseline="a",
        workloads=workloads, rounds=rounds, seconds=2.0, ramp_seconds=0.0, seed=1, scratch="", span_bytes=1,
        metric=metric, confidence=0.95, sequential=True,
    )  # fmt: skip


def measured(trial: Trial, disk: Disk) -> TrialRecord:
    found = disk(trial)
    if isinstance(found, str):
        return TrialRecord(trial=trial, ended="", in_force=InForce(), failure=found)
    values = tuple(found.items())
    return TrialRecord(trial=trial, ended="", in_force=InForce(), measurement=Measurement(values=values))


def run(asked: Study, disk: Disk) -> StudyRecord:
    """Run a study on a simulated disk until it stops."""
    record = StudyRecord(study=asked, facts="", finished=False, trials=())
    open_ = {one.name for one in asked.workloads}
    while proposed := propose(record.study, rounds=1, workloads=open_):
        asked = replace(record.study, trials=(*record.study.trials, *proposed))
        made = tuple(measured(trial, disk) for trial in proposed)
        record = replace(record, study=asked, trials=(*record.trials, *made))
        open_ = {one.workload for one in judge(record) if one.open}
    return record


def test_a_saturated_load_is_not_run_again_while_another_is_open() -> None:
    chance = Random(2)

    def disk(trial: Trial) -> dict[str, float] | str:
        behind = trial.workload == "at-90" and trial.arm == "b"
        return {"iops": 500.0 if behind else 1000.0, "latency.p99": 1e6 * math.exp(chance.gauss(0, 0.05))}

    record = run(study(workload("at-50", 1000.0), workload("at-90", 1000.0), metric="latency.p99", rounds=20), disk)
    rounds = {
        name: {one.trial.round for one in record.trials if one.trial.workload == name} for name in ("at-50", "at-90")
    }
    assert rounds["at-50"] == set(range(1, 21))
    assert rounds["at-90"] == set(range(1, 7))
    (verdict,) = [one for one in judge(record) if one.workload == "at-90"]
    assert verdict.closed
    assert verdict.why == "b is saturated at this load: latency not comparable"
