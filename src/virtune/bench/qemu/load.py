# SPDX-License-Identifier: Apache-2.0
"""A load in a guest, or in several at once: fio held at a barrier until all are ready, watched until it ends.

fio comes by the barrier after it has set everything up and before its first I/O (`exec_prerun`), so that its clock
begins when the host says so, and loads of several guests begin together.
"""

import contextlib
import shlex
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace

from virtune.bench.guest.channel import GuestError, GuestOutput, GuestProcess
from virtune.bench.guest.counters import GuestSampler
from virtune.bench.guest.shell import words_of
from virtune.bench.load import LOG_MS, Loaded
from virtune.bench.qemu.rig import GuestBench
from virtune.bench.watch import TICK_SECONDS, Moments, watch
from virtune.fio.job import OPERATIONS
from virtune.model.errors import LoadError, RigError
from virtune.model.evidence import Check

STUCK_SECONDS = 15.0
"""A disk that completes nothing for so long while a load runs is stuck, not slow: a hard disk under TCG answers some
hundred requests in that time."""

STUCK = f"the guest's disk completed nothing for {STUCK_SECONDS:g} s: it is stuck"

_ARM_SECONDS = 60.0
_ANSWER_SECONDS = 10.0
_LOOK_SECONDS = 1.0
_RESULT_SECONDS = 60.0

LOG = "/run/load"
LOGGING = (f"--write_iops_log={LOG}", f"--log_avg_msec={LOG_MS}")

EACH = f"/{OPERATIONS}"
"""What fio runs in is the root of the appliance, which is in memory."""

GONE = "\\n"
"""What one job of a load takes from the barrier's pipe when it goes."""

JOB, RESULT, GO, ARMED = "/run/load.fio", "/run/load.json", "/run/go", "/run/armed"


@dataclass(frozen=True, slots=True, kw_only=True)
class GuestJob:
    """What one guest is to run: the job file, the arguments before it, and how many clones it makes.

    `direct`: all of it goes past the guest's page cache.
    """

    text: str
    arguments: tuple[str, ...]
    clones: int
    direct: bool = True


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


@dataclass(slots=True)
class Evidence:
    """What a load in guests leaves besides its result, complete also when it fails: one of each for every guest.

    `skew_seconds` lay between the first I/O of the first guest and that of the last; None for one guest alone.
    """

    counters: list[bytes] = field(default_factory=list)
    trouble: str = ""
    skew_seconds: float | None = None


@dataclass(slots=True)
class _Running:
    """A load in one guest."""

    bench: GuestBench
    process: GuestProcess
    command: str
    clones: int
    progress: Progress


def run_guest_loads(
    loads: Sequence[tuple[GuestBench, GuestJob]], *, moments: Moments, flushes: bool, evidence: Evidence
) -> Loaded:
    """Run a load in each guest, all of them at once, to their end and return what they left.

    Raises LoadError with the reason when one of them has no result; `evidence` then says what was seen of the guests.
    """
    samplers = [GuestSampler(bench.vm.guest) for bench, _ in loads]
    try:
        with contextlib.ExitStack() as sampled:
            running = started(loads)
            # the first look at the counters takes no longer than the loads need to be ready
            for sampler in samplers:
                sampled.enter_context(sampler)
            armed(running)
            before = [bench.vm.operations() for bench, _ in loads]
            for bench, _ in loads:
                bench.begin()
            let_go(running)
            if len(loads) > 1:
                evidence.skew_seconds = first_operations(running, before)
            checks = watch(_Guests(running, flushes=flushes), _marking(moments, samplers))
        outputs = [_result(bench) for bench, _ in loads]
        return Loaded(
            output=outputs[0],
            beside=tuple(outputs[1:]),
            log=b"".join(_log(bench) for bench, _ in loads),
            command="\n".join(one.command for one in running),
            checks=checks,
            operations=tuple(found for bench, _ in loads if (found := _operations(bench))),
        )
    except (LoadError, RigError) as error:
        evidence.trouble = "".join(bench.vm.evidence() for bench, _ in loads)
        if isinstance(error, LoadError):
            raise
        ended = next((how for bench, _ in loads if (how := bench.trouble()) is not None), None)
        raise LoadError(ended or error.message, hint=None if ended else error.hint) from None
    finally:
        evidence.counters = [sampler.content() for sampler in samplers]


def _require_success(bench: GuestBench, output: GuestOutput) -> None:
    if output.status:
        complaint = output.stderr.decode(errors="replace").strip() or _first_line(bench)
        raise LoadError(f"fio in the guest ended with status {output.status}", hint=complaint[-300:] or None)


def started(loads: Sequence[tuple[GuestBench, GuestJob]]) -> list[_Running]:
    """Start every load; each stops at the barrier, before its first I/O."""
    found = []
    for bench, job in loads:
        guest = bench.vm.guest
        old = f"{GO} {ARMED} {RESULT} {LOG}_*.log {EACH}_*.log"
        # all of it in one line, whose printf is the shell's own: under emulation every program costs 10 ms
        words = f"rm -f {old}; mkfifo {GO}; {words_of(['printf', '%s', job.text])} >{JOB}"
        written = guest.look.run(words, timeout_seconds=_ANSWER_SECONDS)
        if written.status:
            complaint = written.stderr.decode(errors="replace").strip()
            raise GuestError(f"the guest cannot write {JOB}", hint=complaint[-300:] or None)
        argv = ["fio", *job.arguments, "--exec_prerun=. /bin/barrier", *LOGGING, "--output-format=json+"]
        argv += [f"--output={RESULT}", "--eta=never", JOB]
        process = guest.start(argv, timeout_seconds=_ANSWER_SECONDS)
        found.append(_Running(bench, process, shlex.join(argv), job.clones, Progress(direct=job.direct)))
    return found


