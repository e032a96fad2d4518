# SPDX-License-Identifier: Apache-2.0
"""Derive a Measurement from a FioResult, with the metrics that need fio's output only (`virtune.model.metric`): of
all its jobs, and of each of several disks or files by itself.

Operations and bytes a second add up over jobs and directions. Means are weighted by the number of I/Os. Percentiles
come from the merged histograms; without bins they are given only where there is a single distribution. Total and
completion latency are never mixed. Reads and writes have their own metrics besides those of all I/Os. The jobs of a
result are assumed to have run at the same time; `phases_of` finds out which of them did.
"""

import math
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import replace
from typing import Literal

from virtune.model.measurement import FioResult, Histogram, Latency, LoadResult, Measurement, Stream, merge
from virtune.model.metric import DIRECTIONS, METRICS, Distribution
from virtune.model.remark import UNLIKE_DISKS, Remark
from virtune.model.stack import Stack
from virtune.model.text import format_count
from virtune.model.workload import name_of_disk

Values = Iterator[tuple[str, float | None]]


def extreme_values(streams: Sequence[Stream]) -> Values:
    """Yield the least, the greatest and the standard deviation of each kind of latency, and of IOPS over time."""
    for kind, name in (("slat", "slat"), ("clat", "clat"), ("lat", "latency")):
        every = [getattr(stream, kind) for stream in streams]
        found: list[Latency] = [one for one in every if one is not None]
        if not found or len(found) < len(every):
            continue
        if kind != "lat":  # `latency.min` is of loads whose I/Os are recorded one by one
            yield f"{name}.min", min((one.min_ns for one in found if one.min_ns is not None), default=None)
            yield f"{name}.max", max((one.max_ns for one in found if one.max_ns is not None), default=None)
        yield f"{name}.stdev", _deviation(found)
    if len(streams) == 1:
        yield "iops.min", streams[0].iops_min
        yield "iops.max", streams[0].iops_max
        yield "iops.stdev", streams[0].iops_stddev


def load_values(result: FioResult) -> Values:
    """Yield context switches and page faults of all jobs a second, and the share of requests that were merged."""
    seconds = max((stream.seconds or 0.0 for load in result.loads for stream in load.streams), default=0.0)
    for name, field in (("ctx", "context_switches"), ("majf", "major_faults"), ("minf", "minor_faults")):
        counts = [getattr(load, field) for load in result.loads]
        if seconds and counts and None not in counts:
            yield f"load.{name}", sum(counts) / seconds
    if result.devices:
        device = result.devices[0]
        merged, went = (device.read_merges, device.write_merges), device.reads + device.writes
        if None not in merged and went:
            both = sum(count or 0 for count in merged)
            yield "disk.merged", both / (both + went) * 100


def _deviation(found: Sequence[Latency]) -> float | None:
    """Return the standard deviation over all of them: that of each, and how far their means lie apart."""
    if len(found) == 1:
        return found[0].stddev_ns
    parts = [(one.count, one.mean_ns, one.stddev_ns) for one in found]
    count = sum(number or 0 for number, _, _ in parts)
    if not count or any(not number or spread is None for number, _, spread in parts):
        return None
    mean = math.fsum((number or 0) * middle for number, middle, _ in parts) / count
    squares = math.fsum((number or 0) * ((spread or 0) ** 2 + middle**2) for number, middle, spread in parts) / count
    return math.sqrt(max(0.0, squares - mean**2))


Kind = Literal["lat", "clat"]

_NAMES: tuple[tuple[Kind, str], ...] = (("lat", "latency"), ("clat", "clat"))
"""fio's two kinds of latency, and how the ids of their metrics begin."""


