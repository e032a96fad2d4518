# SPDX-License-Identifier: Apache-2.0
"""The time of a request split into layers: differences of the means that were measured at the boundaries.

A difference is reported only where both boundaries counted the same requests, and where its confidence interval over
rounds excludes 0; else the layer is joined with its neighbour, so that no layer is negative and all add up to the
application's own latency. Source of the method: linux-kvm.org, Virtio/Block/Latency (2010): every lower layer must be
smaller than the one above it.
"""

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from statistics import fmean, median

from virtune.analyse.stats.student import mean_and_radius
from virtune.model.layers import BELOW, BOUNDARIES, DEVIATION, Boundary, Layers, RequestLayer, Way
from virtune.model.units import format_count, format_ns, format_share

CONFIDENCE = 0.95

_AT: Mapping[Boundary, str] = {
    "application": "the load",
    "guest": "the guest's block layer",
    "ring": "the virtqueue",
    "backend": "QEMU's block layer",
    "device": "this host's disk",
}

Passed = Mapping[Boundary, Sequence[float]]
"""The measurements at each boundary, one value per round."""


@dataclass(frozen=True, slots=True, kw_only=True)
class _Part:
    """The layer between a boundary and the next one that is kept; `each` is its time in every round."""

    over: tuple[Boundary, ...]
    each: tuple[float, ...]
    mean: float
    low: float | None
    high: float | None

    @property
    def shown(self) -> bool:
        """Whether its time is shown to be above 0, by its interval, or for a single round by its mean."""
        return (self.mean if self.low is None else self.low) > 0


def split(way: Way, below_ns: Passed, requests: Passed, iops: Sequence[float], *, depth: float | None) -> Layers:
    """Split the application's latency into layers. `below_ns` is the mean latency from each boundary down in every
    round, including the application's own; `requests` is each boundary's number of requests per request of the
    application.

    For a running VM the application is not measured: the first measured boundary takes its place. `depth` is how many
    I/Os may be in flight, None where the load has no such bound. Raises ValueError if no boundary was measured.
    """
    top = next((one for one in BOUNDARIES if below_ns.get(one)), None)
    if top is None:
        raise ValueError("no boundary was seen")
    total = below_ns[top]
    reasons: list[str] = []
    stands = [one for one in BOUNDARIES if one == top or _counts_the_same(one, top, below_ns, requests, reasons)]
    esxtop = _esxtop({one: fmean(below_ns[one]) for one in stands})  # joining leaves boundaries out
    parts = [_above_zero(part) for part in _joined(way, stands, below_ns, reasons)]
    if len(total) > 1 and any(part.low is None for part in parts):
        reasons.append(f"no interval where it would reach below 0: {len(total)} rounds that differ so are too few")
    mean = fmean(total)
    return Layers(
        way=way,
        rounds=len(total),
        total_ns=mean,
        layers=tuple(
            RequestLayer(
                boundary=part.over[0],
                label=" + ".join(label for one in part.over if (label := BELOW[way][one])),
                mean_ns=part.mean,
                low_ns=part.low,
                high_ns=part.high,
                in_flight=_in_flight(iops, part.each),
                share=part.mean / mean,
            )
            for part in parts
        ),
        idle=None if depth is None else max(0.0, depth - _in_flight(iops, total)),
        reasons=tuple(reasons),
        top=top,
        **esxtop,
    )


def _above_zero(part: _Part) -> _Part:
    """Return the part without an interval that has times below 0, which no latency has."""
    return part if part.low is None or part.low >= 0 else replace(part, low=None, high=None)


def _in_flight(iops: Sequence[float], times_ns: Sequence[float]) -> float:
    """Return how many requests were in a layer on average, by Little's law in every round: it does not hold for means
    over rounds, since slow rounds do few I/Os that take long.
    """
    return fmean(rate * time / 1e9 for rate, time in zip(iops, times_ns, strict=True))


def _counts_the_same(one: Boundary, top: Boundary, below_ns: Passed, requests: Passed, reasons: list[str]) -> bool:
    """Whether a boundary was measured in every round and counted the same requests as the topmost one."""
    if len(below_ns.get(one, ())) != len(below_ns[top]):
        return False
    ratio = median(requests[one]) if requests.get(one) else math.nan
    if abs(1 - ratio) <= DEVIATION:
        return True
    if ratio < 1:
        counted, why = f"{format_share(ratio)} of", "the rest was merged, or did not reach it"
    else:
        counted, why = f"{format_count(ratio)} times", "others use it too, requests were split, or flushes are in it"
    reasons.append(f"{_AT[one]} counted {counted} the requests of {_AT[top]}: {why}, so its time is not told apart")
    return False


def _joined(way: Way, stands: list[Boundary], below_ns: Passed, reasons: list[str]) -> list[_Part]:
    """Join layers until the time of each is shown to be above 0; a joined layer is named by its upper boundary."""
    while True:
        parts = _parts(way, stands, below_ns)
        wrong = next((index for index, part in enumerate(parts) if not part.shown), None)
        if wrong is None or len(stands) == 1:
            return parts
        # the device's own time is the last to be joined
        above = wrong + 1 >= len(stands) or (stands[wrong + 1] == "device" and wrong > 0)
        lost = stands.pop(wrong if above else wrong + 1)
        found = parts[wrong]
        interval = (
            ""
            if found.low is None or found.high is None
            else " [{}, {}]".format(*(format_ns(end) for end in (found.low, found.high)))
        )
        reasons.append(
            f"the time between {_AT[found.over[0]]} and what lies below is {format_ns(found.mean)}{interval}, which"
            f" is not clearly above 0: {_AT[lost]} is not told apart"
        )


def _parts(way: Way, stands: Sequence[Boundary], below_ns: Passed) -> list[_Part]:
    parts = []
    for index, one in enumerate(stands):
        last = index + 1 == len(stands)
        lower = [0.0] * len(below_ns[one]) if last else below_ns[stands[index + 1]]
        begin = BOUNDARIES.index(one)
        end = len(BOUNDARIES) if last else BOUNDARIES.index(stands[index + 1])
        each = tuple(upper - under for upper, under in zip(below_ns[one], lower, strict=True))
        mean, low, high = _interval(each)
        over = tuple(between for between in BOUNDARIES[begin:end] if between == one or BELOW[way][between])
        parts.append(_Part(over=over, each=each, mean=mean, low=low, high=high))
    return parts


def _interval(values: Sequence[float]) -> tuple[float, float | None, float | None]:
    """The mean over rounds with Student's t interval; rounds are the observations."""
    mean, radius = mean_and_radius(values, CONFIDENCE)
    return (mean, None, None) if radius is None else (mean, mean - radius, mean + radius)


def _esxtop(below: Mapping[Boundary, float]) -> dict[str, float | None]:
    """Return esxtop's figures. Without virtqueue samples, GAVG begins when QEMU takes a request off the queue. What
    is longer than the whole of which it is a part is measured of other requests: then their difference is unknown.
    """
    ring, backend, device = below.get("ring"), below.get("backend"), below.get("device")
    guest = backend if ring is None else ring
    return {
        "gavg_ns": guest,
        "davg_ns": device,
        "kavg_ns": None if guest is None or device is None or guest < device else guest - device,
        "qavg_ns": None if ring is None or backend is None or ring < backend else ring - backend,
    }
