# SPDX-License-Identifier: Apache-2.0
"""Find what limits a disk under its load: all causes are judged, each by the share of a request's time, or of the
time, that it accounts for, and ranked by that.

First it is asked whether the disk is slow: of one that rests only a cause is named that may make it rest. A cause
stands if it accounts for enough and nothing that was seen speaks against it. Where one is the reason for another's
time (a thread without a CPU for requests that wait for it), the reason is named; where two are seen by the same facts
and neither explains the other, both are. If none stands, no bottleneck is named.
"""

import math
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial

from virtune.analyse.layers.stations import (
    IDLE,
    IOTHREAD,
    MOST,
    ONE_AT_A_TIME,
    RESTING,
    RESTS_BETWEEN,
    SATURATED,
    SEVERAL,
    SLOW_NS,
    STALLED,
    SeenPath,
    Weighed,
    ends,
    host_cpu,
    load,
    named,
    pool,
    serving,
    vcpu,
    workers,
)
from virtune.model.bottleneck import CONTROL_GROUP, Bottleneck, Cause, DataPath, Hypothesis, limit_text
from virtune.model.live import OperationKind, RequestLayer
from virtune.model.metric import BOUNDARIES, Boundary
from virtune.model.text import format_count, format_ns, format_seconds, format_share

AT_LIMIT = 0.93
"""QEMU's throttle allows bursts and rounds its waits: throttled rates were 0.95 to 1.01 of the limit."""

NEAR_LIMIT = 0.75
"""On a host with too few CPUs QEMU lets the next request go too late: 0.83 of a limit was reached. From here on it is
named where requests wait for it in QEMU: without it there is at most a third to gain."""

THROTTLED = 0.1
"""From this many CPUs on, held back by a control group, that is the bottleneck."""

AT_ONCE = 1.5
"""A device with this many times as many requests as the share of time it has any has several at once."""

EXTRA_READS = 1 / 3
"""From this share of the bytes on that QEMU reads unasked, an image's tables are the limit: they are read first."""

HUNG_SECONDS = 0.5
"""A disk that completes nothing for so long hangs; one that did before after twice as long, and FAR_LONGER."""

FAR_LONGER = 10.0
"""A silence so many times as long as a request takes is none: of those that come at random one in 22,000 is."""

FEW = 3.0
"""A disk with a limit hangs only if that would have let so many requests through meanwhile."""

FAULTS = 5.0
"""From this many major page faults a second on, QEMU lacks memory: each stops a thread until a page is read."""

MEMORY_PRESSURE = 0.1
"""From this share of the time on in which some task of the host waits for memory, its faults are the bottleneck; or
from where they take so much of the time, or come with so many of its I/Os."""

WORTH = 0.01
"""A smaller part of the time is not worth a line."""

FULL = 0.7
"""A virtqueue with this share of its places in use is full much of the time: one is free before it is used again."""

APART = 2.0
"""A kind of request that takes this many times as long as another is told beside it, whatever the cause."""

BUSY_LOOP = 0.75
"""From this share of a CPU on, the main loop may keep vCPUs from handing over requests. Seen at 0.82."""

_ONE_RESTS = 0.1
"""With fewer requests in flight than this, few wait in the guest for a device that takes one at a time."""

SMALL_RING = 32
"""A queue that holds no more is likely to be the bound itself: QEMU's own holds 256."""

AS_MUCH = 0.05
"""Causes whose shares differ by less cannot be told apart."""


@dataclass(frozen=True, slots=True)
class CauseRow:
    """A cause as it is judged: from which share on it counts, how it is weighed, what must be seen for it, and the
    fact or boundary that is unknown where it was not. `explains` names the causes whose time is due to it, and
    `may_explain` those whose time is if it accounts for more, and that else cannot be told apart from it. `rests`
    and `silent`: it may be the reason that a disk has hardly any requests, or completes none.
    """

    name: str
    cause: Cause
    least: float
    weigh: Callable[[SeenPath], Weighed]
    needs: str
    fact: str
    explains: str = ""
    may_explain: str = ""
    rests: bool = False
    silent: bool = False

    def judged(self, seen: SeenPath, rests: str) -> Hypothesis:
        """Judge it; `rests` says why the disk is not slow, empty if it may be."""
        found, against = self.weigh(seen), list[str]()
        known = (
            any(one.boundary == self.fact and not one.joined for one in seen.layers.layers)
            if self.fact in BOUNDARIES
            else getattr(seen.path, self.fact) not in (None, ())
        )
        if not found.supports:
            found = Weighed()
        if found.supports and found.share < self.least:
            against.append(
                f"{format_share(found.share)} of the time, and it counts from {format_share(self.least)} on"
            )
        if found.supports and ((seen.path.iops <= 0 and not self.silent) or (rests and not self.rests)):
            against.append(rests or "no request was completed")
        return Hypothesis(
            name=self.name, cause=self.cause, share=found.share, supports=found.supports,
            against=(*found.against, *against), unseen="" if known else self.needs,
            experiment=found.experiment, stands=bool(found.supports) and not (found.against or against),
        )  # fmt: skip


