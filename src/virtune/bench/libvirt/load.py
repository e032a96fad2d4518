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
from dataclasses import dataclass
from itertools import accumulate
from pathlib import Path
from typing import Protocol

from virtune.bench.guest.agent import AgentGuest, AgentProcess
from virtune.bench.guest.channel import (
    SCHEMA,
    SPEED_HINT,
    ClockReading,
    GuestError,
    GuestOutput,
    must,
    read_clock,
    speed_words,
    wrong_speed,
)
from virtune.bench.libvirt.access import DomainAccess
from virtune.bench.load import LOG_MS, STUCK, TICK_SECONDS, Moments, Progress, watch
from virtune.bench.port import HostCounters, Keep, LoadJob, LoadOutput, Window
from virtune.fio.job import OPERATIONS
from virtune.model.errors import LoadError, VirtuneError
from virtune.model.evidence import Check

_ANSWER_SECONDS = 20.0
_ARM_SECONDS = 60.0
_SETTLE_SECONDS, _END_SECONDS = 0.05, 0.1
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


class LoadedDomain(Protocol):
    """A domain with a scratch disk of a stack, as far as its load needs it."""

    way: DomainAccess
    place: str
    scripts: str
    seen: Mapping[str, str]
    xml: str
    processes: Mapping[str, int]
    image: Path | None

    @property
    def guest(self) -> AgentGuest:
        """The guest, by its agent."""
        ...

    def begin(self) -> None:
        """Record the state of all counters when the load begins."""
        ...

    def under_load(self, *, flushes: bool) -> tuple[Check, ...]:
        """Look who does the I/O now."""
        ...

    def operations(self) -> int:
        """Return the number of requests that the disk has completed."""
        ...

    def block_statistics(self) -> dict[str, int]:
        """Return QEMU's counters of the disk, by QEMU's names."""
        ...

    def exits(self) -> int | None:
        """Return how often KVM has left the guest for the host; None where libvirt does not report it."""
        ...

    def trouble(self) -> str | None:
        """Say that the domain's process is gone, None while it runs."""
        ...

    def evidence(self) -> str:
        """Return the evidence of a failed domain."""
        ...


@dataclass(slots=True)
class _Running:
    bench: LoadedDomain
    process: AgentProcess
    command: str
    clock: ClockReading
    progress: Progress


def run_in_domain(bench: LoadedDomain, load: LoadJob, window: Window, keep: Keep) -> LoadOutput:
    """Run one load in a domain to its end and return its output.

    Raises LoadError with the reason without a result; the evidence of the domain is kept then too.
    """
    keep.capture("guest.json", json.dumps(dict(bench.seen)) + "\n")
    keep.capture("domain.xml", bench.xml)
    marks: list[tuple[str, float]] = []
    looks: dict[str, dict[str, object]] = {}
    counters = b""
    with keep.host(processes=bench.processes, image=bench.image) as host:
        try:
            running = _armed(load, bench)
            bench.begin()
            asked = time.monotonic()
            bench.guest.put(f"{bench.place}/go", b"\n" * load.clones, timeout_seconds=_ANSWER_SECONDS)
            # three commands: open the file, write, close; the write releases the load
            started = (asked + time.monotonic()) / 2
            marks.append(("go", started))
            watched = _Watched(running, started, flushes=load.flushes)
            checks = watch(watched, _moments(window, host, marks, bench, looks), started=started)
            _require_success(bench, watched.output)
            _require_right_clock(bench, running.clock)
            result, log, each, counted = _collected(bench)
            counters = _counters(counted, running.clock.boot, marks)
            operations = (each,) if each else ()
            return LoadOutput(output=result, log=log, command=running.command, checks=checks, operations=operations)
        except (LoadError, GuestError) as error:
            with contextlib.suppress(VirtuneError):
                keep.capture("trouble.txt", bench.evidence())
            if isinstance(error, LoadError):
                raise
            trouble = bench.trouble()
            raise LoadError(trouble or error.message, hint=None if trouble else error.hint) from None
        finally:
            keep.capture("guest-counters.jsonl", counters)
            if looks:
                keep.capture("qemu-blockstats.json", json.dumps(looks) + "\n")


def _armed(load: LoadJob, bench: LoadedDomain) -> _Running:
    """Start fio and return when all its jobs wait at the barrier."""
    guest, job = bench.guest, load.job
    argv = ["fio", *job.arguments, f"--exec_prerun=. {bench.scripts}/barrier"]
    argv += ["--write_iops_log=load", f"--log_avg_msec={LOG_MS}", "--output-format=json+", "--output=load.json"]
    argv += ["--eta=never", "load.fio"]
    words = ["sh", "-c", _START, "sh", bench.place, bench.scripts, *argv]
    process = guest.start(words, timeout_seconds=_ANSWER_SECONDS, stdin=job.text.encode())
    waiting = ["sh", bench.place, bench.scripts, str(load.clones), str(int(_ARM_SECONDS)), str(process.pid)]
    held = guest.run(["sh", "-c", _ARM, *waiting], timeout_seconds=_ARM_SECONDS + _ANSWER_SECONDS)
    if held.status != 0:
        ended = process.wait(1.0)
        if ended is None:
            process.end("INT")
            raise LoadError(f"fio in the guest was not ready within {_ARM_SECONDS:g} s")
        raise LoadError(
            f"fio in the guest ended before it began: status {ended.status}", hint=_complaint(bench, ended)
        )
    clock = read_clock(guest, timeout_seconds=_ANSWER_SECONDS)
    return _Running(bench, process, " ".join(argv), clock, Progress(direct=load.workload.direct))


