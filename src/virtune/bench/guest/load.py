# SPDX-License-Identifier: Apache-2.0
"""A load in one or several guests: all are prepared, begin together, and are watched to their end.

What is done, and in which order, is the same for all (`run_in_guests`). A GuestLoad is one guest's end of it: fio in
a test VM or in an existing domain, or a guest without an operating system, which is a load itself. fio reaches a
barrier after its set-up and before its first I/O (`exec_prerun`), so that its clock starts when the host releases it.
"""

import abc
import contextlib
import json
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import ClassVar

from virtune.bench.guest.channel import Guest, GuestError, GuestOutput, GuestProcess
from virtune.bench.live.rings import RingReader, TrialRings
from virtune.bench.load import LOG_MS, NOTHING_DONE, STUCK, TICK_SECONDS, Moments, Progress, watch
from virtune.bench.port import HostCounters, Keep, LoadJob, LoadOutput, Window
from virtune.bench.verify import Spent, cpu_of
from virtune.model.errors import LoadError, RigError, VirtuneError
from virtune.model.evidence import BARRIER, RINGS, Changeover, Check, InForce, of_guest
from virtune.model.facts import BusyFacts, Unknown
from virtune.model.stack import Stack, Target
from virtune.probe.host import busy_facts
from virtune.probe.process import Process, Rings

ARM_SECONDS = 60.0
"""How long a load may take to be ready."""

_BEGIN_SECONDS = 10.0
_RESULT_SECONDS = 60.0

_BUSY_PERCENT = 50.0
"""On a host that is less busy no thread waits for 15 s."""


@dataclass(kw_only=True)
class LoadedGuest(abc.ABC):
    """A guest with the disk of one stack. What ends in `_before` is as it was when the load began."""

    target: Target
    image: Path | None
    command: str
    processes: Mapping[str, int]
    in_force: InForce
    changeover: Changeover | None
    stack: Stack
    seen: Mapping[str, str]
    rings_before: Rings = field(default_factory=Rings)
    requests_before: int = 0
    spent_before: Mapping[int, int] = field(default_factory=dict)

    @property
    @abc.abstractmethod
    def process(self) -> Process | None:
        """The QEMU; None where it is not seen from here."""

    @property
    def counted(self) -> bool:
        """Whether QEMU counts the disk's requests: those of a drive that the guest has itself do not pass it."""
        return self.stack.device.vfio_pci is None

    def begin(self) -> None:
        """Note how far everything has come when the load begins."""
        self.requests_before = self.operations()
        if (process := self.process) is not None:
            self.rings_before, self.spent_before = process.rings(), cpu_of(process)

    @abc.abstractmethod
    def operations(self) -> int:
        """Return the number of requests that the disk has completed: one on which it does not rise is stuck."""

    @abc.abstractmethod
    def under_load(self, *, flushes: bool) -> tuple[Check, ...]:
        """Look who does the I/O now."""

    @abc.abstractmethod
    def trouble(self) -> str | None:
        """Say how QEMU ended, None while it runs."""

    @abc.abstractmethod
    def evidence(self) -> str:
        """Return the evidence of a failed guest."""


