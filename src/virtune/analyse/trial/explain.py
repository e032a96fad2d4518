# SPDX-License-Identifier: Apache-2.0
"""Explain a fio result in words: the interpretation rules, and what two results with one run each show.

A rule is a small function whose docstring is its documentation. It reports only figures that are present, and names
them. Rules of a load run once for each job group, rules of the result once.

What follows from the figures themselves is checked, with room for fio's rounding: a bin of its histogram is 1.6 %
wide, and its text is rounded to the unit that is printed. Larger contradictions of rates are refused when a result is
read (`fio.consistency`).
"""

import itertools
import math
import re
from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace

from virtune.analyse.trial.gates import (
    SPREAD_FACTOR,
    cut_short,
    depth_ignored,
    depth_in_submission,
    depth_not_filled,
    ended_before,
    errors,
    flush_ns,
    in_submission,
    little,
    no_io,
    rate_unmet,
    relative_spread,
    saturated_cpu,
    short_ios,
    short_run,
    spent_ns,
    spread,
)
from virtune.analyse.trial.measure import phases_of
from virtune.fio.consistency import contradictions
from virtune.fio.options import SYNCHRONOUS, verifies_after
from virtune.model.measurement import FioResult, Latency, LoadResult, Stream
from virtune.model.remark import GATE_BY_ID, Remark, Weight, remark_of
from virtune.model.text import format_bandwidth, format_bytes, format_count, format_ns, format_seconds, format_share
from virtune.model.workload import READING

CACHEABLE = SYNCHRONOUS - {"dev-dax", "libpmem"} | {"libaio", "posixaio", "io_uring"}
"""Engines that open files or block devices through the kernel, so that `direct=` decides about the page cache."""

NO_DEVICE_NS = 2_000
"""No block device completes an I/O in 2 us: the request, its transfer over PCIe and the interrupt take longer than
that on the quickest drives, which need 5 us and more. Anything faster was copied from memory (or never submitted)."""

SERVED_SHARE = 0.5
"""If the device saw less than this share of fio's I/Os, most were served by something else. fio's device counters
miss up to half a second of a run, hence the wide margin and COUNTED_SECONDS."""

WRITTEN_SHARE = 0.8
"""From this share of fio's bytes on, the device kept up with the page cache; the rest was not yet written back."""

ONE_REQUEST = 64 * 1024
"""Up to so many bytes an I/O is one request to any disk; larger ones may be divided."""

COUNTED_SECONDS = 2.0
"""fio reads the device counters every 250 ms; in shorter runs what it misses is too large a share."""


def page_cache(result: FioResult) -> Iterator[Remark]:
    """Judge by `page-cache`."""
    loads = [load for load in result.loads if load.engine is None or load.engine in CACHEABLE]
    if len(loads) < len(result.loads) or not any(load.streams for load in loads):
        return
    served, moved = _served(result), _moved(result)
    share = None if served is None else served[0] / served[1]
    signs = [*_too_fast(loads)]
    if served is not None and share is not None and share < SERVED_SHARE:
        did, asked = served
        signs.append(f"of fio's {asked:,} I/Os, {_names(result)} saw {did:,} requests ({format_share(share, 1)})")
    # whose writes are not made durable: by fsync, or by opening with O_SYNC
    lazy = [load for load in loads if load.sync is None and load.option("sync") in (None, "0", "none")]
    buffered = [load for load in lazy if load.direct is False]
    if signs and all(load.direct for load in loads):
        yield remark_of(
            "unserved",
            text=f"No disk answered these I/Os, although direct=1 was set: {'; '.join(signs)}. Blocks that were never"
            " written are answered without asking the device, and some file systems ignore O_DIRECT.",
        )
    elif signs and moved is not None and moved[0] >= WRITTEN_SHARE:
        yield _kept_up(result, [*map(_how_buffered, buffered[:1]), *signs], *moved)
    elif signs or buffered:
        reached = "" if moved is None else _reached(_names(result), *moved)
        weight, text = _page_cache(buffered, signs, share, reached)
        advice = "run it again with direct=1, on a file that was written once in full"
        yield GATE_BY_ID["page-cache"].remark(weight=weight, text=text, advice=advice)