def judge(path: DataPath) -> Bottleneck:
    """Return what limits the disk; `undecidable`, with the evidence, where nothing stands out."""
    if path.relimited:  # rates and waits are of both
        return _answer("look again", f"its limits were changed while it was looked at: {path.relimited}")
    seen = SeenPath(path)
    rests = _rests(seen)
    judged = tuple(row.judged(seen, rests) for row in ROWS)
    standing = {one.name: one for one in judged if one.stands}
    chosen = _chosen(tuple(standing.values()))
    if chosen:
        first, also = chosen[0], next((one.cause for one in chosen[1:] if one.cause is not chosen[0].cause), None)
        told = [line for one in chosen for line in one.supports]
        slow = _slow_alone(seen) if first.cause in _PLACES else ""
        answer = replace(_answer(first.experiment, slow, *told, cause=first.cause), also=also)
    elif rests:
        answer = _not_bound(seen, rests, [one for one in judged if one.against == (rests,)])
    else:
        answer = _undecided(seen)
    names = {one.name for one in chosen}
    ranked = sorted(judged, key=lambda one: (one.name not in names, not one.stands, -one.share))
    shown = (replace(one, named=one.name in names) for one in ranked if one.unseen or one.share >= WORTH)
    evidence = _lines(*answer.evidence, *_beside(seen, answer, standing))
    return replace(answer, evidence=evidence, hypotheses=tuple(shown))


def _lines(*told: str) -> tuple[str, ...]:
    return tuple(dict.fromkeys(filter(None, told)))


def _answer(experiment: str, *told: str, cause: Cause = Cause.UNDECIDED) -> Bottleneck:
    return Bottleneck(cause=cause, evidence=_lines(*told), experiment=experiment)


def _chosen(standing: Sequence[Hypothesis]) -> list[Hypothesis]:
    """Return the cause that no other one explains and that accounts for most, and one that cannot be told apart."""
    likely = [
        one
        for one in standing
        if not any(
            one.name in _ROW[other.name].explains.split()
            or (one.name in _ROW[other.name].may_explain.split() and other.share > one.share)
            for other in standing
        )
    ]
    likely.sort(key=lambda one: -one.share)  # of equals the one that comes first in the table
    alike = likely[1:] and (
        likely[0].name in _ROW[likely[1].name].may_explain.split()
        or likely[0].share - AS_MUCH <= likely[1].share >= SATURATED
    )
    return likely[: 2 if alike else 1]


def _rests(seen: SeenPath) -> str:
    """Say why a disk is not slow: it does what is offered, or is live, rests half of the time, and none took long."""
    path, layers = seen.path, seen.path.layers
    if path.iops <= 0 or seen.latency_ns >= SLOW_NS:
        return ""
    if path.offered is not None:
        if path.iops < 0.98 * path.offered:
            return ""
        done = format_count(min(path.offered, path.iops))
        return f"of {format_count(path.offered)} I/Os offered a second {done} were done"
    # by which factor the mean may be higher than what was seen of so many requests
    sure = 1 + 2 / math.sqrt(path.iops * path.seconds) if path.seconds else 1.0
    if path.depth is not None or layers is None or layers.in_flight * sure >= RESTING:
        return ""
    hidden = any(_held_up(seen))
    more = "whether others wait in the guest is not seen" if hidden else "the VM asks for no more at once"
    return f"{layers.in_flight:.2f} requests were in flight at a time: {more}"


