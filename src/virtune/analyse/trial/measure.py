# SPDX-License-Identifier: Apache-2.0
"""Derive a Measurement from a FioResult, with the metrics that need fio's output only (`virtune.model.metric`): of
all its jobs, and of each of several disks or files by itself; and of an imported result, which jobs ran together, and
their workload.

Operations and bytes a second add up over jobs and directions. Means are weighted by the number of I/Os. Percentiles
come from the merged histograms; without bins they are given only where there is a single distribution. Total and
completion latency are never mixed. Reads and writes have their own metrics besides those of all I/Os. The jobs of a
result are assumed to have run at the same time; `phases_of` finds out which of them did. Jobs of one reporting group
run together and are one workload. A `stonewall` in a job file begins a new group, whose jobs run after the others, so
their rates must not be added.
"""

import json
import math
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Literal

from virtune.fio.options import facts_of, shown, size_of
from virtune.fio.results_text import agreed
from virtune.model.errors import ReadError
from virtune.model.evidence import IMPORTED
from virtune.model.measurement import FioResult, Histogram, Latency, LoadResult, Measurement, Stream, merge
from virtune.model.metric import DIRECTIONS, METRICS, Distribution
from virtune.model.remark import Remark, remark_of
from virtune.model.stack import Stack
from virtune.model.text import format_bytes, format_count
from virtune.model.workload import Job, Workload, name_of_disk

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
    seconds = result.seconds
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
    streams = result.streams
    if not streams:
        return Measurement(values=())
    exact = result.source != "text"
    # of all jobs' flushes; none unless every job that flushed has bins
    kinds = [load.sync for load in result.loads if load.sync is not None]
    bins = [kind.histogram for kind in kinds if kind.histogram is not None]
    flushes = merge(bins) if bins and len(bins) == len(kinds) else None
    by_direction = {one: [stream for stream in streams if stream.direction == one] for one in DIRECTIONS}
    values: list[tuple[str, float | None]] = [
        *_of_streams(streams, "", exact=exact),
        *(value for one, mine in by_direction.items() for value in _of_streams(mine, f"{one}.", exact=exact)),
        ("slat.mean", _mean(streams, "slat")),
        ("sync.mean", _weighted((load.sync.mean_ns, load.sync.count) for load in result.loads if load.sync)),
        *_percentiles("sync", flushes, kinds[0] if len(kinds) == 1 else None),
        *extreme_values(streams),
        *load_values(result),
        ("cpu.load.usr", _cpu(result.loads, "usr_percent")),
        ("cpu.load.sys", _cpu(result.loads, "sys_percent")),
    ]
    measured = {name: value for name, value in values if value is not None}
    mixed = all(by_direction.values())
    return Measurement(
        values=tuple((metric.id, measured[metric.id]) for metric in METRICS if metric.id in measured),
        histogram=_merged(streams, "lat"),
        flushes=flushes,
        others=tuple(_others(streams, *(by_direction.values() if mixed else ((), ())))),
    )


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
    shortest = sorted(map(_seconds, groups.values()))[:2]
    if len(groups) < 2 or (result.elapsed is not None and 0 < result.elapsed < sum(shortest)):
        return (result,)
    parts: list[list[LoadResult]] = []
    for loads in groups.values():
        beside = next((part for part in parts if _overlap(part, loads)), None)
        if beside is None:
            parts.append(list(loads))
        else:
            beside += loads
    return tuple(replace(result, loads=tuple(part)) for part in parts)


def _overlap(one: Sequence[LoadResult], other: Sequence[LoadResult]) -> bool:
    """Whether two groups ran at the same time for as long as half of the shorter one."""
    begins = [[load.began for load in loads if load.began is not None] for loads in (one, other)]
    if not all(begins):
        return False
    spans = [(min(begin), min(begin) + _seconds(loads)) for begin, loads in zip(begins, (one, other), strict=True)]
    shared = min(end for _, end in spans) - max(begin for begin, _ in spans)
    return shared > min(end - begin for begin, end in spans) / 2