def _page_cache(
    buffered: list[LoadResult], signs: list[str], served: float | None, reached: str
) -> tuple[Weight, str]:
    how = [_how_buffered(load) for load in buffered[:1]]
    if signs:
        return Weight.INVALID, f"This measured the page cache, not the disk: {'; '.join([*how, *signs])}.{reached}"
    if served is not None and buffered[0].engine != "mmap":
        return Weight.WARNING, (
            f"The page cache stood between fio and the disk: {how[0]}. The device completed {format_share(served)} as"
            " many requests as fio, so the cache was mostly cold, but its work is in the numbers."
        )
    unknown = f" Nothing shows how many of its {sum(load.ios for load in buffered):,} I/Os reached a disk."
    return Weight.INVALID, f"This went through the page cache: {how[0]}.{reached or unknown}"


def _reached(names: str, share: float, request: float) -> str:
    """Say what share of fio's bytes the devices moved meanwhile, in requests of how many bytes."""
    return (
        f" Meanwhile {names} moved {format_share(share)} of as many bytes, those of its other users included, in"
        f" requests of {format_bytes(request)}."
    )


def _names(result: FioResult) -> str:
    return ", ".join(dict.fromkeys(device.name for device in result.devices))


def _moved(result: FioResult) -> tuple[float, float] | None:
    """The share of fio's bytes that the devices moved, and how large their requests were; None where not counted."""
    reading = any(stream.direction != "write" for stream in result.streams)
    writing = any(stream.direction != "read" for stream in result.streams)
    counted = [
        (size, requests)
        for device in result.devices
        for size, requests, on in (
            (device.read_bytes, device.reads, reading),
            (device.written_bytes, device.writes, writing),
        )
        if on
    ]
    asked = sum(stream.bytes or 0 for stream in result.streams)
    sizes = [size for size, _ in counted if size is not None]
    requests = sum(number for _, number in counted)
    if not asked or not requests or not sizes or len(sizes) < len(counted):
        return None
    return sum(sizes) / asked, sum(sizes) / requests


def _kept_up(result: FioResult, signs: list[str], share: float, request: float) -> Remark:
    return GATE_BY_ID["page-cache"].remark(
        weight=Weight.WARNING,
        text=f"The latencies and the operations a second are the page cache's: {'; '.join(signs)}. The bandwidth is"
        f" that of {_names(result)}, which moved {format_share(share)} of the bytes, in requests of"
        f" {format_bytes(request)}.",
        advice="compare bandwidth only; run it again with direct=1 for the latency of the disk",
    )


def _how_buffered(load: LoadResult) -> str:
    return "mmap always goes through it" if load.engine == "mmap" else "the job is buffered (direct=1 was not set)"


def _too_fast(loads: list[LoadResult]) -> Iterator[str]:
    for load in loads:
        for stream in load.streams:
            if stream.clat is not None and stream.clat.mean_ns < NO_DEVICE_NS:
                yield (
                    f"a {one(stream)} completes in {format_ns(stream.clat.mean_ns)} in the mean (clat), and no device"
                    f" does within {format_ns(NO_DEVICE_NS)}"
                )
                return


def _served(result: FioResult) -> tuple[int, int] | None:
    """How many requests the devices completed, and how many I/Os fio did; None if unknown.

    Requests are comparable for random I/O only: sequential I/O is merged and read ahead into larger ones.
    """
    patterns = [load.pattern or "" for load in result.loads]
    asked = sum(load.ios for load in result.loads)
    long_enough = all((stream.seconds or 0) >= COUNTED_SECONDS for stream in result.streams)
    if not result.devices or not asked or not long_enough or not all(p.startswith("rand") for p in patterns):
        return None
    directions = {stream.direction for stream in result.streams}
    reads = sum(device.reads + (device.read_merges or 0) for device in result.devices)
    writes = sum(device.writes + (device.write_merges or 0) for device in result.devices)
    both = "mixed" in directions
    done = (reads if both or "read" in directions else 0) + (writes if both or directions - {"read"} else 0)
    return done, asked


