# SPDX-License-Identifier: Apache-2.0
"""A Linux guest: run a program in it and get its output and status, with a deadline, over either of two ways in; and
its clock, its counters, its disk.

Existing VMs have the QEMU guest agent, asked by its JSON commands; our appliance has its own agent, a shell that
reads commands from virtio-serial ports (`virtune/guest/agent`). The console is never used: one that is not read
blocks the guest. An AgentLine carries the commands: the libvirt that owns the agent's port, or the socket of our
QEMU. Answers come from the guest, which is not trusted: each is limited in size and checked for its form. The agent
captures at most 16 MiB of a program's output, and libvirt carries answers of at most 10 MiB, so large output is
written to a file in the guest and fetched in parts.

Each port of our own agent is a channel that runs one command at a time, so a guest has two: one for the load, one to
observe the load. Answers carry the number of their command, so that late ones are recognised.

Linux finds the frequency of its time-stamp counter while it boots, by counting against an emulated timer. On a busy
host that went wrong under TCG ("PIT calibration deviates from PMTIMER: 335686 2593141"): a second of the guest took
0.13 s, so that all it measured was wrong by that factor. So its clock is compared with the host's.
"""

import abc
import base64
import binascii
import contextlib
import json
import re
import select
import socket
import threading
import time
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Protocol

from virtune.bench.counters import Ticker
from virtune.bench.load import LOG_MS, Load, Loaded
from virtune.bench.port import LoadJob
from virtune.model.errors import LoadError, RigError
from virtune.model.evidence import Check
from virtune.model.stack import MOUNT_WORDS, Kernel
from virtune.model.text import setting_text


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

    def put(self, path: str, content: bytes, *, timeout_seconds: float) -> None: ...

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
    guest: Guest,
    serial: str,
    kernel: Kernel | None = None,
    *,
    timeout_seconds: float = 20.0,
    program: Sequence[str] = ("disk",),
) -> dict[str, str]:
    """Wait until a guest sees the disk of that serial number, have its kernel run it as asked, and return its
    properties (`virtune/guest/disk`).

    `program` is the command that runs that script in the guest.
    """
    asked = (f"{name}={value}" for name, value in (kernel.asked if kernel else {}).items())
    argv = [*program, serial, str(int(timeout_seconds)), *asked]
    return _told(guest, argv, timeout_seconds=timeout_seconds + 5)


_SECONDS = 60.0
"""Unmounting writes what the load left in the guest's page cache."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Mounted:
    """The mounted disks of a guest: the file in each, the bytes of the smallest, what the kernel says of each."""

    files: tuple[str, ...]
    size_bytes: int
    kinds: tuple[str, ...]
    lines: tuple[str, ...]
    options: tuple[str, ...] = ()

    def checks(self, kind: str, kernel: Kernel) -> Iterator[Check]:
        """Check that all of them have the requested filesystem, and are mounted as asked by the kernel's own words of
        mount(8) for each; ext4 tells what is off too.
        """
        found = kind if set(self.kinds) == {kind} else ", ".join(self.kinds)
        yield Check("disk.filesystem", kind, found, f"the guest's /proc/mounts: {'; '.join(self.lines)}")
        of_each = zip(self.lines, self.options, strict=True)
        told = [dict(map(_mount_word, f"{line.rpartition(' ')[2]},{own}".split(","))) for line, own in of_each]
        for name, asked in kernel.mounting.items():
            values = sorted({disk.get(name, "") for disk in told})
            proof = "the guest's /proc/mounts and /proc/fs/ext4/*/options"
            yield Check(f"guest.{name}", _mount_word(asked)[1], ", ".join(values) if all(values) else None, proof)


def _mount_word(word: str) -> tuple[str, str]:
    """Return the setting and the value that a word of mount(8) stands for."""
    name, _, value = word.partition("=")
    setting, switch = MOUNT_WORDS.get(word, (f"mount_{name}", False))
    return setting, value or setting_text(switch)


def mount(guest: Guest, devices: Sequence[str], kind: str, kernel: Kernel, *, writes: bool) -> Mounted:
    """Mount the filesystem of each device in a guest (`virtune/guest/mounted`); raises GuestError when one fails."""
    how = ["rw" if writes else "ro", ",".join(kernel.mounting.values())]
    told = [_told(guest, ["mounted", device, kind, *how], timeout_seconds=_SECONDS) for device in devices]
    return Mounted(
        files=tuple(one.get("file", "") for one in told),
        size_bytes=min(int(one.get("bytes") or 0) for one in told),
        kinds=tuple(one.get("mounted", "none") for one in told),
        lines=tuple(one.get("line", "nothing is mounted") for one in told),
        options=tuple(one.get("options", "") for one in told),
    )


def unmount(guest: Guest, mounted: Mounted) -> None:
    """Unmount them all; raises GuestError when one stays mounted."""
    for file in mounted.files:
        must(guest, ["umount", file.rpartition("/")[0]], timeout_seconds=_SECONDS)


def _told(guest: Guest, words: Sequence[str], *, timeout_seconds: float) -> dict[str, str]:
    """Run a program that has to succeed, and return what its lines `NAME=VALUE` tell."""
    text = must(guest, words, timeout_seconds=timeout_seconds).decode(errors="replace")
    return dict(line.split("=", 1) for line in text.splitlines() if "=" in line)


BYTES_MAX = 64 * 1024**2
"""The largest file to fetch: fio's JSON with all bins of a hundred jobs has some MB."""

