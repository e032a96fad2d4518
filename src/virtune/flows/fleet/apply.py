# SPDX-License-Identifier: Apache-2.0
"""Change the VMs of many hosts: a canary first, then batches, stopped by the first failure, undone by one command.

Each host's own virtune makes the change and journals it, into a journal of this change alone. So undoing needs
nothing but the name of the change: what a killed virtune or a broken connection left is in the journal of its host.
"""

import json
from collections.abc import Callable, Sequence
from datetime import datetime
from itertools import pairwise

from virtune.apply.journal import Journal, Step
from virtune.fleet.ssh import HostError
from virtune.flows.fleet.ask import Asked, FleetAccess, Ready, ask_each, is_word, read_document
from virtune.flows.fleet.run import CHANGES
from virtune.flows.stored.show import study_id
from virtune.model.errors import UsageError
from virtune.model.fleet import ChangedHost, FleetChange, FleetHost, HostVms, Unreached
from virtune.model.text import printable

JOURNALS = "fleet-changes"
"""Where each change of a fleet has its journal, among the user's data."""

_JOURNALLED = f"""v=$1; verb=$2; name=$3; shift 3
exec "$v" "$verb" --journal "${{XDG_DATA_HOME:-$HOME/.local/share}}/virtune/{JOURNALS}/$name" "$@\""""
"""Calls a host's virtune with the journal of one change: the shell there knows where its user's data are."""


_ENTRIES = "virtune/journal/1"


def vms_by_host(hosts: Sequence[FleetHost], names: Sequence[str]) -> tuple[HostVms, ...]:
    """Return which VMs of which hosts are meant: `HOST/VM`, or `VM` on every host. Raises UsageError otherwise."""
    known = {one.name: one for one in hosts}
    wanted: dict[str, dict[str, None]] = {one: {} for one in known}
    for name in names:
        host, slash, vm = name.partition("/")
        if slash and not (host in known and vm):
            hint = "HOST/VM, as the audit writes it"
            raise UsageError(f"no host {printable(host, most=60)!r} is chosen", hint=hint)
        for one in [host] if slash else known:
            wanted[one][vm if slash else name] = None
    return tuple(HostVms(host=known[host], vms=(*vms,)) for host, vms in wanted.items() if vms)


def previews(every: Sequence[HostVms], access: FleetAccess, words: Sequence[str]) -> list[Asked[str]]:
    """Return what would be changed on every host, in its virtune's words."""
    vms = {one.host.name: one.vms for one in every}

    def task(ready: Ready) -> str:
        return ready.asked("advise", *words, *(word for vm in vms[ready.name] for word in ("--domain", vm)))

    return ask_each([one.host for one in every], access, task)


def plan_change(every: Sequence[HostVms], words: Sequence[str], *, now: datetime) -> FleetChange:
    """Name a change and keep which hosts it will touch, before it touches any."""
    change = FleetChange(
        name=study_id(now), created=now.isoformat(timespec="seconds"), words=tuple(words), hosts=tuple(every)
    )
    CHANGES.keep(change)
    return change


def make_change(
    change: FleetChange, access: FleetAccess, *, canary: int, batch: int, say: Callable[[str], None]
) -> list[ChangedHost]:
    """Change so many hosts first, then so many at a time, and return what was done on each; after a failure no
    further step begins.
    """
    vms = {one.host.name: one.vms for one in change.hosts}

    def task(ready: Ready) -> int:
        _journalled(ready, "apply", change.name, "--yes", *change.words, "--", *vms[ready.name])
        return len(vms[ready.name])

    found: list[ChangedHost] = []
    hosts = [one.host for one in change.hosts]
    starts = [*([0] if canary else []), *range(canary, len(hosts), batch), len(hosts)]
    for step in (hosts[start:end] for start, end in pairwise(starts)):
        if any(one.failed for one in found):
            found += [ChangedHost(name=host.name, state="untouched") for host in step]
        else:
            found += [_ended(one, "changed") for one in ask_each(step, access, task, say=say)]
    return found


def undo_change(change: FleetChange, access: FleetAccess, *, say: Callable[[str], None]) -> list[ChangedHost]:
    """Undo a change on every host that it may have touched, the last one first; what is undone already is left."""

    def task(ready: Ready) -> int:
        left, damaged = entries_in(ready.asked("fleet", "here", change.name, "--changes"))
        for entry in reversed(left):
            _journalled(ready, "undo", change.name, entry)
        if damaged:
            raise HostError(f"{len(left)} VMs were undone, and its journal is damaged: {damaged[0]}")
        return len(left)

    asked = ask_each([one.host for one in reversed(change.hosts)], access, task, say=say)
    return [_ended(one, "undone") for one in asked]


def _ended(one: Asked[int], state: str) -> ChangedHost:
    """Return how it ended on a host, which says of how many VMs it did so."""
    if isinstance(one, Unreached):
        return ChangedHost(name=one.host.name, state="failed", said=one.because)
    if not one.said:
        return ChangedHost(name=one.host.name, state="untouched")
    return ChangedHost(name=one.host.name, state=state, said=f"{one.said} VMs")


def entries_text(journal: Journal) -> str:
    """Write what a journal holds for `entries_in` of another host."""
    entries = [{"id": one.id, "undone": one.steps[-1] is Step.UNDONE} for one in journal.entries()]
    return json.dumps({"schema": _ENTRIES, "entries": entries, "damaged": list(journal.damaged())})


def entries_in(text: str) -> tuple[list[str], list[str]]:
    """Return the entries of a host's journal that are not undone, the oldest first, and what is damaged there.

    Raises HostError for anything else.
    """
    found = read_document(text, _ENTRIES)
    entries, damaged = found.get("entries"), found.get("damaged")
    try:
        ids = {one["id"]: one["undone"] for one in entries or ()}
    except (TypeError, LookupError):
        ids = {None: None}
    sound = all(is_word(one) and isinstance(undone, bool) for one, undone in ids.items())
    if not isinstance(entries, list) or not isinstance(damaged, list) or not sound:
        raise HostError("its list of changes is damaged")
    return [one for one, undone in ids.items() if not undone], [str(one) for one in damaged]


def _journalled(ready: Ready, verb: str, change: str, *words: str) -> str:
    """Call a verb of a host's virtune with the journal of a change."""
    return ready.answered(["sh", "-c", _JOURNALLED, "sh", ready.virtune, verb, change, *words])
