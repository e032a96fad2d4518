# SPDX-License-Identifier: Apache-2.0
"""Verify which engine does a disk's I/O: io_uring, native (Linux AIO) or threads. It serves all rigs.

The traces of each in its process (`virtune.probe.process` reads it):

* io_uring and native: a ring, and its position moves with every request
* threads:  no ring; worker threads that use CPU time

A process that has run other stacks may hold all of these, since an event loop keeps its rings, and a QEMU whose event
loop itself runs on io_uring (10.2 and newer) always has a ring. QEMU 10.0 makes a ring with the first request, not
when the image is opened. So rings that appear with the image are a first sign; rings that move under load decide.
"""

import time
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, field

from virtune.model.evidence import UNDER_LOAD, Check
from virtune.model.stack import Stack
from virtune.probe.process import IO_URING, NATIVE, Process, Ring, Rings

WORKERS_SHARE = 0.10
"""From this share of the I/O threads' CPU time on, worker threads are taken to do the I/O. Measured with QEMU 7.2,
4 KiB random reads: 0.5 and more with aio=threads, 0.00 with native and io_uring."""

_CPU_NS_ENOUGH = 20_000_000
"""Below 20 ms of CPU time its shares allow no conclusion."""

WORKERS_NS = 100_000
"""Worker threads that used 0.1 ms have done I/O: a request costs each some 10 us. That is enough to confirm."""

WORKERS_NS_AGAINST = 20_000_000
"""To contradict takes more than to confirm: a flush, or opening an image, may give workers a millisecond of work. The
same is needed in a process that serves other disks too, with the same workers.
"""

_LOOKS, _LOOK_SECONDS = 5, 0.004
"""An AIO context's ring wraps after some hundred positions, so one check may find it at the same position as before.
"""

