# SPDX-License-Identifier: Apache-2.0
"""A load on several disks of one guest, or on several files of the host: its clones are divided among them."""

from collections.abc import Iterator
from dataclasses import replace

from virtune.model.errors import PlanError
from virtune.model.target import BareTarget, FileTarget, Target
from virtune.model.workload import BACKGROUND, Job, Workload, name_of_disk


def targets_of(target: Target) -> tuple[Target, ...]:
    """Return each disk of a target by itself."""
    if isinstance(target, FileTarget):
        return tuple(replace(target, path=path, more=()) for path in (target.path, *target.more))
    if isinstance(target, BareTarget):
        buses = enumerate((target.bus, *target.more))
        return tuple(replace(target, bus=bus, number=number, more=()) for number, bus in buses)
    return (target,)


def parts_of(workload: Workload, target: Target) -> Iterator[tuple[Target, str, Job]]:
    """Yield for each disk its target and the name and the part of each job that loads it.

    Raises PlanError if the clones of a job cannot be divided evenly.
    """
    several = targets_of(target)
    for number, one in enumerate(several):
        for job in workload.jobs:
            # a background job keeps its name, by which its figures are left out
            name = job.name if job.name == BACKGROUND else name_of_disk(job.name, number)
            yield one, name, _share(job, len(several))


def require_divisible(workload: Workload, target: Target) -> None:
    """Raise PlanError for a job file on several disks: it runs as it is."""
    if workload.verbatim is not None and len(targets_of(target)) > 1:
        raise PlanError(
            f"{workload.name} is a job file, which runs as it is and cannot be divided among several disks",
            hint="write its words inline: rw=...,numjobs=...",
        )


def _share(job: Job, several: int) -> Job:
    clones = int(job.get("numjobs", "1"))
    if clones % several:
        raise PlanError(
            f"{job.name} has {clones} clones, which {several} disks cannot share evenly",
            hint=f"`numjobs={several}` is one for each disk: --workload '...,numjobs={several}'",
        )
    options = {**job.as_dict(), "numjobs": str(clones // several)}
    return job if several == 1 else replace(job, options=tuple(options.items()))
