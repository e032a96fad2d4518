# SPDX-License-Identifier: Apache-2.0
"""Counters of the host's kernel while a load ran: the samples, and the resource use between two of them; and the
role of a QEMU thread, recognised by the name that QEMU gives it with `debug-threads=on`.

A sample holds totals since boot; only differences mean something. Those are the `...Use` values.
"""

import math
from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass, field
from typing import Annotated, Literal

from virtune.model.metric import ThreadRole


@dataclass(frozen=True, slots=True, kw_only=True)
class CpuCount:
    """The host's CPU time since boot in seconds, summed over its CPUs. Guest time is inside `user_seconds`."""

    user_seconds: float
    system_seconds: float
    interrupt_seconds: float
    idle_seconds: float
    iowait_seconds: float
    steal_seconds: float


@dataclass(frozen=True, slots=True, kw_only=True)
class DeviceCount:
    """One line of /proc/diskstats in base units. Times are summed over requests; `busy_ms` is not. `number` is the
    device's (`8:0`).
    """

    reads: int
    read_merges: int
    read_bytes: int
    read_ms: int
    writes: int
    write_merges: int
    written_bytes: int
    write_ms: int
    in_flight: int
    busy_ms: int
    queued_ms: int
    discards: int = 0
    flushes: int = 0
    flush_ms: int = 0
    number: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class ThreadCount:
    """One thread: CPU time by clock ticks, and by the scheduler in ns with the time it waited for a CPU. How often it
    went to sleep (`sleeps`) or was taken off its CPU (`preempted`) is in samples with a mark.
    """

    comm: str
    user_seconds: float
    system_seconds: float
    run_ns: int | None = None
    wait_ns: int | None = None
    sleeps: int | None = None
    preempted: int | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class ProcessCount:
    """One process: CPU time of all its threads, ended ones too, and the bytes it caused at the storage layer."""

    user_seconds: float
    system_seconds: float
    read_bytes: int | None = None
    written_bytes: int | None = None
    major_faults: int | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class GroupCount:
    """How long a control group held CPUs back, which the kernel adds up only when it lets them go on; how many
    periods of its quota there were, and how many of them ended while it held CPUs back (sched-bwc.rst).
    """

    held_us: int
    periods: int = 0
    held_periods: int = 0


@dataclass(frozen=True, slots=True, kw_only=True)
class Sample:
    """All counters read at one instant. `pressure_us` is the stall time by (resource, some or full), `limited` are
    the control groups that limit us, `groups` those of each role, by the file that says so.

    Samples with a mark have the sensors too: `heat_count` is the total of thermal throttle events,
    `frequency_khz` is the fastest CPU's, `drives_c` are temperatures by the file that shows them.
    """

    t_ns: int
    wall_seconds: float
    mark: str = ""
    cpu: CpuCount | None = None
    devices: Mapping[str, DeviceCount] = field(default_factory=dict)
    threads: Mapping[str, Mapping[int, ThreadCount]] = field(default_factory=dict)
    processes: Mapping[str, Mapping[int, ProcessCount]] = field(default_factory=dict)
    pressure_us: Mapping[tuple[str, str], int] = field(default_factory=dict)
    cached_bytes: Mapping[str, int] = field(default_factory=dict)
    dirty_bytes: Mapping[str, int] = field(default_factory=dict)
    load_1min: float | None = None
    limited: Mapping[str, GroupCount] = field(default_factory=dict)
    groups: Mapping[str, Mapping[str, GroupCount]] = field(default_factory=dict)
    swapped_pages: int | None = None
    clock_source: str | None = None
    heat_count: int | None = None
    frequency_khz: int | None = None
    drives_c: Mapping[str, float] = field(default_factory=dict)


@dataclass(frozen=True, slots=True, kw_only=True)
class Counters:
    """The samples of one load, in order of time; the I/O limits that held, and the drives' own limits in degrees."""

    samples: tuple[Sample, ...]
    io_limits: tuple[str, ...] = ()
    drive_limits_c: Mapping[str, float] = field(default_factory=dict)

    def mark(self, name: str) -> int | None:
        """Return when the sample of that mark was taken (monotonic ns), None when there is none."""
        return next((sample.t_ns for sample in self.samples if sample.mark == name), None)


