# SPDX-License-Identifier: Apache-2.0
"""The connection to a guest without an operating system: frames with checksums over a virtio console.

A frame is a line (the word virtune, its kind, its length, a CRC32 in hexadecimal) and so many bytes (loadgen/guest).
"""

import re
import socket
import time
import zlib
from dataclasses import dataclass

from virtune.bench.guest.channel import GuestError

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
            raise GuestError(f"the guest takes no {kind}: {(error.strerror or str(error)).lower()}") from None

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
