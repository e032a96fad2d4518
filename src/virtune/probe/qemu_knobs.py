# SPDX-License-Identifier: Apache-2.0
"""Query the installed QEMU for knobs: qemu-storage-daemon, and a system emulator if there is one.

Each program is started once, without a machine or a guest, answers a script of queries and exits; that takes a tenth
of a second. The version is only a label of the answer and never decides.
"""

import contextlib
import json
import os
import platform
import secrets
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from virtune import shell, warden
from virtune.bounded import read_bounded
from virtune.dialects.qemu.answers import Entities, answer_properties, answer_schema, entities, read_answer
from virtune.model.errors import VirtuneError
from virtune.model.knob import Answer, Ask, AskDevice, AskObject, AskSchema, Knob, Support

DAEMON = "qemu-storage-daemon"
EMULATORS: tuple[str, ...] = (f"qemu-system-{platform.machine()}", "qemu-kvm", "/usr/libexec/qemu-kvm")
"""Where distributions put the system emulator; the first that is there is asked."""

_TIMEOUT_SECONDS = 10.0
"""A hundred times what an idle host needs, so that only a hanging program reaches it."""

_ANSWER_MAX = 64 * 1024**2
"""QEMU 10 answers with half a megabyte."""

_SCHEMA = "query-qmp-schema"

_NOT_QMP = (ValueError, LookupError, TypeError, AttributeError, RecursionError)
"""What reading raises where a program is not QEMU; its schema may leave members out, or go round in a circle."""
_NOT_QMP_WORDS = "it does not speak QMP as QEMU does"
_Replies = Mapping[str, Mapping[str, Any]]


@dataclass(frozen=True, slots=True, kw_only=True)
class _Heard:
    """The answers of one program: its label, its schema, its properties by type; or why there are none."""

    program: str
    schema: Entities | None = None
    replies: _Replies | None = None
    reason: str = ""


def ask(
    knobs: Sequence[Knob],
    *,
    daemon: str = DAEMON,
    emulators: Sequence[str] = EMULATORS,
    timeout_seconds: float = _TIMEOUT_SECONDS,
) -> dict[str, tuple[Answer, ...]]:
    """Query both programs for each knob that names a query; the key is the knob's id.

    Never raises for a program that is missing, hangs or gives invalid output: its answer is NOT_ASKED with the
    reason.
    """
    found = (
        ask_daemon(knobs, daemon=daemon, timeout_seconds=timeout_seconds),
        ask_emulator(knobs, emulators=emulators, timeout_seconds=timeout_seconds),
    )
    return {knob.id: tuple(one[knob.id] for one in found if knob.id in one) for knob in knobs if knob.ask is not None}


def ask_daemon(
    knobs: Sequence[Knob], *, daemon: str = DAEMON, timeout_seconds: float = _TIMEOUT_SECONDS
) -> dict[str, Answer]:
    """Query the storage daemon alone, by knob, as `ask` does; a guest's devices are no question for it."""
    asks = {knob.id: knob.ask for knob in knobs if knob.ask is not None and not isinstance(knob.ask, AskDevice)}
    return _answers(asks, daemon, _daemon_command, timeout_seconds)


def ask_emulator(
    knobs: Sequence[Knob], *, emulators: Sequence[str] = EMULATORS, timeout_seconds: float = _TIMEOUT_SECONDS
) -> dict[str, Answer]:
    """Query the first of these system emulators that is installed, by knob, as `ask` does."""
    asks = {knob.id: knob.ask for knob in knobs if knob.ask is not None}
    return _answers(asks, _installed(emulators), _emulator_command, timeout_seconds)


def _answers(
    asks: Mapping[str, Ask], program: str, command: Callable[[str, str], list[str]], timeout_seconds: float
) -> dict[str, Answer]:
    if not asks:
        return {}
    heard = _hear(program, list(asks.values()), command, timeout_seconds)
    return {name: _answer(question, heard) for name, question in asks.items()}


def _answer(question: Ask, heard: _Heard) -> Answer:
    if heard.schema is None or heard.replies is None:
        return Answer(program=heard.program, standing=Support.NOT_ASKED, detail=heard.reason)
    try:
        if isinstance(question, AskSchema):
            return answer_schema(question, heard.schema, program=heard.program)
        return answer_properties(question, heard.replies[_type_name(question)], program=heard.program)
    except _NOT_QMP:
        return Answer(program=heard.program, standing=Support.NOT_ASKED, detail=_NOT_QMP_WORDS)