def cached_sync(result: FioResult) -> Iterator[Remark]:
    """Judge by `cached-sync`."""
    for load in result.loads:
        writes = [stream for stream in load.streams if stream.direction == "write" and stream.clat is not None]
        if load.direct is not False or load.sync is None or not load.sync.count or not writes:
            continue
        clat = writes[0].clat
        if clat is not None and writes[0].ios:
            yield remark_of(
                "cached-sync",
                text=f"The write latency ({format_ns(clat.mean_ns)} mean) is the page cache's: the job is buffered."
                f" The disk is in the sync, {format_ns(load.sync.mean_ns)} mean, one for every"
                f" {writes[0].ios / load.sync.count:.3g} writes.",
            )


def one(stream: Stream) -> str:
    """Return the word for one operation of a stream."""
    return "request" if stream.direction == "mixed" else stream.direction


BUSY = 95.0

SOME_USE = 5.0
"""Below this nobody reads a device's use as anything."""

MOSTLY, SOME_TIME = 0.5, 0.1
ENOUGH_BEYOND = 100
"""A percentile with fewer I/Os beyond it depends on a handful of outliers."""

ENOUGH_FOR_JITTER = 1_000
"""With fewer I/Os, p99 rests on fewer than ten of them."""

SAME_REQUESTS = 0.05
"""Device and fio times are only comparable when both count the same requests, up to some that fio misses at both
ends.
"""


def latency_parts(load: LoadResult) -> Iterator[Remark]:
    """Judge by `latency-parts`."""
    slat, clat, ios = spent_ns(load.streams, "slat"), spent_ns(load.streams, "clat"), load.ios
    if not load.streams or slat is None or clat is None:
        return
    if (flushing(load) or 0.0) > SOME_TIME and flushes_inline(load):
        return  # what was in flight waited for flushes, which is in clat: `sync-share` says so
    share = slat / (slat + clat) if slat + clat else 0.0
    submitted = f"submission (slat) {format_ns(slat / ios)}, {format_share(share, 1)}"
    parts = f"{submitted}; completion (clat) {format_ns(clat / ios)}"
    busy = in_submission(load) or 0.0
    if share > MOSTLY:
        text = f"Most of the latency passes in the submission call: {parts}. The call itself does the work, or waits."
    elif busy > MOSTLY:
        text = (
            f"An I/O mostly waits: {parts}. But each job spent {format_share(busy)} of its time in submission calls,"
            " so its CPU is close to being the limit."
        )
    else:
        text = f"The latency is waiting, not submitting: {parts}. The time goes below the system call."
    yield remark_of("latency-parts", text=text)


def jitter(load: LoadResult) -> Iterator[Remark]:
    """Judge by `jitter`."""
    for stream in load.streams:
        printed = [
            kind for kind in (stream.lat, stream.clat) if kind is not None and (kind.percentiles or kind.histogram)
        ]
        if not printed or (stream.ios or 0) < ENOUGH_FOR_JITTER:
            continue
        p50, p95, p99 = (printed[0].percentile(percent) for percent in (50.0, 95.0, 99.0))
        if p50 and p95 and p99:
            yield remark_of(
                "jitter",
                text=f"Half of all {one(stream)}s complete within {format_ns(p50)} (p50): the usual answer. One in 20"
                f" takes more than {format_ns(p95)} (p95, {p95 / p50:.1f} times that), one in 100 more than"
                f" {format_ns(p99)} (p99, {p99 / p50:.1f} times): the jitter.",
            )


def tail_unresolved(load: LoadResult) -> Iterator[Remark]:
    """Judge by `tail-unresolved`."""
    for stream in load.streams:
        shown = [percent for percent in (99.0, 99.9) if _shows(stream.lat, percent) or _shows(stream.clat, percent)]
        weak = [percent for percent in shown if stream.ios and stream.ios * (100 - percent) / 100 < ENOUGH_BEYOND]
        if weak and stream.ios:
            beyond = stream.ios * (100 - weak[0]) / 100
            yield remark_of(
                "tail-unresolved",
                text=f"Of {stream.ios:,} {one(stream)}s, about {beyond:.2g} lie beyond p{weak[0]:g}: too few (below"
                f" {ENOUGH_BEYOND}) for {' and '.join(f'p{p:g}' for p in weak)} to be compared between runs.",
            )


