# SPDX-License-Identifier: Apache-2.0
"""The disk of an existing VM as the settings of a stack, and what of it cannot be carried over, each with its reason
(pure).

Every attribute of a `DomainDisk` and of its VM that changes what its disk does is a row here: it becomes settings, or
is named with the reason why not. `carried` then leaves out, and names, what a rig cannot take.
"""

import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field

from virtune.model.contradictions import contradictions
from virtune.model.domain import Domain, DomainDisk, aio_of, cache_of
from virtune.model.errors import PlanError
from virtune.model.finding import ImageView
from virtune.model.knobs import BY_ID
from virtune.model.rig import read_rig
from virtune.model.stack import LIMITS, Stack
from virtune.plan.arms import apply_settings

BUSES: Mapping[str, str] = {
    "virtio": "virtio-blk", "scsi": "virtio-scsi", "sata": "ahci", "ide": "ide", "nvme": "nvme",
}  # fmt: skip
"""A VM's buses by the names that a stack has for them."""

_BOARD = re.compile(r"(?:pc-)?(q35|i440fx|microvm|pc)\b")
_X86 = re.compile(r"(?:x86_64|i386|kvm)$")
_BOARDS = {"q35": "q35", "i440fx": "pc", "pc": "pc", "microvm": "microvm"}

_EXPORTED = {"device.num_queues": "export.num_queues", "device.iothread": "export.iothread"}
"""What a setting of a guest's disk is called where a storage daemon exports it."""


@dataclass(frozen=True, slots=True, kw_only=True)
class LeftBehind:
    """What of a VM's disk was not carried over, in the words of its configuration, and why."""

    what: str
    why: str

    @property
    def text(self) -> str:
        """The same as a clause."""
        return f"{self.what}: {self.why}"


