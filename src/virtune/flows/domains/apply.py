# SPDX-License-Identifier: Apache-2.0
"""Change an existing domain reversibly: journalled first, checked after, undone on any failure."""

import contextlib
from dataclasses import dataclass, replace
from datetime import datetime

from virtune.apply.journal import Entry, Journal, Restart, Step
from virtune.apply.libvirt import LibvirtDomain, StillPluggedError, StillRunningError
from virtune.dialects.libvirt.alter import dropped, foreign
from virtune.dialects.libvirt.domain import read_domain
from virtune.flows.domains.advise import Advice
from virtune.flows.domains.difference import unified
from virtune.flows.domains.replug import plugs_of, replug, return_plugs
from virtune.flows.domains.restart import require_restartable, return_to_running, run_anew
from virtune.model.domain import LIVE_KNOBS, SettingChange
from virtune.model.errors import NotInForceError, PreconditionError, VirtuneError
from virtune.model.knob import Change
from virtune.virsh import Virsh


@dataclass(frozen=True, slots=True, kw_only=True)
class Means:
    """The disruptions allowed for a running domain: a restart, or exchanging disks."""

    restart: Restart | None = None
    replug: tuple[str, ...] = ()
    replug_seconds: float = 60.0


@dataclass(frozen=True, slots=True, kw_only=True)
class Applied:
    """What was done: the journal's entry, the changes that are active now, those that wait for a power-off."""

    entry: str
    now: tuple[SettingChange, ...]
    later: tuple[SettingChange, ...]
    running: bool
    restarted: bool


@dataclass(frozen=True, slots=True, kw_only=True)
class Back:
    """How far undoing may go: the effects of a finished change on a running domain are undone only on request.

    `asked_now`: the guest did not shut down in time. `pending`: the guest may still obey an earlier request, so the
    change stays open.
    """

    force_off: bool = False
    restart: bool = False
    replug: bool = False
    replug_seconds: float = 60.0
    asked_now: bool = False
    pending: bool = False


NO_MEANS, GENTLY = Means(), Back()


def apply(
    virsh: Virsh,
    uuid: str,
    advice: Advice,
    before: bytes,
    *,
    journal: Journal,
    when: datetime,
    means: Means = NO_MEANS,
) -> Applied:
    """Change a domain as advised; `before` is the configuration on which the advice is based.

    Raises PreconditionError when it was changed since, NotInForceError when libvirt drops a setting, and VirtuneError
    when anything fails; the domain is then restored, or the error says how to restore it.
    """
    domain = LibvirtDomain(virsh, uuid)
    with journal.alone():
        dumped = domain.dump()
        if (dumped.inactive or "").encode() != before:
            raise PreconditionError("the domain was changed by somebody else while you looked; look again")
        running = dumped.live is not None
        restart = means.restart if running else None
        if restart is not None:
            require_restartable(virsh, dumped, restart)
        plugs = plugs_of(virsh, dumped, advice.after, advice.turns, means.replug) if means.replug else ()
        live = tuple(turn for turn in advice.turns if turn.knob in LIVE_KNOBS) if running and not restart else ()
        pairs = domain.live_pairs(live)
        entry = journal.begin(
            name=when.strftime("%Y%m%d-%H%M%S"), uri=virsh.uri, uuid=uuid, domain=read_domain(before).name,
            turns=advice.turns, live=[pair for _, pair in pairs], before=before, after=advice.after, plugs=plugs,
            restart=restart,
        )  # fmt: skip
        try:
            _make(domain, journal, entry)
            _require_shown(domain, tuple(dict.fromkeys(turn for turn, _ in pairs)))
            if plugs:
                journal.step(entry, Step.PLUGGING)
                replug(virsh, entry, means.replug_seconds)
            if restart is not None:
                run_anew(virsh, journal, entry, restart)
            journal.step(entry, Step.COMMITTED)
        except BaseException as error:
            _back(virsh, journal, entry, error)
            raise
    done = {turn for turn, _ in pairs}
    targets = {plug.target for plug in plugs}
    now = tuple(turn for turn in advice.turns if restart or turn in done or turn.at in targets)
    later = tuple(turn for turn in advice.turns if turn not in now)
    return Applied(entry=entry.id, now=now, later=later, running=running, restarted=restart is not None)


def ways_of(advice: Advice, means: Means, *, running: bool) -> tuple[str, ...]:
    """Say how `apply` makes each change effective on a running VM: live, by replug, restart or power-off."""
    said = []
    for turn, (takes, _) in zip(advice.turns, advice.effects, strict=True):
        if not running:
            said.append(takes.value)
        elif means.restart is not None:
            said.append("restart")
        elif takes is Change.LIVE:
            said.append(takes.value)
        else:
            said.append("replug" if turn.at in means.replug else "power-off")
    return tuple(said)


