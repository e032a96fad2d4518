# SPDX-License-Identifier: Apache-2.0
"""Many hosts: named by inventories, and asked at once, the virtune of each for a document."""

import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import Future, ThreadPoolExecutor, as_completed
from dataclasses import dataclass, replace
from pathlib import Path
from threading import Lock
from typing import Any, TypeVar

from virtune import __version__
from virtune.advise.audit import rules
from virtune.bounded import read_json, read_up_to
from virtune.fleet.inventory import chosen, is_ssh_config, read_inventory
from virtune.fleet.ssh import CONNECT_SECONDS, Connection, HostError, address_of, connected
from virtune.model.errors import UsageError, VirtuneError
from virtune.model.finding import Audited, Finding, NotLookedAt, Rule, Seen, Unread
from virtune.model.fleet import Address, FleetHost, HostAnswer, HostAudit, Unreached
from virtune.model.knob import Change, Risk
from virtune.model.text import printable
from virtune.shell import Warden, find, run

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


BYTES_MAX = 16 * 1024**2
"""The largest inventory: 5,000 hosts with 3 kB of variables each."""

_ANSIBLE_SECONDS = 120.0
"""A plugin of Ansible may ask a cloud for all its hosts."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Fleet:
    """What the user named: files, Ansible sources, libvirt URIs, an ssh_config for all, and which hosts of them."""

    files: Sequence[Path] = ()
    ansible: Sequence[str] = ()
    libvirt: Sequence[str] = ()
    ssh_config: Path | None = None
    names: Sequence[str] = ()
    labels: Sequence[str] = ()


def hosts_of(fleet: Fleet) -> tuple[FleetHost, ...]:
    """Return the chosen hosts of a fleet. Raises UsageError with one sentence for what is no inventory."""
    others = [*fleet.ansible, *fleet.libvirt]
    files = fleet.files or ([fleet.ssh_config] if fleet.ssh_config and not others else [])
    if not files and not others:
        raise UsageError("no inventory", hint="`--inventory FILE` names a file with a host a line, or an ssh_config")
    every: dict[str, FleetHost] = {}
    for host in _all(fleet, files):
        if host.name in every:
            raise UsageError(f"two inventories name the host {host.name!r}", hint="give each host one name")
        every[host.name] = host
    return chosen(every.values(), names=fleet.names, labels=fleet.labels)


def _all(fleet: Fleet, files: Sequence[Path]) -> Iterator[FleetHost]:
    given = None if fleet.ssh_config is None else str(fleet.ssh_config.absolute())
    for path in files:
        text = _text_of(path)
        config = str(path.absolute()) if is_ssh_config(text) else given
        yield from (replace(host, config=config) for host in read_inventory(text, source=str(path)))
    if fleet.libvirt:
        named = read_inventory("\n".join(fleet.libvirt), source="--libvirt")
        yield from (replace(host, config=given) for host in named)
    for source in fleet.ansible:
        listed = [find("ansible-inventory"), "-i", source, "--list"]
        printed = run(listed, timeout_seconds=_ANSIBLE_SECONDS, locale="C.UTF-8")  # it refuses every other encoding
        yield from (replace(host, config=given) for host in read_inventory(printed.stdout, source=source))


def _text_of(path: Path) -> str:
    try:
        content = read_up_to(path, BYTES_MAX + 1)
    except OSError as error:
        why = (error.strerror or str(error)).lower()
        hint = "name a file with a host a line, or an ssh_config"
        raise UsageError(f"cannot read the inventory {path}: {why}", hint=hint) from None
    if len(content) > BYTES_MAX:
        raise UsageError(f"the inventory {path} has more than {BYTES_MAX // 1024**2} MiB")
    try:
        return content.decode()
    except UnicodeDecodeError:
        raise UsageError(f"the inventory {path} is not text in UTF-8") from None


def addressed(hosts: Sequence[FleetHost]) -> Iterator[tuple[FleetHost, Address]]:
    """Yield each host with where ssh would connect to; nothing is connected to."""
    for host in hosts:
        yield host, address_of(host)


def audits_of(answers: Sequence[HostAnswer | Unreached]) -> tuple[list[HostAudit], list[Unreached]]:
    """Return the audit of every host, and the hosts that gave none; a document that is not one is such a host's."""
    known = {rule.id: rule for rule in rules()}
    audits: list[HostAudit] = []
    lost: list[Unreached] = []
    for one in answers:
        if isinstance(one, Unreached):
            lost.append(one)
            continue
        try:
            audits.append(_audit(one, known))
        except VirtuneError as error:
            lost.append(Unreached(host=one.host, because=error.message, hint=error.hint))
    return audits, lost


def _audit(answer: HostAnswer, known: Mapping[str, Rule]) -> HostAudit:
    name = answer.host.name
    audited = tuple(_audited(one, name, known) for one in _rows(answer.document, "domains"))
    unread = tuple(
        Unread(origin=f"{name}: {_text(one, 'origin')}", because=_text(one, "because"))
        for one in _rows(answer.document, "unread")
    )
    return HostAudit(host=answer.host, calls_itself=answer.calls_itself, audited=audited, unread=unread)


def _audited(one: Mapping[str, Any], host: str, known: Mapping[str, Rule]) -> Audited:
    uuid = None if one.get("uuid") is None else _text(one, "uuid")
    domain = _text(one, "domain")
    findings = tuple(_findings(one, f"{host}/{domain}", uuid, known))
    lacked = (
        NotLookedAt(unknown=_text(row, "unknown"), rules=_ids(row.get("rules")))
        for row in _rows(one, "not_looked_at")
    )
    return Audited(
        origin=f"{host}: {_text(one, 'origin')}",
        domain=f"{host}/{domain}",
        uuid=uuid,
        findings=findings,
        not_audited="" if one.get("not_audited") is None else _text(one, "not_audited"),
        not_looked_at=tuple(lacked),
    )


def _ids(found: Any) -> tuple[str, ...]:
    if not isinstance(found, list) or not all(isinstance(one, str) for one in found):
        raise HostError("its audit has no list of rules")
    return tuple(found)


def _findings(one: Mapping[str, Any], domain: str, uuid: str | None, known: Mapping[str, Rule]) -> Iterator[Finding]:
    for found in _rows(one, "findings"):
        rule = known.get(_text(found, "rule"))
        line = found.get("line")
        if rule is None or not isinstance(line, int):
            raise HostError("its audit has a finding that this virtune does not know")
        takes = found.get("takes")
        try:
            change, risk = None if takes is None else Change(takes), Risk(_text(found, "risk"))
        except ValueError:
            raise HostError("its audit has a finding that this virtune does not know") from None
        yield Finding(
            rule=rule,
            domain=domain,
            uuid=uuid,
            at=_text(found, "at"),
            line=line,
            seen=Seen(seen=_text(found, "seen"), advice=_text(found, "advice")),
            takes=change,
            risk=risk,
        )


def _rows(table: Mapping[str, Any], key: str) -> list[Mapping[str, Any]]:
    found = table.get(key)
    if not isinstance(found, list) or not all(isinstance(one, dict) for one in found):
        raise HostError(f"its audit has no list of {key}")
    return found


def _text(table: Mapping[str, Any], key: str) -> str:
    found = table.get(key)
    if not isinstance(found, str):
        raise HostError(f"its audit has no text for {key}")
    return found
