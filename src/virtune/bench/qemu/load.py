# SPDX-License-Identifier: Apache-2.0
"""A load in one or several guests: fio waits at a barrier until all are ready, and is watched until it ends. fio
reaches the barrier after its set-up and before its first I/O (`exec_prerun`), so that its clock starts when the host
releases it, and the loads of several guests start together.
"""

import contextlib
import json
import shlex
import time
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Protocol

from virtune.bench.guest.channel import GuestError, GuestOutput, GuestProcess, GuestSampler
from virtune.bench.guest.shell import words_of
from virtune.bench.load import LOG_MS, Moments, Progress, watch
from virtune.bench.port import Keep, LoadJob, LoadOutput, Window
from virtune.bench.qemu.loaded import Counted, GuestLoad, Loaded, Together, counted
from virtune.bench.qemu.machine import Vm
from virtune.fio.job import OPERATIONS
from virtune.model.errors import LoadError
from virtune.model.evidence import BARRIER, of_guest

_SETTLE_SECONDS, _END_SECONDS = 0.05, 0.1
_ARM_SECONDS = 60.0
_ANSWER_SECONDS = 10.0
_PREPARE_SECONDS = 30.0
"""Nothing is timed before a load, and an emulated guest that was given a disk answers late on a busy host."""
_LOOK_SECONDS = 1.0
_RESULT_SECONDS = 60.0

LOG = "/run/load"
LOGGING = (f"--write_iops_log={LOG}", f"--log_avg_msec={LOG_MS}")

EACH = f"/{OPERATIONS}"
"""fio runs in the appliance's root directory, which is in memory."""

GONE = "\\n"
"""The bytes that one job reads from the barrier's pipe to start."""

JOB, RESULT, GO, ARMED = "/run/load.fio", "/run/load.json", "/run/go", "/run/armed"


class LoadedGuest(Loaded, Protocol):
    """A Linux guest with the disk of a stack."""

    @property
    def vm(self) -> Vm:
        """The guest."""
        ...


@dataclass(slots=True)
class _Running(GuestLoad):
    """A load in one guest."""

    bench: LoadedGuest
    process: GuestProcess
    command: str


def run_in_guests(
    guests: Sequence[LoadedGuest], jobs: Sequence[LoadJob], window: Window, keep: Keep, *, idle: Sequence[int] = ()
) -> LoadOutput:
    """Run a load in each guest, all of them at once, to their end and return what they left.

    `idle` are the processes of idle guests beside them. Each guest has its own captures: those of the second end in
    `-2`, and so on. Raises LoadError with the reason when one of them has no result; the evidence of the guests is
    kept then too.
    """
    with counted(guests, keep, idle=idle) as counters:
        samplers = [GuestSampler(guest.vm.guest) for guest in guests]
        moments = _Moments(guests, counters, samplers)
        try:
            return _run(list(zip(guests, jobs, strict=True)), moments.of(window), samplers, keep)
        finally:
            moments.keep(keep)


def _run(
    loads: Sequence[tuple[LoadedGuest, LoadJob]], moments: Moments, samplers: Sequence[GuestSampler], keep: Keep
) -> LoadOutput:
    with contextlib.ExitStack() as sampled:
        running = started(loads)
        # the first sample of the counters takes no longer than preparing the loads
        for sampler in samplers:
            sampled.enter_context(sampler)
        armed(running)
        before = [guest.vm.operations() for guest, _ in loads]
        for guest, _ in loads:
            guest.begin()
        let_go(running)
        if len(loads) > 1:
            began = {"guests": len(loads), "skew_seconds": first_operations(running, before)}
            keep.capture(BARRIER, json.dumps(began) + "\n")
        checks = watch(Together(running, over=_ended, end=_end), moments)
    outputs = [_result(guest) for guest, _ in loads]
    return LoadOutput(
        output=outputs[0],
        beside=tuple(outputs[1:]),
        log=b"".join(_log(guest) for guest, _ in loads),
        command="\n".join(one.command for one in running),
        checks=checks,
        operations=tuple(found for guest, _ in loads if (found := _operations(guest))),
    )


class _Moments:
    """The reads at the begin and end of the measured time: the counters and the guests."""

    def __init__(self, guests: Sequence[LoadedGuest], counters: Counted, samplers: Sequence[GuestSampler]) -> None:
        self._guests, self._counters, self._samplers = guests, counters, samplers

    def of(self, window: Window) -> Moments:
        """Return when to read: a guest's load begins when the barrier opens, within its polling interval."""
        return Moments(
            begin_seconds=window.begins(_SETTLE_SECONDS),
            end_seconds=window.ends(_END_SECONDS),
            patience_seconds=window.patience_seconds,
            on_begin=self._begin,
            on_end=self._stop,
        )

    def keep(self, keep: Keep) -> None:
        """Keep the reads, also when the load failed in between."""
        for number, sampler in enumerate(self._samplers):
            keep.capture(of_guest("guest-counters.jsonl", number), sampler.content())

    def _begin(self) -> None:
        self._counters.begin()
        self._sample("begin")

    def _stop(self) -> None:
        self._counters.end()
        self._sample("stop")

    def _sample(self, mark: str) -> None:
        for sampler in self._samplers:
            sampler.sample(mark=mark)