def _not_bound(seen: SeenPath, rests: str, late: Sequence[Hypothesis]) -> Bottleneck:
    """No bottleneck. A lack of CPUs is told beside: it may hold the guest's programs up, and so what they ask for."""
    if seen.path.offered is not None:
        return _answer("`virtune sweep` finds where it ends", rests, seen.each_takes, cause=Cause.NOT_BOUND)
    beside = [one.supports[0] for one in late if one.name in ("quota", "host-cpu")]
    held_up = [*_held_up(seen), *([("", _MORE_MEMORY)] if _faults(seen.path) else [])]
    usual = "where each request takes too long, look at the layer with most of its time; else look in the guest"
    told = (rests, seen.each_takes, *(told for told, _ in held_up), seen.full_vcpu, *beside)
    return _answer(held_up[0][1], *told) if held_up else _answer(usual, *told, cause=Cause.NOT_BOUND)


def _held_up(seen: SeenPath) -> Iterator[tuple[str, str]]:
    """Yield what may hold the guest up, though few requests are in flight, and what to try: a device that takes one
    at a time, and a main loop that serves the disk and is busy with other work, for whose lock vCPUs wait.
    """
    if seen.path.front and (seen.flying or 0.0) >= _ONE_RESTS:
        yield "", _VIRTIO
    one = seen.server
    if one is not None and one.role == "main" and not seen.path.polling and one.busy + one.stalled >= BUSY_LOOP:
        used = f"{named(one)} used {format_share(one.busy)} of a CPU"
        yield f"{used}, and the guest's vCPUs may wait while it works", IOTHREAD


def _hung(seen: SeenPath) -> Weighed:
    path = seen.path
    if not path.held:
        return Weighed()
    least = HUNG_SECONDS if path.iops <= 0 else max(2 * HUNG_SECONDS, FAR_LONGER * seen.latency_ns / 1e9)
    # requests a second that limits let through, of 1 MiB each
    may = (limit / (2**20 if unit.endswith("bps") else 1) for unit, (limit, _) in path.limits.items())
    rare = any(iops * path.held_seconds < FEW for iops in may)
    return Weighed(
        path.held_seconds / least,
        f"{path.held} {'request waits' if path.held == 1 else 'requests wait'}, and none was completed for at least"
        f" {format_seconds(path.held_seconds)}",
        against={"a limit that is set lets hardly any through in that time": rare},
        experiment="look at what serves the disk: this host's kernel log (`dmesg`), the server and the path to it",
    )


def _limit(seen: SeenPath) -> Weighed:
    """A limit is reached, by this disk or by the others of its group beside it: all of the rate is due to it."""
    reached = {unit: done / limit for unit, (limit, done) in seen.path.limits.items() if limit > 0}
    unit = max(reached, key=reached.__getitem__, default="")
    if not unit or (seen.path.iops <= 0 and not seen.path.held):
        return Weighed()
    # a request waits in QEMU for most of its time, and the device is known to have little of it
    known = (seen.path.device_ns is not None or bool(seen.apart("device"))) and seen.at_device < MOST
    waits = known and seen.share("backend") >= MOST and seen.in_flight("backend") >= 1
    at, near = reached[unit] >= AT_LIMIT, reached[unit] >= NEAR_LIMIT and waits
    late = host_cpu(seen) if near and not at else Weighed()
    return Weighed(
        1.0 if at or near else reached[unit],
        limit_text(unit, *seen.path.limits[unit]),
        f"{seen.in_flight('backend'):.1f} requests waited in QEMU at a time" if near and not at else "",
        *(late.supports if late.share >= STALLED and not late.against else ()),
        experiment=_lift(seen, unit),
    )


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
        until = ", by QMP and until QEMU ends" if seen.path.origin == "monitor" else ""
        where = f"at once{until}: `{seen.path.lifts[unit]}`"
    return f"raise or remove the limit ({where}) and measure again"


def _memory(seen: SeenPath) -> Weighed:
    """QEMU's pages are read back from storage, and tasks of the host wait for memory."""
    path, pressure = seen.path, min(1.0, seen.path.memory_pressure or 0.0)
    if not _faults(path):
        return Weighed()
    read, often = path.faults * (path.fault_ns or 0.0) / 1e9, path.faults / path.iops if path.iops > 0 else 0.0
    each = f"a page takes {format_ns(path.fault_ns)} from swap" if path.fault_ns else ""
    return Weighed(
        max(pressure, read, often),
        _faults(path),
        f"{each}: {format_share(min(1.0, read))} of the time" if each else "",
        f"that is one in {format_count(max(1.0, 1 / often))} I/Os" if often >= MEMORY_PRESSURE else "",
        f"some task of this host waited for memory {format_share(pressure)} of the time" if pressure else "",
        experiment=_MORE_MEMORY,
    )


_MORE_MEMORY = "more memory for the host or for QEMU's control group (`memory.max`), or less for the guest"


