# SPDX-License-Identifier: Apache-2.0
"""Guests that are loaded: with Linux, by its fio, or without an operating system, by themselves: the program
`virtune-guest`, booted by QEMU.

The latter is ready in half a second, so it is restarted wherever its disk cannot be exchanged below the device. Its
connection is a virtio console. A frame is a line (the word virtune, its kind, its length, a CRC32 in hexadecimal) and
so many bytes (loadgen/guest).
"""

import abc
import contextlib
import functools
import json
import re
import shlex
import socket
import sys
import time
import zlib
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import pairwise
from pathlib import Path
from typing import Any, NamedTuple

from virtune import shell
from virtune.bench.guest.agent import ARM_SECONDS, FioLoad, GuestError, GuestSampler, shell_words
from virtune.bench.live.monitor import FIELDS
from virtune.bench.live.rings import RingReader
from virtune.bench.load import STUCK_SECONDS, Load, Loaded, Progress, run_loads
from virtune.bench.port import Keep, LoadJob, LoadOutput, Window
from virtune.bench.qemu.carried import GUEST, halt_poll_check, place_checks
from virtune.bench.qemu.machine import (
    PROGRAM,
    Accelerator,
    EndedError,
    HungError,
    QemuGuest,
    Vm,
    console_end,
    launched,
    version_of,
)
from virtune.bench.qmp import START_SECONDS
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
from virtune.dialects.qemu.guest import DEVICE, GuestMachine
from virtune.dialects.qemu.qmp import Command
from virtune.fio.job import OPERATIONS
from virtune.model.errors import LoadError, MissingToolError, RigError, words_of
from virtune.model.evidence import UNDER_LOAD, Check, of_guest
from virtune.model.stack import Machine, Stack
from virtune.probe.process import Process, Ring
from virtune.shell import last_line

_HEAD = re.compile(rb"virtune ([a-z]{1,20}) ([0-9]{1,9}) ([0-9a-f]{8})", re.ASCII)
_HEAD_BYTES = 64
_LONGEST = 16 * 1024**2
"""A result with all bins of 64 jobs is a tenth of that."""


class Frame(NamedTuple):
    """A message of the guest: its kind and its bytes."""

    kind: str
    body: bytes


class Line:
    """Our end of the connection."""

    def __init__(self, connection: socket.socket) -> None:
        self._connection = connection
        self._came = b""

    def send(self, kind: str, body: bytes = b"") -> None:
        """Send a frame; raises GuestError when the guest does not take it."""
        self._connection.settimeout(10.0)
        try:
            self._connection.sendall(b"virtune %s %d %08x\n" % (kind.encode(), len(body), zlib.crc32(body)) + body)
        except OSError as error:
            raise GuestError(f"the guest takes no {kind}: {words_of(error)}") from None

    def receive(self, timeout_seconds: float) -> Frame | None:
        """Return the next frame, None when none has come in time.

        Raises GuestError when the guest is gone, or the frame is damaged.
        """
        deadline = time.monotonic() + timeout_seconds
        while (frame := self._taken()) is None:
            left = deadline - time.monotonic()
            if left <= 0:
                return None
            self._connection.settimeout(max(left, 0.001))
            try:
                more = self._connection.recv(1 << 16)
            except TimeoutError:
                return None
            except OSError:
                more = b""
            if not more:
                raise GuestError("the guest is gone")
            self._came += more
        return frame

    def ask(self, kind: str, body: bytes = b"", *, expect: str, timeout_seconds: float) -> bytes:
        """Send a frame and return the answer to it.

        Raises GuestError with the guest's message when it is not the expected kind, or does not come in time.
        """
        self.send(kind, body)
        frame = self.receive(timeout_seconds)
        if frame is None:
            raise GuestError(f"the guest did not answer `{kind}` within {timeout_seconds:g} s")
        if frame.kind != expect:
            said = frame.body.decode(errors="replace")[:300]
            raise GuestError(said if frame.kind == "failed" else f"the guest answered `{kind}` with `{frame.kind}`")
        return frame.body

    def _taken(self) -> Frame | None:
        head, end, rest = self._came.partition(b"\n")
        if not end and len(head) <= _HEAD_BYTES:
            return None
        words = _HEAD.fullmatch(head)
        if words is None or int(words[2]) > _LONGEST:
            raise GuestError(f"the guest sent no frame: {head[:_HEAD_BYTES].decode(errors='replace')!r}")
        length = int(words[2])
        if len(rest) < length:
            return None
        body, self._came = rest[:length], rest[length:]
        if zlib.crc32(body) != int(words[3], 16):
            raise GuestError(f"the guest's `{words[1].decode()}` came damaged")
        return Frame(kind=words[1].decode(), body=body)


PLACES = (
    Path(sys.prefix) / "share" / "virtune",
    Path(__file__).resolve().parents[4] / "loadgen" / "target" / "guest",
)
"""Where the guest program is: where `tools/setup` keeps it up to date, or built by hand in a checkout."""

BOOT_SECONDS = 20.0
"""It is up within 0.5 s; forty times that cannot be explained by a busy host."""

KVM_SECONDS = 10.0
"""The time limit when KVM is tried."""

_LOOK_SECONDS = 10.0
_END_SECONDS = 1.0


def find_guest(places: Sequence[Path] = PLACES) -> Path:
    """Return the path of the guest; raises MissingToolError with how to get it, and what works without it."""
    shell.require_x86_64()
    for place in places:
        if (found := place / GUEST).is_file():
            return found
    hint = (
        "`tools/setup` in a checkout of virtune builds it, with Rust 1.89 or newer; guest.system=linux does without"
    )
    raise MissingToolError(f"`{GUEST}`, the guest without an operating system, is not built", hint=hint)


