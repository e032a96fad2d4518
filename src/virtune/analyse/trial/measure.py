# SPDX-License-Identifier: Apache-2.0
"""A Measurement out of a FioResult: what fio alone tells, by the ids of `virtune.model.metric`.

Operations and bytes a second add up over jobs and directions. Means are weighted by the number of I/Os. Percentiles
come from the added histograms; without bins they are given only where there is a single distribution to read.
"""

import math
from collections.abc import Callable, Iterable, Iterator

from virtune.model.measurement import FioResult, Histogram, Latency, LoadResult, Measurement, Stream, merge
from virtune.model.metric import METRICS


def measurement_of(result: FioResult) -> Measurement:
    """Derive the metrics that fio's own output holds; one that is missing was not measured."""
    streams = _flows(result)
    histogram = merged_histogram(result)
    flushes = merged_flushes(result)
    exact = result.source.startswith("json")  # a text rounds IOPS and seconds for people
    values: list[tuple[str, float | None]] = [
        ("iops", math.fsum(completions(stream) if exact else stream.iops for stream in streams)),
        ("bandwidth", math.fsum(stream.bandwidth_bps for stream in streams)),
        ("latency.mean", _mean(streams, lambda stream: stream.lat)),
        *_percentiles(streams, histogram),
        ("slat.mean", _mean(streams, lambda stream: stream.slat)),
        ("clat.mean", _mean(streams, lambda stream: stream.clat)),
        ("sync.mean", _weighted((load.sync.mean_ns, load.sync.count) for load in result.loads if load.sync)),
        *_flush_percentiles(result, flushes),
        ("cpu.load.usr", _cpu(result.loads, lambda load: load.usr_percent)),
        ("cpu.load.sys", _cpu(result.loads, lambda load: load.sys_percent)),
    ]
    if not streams:
        return Measurement(values=())
    measured = tuple((name, value) for name, value in values if value is not None)
    return Measurement(values=measured, histogram=histogram, flushes=flushes)


def completions(stream: Stream) -> float:
    """Return completions a second: as many as latencies were counted.

    fio's own figure leaves out the I/Os that were in flight when the ramp ended, although it counts their bytes and
    latencies: at depth 32 and 200 IOPS that is 8 % over 2 s. Where no latencies were counted, fio's figure stands.
    """
    counted = next((kind.count for kind in (stream.lat, stream.clat) if kind is not None and kind.count), None)
    return counted / stream.seconds if counted and stream.seconds else stream.iops


def merged_histogram(result: FioResult) -> Histogram | None:
    """Add the completion latencies of all jobs and directions; None unless every one of them has bins.

    A job with `lat_percentiles` has bins of the total latency instead; the two kinds are never added.
    """
    streams = _flows(result)
    for kind in ("lat", "clat"):
        latencies: list[Latency | None] = [getattr(stream, kind) for stream in streams]
        histograms = [latency.histogram for latency in latencies if latency and latency.histogram]
        if histograms and len(histograms) == len(streams):
            return merge(histograms)
    return None


def merged_flushes(result: FioResult) -> Histogram | None:
    """Add the latencies of all jobs' flushes; None unless every job that flushed has bins."""
    kinds = [load.sync for load in result.loads if load.sync is not None]
    histograms = [kind.histogram for kind in kinds if kind.histogram is not None]
    return merge(histograms) if histograms and len(histograms) == len(kinds) else None


def _flush_percentiles(result: FioResult, merged: Histogram | None) -> Iterator[tuple[str, float | None]]:
    """As of I/Os: from the added bins, or as printed where a single job flushed."""
    wanted = [(m.id, m.percent) for m in METRICS if m.percent is not None and m.of == "sync"]
    kinds = [load.sync for load in result.loads if load.sync is not None]
    if merged is not None:
        yield from ((name, merged.percentile(percent)) for name, percent in wanted)
    elif len(kinds) == 1:
        yield from ((name, kinds[0].percentile(percent)) for name, percent in wanted)


def _flows(result: FioResult) -> list[Stream]:
    return [stream for load in result.loads for stream in load.streams]


def _percentiles(streams: list[Stream], histogram: Histogram | None) -> Iterator[tuple[str, float | None]]:
    wanted = [
        (metric.id, metric.percent) for metric in METRICS if metric.percent is not None and metric.of == "latency"
    ]
    if histogram is not None:
        yield from ((name, histogram.percentile(percent)) for name, percent in wanted)
    elif len(streams) == 1:
        printed = [kind for kind in (streams[0].clat, streams[0].lat) if kind is not None and kind.percentiles]
        yield from ((name, printed[0].percentile(percent)) for name, percent in wanted if printed)


def _mean(streams: list[Stream], kind: Callable[[Stream], Latency | None]) -> float | None:
    """The mean over all I/Os; None when a direction does not have this kind, as it would be missing in the mean."""
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
