# SPDX-License-Identifier: Apache-2.0
"""Change an existing domain reversibly: journalled first, checked after, undone on any failure.

A power cycle may be part of a change: shut down, start with the new configuration, verify it, check the guest's
health. So may an exchange of disks while it runs.
"""

import contextlib
from collections.abc import Sequence
from dataclasses import dataclass, replace
from datetime import datetime

from virtune.advise.audit import audit, rules
from virtune.advise.placement import differences
from virtune.apply import libvirt
from virtune.apply.health import read_sign, require_tellable, wait_until_well
from virtune.apply.journal import Entry, Journal, Plug, Restart, Step
from virtune.dialects.libvirt.alter import dropped, foreign, unmet
from virtune.dialects.libvirt.domain import after_power_off, disk_text, plugged_counts, read_domain
from virtune.flows.domains.domains import surroundings, unified
from virtune.model.domain import LIVE_KNOBS, DomainDisk, SettingChange
from virtune.model.errors import NotInForceError, PreconditionError, VirtuneError
from virtune.model.finding import Advice
from virtune.model.knob import Change
from virtune.model.knobs import find
from virtune.virsh import DumpedDomain, Virsh

IN_FORCE = ("R13", "R80", "R81")
"""The rules that compare the running VM with its configuration."""


def require_restartable(virsh: Virsh, dumped: DumpedDomain, restart: Restart) -> None:
    """Raise PreconditionError for a domain whose power cycle would do more than activate the change, or could not be
    checked.
    """
    live, inactive = (dumped.live or "").encode(), (dumped.inactive or "").encode()
    if dumped.state != "running":
        raise PreconditionError(f"the domain is {dumped.state}, and only one that runs can be seen to come back")
    for text in (live, inactive):
        if (action := after_power_off(text)) != "destroy":
            raise PreconditionError(
                f"its <on_poweroff> is {action}: a guest that powers itself off is not off",
                hint="`virsh edit` it to destroy, or leave --restart out",
            )
    waiting = _waiting(live, inactive)
    if waiting:
        raise PreconditionError(
            f"it does not run as it is configured, and a restart would change that too: {waiting}",
            hint="power it off and on first, when it suits",
        )
    require_tellable(virsh, dumped.uuid, tuple(map(read_sign, restart.healthy)), live)


def run_anew(virsh: Virsh, journal: Journal, entry: Entry, how: Restart) -> None:
    """Restart a running domain; raises when it does not shut down, start, run as configured, or become healthy."""
    power = libvirt.Power(virsh, entry.uuid)
    journal.step(entry, Step.STOPPING)
    power.shut_down(how.timeout_seconds, force_off=how.force_off)
    journal.step(entry, Step.STARTING)
    power.start_paused()
    # the present names of its disks: another bus gives another name
    disks = zip(read_domain(entry.before).disks, read_domain(entry.after).disks, strict=True)
    names = {old.target: new.target for old, new in disks}
    require_in_force(virsh, entry.uuid, [replace(turn, at=names.get(turn.at, turn.at)) for turn in entry.turns])

    def resume() -> None:
        journal.step(entry, Step.RESUMING)
        power.resume()

    wait_until_well(virsh, entry.uuid, tuple(map(read_sign, how.healthy)), resume, how.timeout_seconds)


def return_to_running(virsh: Virsh, journal: Journal, entry: Entry, how: Restart, *, asked_now: bool) -> str:
    """Bring a domain back to running after a failed or interrupted restart, with its old configuration defined.

    `asked_now`: it did not shut down in time just now. Returns notes on the outcome. Raises VirtuneError for a guest
    that would have to be destroyed without permission.
    """
    power = libvirt.Power(virsh, entry.uuid)
    began = Step.STARTING in entry.steps
    if Step.RETURNING in entry.steps and not power.is_off():
        power.resume()
        return "it runs as it did"
    if not power.is_off() and not began and (asked_now or not power.wait_until_off(how.timeout_seconds)):
        return "it was asked to shut down and still runs, as it did; it may still obey"
    if not power.is_off() and power.never_ran():  # it has nothing to lose
        power.pull_the_plug()
    elif not power.is_off():
        try:
            power.shut_down(how.timeout_seconds, force_off=how.force_off)
        except libvirt.StillRunningError as error:
            raise libvirt.StillRunningError(
                f"{entry.domain} has its old configuration for the next start, and still runs with the new one: "
                f"{error.message}",
                hint=f"`virtune apply undo {entry.id} --force-off` pulls the plug, and starts it as it was",
            ) from None
    journal.step(entry, Step.RETURNING)
    power.start_paused()
    try:
        signs = tuple(map(read_sign, how.healthy))
        wait_until_well(virsh, entry.uuid, signs, power.resume, how.timeout_seconds)
    except VirtuneError as error:
        return f"it was started as it was before, and even so: {error.message}"
    return "it was started as it was before, and is well"


