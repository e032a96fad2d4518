# SPDX-License-Identifier: Apache-2.0
"""A Stack: everything between the application's read() and the medium, as one value.

A knob with a `place` sets the attribute of that path; `with_setting` is the only way in, so that a Stack is
always in its canonical form and two equal Stacks compare equal.
"""

import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field, fields, replace
from typing import Any, Literal

from virtune.model.knob import Knob
from virtune.model.machine import Machine, Pins, is_thread_id, machine_contradictions, mapping_of
from virtune.model.rig import Rig
from virtune.model.units import Bytes

Backend = Literal["file", "null-co"]
Format = Literal["raw", "qcow2"]
Cache = Literal["none", "writeback", "writethrough", "directsync", "unsafe"]
Aio = Literal["threads", "native", "io_uring"]
Preallocation = Literal["off", "metadata", "falloc", "full"]
Discard = Literal["ignore", "unmap"]
DetectZeroes = Literal["off", "on", "unmap"]
ExportKind = Literal["nbd", "fuse", "vhost-user-blk"]
Bus = Literal["virtio-blk", "virtio-scsi", "nvme", "ahci", "ide", "usb"]

GUEST_RIGS: frozenset[str] = frozenset({"qemu", "libvirt"})
"""The rigs whose load runs inside a guest."""

_OF_EXPORT = ("export", "num_queues", "iothread", "poll_max_ns")
_OF_GUESTS = ("guests", "idle_guests", "spread")
_OF_DAEMON = ("export", "num_queues", "iothread")
_OF_BUS: Mapping[str, tuple[str, ...]] = {
    "virtio-blk": ("num_queues", "queue_size", "packed", "event_idx"),
    "virtio-scsi": ("scsi_num_queues",),
    "nvme": ("max_ioqpairs",),
    "ahci": (),
    "ide": (),
}
BUSES: tuple[str, ...] = tuple(_OF_BUS)
"""The buses of a guest's disk that a rig has, of all that there are."""

PLUGGED: frozenset[str] = frozenset({"virtio-blk", "virtio-scsi", "nvme"})
"""The buses whose disks come and go while the machine runs; on the others a disk is there from its start."""

WRITABLE: frozenset[str] = frozenset({"ahci", "ide"})
"""The buses to which QEMU gives no disk that is only read: the image is opened to write whatever the load does."""

_PCI = re.compile(r"[0-9a-f]{4}:[0-9a-f]{2}:[01][0-9a-f]\.[0-7]", re.ASCII)

_IN_THREADS = frozenset({"virtio-blk", "virtio-scsi"})