def _shows(latency: Latency | None, percent: float) -> bool:
    return latency is not None and latency.percentile(percent) is not None


def sync_share(load: LoadResult) -> Iterator[Remark]:
    """Judge by `sync-share`."""
    share = flushing(load)
    if share is None or load.sync is None:
        return
    beside = ""
    if flushes_inline(load):
        beside = " What was in flight meanwhile is seen to be done only after it, so it is in those latencies too."
    elif load.engine in SYNCHRONOUS or load.depth == load.jobs:
        beside = " It is not in the latencies of the writes."
    took = flush_ns(load)
    if took < load.sync.mean_ns:
        beside += f" fio's libaio counts each from when the write before was sent: {format_ns(load.sync.mean_ns)}."
    most = "up to " if flushes_inline(load) else ""  # it counts from when some I/O before was sent
    yield remark_of(
        "sync-share",
        text=f"A flush was under way for {most}{format_share(share)} of the time: {load.sync.count:,} fsyncs at"
        f" {most}{format_ns(took)} mean.{beside}",
    )


def flushes_inline(load: LoadResult) -> bool:
    """Whether a job with several I/Os in flight waits in the call that flushes, as fio does with libaio: io_uring and
    posixaio flush beside other I/Os, whose latencies are no longer for it.
    """
    return load.engine == "libaio" and (load.depth or 1) > load.jobs


def flushing(load: LoadResult) -> float | None:
    """The share of the jobs' time in which one flushed, at most 1; None where nothing was flushed."""
    if load.sync is None or not load.sync.count or not load.seconds:
        return None
    return min(1.0, flush_ns(load) * load.sync.count / 1e9 / load.seconds / load.jobs)


def kernel_cpu(load: LoadResult) -> Iterator[Remark]:
    """Judge by `kernel-cpu`."""
    usr, system = load.usr_percent, load.sys_percent
    if usr is None or system is None or system <= usr or system < 5 or not load.iops:
        return
    per_io = system / 100 * load.jobs / load.iops * 1e9
    yield remark_of(
        "kernel-cpu",
        text=f"The CPU time is the kernel's: sys {system:.4g} %, usr {usr:.4g} % of a CPU a job; {format_ns(per_io)}"
        " of sys per I/O. sys may rise while latency falls, because more I/Os are done: compare CPU per I/O.",
    )


def device_busy(result: FioResult) -> Iterator[Remark]:
    """Judge by `device-busy`."""
    for device in result.devices:
        if device.busy_percent >= BUSY:
            yield remark_of(
                "device-busy",
                text=f"{device.name} was busy {device.busy_percent:.4g} % of the time: it nearly always had a"
                " request. A device with several queues may still take more at once, so this does not prove"
                " saturation.",
            )
        elif device.busy_percent >= SOME_USE:
            yield remark_of(
                "device-busy",
                text=f"{device.name} was busy {device.busy_percent:.4g} % of the time: that is no measure of what is"
                " left. The rest is time in which nothing was asked of it, and a device with several queues takes"
                " more at once; `virtune sweep` shows where it ends.",
            )


def device_others(result: FioResult) -> Iterator[Remark]:
    """Judge by `device-others`."""
    # by reads, as a write may become several; only where a read is one request, and both count all of them
    loads, ios = result.loads, sum(load.ios for load in result.loads)
    small = all((stream.bytes or 0) <= ONE_REQUEST * (stream.ios or 0) for stream in result.streams)
    before = any(load.option("ramp_time") or verifies_after(dict(load.options or ())) for load in loads)
    if not ios or not small or before or any(load.direct is False or load.engine not in CACHEABLE for load in loads):
        return
    own = sum(stream.ios or 0 for stream in result.streams if stream.direction in {"read", "mixed"})
    device = max(result.devices, key=lambda one: one.reads, default=None)
    if device is not None and device.reads - own > ios:
        yield remark_of(
            "device-others",
            text=f"{device.name} completed {device.reads:,} reads, and fio's jobs did {own:,}: others read from it"
            " meanwhile, so its busy time and these latencies are of theirs too.",
            advice="measure while nobody else uses the disk",
        )


