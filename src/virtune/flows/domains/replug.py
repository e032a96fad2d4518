# SPDX-License-Identifier: Apache-2.0
"""Exchange disks of a running domain as part of a change: check which may be, exchange and verify them, undo."""

from collections.abc import Sequence

from virtune.advise.placement import differences
from virtune.apply.journal import Entry, Plug
from virtune.apply.libvirt import LibvirtDomain, exchange, plug_in, plugged, require_spare, unplug
from virtune.dialects.libvirt.domain import disk_text, read_domain
from virtune.flows.domains.restart import another_image, require_in_force
from virtune.model.domain import SettingChange
from virtune.model.errors import PreconditionError
from virtune.model.knob import Change
from virtune.model.knobs import find
from virtune.virsh import DumpedDomain, Virsh


def plugs_of(
    virsh: Virsh, dumped: DumpedDomain, after: bytes, turns: Sequence[SettingChange], targets: Sequence[str]
) -> tuple[Plug, ...]:
    """Return these disks' exchanges; raises PreconditionError for one that must not or need not be exchanged."""
    live, before = (dumped.live or "").encode(), (dumped.inactive or "").encode()
    if dumped.state != "running":
        raise PreconditionError(f"the domain is {dumped.state}: there is nothing to replug")
    found = []
    for target in dict.fromkeys(targets):
        require_spare(virsh, dumped.uuid, live, target)
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
        exchange(virsh, entry.uuid, plug, seconds)
    targets = tuple(plug.target for plug in entry.plugs)
    require_in_force(virsh, entry.uuid, tuple(turn for turn in entry.turns if turn.at in targets), targets)


def return_plugs(virsh: Virsh, entry: Entry, seconds: float, *, again: bool) -> None:
    """Attach every exchanged disk of the running domain as it was.

    `again`: the guest has used the disk since, and may not be able to spare it any more.
    """
    before = read_domain(entry.before)
    for plug in reversed(entry.plugs):
        now, then = plugged(virsh, entry.uuid, plug.target), before.disk(plug.target)
        if now is not None and then is not None and not differences(then, now):
            continue
        if now is not None:
            if again:
                require_spare(
                    virsh, entry.uuid, (LibvirtDomain(virsh, entry.uuid).dump().live or "").encode(), plug.target
                )
            unplug(virsh, entry.uuid, plug.target, plug.new, seconds)
        plug_in(virsh, entry.uuid, plug.old)
