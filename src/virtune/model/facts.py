# SPDX-License-Identifier: Apache-2.0
"""Facts: what is read once about a host, and true for the whole study.

A fact that could not be read is an `Unknown` with the reason, never a guess and never a default.
"""

from dataclasses import dataclass
from enum import StrEnum


@dataclass(frozen=True, slots=True)
class Unknown:
    """What stands in the place of a fact that could not be read: why not, in one clause."""

    because: str


@dataclass(frozen=True, slots=True, kw_only=True)
class BlockDevice:
    """One block device of the kernel. `kind` is disk, partition, loop, md or dm; `on` names what it stands on.

    `label` is the name people know it by (a volume `vg0-images`, a loop device's file), empty where there is none.
    """

    number: str
    name: str
    kind: str
    label: str = ""
    on: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class Backing:
    """What stands behind a path: its filesystem, and the chain of block devices from there down.

    `devices` begins with what the filesystem sits on and lists each device once, always above what it stands on.
    Where the kernel shows no block device (memory, network, a pool of its own), `devices` is empty or ends early
    and `gap` says why. A path that is itself a block device has no filesystem.
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
        """The devices at the bottom, which stand on no other."""
        return tuple(device for device in self.devices if not device.on)


@dataclass(frozen=True, slots=True, kw_only=True)
class DeviceFacts:
    """How the kernel runs one block device. Sizes in bytes, times in microseconds."""

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
    """Why a block device must not be written to. `unseen`: it could not be looked at, so nobody knows."""

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
        """Bytes that are answered with zeroes and without the medium."""
        return self.hole_bytes + (self.unwritten_bytes or 0)


@dataclass(frozen=True, slots=True, kw_only=True)
class IoUringFacts:
    """Whether io_uring is built in, switched off (`disabled`: 0 no, 1 for most, 2 for all), and works if tried."""

    built: bool | Unknown
    disabled: int | Unknown
    usable: bool | Unknown


@dataclass(frozen=True, slots=True, kw_only=True)
class KernelFacts:
    """The host's kernel. `arguments` are those of its command line that matter for I/O, not all of them."""

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
    """An installed program: where it is, its version, and what its maker calls the build (`package`)."""

    name: str
    path: str
    version: str | Unknown
    package: str | Unknown


@dataclass(frozen=True, slots=True, kw_only=True)
class QemuFacts:
    """The QEMU programs of this host and what they say they can do. Values of single options are asked by QMP."""

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
    """The libvirt of this host; a program that is not installed is unknown for that reason."""

    client: Program | Unknown
    daemon: Program | Unknown


@dataclass(frozen=True, slots=True, kw_only=True)
class KvmFacts:
    """What of /dev/kvm was tried. `creates_vm` is an empty VM in the kernel, which is not a guest that boots;
    `boots_guest` is one of virtune's own, and `boot` what came of it in words.
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
    """What this host itself runs on. `hypervisor` and `container` are `none` where we know that there is none."""

    hypervisor: str | Unknown
    container: str | Unknown
    source: str


@dataclass(frozen=True, slots=True, kw_only=True)
class LimitFacts:
    """The limits of the control groups that we run in. `cpus` is None without a limit."""

    cpus: float | Unknown | None
    io: tuple[str, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class Pressure:
    """The share of the last 10 seconds in which some, or all, tasks stood still for a resource."""

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
    """One whole disk: how the kernel runs it, and who claims it (which includes its partitions and holders)."""

    device: DeviceFacts
    claims: tuple[Claim, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class ScratchFacts:
    """The directory for scratch files. `direct_io` was tried on a file without a name, which leaves nothing behind.

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
