# SPDX-License-Identifier: Apache-2.0
"""Facts: properties of a host that are read once and hold for the whole study.

A fact that could not be read is an `Unknown` with the reason, never a guess or a default.
"""

from dataclasses import dataclass
from enum import StrEnum


@dataclass(frozen=True, slots=True)
class Unknown:
    """A fact that could not be read, with the reason in one clause."""

    because: str


@dataclass(frozen=True, slots=True, kw_only=True)
class BlockDevice:
    """One block device of the kernel. `kind` is disk, partition, loop, md or dm; `on` names what it stands on.

    `label` is its familiar name (a volume `vg0-images`, a loop device's file), empty where there is none.
    """

    number: str
    name: str
    kind: str
    label: str = ""
    on: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class Backing:
    """The storage behind a path: its filesystem, and the chain of block devices below.

    `devices` begins with the device that holds the filesystem and lists each device once, always before the devices
    below it. Where the kernel shows no block device (memory, network, a storage pool), `devices` is empty or ends
    early and `gap` says why. A path that is itself a block device has no filesystem.
    """

    path: str
    filesystem: str | None
    mount_point: str | None
    options: tuple[str, ...]
    source: str
    devices: tuple[BlockDevice, ...]
    gap: str | None = None

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

    name: str
    size_bytes: int | Unknown
    model: str | Unknown
    firmware: str | Unknown
    driver: str | Unknown
    read_only: bool | Unknown
    rotational: bool | Unknown
    scheduler: str | Unknown
    schedulers: tuple[str, ...] | Unknown
    queues: int | Unknown
    nr_requests: int | Unknown
    queue_depth: int | Unknown
    logical_block_bytes: int | Unknown
    physical_block_bytes: int | Unknown
    write_cache: str | Unknown
    wbt_us: int | Unknown
    discard: bool | Unknown
    read_ahead_bytes: int | Unknown
    max_request_bytes: int | Unknown
    nomerges: int | Unknown
    rq_affinity: int | Unknown
    iostats: bool | Unknown


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

    kind: ClaimKind
    device: str
    text: str


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

    built: bool | Unknown
    disabled: int | Unknown
    usable: bool | Unknown


@dataclass(frozen=True, slots=True, kw_only=True)
class KernelFacts:
    """The host's kernel. `arguments` are the arguments of its command line that matter for I/O."""

    release: str | Unknown
    io_uring: IoUringFacts
    aio_used: int | Unknown
    aio_limit: int | Unknown
    clocksource: str | Unknown
    clocksources: tuple[str, ...] | Unknown
    transparent_hugepages: str | Unknown
    ksm_runs: bool | Unknown
    dirty_background_percent: int | Unknown
    dirty_percent: int | Unknown
    dirty_background_bytes: int | Unknown
    dirty_bytes: int | Unknown
    arguments: tuple[str, ...] | Unknown


@dataclass(frozen=True, slots=True, kw_only=True)
class IdleState:
    """One sleep state of a CPU and how long it takes to wake from it."""

    name: str
    latency_us: int


@dataclass(frozen=True, slots=True, kw_only=True)
class NumaNode:
    """One NUMA node: its CPUs as the kernel lists them, and its memory."""

    node: int
    cpus: str
    memory_bytes: int | Unknown


@dataclass(frozen=True, slots=True, kw_only=True)
class CpuFacts:
    """The host's processors. `governors` are all in use; `deepest_idle` is the slowest state to wake from."""

    model: str | Unknown
    online: int | Unknown
    cores: int | Unknown
    sockets: int | Unknown
    smt: bool | Unknown
    numa: tuple[NumaNode, ...] | Unknown
    frequency_driver: str | Unknown
    governors: tuple[str, ...] | Unknown
    turbo: bool | Unknown
    idle_driver: str | Unknown
    deepest_idle: IdleState | Unknown
    vulnerable: tuple[str, ...] | Unknown
    mitigated: tuple[str, ...] | Unknown