_TURN = 2**32
"""Positions are 32-bit numbers of the kernel, which wrap around."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Activity:
    """A process's activity since its stack is up.

    `moved` is how far each ring that may serve the disk moved, None where that is not shown; `hidden` are kinds of
    rings that are not visible at all. `workers_ns` is the workers' part of `io_ns`, the CPU time of all I/O threads.
    `alone`: the process serves no other disk. `loop_rings`: its event loop itself runs on io_uring, so a ring also
    moves for other events. `flushes`: the load causes flushes, which every engine does in workers.
    """

    moved: Mapping[Ring, int | None] = field(default_factory=dict)
    hidden: frozenset[str] = frozenset()
    workers_ns: int = 0
    io_ns: int = 0
    alone: bool = True
    loop_rings: bool = False
    flushes: bool = False


@dataclass(slots=True)
class RingOwners:
    """The rings of the arms so far, by event loop (`main` or the IOThread's id).

    An event loop keeps its ring, which may serve the next arm's disk.
    """

    brought: dict[str, set[Ring]] = field(default_factory=dict)

    def add(self, loops: Sequence[str], rings: Collection[Ring]) -> None:
        """Record rings that appeared with a disk of these loops; only its owner moves a ring."""
        for loop in loops:
            self.brought.setdefault(loop, set()).update(rings)

    def opened(self, loops: Sequence[str], bare: Rings, now: Rings) -> set[Ring]:
        """Record the rings that appeared when an image was opened, and return them."""
        new = set(now.places) - set(bare.places)
        self.add(loops, new)
        return new

    def of(self, loops: Sequence[str]) -> set[Ring]:
        """Return the rings of these loops."""
        return {ring for loop in loops for ring in self.brought.get(loop, ())}


_A_RING = {IO_URING: "an io_uring", NATIVE: "a kernel AIO context"}
"""What completes the requests of each engine, in words."""


def loops_of(stack: Stack) -> tuple[str, ...]:
    """Return the event loops that serve a guest's disk."""
    return stack.device.iothreads or ("main",)


def engine_check(asked: str, came: Collection[Ring], now: Rings) -> Check:
    """Check which engine an image added: `came` are the new rings since it was opened."""
    kinds = {kind for kind, _ in came}
    found: str | None = None
    if len(kinds) == 1:
        found = kinds.pop()
        proof = f"{_A_RING.get(found, found)} appeared when the image was opened"
    elif not now.places and not now.hidden and asked == "threads":
        found, proof = "threads", "the process holds neither an io_uring nor a kernel AIO context"
    else:
        proof = "no ring appeared when the image was opened that tells the engine; the load will"
    return Check(setting="disk.aio", asked=asked, found=found, proof=proof)


def engine_check_under_load(asked: str, activity: Activity) -> Check:
    """Check which engine does the I/O now, by moved rings and CPU time; without evidence nothing is found."""
    found = _engine_seen(asked, activity)
    words = [f"{_A_RING.get(kind, kind)} completed requests {UNDER_LOAD}" for kind in sorted(_worked(activity))]
    words.append(f"worker threads used {activity.workers_ns / 1e6:.0f} ms of CPU time {UNDER_LOAD}")
    veiled = _veiled(asked, activity)
    if found is None and veiled:
        words.append(f"whether {_A_RING.get(veiled[0], veiled[0])} completed requests is not shown to us")
    excused = _untellable(asked, veiled, activity)
    return Check(setting="disk.aio", asked=asked, found=found, proof="; ".join(words), hidden=excused)


def moved_since(process: Process, before: Rings, mine: Collection[Ring] | None = None) -> Activity:
    """Return how far each ring moved since `before`: those of `mine`, or all of the process.

    A native context is read until it is seen to move.
    """
    found: dict[Ring, int | None] = {}
    hidden: frozenset[str] = frozenset()
    for look in range(_LOOKS):
        if look:
            time.sleep(_LOOK_SECONDS)
        now = process.rings()
        hidden = now.hidden
        for ring, place in now.places.items():
            if mine is None or ring in mine:
                then = before.places.get(ring, 0)
                went = None if place is None or then is None else (place - then) % _TURN
                found[ring] = found.get(ring) or went
        if not any(kind == NATIVE and went == 0 for (kind, _), went in found.items()):
            break
    return Activity(moved=found, hidden=hidden)


def _engine_seen(asked: str, activity: Activity) -> str | None:
    worked, veiled = _worked(activity), _veiled(asked, activity)
    busy = activity.io_ns >= _CPU_NS_ENOUGH and activity.workers_ns >= WORKERS_SHARE * activity.io_ns
    if asked in worked:
        return "threads" if busy and activity.alone and not activity.flushes else asked
    if worked:
        return min(worked)
    least = WORKERS_NS if asked == "threads" and activity.alone else WORKERS_NS_AGAINST
    # where all rings stood still, even little CPU time of workers is the I/O
    if activity.workers_ns >= least and not veiled:
        return "threads"
    if busy and activity.alone and (asked == "threads" or not activity.flushes):
        return "threads"
    # where only this engine is invisible, and none of the others does the I/O, it is this one
    enough = activity.io_ns >= _CPU_NS_ENOUGH and activity.alone and not busy
    return asked if enough and veiled == [asked] else None


def _untellable(asked: str, veiled: list[str], activity: Activity) -> bool:
    """Whether no load, however long, could verify the requested engine. Only that excuses an unverified setting:
    where only another engine is hidden, or the workers' CPU time would show it, it counts as unverified.
    """
    if asked == "threads":
        return bool(veiled) and not activity.alone
    by_elimination = veiled == [asked] and activity.alone and not activity.flushes
    return asked in veiled and not by_elimination


def _worked(activity: Activity) -> set[str]:
    moved = {kind for (kind, _), went in activity.moved.items() if went}
    return moved - {IO_URING} if activity.loop_rings else moved


def _veiled(asked: str, activity: Activity) -> list[str]:
    """Return the kinds of rings that may do the I/O invisibly."""
    kinds = {kind for (kind, _), went in activity.moved.items() if went is None} | activity.hidden
    if activity.loop_rings and asked != NATIVE:
        kinds.add(IO_URING)
    return sorted(kinds)
