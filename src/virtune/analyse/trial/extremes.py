# SPDX-License-Identifier: Apache-2.0
"""What fio says besides rates, means and percentiles: extremes, standard deviations, counts of the kernel."""

import math
from collections.abc import Iterator, Sequence

from virtune.model.measurement import FioResult, Latency, Stream

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