@dataclass(frozen=True, slots=True, kw_only=True)
class CpuUse:
    """How the host's CPUs spent a time window. The percentages are of all CPUs together; `user_percent` includes what
    guests ran.
    """

    busy_seconds: float
    busy_percent: float
    iowait_percent: float
    steal_percent: float
    user_percent: float = 0.0
    system_percent: float = 0.0


@dataclass(frozen=True, slots=True, kw_only=True)
class ThreadUse:
    """What one thread used: `wait_seconds` is the time it was runnable but had no CPU.

    `first` says that it is the first thread of its process. `sleeps` is how often it went to sleep, `preempted` how
    often it was taken off its CPU; None if unknown.
    """

    tid: int
    comm: str
    cpu_seconds: float
    wait_seconds: float | None
    user_seconds: float = 0.0
    system_seconds: float = 0.0
    first: bool = False
    sleeps: int | None = None
    preempted: int | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class RoleUse:
    """What all processes of one role used, busiest thread first.

    With `ended` threads, `cpu_seconds` comes from the processes' clock ticks, which keep the time of ended threads;
    their waiting is lost, so `wait_seconds` is then at least that. `held_back_seconds` is how long control groups
    held its CPUs back, all CPUs added up; None where nobody looked.
    """

    role: str
    cpu_seconds: float
    user_seconds: float
    system_seconds: float
    wait_seconds: float | None
    read_bytes: int | None
    written_bytes: int | None
    threads: tuple[ThreadUse, ...]
    ended: int = 0
    major_faults: int | None = None
    held_back_seconds: float | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class DiskUse:
    """What one block device did. Latency is the mean time of a request in the block layer, None without requests.
    `stuck` is how many requests were in flight all the time, where none of any kind was completed.
    """

    name: str
    reads: int
    writes: int
    read_bytes: int
    written_bytes: int
    read_merges: int
    write_merges: int
    discards: int
    flushes: int
    read_latency_us_mean: float | None
    write_latency_us_mean: float | None
    latency_us_mean: float | None
    busy_percent: float
    queue_depth_mean: float
    number: str = ""
    stuck: int = 0


_UNITS = {
    "rbps": "read.bps", "wbps": "write.bps", "riops": "read.iops", "wiops": "write.iops",
    "read_bps": "read.bps", "write_bps": "write.bps", "read_iops": "read.iops", "write_iops": "write.iops",
}  # fmt: skip
"""The words of io.max, and those of the files of version 1 without `blkio.throttle.` and `_device`."""


def group_limits(lines: Iterable[str], numbers: Collection[str]) -> dict[str, float]:
    """Return the least limits of control groups on devices with these numbers (`8:0`), by unit (`read.bps`); `lines`
    as the kernel writes them (`8:0 rbps=1048576`).
    """
    found: dict[str, float] = {}
    for line in lines:
        device, *words = line.split()
        for name, _, value in (word.partition("=") for word in words):
            if device in numbers and name in _UNITS and value.isdecimal():
                found[_UNITS[name]] = min(float(value), found.get(_UNITS[name], float(value)))
    return found


@dataclass(frozen=True, slots=True, kw_only=True)
class PressureUse:
    """The share of a time window in which some, or all, tasks were stalled on a resource (cpu, io, memory)."""

    resource: Annotated[str, "cpu, io or memory."]
    some_percent: Annotated[float | None, "Time in which some task was stalled."]
    full_percent: Annotated[float | None, "Time in which all tasks were stalled."]


@dataclass(frozen=True, slots=True, kw_only=True)
class CacheUse:
    """How much of a file was in the page cache at the begin and the end of a window."""

    file: str
    begin_bytes: int
    end_bytes: int
    dirty_bytes: int | None


