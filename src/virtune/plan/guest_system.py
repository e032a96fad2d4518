# SPDX-License-Identifier: Apache-2.0
"""What runs in virtune's own guests where the user does not say: nothing but the load, or Linux.

A guest without an operating system starts in a tenth of the time and adds nothing of its own, so it is the default
wherever settings and workloads can do without one. All arms of a study get the same system, so that the choice is
never a difference between them.
"""

from collections.abc import Iterator
from dataclasses import replace

from virtune.fio.generator import Clients, clones_of
from virtune.fio.job import fio_job
from virtune.model.contradictions import contradictions
from virtune.model.disks import bare_target, stack_of_disk
from virtune.model.errors import PlanError, PreconditionError
from virtune.model.machine import MEMORY
from virtune.model.option import ChosenOption, Provenance
from virtune.model.stack import Stack
from virtune.model.study import Arm, Study
from virtune.model.workload import BACKGROUND, Workload
from virtune.plan.guests import share_of

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
