# SPDX-License-Identifier: Apache-2.0
"""A Stack: everything between the application's read() and the medium, as one value; the parts of a guest other than
its disk: the machine, and the host CPUs of its threads; where an RBD image of Ceph lies, as it is asked for
(`POOL[/NAMESPACE][:id=USER][:conf=FILE]`); and a Target: where the load lands. The fio job follows from its type.

A knob with a `place` sets the attribute of that path; `all changes go through `with_setting`, so that a Stack is
always in its canonical form and two equal Stacks compare equal.

Values that QEMU would refuse are reported as a sentence.
"""

import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field, fields, replace
from typing import Annotated, Any, Literal

from virtune.model.knob import Knob
from virtune.model.rig import RIGS, ExportKind, Rig, RigKind
from virtune.model.text import Bytes

_TYPE = re.compile(r"microvm|(q35|pc|pc-q35-\d+\.\d+|pc-i440fx-\d+\.\d+)(\.\d+)?", re.ASCII)
_CPU = re.compile(r"[A-Za-z0-9][A-Za-z0-9_.,=+-]{0,199}", re.ASCII)
_CPUS = re.compile(r"\d{1,5}(-\d{1,5})?(,\d{1,5}(-\d{1,5})?)*", re.ASCII)
_ID = re.compile(r"[A-Za-z][A-Za-z0-9_-]{0,30}", re.ASCII)
_QUEUES = re.compile(r"(\d{1,5})(?:-(\d{1,5}))?", re.ASCII)

System = Literal["bare", "linux"]
"""The system in a guest: Linux, or only the load generator, without an operating system."""

VCPUS = 2
"""The default vCPUs of a test VM with Linux: as many as can run at once on the smallest host that we measure on."""

