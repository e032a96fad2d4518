# SPDX-License-Identifier: Apache-2.0
"""Rules that explain a fio result: where the time goes, how even it is, what CPU and device figures mean."""

import math
import re
from collections.abc import Iterator

from virtune.analyse.trial.cache_rules import one
from virtune.analyse.trial.validity_rules import in_submission
from virtune.model.measurement import FioResult, Latency, LoadResult
from virtune.model.remark import Remark, Weight
from virtune.model.units import format_ns, format_share

BUSY = 95.0
MOSTLY = 0.5
ENOUGH_BEYOND = 100
"""A percentile with fewer I/Os beyond it depends on a handful of outliers."""

ENOUGH_FOR_JITTER = 1_000
"""With fewer I/Os, p99 rests on fewer than ten of them."""

SAME_REQUESTS = 0.05
"""Device and fio times are only comparable when both count the same requests, up to some that fio misses at both
ends.
"""


def latency_parts(load: LoadResult) -> Iterator[Remark]:
    """`latency-parts`: how the latency divides into submission (slat) and completion (clat).

    slat is the time of the submitting call. Growing slat means that submission blocks: buffered I/O, a
    full queue, no free request. clat is the time from submission to completion: everything below the system call.
    """
    if not load.streams or any(
        stream.slat is None or stream.clat is None or not stream.ios for stream in load.streams
    ):
        return
    slat = math.fsum(stream.slat.mean_ns * (stream.ios or 0) for stream in load.streams if stream.slat)
    clat = math.fsum(stream.clat.mean_ns * (stream.ios or 0) for stream in load.streams if stream.clat)
    ios = sum(stream.ios or 0 for stream in load.streams)
    share = slat / (slat + clat) if slat + clat else 0.0
    submitted = f"submission (slat) {format_ns(slat / ios)}, {format_share(share, 1)}"
    parts = f"{submitted}; completion (clat) {format_ns(clat / ios)}"
    busy = in_submission(load) or 0.0
    if share > MOSTLY:
        text = f"Most of the latency passes in the submission call: {parts}. The call itself does the work, or waits."
    elif busy > MOSTLY:
        text = (
            f"An I/O mostly waits: {parts}. But each job spent {format_share(busy)} of its time in submission"
            " calls, so its CPU"
            " is close to being the limit."
        )
    else:
        text = f"The latency is waiting, not submitting: {parts}. The time goes below the system call."
    yield Remark(id="latency-parts", weight=Weight.NOTE, text=text)


def not_added(result: FioResult, parts: int) -> Iterator[Remark]:
    """`not-added`: jobs that ran one after another have no sum; fio itself never adds reporting groups up."""
    if parts < 2:
        return
    known = all(load.began is not None for load in result.loads)
    how = "ran one after another" if known else "belong to several reporting groups, which fio does not add either"
    yield Remark(
        id="not-added",
        weight=Weight.NOTE,
        text=f"These jobs {how}. Their figures stand side by side and have no sum.",
    )


def jitter(load: LoadResult) -> Iterator[Remark]:
    """`jitter`: the median is the typical latency; p95 and p99 relative to it show how much latency varies."""
    for stream in load.streams:
        printed = [
            kind for kind in (stream.lat, stream.clat) if kind is not None and (kind.percentiles or kind.histogram)
        ]
        if not printed or (stream.ios or 0) < ENOUGH_FOR_JITTER:
            continue
        p50, p95, p99 = (printed[0].percentile(percent) for percent in (50.0, 95.0, 99.0))
        if p50 and p95 and p99:
            yield Remark(
                id="jitter",
                weight=Weight.NOTE,
                text=f"Half of all {one(stream)}s complete within {format_ns(p50)} (p50): the usual answer. One in 20"
                f" takes more than {format_ns(p95)} (p95, {p95 / p50:.1f} times that), one in 100 more than"
                f" {format_ns(p99)} (p99, {p99 / p50:.1f} times): the jitter.",
            )


def tail_unresolved(load: LoadResult) -> Iterator[Remark]:
    """`tail-unresolved`: a high percentile that rests on fewer than 100 I/Os beyond it."""
    for stream in load.streams:
        shown = [percent for percent in (99.0, 99.9) if _shows(stream.lat, percent) or _shows(stream.clat, percent)]
        weak = [percent for percent in shown if stream.ios and stream.ios * (100 - percent) / 100 < ENOUGH_BEYOND]
        if weak and stream.ios:
            beyond = stream.ios * (100 - weak[0]) / 100
            yield Remark(
                id="tail-unresolved",
                weight=Weight.NOTE,
                text=f"Of {stream.ios:,} {one(stream)}s, about {beyond:.2g} lie beyond p{weak[0]:g}: too few (below"
                f" {ENOUGH_BEYOND}) for {' and '.join(f'p{p:g}' for p in weak)} to be compared between runs.",
            )


