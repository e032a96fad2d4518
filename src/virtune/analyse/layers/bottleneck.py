# SPDX-License-Identifier: Apache-2.0
"""Find what limits a disk under its load: causes are checked one by one, those with direct evidence first.

Direct evidence is a configured limit that is reached, a thread that uses all of its CPU, or a thread without a CPU to
run on. Otherwise the bottleneck is the layer in which most requests are in flight (Little's law). If no layer has
half of them, no bottleneck is named.
"""

from collections.abc import Callable, Iterator
from dataclasses import replace

from virtune.analyse.layers.seen import (
    MOST,
    ONE_AT_A_TIME,
    RESTING,
    SEVERAL,
    Answer,
    SeenPath,
    ends,
    flying,
    found,
    named,
)
from virtune.analyse.layers.stations import full_vcpu, host_cpu, load, pool, serving, vcpu, workers
from virtune.model.bottleneck import CONTROL_GROUP, Bottleneck, Cause, DataPath, limit_text
from virtune.model.layers import Boundary
from virtune.model.units import format_count, format_ns, format_share

AT_LIMIT = 0.93
"""QEMU's throttle allows bursts and rounds its waits: throttled rates were 0.95 to 1.01 of the limit."""

NEAR_LIMIT = 0.75
"""On a host with too few CPUs QEMU lets the next request go too late, and less than the limit is reached: 0.83 of it
was seen. From here on the limit is named where requests wait for it in QEMU: without it there is at most a third to
gain."""

THROTTLED = 0.1
"""From this share of time on, CPU throttling by a control group is the bottleneck."""

AT_ONCE = 1.5
"""A device that has this many times as many requests as the share of time it has any has several at once."""

EXTRA_READS = 0.5
"""From this many bytes on that QEMU reads besides each byte it was asked for, an image's tables are the limit: they
are read before the data, and so take a third of an I/O's time."""


def judge(path: DataPath) -> Bottleneck:
    """Return what limits the disk; `undecidable`, with the evidence, where nothing stands out."""
    seen = SeenPath(path)
    if path.iops <= 0:
        return found(Cause.UNDECIDED, "no I/O was completed", experiment="put the disk under its usual load")
    asked: tuple[Callable[[SeenPath], Answer], ...] = (
        _throttle, _page_cache, _offered, _tables, pool, host_cpu, vcpu, load, serving, _resting, workers, _depth,
        _below_rests, _places,
    )  # fmt: skip
    for ask in asked:
        if (answer := ask(seen)) is not None:
            return replace(answer, evidence=(*answer.evidence, *_beside(seen, answer)))
    return found(
        Cause.UNDECIDED,
        *_shares(seen),
        experiment=_sight(seen),
    )


def _throttle(seen: SeenPath) -> Answer:
    reached = {unit: done / limit for unit, (limit, done) in seen.path.limits.items() if limit > 0}
    unit = max(reached, key=reached.__getitem__, default="")
    if unit and (reached[unit] >= AT_LIMIT or (reached[unit] >= NEAR_LIMIT and _waits_for_limit(seen))):
        late = host_cpu(seen) if reached[unit] < AT_LIMIT else None
        return found(
            Cause.THROTTLE,
            limit_text(unit, *seen.path.limits[unit]),
            "" if reached[unit] >= AT_LIMIT else f"{seen.in_flight('backend'):.1f} requests waited in QEMU at a time",
            *(() if late is None else late.evidence),
            experiment=_lift(seen, unit),
        )
    throttled = seen.path.throttled
    if throttled is not None and throttled >= THROTTLED:
        return found(
            Cause.THROTTLE,
            f"a control group held the CPU back for {format_share(throttled)} of the time",
            experiment="raise the group's cpu.max (libvirt: `virsh schedinfo` has the quotas) and measure again",
        )
    return None


def _waits_for_limit(seen: SeenPath) -> bool:
    """Whether a request waits in QEMU for most of its time, and the device is known to have little of it."""
    known = seen.path.device_ns is not None or any(one.boundary == "device" for one in seen.layers)
    return known and seen.at_device < MOST and seen.share("backend") >= MOST and seen.in_flight("backend") >= 1


