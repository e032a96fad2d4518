# SPDX-License-Identifier: Apache-2.0
"""Find what limits a disk under its load: causes are checked one by one, those with direct evidence first. And the
answers to the tuning guideline's questions from the measurements of a running disk.

Direct evidence is a request that is not completed, a configured limit that is reached, a kind of request that has
most of the time, a thread that uses all of its CPU, or a thread without a CPU to run on. Otherwise the bottleneck is
the layer in which most requests are in flight (Little's law). If no layer has half of them, or it is not told apart
from its neighbours, no bottleneck is named.
"""

import re
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import replace

from virtune.analyse.layers.stations import (
    MOST,
    ONE_AT_A_TIME,
    RESTING,
    SEVERAL,
    SLOW_NS,
    Answer,
    SeenPath,
    each_kind,
    each_takes,
    ends,
    flying,
    found,
    full_vcpu,
    host_cpu,
    load,
    named,
    pool,
    serving,
    vcpu,
    workers,
)
from virtune.model.bottleneck import CONTROL_GROUP, Bottleneck, Cause, DataPath, limit_text
from virtune.model.live import OperationKind
from virtune.model.metric import Boundary
from virtune.model.text import format_count, format_ns, format_seconds, format_share

AT_LIMIT = 0.93
"""QEMU's throttle allows bursts and rounds its waits: throttled rates were 0.95 to 1.01 of the limit."""

NEAR_LIMIT = 0.75
"""On a host with too few CPUs QEMU lets the next request go too late, and less than the limit is reached: 0.83 of it
was seen. From here on the limit is named where requests wait for it in QEMU: without it there is at most a third to
gain."""

THROTTLED = 0.1
"""From this many CPUs on, held back by a control group, that is the bottleneck."""

AT_ONCE = 1.5
"""A device that has this many times as many requests as the share of time it has any has several at once."""

EXTRA_READS = 0.5
"""From this many bytes on that QEMU reads besides each byte it was asked for, an image's tables are the limit: they
are read before the data, and so take a third of an I/O's time."""

HUNG_SECONDS = 0.5
"""A disk that completes nothing for so long with requests in flight hangs; one that did complete some must have been
silent for twice as long, and for FAR_LONGER than its requests take."""

FAR_LONGER = 10.0
"""A silence this many times as long as a request takes is no slow request: of requests that come at random one in
22,000 takes so long."""

FEW = 3.0
"""A disk with a limit hangs only if that would have let so many requests through meanwhile."""

FAULTS = 5.0
"""From this many major page faults a second on, QEMU lacks memory: each stops a thread until a page is read."""

MEMORY_PRESSURE = 0.1
"""From this share of the time on in which some task of the host waits for memory, its faults are the bottleneck."""

STALLED = 0.01
"""A smaller part of the time in stalls is not worth a line."""

FULL = 0.7
"""A virtqueue with this share of its places in use is full much of the time: a request leaves one before it is used
again."""

APART = 2.0
"""A kind of request that takes this many times as long as another is told beside it, whatever the cause."""

SMALL_RING = 32
"""A queue that holds no more is likely to be the bound itself: QEMU's own holds 256."""


def judge(path: DataPath) -> Bottleneck:
    """Return what limits the disk; `undecidable`, with the evidence, where nothing stands out."""
    seen = SeenPath(path)
    asked: tuple[Callable[[SeenPath], Answer], ...] = (
        _hung, _throttle, _memory, _silent, _operations, _resting, _quota, _page_cache, _offered, _tables, pool,
        host_cpu, vcpu, load, serving, workers, _full_ring, _slow, _depth, _below_rests, _places,
    )  # fmt: skip
    answer = next((one for ask in asked if (one := ask(seen)) is not None), None)
    if answer is None:
        answer = found(Cause.UNDECIDED, *_shares(seen), experiment=_sight(seen))
    return replace(answer, evidence=tuple(dict.fromkeys(filter(None, (*answer.evidence, *_beside(seen, answer))))))