def _hear(
    program: str, questions: Sequence[Ask], command: Callable[[str, str], list[str]], timeout_seconds: float
) -> _Heard:
    try:
        path = shell.find(program)
        script = _script(questions)
        with _directory() as directory:
            text = _converse(command(path, str(directory / "qmp")), script, directory, timeout_seconds)
        return _understand(program, text, script)
    except VirtuneError as error:
        return _Heard(program=program, reason=f"{error.message} ({error.hint})" if error.hint else error.message)


@contextlib.contextmanager
def _directory() -> Iterator[Path]:
    """Make a directory like a run's, so that the next run finds its remains after a kill."""
    directory = warden.run_directory(f"ask-{secrets.token_hex(4)}")
    owner = warden.make_run_directory(directory, pid=os.getpid())
    try:
        yield directory
    finally:
        warden.remove(directory)
        os.close(owner)


def _converse(
    command: Sequence[str], script: Sequence[Mapping[str, Any]], directory: Path, timeout_seconds: float
) -> str:
    """Give a QEMU a script of QMP commands and return everything it wrote.

    QEMU's `pipe` character device gets two plain files here. On a real pipe, `quit` ends the process while the
    schema, which is larger than a pipe holds, still waits for a slow reader: the answer arrives cut off.
    """
    (directory / "qmp.in").write_text("".join(json.dumps(line) + "\n" for line in script))
    output = directory / "qmp.out"
    output.touch()
    shell.run(command, timeout_seconds=timeout_seconds, stdin="")
    return read_bounded(output, _ANSWER_MAX).decode(errors="replace")


def _script(questions: Sequence[Ask]) -> list[dict[str, Any]]:
    """One line for the schema, one for each type, whose name is the id of its reply."""
    lines: list[dict[str, Any]] = [{"execute": "qmp_capabilities"}, {"execute": _SCHEMA, "id": _SCHEMA}]
    seen: set[str] = set()
    for question in questions:
        if isinstance(question, AskSchema) or _type_name(question) in seen:
            continue
        seen.add(_type_name(question))
        listing = "device-list-properties" if isinstance(question, AskDevice) else "qom-list-properties"
        name = question.device if isinstance(question, AskDevice) else question.object
        lines.append({"execute": listing, "arguments": {"typename": name}, "id": _type_name(question)})
    return [*lines, {"execute": "quit"}]


def _understand(program: str, text: str, script: Sequence[Mapping[str, Any]]) -> _Heard:
    asked = {line["id"]: line["execute"] for line in script if "id" in line}
    replies: dict[str, Mapping[str, Any]] = {}
    label = Path(program).name
    try:
        for line in text.splitlines():
            message = json.loads(line)
            if "QMP" in message:
                version = message["QMP"]["version"]["qemu"]
                label += f" {version['major']}.{version['minor']}.{version['micro']}"
            elif "id" in message:
                replies[str(message["id"])] = message
                if "error" not in message:
                    read_answer(asked[message["id"]], {}, message["return"])
        if missing := asked.keys() - replies.keys():
            return _Heard(program=label, reason=f"it ended before it answered ({min(missing)})")
        return _Heard(program=label, schema=entities(replies[_SCHEMA]["return"]), replies=replies)
    except _NOT_QMP:
        return _Heard(program=label, reason=_NOT_QMP_WORDS)


def _type_name(question: AskDevice | AskObject) -> str:
    return f"device {question.device}" if isinstance(question, AskDevice) else f"object {question.object}"


def _installed(programs: Sequence[str]) -> str:
    """Return the first program that is there; the first of all where none is, so that the reason names it."""
    for program in programs:
        try:
            shell.find(program)
        except VirtuneError:
            continue
        return program
    return programs[0]


def _character_device(pipe: str) -> str:
    # In QEMU's option strings a comma in a value is written twice.
    return f"pipe,id=m,path={pipe.replace(',', ',,')}"


def _daemon_command(path: str, pipe: str) -> list[str]:
    return [path, "--chardev", _character_device(pipe), "--monitor", "chardev=m"]


def _emulator_command(path: str, pipe: str) -> list[str]:
    quiet = ["-machine", "none", "-nodefaults", "-no-user-config", "-S", "-display", "none"]
    return [path, *quiet, "-chardev", _character_device(pipe), "-mon", "chardev=m,mode=control"]
