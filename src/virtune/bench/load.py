# SPDX-License-Identifier: Apache-2.0
"""A load: one fio or virtune-load, from its job file to its JSON, watched while it runs.

One loop watches every load: its timed actions, its settings, its end. Settings that can only be verified under load
are checked half-way, and repeatedly until verified or until the load ends; short or late loads are checked as often
as long ones.

The virtqueues of a vhost-user export are read in the memory of the load generator that drives it. libblkio, the
driver in it, has all queues one after the other in one memory file: descriptors, the ring of offered requests, the
ring of completed ones, then its own part of each request. That file is mapped here too, read-only, so a look costs no
system call.
"""

import contextlib
import functools
import mmap
import os
import signal
import struct
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Protocol

from virtune import shell
from virtune.bench.live.rings import RingMemory, TrialRings
from virtune.bench.port import PATIENCE_SECONDS, HostCounters, Keep, LoadJob, LoadOutput, Window
from virtune.bench.verify import on_off, opened
from virtune.bounded import read_bounded
from virtune.fio.as_asked import LOG_SECONDS
from virtune.fio.job import OPERATIONS
from virtune.model.errors import LoadError, words_of
from virtune.model.evidence import RINGS, UNDER_LOAD, Check
from virtune.model.stack import FileTarget, Stack, Target
from virtune.probe.cpu import parse_list
from virtune.probe.process import IO_URING, NATIVE, Process
from virtune.probe.programs import read_engines, said_of_itself

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


def pin_load(pid: int, cpus: str | None) -> None:
    """Pin all threads of a load that has just been started, and so those that they start; raises LoadError for CPUs
    that are not there for us. A load that has ended already is noticed by whoever waits for it.
    """
    if cpus is None:
        return
    process, pinned = Process(pid), set[int]()
    try:
        wanted = parse_list(cpus)
        # a thread that is not pinned yet may start another meanwhile
        while new := {thread.tid for thread in process.threads()} - pinned:
            for tid in new:
                with contextlib.suppress(ProcessLookupError):
                    os.sched_setaffinity(tid, wanted)
            pinned |= new
    except (OSError, ValueError, OverflowError):
        there = ",".join(map(str, sorted(os.sched_getaffinity(0))))
        raise LoadError(
            f"load.pin={cpus} was refused: none of these CPUs is there for us",
            hint=f"the CPUs that we may use: {there}",
        ) from None


def pin_check(pid: int, cpus: str | None) -> tuple[Check, ...]:
    """Check the CPUs of every thread of a load; nothing without a request."""
    if cpus is None:
        return ()
    process = Process(pid)
    places = [found for thread in process.threads() if (found := process.cpus_of(thread.tid)) is not None]
    wanted = set(parse_list(cpus))
    wrong = {place for place in places if set(parse_list(place)) != wanted}
    found = None if not places else min(wrong) if wrong else cpus
    proof = f"Cpus_allowed_list of {len(places)} threads in /proc/{pid}/task {UNDER_LOAD}"
    return (Check("load.pin", cpus, found, proof, hidden=not places),)


_NAME = "virtio-ring"
_REQUEST_BYTES = 33
"""Of each request: its header of 16 bytes, a status, and 16 bytes for discards."""

_SIZES = tuple(2**power for power in range(7, 16))
"""Queues have a power of two entries; virtune-load makes them no smaller than 128."""

_INDEX = struct.Struct("<H")


class ExportRings(RingMemory):
    """The rings of the export that a process drives; raises OSError when it has none, or may not be read."""

    def __init__(self, pid: int) -> None:
        found = Process(pid).memory_file(_NAME)
        if found is None:
            raise FileNotFoundError(f"process {pid} drives no export")
        with found:
            whole = os.fstat(found.fileno()).st_size
            self._size, count = _shape(whole)  # of a file that has no size yet, too
            self._memory = mmap.mmap(found.fileno(), whole, prot=mmap.PROT_READ)
        stride = _bytes_of(self._size)
        self._begins = [number * stride for number in range(count)]

    def __len__(self) -> int:
        return len(self._begins)

    def read(self) -> list[tuple[int, int, int]]:
        return [self._read(begin) for begin in self._begins]

    def size(self, index: int) -> int:  # noqa: ARG002 - all have the same
        return self._size

    def _read(self, begin: int) -> tuple[int, int, int]:
        """Read the last step of a request first, so that none is counted as completed that was not offered."""
        size = self._size
        offered = begin + 16 * size
        completed = offered + 8 + 2 * size
        places = completed + 2, completed + 4 + 8 * size, offered + 2
        last, taken, first = (_INDEX.unpack_from(self._memory, place)[0] for place in places)
        return first, taken, last