_PUT_BYTES = 48 * 1024
"""The most bytes per write: an argument has at most 128 KiB, and base64 and quoting turn this into 64 KiB."""

_STDIN_BYTES = 64 * 1024

_GET_BYTES = 1024**2
"""The most bytes per read: libvirt's limit of an answer is ten times that."""

_LINE_BYTES = 24 * 1024**2
"""A line on a socket is at most an agent's own limit of output, in base64."""

_POLLS = (0.05, 0.1, 0.2, 0.25)
"""Seconds between checks whether a program has ended; the last one repeats."""

_ANSWER_SECONDS = 10.0
_NOT_FOUND = 127
_SIGNALLED = 128


class Refused(GuestError):  # noqa: N818 - it is the agent that errs on us
    """The agent refused a command."""


class AgentLine(Protocol):
    """The transport of commands to an agent."""

    def ask(self, command: str, arguments: Mapping[str, Any], *, timeout_seconds: float) -> Any:
        """Return the agent's answer; raises Refused with its message, GuestError without an answer in time."""
        ...


class _Port:
    """A port of a guest, over its socket at our QEMU; `way` is what is gone when QEMU is."""

    way: str

    def __init__(self, connection: socket.socket) -> None:
        self._connection = connection
        self._connection.settimeout(0)
        self._lock = threading.Lock()
        self._unread = b""

    def _write(self, message: bytes, deadline: float) -> bool:
        """Write a message; False when it is not taken in time."""
        unsent = memoryview(message)
        while unsent:
            if not select.select([], [self._connection], [], max(0.0, deadline - time.monotonic()))[1]:
                return False
            with self._gone_is_said(), contextlib.suppress(BlockingIOError):
                unsent = unsent[self._connection.send(unsent) :]
        return True

    def _line(self, deadline: float) -> bytes | None:
        """Return the next line, None when the time is over; raises GuestError when the connection is closed."""
        while True:
            line, newline, rest = self._unread.partition(b"\n")
            if newline:
                self._unread = rest
                return line
            if len(self._unread) > _LINE_BYTES:
                raise GuestError(f"the guest agent answered more than {_LINE_BYTES // 1024**2} MiB")
            if not select.select([self._connection], [], [], max(0.0, deadline - time.monotonic()))[0]:
                return None
            with self._gone_is_said(), contextlib.suppress(BlockingIOError):
                part = self._connection.recv(_CHUNK)
                if not part:
                    raise GuestError(f"{self.way} is gone: QEMU closed it")
                self._unread += part

    @contextlib.contextmanager
    def _gone_is_said(self) -> Iterator[None]:
        try:
            yield
        except OSError as error:
            raise GuestError(f"{self.way} is gone: {error.strerror}") from None


