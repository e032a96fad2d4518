# SPDX-License-Identifier: Apache-2.0
"""A load: one fio or virtune-load, from its job file to its JSON, watched while it runs.

One loop runs and watches every load (`run_loads`): all are prepared, begin together, and are watched to their end.
A Load is one end of it: fio in a test VM or in an existing domain, a guest without an operating system, which is a
load itself, or a process of this host (`HereLoad`). Settings that can only be verified under load are checked
half-way, and repeatedly until verified or until the load ends; short or late loads are checked as often as long ones.
"""

import abc
import contextlib
import functools
import json
import os
import signal
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass, field, replace
from pathlib import Path

from virtune import shell
from virtune.bench.during import DuringLoad
from virtune.bench.live.rings import ExportRings, RingMemory, TrialRings
from virtune.bench.port import HostCounters, Keep, LoadJob, LoadOutput, Window
from virtune.bench.verify import Spent, cpu_of, cpus_check, opened
from virtune.bounded import read_bounded
from virtune.fio.as_asked import LOG_SECONDS
from virtune.fio.job import OPERATIONS
from virtune.model.errors import LoadError, RigError, VirtuneError, words_of
from virtune.model.evidence import BARRIER, RINGS, UNDER_LOAD, Changeover, Check, InForce, of_guest
from virtune.model.facts import BusyFacts, Unknown
from virtune.model.stack import FileTarget, GuestTarget, Stack, Target
from virtune.model.text import setting_text
from virtune.probe import tree
from virtune.probe.cpu import parse_list
from virtune.probe.devices import backing_of
from virtune.probe.host import busy_facts
from virtune.probe.process import IO_URING, NATIVE, Process, Rings
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


_BEGIN_SECONDS = 10.0

_BUSY_PERCENT = 50.0
"""On a host that is less busy no thread waits for 15 s."""


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


@dataclass(kw_only=True)
class Loaded:
    """The disk of one stack, here or in a guest. What ends in `_before` is as it was when the load began. `during` is
    the job that is at work meanwhile.
    """

    target: Target
    image: Path | None = None
    stack: Stack
    command: str = ""
    processes: Mapping[str, int] = field(default_factory=dict)
    in_force: InForce = field(default_factory=InForce)
    changeover: Changeover | None = None
    seen: Mapping[str, str] = field(default_factory=dict)
    rings_before: Rings = field(default_factory=Rings)
    during: DuringLoad | None = None
    requests_before: int = 0
    spent_before: Mapping[int, int] = field(default_factory=dict)

    @property
    def process(self) -> Process | None:
        """The guest's QEMU; None where there is none, or it is not seen from here."""
        return None

    @property
    def counted(self) -> bool:
        """Whether QEMU counts the disk's requests: those of a drive that the guest has itself do not pass it."""
        return self.stack.device.vfio_pci is None

    def begin(self) -> None:
        """Note how far everything has come when the load begins."""
        self.requests_before = self.operations()
        if (process := self.process) is not None:
            self.rings_before, self.spent_before = process.rings(), cpu_of(process)

    def operations(self) -> int:
        """Return how many requests a guest's disk has completed: one on which it does not rise is stuck."""
        return 0

    def under_load(self, *, flushes: bool) -> tuple[Check, ...]:  # noqa: ARG002 - not all have a process to check
        """Look who does the I/O now: only under load does it show."""
        return ()

    def trouble(self) -> str | None:
        """Say how what serves the disk ended, None while it runs: a file does not fail."""
        return None

    def evidence(self) -> str:
        """Return the evidence of a failed guest."""
        return ""


