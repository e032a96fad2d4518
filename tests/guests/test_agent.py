# SPDX-License-Identifier: Apache-2.0
"""The guest agent of a QEMU of ours, over its socket: one with hostile answers. A real one is in test_guest.py."""

import base64
import contextlib
import json
import socket
import threading
from collections.abc import Callable, Iterator

import pytest

from virtune.bench.guest.agent import AgentGuest, GuestError, SocketLine

Answer = Callable[[dict[str, object]], bytes]


@pytest.fixture
def hostile() -> Iterator[Callable[[Answer], AgentGuest]]:
    """A guest whose agent answers what it likes."""
    ends: list[socket.socket] = []

    def guest(answer: Answer) -> AgentGuest:
        ours, theirs = socket.socketpair()
        ends.extend((ours, theirs))

        def serve() -> None:
            with contextlib.suppress(OSError), theirs.makefile("rb") as asked:
                for line in asked:
                    said = json.loads(line.lstrip(b"\xff"))
                    if said["execute"] == "guest-sync-delimited":
                        number = said["arguments"]["id"]
                        theirs.sendall(b'{"return": 5}\n\xff' + json.dumps({"return": number}).encode() + b"\n")
                    else:
                        theirs.sendall(answer(said))

        threading.Thread(target=serve, daemon=True).start()
        return AgentGuest(SocketLine(ours))

    yield guest
    for end in ends:
        end.shutdown(socket.SHUT_RDWR)
        end.close()


@pytest.mark.parametrize(
    "answer",
    [
        b'{"return": 7}\n',
        b'{"return": {"pid": "1"}}\n',
        b'{"return": {"pid": true}}\n',
        b'{"return": {"pid": 1e400}}\n',
        b'{"return": {"pid": 99999999999999999999}}\n',
        b'{"return": []}\n',
        b'{"error": []}\n',
        b"[" * 100_000 + b"\n" + b'{"return": null}\n',
        b"\xff\xfe\x00{}\n" + b'{"return": {"pid": null}}\n',
    ],
)
def test_what_is_no_answer_is_one_sentence(hostile: Callable[[Answer], AgentGuest], answer: bytes) -> None:
    with pytest.raises(GuestError):
        hostile(lambda _: answer).run(["true"], timeout_seconds=1)


def test_an_answer_without_end_is_refused(hostile: Callable[[Answer], AgentGuest]) -> None:
    with pytest.raises(GuestError, match="more than 24 MiB"):
        hostile(lambda _: b"x" * (25 * 1024**2)).run(["true"], timeout_seconds=120)


def test_a_file_without_end_is_refused(hostile: Callable[[Answer], AgentGuest]) -> None:
    part = json.dumps({"return": {"buf-b64": base64.b64encode(bytes(8 * 1024**2)).decode(), "eof": False}}).encode()
    guest = hostile(lambda said: b'{"return": 1}\n' if said["execute"] == "guest-file-open" else part + b"\n")
    with pytest.raises(GuestError, match="larger than 64 MiB"):
        guest.get("/run/x", timeout_seconds=120)


def test_silence_ends_at_the_deadline_and_a_late_answer_is_not_taken_for_another(
    hostile: Callable[[Answer], AgentGuest],
) -> None:
    held: list[bytes] = []

    def late(said: dict[str, object]) -> bytes:
        if not held:
            held.append(b'{"return": {"pid": 4711}}\n')
            return b""
        return held[0].replace(b"4711", b"12") if said["execute"] == "guest-exec" else b'{"return": {}}\n'

    guest = hostile(late)
    with pytest.raises(GuestError, match="did not answer in time"):
        guest.start(["true"], timeout_seconds=0.3)
    assert guest.start(["true"], timeout_seconds=120).pid == 12


@pytest.mark.parametrize(
    "said", [{"exitcode": "0"}, {"exitcode": 0, "out-data": "#"}, {"exitcode": 0, "out-truncated": True}]
)
def test_a_status_that_cannot_be_is_refused(hostile: Callable[[Answer], AgentGuest], said: dict[str, object]) -> None:
    ended = json.dumps({"return": {"pid": 1, "exited": True, **said}}).encode() + b"\n"
    with pytest.raises(GuestError):
        hostile(lambda _: ended).run(["true"], timeout_seconds=1)
