# SPDX-License-Identifier: Apache-2.0
"""What the kernel's counters say of a trial: the sampler's raw lines as samples, and boundaries: the latency of
requests at each point on their way down, and their number. fio measures it in the application, the guest's kernel
in its block layer, QEMU from when it takes a request off the virtqueue, and this host's kernel at the disk.

All are means over the same window, from counters read at its begin and end.
"""

import itertools
import json
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass
from functools import wraps
from typing import TYPE_CHECKING, ParamSpec, TypeVar

from virtune.model.counters import (
    Counters,
    CpuCount,
    DeviceCount,
    GroupCount,
    ProcessCount,
    Sample,
    ThreadCount,
    Use,
)
from virtune.model.errors import StoreError
from virtune.model.evidence import DISK_QUEUE, RINGS, of_guest
from virtune.model.live import DiskCurve, HostQueue
from virtune.model.metric import Boundary
from virtune.model.stack import Stack

if TYPE_CHECKING:
    from virtune.analyse.trial.sampled import SampledLine, SampledProcess, SampledThread

SCHEMA = "virtune/counters/1"
_SECTOR_BYTES = 512
"""/proc/diskstats always counts sectors of 512 bytes, whatever the device's sector size."""

_MILLI = 1000
"""hwmon gives temperatures in thousandths of a degree Celsius."""


def read_counters(content: bytes) -> Counters:
    """Read a sampler's capture. Raises StoreError with one sentence when it is damaged or cut off."""
    from virtune.analyse.trial.sampled import read_header  # pydantic, for which a stored study alone does not wait

    first, *rest = content.split(b"\n")
    if not rest or rest[-1]:
        raise StoreError("the counters are cut off: their last line has no end")
    try:
        header = read_header(first)
    except ValueError:
        raise StoreError("the counters are damaged: line 1 does not say what they hold") from None
    if header.schema != SCHEMA:
        raise StoreError(f"the counters are of the kind {header.schema[:60]!r}, not {SCHEMA!r}")
    samples = tuple(_sample(line, number, header.ticks_per_second) for number, line in enumerate(rest[:-1], 2))
    if any(after.t_ns < before.t_ns for before, after in itertools.pairwise(samples)):
        raise StoreError("the counters are damaged: their samples are out of order")
    limits = {path: limit / _MILLI for path, limit in header.drive_limits.items()}
    return Counters(samples=samples, io_limits=tuple(header.io_limits), drive_limits_c=limits)


def _sample(line: bytes, number: int, ticks: int) -> Sample:
    from virtune.analyse.trial.sampled import DamagedLineError, read_line

    try:
        return _build(read_line(line), ticks)
    except DamagedLineError as damage:
        what = str(damage)
    except (ValueError, IndexError, OverflowError):
        what = "a counter in it is no number"
    raise StoreError(f"the counters are damaged: line {number}: {what}")


def _build(line: "SampledLine", ticks: int) -> Sample:
    swaps = _pairs(line.vmstat)
    return Sample(
        t_ns=line.t,
        wall_seconds=line.wall,
        mark=line.mark,
        cpu=_cpu(line.stat, ticks),
        devices=dict(device_count(text) for text in line.diskstats),
        threads={
            role: {
                int(tid): _thread(values, line.switches.get(role, {}).get(tid) or (None, None), ticks)
                for tid, values in threads.items()
            }
            for role, threads in line.threads.items()
        },
        processes={
            role: {int(pid): _process(one, ticks) for pid, one in group.items()}
            for role, group in line.processes.items()
        },
        pressure_us=_pressure(line.pressure),
        cached_bytes={name: cached for name, (cached, _) in line.residency.items()},
        dirty_bytes={name: dirty for name, (_, dirty) in line.residency.items() if dirty is not None},
        load_1min=float(line.loadavg.split()[0]) if line.loadavg else None,
        limited=_groups(line.throttle),
        groups={role: _groups(texts) for role, texts in line.groups.items()},
        swapped_pages=swaps["pswpin"] + swaps["pswpout"] if {"pswpin", "pswpout"} <= swaps.keys() else None,
        clock_source=line.clock_source or None,
        heat_count=sum(int(text) for text in line.heat.values() if text) if line.heat else None,
        frequency_khz=max((int(text) for text in line.frequency.values() if text), default=None),
        drives_c={path: int(text) / _MILLI for path, text in line.drives.items() if text},
    )


