# SPDX-License-Identifier: Apache-2.0
"""Resource use of the host, its devices and our processes between two samples of the kernel's counters; the cost of
each kind of thread; and whether the slow ones among single I/Os come back periodically.

The statistic is how high a peak of the autocorrelation of ln(latency) lies above the deepest point before it: high
for stalls at every tenth I/O and for a wave, low for a few stalls anywhere. A running median is subtracted first,
since latencies that only drift, or change once, have no period. Its false-alarm rate is the share of shuffles that
reach as much, so no distribution is assumed; what makes neighbours alike (an AR(1) model) is kept in them.
"""

import itertools
import json
import math
from collections.abc import Callable, Container, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, fields
from operator import attrgetter
from typing import TYPE_CHECKING, Literal, TypeVar

from virtune.analyse.trial.counters import WRAP_MS, if_readable, read_counters
from virtune.analyse.trial.gates import WINDOW_SECONDS
from virtune.model.counters import (
    CacheUse,
    Counters,
    CpuCount,
    CpuUse,
    DeviceCount,
    DiskUse,
    GroupCount,
    PressureUse,
    ProcessCount,
    RoleUse,
    Sample,
    ThreadCost,
    ThreadCount,
    ThreadUse,
    Use,
    thread_role,
)
from virtune.model.errors import StoreError
from virtune.model.evidence import CREW, of_guest
from virtune.model.metric import THREAD_ROLES, ThreadRole
from virtune.model.remark import PERIODIC, PERIODIC_LEVEL, Remark
from virtune.model.stack import Stack
from virtune.model.text import format_ns, format_share

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray


_Count = TypeVar("_Count", ThreadCount, ProcessCount)


def use(counters: Counters, *, begin_ns: int | None = None, end_ns: int | None = None) -> Use:
    """Return the resource use between the first and the last sample inside a window (monotonic ns, ends included).

    Only samples inside count, so use before or after it is left out. Raises StoreError when fewer than two samples
    lie in the window.
    """
    low = -math.inf if begin_ns is None else begin_ns
    high = math.inf if end_ns is None else end_ns
    inside = [sample for sample in counters.samples if low <= sample.t_ns <= high]
    if len(inside) < 2 or inside[0].t_ns == inside[-1].t_ns:
        raise StoreError(f"the counters have {len(inside)} samples in that window, and two are the fewest that tell")
    first, last, limits = inside[0], inside[-1], counters.drive_limits_c
    names = dict.fromkeys(role for sample in inside for role in (*sample.processes, *sample.threads))
    roles = tuple(_role(role, inside) for role in names)
    gaps = [
        f"{role.ended} threads of {role.role} ended on the way, so it waited at least as long as is said"
        for role in roles
        if role.ended
    ]
    return Use(
        begin_ns=first.t_ns,
        end_ns=last.t_ns,
        cpu=_cpu(first.cpu, last.cpu),
        roles=roles,
        disks=tuple(_disks(first, last, gaps)),
        pressure=_pressure(first, last),
        caches=tuple(
            CacheUse(file=file, begin_bytes=begin, end_bytes=end, dirty_bytes=last.dirty_bytes.get(file))
            for file, end in last.cached_bytes.items()
            if (begin := first.cached_bytes.get(file)) is not None
        ),
        load_1min=last.load_1min,
        throttled_seconds=_held_back(first, last, first.limited or None, last.limited or None),
        swapped_pages=_rise(first.swapped_pages, last.swapped_pages),
        clock_step_seconds=max(
            abs((after.wall_seconds - before.wall_seconds) - (after.t_ns - before.t_ns) / 1e9)
            for before, after in itertools.pairwise(inside)
        ),
        clock_sources=tuple(dict.fromkeys(one.clock_source for one in inside if one.clock_source)),
        heat_throttles=_rise(first.heat_count, last.heat_count),
        frequency_ratio=last.frequency_khz / first.frequency_khz
        if first.frequency_khz and last.frequency_khz
        else None,
        drive_over_c=max(
            (degrees - limits[path] for path, degrees in last.drives_c.items() if path in limits), default=None
        ),
        io_limits=counters.io_limits,
        gaps=tuple(gaps),
    )