class SocketLine(_Port):
    """The agent's port of our own QEMU."""

    way = "the way to the guest agent"

    def __init__(self, connection: socket.socket) -> None:
        super().__init__(connection)
        self._number = int(time.monotonic_ns() % 2**31)
        self._in_step = False

    def ask(self, command: str, arguments: Mapping[str, Any], *, timeout_seconds: float) -> Any:
        """Send a command after discarding all earlier answers: an answer carries no number of its command."""
        deadline = time.monotonic() + timeout_seconds
        with self._lock:
            if not self._in_step:  # late answers are discarded: all before the one with a number of our choice
                self._number += 1
                # 0xff discards an incomplete command in the agent, and makes it send 0xff before this answer
                sync = {"execute": "guest-sync-delimited", "arguments": {"id": self._number}}
                self._send(sync, deadline, before=b"\xff")
                while self._answer(deadline).get("return") != self._number:
                    pass
            self._in_step = False
            self._send({"execute": command, "arguments": dict(arguments)}, deadline)
            answer = self._answer(deadline)
            self._in_step = True
        if "error" in answer:
            error = answer["error"]
            said = error.get("desc") if isinstance(error, dict) else None
            raise Refused(f"the guest agent refused `{command}`: {str(said)[:300]}")
        return answer.get("return")

    def _send(self, message: Mapping[str, Any], deadline: float, *, before: bytes = b"") -> None:
        if not self._write(before + json.dumps(message).encode() + b"\n", deadline):
            raise GuestError("the guest agent took no command in time")

    def _answer(self, deadline: float) -> dict[str, Any]:
        """Return the next valid answer; invalid data are remains of earlier ones."""
        while (line := self._line(deadline)) is not None:
            with contextlib.suppress(ValueError, RecursionError):
                found = json.loads(line.rpartition(b"\xff")[2])
                if isinstance(found, dict):
                    return found
        raise GuestError("the guest agent did not answer in time")


class AgentProcess(GuestProcess):
    """A program that runs in the guest, started by its agent."""

    def __init__(self, guest: "AgentGuest", pid: int) -> None:
        self._guest = guest
        self._output: GuestOutput | None = None
        self.pid = pid

    def wait(self, timeout_seconds: float) -> GuestOutput | None:
        deadline = time.monotonic() + timeout_seconds
        looks = 0
        while self._output is None:
            self._output = self._guest.output_of(self.pid)
            left = deadline - time.monotonic()
            if self._output is not None or left <= 0:
                break
            time.sleep(min(left, _POLLS[min(looks, len(_POLLS) - 1)]))
            looks += 1
        return self._output

    def signal(self, name: str) -> None:
        words = f"kill -{name} {self.pid}; kill -CONT {self.pid}"
        self._guest.run(["sh", "-c", words], timeout_seconds=_ANSWER_SECONDS)