def unequal_times(result: FioResult) -> Iterator[Remark]:
    """Judge by `unequal-times`."""
    for part in phases_of(result):
        ran = [load.seconds for load in part.loads if load.seconds]
        if not ran or not ended_before(min(ran), max(ran)):
            continue
        least, most, loads = format_seconds(min(ran)), format_seconds(max(ran)), part.loads
        summed, whole = math.fsum(load.iops for load in loads), sum(load.ios for load in loads) / max(ran)
        yield remark_of(
            "unequal-times",
            text=f"Jobs that began together ran for {least} to {most}. Each rate is of its own time, so their sum,"
            f" {format_count(summed)} IOPS, held only while all of them ran: over the whole {most} it was"
            f" {format_count(whole)}.",
        )


def device_share(result: FioResult) -> Iterator[Remark]:
    """Judge by `device-share`."""
    through_cache = any(load.direct is False for load in result.loads)
    trims = any(stream.direction == "trim" for stream in result.streams)
    spent = spent_ns(result.streams, "lat")
    if len(result.devices) != 1 or through_cache or trims or spent is None:
        return
    device = result.devices[0]
    ios = sum(load.ios for load in result.loads)
    requests, ticks = device.reads + device.writes, (device.read_seconds or 0) + (device.write_seconds or 0)
    if not ios or abs(requests / ios - 1) > SAME_REQUESTS or ticks <= 0:
        return
    theirs = ticks / requests * 1e9
    mine = spent / ios
    if theirs <= mine:
        yield remark_of(
            "device-share",
            text=f"Of {format_ns(mine)} mean latency, {format_ns(theirs)} ({format_share(theirs / mine)}) passed at"
            f" {device.name} and the rest above it, in this kernel and in fio.",
        )


_NAMED = {"read": re.compile(r"(?i)(?<!th)read"), "write": re.compile(r"(?i)writ")}
"""What a job's name says that it does; a `thread` says nothing."""


def misnamed(load: LoadResult) -> Iterator[Remark]:
    """Judge by `misnamed`."""
    done, count = {stream.direction for stream in load.streams}, load.ios
    for called, other in (("read", "write"), ("write", "read")):
        if done == {other} and _NAMED[called].search(load.name) and not _NAMED[other].search(load.name):
            yield remark_of(
                "misnamed",
                text=f"The job is called `{load.name}`, and it did {count:,} {other}s and no {called}.",
                advice=f"what was measured is what fio did: {other}s",
            )


TOLERANCE = 0.05
"""Of a latency: three bins of fio's histogram."""

RATE_TOLERANCE = 0.10
"""Of a rate and of bytes: I/Os in flight at the ends of a short run, and fio's rounding in text."""

IOS_ENOUGH = 1000
"""With fewer I/Os those at the ends of the run are more than that."""

BINS_END_NS = 17e9
"""The last bin of fio's histogram: a percentile there may be any latency above it."""


def contradicting(load: LoadResult) -> Iterator[Remark]:
    """Judge by `contradiction`."""
    for stream in load.streams:
        found = itertools.chain(_latencies(stream), _rates(load, stream))  # one of a direction is enough
        if (said := next(found, None)) is not None:
            text = f"The figures of {stream.direction} contradict each other: {said}."
            yield remark_of("contradiction", weight=Weight.WARNING, text=text)
    # a run that somebody stopped is shorter than asked for; what Little's law says of a depth is said by `little`
    options = {name: value for name, value in load.options or () if name not in ("runtime", "number_ios")}
    for one in contradictions(load, options, jobs=load.jobs) if options and not load.error else ():
        if one.option != "bs" and "Little" not in one.proof:
            text = f"{one.option}={one.asked} stands in the job, and the figures say {one.found}: {one.proof}."
            yield remark_of("contradiction", weight=Weight.WARNING, text=text)


