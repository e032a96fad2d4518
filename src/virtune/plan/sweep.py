# SPDX-License-Identifier: Apache-2.0
"""The loads of a sweep: the closed loop first, then shares of its rate, then further loads where the curve needs
them.

Like VMFleet's sweep (baseline, unconstrained, bracket, infill), loads are added between known ones around the knee or
limit until neighbours are close enough. The next load depends only on the stored trials, so a killed sweep resumes
unchanged.
"""

import math
from collections.abc import Sequence
from dataclasses import replace
from random import Random

from virtune.model.errors import PlanError
from virtune.model.evidence import StudyRecord
from virtune.model.study import Study, StudyKind, Trial
from virtune.model.sweep import LoadSweep
from virtune.model.sweep_plan import LOADS_MAX, SweepPlan
from virtune.plan.loads import (
    LIKELY_SATURATION,
    RATE_MAX,
    offered_workload,
    rate_of,
    read_loads,
    require_own_depth,
    saturation_iops,
)

ASKED_MAX = 100
"""The most loads of a readable curve."""

FIRST_SHARES = (0.2, 0.5, 0.8, 1.0, 1.25)
"""Shares of the closed loop's rate: enough to see the bend of the curve, and one load beyond it."""


def sweep_study(study: Study, plan: SweepPlan) -> Study:
    """Return a measurement of one stack as a sweep that begins with its closed loop.

    Raises PlanError for more than one workload, for one that cannot be offered at a rate, and for invalid loads or
    limits.
    """
    if len(study.workloads) != 1:
        raise PlanError("a sweep has one workload", hint="one sweep for each")
    (workload,) = study.workloads
    offered_workload(workload, "any", LIKELY_SATURATION)
    require_own_depth(study)
    limit = plan.limit
    if limit is not None and (limit.sense != "<=" or ("latency" not in limit.metric and "clat" not in limit.metric)):
        raise PlanError(
            f"{limit.text}: a sweep finds the greatest load for a limit on a latency", hint="'latency.p99<=1ms'"
        )
    plan = replace(plan, loads=read_loads(plan.loads, most=ASKED_MAX))
    probe = replace(workload, probe=True)
    return _with(
        replace(study, kind=StudyKind.SWEEP, sweep=plan, workloads=(probe,), rounds=plan.rounds, trials=()),
        [probe.name],
    )


def next_step(known: LoadSweep, record: StudyRecord) -> Study | None:
    """Return the study with the next loads, None if the curve needs no more.

    Raises LoadError if the closed loop gave no measurement.
    """
    study, plan = known.study, known.study.sweep
    assert plan is not None  # noqa: S101 - only sweeps are asked
    if not study.compared:
        full = saturation_iops(record, study.workloads[0].name)
        loads = [rate_of(load, full) for load in plan.loads] or [full * share for share in FIRST_SHARES]
    else:
        loads = [one for one in (known.above, known.below) if one is not None]
        loads += [math.sqrt(low * high) for low, high in known.gaps]
    have = {round(one.offered_iops or 0) for one in study.compared}
    added = [
        offered_workload(study.workloads[0], f"{load:.0f}iops", load)
        for load in sorted(loads)
        if 1 <= load <= RATE_MAX
    ]
    new = {round(one.offered_iops or 0): one for one in added if round(one.offered_iops or 0) not in have}
    room = len(plan.loads) + LOADS_MAX - len(study.compared)
    workloads = list(new.values())[:room]
    if not workloads:
        return None
    return _with(replace(study, workloads=(*study.workloads, *workloads)), [one.name for one in workloads])


def _with(study: Study, workloads: Sequence[str]) -> Study:
    """Return the study with one more block of trials: each of these workloads in every round, in random order."""
    plan = study.sweep
    assert plan is not None  # noqa: S101 - only sweeps have blocks
    begun = study.rounds_begun
    chance = Random(f"{study.seed} {begun}")  # noqa: S311 - a fair order, not a secret
    order = [
        (begun + block, name)
        for block in range(1, plan.rounds + 1)
        for name in chance.sample(list(workloads), len(workloads))
    ]
    first, arm = len(study.trials) + 1, study.arms[0].name
    trials = (
        Trial(number=number, round=block, arm=arm, workload=name) for number, (block, name) in enumerate(order, first)
    )
    return replace(study, trials=(*study.trials, *trials))