def _bytes_of(size: int) -> int:
    """Return the bytes of a queue with so many entries."""
    return (16 * size + 8 + 2 * size + 8 + 8 * size + _REQUEST_BYTES * size + 15) & ~15


def _shape(size_bytes: int) -> tuple[int, int]:
    """Return the entries of each queue and how many queues there are; raises OSError for another layout."""
    for size in _SIZES:
        count, rest = divmod(size_bytes, _bytes_of(size))
        if count and not rest:
            return size, count
    raise OSError(f"{size_bytes} bytes of virtqueues in an unknown layout")


_CAUSE_SECONDS = 0.2
"""A load may notice the end of its rig before we do, so we wait this long for the rig's end."""

LOG_MS = round(LOG_SECONDS * 1000)

_MAX_OUTPUT_BYTES = 64 * 1024**2

_COMPLAINT_BYTES = 64 * 1024
"""fio writes error messages before anything else."""


_SETTLE_SECONDS = {"fio": 0.3, "virtune-load": 0.05}
"""fio needs about half of this from its start until its ramp begins, and it ends its run that much later than asked;
our own generator takes 0.01 s for both. The counters are read inside the measured time, so that they cover nothing
else.
"""

_END_SECONDS = 0.05
"""How long before the end the counters are read."""


class Here(Protocol):
    """A stack that is loaded from this host: its target, the processes that serve it, its image."""

    target: Target
    processes: Mapping[str, int]
    image: Path | None
    stack: Stack

    def under_load(self, *, flushes: bool) -> tuple[Check, ...]:
        """Verify again while the load runs; only then does it show what does the I/O."""
        ...

    def trouble(self) -> str | None:
        """Say why the stack no longer runs, None while it does."""
        ...


def fio_engines(fio: str) -> frozenset[str]:
    """Return the engines of this fio; raises LoadError if it does not list them."""
    try:
        return frozenset(read_engines(said_of_itself(fio, "--enghelp", timeout_seconds=20)))
    except shell.CommandError as error:
        hint = f"`{fio} --enghelp` must list its engines at once; is that fio, and is it whole?"
        raise LoadError(f"fio does not say which engines it has: {error.message}", hint=hint) from None


def run_here(bench: Here, load: LoadJob, window: Window, keep: Keep, warden: shell.Warden) -> LoadOutput:
    """Run one load on this host to its end and return its output; raises LoadError with the reason without a result.

    The program is fio or virtune-load, which takes fio's options.
    """
    program, arguments = load.program, load.job.arguments
    name = Path(program).name
    job_file, output = warden.directory / "load.fio", warden.directory / "load.json"
    job_file.write_text(load.job.text)
    output.unlink(missing_ok=True)
    for old in (*warden.directory.glob("load_iops.*.log"), *warden.directory.glob(f"{OPERATIONS}_*.log")):
        old.unlink()
    logging = [f"--write_iops_log={warden.directory / 'load'}", f"--log_avg_msec={LOG_MS}"]
    writing = ["--output-format=json+", f"--output={output}", "--eta=never"]
    argv = [program, *arguments, *logging, *writing, str(job_file)]
    with (
        keep.host(processes=bench.processes, image=bench.image) as host,
        warden.running(argv, name="load", ask=signal.SIGINT) as child,
    ):
        pin_load(child.pid, bench.stack.pins.load)
        rings = TrialRings()
        try:
            checks = watch(_Child(child, bench, load), _moments(window, host, load.job.program, child.pid, rings))
        finally:
            for _, content in rings.contents():
                keep.capture(RINGS, content)
        status = child.wait(0)
    if status:
        _require_rig(bench)
        how = f"killed by {signal.Signals(-status).name}" if status < 0 else f"exit {status}"
        raise LoadError(f"{name} ended early: {how}", hint=_last_words(child, output))
    try:
        log, operations = (
            b"".join(read_bounded(path, _MAX_OUTPUT_BYTES) for path in sorted(warden.directory.glob(f"{name}.*.log")))
            for name in ("load_iops", f"{OPERATIONS}_lat")
        )
    except OSError as error:
        raise LoadError(f"a log of {name} cannot be read: {words_of(error)}") from None
    return LoadOutput(
        output=_read(output, child, name),
        log=log,
        command=" ".join(argv),
        checks=checks,
        operations=(operations,) if operations else (),
    )