class GuestLoad(abc.ABC):
    """The load of one guest. `command` is what runs it, `started` when it began, where that is known exactly."""

    settle_seconds: ClassVar = 0.05
    """How long after the ramp the counters are read: a load begins when its barrier opens, within a poll of it."""
    end_seconds: ClassVar = 0.1
    """How long before the end they are read."""
    look_seconds: ClassVar = 1.0
    """The interval of checks whether the disk completes any request."""

    command: str
    started: float | None = None

    def __init__(self, bench: LoadedGuest, job: LoadJob) -> None:
        self.bench, self.job = bench, job
        self.progress = Progress(direct=job.workload.direct and bench.counted)

    def start(self) -> None:  # noqa: B027 - only fio is started
        """Start what then takes its time to be ready."""

    def sampled(self) -> AbstractContextManager[object]:
        """Sample the guest's own counters while the block runs."""
        return nullcontext()

    @abc.abstractmethod
    def arm(self) -> None:
        """Return when all of its jobs wait for `release`; raises LoadError when one does not come that far."""

    def held(self) -> AbstractContextManager[object]:
        """Keep the way into the guest free for `release` and `released`."""
        return nullcontext()

    @abc.abstractmethod
    def release(self) -> None:
        """Let all jobs begin."""

    def released(self) -> None:  # noqa: B027 - not all are asked for an answer
        """Wait for the guest's word that they were."""

    def begun(self) -> float | None:
        """Return when its first I/O was seen, None until it is: by a query, so late by some milliseconds."""
        return time.monotonic() if self.bench.operations() > self.bench.requests_before else None

    @abc.abstractmethod
    def read(self, mark: str) -> Mapping[str, object] | None:
        """Read QEMU's counters of the disk; None when they cannot be read. `t` is our monotonic clock in ns."""

    def mark(self, mark: str) -> None:  # noqa: B027 - not all sample their own counters
        """Read the guest's own counters."""

    def spent(self) -> Spent | None:
        """Return the CPU time of each of QEMU's threads since the load began, where it can be told."""
        return None

    def rings(self) -> Iterator[Callable[[], RingReader]]:
        """Yield what finds the disk's virtqueues, where they can be seen."""
        return iter(())

    @abc.abstractmethod
    def over(self, seconds: float, *, due: bool) -> bool:
        """Wait so long for its end; raises LoadError when it, or its guest, failed. `due`: its time is over."""

    @abc.abstractmethod
    def stop(self) -> None:
        """End it at once."""

    @abc.abstractmethod
    def result(self) -> tuple[bytes, bytes, bytes]:
        """Return its JSON, its log of IOPS, that of every single I/O (empty without one).

        Raises LoadError when they cannot be trusted.
        """

    @abc.abstractmethod
    def keep(self, keep: Keep, number: int) -> None:
        """Keep the evidence that only this kind has, also when the load failed."""

    def last_words(self) -> str | None:
        """Return what the guest said last, if that tells why it ended."""
        return None


class FioLoad(GuestLoad):
    """fio in a guest. Files with its error message are `complaints`: with --output it goes into that file."""

    complaints: tuple[str, ...]
    process: GuestProcess

    def __init__(self, bench: LoadedGuest, job: LoadJob, guest: Guest) -> None:
        super().__init__(bench, job)
        self.guest = guest

    def words(self, *, barrier: str, place: str) -> list[str]:
        """Return fio's command line: `place` is before the names of its files."""
        logging = (f"--write_iops_log={place}load", f"--log_avg_msec={LOG_MS}")
        output = ("--output-format=json+", f"--output={place}load.json", "--eta=never")
        return ["fio", *self.job.job.arguments, f"--exec_prerun=. {barrier}", *logging, *output, f"{place}load.fio"]

    @abc.abstractmethod
    def waits(self) -> bool:
        """Wait until all jobs are at the barrier; False when they do not reach it in time."""

    def arm(self) -> None:
        if self.waits():
            return
        ended = self.process.wait(1.0)
        if ended is None:
            self.process.end("INT")
            raise LoadError(f"fio in the guest was not ready within {ARM_SECONDS:g} s")
        hint = self._complaint(ended)
        raise LoadError(f"fio in the guest ended before it began: status {ended.status}", hint=hint)

    def has_ended(self, seconds: float) -> bool:
        """Wait so long for its end; raises LoadError when it did not end well."""
        output = self.process.wait(seconds)
        if output is not None and output.status:
            raise LoadError(f"fio in the guest ended with status {output.status}", hint=self._complaint(output))
        return output is not None

    def stop(self) -> None:
        self.process.end("INT", "TERM")

    def fetched(self, path: str) -> bytes:
        """Return what a file of the guest holds."""
        return self.guest.get(path, timeout_seconds=_RESULT_SECONDS)

    def _complaint(self, output: GuestOutput) -> str | None:
        said = output.stderr.decode(errors="replace").strip()
        for file in self.complaints if not said else ():
            with contextlib.suppress(GuestError):
                lines = self.fetched(file).decode(errors="replace").splitlines()
                said = said or next((line for line in lines if line.startswith("fio:")), "")
        return said[-300:] or None


