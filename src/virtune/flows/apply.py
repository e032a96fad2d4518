# SPDX-License-Identifier: Apache-2.0
"""A change made to a user's domain, with a way back: journalled, checked, and undone on any failure."""

from dataclasses import dataclass
from datetime import datetime

from virtune.apply.journal import Entry, Journal, Step
from virtune.apply.libvirt import LibvirtDomain
from virtune.dialects.libvirt import read_domain
from virtune.dialects.libvirt_compare import dropped, foreign
from virtune.flows.advice import Advice
from virtune.flows.audit import unified
from virtune.model.domain import Turn
from virtune.model.errors import NotInForceError, PreconditionError, VirtuneError
from virtune.probe.virsh import Virsh

LIVE_KNOBS: frozenset[str] = frozenset(
    {
        "iothread.pin", "vcpu.pin", "emulator.pin", "iothread.poll_max_ns", "disk.throttle_iops", "disk.throttle_bps",
        "disk.throttle_iops_read", "disk.throttle_iops_write", "disk.throttle_bps_read", "disk.throttle_bps_write",
    }
)  # fmt: skip
"""Knobs that libvirt turns on a running domain; all others wait for a power-off."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Applied:
    """What was done: the journal's entry, what is in force now, what waits for a power-off."""

    entry: str
    now: tuple[Turn, ...]
    later: tuple[Turn, ...]
    running: bool


def apply(virsh: Virsh, uuid: str, advice: Advice, before: bytes, *, journal: Journal, when: datetime) -> Applied:
    """Change a domain as advised; `before` is the configuration that the advice was made from.

    Raises PreconditionError when somebody changed it since, NotInForceError when libvirt drops something of it, and
    VirtuneError when anything fails; the domain is then as it was, or the error says how to get there.
    """
    domain = LibvirtDomain(virsh, uuid)
    with journal.alone():
        dumped = domain.dump()
        if (dumped.inactive or "").encode() != before:
            raise PreconditionError("the domain was changed by somebody else while you looked; look again")
        live = tuple(turn for turn in advice.turns if turn.knob in LIVE_KNOBS) if dumped.live is not None else ()
        pairs = domain.live_pairs(live)
        now = tuple(turn for turn in live if domain.live_pairs([turn]))
        entry = journal.begin(
            name=when.strftime("%Y%m%d-%H%M%S"), uri=virsh.uri, uuid=uuid, domain=read_domain(before).name,
            turns=advice.turns, live=pairs, before=before, after=advice.after,
        )  # fmt: skip
        try:
            _make(domain, journal, entry)
            _require_shown(domain, now)
            journal.step(entry, Step.COMMITTED)
        except BaseException as error:
            _back(domain, journal, entry, error)
            raise
    later = tuple(turn for turn in advice.turns if turn not in now)
    return Applied(entry=entry.id, now=now, later=later, running=dumped.live is not None)


def undo(virsh: Virsh, entry: Entry, *, journal: Journal, anyway: bool) -> str:
    """Put a domain back as it was before a change; return what was done, in a sentence.

    Raises PreconditionError when the domain has been changed since by somebody else, unless `anyway`.
    """
    with journal.alone():
        entry = journal.read(entry.id)
        if Step.UNDONE in entry.steps:
            return f"{entry.domain} was put back before; nothing to do"
        domain = LibvirtDomain(virsh, entry.uuid)
        current = domain.configuration()
        _require_ours(entry, current, anyway=anyway)
        _restore(domain, journal, entry, current)
    return f"{entry.domain} is as it was before {entry.id}"


def changed_since(entry: Entry, current: bytes) -> str:
    """Say in what a domain differs from what virtune made of it, as a difference; empty when in nothing."""
    if current in (entry.before, entry.found):
        return ""
    if entry.found is None and not _strange(entry, current):
        return ""
    return unified(entry.found or entry.after, current, name=entry.domain)


def _strange(entry: Entry, current: bytes) -> bool:
    """Whether a domain that libvirt was just given is not that one; what libvirt dropped of ours does not count."""
    lost = set(dropped(before=entry.before, asked=entry.after, found=current))
    return bool(set(foreign(asked=entry.after, found=current)) - lost)


def _make(domain: LibvirtDomain, journal: Journal, entry: Entry) -> None:
    journal.step(entry, Step.DEFINING)
    found = domain.define(entry.after)
    journal.step(entry, Step.DEFINED, found=found)
    lost = dropped(before=entry.before, asked=entry.after, found=found)
    if lost:
        raise NotInForceError(
            f"this libvirt dropped what it was given: {'; '.join(lost)}",
            hint="a newer libvirt keeps it; R37 lists since when",
        )
    if entry.live:
        journal.step(entry, Step.LIVE)
    for do, _ in entry.live:
        domain.live(do)


def _require_shown(domain: LibvirtDomain, turns: tuple[Turn, ...]) -> None:
    for turn in turns:
        if not domain.shows(turn):
            raise NotInForceError(f"{turn.knob}={turn.value} was set on the running domain and is not in force")


def _restore(domain: LibvirtDomain, journal: Journal, entry: Entry, current: bytes) -> None:
    journal.step(entry, Step.UNDOING)
    if Step.LIVE in entry.steps and domain.dump().live is not None:
        for _, back in reversed(entry.live):
            domain.live(back)
    if current != entry.before:
        found = domain.define(entry.before)
        if found != entry.before:
            raise VirtuneError(
                f"{entry.domain} was put back, and libvirt writes it differently now: "
                f"{'; '.join(foreign(asked=entry.before, found=found)) or 'in order only'}"
            )
    journal.step(entry, Step.UNDONE)


def _require_ours(entry: Entry, current: bytes, *, anyway: bool) -> None:
    difference = changed_since(entry, current)
    if difference and not anyway:
        raise PreconditionError(
            f"{entry.domain} has been changed since by somebody else, and undoing would take that away too",
            hint=f"`virtune undo {entry.id} --show` shows how; `--anyway` puts back what was before all the same",
        )


def _back(domain: LibvirtDomain, journal: Journal, entry: Entry, error: BaseException) -> None:
    """Undo after a failure; when that fails too, the error says what is left to do."""
    try:
        entry = journal.read(entry.id)
        current = domain.configuration()
        if not changed_since(entry, current):
            _restore(domain, journal, entry, current)
            return
    except VirtuneError:
        pass  # libvirt may be gone altogether, which is why we are here; the journal has all that is needed
    if isinstance(error, VirtuneError):
        error.hint = f"the domain may be half changed: `virtune undo {entry.id}` puts it back"
