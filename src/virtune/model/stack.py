# SPDX-License-Identifier: Apache-2.0
"""A Stack: everything between the application's read() and the medium, as one value.

A knob with a `place` sets the attribute of that path; `all changes go through `with_setting`, so that a Stack is
always in its canonical form and two equal Stacks compare equal.
"""

import re
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import Annotated, Any, Literal

from virtune.model.knob import Knob
from virtune.model.machine import MEMORY, Machine, Pins, mapping_of
from virtune.model.rig import RIGS, ExportKind, Rig, RigKind
from virtune.model.units import Bytes

Backend = Literal["file", "null-co", "rbd"]
Format = Literal["raw", "qcow2"]
Cache = Literal["none", "writeback", "writethrough", "directsync", "unsafe"]
Aio = Literal["threads", "native", "io_uring"]
Preallocation = Literal["off", "metadata", "falloc", "full"]
Discard = Literal["ignore", "unmap"]
DetectZeroes = Literal["off", "on", "unmap"]
Bus = Literal["virtio-blk", "virtio-scsi", "nvme", "ahci", "ide", "usb"]

Filesystem = Literal["none", "ext4", "xfs"]
"""The filesystem on a guest's disk; with none the load is on the disk itself."""

CacheState = Literal["cold", "warm", "as-found"]
"""How much of an image is in the host's page cache when a trial begins."""

OF_BUS: Mapping[str, tuple[str, ...]] = {
    "virtio-blk": ("num_queues", "queue_size", "packed", "event_idx"),
    "virtio-scsi": ("scsi_num_queues",),
    "nvme": ("max_ioqpairs",),
    "ahci": (),
    "ide": (),
}
"""The settings of a device that apply to one bus only."""

BUSES: tuple[str, ...] = tuple(OF_BUS)
"""The buses of a guest's disk that a rig offers."""

PLUGGED: frozenset[str] = frozenset({"virtio-blk", "virtio-scsi", "nvme"})
"""The buses that support hotplug; on the others a disk is present from the machine's start."""

WRITABLE: frozenset[str] = frozenset({"ahci", "ide"})
"""The buses on which QEMU refuses a read-only disk: the image is opened for writing whatever the load does."""

DIRECT_CACHES: frozenset[str] = frozenset({"none", "directsync"})
"""The cache modes that open the image with O_DIRECT."""

THROUGH_CACHES: frozenset[str] = frozenset({"writethrough", "directsync"})
"""The cache modes in which each write is durable before QEMU says that it is done: the guest sees no write cache."""


POLL_DEFAULT_NS = 32768
"""QEMU's default for the longest polling time of an IOThread (poll-max-ns on Linux; knob K36)."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Disk:
    """One disk: back end, format and the options QEMU's block layer gives it.

    `None` means "QEMU's default", so that a default is not reported as chosen. `rbd` is the pool of a disk on
    Ceph (`virtune.model.rbd` reads it). With a `filesystem` the guest mounts the disk, and the load is on a file
    in it.
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
    throttle_iops_read: int | None = None
    throttle_iops_write: int | None = None
    throttle_bps_read: Bytes | None = None
    throttle_bps_write: Bytes | None = None
    null_latency_ns: int = 0
    rbd: str | None = field(default=None, repr=False)
    filesystem: Filesystem = field(default="none", repr=False)

    @property
    def limits(self) -> dict[str, int]:
        """The requested limits, by their names in QMP; 0 means no limit."""
        asked = ((limit.qmp, getattr(self, limit.knob.removeprefix("disk."))) for limit in LIMITS)
        return {name: value for name, value in asked if value}


@dataclass(frozen=True, slots=True, kw_only=True)
class _LimitWords:
    """A limit of QEMU's I/O throttle: its knob, its name in QMP, its element in libvirt's `<iotune>`, its unit."""

    knob: str
    qmp: str
    libvirt: str
    unit: str


LIMITS: tuple[_LimitWords, ...] = tuple(
    _LimitWords(
        knob=f"disk.throttle_{short}{of and '_'}{of}",
        qmp=f"{short}-{of or 'total'}",
        libvirt=f"{of or 'total'}_{long}_sec",
        unit=f"{of}{of and '.'}{short}",
    )
    for short, long in (("iops", "iops"), ("bps", "bytes"))
    for of in ("", "read", "write")
)
"""Every limit that a rig can set: on the total, on reads, on writes."""


PASSED_TARGET = "target"
"""In place of the PCI address of a drive that a guest drives itself: the one that is the study's target."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Device:
    """The disk as a guest sees it: on which bus, with which queues, served by which IOThreads of QEMU's.

    `None` means "QEMU's default", and for `iothread` the main loop. `iothread_vq_mapping` spreads the virtqueues over
    several IOThreads (`virtune.model.machine.mapping_of` reads it). With `vfio_pci`, the PCI address of an NVMe disk,
    or `target` until it is known, the guest drives that disk itself, and all other settings have no meaning.
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
    def bus_in_guest(self) -> Bus:
        """The bus on which the guest sees its disk."""
        return self.bus if self.vfio_pci is None else "nvme"

    @property
    def iothreads(self) -> tuple[str, ...]:
        """The IOThreads that serve the disk; empty for the main loop."""
        if self.iothread_vq_mapping is not None:
            return tuple(one.iothread for one in mapping_of(self.iothread_vq_mapping))
        return () if self.iothread is None else (self.iothread,)


