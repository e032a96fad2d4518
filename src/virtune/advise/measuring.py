# SPDX-License-Identifier: Apache-2.0
"""The command that measures whether a `try` helps: on the storage of this disk, and in its own guest if possible
(pure).
"""

import shlex
from collections.abc import Mapping
from dataclasses import replace
from pathlib import PurePosixPath

from virtune.model.contradictions import contradictions
from virtune.model.domain import DomainDisk, disk_of
from virtune.model.finding import Subject
from virtune.model.stack import Stack

IN_GUEST: Mapping[str, str] = {"export.num_queues": "device.num_queues"}
"""What a setting of an exported disk is called where the disk is plugged into a guest."""


UNKNOWN_PLACE = "--scratch <a directory on its storage>"
"""For a volume that is known by its name only. A shell refuses it as it is, on purpose."""


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

    None where a Stack cannot express the disk, or where QEMU would not start with it.
    """
    stack = disk_of(disk)
    # requests to a LUN go to the device as SCSI commands: no cache mode and no engine of QEMU's is theirs
    if stack is None or disk.device == "lun" or contradictions(Stack(disk=replace(stack, detect_zeroes="off"))):
        return None
    base: dict[str, str] = {"disk.format": stack.format, "disk.cache": stack.cache, "disk.aio": stack.aio}
    base["disk.discard"] = stack.discard
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
    return f"{shlex.join(words)} {_where(disk)} {shlex.join(arms)}"


def _where(disk: DomainDisk) -> str:
    """The option that names the storage of a disk: its directory, or the device itself, which is only read."""
    path = PurePosixPath(disk.source.name)
    if not path.is_absolute():
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