def run_in_guests(loads: Sequence[GuestLoad], window: Window, keep: Keep, *, idle: Sequence[int] = ()) -> LoadOutput:
    """Run the loads of all guests at once to their end and return what they left.

    `idle` are the processes of idle guests beside them. Each guest has its own captures: those of the second end in
    `-2`, and so on. Raises LoadError with the reason when one of them has no result; the evidence of the guests is
    kept then too.
    """
    first, *others = (one.bench for one in loads)
    for number, one in enumerate(loads):
        keep.capture(of_guest("guest.json", number), json.dumps(dict(one.bench.seen)) + "\n")
    with keep.host(processes=first.processes, image=first.image) as host:
        for role, pid in (pair for guest in others for pair in guest.processes.items()):
            host.add_process(role, pid)
        for pid in idle:
            host.add_process("idle", pid)
        counters = _Counters(loads, host)
        try:
            return _run(loads, counters, window, keep)
        except (LoadError, RigError) as error:
            raise _explained(error, loads, keep) from None
        finally:
            counters.keep(keep)
            for number, one in enumerate(loads):
                one.keep(keep, number)


def _run(loads: Sequence[GuestLoad], counters: "_Counters", window: Window, keep: Keep) -> LoadOutput:
    with contextlib.ExitStack() as sampled:
        for one in loads:
            one.start()
        # the first sample of the counters takes no longer than preparing the loads
        for one in loads:
            sampled.enter_context(one.sampled())
        for one in loads:
            one.arm()
        for one in loads:
            one.bench.begin()
        let_go(loads)
        if len(loads) > 1:
            keep.capture(BARRIER, json.dumps({"guests": len(loads), "skew_seconds": skew_seconds(loads)}) + "\n")
        moments = Moments(
            begin_seconds=window.begins(loads[0].settle_seconds),
            end_seconds=window.ends(loads[0].end_seconds),
            patience_seconds=window.patience_seconds,
            on_begin=counters.begin,
            on_end=counters.end,
        )
        checks = watch(_Together(loads), moments, started=loads[0].started)
    outputs, logs, operations = zip(*(one.result() for one in loads), strict=True)
    return LoadOutput(
        output=outputs[0],
        beside=outputs[1:],
        log=b"".join(logs),
        command="\n".join(one.command for one in loads),
        checks=checks,
        operations=tuple(each for each in operations if each),
    )


def let_go(loads: Sequence[GuestLoad]) -> None:
    """Let the loads of all guests begin, as simultaneously as possible."""
    with contextlib.ExitStack() as held:
        for one in loads:
            held.enter_context(one.held())
        for one in loads:
            one.release()
        for one in loads:
            one.released()


def skew_seconds(loads: Sequence[GuestLoad]) -> float:
    """Return the seconds between the first I/O of the first guest and that of the last.

    Raises GuestError when a guest does no I/O in time.
    """
    begun: dict[int, float] = {}
    deadline = time.monotonic() + _BEGIN_SECONDS
    while len(begun) < len(loads):
        for index, one in enumerate(loads):
            if index not in begun and (at := one.begun()) is not None:
                begun[index] = at
        if time.monotonic() > deadline:
            raise GuestError(f"{len(loads) - len(begun)} of {len(loads)} guests began nothing")
    return max(begun.values()) - min(begun.values())


def _explained(error: LoadError | RigError, loads: Sequence[GuestLoad], keep: Keep) -> LoadError:
    """Keep the evidence of the guests, and return why a load failed: because its guest did, where that is so."""
    with contextlib.suppress(VirtuneError):
        keep.capture("trouble.txt", "".join(one.bench.evidence() for one in loads))
    if isinstance(error, LoadError):
        if error.hint is None and NOTHING_DONE in error.message:
            return LoadError(error.message, hint=busy_words(busy_facts()))
        return error
    ended = next((how for one in loads if (how := one.bench.trouble()) is not None), None)
    words = next((said for one in loads if (said := one.last_words())), None)
    return LoadError(ended or error.message, hint=words or (None if ended else error.hint))