def measurement_of(result: FioResult) -> Measurement:
    """Derive the metrics in fio's output; a missing one was not measured."""
    streams = _flows(result)
    if not streams:
        return Measurement(values=())
    exact = result.source.startswith("json")
    # of all jobs' flushes; none unless every job that flushed has bins
    kinds = [load.sync for load in result.loads if load.sync is not None]
    bins = [kind.histogram for kind in kinds if kind.histogram is not None]
    flushes = merge(bins) if bins and len(bins) == len(kinds) else None
    by_direction = {one: [stream for stream in streams if stream.direction == one] for one in DIRECTIONS}
    values: list[tuple[str, float | None]] = [
        *_of_streams(streams, "", exact=exact),
        *(value for one, mine in by_direction.items() for value in _of_streams(mine, f"{one}.", exact=exact)),
        ("slat.mean", _mean(streams, lambda stream: stream.slat)),
        ("sync.mean", _weighted((load.sync.mean_ns, load.sync.count) for load in result.loads if load.sync)),
        *_percentiles("sync", flushes, kinds[0] if len(kinds) == 1 else None),
        *extreme_values(streams),
        *load_values(result),
        ("cpu.load.usr", _cpu(result.loads, lambda load: load.usr_percent)),
        ("cpu.load.sys", _cpu(result.loads, lambda load: load.sys_percent)),
    ]
    measured = {name: value for name, value in values if value is not None}
    mixed = all(by_direction.values())
    return Measurement(
        values=tuple((metric.id, measured[metric.id]) for metric in METRICS if metric.id in measured),
        histogram=_merged(streams, "lat"),
        flushes=flushes,
        others=tuple(_others(streams, *(by_direction.values() if mixed else ((), ())))),
    )


def rate_of(stream: Stream, *, exact: bool) -> float:
    """Return a stream's operations a second; `exact`: the source does not round them."""
    return completions(stream) if exact else stream.iops


def completions(stream: Stream) -> float:
    """Return completions a second, from the number of latencies counted.

    fio's own figure leaves out the I/Os that were in flight when the ramp ended, although it counts their bytes and
    latencies: at depth 32 and 200 IOPS that is 8 % over 2 s. Where no latencies were counted, fio's figure is used.
    """
    counted = next((kind.count for kind in (stream.lat, stream.clat) if kind is not None and kind.count), None)
    return counted / stream.seconds if counted and stream.seconds else stream.iops


def phases_of(result: FioResult) -> tuple[FioResult, ...]:
    """Split a result into phases of jobs that ran at the same time, in fio's order.

    Jobs of one reporting group ran together. A `stonewall` begins a group that runs after the others, a `new_group`
    one that runs beside them, and fio 3.35 and earlier say neither; fio itself never adds groups up. They are taken
    to have run at the same time only with evidence: the jobs' start times (fio 3.36 and later), or a total run time
    too short for any two groups to have run one after the other.
    """
    groups: dict[int | None, list[LoadResult]] = {}
    for load in result.loads:
        groups.setdefault(load.group, []).append(load)
    if len(groups) < 2 or _at_once(result, list(groups.values())):
        return (result,)
    parts: list[list[LoadResult]] = []
    for loads in groups.values():
        beside = next((part for part in parts if _overlap(part, loads)), None)
        if beside is None:
            parts.append(list(loads))
        else:
            beside += loads
    return tuple(replace(result, loads=tuple(part)) for part in parts)


def _at_once(result: FioResult, groups: Sequence[Sequence[LoadResult]]) -> bool:
    shortest = sorted(_seconds(loads) for loads in groups)[:2]
    return result.elapsed is not None and 0 < result.elapsed < sum(shortest)


def _overlap(one: Sequence[LoadResult], other: Sequence[LoadResult]) -> bool:
    """Whether two groups ran at the same time for as long as half of the shorter one."""
    begins = [[load.began for load in loads if load.began is not None] for loads in (one, other)]
    if not all(begins):
        return False
    spans = [(min(begin), min(begin) + _seconds(loads)) for begin, loads in zip(begins, (one, other), strict=True)]
    shared = min(end for _, end in spans) - max(begin for begin, _ in spans)
    return shared > min(end - begin for begin, end in spans) / 2


def _seconds(loads: Sequence[LoadResult]) -> float:
    return max((stream.seconds or 0.0 for load in loads for stream in load.streams), default=0.0)


def _flows(result: FioResult) -> list[Stream]:
    return [stream for load in result.loads for stream in load.streams]


def _others(
    streams: Sequence[Stream], read: Sequence[Stream], write: Sequence[Stream]
) -> Iterator[tuple[Distribution, Histogram]]:
    """Yield the merged bins of completion latency, and of both kinds for reads and for writes."""
    found: tuple[tuple[Distribution, Sequence[Stream], Kind], ...] = (
        ("clat", streams, "clat"),
        ("read.latency", read, "lat"),
        ("read.clat", read, "clat"),
        ("write.latency", write, "lat"),
        ("write.clat", write, "clat"),
    )
    for name, mine, kind in found:
        histogram = _merged(mine, kind)
        if histogram is not None:
            yield name, histogram


