# SPDX-License-Identifier: Apache-2.0
"""A running VM under its own load: its disks, and QEMU's counters of each at one moment."""

from collections.abc import Mapping
from dataclasses import dataclass, field


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
    (`read.iops`).
    """

    target: str
    path: str | None
    threads: tuple[str, ...] = ()
    polling: bool = False
    limits: Mapping[str, float] = field(default_factory=dict)


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
    average, and how many of these QEMU had taken; None where the device does not tell.
    """

    seconds: float
    completed: int
    offered_mean: float
    taken_mean: float | None
    samples: int


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