DIRECT_CACHES: frozenset[str] = frozenset({"none", "directsync"})
"""The cache modes that open the image with O_DIRECT."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Disk:
    """One disk: back end, format and the options QEMU's block layer gives it.

    `None` means "QEMU's default", so that what was not asked for is not reported as chosen.
    """

    backend: Backend = "file"
    format: Format = "raw"
    aio: Aio = "threads"
    cache: Cache = "none"
    cluster_size: Bytes | None = None
    preallocation: Preallocation | None = None
    extended_l2: bool | None = None
    lazy_refcounts: bool | None = None
    l2_cache_size: Bytes | None = None
    discard: Discard = "ignore"
    detect_zeroes: DetectZeroes = "off"
    throttle_iops: int | None = None
    throttle_bps: Bytes | None = None
    null_latency_ns: int = 0


@dataclass(frozen=True, slots=True, kw_only=True)
class Device:
    """The disk as a guest sees it: on which bus, with which queues, served by which IOThreads of QEMU's.

    `None` means "QEMU's default", and for `iothread` the main loop. `iothread_vq_mapping` spreads the virtqueues over
    several IOThreads (`virtune.model.machine.mapping_of` reads it). With `vfio_pci`, the PCI address of an NVMe disk,
    the guest drives that disk itself, and all the rest means nothing.
    """

    bus: Bus = "virtio-blk"
    iothread: str | None = None
    iothread_vq_mapping: str | None = None
    num_queues: int | None = None
    scsi_num_queues: int | None = None
    max_ioqpairs: int | None = None
    queue_size: int | None = None
    packed: bool | None = None
    event_idx: bool | None = None
    logical_block_size: Bytes | None = None
    physical_block_size: Bytes | None = None
    vfio_pci: str | None = None

    @property
    def iothreads(self) -> tuple[str, ...]:
        """The IOThreads that serve the disk, none where it is the main loop."""
        if self.iothread_vq_mapping is not None:
            return tuple(one.iothread for one in mapping_of(self.iothread_vq_mapping))
        return () if self.iothread is None else (self.iothread,)


@dataclass(frozen=True, slots=True, kw_only=True)
class Stack:
    """A rig and what it brings up. With rig `metal` there is no QEMU, and the disk's QEMU options do not apply.

    `export` and what follows it say how the storage daemon hands the disk out: over how many queues, from a thread of
    its own or from the daemon's main loop, and how long that thread polls. With rig `qemu`, `device` says how a guest
    sees it, `machine` what that guest is besides, and `pins` where its threads run; `poll_max_ns` and
    `thread_pool_max` are then of the device's IOThreads, `guests` have the disk each and share the load, and
    `idle_guests` run beside them and do nothing; the image of every second one lies in the directory `spread`.
    `domain` is the name of the libvirt domain that the disk is plugged into, with rig `libvirt` and no other.
    """

    rig: Rig = "storage-daemon"
    domain: str | None = None
    export: ExportKind = "nbd"
    num_queues: int | None = None
    iothread: bool | None = None
    poll_max_ns: int | None = None
    thread_pool_max: int | None = None
    machine: Machine = field(default_factory=Machine)
    pins: Pins = field(default_factory=Pins)
    device: Device = field(default_factory=Device)
    disk: Disk = field(default_factory=Disk)
    guests: int = 1
    idle_guests: int = 0
    spread: str | None = None

    @property
    def queues(self) -> int:
        """The queues that the export offers: one, unless more are asked for."""
        return self.num_queues or 1

    @property
    def in_iothread(self) -> bool:
        """Whether an IOThread serves the disk. A vhost-user-blk export gets one, as a guest's disk should."""
        if self.rig == "metal":
            return False
        if self.rig in GUEST_RIGS:
            return bool(self.device.iothreads)
        return self.export == "vhost-user-blk" if self.iothread is None else self.iothread


def with_setting(stack: Stack, knob: Knob, value: str | int | bool) -> Stack:  # noqa: FBT001
    """Return the stack with one knob turned.

    Raises ValueError for a knob that has no place in a Stack.
    """
    if not knob.place:
        raise ValueError(f"{knob.id} is documented, but virtune cannot set it yet")
    replaced: Stack = _replace(stack, knob.place, value)
    return replaced


def setting_of(stack: Stack, knob: Knob) -> str | int | bool | None:
    """Return the value the stack has for a knob, None where it leaves QEMU's default."""
    value: Any = stack
    for name in knob.place:
        value = getattr(value, name)
    return value  # type: ignore[no-any-return]


def writes_through(stack: Stack) -> bool:
    """Whether the guest is shown no write cache: it is told when the device is made, and can be told only then."""
    return stack.disk.cache in ("writethrough", "directsync")


