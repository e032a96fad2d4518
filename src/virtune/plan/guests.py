# SPDX-License-Identifier: Apache-2.0
"""What runs in virtune's own guests where the user does not say: nothing but the load, or Linux; a workload split
among several guests, which together do the I/O of a single one; and whether every workload of a study can run on
every arm, checked before anything is created or filled.

A guest without an operating system starts in a tenth of the time and adds nothing of its own, so it is the default
wherever settings and workloads can do without one. All arms of a study get the same system, so that the choice is
never a difference between them.
"""

from collections.abc import Iterator
from dataclasses import replace

from virtune.fio.generator import Clients, clones_of, require_driven
from virtune.fio.job import FioJob, fio_job, part_of
from virtune.fio.steady import steady_job
from virtune.model.contradictions import bare_target, contradictions, stack_of_disk
from virtune.model.errors import PlanError, PreconditionError
from virtune.model.stack import MEMORY, FileTarget, GuestTarget, NbdTarget, Stack, Target, VhostUserTarget
from virtune.model.study import Arm, Study
from virtune.model.study_options import ChosenOption, Provenance
from virtune.model.workload import BACKGROUND, Workload
from virtune.plan.loads import LIKELY_SATURATION, at_loads

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
        if (part := part_of(job, stack.guests)) is None:
            clones = f"{job.get('numjobs', '1')} clones of {job.name}"
            raise PlanError(
                f"{workload.name} has {clones}, which {stack.guests} guests cannot share evenly",
                hint=f"`numjobs={stack.guests}` is one for each guest: --workload '{workload.name},numjobs=...'",
            )
        jobs.append(part)
    return replace(workload, jobs=tuple(jobs))


def require_possible(workload: Workload, stack: Stack) -> None:
    """Raise PlanError where guests would write to one qcow2 image, which only one QEMU may write to, and for a depth
    of an arm where the load is a job file.
    """
    if stack.load_depth is not None and workload.verbatim is not None:
        raise PlanError("workload.iodepth is set, and a job file runs as it is", hint="write iodepth= into the file")
    shared = stack.guests + stack.idle_guests > 1 and not stack.own_images
    if shared and workload.writes and stack.disk.format != "raw":
        raise PlanError(
            f"several guests cannot have one {stack.disk.format} image while {workload.name} writes to it",
            hint="disk.format=raw, or guests.images=on",
        )


def guest_seed(seed: int, guest: int) -> int:
    """Return the seed of the load in one guest (0 is the first): no two have the same sequence of offsets."""
    return seed + guest * _APART


KNOB = "guest.system"

_ROOM = {"virtio-blk": 128, "virtio-scsi": 128, "nvme": 1023}
"""The requests that a queue of a disk has room for on every board: a ring of virtio has 128 descriptors or more (256
since QEMU 4.2), one for each; a queue of NVMe is made with 1024 entries, of which one stays free.
"""

_NVME_BYTES = 512 * 1024
"""The most bytes of a request of QEMU's NVMe disk (`mdts=7`)."""

_NVME_QUEUES = 64
"""How many pairs of queues QEMU's NVMe disk has (`max_ioqpairs`)."""

_OVERLAP = 4
"""The buffers of a load may take one part in so many of a guest's memory."""


def with_system(study: Study, *, built: bool) -> Study:
    """Return the study with a system for every guest that has none: `bare` where all of it can do without one.

    `built`: the guest without an operating system is at hand. Linux is written into no stack: it is what a stack
    without a system means. The choice is among the study's options.
    """
    if not any(map(_is_open, study.arms)):
        return study
    linux = not built or next(needs_linux(study), None) is not None
    chosen = ChosenOption(name=KNOB, value="linux" if linux else "bare", source=Provenance.DEFAULT)
    study = replace(study, options=(*study.options, chosen))
    return study if linux else replace(study, arms=tuple(_bare(arm) if _is_open(arm) else arm for arm in study.arms))


def system_words(study: Study, *, built: bool) -> str | None:
    """Say what was chosen to run in the guests of a study, and why; None where there was nothing to choose."""
    chosen = next((one.value for one in study.options if one.name == KNOB), None)
    if chosen == "bare":
        return (
            "the guests run the load alone, without an operating system (guest.system=bare), since no setting and no "
            "workload needs one; `--set guest.system=linux` runs fio in Linux"
        )
    if chosen is None:
        return None
    unbuilt = "`virtune-guest`, which needs none, is not built (`tools/setup` builds it)"
    why = unbuilt if not built else next(needs_linux(study), "its `virtune-guest` was not built")
    return f"the guests run Linux: {why}"