def _hung(seen: SeenPath) -> Answer:
    """Requests are in flight, and none is completed any more."""
    path = seen.path
    least = HUNG_SECONDS if path.iops <= 0 else max(2 * HUNG_SECONDS, FAR_LONGER * seen.latency_ns / 1e9)
    if not path.held or path.held_seconds < least or _rare(path):
        return None
    return found(
        Cause.HUNG,
        f"{path.held} {'request waits' if path.held == 1 else 'requests wait'}, and none was completed for at least"
        f" {format_seconds(path.held_seconds)}",
        experiment="look at what serves the disk: this host's kernel log (`dmesg`), the server and the path to it",
    )


def _rare(path: DataPath) -> bool:
    """Whether a limit lets so few requests through that none may be completed for so long."""
    least = {True: FEW * 2**20, False: FEW}  # of bytes by requests of 1 MiB, and of requests
    return any(limit * path.held_seconds < least[unit.endswith("bps")] for unit, (limit, _) in path.limits.items())


def _silent(seen: SeenPath) -> Answer:
    """No request was completed, and that they hang is not seen."""
    path = seen.path
    if path.iops > 0:
        return None
    usual = "put the disk under its usual load"
    if path.uncounted:
        return found(
            Cause.UNDECIDED,
            _uncounted(path),
            experiment="look in the guest for what discards: `fstrim`, the mount option `discard`",
        )
    if path.failed:
        return found(
            Cause.UNDECIDED, "no request was completed but those that failed", experiment="look at its errors"
        )
    if path.held is None:
        asks = "`cat /sys/block/DISK/inflight` in the guest: above 0 the disk hangs; else "
        told = "no I/O was completed, and whether any is in flight is not seen"
        return found(Cause.UNDECIDED, told, experiment=asks + usual)
    told, next_ = "none is in flight", usual
    if path.held:
        told = f"{path.held} {'is' if path.held == 1 else 'are'} in flight"
        next_ = "look for longer: nothing says yet that they hang"
    return found(Cause.UNDECIDED, f"no I/O was completed, and {told}", experiment=next_)


def _failed(path: DataPath) -> str:
    return f"{format_count(path.failed)} requests a second failed" if path.failed else ""


def _uncounted(path: DataPath) -> str:
    more = f"its virtqueue completed {format_count(path.uncounted)} requests a second that QEMU does not count"
    return f"{more}: discards of virtio-blk are such" if path.uncounted else ""


def _memory(seen: SeenPath) -> Answer:
    """QEMU's pages are read back from storage, and tasks of the host wait for memory."""
    pressure = seen.path.memory_pressure
    if seen.path.faults < FAULTS or pressure is None or pressure < MEMORY_PRESSURE:
        return None
    return found(
        Cause.MEMORY,
        _faults(seen),
        f"some task of this host waited for memory {format_share(min(1.0, pressure))} of the time",
        experiment="more memory for the host or for QEMU's control group (`memory.max`), or less for the guest",
    )


def _faults(seen: SeenPath) -> str:
    each = format_count(seen.path.faults)
    return f"QEMU had {each} major page faults a second: memory of it or its guest was read from storage"


def _operations(seen: SeenPath) -> Answer:
    """Most of the time of a disk's requests is in flushes, or in discards, and they are many or slow."""
    kinds: tuple[tuple[OperationKind, Cause], ...] = (("flush", Cause.FLUSH), ("discard", Cause.DISCARD))
    whole = sum(one.in_flight for one in seen.path.operations)
    for kind, cause in kinds:
        one = next((one for one in seen.path.operations if one.kind == kind), None)
        if one is None or one.mean_ns is None or whole <= 0 or one.in_flight < MOST * whole:
            continue
        if whole >= RESTING or one.mean_ns >= SLOW_NS:
            told = f"{format_count(one.iops)} a second, {format_ns(one.mean_ns)} each, {one.in_flight:.2f} in flight"
            share = format_share(one.in_flight / whole)
            told = f"{share} of the time of its requests is in {one.words}: {told}"
            return found(cause, told, experiment=_FEWER[kind])
    return None


_FEWER = {
    "flush": "fewer flushes (commits together), or a medium that keeps its cache without power; what they cost shows"
    " `cache=unsafe`, on a copy that nobody needs",
    "discard": "`fstrim` in the guest at a quiet hour, in place of a discard with every file that is deleted",
}
"""What makes a kind of request take less of the time."""