def _shows(latency: Latency | None, percent: float) -> bool:
    return latency is not None and latency.percentile(percent) is not None


def sync_share(load: LoadResult) -> Iterator[Remark]:
    """`sync-share`: how much of the jobs' I/O time is fsync, whose latency is separate from that of the writes."""
    if (
        load.sync is None
        or not load.sync.count
        or any(stream.lat is None or not stream.ios for stream in load.streams)
    ):
        return
    syncing = load.sync.mean_ns * load.sync.count
    moving = math.fsum(stream.lat.mean_ns * (stream.ios or 0) for stream in load.streams if stream.lat)
    if syncing + moving:
        yield Remark(
            id="sync-share",
            weight=Weight.NOTE,
            text=f"{format_share(syncing / (syncing + moving))} of the I/O time is fsync: {load.sync.count:,}"
            " of them at"
            f" {format_ns(load.sync.mean_ns)} mean. It is not in the latencies of the writes.",
        )


def kernel_cpu(load: LoadResult) -> Iterator[Remark]:
    """`kernel-cpu`: sys above usr is the normal state of an I/O load, and more of it may come with less latency.

    sys is the kernel's part: system calls, copying, block layer, interrupts. It is charged by the second, so a stack
    that does more I/Os a second may show more sys while every single I/O got cheaper or quicker: compare CPU per I/O.
    """
    usr, system = load.usr_percent, load.sys_percent
    if usr is None or system is None or system <= usr or system < 5 or not load.iops:
        return
    per_io = system / 100 * load.jobs / load.iops * 1e9
    yield Remark(
        id="kernel-cpu",
        weight=Weight.NOTE,
        text=f"The CPU time is the kernel's: sys {system:.4g} %, usr {usr:.4g} % of a CPU a job;"
        f" {format_ns(per_io)} of"
        " sys per I/O. sys may rise while latency falls, because more I/Os are done: compare CPU per I/O.",
    )


def device_busy(result: FioResult) -> Iterator[Remark]:
    """`device-busy`: util near 100 % means "never idle", which is not "at its limit" on a device with many queues."""
    for device in result.devices:
        if device.busy_percent >= BUSY:
            yield Remark(
                id="device-busy",
                weight=Weight.NOTE,
                text=f"{device.name} was busy {device.busy_percent:.4g} % of the time: it nearly always had a"
                " request."
                " A device with several queues may still take more at once, so this does not prove saturation.",
            )


def device_share(result: FioResult) -> Iterator[Remark]:
    """`device-share`: the device's own mean time against fio's, when both counted the same requests.

    The rest is above the device as this kernel sees it: file system, queueing before the driver, wake-ups. In a guest
    "the device" is the virtual disk, so the hypervisor is inside the device's share.
    """
    streams = [stream for load in result.loads for stream in load.streams]
    if (
        len(result.devices) != 1
        or any(load.direct is False for load in result.loads)
        or any(stream.lat is None or not stream.ios or stream.direction == "trim" for stream in streams)
    ):
        return
    device = result.devices[0]
    ios = sum(stream.ios or 0 for stream in streams)
    requests, ticks = device.reads + device.writes, (device.read_seconds or 0) + (device.write_seconds or 0)
    if not ios or abs(requests / ios - 1) > SAME_REQUESTS or ticks <= 0:
        return
    theirs = ticks / requests * 1e9
    mine = math.fsum(stream.lat.mean_ns * (stream.ios or 0) for stream in streams if stream.lat) / ios
    if theirs <= mine:
        yield Remark(
            id="device-share",
            weight=Weight.NOTE,
            text=f"Of {format_ns(mine)} mean latency, {format_ns(theirs)} ({format_share(theirs / mine)}) passed at"
            f" {device.name} and the rest above it, in this kernel and in fio.",
        )


_NAMED = {"read": re.compile(r"(?i)(?<!th)read"), "write": re.compile(r"(?i)writ")}
"""What a job's name says that it does; a `thread` says nothing."""


def misnamed(load: LoadResult) -> Iterator[Remark]:
    """`misnamed`: a job that is called after reads and only writes, or the other way round."""
    done, count = {stream.direction for stream in load.streams}, sum(stream.ios or 0 for stream in load.streams)
    for called, other in (("read", "write"), ("write", "read")):
        if done == {other} and _NAMED[called].search(load.name) and not _NAMED[other].search(load.name):
            yield Remark(
                id="misnamed",
                weight=Weight.WARNING,
                text=f"The job is called `{load.name}`, and it did {count:,} {other}s and no {called}.",
                advice=f"what was measured is what fio did: {other}s",
            )