class Load(abc.ABC):
    """The load of one guest, or of this host. `command` is what runs it, `started` when it began, where that is known
    exactly.
    """

    settle_seconds: float = 0.05
    """How long after the ramp the counters are read: a load begins when its barrier opens, within a poll of it."""
    end_seconds: float = 0.1
    """How long before the end they are read."""
    look_seconds: float = 1.0
    """The interval of checks whether the disk completes any request."""

    command: str
    started: float | None = None

    def __init__(self, bench: Loaded, job: LoadJob) -> None:
        self.bench, self.job = bench, job
        self.progress = Progress(direct=job.workload.direct and bench.counted)

    def start(self) -> None:  # noqa: B027 - only fio is started
        """Start what then takes its time to be ready."""

    def sampled(self) -> AbstractContextManager[object]:
        """Have what runs beside a load do so while the block does."""
        return nullcontext()

    def arm(self) -> None:  # noqa: B027 - one of this host begins at once
        """Return when all of its jobs wait for `release`; raises LoadError when one does not come that far."""

    def held(self) -> AbstractContextManager[object]:
        """Keep the way into the guest free for `release` and `released`."""
        return nullcontext()

    def release(self) -> None:  # noqa: B027 - as for `arm`
        """Let all jobs begin."""

    def released(self) -> None:  # noqa: B027 - not all are asked for an answer
        """Wait for the guest's word that they were."""

    def begun(self) -> float | None:
        """Return when its first I/O was seen, None until it is: by a query, so late by some milliseconds."""
        return time.monotonic() if self.bench.operations() > self.bench.requests_before else None

    def own(self) -> Mapping[str, int]:
        """Return the load's own processes of this host by their roles."""
        return {}

    def look(self) -> tuple[Check, ...]:
        """Check the settings that only show under load."""
        # QEMU encrypts in workers too, whatever engine does the I/O
        flushes = self.job.flushes or self.bench.stack.disk.encryption == "luks"
        return (*self.bench.under_load(flushes=flushes), *self._polling_check())

    def polled(self) -> tuple[str, str] | None:
        """Return whether the kernel that fio runs on polls its disk for completions (`1`, or `0`; else it does not
        say), and where it says so; None where no such kernel has a part.
        """
        where = "the guest's /sys/block/*/queue/io_poll"
        return (self.bench.seen.get("io_poll", ""), where) if isinstance(self.bench.target, GuestTarget) else None

    def require_polling(self) -> None:
        """Raise LoadError where completions are to be polled for and the disk has none: Linux 6.1 then waits for
        interrupts and says nothing, 6.18 refuses each I/O.
        """
        for check in self._polling_check():
            if check.agrees is False:
                hint = "`poll_queues=` of virtio_blk or nvme makes some when the driver is loaded; hipri=0 needs none"
                raise LoadError(f"hipri=1 was asked for, and the disk has no poll queues: {check.proof}", hint=hint)

    def _polling_check(self) -> Iterator[Check]:
        asked = any(one.get("hipri", "0") != "0" for one in self.job.workload)
        if asked and (found := self.polled()) is not None:
            told, where = found
            proof = f"{where} is {told or 'not shown'}"
            yield Check("workload.hipri", "on", {"0": "off", "1": "on"}.get(told), proof)

    def read(self, mark: str) -> Mapping[str, object] | None:  # noqa: ARG002 - there may be none
        """Read QEMU's counters of the disk; None when they cannot be read. `t` is our monotonic clock in ns."""
        return None

    def mark(self, mark: str) -> None:  # noqa: B027 - not all sample their own counters
        """Read the guest's own counters."""

    def spent(self) -> Spent | None:
        """Return the CPU time of each of QEMU's threads since the load began, where it can be told."""
        return None

    def rings(self) -> Iterator[Callable[[], RingMemory]]:
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

    def keep(self, keep: Keep, number: int) -> None:  # noqa: B027 - not all have any
        """Keep the evidence that only this kind has, also when the load failed."""

    def last_words(self) -> str | None:
        """Return what the guest said last, if that tells why it ended."""
        return None