def needs_linux(study: Study) -> Iterator[str]:
    """Yield why guests of a study need Linux, a clause each."""
    if study.builtin:
        yield f"the figures that `{study.builtin}` is compared with were measured in one"
    if any(arm.stack.machine.system == "linux" for arm in study.arms):
        yield "another arm asks for it, and arms are compared in the same system"
    if study.until_steady is not None:
        yield "only fio goes on until a load is steady"
    for arm in filter(_is_open, study.arms):
        if arm.stack.device.vfio_pci is not None:
            yield f"arm {arm.name}: its drive is a real one, which Linux's driver knows"
        bare = _bare(arm).stack
        yield from (f"arm {arm.name}: {text}" for text in contradictions(bare))
        for workload in study.workloads:
            yield from _of_workload(arm.load_of(workload), bare, study)


def _of_workload(workload: Workload, stack: Stack, study: Study) -> Iterator[str]:
    """Yield why a workload needs Linux."""
    if workload.verbatim is not None:
        yield f"{workload.name} is a job file, which fio runs as it is"
        return
    if workload.recorded and any(job.name == BACKGROUND for job in workload):
        yield f"the background job of {workload.name} ends with the one that is counted, which fio does"
    try:
        fio_job(
            share_of(workload, stack), bare_target(stack, study.span_bytes),
            seconds=study.seconds, ramp_seconds=study.ramp_seconds, seed=study.seed,
            clients=Clients(engines=frozenset(), installed=True),
        )  # fmt: skip
    except PreconditionError as error:
        yield f"{workload.name}: {error.message}"
    except PlanError:
        return  # wrong in any guest, and reported when the study is prepared
    buffers = sum(job.depth * job.block_size for job in workload)
    if buffers * _OVERLAP > (stack.machine.memory or MEMORY):
        yield f"{workload.name} has more in flight than fits into the memory of a guest without a system"
    each = [stack_of_disk(stack, number) for number in range(stack.disks)]
    clones = clones_of(workload.jobs) // stack.disks
    if any(workload.depth > stack.disks * _room(one, clones) for one in each):
        yield f"{workload.name} has more in flight than a queue of the disk takes, which Linux holds back"
    nvme = any(one.device.bus_in_guest == "nvme" for one in each)
    if nvme and max(job.block_size for job in workload) > _NVME_BYTES:
        yield f"{workload.name} has larger blocks than an NVMe disk takes at once, which Linux splits"


def _room(stack: Stack, clones: int) -> int:
    """Return how many requests of so many clones the queues of a disk take."""
    device, bus = stack.device, stack.device.bus_in_guest
    room = _ROOM.get(bus, 1)
    asked = device.num_queues or device.scsi_num_queues or device.max_ioqpairs
    queues = min(asked or (_NVME_QUEUES if bus == "nvme" else stack.machine.vcpus or 1), clones)
    return queues * min(device.queue_size or room, room)


def _is_open(arm: Arm) -> bool:
    """Whether an arm is a guest of virtune's own whose system was not said."""
    return arm.stack.kind.own_guest and arm.stack.machine.system is None


def _bare(arm: Arm) -> Arm:
    machine = replace(arm.stack.machine, system="bare")
    return replace(arm, stack=replace(arm.stack, machine=machine), settings=(*arm.settings, (KNOB, "bare")))


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
                require_possible(workload, arm.stack)
                made = fio_job(
                    share_of(workload, arm.stack),
                    _target_like(arm.stack, study.span_bytes),
                    seconds=study.seconds,
                    ramp_seconds=study.ramp_seconds,
                    seed=study.seed,
                    clients=clients,
                )
                if asked in study.workloads:
                    _require_steadiable(made, workload, study, arm.stack)
            except (PlanError, PreconditionError) as error:
                raise type(error)(
                    f"arm {arm.name} cannot carry {workload.name}: {error.message}", hint=error.hint
                ) from error


def _require_steadiable(job: FioJob, workload: Workload, study: Study, stack: Stack) -> None:
    if study.until_steady is not None:
        steady_job(job, workload, study.until_steady, ramp_seconds=study.ramp_seconds)
    if stack.disk.backing_depth and (study.precondition or study.until_steady is not None):
        raise PreconditionError(
            "with disk.backing_depth each trial begins with an empty image above the others, as after a snapshot, so"
            " nothing that is written before stays: --precondition and --until-steady do nothing for it"
        )
    if study.precondition and stack.disk.backend == "null-co":
        raise PreconditionError("backend=null-co keeps no data, so there is nothing to write in full")


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
