# SPDX-License-Identifier: Apache-2.0
"""Many hosts: named by inventories, and asked at once, the virtune of each for a document."""

import contextlib
import re
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor, as_completed
from dataclasses import dataclass, replace
from pathlib import Path
from threading import Lock
from typing import Any, TypeVar

from pydantic import TypeAdapter, ValidationError

from virtune import __version__
from virtune.advise.audit import rules
from virtune.bounded import read_json, read_up_to
from virtune.fleet.inventory import chosen, is_ssh_config, read_inventory
from virtune.fleet.reach import Connection, connected, require_programs
from virtune.fleet.ssh import CONNECT_SECONDS, HostError, address_of
from virtune.model.errors import UsageError, VirtuneError, words_of
from virtune.model.finding import Audited, Finding, NotLookedAt, Rule, Seen, Unread
from virtune.model.fleet import Address, FleetHost, HostAnswer, HostAudit, Unreached
from virtune.model.knob import Change, Risk
from virtune.model.text import printable
from virtune.shell import Warden, find_ansible, run

DOCUMENT_MAX = 32 * 1024**2
"""The largest document of a host: an audit of 1,000 VMs has about 10 MB."""

_READ = Lock()

_SHORT = {"timeout_seconds": 60.0, "most_bytes": 64 * 1024}
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
One = TypeVar("One")

Asked = HostAnswer[Done] | Unreached
"""What a task gave on a host, or why it gave nothing."""


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
    access: FleetAccess

    @property
    def name(self) -> str:
        """The host's name in the inventory."""
        return self.connection.host.name

    def asked(self, *words: str, **limits: Any) -> str:
        """Return what its virtune prints when it is called with these words. Raises HostError."""
        return self.answered([self.virtune, *words], **limits)

    def document(self, schema: str, *words: str, ok: tuple[int, ...] = (0,)) -> Mapping[str, Any]:
        """Return the document of a schema that its virtune prints then. Raises HostError."""
        return read_document(self.asked(*words, ok=ok), schema)

    def answered(self, command: Sequence[str], **limits: Any) -> str:
        """Return what a command prints there; the limits are those of `Connection.run`. Raises HostError."""
        usual = {"timeout_seconds": self.access.timeout_seconds, "most_bytes": DOCUMENT_MAX}
        return self.connection.run(command, **{**usual, **limits}).stdout


def ask_each(
    hosts: Sequence[FleetHost],
    reach: FleetAccess,
    task: Callable[[Ready], Done],
    *,
    say: Callable[[str], None] = lambda _: None,
    same: bool = True,
) -> list[Asked[Done]]:
    """Do a task on every host and return what each gave, in the order of the hosts; a failure concerns its host only.
    The `same` virtune must be there.

    A host that calls itself as an earlier one does is a failure: what the two give could not be told apart.
    """
    require_programs(hosts)
    found: dict[str, Asked[Done]] = {}
    with threads(max(1, min(reach.parallel, len(hosts)))) as (pool, warden):

        def work(number: int, host: FleetHost) -> Asked[Done]:
            try:
                with (reached if same else met)(warden, host, reach, name=f"h{number}") as ready:
                    return HostAnswer(host=host, calls_itself=ready.calls_itself, said=task(ready))
            except VirtuneError as error:
                return Unreached(host=host, because=error.message, hint=error.hint)

        running = [pool.submit(work, number, host) for number, host in enumerate(hosts)]
        for ended in as_completed(running):
            one = ended.result()
            found[one.host.name] = one
            state = f"failed: {one.because}" if isinstance(one, Unreached) else "done"
            say(f"{one.host.name}: {state} ({len(found)} of {len(hosts)})")
    first: dict[str, str] = {}
    for host in hosts:
        one = found[host.name]
        if not isinstance(one, Unreached) and (before := first.setdefault(one.calls_itself, host.name)) != host.name:
            because = f"calls itself {one.calls_itself!r}, as {before} does: one host twice, or two hosts of one name"
            hint = "leave one out, or give it a hostname of its own"
            found[host.name] = Unreached(host=host, because=because, hint=hint)
    return [found[host.name] for host in hosts]


