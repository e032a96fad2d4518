# SPDX-License-Identifier: Apache-2.0
"""Find what limits a disk under its load: causes are checked one by one, those with direct evidence first.

Direct evidence is a configured limit that is reached, a thread that uses all of its CPU, or a thread without a CPU to
run on. Otherwise the bottleneck is the layer in which most requests are in flight (Little's law). If no layer has
half of them, no bottleneck is named.
"""

from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace

from virtune.model.bottleneck import Bottleneck, Cause, DataPath
from virtune.model.layers import Boundary, RequestLayer
from virtune.model.threads import ThreadCost
from virtune.model.units import format_bandwidth, format_count, format_ns, format_share

SATURATED = 0.9
"""From this share of a CPU on, waiting for a CPU included, a thread counts as saturated."""

STALLED = 0.2
"""A thread that was runnable without a CPU for this share of the time delayed every I/O that passes through it."""

MOST = 0.5
"""A layer with half of the requests in flight, or of their time, is the bottleneck."""

AT_LIMIT = 0.93
"""QEMU's throttle allows bursts and rounds its waits: throttled rates were 0.95 to 1.01 of the limit."""

IDLE = 0.25
"""If this share of the I/Os that may be in flight was not submitted, the load did not keep up with the disk."""

THROTTLED = 0.1
"""From this share of time on, CPU throttling by a control group is the bottleneck."""

RESTING = 0.5
"""With fewer requests in flight than this, a disk was idle half of the time."""

FOREIGN_CPUS = 0.2
"""Other processes that use less CPU than this do not disturb."""

Answer = Bottleneck | None


@dataclass(frozen=True, slots=True)
class _Seen:
    """The facts, with figures that several checks need."""

    path: DataPath

    def share(self, *boundaries: Boundary) -> float:
        """The share of the time in the layers that begin at a boundary."""
        return sum(one.share for one in self._layers if one.boundary in boundaries)

    def in_flight(self, *boundaries: Boundary) -> float:
        """The number of requests in flight there."""
        return sum(one.in_flight for one in self._layers if one.boundary in boundaries)

    def of(self, role: str) -> list[ThreadCost]:
        """The threads of a role, the busiest first."""
        return sorted((one for one in self.path.threads if one.role == role), key=lambda one: -one.cpu_seconds)

    def layer(self) -> RequestLayer | None:
        """The layer with the most time."""
        return max(self._layers, key=lambda one: one.share, default=None)

    @property
    def _layers(self) -> tuple[RequestLayer, ...]:
        return () if self.path.layers is None else self.path.layers.layers


def judge(path: DataPath) -> Bottleneck:
    """Return what limits the disk; `undecidable`, with the evidence, where nothing stands out."""
    seen = _Seen(path)
    if path.iops <= 0:
        return _found(Cause.UNDECIDED, "no I/O was completed", experiment="put the disk under its usual load")
    asked: tuple[Callable[[_Seen], Answer], ...] = (
        _throttle, _page_cache, _host_cpu, _load, _threads, _not_bound, _workers, _depth, _places,
    )  # fmt: skip
    for ask in asked:
        if (answer := ask(seen)) is not None:
            return replace(answer, evidence=(*answer.evidence, *_beside(seen, answer)))
    return _found(
        Cause.UNDECIDED,
        *_shares(seen),
        experiment=_sight(seen),
    )


def _found(cause: Cause, *evidence: str, experiment: str) -> Bottleneck:
    return Bottleneck(cause=cause, evidence=tuple(one for one in evidence if one), experiment=experiment)


def _throttle(seen: _Seen) -> Answer:
    for unit, (limit, done) in seen.path.limits.items():
        if limit > 0 and done >= AT_LIMIT * limit:
            write = format_bandwidth if unit.endswith("bps") else format_count
            return _found(
                Cause.THROTTLE,
                f"{write(done)} of the {write(limit)} that are allowed ({unit})",
                experiment="raise or remove the limit (`virsh blkdeviotune`, `qm set ... iops=`, io.max) and measure"
                " again",
            )
    throttled = seen.path.throttled
    if throttled is not None and throttled >= THROTTLED:
        return _found(
            Cause.THROTTLE,
            f"a control group held the CPU back for {format_share(throttled)} of the time",
            experiment="raise the group's cpu.max (libvirt: `virsh schedinfo` has the quotas) and measure again",
        )
    return None


def _page_cache(seen: _Seen) -> Answer:
    served = seen.path.served
    if served is None or served >= MOST:
        return None
    return _found(
        Cause.PAGE_CACHE,
        f"{format_share(served)} of the bytes read came from the device, the rest from memory",
        experiment="`cache=none` (`--set disk.cache=none`) measures the disk; a span larger than memory does too",
    )