def _faults(path: DataPath) -> str:
    each = format_count(path.faults)
    told = f"QEMU had {each} major page faults a second: memory of it or its guest was read from storage"
    return told if path.faults >= FAULTS else ""


def _operations(seen: SeenPath, kind: OperationKind) -> Weighed:
    """Most of the time of a disk's requests is in flushes, or in discards, and they are many or slow."""
    whole = sum(one.in_flight for one in seen.path.operations)
    one = next((one for one in seen.path.operations if one.kind == kind), None)
    if one is None or one.mean_ns is None or whole <= 0:
        return Weighed()
    share = one.in_flight / whole
    told = f"{format_count(one.iops)} a second, {format_ns(one.mean_ns)} each, {one.in_flight:.2f} in flight"
    return Weighed(
        share,
        f"{format_share(share)} of the time of its requests is in {one.words}: {told}",
        against={"they are few, and none takes long": whole < RESTING and one.mean_ns < SLOW_NS},
        experiment=_FEWER[kind],
    )


def _write_through(seen: SeenPath) -> Weighed:
    whole = sum(one.in_flight for one in seen.path.operations)
    writes = sum(one.in_flight for one in seen.path.operations if one.kind == "write")
    return Weighed(
        writes / whole if whole > 0 else 0.0,
        _through(seen.path),
        against={"how much of a write's time its flush takes is not measured": True},
        experiment=_without_flushes(seen.path),
    )


def _through(path: DataPath) -> str:
    writes = path.writethrough and any(one.kind == "write" and one.iops > 0 for one in path.operations)
    mode = "directsync" if path.direct else "writethrough"
    return f"each write is followed by a flush in QEMU (cache={mode}), which is in its time" if writes else ""


def _without_flushes(path: DataPath) -> str:
    mode, also = ("none", "") if path.direct else ("writeback", " (`cache=none` too, without the host's page cache)")
    costs = f"`cache={mode}` shows what a flush after each write costs{also}"
    return f"{costs}; it is as safe for a guest that flushes by itself"


_FEWER: Mapping[OperationKind, str] = {
    "flush": "fewer flushes (commits together), or a medium that keeps its cache without power; what they cost shows"
    " `cache=unsafe`, on a copy that nobody needs",
    "discard": "`fstrim` in the guest at a quiet hour, in place of a discard with every file that is deleted",
}
"""What makes a kind of request take less of the time."""


def _quota(seen: SeenPath) -> Weighed:
    throttled = seen.path.throttled
    if not throttled or (seen.path.iops <= 0 and not seen.path.held):
        return Weighed()
    return Weighed(
        throttled,
        f"its control groups held CPUs back (cpu.max): {throttled:.2f} of them at a time, on average",
        experiment="raise the group's cpu.max (libvirt: `virsh schedinfo` has the quotas) and measure again",
    )


def _page_cache(seen: SeenPath) -> Weighed:
    """Memory serves the load: nothing else that is not read from here can, it does so fast, and is asked to."""
    path, served = seen.path, seen.path.served
    if served is None or served >= 1:
        return Weighed()
    return Weighed(
        1 - served,
        f"{format_share(served)} of the bytes read came from the device, the rest from memory or was never written",
        against={
            _unmeasured(path): bool(path.unread),
            "memory answers sooner": path.origin != "trial" and seen.latency_ns >= SLOW_NS,
        },
        experiment="`cache=none` shows what the disk does; so does a load over more than the memory of this host",
    )


def _tables(seen: SeenPath) -> Weighed:
    """QEMU reads an image's tables again and again, or whole compressed clusters: nothing shows which."""
    served = seen.path.served
    if served is None or served <= 1 or not seen.path.tables:
        return Weighed()
    return Weighed(
        1 - 1 / served,
        f"QEMU read {served - 1:.1f} bytes besides for each byte of data: tables of the image that its cache does not"
        " hold, or compressed clusters, of which it reads all",
        against={_unmeasured(seen.path): bool(seen.path.unread)},
        experiment="`qemu-img check -U IMAGE` counts compressed clusters: with many, an image written anew without"
        " `-c`; with none, a larger cache (`l2-cache-size` of the qcow2 node), or larger clusters",
    )


def _full_ring(seen: SeenPath) -> Weighed:
    size = seen.path.ring_size
    if not seen.ring_used:
        return Weighed()
    return Weighed(
        seen.ring_used,
        _full(seen),
        seen.each_takes,
        against={f"it holds {size} requests: they wait for what lies below": size > SMALL_RING},
        experiment="a larger virtqueue (`queue-size=256` of the device), which takes a restart of the VM",
    )