def busy_words(facts: BusyFacts) -> str | None:
    """Say what a host was waiting for while a disk stood still; None where it waited for little, or does not tell.

    A disk that is stuck, and one that a busy host gives neither a CPU nor its own disk, look alike from a guest.
    """
    waits = {"cpu": "a CPU", "io": "the host's disks"}
    pressure = () if isinstance(facts.pressure, Unknown) else facts.pressure
    shares = [
        f"{one.some_percent:.0f} % of the time for {waits[one.resource]}"
        for one in pressure
        if one.resource in waits and not isinstance(one.some_percent, Unknown) and one.some_percent >= _BUSY_PERCENT
    ]
    if not shares:
        return None
    return f"in the last 10 s processes of this host waited {' and '.join(shares)}: it may be that, and not this disk"


class _Counters:
    """The reads at the begin and end of the measured time: this host's and QEMU's counters, CPU time per thread, the
    guests' own. The virtqueues of the disks are sampled in between.
    """

    def __init__(self, loads: Sequence[GuestLoad], host: HostCounters) -> None:
        self._loads, self._host = loads, host
        self._reads: list[dict[str, object]] = [{} for _ in loads]
        self._spent: list[Spent | None] = []
        self._rings = TrialRings()

    def begin(self) -> None:
        """The measured time begins."""
        self._read("begin")
        self._rings.begin(find for one in self._loads for find in one.rings())
        self._mark("begin")

    def end(self) -> None:
        """The measured time ends."""
        self._rings.end()
        self._read("stop")
        self._spent = [one.spent() for one in self._loads]
        self._mark("stop")

    def keep(self, keep: Keep) -> None:
        """Keep the reads, also when the load failed in between."""
        for number, content in self._rings.contents():
            keep.capture(of_guest(RINGS, number), content)
        for number, reads in enumerate(self._reads):
            if reads:
                keep.capture(of_guest("qemu-blockstats.json", number), json.dumps(reads) + "\n")
        for number, spent in enumerate(self._spent):
            if spent is not None:
                by = {"ns_by_role": spent.by_role, "ns_by_iothread": spent.by_iothread, "ns_by_vcpu": spent.by_vcpu}
                keep.capture(of_guest("threads.json", number), json.dumps(by) + "\n")

    def _read(self, mark: str) -> None:
        self._host.sample(mark=mark)
        for one, reads in zip(self._loads, self._reads, strict=True):
            if (found := one.read(mark)) is not None:
                reads[mark] = found

    def _mark(self, mark: str) -> None:
        for one in self._loads:
            one.mark(mark)


class _Together:
    """The loads of all guests, watched together."""

    def __init__(self, loads: Sequence[GuestLoad]) -> None:
        self._loads, self._left = loads, list(loads)
        self._asked = time.monotonic()

    def ended(self, *, due: bool) -> bool:
        """Wait a tick for the remaining ones to end; raises LoadError for one that failed."""
        share = TICK_SECONDS / len(self._left)
        self._left = [one for one in self._left if not one.over(share, due=due)]
        return not self._left

    def stuck(self) -> str | None:
        """Check from time to time whether each guest's disk completes any request."""
        now = time.monotonic()
        if now - self._asked < self._loads[0].look_seconds:
            return None
        self._asked = now
        return STUCK if any(one.progress.stuck(one.bench.operations, now) for one in self._left) else None

    def stop(self) -> None:
        for one in self._left:
            with contextlib.suppress(GuestError):
                one.stop()

    def look(self) -> tuple[Check, ...]:
        return tuple(
            replace(check, guest=number)
            for number, one in enumerate(self._loads)
            for check in one.bench.under_load(flushes=one.job.flushes)
        )
