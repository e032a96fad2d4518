# SPDX-License-Identifier: Apache-2.0
"""The layers of a request's time, from the measurements of one arm's rounds."""

from collections.abc import Sequence
from statistics import fmean

from virtune.analyse.layers.split import split
from virtune.model.layers import BOUNDARIES, Boundary, Layers, Way
from virtune.model.measurement import Measurement
from virtune.model.stack import Stack
from virtune.model.workload import Workload


def layers_of(measured: Sequence[Measurement], stack: Stack, workload: Workload) -> Layers | None:
    """Return the layers over all rounds; None where nothing was measured below the application."""
    rounds = [one for one in measured if one.get("latency.mean") is not None and one.get("iops")]
    if not rounds or not any(one.get(f"below.{boundary}") for one in rounds for boundary in BOUNDARIES[1:]):
        return None

    def of(metric: str, scale: float = 1.0) -> list[float]:
        found = [one.get(metric) for one in rounds]
        return [value * scale for value in found if value is not None]

    below: dict[Boundary, list[float]] = {"application": of("latency.mean")}
    requests: dict[Boundary, list[float]] = {}
    for boundary in BOUNDARIES[1:]:
        below[boundary], requests[boundary] = of(f"below.{boundary}"), of(f"requests.{boundary}", 0.01)
    depth = depth_of(workload)
    if depth is not None:  # what waits for a flush is handed over, too
        depth -= fmean(flush_rate(one, workload) * (one.get("sync.mean") or 0.0) / 1e9 for one in rounds)
    return split(way_of(stack), below, requests, of("iops"), depth=depth)


def flush_rate(measured: Measurement, workload: Workload) -> float:
    """Return how many flushes a second a load did: one after every so many writes; 0 where its jobs differ."""
    after = {int(job.get("fsync", "") or job.get("fdatasync", "") or "0") for job in workload}
    count = after.pop() if len(after) == 1 else 0
    return (measured.get("write.iops") or 0.0) / count if count else 0.0


def way_of(stack: Stack) -> Way:
    """Return what the data path leads through."""
    return "guest" if stack.kind.in_guest else "export" if stack.kind.front == "export" else "file"


def depth_of(workload: Workload) -> float | None:
    """Return how many I/Os may be in flight; None for a load that pauses by itself, or if unknown."""
    paused = any(name.startswith(("rate", "thinktime")) for job in workload for name, _ in job.options)
    return None if paused or workload.verbatim is not None or workload.counted else float(workload.depth)