def used_by(parts: Mapping[str, bytes], stack: Stack) -> Use | None:
    """Return the host's resource use in the measured time; None without readable counters that cover it."""
    role = "guest" if stack.kind.in_guest else "load"
    try:
        counters = read_counters(parts["counters.jsonl"])
        used = use(counters, begin_ns=counters.mark("begin"), end_ns=counters.mark("stop"))
    except (KeyError, StoreError):
        return None
    load = used.role(role)
    saw_the_load = load is not None and load.cpu_seconds > 0
    return used if saw_the_load and used.seconds >= WINDOW_SECONDS else None


def _cpu(first: CpuCount | None, last: CpuCount | None) -> CpuUse | None:
    if first is None or last is None:
        return None
    # iowait may run backwards a little: the kernel adds it up from CPUs that sleep
    user, system, interrupt, iowait, steal, idle = (
        max(0.0, getattr(last, f"{name}_seconds") - getattr(first, f"{name}_seconds"))
        for name in ("user", "system", "interrupt", "iowait", "steal", "idle")
    )
    busy = math.fsum((user, system, interrupt))
    total = busy + iowait + steal + idle
    share = 100 / total if total > 0 else 0.0
    return CpuUse(
        busy_seconds=busy,
        busy_percent=busy * share,
        iowait_percent=iowait * share,
        steal_percent=steal * share,
        user_percent=user * share,
        system_percent=(busy - user) * share,
    )


def _role(role: str, samples: Sequence[Sample]) -> RoleUse:
    processes = _from_its_begin([sample.processes.get(role, {}) for sample in samples])
    firsts = {pid for group in processes for pid in group}
    threads, ended = _threads(_from_its_begin([sample.threads.get(role, {}) for sample in samples]), firsts)
    user, system = (
        math.fsum(_risen(processes, attrgetter(name)).values()) for name in ("user_seconds", "system_seconds")
    )
    by_threads = math.fsum(thread.cpu_seconds for thread in threads)
    waits = [thread.wait_seconds for thread in threads if thread.wait_seconds is not None]
    return RoleUse(
        role=role,
        cpu_seconds=max(by_threads, user + system) if ended or not threads else by_threads,
        user_seconds=user,
        system_seconds=system,
        wait_seconds=math.fsum(waits) if waits else None,
        read_bytes=_count(processes, "read_bytes"),
        written_bytes=_count(processes, "written_bytes"),
        major_faults=_count(processes, "major_faults"),
        held_back_seconds=_held_back(
            samples[0], samples[-1], samples[0].groups.get(role), samples[-1].groups.get(role)
        ),
        threads=tuple(sorted(threads, key=lambda thread: -thread.cpu_seconds)),
        ended=ended,
    )


def _held_back(
    begin: Sample, end: Sample, first: Mapping[str, GroupCount] | None, last: Mapping[str, GroupCount] | None
) -> float | None:
    """Add up for how many seconds groups held CPUs back: those that are in both samples, since a thread may have come
    into another one.
    """
    if first is None or last is None:
        return None
    seconds = (end.t_ns - begin.t_ns) / 1e9
    return math.fsum(_held(count, last[path], seconds) for path, count in first.items() if path in last)


def _held(before: GroupCount, after: GroupCount, seconds: float) -> float:
    """For how long one group held CPUs back. Where it let none go on meanwhile its time stands still, and its periods
    tell: each that ended so is taken as lost to one CPU.
    """
    held, periods = after.held_us - before.held_us, after.held_periods - before.held_periods
    if held == 0 < periods:
        return seconds * min(1.0, periods / max(1, after.periods - before.periods))
    return max(0, held) / 1e6


def _from_its_begin(groups: Sequence[Mapping[int, _Count]]) -> list[Mapping[int, _Count]]:
    """Leave out the samples before a role's processes existed."""
    return list(itertools.dropwhile(lambda group: not group, groups))