def contradictions(stack: Stack) -> tuple[str, ...]:
    """Say what in this stack cannot be together; empty for a sound one. Each rule is QEMU's own."""
    disk = stack.disk
    if stack.rig == "metal":
        touched = [f.name for f in fields(Disk) if getattr(disk, f.name) != getattr(Disk(), f.name)]
        touched += [name for name in (*_OF_EXPORT, *_OF_GUESTS) if getattr(stack, name) != getattr(Stack(), name)]
        touched += _guest_settings(stack)
        return tuple(f"rig=metal has no QEMU, so {name} means nothing there" for name in touched)
    found = [*(_guest_contradictions(stack) if stack.rig in GUEST_RIGS else _export_contradictions(stack))]
    found += _domain_contradictions(stack) if stack.rig == "libvirt" else []
    if disk.aio == "native" and disk.cache not in DIRECT_CACHES and disk.backend == "file":
        found.append(f"aio=native needs O_DIRECT: use cache=none or directsync instead of {disk.cache}")
    if disk.detect_zeroes == "unmap" and disk.discard != "unmap":
        found.append("detect_zeroes=unmap needs discard=unmap")
    if disk.format != "qcow2":
        names = ("cluster_size", "extended_l2", "lazy_refcounts", "l2_cache_size")
        found += [
            f"{name} is a qcow2 option, and the format is raw" for name in names if getattr(disk, name) is not None
        ]
    if disk.extended_l2 and disk.cluster_size is not None and disk.cluster_size < 16384:
        found.append("extended_l2 needs clusters of at least 16k")
    if disk.backend == "null-co" and disk.format != "raw":
        found.append("backend=null-co holds no data, so format=qcow2 cannot be on it")
    if disk.backend == "null-co":
        meaningless = ("aio", "cache", "discard", "detect_zeroes")
        found += [
            f"backend=null-co opens nothing, so {n} means nothing there"
            for n in meaningless
            if getattr(disk, n) != getattr(Disk(), n)
        ]
    if disk.format != "qcow2" and disk.preallocation is not None:
        found.append("preallocation is for qcow2 here: virtune writes raw images in full, whatever was asked")
    if disk.backend == "file" and disk.null_latency_ns:
        found.append("null_latency_ns belongs to backend=null-co")
    return tuple(found)


def _guest_settings(stack: Stack) -> Iterator[str]:
    """Yield what the stack says of a guest, in the words of the knobs' places."""
    for part in ("device", "machine", "pins"):
        value, unsaid = getattr(stack, part), getattr(Stack(), part)
        yield from (f"{part}.{f.name}" for f in fields(value) if getattr(value, f.name) != getattr(unsaid, f.name))
    if stack.thread_pool_max is not None:
        yield "thread_pool_max"


def _guest_contradictions(stack: Stack) -> Iterator[str]:
    for name in _OF_DAEMON:
        if getattr(stack, name) != getattr(Stack(), name):
            yield f"{name} belongs to rig=storage-daemon: a guest has a device, and no export"
    yield from machine_contradictions(stack.machine, stack.pins)
    if stack.device.vfio_pci is not None:
        yield from _passed_contradictions(stack)
        return
    yield from _thread_contradictions(stack)
    device = stack.device
    if stack.spread is not None and (stack.guests + stack.idle_guests < 2 or not stack.spread.startswith("/")):
        yield "spread is an absolute path of a directory for the images of every second guest, and needs two guests"
    if device.bus not in BUSES:
        yield f"a guest of virtune's has its disk on {', '.join(BUSES)}: {device.bus} cannot be plugged while it runs"
    for bus, names in _OF_BUS.items():
        yield from (
            f"{name} belongs to bus={bus}, and the bus is {device.bus}"
            for name in names
            if device.bus != bus and getattr(device, name) is not None
        )
    if (device.logical_block_size or 512) > (device.physical_block_size or 512):
        yield "logical_block_size must not exceed physical_block_size"
    if device.bus in WRITABLE and device.logical_block_size not in (None, 512):
        yield f"bus={device.bus} has sectors of 512 bytes in QEMU, so logical_block_size cannot be another"
    if device.bus == "ide" and not stack.machine.has_isa:
        yield "bus=ide needs machine.type=pc: the board q35 has no IDE"


def _passed_contradictions(stack: Stack) -> Iterator[str]:
    if not _PCI.fullmatch(str(stack.device.vfio_pci)):
        yield f"{stack.device.vfio_pci} is no PCI address: write 0000:01:00.0"
    for part, unsaid in ((stack.disk, Disk()), (stack.device, Device(vfio_pci=stack.device.vfio_pci))):
        for one in fields(part):
            if getattr(part, one.name) != getattr(unsaid, one.name):
                yield f"the guest drives the disk {stack.device.vfio_pci} itself, so {one.name} means nothing there"