def _cpu(stat: str, ticks: int) -> CpuCount | None:
    """Read the line of all CPUs together: user nice system idle iowait irq softirq steal guest guest_nice."""
    fields = next((line.split()[1:] for line in stat.splitlines() if line.startswith("cpu ")), None)
    if fields is None:
        return None
    # steal came with Linux 2.6.11; a kernel that lacks a field counts nothing in it
    user, nice, system, idle, iowait, irq, softirq, steal = ([int(field) for field in fields] + [0] * 8)[:8]
    return CpuCount(
        user_seconds=(user + nice) / ticks,
        system_seconds=system / ticks,
        interrupt_seconds=(irq + softirq) / ticks,
        idle_seconds=idle / ticks,
        iowait_seconds=iowait / ticks,
        steal_seconds=steal / ticks,
    )


def device_count(text: str) -> tuple[str, DeviceCount]:
    """Read a line of /proc/diskstats: the name of a device and its counters.

    Discards came with Linux 4.18, flushes with 5.5.
    """
    words = text.split()
    values = [int(word) for word in words[3:]]
    values += [0] * (17 - len(values)) if len(values) >= 11 else []
    return words[2], DeviceCount(
        reads=values[0],
        read_merges=values[1],
        read_bytes=values[2] * _SECTOR_BYTES,
        read_ms=values[3],
        writes=values[4],
        write_merges=values[5],
        written_bytes=values[6] * _SECTOR_BYTES,
        write_ms=values[7],
        in_flight=values[8],
        busy_ms=values[9],
        queued_ms=values[10],
        discards=values[11],
        flushes=values[15],
        flush_ms=values[16],
        number=":".join(words[:2]),
    )


def _thread(seen: "SampledThread", switches: tuple[int | None, int | None], ticks: int) -> ThreadCount:
    comm, user, system, run_ns, wait_ns = seen
    return ThreadCount(
        comm=comm, user_seconds=user / ticks, system_seconds=system / ticks, run_ns=run_ns, wait_ns=wait_ns,
        sleeps=switches[0], preempted=switches[1],
    )  # fmt: skip


def _process(texts: "SampledProcess", ticks: int) -> ProcessCount:
    # the program's name may hold spaces and parentheses, so fields are counted from the last one
    fields = texts.stat.rpartition(")")[2].split()
    io = _pairs(texts.io.splitlines())
    return ProcessCount(
        user_seconds=int(fields[11]) / ticks,
        system_seconds=int(fields[12]) / ticks,
        read_bytes=io.get("read_bytes:"),
        written_bytes=io.get("write_bytes:"),
        major_faults=int(fields[9]),
    )


def _pressure(texts: Mapping[str, str]) -> dict[tuple[str, str], int]:
    found = {}
    for resource, text in texts.items():
        for line in text.splitlines():
            kind, *words = line.split()
            total = next((word.removeprefix("total=") for word in words if word.startswith("total=")), None)
            if total is not None:
                found[resource, kind] = int(total)
    return found


