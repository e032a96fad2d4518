# SPDX-License-Identifier: Apache-2.0
"""Rules that explain a fio result: where the time goes, how even it is, what CPU and device figures mean."""

import math
import re
from collections.abc import Iterator

from virtune.analyse.trial.cache_rules import one
from virtune.analyse.trial.validity_rules import in_submission
from virtune.model.measurement import FioResult, Latency, LoadResult
from virtune.model.remark import Remark
from virtune.model.remark_kinds import (
    DEVICE_BUSY,
    DEVICE_SHARE,
    JITTER,
    KERNEL_CPU,
    LATENCY_PARTS,
    MISNAMED,
    NOT_ADDED,
    SYNC_SHARE,
    TAIL_UNRESOLVED,
)
from virtune.model.units import format_ns, format_share

BUSY = 95.0

SOME_USE = 5.0
"""Below this nobody reads a device's use as anything."""

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
    """Judge by `latency-parts`."""
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
    yield LATENCY_PARTS.remark(text=text)


def not_added(result: FioResult, parts: int) -> Iterator[Remark]:
    """Judge by `not-added`."""
    if parts < 2:
        return
    known = all(load.began is not None for load in result.loads)
    how = "ran one after another" if known else "belong to several reporting groups, which fio does not add either"
    yield NOT_ADDED.remark(text=f"These jobs {how}. Their figures stand side by side and have no sum.")


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
            yield JITTER.remark(
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
            yield TAIL_UNRESOLVED.remark(
                text=f"Of {stream.ios:,} {one(stream)}s, about {beyond:.2g} lie beyond p{weak[0]:g}: too few (below"
                f" {ENOUGH_BEYOND}) for {' and '.join(f'p{p:g}' for p in weak)} to be compared between runs.",
            )


def _shows(latency: Latency | None, percent: float) -> bool:
    return latency is not None and latency.percentile(percent) is not None


def sync_share(load: LoadResult) -> Iterator[Remark]:
    """Judge by `sync-share`."""
    if (
        load.sync is None
        or not load.sync.count
        or any(stream.lat is None or not stream.ios for stream in load.streams)
    ):
        return
    syncing = load.sync.mean_ns * load.sync.count
    moving = math.fsum(stream.lat.mean_ns * (stream.ios or 0) for stream in load.streams if stream.lat)
    if syncing + moving:
        yield SYNC_SHARE.remark(
            text=f"{format_share(syncing / (syncing + moving))} of the I/O time is fsync: {load.sync.count:,}"
            " of them at"
            f" {format_ns(load.sync.mean_ns)} mean. It is not in the latencies of the writes.",
        )


def kernel_cpu(load: LoadResult) -> Iterator[Remark]:
    """Judge by `kernel-cpu`."""
    usr, system = load.usr_percent, load.sys_percent
    if usr is None or system is None or system <= usr or system < 5 or not load.iops:
        return
    per_io = system / 100 * load.jobs / load.iops * 1e9
    yield KERNEL_CPU.remark(
        text=f"The CPU time is the kernel's: sys {system:.4g} %, usr {usr:.4g} % of a CPU a job;"
        f" {format_ns(per_io)} of"
        " sys per I/O. sys may rise while latency falls, because more I/Os are done: compare CPU per I/O.",
    )


def device_busy(result: FioResult) -> Iterator[Remark]:
    """Judge by `device-busy`."""
    for device in result.devices:
        if device.busy_percent >= BUSY:
            yield DEVICE_BUSY.remark(
                text=f"{device.name} was busy {device.busy_percent:.4g} % of the time: it nearly always had a"
                " request."
                " A device with several queues may still take more at once, so this does not prove saturation.",
            )
        elif device.busy_percent >= SOME_USE:
            yield DEVICE_BUSY.remark(
                text=f"{device.name} was busy {device.busy_percent:.4g} % of the time: that is no measure of what is"
                " left. The rest is time in which nothing was asked of it, and a device with several queues takes"
                " more at once; `virtune sweep` shows where it ends.",
            )


def device_share(result: FioResult) -> Iterator[Remark]:
    """Judge by `device-share`."""
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
        yield DEVICE_SHARE.remark(
            text=f"Of {format_ns(mine)} mean latency, {format_ns(theirs)} ({format_share(theirs / mine)}) passed at"
            f" {device.name} and the rest above it, in this kernel and in fio.",
        )


_NAMED = {"read": re.compile(r"(?i)(?<!th)read"), "write": re.compile(r"(?i)writ")}
"""What a job's name says that it does; a `thread` says nothing."""


def misnamed(load: LoadResult) -> Iterator[Remark]:
    """Judge by `misnamed`."""
    done, count = {stream.direction for stream in load.streams}, sum(stream.ios or 0 for stream in load.streams)
    for called, other in (("read", "write"), ("write", "read")):
        if done == {other} and _NAMED[called].search(load.name) and not _NAMED[other].search(load.name):
            yield MISNAMED.remark(
                text=f"The job is called `{load.name}`, and it did {count:,} {other}s and no {called}.",
                advice=f"what was measured is what fio did: {other}s",
            )