def _lift(seen: SeenPath, unit: str) -> str:
    """Return how to remove a limit: by the arm's own setting, or by a command where it is known."""
    where = "`virsh blkdeviotune`, `qm set ... iops=`"
    if unit.startswith(CONTROL_GROUP):
        where = "io.max of its control group, `blkio.throttle.*` of version 1"
    elif unit in seen.path.limited_by:
        where = f"`{seen.path.limited_by[unit]}` of the arm"
    elif unit in seen.path.lifts:
        where = f"now: `{seen.path.lifts[unit]}`"
    return f"raise or remove the limit ({where}) and measure again"


def _page_cache(seen: SeenPath) -> Answer:
    served = seen.path.served
    if served is None or served >= MOST:
        return None
    return found(
        Cause.PAGE_CACHE,
        f"{format_share(served)} of the bytes read came from the device, the rest from memory or was never written",
        experiment="`cache=none` (`--set disk.cache=none`) measures the disk; a span larger than memory does too",
    )


def _tables(seen: SeenPath) -> Answer:
    """QEMU reads the tables of an image again and again, since its cache does not hold them."""
    served = seen.path.served
    if served is None or not seen.path.tables or served < 1 + EXTRA_READS:
        return None
    return found(
        Cause.BACKEND,
        f"QEMU read {served - 1:.1f} bytes of the image's tables for each byte of data: its cache of them is too"
        " small",
        experiment="a larger L2 cache (`--set disk.l2_cache_size=32M`), or larger clusters (`disk.cluster_size`)",
    )


def _offered(seen: SeenPath) -> Answer:
    """No bottleneck: the offered rate is achieved."""
    offered = seen.path.offered
    if offered is None or seen.path.iops < 0.98 * offered:
        return None
    return found(
        Cause.NOT_BOUND,
        f"of {format_count(offered)} I/Os offered a second {format_count(seen.path.iops)} were done",
        experiment="`--at-load` with more finds where it ends",
    )


def _resting(seen: SeenPath) -> Answer:
    """No bottleneck: what is asked of a live disk is not known, and it was idle half of the time."""
    path, layers = seen.path, seen.path.layers
    if path.offered is not None or path.depth is not None or layers is None or layers.in_flight >= RESTING:
        return None
    return found(
        Cause.NOT_BOUND,
        f"{layers.in_flight:.2f} requests were in flight at a time: the VM asks less of the disk than it could do",
        full_vcpu(seen),
        experiment="look again when it is slow; if it is slow now, look for the time in the guest",
    )


def _below_rests(seen: SeenPath) -> Answer:
    """What limits a live disk is not seen from here: its device has no request for much of the time, QEMU has few.
    Whether its I/Os wait in the guest, or none are asked for, only the guest knows.
    """
    path = seen.path
    at_device = max(seen.share("device"), seen.by_mean or 0.0)
    if not seen.device_rests or (at_device < MOST and seen.in_flight("ring", "backend") >= SEVERAL):
        return None
    thread = next((f", and {named(one)} used {format_share(one.busy)} of a CPU" for one in seen.of(path.serving)), "")
    few, full = format_count(seen.in_flight("ring", "backend", "device")), full_vcpu(seen)
    there = "`top` there shows what uses that vCPU" if full else "its driver, its CPUs"
    return found(
        Cause.UNDECIDED,
        f"this host's disk is not the limit: it had no request {format_share(1 - (path.device_busy or 0.0))} of the"
        f" time{thread}",
        f"{few} requests were in flight below the guest: it sends no more at a time, and its own part is not seen",
        full,
        experiment=f"`iostat -x 1` in the guest: if its aqu-sz is well above {few}, the time passes in the guest"
        f" ({there}); else its programs ask for no more",
    )


def _depth(seen: SeenPath) -> Answer:
    """One I/O at a time: the rate follows from the latency."""
    several = flying(seen)
    if several is None or several > ONE_AT_A_TIME or _at_once(seen):
        return None
    largest = seen.layer()
    told = "" if largest is None else f"most of an I/O's time: {largest.label}, {format_ns(largest.mean_ns)}"
    return found(
        Cause.DEPTH,
        "one I/O at a time: the rate is 1 / latency",
        told,
        experiment="let more I/Os be in flight (`iodepth`, more jobs), or shorten the largest layer",
    )


def _at_once(seen: SeenPath) -> bool:
    """Whether a live disk's device had several requests at once, and none at other times."""
    busy = seen.path.device_busy
    return seen.guest_unseen and busy is not None and seen.in_flight("device") > AT_ONCE * busy