def _throttle(seen: SeenPath) -> Answer:
    """A limit is reached, by this disk or by the others of its group beside it."""
    if seen.path.iops <= 0 and not seen.path.held:
        return None
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
    return None


def _quota(seen: SeenPath) -> Answer:
    """Control groups hold the CPUs of QEMU back."""
    throttled = seen.path.throttled
    if throttled is None or throttled < THROTTLED:
        return None
    return found(
        Cause.THROTTLE,
        f"its control groups held CPUs back (cpu.max): {throttled:.2f} of them at a time, on average",
        experiment="raise the group's cpu.max (libvirt: `virsh schedinfo` has the quotas) and measure again",
    )


def _waits_for_limit(seen: SeenPath) -> bool:
    """Whether a request waits in QEMU for most of its time, and the device is known to have little of it."""
    known = seen.path.device_ns is not None or bool(seen.apart("device"))
    return known and seen.at_device < MOST and seen.share("backend") >= MOST and seen.in_flight("backend") >= 1


def _lift(seen: SeenPath, unit: str) -> str:
    """Return how to remove a limit: by the arm's own setting, or by a command where it is known."""
    where = {
        "libvirt": "`virsh blkdeviotune`",
        "monitor": "`block_set_io_throttle` of QMP, or the setting of what started QEMU",
        "trial": "`disk.throttle_...` of the arm",
    }[seen.path.origin]
    if unit.startswith(CONTROL_GROUP):
        where = "io.max of its control group, `blkio.throttle.*` of version 1"
    elif unit in seen.path.limited_by:
        where = f"`{seen.path.limited_by[unit]}` of the arm"
    elif unit in seen.path.lifts:
        where = f"now: `{seen.path.lifts[unit]}`"
    return f"raise or remove the limit ({where}) and measure again"


def _page_cache(seen: SeenPath) -> Answer:
    """Memory serves the load: nothing else that is not read from here can, it does so fast, and is asked to."""
    path, served = seen.path, seen.path.served
    if served is None or served >= MOST or path.unread or (path.origin != "trial" and seen.latency_ns >= SLOW_NS):
        return None
    return found(
        Cause.PAGE_CACHE,
        f"{format_share(served)} of the bytes read came from the device, the rest from memory or was never written",
        experiment="`cache=none` shows what the disk does; so does a load over more than the memory of this host",
    )


def _tables(seen: SeenPath) -> Answer:
    """QEMU reads the tables of an image again and again, since its cache does not hold them."""
    served = seen.path.served
    if served is None or not seen.path.tables or seen.path.unread or served < 1 + EXTRA_READS:
        return None
    return found(
        Cause.BACKEND,
        f"QEMU read {served - 1:.1f} bytes of the image's tables for each byte of data: its cache of them is too"
        " small",
        experiment="a larger cache of them (`l2-cache-size` of the qcow2 node), or an image with larger clusters",
    )


def _offered(seen: SeenPath) -> Answer:
    """No bottleneck: the offered rate is achieved."""
    offered = seen.path.offered
    if offered is None or seen.path.iops < 0.98 * offered or seen.latency_ns >= SLOW_NS:
        return None
    return found(
        Cause.NOT_BOUND,
        f"of {format_count(offered)} I/Os offered a second {format_count(min(offered, seen.path.iops))} were done",
        each_takes(seen),
        experiment="`virtune sweep` finds where it ends",
    )


def _resting(seen: SeenPath) -> Answer:
    """No bottleneck: what is asked of a live disk is not known, it was idle half of the time, and no request of it
    took long. A lack of CPUs is told beside: it may hold the guest's programs up, and so what they ask for.
    """
    path, layers = seen.path, seen.path.layers
    if path.offered is not None or path.depth is not None or layers is None or layers.in_flight >= RESTING:
        return None
    if layers.total_ns >= SLOW_NS:
        return None
    told = f"{layers.in_flight:.2f} requests were in flight at a time: the VM asks for no more at once"
    cause = Cause.UNDECIDED if path.faults >= FAULTS else Cause.NOT_BOUND  # the guest itself may be held up
    experiment = "where each request takes too long, look at the layer with most of its time; else look in the guest"
    late = [answer.evidence[0] for ask in (_quota, host_cpu) if (answer := ask(seen)) is not None]
    return found(cause, told, each_takes(seen), full_vcpu(seen), *late, experiment=experiment)


