# SPDX-License-Identifier: Apache-2.0
"""A Bottleneck: what limits a disk under its load, with the evidence and the experiment that would test it."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import StrEnum
from typing import Literal

from virtune.model.guideline import Walk
from virtune.model.layers import HostQueue, Layers, Operation
from virtune.model.proof import Proof
from virtune.model.threads import ThreadCost
from virtune.model.units import format_bandwidth, format_count


class Cause(StrEnum):
    """What may limit a disk."""

    DEVICE = "device"
    BACKEND = "block-layer"
    IOTHREAD = "iothread"
    MAIN_LOOP = "main-loop"
    VCPU = "vcpu"
    WORKERS = "worker-pool"
    DEPTH = "depth"
    RING = "ring"
    THROTTLE = "throttle"
    HOST_CPU = "host-cpu"
    PAGE_CACHE = "page-cache"
    LOAD = "load-generator"
    HUNG = "hung"
    FLUSH = "flush"
    DISCARD = "discard"
    MEMORY = "memory"
    NOT_BOUND = "not-bound"
    UNDECIDED = "undecidable"

    @property
    def accuses(self) -> bool:
        """Whether it names something that limits the disk."""
        return self not in (Cause.NOT_BOUND, Cause.UNDECIDED)


CAUSE_WORDS: Mapping[Cause, str] = {
    Cause.DEVICE: "the device",
    Cause.BACKEND: "QEMU's block layer",
    Cause.IOTHREAD: "the IOThread",
    Cause.MAIN_LOOP: "QEMU's main loop",
    Cause.VCPU: "the vCPUs",
    Cause.WORKERS: "the pool of worker threads",
    Cause.DEPTH: "the number of I/Os in flight",
    Cause.RING: "the virtqueue: notification and wake-up",
    Cause.THROTTLE: "a limit that was set",
    Cause.HOST_CPU: "contention for this host's CPUs",
    Cause.PAGE_CACHE: "a page cache, not the disk",
    Cause.LOAD: "the load itself",
    Cause.HUNG: "a hang of what serves it",
    Cause.FLUSH: "flushes: the guest waits until what it wrote is safe (fsync)",
    Cause.DISCARD: "discards (TRIM)",
    Cause.MEMORY: "this host's memory: QEMU's own pages are read back from storage",
    Cause.NOT_BOUND: "its rate is not bound by the disk",
    Cause.UNDECIDED: "undecidable",
}


def verdict_words(cause: Cause) -> str:
    """Return what limits a disk, as a clause."""
    if cause.accuses:
        return f"limited by {CAUSE_WORDS[cause]}"
    return CAUSE_WORDS[cause] if cause is Cause.NOT_BOUND else f"what limits it is {CAUSE_WORDS[cause]}"


@dataclass(frozen=True, slots=True, kw_only=True)
class DataPath:
    """The known facts of a disk under load; an unknown one is None or empty.

    `layers` say where the time of a request goes. `depth` is how many I/Os may be in flight, `idle` how many of them
    were not submitted, `latency_ns` the load's latency. `threads` are those that carry the I/O, `serving` is the role
    of those that serve the disk: `iothread` or `main`; `polling`: they poll. `workers_max` bounds the pool of worker
    threads where it does the I/O. `limits` are the configured limits by unit (`iops`, `read.bps`), each with the
    measured rate in the same unit, `lifts` the command that removes one, where it is known, `limited_by` the setting
    of an arm that sets one. `thread_iops` is the rate of all disks that a thread serves: by the name of an IOThread,
    by `main`, and by an empty name for the other threads; without it they serve this disk alone. `throttled` is for
    how many seconds a second control groups held CPUs back, all CPUs added up. `stands_in_ns` is the response time of
    QEMU's null-co driver, where that replaces the device. `served` is the share of reads that reached the device
    (above 1 where QEMU reads more than it was asked for), `device_busy` the share of time that it had a request.
    `foreign_cpus` is how many CPUs others used.

    `device_ns` is the mean time of all requests at the device, others' too, and `others_share` the share of its
    bytes that others caused. `tables`: the image's format has tables that QEMU reads (qcow2). `guest_polls`: the
    guest looks for completions without a pause, so that its vCPUs are always busy, `load_polls` the same of the load.
    `emulated`: the guest runs without KVM (TCG).

    `operations` are its requests by what they ask for, `failed` how many a second failed (None: not counted). `held`
    is how many were in flight at the end and none had been completed for `held_seconds` (None where that cannot be
    seen), and nothing was completed for `stalled` of the `seconds` although some were in flight, in `stalls`
    stretches. `ring_size` is how many requests its virtqueues hold. `faults` are major page faults of QEMU a second,
    `memory_pressure` the share of time in which some task of the host waited for memory (PSI). `origin` is how the
    disk was observed. `protocol`, `direct` and `unread` are those of a LiveDisk; `neighbours` are other VMs
    that were watched and have a disk on its device.
    """

    iops: float
    bandwidth: float = 0.0
    layers: Layers | None = None
    depth: float | None = None
    idle: float | None = None
    offered: float | None = None
    threads: tuple[ThreadCost, ...] = ()
    serving: str = "main"
    polling: bool = False
    workers_max: int | None = None
    limits: Mapping[str, tuple[float, float]] = field(default_factory=dict)
    lifts: Mapping[str, str] = field(default_factory=dict)
    limited_by: Mapping[str, str] = field(default_factory=dict)
    thread_iops: Mapping[str, float] = field(default_factory=dict)
    throttled: float | None = None
    latency_ns: float | None = None
    stands_in_ns: float | None = None
    served: float | None = None
    device_busy: float | None = None
    load_busy: float | None = None
    foreign_cpus: float | None = None
    device_ns: float | None = None
    others_share: float | None = None
    tables: bool = False
    guest_polls: bool = False
    load_polls: bool = False
    emulated: bool = False
    operations: tuple[Operation, ...] = ()
    failed: float | None = None
    held: int | None = None
    held_seconds: float = 0.0
    stalled: float = 0.0
    stalls: int = 0
    seconds: float = 0.0
    ring_size: int = 0
    faults: float = 0.0
    memory_pressure: float | None = None
    origin: Literal["trial", "libvirt", "monitor"] = "trial"
    protocol: str = ""
    direct: bool = False
    unread: tuple[str, ...] = ()
    neighbours: tuple[str, ...] = ()

    def iops_of(self, thread: ThreadCost) -> float:
        """The rate of the I/Os that a thread's CPU time is for: of all disks that it serves."""
        key = {"iothread": thread.name, "main": "main"}.get(thread.role, "")
        return self.thread_iops.get(key, self.iops)

    @property
    def limit_used(self) -> float | None:
        """How much of its nearest limit the disk uses (1 is all of it); None without a limit."""
        return max((done / limit for limit, done in self.limits.values() if limit > 0), default=None)