@dataclass(frozen=True, slots=True, kw_only=True)
class Use:
    """What was used between two samples. `gaps` says in words what could not be derived, and why.

    `clock_step_seconds` is the largest jump of the wall clock against the monotonic one between two samples,
    `frequency_ratio` the fastest CPU's frequency at the end against the begin, `drive_over_c` the hottest drive's
    degrees above its own limit (negative below).
    """

    begin_ns: int
    end_ns: int
    cpu: CpuUse | None
    roles: tuple[RoleUse, ...]
    disks: tuple[DiskUse, ...]
    pressure: tuple[PressureUse, ...]
    caches: tuple[CacheUse, ...]
    load_1min: float | None
    throttled_seconds: float | None
    swapped_pages: int | None
    clock_step_seconds: float = 0.0
    clock_sources: tuple[str, ...] = ()
    heat_throttles: int | None = None
    frequency_ratio: float | None = None
    drive_over_c: float | None = None
    io_limits: tuple[str, ...] = ()
    gaps: tuple[str, ...] = ()

    @property
    def seconds(self) -> float:
        return (self.end_ns - self.begin_ns) / 1e9

    @property
    def foreign_cpus(self) -> float | None:
        """How many CPUs others than the roles' processes used; None when that is not known."""
        if self.cpu is None:
            return None
        return max(0.0, self.cpu.busy_seconds - math.fsum(role.cpu_seconds for role in self.roles)) / self.seconds

    def role(self, name: str) -> RoleUse | None:
        return next((role for role in self.roles if role.role == name), None)

    def some_waited(self, resource: str) -> float | None:
        """Return the share (0..1) of the time in which some task waited for a resource; None if unknown."""
        found = next((one.some_percent for one in self.pressure if one.resource == resource), None)
        return None if found is None else found / 100

    def disk(self, name: str) -> DiskUse | None:
        return next((disk for disk in self.disks if disk.name == name), None)

    def foreign_share(self, disk: str, roles: tuple[str, ...] | None = None) -> float | None:
        """Return the share (0..1) of a device's bytes that other processes than the roles' caused; None when unknown.

        A small share is the filesystem's own: metadata and journal. Neighbours and writeback make it large.
        """
        device = self.disk(disk)
        chosen = [role for role in self.roles if roles is None or role.role in roles]
        if device is None or not chosen:
            return None
        ours = 0
        for role in chosen:
            if role.read_bytes is None or role.written_bytes is None:
                return None
            ours += role.read_bytes + role.written_bytes
        total = device.read_bytes + device.written_bytes
        return max(0.0, (total - ours) / total) if total else 0.0


UNSEEN = Use(
    begin_ns=0, end_ns=0, cpu=None, roles=(), disks=(), pressure=(), caches=(), load_1min=None,
    throttled_seconds=None, swapped_pages=None,
)  # fmt: skip
"""What is known where nothing was counted."""

MONITOR_THREAD = "IO mon_iothread"
"""QEMU's own thread for its monitor, which serves no disk."""

OF_URING = "iou-"
"""How the kernel names its own io_uring workers, which appear among a process's threads."""

_OF_KERNEL = ("vhost-", "kvm-")
"""How the kernel names the threads of vhost and of KVM."""


def thread_role(name: str, *, main: bool) -> ThreadRole:
    """Return the role of a thread by its name: `worker` is of the pool that does blocking I/O, `uring` and `kernel`
    are the kernel's own; `main` says that it is the first thread of its process.
    """
    if name.startswith("CPU "):
        return "vcpu"
    if name.startswith("IO ") and name != MONITOR_THREAD:
        return "iothread"
    if name.startswith("worker"):
        return "worker"
    if name.startswith(OF_URING):
        return "uring"
    if name.startswith(_OF_KERNEL):
        return "kernel"
    return "main" if main else "other"


_NEAR_ITS_END = 0.5


@dataclass(frozen=True, slots=True, kw_only=True)
class ThreadCost:
    """One thread on the I/O path over a window of `seconds`; for `wait_seconds` it was runnable but had no CPU.

    It went to sleep `sleeps` times and was taken off its CPU `preempted` times; None if unknown.
    """

    role: ThreadRole | Literal["load"]
    name: str
    tid: int
    seconds: float
    cpu_seconds: float
    user_seconds: float
    system_seconds: float
    wait_seconds: float | None
    sleeps: int | None = None
    preempted: int | None = None

    @property
    def nears_its_end(self) -> bool:
        """Whether its CPU time per I/O tells at which rate a whole CPU would be used: seldom woken, a thread spends
        several times as much on an I/O as when it finds many at once.
        """
        return self.busy >= _NEAR_ITS_END

    @property
    def busy(self) -> float:
        """The share of one CPU that it used."""
        return self.cpu_seconds / self.seconds

    @property
    def switches(self) -> int | None:
        """How often another thread got its CPU; None if unknown."""
        return None if self.sleeps is None or self.preempted is None else self.sleeps + self.preempted

    @property
    def stalled(self) -> float:
        """The share of all time in which it was runnable but had no CPU."""
        return (self.wait_seconds or 0.0) / self.seconds
