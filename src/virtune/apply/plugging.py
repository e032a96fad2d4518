# SPDX-License-Identifier: Apache-2.0
"""Detach a disk from a running domain and attach it again; only disks that the guest can spare."""

import re
import time

from virtune.apply.journal import Plug
from virtune.dialects.libvirt.domain import read_domain
from virtune.dialects.libvirt.guest import boot_disks
from virtune.model.domain import HOTPLUG_BUSES, DomainDisk
from virtune.model.errors import PreconditionError, VirtuneError
from virtune.virsh import LibvirtRefused, Virsh, as_file

_LOOK_SECONDS = 0.2


class StillPluggedError(VirtuneError):
    """A guest did not release a disk in time. The request cannot be cancelled, so it may still do so."""


def require_spare(virsh: Virsh, uuid: str, live: bytes, target: str) -> None:
    """Raise PreconditionError for a disk that the guest cannot spare: its boot disk, its only disk, or one with a
    mounted filesystem according to the guest agent.
    """
    domain = read_domain(live)
    data = [disk.target for disk in domain.disks if disk.holds_data]
    if target not in data:
        raise PreconditionError(f"there is no disk {target!r} in the running domain that holds data")
    disk = domain.disk(target)
    if disk is not None and disk.bus not in HOTPLUG_BUSES:
        raise PreconditionError(
            f"{target} is on the bus {disk.bus}, and libvirt replugs only {', '.join(sorted(HOTPLUG_BUSES))} disks",
            hint=_LATER,
        )
    if target in boot_disks(live):
        raise PreconditionError(f"{target} is what the guest boots from, and is not unplugged", hint=_LATER)
    if data == [target]:
        raise PreconditionError(f"{target} is the guest's only disk, and is not unplugged", hint=_LATER)
    places = mounted(virsh, uuid).get(target, ())
    if places:
        raise PreconditionError(
            f"the guest has {target} mounted on {', '.join(places)}",
            hint=f"unmount it in the guest first, or {_LATER}",
        )


def mounted(virsh: Virsh, uuid: str) -> dict[str, tuple[str, ...]]:
    """Return the guest's mount points by disk target; empty without an agent."""
    try:
        said = virsh.run("domfsinfo", uuid)
    except LibvirtRefused:
        return {}
    found: dict[str, tuple[str, ...]] = {}
    for line in said.splitlines():
        place, *rest = re.split(r"\s{2,}", line.strip())
        for target in rest[-1].split(",") if len(rest) >= 3 else ():
            found[target] = (*found.get(target, ()), place)
    return found


def exchange(virsh: Virsh, uuid: str, plug: Plug, seconds: float) -> None:
    """Detach a disk, wait until the guest has released it, and attach it with its new settings."""
    unplug(virsh, uuid, plug.target, plug.old, seconds)
    plug_in(virsh, uuid, plug.new)


def unplug(virsh: Virsh, uuid: str, target: str, xml: str, seconds: float) -> None:
    """Ask the guest to release a disk; raises VirtuneError when it has not within that time."""
    _device(virsh, "detach-device", uuid, xml)
    deadline = time.monotonic() + seconds
    while plugged(virsh, uuid, target) is not None:
        if time.monotonic() > deadline:
            raise StillPluggedError(f"the guest did not let go of {target} within {seconds:g} s; it may still do so")
        time.sleep(_LOOK_SECONDS)


def plug_in(virsh: Virsh, uuid: str, xml: str) -> None:
    """Attach a disk to a running domain."""
    _device(virsh, "attach-device", uuid, xml)


def plugged(virsh: Virsh, uuid: str, target: str) -> DomainDisk | None:
    """Return a disk as the running domain has it, None where it has none of that name."""
    found = virsh.dump([uuid], secrets_too=True)
    live = found[0].live if found else None
    return read_domain(live.encode()).disk(target) if live is not None else None


def _device(virsh: Virsh, verb: str, uuid: str, xml: str) -> None:
    with as_file(xml) as name:
        virsh.run(verb, uuid, name, "--live")


_LATER = "leave --replug out: it changes when the domain is powered off and on"
