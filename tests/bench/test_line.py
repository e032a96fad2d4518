# SPDX-License-Identifier: Apache-2.0
"""The line to a guest without an operating system: whole frames, and words for what is none."""

import socket
import zlib
from collections.abc import Iterator

import pytest

from virtune.bench.guest.agent import GuestError
from virtune.bench.qemu.load import Frame, Line


def frame(kind: str, body: bytes, *, sum_of: bytes | None = None) -> bytes:
    return b"virtune %s %d %08x\n" % (kind.encode(), len(body), zlib.crc32(sum_of or body)) + body


@pytest.fixture
def ends() -> Iterator[tuple[Line, socket.socket]]:
    ours, theirs = socket.socketpair()
    with ours, theirs:
        yield Line(ours), theirs


def test_frames_come_whole_however_they_are_cut(ends: tuple[Line, socket.socket]) -> None:
    line, guest = ends
    sent = frame("ended", b"12") + frame("result", b"{}\nvirtune x\n")
    for at in range(len(sent)):
        guest.sendall(sent[at : at + 1])
    assert line.receive(1) == Frame(kind="ended", body=b"12")
    assert line.receive(1) == Frame(kind="result", body=b"{}\nvirtune x\n")
    assert line.receive(0.01) is None


@pytest.mark.parametrize(
    ("sent", "words"),
    [
        (frame("result", b"abc", sum_of=b"abd"), "the guest's `result` came damaged"),
        (b"Kernel panic - not syncing\n", "the guest sent no frame: 'Kernel panic"),
        (b"virtune result 999999999 00000000\n", "the guest sent no frame"),
        (b"x" * 100, "the guest sent no frame"),
    ],
)
def test_what_is_no_frame_is_told(ends: tuple[Line, socket.socket], sent: bytes, words: str) -> None:
    ends[1].sendall(sent)
    with pytest.raises(GuestError, match=words):
        ends[0].receive(1)


def test_a_guest_that_refuses_or_goes_says_so(ends: tuple[Line, socket.socket]) -> None:
    line, guest = ends
    guest.sendall(frame("failed", b"rw: not one of"))
    with pytest.raises(GuestError, match="rw: not one of"):
        line.ask("job", b"x", expect="armed", timeout_seconds=1)
    guest.close()
    with pytest.raises(GuestError, match="the guest is gone"):
        line.receive(1)
