# SPDX-License-Identifier: Apache-2.0
"""A load in an existing domain: the guest's own fio waits at a barrier until the host releases it, and then runs
undisturbed.

Every agent command costs the host a process and some milliseconds of CPU, so there are few in the measured time: the
guest records its own counters, and the results are fetched at the end.
"""

import contextlib
import json
import time
from collections.abc import Iterator, Mapping
from itertools import accumulate
from typing import Protocol

from virtune.bench.guest.agent import AgentGuest
from virtune.bench.guest.channel import SCHEMA, SPEED_HINT, GuestError, must, read_clock, speed_words, wrong_speed
from virtune.bench.guest.load import ARM_SECONDS, FioLoad, LoadedGuest
from virtune.bench.libvirt.access import DomainAccess
from virtune.bench.port import Keep, LoadJob
from virtune.fio.job import OPERATIONS
from virtune.model.errors import LoadError, VirtuneError

_ANSWER_SECONDS = 20.0
_RESULT_SECONDS = 60.0
_LOOK_SECONDS = 2.0
"""The interval of checks whether the load has ended early, and whether the disk completes any request."""

_ENDING_SECONDS = 0.25
"""The interval of checks after its planned end."""

_START = """place=$1; export place
rm -rf "$place" && mkdir -m 700 "$place" && cd "$place" && mkfifo go && cat >load.fio || exit 1
sh "$2/counters" $$ </dev/null >/dev/null 2>&1 &
shift 2; exec "$@" >said 2>&1
"""
"""Starts fio in a new directory, where its prerun leaves a file too, and a counter script beside it. Output goes into
a file: an answer of more than libvirt's 10 MiB would disconnect the domain's agent.
"""

_ARM = """place=$1; export place
sh "$2/armed" "$3" "$4" "$5"
"""

_COLLECT = f"""cd "$1" || exit 1
cat load_iops.*.log >log 2>/dev/null
cat {OPERATIONS}_lat.*.log >each 2>/dev/null
wc -c <load.json; wc -c <log; wc -c <each
cat load.json log each counters >all
"""
"""Collects a load's results in one file, since each file takes three agent commands; the lengths separate the parts.
"""


class LoadedDomain(LoadedGuest, Protocol):
    """A domain with a scratch disk of a stack, as far as its load needs it."""

    way: DomainAccess
    place: str
    scripts: str
    xml: str

    @property
    def guest(self) -> AgentGuest:
        """The guest, by its agent."""
        ...

    def block_statistics(self) -> dict[str, int]:
        """Return QEMU's counters of the disk, by QEMU's names."""
        ...

    def exits(self) -> int | None:
        """Return how often KVM has left the guest for the host; None where libvirt does not report it."""
        ...