def undo(virsh: Virsh, entry: Entry, *, journal: Journal, anyway: bool, back: Back = GENTLY) -> str:
    """Restore a domain to its state before a change; return what was done, in a sentence.

    Raises PreconditionError when the domain has been changed since by others, unless `anyway`.
    """
    with journal.alone():
        entry = journal.read(entry.id)
        if Step.UNDONE in entry.steps:
            return f"{entry.domain} was put back before; nothing to do"
        domain = LibvirtDomain(virsh, entry.uuid)
        current = domain.configuration()
        _require_ours(entry, current, anyway=anyway)
        said = _restore(virsh, journal, entry, current, back)
    return f"{entry.domain} is as it was before {entry.id}{said and '; '}{said}"


def changed_since(entry: Entry, current: bytes) -> str:
    """Return the diff between a domain and virtune's version of it; empty if there is none."""
    if current in (entry.before, entry.found):
        return ""
    if entry.found is None and not _strange(entry, current):
        return ""
    return unified(entry.found or entry.after, current, name=entry.domain)


def _strange(entry: Entry, current: bytes) -> bool:
    """Whether a domain differs from the one just given to libvirt; settings that libvirt dropped do not count."""
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


def _require_shown(domain: LibvirtDomain, turns: tuple[SettingChange, ...]) -> None:
    for turn in turns:
        if not domain.shows(turn):
            raise NotInForceError(
                f"{turn.knob}={turn.value} was set on the running domain, and libvirt does not show it"
            )


def _restore(virsh: Virsh, journal: Journal, entry: Entry, current: bytes, back: Back) -> str:
    """Restore everything; the effects of a finished change on the running domain are undone only on request.

    Returns further notes.
    """
    domain = LibvirtDomain(virsh, entry.uuid)
    with contextlib.suppress(VirtuneError):  # even on a full disk it is restored; the entry is open already
        journal.step(entry, Step.UNDOING)
    cut_short = Step.COMMITTED not in entry.steps
    running, said = domain.dump().live is not None, ""
    if current != entry.before:
        found = domain.define(entry.before)
        if found != entry.before:
            raise VirtuneError(
                f"{entry.domain} was put back, and libvirt writes it differently now: "
                f"{'; '.join(foreign(asked=entry.before, found=found)) or 'in order only'}"
            )
    if running and entry.plugs and not (cut_short or back.replug):
        said = "the disks that were replugged stay so until it is powered off and on, or `--replug` is added"
    elif running:
        if Step.PLUGGING in entry.steps:
            return_plugs(virsh, entry, back.replug_seconds, again=not cut_short)
        for _, words in reversed(entry.live if Step.LIVE in entry.steps else ()):
            domain.live(words)
    if entry.restart is not None and Step.STOPPING in entry.steps:
        # permission to destroy the guest was given for a failed change, not for a later undo
        how = replace(entry.restart, force_off=(cut_short and entry.restart.force_off) or back.force_off)
        if cut_short or back.restart:
            said = return_to_running(virsh, journal, entry, how, asked_now=back.asked_now)
        elif running:
            said = "it runs as changed until it is powered off and on, or `--restart` is added"
    if not back.pending:
        journal.step(entry, Step.UNDONE)
    return said


def _require_ours(entry: Entry, current: bytes, *, anyway: bool) -> None:
    difference = changed_since(entry, current)
    if difference and not anyway:
        raise PreconditionError(
            f"{entry.domain} has been changed since by somebody else, and undoing would take that away too",
            hint=f"`virtune undo {entry.id} --show` shows how; `--anyway` puts back what was before all the same",
        )


def _back(virsh: Virsh, journal: Journal, entry: Entry, error: BaseException) -> None:
    """Undo after a failure; the error reports the outcome, and what is left to do when undoing failed too."""
    own = f"{error.hint}; " if isinstance(error, VirtuneError) and error.hint else ""
    hint = f"the domain may be half changed: `virtune undo {entry.id}` puts it back"
    pending = isinstance(error, StillPluggedError)
    try:
        entry = journal.read(entry.id)
        current = LibvirtDomain(virsh, entry.uuid).configuration()
        if not changed_since(entry, current):
            back = Back(asked_now=isinstance(error, StillRunningError), pending=pending)
            said = _restore(virsh, journal, entry, current, back)
            hint = f"{own}{entry.domain} is as it was before{said and '; '}{said}"
            if pending:
                hint = f"`virtune undo {entry.id}` plugs it in as it was, should the guest let go of it later"
    except VirtuneError as failure:
        # libvirt itself may be gone, which may be the failure; the journal has everything needed
        if Step.STOPPING in entry.steps and failure.hint:
            hint = f"{failure.message}: {failure.hint}"
    if isinstance(error, VirtuneError):
        error.hint = hint
