# SPDX-License-Identifier: Apache-2.0
"""Parse the sampler's raw lines into samples; `analyse.trial.usage` computes the use between two of them."""

import itertools
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Annotated

from pydantic import Field, TypeAdapter, ValidationError

from virtune.model.counters import Counters, CpuCount, DeviceCount, ProcessCount, Sample, ThreadCount
from virtune.model.errors import StoreError

SCHEMA = "virtune/counters/1"
_SECTOR_BYTES = 512
"""/proc/diskstats always counts sectors of 512 bytes, whatever the device's sector size."""

_MILLI = 1000
"""hwmon gives temperatures in thousandths of a degree Celsius."""

_Natural = Annotated[int, Field(ge=0, strict=True)]
_Real = Annotated[float, Field(allow_inf_nan=False)]


@dataclass(frozen=True, slots=True, kw_only=True)
class _Header:
    schema: str
    ticks_per_second: Annotated[int, Field(gt=0)]
    io_limits: list[str] = field(default_factory=list)
    drive_limits: dict[str, int] = field(default_factory=dict)


@dataclass(frozen=True, slots=True, kw_only=True)
class _Process:
    stat: str
    io: str


@dataclass(frozen=True, slots=True, kw_only=True)
class _Line:
    t: _Natural
    wall: _Real
    mark: str = ""
    stat: str = ""
    diskstats: list[str] = field(default_factory=list)
    threads: dict[str, dict[str, tuple[str, _Natural, _Natural, _Natural | None, _Natural | None]]] = field(
        default_factory=dict
    )
    switches: dict[str, dict[str, tuple[_Natural, _Natural]]] = field(default_factory=dict)
    processes: dict[str, dict[str, _Process]] = field(default_factory=dict)
    pressure: dict[str, str] = field(default_factory=dict)
    residency: dict[str, tuple[_Natural, _Natural | None]] = field(default_factory=dict)
    vmstat: list[str] = field(default_factory=list)
    loadavg: str = ""
    throttle: dict[str, str] = field(default_factory=dict)
    clock_source: str = ""
    heat: dict[str, str] = field(default_factory=dict)
    frequency: dict[str, str] = field(default_factory=dict)
    drives: dict[str, str] = field(default_factory=dict)


_read_header = TypeAdapter(_Header).validate_json
_read_line = TypeAdapter(_Line).validate_json


def read_counters(content: bytes) -> Counters:
    """Read a sampler's capture. Raises StoreError with one sentence when it is damaged or cut off."""
    first, *rest = content.split(b"\n")
    if not rest or rest[-1]:
        raise StoreError("the counters are cut off: their last line has no end")
    header = _header(first)
    if header.schema != SCHEMA:
        raise StoreError(f"the counters are of the kind {header.schema[:60]!r}, not {SCHEMA!r}")
    samples = tuple(_sample(line, number, header.ticks_per_second) for number, line in enumerate(rest[:-1], 2))
    if any(after.t_ns < before.t_ns for before, after in itertools.pairwise(samples)):
        raise StoreError("the counters are damaged: their samples are out of order")
    limits = {path: limit / _MILLI for path, limit in header.drive_limits.items()}
    return Counters(samples=samples, io_limits=tuple(header.io_limits), drive_limits_c=limits)


def _header(line: bytes) -> _Header:
    try:
        return _read_header(line)
    except (ValidationError, ValueError):
        raise StoreError("the counters are damaged: line 1 does not say what they hold") from None


def _sample(line: bytes, number: int, ticks: int) -> Sample:
    try:
        return _build(_read_line(line), ticks)
    except ValidationError as error:
        place = error.errors()[0]["loc"][:1]
        what = f"`{place[0]}` is not what it should be" if place else "it is no sample"
    except (ValueError, IndexError, OverflowError):
        what = "a counter in it is no number"
    raise StoreError(f"the counters are damaged: line {number}: {what}")


def _build(line: _Line, ticks: int) -> Sample:
    return Sample(
        t_ns=line.t,
        wall_seconds=line.wall,
        mark=line.mark,
        cpu=_cpu(line.stat, ticks),
        devices=dict(device_count(text) for text in line.diskstats),
        threads={
            role: {
                int(tid): _thread(*values, ticks=ticks, switches=line.switches.get(role, {}).get(tid))
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
        throttled_us=_throttled(line.throttle),
        swapped_pages=_swapped(line.vmstat),
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


def _thread(
    comm: str, user: int, system: int, run_ns: int | None, wait_ns: int | None, *, ticks: int,
    switches: tuple[int, int] | None,
) -> ThreadCount:  # fmt: skip
    sleeps, preempted = (None, None) if switches is None else switches
    return ThreadCount(
        comm=comm, user_seconds=user / ticks, system_seconds=system / ticks, run_ns=run_ns, wait_ns=wait_ns,
        sleeps=sleeps, preempted=preempted,
    )  # fmt: skip


def _process(texts: _Process, ticks: int) -> ProcessCount:
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


def _throttled(texts: Mapping[str, str]) -> int | None:
    """Add up how long our groups were throttled: µs in version 2 of the hierarchy, ns in version 1."""
    found: list[int] = []
    for text in texts.values():
        counts = _pairs(text.splitlines())
        if "throttled_usec" in counts:
            found.append(counts["throttled_usec"])
        elif "throttled_time" in counts:
            found.append(counts["throttled_time"] // 1000)
    return sum(found) if found else None


def _swapped(lines: list[str]) -> int | None:
    counts = _pairs(lines)
    return counts["pswpin"] + counts["pswpout"] if {"pswpin", "pswpout"} <= counts.keys() else None


def _pairs(lines: list[str]) -> dict[str, int]:
    return {name: int(value) for name, _, value in (line.partition(" ") for line in lines) if value}