@dataclass(frozen=True, slots=True, kw_only=True)
class MemoryFacts:
    """The host's memory, at the time of the probe."""

    total_bytes: int | Unknown
    available_bytes: int | Unknown
    dirty_bytes: int | Unknown
    hugepages_bytes: int | Unknown
    swap_total_bytes: int | Unknown
    swap_used_bytes: int | Unknown


@dataclass(frozen=True, slots=True, kw_only=True)
class Program:
    """An installed program: its path, version, and the distributor's name of the build (`package`)."""

    name: str
    path: str
    version: str | Unknown
    package: str | Unknown


@dataclass(frozen=True, slots=True, kw_only=True)
class QemuFacts:
    """The QEMU programs of this host and the capabilities they report. Single options are queried by QMP."""

    emulators: tuple[Program, ...]
    image_tool: Program | Unknown
    storage_daemon: Program | Unknown
    accelerators: tuple[str, ...] | Unknown
    drivers: tuple[str, ...] | Unknown
    exports: tuple[str, ...] | Unknown


@dataclass(frozen=True, slots=True, kw_only=True)
class FioFacts:
    """The fio of this host and its I/O engines."""

    program: Program | Unknown
    engines: tuple[str, ...] | Unknown


@dataclass(frozen=True, slots=True, kw_only=True)
class LibvirtFacts:
    """The libvirt of this host; a program that is not installed is an `Unknown`."""

    client: Program | Unknown
    daemon: Program | Unknown


@dataclass(frozen=True, slots=True, kw_only=True)
class KvmFacts:
    """Tests of /dev/kvm. `creates_vm`: the kernel made an empty VM, which does not prove that a guest boots;
    `boots_guest`: a test VM booted, and `boot` describes the attempt.
    """

    exists: bool
    opens: bool | Unknown
    api_version: int | Unknown
    creates_vm: bool | Unknown
    nested: bool | Unknown
    halt_poll_ns: int | Unknown
    boots_guest: bool | Unknown
    boot: str | Unknown


@dataclass(frozen=True, slots=True, kw_only=True)
class VirtualizationFacts:
    """The virtualization that this host itself runs in. `hypervisor` and `container` are `none` where there is
    certainly none.
    """

    hypervisor: str | Unknown
    container: str | Unknown
    source: str


@dataclass(frozen=True, slots=True, kw_only=True)
class LimitFacts:
    """The limits of the control groups that virtune runs in. `cpus` is None without a limit."""

    cpus: float | Unknown | None
    io: tuple[str, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class Pressure:
    """The share of the last 10 seconds in which some, or all, tasks were stalled on a resource."""

    resource: str
    some_percent: float | Unknown
    full_percent: float | Unknown


@dataclass(frozen=True, slots=True, kw_only=True)
class BusyFacts:
    """How busy the host was at the time of the probe."""

    load_1min: float | Unknown
    pressure: tuple[Pressure, ...] | Unknown


@dataclass(frozen=True, slots=True, kw_only=True)
class DiskFacts:
    """One whole disk: its kernel settings, and who uses it, its partitions or the devices on top of it."""

    device: DeviceFacts
    claims: tuple[Claim, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class ScratchFacts:
    """The directory for scratch files. `direct_io` was tested on an unnamed temporary file.

    `direct_block_bytes` is the smallest block that O_DIRECT took there, of 512 and 4096.
    """

    directory: str
    backing: Backing
    size_bytes: int | Unknown
    free_bytes: int | Unknown
    direct_io: bool | Unknown
    direct_block_bytes: int | Unknown


@dataclass(frozen=True, slots=True, kw_only=True)
class HostFacts:
    """Everything that one probe read about a host."""

    kernel: KernelFacts
    cpu: CpuFacts
    memory: MemoryFacts
    virtualization: VirtualizationFacts
    limits: LimitFacts
    busy: BusyFacts
    kvm: KvmFacts
    qemu: QemuFacts
    fio: FioFacts
    libvirt: LibvirtFacts
    disks: tuple[DiskFacts, ...]
    scratch: ScratchFacts
