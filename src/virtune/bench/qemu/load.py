# SPDX-License-Identifier: Apache-2.0
"""Guests that are loaded: with Linux, by its fio, or without an operating system, by themselves."""

import abc
import contextlib
import functools
import json
import shlex
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import pairwise
from typing import Any

from virtune.bench.guest.agent import words_of
from virtune.bench.guest.channel import GuestError, GuestSampler
from virtune.bench.guest.load import ARM_SECONDS, FioLoad
from virtune.bench.live.monitor import FIELDS
from virtune.bench.live.rings import RingReader
from virtune.bench.load import STUCK_SECONDS, Load, Loaded, Progress, run_loads
from virtune.bench.port import Keep, LoadJob, LoadOutput, Window
from virtune.bench.qemu.accelerator import Accelerator
from virtune.bench.qemu.bare import BareVm
from virtune.bench.qemu.carried import place_checks
from virtune.bench.qemu.machine import QemuGuest, Vm, console_end
from virtune.bench.verify import (
    RingOwners,
    Spent,
    engine_check_under_load,
    iothread_check_under_load,
    loops_of,
    mapping_check_under_load,
    moved_since,
    since,
    spent_by,
)
from virtune.dialects.qemu.guest import DEVICE
from virtune.fio.job import OPERATIONS
from virtune.model.errors import LoadError
from virtune.model.evidence import UNDER_LOAD, Check, of_guest
from virtune.probe.process import Process, Ring
from virtune.shell import last_line

_ANSWER_SECONDS = 10.0
_PREPARE_SECONDS = 30.0
"""Nothing is timed before a load, and an emulated guest that was given a disk answers late on a busy host."""
_RESULT_SECONDS = 60.0

CLOCK_TOLERANCE = 0.005
"""The allowed difference of a guest's clock; its fallback timer is calibrated to 0.5 %."""

_CLOCK_SLACK_SECONDS = 0.1
"""How late this host may receive a guest's message where QEMU waits for no CPU."""

_CLOCK_LOOK_SECONDS = 0.1
"""The interval at which it is noted that a load still runs."""

_COUNTED = ("reads", "writes", "read_bytes", "written_bytes")
"""The counters that both the guest and QEMU have."""


@dataclass(kw_only=True)
class CarriedBench(Loaded):
    """A test VM with any system in it; `beside` it others that share its load, and the pids of `idle` ones."""

    vm: QemuGuest
    accelerator: Accelerator
    engines: RingOwners
    held: frozenset[Ring]
    beside: tuple["CarriedBench", ...] = ()
    idle: tuple[int, ...] = ()

    @property
    def process(self) -> Process:
        return Process(self.vm.child.pid)

    @abc.abstractmethod
    def load(self, job: LoadJob) -> Load:
        """Return a load of this guest, as what runs in it is loaded."""

    def run(self, jobs: Sequence[LoadJob], window: Window, keep: Keep) -> LoadOutput:
        """Load the guests that share the load, and keep what they run on."""
        keep.capture("accelerator.txt", f"{self.accelerator.name}: {self.accelerator.why}\n")
        loads = [one.load(job) for one, job in zip((self, *self.beside), jobs, strict=True)]
        return run_loads(loads, window, keep, idle=self.idle)

    def spent(self) -> Spent:
        """Return who was how long on a CPU since the load began."""
        return spent_by(self.vm.child.pid, since(self.process, self.spent_before))

    def operations(self) -> int:
        return self.vm.operations()

    def evidence(self) -> str:
        return self.vm.evidence()

    def under_load(self, *, flushes: bool) -> tuple[Check, ...]:
        spent = replace(self.spent(), requests=self.operations() - self.requests_before)
        checks = [iothread_check_under_load(self.stack, spent), mapping_check_under_load(self.stack, spent)]
        if self.stack.disk.backend == "file" and self.counted:
            self.engines.add(loops_of(self.stack), set(self.process.rings().places) - self.held)
            activity = moved_since(self.process, self.rings_before, self.engines.of(loops_of(self.stack)))
            activity = replace(activity, workers_ns=spent.of("worker"), io_ns=spent.io_ns, flushes=flushes)
            checks.append(engine_check_under_load(self.stack.disk.aio, activity))
        places = place_checks(self.stack, self.process, f" {UNDER_LOAD}")
        return tuple(check for check in (*checks, *places) if check is not None)

    def trouble(self) -> str | None:
        return self.vm.trouble()


@dataclass(kw_only=True)
class GuestBench(CarriedBench):
    """A guest with Linux."""

    vm: Vm
    beside: tuple["GuestBench", ...] = ()

    def load(self, job: LoadJob) -> "LinuxLoad":
        return LinuxLoad(self, job)


@dataclass(kw_only=True)
class BareBench(CarriedBench):
    """A guest without an operating system."""

    vm: BareVm
    beside: tuple["BareBench", ...] = ()

    def load(self, job: LoadJob) -> "BareLoad":
        return BareLoad(self, job)