MEMORY = Bytes(512 * 1024**2)
"""The default memory of a test VM, which needs only a tenth of it."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Machine:
    """The arguments of a guest's process. `None` is the default of virtune's test VMs.

    `emulator` is the path of a `qemu-system-...` program, `type` QEMU's machine (q35), `cpu` its model (`host` on
    KVM, `max` without), `hugepages` the size of the pages that the guest's memory lies on, `numa` the NUMA nodes that
    hold it (`0`, `0-1`), `thp` what the host's kernel is set to for transparent huge pages, `ksm` whether QEMU has it
    merge equal pages. `system` is what runs in it: `bare` is the load generator alone, without an operating system.
    """

    emulator: str | None = None
    type: str | None = None
    cpu: str | None = None
    vcpus: int | None = None
    memory: Bytes | None = None
    hugepages: Bytes | None = None
    numa: str | None = field(default=None, repr=False)
    thp: Literal["always", "madvise", "never"] | None = field(default=None, repr=False)
    ksm: bool | None = field(default=None, repr=False)
    system: System | None = None

    @property
    def is_bare(self) -> bool:
        return self.system == "bare"

    @property
    def places_memory(self) -> bool:
        """Whether it is asked where its memory lies, which QEMU is told by an object of its own."""
        return self.hugepages is not None or self.numa is not None

    @property
    def minds_memory(self) -> bool:
        """Whether it is asked how its memory lies, which then is no file with the state of an earlier boot."""
        return self.places_memory or self.thp is not None or self.ksm is not None

    @property
    def cpus(self) -> int:
        """Its vCPUs, those of a test VM that is asked for none: one without an operating system, else two."""
        return self.vcpus or (1 if self.is_bare else VCPUS)

    @property
    def has_isa(self) -> bool:
        """Whether the board is the older one (i440fx), with IDE on board and without PCI Express."""
        return self.type is not None and (self.type == "pc" or self.type.startswith("pc-i440fx"))

    @property
    def has_pci(self) -> bool:
        """Whether the board has PCI: microvm has virtio devices at fixed places of its memory (virtio-mmio)."""
        return self.type != "microvm"


@dataclass(frozen=True, slots=True, kw_only=True)
class Pins:
    """The host CPUs on which the threads of a guest's process may run, as `2-3,8`, by their role; `None`: any. `load`
    are those of a load that runs on the host.
    """

    vcpu: str | None = None
    iothread: str | None = None
    emulator: str | None = None
    load: str | None = field(default=None, repr=False)


@dataclass(frozen=True, slots=True, kw_only=True)
class Mapped:
    """An IOThread and the virtqueues that it serves; without queues QEMU deals them out in turn."""

    iothread: str
    queues: tuple[int, ...] = ()


def mapping_of(text: str) -> tuple[Mapped, ...]:
    """Read `io1+io2`, or with queues `io1:0-1+io2:2-3`.

    Raises ValueError with what is wrong; QEMU checks that all queues are served.
    """
    found = []
    for part in text.split("+"):
        name, colon, words = part.partition(":")
        if not _ID.fullmatch(name):
            raise ValueError(f"{name!r} is no id of an IOThread")
        span = _QUEUES.fullmatch(words)
        if colon and span is None:
            raise ValueError(f"{words!r} are no virtqueues: write {name}:0 or {name}:0-1")
        last = int(span[2] or span[1]) if span else -1
        found.append(Mapped(iothread=name, queues=tuple(range(int(span[1]), last + 1)) if span else ()))
    if len({one.iothread for one in found}) < len(found):
        raise ValueError("an IOThread is named twice")
    if len({bool(one.queues) for one in found}) > 1:
        raise ValueError("name the virtqueues of every IOThread, or of none")
    return tuple(found)


def is_thread_id(text: str) -> bool:
    return _ID.fullmatch(text) is not None


def machine_contradictions(machine: Machine) -> Iterator[str]:
    if machine.emulator is not None and not machine.emulator.startswith("/"):
        yield f"machine.emulator={machine.emulator} is no absolute path of a program"
    if machine.type is not None and not _TYPE.fullmatch(machine.type):
        yield f"machine.type={machine.type} is not known here: q35, pc, or with a version, as pc-q35-7.2, or microvm"
    if not machine.has_pci and not machine.is_bare:
        yield "machine.type=microvm needs guest.system=bare: the kernels of distributions do not find a disk there"
    if machine.cpu is not None and not _CPU.fullmatch(machine.cpu):
        yield f"machine.cpu={machine.cpu} is no name of a CPU model"
    if machine.hugepages is not None and (machine.memory or MEMORY) % machine.hugepages:
        yield "machine.memory must be a multiple of memory.hugepages"
    if machine.numa is not None and not _CPUS.fullmatch(machine.numa):
        yield f"memory.numa={machine.numa} is no list of NUMA nodes: write 0, or 0-1"
    for name in ("thp", "ksm"):
        if machine.places_memory and getattr(machine, name) is not None:
            yield f"memory.{name} means nothing for memory that memory.hugepages or memory.numa places: it is shared"


def pin_contradictions(pins: Pins) -> Iterator[str]:
    for role in ("vcpu", "iothread", "emulator", "load"):
        cpus = getattr(pins, role)
        if cpus is not None and not _CPUS.fullmatch(cpus):
            yield f"{role}.pin={cpus} is no list of CPUs: write 2-3,8"


Backend = Literal["file", "null-co", "rbd"]
Format = Literal["raw", "qcow2"]
Cache = Literal["none", "writeback", "writethrough", "directsync", "unsafe"]
Aio = Literal["threads", "native", "io_uring"]
Preallocation = Literal["off", "metadata", "falloc", "full"]
Encryption = Literal["none", "luks"]
Discard = Literal["ignore", "unmap"]
DetectZeroes = Literal["off", "on", "unmap"]
Bus = Literal["virtio-blk", "virtio-scsi", "nvme", "ahci", "ide", "usb"]

Filesystem = Literal["none", "ext4", "xfs"]
"""The filesystem on a guest's disk; with none the load is on the disk itself."""

Scheduler = Literal["none", "mq-deadline", "kyber", "bfq"]

CacheState = Literal["cold", "warm", "as-found"]
"""How much of an image is in the host's page cache when a trial begins."""

During = Literal["none", "backup", "mirror", "snapshot", "discard", "migration"]
"""The block job that copies a guest's disk while that is loaded, snapshots that are taken of it and merged, what the
guest discards, or migrations of its VM.
"""

IN_LINUX: frozenset[During] = frozenset({"discard", "migration"})
"""What is at work beside a load only in a test guest with Linux."""

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

BACKING_MAX = 10
"""The most images below one that a rig makes."""

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
    Ceph (`virtune.model.stack` reads it). `backing_depth` images are below a qcow2 one; with a `data_file` its data
    is in a raw file beside it. With a `filesystem` the guest mounts the disk, and the load is on a file in it.
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
    backing_depth: int | None = field(default=None, repr=False)
    data_file: bool | None = field(default=None, repr=False)
    encryption: Encryption | None = field(default=None, repr=False)
    rbd: str | None = field(default=None, repr=False)
    filesystem: Filesystem = field(default="none", repr=False)

    @property
    def limits(self) -> dict[str, int]:
        """The requested limits, by their names in QMP; 0 means no limit."""
        asked = ((limit.qmp, getattr(self, limit.knob.removeprefix("disk."))) for limit in LIMITS)
        return {name: value for name, value in asked if value}