def require_in_force(virsh: Virsh, uuid: str, turns: Sequence[SettingChange], only: Sequence[str] = ()) -> None:
    """Raise NotInForceError where a running domain differs from the request, by its XML or by its process.

    `only` are the disks that are checked; all of them if empty.
    """
    dumped = libvirt.LibvirtDomain(virsh, uuid).dump()
    said = [f"{turn.knob}={turn.value or ''}" for turn in unmet((dumped.live or "").encode(), turns)]
    asked = tuple(rule for rule in rules() if rule.id in IN_FORCE)
    findings = audit(surroundings(virsh, dumped).subject, asked)
    said += [f"{one.at}: {one.seen.seen} ({one.rule.id})" for one in findings if not only or one.at in only]
    if said:
        raise NotInForceError(f"the running VM does not have what was asked for: {'; '.join(said)}")


def _waiting(live: bytes, inactive: bytes) -> str:
    now, then = read_domain(live), read_domain(inactive)
    said = []
    for disk in then.disks:
        one = now.disk(disk.target)
        found = differences(disk, one) if one is not None else ()
        if found:
            said.append(f"{disk.target}: {'; '.join(found)}")
        elif one is not None and disk.holds_data and another_image(disk, one):
            said.append(f"{disk.target}: it runs on {one.source.name}, and is configured with {disk.source.name}")
    alone = {disk.target for disk in now.disks} ^ {disk.target for disk in then.disks}
    said += [f"{target} is in one of them only" for target in sorted(alone)]
    there, later = plugged_counts(live), plugged_counts(inactive)
    said += [f"{there[tag]} of <{tag}> now, {later[tag]} after" for tag in there if there[tag] != later[tag]]
    return "; ".join(said)


def another_image(next_start: DomainDisk, live: DomainDisk) -> bool:
    """Whether a disk would have another image after a power-off; a pool's volume may be shown as its file."""
    return next_start.source.kind == live.source.kind and next_start.source != live.source


def plugs_of(
    virsh: Virsh, dumped: DumpedDomain, after: bytes, turns: Sequence[SettingChange], targets: Sequence[str]
) -> tuple[Plug, ...]:
    """Return these disks' exchanges; raises PreconditionError for one that must not or need not be exchanged."""
    live, before = (dumped.live or "").encode(), (dumped.inactive or "").encode()
    if dumped.state != "running":
        raise PreconditionError(f"the domain is {dumped.state}: there is nothing to replug")
    found = []
    for target in dict.fromkeys(targets):
        libvirt.require_spare(virsh, dumped.uuid, live, target)
        here = [turn for turn in turns if turn.at == target]
        if not here:
            raise PreconditionError(f"nothing of {target} is changed, so it is not replugged")
        for turn in here:
            if find(turn.knob).change in (Change.POWEROFF, Change.OFFLINE):
                raise PreconditionError(f"{turn.knob} of {target} takes a power-off, which no replug replaces")
        now, then = read_domain(live).disk(target), read_domain(before).disk(target)
        waiting = differences(then, now) if now is not None and then is not None else ["it is not configured"]
        if now is not None and then is not None and another_image(then, now):
            waiting = [f"it runs on {now.source.name}"]
        if waiting:
            raise PreconditionError(f"{target} does not run as it is configured: {'; '.join(waiting)}")
        found.append(Plug(target=target, old=disk_text(live, target), new=disk_text(after, target)))
    return tuple(found)


def replug(virsh: Virsh, entry: Entry, seconds: float) -> None:
    """Exchange the disks of an entry; raises NotInForceError where one then differs from the request."""
    for plug in entry.plugs:
        libvirt.exchange(virsh, entry.uuid, plug, seconds)
    targets = tuple(plug.target for plug in entry.plugs)
    require_in_force(virsh, entry.uuid, tuple(turn for turn in entry.turns if turn.at in targets), targets)


def return_plugs(virsh: Virsh, entry: Entry, seconds: float, *, again: bool) -> None:
    """Attach every exchanged disk of the running domain as it was.

    `again`: the guest has used the disk since, and may not be able to spare it any more.
    """
    before = read_domain(entry.before)
    for plug in reversed(entry.plugs):
        now, then = libvirt.plugged(virsh, entry.uuid, plug.target), before.disk(plug.target)
        if now is not None and then is not None and not differences(then, now):
            continue
        if now is not None:
            if again:
                live = libvirt.LibvirtDomain(virsh, entry.uuid).dump().live or ""
                libvirt.require_spare(virsh, entry.uuid, live.encode(), plug.target)
            libvirt.unplug(virsh, entry.uuid, plug.target, plug.new, seconds)
        libvirt.plug_in(virsh, entry.uuid, plug.old)


@dataclass(frozen=True, slots=True, kw_only=True)
class Means:
    """The disruptions allowed for a running domain: a restart, or exchanging disks."""

    restart: Restart | None = None
    replug: tuple[str, ...] = ()
    replug_seconds: float = 60.0


