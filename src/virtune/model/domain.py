# SPDX-License-Identifier: Apache-2.0
"""A Domain: one VM and its disks as its configuration describes them; a value that is not written there is None.

A Domain holds an existing configuration with all its details; a `Stack` is what virtune brings up. `disk_of` converts
the one to the other, with QEMU's defaults for values that are not written.
"""

from dataclasses import dataclass
from typing import Annotated, Literal, cast

from virtune.model.stack import DIRECT_CACHES, LIMITS, Aio, Cache, DetectZeroes, Discard, Disk, Format

SourceKind = Literal["file", "block", "network", "volume", "nvme", "vhostuser", "vhostvdpa", "dir", "none"]

IOTHREAD_BUSES: frozenset[str] = frozenset({"virtio"})
"""Buses whose disks name their IOThread themselves; disks on `scsi` share that of their controller."""

HOTPLUG_BUSES: frozenset[str] = frozenset({"virtio", "scsi", "usb"})
"""Buses whose disks libvirt can attach to a running VM and detach from it."""

REQUEST_SIZE = "size_iops_sec"
"""How large a request may be to count as one; no limit by itself."""

LIMIT_KNOBS: frozenset[str] = frozenset(limit.knob for limit in LIMITS)
LIVE_KNOBS: frozenset[str] = LIMIT_KNOBS | {
    "iothread.count", "iothread.poll_max_ns", "iothread.pin", "vcpu.pin", "emulator.pin",
}  # fmt: skip
"""Knobs that virtune sets through libvirt on a running VM; all others wait for a power-off."""


@dataclass(frozen=True, slots=True, kw_only=True)
class DiskSource:
    """Where a disk's data lies. `name` is a path, a device, `pool/volume`, or `protocol:name`."""

    kind: SourceKind
    name: str = ""
    protocol: str | None = None


QUEUES_MAX, QUEUES_AUTO = 1024, 65535
"""The most queues of a virtio-blk disk (QEMU's VIRTIO_QUEUE_MAX), and its word for one for each vCPU."""

SCSI_QUEUES_MAX, SCSI_QUEUES_AUTO = QUEUES_MAX - 2, 2**32 - 1
"""The same of a virtio-scsi controller, which has two more queues, of events and commands."""

DIRECT_UNSAFE = "cache.direct"

PROBED = "format is probed"
"""The option of a disk whose format QEMU finds out from its image when it starts."""

HELD_HERE = "a file or block device of its node"
"""The option of a disk of which a configuration names a storage only, where the node's own says what that is."""


@dataclass(frozen=True, slots=True, kw_only=True)
class DomainDisk:
    """One disk of a domain: where its data lies, how QEMU opens it, and which device the guest sees.

    `io_default` is the engine that its system gives it where no `io` is written,
    `mapping` are the IOThreads its queues are spread over, `limits` the throttle's settings by libvirt's names,
    which disks of one `limits_group` have together, `werror` and `rerror` what is done of a failed write or read,
    `backing` is how many backing files it has, where the configuration lists them. `line` is its line in the
    configuration, `refused` is what QEMU refuses of a command line, with what to do, and `options` are options of
    other systems than libvirt that have no attribute here (`direct-io-safe`; `cache.direct` of one whose cache is
    `unsafe` and which is opened with O_DIRECT all the same).
    """

    target: str
    line: int
    device: str = "disk"
    bus: str | None = None
    source: DiskSource
    driver: str | None = None
    format: str | None = None
    cache: str | None = None
    io: str | None = None
    io_default: str = "threads"
    discard: str | None = None
    detect_zeroes: str | None = None
    copy_on_read: str | None = None
    werror: str | None = None
    rerror: str | None = None
    iothread: int | None = None
    mapping: tuple[int, ...] = ()
    queues: int | None = None
    queue_size: int | None = None
    ioeventfd: str | None = None
    metadata_cache_bytes: int | None = None
    limits: tuple[tuple[str, int], ...] = ()
    limits_group: str = ""
    controller: int = 0
    rotation_rate: int | None = None
    backing: int | None = None
    read_only: bool = False
    shareable: bool = False
    transient: bool = False
    refused: tuple[tuple[str, str], ...] = ()
    options: frozenset[str] = frozenset()

    @property
    def is_disk(self) -> bool:
        """Whether it is a disk that is there: not a CD-ROM or a floppy."""
        return self.device in ("disk", "lun") and self.source.kind != "none"

    @property
    def format_unknown(self) -> bool:
        """Whether nothing says its format. libvirt takes raw where none is written, and QEMU looks into the image."""
        return self.format is None and PROBED in self.options

    @property
    def rate_limits(self) -> dict[str, int]:
        """Its limits by libvirt's names, without those of bursts."""
        return {
            name: value for name, value in self.limits if value and name.endswith("_sec") and name != REQUEST_SIZE
        }

    @property
    def holds_data(self) -> bool:
        """Whether it holds the guest's data: not a CD-ROM, a floppy, or read-only."""
        return self.is_disk and not self.read_only

    @property
    def opened_here(self) -> bool:
        """Whether the host's kernel opens it as a file or block device, so that cache and engine mean something."""
        return self.source.kind in ("file", "block", "volume")


