# SPDX-License-Identifier: Apache-2.0
"""Does the clock of a guest with Linux run as fast as the host's?

Linux finds the frequency of its time-stamp counter while it boots, by counting against an emulated timer. On a busy
host that went wrong under TCG ("PIT calibration deviates from PMTIMER: 335686 2593141"): a second of the guest took
0.13 s, so that all it measured was wrong by that factor.
"""

import re
import time
from dataclasses import dataclass

from virtune.bench.guest.channel import Guest, GuestError

WAIT_SECONDS = 0.3
"""How long lies between two readings: the errors that were seen are factors."""

_OFF = 0.1
_RESOLUTION_SECONDS = 0.02
"""/proc/uptime has hundredths of a second, twice."""


_UPTIME = re.compile(rb"[0-9]{1,10}\.[0-9]+")


@dataclass(frozen=True, slots=True)
class ClockReading:
    """A guest's seconds since its boot, read between two moments of the host's clock, in seconds."""

    uptime: float
    earliest: float
    latest: float

    @property
    def boot(self) -> float:
        """The host's clock at the guest's boot, as late as it may have been."""
        return self.latest - self.uptime


def read_clock(guest: Guest, *, timeout_seconds: float) -> ClockReading:
    """Read the clock of a guest; raises GuestError when it does not answer in time, or with no number."""
    earliest = time.monotonic()
    shown = guest.run(["cat", "/proc/uptime"], timeout_seconds=timeout_seconds).stdout
    found = _UPTIME.match(shown)
    if found is None:
        raise GuestError("the guest does not say how long it runs", hint=f"/proc/uptime: {shown[:40]!r}")
    return ClockReading(float(found[0]), earliest, time.monotonic())


def wrong_speed(first: ClockReading, last: ClockReading) -> float | None:
    """Return how many times as fast as the host's the guest's clock ran, where that is certainly off by more than a
    tenth; None where it may be right, however late the answers came.
    """
    passed = last.uptime - first.uptime
    least, most = last.earliest - first.latest, last.latest - first.earliest
    if passed > most * (1 + _OFF) + _RESOLUTION_SECONDS:
        return passed / most
    if passed < least * (1 - _OFF) - _RESOLUTION_SECONDS:
        return passed / least
    return None


def speed_words(name: str, speed: float) -> str:
    """Say how fast a guest's clock runs."""
    return f"the clock of {name} runs {speed:.2g} times as fast as this host's"


SPEED_HINT = (
    "what fio measures in it would be wrong by that: its kernel measured its clock while this host was busy, so boot"
    " it again (`dmesg | grep -i tsc` there tells), or it was paused meanwhile"
)
"""What to do about a user's guest with a clock that is wrong."""
