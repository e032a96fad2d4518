# SPDX-License-Identifier: Apache-2.0
"""Facts: properties of a host that are read once and hold for the whole study.

A fact that could not be read is an `Unknown` with the reason, never a guess or a default.
"""

from dataclasses import dataclass
from enum import StrEnum
from typing import Annotated

from virtune.model.text import NOT_NEGATIVE, SHARE


@dataclass(frozen=True, slots=True)
class Unknown:
    """A fact that could not be read, with the reason in one clause."""

    because: str


@dataclass(frozen=True, slots=True, kw_only=True)
class BlockDevice:
    """One block device of the kernel. `kind` is disk, partition, loop, md or dm; `on` names what it stands on."""

    number: Annotated[str, "major:minor."]
    name: Annotated[str, "The kernel's name."]
    kind: Annotated[str, "disk, partition, loop, md or dm."]
    label: Annotated[
        str, "The name people know it by (a volume, a loop device's file); empty where there is none."
    ] = ""
    on: Annotated[tuple[str, ...], "The names of the devices that it stands on."] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class Backing:
    """The storage behind a path: its filesystem, and the chain of block devices below.

    `devices` begins with the device that holds the filesystem and lists each device once, always before the devices
    below it. Where the kernel shows no block device (memory, network, a storage pool), `devices` is empty or ends
    early and `gap` says why. A path that is itself a block device has no filesystem.
    """

    path: Annotated[str, "The path that was looked at."]
    filesystem: Annotated[str | None, "The filesystem's type; null for a block device itself."]
    mount_point: Annotated[str | None, "Where that filesystem is mounted."]
    options: Annotated[tuple[str, ...], "The options of the mount and of the filesystem."]
    source: Annotated[str, "What is mounted there, as the kernel names it."]
    devices: Annotated[
        tuple[BlockDevice, ...], "The chain of block devices from there down, each above what it stands on."
    ]
    gap: Annotated[str | None, "Why the chain is empty or ends early; null when it is whole."] = None

    @property
    def names(self) -> tuple[str, ...]:
        """The names of all its devices, top first: what to count I/O on."""
        return tuple(device.name for device in self.devices)

    @property
    def disks(self) -> tuple[BlockDevice, ...]:
        """The devices at the bottom, with no other device below."""
        return tuple(device for device in self.devices if not device.on)


@dataclass(frozen=True, slots=True, kw_only=True)
class DeviceFacts:
    """The kernel's settings of one block device. Sizes in bytes, times in microseconds."""

    name: Annotated[str, "The kernel's name (sda, nvme0n1, dm-0)."]
    size_bytes: Annotated[int | Unknown, "Its size in bytes."]
    model: Annotated[str | Unknown, "What it calls itself."]
    firmware: Annotated[str | Unknown, "The revision of its firmware."]
    driver: Annotated[str | Unknown, "The kernel's driver."]
    read_only: Annotated[bool | Unknown, "Whether the kernel lets nobody write to it."]
    rotational: Annotated[
        bool | Unknown, "Whether it calls itself a spinning disk; virtual disks often do without being one."
    ]
    scheduler: Annotated[str | Unknown, "The I/O scheduler in use."]
    schedulers: Annotated[tuple[str, ...] | Unknown, "The I/O schedulers that could be used."]
    queues: Annotated[int | Unknown, "Hardware queues."]
    nr_requests: Annotated[int | Unknown, "Requests that a queue of the block layer holds."]
    queue_depth: Annotated[int | Unknown, "Commands that the device takes at once (SCSI only)."]
    logical_block_bytes: Annotated[int | Unknown, "The smallest block that it takes, in bytes."]
    physical_block_bytes: Annotated[
        int | Unknown, "The smallest block that it writes without reading first, in bytes."
    ]
    write_cache: Annotated[str | Unknown, "`write back` where it has a volatile write cache, else `write through`."]
    wbt_us: Annotated[
        int | Unknown, "The latency that reads are to keep during writeback (wbt), in microseconds; 0 is off."
    ]
    discard: Annotated[bool | Unknown, "Whether it takes discards."]
    read_ahead_bytes: Annotated[int | Unknown, "How far the page cache reads ahead, in bytes."]
    max_request_bytes: Annotated[int | Unknown, "The largest request that the block layer makes, in bytes."]
    nomerges: Annotated[int | Unknown, "Merging of requests: 0 tried in full, 1 only cheaply, 2 never."]
    rq_affinity: Annotated[
        int | Unknown, "Where completions run: 0 anywhere, 1 on the CPU group, 2 on the CPU that asked."
    ]
    iostats: Annotated[bool | Unknown, "Whether the kernel counts its I/O."]


