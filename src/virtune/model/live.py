# SPDX-License-Identifier: Apache-2.0
"""A running VM under its own load: its disks, and QEMU's counters of each at one moment; and layers: where the time
of a request goes between the application and the medium.

Requests are counted and timed at several points on their way down, the boundaries. A layer is what lies between two
boundaries; its time is the difference of theirs. Means add up, percentiles do not, so a layer is a difference of
means.

esxtop's names for these: GAVG is the latency of a guest's request as the hypervisor sees it, DAVG the device's part,
KAVG the difference, and QAVG the part of KAVG that a request waits in a queue.
"""

import itertools
import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, fields, replace
from typing import Annotated, Any, Literal

from virtune.model.counters import Sample
from virtune.model.metric import BOUNDARIES, Boundary
from virtune.model.text import NOT_NEGATIVE, At

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
        "ring": "wait for QEMU to take it",
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
    """The time of a request in one layer; those of all layers add up to the application's latency."""

    boundary: Annotated[Boundary, "Where it begins."]
    label: Annotated[str, "What lies there, in words."]
    mean_ns: Annotated[float, "Time of a request in it, in ns, the mean over rounds."]
    low_ns: Annotated[float | None, "The lower end of its 95 % interval over rounds; null of one round."]
    high_ns: Annotated[float | None, "The upper end; null of one round."]
    share: Annotated[float, "Its part of `total_ns`, 0 to 1."]
    in_flight: Annotated[float, "Requests in it at a time, on average (Little's law)."]

    @property
    def joined(self) -> bool:
        """Whether it joins several layers, so that what part of its time is whose is not known."""
        return " + " in self.label


@dataclass(frozen=True, slots=True, kw_only=True)
class HostQueue:
    """The time of a request in the host's block layer, in ns: waiting in its queue, and in the device."""

    queue_ns: Annotated[float, "Waiting in the block layer's queue, in ns.", {"minimum": 0}]
    device_ns: Annotated[float, "With the driver and the device, in ns.", {"minimum": 0}]


OperationKind = Literal["read", "write", "flush", "discard"]
"""What a request of a disk asks for; a discard is QEMU's unmap, a guest's TRIM."""


@dataclass(frozen=True, slots=True, kw_only=True)
class TailBin:
    """A percentile of the times of requests, as far as QEMU's histogram tells it: the ends of a bin."""

    percent: Annotated[float, "Which percentile."]
    low_ns: Annotated[float, "It is at least so long.", NOT_NEGATIVE]
    high_ns: Annotated[float | None, "And shorter than this; null in the histogram's last bin.", NOT_NEGATIVE]


@dataclass(frozen=True, slots=True, kw_only=True)
class Operation:
    """The requests of one kind."""

    kind: Annotated[
        OperationKind, "What they ask for; a discard is QEMU's unmap, a guest's TRIM.", At("kind", key="operation")
    ]
    iops: Annotated[float, "How many a second.", NOT_NEGATIVE]
    bandwidth: Annotated[
        float, "Bytes a second, of reads and writes.", NOT_NEGATIVE, At("bandwidth", key="bandwidth_bps")
    ]
    mean_ns: Annotated[
        float | None, "Their mean time; null without any.", NOT_NEGATIVE, At("mean_ns", key="latency_ns")
    ]
    in_flight: Annotated[float, "How many were under way at a time, on average (Little's law).", NOT_NEGATIVE]
    tail: Annotated[
        tuple[TailBin, ...], "The tail of their times; empty where QEMU kept none.", At("tail", key="percentiles")
    ] = ()

    @property
    def words(self) -> str:
        return "flushes" if self.kind == "flush" else f"{self.kind}s"


WAIT_UNSEEN = "its wait in the virtqueue is not in it"
"""How the reason begins for a live disk whose layers begin below its virtqueue, in which too little was seen."""


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


TORN_MAX = 0.05
"""A ring's indices are read one by one, so a few samples are inconsistent; with more, the device does not report what
it took."""

STALL_SECONDS = 0.1
"""For so long at least nothing was completed in a stall, while requests were in flight."""