def _seconds(loads: Sequence[LoadResult]) -> float:
    return max((load.seconds for load in loads), default=0.0)


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
    latencies: list[Latency | None] = [getattr(stream, kind) for stream in streams]
    histograms = [latency.histogram for latency in latencies if latency and latency.histogram]
    return merge(histograms) if histograms and len(histograms) == len(streams) else None


def _of_streams(streams: Sequence[Stream], prefix: str, *, exact: bool) -> Values:
    """Yield rates, means and percentiles of these streams; without bins only those printed for a single one. `exact`:
    the source does not round latencies, so that they can be counted.
    """
    if not streams:
        return
    yield f"{prefix}iops", math.fsum(stream.completions if exact else stream.iops for stream in streams)
    yield f"{prefix}bandwidth", math.fsum(stream.bandwidth_bps for stream in streams)
    for kind, name in _NAMES:
        yield f"{prefix}{name}.mean", _mean(streams, kind)
        alone = getattr(streams[0], kind) if len(streams) == 1 else None
        yield from _percentiles(f"{prefix}{name}", _merged(streams, kind), alone)


def _percentiles(of: str, merged: Histogram | None, alone: Latency | None) -> Values:
    """Yield the percentiles of a distribution: from the merged bins, or as they were printed where there is one."""
    found = merged or alone
    wanted = [(one.id, one.percent) for one in METRICS if one.percent is not None and one.of == of]
    yield from () if found is None else ((name, found.percentile(percent)) for name, percent in wanted)


def _mean(streams: Sequence[Stream], kind: Kind | Literal["slat"]) -> float | None:
    """The mean over all I/Os; None when one direction lacks this kind of latency."""
    found: list[tuple[Latency | None, int | None]] = [(getattr(stream, kind), stream.ios) for stream in streams]
    known = [(latency.mean_ns, latency.count or ios) for latency, ios in found if latency is not None]
    return _weighted(known) if len(known) == len(found) else None


def _cpu(loads: Sequence[LoadResult], share: Literal["usr_percent", "sys_percent"]) -> float | None:
    """The mean over all jobs, in % of one CPU; None when it is missing for one of them."""
    known = [(value, load.jobs) for load in loads if (value := getattr(load, share)) is not None]
    return _weighted(known) if len(known) == len(loads) else None


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
    yield remark_of(
        "unlike-disks",
        text=f"disk {least} did {format_count(each[least])} operations a second and disk {most}"
        f" {format_count(each[most])}",
        advice=f"the figures are those of all disks together; `--metric disk.{least}.iops` is one of them",
    )


ZERO_IS_UNSET = frozenset({"fsync", "fdatasync", "sync", "thinktime", "rate", "rate_iops"})
"""Options for which 0 is the same as unset."""

SHAPING = (
    "rwmixread", "rwmixwrite", "bssplit", "bsrange", "blockalign", "percentage_random", "random_distribution",
    "rate", "rate_iops", "thinktime", "fsync", "fdatasync", "sync", "zonemode",
)  # fmt: skip
"""Options besides rw, bs, iodepth and numjobs that describe the load on the disk."""

_MIXED = frozenset({"rw", "readwrite", "randrw"})
_BOOKKEEPING = ("write_", "log_", "name", "description", "group_reporting", "output", "stonewall", "new_group")
_SHAPE = frozenset({"rw", "bs", "iodepth", "numjobs", *SHAPING})
_LONGEST_NAME = 60

Shape = tuple[Mapping[str, str | None], ...]
"""The load of each job: the value of each option, "" if unset, None if the source does not say."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Part:
    """The jobs of a result that ran together.

    `options` are their common options besides the shape; empty where nothing is echoed.
    """

    group: int | None
    name: str
    shape: Shape
    jobs: tuple[str, ...]
    options: Mapping[str, str]


def parts_of(result: FioResult) -> tuple[Part, ...]:
    """Split a result into the parts that ran together, in fio's order."""
    groups: dict[int | None, list[LoadResult]] = {}
    for load in result.loads:
        groups.setdefault(load.group, []).append(load)
    return tuple(_part(group, loads) for group, loads in groups.items())


