# SPDX-License-Identifier: Apache-2.0
"""The loop that watches every load: its timed actions, its settings, its end.

Settings that can only be verified under load are checked half-way, and repeatedly until verified or until the load
ends; short or late loads are checked as often as long ones.
"""

import time
from collections.abc import Callable
from dataclasses import dataclass
from typing import Protocol

from virtune.bench.port import PATIENCE_SECONDS
from virtune.model.errors import LoadError
from virtune.model.evidence import Check

TICK_SECONDS = 0.02
"""The interval at which a load and its rig are checked."""

STUCK_SECONDS = 15.0
"""A disk that completes nothing for this long under load is stuck, not slow: a hard disk under TCG completes some
hundred requests in that time.
"""

NOTHING_DONE = "completed nothing"
"""The words of every failure of a disk that stands still."""

STUCK = f"the guest's disk {NOTHING_DONE} for {STUCK_SECONDS:g} s: it is stuck"

_LOOK_SECONDS = 0.1
"""The interval of repeated checks of unverified settings; a check costs about 1 ms of CPU."""


class Progress:
    """Whether a load's disk makes progress: one without completions for long is stuck, else it is only slow.

    A load that is not `direct` may be served by the guest's page cache without its disk, so it is not judged; if it
    hangs, the end of its run time shows it.
    """

    def __init__(self, *, direct: bool) -> None:
        self._direct = direct
        self._operations = -1
        self._rose = time.monotonic()

    def stuck(self, operations: Callable[[], int], now: float) -> bool:
        """Read the number of completed requests, and say whether it last rose too long ago."""
        if not self._direct:
            return False
        found = operations()
        if found != self._operations:
            self._operations, self._rose = found, now
        return now - self._rose > STUCK_SECONDS


class RunningLoad(Protocol):
    """A running load, in one place or in several at once."""

    def ended(self, *, due: bool) -> bool:
        """Wait at most a tick, and return whether all of it has ended well. `due`: its time is over.

        Raises LoadError with the reason when it, or its rig, failed.
        """
        ...

    def stuck(self) -> str | None:
        """Say why it is stuck, None while it is not."""
        ...

    def stop(self) -> None:
        """End it at once."""
        ...

    def look(self) -> tuple[Check, ...]:
        """Check the settings now: each of them is in the result, found or not."""
        ...


@dataclass(frozen=True, slots=True, kw_only=True)
class Moments:
    """Actions at times after the start of the load: once each, in this order."""

    begin_seconds: float
    end_seconds: float
    on_begin: Callable[[], None]
    on_end: Callable[[], None]
    patience_seconds: float = PATIENCE_SECONDS


def watch(load: RunningLoad, moments: Moments, *, started: float | None = None) -> tuple[Check, ...]:
    """Watch a load to its end, and return the checks of its settings. `started` is when it began (monotonic).

    Raises LoadError when it fails or does not end; then all of it has been ended.
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
    # a process's activity until then is still in its counters
    looks.again(now=True)
    return looks.seen()


class _Looks:
    """The checks of a load's settings so far."""

    def __init__(self, load: RunningLoad) -> None:
        self._load = load
        self._found: dict[tuple[int, str], Check] = {}
        self._last = 0.0

    def look(self) -> None:
        """Check now; a setting once found stays found."""
        self._last = time.monotonic()
        for check in self._load.look():
            key = check.guest, check.setting
            known = self._found.get(key)
            if known is None or known.found is None:
                self._found[key] = check

    def again(self, *, now: bool = False) -> None:
        """Check the settings not found yet, if the interval has passed, or `now`."""
        wanting = not self._found or any(one.found is None and not one.hidden for one in self._found.values())
        if wanting and (now or time.monotonic() - self._last >= _LOOK_SECONDS):
            self.look()

    def seen(self) -> tuple[Check, ...]:
        """Return the checks with and without a finding."""
        return tuple(self._found.values())