@dataclass(frozen=True, slots=True, kw_only=True)
class _LimitWords:
    """A limit of QEMU's I/O throttle: its knob, its name in a throttle group, that of `-drive`, of QMP's
    `block_set_io_throttle` and of Proxmox, its element in libvirt's `<iotune>`, its unit.
    """

    knob: str
    qmp: str
    drive: str
    libvirt: str
    unit: str


LIMITS: tuple[_LimitWords, ...] = tuple(
    _LimitWords(
        knob=f"disk.throttle_{short}{of and '_'}{of}",
        qmp=f"{short}-{of or 'total'}",
        drive=f"{short}{drive}",
        libvirt=f"{of or 'total'}_{long}_sec",
        unit=f"{of}{of and '.'}{short}",
    )
    for short, long in (("iops", "iops"), ("bps", "bytes"))
    for of, drive in (("", ""), ("read", "_rd"), ("write", "_wr"))
)
"""Every limit that a rig can set: on the total, on reads, on writes."""

PASSED_TARGET = "target"
"""In place of the PCI address of a drive that a guest drives itself: the one that is the study's target."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Device:
    """The disk as a guest sees it: on which bus, with which queues, served by which IOThreads of QEMU's.

    `None` means "QEMU's default", for `iothread` the main loop, and for `write_cache` what the disk's cache mode
    says. `iothread_vq_mapping` spreads the virtqueues over several IOThreads (`mapping_of` reads it).
    With `vfio_pci`, the PCI address of an NVMe disk, or `target` until it is known, the guest drives that disk, and
    all other settings have no meaning.
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
    write_cache: bool | None = None
    logical_block_size: Bytes | None = None
    physical_block_size: Bytes | None = None
    vfio_pci: str | None = None

    @property
    def bus_in_guest(self) -> Bus:
        return self.bus if self.vfio_pci is None else "nvme"

    @property
    def iothreads(self) -> tuple[str, ...]:
        """The IOThreads that serve the disk; empty for the main loop."""
        if self.iothread_vq_mapping is not None:
            return tuple(one.iothread for one in mapping_of(self.iothread_vq_mapping))
        return () if self.iothread is None else (self.iothread,)


@dataclass(frozen=True, slots=True, kw_only=True)
class Kernel:
    """How a guest's kernel runs the disk, by the names in its /sys/block/*/queue, and mounts what is on it; `None` is
    what it chooses itself.

    `nr_requests` are the requests that one queue holds; `read_ahead_kb` and `max_sectors_kb` are in KiB.
    `blk_poll_queues` are those of a virtio-blk disk that complete by polling. `mount_commit` is in seconds; that,
    `mount_data` and `mount_barrier` are of ext4.
    """

    scheduler: Scheduler | None = None
    nr_requests: int | None = None
    rq_affinity: Literal["0", "1", "2"] | None = None
    nomerges: Literal["0", "1", "2"] | None = None
    max_sectors_kb: int | None = None
    read_ahead_kb: int | None = None
    blk_poll_queues: int | None = field(default=None, repr=False)
    mount_noatime: bool | None = field(default=None, repr=False)
    mount_commit: int | None = field(default=None, repr=False)
    mount_data: Literal["ordered", "writeback", "journal"] | None = field(default=None, repr=False)
    mount_barrier: bool | None = field(default=None, repr=False)

    @property
    def asked(self) -> dict[str, str]:
        """What is to be written, by file, in this order: another scheduler resets the number of requests, and
        max_sectors_kb may raise read_ahead_kb.
        """
        return {name: value for name, value in _asked(self).items() if not name.startswith(("blk_", "mount_"))}

    @property
    def mounting(self) -> dict[str, str]:
        """The words of mount(8) for what is asked of the filesystem, by name."""
        asked = {one.name: getattr(self, one.name) for one in fields(self) if one.name.startswith("mount_")}
        words = {said: word for word, said in MOUNT_WORDS.items()}
        named = ((name, value) for name, value in asked.items() if value is not None)
        return {name: words.get((name, value)) or f"{name.removeprefix('mount_')}={value}" for name, value in named}


