# SPDX-License-Identifier: Apache-2.0
"""A guest without an operating system: the program `virtune-guest`, booted by QEMU, from start to ready.

It is ready in half a second, so it is restarted wherever its disk cannot be exchanged below the device.

Its connection is a virtio console. A frame is a line (the word virtune, its kind, its length, a CRC32 in hexadecimal)
and so many bytes (loadgen/guest).
"""

import contextlib
import json
import re
import socket
import sys
import time
import zlib
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from virtune import shell
from virtune.bench.guest.channel import GuestError
from virtune.bench.qemu.carried import GUEST
from virtune.bench.qemu.machine import (
    PROGRAM,
    EndedError,
    HungError,
    QemuGuest,
    console_end,
    launched,
    version_of,
)
from virtune.bench.qmp import START_SECONDS
from virtune.dialects.qemu.guest import DEVICE, GuestMachine
from virtune.dialects.qemu.qmp import Command
from virtune.model.errors import MissingToolError, RigError, words_of
from virtune.model.stack import Machine

_HEAD = re.compile(rb"virtune ([a-z]{1,20}) ([0-9]{1,9}) ([0-9a-f]{8})", re.ASCII)
_HEAD_BYTES = 64
_LONGEST = 16 * 1024**2
"""A result with all bins of 64 jobs is a tenth of that."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Frame:
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

    def prepare(self, bus: str) -> None:
        """Do nothing: its drivers are built in."""

    def protect(self, device: str) -> None:
        """Do nothing: what writes is a load that was told to, and nothing else runs."""

    def look(self, serial: str = DEVICE) -> Mapping[str, str]:
        """Have the guest reset a disk and report its properties, in the format of a Linux guest."""
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
    asked: Machine | None = None,
    first: Sequence[Command] = (),
    boot_seconds: float = BOOT_SECONDS,
) -> Iterator[BareVm]:
    """Boot the guest and yield it after its first message; it ends with the block.

    `asked` is the requested machine, `first` its disk. Raises RigError when it is not ready in time, with the end of
    its output as hint.
    """
    asked = asked or Machine(system="bare")

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
