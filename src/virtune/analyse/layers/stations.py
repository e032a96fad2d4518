# SPDX-License-Identifier: Apache-2.0
"""The facts of a data path as several causes need them, and how far a thread is the limit: one without a CPU, one
that uses all of its CPU, or a pool with too few of them.

Each is a station that every I/O passes through. A station that is busy all the time bounds the rate (the utilisation
law), and one that polls is busy without working, so more is asked of it.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from operator import attrgetter

from virtune.model.bottleneck import DataPath
from virtune.model.counters import ThreadCost
from virtune.model.live import BLOCK_JOB, WAIT_UNSEEN, Layers, RequestLayer
from virtune.model.metric import Boundary
from virtune.model.text import format_count, format_ns, format_seconds, format_share

SATURATED = 0.9
"""From this share of a CPU on, waiting for a CPU included, a thread counts as saturated."""

MOST = 0.5
"""A layer with half of the requests in flight, or of their time, is the bottleneck."""

RESTING = 0.5
"""With fewer requests in flight than this, a disk was idle half of the time."""

SLOW_NS = 20e6
"""A request that takes so long is slow on any medium: a disk that turns finds a place in 15 ms, flash in 1. A disk
whose requests take longer is never said not to be the limit, however few there are."""

SEVERAL = 2.0
"""From this many requests at a place on, several wait there at once, whatever a guest has besides."""

_TWO_BUSY = 1 - (1 - MOST) ** 2
"""Of two I/Os in flight of which each is half of its time at the device, one or both are there for this share of the
time. A device that has few requests, and any of them for less of the time, has not most of an I/O's time."""

ONE_AT_A_TIME = 1.1
"""With no more I/Os in flight than this, there is one at a time."""

RESTS_BETWEEN = 0.9
"""With fewer I/Os in flight than this on average, there is none for some of the time."""

_AT_WORK = 0.05
"""Threads that use less of a CPU than this only start and watch others."""

_OTHERS = 0.2
"""From this share of a device's bytes on, others count as neighbours; less is the filesystem's own metadata."""

_NOT_LONGER = 1.2
"""A load that waits for the device is not served in less time than the device takes. Where the device's mean is
longer than the load's by this factor, the load does not wait for it."""

_BESIDE_OTHERS = 3.0
"""The same beside others, whose requests may wait longer: neighbours with 16 times as many in flight had a mean of
1.3 to 2.2 times the load's (`benchmarks/layers.py`)."""


_UNKNOWN = Layers(way="guest", rounds=0, total_ns=0.0, layers=())


