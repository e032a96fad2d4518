# SPDX-License-Identifier: Apache-2.0
"""Registers rules: a function of a Subject becomes the check of a Rule, of which `rules.json` says all that users
read: how severe it is, why, and from where that is known. And what several rules share: versions of QEMU (those in
which io_uring is broken, and those whose defaults a machine type keeps), and the command that measures whether a
`try` helps, on the storage of this disk, and in its own guest if possible.
"""

import inspect
import json
import pkgutil
import re
import shlex
from collections.abc import Callable, Iterator, Mapping
from dataclasses import replace
from functools import lru_cache
from pathlib import PurePosixPath
from typing import Any, TypeVar

from virtune.model.contradictions import contradictions
from virtune.model.domain import DomainDisk, SettingChange, disk_of
from virtune.model.finding import Check, Confidence, Need, Rule, Seen, Severity, Subject, Version
from virtune.model.knob import Change, Risk
from virtune.model.stack import THROUGH_CACHES, Disk, Stack

Asked = TypeVar("Asked", Check, Callable[[Subject, DomainDisk], Iterator[Seen]])

RULES: dict[str, Rule] = {}
"""Every rule by its id, in the order of the rooms; `virtune.advise.audit` fills it by importing them."""


def _rows() -> dict[str, dict[str, Any]]:
    found = json.loads(pkgutil.get_data(__package__, "rules.json") or b"")
    return {row["id"]: row for row in found}


_ROWS = _rows()
"""What is said of each rule, by its id: without a word a rule is documented, takes a power-off, and risks nothing."""


def rule(identity: str) -> Callable[[Asked], Asked]:
    """Register a function as the check of the rule of that id; its name is the rule's. One that takes a disk too is
    asked of each that holds data, and what it sees is there.

    The `needs` of its row are all the facts it reads that a configuration alone may not give: where one is unknown,
    the audit says that the rule did not look.
    """

    def register(check: Asked) -> Asked:
        if identity in RULES:
            raise ValueError(f"two rules are called {identity}")
        row = _ROWS[identity]
        takes = row.get("takes", Change.POWEROFF)
        RULES[identity] = Rule(
            id=identity,
            name=check.__name__.replace("_", "-"),
            severity=Severity(row["severity"]),
            confidence=Confidence[row.get("confidence", "documented").upper()],
            takes=None if takes is None else Change(takes),
            risk=Risk(row.get("risk", Risk.NONE)),
            why=row["why"],
            source=row["source"],
            check=_of_each_disk(check) if len(inspect.signature(check).parameters) > 1 else check,  # type: ignore[arg-type]
            needs=tuple(Need[need.upper()] for need in row.get("needs", ())),
        )
        return check

    return register


def _of_each_disk(check: Callable[..., Iterator[Seen]]) -> Check:
    def of_all(subject: Subject) -> Iterator[Seen]:
        for disk in subject.disks:
            yield from (replace(seen, at=disk) for seen in check(subject, disk))

    return of_all


def turn(disk: DomainDisk, knob: str, value: str | None) -> tuple[SettingChange, ...]:
    """Return the one change that gives a disk a setting, or takes it away."""
    return (SettingChange(knob=knob, at=disk.target, value=value),)


def direct_of(cache: str) -> str:
    """Return the cache mode without the page cache that is as durable as another."""
    return "directsync" if cache in THROUGH_CACHES else "none"


def below(version: Version | None, limit: Version) -> bool:
    """Whether a known version is older than one; an unknown version is not."""
    return version is not None and version < limit


def words(version: Version | None) -> str:
    """Write a version."""
    return "unknown" if version is None else ".".join(map(str, version))


HANGS = ((7, 1), (10, 1))
"""All of these: a request is never completed. A distribution may carry the fix."""

CRAWLS_ON_AHCI = ((10, 2, 0), (10, 2, 1))
"""Up to 499 ms a request on IDE and SATA disks (a 128 MB read took 25.76 s, 1.30 s once fixed)."""

_FAMILIES = r"(?:pc|pc-i440fx|pc-q35|virt|s390-ccw-virtio|pseries|q35|i440fx)"
_UPSTREAM = re.compile(rf"{_FAMILIES}-(\d+)\.(\d+)(?:\.\d+)?(?:\+pve\d+)?")
"""QEMU's own, Proxmox's with its own revision behind it (`pc-q35-6.2+pve0`)."""

_OWN_NAME = re.compile(rf"(?:{_FAMILIES}-)?(rhel\d+\.\d+|[a-z]+)(?:\.\d+)?(?:-hpb|-maxcpus|-v\d)*")

_ALIASES = (None, "pc", "q35", "virt", "s390-ccw-virtio", "s390-ccw", "pseries", "ubuntu", "ubuntu-q35")
"""The newest type of the QEMU that starts it."""

_DISTRIBUTIONS: dict[str, Version] = {
    # RHEL, CentOS, Rocky, AlmaLinux, oVirt: hw_compat_rhel_* in the hw/core/machine.c of their qemu-kvm, each the
    # hw_compat_* of the version that the release was made from
    "rhel7.0": (1, 5), "rhel7.1": (2, 1), "rhel7.2": (2, 3), "rhel7.3": (2, 6), "rhel7.4": (2, 9), "rhel7.5": (2, 10),
    "rhel7.6": (2, 12), "rhel8.0": (3, 1), "rhel8.1": (4, 1), "rhel8.2": (4, 2), "rhel8.3": (5, 1), "rhel8.4": (5, 2),
    "rhel8.5": (6, 0), "rhel8.6": (6, 2), "rhel9.0": (6, 2), "rhel9.2": (7, 2), "rhel9.4": (8, 2), "rhel9.6": (9, 1),
    "rhel10.0": (9, 1),
    **dict.fromkeys((f"rhel6.{minor}" for minor in range(7)), (0, 12)),
    # Ubuntu: debian/patches/ubuntu/define-ubuntu-machine-types.patch; each is the version in that release
    "trusty": (2, 0), "utopic": (2, 1), "vivid": (2, 2), "wily": (2, 3), "xenial": (2, 5), "yakkety": (2, 6),
    "zesty": (2, 8), "artful": (2, 10), "bionic": (2, 11), "cosmic": (2, 12), "disco": (3, 1), "eoan": (4, 0),
    "focal": (4, 2), "groovy": (5, 0), "hirsute": (5, 2), "impish": (6, 0), "jammy": (6, 2), "kinetic": (7, 0),
    "lunar": (7, 2), "mantic": (8, 0), "noble": (8, 2), "oracular": (9, 0), "plucky": (9, 2),
}  # fmt: skip
"""The version of QEMU whose defaults a distribution's own machine type has."""


