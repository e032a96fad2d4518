# SPDX-License-Identifier: Apache-2.0
"""The layers of a request's time, from the measurements of one arm's rounds."""

from collections.abc import Sequence

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
    return split(way_of(stack), below, requests, of("iops"), depth=depth_of(workload))


def way_of(stack: Stack) -> Way:
    """Return what the data path leads through."""
    return "guest" if stack.kind.in_guest else "export" if stack.kind.front == "export" else "file"


def depth_of(workload: Workload) -> float | None:
    """Return how many I/Os may be in flight; None for a load that pauses by itself, or if unknown."""
    paused = any(name.startswith(("rate", "thinktime")) for job in workload for name, _ in job.options)
    return None if paused or workload.verbatim is not None or workload.counted else float(workload.depth)
