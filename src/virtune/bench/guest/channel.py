# SPDX-License-Identifier: Apache-2.0
"""The interface to a guest: run a program in it and get its output and status, with a deadline, over any transport;
and what is asked of any Linux guest: its clock, its counters, its disk.

There are two: the shell of our own appliance on a virtio-serial port (`guest_shell`), and the QEMU guest agent of
existing VMs. The console is never used: one that is not read blocks the guest.

Linux finds the frequency of its time-stamp counter while it boots, by counting against an emulated timer. On a busy
host that went wrong under TCG ("PIT calibration deviates from PMTIMER: 335686 2593141"): a second of the guest took
0.13 s, so that all it measured was wrong by that factor. So its clock is compared with the host's.
"""

import abc
import json
import re
import time
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Protocol

from virtune.bench.counters import Ticker
from virtune.model.errors import RigError
from virtune.model.evidence import Check


class GuestError(RigError):
    """A guest did not answer, or gave an invalid answer."""


def late(seconds: float, asked: str) -> GuestError:
    """Return what is said of a guest that did not answer in time."""
    return GuestError(f"the guest did not answer within {seconds:g} s", hint=f"asked: {asked[:120]}")


@dataclass(frozen=True, slots=True, kw_only=True)
class GuestOutput:
    """The result of a program that ended in a guest."""

    status: int
    stdout: bytes
    stderr: bytes


class GuestProcess(abc.ABC):
    """A program that runs in a guest."""

    pid: int

    @abc.abstractmethod
    def wait(self, timeout_seconds: float) -> GuestOutput | None:
        """Wait for its end and return what it left; None when the time is over first."""

    @abc.abstractmethod
    def signal(self, name: str) -> None:
        """Send a signal; a stopped process reacts to none but KILL, so it goes on then."""

    def end(self, *signals: str) -> None:
        """Send it and all that it started each signal in turn (`INT`, `TERM`), with a time limit each, then KILL."""
        for name in (*signals, "KILL"):
            if self.wait(0) is not None:
                return
            self.signal(name)
            self.wait(_GRACE_SECONDS if name != "KILL" else _KILLED_SECONDS)


_GRACE_SECONDS, _KILLED_SECONDS = 3.0, 10.0
"""How long a program may take to obey a signal, and to be gone after the last one."""


class Guest(Protocol):
    """A guest that is up."""

    def run(self, argv: Sequence[str], *, timeout_seconds: float) -> GuestOutput:
        """Run a short program to its end; raises GuestError when there is none in time."""
        ...

    def start(self, argv: Sequence[str], *, timeout_seconds: float) -> GuestProcess:
        """Start a program that takes its time, one at once."""
        ...

    def put(self, path: str, content: bytes, *, timeout_seconds: float) -> None:
        """Write a file in the guest."""
        ...

    def get(self, path: str, *, timeout_seconds: float) -> bytes:
        """Return what a file of the guest holds; raises GuestError when it cannot be read."""
        ...


def must(guest: Guest, argv: Sequence[str], *, timeout_seconds: float) -> bytes:
    """Run a program that has to succeed, and return its standard output; raises GuestError with its message."""
    output = guest.run(argv, timeout_seconds=timeout_seconds)
    if output.status != 0:
        said = output.stderr.decode(errors="replace").strip().splitlines()
        raise GuestError(
            f"in the guest `{argv[0]}` ended with status {output.status}", hint=said[-1] if said else None
        )
    return output.stdout


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


SCHEMA = "virtune/guest-counters/1"

_FILES = ("/proc/uptime", "/proc/stat", "/proc/diskstats", "/proc/interrupts")
_TIMEOUT_SECONDS = 10.0


class GuestSampler(Ticker):
    """Samples a guest's counters in its own thread while the block runs; `content()` returns the samples.

    `t` is the host's monotonic clock in ns at the request, `took_ns` the time to the answer: the counters were read
    in between. A guest that does not answer leaves a gap with the reason. The measured time ends with a mark, and a
    failed guest would not answer, so there is no last sample.
    """

    last = False

    def __init__(self, guest: Guest, *, interval_seconds: float = 1.0) -> None:
        super().__init__("guest-sampler", interval_seconds=interval_seconds)
        self._guest = guest
        self._lines = [json.dumps({"schema": SCHEMA, "files": _FILES}) + "\n"]

    def sample(self, *, mark: str = "") -> int:
        begun = time.monotonic_ns()
        line: dict[str, object] = {"t": begun, "wall": time.time()} | ({"mark": mark} if mark else {})
        try:
            output = self._guest.run(["cat", *_FILES], timeout_seconds=_TIMEOUT_SECONDS)
            line["text"] = output.stdout.decode(errors="replace")
        except GuestError as error:
            line["gap"] = error.message
        line["took_ns"] = time.monotonic_ns() - begun
        self._lines.append(json.dumps(line) + "\n")
        return begun

    def content(self) -> bytes:
        """Return all samples as JSON lines; the first line says what they hold."""
        return "".join(self._lines).encode()


def seen_in_guest(
    guest: Guest, serial: str, *, timeout_seconds: float, program: Sequence[str] = ("disk",)
) -> dict[str, str]:
    """Wait until a guest sees the disk of that serial number, and return its properties (`virtune/guest/disk`).

    `program` is the command that runs that script in the guest.
    """
    words = [*program, serial, str(int(timeout_seconds))]
    text = must(guest, words, timeout_seconds=timeout_seconds + 5).decode(errors="replace")
    return dict(line.split("=", 1) for line in text.splitlines() if "=" in line)


_SECONDS = 60.0
"""Unmounting writes what the load left in the guest's page cache."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Mounted:
    """The mounted disks of a guest: the file in each, the bytes of the smallest, what the kernel says of each."""

    files: tuple[str, ...]
    size_bytes: int
    kinds: tuple[str, ...]
    lines: tuple[str, ...]

    def check(self, asked: str) -> Check:
        """Check that all of them have the requested filesystem."""
        found = asked if set(self.kinds) == {asked} else ", ".join(self.kinds)
        proof = f"the guest's /proc/mounts: {'; '.join(self.lines)}"
        return Check("disk.filesystem", asked, found, proof)


def mount(guest: Guest, devices: Sequence[str], kind: str, *, writes: bool) -> Mounted:
    """Mount the filesystem of each device in a guest (`virtune/guest/mounted`); raises GuestError when one fails."""
    told = [_facts(guest, device, kind, "rw" if writes else "ro") for device in devices]
    return Mounted(
        files=tuple(one.get("file", "") for one in told),
        size_bytes=min(int(one.get("bytes") or 0) for one in told),
        kinds=tuple(one.get("mounted", "none") for one in told),
        lines=tuple(one.get("line", "nothing is mounted") for one in told),
    )


def unmount(guest: Guest, mounted: Mounted) -> None:
    """Unmount them all; raises GuestError when one stays mounted."""
    for file in mounted.files:
        must(guest, ["umount", file.rpartition("/")[0]], timeout_seconds=_SECONDS)


def _facts(guest: Guest, device: str, kind: str, how: str) -> dict[str, str]:
    text = must(guest, ["mounted", device, kind, how], timeout_seconds=_SECONDS).decode(errors="replace")
    return dict(line.split("=", 1) for line in text.splitlines() if "=" in line)