def version_of_machine(machine: str | None, qemu: Version | None = None) -> Version | None:
    """Return the version of QEMU whose defaults a machine type has (`pc-q35-7.2`, `pc-q35-rhel8.1.0`).

    A type without a version has those of the `qemu` that starts it. None where that or the name is unknown.
    """
    if machine in _ALIASES:
        return qemu
    if found := _UPSTREAM.fullmatch(machine or ""):
        return int(found[1]), int(found[2])
    own = _OWN_NAME.fullmatch(machine or "")
    return _DISTRIBUTIONS.get(own[1]) if own else None


def io_uring_hangs(version: Version) -> bool:
    """Whether io_uring hangs in a version of QEMU."""
    return version[:2] in HANGS


def io_uring_crawls_on_ahci(version: Version) -> bool:
    """Whether io_uring completes late on IDE and SATA disks in a version of QEMU."""
    return version[:3] in CRAWLS_ON_AHCI


IN_GUEST: Mapping[str, str] = {"export.num_queues": "device.num_queues"}
"""What a setting of an exported disk is called where the disk is plugged into a guest."""


UNKNOWN_PLACE = "--scratch <a directory on its storage>"
"""For a volume that is known by its name only, and a device that the load would write to. A shell refuses it as it
is, on purpose.
"""


def measuring(
    subject: Subject,
    disk: DomainDisk,
    now: Mapping[str, str],
    then: Mapping[str, str],
    *,
    rig: str = "",
    load: str = "",
) -> str | None:
    """Return the command that compares a disk as it is with the same disk under other settings.

    None where a Stack cannot express the disk, where QEMU would not start with it, and where a limit would hold both.
    """
    stack = disk_of(disk)
    # requests to a LUN go to the device as SCSI commands: no cache mode and no engine of QEMU's is theirs
    if stack is None or disk.device == "lun" or not _starts(stack):
        return None
    if subject.like:
        if disk.rate_limits:
            return None
        return _beside_it(subject, disk, then, rig=rig, load=load)
    base: dict[str, str] = {"disk.format": stack.format, "disk.cache": stack.cache, "disk.aio": stack.aio}
    base["disk.discard"] = stack.discard
    if stack.detect_zeroes != "off" and not contradictions(Stack(disk=stack)):
        base["disk.detect_zeroes"] = stack.detect_zeroes
    in_guest = _guest_of(subject, disk) if {*now, *then} <= {*base, *IN_GUEST} else None
    words = ["virtune", "compare"]
    if in_guest is not None:
        words += ["--rig", f"libvirt:{in_guest}", "--connect", subject.connect or ""]
    elif rig:
        words += ["--rig", rig]
    arms = []
    for name, changed in (("now", now), ("then", then)):
        said = {IN_GUEST.get(key, key) if in_guest else key: value for key, value in (base | dict(changed)).items()}
        arms += ["--arm", f"{name}:{','.join(f'{key}={value}' for key, value in said.items())}"]
    arms += ["--workload", load] if load else []
    return f"{shlex.join(words)} {_where(disk, load)} {shlex.join(arms)}"


@lru_cache(maxsize=256)  # the disks of a fleet are few kinds
def _starts(disk: Disk) -> bool:
    """Whether QEMU starts with a disk."""
    return not contradictions(Stack(disk=replace(disk, detect_zeroes="off")))


def _beside_it(subject: Subject, disk: DomainDisk, then: Mapping[str, str], *, rig: str, load: str) -> str:
    """Return the command that compares a VM's disk with other settings where `--like` can name the VM."""
    words = ["virtune", "compare", "--like", f"{subject.like}:{disk.target}"]
    words += ["--connect", subject.connect] if subject.connect else []
    words += ["--rig", rig] if rig else []
    words += ["--arm", f"then:{','.join(f'{key}={value}' for key, value in then.items())}"]
    words += ["--workload", load] if load else []
    return shlex.join(words) if disk.source.kind == "file" else f"{shlex.join(words)} {_where(disk, load)}"


def _where(disk: DomainDisk, load: str) -> str:
    """The option that names the storage of a disk: its directory, or the device itself where it is only read."""
    path = PurePosixPath(disk.source.name)
    if not path.is_absolute() or (disk.source.kind == "block" and "write" in load):
        return UNKNOWN_PLACE
    if disk.source.kind == "block":
        return f"--target {shlex.quote(str(path))}"
    return f"--scratch {shlex.quote(str(path.parent))}"


def _guest_of(subject: Subject, disk: DomainDisk) -> str | None:
    """The domain, if its own guest can be used: it runs here and has the port of a guest agent."""
    domain = subject.domain
    running = subject.running is not None and subject.running.pid is not None and subject.running.state == "running"
    reachable = running and domain.guest_agent and disk.source.kind == "file"
    return (domain.name or None) if subject.connect and reachable else None