@dataclass(frozen=True, slots=True, kw_only=True)
class Controller:
    """One controller of disks."""

    kind: str
    index: int
    line: int
    model: str | None = None
    queues: int | None = None
    iothread: int | None = None
    mapping: tuple[int, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class DomainThread:
    """One IOThread of a domain, and its polling time if configured."""

    number: int
    poll_max_ns: int | None = None


Refusal = tuple[str, str, str, str]
"""A place (`vda`, `scsi:0`, empty for the domain), what is refused of it, what to do about it, and the knob whose
setting is to be taken away; the last two may be empty.
"""


@dataclass(frozen=True, slots=True, kw_only=True)
class Domain:
    """One VM as it is configured. `guest_agent`: it has the port of the QEMU guest agent. `pins` are CPU sets by
    `vcpu:0`, `iothread:1`, `emulator`; `threads_elsewhere` are the IOThreads that another device than a disk uses,
    `memory_nodes` the NUMA nodes that hold its memory where it is bound to some.

    `language` is the configuration's language: libvirt, proxmox, xl, vmx, bhyve. `elsewhere` are the parts of it that
    lie in other files, in the words that name them, `refused` what libvirt or QEMU refuses of it.
    """

    name: str
    uuid: str | None
    kind: str
    line: int
    vcpus: int
    machine: str | None = None
    arch: str | None = None
    emulator: str | None = None
    threads: tuple[DomainThread, ...] = ()
    threads_elsewhere: frozenset[int] = frozenset()
    threads_line: int = 0
    pins: tuple[tuple[str, str], ...] = ()
    memory_nodes: str | None = None
    kvm_hidden: bool = False
    guest_agent: bool = False
    host_devices: int = 0
    io_weight: int | None = None
    disks: tuple[DomainDisk, ...] = ()
    controllers: tuple[Controller, ...] = ()
    written: frozenset[str] = frozenset()
    refused: tuple[Refusal, ...] = ()
    language: str = "libvirt"
    elsewhere: tuple[str, ...] = ()

    def disk(self, target: str) -> DomainDisk | None:
        return next((disk for disk in self.disks if disk.target == target), None)

    def controller_of(self, disk: DomainDisk) -> Controller | None:
        return next((one for one in self.controllers if one.kind == "scsi" and one.index == disk.controller), None)

    def threads_of(self, disk: DomainDisk) -> tuple[int, ...]:
        """Return the IOThreads that serve a disk; empty if the main loop does."""
        if disk.bus == "scsi":
            controller = self.controller_of(disk)
            return () if controller is None else _threads(controller)
        return _threads(disk)

    @property
    def runs_qemu(self) -> bool:
        """Whether QEMU serves its disks, with KVM or any other accelerator."""
        return self.kind in ("kvm", "qemu", "hvf", "nvmm", "kqemu")

    @property
    def threads_used(self) -> frozenset[int]:
        places: tuple[DomainDisk | Controller, ...] = (*self.disks, *self.controllers)
        return frozenset(one for place in places for one in _threads(place))

    def pin(self, what: str) -> str | None:
        return dict(self.pins).get(what)


@dataclass(frozen=True, slots=True, kw_only=True)
class SettingChange:
    """One knob of one place of a domain, and the value that it is to have."""

    knob: Annotated[str, "The knob, as `virtune host knobs` lists it."]
    at: Annotated[
        str, "A disk (`vda`), an IOThread (`iothread:1`), a controller (`scsi:0`); empty for the domain."
    ] = ""
    value: Annotated[str | None, "The value; null takes the setting away."]


def disk_of(disk: DomainDisk) -> Disk | None:
    """Return a domain's disk as a Disk, with QEMU's defaults; None if a Stack cannot express it, or its format is
    unknown.
    """
    if not disk.opened_here or disk.format_unknown or disk.format not in ("raw", "qcow2", None):
        return None
    limits = dict(disk.limits)
    return Disk(
        format=cast("Format", disk.format or "raw"),
        aio=cast("Aio", aio_of(disk)),
        cache=cast("Cache", cache_of(disk)),
        discard=cast("Discard", disk.discard or "ignore"),
        detect_zeroes=cast("DetectZeroes", disk.detect_zeroes or "off"),
        throttle_iops=limits.get("total_iops_sec") or None,
    )


def in_page_cache(disk: DomainDisk) -> bool:
    """Whether this host's page cache stands between the disk and its image."""
    return cache_of(disk) not in DIRECT_CACHES and DIRECT_UNSAFE not in disk.options


def cache_of(disk: DomainDisk) -> str:
    """Return the cache mode that QEMU gets: writeback by default, and none for a disk that VMs share, which libvirt
    opens so (qemuDomainPrepareDiskCachemode).
    """
    if disk.cache not in (None, "default"):
        return disk.cache
    return "none" if disk.shareable and not disk.read_only else "writeback"


def aio_of(disk: DomainDisk) -> str:
    """Return the engine that QEMU gets: threads by default, but where the system has another default."""
    return disk.io or disk.io_default


def _threads(place: DomainDisk | Controller) -> tuple[int, ...]:
    return place.mapping or ((place.iothread,) if place.iothread is not None else ())