@dataclass(slots=True, kw_only=True)
class BareVm(QemuGuest):
    """A running guest without an operating system; `hello` is its first message."""

    line: Line
    hello: Mapping[str, object]


class Bare:
    """The guest itself, as far as its disk needs it. It tells how many queues the disk offers, used or not."""

    fixed = True
    proof = "what the guest's driver reads of the device"
    drives = 1024

    def __init__(self, vm: BareVm) -> None:
        self._vm = vm

    def prepare(self, stack: Stack) -> None:
        """Do nothing: its drivers are built in."""

    def protect(self, device: str) -> None:
        """Do nothing: what writes is a load that was told to, and nothing else runs."""

    def look(self, serial: str = DEVICE) -> Mapping[str, str]:
        said = self._vm.line.ask("look", serial.encode(), expect="seen", timeout_seconds=_LOOK_SECONDS)
        seen = json.loads(said)
        features = int(seen.pop("features"))
        seen.pop("offered")
        return {
            **{name: str(value) for name, value in seen.items()},
            "device": f"/dev/{serial}",
            "features": "".join(str(features >> bit & 1) for bit in range(64)),
            "nr_requests": str(seen["queue_size"]),
            "scheduler": "[none]",
            **{name: str(value) for name, value in self._vm.hello.items() if name != "disks"},
        }


@contextlib.contextmanager
def running_bare(
    guest: Path,
    warden: shell.Warden,
    *,
    kvm: bool,
    host_cpu: str = "host",
    asked: Machine,
    first: Sequence[Command] = (),
    boot_seconds: float = BOOT_SECONDS,
) -> Iterator[BareVm]:
    """Boot the guest and yield it after its first message; it ends with the block.

    `asked` is the requested machine, `first` its disk. Raises RigError when it is not ready in time, with the end of
    its output as hint.
    """

    def machine(ends: Sequence[int], console: Path) -> GuestMachine:
        return GuestMachine(
            kernel=str(guest), initramfs="", console=str(console), channels=(ends[0],), monitor=ends[1], kvm=kvm,
            host_cpu=host_cpu, vcpus=asked.cpus, asked=asked, first=first,
        )  # fmt: skip

    program, patience = shell.find(asked.emulator or PROGRAM), max(START_SECONDS, boot_seconds)
    with launched(warden, program, 1, machine, patience_seconds=patience) as qemu:
        line = Line(qemu.ports[0])
        hello = _hello(line, qemu.child, qemu.console, boot_seconds)
        yield BareVm(
            child=qemu.child,
            monitor=qemu.monitor,
            console=qemu.console,
            kvm=kvm,
            vcpus=asked.cpus,
            version=version_of(qemu.monitor.execute("query-version")),
            boot_seconds=time.monotonic() - qemu.begun,
            line=line,
            hello=hello,
            exit_ns=int(str(hello["exit_ns"])),
        )


def _hello(line: Line, child: shell.Child, console: Path, seconds: float) -> Mapping[str, object]:
    try:
        frame = line.receive(seconds)
    except GuestError as error:
        status = child.wait(_END_SECONDS)
        words = shell.last_line(console_end(console)) or child.last_words()
        if status is None:
            raise HungError(error.message, hint=words) from None
        raise EndedError(
            f"{PROGRAM} ended while the guest booted", hint=words, status=status, refused=False
        ) from None
    if frame is None:
        words = shell.last_line(console_end(console)) or "it wrote nothing to its console"
        raise HungError(f"the guest did not come up within {seconds:g} s", hint=words)
    return hello_of(frame.body)


def hello_of(body: bytes) -> Mapping[str, object]:
    """Return what a guest says first. Raises RigError where it is not what this virtune's own program says."""
    with contextlib.suppress(ValueError, RecursionError):
        found = json.loads(body)
        if isinstance(found, dict) and isinstance(found.get("exit_ns"), int) and isinstance(found.get("disks"), list):
            return found
    raise RigError(f"{GUEST} is not of this version of virtune", hint="tools/setup builds it anew")


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
        if self.stack.host.halt_poll_ns is not None:
            checks.append(halt_poll_check(self.stack, self.vm.halt_polls()))
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
        vm = self.bench.vm
        found = {"t": time.monotonic_ns(), "stats": vm.block_statistics()}
        return found if (exits := vm.exits()) is None else found | {"exits": exits}

    def spent(self) -> Spent:
        return self.bench.spent()

    def rings(self) -> Iterator[Callable[[], RingReader]]:
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
            f"rm -f {old}; mkfifo /run/go; {shell_words(['printf', '%s', self.job.job.text])} >/run/load.fio",
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
        words = ["armed", str(self.job.clones), str(int(ARM_SECONDS)), str(self.process.pid)]
        return self.guest.run(words, timeout_seconds=ARM_SECONDS + _ANSWER_SECONDS).status == 0

    def held(self) -> contextlib.AbstractContextManager[object]:
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
        try:
            self._line.ask("job", self.job.job.text.encode(), expect="armed", timeout_seconds=ARM_SECONDS)
        except GuestError as error:
            raise LoadError(f"the guest refused the load: {error.message}") from None

    def release(self) -> None:
        self._asked_to_go = time.monotonic()
        self._line.send("go", f"{int(STUCK_SECONDS * 1000)} {int(time.time() * 1000)}".encode())

    def released(self) -> None:
        frame = self._line.receive(_ANSWER_SECONDS)
        if frame is None or frame.kind != "began":
            raise LoadError("the guest did not begin")
        self._note(time.monotonic())

    def begun(self) -> float:
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