class AgentGuest(Guest):
    """A guest by its agent."""

    def __init__(self, line: AgentLine) -> None:
        self._line = line

    def ping(self, *, timeout_seconds: float) -> None:
        """Return when the agent answers; raises GuestError when it does not in time."""
        self._ask("guest-ping", timeout_seconds=timeout_seconds)

    def commands(self) -> frozenset[str]:
        """Return the commands that this agent carries out; distributions forbid some."""
        known = self._mapping("guest-info").get("supported_commands")
        if not isinstance(known, list):
            raise _unreadable("guest-info")
        return frozenset(
            str(one.get("name")) for one in known if isinstance(one, dict) and one.get("enabled") is True
        )

    def system(self) -> str:
        """Return the guest's operating system as the agent names it (`debian`, `mswindows`); empty when unknown."""
        try:
            return str(self._mapping("guest-get-osinfo").get("id", ""))
        except Refused:
            return ""

    def run(self, argv: Sequence[str], *, timeout_seconds: float) -> GuestOutput:
        deadline = time.monotonic() + timeout_seconds
        try:
            process = self.start(argv, timeout_seconds=timeout_seconds)
        except Refused as refusal:
            if "No such file" not in refusal.message:
                raise
            return GuestOutput(status=_NOT_FOUND, stdout=b"", stderr=f"{argv[0]}: not found".encode())
        output = process.wait(max(0.0, deadline - time.monotonic()))
        if output is None:
            raise late(timeout_seconds, " ".join(argv))
        return output

    def start(self, argv: Sequence[str], *, timeout_seconds: float, stdin: bytes = b"") -> AgentProcess:
        """Start a program that takes its time. `stdin` is what it reads, of at most 64 KiB."""
        asked: dict[str, Any] = {"path": argv[0], "arg": list(argv[1:]), "capture-output": True}
        if len(stdin) > _STDIN_BYTES:
            raise GuestError(f"{len(stdin)} bytes are more than an agent is given at once")
        if stdin:
            asked["input-data"] = base64.b64encode(stdin).decode()
        pid = self._mapping("guest-exec", asked, timeout_seconds=timeout_seconds).get("pid")
        return AgentProcess(self, _whole(pid, "guest-exec"))

    def put(self, path: str, content: bytes, *, timeout_seconds: float) -> None:
        deadline = time.monotonic() + timeout_seconds
        with self._opened(path, "w", deadline) as handle:
            for start in range(0, len(content), _PUT_BYTES):
                part = content[start : start + _PUT_BYTES]
                asked = {"handle": handle, "buf-b64": base64.b64encode(part).decode()}
                said = self._mapping("guest-file-write", asked, timeout_seconds=_left(deadline))
                if said.get("count") != len(part):
                    raise GuestError(f"the guest took {said.get('count')!r} of {len(part)} bytes of {path}")

    def get(self, path: str, *, timeout_seconds: float) -> bytes:
        deadline = time.monotonic() + timeout_seconds
        found = bytearray()
        with self._opened(path, "r", deadline) as handle:
            while True:
                asked = {"handle": handle, "count": _GET_BYTES}
                said = self._mapping("guest-file-read", asked, timeout_seconds=_left(deadline))
                part = _decoded(said.get("buf-b64", ""), "guest-file-read")
                found += part
                if len(found) > BYTES_MAX:
                    raise GuestError(f"{path} in the guest is larger than {BYTES_MAX // 1024**2} MiB")
                if said.get("eof") is True or not part:
                    return bytes(found)

    def output_of(self, pid: int) -> GuestOutput | None:
        """Return a program's output; None while it runs. The agent returns it once and then forgets the program."""
        said = self._mapping("guest-exec-status", {"pid": pid})
        if said.get("exited") is not True:
            return None
        if said.get("out-truncated") or said.get("err-truncated"):
            raise GuestError("the program's output in the guest is larger than its agent keeps")
        signal = said.get("signal")
        status = said.get("exitcode", 0) if signal is None else _SIGNALLED + _whole(signal, "guest-exec-status")
        return GuestOutput(
            status=_whole(status, "guest-exec-status"),
            stdout=_decoded(said.get("out-data", ""), "guest-exec-status"),
            stderr=_decoded(said.get("err-data", ""), "guest-exec-status"),
        )

    @contextlib.contextmanager
    def _opened(self, path: str, mode: str, deadline: float) -> Iterator[int]:
        try:
            said = self._ask("guest-file-open", {"path": path, "mode": mode}, timeout_seconds=_left(deadline))
        except Refused as refusal:
            doing = "write" if mode == "w" else "read"
            raise GuestError(f"the guest cannot {doing} {path}", hint=refusal.message) from None
        handle = _whole(said, "guest-file-open")
        try:
            yield handle
        finally:
            with contextlib.suppress(GuestError):
                self._ask("guest-file-close", {"handle": handle})

    def _mapping(
        self, command: str, arguments: Mapping[str, Any] | None = None, *, timeout_seconds: float = _ANSWER_SECONDS
    ) -> Mapping[str, Any]:
        said = self._ask(command, arguments, timeout_seconds=timeout_seconds)
        if not isinstance(said, dict):
            raise _unreadable(command)
        return said

    def _ask(
        self, command: str, arguments: Mapping[str, Any] | None = None, *, timeout_seconds: float = _ANSWER_SECONDS
    ) -> Any:
        return self._line.ask(command, arguments or {}, timeout_seconds=timeout_seconds)


