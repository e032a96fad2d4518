# SPDX-License-Identifier: Apache-2.0
"""Access to our appliance through its own agent: a shell that reads commands from virtio-serial ports
(`virtune/guest/agent`).

Each port is a channel that runs one command at a time, so a guest has two: one for the load, one to observe the load.
Answers carry the number of their command, so that late ones are recognised.
"""

import base64
import binascii
import contextlib
import re
import select
import socket
import threading
import time
from collections.abc import Iterator, Sequence

from virtune.bench.guest.channel import Guest, GuestError, GuestOutput, GuestProcess, late, must

GREETING = b"virtune-agent 1"

LOAD, LOOK = 0, 1
"""The two channels by the number of their port in the guest (`virtune.0`, `virtune.1`)."""

CHANNELS = (LOAD, LOOK)

_SAFE = re.compile(r"[A-Za-z0-9_@%+=:,./-]+")
_KILL_SECONDS = 10.0
_CHUNK = 65536


def words_of(argv: Sequence[str]) -> str:
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


class Channel:
    """One port of the agent, over its socket at QEMU."""

    def __init__(self, connection: socket.socket) -> None:
        self._connection = connection
        self._connection.settimeout(0)
        self._lock = threading.Lock()
        self._unread = b""
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

    @contextlib.contextmanager
    def held(self) -> Iterator[None]:
        """Lock the channel while the block sends and receives."""
        with self._lock:
            yield

    def send(self, how: str, words: str, *, timeout_seconds: float) -> int:
        """Send one command and return its number."""
        self._number += 1
        unsent = memoryview(f"{how} {self._number} {words}\n".encode())
        deadline = time.monotonic() + timeout_seconds
        while unsent:
            left = deadline - time.monotonic()
            if left <= 0 or not select.select([], [self._connection], [], left)[1]:
                raise GuestError(f"the guest took no command for {timeout_seconds:g} s")
            try:
                unsent = unsent[self._connection.send(unsent) :]
            except BlockingIOError:
                continue
            except OSError as error:
                raise GuestError(f"the way into the guest is gone: {error.strerror}") from None
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

    def _line(self, deadline: float) -> bytes | None:
        """Return the next line, None when the time is over; raises GuestError when the connection is closed."""
        while True:
            line, newline, rest = self._unread.partition(b"\n")
            if newline:
                self._unread = rest
                return line
            if not select.select([self._connection], [], [], max(0.0, deadline - time.monotonic()))[0]:
                return None
            try:
                part = self._connection.recv(_CHUNK)
            except BlockingIOError:
                continue
            except OSError as error:
                raise GuestError(f"the way into the guest is gone: {error.strerror}") from None
            if not part:
                raise GuestError("the way into the guest is gone: QEMU closed it")
            self._unread += part


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
        return self.look.run(words_of(argv), timeout_seconds=timeout_seconds)

    def start(self, argv: Sequence[str], *, timeout_seconds: float) -> ShellProcess:
        number = self.load.send("own", words_of(["exec", *argv]), timeout_seconds=timeout_seconds)
        return ShellProcess(self, number, self.load.begun(number, timeout_seconds=timeout_seconds))

    def put(self, path: str, content: bytes, *, timeout_seconds: float) -> None:
        text = base64.b64encode(content).decode()
        output = self.look.run(f"echo {text} | base64 -d >{words_of([path])}", timeout_seconds=timeout_seconds)
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