class _QemuLoad(Load):
    """A load in a test VM, whose QEMU is asked by its monitor."""

    bench: CarriedBench

    def read(self, mark: str) -> Mapping[str, object]:  # noqa: ARG002 - both reads are the same
        """Read QEMU's counters of the disk, and how often KVM left the guest."""
        vm = self.bench.vm
        found = {"t": time.monotonic_ns(), "stats": vm.block_statistics()}
        return found if (exits := vm.exits()) is None else found | {"exits": exits}

    def spent(self) -> Spent:
        return self.bench.spent()

    def rings(self) -> Iterator[Callable[[], RingReader]]:
        """Yield what finds the disk's virtqueues in QEMU's memory."""
        vm = self.bench.vm
        yield functools.partial(RingReader.of, vm.monitor, vm.child.pid, f"/machine/peripheral/{DEVICE}")


class LinuxLoad(_QemuLoad, FioLoad):
    """fio in a test VM with Linux."""

    bench: "GuestBench"
    complaints = ("/run/load.json",)

    def __init__(self, bench: "GuestBench", job: LoadJob) -> None:
        super().__init__(bench, job, bench.vm.guest)
        self._look = bench.vm.guest.look
        self._sampler = GuestSampler(bench.vm.guest)
        self._sent = 0

    def start(self) -> None:
        # all in one line with the shell's builtin printf: under emulation every program costs 10 ms
        old = f"/run/go /run/armed /run/load.json /run/load_*.log /{OPERATIONS}_*.log"
        written = self._look.run(
            f"rm -f {old}; mkfifo /run/go; {words_of(['printf', '%s', self.job.job.text])} >/run/load.fio",
            timeout_seconds=_PREPARE_SECONDS,
        )
        if written.status:
            complaint = written.stderr.decode(errors="replace").strip()
            raise GuestError("the guest cannot write /run/load.fio", hint=complaint[-300:] or None)
        argv = self.words(barrier="/bin/barrier", place="/run/")
        self.process, self.command = self.guest.start(argv, timeout_seconds=_PREPARE_SECONDS), shlex.join(argv)

    def sampled(self) -> GuestSampler:
        return self._sampler

    def waits(self) -> bool:
        """Wait until all jobs are at the barrier."""
        words = ["armed", str(self.job.clones), str(int(ARM_SECONDS)), str(self.process.pid)]
        return self.guest.run(words, timeout_seconds=ARM_SECONDS + _ANSWER_SECONDS).status == 0

    def held(self) -> contextlib.AbstractContextManager[None]:
        """Keep the channel free of the sampler's commands."""
        return self._look.held()

    def release(self) -> None:
        """Open the barrier: each job reads a line of its pipe."""
        lines = "\\n" * self.job.clones
        self._sent = self._look.send("run", f"printf '{lines}' >/run/go", timeout_seconds=_ANSWER_SECONDS)

    def released(self) -> None:
        if self._look.receive(self._sent, timeout_seconds=_ANSWER_SECONDS) is None:
            raise GuestError("a guest did not open its barrier")

    def mark(self, mark: str) -> None:
        self._sampler.sample(mark=mark)

    def over(self, seconds: float, *, due: bool) -> bool:  # noqa: ARG002 - its shell says without delay that it ended
        """Wait so long for its end; raises LoadError when fio failed, or the guest is gone."""
        if self.has_ended(seconds):
            return True
        if (trouble := self.bench.trouble()) is not None:
            raise LoadError(trouble)
        return False

    def result(self) -> tuple[bytes, bytes, bytes]:
        """Return fio's JSON and its logs, which it writes where it runs: in the root directory, in memory."""
        log = self._printed("cat /run/load_iops.*.log")
        each = self._printed(f"[ ! -e /{OPERATIONS}_lat.1.log ] || cat /{OPERATIONS}_lat.*.log")
        return self.fetched("/run/load.json"), log, each

    def keep(self, keep: Keep, number: int) -> None:
        """Keep the guest's own counters."""
        keep.capture(of_guest("guest-counters.jsonl", number), self._sampler.content())

    def _printed(self, words: str) -> bytes:
        return self._look.run(words, timeout_seconds=_RESULT_SECONDS).stdout