@dataclass(frozen=True, slots=True)
class SeenPath:
    """The facts."""

    path: DataPath

    def apart(self, *boundaries: Boundary) -> tuple[RequestLayer, ...]:
        """The layers that lie there and nowhere else. No check asks in another way, or one is accused for others."""
        return () if self.path.layers is None else self.path.layers.within(*boundaries)

    def share(self, *boundaries: Boundary) -> float:
        """The share of the time in the layers that lie there."""
        return sum(one.share for one in self.apart(*boundaries))

    def in_flight(self, *boundaries: Boundary) -> float:
        """The number of requests in flight there."""
        return sum(one.in_flight for one in self.apart(*boundaries))

    @property
    def latency_ns(self) -> float:
        """The mean time of a request, 0 if unknown."""
        return (self.path.latency_ns or 0.0) if self.path.layers is None else self.path.layers.total_ns

    def of(self, role: str) -> list[ThreadCost]:
        """The threads of a role, the busiest first."""
        return sorted((one for one in self.path.threads if one.role == role), key=lambda one: -one.cpu_seconds)

    @property
    def server(self) -> ThreadCost | None:
        """The thread that serves the disk, the busiest of several; None where it is not seen."""
        return next(iter(self.of(self.path.serving)), None)

    @property
    def ring_used(self) -> float:
        """The share of the places of its virtqueue that are in use; 0 where that is not seen from its top."""
        size = self.path.ring_size
        return self.layers.in_flight / size if self.layers.top == "ring" and size else 0.0

    def layer(self) -> RequestLayer | None:
        return max(self.layers.layers, key=lambda one: one.share, default=None)

    @property
    def layers(self) -> Layers:
        """The layers, none where they are unknown."""
        return self.path.layers or _UNKNOWN

    @property
    def flying(self) -> float | None:
        """How many I/Os may be in flight, of a live disk how many are; None if unknown."""
        path = self.path
        return path.depth if path.depth is not None or path.layers is None else path.layers.in_flight

    @property
    def one_at_a_time(self) -> bool:
        """Whether it is known that no more than one I/O is in flight."""
        return self.flying is not None and self.flying <= ONE_AT_A_TIME

    @property
    def guest_unseen(self) -> bool:
        """Whether the guest's own part is not seen, as of a running VM: shares are of the time below the guest."""
        return self.layers.top not in ("application", "guest")

    @property
    def device_rests(self) -> bool:
        """Whether the device had no request for so long that most of an I/O's time is not there, whatever is seen."""
        busy, each = self.path.device_busy, self.path.device_ns or 0.0
        if not self.guest_unseen or busy is None:
            return False
        several = max(self.in_flight("device"), self.path.iops * each / 1e9) >= SEVERAL
        return busy < (MOST if several else _TWO_BUSY)

    @property
    def at_device(self) -> float:
        """The share of an I/O's time at the device: its layer's, as configured (null-co), or by its mean."""
        return 0.0 if self.device_rests else max(self.share("device"), self.stand_in, self.by_mean)

    @property
    def stand_in(self) -> float:
        """The share of the time that QEMU's null-co answers after, where that replaces the device."""
        return (self.path.stands_in_ns or 0.0) / self.path.latency_ns if self.path.latency_ns else 0.0

    @property
    def by_mean(self) -> float:
        """The share of an I/O's time that the device takes for a request of anybody, 0 where the load does not wait
        for it. It is known where the layer is not told apart: others use the device, or nothing is left above it.
        """
        found = (self.path.device_ns or 0.0) / self.latency_ns if self.latency_ns else 0.0
        return min(1.0, found) if found <= (_BESIDE_OTHERS if self.others else _NOT_LONGER) else 0.0

    @property
    def others(self) -> float:
        """The share of the device's bytes that others caused, if that is enough to count."""
        share = self.path.others_share or 0.0
        return share if share >= _OTHERS else 0.0

    @property
    def idle(self) -> float:
        """The share of the I/Os that may be in flight and that the load did not submit."""
        idle = self.layers.idle if self.path.idle is None else self.path.idle
        return (idle or 0.0) / self.path.depth if self.path.depth else 0.0

    @property
    def load_busy(self) -> float:
        """The share of a CPU that the jobs of the load use or wait for, each on average."""
        jobs = [one for one in self.of("load") if one.busy >= _AT_WORK]
        threads = sum(one.busy + one.stalled for one in jobs) / len(jobs) if jobs else 0.0
        return max(threads, self.path.load_busy or 0.0)

    @property
    def above_queue(self) -> float:
        """The share of the time in the guest, where the wait in the virtqueue is told apart from it; else 0."""
        layers = self.layers.layers
        first = next((index for index, one in enumerate(layers) if one.boundary == "ring"), 0)
        return sum(one.share for one in layers[:first])

    @property
    def full_vcpu(self) -> str:
        """That one of a VM's vCPUs is saturated, where its I/O may wait for what runs there; else nothing."""
        one = next(iter(self.of("vcpu")), None)
        if one is None or one.busy < SATURATED or self.path.guest_polls:
            return ""
        used = f"{named(one)} used {format_share(one.busy)} of a CPU"
        return f"{used}: a program that does its I/O there may send no more"

    @property
    def each_takes(self) -> str:
        """How long a request takes, where most of that passes, and of which kind it is, in words."""
        most, kinds = self.layer(), self.each_kind
        # QEMU's own mean, which stands beside it, is without the wait in the virtqueue
        ring = next((one for one in self.layers.layers if one.boundary == "ring" and self.guest_unseen), most)
        waits = "" if ring is most or ring is None else f" with its {format_ns(ring.mean_ns)} in the virtqueue"
        where = "" if most is None else f", of it {format_ns(most.mean_ns)} in: {most.label}"
        unseen = next((f"; {one}" for one in self.layers.reasons if one.startswith(WAIT_UNSEEN)), "")
        told = f"each request takes {format_ns(self.latency_ns)}{waits}{where}" + (f" ({kinds})" if kinds else "")
        return told + unseen

    @property
    def each_kind(self) -> str:
        """How long a request of each kind takes, in words; nothing where there is only one kind."""
        kinds = [f"{one.words} {format_ns(one.mean_ns)}" for one in self.path.operations if one.mean_ns is not None]
        return ", ".join(kinds) if kinds[1:] else ""


class Weighed:
    """How much of a request's time, or of the time, a cause accounts for, and what speaks for it and against it.
    Sentences that are empty are left out; `against` says of each if it is true.
    """

    def __init__(
        self, share: float = 0.0, *supports: str, against: Mapping[str, bool] | None = None, experiment: str = ""
    ) -> None:
        self.share = min(1.0, share)
        self.supports = tuple(filter(None, supports))
        self.against = tuple(told for told, holds in (against or {}).items() if holds)
        self.experiment = experiment