class HereLoad(Load):
    """A load that runs as our child process on this host: fio, or virtune-load, which takes fio's options."""

    end_seconds = 0.05
    child: shell.Child

    def __init__(self, bench: Loaded, job: LoadJob, warden: shell.Warden) -> None:
        super().__init__(bench, job)
        self.progress = Progress(direct=False)  # a process of this host is either slow or gone
        self.settle_seconds = _SETTLE_SECONDS[job.job.program]
        self._warden, self._name, self._looked = warden, Path(job.program).name, False
        self._output = warden.directory / "load.json"

    @contextlib.contextmanager
    def sampled(self) -> Iterator[None]:
        place = self._warden.directory
        job_file = place / "load.fio"
        job_file.write_text(self.job.job.text)
        self._output.unlink(missing_ok=True)
        for old in (*place.glob("load_iops.*.log"), *place.glob(f"{OPERATIONS}_*.log")):
            old.unlink()
        logging = [f"--write_iops_log={place / 'load'}", f"--log_avg_msec={LOG_MS}"]
        writing = ["--output-format=json+", f"--output={self._output}", "--eta=never"]
        argv = [self.job.program, *self.job.job.arguments, *logging, *writing, str(job_file)]
        self.command = " ".join(argv)
        with self._warden.running(argv, name="load", ask=signal.SIGINT) as self.child:
            pin_load(self.child.pid, self.bench.stack.pins.load)
            yield

    def own(self) -> dict[str, int]:
        return {"load": self.child.pid}

    def rings(self) -> Iterator[Callable[[], RingMemory]]:
        yield functools.partial(ExportRings, self.child.pid)

    def over(self, seconds: float, *, due: bool) -> bool:  # noqa: ARG002 - its end is noticed without delay
        if self.child.wait(seconds) is not None:
            return True
        if (trouble := self.bench.trouble()) is not None:
            self.child.end(signal.SIGINT)
            raise LoadError(trouble)
        return False

    def stop(self) -> None:
        self.child.end(signal.SIGINT, signal.SIGTERM)

    def look(self) -> tuple[Check, ...]:
        return (*super().look(), *pin_check(self.child.pid, self.bench.stack.pins.load), *self._own_checks())

    def polled(self) -> tuple[str, str] | None:
        if not isinstance(self.bench.target, FileTarget):
            return None
        disk = next((one.name for one in backing_of(self.bench.target.path).devices if one.kind != "partition"), "*")
        told = tree.text(f"/sys/block/{disk}/queue/io_poll")
        return "" if isinstance(told, Unknown) else told, f"/sys/block/{disk}/queue/io_poll"

    def _own_checks(self) -> tuple[Check, ...]:
        """Verify how the load itself opened the target."""
        if not isinstance(self.bench.target, FileTarget):
            return ()
        process, over = Process(self.child.pid), self.child.poll() is not None
        # a load with few requests may end before the first check, or be looked at only before it began
        unlooked, self._looked = over and (self.job.workload.counted or not self._looked), True
        held, rings = opened(process, Path(self.bench.target.path)), process.ring_kinds()
        engine = "io_uring" if IO_URING in rings else "libaio" if NATIVE in rings else None
        seen = {
            "io_uring": f"{self._name} holds an io_uring",
            "libaio": f"{self._name} maps a kernel AIO context",
            None: f"{self._name} had ended before it was looked at" if over else "leaves no trace",
        }
        job = self.job.job
        # of several engines only some leave a trace, so any of them may be the visible one
        asked = engine if engine in job.engines else "+".join(sorted(job.engines))
        return (
            *self._several(self.bench.target, process),
            Check("load.engine", str(asked), engine, seen[engine], hidden=unlooked),
            Check("load.direct", setting_text(job.direct), held.direct, held.proof, hidden=unlooked),
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
        return (Check("disks.count", str(len(paths)), found, proof, hidden=self.child.poll() is not None),)

    def result(self) -> tuple[bytes, bytes, bytes]:
        if status := self.child.wait(0):
            self._require_rig()
            how = f"killed by {signal.Signals(-status).name}" if status < 0 else f"exit {status}"
            raise LoadError(f"{self._name} ended early: {how}", hint=self._words())
        place = self._warden.directory
        try:
            log, operations = (
                b"".join(read_bounded(path, _MAX_OUTPUT_BYTES) for path in sorted(place.glob(f"{name}.*.log")))
                for name in ("load_iops", f"{OPERATIONS}_lat")
            )
        except OSError as error:
            raise LoadError(f"a log of {self._name} cannot be read: {words_of(error)}") from None
        try:
            output = read_bounded(self._output, _MAX_OUTPUT_BYTES + 1)
        except OSError:
            raise LoadError(f"{self._name} left no output", hint=self.child.last_words()) from None
        if len(output) > _MAX_OUTPUT_BYTES:
            raise LoadError(f"{self._name}'s output is larger than {_MAX_OUTPUT_BYTES // 1024**2} MiB")
        return output, log, operations

    def _require_rig(self) -> None:
        """Raise LoadError with the rig's failure, if that ended the load."""
        deadline = time.monotonic() + _CAUSE_SECONDS
        while True:
            if (trouble := self.bench.trouble()) is not None:
                raise LoadError(trouble)
            if time.monotonic() > deadline:
                return
            time.sleep(TICK_SECONDS)

    def _words(self) -> str | None:
        """Return why it ended: where it read something else than was written, else the end of its log."""
        with contextlib.suppress(OSError):
            said = read_bounded(self.child.log, _COMPLAINT_BYTES, from_end=True).decode(errors="replace")
            for line in said.splitlines():
                if "verify failed" in line:
                    return shell.last_line(line)
        if words := self.child.last_words():
            return words
        with contextlib.suppress(OSError):  # with --output fio's error message goes into that file
            said = read_bounded(self._output, _COMPLAINT_BYTES).decode(errors="replace")
            return next((line.strip()[:300] for line in said.splitlines() if line.startswith("fio:")), None)
        return None


def run_loads(loads: Sequence[Load], window: Window, keep: Keep, *, idle: Sequence[int] = ()) -> LoadOutput:
    """Run the loads of all guests at once to their end and return what they left.

    `idle` are the processes of idle guests beside them. Each guest has its own captures: those of the second end in
    `-2`, and so on. Raises LoadError with the reason when one of them has no result; the evidence of the guests is
    kept then too.
    """
    first, *others = (one.bench for one in loads)
    for number, one in enumerate(loads):
        if one.bench.seen:
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


def _run(loads: Sequence[Load], counters: "_Counters", window: Window, keep: Keep) -> LoadOutput:
    with contextlib.ExitStack() as sampled:
        for one in loads:
            one.require_polling()
            one.start()
        # the first sample of the counters takes no longer than preparing the loads
        for one in loads:
            sampled.enter_context(one.sampled())
        for one in loads:
            one.arm()
        jobs = [one.bench.during for one in loads if one.bench.during is not None]
        for job in jobs:
            sampled.enter_context(job.run())
        for one in loads:
            one.bench.begin()
        let_go(loads)
        if len(loads) > 1:
            keep.capture(BARRIER, json.dumps({"guests": len(loads), "skew_seconds": skew_seconds(loads)}) + "\n")
        begin = window.begins(loads[0].settle_seconds), counters.begin
        end = window.ends(loads[0].end_seconds), counters.end
        patience, started = window.patience_seconds, loads[0].started
        together = Together(loads)
        checks = watch(together, begin, end, patience_seconds=patience, started=started, heard=window.heard)
        checks += tuple(job.check() for job in jobs)
    outputs, logs, operations = zip(*(one.result() for one in loads), strict=True)
    return LoadOutput(
        output=outputs[0],
        beside=outputs[1:],
        log=b"".join(logs),
        command="\n".join(one.command for one in loads),
        checks=checks,
        operations=tuple(each for each in operations if each),
    )


def let_go(loads: Sequence[Load]) -> None:
    """Let the loads of all guests begin, as simultaneously as possible."""
    with contextlib.ExitStack() as held:
        for one in loads:
            held.enter_context(one.held())
        for one in loads:
            one.release()
        for one in loads:
            one.released()


def skew_seconds(loads: Sequence[Load]) -> float:
    """Return the seconds between the first I/O of the first guest and that of the last.

    Raises RigError when a guest does no I/O in time.
    """
    begun: dict[int, float] = {}
    deadline = time.monotonic() + _BEGIN_SECONDS
    while len(begun) < len(loads):
        for index, one in enumerate(loads):
            if index not in begun and (at := one.begun()) is not None:
                begun[index] = at
        if time.monotonic() > deadline:
            raise RigError(f"{len(loads) - len(begun)} of {len(loads)} guests began nothing")
    return max(begun.values()) - min(begun.values())


def _explained(error: LoadError | RigError, loads: Sequence[Load], keep: Keep) -> LoadError:
    """Keep the evidence of the guests, and return why a load failed: because its guest did, where that is so."""
    with contextlib.suppress(VirtuneError):
        if evidence := "".join(one.bench.evidence() for one in loads):
            keep.capture("trouble.txt", evidence)
    if isinstance(error, LoadError):
        if error.hint is None and NOTHING_DONE in error.message:
            # a disk that is stuck, and one that a busy host lets wait for a CPU or its own disk, look alike
            busy = busy_words(busy_facts())
            return LoadError(error.message, hint=busy and f"{busy}: it may be that, and not this disk")
        return error
    ended = next((how for one in loads if (how := one.bench.trouble()) is not None), None)
    words = next((said for one in loads if (said := one.last_words())), None)
    return LoadError(ended or error.message, hint=words or (None if ended else error.hint))


def busy_words(facts: BusyFacts) -> str | None:
    """Say what a host is waiting for; None where it waits for little, or does not tell."""
    waits = {"cpu": "a CPU", "io": "the host's disks"}
    pressure = () if isinstance(facts.pressure, Unknown) else facts.pressure
    shares = [
        f"{one.some_percent:.0f} % of the time for {waits[one.resource]}"
        for one in pressure
        if one.resource in waits and not isinstance(one.some_percent, Unknown) and one.some_percent >= _BUSY_PERCENT
    ]
    return f"in the last 10 s processes of this host waited {' and '.join(shares)}" if shares else None


class _Counters:
    """The reads at the begin and end of the measured time: this host's and QEMU's counters, CPU time per thread, the
    guests' own. The virtqueues of the disks are sampled in between.
    """

    def __init__(self, loads: Sequence[Load], host: HostCounters) -> None:
        self._loads, self._host = loads, host
        self._reads: list[dict[str, object]] = [{} for _ in loads]
        self._spent: list[Spent | None] = []
        self._rings = TrialRings()

    def begin(self) -> None:
        """The measured time begins."""
        for role, pid in (pair for one in self._loads for pair in one.own().items()):
            self._host.add_process(role, pid)
        self._read("begin")
        self._rings.begin(find for one in self._loads for find in one.rings())
        self._mark("begin")

    def end(self) -> None:
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
            if one.bench.during is not None:
                one.bench.during.mark()


class Together:
    """The running loads, watched together: in one place or in several guests."""

    def __init__(self, loads: Sequence[Load]) -> None:
        self._loads, self._left = loads, list(loads)
        self._asked = time.monotonic()

    def ended(self, *, due: bool) -> bool:
        """Wait a tick for the remaining ones to end; `due`: their time is over. Raises LoadError with the reason when
        one of them, or its rig, failed.
        """
        for one in self._left:
            if one.bench.during is not None:
                one.bench.during.tend()
        share = TICK_SECONDS / len(self._left)
        self._left = [one for one in self._left if not one.over(share, due=due)]
        return not self._left

    def stuck(self) -> str | None:
        """Say why they are stuck: from time to time each guest's disk is asked whether it completes any request."""
        now = time.monotonic()
        if now - self._asked < self._loads[0].look_seconds:
            return None
        self._asked = now
        return STUCK if any(one.progress.stuck(one.bench.operations, now) for one in self._left) else None

    def stop(self) -> None:
        """End them at once."""
        for one in self._left:
            with contextlib.suppress(RigError):
                one.stop()

    def look(self) -> tuple[Check, ...]:
        """Check the settings now: each of them is in the result, found or not."""
        return tuple(replace(check, guest=number) for number, one in enumerate(self._loads) for check in one.look())


Moment = tuple[float, Callable[[], None]]
"""What is done so many seconds after the start of a load."""


def watch(
    load: Together,
    begin: Moment,
    end: Moment,
    *,
    patience_seconds: float,
    started: float | None = None,
    heard: Callable[[float], None] = lambda _: None,
) -> tuple[Check, ...]:
    """Watch a load to its end, and return the checks of its settings. `started` is when it began (monotonic), `heard`
    is told how many seconds ago that is.

    Raises LoadError when it fails or does not end; then all of it has been ended.
    """
    begun = time.monotonic() if started is None else started
    half = (begin[0] + end[0]) / 2
    looks = _Looks(load)
    plan = [begin, (half, looks.look), end]
    while not load.ended(due=not plan):
        now = time.monotonic()
        heard(now - begun)
        if plan and now - begun >= plan[0][0]:
            plan.pop(0)[1]()
        elif now - begun >= half:
            looks.again()
        if (why := load.stuck()) is not None:
            load.stop()
            raise LoadError(why)
        if now - begun > end[0] + patience_seconds:
            load.stop()
            raise LoadError(f"the load did not end {patience_seconds:g} s after its run time: it is stuck")
    # a process's activity until then is still in its counters
    looks.again(now=True)
    return looks.seen()


class _Looks:
    """The checks of a load's settings so far."""

    def __init__(self, load: Together) -> None:
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
    check = cpus_check("load.pin", cpus, process, process.threads(), f" {UNDER_LOAD}")
    return (replace(check, hidden=check.found is None),)


def fio_engines(fio: str) -> frozenset[str]:
    """Return the engines of this fio; raises LoadError if it does not list them."""
    try:
        return frozenset(read_engines(said_of_itself(fio, "--enghelp", timeout_seconds=20)))
    except shell.CommandError as error:
        hint = f"`{fio} --enghelp` must list its engines at once; is that fio, and is it whole?"
        raise LoadError(f"fio does not say which engines it has: {error.message}", hint=hint) from None