@dataclass(frozen=True, slots=True, kw_only=True)
class Applied:
    """What was done: the journal's entry, the changes that are active now, those that wait for a power-off, and the
    configuration then.
    """

    entry: str
    after: bytes
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
    virsh: Virsh, uuid: str, advice: Advice, before: bytes, *, journal: Journal, when: datetime,
    means: Means = NO_MEANS, group: str = "",
) -> Applied:  # fmt: skip
    """Change a domain as advised, one of a `group`; `before` is the configuration on which the advice is based.

    Raises PreconditionError when it was changed since, NotInForceError when libvirt drops a setting, and VirtuneError
    when anything fails; the domain is then restored, or the error says how to restore it.
    """
    domain = libvirt.LibvirtDomain(virsh, uuid)
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
            restart=restart, group=group,
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
    return Applied(
        entry=entry.id, after=domain.configuration(), now=now, later=later, running=running,
        restarted=restart is not None,
    )  # fmt: skip


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
        domain = libvirt.LibvirtDomain(virsh, entry.uuid)
        current = domain.configuration(kept=journal.kept(entry))
        if not anyway and changed_since(entry, current):
            raise PreconditionError(
                f"{entry.domain} has been changed since by somebody else, and undoing would take that away too",
                hint=f"`virtune apply undo {entry.id} --show` shows how; `--anyway` puts it back all the same",
            )
        said = _restore(virsh, journal, entry, current, back)
    return f"{entry.domain} is as it was before {entry.id}{said and '; '}{said}"


def changed_since(entry: Entry, current: bytes) -> str:
    """Return the diff between a domain and virtune's version of it; empty if there is none."""
    if current in (entry.before, entry.found):
        return ""
    if entry.found is None:  # just given to libvirt; settings that it dropped do not count
        lost = set(dropped(before=entry.before, asked=entry.after, found=current))
        if not set(foreign(asked=entry.after, found=current)) - lost:
            return ""
    return unified(entry.found or entry.after, current, name=entry.domain)


def _make(domain: libvirt.LibvirtDomain, journal: Journal, entry: Entry) -> None:
    journal.step(entry, Step.DEFINING)
    found = domain.define(entry.after)
    journal.step(entry, Step.DEFINED, found=found)
    lost = dropped(before=entry.before, asked=entry.after, found=found)
    if lost:
        unset = all(one.endswith("'0'") for one in lost)
        hint = "0 means not set there, so take it away: `--set KNOB=`" if unset else None
        raise NotInForceError(
            f"this libvirt dropped what it was given: {'; '.join(lost)}",
            hint=hint or "a newer libvirt keeps it; R37 lists since when",
        )
    if entry.live:
        journal.step(entry, Step.LIVE)
    for do, _ in entry.live:
        domain.live(do)


def _require_shown(domain: libvirt.LibvirtDomain, turns: tuple[SettingChange, ...]) -> None:
    for turn in turns:
        if not domain.shows(turn):
            raise NotInForceError(
                f"{turn.knob}={turn.value} was set on the running domain, and libvirt does not show it"
            )


def _restore(virsh: Virsh, journal: Journal, entry: Entry, current: bytes, back: Back) -> str:
    """Restore everything; the effects of a finished change on the running domain are undone only on request.

    Returns further notes.
    """
    domain = libvirt.LibvirtDomain(virsh, entry.uuid)
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
        put_all_back(domain, [words for _, words in reversed(entry.live if Step.LIVE in entry.steps else ())])
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


def put_all_back(domain: libvirt.LibvirtDomain, commands: Sequence[Sequence[str]]) -> None:
    """Put each of these back, whatever becomes of another."""
    wrong: list[VirtuneError] = []
    for words in commands:
        try:
            domain.live(words)
        except VirtuneError as error:
            wrong.append(error)
    if wrong:
        raise wrong[0]


def _back(virsh: Virsh, journal: Journal, entry: Entry, error: BaseException) -> None:
    """Undo after a failure; the error reports the outcome, and what is left to do when undoing failed too."""
    own = f"{error.hint}; " if isinstance(error, VirtuneError) and error.hint else ""
    hint = f"the domain may be half changed: `virtune apply undo {entry.id}` puts it back"
    pending = isinstance(error, libvirt.StillPluggedError)
    try:
        entry = journal.read(entry.id)
        current = libvirt.LibvirtDomain(virsh, entry.uuid).configuration()
        if not changed_since(entry, current):
            back = Back(asked_now=isinstance(error, libvirt.StillRunningError), pending=pending)
            said = _restore(virsh, journal, entry, current, back)
            hint = f"{own}{entry.domain} is as it was before{said and '; '}{said}"
            if pending:
                hint = f"`virtune apply undo {entry.id}` plugs it in as it was, should the guest let go of it later"
    except VirtuneError as failure:
        # libvirt itself may be gone, which may be the failure; the journal has everything needed
        if Step.STOPPING in entry.steps and failure.hint:
            hint = f"{failure.message}: {failure.hint}"
    if isinstance(error, VirtuneError):
        error.hint = hint