def armed(loads: Sequence[_Running]) -> None:
    """Return when all jobs of all loads stand at the barrier; raises LoadError when one does not come there."""
    for running in loads:
        words = ["armed", str(running.clones), str(int(_ARM_SECONDS)), str(running.process.pid)]
        held = running.bench.vm.guest.run(words, timeout_seconds=_ARM_SECONDS + _ANSWER_SECONDS)
        if held.status == 0:
            continue
        ended = running.process.wait(_LOOK_SECONDS)
        if ended is None:
            running.process.end("INT")
            raise LoadError(f"fio in the guest was not ready within {_ARM_SECONDS:g} s")
        complaint = ended.stderr.decode(errors="replace").strip() or _first_line(running.bench)
        raise LoadError(
            f"fio in the guest ended before it began: status {ended.status}", hint=complaint[-300:] or None
        )


def let_go(loads: Sequence[_Running]) -> float:
    """Open the barrier of every guest; returns how many seconds lay between the first and the last."""
    looks = [running.bench.vm.guest.look for running in loads]
    with contextlib.ExitStack() as held:
        for look in looks:
            held.enter_context(look.held())
        begun = time.monotonic()
        numbers = [
            look.send("run", f"printf '{GONE * running.clones}' >{GO}", timeout_seconds=_ANSWER_SECONDS)
            for look, running in zip(looks, loads, strict=True)
        ]
        sent = time.monotonic() - begun
        for look, number in zip(looks, numbers, strict=True):
            if look.receive(number, timeout_seconds=_ANSWER_SECONDS) is None:
                raise GuestError("a guest did not open its barrier")
    return sent


def first_operations(loads: Sequence[_Running], before: Sequence[int]) -> float:
    """Return how many seconds lay between the first I/O of the first guest and that of the last, by QEMU's counters.

    `before` is what each guest's disk had completed at the barrier. Asking takes some milliseconds, which the answer
    may be too large by. Raises GuestError when a guest does nothing in time.
    """
    begun: dict[int, float] = {}
    deadline = time.monotonic() + _ANSWER_SECONDS
    while len(begun) < len(loads):
        for index, running in enumerate(loads):
            if index not in begun and running.bench.vm.operations() > before[index]:
                begun[index] = time.monotonic()
        if time.monotonic() > deadline:
            raise GuestError(f"{len(loads) - len(begun)} of {len(loads)} guests began nothing")
    return max(begun.values()) - min(begun.values())


class _Guests:
    """The loads of all guests, watched as one."""

    def __init__(self, loads: Sequence[_Running], *, flushes: bool) -> None:
        self._loads, self._left, self._flushes = loads, list(loads), flushes
        self._asked = time.monotonic()

    def ended(self, *, due: bool) -> bool:  # noqa: ARG002 - the shell in the guest answers without delay
        """Wait a tick for the ends of those that are left."""
        share = TICK_SECONDS / len(self._left)
        self._left = [running for running in self._left if not _ended(running, share)]
        return not self._left

    def stuck(self) -> str | None:
        """Ask now and then whether each guest's disk completes anything."""
        now = time.monotonic()
        if now - self._asked < _LOOK_SECONDS:
            return None
        self._asked = now
        still = (running for running in self._left if running.progress.stuck(running.bench.vm.operations, now))
        return STUCK if next(still, None) is not None else None

    def stop(self) -> None:
        """End what is left of them."""
        for running in self._left:
            _end(running.process)

    def look(self) -> tuple[Check, ...]:
        """Look who does the I/O of each guest now."""
        return tuple(
            replace(check, guest=number)
            for number, running in enumerate(self._loads)
            for check in running.bench.under_load(flushes=self._flushes)
        )


def _marking(moments: Moments, samplers: Sequence[GuestSampler]) -> Moments:
    """Have the guests' counters read at the same moments."""

    def on_begin() -> None:
        moments.on_begin()
        _mark(samplers, "begin")

    def on_end() -> None:
        moments.on_end()
        _mark(samplers, "stop")

    return replace(moments, on_begin=on_begin, on_end=on_end)


def _mark(samplers: Sequence[GuestSampler], mark: str) -> None:
    for sampler in samplers:
        sampler.sample(mark=mark)


def _ended(running: _Running, seconds: float) -> bool:
    """Wait a moment for its end; raises LoadError when the guest is gone, or when fio did not end well."""
    output = running.process.wait(seconds)
    if output is not None:
        _require_success(running.bench, output)
        return True
    if (trouble := running.bench.trouble()) is not None:
        raise LoadError(trouble)
    return False


def _end(process: GuestProcess) -> None:
    with contextlib.suppress(GuestError):
        process.end("INT", "TERM")


def _result(bench: GuestBench) -> bytes:
    return bench.vm.guest.get(RESULT, timeout_seconds=_RESULT_SECONDS)


def _log(bench: GuestBench) -> bytes:
    return bench.vm.guest.look.run(f"cat {LOG}_iops.*.log", timeout_seconds=_RESULT_SECONDS).stdout


def _operations(bench: GuestBench) -> bytes:
    words = f"[ ! -e {EACH}_lat.1.log ] || cat {EACH}_lat.*.log"
    return bench.vm.guest.look.run(words, timeout_seconds=_RESULT_SECONDS).stdout


def _first_line(bench: GuestBench) -> str:
    """Return fio's complaint: with --output it goes into that file."""
    with contextlib.suppress(GuestError):
        lines = _result(bench).decode(errors="replace").splitlines()
        return next((line for line in lines if line.startswith("fio:")), "")
    return ""