def _merged(streams: Sequence[Stream], kind: Kind) -> Histogram | None:
    """Add the bins of one kind of latency; None unless every stream has them."""
    latencies: list[Latency | None] = [getattr(stream, kind) for stream in streams]
    histograms = [latency.histogram for latency in latencies if latency and latency.histogram]
    return merge(histograms) if histograms and len(histograms) == len(streams) else None


def _of_streams(streams: Sequence[Stream], prefix: str, *, exact: bool) -> Values:
    """Yield rates, means and percentiles of these streams; without bins only those printed for a single one."""
    if not streams:
        return
    yield f"{prefix}iops", math.fsum(rate_of(stream, exact=exact) for stream in streams)
    yield f"{prefix}bandwidth", math.fsum(stream.bandwidth_bps for stream in streams)
    for kind, name in _NAMES:
        yield f"{prefix}{name}.mean", _mean(streams, _kind(kind))
        alone = _kind(kind)(streams[0]) if len(streams) == 1 else None
        yield from _percentiles(f"{prefix}{name}", _merged(streams, kind), alone)


def _percentiles(of: str, merged: Histogram | None, alone: Latency | None) -> Values:
    """Yield the percentiles of a distribution: from the merged bins, or as they were printed where there is one."""
    found = merged or alone
    wanted = [(one.id, one.percent) for one in METRICS if one.percent is not None and one.of == of]
    yield from () if found is None else ((name, found.percentile(percent)) for name, percent in wanted)


def _kind(kind: Kind) -> Callable[[Stream], Latency | None]:
    return (lambda stream: stream.lat) if kind == "lat" else (lambda stream: stream.clat)


def _mean(streams: Sequence[Stream], kind: Callable[[Stream], Latency | None]) -> float | None:
    """The mean over all I/Os; None when one direction lacks this kind of latency."""
    found = [
        (latency.mean_ns, latency.count or stream.ios) for stream in streams if (latency := kind(stream)) is not None
    ]
    return _weighted(found) if len(found) == len(streams) else None


def _cpu(loads: Iterable[LoadResult], share: Callable[[LoadResult], float | None]) -> float | None:
    """The mean over all jobs, in % of one CPU; None when it is missing for one of them."""
    found = [(share(load), load.jobs) for load in loads]
    known = [(value, jobs) for value, jobs in found if value is not None]
    return _weighted(known) if len(known) == len(found) else None


def _weighted(pairs: Iterable[tuple[float, int | None]]) -> float | None:
    """A mean with weights; a single value needs none, and several without weights have no mean."""
    found = list(pairs)
    if len(found) == 1:
        return found[0][0]
    weights = [count for _, count in found if count]
    if not found or len(weights) < len(found):
        return None
    return math.fsum(value * (count or 0) for value, count in found) / sum(weights)


UNLIKE = 2.0
"""Equal disks of one host with the same number of I/Os in flight differ by some percent; twice is no chance."""

_OF_EACH = ("iops", "latency.mean")


def disk_values(result: FioResult, stack: Stack) -> Iterator[tuple[str, float]]:
    """Yield the metrics of each of several disks; nothing where there is one."""
    if stack.disks == 1:
        return
    names = [load.name for load in result.loads]
    plain = {name for name in names if name_of_disk(name, 1) in names}
    for number in range(stack.disks):
        mine = {name_of_disk(name, number) for name in plain}
        loads = tuple(load for load in result.loads if load.name in mine)
        found = measurement_of(replace(result, loads=loads))
        for metric in _OF_EACH:
            if (value := found.get(metric)) is not None:
                yield f"disk.{number + 1}.{metric}", value


def unlike_disks(values: Sequence[tuple[str, float]]) -> Iterator[Remark]:
    """Yield the remark on disks of which one does far more than another."""
    rates = [(name, value) for name, value in values if name.startswith("disk.") and name.endswith(".iops")]
    each = {name.split(".")[1]: value for name, value in rates}
    if len(each) < 2:
        return
    most, least = max(each, key=lambda one: each[one]), min(each, key=lambda one: each[one])
    if each[most] < UNLIKE * each[least]:
        return
    yield UNLIKE_DISKS.remark(
        text=f"disk {least} did {format_count(each[least])} operations a second and disk {most}"
        f" {format_count(each[most])}",
        advice=f"the figures are those of all disks together; `--metric disk.{least}.iops` is one of them",
    )