def _moments(window: Window, host: HostCounters, program: str, pid: int, rings: TrialRings) -> Moments:
    def on_begin() -> None:
        host.add_process("load", pid)
        host.sample(mark="begin")
        rings.begin([functools.partial(ExportRings, pid)])

    def on_end() -> None:
        rings.end()
        host.sample(mark="stop")

    return Moments(
        begin_seconds=window.begins(_SETTLE_SECONDS[program]),
        end_seconds=window.ends(_END_SECONDS),
        patience_seconds=window.patience_seconds,
        on_begin=on_begin,
        on_end=on_end,
    )


def _require_rig(bench: Here) -> None:
    """Raise LoadError with the rig's failure, if that ended the load."""
    deadline = time.monotonic() + _CAUSE_SECONDS
    while True:
        if (trouble := bench.trouble()) is not None:
            raise LoadError(trouble)
        if time.monotonic() > deadline:
            return
        time.sleep(TICK_SECONDS)


class _Child:
    """A load that runs as our child process on this host."""

    def __init__(self, child: shell.Child, bench: Here, load: LoadJob) -> None:
        self._child, self._bench, self._load = child, bench, load
        self._looked = False

    def ended(self, *, due: bool) -> bool:  # noqa: ARG002 - its end is noticed without delay
        """Wait a tick for its end, successful or not. Raises LoadError when the rig is gone."""
        if self._child.wait(TICK_SECONDS) is not None:
            return True
        if (trouble := self._bench.trouble()) is not None:
            self._child.end(signal.SIGINT)
            raise LoadError(trouble)
        return False

    def stuck(self) -> None:
        """Return None: a process of this host is either slow or gone."""

    def stop(self) -> None:
        self._child.end(signal.SIGINT, signal.SIGTERM)

    def look(self) -> tuple[Check, ...]:
        pinned = pin_check(self._child.pid, self._bench.stack.pins.load)
        return (*self._bench.under_load(flushes=self._load.flushes), *pinned, *self._own())

    def _own(self) -> tuple[Check, ...]:
        """Verify how the load itself opened the target."""
        if not isinstance(self._bench.target, FileTarget):
            return ()
        name, process = Path(self._child.command[0]).name, Process(self._child.pid)
        over = self._child.poll() is not None
        # a load with few requests may end before the first check, or be looked at only before it began
        unlooked, self._looked = over and (self._load.workload.counted or not self._looked), True
        held, rings = opened(process, Path(self._bench.target.path)), process.rings()
        engine = "io_uring" if rings.count(IO_URING) else "libaio" if rings.count(NATIVE) else None
        seen = {
            "io_uring": f"{name} holds an io_uring",
            "libaio": f"{name} maps a kernel AIO context",
            None: f"{name} had ended before it was looked at" if over else "leaves no trace",
        }
        job = self._load.job
        # of several engines only some leave a trace, so any of them may be the visible one
        asked = engine if engine in job.engines else "+".join(sorted(job.engines))
        direct = on_off(job.direct)
        return (
            *self._several(self._bench.target, process),
            Check("load.engine", str(asked), engine, seen[engine], hidden=unlooked),
            Check("load.direct", direct, held.direct, held.proof, hidden=unlooked),
        )

    def _several(self, target: FileTarget, process: Process) -> tuple[Check, ...]:
        """Verify that the load opened all files of a target with several."""
        if not target.more:
            return ()
        paths = (target.path, *target.more)
        held = [path for path in paths if process.opened(Path(path))]
        # the jobs of a load begin and end one after another
        found = str(len(held)) if len(held) == len(paths) else None
        proof = f"the load holds {', '.join(held) or 'none of them'} open"
        over = self._child.poll() is not None
        return (Check("disks.count", str(len(paths)), found, proof, hidden=over),)


def _read(output: Path, child: shell.Child, name: str) -> bytes:
    try:
        found = read_bounded(output, _MAX_OUTPUT_BYTES + 1)
    except OSError:
        raise LoadError(f"{name} left no output", hint=child.last_words()) from None
    if len(found) > _MAX_OUTPUT_BYTES:
        raise LoadError(f"{name}'s output is larger than {_MAX_OUTPUT_BYTES // 1024**2} MiB")
    return found


def _last_words(child: shell.Child, output: Path) -> str | None:
    """Return why a load ended: where it read something else than was written, else the end of its log."""
    with contextlib.suppress(OSError):
        said = read_bounded(child.log, _COMPLAINT_BYTES, from_end=True).decode(errors="replace")
        for line in said.splitlines():
            if "verify failed" in line:
                return shell.last_line(line)
    if words := child.last_words():
        return words
    with contextlib.suppress(OSError):  # with --output fio's error message goes into that file
        said = read_bounded(output, _COMPLAINT_BYTES).decode(errors="replace")
        return next((line.strip()[:300] for line in said.splitlines() if line.startswith("fio:")), None)
    return None
