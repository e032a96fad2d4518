# SPDX-License-Identifier: Apache-2.0
"""The queue of the host's disk, sampled while a load ran."""

import json
from collections.abc import Mapping

from virtune.analyse.trial.counters import read_counters
from virtune.model.errors import StoreError
from virtune.model.evidence import DISK_QUEUE
from virtune.model.layers import HostQueue
from virtune.model.live import DiskCurve

_REQUESTS_MIN = 5
"""With fewer requests nothing is said: the kernel's times are in milliseconds."""


def disk_curve(content: bytes) -> DiskCurve:
    """Read the capture of a disk's queue; one that is damaged has no points."""
    try:
        points = json.loads(content)["points"]
        return DiskCurve(points=tuple((int(t), int(n), int(ms), float(i), float(a)) for t, n, ms, i, a in points))
    except (KeyError, ValueError, TypeError, RecursionError):
        return DiskCurve(points=())


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


def queue_of(parts: Mapping[str, bytes]) -> HostQueue | None:
    """Return the split of the time at the host's disk in a trial's measured time."""
    try:
        counters = read_counters(parts["counters.jsonl"])
    except (KeyError, StoreError):
        return None
    disk = disk_curve(parts.get(DISK_QUEUE, b""))
    return host_queue(disk, begin_ns=counters.mark("begin"), end_ns=counters.mark("stop"))