def _full(seen: SeenPath) -> str:
    if seen.ring_used < FULL:
        return ""
    size = seen.path.ring_size
    count = format_count(min(1.0, seen.ring_used) * size)
    return f"its virtqueue is full much of the time: {count} of the {size} requests that it holds were in it"


def _depth(seen: SeenPath) -> Weighed:
    """One I/O at a time: the rate follows from the latency."""
    several = seen.flying
    if not several or several > SEVERAL:
        return Weighed()
    others = f"others caused {format_share(seen.others)} of the bytes of its disk: each waits beside theirs"
    told = f"{several:.2f} I/Os at a time"
    if several < RESTS_BETWEEN:
        told = f"{several:.2f} I/Os in flight on average: hardly more than one at a time, and none in between"
    elif seen.one_at_a_time:
        told = "one I/O at a time: the rate is 1 / latency"
    return Weighed(
        1 / several,
        _one_by_one(seen.path) or told,
        seen.each_takes,
        against={
            "its device had several at once, and none at other times": _at_once(seen),
            "each takes long by itself": bool(_slow_alone(seen)),
            others: seen.others >= MOST,
        },
        experiment=_VIRTIO
        if seen.path.front
        else "let more I/Os be in flight (more jobs, a greater depth), or "
        + (f"shorten each: {_without_flushes(seen.path)}" if _through(seen.path) else "shorten the largest layer"),
    )


def _one_by_one(path: DataPath) -> str:
    told = f"an emulated {path.front} disk takes one request at a time, whatever the guest has"
    return f"{told}; virtio-blk and virtio-scsi take more" if path.front else ""


_VIRTIO = (
    "`iostat -x 1` in the guest: with an aqu-sz above 1 requests wait there; attach it as virtio-blk or virtio-scsi"
)


def _slow_alone(seen: SeenPath) -> str:
    """Say how long each request takes, where that is long with hardly another beside it; else nothing."""
    layers = seen.path.layers
    alone = layers is not None and layers.in_flight <= ONE_AT_A_TIME and not _at_once(seen)
    return seen.each_takes if alone and seen.latency_ns >= SLOW_NS else ""


def _at_once(seen: SeenPath) -> bool:
    """Whether a live disk's device had several requests at once, and none at other times."""
    busy = seen.path.device_busy
    return seen.guest_unseen and busy is not None and seen.in_flight("device") > AT_ONCE * busy


def _few_below(seen: SeenPath) -> bool:
    """Whether a live disk's device rests and QEMU has few: only the guest knows if I/Os wait, or none are wanted."""
    path = seen.path
    at_device = max(seen.share("device"), seen.by_mean)
    # what is not told apart is above the device too, but for what its own mean accounts for
    above = (seen.flying or 0.0) - max(seen.in_flight("device"), path.iops * (path.device_ns or 0.0) / 1e9)
    rests = seen.device_rests and not path.unread and not _slow_alone(seen)
    return rests and not (at_device < MOST and above >= SEVERAL)


def _device(seen: SeenPath) -> Weighed:
    """The device has most of a request's time: by its layer, by its own mean, or as it was configured (null-co)."""
    path, layer, mean, stands_in = seen.path, seen.share("device"), seen.by_mean, seen.stand_in
    busy = "" if path.device_busy is None else f"it had a request {format_share(path.device_busy)} of the time"
    if layer >= MOST or (layer and layer >= max(mean, stands_in)):
        told = _place(seen, "device")
    elif mean >= MOST or mean > stands_in:
        each = format_ns(path.device_ns or 0.0)
        told = f"a request takes {each} there, {format_share(mean)} of {_whole(seen)}"
    elif stands_in:
        after, busy = f"answers after {format_ns(path.stands_in_ns or 0.0)}", ""
        told = f"QEMU's null-co plays the device and {after}: {format_share(min(1.0, stands_in))} of an I/O's time"
    else:
        return Weighed()
    return Weighed(
        (1 - seen.idle) * max(layer, mean, stands_in),
        told,
        busy,
        seen.full_vcpu,
        against={_HANDS_FEW: _few_below(seen)},
        experiment=_BESIDE_OTHERS if seen.others else _OF_DEVICE[path.origin == "trial"],
    )