def _thread_contradictions(stack: Stack) -> Iterator[str]:
    device = stack.device
    mapping = device.iothread_vq_mapping
    if mapping is not None:
        try:
            mapping_of(mapping)
        except ValueError as error:
            yield f"iothread_vq_mapping={mapping}: {error}"
            return
    if mapping is not None and device.iothread is not None:
        yield "iothread and iothread_vq_mapping exclude each other: the mapping names the IOThreads"
    for thread in device.iothreads:
        if not is_thread_id(thread):
            yield f"{thread} is no id of an IOThread: letters, digits, - and _, a letter first"
    if device.bus not in _IN_THREADS and device.iothreads:
        yield f"bus={device.bus} has no IOThread in QEMU: use virtio-blk or virtio-scsi"
    own = {
        "poll_max_ns": stack.poll_max_ns,
        "thread_pool_max": stack.thread_pool_max,
        "iothread.pin": stack.pins.iothread,
    }
    for name, value in own.items():
        if value is not None and not device.iothreads:
            yield f"{name} belongs to an IOThread, and the disk has none: set device.iothread"


def _domain_contradictions(stack: Stack) -> Iterator[str]:
    """What a domain that runs, and is not virtune's, cannot be given or must not lose."""
    device = stack.device
    if device.bus != "virtio-blk":
        yield (
            f"bus={device.bus} is not plugged into a domain of yours: libvirt would add a controller, which stays; "
            "only virtio-blk leaves nothing behind"
        )
    if device.iothread is not None and thread_number(device.iothread) is None:
        yield f"the IOThreads of a domain are numbered: write device.iothread=iothread1 instead of {device.iothread}"
    if stack.poll_max_ns is not None:
        yield "poll_max_ns belongs to an IOThread of the domain's own, which virtune leaves as it is"
    for name in (name for name in _guest_settings(stack) if name.partition(".")[2] not in _OF_DOMAIN):
        yield f"{name} is not given to a domain of yours: use rig=qemu"
    for name in _OF_GUESTS:
        if getattr(stack, name) != getattr(Stack(), name):
            yield f"{name} belongs to rig=qemu: a domain of yours is one guest, and runs already"
    if stack.disk.backend != "file":
        yield f"backend={stack.disk.backend} is none that libvirt has: a scratch image is plugged into the domain"


_OF_DOMAIN = frozenset(one.name for one in fields(Device)) - {"iothread_vq_mapping", "vfio_pci"}
"""What of a disk's device a domain that runs can be given."""


def thread_number(name: str) -> int | None:
    """Return the number in QEMU's name for an IOThread of libvirt's (`iothread2`), None for another name."""
    found = re.fullmatch(r"(?:iothread|io)([1-9][0-9]{0,3})", name, re.ASCII)
    return int(found[1]) if found else None


def _export_contradictions(stack: Stack) -> Iterator[str]:
    for name in _guest_settings(stack):
        yield f"{name} belongs to a guest: use rig=qemu"
    for name in _OF_GUESTS:
        if getattr(stack, name) != getattr(Stack(), name):
            yield f"{name} belongs to rig=qemu: the storage daemon has no guest"
    if stack.num_queues is not None and stack.export != "vhost-user-blk":
        yield f"num_queues belongs to export=vhost-user-blk, and the export is {stack.export}"
    if stack.iothread and stack.export == "nbd":
        yield (
            "iothread=on cannot be with export=nbd: QEMU 7.2 aborts when a client of such an export disconnects; "
            "use export=vhost-user-blk or fuse"
        )
    if stack.poll_max_ns is not None and not stack.in_iothread:
        yield "poll_max_ns belongs to an IOThread, and the export has none: only an IOThread polls this way"


def _replace(value: Any, place: tuple[str, ...], new: object) -> Any:
    head, *rest = place
    inner = _replace(getattr(value, head), tuple(rest), new) if rest else new
    return replace(value, **{head: inner})