class DomainLoad(FioLoad):
    """fio in a domain, checked seldom. `_marks` are the moments of the host's clock by their names."""

    bench: LoadedDomain
    look_seconds = _LOOK_SECONDS

    def __init__(self, bench: LoadedDomain, job: LoadJob) -> None:
        super().__init__(bench, job, bench.guest)
        self.complaints = (f"{bench.place}/said", f"{bench.place}/load.json")
        self._marks: list[tuple[str, float]] = []
        self._counters = b""
        self._asked = 0.0

    def start(self) -> None:
        """Start fio in a new directory, and what counts beside it."""
        bench, argv = self.bench, self.words(barrier=f"{self.bench.scripts}/barrier", place="")
        self.command = " ".join(argv)
        words = ["sh", "-c", _START, "sh", bench.place, bench.scripts, *argv]
        self.process = bench.guest.start(words, timeout_seconds=_ANSWER_SECONDS, stdin=self.job.job.text.encode())

    def waits(self) -> bool:
        """Wait until all jobs are at the barrier."""
        waiting = [self.bench.place, self.bench.scripts, str(self.job.clones), str(int(ARM_SECONDS))]
        words = ["sh", "-c", _ARM, "sh", *waiting, str(self.process.pid)]
        return self.guest.run(words, timeout_seconds=ARM_SECONDS + _ANSWER_SECONDS).status == 0

    def arm(self) -> None:
        """Return when all jobs are at the barrier, and the guest's clock is read."""
        super().arm()
        self._clock = read_clock(self.guest, timeout_seconds=_ANSWER_SECONDS)

    def release(self) -> None:
        """Open the barrier."""
        asked = time.monotonic()
        self.guest.put(f"{self.bench.place}/go", b"\n" * self.job.clones, timeout_seconds=_ANSWER_SECONDS)
        # three commands: open the file, write, close; the write releases the load
        self._asked = self.started = (asked + time.monotonic()) / 2
        self._marks.append(("go", self.started))

    def read(self, mark: str) -> Mapping[str, object] | None:
        """Read QEMU's counters of the disk by libvirt; without them only one layer is missing."""
        self._marks.append((mark, time.monotonic()))
        begun = time.monotonic_ns()
        with contextlib.suppress(VirtuneError):
            stats, exits = self.bench.block_statistics(), self.bench.exits()
            found = {"t": (begun + time.monotonic_ns()) // 2, "stats": stats}
            return found if exits is None else found | {"exits": exits}
        return None

    def over(self, seconds: float, *, due: bool) -> bool:
        """Wait a tick; ask whether it has ended, more often after its planned end."""
        if (trouble := self.bench.trouble()) is not None:
            raise LoadError(trouble)
        now = time.monotonic()
        if now - self._asked >= (_ENDING_SECONDS if due else _LOOK_SECONDS):
            self._asked = now
            if self.has_ended(0):
                return True
        time.sleep(seconds)
        return False

    def result(self) -> tuple[bytes, bytes, bytes]:
        """Return fio's JSON and its logs.

        Raises LoadError where the guest's clock, by which fio measured, did not keep the host's time meanwhile.
        """
        bench = self.bench
        speed = wrong_speed(self._clock, read_clock(self.guest, timeout_seconds=_ANSWER_SECONDS))
        if speed is not None:
            raise LoadError(speed_words(bench.way.domain, speed), hint=SPEED_HINT)
        said = must(self.guest, ["sh", "-c", _COLLECT, "sh", bench.place], timeout_seconds=_RESULT_SECONDS).split()
        whole = self.fetched(f"{bench.place}/all")
        if len(said) != 3 or not all(word.isdigit() for word in said):
            raise GuestError("the guest does not say how long its load's result is")
        first, second, third = accumulate(int(word) for word in said)
        self._counters = _counters(whole[third:], self._clock.boot, self._marks)
        return whole[:first], whole[first:second], whole[second:third]

    def keep(self, keep: Keep, number: int) -> None:  # noqa: ARG002 - a domain is loaded alone
        """Keep the guest's own counters, and what it is."""
        keep.capture("domain.xml", self.bench.xml)
        keep.capture("guest-counters.jsonl", self._counters)


def _counters(counted: bytes, clock: float, marks: list[tuple[str, float]]) -> bytes:
    """Return the guest's counters as JSON lines, its clock turned into the host's.

    `clock` is the host's monotonic clock at the guest's boot, derived from an agent's answer and some hundredths of a
    second late.
    """
    samples = [*_samples(counted.decode(errors="replace"), clock)]
    samples += [{"t": int(at * 1e9), "mark": mark} for mark, at in marks]
    head = {"schema": SCHEMA, "files": ["/proc/stat", "/proc/diskstats", "/proc/interrupts"]}
    lines = [head, *sorted(samples, key=lambda sample: int(str(sample["t"])))]
    return "".join(json.dumps(line) + "\n" for line in lines).encode()


def _samples(text: str, clock: float) -> Iterator[dict[str, object]]:
    for part in text.split("== ")[1:]:
        head, _, body = part.partition("\n")
        with contextlib.suppress(ValueError, IndexError):
            yield {"t": int((clock + float(head.split()[0])) * 1e9), "uptime": head, "text": body}