class ClaimKind(StrEnum):
    """Why a block device must not be written to. `unseen`: it could not be checked."""

    MOUNTED = "mounted"
    SWAP = "swap"
    HELD = "held"
    OPEN = "open"
    SIGNED = "signed"
    READ_ONLY = "read-only"
    UNSEEN = "unseen"


@dataclass(frozen=True, slots=True, kw_only=True)
class Claim:
    """One reason why a block device must not be written to, in a sentence that names who claims what."""

    kind: Annotated[ClaimKind, "The kind of claim; `unseen` means that it could not be looked at."]
    device: Annotated[str, "The device that is claimed, which may be a partition or a holder of the disk."]
    text: Annotated[str, "The same in a sentence that names who claims it."]


@dataclass(frozen=True, slots=True, kw_only=True)
class Residency:
    """How much of a file the host's page cache holds. `source` is what was asked: `cachestat`.

    `dirty_bytes` (dirty and under writeback) is None where the source does not say.
    """

    cached_bytes: int
    dirty_bytes: int | None
    source: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Extents:
    """How much of the first `length_bytes` of a file was never written. `method` is `fiemap` or `seek`.

    `hole_bytes` have no blocks; `unwritten_bytes` have blocks that hold no data yet (fallocate). By `seek` both
    are holes, and `unwritten_bytes` is None.
    """

    length_bytes: int
    hole_bytes: int
    unwritten_bytes: int | None
    method: str

    @property
    def never_written_bytes(self) -> int:
        """Bytes that read as zeroes without reaching the medium."""
        return self.hole_bytes + (self.unwritten_bytes or 0)


@dataclass(frozen=True, slots=True, kw_only=True)
class IoUringFacts:
    """Whether io_uring is built in, disabled (`disabled`: 0 no, 1 for most, 2 for all), and works when tried."""

    built: Annotated[bool | Unknown, "Whether the kernel is built with io_uring."]
    disabled: Annotated[int | Unknown, "kernel.io_uring_disabled: 0 no, 1 for all but root and one group, 2 for all."]
    usable: Annotated[bool | Unknown, "Whether virtune could set up a ring when it tried."]


@dataclass(frozen=True, slots=True, kw_only=True)
class KernelFacts:
    """The host's kernel. `arguments` are the arguments of its command line that matter for I/O."""

    release: Annotated[str | Unknown, "The kernel's release, as `uname -r` prints it."]
    io_uring: Annotated[IoUringFacts, "Whether io_uring is there and works."]
    aio_used: Annotated[int | Unknown, "Kernel AIO slots that are taken, of the whole host (fs.aio-nr)."]
    aio_limit: Annotated[int | Unknown, "Kernel AIO slots that there are (fs.aio-max-nr)."]
    clocksource: Annotated[str | Unknown, "The clock source in use."]
    clocksources: Annotated[tuple[str, ...] | Unknown, "The clock sources that could be used."]
    transparent_hugepages: Annotated[str | Unknown, "The active choice: always, madvise or never."]
    ksm_runs: Annotated[bool | Unknown, "Whether the kernel merges equal memory pages (KSM)."]
    dirty_background_percent: Annotated[
        int | Unknown,
        "From here on dirty pages are written in the background, in % of the available memory"
        " (vm.dirty_background_ratio). 0 where `dirty_background_bytes` rules.",
    ]
    dirty_percent: Annotated[
        int | Unknown,
        "From here on a writer must write itself, in % of the available memory (vm.dirty_ratio). 0 where"
        " `dirty_bytes` rules.",
    ]
    dirty_background_bytes: Annotated[
        int | Unknown, "The same as `dirty_background_percent` in bytes; 0 where that rules."
    ]
    dirty_bytes: Annotated[int | Unknown, "The same as `dirty_percent` in bytes; 0 where that rules."]
    arguments: Annotated[tuple[str, ...] | Unknown, "Of the kernel's command line the arguments that matter for I/O."]


