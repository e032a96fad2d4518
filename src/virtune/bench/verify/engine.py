# SPDX-License-Identifier: Apache-2.0
"""Which engine really does a disk's I/O: io_uring, native (Linux AIO) or threads. One answer for every rig.

What each leaves to be seen in its process (`virtune.probe.process` reads it):

* io_uring and native: a ring, and its place moves with every request
* threads:  no ring; worker threads that use CPU time

A process that has carried other stacks may hold all of these, since an event loop keeps what it once made, and a
QEMU whose event loop itself runs on io_uring (10.2 and newer) has a ring in any case. QEMU 10.0 makes a ring with the
first request, not when the image is opened. So what came with the image is a first sign; what moves under load
decides.
"""

import time
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, field

from virtune.model.evidence import UNDER_LOAD, Check
from virtune.model.stack import Stack
from virtune.probe.process import IO_URING, NATIVE, Process, Ring, Rings

WORKERS_SHARE = 0.10
"""From this share of the I/O threads' CPU time on, worker threads are held to do the I/O. Measured with QEMU 7.2,
4 KiB random reads: 0.5 and more with aio=threads, 0.00 with native and io_uring."""

_CPU_NS_ENOUGH = 20_000_000
"""Below 20 ms of CPU time nothing is concluded from who used what share of it."""

WORKERS_NS = 100_000
"""Worker threads that used 0.1 ms have done something: a request costs each of them some 10 us. That confirms."""

WORKERS_NS_AGAINST = 20_000_000
"""To contradict takes more than to confirm: a flush, or opening an image, may give workers a millisecond of work. So
much is also needed of a process that serves disks of somebody else too, whose workers are the same threads."""

_LOOKS, _LOOK_SECONDS = 5, 0.004
"""An AIO context's ring goes round in some hundred places, so that one look may find it where it was before."""

_TURN = 2**32
"""Places are 32 bit numbers of the kernel's, which go round."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Activity:
    """What a process did since its stack had come up.

    `moved` says for each ring that may serve the disk how far it went, None where that is not shown; `hidden` are
    kinds of rings that may not even be counted. `workers_ns` of `io_ns` CPU time of all I/O threads was the workers'.
    `alone`: the process serves no other disk. `loop_rings`: its event loop runs on io_uring itself, so a ring moves
    for more than the disk's requests. `flushes`: the load makes QEMU flush, which every engine does in workers.
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
    """Which rings the arms so far brought, by event loop (`main` or the IOThread's id).

    A ring that was once made for an event loop stays with it, and may serve the next arm's disk.
    """

    brought: dict[str, set[Ring]] = field(default_factory=dict)

    def add(self, loops: Sequence[str], rings: Collection[Ring]) -> None:
        """Note rings that came with a disk which these loops serve; who does not own a ring never moves it."""
        for loop in loops:
            self.brought.setdefault(loop, set()).update(rings)

    def opened(self, loops: Sequence[str], bare: Rings, now: Rings) -> set[Ring]:
        """Note what came with opening an image, and return it."""
        new = set(now.places) - set(bare.places)
        self.add(loops, new)
        return new

    def of(self, loops: Sequence[str]) -> set[Ring]:
        """Return the rings of these loops."""
        return {ring for loop in loops for ring in self.brought.get(loop, ())}


def loops_of(stack: Stack) -> tuple[str, ...]:
    """Return the event loops that serve a guest's disk."""
    return stack.device.iothreads or ("main",)


def engine_check(asked: str, came: Collection[Ring], now: Rings) -> Check:
    """Say which engine an image brought with it: `came` are the rings that are new since it was opened."""
    kinds = {kind for kind, _ in came}
    found: str | None = None
    if len(kinds) == 1:
        found = kinds.pop()
        proof = f"a ring of {found} came with the image"
    elif not now.places and not now.hidden and asked == "threads":
        found, proof = "threads", "the process holds neither an io_uring nor a kernel AIO context"
    else:
        proof = "no ring came with the image that tells; the load will"
    return Check(setting="disk.aio", asked=asked, found=found, proof=proof)


def engine_check_under_load(asked: str, activity: Activity) -> Check:
    """Say which engine does the I/O now, by what moved and who used the CPU; nothing is found where nothing tells."""
    found = _engine_seen(asked, activity)
    words = [f"the ring of {kind} moved {UNDER_LOAD}" for kind in sorted(_worked(activity))]
    words.append(f"worker threads used {activity.workers_ns / 1e6:.0f} ms of CPU time {UNDER_LOAD}")
    veiled = _veiled(asked, activity)
    if found is None and veiled:
        words.append(f"whether a ring of {veiled[0]} moved is not shown to us")
    excused = _untellable(asked, veiled, activity)
    return Check(setting="disk.aio", asked=asked, found=found, proof="; ".join(words), hidden=excused)


def moved_since(process: Process, before: Rings, mine: Collection[Ring] | None = None) -> Activity:
    """Look how far each ring went since `before`: those of `mine`, or all of the process.

    A native context is looked at until it is seen to move.
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
    # where all rings were seen to stand still, the little that workers do is the I/O
    if activity.workers_ns >= least and not veiled:
        return "threads"
    if busy and activity.alone and (asked == "threads" or not activity.flushes):
        return "threads"
    # where only this engine may work unseen, something does the I/O, and it is none of the others
    enough = activity.io_ns >= _CPU_NS_ENOUGH and activity.alone and not busy
    return asked if enough and veiled == [asked] else None


def _untellable(asked: str, veiled: list[str], activity: Activity) -> bool:
    """Whether no load, however long, could show us what was asked for. Only that excuses a setting that was not seen:
    where another engine alone is hidden, or the CPU time of the workers would tell, not to see it means unverified.
    """
    if asked == "threads":
        return bool(veiled) and not activity.alone
    by_elimination = veiled == [asked] and activity.alone and not activity.flushes
    return asked in veiled and not by_elimination


def _worked(activity: Activity) -> set[str]:
    moved = {kind for (kind, _), went in activity.moved.items() if went}
    return moved - {IO_URING} if activity.loop_rings else moved


def _veiled(asked: str, activity: Activity) -> list[str]:
    """Return the kinds of rings that may do the I/O without our seeing it."""
    kinds = {kind for (kind, _), went in activity.moved.items() if went is None} | activity.hidden
    if activity.loop_rings and asked != NATIVE:
        kinds.add(IO_URING)
    return sorted(kinds)
