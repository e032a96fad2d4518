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
from virtune.model.units import Bytes

Rig = Literal["metal", "storage-daemon", "qemu", "libvirt", "unknown"]
"""`libvirt` is a guest of the user's own; `unknown` is the rig of results that were made elsewhere: nothing is known
of their stack."""

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
}
BUSES: tuple[str, ...] = tuple(_OF_BUS)
"""The buses of a guest's disk that a rig has, of all that there are."""

_ID = re.compile(r"[A-Za-z][A-Za-z0-9_-]{0,30}", re.ASCII)

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
    """The disk as a guest sees it: on which bus, with which queues, served by which IOThread of QEMU's.

    `None` means "QEMU's default", and for `iothread` the main loop.
    """

    bus: Bus = "virtio-blk"
    iothread: str | None = None
    num_queues: int | None = None
    scsi_num_queues: int | None = None
    max_ioqpairs: int | None = None
    queue_size: int | None = None
    packed: bool | None = None
    event_idx: bool | None = None
    logical_block_size: Bytes | None = None
    physical_block_size: Bytes | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Stack:
    """A rig and what it brings up. With rig `metal` there is no QEMU, and the disk's QEMU options do not apply.

    `export` and what follows it say how the storage daemon hands the disk out: over how many queues, from a thread of
    its own or from the daemon's main loop, and how long that thread polls. `device` says how a guest sees it; with
    rig `qemu`, `poll_max_ns` is of the device's IOThread, `guests` have the disk each and share the load, and
    `idle_guests` run beside them and do nothing; the image of every second one lies in the directory `spread`.
    `domain` is the name of the libvirt domain that the disk is plugged into, with rig `libvirt` and no other.
    """

    rig: Rig = "storage-daemon"
    domain: str | None = None
    export: ExportKind = "nbd"
    num_queues: int | None = None
    iothread: bool | None = None
    poll_max_ns: int | None = None
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
            return self.device.iothread is not None
        return self.export == "vhost-user-blk" if self.iothread is None else self.iothread


def with_setting(stack: Stack, knob: Knob, value: str | int | bool) -> Stack:  # noqa: FBT001
    """Return the stack with one knob turned.

    Raises ValueError for a knob that has no place in a Stack.
    """
    if not knob.place:
        raise ValueError(f"{knob.id} is known to virtune, and it cannot turn it yet")
    replaced: Stack = _replace(stack, knob.place, value)
    return replaced


def setting_of(stack: Stack, knob: Knob) -> str | int | bool | None:
    """Return the value the stack has for a knob, None where it leaves QEMU's default."""
    value: Any = stack
    for name in knob.place:
        value = getattr(value, name)
    return value  # type: ignore[no-any-return]


def shown_to_guest(stack: Stack) -> tuple[object, ...]:
    """Return what a guest is told of its disk when the device is made, and can be told only then."""
    disk = stack.disk
    return stack.device, disk.cache in ("writethrough", "directsync"), disk.discard, disk.backend


def contradictions(stack: Stack) -> tuple[str, ...]:
    """Say what in this stack cannot be together; empty for a sound one. Each rule is QEMU's own."""
    disk = stack.disk
    if stack.rig == "metal":
        touched = [f.name for f in fields(Disk) if getattr(disk, f.name) != getattr(Disk(), f.name)]
        touched += [name for name in (*_OF_EXPORT, *_OF_GUESTS) if getattr(stack, name) != getattr(Stack(), name)]
        touched += _device_settings(stack)
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


def _device_settings(stack: Stack) -> list[str]:
    return [f"device.{f.name}" for f in fields(Device) if getattr(stack.device, f.name) != getattr(Device(), f.name)]


def _guest_contradictions(stack: Stack) -> Iterator[str]:
    for name in _OF_DAEMON:
        if getattr(stack, name) != getattr(Stack(), name):
            yield f"{name} belongs to rig=storage-daemon: a guest has a device, and no export"
    device = stack.device
    if stack.poll_max_ns is not None and device.iothread is None:
        yield "poll_max_ns belongs to an IOThread, and the disk has none: set device.iothread"
    if device.bus == "nvme" and device.iothread is not None:
        yield "bus=nvme has no IOThread in QEMU: use virtio-blk or virtio-scsi"
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
    if device.iothread is not None and not _ID.fullmatch(device.iothread):
        yield f"{device.iothread} is no id of an IOThread: letters, digits, - and _, a letter first"


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
    for name in _OF_GUESTS:
        if getattr(stack, name) != getattr(Stack(), name):
            yield f"{name} belongs to rig=qemu: a domain of yours is one guest, and runs already"
    if stack.disk.backend != "file":
        yield f"backend={stack.disk.backend} is none that libvirt has: a scratch image is plugged into the domain"


def thread_number(name: str) -> int | None:
    """Return the number in QEMU's name for an IOThread of libvirt's (`iothread2`), None for another name."""
    found = re.fullmatch(r"(?:iothread|io)([1-9][0-9]{0,3})", name, re.ASCII)
    return int(found[1]) if found else None


def _export_contradictions(stack: Stack) -> Iterator[str]:
    for name in _device_settings(stack):
        yield f"{name} belongs to a guest's disk: use rig=qemu"
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