def _latencies(stream: Stream) -> Iterator[str]:
    for name, kind in (("slat", stream.slat), ("clat", stream.clat), ("lat", stream.lat)):
        if kind is not None:
            yield from (f"{name}: {said}" for said in _latency(kind))


def _latency(kind: Latency) -> Iterator[str]:
    rows = sorted(kind.percentiles)
    known = [value for value in (kind.min_ns, kind.max_ns, *(value for _, value in rows)) if value]
    # the unit that latencies were rounded to: a thousand, if all are multiples of it
    room = next((unit for unit in (1e6, 1e3) if known and all(value % unit == 0 for value in known)), 1.0)
    mean, low, high = kind.mean_ns, kind.min_ns, kind.max_ns
    if low is not None and _above(low, mean, room):
        yield f"the least is {format_ns(low)}, and the mean {format_ns(mean)}"
    if high is not None and _above(mean, high, room):
        yield f"the mean is {format_ns(mean)}, and the greatest {format_ns(high)}"
    for (one, value), (other, less) in itertools.pairwise(rows):
        if _above(value, less, room):
            yield f"p{one:g} is {format_ns(value)}, and p{other:g} {format_ns(less)}"
    if rows and high is not None and _above(min(rows[-1][1], BINS_END_NS), high, room):
        yield f"p{rows[-1][0]:g} is {format_ns(rows[-1][1])}, and the greatest {format_ns(high)}"
    if rows and low is not None and _above(low, rows[0][1], room):
        yield f"the least is {format_ns(low)}, and p{rows[0][0]:g} {format_ns(rows[0][1])}"
    least, most = _bounds(rows, low or 0.0, high)
    if rows and (_above(mean, most, room) or _above(least, mean, room)):
        yield f"the mean is {format_ns(mean)}, and its percentiles allow {format_ns(least)} to {format_ns(most)}"


def _bounds(rows: Sequence[tuple[float, float]], low: float, high: float | None) -> tuple[float, float]:
    """What a mean can be: each latency between two percentiles is at least the one and at most the other."""
    points = [(0.0, low), *((percent / 100, value) for percent, value in rows)]
    top = math.inf if high is None else high
    ends = [value if value < BINS_END_NS else top for _, value in points[1:]]
    shares = [after - before for (before, _), (after, _) in itertools.pairwise(points)]
    rest = 1 - points[-1][0]
    least = math.fsum(share * value for share, (_, value) in zip([*shares, rest], points, strict=True))
    most = math.fsum(share * value for share, value in zip(shares, ends, strict=True) if share)
    return least, most + (rest * top if rest > 0 else 0)


def _above(more: float, less: float, room: float) -> bool:
    return more > less * (1 + TOLERANCE) + room


def _rates(load: LoadResult, stream: Stream) -> Iterator[str]:
    ios, size = stream.ios, load.block_size
    if not ios or ios < IOS_ENOUGH:
        return
    if stream.iops and stream.seconds and _differ(stream.iops * stream.seconds, ios):
        made = stream.iops * stream.seconds
        yield f"{format_count(stream.iops)} IOPS for {stream.seconds:g} s are {made:,.0f} I/Os, and it counts {ios:,}"
    whole = stream.direction in ("read", "write") and not (stream.short_ios or stream.dropped_ios)
    if size and stream.bytes and whole and _differ(stream.bytes, ios * size):
        yield f"{ios:,} I/Os of {format_bytes(size)} are {format_bytes(ios * size)}, not {format_bytes(stream.bytes)}"
    made = (stream.bandwidth_bps or 0) * (stream.seconds or 0)
    if made and stream.bytes and _differ(made, stream.bytes):
        rate = f"{format_bandwidth(stream.bandwidth_bps or 0)} for {stream.seconds:g} s"
        yield f"{rate} are {format_bytes(made)}, and it counts {format_bytes(stream.bytes)}"


def _differ(one: float, other: float) -> bool:
    return max(one, other) > min(one, other) * (1 + RATE_TOLERANCE)