@dataclass(frozen=True, slots=True, kw_only=True)
class Stack:
    """A rig and what it brings up. With rig `metal` there is no QEMU, and the disk's QEMU options do not apply.

    `export` and the fields after it describe how the storage daemon exports the disk: the number of queues, an
    IOThread or the daemon's main loop, and how long that IOThread polls. With rig `qemu`, `device` is the disk as the
    guest sees it, `machine` the rest of the guest, and `pins` where its threads run; `poll_max_ns` and
    `thread_pool_max` are then of the device's IOThreads, `guests` each have such a disk and share the load, and
    `idle_guests` run idle beside them, each with an image of its own if `own_images`; every second image lies in the
    directory `spread`. One guest, or the host itself, may have several `disks` (files), whose settings
    `virtune.model.disks` derives: with `own_iothreads` an IOThread each, and every second one with the settings
    `second`. `cache_state` is how much of the images is in the host's page cache when a trial begins; `place` says
    whether a study's target is used, or a scratch image although there is a target; `neighbour` is what another
    process of the host does meanwhile, `load_depth` how many I/Os each job of the load keeps in flight; None for as
    many as its workload says. `domain` is the name of the libvirt domain that the disk is plugged into, with
    rig `libvirt` and no other.
    """

    rig: Annotated[Rig, "What brings the stack up; `metal` is no QEMU at all, and the rest then means nothing."] = (
        "storage-daemon"
    )
    domain: Annotated[str | None, "The libvirt domain that the disk is plugged into, of rig `libvirt` only."] = None
    export: ExportKind = "nbd"
    num_queues: Annotated[int | None, "Queues of a vhost-user-blk export; null is one."] = None
    iothread: Annotated[
        bool | None, "Whether an IOThread serves the export; null is the default of the kind of export."
    ] = None
    poll_max_ns: Annotated[int | None, "How long that IOThread polls at most, in ns; null is QEMU's default."] = None
    thread_pool_max: int | None = None
    machine: Annotated[
        Machine, "The guest besides its disk, of rig `qemu` only; null is what virtune's guests get unasked."
    ] = field(default_factory=Machine)
    pins: Annotated[Pins, "Where the guest's threads run, of rig `qemu` only; null is on any CPU."] = field(
        default_factory=Pins
    )
    device: Annotated[Device, "The disk as a guest sees it, of rig `qemu` only; null is QEMU's default."] = field(
        default_factory=Device
    )
    disk: Annotated[Disk, "The disk; null is QEMU's default."] = field(default_factory=Disk)
    guests: int = 1
    idle_guests: int = 0
    spread: str | None = None
    own_images: bool = field(default=False, repr=False)
    disks: int = field(default=1, repr=False)
    own_iothreads: bool = field(default=False, repr=False)
    second: str | None = field(default=None, repr=False)
    cache_state: CacheState = field(default="cold", repr=False)
    place: Literal["target", "scratch"] = field(default="target", repr=False)
    neighbour: Literal["none", "cpu", "io"] = field(default="none", repr=False)
    load_depth: int | None = field(default=None, repr=False)

    @property
    def kind(self) -> RigKind:
        """The row of its rig."""
        return RIGS[self.rig]

    @property
    def queues(self) -> int:
        """The queues that the export offers: one, unless more are asked for."""
        return self.num_queues or 1

    @property
    def vcpus(self) -> int | None:
        """The vCPUs of all guests that share the load; None where virtune makes no guest."""
        return self.guests * self.machine.cpus if self.kind.own_guest else None

    @property
    def memory(self) -> int | None:
        """The memory of all guests that share the load, in bytes; None where virtune makes no guest."""
        return self.guests * (self.machine.memory or MEMORY) if self.kind.own_guest else None

    @property
    def in_iothread(self) -> bool:
        """Whether an IOThread serves the disk. A vhost-user-blk export gets one, as a guest's disk should."""
        if self.kind.front == "file":
            return False
        if self.kind.in_guest:
            return bool(self.device.iothreads)
        return self.export == "vhost-user-blk" if self.iothread is None else self.iothread


def with_setting(stack: Stack, knob: Knob, value: str | int | bool | None) -> Stack:  # noqa: FBT001
    """Return the stack with one knob changed; None is for knobs whose default is left to QEMU.

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
    """Whether the guest sees no write cache. The guest is told when the device is made, and cannot be told later."""
    return stack.disk.cache in THROUGH_CACHES


def thread_number(name: str) -> int | None:
    """Return the number in QEMU's name for an IOThread of libvirt's (`iothread2`), None for another name."""
    found = re.fullmatch(r"(?:iothread|io)([1-9][0-9]{0,3})", name, re.ASCII)
    return int(found[1]) if found else None


def _replace(value: Any, place: tuple[str, ...], new: object) -> Any:
    head, *rest = place
    inner = _replace(getattr(value, head), tuple(rest), new) if rest else new
    return replace(value, **{head: inner})