@dataclass(frozen=True, slots=True, kw_only=True)
class IdleState:
    """One sleep state of a CPU and how long it takes to wake from it."""

    name: Annotated[str, "The name of the state (C6)."]
    latency_us: Annotated[int, "The time it takes to wake, in microseconds, as its driver says."]


@dataclass(frozen=True, slots=True, kw_only=True)
class NumaNode:
    """One NUMA node: its CPUs as the kernel lists them, and its memory."""

    node: Annotated[int, "The node's number."]
    cpus: Annotated[str, "Its CPUs as the kernel lists them (0-3,8)."]
    memory_bytes: Annotated[int | Unknown, "Its memory in bytes."]


@dataclass(frozen=True, slots=True, kw_only=True)
class CpuFacts:
    """The host's processors. `governors` are all in use; `deepest_idle` is the slowest state to wake from."""

    model: Annotated[str | Unknown, "The model's name."]
    online: Annotated[int | Unknown, "Logical CPUs that are online."]
    cores: Annotated[int | Unknown, "Cores that have a CPU online."]
    sockets: Annotated[int | Unknown, "Sockets that have a CPU online."]
    smt: Annotated[bool | Unknown, "Whether cores have several active threads."]
    numa: Annotated[tuple[NumaNode, ...] | Unknown, "The NUMA nodes, by number."]
    frequency_driver: Annotated[str | Unknown, "The driver of the clock frequency (cpufreq)."]
    governors: Annotated[tuple[str, ...] | Unknown, "The frequency governors in use on any CPU."]
    turbo: Annotated[bool | Unknown, "Whether clocks may go above the nominal one."]
    idle_driver: Annotated[str | Unknown, "The driver of the sleep states (cpuidle)."]
    deepest_idle: Annotated[
        IdleState | Unknown, "The sleep state of CPU 0 that takes longest to wake from, of those that are on."
    ]
    vulnerable: Annotated[tuple[str, ...] | Unknown, "Vulnerabilities that the kernel leaves open."]
    mitigated: Annotated[tuple[str, ...] | Unknown, "Vulnerabilities that a mitigation costs time for."]


@dataclass(frozen=True, slots=True, kw_only=True)
class MemoryFacts:
    """The host's memory, at the time of the probe."""

    total_bytes: Annotated[int | Unknown, "The memory in bytes."]
    available_bytes: Annotated[int | Unknown, "What programs could still take without swapping, in bytes."]
    dirty_bytes: Annotated[int | Unknown, "Written to files and not yet to a device, in bytes."]
    hugepages_bytes: Annotated[int | Unknown, "The pool of huge pages of the default size, used or not, in bytes."]
    swap_total_bytes: Annotated[int | Unknown, "The swap space in bytes."]
    swap_used_bytes: Annotated[int | Unknown, "What is swapped out, in bytes."]


@dataclass(frozen=True, slots=True, kw_only=True)
class Program:
    """An installed program: its path, version, and the distributor's name of the build (`package`)."""

    name: Annotated[str, "Its name."]
    path: Annotated[str, "Where it was found."]
    version: Annotated[str | Unknown, "Its version, numbers and dots first."]
    package: Annotated[str | Unknown, "What its maker calls the build."]


