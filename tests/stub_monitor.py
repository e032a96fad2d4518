# SPDX-License-Identifier: Apache-2.0
"""A program that is no QEMU and speaks QMP: it answers what it was told to, with what a QEMU 7.2 once answered."""

import contextlib
import copy
import json
import socket
import threading
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from random import Random
from typing import Any

GREETING = '{"QMP": {"version": {"qemu": {"micro": 0, "minor": 2, "major": 7}, "package": ""}, "capabilities": []}}'

RECORDED: tuple[Mapping[str, Any], ...] = tuple(
    json.loads((Path(__file__).parent / "captures/qmp/answers.json").read_text())
)
"""Commands with their answers, of a QEMU whose guest loads its disk."""

Words = Callable[[str, Mapping[str, Any]], str | bytes]
"""Gives the text of an answer to a command with its arguments, or whole lines that are sent in place of one."""


def recorded(command: str, arguments: Mapping[str, Any]) -> Any:
    """What QEMU answered to it, or to the same command of another disk; None where it was never asked."""
    of_command = [one for one in RECORDED if one["execute"] == command]
    same = [one for one in of_command if one["arguments"] == arguments] or of_command
    return copy.deepcopy(same[-1]["return"]) if same else None


ODD: tuple[str, ...] = (
    "null", "true", '"7"', '""', "-1", "1.5", "NaN", "-Infinity", "1e999", str(2**63), str(2**200), "9" * 6000,
    "[]", "{}", '["x"]', '{"name": 1}', '"\\u001b[31m\\u202e\\ud800\\n"',
    '"' + "n" * 100_000 + '"', '"/' + "n" * 9000 + '"',
    '"\\u0000"', '"/\\u0000"', "[" * 3000 + "]" * 3000, '{"a":' * 3000 + "1" + "}" * 3000,
)  # fmt: skip
"""What stands in place of a value: other types, what no counter reaches, what cannot be shown, what is nested."""

_HOLE = "put something odd here"


def places(value: Any, at: tuple[Any, ...] = ()) -> Iterator[tuple[Any, ...]]:
    """Yield the way to every value within a document."""
    yield at
    inner = value.items() if isinstance(value, dict) else enumerate(value) if isinstance(value, list) else ()
    for key, one in inner:
        yield from places(one, (*at, key))


def changed(value: Any, chance: Random) -> str:
    """Return a document's text with one value deleted, doubled, or replaced."""
    *way, last = chance.choice([one for one in places({"": value}) if one])
    whole: Any = {"": value}
    holder = whole
    for key in way:
        holder = holder[key]
    if way and chance.random() < 0.3:
        del holder[last]
        return json.dumps(whole[""])
    holder[last] = _HOLE
    return json.dumps(whole[""]).replace(f'"{_HOLE}"', chance.choice(ODD))


def counting() -> Callable[[str, Mapping[str, Any]], str]:
    """Answer as the QEMU did; its counters rise by a thousand requests with every look."""
    looks = 0

    def words(command: str, arguments: Mapping[str, Any]) -> str:
        nonlocal looks
        said = recorded(command, arguments)
        if command == "query-blockstats":
            looks += 1
            for name, step in {"rd_operations": 1_000, "rd_bytes": 4_096_000, "rd_total_time_ns": 10**8}.items():
                said[0]["stats"][name] += looks * step
        return json.dumps(said)

    return words


def speak(connection: socket.socket, words: Words) -> None:
    """Answer until the other side goes."""
    text, decoder = "", json.JSONDecoder()
    with contextlib.suppress(OSError):
        connection.sendall(f"{GREETING}\n".encode())
        while part := connection.recv(65536):
            text += part.decode()
            while text.strip():
                asked, end = decoder.raw_decode(text.lstrip())
                text = text.lstrip()[end:]
                known = asked["execute"] != "qmp_capabilities"
                said = words(asked["execute"], asked.get("arguments", {})) if known else "{}"
                named = f', "id": {json.dumps(asked["id"])}' if "id" in asked else ""
                line = said if isinstance(said, bytes) else f'{{"return": {said}{named}}}\n'.encode()
                connection.sendall(line)


@contextlib.contextmanager
def beside(words: Words) -> Iterator[socket.socket]:
    """Yield a connection to such a program, which ends with the block."""
    ours, theirs = socket.socketpair()
    with ours, theirs:
        thread = threading.Thread(target=speak, args=(theirs, words), daemon=True)
        thread.start()
        ours.setblocking(False)
        yield ours
        theirs.shutdown(socket.SHUT_RDWR)
        thread.join(60)


@contextlib.contextmanager
def listening(path: Path, words: Words) -> Iterator[Path]:
    """Let such a program listen on a socket, for one client after another."""
    with socket.socket(socket.AF_UNIX) as server:
        server.bind(str(path))
        server.listen()

        def serve() -> None:
            with contextlib.suppress(OSError):
                while True:
                    with server.accept()[0] as connection:
                        speak(connection, words)

        threading.Thread(target=serve, daemon=True).start()
        yield path
        server.shutdown(socket.SHUT_RDWR)
