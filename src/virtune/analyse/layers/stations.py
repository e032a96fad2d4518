# SPDX-License-Identifier: Apache-2.0
"""Is a thread the limit: one without a CPU, one that uses all of its CPU, or a pool with too few of them?

Each is a station that every I/O passes through. A station that is busy all the time bounds the rate (the utilisation
law), and one that polls is busy without working, so more is asked of it.
"""

from virtune.analyse.layers.seen import (
    MOST,
    ONE_AT_A_TIME,
    RESTING,
    SATURATED,
    SLOW_NS,
    Answer,
    SeenPath,
    ends,
    flying,
    found,
    named,
)
from virtune.model.bottleneck import Cause
from virtune.model.units import format_count, format_share

STALLED = 0.2
"""A thread that was runnable without a CPU for this share of the time delayed every I/O that passes through it."""

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


def host_cpu(seen: SeenPath) -> Answer:
    """A thread on the path of every I/O (serving thread, vCPU or load) that has no CPU to run on; of several the one
    that waits longest. Workers are left out: they are many, and wait for one another. Where the device has most of
    an I/O's time, a CPU would not change the rate.
    """
    if seen.at_device >= MOST:
        return None
    stalled, role = max(_stalled(seen, role) for role in (seen.path.serving, "vcpu", "load"))
    worst = seen.of(role)
    if stalled < STALLED or not worst or (role == "vcpu" and _below_for_long(seen)):
        return None
    others = seen.path.foreign_cpus
    who = "" if others is None else f"others used {others:.1f} CPUs meanwhile"
    if others is not None and others < FOREIGN_CPUS:
        who = "others hardly worked: QEMU and the load have too few CPUs for themselves"
    return found(
        Cause.HOST_CPU,
        f"{named(worst[0])} could have run and had no CPU for {format_share(stalled)} of the time",
        who,
        experiment=f"give it a CPU of its own ({_PIN[seen.path.origin].format(tid=worst[0].tid)}), or stop what runs"
        " beside it, and measure again",
    )


def _below_for_long(seen: SeenPath) -> bool:
    """Whether a request passes most of a long time where no vCPU serves it: that one of a live VM waits for a CPU is
    not why.
    """
    return seen.guest_unseen and seen.latency_ns >= SLOW_NS and seen.share("ring") < MOST


_PIN = {
    "libvirt": "`virsh iothreadpin`, `virsh vcpupin`, `virsh emulatorpin`",
    "monitor": "`taskset -cp CPU {tid}`",
    "trial": "`--set iothread.pin=CPU`, `--set vcpu.pin=CPU`",
}
"""What gives a thread a CPU, by how it was observed."""


def _stalled(seen: SeenPath, role: str) -> tuple[float, str]:
    """Return the mean share of time that the threads of a role had no CPU; 0 where they hardly wanted one, and where
    they are saturated by work.
    """
    chosen = [one for one in seen.of(role) if one.busy > 0.01 or one.stalled >= STALLED]
    if not chosen:
        return 0.0, role
    busy, stalled = (sum(values) / len(chosen) for values in zip(*((o.busy, o.stalled) for o in chosen), strict=True))
    by_work = busy + stalled >= SATURATED and busy >= WORK * stalled
    return 0.0 if by_work or busy + stalled < WANTED else stalled, role


def vcpu(seen: SeenPath) -> Answer:
    """All of the guest's CPUs are busy. A guest that polls is always busy: of it is asked that its requests are not
    handed over, or are above the virtqueue.
    """
    path, vcpus = seen.path, seen.of("vcpu")
    if not vcpus or sum(one.busy + one.stalled for one in vcpus) / len(vcpus) < SATURATED:
        return None
    told = f"its {len(vcpus)} vCPUs used {sum(one.busy for one in vcpus):.2f} CPUs"
    if not path.guest_polls:
        if seen.at_device >= MOST:
            return None
    elif seen.idle >= IDLE:
        told = f"{format_share(seen.idle)} of its I/Os were not handed over, and its vCPU did not sleep"
    elif seen.above_queue >= MOST:
        told = f"{format_share(seen.above_queue)} of an I/O's time passed in the guest, whose vCPU did not sleep"
    else:
        return None
    return found(
        Cause.VCPU,
        told,
        experiment="give the VM another vCPU, or move other programs of the guest away from it",
    )