MOUNT_WORDS: Mapping[str, tuple[str, bool]] = {
    "noatime": ("mount_noatime", True), "relatime": ("mount_noatime", False),
    "barrier": ("mount_barrier", True), "nobarrier": ("mount_barrier", False),
}  # fmt: skip
"""What a word of mount(8) without a value says."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Host:
    """How this host's kernel runs the disks below the image, by the names in their /sys/block/*/queue, how much it
    lets be dirty in the page cache of the whole host, by the names in /proc/sys/vm, in how many us its CPUs must wake
    up, and how many ns KVM polls for a vCPU that halts; `None` is as it is found.

    `wbt_lat_usec` is the latency in us that write-back throttling aims at, 0 for none; ratios are in % of the memory
    that can be had, and `read_ahead_kb` is of the device that holds the filesystem, maybe above the disks.
    """

    scheduler: Scheduler | None = None
    nr_requests: int | None = None
    rq_affinity: Literal["0", "1", "2"] | None = None
    nomerges: Literal["0", "1", "2"] | None = None
    wbt_lat_usec: int | None = None
    read_ahead_kb: int | None = field(default=None, repr=False)
    dirty_ratio: int | None = None
    dirty_bytes: int | None = None
    dirty_background_ratio: int | None = None
    dirty_background_bytes: int | None = None
    cstate_latency: int | None = None
    halt_poll_ns: int | None = field(default=None, repr=False)

    @property
    def asked(self) -> dict[str, str]:
        """What is to be written, by name, in this order, as in `Kernel`."""
        return _asked(self)

    @property
    def of_disks(self) -> dict[str, str]:
        """What is of the disks below the image alone, and not of the whole host."""
        whole = ("dirty_", "cstate_", "halt_")
        return {name: value for name, value in self.asked.items() if not name.startswith(whole)}


def _asked(kernel: Kernel | Host) -> dict[str, str]:
    found = ((one.name, getattr(kernel, one.name)) for one in fields(kernel))
    return {name: str(value) for name, value in found if value is not None}


_DEVICE = re.compile(r"/dev/(?!shm(?:/|$))")


@dataclass(frozen=True, slots=True, kw_only=True)
class Stack:
    """A rig and what it brings up. With rig `metal` there is no QEMU, and the disk's QEMU options do not apply.

    `export` and the fields after it describe how the storage daemon exports the disk: the number of queues, an
    IOThread or the daemon's main loop, and how long that IOThread polls. With rig `qemu`, `device` is the disk as
    the guest sees it, `machine` the rest of the guest, and `pins` where its threads run; `poll_max_ns` and
    `thread_pool_max` are then of the device's IOThreads, `guests` each have such a disk and share the load, and
    `idle_guests` run idle beside them, each with an image of its own if `own_images`; every second image lies in
    the directory `spread`. One guest, or the host itself, may have several `disks` (files), whose settings
    `virtune.model.contradictions` derives: with `own_iothreads` an IOThread each, and every second one with the
    settings `second`. `cache_state` is how much of the images is in the host's page cache when a trial begins;
    `place` says whether a study's target is used, or a scratch image although there is a target, or one in another
    directory of that path, or the block device of that path; `neighbour` is what another process of the host does
    meanwhile, `during` what QEMU does to the disk meanwhile, `load_depth` how many I/Os each job of the load keeps
    in flight; None for as many as its workload says. `kernel` is how the guest's kernel runs the disk, `host` how
    this host's does. `domain` is the name of the libvirt domain that the disk is plugged into, with rig `libvirt`
    and no other.
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
    place: str = field(default="target", repr=False)
    neighbour: Literal["none", "cpu", "io"] = field(default="none", repr=False)
    during: During = field(default="none", repr=False)
    load_depth: int | None = field(default=None, repr=False)
    kernel: Annotated[Kernel, "How the guest's kernel runs the disk; null is as it likes."] = field(
        default_factory=Kernel, repr=False
    )
    host: Annotated[Host, "How this host's kernel runs the disks below the image; null is as it is found."] = field(
        default_factory=Host, repr=False
    )

    @property
    def kind(self) -> RigKind:
        return RIGS[self.rig]

    @property
    def of_this_host(self) -> dict[str, str]:
        """What is to be written to this host's kernel, by the knob."""
        thp = {} if self.machine.thp is None else {"memory.thp": str(self.machine.thp)}
        return {f"host.{name}": value for name, value in self.host.asked.items()} | thp

    @property
    def directory(self) -> str | None:
        """The directory of its images where that is not the study's."""
        return self.place if self.place.startswith("/") and self.own_target is None else None

    @property
    def own_target(self) -> str | None:
        """The block device that it loads in place of the study's target."""
        return self.place if _DEVICE.match(self.place) else None

    @property
    def queues(self) -> int:
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
    asked = stack.device.write_cache
    return stack.disk.cache in THROUGH_CACHES if asked is None else not asked


def thread_number(name: str) -> int | None:
    """Return the number in QEMU's name for an IOThread of libvirt's (`iothread2`), None for another name."""
    found = re.fullmatch(r"(?:iothread|io)([1-9][0-9]{0,3})", name, re.ASCII)
    return int(found[1]) if found else None


