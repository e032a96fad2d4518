# SPDX-License-Identifier: Apache-2.0
"""Sweeps of a simulated disk: a queue with a capacity, measured with noise."""

import math
from collections import Counter
from collections.abc import Mapping, Sequence
from random import Random

from virtune.analyse.study.offered_load import swept
from virtune.bench.simulated import ALONE_NS, CAPACITY_IOPS, open_loop_ns
from virtune.fio.workloads import parse_workload
from virtune.model.evidence import InForce, StudyRecord, TrialRecord
from virtune.model.measurement import Histogram, Measurement
from virtune.model.result import LoadSweep
from virtune.model.search import SweepPlan
from virtune.model.stack import Stack
from virtune.model.study import Arm, Study, StudyKind, Trial
from virtune.plan.goal import parse_conditions, parse_limit
from virtune.plan.loads import next_step, sweep_study

DEPTH = 256
TAIL = 2.1
"""p99 by mean, as the simulated disk has it."""


def study(plan: SweepPlan, seed: int, conditions: Sequence[str] = ()) -> Study:
    (workload,) = parse_workload("randread-4k")
    asked = Study(
        id="1", created="", kind=StudyKind.MEASURE, arms=(Arm(name="one", stack=Stack()),), baseline="one",
        workloads=(workload,), rounds=3, seconds=2, ramp_seconds=0.5, seed=seed, scratch="/", span_bytes=2**30,
        conditions=parse_conditions(conditions),
    )  # fmt: skip
    return sweep_study(asked, plan)


def measured(swept_study: Study, trial: Trial, noise: float) -> TrialRecord:
    """A trial of a disk that carries CAPACITY_IOPS, a little more or less each time."""
    chance = Random(f"{swept_study.seed} {trial.number}")
    factor = math.exp(chance.gauss(0, noise))
    offered = swept_study.workload(trial.workload).offered_iops
    capacity = CAPACITY_IOPS * factor
    iops = min(offered or 0.95 * capacity, capacity)
    mean = open_loop_ns(offered or iops, capacity, depth=DEPTH, alone_ns=ALONE_NS * math.exp(chance.gauss(0, noise)))
    values = (("iops", iops), ("latency.mean", mean), ("latency.p99", TAIL * mean))
    return TrialRecord(
        trial=trial, ended="", in_force=InForce(checks=()), measurement=Measurement(values=values), failure=None
    )


def recorded(plan: SweepPlan, *, seed: int, noise: float = 0.03, conditions: Sequence[str] = ()) -> StudyRecord:
    """Sweep the disk to the end."""
    asked, done = study(plan, seed, conditions), tuple[TrialRecord, ...]()
    while True:
        done += tuple(measured(asked, trial, noise) for trial in asked.trials[len(done) :])
        record = StudyRecord(study=asked, facts="", finished=False, trials=done, attempts=done)
        step = next_step(swept(record), record)
        if step is None:
            return record
        asked = step


Rounds = Mapping[float, Sequence[tuple[float, float]]]
"""Offered load -> (IOPS, mean latency in ns) of each of its rounds."""


def planted(
    rounds: Rounds, closed: Sequence[float], *, limit: str = "", conditions: Sequence[str] = ()
) -> StudyRecord:
    """A sweep of which each trial did just this; `closed` are the IOPS of the closed loop."""
    plan = SweepPlan(
        limit=parse_limit(limit) if limit else None,
        rounds=len(closed),
        loads=tuple(f"{one:.0f}iops" for one in rounds),
    )
    asked, done, seen = study(plan, 1, conditions), tuple[TrialRecord, ...](), Counter[str]()
    while True:
        for trial in asked.trials[len(done) :]:
            offered, at = asked.workload(trial.workload).offered_iops, seen[trial.workload]
            seen[trial.workload] += 1
            iops, mean = (closed[at], 1e6) if offered is None else rounds[offered][at]
            bins = ((round(mean), round(100 * iops)),)
            values = (("iops", iops), ("latency.mean", mean), ("latency.p99", TAIL * mean), ("cpu_per_io", 1 / iops))
            measurement = Measurement(values=values, histogram=Histogram(bins=bins))
            done += (TrialRecord(trial=trial, ended="", in_force=InForce(checks=()), measurement=measurement),)
        record = StudyRecord(study=asked, facts="", finished=True, trials=done, attempts=done)
        step = next_step(swept(record), record)
        if step is None:
            return record
        asked = step


def run(plan: SweepPlan, *, seed: int, noise: float = 0.03, conditions: Sequence[str] = ()) -> tuple[LoadSweep, int]:
    """Sweep the disk to the end; returns what is said of it and how many trials that took."""
    record = recorded(plan, seed=seed, noise=noise, conditions=conditions)
    return swept(record), len(record.trials)