def _left(deadline: float) -> float:
    left = deadline - time.monotonic()
    if left <= 0:
        raise GuestError("the guest agent did not answer in time")
    return left


def _whole(value: object, command: str) -> int:
    if isinstance(value, bool) or not isinstance(value, int) or abs(value) >= 2**63:
        raise _unreadable(command)
    return value


def _decoded(text: object, command: str) -> bytes:
    try:
        return base64.b64decode(text, validate=True) if isinstance(text, str) else b""
    except (binascii.Error, ValueError):
        raise _unreadable(command) from None


def _unreadable(command: str) -> GuestError:
    return GuestError(f"the guest agent answered `{command}` with what cannot be read")


GREETING = b"virtune-agent 1"

LOAD, LOOK = 0, 1
"""The two channels by the number of their port in the guest (`virtune.0`, `virtune.1`)."""

CHANNELS = (LOAD, LOOK)

_SAFE = re.compile(r"[A-Za-z0-9_@%+=:,./-]+")
_KILL_SECONDS = 10.0
_CHUNK = 65536


def shell_words(argv: Sequence[str]) -> str:
    """Quote arguments as one line for a shell."""
    return " ".join(argument if _SAFE.fullmatch(argument) else _quoted(argument) for argument in argv)


def _quoted(text: str) -> str:
    written = []
    for byte in text.encode(errors="surrogateescape"):
        if byte in b"\\'":
            written.append("\\" + chr(byte))
        elif 32 <= byte < 127:
            written.append(chr(byte))
        else:
            written.append(f"\\{byte:03o}")
    return "$'" + "".join(written) + "'"


class Channel(_Port):
    """One port of our own agent."""

    way = "the way into the guest"

    def __init__(self, connection: socket.socket) -> None:
        super().__init__(connection)
        self._answer: list[bytes] = []
        self._number = 0
        self._greeted = False

    def greet(self, *, timeout_seconds: float) -> bool:
        """Wait for the agent's greeting; False when it does not come in time."""
        deadline = time.monotonic() + timeout_seconds
        while not self._greeted and (line := self._line(deadline)) is not None:
            self._greeted = line == GREETING
        return self._greeted

    def run(self, words: str, *, timeout_seconds: float) -> GuestOutput:
        """Run a line of shell to its end; raises GuestError when that does not come in time."""
        with self.held():
            number = self.send("run", words, timeout_seconds=timeout_seconds)
            output = self.receive(number, timeout_seconds=timeout_seconds)
        if output is None:
            raise late(timeout_seconds, words)
        return output

    def held(self) -> threading.Lock:
        """Return the lock of the channel, to be held while one sends and receives."""
        return self._lock

    def send(self, how: str, words: str, *, timeout_seconds: float) -> int:
        """Send one command and return its number."""
        self._number += 1
        if not self._write(f"{how} {self._number} {words}\n".encode(), time.monotonic() + timeout_seconds):
            raise GuestError(f"the guest took no command for {timeout_seconds:g} s")
        return self._number

    def begun(self, number: int, *, timeout_seconds: float) -> int:
        """Wait until an `own` command has begun and return its process id in the guest."""
        deadline = time.monotonic() + timeout_seconds
        while (line := self._line(deadline)) is not None:
            mark, _, pid = line.decode(errors="replace").partition(" ")
            if mark == f"#{number}" and pid.isdigit():
                return int(pid)
        raise GuestError(f"the guest began nothing within {timeout_seconds:g} s")

    def receive(self, number: int, *, timeout_seconds: float) -> GuestOutput | None:
        """Wait for the end of a command; None when it does not come in time: then this may be called again."""
        deadline = time.monotonic() + timeout_seconds
        end = f"={number} ".encode()
        while (line := self._line(deadline)) is not None:
            if line.startswith(end):
                answer, self._answer = self._answer, []
                return _output(answer, number, line[len(end) :])
            self._answer.append(line)
        return None