@dataclass(frozen=True, slots=True, kw_only=True)
class QemuFacts:
    """The QEMU programs of this host and the capabilities they report. Single options are queried by QMP."""

    emulators: Annotated[tuple[Program, ...], "The emulators found; empty when none is installed."]
    image_tool: Annotated[Program | Unknown, "qemu-img."]
    storage_daemon: Annotated[Program | Unknown, "qemu-storage-daemon."]
    accelerators: Annotated[tuple[str, ...] | Unknown, "The accelerators that the first emulator lists."]
    drivers: Annotated[tuple[str, ...] | Unknown, "The formats and block drivers that qemu-img lists."]
    exports: Annotated[tuple[str, ...] | Unknown, "The kinds of export that qemu-storage-daemon lists."]


@dataclass(frozen=True, slots=True, kw_only=True)
class FioFacts:
    """The fio of this host and its I/O engines."""

    program: Annotated[Program | Unknown, "The program."]
    engines: Annotated[tuple[str, ...] | Unknown, "Its I/O engines."]


@dataclass(frozen=True, slots=True, kw_only=True)
class LibvirtFacts:
    """The libvirt of this host; a program that is not installed is an `Unknown`."""

    client: Annotated[Program | Unknown, "virsh."]
    daemon: Annotated[Program | Unknown, "virtqemud or libvirtd."]


@dataclass(frozen=True, slots=True, kw_only=True)
class KvmFacts:
    """Tests of /dev/kvm. `creates_vm`: the kernel made an empty VM, which does not prove that a guest boots;
    `boots_guest`: a test VM booted, and `boot` describes the attempt.
    """

    exists: Annotated[bool, "Whether there is a /dev/kvm."]
    opens: Annotated[bool | Unknown, "Whether virtune may open it."]
    api_version: Annotated[int | Unknown, "The version of KVM's interface, 12 everywhere."]
    creates_vm: Annotated[bool | Unknown, "Whether KVM makes an empty VM, which is not yet a guest that boots."]
    nested: Annotated[bool | Unknown, "Whether guests may run guests."]
    halt_poll_ns: Annotated[int | Unknown, "How long KVM polls at most before a halted vCPU sleeps, in nanoseconds."]
    boots_guest: Annotated[
        bool | Unknown, "Whether a guest of virtune's came up on KVM when that was last tried on this boot."
    ]
    boot: Annotated[str | Unknown, "What came of that, in words."]


@dataclass(frozen=True, slots=True, kw_only=True)
class VirtualizationFacts:
    """The virtualization that this host itself runs in. `hypervisor` and `container` are `none` where there is
    certainly none.
    """

    hypervisor: Annotated[str | Unknown, "The hypervisor that this host is a guest of, or none."]
    container: Annotated[str | Unknown, "The kind of container that virtune runs in, or none."]
    source: Annotated[str, "Who said so."]


@dataclass(frozen=True, slots=True, kw_only=True)
class LimitFacts:
    """The limits of the control groups that virtune runs in. `cpus` is None without a limit."""

    cpus: Annotated[
        float | Unknown | None,
        "CPUs that virtune may use at most, as a number of CPUs. Null without a limit, and where it is not known,"
        " which `unknown` then says.",
    ]
    io: Annotated[
        tuple[str, ...], "I/O limits as the kernel writes them: device number, then limits in bytes/s and I/Os/s."
    ]


@dataclass(frozen=True, slots=True, kw_only=True)
class Pressure:
    """The share of the last 10 seconds in which some, or all, tasks were stalled on a resource."""

    resource: Annotated[str, "What was waited for: cpu, io or memory."]
    some_percent: Annotated[float | Unknown, "Share of the last 10 seconds in which at least one task waited, in %."]
    full_percent: Annotated[float | Unknown, "Share of the last 10 seconds in which all tasks waited, in %."]


@dataclass(frozen=True, slots=True, kw_only=True)
class BusyFacts:
    """How busy the host was at the time of the probe."""

    load_1min: Annotated[float | Unknown, "The load average of the last minute, in tasks."]
    pressure: Annotated[tuple[Pressure, ...] | Unknown, "Pressure stalls by resource."]