@dataclass(frozen=True, slots=True)
class DiskCurve:
    """Points of a block device: monotonic ns, requests completed so far, their total time in ms, and the integrals
    over time of how many the driver had and of how many there were, in request seconds.
    """

    points: tuple[tuple[int, int, int, float, float], ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class DiskTotals:
    """Requests and bytes of a disk. Times are sums over requests, each from when QEMU took it off the virtqueue.
    `failed` are requests of all kinds that failed or were invalid, which the other counts leave out; it and the
    discards are None where they are not counted (libvirt).
    """

    reads: int
    writes: int
    flushes: int
    read_bytes: int
    written_bytes: int
    read_ns: int
    write_ns: int
    flush_ns: int = 0
    discards: int | None = None
    discard_ns: int | None = None
    failed: int | None = None


@dataclass(frozen=True, slots=True)
class LatencyBins:
    """QEMU's histogram of the times of a disk's requests: how many took from one boundary (in ns) on, and less than
    the next one; the first bin begins at 0, the last has no end.
    """

    boundaries_ns: tuple[int, ...]
    bins: tuple[int, ...]

    def plus(self, other: "LatencyBins", sign: int = 1) -> "LatencyBins | None":
        """Return both together, or with -1 what this one counted since the other; None where they do not fit."""
        bins = tuple(mine + sign * theirs for mine, theirs in zip(self.bins, other.bins, strict=False))
        fits = self.boundaries_ns == other.boundaries_ns and min(bins, default=0) >= 0
        return LatencyBins(self.boundaries_ns, bins) if fits else None

    def percentile_ns(self, percent: float) -> tuple[float, float] | None:
        """Return between which times a percentile lies, the ends of its bin; None without requests."""
        reached, of = 0, sum(self.bins)
        for low, high, count in zip(
            (0, *self.boundaries_ns), (*self.boundaries_ns, math.inf), self.bins, strict=True
        ):
            reached += count
            if count and reached >= of * percent / 100:
                return float(low), float(high)
        return None

    @property
    def tail(self) -> tuple[TailBin, ...]:
        """The percentiles that are told; none without requests."""
        found = ((percent, self.percentile_ns(percent)) for percent in (50.0, 99.0, 99.9))
        return tuple(
            TailBin(percent=percent, low_ns=ends[0], high_ns=ends[1] if ends[1] < math.inf else None)
            for percent, ends in found
            if ends is not None
        )


Histograms = Mapping[OperationKind, LatencyBins]


@dataclass(frozen=True, slots=True, kw_only=True)
class DiskCount(DiskTotals):
    """QEMU's counters of a disk since its start; `t_ns` is the monotonic clock."""

    t_ns: int


BLOCK_JOB, ENCRYPTION = "a block job that does I/O of its own", "encryption in QEMU"
"""How the words of `LiveDisk.unread` begin for a job, which may hold requests up, and for QEMU's own work."""


@dataclass(frozen=True, slots=True, kw_only=True)
class LiveDisk:
    """A disk of a running VM. `path` is its image on this host, None where it has none, `protocol` QEMU's driver that
    reaches it (`file`, `nbd`; empty if unknown). `threads` are the names of
    the IOThreads that serve it, empty for the main loop; `limits` are those of QEMU's throttle, by unit
    (`read.iops`), `group_limits` those of QEMU's control groups on the disk's devices, `lifts` the command that
    removes a limit, by unit, where it is known. `devices` are the host's block devices below it, from the top of the
    chain down. Disks of one `group` have their limits together. `unread` says what else its requests may pass, of
    which nothing is measured: a backing image, a filter, encryption, a block job. `front` is the kind of its device
    where that takes one request at a time, whatever the guest has (`IDE`). `writethrough`: QEMU has each write safe
    before it says that it is done. `swap` are the devices that this host swaps to.
    `relimited` names its limits of both times where they were changed while it was looked at. `opened` are the flags
    that its image is open with now, `cache.direct` and `cache.no-flush`; None where QEMU does not show them.
    """

    target: str
    path: str | None
    threads: tuple[str, ...] = ()
    polling: bool = False
    limits: Mapping[str, float] = field(default_factory=dict)
    group_limits: Mapping[str, float] = field(default_factory=dict)
    lifts: Mapping[str, str] = field(default_factory=dict)
    devices: tuple[str, ...] = ()
    direct: bool = False
    tables: bool = False
    protocol: str = ""
    group: str = ""
    unread: tuple[str, ...] = ()
    front: str = ""
    writethrough: bool = False
    swap: tuple[str, ...] = ()
    relimited: str = ""
    opened: tuple[bool, bool] | None = None

    def beside(self, others: Sequence["LiveDisk"]) -> "LiveDisk":
        """Return it with all that its requests may have passed, and whether its limits were others, as these saw the
        same disk at another time.
        """
        same = [one for one in others if one.target == self.target]
        said = [
            ", ".join(f"{unit} {value:g}" for unit, value in one.limits.items()) or "none" for one in (self, *same)
        ]
        return replace(
            self,
            unread=tuple(dict.fromkeys((*self.unread, *itertools.chain(*(one.unread for one in same))))),
            relimited=self.relimited or (" and ".join(dict.fromkeys(said)) if len({*said}) > 1 else ""),
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class LiveVm:
    """A running VM; `pid` is None where its process is not visible. `missing` names what cannot be observed. `uri` is
    the libvirt that it belongs to, empty for a QEMU behind a monitor. `emulated`: it runs without KVM (TCG). `failed`
    says why it cannot be looked at. `threads` has QEMU's names of vCPUs and IOThreads, by thread id.
    """

    name: str
    pid: int | None
    disks: tuple[LiveDisk, ...]
    missing: tuple[str, ...] = ()
    uri: str = ""
    emulated: bool = False
    failed: str = ""
    threads: Mapping[int, str] = field(default_factory=dict)


@dataclass(frozen=True, slots=True, kw_only=True)
class Move:
    """From one request of a virtqueue to a later one: how many requests later it was offered, and how many sectors of
    512 bytes its first one lies beyond.
    """

    requests: int
    sectors: int


@dataclass(frozen=True, slots=True, kw_only=True)
class DiskRates(DiskTotals):
    """What a disk did between two counts, in requests, bytes and I/Os in flight."""

    seconds: float

    @property
    def requests(self) -> int:
        """Requests of all kinds, but for those that failed."""
        return self.reads + self.writes + self.flushes + (self.discards or 0)

    @property
    def total_ns(self) -> int:
        return self.read_ns + self.write_ns + self.flush_ns + (self.discard_ns or 0)

    @property
    def in_flight(self) -> float:
        """How many requests QEMU had at a time, on average (Little's law)."""
        return self.total_ns / 1e9 / self.seconds

    @property
    def uncompared(self) -> float:
        """The share of requests that are no reads and writes: what a host's disk does for one of them is not counted
        in the same way.
        """
        return 1 - (self.reads + self.writes) / self.requests if self.requests else 0.0

    @property
    def operations(self) -> tuple[Operation, ...]:
        """What it did of each kind; discards are missing where they are not counted."""
        found: list[tuple[OperationKind, int | None, int, int]] = [
            ("read", self.reads, self.read_bytes, self.read_ns),
            ("write", self.writes, self.written_bytes, self.write_ns),
            ("flush", self.flushes, 0, self.flush_ns),
            ("discard", self.discards, 0, self.discard_ns or 0),
        ]
        return tuple(
            Operation(
                kind=kind,
                iops=count / self.seconds,
                bandwidth=moved / self.seconds,
                mean_ns=time_ns / count if count else None,
                in_flight=time_ns / 1e9 / self.seconds,
            )
            for kind, count, moved, time_ns in found
            if count is not None
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class RingRates:
    """Observations of a disk's virtqueues: requests completed in so many seconds, how many were in the queues on
    average, and how many of these QEMU had taken; None where the device does not tell. `size` is how many the queues
    hold together, `inside` how many were in them at the end, `quiet_seconds` since when none had been completed by
    then while some were in them, and `stalled_seconds` how long that was so in all, in `stalls` stretches of at least
    STALL_SECONDS. `within` of the completed requests were surely so between QEMU's two counts.
    """

    seconds: float
    completed: int
    offered_mean: float
    taken_mean: float | None
    samples: int
    size: int = 0
    inside: int = 0
    quiet_seconds: float = 0.0
    stalled_seconds: float = 0.0
    stalls: int = 0
    within: int = 0


@dataclass(frozen=True, slots=True, kw_only=True)
class RingCount:
    """Observations of one virtqueue since they began: time-weighted sums over the samples.

    `offered` is the integral over time of how many requests were in the queue, `taken` of how many of these QEMU had
    taken; both in request seconds. `torn` samples were inconsistent. `size`, `inside`, `quiet` and the like are those
    of RingRates; those about completions are of all queues of a disk and with the first. `before` is how many were
    completed when QEMU was asked for its counts, the last time.
    """

    completed: int = 0
    seconds: float = 0.0
    offered: float = 0.0
    taken: float = 0.0
    samples: int = 0
    torn: int = 0
    size: int = 0
    inside: int = 0
    quiet: float = 0.0
    stalled: float = 0.0
    stalls: int = 0
    before: int = 0


@dataclass(frozen=True, slots=True, kw_only=True)
class LiveSample:
    """The VMs of this host at one moment. `kernel` is the line of kernel counters as it was sampled, `host` the same
    parsed. `counts`, `rings` and `histograms` are by VM and disk; of the last only those are there that QEMU keeps.
    """

    kernel: bytes
    host: Sample
    vms: tuple[LiveVm, ...]
    counts: Mapping[str, Mapping[str, DiskCount]]
    rings: Mapping[str, Mapping[str, tuple[RingCount, ...]]] = field(default_factory=dict)
    missing: tuple[str, ...] = ()
    histograms: Mapping[str, Mapping[str, Histograms]] = field(default_factory=dict)


def ring_rates_between(before: Sequence[RingCount], after: Sequence[RingCount]) -> RingRates | None:
    """Return the combined rates of a disk's virtqueues between two counts; None without observations."""
    if len(before) != len(after) or any(now.samples < then.samples for then, now in zip(before, after, strict=True)):
        # they were found anew, and began at zero
        before = [RingCount()] * len(after)
    sums = ("completed", "seconds", "offered", "taken", "samples", "torn", "stalled", "stalls")
    risen = [
        replace(now, **{name: getattr(now, name) - getattr(then, name) for name in sums})
        for then, now in zip(before, after, strict=True)
    ]
    used = [one for one in risen if one.seconds > 0]
    samples = sum(one.samples for one in used)
    if not samples:
        return None
    told = sum(one.torn for one in used) <= TORN_MAX * samples
    return RingRates(
        seconds=max(one.seconds for one in used),
        completed=sum(one.completed for one in used),
        offered_mean=sum(one.offered / one.seconds for one in used),
        taken_mean=sum(one.taken / one.seconds for one in used) if told else None,
        samples=samples,
        size=sum(one.size for one in used),
        inside=sum(one.inside for one in used),
        quiet_seconds=max(one.quiet for one in used),
        stalled_seconds=sum(one.stalled for one in used),
        stalls=sum(one.stalls for one in used),
        within=max(0, sum(now.before - then.completed for then, now in zip(before, after, strict=True))),
    )


def histograms_between(before: Histograms, after: Histograms) -> Histograms:
    """Return what histograms counted between two looks; those that began anew count from their begin."""
    return {kind: (now.plus(before[kind], -1) if kind in before else now) or now for kind, now in after.items()}


def began_anew(before: DiskCount, after: DiskCount) -> bool:
    """Whether a counter fell: it is not of the same disk, or of another QEMU, or is not to be believed."""
    both = ((getattr(before, one.name), getattr(after, one.name)) for one in fields(DiskCount))
    return any(None not in (then, now) and now < then for then, now in both)


def rates_between(before: DiskCount, after: DiskCount) -> DiskRates:
    both = {one.name: (getattr(before, one.name), getattr(after, one.name)) for one in fields(DiskTotals)}
    risen: dict[str, Any] = {name: None if None in pair else pair[1] - pair[0] for name, pair in both.items()}
    return DiskRates(seconds=(after.t_ns - before.t_ns) / 1e9, **risen)


def throttled_rates(rates: Sequence[DiskRates]) -> dict[str, float]:
    """Return what disks together did of what QEMU's throttle counts, by the unit of a limit (`read.iops`): reads and
    writes, since it lets flushes pass.
    """
    found: dict[str, float] = {}
    for one in rates:
        for kind, count, moved in (("read.", one.reads, one.read_bytes), ("write.", one.writes, one.written_bytes)):
            for unit, rise in ((f"{kind}iops", count), ("iops", count), (f"{kind}bps", moved), ("bps", moved)):
                found[unit] = found.get(unit, 0.0) + rise / one.seconds
    return found
