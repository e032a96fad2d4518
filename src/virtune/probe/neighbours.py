# SPDX-License-Identifier: Apache-2.0
"""Neighbours: other processes that were active between two samples and exist in both."""

import os
import time
from collections.abc import Container
from dataclasses import dataclass
from pathlib import Path

from virtune.model.facts import Unknown
from virtune.model.result import Neighbour
from virtune.probe import tree

CPUS_MIN = 0.02
"""Less CPU use than this is ignored: an idle desktop has as much."""

BANDWIDTH_MIN = 1024**2
"""Less I/O than this (bytes a second) does not disturb a disk."""

SHOWN_MAX = 5

_KERNEL = 2
"""The parent of all kernel threads, which work for other processes, and for us."""


@dataclass(frozen=True, slots=True, kw_only=True)
class NeighbourSeen:
    """One process at one instant: CPU in clock ticks, bytes moved by itself at the storage layer (None: not ours)."""

    started: int
    name: str
    ticks: int
    moved: int | None


@dataclass(frozen=True, slots=True, kw_only=True)
class NeighbourLook:
    """A sample of all processes except ourselves, our children and the kernel's threads."""

    seconds: float
    processes: dict[int, NeighbourSeen]


def look(root: Path = tree.ROOT) -> NeighbourLook:
    """Sample all processes once."""
    own = os.getpid()
    found: dict[int, NeighbourSeen] = {}
    for name in tree.names("/proc", root):
        if name.isdigit() and int(name) not in (own, _KERNEL):
            stat = tree.text(f"/proc/{name}/stat", root)
            if isinstance(stat, Unknown):
                continue
            head, _, tail = stat.rpartition(")")
            fields = tail.split()
            if len(fields) > 19 and int(fields[1]) not in (own, _KERNEL):
                found[int(name)] = NeighbourSeen(
                    started=int(fields[19]),
                    name=head.partition("(")[2],
                    ticks=int(fields[11]) + int(fields[12]),
                    moved=_moved(name, root),
                )
    return NeighbourLook(seconds=time.monotonic(), processes=found)


def neighbours(
    before: NeighbourLook, after: NeighbourLook, *, by_bytes: bool = False, without: Container[int] = ()
) -> tuple[Neighbour, ...]:
    """Return the processes with notable activity between two samples, and only a few: those first that used most of
    the CPUs, or `by_bytes` those that moved most. Processes `without` are those of no interest.
    """
    seconds = after.seconds - before.seconds
    if seconds <= 0:
        return ()
    hertz = os.sysconf("SC_CLK_TCK")
    found = []
    for pid, now in after.processes.items():
        then = before.processes.get(pid)
        if then is None or then.started != now.started or pid in without:
            continue
        moved = None if now.moved is None or then.moved is None else (now.moved - then.moved) / seconds
        one = Neighbour(pid=pid, name=now.name, cpus=(now.ticks - then.ticks) / hertz / seconds, bandwidth_bps=moved)
        if one.cpus >= CPUS_MIN or (moved or 0.0) >= BANDWIDTH_MIN:
            found.append(one)
    found.sort(key=lambda one: (-one.cpus, -(one.bandwidth_bps or 0.0)))
    if by_bytes:
        found.sort(key=lambda one: -(one.bandwidth_bps or 0.0))
    return tuple(found[:SHOWN_MAX])


def _moved(pid: str, root: Path) -> int | None:
    pairs = dict(line.partition(": ")[::2] for line in tree.lines(f"/proc/{pid}/io", root))
    try:
        return int(pairs["read_bytes"]) + int(pairs["write_bytes"])
    except (KeyError, ValueError):
        return None
