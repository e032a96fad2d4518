# SPDX-License-Identifier: Apache-2.0
"""Check that every workload of a study can run on every arm, before anything is created or filled."""

from virtune.fio.generator import Clients, require_driven
from virtune.fio.job import fio_job
from virtune.model.disks import bare_target
from virtune.model.errors import PlanError, PreconditionError
from virtune.model.stack import Stack
from virtune.model.study import Study
from virtune.model.target import FileTarget, GuestTarget, NbdTarget, Target, VhostUserTarget
from virtune.model.workload import Workload
from virtune.plan.guests import require_shared_image, share_of
from virtune.plan.loads import LIKELY_SATURATION, at_loads


def clients_for(study: Study, *, engines: frozenset[str], installed: bool) -> Clients:
    """Return the load generators of a study's arms on a host with these fio engines.

    Where virtune-load loads a vhost-user-blk export, or is the guest, it loads the arms compared with it too, if
    io_uring works.
    """
    ours = loads_virtqueues(study)
    return Clients(engines=engines, installed=installed, alike=ours and installed and "io_uring" in engines)


def loads_virtqueues(study: Study) -> bool:
    """Whether virtune-load, in place of fio, drives the virtqueues of an arm: as a client, or as the guest."""
    return any(arm.stack.export == "vhost-user-blk" or arm.stack.machine.is_bare for arm in study.arms)


def require_fit(study: Study, *, clients: Clients) -> None:
    """Write every job of the study against a target like the one to come.

    Raises PlanError or PreconditionError that names the arm and the workload which do not fit.
    """
    later = (one for probe in study.workloads if probe.probe for one in at_loads(study, probe, LIKELY_SATURATION))
    workloads = (*study.workloads, *later)
    for arm in study.arms:
        for asked in workloads:
            workload = arm.load_of(asked)
            try:
                if arm.stack.export == "vhost-user-blk" and asked in study.workloads:
                    require_driven(workload, arm.stack.queues)
                require_shared_image(workload, arm.stack)
                _require_depth(workload, arm.stack)
                fio_job(
                    share_of(workload, arm.stack),
                    _target_like(arm.stack, study.span_bytes),
                    seconds=study.seconds,
                    ramp_seconds=study.ramp_seconds,
                    seed=study.seed,
                    clients=clients,
                )
            except (PlanError, PreconditionError) as error:
                raise type(error)(
                    f"arm {arm.name} cannot carry {workload.name}: {error.message}", hint=error.hint
                ) from error


def _require_depth(workload: Workload, stack: Stack) -> None:
    """Raise PlanError for a depth of an arm where the load is a job file."""
    if stack.load_depth is not None and workload.verbatim is not None:
        raise PlanError("workload.iodepth is set, and a job file runs as it is", hint="write iodepth= into the file")


def _target_like(stack: Stack, size_bytes: int) -> Target:
    more = tuple(f"/disk{number}" for number in range(1, stack.disks))
    if stack.machine.is_bare:
        return bare_target(stack, size_bytes)
    if stack.kind.in_guest:
        return GuestTarget(path="/dev/vda", size_bytes=size_bytes, more=more)
    if stack.kind.front != "export" or stack.export == "fuse":
        return FileTarget(path="/target", size_bytes=size_bytes, more=more)
    if stack.export == "vhost-user-blk":
        return VhostUserTarget(socket="/socket", size_bytes=size_bytes, queues=stack.queues)
    return NbdTarget(socket="/socket", export="disk", size_bytes=size_bytes)
