# SPDX-License-Identifier: Apache-2.0
"""The one loop that watches a load, wherever it runs: its moments, its settings, its end.

What can be seen only under load is looked at half-way, and again and again until it was seen or the load is over; a
load that is short, or that starts late, is looked at no less than a long one.
"""

import time
from collections.abc import Callable
from dataclasses import dataclass
from typing import Protocol

from virtune.bench.port import PATIENCE_SECONDS
from virtune.model.errors import LoadError
from virtune.model.evidence import Check

TICK_SECONDS = 0.02
"""How often a load and its rig are looked at."""

STUCK_SECONDS = 15.0
"""A disk that completes nothing for so long while a load runs is stuck, not slow: a hard disk under TCG answers some
hundred requests in that time."""

STUCK = f"the guest's disk completed nothing for {STUCK_SECONDS:g} s: it is stuck"

_LOOK_SECONDS = 0.1
"""How often what was not seen yet is looked for again; a look costs about 1 ms of CPU."""


class Progress:
    """Whether a load's disk completes anything: one that does not for long is stuck, as long as any moves it is slow.

    A load that is not `direct` may be served by the guest's page cache and never ask its disk: of that nothing is
    said, and the end of its run time finds it where it hangs.
    """

    def __init__(self, *, direct: bool) -> None:
        self._direct = direct
        self._operations = -1
        self._rose = time.monotonic()

    def stuck(self, operations: Callable[[], int], now: float) -> bool:
        """Ask how many requests the disk has completed, and say whether that last rose too long ago."""
        if not self._direct:
            return False
        found = operations()
        if found != self._operations:
            self._operations, self._rose = found, now
        return now - self._rose > STUCK_SECONDS


class RunningLoad(Protocol):
    """A load that runs, in one place or in several at once."""

    def ended(self, *, due: bool) -> bool:
        """Wait a moment, at most a tick, and say whether all of it has come to a good end. `due`: its time is over.

        Raises LoadError with the reason when it, or what it runs on, came to another end.
        """
        ...

    def stuck(self) -> str | None:
        """Say why it will not get on, None while it may."""
        ...

    def stop(self) -> None:
        """End it at once."""
        ...

    def look(self) -> tuple[Check, ...]:
        """Look which settings can be seen now: each of them is in the answer, found or not."""
        ...


@dataclass(frozen=True, slots=True, kw_only=True)
class Moments:
    """When, after the start of the load, something is to be done: once each, in this order."""

    begin_seconds: float
    end_seconds: float
    on_begin: Callable[[], None]
    on_end: Callable[[], None]
    patience_seconds: float = PATIENCE_SECONDS


def watch(load: RunningLoad, moments: Moments, *, started: float | None = None) -> tuple[Check, ...]:
    """Watch a load to its end, and return what was seen of its settings. `started` is when it began (monotonic).

    Raises LoadError when it ends badly or not at all; then nothing of it runs any more.
    """
    begun = time.monotonic() if started is None else started
    half = (moments.begin_seconds + moments.end_seconds) / 2
    looks = _Looks(load)
    plan = [
        (moments.begin_seconds, moments.on_begin),
        (half, looks.look),
        (moments.end_seconds, moments.on_end),
    ]
    while not load.ended(due=not plan):
        now = time.monotonic()
        if plan and now - begun >= plan[0][0]:
            plan.pop(0)[1]()
        elif now - begun >= half:
            looks.again()
        if (why := load.stuck()) is not None:
            load.stop()
            raise LoadError(why)
        if now - begun > moments.end_seconds + moments.patience_seconds:
            load.stop()
            raise LoadError(f"the load did not end {moments.patience_seconds:g} s after its run time: it is stuck")
    # what a process has done by then stands in its counters still
    looks.again(now=True)
    return looks.seen()


class _Looks:
    """What was seen of a load's settings so far."""

    def __init__(self, load: RunningLoad) -> None:
        self._load = load
        self._found: dict[tuple[int, str], Check] = {}
        self._last = 0.0

    def look(self) -> None:
        """Look now; what was found once stands."""
        self._last = time.monotonic()
        for check in self._load.look():
            key = check.guest, check.setting
            known = self._found.get(key)
            if known is None or known.found is None:
                self._found[key] = check

    def again(self, *, now: bool = False) -> None:
        """Look for what was not found yet, if it is time to, or `now`."""
        wanting = not self._found or any(one.found is None and not one.hidden for one in self._found.values())
        if wanting and (now or time.monotonic() - self._last >= _LOOK_SECONDS):
            self.look()

    def seen(self) -> tuple[Check, ...]:
        """Return what was found, and what was looked for in vain."""
        return tuple(self._found.values())