LoadRule = Callable[[LoadResult], Iterator[Remark]]
ResultRule = Callable[[FioResult], Iterator[Remark]]

RESULT_RULES: tuple[ResultRule, ...] = (
    page_cache, cached_sync, unequal_times, device_others, device_busy, device_share,
)  # fmt: skip

LOAD_RULES: tuple[LoadRule, ...] = (
    no_io, errors, contradicting, short_ios, cut_short, depth_ignored, depth_not_filled, depth_in_submission, little,
    rate_unmet, spread, short_run, saturated_cpu, latency_parts, jitter, tail_unresolved, sync_share, kernel_cpu,
    misnamed,
)  # fmt: skip


def explain(result: FioResult, *, parts: int = 1) -> tuple[Remark, ...]:
    """Return the remarks on a result: invalid first, then warnings, then notes.

    `parts` is the number of its parts that are not known to have run at the same time.
    """
    remarks = [remark for rule in RESULT_RULES for remark in rule(result)]
    if parts > 1:
        how = "belong to several reporting groups, which fio does not add either"
        if all(load.began is not None for load in result.loads):
            how = "ran one after another"
        remarks.append(
            remark_of(
                "not-added",
                weight=Weight.NOTE,
                text=f"These jobs {how}. Their figures stand side by side and have no sum.",
            )
        )
    verifying = [load for load in result.loads if verifies_after(dict(load.options or ()))]
    for name, mixed in sorted({(load.name, load.pattern in READING) for load in verifying}):
        then = "and fio counts them with those of the load" if mixed else "so they are in none of these figures"
        weight = Weight.WARNING if mixed else Weight.NOTE
        text = f"`{name}`: the reads of verify= ran after the writes, {then}."
        remarks.append(remark_of("not-added", weight=weight, text=text))
    # the clones of one job, reported one by one, share a name; a remark on several of them is given once
    named: dict[str, list[LoadResult]] = {}
    for load in result.loads:
        named.setdefault(load.name, []).append(load)
    for name, clones in named.items():
        remarks += _of_clones(clones, name=name if len(clones) < len(result.loads) else "")
    return tuple(sorted(remarks, key=lambda remark: remark.weight.rank))


def _of_clones(clones: list[LoadResult], *, name: str) -> Iterator[Remark]:
    for rule in LOAD_RULES:
        found = [remarks for load in clones if (remarks := list(rule(load)))]
        for remark in found[0] if found else []:
            who = f"`{name}`: " if name else ""
            like = f" (One of {len(found)} such jobs.)" if len(found) > 1 else ""
            yield replace(remark, text=f"{who}{remark.text}{like}")


def beside(first: FioResult, other: FioResult) -> Remark | None:
    """Judge by `one-run-each`."""
    iops = [math.fsum(load.iops for load in result.loads) for result in (first, other)]
    if min(iops) <= 0:
        return None
    apart = iops[1] / iops[0] - 1
    text = f"{format_count(iops[1])} IOPS against {format_count(iops[0])} is {format_share(apart, 1, signed=True)}"
    chances = [_chance(result) for result in (first, other)]
    if any(chance is None for chance in chances):
        text += ", by one run each: nothing here shows how far apart two runs of one and the same system would be."
        return remark_of("one-run-each", text=text)
    chance = math.hypot(*(chance or 0.0 for chance in chances))
    if abs(apart) <= chance:
        text += (
            ", by one run each. By their spread alone, two runs of one and the same system are up to"
            f" {format_share(chance, 1)} apart by chance: this shows no difference."
        )
    else:
        text += (
            f", by one run each. The spread within the runs explains up to {format_share(chance, 1)} of that; what"
            " changes between runs of one and the same system, one run each cannot show."
        )
    return remark_of("one-run-each", text=text)


def _chance(result: FioResult) -> float | None:
    """Half the relative 95 % interval of a run's IOPS from its samples; None unless it is one stream with samples."""
    streams = [(load, stream) for load in result.loads for stream in load.streams]
    if len(streams) != 1:
        return None
    spread = relative_spread(*streams[0])
    return None if spread is None else SPREAD_FACTOR * spread[0] / math.sqrt(spread[1])