def _host_cpu(seen: _Seen) -> Answer:
    """A thread on the path of every I/O (serving thread, vCPU or load) that has no CPU to run on. Workers are left
    out: they are many, and wait for one another.
    """
    for role in (seen.path.serving, "vcpu", "load"):
        threads = seen.of(role)
        busy = [one for one in threads if one.cpu_seconds > 0.01 * one.seconds or one.stalled >= STALLED]
        stalled = sum(one.stalled for one in busy) / len(busy) if busy else 0.0
        if stalled < STALLED:
            continue
        others = seen.path.foreign_cpus
        who = (
            f"others used {others:.1f} CPUs meanwhile"
            if others is not None and others >= FOREIGN_CPUS
            else "no others worked: QEMU and the load have too few CPUs for themselves"
        )
        return _found(
            Cause.HOST_CPU,
            f"{_named(busy[0])} could have run and had no CPU for {format_share(stalled)} of the time",
            who,
            experiment="give it a CPU of its own (`virsh iothreadpin`, `virsh vcpupin`; `--set iothread.pin=CPU`), or"
            " stop what runs beside it, and measure again",
        )
    return None


def _threads(seen: _Seen) -> Answer:
    """A thread that uses a whole CPU, unless it polls while requests wait elsewhere."""
    below = seen.share("device")
    causes = {"iothread": Cause.IOTHREAD, "main": Cause.MAIN_LOOP}
    for one in seen.of(seen.path.serving)[:1]:
        if one.busy + one.stalled < SATURATED or (seen.path.polling and below >= MOST):
            continue
        if one.role not in causes:
            continue
        other = (
            "a second IOThread for the disk (`iothread-vq-mapping`, QEMU 9.0 and later), or a cheaper engine"
            if one.role == "iothread"
            else "give the disk an IOThread (`--set device.iothread=iothread0`), and compare"
        )
        return _found(
            causes[one.role],
            f"{_named(one)} used {format_share(one.busy)} of a CPU: {_ends(one, seen.path.iops)}",
            experiment=other,
        )
    vcpus = seen.of("vcpu")
    if vcpus and sum(one.busy + one.stalled for one in vcpus) / len(vcpus) >= SATURATED:
        return _found(
            Cause.VCPU,
            f"its {len(vcpus)} vCPUs used {sum(one.busy for one in vcpus):.2f} CPUs",
            experiment="another vCPU, or fewer guests' programs beside the load; see CPU per I/O",
        )
    return None


def _load(seen: _Seen) -> Answer:
    """The load generator does not keep up: it did not submit all the I/Os it may, or its jobs use whole CPUs."""
    path = seen.path
    idle = path.idle if path.idle is not None else None if path.layers is None else path.layers.idle
    share = idle / path.depth if idle is not None and path.depth else 0.0
    busy, flying = path.load_busy or 0.0, f"of {format_count(path.depth or 0)} I/Os that may be in flight"
    if share >= IDLE or (busy >= SATURATED and (seen.share("application") >= MOST or share >= IDLE / 5)):
        return _found(
            Cause.LOAD,
            "" if idle is None or share < IDLE / 5 else f"{flying} {format_count(idle)} were not handed over",
            "" if not path.load_busy else f"a job of the load used {format_share(busy)} of a CPU",
            experiment="more jobs (`numjobs`), or more I/Os in a call (`iodepth_batch`), until the disk is the limit",
        )
    return None


def _not_bound(seen: _Seen) -> Answer:
    """No bottleneck: the offered rate is achieved, or it is unknown and the disk was idle half of the time."""
    offered, layers = seen.path.offered, seen.path.layers
    if offered is None:
        if seen.path.depth is None and layers is not None and layers.in_flight < RESTING:
            return _found(
                Cause.NOT_BOUND,
                f"{layers.in_flight:.2f} requests were in flight at a time: the VM asks less of the disk than it"
                " could do",
                experiment="look again when it is slow; if it is slow now, look for the time in the guest",
            )
        return None
    if seen.path.iops >= 0.98 * offered:
        return _found(
            Cause.NOT_BOUND,
            f"of {format_count(offered)} I/Os offered a second {format_count(seen.path.iops)} were done",
            experiment="`--at-load` with more finds where it ends",
        )
    return None


def _workers(seen: _Seen) -> Answer:
    path, below = seen.path, seen.in_flight("backend", "device")
    pool = path.workers_max
    if pool is None or path.depth is None or path.depth <= pool:
        return None
    layers = path.layers
    waiting = below or (layers.layers[0].in_flight if layers is not None and layers.layers else 0.0)
    if waiting < path.depth * MOST:
        return None
    return _found(
        Cause.WORKERS,
        f"{format_count(waiting)} requests are in QEMU, and its pool has {pool} workers",
        experiment="a larger pool (`--set iothread.thread_pool_max=64`), or an engine without one"
        " (`--vary disk.aio=threads,native,io_uring`)",
    )


