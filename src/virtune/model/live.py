# SPDX-License-Identifier: Apache-2.0
"""A running VM under its own load: its disks, and QEMU's counters of each at one moment."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, fields

from virtune.model.counters import Sample

TORN_MAX = 0.05
"""A ring's indices are read one by one, so a few samples are inconsistent; with more, the device does not report what
it took."""


RingCurve = tuple[tuple[int, int, float, float], ...]
"""Points of a disk's virtqueues: monotonic ns, requests completed so far, and the integrals over time of how many
were in the queues and how many of these QEMU had taken, in request seconds."""


@dataclass(frozen=True, slots=True)
class DiskCurve:
    """Points of a block device: monotonic ns, requests completed so far, their total time in ms, and the integrals
    over time of how many the driver had and of how many there were, in request seconds.
    """

    points: tuple[tuple[int, int, int, float, float], ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class DiskCount:
    """QEMU's counters of a disk since its start; `t_ns` is the monotonic clock. Times are sums over requests,
    each from when QEMU took it off the virtqueue.
    """

    t_ns: int
    reads: int
    writes: int
    flushes: int
    read_bytes: int
    written_bytes: int
    read_ns: int
    write_ns: int
    flush_ns: int


@dataclass(frozen=True, slots=True, kw_only=True)
class LiveDisk:
    """A disk of a running VM. `path` is its image on this host, None where it has none. `threads` are the names of
    the IOThreads that serve it, empty for the main loop; `limits` are those of QEMU's throttle, by unit
    (`read.iops`), `group_limits` those of QEMU's control groups on the disk's devices, `lifts` the command that
    removes a limit, by unit, where it is known. `devices` are the host's block devices below it, from the top of the
    chain down.
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


@dataclass(frozen=True, slots=True, kw_only=True)
class LiveVm:
    """A running VM; `pid` is None where its process is not visible. `missing` names what cannot be observed. `uri` is
    the libvirt that it belongs to, empty for a QEMU behind a monitor. `emulated`: it runs without KVM (TCG). `failed`
    says why it cannot be looked at.
    """

    name: str
    pid: int | None
    disks: tuple[LiveDisk, ...]
    missing: tuple[str, ...] = ()
    uri: str = ""
    emulated: bool = False
    failed: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class Move:
    """From one request of a virtqueue to a later one: how many requests later it was offered, and how many sectors of
    512 bytes its first one lies beyond.
    """

    requests: int
    sectors: int


@dataclass(frozen=True, slots=True, kw_only=True)
class DiskRates:
    """What a disk did between two counts, in requests, bytes and I/Os in flight."""

    seconds: float
    reads: int
    writes: int
    flushes: int
    read_bytes: int
    written_bytes: int
    total_ns: int

    @property
    def requests(self) -> int:
        """Reads and writes."""
        return self.reads + self.writes

    @property
    def in_flight(self) -> float:
        """How many reads and writes QEMU had at a time, on average (Little's law)."""
        return self.total_ns / 1e9 / self.seconds


@dataclass(frozen=True, slots=True, kw_only=True)
class RingRates:
    """Observations of a disk's virtqueues: requests completed in so many seconds, how many were in the queues on
    average, and how many of these QEMU had taken; None where the device does not tell. `points` are the sums over
    time where they were kept and the device tells.
    """

    seconds: float
    completed: int
    offered_mean: float
    taken_mean: float | None
    samples: int
    points: RingCurve = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class RingCount:
    """Observations of one virtqueue since they began: time-weighted sums over the samples.

    `offered` is the integral over time of how many requests were in the queue, `taken` of how many of these QEMU had
    taken; both in request seconds. `torn` samples were inconsistent.
    """

    completed: int = 0
    seconds: float = 0.0
    offered: float = 0.0
    taken: float = 0.0
    samples: int = 0
    torn: int = 0


@dataclass(frozen=True, slots=True, kw_only=True)
class LiveSample:
    """The VMs of this host at one moment. `kernel` is the line of kernel counters as it was sampled, `host` the same
    parsed. `counts` and `rings` are by VM and disk.
    """

    kernel: bytes
    host: Sample
    vms: tuple[LiveVm, ...]
    counts: Mapping[str, Mapping[str, DiskCount]]
    rings: Mapping[str, Mapping[str, tuple[RingCount, ...]]] = field(default_factory=dict)
    missing: tuple[str, ...] = ()


def ring_rates_between(before: Sequence[RingCount], after: Sequence[RingCount]) -> RingRates | None:
    """Return the combined rates of a disk's virtqueues between two counts; None without observations."""
    if len(before) != len(after) or any(now.samples < then.samples for then, now in zip(before, after, strict=True)):
        # they were found anew, and began at zero
        before = [RingCount()] * len(after)
    risen = [
        RingCount(
            completed=now.completed - then.completed,
            seconds=now.seconds - then.seconds,
            offered=now.offered - then.offered,
            taken=now.taken - then.taken,
            samples=now.samples - then.samples,
            torn=now.torn - then.torn,
        )
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
    )


def began_anew(before: DiskCount, after: DiskCount) -> bool:
    """Whether a counter fell: it is not of the same disk, or of another QEMU, or is not to be believed."""
    return any(getattr(after, one.name) < getattr(before, one.name) for one in fields(DiskCount))


def rates_between(before: DiskCount, after: DiskCount) -> DiskRates:
    """Return the rates between two counts."""
    return DiskRates(
        seconds=(after.t_ns - before.t_ns) / 1e9,
        reads=after.reads - before.reads,
        writes=after.writes - before.writes,
        flushes=after.flushes - before.flushes,
        read_bytes=after.read_bytes - before.read_bytes,
        written_bytes=after.written_bytes - before.written_bytes,
        total_ns=after.read_ns - before.read_ns + after.write_ns - before.write_ns,
    )