def _layer(seen: SeenPath, boundary: Boundary) -> Weighed:
    """QEMU's block layer and engine, or the wait in the virtqueue, have most of a request's time."""
    path = seen.path
    if not seen.share(boundary):
        return Weighed()
    engines = "`virtune compare --vary disk.aio=threads,native,io_uring` shows whether another engine is faster"
    poll = "let the IOThread poll (`poll-max-ns`), or " if not path.polling and path.serving == "iothread" else ""
    null = boundary == "backend" and path.stands_in_ns is not None
    return Weighed(
        (1 - seen.idle) * seen.share(boundary),
        _place(seen, boundary),
        against={
            _HANDS_FEW: _few_below(seen),
            "QEMU's null-co is in it, which plays the device": null,
            "what is in its path and not measured is in it": boundary == "backend" and bool(path.elsewhere),
        },
        experiment=f"{poll}keep the thread that serves the disk on a CPU of its own, near the vCPUs"
        if boundary == "ring"
        else engines + ("; of qcow2 a larger L2 cache may be" if path.tables else ""),
    )


_HANDS_FEW = "the device rests, and few requests are in flight: it is a share of what is seen below the guest"
_PLACES = (Cause.DEVICE, Cause.BACKEND, Cause.RING)
_BESIDE_OTHERS = "stop the others (`virtune top` shows VMs), or limit them, and measure again"
_OF_DEVICE = {
    True: "`virtune compare measure --rig metal` with the same load shows what the device does without QEMU",
    False: "look at the device itself (`iostat -x 1`, its health): no setting of QEMU makes it faster",
}
"""What to try of a device, by whether it was loaded by a trial."""


def _place(seen: SeenPath, boundary: Boundary) -> str:
    share, inside = seen.share(boundary), seen.in_flight(boundary)
    label = next((one.label for one in seen.layers.layers if one.boundary == boundary), "")
    return f"{format_share(share)} of {_whole(seen)}, {format_count(inside)} in flight: {label}"


def _whole(seen: SeenPath) -> str:
    return "the time below the guest" if seen.guest_unseen else "an I/O's time"


_LAYERS = "device block-layer ring"
_WAITS = "load-generator full-ring depth block-layer ring"
_SERVES = "vcpu iothread main-loop"
_KINDS: tuple[tuple[OperationKind, Cause], ...] = (("flush", Cause.FLUSH), ("discard", Cause.DISCARD))
_ALL = f"page-cache tables pool host-cpu workers {_SERVES} {_WAITS} {_LAYERS}"

ROWS: tuple[CauseRow, ...] = (
    CauseRow("hung", Cause.HUNG, 1.0, _hung, "whether any request is in flight", "held",
        f"limit memory flush discard {_ALL}", rests=True, silent=True),
    CauseRow("limit", Cause.THROTTLE, AT_LIMIT, _limit, "its limits", "limits", f"memory flush discard quota {_ALL}",
        rests=True, silent=True),
    CauseRow("memory", Cause.MEMORY, MEMORY_PRESSURE, _memory, "how long tasks of this host wait for memory (PSI)",
        "memory_pressure", f"flush discard page-cache tables pool {_SERVES} workers {_WAITS} {_LAYERS}", "host-cpu",
        rests=True, silent=True),
    *(CauseRow(kind, cause, MOST, partial(_operations, kind=kind), f"its {kind} requests", "operations",
               f"quota {_ALL}", rests=True) for kind, cause in _KINDS),
    CauseRow("write-through", Cause.FLUSH, MOST, _write_through, "its writes", "operations", rests=True),
    CauseRow("quota", Cause.THROTTLE, THROTTLED, _quota, "for how long control groups held CPUs back (cpu.stat)",
        "throttled", f"{_SERVES} {_WAITS}", "host-cpu hung", silent=True),
    CauseRow("page-cache", Cause.PAGE_CACHE, MOST, _page_cache, "how much of the reads reaches a disk", "served",
        f"depth {_LAYERS}"),
    CauseRow("tables", Cause.BACKEND, EXTRA_READS, _tables, "how much QEMU reads besides what is asked", "served",
        _LAYERS),
    CauseRow("pool", Cause.WORKERS, SATURATED, pool, "how busy the workers of QEMU's pool are", "workers_max",
        f"workers depth {_LAYERS}"),
    CauseRow("host-cpu", Cause.HOST_CPU, STALLED, host_cpu, "what QEMU's threads wait for", "threads",
        f"workers {_SERVES} {_WAITS}"),
    CauseRow("vcpu", Cause.VCPU, SATURATED, vcpu, "what the guest's CPUs do", "threads", _WAITS),
    CauseRow("load-generator", Cause.LOAD, IDLE, load, "what the guest's programs hand over", "depth",
        f"iothread main-loop full-ring depth {_LAYERS}"),
    *(CauseRow(cause.value, cause, SATURATED, partial(serving, role=role), "what QEMU's threads use", "threads",
          "workers full-ring block-layer ring")
      for role, cause in (("iothread", Cause.IOTHREAD), ("main", Cause.MAIN_LOOP))),
    CauseRow("workers", Cause.WORKERS, MOST, workers, "how many workers QEMU's pool has", "workers_max",
        f"depth {_LAYERS}"),
    CauseRow("full-ring", Cause.DEPTH, FULL, _full_ring, "how many requests are in its virtqueue", "layers",
        f"depth {_LAYERS}"),
    CauseRow("depth", Cause.DEPTH, 1 / ONE_AT_A_TIME, _depth, "how many I/Os are in flight", "layers", _LAYERS),
    CauseRow("device", Cause.DEVICE, MOST, _device, "the time of a request at this host's device", "device",
        "block-layer ring"),
    CauseRow("block-layer", Cause.BACKEND, MOST, partial(_layer, boundary="backend"),
        "the time in QEMU, apart from what lies below it", "backend"),
    CauseRow("ring", Cause.RING, MOST, partial(_layer, boundary="ring"), "the wait in the virtqueue", "ring"),
)  # fmt: skip
"""The causes, those with direct evidence first."""