def _full_ring(seen: SeenPath) -> Answer:
    """The virtqueue holds so few requests that no more can be in flight."""
    if not seen.path.ring_size or seen.path.ring_size > SMALL_RING or not (told := _full(seen)):
        return None
    experiment = "a larger virtqueue (`queue-size=256` of the device), which takes a restart of the VM"
    return found(Cause.DEPTH, told, each_takes(seen), experiment=experiment)


def _full(seen: SeenPath) -> str:
    """Say that the virtqueue is full, where it is seen from its top; else nothing."""
    layers, size = seen.path.layers, seen.path.ring_size
    if layers is None or layers.top != "ring" or not size or layers.in_flight < FULL * size:
        return ""
    count = format_count(min(layers.in_flight, float(size)))
    return f"its virtqueue is full much of the time: {count} of the {size} requests that it holds were in it"


def _slow(seen: SeenPath) -> Answer:
    """Each request takes long with hardly another one beside it: the limit is the layer with most of its time."""
    layers = seen.path.layers
    if layers is None or layers.total_ns < SLOW_NS or layers.in_flight > ONE_AT_A_TIME or _at_once(seen):
        return None
    answer = _places(seen) or found(Cause.UNDECIDED, *_shares(seen), experiment=_sight(seen))
    return replace(answer, evidence=(each_takes(seen), *answer.evidence))


def _below_rests(seen: SeenPath) -> Answer:
    """What limits a live disk is not seen from here: its device has no request for much of the time, QEMU has few.
    Whether its I/Os wait in the guest, or none are asked for, only the guest knows.
    """
    path = seen.path
    at_device = max(seen.share("device"), seen.by_mean or 0.0)
    # what is not told apart is above the device too, but for what its own mean accounts for
    above = (flying(seen) or 0.0) - max(seen.in_flight("device"), path.iops * (path.device_ns or 0.0) / 1e9)
    if path.unread or not seen.device_rests or (at_device < MOST and above >= SEVERAL):
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
    if seen.others >= MOST:
        told = "one I/O at a time, each beside those of others"
        cause = Cause.DEVICE if seen.at_device >= MOST else Cause.UNDECIDED
        return found(cause, told, each_takes(seen), experiment=_BESIDE_OTHERS)
    return found(
        Cause.DEPTH,
        "one I/O at a time: the rate is 1 / latency",
        each_takes(seen),
        experiment="let more I/Os be in flight (more jobs, a greater depth), or shorten the largest layer",
    )


def _at_once(seen: SeenPath) -> bool:
    """Whether a live disk's device had several requests at once, and none at other times."""
    busy = seen.path.device_busy
    return seen.guest_unseen and busy is not None and seen.in_flight("device") > AT_ONCE * busy


def _places(seen: SeenPath) -> Answer:
    """No thread is saturated: the bottleneck is the layer with most requests, if it is apart from the others."""
    path, largest = seen.path, seen.layer()
    if seen.share("device") >= MOST or (seen.by_mean or 0.0) >= MOST:
        told = (
            _place(seen, "device")
            if seen.share("device") >= MOST
            else f"a request takes {format_ns(path.device_ns or 0.0)} there, {format_share(seen.by_mean or 0.0)} of"
            f" {_whole(seen)}"
        )
        busy = "" if path.device_busy is None else f"it had a request {format_share(path.device_busy)} of the time"
        experiment = _BESIDE_OTHERS if seen.others else _OF_DEVICE[path.origin == "trial"]
        return found(Cause.DEVICE, told, busy, full_vcpu(seen), experiment=experiment)
    stands_in = path.stands_in_ns
    if stands_in is not None and (seen.stand_in or 0.0) >= MOST:
        part = format_share(min(1.0, seen.stand_in or 0.0))
        return found(
            Cause.DEVICE,
            f"QEMU's null-co plays the device and answers after {format_ns(stands_in)}: {part} of an I/O's time",
            experiment=_OF_DEVICE[True],
        )
    if largest is not None and largest.joined and largest.share >= MOST and stands_in is None:
        return _not_told_apart(seen)
    if seen.share("backend") >= MOST and stands_in is None:
        engines = "`virtune compare --vary disk.aio=threads,native,io_uring` shows whether another engine is faster"
        return found(
            Cause.BACKEND,
            _place(seen, "backend"),
            experiment=engines + ("; of qcow2 a larger L2 cache may be" if path.tables else ""),
        )
    if seen.share("ring") >= MOST:
        poll = "let the IOThread poll (`poll-max-ns`), or " if not path.polling and path.serving == "iothread" else ""
        return found(
            Cause.RING,
            _place(seen, "ring"),
            experiment=f"{poll}keep the thread that serves the disk on a CPU of its own, near the vCPUs",
        )
    return None