class ShellProcess(GuestProcess):
    """A program that runs in the guest, on the channel of loads."""

    def __init__(self, guest: "ShellGuest", number: int, pid: int) -> None:
        self._guest = guest
        self._number = number
        self._output: GuestOutput | None = None
        self.pid = pid

    def wait(self, timeout_seconds: float) -> GuestOutput | None:
        if self._output is None:
            self._output = self._guest.load.receive(self._number, timeout_seconds=timeout_seconds)
        return self._output

    def signal(self, name: str) -> None:
        # its session; one that has just begun has none yet
        words = "; ".join(f"kill -{one} -{self.pid} || kill -{one} {self.pid}" for one in (name, "CONT"))
        self._guest.look.run(words, timeout_seconds=_KILL_SECONDS)


class ShellGuest(Guest):
    """A test VM made by virtune, reached by its two serial channels."""

    def __init__(self, connections: Sequence[socket.socket]) -> None:
        self.load, self.look = (Channel(connection) for connection in connections)

    def greet(self, *, timeout_seconds: float) -> bool:
        """Wait until the guest is up; False when it does not come up in time."""
        deadline = time.monotonic() + timeout_seconds
        channels = (self.load, self.look)
        return all(channel.greet(timeout_seconds=max(0.0, deadline - time.monotonic())) for channel in channels)

    def resume(self, *, timeout_seconds: float) -> None:
        """Set the clock of a guest that goes on from a saved state, in which it has greeted.

        Raises GuestError when it does not answer in time.
        """
        deadline = time.monotonic() + timeout_seconds
        self.look.run(f"date -s @{time.time():.0f}", timeout_seconds=timeout_seconds)
        self.load.run("true", timeout_seconds=max(0.0, deadline - time.monotonic()))

    def run(self, argv: Sequence[str], *, timeout_seconds: float) -> GuestOutput:
        return self.look.run(shell_words(argv), timeout_seconds=timeout_seconds)

    def start(self, argv: Sequence[str], *, timeout_seconds: float) -> ShellProcess:
        number = self.load.send("own", shell_words(["exec", *argv]), timeout_seconds=timeout_seconds)
        return ShellProcess(self, number, self.load.begun(number, timeout_seconds=timeout_seconds))

    def put(self, path: str, content: bytes, *, timeout_seconds: float) -> None:
        text = base64.b64encode(content).decode()
        output = self.look.run(f"echo {text} | base64 -d >{shell_words([path])}", timeout_seconds=timeout_seconds)
        if output.status:
            raise GuestError(f"the guest cannot write {path}", hint=output.stderr.decode(errors="replace").strip())

    def get(self, path: str, *, timeout_seconds: float) -> bytes:
        return must(self, ["cat", path], timeout_seconds=timeout_seconds)


def _output(lines: list[bytes], number: int, status: bytes) -> GuestOutput:
    """Read an answer: base64 after `<NUMBER` is standard output, after `!NUMBER` standard error."""
    streams: dict[bytes, list[bytes]] = {b"<": [], b"!": []}
    into: list[bytes] | None = None
    for line in lines:
        if line[:1] in streams:
            into = streams[line[:1]] if line[1:] == str(number).encode() else None
        elif into is not None:
            into.append(line)
    try:
        stdout, stderr = (base64.b64decode(b"".join(streams[mark]), validate=True) for mark in (b"<", b"!"))
        return GuestOutput(status=int(status), stdout=stdout, stderr=stderr)
    except (binascii.Error, ValueError):
        raise GuestError("the guest answered what cannot be read") from None


ARM_SECONDS = 60.0
"""How long a load may take to be ready."""

_RESULT_SECONDS = 60.0


class FioLoad(Load):
    """fio in a guest. Files with its error message are `complaints`: with --output it goes into that file."""

    complaints: tuple[str, ...]
    process: GuestProcess

    def __init__(self, bench: Loaded, job: LoadJob, guest: Guest) -> None:
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