def _threads(groups: Sequence[Mapping[int, ThreadCount]], firsts: Container[int]) -> tuple[list[ThreadUse], int]:
    """Return the use of each thread, and how many of them had ended. `firsts` are the first threads of
    their processes.
    """
    if not groups:
        return [], 0
    run = _risen(
        groups, lambda one: one.user_seconds + one.system_seconds if one.run_ns is None else one.run_ns / 1e9
    )
    wait = _risen(groups, lambda one: None if one.wait_ns is None else one.wait_ns / 1e9)
    user, system, sleeps, preempted = (
        _risen(groups, attrgetter(name)) for name in ("user_seconds", "system_seconds", "sleeps", "preempted")
    )
    comms = {tid: one.comm for group in groups for tid, one in group.items()}
    found = [
        ThreadUse(
            tid=tid,
            comm=comm,
            cpu_seconds=run[tid],
            wait_seconds=wait.get(tid),
            user_seconds=user[tid],
            system_seconds=system[tid],
            first=tid in firsts,
            sleeps=None if tid not in sleeps else int(sleeps[tid]),
            preempted=None if tid not in preempted else int(preempted[tid]),
        )
        for tid, comm in comms.items()
    ]
    return found, sum(tid not in groups[-1] for tid in comms)


def _risen(groups: Sequence[Mapping[int, _Count]], of: Callable[[_Count], float | None]) -> dict[int, float]:
    """Return by how much each counter rose over a row of samples; those that are None in all of them are left out.

    A counter in the first sample starts from its value there; a later one starts at zero. A counter that falls
    belongs to a new thread with a reused id, and starts at zero too.
    """
    risen: dict[int, float] = {}
    seen: dict[int, float] = {}
    for index, group in enumerate(groups):
        known = ((key, value) for key, one in group.items() if (value := of(one)) is not None)
        for key, value in known:
            before = seen.get(key, value if index == 0 else 0.0)
            risen[key] = risen.get(key, 0.0) + (value - before if value >= before else value)
            seen[key] = value
    return risen


def _count(groups: Sequence[Mapping[int, ProcessCount]], name: str) -> int | None:
    counter = attrgetter(name)
    if not groups or any(counter(one) is None for group in groups for one in group.values()):
        return None
    return int(sum(_risen(groups, counter).values()))


def _disks(first: Sample, last: Sample, gaps: list[str]) -> Iterable[DiskUse]:
    milliseconds = (last.t_ns - first.t_ns) / 1e6
    for name, after in last.devices.items():
        before = first.devices.get(name)
        if before is None:
            gaps.append(f"{name} was not there when the window began")
        elif min(_plain_rises(before, after).values()) < 0:
            gaps.append(f"the counters of {name} ran backwards: the device was replaced")
        else:
            yield _disk(name, before, after, milliseconds)
    gaps += [f"{name} was gone when the window ended" for name in first.devices if name not in last.devices]


def _plain_rises(before: DeviceCount, after: DeviceCount) -> dict[str, int]:
    names = ("reads", "writes", "read_bytes", "written_bytes", "read_merges", "write_merges", "discards", "flushes")
    return {name: getattr(after, name) - getattr(before, name) for name in names}


def _disk(name: str, before: DeviceCount, after: DeviceCount, milliseconds: float) -> DiskUse:
    rises = _plain_rises(before, after)
    reads, writes = rises["reads"], rises["writes"]
    read_ms = (after.read_ms - before.read_ms) % WRAP_MS
    write_ms = (after.write_ms - before.write_ms) % WRAP_MS
    return DiskUse(
        name=name,
        **rises,
        read_latency_us_mean=_mean_us(read_ms, reads),
        write_latency_us_mean=_mean_us(write_ms, writes),
        latency_us_mean=_mean_us(read_ms + write_ms, reads + writes),
        # the kernel's clock may tick once more than ours
        busy_percent=min(100.0, (after.busy_ms - before.busy_ms) % WRAP_MS / milliseconds * 100),
        queue_depth_mean=(after.queued_ms - before.queued_ms) % WRAP_MS / milliseconds,
        number=after.number,
        stuck=0 if reads + writes + rises["discards"] + rises["flushes"] else min(before.in_flight, after.in_flight),
    )


def _mean_us(milliseconds: int, requests: int) -> float | None:
    return milliseconds * 1000 / requests if requests else None