def _not_told_apart(seen: SeenPath) -> Bottleneck:
    """Most of the time is in layers of which nothing tells how much is whose: say which, and what was not seen."""
    path, largest = seen.path, seen.layer()
    label, share = ("", 0.0) if largest is None else (largest.label, largest.share)
    busy = (
        "" if path.device_busy is None else f"this host's disk had a request {format_share(path.device_busy)} of the"
    )
    if path.origin == "trial":
        experiment = _sight(seen)
    elif path.unread:
        experiment = "look at each of what is in its path: which image, filter or job has the time is not measured"
    elif path.protocol and path.protocol not in ("file", "host_device", "null-co", "null-aio"):
        experiment = f"look at what serves the disk over {path.protocol}: its server and the network"
    elif path.device_busy is not None and not path.direct:
        experiment = "the host's page cache stands between QEMU and the disk: `cache=none` tells them apart"
    elif path.device_busy is None:
        experiment = "look at what serves the disk: no device of this host is seen below it"
    else:
        experiment = "a longer `--seconds` or a quieter host may tell them apart"
    return found(
        Cause.UNDECIDED,
        f"{format_share(share)} of {_whole(seen)}: {label}, which are not told apart",
        busy and f"{busy} time",
        *(() if path.layers is None else path.layers.reasons),
        full_vcpu(seen),
        experiment=experiment,
    )


_BESIDE_OTHERS = "stop the others (`virtune top` shows VMs), or limit them, and measure again"
_OF_DEVICE = {
    True: "`virtune measure --rig metal` with the same load shows what the device does without QEMU",
    False: "look at the device itself (`iostat -x 1`, its health): no setting of QEMU makes it faster",
}
"""What to try of a device, by whether it was loaded by a trial."""


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
    layers, largest = seen.path.layers, seen.layer()
    if layers is None or largest is None:
        yield "nothing was seen below the load, so its latency cannot be split"
        return
    told = "no layer has half of an I/O's time" if largest.share < MOST else f"most of the time: {largest.label}"
    yield f"{told}; no thread was seen to be the limit, and no limit that was set was reached"
    yield "; ".join(f"{one.label} {format_share(one.share)}" for one in layers.layers)


def _beside(seen: SeenPath, answer: Bottleneck) -> Iterator[str]:
    """Further evidence, whatever the cause: errors, stalls, what others do to the disk, limits that are set and not
    reached, what was not measured, the highest rate that the serving thread can reach.
    """
    path, cause = seen.path, answer.cause
    yield from (_failed(path), _uncounted(path))
    if (kinds := each_kind(seen)) and _differ(path) and not any(kinds in told for told in answer.evidence):
        yield f"each takes: {kinds}"
    if (
        cause is not Cause.HUNG
        and path.stalls
        and path.stalled >= STALLED
        and path.stalled * path.seconds >= FAR_LONGER * path.stalls * seen.latency_ns / 1e9
    ):
        stalls = "one stall" if path.stalls == 1 else f"{path.stalls} stalls"
        share = format_share(min(1.0, path.stalled))
        yield f"for {share} of the time nothing was completed while requests were in flight, in {stalls}"
    if cause in (Cause.FLUSH, Cause.DISCARD, Cause.MEMORY) and (late := host_cpu(seen)) is not None:
        yield late.evidence[0]
    if path.faults >= FAULTS:
        yield _faults(seen)
    if seen.others:
        known = f" (also on it: {', '.join(path.neighbours)})" if path.neighbours else ""
        yield f"others caused {format_share(seen.others)} of the bytes of its disk{known}"
    if full := _full(seen):
        yield full
    if cause is not Cause.THROTTLE:
        yield from (limit_text(unit, *values) for unit, values in path.limits.items())
    if path.unread and cause is not Cause.NOT_BOUND:
        yield f"in its path, and not measured: {'; '.join(path.unread)}"
    if cause in _NO_END:
        return
    for one in seen.of(path.serving)[:1]:
        if one.busy >= 0.01 and not path.polling and path.iops_of(one) > 0:
            yield f"{named(one)}: {ends(one, path.iops_of(one))}"


