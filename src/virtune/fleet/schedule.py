# SPDX-License-Identifier: Apache-2.0
"""Which task of a fleet runs when: in random order, never two at once on one storage back end, in parts."""

import heapq
from collections.abc import Iterable, Mapping, Sequence
from random import Random

from virtune.model.errors import UsageError
from virtune.model.fleet import FleetHost, FleetTask


def tasks_of(
    run: str, hosts: Sequence[FleetHost], *, reference: str, batch: int | None, seed: int
) -> tuple[FleetTask, ...]:
    """Return the tasks of a run: hosts in random order in batches, and where there is a reference host, that before,
    between and after them, in parts of its own, so that nothing else of the fleet is measured meanwhile.

    Raises UsageError for a reference that is not among the hosts.
    """
    others = [host for host in hosts if host.name != reference]
    Random(seed).shuffle(others)  # noqa: S311 - an order, not a secret
    step = batch or max(1, len(others))
    parts = [others[start : start + step] for start in range(0, len(others), step)]
    if reference:
        again = [host for host in hosts if host.name == reference]
        if not again:
            raise UsageError(f"the reference host {reference!r} is not among the hosts", hint="name one of them")
        parts = [again, *(part for one in parts for part in (one, again))]
    return numbered(run, parts)


def numbered(run: str, parts: Sequence[Sequence[FleetHost]]) -> tuple[FleetTask, ...]:
    """Return a task for each host of each part, in this order."""
    every = [(part, host) for part, members in enumerate(parts) for host in members]
    return tuple(FleetTask(name=f"{run}.{one}", host=host, part=part) for one, (part, host) in enumerate(every, 1))


def next_task(
    waiting: Sequence[FleetTask],
    running: Iterable[FleetTask],
    *,
    lost: Iterable[FleetTask] = (),
    at_once: int,
    shares: str,
) -> FleetTask | None:
    """Return the next task that may begin while those run; None where none may.

    A part begins when the one before it is over. A task that was `lost` may still load what its host shares.
    """
    now = list(running)
    if not waiting or len(now) >= at_once or any(one.part != waiting[0].part for one in now):
        return None
    loaded = [*now, *lost]
    taken = {value for one in loaded for value in shared(one, shares)}
    names = {one.host.name for one in loaded}
    mine = (one for one in waiting if one.part == waiting[0].part and one.host.name not in names)
    return next((one for one in mine if not taken & shared(one, shares)), None)


def whole_seconds(
    tasks: Sequence[FleetTask], left: Mapping[str, float], running: Iterable[str], *, at_once: int, shares: str
) -> float:
    """Return how long tasks take together that are left so many seconds each, by their names, with those that run
    already: each begins as soon as it may, as `next_task` says.
    """
    now, waiting = 0.0, [one for one in tasks if one.name in left]
    known, busy = {one.name: one for one in waiting}, [(left[name], name) for name in running if name in left]
    heapq.heapify(busy)
    waiting = [one for one in waiting if one.name not in {name for _, name in busy}]
    while waiting or busy:
        while task := next_task(waiting, [known[name] for _, name in busy], at_once=at_once, shares=shares):
            waiting.remove(task)
            heapq.heappush(busy, (now + left[task.name], task.name))
        if not busy:
            break
        now, _ = heapq.heappop(busy)
    return now


def shared(task: FleetTask, label: str) -> set[str]:
    """Return the back ends that a task may share with others: those of its host's label (`shares=ceph1,nas2` names
    two), and those that its host sees.
    """
    return {one for one in (task.host.label(label) or "").split(",") if one} | set(task.loads)
