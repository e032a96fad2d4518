# SPDX-License-Identifier: Apache-2.0
"""A power cycle as part of a change: shut down, start with the new configuration, verify it, check the guest's
health; undo it all on failure.
"""

from collections.abc import Sequence
from dataclasses import replace

from virtune.advise.audit import audit, rules
from virtune.advise.placement import differences
from virtune.apply.health import read_sign, require_tellable, wait_until_well
from virtune.apply.journal import Entry, Journal, Restart, Step
from virtune.apply.libvirt import LibvirtDomain, Power, StillRunningError
from virtune.dialects.libvirt.alter import unmet
from virtune.dialects.libvirt.domain import after_power_off, plugged_counts, read_domain
from virtune.flows.domains.domains import surroundings
from virtune.model.domain import DomainDisk, SettingChange
from virtune.model.errors import NotInForceError, PreconditionError, VirtuneError
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
    power = Power(virsh, entry.uuid)
    journal.step(entry, Step.STOPPING)
    power.shut_down(how.timeout_seconds, force_off=how.force_off)
    journal.step(entry, Step.STARTING)
    power.start_paused()
    require_in_force(virsh, entry.uuid, _as_named_now(entry))

    def resume() -> None:
        journal.step(entry, Step.RESUMING)
        power.resume()

    wait_until_well(virsh, entry.uuid, tuple(map(read_sign, how.healthy)), resume, how.timeout_seconds)


def return_to_running(virsh: Virsh, journal: Journal, entry: Entry, how: Restart, *, asked_now: bool) -> str:
    """Bring a domain back to running after a failed or interrupted restart, with its old configuration defined.

    `asked_now`: it did not shut down in time just now. Returns notes on the outcome. Raises VirtuneError for a guest
    that would have to be destroyed without permission.
    """
    power = Power(virsh, entry.uuid)
    began = Step.STARTING in entry.steps
    if Step.RETURNING in entry.steps and not power.is_off():
        power.resume()
        return "it runs as it did"
    if not power.is_off() and not began and (asked_now or not power.wait_until_off(how.timeout_seconds)):
        return "it was asked to shut down and still runs, as it did; it may still obey"
    if not power.is_off():
        _take_down(power, how, entry)
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
    dumped = LibvirtDomain(virsh, uuid).dump()
    said = [f"{turn.knob}={turn.value or ''}" for turn in unmet((dumped.live or "").encode(), turns)]
    asked = tuple(rule for rule in rules() if rule.id in IN_FORCE)
    findings = audit(surroundings(virsh, dumped).subject, asked)
    said += [f"{one.at}: {one.seen.seen} ({one.rule.id})" for one in findings if not only or one.at in only]
    if said:
        raise NotInForceError(f"the running VM does not have what was asked for: {'; '.join(said)}")


def _as_named_now(entry: Entry) -> tuple[SettingChange, ...]:
    """The changes of an entry, with the present names of its disks: another bus gives another name."""
    before, after = read_domain(entry.before).disks, read_domain(entry.after).disks
    names = {old.target: new.target for old, new in zip(before, after, strict=True)}
    return tuple(replace(turn, at=names.get(turn.at, turn.at)) for turn in entry.turns)


def _take_down(power: Power, how: Restart, entry: Entry) -> None:
    """Shut down a guest that runs with the new configuration. One that never ran is destroyed, as it has nothing to
    lose.
    """
    if power.never_ran():
        power.pull_the_plug()
        return
    try:
        power.shut_down(how.timeout_seconds, force_off=how.force_off)
    except StillRunningError as error:
        raise StillRunningError(
            f"{entry.domain} has its old configuration for the next start, and still runs with the new one: "
            f"{error.message}",
            hint=f"`virtune undo {entry.id} --force-off` pulls the plug, and starts it as it was",
        ) from None


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