class _Watched:
    """The load of a domain, checked seldom, since every agent command costs the host a process."""

    def __init__(self, running: _Running, started: float, *, flushes: bool) -> None:
        self._running, self._flushes, self._asked, self._looked = running, flushes, started, started
        self.output: GuestOutput | None = None

    def ended(self, *, due: bool) -> bool:
        """Wait a tick; check whether it has ended, more often after its planned end."""
        if (trouble := self._running.bench.trouble()) is not None:
            raise LoadError(trouble)
        now = time.monotonic()
        if now - self._asked >= (_ENDING_SECONDS if due else _LOOK_SECONDS):
            self._asked = now
            self.output = self._running.process.wait(0)
            if self.output is not None:
                return True
        time.sleep(TICK_SECONDS)
        return False

    def stuck(self) -> str | None:
        """Check from time to time whether the disk completes any request."""
        now = time.monotonic()
        if now - self._looked < _LOOK_SECONDS:
            return None
        self._looked = now
        return STUCK if self._running.progress.stuck(self._running.bench.operations, now) else None

    def stop(self) -> None:
        """End it."""
        self._running.process.end("INT", "TERM")

    def look(self) -> tuple[Check, ...]:
        """Look who does the I/O now."""
        return self._running.bench.under_load(flushes=self._flushes)


def _moments(
    window: Window,
    host: HostCounters,
    marks: list[tuple[str, float]],
    bench: LoadedDomain,
    looks: dict[str, dict[str, object]],
) -> Moments:
    """Return when the counters are to be read, and record when they were, by the host's clock."""

    def look(mark: str) -> None:
        host.sample(mark=mark)
        marks.append((mark, time.monotonic()))
        begun = time.monotonic_ns()
        with contextlib.suppress(VirtuneError):  # without these only one layer is missing
            stats, exits = bench.block_statistics(), bench.exits()
            looks[mark] = {"t": (begun + time.monotonic_ns()) // 2, "stats": stats}
            looks[mark] |= {} if exits is None else {"exits": exits}

    return Moments(
        begin_seconds=window.begins(_SETTLE_SECONDS),
        end_seconds=window.ends(_END_SECONDS),
        patience_seconds=window.patience_seconds,
        on_begin=lambda: look("begin"),
        on_end=lambda: look("stop"),
    )


def _collected(bench: LoadedDomain) -> tuple[bytes, bytes, bytes, bytes]:
    """Return fio's JSON, its log of IOPS, that of every single I/O if there is one, and the guest's counters."""
    said = must(bench.guest, ["sh", "-c", _COLLECT, "sh", bench.place], timeout_seconds=_RESULT_SECONDS).split()
    whole = bench.guest.get(f"{bench.place}/all", timeout_seconds=_RESULT_SECONDS)
    if len(said) != 3 or not all(word.isdigit() for word in said):
        raise GuestError("the guest does not say how long its load's result is")
    first, second, third = accumulate(int(word) for word in said)
    return whole[:first], whole[first:second], whole[second:third], whole[third:]


def _counters(counted: bytes, clock: float, marks: list[tuple[str, float]]) -> bytes:
    """Return the guest's counters as JSON lines, its clock turned into the host's.

    `clock` is the host's monotonic clock at the guest's boot, derived from an agent's answer and some hundredths of a
    second late.
    """
    samples = [*_samples(counted.decode(errors="replace"), clock)]
    samples += [{"t": int(at * 1e9), "mark": mark} for mark, at in marks]
    head = {"schema": SCHEMA, "files": ["/proc/stat", "/proc/diskstats", "/proc/interrupts"]}
    lines = [head, *sorted(samples, key=_when)]
    return "".join(json.dumps(line) + "\n" for line in lines).encode()


def _when(sample: dict[str, object]) -> int:
    return int(str(sample["t"]))


def _samples(text: str, clock: float) -> Iterator[dict[str, object]]:
    for part in text.split("== ")[1:]:
        head, _, body = part.partition("\n")
        with contextlib.suppress(ValueError, IndexError):
            yield {"t": int((clock + float(head.split()[0])) * 1e9), "uptime": head, "text": body}


def _require_success(bench: LoadedDomain, output: GuestOutput | None) -> None:
    if output is not None and output.status != 0:
        raise LoadError(f"fio in the guest ended with status {output.status}", hint=_complaint(bench, output))


def _require_right_clock(bench: LoadedDomain, begun: ClockReading) -> None:
    """Raise LoadError where the guest's clock, by which fio measured, did not keep the host's time meanwhile."""
    speed = wrong_speed(begun, read_clock(bench.guest, timeout_seconds=_ANSWER_SECONDS))
    if speed is not None:
        raise LoadError(speed_words(bench.way.domain, speed), hint=SPEED_HINT)


def _complaint(bench: LoadedDomain, output: GuestOutput) -> str | None:
    """Return fio's error message: with --output it goes into that file."""
    said = output.stderr.decode(errors="replace").strip()
    for file in ("said", "load.json"):
        with contextlib.suppress(GuestError):
            text = bench.guest.get(f"{bench.place}/{file}", timeout_seconds=_RESULT_SECONDS)
            lines = text.decode(errors="replace").splitlines()
            said = said or next((line for line in lines if line.startswith("fio:")), "")
    return said[-300:] or None