def _places(seen: SeenPath) -> Answer:
    """No thread is saturated: the bottleneck is the layer with most requests."""
    path = seen.path
    others = f"others caused {format_share(seen.others)} of its bytes" if seen.others else ""
    if seen.share("device") >= MOST or (seen.by_mean or 0.0) >= MOST:
        told = (
            _place(seen, "device")
            if seen.share("device") >= MOST
            else f"a request takes {format_ns(path.device_ns or 0.0)} there, {format_share(seen.by_mean or 0.0)} of"
            f" {_whole(seen)}"
        )
        busy = "" if path.device_busy is None else f"it had a request {format_share(path.device_busy)} of the time"
        experiment = _BESIDE_OTHERS if others else _OF_DEVICE
        return found(Cause.DEVICE, told, busy, others, full_vcpu(seen), experiment=experiment)
    stands_in = path.stands_in_ns
    if stands_in is not None and (seen.stand_in or 0.0) >= MOST:
        part = format_share(seen.stand_in or 0.0)
        return found(
            Cause.DEVICE,
            f"QEMU's null-co plays the device and answers after {format_ns(stands_in)}: {part} of an I/O's time",
            experiment=_OF_DEVICE,
        )
    if seen.share("backend") >= MOST and stands_in is None:
        if seen.guest_unseen and seen.below_qemu_unseen:
            return _not_told_apart(seen)
        return found(
            Cause.BACKEND,
            _place(seen, "backend"),
            experiment="another engine (`--vary disk.aio=threads,native,io_uring`); of qcow2 a larger L2 cache"
            " (`--set disk.l2_cache_size=32M`)",
        )
    if seen.share("ring") >= MOST:
        return found(
            Cause.RING,
            _place(seen, "ring"),
            experiment="let the IOThread poll (`--vary iothread.poll_max_ns=0,32768`), or pin it near the vCPUs",
        )
    return None


def _not_told_apart(seen: SeenPath) -> Bottleneck:
    """A live disk's time in QEMU and below it, of which nothing tells how much is QEMU's own."""
    busy = seen.path.device_busy
    return found(
        Cause.UNDECIDED,
        f"{_place(seen, 'backend')}, which are not told apart",
        "" if busy is None else f"this host's disk had a request {format_share(busy)} of the time",
        full_vcpu(seen),
        experiment="look at what serves the disk: its server and the network"
        if busy is None
        else "the host's page cache stands between QEMU and the disk: `cache=none` tells them apart",
    )


_BESIDE_OTHERS = "stop the others (`virtune top` shows VMs), or limit them, and measure again"
_OF_DEVICE = "`--rig metal` beside it shows what the device does without QEMU"


def _place(seen: SeenPath, boundary: Boundary) -> str:
    share, inside = seen.share(boundary), seen.in_flight(boundary)
    layers = seen.path.layers
    label = next((one.label for one in layers.layers if one.boundary == boundary), "") if layers is not None else ""
    return f"{format_share(share)} of {_whole(seen)}, {format_count(inside)} in flight: {label}"


def _whole(seen: SeenPath) -> str:
    """Return what shares are of."""
    return "the time below the guest" if seen.guest_unseen else "an I/O's time"


def _sight(seen: SeenPath) -> str:
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


def _shares(seen: SeenPath) -> Iterator[str]:
    layers = seen.path.layers
    if layers is None:
        yield "nothing was seen below the load, so its latency cannot be split"
        return
    yield "no layer has half of an I/O's time, no thread is busy all the time, and no limit was reached"
    yield "; ".join(f"{one.label} {format_share(one.share)}" for one in layers.layers)


def _beside(seen: SeenPath, answer: Bottleneck) -> Iterator[str]:
    """Further evidence: limits that are set and not reached, what others do to the disk beside another cause, the
    highest rate that the serving thread can reach.
    """
    if answer.cause is not Cause.THROTTLE:
        yield from (limit_text(unit, *values) for unit, values in seen.path.limits.items())
    if answer.cause in (Cause.HOST_CPU, Cause.UNDECIDED) and seen.others and not seen.device_rests:
        yield f"others caused {format_share(seen.others)} of the bytes of its disk"
    if answer.cause in (Cause.IOTHREAD, Cause.MAIN_LOOP, Cause.UNDECIDED, Cause.HOST_CPU):
        return
    for one in seen.of(seen.path.serving)[:1]:
        if one.busy >= 0.01 and not seen.path.polling:
            yield f"{named(one)}: {ends(one, seen.path.iops_of(one))}"