def ends(one: ThreadCost, iops: float) -> str:
    """Estimate a thread's highest rate, where that tells: one CPU by its CPU time per I/O (the utilisation law)."""
    each = one.cpu_seconds / one.seconds / iops
    so = f", so at most {format_count(1 / each)} IOPS" if one.nears_its_end else " at this rate"
    return f"{format_ns(each * 1e9)} of CPU for each I/O{so}"


def named(one: ThreadCost) -> str:
    names = {"main": "the main loop", "load": "the load", "worker": "a worker thread"}
    return names.get(one.role, f"thread {one.name!r}")


STALLED = 0.2
"""A thread that was runnable without a CPU for this share of the time delayed every I/O that passes through it."""

_BRIEF, _OFTEN = 3.0, 1.5
"""In a look of fewer seconds, less than so many times that share may be two or three waits of a tenth of a second."""

WANTED = 0.5
"""A thread that wanted a CPU for less than this share of the time was idle for the rest: its waits for a CPU do not
bound the rate."""

WORK = 2.0
"""A saturated thread that works this many times as long as it waits for a CPU is the limit itself: without the waits
it would do at most half as much again."""

IDLE = 0.25
"""If this share of the I/Os that may be in flight was not submitted, the load did not keep up with the disk."""

FOREIGN_CPUS = 0.2
"""Other processes that use less CPU than this do not disturb."""


AT_DEVICE = "the device has most of an I/O's time"
"""What speaks against a cause above it: without that the rate would hardly change."""


def host_cpu(seen: SeenPath) -> Weighed:
    """A thread on the path of every I/O (serving thread, vCPU or load) that has no CPU to run on; of several the one
    that waits longest. Workers are left out: they are many, and wait for one another.
    """
    stalled, role = max(_stalled(seen, role) for role in (seen.path.serving, "vcpu", "load"))
    worst = next(iter(seen.of(role)), None)
    if worst is None:
        return Weighed()
    who, others = "", seen.path.foreign_cpus
    if others is not None and others >= FOREIGN_CPUS:
        who = f"others used {others:.1f} CPUs meanwhile"
    elif others is not None and not seen.path.throttled:  # where a quota holds it back there may be CPUs enough
        who = "others hardly worked: QEMU and the load have too few CPUs for themselves"
    unseen = "whether it is cpu.max of its control group that holds it back is not seen"
    long = seen.guest_unseen and seen.latency_ns >= SLOW_NS and seen.share("ring") < MOST
    pin, looked = _PIN[seen.path.origin].format(tid=worst.tid), seen.path.seconds
    job = any(one.startswith(BLOCK_JOB) for one in seen.path.unread)
    return Weighed(
        stalled,
        f"{named(worst)} could have run and had no CPU for {format_share(stalled)} of the time",
        who,
        unseen if seen.path.origin != "trial" and seen.path.throttled is None else "",
        against={
            AT_DEVICE: seen.at_device >= MOST,
            "a request passes most of a long time where no vCPU serves it": role == "vcpu" and long,
            "its requests may wait for a block job for the rest": job and stalled < MOST,
            f"in {format_seconds(looked)} that is a few waits": 0 < looked < _BRIEF and stalled < _OFTEN * STALLED,
        },
        experiment=f"give it a CPU of its own ({pin}), or stop what runs beside it, and measure again",
    )


_PIN = {
    "libvirt": "`virsh iothreadpin`, `virsh vcpupin`, `virsh emulatorpin`",
    "monitor": "`taskset -cp CPU {tid}`",
    "trial": "`--set iothread.pin=CPU`, `--set vcpu.pin=CPU`",
}
"""What gives a thread a CPU, by how it was observed."""


def _stalled(seen: SeenPath, role: str) -> tuple[float, str]:
    """Return how much of the time a role's threads had no CPU; 0 where work saturates them, or they wanted none."""
    chosen = [one for one in seen.of(role) if one.busy > 0.01 or one.stalled >= STALLED]
    if not chosen:
        return 0.0, role
    busy, stalled = (sum(map(attrgetter(name), chosen)) / len(chosen) for name in ("busy", "stalled"))
    by_work = busy + stalled >= SATURATED and busy >= WORK * stalled
    wanted = busy + stalled >= WANTED or (role == seen.path.serving and seen.share("ring") >= MOST)
    return stalled if wanted and not by_work else 0.0, role