def meant_of(result: FioResult, captures: Mapping[str, bytes]) -> FioResult:
    """Return the part of a result that belongs to a trial: all of it, or the reporting group that its capture names.

    Raises ReadError when that capture is damaged, or names a missing group.
    """
    if IMPORTED not in captures:
        return result
    try:
        group = json.loads(captures[IMPORTED])["group"]
    except (ValueError, KeyError, TypeError, RecursionError):
        raise ReadError(f"the capture {IMPORTED} is damaged") from None
    loads = tuple(load for load in result.loads if load.group == group)
    if not loads:
        raise ReadError(f"the result has no reporting group {group}")
    return replace(result, loads=loads)


def shape_of(workload: Workload, *, complete: bool) -> Shape:
    """Return the load of a stored workload. In an imported one an unset option is unknown (`complete` is False); in
    one of our own it has fio's default.
    """
    if complete:
        found = [(job.as_dict(), facts_of(job.as_dict())) for job in workload]
        return tuple(_asked(options, facts.depth * facts.jobs, str(facts.jobs)) for options, facts in found)
    return tuple({name: job.as_dict().get(name) for name in sorted(_SHAPE)} for job in workload)


def differing(one: Shape, other: Shape) -> list[tuple[str, str, str]]:
    """Return the options in which two shapes differ, with both values. An option unknown in either is not a
    difference.
    """
    if len(one) != len(other):
        return [("jobs", str(len(one)), str(len(other)))]
    found: dict[str, tuple[str, str]] = {}
    for mine, theirs in zip(one, other, strict=True):
        for name in mine.keys() & theirs.keys():
            a, b = mine[name], theirs[name]
            if a is not None and b is not None and a != b:
                found.setdefault(name, (a or "not shown", b or "not set"))
    return [(name, *values) for name, values in sorted(found.items())]


UNLIKE_MIX = 0.05
"""Loads of which the shares of reads, or the sizes of requests, differ by more than this are not the same."""


def done_otherwise(one: Measurement | None, other: Measurement | None) -> Iterator[tuple[str, str, str]]:
    """Yield what two runs did not do alike, with both values: programs of different makers do not say in one language
    what they were asked for, and some do not say it at all.
    """
    mine, theirs = ({} if run is None else dict(run.values) for run in (one, other))
    if not mine.get("iops") or not theirs.get("iops"):
        return
    shares = [values.get("read.iops", 0.0) / values["iops"] for values in (mine, theirs)]
    split = [{"read.iops", "write.iops"} & values.keys() for values in (mine, theirs)]
    if all(split) and abs(shares[0] - shares[1]) > UNLIKE_MIX:
        yield "reads", f"{shares[0]:.0%}", f"{shares[1]:.0%}"
    sizes = [values.get("bandwidth", 0.0) / values["iops"] for values in (mine, theirs)]
    if min(sizes) > 0 and max(sizes) > min(sizes) * (1 + UNLIKE_MIX):
        yield "size of a request", format_bytes(sizes[0]), format_bytes(sizes[1])


def workload_of(part: Part, name: str, common: Mapping[str, str]) -> Workload:
    """Make a Workload of that name; `common` are options besides the shape that all its runs share."""
    jobs = tuple(
        Job(
            name=job.replace(" ", "_") or "job",
            options=(*((key, value) for key, value in shape.items() if value), *common.items()),
        )
        for job, shape in zip(part.jobs, part.shape, strict=True)
    )
    return Workload(name=name, meaning=" + ".join(_meaning(shape) for shape in part.shape), jobs=jobs)


def slug_of(shape: Shape) -> str:
    """Write a shape as a part of a name: `randread-4k-qd8`, followed by further options."""
    return "+".join(_slug(asked) for asked in shape)