def _groups(texts: Mapping[str, str]) -> dict[str, GroupCount]:
    """Return what groups count of their quotas: µs in version 2 of the hierarchy, ns in version 1."""
    return {
        path: GroupCount(
            held_us=counts.get("throttled_usec", counts.get("throttled_time", 0) // 1000),
            periods=counts.get("nr_periods", 0),
            held_periods=counts.get("nr_throttled", 0),
        )
        for path, text in texts.items()
        if (counts := _pairs(text.splitlines())).keys() & {"throttled_usec", "throttled_time"}
    }


def _pairs(lines: list[str]) -> dict[str, int]:
    return {name: int(value) for name, _, value in (line.partition(" ") for line in lines) if value}


WRAP_MS = 2**32
"""The kernel prints the times of a disk as 32-bit milliseconds: they begin again after 49.7 days."""

_MIN_REQUESTS = 20
"""With fewer requests no mean is computed: the kernel's times are in whole milliseconds."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Timed:
    """The counters of a boundary: requests in so many seconds, and their total time in ns."""

    requests: float
    seconds: float
    total_ns: float

    @property
    def rate(self) -> float:
        """Requests a second."""
        return self.requests / self.seconds

    @property
    def mean_ns(self) -> float:
        """The mean time of a request."""
        return self.total_ns / self.requests


def boundaries_of(parts: Mapping[str, bytes], used: Use | None, stack: Stack) -> dict[Boundary, Timed]:
    """Return the boundaries below the application that a trial's captures measure."""
    found: dict[Boundary, Timed | None] = {}
    if stack.kind.in_guest:
        found["guest"] = _of_all(_guest_disk(parts, number) for number in range(stack.guests))
        if stack.disks == 1:  # only the first disk's rings are read
            found["ring"] = _of_all(_ring(parts, number) for number in range(stack.guests))
        found["backend"] = _of_all(_qemu(parts, number) for number in range(stack.guests))
    elif stack.kind.front == "export":
        found["ring"], found["backend"] = _ring(parts, 0), _taken(parts, 0)
    if used is not None and stack.spread is None:
        found["device"] = device_of(used)
    return {name: one for name, one in found.items() if one is not None and one.requests >= _MIN_REQUESTS}


def boundary_values(timed: Mapping[Boundary, Timed], iops: float | None) -> Iterator[tuple[str, float]]:
    """Yield the metrics of boundaries: the mean latency from there down, and requests per 100 of the application."""
    for name, one in timed.items():
        yield f"below.{name}", one.mean_ns
        if iops:
            yield f"requests.{name}", one.rate / iops * 100


def device_of(used: Use) -> Timed | None:
    """Return how long the reads and writes of the topmost disk of a chain took, since those below count the same
    requests again.
    """
    if not used.disks or (mean := used.disks[0].latency_us_mean) is None:
        return None
    requests = used.disks[0].reads + used.disks[0].writes
    return Timed(requests=requests, seconds=used.seconds, total_ns=mean * 1e3 * requests) if requests else None


def _of_all(parts: Iterable[Timed | None]) -> Timed | None:
    """Add up what several guests or disks counted; None unless all of them did."""
    found = list(parts)
    known = [one for one in found if one is not None]
    if not known or len(known) < len(found):
        return None
    # each over its own seconds, which differ by milliseconds: rates and times per second can be added
    seconds = known[0].seconds
    return Timed(
        requests=sum(one.rate for one in known) * seconds,
        seconds=seconds,
        total_ns=sum(one.total_ns / one.seconds for one in known) * seconds,
    )


Found = TypeVar("Found")
Asked = ParamSpec("Asked")


def if_readable(read: Callable[Asked, Found]) -> Callable[Asked, Found | None]:
    """Have what reads captures of a guest return None where one is missing, or damaged."""

    @wraps(read)
    def reads(*asked: Asked.args, **named: Asked.kwargs) -> Found | None:
        try:
            return read(*asked, **named)
        except (KeyError, ValueError, TypeError, IndexError, ZeroDivisionError, RecursionError):
            return None

    return reads


@if_readable
def _guest_disk(parts: Mapping[str, bytes], number: int) -> Timed | None:
    """Return the guest kernel's counters of its disk over the measured time."""
    seen = json.loads(parts[of_guest("guest.json", number)])
    disks = [one.removeprefix("/dev/") for one in (str(seen["device"]), *str(seen.get("further", "")).split())]
    lines = [json.loads(line) for line in parts[of_guest("guest-counters.jsonl", number)].splitlines()[1:]]
    marks = {line["mark"]: line["t"] for line in lines if "mark" in line}
    begin, stop = marks["begin"], marks["stop"]
    texts = [str(line["text"]) for line in lines if line.get("text") and begin <= line["t"] <= stop]
    return _of_all([_between_texts(texts[0], texts[-1], disk) for disk in disks])


def _between_texts(begin: str, end: str, disk: str) -> Timed | None:
    first, last = _counted(begin, disk), _counted(end, disk)
    if first is None or last is None or (seconds := last[0] - first[0]) <= 0:
        return None
    before, after = first[1], last[1]
    requests = after.reads - before.reads + after.writes - before.writes
    if requests <= 0:
        return None
    milliseconds = (after.read_ms - before.read_ms) % WRAP_MS + (after.write_ms - before.write_ms) % WRAP_MS
    return Timed(requests=requests, seconds=seconds, total_ns=milliseconds * 1e6)


def _counted(text: str, disk: str) -> tuple[float, DeviceCount] | None:
    """Return the guest's clock in seconds and the counters of its disk, from files read in the guest."""
    lines = text.splitlines()
    line = next((one for one in lines if one.split()[2:3] == [disk] and len(one.split()) >= 14), None)
    return None if line is None else (float(lines[0].split()[0]), device_count(line)[1])


@if_readable
def _qemu(parts: Mapping[str, bytes], number: int) -> Timed | None:
    """Return QEMU's counters of a guest's disk, from when it takes a request off the virtqueue."""
    looks = json.loads(parts[of_guest("qemu-blockstats.json", number)])
    begin, stop = looks["begin"], looks["stop"]
    seconds = (stop["t"] - begin["t"]) / 1e9

    def rise(*names: str) -> int:
        return sum(stop["stats"][name] - begin["stats"][name] for name in names)

    requests = rise("rd_operations", "wr_operations")
    if requests <= 0 or seconds <= 0:
        return None
    return Timed(requests=requests, seconds=seconds, total_ns=rise("rd_total_time_ns", "wr_total_time_ns"))


def _by_rings(name: str) -> Callable[[Mapping[str, bytes], int], Timed | None]:
    """Return what reads how long requests were in a guest's virtqueues, by one of the means there: their numbers were
    sampled, and with their rate Little's law gives the times.
    """

    @if_readable
    def timed(parts: Mapping[str, bytes], number: int) -> Timed | None:
        seen = json.loads(parts[of_guest(RINGS, number)])
        completed, seconds, mean = seen["completed"], seen["seconds"], seen[name]
        return Timed(requests=completed, seconds=seconds, total_ns=mean * seconds * 1e9) if seconds > 0 else None

    return timed


_ring, _taken = _by_rings("offered_mean"), _by_rings("taken_mean")
"""How long requests were in the virtqueues, and how long a storage daemon had those of its export, from when it took
them off: it counts none itself."""


_REQUESTS_MIN = 5
"""With fewer requests nothing is said: the kernel's times are in milliseconds."""


def disk_curve(content: bytes) -> DiskCurve:
    """Read the capture of a disk's queue; one that is damaged has no points."""
    try:
        points = json.loads(content)["points"]
        return DiskCurve(points=tuple((int(t), int(n), int(ms), float(i), float(a)) for t, n, ms, i, a in points))
    except (KeyError, ValueError, TypeError, RecursionError):
        return DiskCurve(points=())


def host_queue(disk: DiskCurve, *, begin_ns: int | None = None, end_ns: int | None = None) -> HostQueue | None:
    """Split the time of a request in the host's block layer into its queue and the device; None without requests."""
    inside = [one for one in disk.points if (begin_ns or 0) <= one[0] <= (end_ns or one[0])]
    if len(inside) < 2:
        return None
    requests, ms, flying, every = (inside[-1][n] - inside[0][n] for n in (1, 2, 3, 4))
    if requests < _REQUESTS_MIN or ms <= 0 or every <= 0:
        return None
    mean_ns, share = ms * 1e6 / requests, min(1.0, flying / every)
    return HostQueue(queue_ns=mean_ns * (1 - share), device_ns=mean_ns * share)


def queue_of(parts: Mapping[str, bytes]) -> HostQueue | None:
    """Return the split of the time at the host's disk in a trial's measured time."""
    try:
        counters = read_counters(parts["counters.jsonl"])
    except (KeyError, StoreError):
        return None
    disk = disk_curve(parts.get(DISK_QUEUE, b""))
    return host_queue(disk, begin_ns=counters.mark("begin"), end_ns=counters.mark("stop"))
