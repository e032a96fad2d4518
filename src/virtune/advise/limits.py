# SPDX-License-Identifier: Apache-2.0
"""The limits of a disk: those of its configuration, and those that only its running VM has."""

import shlex

from virtune.dialects.libvirt.domain import FILTERED
from virtune.model.domain import DomainDisk
from virtune.model.finding import Subject

_LIMITS, _BURSTS = "_sec", "_sec_max"
_SIZE = "size_iops_sec"
"""How large a request may be to count as one; no limit by itself."""


def limits_of(disk: DomainDisk) -> dict[str, int]:
    """Return the limits of a disk by libvirt's names, without those of bursts."""
    return {name: value for name, value in disk.limits if value and name.endswith(_LIMITS) and name != _SIZE}


def limits_now(subject: Subject, disk: DomainDisk) -> dict[str, int]:
    """Return the limits that a disk has now: those of the running VM, if it runs and has the disk."""
    return limits_of(_live(subject, disk) or disk)


def lifting(subject: Subject, disk: DomainDisk) -> str:
    """Return what gives a running VM the limits of its configuration: a command where libvirt is known, else in
    words.
    """
    live = _live(subject, disk)
    if subject.connect is None or live is None or FILTERED in live.options:
        return "a power-off lifts it"
    # virsh resets what it is not told of a kind of limit, and a burst cannot be without its limit
    wanted, now = (
        {name: value for name, value in one.limits if name.endswith((_LIMITS, _BURSTS))} for one in (disk, live)
    )
    words = [word for name in {**now, **wanted} for word in (f"--{name.replace('_', '-')}", str(wanted.get(name, 0)))]
    command = ["virsh", "-c", subject.connect, "blkdeviotune", subject.domain.name, disk.target, *words, "--live"]
    return f"`{shlex.join(command)}` lifts it, and so does a power-off"


def told(limits: dict[str, int]) -> str:
    """Write limits: `total_iops_sec=150`."""
    return ", ".join(f"{name}={value}" for name, value in limits.items())


def _live(subject: Subject, disk: DomainDisk) -> DomainDisk | None:
    live = () if subject.running is None else subject.running.live.disks
    return next((one for one in live if one.target == disk.target), None)
