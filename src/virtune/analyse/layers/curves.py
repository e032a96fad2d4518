# SPDX-License-Identifier: Apache-2.0
"""What was sampled while a load ran, as sums over time: the host's disk, its queue, and the share of the variance.

In windows of a tenth of a second the time of a request is a sum of layers, W = sum of W_i. So the shares
Cov(W_i, W) / Var(W) add up to 1: each is the part of the variance that a layer causes. Means do not answer what makes
latency vary, and percentiles cannot be subtracted.
"""

import itertools
import json
from bisect import bisect_right
from collections.abc import Mapping, Sequence
from statistics import fmean

from virtune.analyse.stats.student import mean_and_radius
from virtune.analyse.trial.counters import read_counters
from virtune.model.errors import StoreError
from virtune.model.evidence import DISK_QUEUE, RINGS
from virtune.model.layers import DEVIATION, HostQueue, VarianceShare
from virtune.model.live import DiskCurve, RingCurve

WINDOW_NS = 100_000_000
"""Shorter windows have too few samples in them, and longer ones average away what varies."""

WINDOWS_MIN = 20
"""With fewer windows a share of the variance is mostly chance."""

_BLOCKS = 10
"""A share's interval is that of the jackknife over so many blocks of windows, which keeps neighbours together."""

_REQUESTS_MIN = 5
"""Windows with fewer requests are left out: the kernel's times are in milliseconds."""


def disk_curve(content: bytes) -> DiskCurve:
    """Read the capture of a disk's queue; one that is damaged has no points."""
    try:
        points = json.loads(content)["points"]
        return DiskCurve(points=tuple((int(t), int(n), int(ms), float(i), float(a)) for t, n, ms, i, a in points))
    except (KeyError, ValueError, TypeError, RecursionError):
        return DiskCurve(points=())


def ring_curve(content: bytes) -> RingCurve:
    """Read the points of the capture of a guest's virtqueues; an older one has none."""
    try:
        points = json.loads(content)["points"]
        return tuple((int(t), int(done), float(offered), float(taken)) for t, done, offered, taken in points)
    except (KeyError, ValueError, TypeError, RecursionError):
        return ()


def host_queue(disk: DiskCurve, *, begin_ns: int | None = None, end_ns: int | None = None) -> HostQueue | None:
    """Split the time of a request in the host's block layer into its queue and the device; None without requests."""
    inside = [one for one in disk.points if (begin_ns or 0) <= one[0] <= (end_ns or one[0])]
    if len(inside) < 2:
        return None
    requests, ms, flying, every = (inside[-1][n] - inside[0][n] for n in (1, 2, 3, 4))
    if requests < _REQUESTS_MIN or ms <= 0 or every <= 0:
        return None
    mean_ns, share = ms * 1e6 / requests, min(1.0, flying / every)
    return HostQueue(queue_ns=mean_ns * (1 - share), device_ns=mean_ns * share)


def variance_shares(rings: Sequence[RingCurve], disks: Sequence[DiskCurve]) -> tuple[VarianceShare, ...]:
    """Return the share of each layer in the variance of the time from the virtqueue down. `rings` and `disks` are of
    the same rounds; none where too few windows were seen.

    The disk is a layer of its own where it counted the same requests as the virtqueue.
    """
    alike = [_alike(ring, disk) for ring, disk in zip(rings, disks, strict=True)]
    rows = [
        row
        for ring, disk in zip(rings, disks, strict=True)
        for row in _windows(ring, disk if alike and all(alike) else None)
    ]
    if len(rows) < WINDOWS_MIN:
        return ()
    names = ["wait in the virtqueue", "QEMU block layer and engine"]
    names += ["host block layer and device"] if len(rows[0]) == 3 else []
    whole = _shares(rows)
    if whole is None:
        return ()
    size = -(-len(rows) // _BLOCKS)
    blocks = [rows[at : at + size] for at in range(0, len(rows), size)]
    without = [
        found
        for left in range(len(blocks))
        if (found := _shares([row for n, block in enumerate(blocks) if n != left for row in block])) is not None
    ]
    return tuple(_share(name, n, whole, without, len(rows)) for n, name in enumerate(names))


def _share(
    name: str, n: int, whole: Sequence[float], without: Sequence[Sequence[float]], windows: int
) -> VarianceShare:
    count = len(without)
    pseudo = [count * whole[n] - (count - 1) * one[n] for one in without]
    _, radius = mean_and_radius(pseudo, 0.95)
    radius = 0.0 if radius is None else radius
    return VarianceShare(label=name, share=whole[n], low=whole[n] - radius, high=whole[n] + radius, windows=windows)


def _shares(rows: Sequence[Sequence[float]]) -> list[float] | None:
    """Return Cov(W_i, W) / Var(W) of each column; None where nothing varies."""
    totals = [sum(row) for row in rows]
    mean = fmean(totals)
    variance = sum((one - mean) ** 2 for one in totals)
    if variance <= 0:
        return None
    return [
        sum(row[column] * (total - mean) for row, total in zip(rows, totals, strict=True)) / variance
        for column in range(len(rows[0]))
    ]


def _windows(ring: RingCurve, disk: DiskCurve | None) -> list[tuple[float, ...]]:
    """Return the times of a request in each layer, window by window."""
    if len(ring) < 2:
        return []
    found: list[tuple[float, ...]] = []
    for begin, end in itertools.pairwise(range(ring[0][0], ring[-1][0] + 1, WINDOW_NS)):
        done, offered, taken = (_at(ring, end, n) - _at(ring, begin, n) for n in (1, 2, 3))
        if done < _REQUESTS_MIN:
            continue
        whole, backend = offered / done * 1e9, taken / done * 1e9
        if disk is None:
            found.append((whole - backend, backend))
            continue
        requests, ms = (_at(disk.points, end, n) - _at(disk.points, begin, n) for n in (1, 2))
        if requests >= _REQUESTS_MIN:
            device = ms * 1e6 / requests
            found.append((whole - backend, backend - device, device))
    return found


def _alike(ring: RingCurve, disk: DiskCurve) -> bool:
    """Whether the disk counted the requests of the virtqueue and no others."""
    if len(ring) < 2 or len(disk.points) < 2:
        return False
    begin, end = ring[0][0], ring[-1][0]
    done, below = ring[-1][1] - ring[0][1], _at(disk.points, end, 1) - _at(disk.points, begin, 1)
    return done > 0 and abs(1 - below / done) <= DEVIATION


def _at(points: Sequence[Sequence[float]], t_ns: int, column: int) -> float:
    """Return a sum at a moment, straight between the points beside it."""
    after = bisect_right(points, float(t_ns), key=lambda one: one[0])
    if after == 0:
        return float(points[0][column])
    if after == len(points):
        return float(points[-1][column])
    left, right = points[after - 1], points[after]
    part = (t_ns - left[0]) / (right[0] - left[0])
    return left[column] + part * (right[column] - left[column])


def curves_of(parts: Mapping[str, bytes]) -> tuple[RingCurve, DiskCurve]:
    """Return what a trial's captures have of its virtqueues and of its disk."""
    return ring_curve(parts.get(RINGS, b"")), disk_curve(parts.get(DISK_QUEUE, b""))


def queue_of(parts: Mapping[str, bytes]) -> HostQueue | None:
    """Return the split of the time at the host's disk in a trial's measured time."""
    try:
        counters = read_counters(parts["counters.jsonl"])
    except (KeyError, StoreError):
        return None
    disk = disk_curve(parts.get(DISK_QUEUE, b""))
    return host_queue(disk, begin_ns=counters.mark("begin"), end_ns=counters.mark("stop"))