def _part(group: int | None, loads: Sequence[LoadResult]) -> Part:
    named: dict[str, list[LoadResult]] = {}
    for load in loads:
        named.setdefault(load.name, []).append(load)
    told = [dict(load.options) for load in loads if load.options is not None]
    beside = [
        {
            key: shown(value)
            for key, value in options.items()
            if key not in _SHAPE and not key.startswith(_BOOKKEEPING)
        }
        for options in told
    ]
    same = {
        shown(key): value
        for key, value in (beside[0] if len(beside) == len(loads) else {}).items()
        if all(options.get(key) == value for options in beside)
    }
    engine, direct = agreed(load.engine for load in loads), agreed(load.direct for load in loads)
    for name, known in (("ioengine", engine), ("direct", None if direct is None else str(int(direct)))):
        if known is not None and name not in same:
            same[name] = known
    return Part(
        group=group,
        name="+".join(named)[:_LONGEST_NAME],
        shape=tuple(_shape(clones) for clones in named.values()),
        jobs=tuple(named),
        options=same,
    )


def _shape(clones: Sequence[LoadResult]) -> Mapping[str, str | None]:
    """Return the combined load of a job's clones; clones that are reported one by one are added."""
    first = clones[0]
    jobs = sum(load.jobs for load in clones)
    depths = [load.depth for load in clones]
    depth = None if any(depth is None for depth in depths) else sum(depth or 0 for depth in depths)
    if first.options is not None and first.pattern is not None:
        return _asked(dict(first.options), depth, str(jobs))
    known: dict[str, str | None] = dict.fromkeys(_SHAPE)
    known["rw"], known["numjobs"] = first.pattern, str(jobs)
    known["bs"] = None if first.block_size is None else str(first.block_size)
    known["iodepth"] = None if depth is None else str(max(1, depth // jobs))
    rates = [load.rate_asked_iops for load in clones]
    known["rate_iops"] = f"{math.fsum(rate or 0 for rate in rates) / jobs:g}" if all(rates) else None
    return known


def _asked(options: Mapping[str, str], depth: int | None, jobs: str) -> Mapping[str, str | None]:
    facts = facts_of(options)
    bs = options.get("bs", "4k").lower()
    pattern = facts.pattern
    count = int(jobs) if jobs.isascii() and jobs.isdigit() and 0 < len(jobs) < 8 else 1
    asked: dict[str, str | None] = {
        "rw": shown(options.get("rw", "read")),
        "bs": shown(bs) if "," in bs or "-" in bs or facts.block_size is None else str(facts.block_size),
        "iodepth": None if depth is None else str(max(1, depth // max(1, count))),
        "numjobs": str(count),
    }
    for name in SHAPING:
        value = shown(options.get(name, "")).lower()
        if (name in ZERO_IS_UNSET and value == "0") or (name.startswith("rwmix") and pattern not in _MIXED):
            value = ""
        asked[name] = value
    return asked


def _slug(asked: Mapping[str, str | None]) -> str:
    words = [(asked["rw"] or "").replace(":", "_"), _short_size(asked["bs"])]
    words += [f"qd{asked['iodepth']}"] if asked["iodepth"] else []
    words += [f"j{asked['numjobs']}"] if asked["numjobs"] not in (None, "1") else []
    words += [f"{name}_{asked[name]}" for name in SHAPING if asked.get(name)]
    return "-".join(word for word in words if word)


def _short_size(text: str | None) -> str:
    size = size_of(text) if text and text.isdigit() else None
    for power, letter in ((1024**2, "m"), (1024, "k")):
        if size and size % power == 0:
            return f"{size // power}{letter}"
    return (text or "").replace(",", "_")


def _meaning(asked: Mapping[str, str | None]) -> str:
    """Describe the load of one job, as far as it is known."""
    size = asked["bs"]
    words = [asked["rw"] or "", format_bytes(int(size)) if size and size.isdigit() else size or ""]
    depth, jobs = asked["iodepth"], asked["numjobs"]
    words += [f"{int(depth) * int(jobs or 1)} in flight"] if depth else []
    words += [f"{jobs} jobs"] if jobs not in (None, "1") else []
    words += [f"{name}={asked[name]}" for name in SHAPING if asked.get(name)]
    return ", ".join(word for word in words if word)