def _differ(path: DataPath) -> bool:
    """Whether one kind of request takes so much longer than another that their mean is that of neither."""
    times = [one.mean_ns for one in path.operations if one.mean_ns is not None]
    return len(times) > 1 and max(times) >= APART * min(times)


_NO_END = (Cause.IOTHREAD, Cause.MAIN_LOOP, Cause.UNDECIDED, Cause.HOST_CPU, Cause.HUNG, Cause.NOT_BOUND)
"""Causes beside which the highest rate of the serving thread says nothing."""


BUSY = 0.95
"""From this share of time with a request on, a drive counts as always busy; with several queues it may still do more.
"""

_IN_FLIGHT = 1.5
"""From this mean number of requests in flight on, the load counts as parallel."""


def not_applicable(path: DataPath, cause: Cause) -> str:
    """Return why the guideline says nothing of a disk; empty if it does."""
    if path.iops <= 0:
        return "no read and no write was completed"
    if cause is Cause.THROTTLE:
        return "a limit was set on the disk, and no other setting exceeds it"
    return "its figures are of guests on KVM, and this one is emulated (TCG)" if path.emulated else ""


def answers_of(
    path: DataPath, *, write_share: float | None, host_usr: float | None, host_sys: float | None
) -> dict[str, tuple[bool, str]]:
    """Return answers by question; unknown ones are missing. `host_usr` and `host_sys` are in % of all CPUs."""
    found: dict[str, tuple[bool, str]] = {"assigned": (False, "its requests pass through QEMU")}
    layers = path.layers
    if layers is not None:
        found["jobs"] = (layers.in_flight >= _IN_FLIGHT, f"{layers.in_flight:.1f} requests in flight at a time")
    by_iothread = path.serving == "iothread"
    found["iothreads"] = (by_iothread, f"{'an IOThread' if by_iothread else 'the main loop'} serves the disk")
    if write_share is not None:
        found["writes"] = (write_share > 0.5, f"{format_share(write_share)} of its I/Os are writes")
    if host_usr is not None and host_sys is not None:
        found["user"] = (host_usr > host_sys, f"%usr {host_usr:.0f}, %sys {host_sys:.0f}")
    if path.device_busy is not None:
        found["busy"] = (path.device_busy >= BUSY, f"busy {format_share(path.device_busy)} of the time")
    return found


def free_drive(idle: Mapping[str, bool | None], below: Iterable[str]) -> dict[str, tuple[bool, str]]:
    """Return the answer to whether another drive is free; none where the host has no other NVMe drive, and where none
    is seen to be free and not all could be looked at. `idle` says of each NVMe drive whether nothing uses it (None:
    not known), `below` are the devices below the disk.
    """
    own, drives = {_drive_of(name) for name in below}, dict[str, list[bool | None]]()
    for name, unused in idle.items():
        drives.setdefault(_drive_of(name), []).append(unused)
    others = {drive: namespaces for drive, namespaces in drives.items() if drive not in own}
    if free := [drive for drive, namespaces in others.items() if all(namespaces)]:
        return {"free": (True, f"seen: nothing uses {', '.join(sorted(free))}")}
    if not others or not all(False in namespaces for namespaces in others.values()):
        return {}
    return {"free": (False, f"seen: {', '.join(sorted(others))} in use, or not empty")}


def _drive_of(name: str) -> str:
    """Return the NVMe drive of a namespace or partition (`nvme0` of `nvme0n1p2`); other names are their own."""
    found = re.match(r"nvme\d+", name)
    return found[0] if found else name
