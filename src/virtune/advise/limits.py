# SPDX-License-Identifier: Apache-2.0
"""The limits of a disk: those of its configuration, and those that only its running VM has."""

from virtune.dialects.libvirt.domain import limits_command
from virtune.model.domain import DomainDisk
from virtune.model.finding import Subject

_LIMITS = "_sec"
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
    command = None
    if subject.connect is not None and live is not None:
        command = limits_command(subject.connect, subject.domain.name, live, dict(disk.limits))
    return "a power-off lifts it" if command is None else f"`{command}` lifts it, and so does a power-off"


def told(limits: dict[str, int]) -> str:
    """Write limits: `total_iops_sec=150`."""
    return ", ".join(f"{name}={value}" for name, value in limits.items())


def _live(subject: Subject, disk: DomainDisk) -> DomainDisk | None:
    live = () if subject.running is None else subject.running.live.disks
    return next((one for one in live if one.target == disk.target), None)