_ROW = {row.name: row for row in ROWS}


def _undecided(seen: SeenPath) -> Bottleneck:
    """Say of what no cause stands for what is known, and what would show more."""
    path, largest, slow = seen.path, seen.layer(), _slow_alone(seen)
    if path.iops <= 0:
        return _silent(path)
    if seen.others >= MOST and not slow and seen.flying and seen.one_at_a_time:
        return _answer(_BESIDE_OTHERS, "one I/O at a time, each beside those of others", seen.each_takes)
    if _few_below(seen):
        return _elsewhere(seen)
    if largest is None:
        return _answer(
            "more rounds would not show more: measure it where requests are counted below the load, in a test guest"
            " (`--rig qemu`) or on an export through virtio queues (`--rig vhost-user`)",
            slow,
            "nothing was seen below the load, so its latency cannot be split",
        )
    if largest.joined and largest.share >= MOST and path.stands_in_ns is None:
        return _not_told_apart(seen, largest)
    told = "no layer has half of an I/O's time" if largest.share < MOST else f"most of the time: {largest.label}"
    return _answer(
        _sight(seen, largest),
        slow,
        f"{told}; no thread was seen to be the limit, and no limit that was set was reached",
        "; ".join(f"{one.label} {format_share(one.share)}" for one in seen.layers.layers),
    )


def _silent(path: DataPath) -> Bottleneck:
    """Say that no request was completed, where it is not seen that they hang, and what to try."""
    cause, told, usual = Cause.UNDECIDED, "no I/O was completed, and ", "put the disk under its usual load"
    if path.uncounted:
        told, usual = _uncounted(path), "look in the guest for what discards: `fstrim`, the mount option `discard`"
    elif path.failed:
        told, usual = "no request was completed but those that failed", "look at its errors"
    elif path.held is None:
        told += "whether any is in flight is not seen"
        usual = f"`cat /sys/block/DISK/inflight` in the guest: above 0 the disk hangs; else {usual}"
    elif path.held:
        told += f"{path.held} {'is' if path.held == 1 else 'are'} in flight"
        usual = "look for longer: nothing says yet that they hang"
    else:
        told += "none is in flight"
        cause = cause if _faults(path) else Cause.IDLE  # the guest may be held up
    return _answer(usual, told, cause=cause)


def _elsewhere(seen: SeenPath) -> Bottleneck:
    """Say that the device rests, and what the guest would tell."""
    one, path = seen.server, seen.path
    thread = "" if one is None else f", and {named(one)} used {format_share(one.busy)} of a CPU"
    few, full = format_count(seen.in_flight("ring", "backend", "device")), seen.full_vcpu
    there = "`top` there shows what uses that vCPU" if full else "its driver, its CPUs"
    rested = format_share(1 - (path.device_busy or 0.0))
    return _answer(
        f"`iostat -x 1` in the guest: if its aqu-sz is well above {few}, the time passes in the guest"
        f" ({there}); else its programs ask for no more",
        f"this host's disk is not the limit: it had no request {rested} of the time{thread}",
        f"{few} requests were in flight below the guest: it sends no more at a time, and its own part is not seen",
        full,
    )


