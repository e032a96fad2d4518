# SPDX-License-Identifier: Apache-2.0
"""Split a workload among several guests, which together do the I/O of a single one."""

from dataclasses import replace

from virtune.model.errors import PlanError
from virtune.model.stack import Stack
from virtune.model.workload import Workload

_APART = 100_003
"""fio multiplies a job's seed by the number of its clone, so seeds of guests lie a prime apart."""


def share_of(workload: Workload, stack: Stack) -> Workload:
    """Divide the clones of every job among the guests; raises PlanError if they cannot be divided evenly, or the
    workload is a job file.
    """
    if stack.guests == 1:
        return workload
    if workload.verbatim is not None:
        raise PlanError(
            f"{workload.name} is a job file, which runs as it is and cannot be divided among {stack.guests} guests",
            hint="write its words inline: rw=...,numjobs=...",
        )
    jobs = []
    for job in workload:
        clones = int(job.get("numjobs", "1"))
        if clones % stack.guests:
            raise PlanError(
                f"{workload.name} has {clones} clones of {job.name}, which {stack.guests} guests cannot share evenly",
                hint=f"`numjobs={stack.guests}` is one for each guest: --workload '{workload.name},numjobs=...'",
            )
        options = {**job.as_dict(), "numjobs": str(clones // stack.guests)}
        jobs.append(replace(job, options=tuple(options.items())))
    return replace(workload, jobs=tuple(jobs))


def require_shared_image(workload: Workload, stack: Stack) -> None:
    """Raise PlanError where guests would write to one qcow2 image, which only one QEMU may write to."""
    shared = stack.guests + stack.idle_guests > 1 and not stack.own_images
    if shared and workload.writes and stack.disk.format != "raw":
        raise PlanError(
            f"several guests cannot have one {stack.disk.format} image while {workload.name} writes to it",
            hint="disk.format=raw, or guests.images=on",
        )


def guest_seed(seed: int, guest: int) -> int:
    """Return the seed of the load in one guest (0 is the first): no two have the same sequence of offsets."""
    return seed + guest * _APART