@dataclass(frozen=True, slots=True, kw_only=True)
class DiskFacts:
    """One whole disk: its kernel settings, and who uses it, its partitions or the devices on top of it."""

    device: Annotated[DeviceFacts, "How the kernel runs it."]
    claims: Annotated[
        tuple[Claim, ...], "Why it must not be written to; empty where nothing was found to speak against it."
    ]


@dataclass(frozen=True, slots=True, kw_only=True)
class ScratchFacts:
    """The directory for scratch files. `direct_io` was tested on an unnamed temporary file.

    `direct_block_bytes` is the smallest block that O_DIRECT took there, of 512 and 4096.
    """

    directory: Annotated[str, "The directory as it was given."]
    backing: Annotated[Backing, "What stands behind it."]
    size_bytes: Annotated[int | Unknown, "The size of its filesystem in bytes."]
    free_bytes: Annotated[int | Unknown, "What is free there for us, in bytes."]
    direct_io: Annotated[bool | Unknown, "Whether O_DIRECT works there and really passes the page cache."]
    direct_block_bytes: Annotated[
        int | Unknown, "The smallest block that O_DIRECT took there, of 512 and 4096 bytes."
    ]


@dataclass(frozen=True, slots=True, kw_only=True)
class HostFacts:
    """Everything that one probe read about a host."""

    kernel: Annotated[KernelFacts, "The kernel and its switches for I/O."]
    cpu: Annotated[CpuFacts, "The processors."]
    memory: Annotated[MemoryFacts, "The memory, at the time of the probe."]
    virtualization: Annotated[VirtualizationFacts, "What this host itself runs on."]
    limits: Annotated[LimitFacts, "Limits of the control groups that virtune runs in."]
    busy: Annotated[BusyFacts, "How busy the host was at the time of the probe."]
    kvm: Annotated[KvmFacts, "What of /dev/kvm was tried."]
    qemu: Annotated[QemuFacts, "The installed QEMU."]
    fio: Annotated[FioFacts, "The installed fio."]
    libvirt: Annotated[LibvirtFacts, "The installed libvirt."]
    disks: Annotated[tuple[DiskFacts, ...], "Every whole block device that has a size."]
    scratch: Annotated[ScratchFacts, "The directory for scratch files."]


@dataclass(frozen=True, slots=True, kw_only=True)
class FactValue:
    """One value of a fact."""

    value: Annotated[str, "The value; `absent` where the host has no such fact."]
    hosts: Annotated[tuple[str, ...], "The hosts that have it."]


@dataclass(frozen=True, slots=True, kw_only=True)
class Difference:
    """One fact that is not the same on all hosts."""

    key: Annotated[str, "The path of the fact."]
    values: Annotated[tuple[FactValue, ...], "Its values, the most frequent first."]


@dataclass(frozen=True, slots=True, kw_only=True)
class Trait:
    """A fact that odd hosts share and others seldom have."""

    key: Annotated[str, "The path of the fact."]
    value: Annotated[str, "Its value there."]
    usual: Annotated[str, "The most frequent value among the others."]
    odd_with: Annotated[int, "How many odd hosts have the value.", NOT_NEGATIVE]
    odd: Annotated[int, "How many hosts are odd.", NOT_NEGATIVE]
    others_with: Annotated[int, "How many others have it.", NOT_NEGATIVE]
    others: Annotated[int, "How many others there are.", NOT_NEGATIVE]
    p: Annotated[float, "Fisher's one-sided p of such a split: for the order, no proof.", SHARE]


@dataclass(frozen=True, slots=True, kw_only=True)
class TurnedFact:
    """A fact that was one thing in all studies before a change and another in all after it."""

    key: Annotated[str, "The path of the fact."]
    before: Annotated[str, "Its value before; `absent` where the host had no such fact."]
    after: Annotated[str, "Its value after."]