def _require_success(bench: LoadedGuest, output: GuestOutput) -> None:
    if output.status:
        complaint = output.stderr.decode(errors="replace").strip() or _first_line(bench)
        raise LoadError(f"fio in the guest ended with status {output.status}", hint=complaint[-300:] or None)


def started(loads: Sequence[tuple[LoadedGuest, LoadJob]]) -> list[_Running]:
    """Start every load; each waits at the barrier, before its first I/O."""
    found = []
    for bench, load in loads:
        guest, job = bench.vm.guest, load.job
        old = f"{GO} {ARMED} {RESULT} {LOG}_*.log {EACH}_*.log"
        # all in one line with the shell's builtin printf: under emulation every program costs 10 ms
        words = f"rm -f {old}; mkfifo {GO}; {words_of(['printf', '%s', job.text])} >{JOB}"
        written = guest.look.run(words, timeout_seconds=_PREPARE_SECONDS)
        if written.status:
            complaint = written.stderr.decode(errors="replace").strip()
            raise GuestError(f"the guest cannot write {JOB}", hint=complaint[-300:] or None)
        argv = ["fio", *job.arguments, "--exec_prerun=. /bin/barrier", *LOGGING, "--output-format=json+"]
        argv += [f"--output={RESULT}", "--eta=never", JOB]
        process = guest.start(argv, timeout_seconds=_PREPARE_SECONDS)
        progress = Progress(direct=load.workload.direct and bench.counted)
        found.append(_Running(bench, load, progress, process, shlex.join(argv)))
    return found


def armed(loads: Sequence[_Running]) -> None:
    """Wait until all jobs of all loads are at the barrier; raises LoadError when one does not reach it."""
    for running in loads:
        words = ["armed", str(running.load.clones), str(int(_ARM_SECONDS)), str(running.process.pid)]
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
    """Open the barrier of every guest; returns the seconds between the first and the last."""
    looks = [running.bench.vm.guest.look for running in loads]
    with contextlib.ExitStack() as held:
        for look in looks:
            held.enter_context(look.held())
        begun = time.monotonic()
        numbers = [
            look.send("run", f"printf '{GONE * running.load.clones}' >{GO}", timeout_seconds=_ANSWER_SECONDS)
            for look, running in zip(looks, loads, strict=True)
        ]
        sent = time.monotonic() - begun
        for look, number in zip(looks, numbers, strict=True):
            if look.receive(number, timeout_seconds=_ANSWER_SECONDS) is None:
                raise GuestError("a guest did not open its barrier")
    return sent


def first_operations(loads: Sequence[_Running], before: Sequence[int]) -> float:
    """Return the seconds between the first I/O of the first guest and that of the last, by QEMU's counters.

    `before` is the number of requests that each guest's disk had completed at the barrier. The result may be too
    large by the milliseconds of a query. Raises GuestError when a guest does no I/O in time.
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


def _ended(running: _Running, seconds: float) -> bool:
    """Wait a moment for its end; raises LoadError when the guest is gone, or when fio did not end well."""
    output = running.process.wait(seconds)
    if output is not None:
        _require_success(running.bench, output)
        return True
    if (trouble := running.bench.trouble()) is not None:
        raise LoadError(trouble)
    return False


def _end(running: _Running) -> None:
    running.process.end("INT", "TERM")


def _result(bench: LoadedGuest) -> bytes:
    return bench.vm.guest.get(RESULT, timeout_seconds=_RESULT_SECONDS)


def _log(bench: LoadedGuest) -> bytes:
    return bench.vm.guest.look.run(f"cat {LOG}_iops.*.log", timeout_seconds=_RESULT_SECONDS).stdout


def _operations(bench: LoadedGuest) -> bytes:
    words = f"[ ! -e {EACH}_lat.1.log ] || cat {EACH}_lat.*.log"
    return bench.vm.guest.look.run(words, timeout_seconds=_RESULT_SECONDS).stdout


def _first_line(bench: LoadedGuest) -> str:
    """Return fio's error message: with --output it goes into that file."""
    with contextlib.suppress(GuestError):
        lines = _result(bench).decode(errors="replace").splitlines()
        return next((line for line in lines if line.startswith("fio:")), "")
    return ""