def full_vcpu(seen: SeenPath) -> str:
    """Say that one of a VM's vCPUs is saturated, where its I/O may wait for what runs there; else nothing."""
    for one in seen.of("vcpu")[:1]:
        if one.busy >= SATURATED and not seen.path.guest_polls:
            used = f"{named(one)} used {format_share(one.busy)} of a CPU"
            return f"{used}: a program that does its I/O there sends no more"
    return ""


def serving(seen: SeenPath) -> Answer:
    """The serving thread uses a whole CPU. One that polls does so too while it has nothing to do, so of it is asked
    that several I/Os are in flight, that neither the device nor the load has the time, and that requests wait for it
    where that can be seen.
    """
    causes = {"iothread": Cause.IOTHREAD, "main": Cause.MAIN_LOOP}
    for one in seen.of(seen.path.serving)[:1]:
        if one.role not in causes or one.busy + one.stalled < SATURATED:
            continue
        if seen.path.polling and not _works(seen):
            continue
        other = (
            "a second IOThread for the disk (`iothread-vq-mapping`, QEMU 9.0 and later), or a cheaper engine"
            if one.role == "iothread"
            else "give the disk an IOThread, and compare (`--set device.iothread=iothread0` in a test guest)"
        )
        return found(
            causes[one.role],
            f"{named(one)} used {format_share(one.busy)} of a CPU: {ends(one, seen.path.iops_of(one))}",
            experiment=other,
        )
    return None


def _works(seen: SeenPath) -> bool:
    """Whether a thread that polls is busy with work, and not with looking for some."""
    depth, waiting = flying(seen), seen.waits_in_ring()
    if seen.at_device >= MOST or (depth is not None and depth <= ONE_AT_A_TIME):
        return False
    return waiting >= RESTING if waiting is not None else seen.load_busy < SATURATED


def load(seen: SeenPath) -> Answer:
    """The load generator does not keep up: it did not submit all the I/Os it may, or its jobs use whole CPUs and do
    not poll.
    """
    path, share, busy = seen.path, seen.idle, seen.load_busy
    bound = f"of {format_count(path.depth or 0)} I/Os that may be in flight"
    if share >= IDLE or (busy >= SATURATED and not path.load_polls and seen.at_device < MOST):
        return found(
            Cause.LOAD,
            "" if share < IDLE / 5 else f"{bound} {format_count(share * (path.depth or 0))} were not handed over",
            "" if not busy else f"a job of the load used {format_share(busy)} of a CPU, or waited for it",
            experiment="more jobs (`numjobs`), or more I/Os in a call (`iodepth_batch`), until the disk is the limit",
        )
    return None


def pool(seen: SeenPath) -> Answer:
    """The workers of the pool are occupied all the time, more than the thread that gives them work."""
    path, busy = seen.path, seen.pool_busy
    wanted = max((one.busy + one.stalled for one in seen.of(path.serving)), default=0.0)
    if path.depth is None or path.depth <= (path.workers_max or 0) or busy < max(SATURATED, wanted):
        return None
    return found(
        Cause.WORKERS,
        f"the {path.workers_max} workers of QEMU's pool were occupied {format_share(min(1.0, busy))} of the time",
        experiment=_MORE_WORKERS,
    )


def workers(seen: SeenPath) -> Answer:
    """More requests are in QEMU than its pool has workers."""
    path, below = seen.path, seen.in_flight("backend", "device")
    pool = path.workers_max
    if pool is None or path.depth is None or path.depth <= pool:
        return None
    waiting = below or (seen.layers[0].in_flight if seen.layers else 0.0)
    if waiting < path.depth * MOST:
        return None
    return found(
        Cause.WORKERS,
        f"{format_count(waiting)} requests are in QEMU, and its pool has {pool} workers",
        experiment=_MORE_WORKERS,
    )


_MORE_WORKERS = (
    "a larger pool (`--set iothread.thread_pool_max=64`), or an engine without one"
    " (`--vary disk.aio=threads,native,io_uring`)"
)