@dataclass(frozen=True, slots=True, kw_only=True)
class Likeness:
    """A VM's disk as settings (`disk.cache=none`) in the order in which they are applied, and what is not in them."""

    settings: tuple[str, ...]
    left: tuple[LeftBehind, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class Looked:
    """The VM, its disk, and the known facts of the image. `emulator_here`: the program that it names is here."""

    domain: Domain
    disk: DomainDisk
    image: ImageView = field(default_factory=ImageView)
    emulator_here: bool = False


Row = Callable[[Looked], Iterator[str | LeftBehind]]


def _image(at: Looked) -> Iterator[str | LeftBehind]:
    disk, image = at.disk, at.image
    if disk.format in ("raw", "qcow2"):
        yield f"disk.format={disk.format}"
    else:
        why = "images here are raw or qcow2" if disk.format else "the configuration does not name it; raw is taken"
        yield LeftBehind(what=f"format {disk.format or 'unknown'}", why=why)
    if image.cluster_bytes is not None:
        yield f"disk.cluster_size={image.cluster_bytes}"
    if image.extended_l2:
        yield "disk.extended_l2=on"
    if disk.metadata_cache_bytes is not None:
        yield f"disk.l2_cache_size={disk.metadata_cache_bytes}"
    if disk.backing or (disk.backing is None and image.backing):
        below = image.below if disk.backing is None else disk.backing
        files = "backing files" if below is None else f"{below} backing file{'s'[: below != 1]}"
        yield LeftBehind(what=files, why="a scratch image has none, so what their depth costs is not in the figures")


def _opened(at: Looked) -> Iterator[str | LeftBehind]:
    disk = at.disk
    yield f"disk.cache={cache_of(disk)}"
    yield f"disk.aio={aio_of(disk)}"
    if disk.discard is not None:
        yield f"disk.discard={disk.discard}"
    if disk.detect_zeroes is not None:
        yield f"disk.detect_zeroes={disk.detect_zeroes}"
    if disk.copy_on_read == "on":
        yield LeftBehind(what="copy_on_read on", why="it means something over a backing file only")


def _limits(at: Looked) -> Iterator[str | LeftBehind]:
    words = {limit.libvirt: limit.knob for limit in LIMITS}
    for name, value in at.disk.limits:
        if not value:
            continue
        if name in words:
            yield f"{words[name]}={value}"
        else:
            yield LeftBehind(what=f"limit {name}={value}", why="bursts and sizes of a limit cannot be set here yet")
    if at.disk.limits_group:
        yield LeftBehind(what=f"throttle group {at.disk.limits_group}", why="the limits are the test disk's alone")


def _device(at: Looked) -> Iterator[str | LeftBehind]:
    disk = at.disk
    bus = BUSES.get(disk.bus or "")
    if bus is None:
        named = f"bus {disk.bus}" if disk.bus else "the bus"
        yield LeftBehind(what=named, why="test guests have virtio-blk, virtio-scsi, nvme, ahci and ide")
    controller = at.domain.controller_of(disk) if disk.bus == "scsi" else None
    model = None if controller is None else controller.model
    if model not in (None, "auto") and not model.startswith("virtio"):
        yield LeftBehind(what=f"SCSI controller {model}", why="test guests have virtio-scsi")
        bus = None
    if bus is not None:
        yield f"device.bus={bus}"
    queues = disk.queues if controller is None else controller.queues
    if queues is not None:
        knob = {"virtio-blk": "device.num_queues", "virtio-scsi": "scsi.num_queues", "nvme": "nvme.max_ioqpairs"}
        known = knob.get(bus or "")
        yield f"{known}={queues}" if known else LeftBehind(what=f"{queues} queues", why="its bus has one")
    if disk.queue_size is not None:
        yield f"device.queue_size={disk.queue_size}"
    yield from _device_left(disk)


def _device_left(disk: DomainDisk) -> Iterator[LeftBehind]:
    if disk.device == "lun":
        yield LeftBehind(what="device lun", why="SCSI commands of the guest are passed on; a test disk is emulated")
    if disk.ioeventfd == "off":
        yield LeftBehind(what="ioeventfd off", why="test guests have it on")
    if disk.rotation_rate is not None:
        yield LeftBehind(what=f"rotation_rate {disk.rotation_rate}", why="test disks report QEMU's own")
    if disk.read_only:
        yield LeftBehind(what="read-only", why="test disks can be written to")
    if disk.transient:
        yield LeftBehind(what="transient", why="a test disk has no overlay that is thrown away")
    if "throttlefilters" in disk.options:
        yield LeftBehind(what="throttlefilters", why="limits of a throttle group are not known here")


def _threads(at: Looked) -> Iterator[str | LeftBehind]:
    threads = at.domain.threads_of(at.disk)
    if len(threads) == 1:
        yield f"device.iothread=iothread{threads[0]}"
    elif threads:
        yield "device.iothread_vq_mapping=" + "+".join(f"iothread{number}" for number in threads)
    polls = {one.poll_max_ns for one in at.domain.threads if one.number in threads} - {None}
    if len(polls) == 1:
        yield f"iothread.poll_max_ns={polls.pop()}"
    elif polls:
        yield LeftBehind(what="poll_max_ns", why="its IOThreads poll for different times")
    others = sorted(
        {number for disk in at.domain.disks if disk is not at.disk for number in at.domain.threads_of(disk)}
    )
    shared = [number for number in others if number in threads]
    if shared:
        what = f"IOThread{'s'[: len(shared) != 1]} {', '.join(map(str, shared))} shared with other disks"
        yield LeftBehind(what=what, why="the test disk has its own")


def _machine(at: Looked) -> Iterator[str | LeftBehind]:
    domain = at.domain
    yield f"machine.vcpus={domain.vcpus}"
    if domain.emulator is not None and at.emulator_here:
        yield f"machine.emulator={domain.emulator}"
    elif domain.emulator is not None:
        yield LeftBehind(what=f"emulator {domain.emulator}", why="there is no such program here")
    started = domain.emulator if domain.language == "qemu" else None
    usual = domain.language == "proxmox" or (started is not None and _X86.search(started) is not None)
    machine = domain.machine or ("pc" if usual else None)  # the default of both, of any version
    if machine is None:
        return
    board = _BOARD.match(machine)
    if board is not None:
        yield f"machine.type={_BOARDS[board[1]]}"
    if board is None or board[1] != machine:
        why = "the newest type of this board is taken" if board else "test guests have q35, pc and microvm"
        yield LeftBehind(what=f"machine {machine}", why=why)


def _pins(at: Looked) -> Iterator[str | LeftBehind]:
    threads = at.domain.threads_of(at.disk)
    for role in ("vcpu", "iothread", "emulator"):
        numbered = [(name, cpus) for name, cpus in at.domain.pins if name.partition(":")[0] == role]
        if role == "iothread":
            numbered = [(name, cpus) for name, cpus in numbered if name.partition(":")[2] in map(str, threads)]
        sets = {cpus for _, cpus in numbered}
        if role == "vcpu" and sets and (len(sets) > 1 or len(numbered) < at.domain.vcpus):
            yield f"{role}.pin={_union(sets)}"
            yield LeftBehind(what="each vCPU's own pin", why="all vCPUs of a test guest may use all of these CPUs")
        elif sets:
            yield f"{role}.pin={_union(sets)}"
    if (nodes := at.domain.memory_nodes) is not None:
        why = "`--set memory.numa=` binds a test guest's, where this host has such nodes"
        yield LeftBehind(what=f"memory on NUMA node {nodes}", why=why)
    if at.domain.io_weight is not None:
        yield LeftBehind(what=f"I/O weight {at.domain.io_weight}", why="a test guest has no control group of its own")


def _union(sets: set[str]) -> str:
    return ",".join(sorted(sets))


ROWS: Sequence[Row] = (_machine, _image, _opened, _limits, _device, _threads, _pins)
"""What is read of a VM, in the order in which its settings are applied: a board before its bus, a cache mode before
the engine that needs it.
"""


def accelerated(domain: Domain, rig: str, *, kvm: bool) -> LeftBehind | None:
    """Say what of a VM's CPUs a test guest has otherwise: it runs on KVM where that can be used here. None where they
    are alike, or a rig has no guest of virtune's.
    """
    known = read_rig(rig)
    if known is None or not known.kind.own_guest or kvm == (domain.kind == "kvm"):
        return None
    if domain.kind == "kvm":
        return LeftBehind(what="KVM", why="test guests are emulated here (TCG), so their CPUs take longer")
    what = "emulation (TCG)" if domain.kind == "qemu" else domain.kind
    return LeftBehind(what=what, why="test guests use KVM here where it works, so their CPUs are others")


def likeness(at: Looked) -> Likeness:
    """Return all of a VM's disk as settings, whatever rig they are for, and what no setting says."""
    found = [one for row in ROWS for one in row(at)]
    return Likeness(
        settings=tuple(one for one in found if isinstance(one, str)),
        left=tuple(one for one in found if isinstance(one, LeftBehind)),
    )


def carried(likeness: Likeness, rig: str, *, instead: Sequence[str] = (), target: bool = False) -> Likeness:
    """Return of a likeness what a rig can take: the others are left behind, with the rig's or QEMU's reason.

    `instead` are settings that the user gave in place of the VM's. An existing `target` has its own format.
    Raises PlanError for a rig that there is not.
    """
    export = read_rig(rig)
    exported = export is not None and export.kind.front == "export"
    named = {name for name, _ in apply_settings(Stack(), instead)[1]}
    kept, left = [f"rig={rig}"], list(likeness.left)
    settings = likeness.settings
    if export is not None and export.export == "vhost-user-blk" and not any("iothread" in word for word in settings):
        settings = (*settings, "export.iothread=off")  # which else has one
    for word in settings:
        name, _, value = word.partition("=")
        spelled = _exported(name, value) if exported else word
        if spelled.partition("=")[0] in named:
            continue
        why = _of_target(name, value) if target else None
        why = why or _refused([*kept, spelled], BY_ID[spelled.partition("=")[0]].id, rig)
        if why is None:
            kept.append(spelled)
        else:
            left.append(LeftBehind(what=word, why=why))
    return Likeness(settings=tuple(kept[1:]), left=tuple(left))


def _exported(name: str, value: str) -> str:
    known = _EXPORTED.get(name)
    return f"{name}={value}" if known is None else f"{known}={'on' if known.endswith('iothread') else value}"


def _of_target(name: str, value: str) -> str | None:
    """Say why a target does not have a setting of an image; None where it does."""
    image = name in ("disk.cluster_size", "disk.extended_l2", "disk.l2_cache_size")
    return (
        "what lies on a target or a scratch volume is raw"
        if image or (name == "disk.format" and value != "raw")
        else None
    )


def _refused(words: Sequence[str], knob: str, rig: str) -> str | None:
    """Say why a stack of these settings cannot be, of which the last one is new; None if it can."""
    try:
        stack, _ = apply_settings(Stack(), words)
    except PlanError as error:
        return error.message
    if knob not in stack.kind.applies:
        return f"rig={rig} has no place for it"
    return next(iter(contradictions(stack)), None)