def limit_text(unit: str, limit: float, done: float) -> str:
    """Return a limit with what was done of it: `149 of the 150 that are allowed (iops)`; a burst does more."""
    write = format_bandwidth if unit.endswith("bps") else format_count
    if done > _BEYOND * limit:
        return f"{write(done)}, in a burst beyond the {write(limit)} that are allowed for long ({unit})"
    return f"{write(min(done, limit))} of the {write(limit)} that are allowed ({unit})"


_BEYOND = 1.01
"""Counters are read a little later than the clock."""


CONTROL_GROUP = "control group, "
"""How the unit of a limit begins that a control group sets."""

EMULATED_WORDS = "the guest runs without KVM (TCG): its latencies and CPU times are the emulator's"
"""What is said of every figure of such a guest."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Bottleneck:
    """What limits a disk: the cause, its evidence, and what to try next.

    It was found in `rounds` of `of` rounds.
    """

    cause: Cause
    evidence: tuple[str, ...]
    experiment: str
    rounds: int = 1
    of: int = 1

    @property
    def text(self) -> str:
        """The cause in words."""
        return CAUSE_WORDS[self.cause]


@dataclass(frozen=True, slots=True, kw_only=True)
class Diagnosis:
    """The diagnosis of one disk under one load: where the time goes, what its threads cost, what limits it.

    `missing` names evidence that could not be had and what it would add. `workload` is the load: its name, or of a
    live disk what was seen of it, in fio's words; `rate` is then the rate at which its I/Os came, in the same words,
    and `sequential` the share of requests that follow those before them on the disk, None if unknown. `queue` splits
    the time at the host's disk, None where the kernel does not tell. `exits_per_io` is how often KVM left the guest
    for each I/O, None if unknown. `guideline` is the path through the published tuning guideline, for a disk that
    QEMU serves; where it does not apply it is None, and `no_guideline` says why. `proof` is what replacing the
    accused layer said of it, None where nobody asked.
    """

    disk: str
    workload: str
    seconds: float
    path: DataPath
    found: Bottleneck
    layers: Layers | None
    missing: tuple[str, ...] = ()
    rate: str = ""
    queue: HostQueue | None = None
    exits_per_io: float | None = None
    guideline: Walk | None = None
    no_guideline: str = ""
    sequential: float | None = None
    proof: Proof | None = None
