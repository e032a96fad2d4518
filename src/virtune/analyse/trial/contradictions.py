# SPDX-License-Identifier: Apache-2.0
"""The rule on figures of one fio result that contradict each other, or the options beside them.

What follows from the figures themselves is checked, with room for fio's rounding: a bin of its histogram is 1.6 %
wide, and its text is rounded to the unit that is printed. Larger contradictions of rates are refused when a result is
read (`fio.consistency`).
"""

import itertools
import math
from collections.abc import Iterator, Sequence

from virtune.fio.consistency import contradictions
from virtune.model.measurement import Latency, LoadResult, Stream
from virtune.model.remark import Remark, Weight
from virtune.model.remark_kinds import CONTRADICTION
from virtune.model.units import format_bandwidth, format_bytes, format_count, format_ns

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
            yield CONTRADICTION.remark(weight=Weight.WARNING, text=text)
    # a run that somebody stopped is shorter than asked for; what Little's law says of a depth is said by `little`
    options = {name: value for name, value in load.options or () if name not in ("runtime", "number_ios")}
    for one in contradictions(load, options, jobs=load.jobs) if options and not load.error else ():
        if one.option != "bs" and "Little" not in one.proof:
            text = f"{one.option}={one.asked} stands in the job, and the figures say {one.found}: {one.proof}."
            yield CONTRADICTION.remark(weight=Weight.WARNING, text=text)


def _latencies(stream: Stream) -> Iterator[str]:
    for name, kind in (("slat", stream.slat), ("clat", stream.clat), ("lat", stream.lat)):
        if kind is not None:
            yield from (f"{name}: {said}" for said in _latency(kind))


def _latency(kind: Latency) -> Iterator[str]:
    rows = sorted(kind.percentiles)
    room = _unit((kind.min_ns, kind.max_ns, *(value for _, value in rows)))
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


def _unit(values: Sequence[float | None]) -> float:
    """The unit that latencies were rounded to: a thousand, if all are multiples of it."""
    known = [value for value in values if value]
    return next((unit for unit in (1e6, 1e3) if known and all(value % unit == 0 for value in known)), 1.0)


def _above(more: float, less: float, room: float) -> bool:
    return more > less * (1 + TOLERANCE) + room


def _rates(load: LoadResult, stream: Stream) -> Iterator[str]:
    ios, size = stream.ios, load.block_size
    if not ios or ios < IOS_ENOUGH:
        return
    if stream.iops and stream.seconds and _differ(stream.iops * stream.seconds, ios):
        made = stream.iops * stream.seconds
        yield f"{format_count(stream.iops)} IOPS for {stream.seconds:g} s are {made:,.0f} I/Os, and it counts {ios:,}"
    moved = stream.bytes
    if moved and stream.bandwidth_bps and stream.seconds and _differ(stream.bandwidth_bps * stream.seconds, moved):
        made = stream.bandwidth_bps * stream.seconds
        rate = f"{format_bandwidth(stream.bandwidth_bps)} for {stream.seconds:g} s"
        yield f"{rate} are {format_bytes(made)}, and it counts {format_bytes(moved)}"
    whole = stream.direction in ("read", "write") and not (stream.short_ios or stream.dropped_ios)
    if size and stream.bytes and whole and _differ(stream.bytes, ios * size):
        yield f"{ios:,} I/Os of {format_bytes(size)} are {format_bytes(ios * size)}, not {format_bytes(stream.bytes)}"


def _differ(one: float, other: float) -> bool:
    return max(one, other) > min(one, other) * (1 + RATE_TOLERANCE)