@contextlib.contextmanager
def threads(most: int) -> Iterator[tuple[ThreadPoolExecutor, Warden]]:
    """Give threads, and the warden of what they start. It goes first: without their connections the threads end, and
    nobody waits until their time is over. After an error nothing more begins.
    """
    with ThreadPoolExecutor(max_workers=most) as pool, Warden("fleet") as warden:
        try:
            yield pool, warden
        except BaseException:
            pool.shutdown(wait=False, cancel_futures=True)
            raise


def parted(found: Iterable[One | Unreached]) -> tuple[list[One], list[Unreached]]:
    """Return what hosts gave, and the hosts that gave nothing."""
    every = list(found)
    lost = [one for one in every if isinstance(one, Unreached)]
    return [one for one in every if not isinstance(one, Unreached)], lost


def read_document(text: str, schema: str) -> Mapping[str, Any]:
    """Return a host's document. Raises HostError where it is not one of that schema."""
    # one at a time, whatever hosts print: what is made of a text is ten times as large
    with _READ, contextlib.suppress(ValueError):
        found = read_json(text)
        if isinstance(found, dict) and found.get("schema") == schema:
            return found
    raise HostError(f"what it printed is not the document {schema}")


@contextlib.contextmanager
def met(warden: Warden, host: FleetHost, reach: FleetAccess, *, name: str) -> Iterator[Ready]:
    """Connect to a host until the end of the block, whichever virtune is there; no Python runs on it for that."""
    with connected(warden, host, name=name, connect_seconds=reach.connect_seconds) as connection:
        ready = Ready(connection=connection, calls_itself="", virtune=reach.virtune, access=reach)
        asked = ["sh", "-c", _NAME_AND_PATH, "sh", reach.virtune]
        itself, _, found = printable(ready.answered(asked, **_SHORT).strip(), most=4500).partition(" ")
        yield replace(ready, calls_itself=itself, virtune=found if found.startswith("/") else reach.virtune)


@contextlib.contextmanager
def reached(warden: Warden, host: FleetHost, reach: FleetAccess, *, name: str) -> Iterator[Ready]:
    """Connect to a host whose virtune is the one that runs here, until the end of the block; `name` is as that of
    `connected`. Raises OtherVersionError for any other.
    """
    with met(warden, host, reach, name=name) as ready:
        said = printable(ready.answered([ready.virtune, "--version"], **_SHORT).strip(), most=100)
        if (version := said.rpartition(" ")[2]) != __version__:
            hint = "install the same version there: `virtune fleet install --upgrade`"
            raise OtherVersionError(f"has virtune {version}, and this is {__version__}", hint=hint)
        yield ready


BYTES_MAX = 16 * 1024**2
"""The largest inventory: 5,000 hosts with 3 kB of variables each."""