class BareLoad(_QemuLoad):
    """The load that a guest without an operating system is itself, checked against this host: its counts against
    QEMU's, its clock against ours.

    `_looks` are the moments at which it had not said that it ended, and the ns that QEMU's threads had waited for a
    CPU until then. Times are of our monotonic clock.
    """

    bench: "BareBench"
    end_seconds = 0.05

    def __init__(self, bench: "BareBench", job: LoadJob) -> None:
        super().__init__(bench, job)
        self.progress = Progress(direct=bench.counted)
        self.command = f"virtune-guest: {job.job.text!r}"
        self._line, self._before = bench.vm.line, bench.vm.disk_statistics()
        self._said: dict[str, bytes] = {}
        self._looks: list[tuple[float, int]] = []
        self._asked_to_go = self._ended = 0.0
        self._failed = False

    def arm(self) -> None:
        """Have the guest prepare its load; raises LoadError with its message when it cannot."""
        try:
            self._line.ask("job", self.job.job.text.encode(), expect="armed", timeout_seconds=ARM_SECONDS)
        except GuestError as error:
            raise LoadError(f"the guest refused the load: {error.message}") from None

    def release(self) -> None:
        """Send it the word."""
        self._asked_to_go = time.monotonic()
        self._line.send("go", f"{int(STUCK_SECONDS * 1000)} {int(time.time() * 1000)}".encode())

    def released(self) -> None:
        """Wait until it says that it began."""
        frame = self._line.receive(_ANSWER_SECONDS)
        if frame is None or frame.kind != "began":
            raise LoadError("the guest did not begin")
        self._note(time.monotonic())

    def begun(self) -> float:
        """Return when it said that it began."""
        return self._looks[0][0]

    def over(self, seconds: float, *, due: bool) -> bool:  # noqa: ARG002 - it says without delay that it ended
        """Receive its messages for a moment: whether the result was among them; raises LoadError when it failed."""
        begun = time.monotonic()
        frame = self._line.receive(seconds)
        if frame is None:
            if not self._ended and begun - self._looks[-1][0] >= _CLOCK_LOOK_SECONDS:
                self._note(begun)
            return False
        self._said[frame.kind] = frame.body
        if frame.kind == "ended":
            self._ended = time.monotonic()
            self._note(self._ended)
        if frame.kind == "failed":
            raise LoadError(f"the load in the guest failed: {frame.body.decode(errors='replace')[:300]}")
        if frame.kind == "result":
            own = json.loads(frame.body)["virtune-load"]
            self._failed = own["ended_by"] == "error"
            if self._failed:
                raise LoadError(f"the load in the guest failed: {own['message']}")
        return frame.kind == "result"

    def stop(self) -> None:
        """Stop the load; the machine ends after a failed load."""
        self._line.send("stop")

    def result(self) -> tuple[bytes, bytes, bytes]:
        """Return what it said; raises LoadError when its clock or its counts differ from this host's."""
        most, least = self._ended - self._asked_to_go, least_seconds(self._looks)
        if (wrong := wrong_clock(int(self._said["ended"]) / 1e9, least=least, most=most)) is not None:
            seen = self.bench.seen
            raise LoadError(wrong, hint=f"its clock is {seen.get('clock')} at {seen.get('tsc_hz')} Hz")
        if self.bench.counted:
            own, after = json.loads(self._said["counts"])["disks"], self.bench.vm.disk_statistics()
            for disk in sorted({*own, *after}):
                wrong = miscounted(own.get(disk, {}), self._before.get(disk, {}), after.get(disk, {}))
                if wrong is not None:
                    raise LoadError(f"{disk}: {wrong}" if len(after) > 1 else wrong)
        return self._said["result"], self._said["log"], self._said.get("each", b"")

    def keep(self, keep: Keep, number: int) -> None:
        """Keep its own counts, and what it says of its failure."""
        if "counts" in self._said:
            keep.capture(of_guest("guest-counts.json", number), self._said["counts"])
        if self._failed:
            keep.capture(of_guest("guest-failure.json", number), self._said["result"])

    def last_words(self) -> str | None:
        """Return the end of its console: it only writes there why it ends."""
        return last_line(console_end(self.bench.vm.console))

    def _note(self, at: float) -> None:
        self._looks.append((at, Process(self.bench.vm.child.pid).waited_ns()))


def least_seconds(looks: Sequence[tuple[float, int]]) -> float:
    """Return how long a load ran at least: until the last look at which it had not said that it ended, but for the
    time that this word may have been on its way, while QEMU's threads waited for a CPU.

    Of each look there is the time and how many ns these threads had waited. The first is when the load began, the
    last when its end was heard of.
    """
    begun, waited = looks[0][0], looks[-1][1]
    bounds = (
        at - begun - _CLOCK_SLACK_SECONDS - (waited - before) / 1e9 for (_, before), (at, _) in pairwise(looks[:-1])
    )
    return max(bounds, default=0.0)


def wrong_clock(seconds: float, *, least: float, most: float) -> str | None:
    """Say how a guest's clock is wrong: it counted more time than passed here, or less than it ran."""
    if least * (1 - CLOCK_TOLERANCE) <= seconds <= most * (1 + CLOCK_TOLERANCE):
        return None
    here = f"{max(least, 0):.3f} to {most:.3f} s"
    return f"the guest's clock cannot be trusted: it counted {seconds:.3f} s where this host counted {here}"


def miscounted(counted: Mapping[str, int], before: Mapping[str, Any], after: Mapping[str, Any]) -> str | None:
    """Say where a guest's counts of its disk differ from QEMU's."""
    for ours in _COUNTED:
        there = after.get(FIELDS[ours], 0) - before.get(FIELDS[ours], 0)
        if counted.get(ours, 0) != there:
            return f"the guest counted {counted.get(ours, 0)} {ours.replace('_', ' ')}, and QEMU {there}"
    return None