def _not_told_apart(seen: SeenPath, largest: RequestLayer) -> Bottleneck:
    """Most of the time is in layers of which nothing tells how much is whose: say which, and what was not seen."""
    path, had = seen.path, format_share(seen.path.device_busy or 0.0)
    if path.origin == "trial":
        experiment = _sight(seen, largest)
    elif path.unread:
        experiment = "look at each of what is in its path: which image, filter or job has the time is not measured"
    elif path.protocol and path.protocol not in ("file", "host_device", "null-co", "null-aio"):
        experiment = f"look at what serves the disk over {path.protocol}: its server and the network"
    elif _through(path):
        experiment = _without_flushes(path)
    elif path.device_busy is None:
        experiment = "look at what serves the disk: no device of this host is seen below it"
    elif not path.direct:
        experiment = "the host's page cache stands between QEMU and the disk: `cache=none` tells them apart"
    else:
        experiment = "a longer `--seconds` or a quieter host may tell them apart"
    return _answer(
        experiment,
        _slow_alone(seen),
        f"{format_share(largest.share)} of {_whole(seen)}: {largest.label}, which are not told apart",
        "" if path.device_busy is None else f"this host's disk had a request {had} of the time",
        *seen.layers.reasons,
        seen.full_vcpu,
    )


def _sight(seen: SeenPath, largest: RequestLayer) -> str:
    if seen.layers.reasons:
        return "more rounds, a quieter host, or a longer `--seconds` tell layers apart that are joined here"
    return f"no single layer is worth the effort: begin with the largest, {largest.label}"


def _uncounted(path: DataPath) -> str:
    more = f"its virtqueue completed {format_count(path.uncounted)} requests a second that QEMU does not count"
    return f"{more}: discards of virtio-blk are such" if path.uncounted else ""


def _beside(seen: SeenPath, answer: Bottleneck, standing: Mapping[str, Hypothesis]) -> Iterator[str]:
    """Further evidence, whatever the cause: errors, stalls, others, limits, what was not measured, where it ends."""
    path, cause = seen.path, answer.cause
    if cause is Cause.IDLE:
        return
    yield f"{format_count(path.failed)} requests a second failed" if path.failed else ""
    yield _uncounted(path)
    times = [one.mean_ns for one in path.operations if one.mean_ns is not None]
    differ = len(times) > 1 and max(times) >= APART * min(times)
    if differ and (kinds := seen.each_kind) and not any(kinds in told for told in answer.evidence):
        yield f"each takes: {kinds}"
    if (
        cause is not Cause.HUNG
        and path.stalls
        and path.stalled >= WORTH
        and path.stalled * path.seconds >= FAR_LONGER * path.stalls * seen.latency_ns / 1e9
    ):
        stalls = "one stall" if path.stalls == 1 else f"{path.stalls} stalls"
        share = format_share(min(1.0, path.stalled))
        yield f"for {share} of the time nothing was completed while requests were in flight, in {stalls}"
    # a thread that is held back waits as for a CPU
    late = standing.get("quota", standing.get("host-cpu"))
    yield "" if late is None else late.supports[0]
    yield _faults(path)
    if seen.others:
        known = f" (also on it: {', '.join(path.neighbours)})" if path.neighbours else ""
        yield f"others caused {format_share(seen.others)} of the bytes of its disk{known}"
    yield _full(seen)
    if cause is not Cause.THROTTLE:
        yield from (limit_text(unit, *values) for unit, values in path.limits.items())
    if cause is not Cause.NOT_BOUND:
        yield from (_one_by_one(path), _through(path), _unmeasured(path))
    one, ending = seen.server, cause not in _NO_END and not path.polling
    if ending and one is not None and one.busy >= 0.01 and path.iops_of(one) > 0:
        yield f"{named(one)}: {ends(one, path.iops_of(one))}"


def _unmeasured(path: DataPath) -> str:
    return f"in its path, and not measured: {'; '.join(path.unread)}" if path.unread else ""


_NO_END = (Cause.IOTHREAD, Cause.MAIN_LOOP, Cause.UNDECIDED, Cause.HOST_CPU, Cause.HUNG, Cause.NOT_BOUND)
"""Causes beside which the highest rate of the serving thread says nothing."""