def _depth(seen: _Seen) -> Answer:
    """One I/O at a time: the rate follows from the latency."""
    path = seen.path
    flying = path.depth if path.depth is not None or path.layers is None else path.layers.in_flight
    if flying is None or flying > 1.1:
        return None
    largest = seen.layer()
    told = "" if largest is None else f"most of an I/O's time: {largest.label}, {format_ns(largest.mean_ns)}"
    return _found(
        Cause.DEPTH,
        "one I/O at a time: the rate is 1 / latency",
        told,
        experiment="let more I/Os be in flight (`iodepth`, more jobs), or shorten the largest layer",
    )


def _places(seen: _Seen) -> Answer:
    """No thread is saturated: the bottleneck is the layer with most requests."""
    path = seen.path
    if seen.share("device") >= MOST:
        busy = "" if path.device_busy is None else f"it had a request {format_share(path.device_busy)} of the time"
        return _found(Cause.DEVICE, _place(seen, "device"), busy, experiment=_OF_DEVICE)
    stands_in = path.stands_in_ns
    if stands_in is not None and path.latency_ns and stands_in >= MOST * path.latency_ns:
        part = format_share(stands_in / path.latency_ns)
        return _found(
            Cause.DEVICE,
            f"QEMU's null-co plays the device and answers after {format_ns(stands_in)}: {part} of an I/O's time",
            experiment=_OF_DEVICE,
        )
    if seen.share("backend") >= MOST and stands_in is None:
        return _found(
            Cause.BACKEND,
            _place(seen, "backend"),
            experiment="another engine (`--vary disk.aio=threads,native,io_uring`); of qcow2 a larger L2 cache"
            " (`--set disk.l2_cache_size=32M`)",
        )
    if seen.share("ring") >= MOST:
        return _found(
            Cause.RING,
            _place(seen, "ring"),
            experiment="let the IOThread poll (`--vary iothread.poll_max_ns=0,32768`), or pin it near the vCPUs",
        )
    return None


_OF_DEVICE = "`--rig metal` beside it shows what the device does without QEMU"


def _place(seen: _Seen, boundary: Boundary) -> str:
    share, flying = seen.share(boundary), seen.in_flight(boundary)
    layers = seen.path.layers
    label = next((one.label for one in layers.layers if one.boundary == boundary), "") if layers is not None else ""
    return f"{format_share(share)} of an I/O's time, {format_count(flying)} in flight: {label}"


def _sight(seen: _Seen) -> str:
    """Return what would show more: another rig where nothing was counted below the load, more data where layers are
    joined, and for layers that are told apart the largest of them.
    """
    layers, largest = seen.path.layers, seen.layer()
    if layers is None or largest is None:
        return (
            "more rounds would not show more: measure it where requests are counted below the load, in a test guest"
            " (`--rig qemu`) or on an export through virtio queues (`--rig vhost-user`)"
        )
    if layers.reasons:
        return "more rounds, a quieter host, or a longer `--seconds` tell layers apart that are joined here"
    return f"no single layer is worth the effort: begin with the largest, {largest.label}"


def _shares(seen: _Seen) -> Iterator[str]:
    layers = seen.path.layers
    if layers is None:
        yield "nothing was seen below the load, so its latency cannot be split"
        return
    yield "no layer has half of an I/O's time, no thread is busy all the time, and no limit was reached"
    yield "; ".join(f"{one.label} {format_share(one.share)}" for one in layers.layers)


def _beside(seen: _Seen, answer: Bottleneck) -> Iterator[str]:
    """Further evidence: the highest rate that the serving thread can reach."""
    if answer.cause in (Cause.IOTHREAD, Cause.MAIN_LOOP, Cause.UNDECIDED, Cause.HOST_CPU):
        return
    for one in seen.of(seen.path.serving)[:1]:
        if one.busy >= 0.01 and not seen.path.polling:
            yield f"{_named(one)}: {_ends(one, seen.path.iops)}"


def _ends(one: ThreadCost, iops: float) -> str:
    """Estimate the highest rate of a thread: one CPU divided by its CPU time per I/O (the utilisation law)."""
    each = one.cpu_seconds / one.seconds / iops
    return f"{format_ns(each * 1e9)} of CPU for each I/O, so it ends at {format_count(1 / each)} IOPS"


def _named(one: ThreadCost) -> str:
    names = {"main": "the main loop", "load": "the load", "worker": "a worker thread"}
    return names.get(one.role, f"thread {one.name!r}")
