# SPDX-License-Identifier: Apache-2.0
"""The drift of a fleet's reference host: its studies of one run, each compared with the one before."""

from collections.abc import Mapping
from itertools import pairwise

from virtune.analyse.fleet import drift_between, level_of
from virtune.flows.fleet.place import FleetPlace
from virtune.flows.stored.show import by_todays_method
from virtune.model.fleet import FleetRun, HostDrift, TaskProgress, TaskState


def drift_of(run: FleetRun, found: Mapping[str, TaskProgress], place: FleetPlace) -> tuple[HostDrift, ...]:
    """Return how the level of the reference host changed from each of its studies to the next."""
    names = [
        found[task.name].study
        for task in run.tasks
        if task.host.name == run.reference and task.name in found and found[task.name].state is TaskState.FINISHED
    ]
    if len(names) < 2:
        return ()
    with place.of(run.reference, reading=True) as store:
        records = [by_todays_method(store, name) for name in names]
    drifts = []
    for before, after in pairwise(records):
        for workload in before.study.compared:
            first, then = (level_of(run.reference, one, workload.name) for one in (before, after))
            if first is not None and then is not None:
                drifts.append(drift_between(first, then, workload=workload.name, metric=before.study.metric))
    return tuple(drifts)
