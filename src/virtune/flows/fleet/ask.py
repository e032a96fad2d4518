# SPDX-License-Identifier: Apache-2.0
"""Ask the virtune of each host for a document, of many hosts at once."""

import re
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import Future, ThreadPoolExecutor, as_completed
from dataclasses import dataclass
from threading import Lock
from typing import Any, TypeVar

from virtune import __version__
from virtune.bounded import read_json
from virtune.fleet.ssh import CONNECT_SECONDS, Connection, HostError, connected
from virtune.model.errors import VirtuneError
from virtune.model.fleet import FleetHost, HostAnswer, Unreached
from virtune.model.text import printable
from virtune.shell import Warden, find

DOCUMENT_MAX = 32 * 1024**2
"""The largest document of a host: an audit of 1,000 VMs has about 10 MB."""

_READ = Lock()

_SHORT_SECONDS, _SHORT_BYTES = 60.0, 64 * 1024
"""For `uname` and `virtune --version`, on a host that is busy."""

_NAME_AND_PATH = """echo $(uname -n) $(command -v "$1" || ls "$HOME/.local/bin/$1" 2>/dev/null)"""
"""A host's own name for itself, and its virtune: commands over ssh often have a PATH without ~/.local/bin."""


_WORD = re.compile(r"[A-Za-z0-9][A-Za-z0-9._/-]{0,399}")


def is_word(found: object) -> bool:
    """Whether what a host calls something may be a word of a command: the id of a study or of a change."""
    return isinstance(found, str) and bool(_WORD.fullmatch(found))


class OtherVersionError(HostError):
    """A host has another virtune than the one that runs here."""


Done = TypeVar("Done")

Asked = tuple[FleetHost, str, Done] | Unreached
"""What a task gave on a host, with the host's own name; or why it gave nothing."""


@dataclass(frozen=True, slots=True, kw_only=True)
class FleetAccess:
    """How hosts are asked: so many at once, for so long at most, by which virtune there."""

    parallel: int = 8
    timeout_seconds: float = 300.0
    connect_seconds: int = CONNECT_SECONDS
    virtune: str = "virtune"


@dataclass(frozen=True, slots=True, kw_only=True)
class Ready:
    """A connected host whose virtune is the one that is running here."""

    connection: Connection
    calls_itself: str
    virtune: str


def ask_each(
    hosts: Sequence[FleetHost],
    reach: FleetAccess,
    task: Callable[[Ready], Done],
    *,
    say: Callable[[str], None] = lambda _: None,
    meet: "Callable[[Connection, FleetAccess], Ready] | None" = None,
) -> list[Asked[Done]]:
    """Do a task on every host and return what each gave, in the order of the hosts; a failure concerns its host only.

    A host that calls itself as an earlier one does is a failure: what the two give could not be told apart.
    """
    find("ssh")
    found: dict[str, tuple[str, Done] | Unreached] = {}
    workers = max(1, min(reach.parallel, len(hosts)))
    # the warden goes first: without their connections the threads end, and nobody waits until their time is over
    with ThreadPoolExecutor(max_workers=workers) as pool, Warden("fleet") as warden:
        running: dict[Future[tuple[str, Done]], FleetHost] = {
            pool.submit(_on, warden, number, host, reach, task, meet or ready_on): host
            for number, host in enumerate(hosts)
        }
        try:
            for ended in as_completed(running):
                host = running[ended]
                found[host.name] = one = _result(ended, host)
                state = f"failed: {one.because}" if isinstance(one, Unreached) else "done"
                say(f"{host.name}: {state} ({len(found)} of {len(hosts)})")
        except BaseException:
            pool.shutdown(wait=False, cancel_futures=True)
            raise
    return _told_apart(hosts, found)


def ask_document(
    hosts: Sequence[FleetHost],
    reach: FleetAccess,
    words: Sequence[str],
    *,
    schema: str,
    ok: tuple[int, ...] = (0,),
    say: Callable[[str], None] = lambda _: None,
) -> list[HostAnswer | Unreached]:
    """Ask the virtune of every host with these words, and return the document that each prints."""

    def task(ready: Ready) -> Mapping[str, Any]:
        command = [ready.virtune, *words]
        done = ready.connection.run(
            command, timeout_seconds=reach.timeout_seconds, most_bytes=DOCUMENT_MAX, ok=ok
        )  # fmt: skip
        return read_document(done.stdout, schema)

    return [
        one if isinstance(one, Unreached) else HostAnswer(host=one[0], calls_itself=one[1], document=one[2])
        for one in ask_each(hosts, reach, task, say=say)
    ]


def read_document(text: str, schema: str) -> Mapping[str, Any]:
    """Return a host's document. Raises HostError where it is not one of that schema."""
    try:
        with _READ:  # one at a time, whatever hosts print: what is made of a text is ten times as large
            found = read_json(text)
    except ValueError:
        raise HostError(f"what it printed is not the document {schema}") from None
    if not isinstance(found, dict) or found.get("schema") != schema:
        raise HostError(f"what it printed is not the document {schema}")
    return found


def _on(
    warden: Warden,
    number: int,
    host: FleetHost,
    reach: FleetAccess,
    task: Callable[[Ready], Done],
    meet: Callable[[Connection, FleetAccess], Ready],
) -> tuple[str, Done]:
    with connected(warden, host, name=f"h{number}", connect_seconds=reach.connect_seconds) as connection:
        ready = meet(connection, reach)
        return ready.calls_itself, task(ready)


def named_on(connection: Connection, reach: FleetAccess) -> Ready:  # noqa: ARG001 - as `ready_on`
    """Return a host by its own name, whatever virtune it has."""
    done = connection.run(["uname", "-n"], timeout_seconds=_SHORT_SECONDS, most_bytes=_SHORT_BYTES)
    return Ready(connection=connection, calls_itself=printable(done.stdout.strip(), most=100), virtune="")


def ready_on(connection: Connection, reach: FleetAccess) -> Ready:
    """Return a host whose virtune is the one that runs here. Raises OtherVersionError for any other."""

    def short(*command: str, most: int = 100) -> str:
        done = connection.run(command, timeout_seconds=_SHORT_SECONDS, most_bytes=_SHORT_BYTES)
        return printable(done.stdout.strip(), most=most)

    name, _, found = short("sh", "-c", _NAME_AND_PATH, "sh", reach.virtune, most=4500).partition(" ")
    program = found if found.startswith("/") else reach.virtune
    version = short(program, "--version").rpartition(" ")[2]
    if version != __version__:
        hint = "install the same version there: `virtune fleet install --upgrade`"
        raise OtherVersionError(f"has virtune {version}, and this is {__version__}", hint=hint)
    return Ready(connection=connection, calls_itself=name, virtune=program)


def _result(ended: "Future[tuple[str, Done]]", host: FleetHost) -> tuple[str, Done] | Unreached:
    try:
        return ended.result()
    except VirtuneError as error:
        return Unreached(host=host, because=error.message, hint=error.hint)


def _told_apart(hosts: Sequence[FleetHost], found: Mapping[str, tuple[str, Done] | Unreached]) -> list[Asked[Done]]:
    first: dict[str, str] = {}
    every: list[Asked[Done]] = []
    for host in hosts:
        one = found[host.name]
        if isinstance(one, Unreached):
            every.append(one)
            continue
        before = first.setdefault(one[0], host.name)
        if before == host.name:
            every.append((host, *one))
            continue
        because = f"calls itself {one[0]!r}, as {before} does: one host twice, or two hosts of one name"
        every.append(Unreached(host=host, because=because, hint="leave one out, or give it a hostname of its own"))
    return every