def vcpu(seen: SeenPath) -> Weighed:
    """All of the guest's CPUs are busy. A guest that polls is always busy: of it is asked that its requests are not
    handed over, or are above the virtqueue.
    """
    path, vcpus = seen.path, seen.of("vcpu")
    if not vcpus:
        return Weighed()
    late, polls = "", path.guest_polls
    if polls and seen.idle >= IDLE:
        late = f"{format_share(seen.idle)} of its I/Os were not handed over, and its vCPU did not sleep"
    elif polls and seen.above_queue >= MOST:
        late = f"{format_share(seen.above_queue)} of an I/O's time passed in the guest, whose vCPU did not sleep"
    busy, stalled = sum(one.busy for one in vcpus), sum(one.stalled for one in vcpus)
    more = "give the VM another vCPU"
    if seen.one_at_a_time:
        more = "have more I/Os in flight (with one at a time another vCPU has nothing to do)"
    return Weighed(
        sum(one.busy + one.stalled for one in vcpus) / len(vcpus),
        late or f"its {len(vcpus)} vCPUs used {busy:.2f} CPUs",
        against={
            AT_DEVICE: not polls and seen.at_device >= MOST,
            "they waited for a CPU of this host longer than they worked": not polls and stalled > busy,
            "the guest polls, and hands its I/Os over in time": polls and not late,
        },
        experiment=f"{more}, or move other programs of the guest away from it",
    )


IOTHREAD = "give the disk an IOThread, and compare (`--set device.iothread=iothread0` in a test guest)"
"""What to try where the main loop has no more CPU."""


def serving(seen: SeenPath, role: str) -> Weighed:
    """The serving thread uses a whole CPU. One that polls does so too while it has nothing to do: of it is asked that
    several I/Os are in flight, that neither device nor load has the time, and that requests are seen to wait for it.
    """
    one = seen.server
    if one is None or one.role != role or seen.path.iops <= 0 or one.cpu_seconds <= 0:
        return Weighed()
    # whether a thread that polls is busy with work, and not with looking for some
    waiting = seen.in_flight("ring") >= RESTING if seen.apart("ring") else seen.load_busy < SATURATED
    works = waiting and seen.at_device < MOST and not seen.one_at_a_time
    return Weighed(
        one.busy + one.stalled,
        f"{named(one)} used {format_share(one.busy)} of a CPU: {ends(one, seen.path.iops_of(one))}",
        against={"it polls, and requests do not wait for it": seen.path.polling and not works},
        experiment="a second IOThread for the disk (`iothread-vq-mapping`, QEMU 9.0 and later), or a cheaper engine"
        if one.role == "iothread"
        else IOTHREAD,
    )


def load(seen: SeenPath) -> Weighed:
    """The load does not submit all the I/Os that it may, or its jobs use whole CPUs and do not poll."""
    path, share, busy = seen.path, seen.idle, seen.load_busy
    bound = f"of {format_count(path.depth or 0)} I/Os that may be in flight"
    works = busy >= SATURATED and not path.load_polls and seen.at_device < MOST
    return Weighed(
        max(share, busy if works else 0.0),
        "" if share < IDLE / 5 else f"{bound} {format_count(share * (path.depth or 0))} were not handed over",
        "" if not busy else f"a job of the load used {format_share(busy)} of a CPU, or waited for it",
        experiment="more jobs (`numjobs`), or more I/Os in a call (`iodepth_batch`), until the disk is the limit",
    )


def pool(seen: SeenPath) -> Weighed:
    """The pool's workers are at work or wait for the device all the time, more than the thread that feeds them."""
    path, threads, most = seen.path, seen.of("worker"), seen.path.workers_max
    if most is None or path.device_ns is None or not threads:
        return Weighed()
    at_work = sum(one.busy + one.stalled for one in threads)
    busy = (path.iops * path.device_ns / 1e9 + at_work) / most
    wanted = max((one.busy + one.stalled for one in seen.of(path.serving)), default=0.0)
    enough = path.depth is None or path.depth <= most
    return Weighed(
        busy,
        f"the {most} workers of QEMU's pool were occupied {format_share(min(1.0, busy))} of the time",
        against={"no fewer than I/Os in flight": enough, "the thread that gives them work is busier": busy < wanted},
        experiment=_MORE_WORKERS,
    )


def workers(seen: SeenPath) -> Weighed:
    """More requests are in QEMU than its pool has workers."""
    path, most = seen.path, seen.path.workers_max
    if most is None or path.depth is None or path.depth <= most:
        return Weighed()
    waiting = seen.in_flight("backend", "device") or sum(one.in_flight for one in seen.layers.layers[:1])
    told = f"{format_count(waiting)} requests are in QEMU, and its pool has {most} workers"
    return Weighed(waiting / path.depth, told, experiment=_MORE_WORKERS)


_MORE_WORKERS = (
    "a larger pool (`--set iothread.thread_pool_max=64`), or an engine without one"
    " (`--vary disk.aio=threads,native,io_uring`)"
)