_ANSIBLE_SECONDS = 120.0
"""A plugin of Ansible may ask a cloud for all its hosts."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Fleet:
    """What the user named: files, Ansible sources, libvirt URIs, an ssh_config for all, and which hosts of them.

    `vault` are the options by which Ansible opens its vaults.
    """

    files: Sequence[Path] = ()
    ansible: Sequence[str] = ()
    libvirt: Sequence[str] = ()
    ssh_config: Path | None = None
    names: Sequence[str] = ()
    labels: Sequence[str] = ()
    vault: Sequence[str] = ()


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
    def named(text: str, source: str, config: Path | None = fleet.ssh_config) -> Iterator[FleetHost]:
        mine = None if config is None else str(config.absolute())
        yield from (replace(host, config=mine) for host in read_inventory(text, source=source))

    for path in files:
        text = _text_of(path)
        yield from named(text, str(path), path if is_ssh_config(text) else fleet.ssh_config)
    if fleet.libvirt:
        yield from named("\n".join(fleet.libvirt), "--libvirt")
    for source in fleet.ansible:
        listed = [find_ansible("ansible-inventory"), "-i", source, "--list", *fleet.vault]
        printed = run(listed, timeout_seconds=_ANSIBLE_SECONDS, locale="C.UTF-8")  # it refuses every other encoding
        yield from (replace(host, of_ansible=True) for host in named(printed.stdout, source))


def _text_of(path: Path) -> str:
    try:
        content = read_up_to(path, BYTES_MAX + 1)
    except OSError as error:
        hint = "name a file with a host a line, or an ssh_config"
        raise UsageError(f"cannot read the inventory {path}: {words_of(error)}", hint=hint) from None
    if len(content) > BYTES_MAX:
        raise UsageError(f"the inventory {path} has more than {BYTES_MAX // 1024**2} MiB")
    try:
        return content.decode("utf-8-sig")  # as Windows writes it
    except UnicodeDecodeError:
        raise UsageError(f"the inventory {path} is not text in UTF-8") from None


def addressed(hosts: Sequence[FleetHost]) -> Iterator[tuple[FleetHost, Address]]:
    """Yield each host with where ssh would connect to, if it reaches it; nothing is connected to."""
    for host in hosts:
        yield host, address_of(host) if host.way == "ssh" else Address(user="", host="", port=0)


@dataclass(frozen=True, slots=True, kw_only=True)
class _Finding:
    """A finding as `virtune audit --json` writes it, as far as a fleet shows it; so are the two below."""

    rule: str
    at: str
    line: int
    seen: str
    advice: str
    risk: Risk
    takes: Change | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class _Domain:
    """A domain with its findings."""

    origin: str
    domain: str
    findings: tuple[_Finding, ...]
    not_looked_at: tuple[NotLookedAt, ...]
    uuid: str | None = None
    not_audited: str | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class _Audit:
    """The audit of a host."""

    domains: tuple[_Domain, ...]
    unread: tuple[Unread, ...]


def audits_of(answers: Sequence[Asked[Mapping[str, Any]]]) -> tuple[list[HostAudit], list[Unreached]]:
    """Return the audit of every host, and the hosts that gave none; a document that is not one is such a host's."""
    known = {rule.id: rule for rule in rules()}
    return parted(one if isinstance(one, Unreached) else _audit(one, known) for one in answers)


def _audit(answer: HostAnswer[Mapping[str, Any]], known: Mapping[str, Rule]) -> HostAudit | Unreached:
    name = answer.host.name
    try:
        found = TypeAdapter(_Audit).validate_python(answer.said)
        audited = tuple(_audited(one, name, known) for one in found.domains)
    except ValidationError as error:
        where = ".".join(map(str, error.errors()[0]["loc"]))
        return Unreached(host=answer.host, because=f"its audit has nothing that this virtune understands at {where}")
    except KeyError:
        return Unreached(host=answer.host, because="its audit has a finding that this virtune does not know")
    unread = tuple(replace(one, origin=f"{name}: {one.origin}") for one in found.unread)
    return HostAudit(host=answer.host, calls_itself=answer.calls_itself, audited=audited, unread=unread)


def _audited(one: _Domain, host: str, known: Mapping[str, Rule]) -> Audited:
    """Return a domain of a host, named `HOST/VM`. Raises KeyError for a rule that is not known here."""
    findings = (
        Finding(rule=known[found.rule], domain=f"{host}/{one.domain}", uuid=one.uuid, at=found.at, line=found.line,
                seen=Seen(seen=found.seen, advice=found.advice), takes=found.takes, risk=found.risk)
        for found in one.findings
    )  # fmt: skip
    return Audited(
        origin=f"{host}: {one.origin}",
        domain=f"{host}/{one.domain}",
        uuid=one.uuid,
        findings=tuple(findings),
        not_audited=one.not_audited or "",
        not_looked_at=one.not_looked_at,
    )