def _pressure(first: Sample, last: Sample) -> tuple[PressureUse, ...]:
    microseconds = (last.t_ns - first.t_ns) / 1e3
    rises = {
        key: (after - first.pressure_us[key]) / microseconds * 100
        for key, after in last.pressure_us.items()
        if after >= first.pressure_us.get(key, math.inf)
    }
    return tuple(
        PressureUse(
            resource=resource,
            some_percent=rises.get((resource, "some")),
            full_percent=rises.get((resource, "full")),
        )
        for resource in dict.fromkeys(resource for resource, _ in rises)
    )


def _rise(before: int | None, after: int | None) -> int | None:
    return None if before is None or after is None or after < before else after - before


def thread_costs(parts: Mapping[str, bytes], used: Use) -> tuple[ThreadCost, ...]:
    """Return every thread of QEMU, of a storage daemon and of the load on this host, with its role."""
    crew = _crew(parts)
    both = {one.name for one in fields(ThreadCost)} & {one.name for one in fields(ThreadUse)}
    return tuple(
        ThreadCost(
            role=_thread_role(role.role, one, crew),
            name=one.comm,
            seconds=used.seconds,
            **{name: getattr(one, name) for name in both},
        )
        for role in used.roles
        if role.role in ("guest", "daemon", "load")
        for one in role.threads
    )


def cost_values(parts: Mapping[str, bytes], used: Use, iops: float | None) -> Iterator[tuple[str, float]]:
    """Yield the metrics of threads by role: CPU time per I/O, context switches per I/O, the share of
    runnable time spent waiting for a CPU.
    """
    costs = thread_costs(parts, used)
    load = used.role("load")
    for name in (*THREAD_ROLES, "load"):
        mine = [one for one in costs if one.role == name]
        spent = math.fsum(one.cpu_seconds for one in mine)
        if name == "load" and load is not None and load.ended:
            # threads that ended unseen are counted with their process alone
            spent += max(0.0, load.cpu_seconds - math.fsum(one.cpu_seconds for one in load.threads))
        if mine and iops:
            yield f"cpu.io.{name}", spent / used.seconds / iops
        switched = [one.switches for one in mine if one.switches is not None]
        if switched and iops:
            yield f"switches.io.{name}", sum(switched) / used.seconds / iops
        waits = [one.wait_seconds for one in mine if one.wait_seconds is not None]
        wanted = math.fsum(one.cpu_seconds for one in mine) + math.fsum(waits)
        if waits and wanted > 0:
            yield f"wait.{name}", math.fsum(waits) / wanted * 100
    exits = _exits(parts)
    if exits is not None and iops:
        yield "exits.io", exits / iops
    if used.cpu is not None:
        yield "cpu.host.usr", used.cpu.user_percent
        yield "cpu.host.sys", used.cpu.system_percent


@if_readable
def _exits(parts: Mapping[str, bytes]) -> float | None:
    """Return the exits to KVM a second, all guests together; None where KVM did not count them."""
    names = (of_guest("qemu-blockstats.json", number) for number in itertools.count())
    looks = [json.loads(parts[name]) for name in itertools.takewhile(parts.__contains__, names)]
    ends = [(one["begin"], one["stop"]) for one in looks]
    rates = [(stop["exits"] - begin["exits"]) / (stop["t"] - begin["t"]) * 1e9 for begin, stop in ends]
    return float(sum(rates, 0.0)) if rates else None


@if_readable
def _crew(parts: Mapping[str, bytes]) -> Mapping[int, ThreadRole]:
    """Return the roles of a storage daemon's threads, which have no names; None if they were not recorded."""
    seen = json.loads(parts[CREW])
    found: dict[int, ThreadRole] = {int(tid): "other" for tid in seen["crew"]}
    if seen["iothread"] is not None:
        found[int(seen["iothread"])] = "iothread"
    return found


def _thread_role(
    process: str, thread: ThreadUse, crew: Mapping[int, ThreadRole] | None
) -> ThreadRole | Literal["load"]:
    if process == "load":
        return "load"
    told = thread_role(thread.comm, main=thread.first)
    if process == "daemon" and told == "other" and crew is not None:
        return crew.get(thread.tid, "worker")
    return told


