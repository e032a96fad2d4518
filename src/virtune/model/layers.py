# SPDX-License-Identifier: Apache-2.0
"""Layers: where the time of a request goes between the application and the medium.

Requests are counted and timed at several points on their way down, the boundaries. A layer is what lies between two
boundaries; its time is the difference of theirs. Means add up, percentiles do not, so a layer is a difference of
means.

esxtop's names for these: GAVG is the latency of a guest's request as the hypervisor sees it, DAVG the device's part,
KAVG the difference, and QAVG the part of KAVG that a request waits in a queue.
"""

import math
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Literal

Boundary = Literal["application", "guest", "ring", "backend", "device"]
"""Where requests are timed, from the top: fio's own latency; the guest's block layer; the virtqueue, from offered to
completed; QEMU's block layer, from when a request was taken off the virtqueue; the host's block layer.
"""

BOUNDARIES: tuple[Boundary, ...] = ("application", "guest", "ring", "backend", "device")

DEVIATION = 0.05
"""The counts of two boundaries may differ by this share and are still taken for the same requests."""

Way = Literal["guest", "export", "file"]
"""What the data path leads through: a guest, an export of a storage daemon, or only this host's kernel."""

BELOW: Mapping[Way, Mapping[Boundary, str]] = {
    "guest": {
        "application": "application, guest file system",
        "guest": "guest driver, interrupt",
        "ring": "wait in the virtqueue",
        "backend": "QEMU block layer and engine",
        "device": "host block layer and device",
    },
    "export": {
        "application": "load generator",
        "guest": "",
        "ring": "wait in the virtqueue",
        "backend": "QEMU block layer and engine",
        "device": "host block layer and device",
    },
    "file": {
        "application": "system call, file system",
        "guest": "",
        "ring": "",
        "backend": "",
        "device": "host block layer and device",
    },
}
"""The layer directly below each boundary, down to the next one; empty where there is no such boundary."""


@dataclass(frozen=True, slots=True, kw_only=True)
class RequestLayer:
    """The time of a request in one layer: the mean over rounds in ns, with a 95 % interval where there are several.

    `boundary` is where it begins. `in_flight` is how many requests are in it on average: rate times time (Little's
    law). `share` is its part (0..1) of the application's latency.
    """

    boundary: Boundary
    label: str
    mean_ns: float
    low_ns: float | None
    high_ns: float | None
    in_flight: float
    share: float

    @property
    def joined(self) -> bool:
        """Whether it joins several layers, so that what part of its time is whose is not known."""
        return " + " in self.label


@dataclass(frozen=True, slots=True, kw_only=True)
class HostQueue:
    """The time of a request in the host's block layer, in ns: waiting in its queue, and in the device."""

    queue_ns: float
    device_ns: float


OperationKind = Literal["read", "write", "flush", "discard"]
"""What a request of a disk asks for; a discard is QEMU's unmap, a guest's TRIM."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Operation:
    """What a disk did of one kind: requests and bytes a second, the mean time of a request in ns (None without
    requests), and how many were under way at a time (Little's law).
    """

    kind: OperationKind
    iops: float
    bandwidth: float
    mean_ns: float | None
    in_flight: float

    @property
    def words(self) -> str:
        """What several of them are called."""
        return "flushes" if self.kind == "flush" else f"{self.kind}s"


@dataclass(frozen=True, slots=True, kw_only=True)
class Layers:
    """Where the time of a request goes, from the top down; the layers add up to `total_ns`, the latency that the load
    measured.

    `top` is the boundary where they begin: at the load, or for a live VM where its requests are first seen;
    `total_ns` is then the time from there down. `idle` is how many of the I/Os that may be in flight the load
    generator had not submitted. `gavg_ns` and the like are esxtop's figures, None where a boundary is missing.
    `reasons` say why measured boundaries were left out, and which layers were joined.
    """

    way: Way
    rounds: int
    total_ns: float
    layers: tuple[RequestLayer, ...]
    idle: float | None = None
    gavg_ns: float | None = None
    kavg_ns: float | None = None
    davg_ns: float | None = None
    qavg_ns: float | None = None
    reasons: tuple[str, ...] = ()
    top: Boundary = "application"

    @property
    def in_flight(self) -> float:
        """How many requests are under way on average, in all layers together."""
        return math.fsum(one.in_flight for one in self.layers)

    def within(self, *boundaries: Boundary) -> tuple[RequestLayer, ...]:
        """Return the layers that lie below these boundaries and nowhere else. One that joins others is only returned
        where all of them are asked for: what part of its time is whose is not known.
        """
        begins = [BOUNDARIES.index(one.boundary) for one in self.layers]
        ends = [*begins[1:], len(BOUNDARIES)]
        return tuple(
            one
            for one, begin, end in zip(self.layers, begins, ends, strict=True)
            if {each for each in BOUNDARIES[begin:end] if each == one.boundary or BELOW[self.way][each]}
            <= set(boundaries)
        )