def _replace(value: Any, place: tuple[str, ...], new: object) -> Any:
    head, *rest = place
    inner = _replace(getattr(value, head), tuple(rest), new) if rest else new
    return replace(value, **{head: inner})


@dataclass(frozen=True, slots=True, kw_only=True)
class FileTarget:
    """A file or block device of this host. `size_bytes` bounds the offsets that fio may touch. The load's clones are
    divided among it and `more` of the same size. `keeps_cache`: what the page cache has of it must stay there.
    """

    path: str
    size_bytes: int
    more: tuple[str, ...] = ()
    keeps_cache: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class GuestTarget(FileTarget):
    """A block device in a guest, loaded by the guest's own fio."""


@dataclass(frozen=True, slots=True, kw_only=True)
class NbdTarget:
    """An NBD export on a unix socket; only fio's `nbd` engine can load it."""

    socket: str
    export: str
    size_bytes: int

    @property
    def uri(self) -> str:
        return f"nbd+unix:///{self.export}?socket={self.socket}"


@dataclass(frozen=True, slots=True, kw_only=True)
class VhostUserTarget:
    """A vhost-user-blk export on a unix socket: the virtqueues of a guest's disk, without the guest.

    fio's `libblkio` engine can load it, and `virtune-load`, whose clones share its `queues` where there are fewer.
    """

    socket: str
    size_bytes: int
    queues: int = 1


@dataclass(frozen=True, slots=True, kw_only=True)
class BareTarget:
    """A disk of a guest without an operating system, on that bus: the guest itself is the load generator, with
    virtune-load's options. The load's clones are divided among it and further disks of the same size; `more` are the
    buses of these. `number` is 0 for the guest's first disk.
    """

    size_bytes: int
    bus: str = "virtio-blk"
    more: tuple[str, ...] = ()
    number: int = 0


Target = FileTarget | NbdTarget | VhostUserTarget | BareTarget

_SHAPE = re.compile(
    r"(?P<pool>[A-Za-z0-9._-]{1,64})(/(?P<namespace>[A-Za-z0-9._-]{1,64}))?"
    r"(:id=(?P<user>[A-Za-z0-9._-]{1,64}))?(:conf=(?P<conf>/[A-Za-z0-9/._-]{1,200}))?",
    re.ASCII,
)


@dataclass(frozen=True, slots=True, kw_only=True)
class RbdPlace:
    """A pool of a Ceph cluster; None for Ceph's defaults: no namespace, the user `admin`, /etc/ceph/ceph.conf."""

    pool: str
    namespace: str | None = None
    user: str | None = None
    conf: str | None = None

    @property
    def text(self) -> str:
        more = (("/", self.namespace), (":id=", self.user), (":conf=", self.conf))
        return self.pool + "".join(f"{sign}{value}" for sign, value in more if value is not None)

    @property
    def path(self) -> str:
        """The beginning of the path of its images."""
        return self.pool if self.namespace is None else f"{self.pool}/{self.namespace}"


def rbd_place(text: str) -> RbdPlace:
    """Read such a place; raises ValueError with the form that it must have."""
    found = _SHAPE.fullmatch(text)
    if found is None:
        raise ValueError("it is POOL[/NAMESPACE][:id=USER][:conf=FILE], with letters, digits and . _ - in the names")
    return RbdPlace(**found.groupdict())


_NAME = r"(?!\.{1,2}(?:/|\Z))[A-Za-z0-9+_.][A-Za-z0-9+_.-]{0,126}"
_VOLUME = re.compile(rf"lvm:(?P<group>{_NAME})(?:/(?P<pool>{_NAME}))?", re.ASCII)


@dataclass(frozen=True, slots=True, kw_only=True)
class VolumePlace:
    """Where a scratch volume is made: in an LVM volume group of this host, or in one of its thin pools."""

    group: str
    pool: str | None = None

    @property
    def text(self) -> str:
        return f"lvm:{self.group}" + ("" if self.pool is None else f"/{self.pool}")

    @property
    def words(self) -> str:
        return f"the volume group {self.group}" if self.pool is None else f"{self.group}/{self.pool} (thin pool)"


VOLUMES = "lvm:"
"""What the text of such a place begins with."""


def volume_place(text: str) -> VolumePlace | None:
    """Read such a place: `lvm:VG` or `lvm:VG/POOL`; None for any other text, such as a directory."""
    found = _VOLUME.fullmatch(text)
    return None if found is None else VolumePlace(**found.groupdict())