_SHUFFLES = 999
_AT_ONCE = 37
"""So many shuffles are looked at together, which divides their number: all at once of 10,000 I/Os took 0.7 GB."""

_LEAST = 30
"""Of fewer I/Os no period of ten and no peak beyond chance can be seen."""

_LONGEST = 1 / 3
"""A period must have been there three times."""

_SEED = 5

_DIGITS = 19
"""Numbers with so many digits are no times: 10**18 ns are 31 years."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Period:
    """The strongest period of a series of latencies: in I/Os, in time, and its false-alarm rate."""

    operations: int
    seconds: float
    chance: float


def operation_times(log: bytes) -> tuple[int, ...]:
    """Return the latency of each I/O in ns, in their order, from fio's log (`ms, ns, direction, size, offset`). Of
    several clones of a job, whose logs follow one another, those of the first: joined they are no series.
    """
    found: list[int] = []
    last = 0
    for line in log.splitlines():
        time, _, rest = line.partition(b",")
        words = time.strip(), rest.partition(b",")[0].strip()
        if not all(word.isdigit() and len(word) < _DIGITS for word in words):
            continue
        if int(time) < last:
            break
        last = int(time)
        found.append(int(words[1]))
    return tuple(found)


def strongest_period(latencies: Sequence[int]) -> Period | None:
    """Return the strongest period of a series, however weak; None for too few I/Os, or if all took the same time."""
    import numpy as np

    kept = [one for one in latencies if one > 0]
    if len(kept) < _LEAST or min(kept) == max(kept):
        return None
    logs = np.log(np.array(kept, dtype=np.float64))
    reach = max(1, int(len(logs) * _LONGEST / 2))
    values = logs - [np.median(logs[max(0, at - reach) : at + reach + 1]) for at in range(len(logs))]
    heights = _heights(values[None, :])[0]
    reached = sum(int((_heights(rows).max(axis=1) >= heights.max() - 1e-12).sum()) for rows in _shuffled(values))
    lag = int(heights.argmax()) + 2
    mean = math.fsum(kept) / len(kept)
    return Period(operations=lag, seconds=lag * mean / 1e9, chance=(reached + 1) / (_SHUFFLES + 1))


def period_remarks(log: bytes) -> Iterator[Remark]:
    """Yield the remark on single I/Os whose latencies have a period."""
    found = strongest_period(operation_times(log))
    if found is None or found.chance > PERIODIC_LEVEL:
        return
    yield PERIODIC.remark(
        text=f"the latencies of single I/Os have a period of {found.operations} I/Os, about"
        f" {format_ns(found.seconds * 1e9)} (false-alarm rate {format_share(found.chance, 1)})",
    )


def _shuffled(values: "NDArray[np.float64]") -> Iterator["NDArray[np.float64]"]:
    """Yield shuffles of a series, some rows at once, whose neighbours are as much correlated as its own."""
    import numpy as np

    total = float(values @ values)
    follows = max(0.0, float(values[:-1] @ values[1:]) / total) if total else 0.0
    news = values.copy()  # what each value adds to what the one before leads to expect
    news[1:] -= follows * values[:-1]
    chance = np.random.default_rng(_SEED)
    for _ in range(_SHUFFLES // _AT_ONCE):
        rows = chance.permuted(np.tile(news, (_AT_ONCE, 1)), axis=1)
        for at in range(1, len(values)):
            rows[:, at] += follows * rows[:, at - 1]
        yield rows


def _heights(series: "NDArray[np.float64]") -> "NDArray[np.float64]":
    """Return for each series (a row) and each lag from 2 on how far its autocorrelation lies above the least before
    it.
    """
    import numpy as np

    count = series.shape[1]
    around = series - series.mean(axis=1, keepdims=True)
    spectrum = np.fft.rfft(around, n=2 * count, axis=1)
    products = np.fft.irfft(np.abs(spectrum) ** 2, n=2 * count, axis=1)[:, : int(count * _LONGEST) + 1]
    correlation = products / np.maximum(products[:, :1], 1e-300)
    least = np.minimum.accumulate(correlation[:, 1:-1], axis=1)
    found: NDArray[np.float64] = correlation[:, 2:] - least
    return found
