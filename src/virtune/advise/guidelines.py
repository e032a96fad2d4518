# SPDX-License-Identifier: Apache-2.0
"""The two guidelines of the study `nvme-scaling` (Hitachi, about 2016) as data (`guidelines.json`): one for planning
VMs, one for VMs in operation.

Shares are relative to the drive's IOPS on bare metal, as its authors measured: 438k reads and 90k writes a second.
And the answers to the second one's questions from the measurements of a running disk.
"""

import json
import pkgutil
import re
import shlex
from collections.abc import Iterable, Mapping
from dataclasses import replace
from typing import Any

from virtune.model.bottleneck import Cause, DataPath, Fork, Guideline, Leaf
from virtune.model.text import format_share

_ADVISE, _DISK = "virtune apply advise ", "@vda="


def _guideline(row: dict[str, Any]) -> Guideline:
    nodes: list[Fork | Leaf] = [
        *(Fork(**fork) for fork in row.pop("forks")),
        *(Leaf(**leaf) for leaf in row.pop("leaves")),
    ]
    return Guideline(**row, nodes={node.id: node for node in nodes})


CONFIGURATION, TUNING = map(_guideline, json.loads(pkgutil.get_data(__package__, "guidelines.json") or b""))


def tuning_for(*, uri: str, vm: str, disk: str) -> Guideline:
    """Return the tuning guideline with commands for this disk of a libvirt's domain; without a libvirt there are
    none.
    """
    where = shlex.join(["--connect", uri, "--domain", vm])

    def own(node: Fork | Leaf) -> Fork | Leaf:
        if isinstance(node, Fork) or not node.written.startswith(_ADVISE):
            return node
        asked = node.written.removeprefix(_ADVISE).replace(_DISK, f"@{disk}=")
        return replace(node, written=f"{_ADVISE}{where} {asked}" if uri else "")

    return replace(TUNING, nodes={name: own(node) for name, node in TUNING.nodes.items()})


_WORDS = {"yes": True, "no": False}


def requirements(words: Iterable[str]) -> dict[str, tuple[bool, str]]:
    """Read `scale-out=no` and the like; raises ValueError with a sentence for an unknown question or answer."""
    known = {fork.id for fork in CONFIGURATION.forks}
    found: dict[str, tuple[bool, str]] = {}
    for word in words:
        name, _, answer = word.strip().partition("=")
        if name not in known or answer not in _WORDS:
            right = ", ".join(f"{fork.id}=yes" for fork in CONFIGURATION.forks)
            raise ValueError(f"not a requirement: {word!r} (write {right}, or =no)")
        found[name] = (_WORDS[answer], "")
    return found


def given_answers(words: Iterable[str]) -> dict[str, tuple[bool, str]]:
    """Read what nobody can see of a VM's drives: `own=yes`, and `free=no` or the drive that is free.

    Raises ValueError with a sentence for anything else.
    """
    found: dict[str, tuple[bool, str]] = {}
    for word in words:
        name, _, answer = word.strip().partition("=")
        drive = name == "free" and answer.startswith("/dev/")
        if name not in ("own", "free") or not (answer in _WORDS or drive):
            raise ValueError(f"not an answer: {word!r} (write own=yes or own=no, free=/dev/NAME or free=no)")
        found[name] = (drive or _WORDS[answer], f"{answer}, as was said" if drive else "as was said")
    return found


BUSY = 0.95
"""From this share of time with a request on, a drive counts as always busy; with several queues it may still do more.
"""

_IN_FLIGHT = 1.5
"""From this mean number of requests in flight on, the load counts as parallel."""


def not_applicable(path: DataPath, cause: Cause) -> str:
    """Return why the guideline says nothing of a disk; empty if it does."""
    if path.iops <= 0:
        return "no read and no write was completed"
    if cause is Cause.THROTTLE:
        return "a limit was set on the disk, and no other setting exceeds it"
    return "its figures are of guests on KVM, and this one is emulated (TCG)" if path.emulated else ""


def answers_of(
    path: DataPath, *, write_share: float | None, host_usr: float | None, host_sys: float | None
) -> dict[str, tuple[bool, str]]:
    """Return answers by question; unknown ones are missing. `host_usr` and `host_sys` are in % of all CPUs."""
    found: dict[str, tuple[bool, str]] = {"assigned": (False, "its requests pass through QEMU")}
    layers = path.layers
    if layers is not None:
        found["jobs"] = (layers.in_flight >= _IN_FLIGHT, f"{layers.in_flight:.1f} requests in flight at a time")
    by_iothread = path.serving == "iothread"
    found["iothreads"] = (by_iothread, f"{'an IOThread' if by_iothread else 'the main loop'} serves the disk")
    if write_share is not None:
        found["writes"] = (write_share > 0.5, f"{format_share(write_share)} of its I/Os are writes")
    if host_usr is not None and host_sys is not None:
        found["user"] = (host_usr > host_sys, f"%usr {host_usr:.0f}, %sys {host_sys:.0f}")
    if path.device_busy is not None:
        found["busy"] = (path.device_busy >= BUSY, f"busy {format_share(path.device_busy)} of the time")
    return found


def free_drive(idle: Mapping[str, bool | None], below: Iterable[str]) -> dict[str, tuple[bool, str]]:
    """Return the answer to whether another drive is free; none where the host has no other NVMe drive, and where none
    is seen to be free and not all could be looked at. `idle` says of each NVMe drive whether nothing uses it (None:
    not known), `below` are the devices below the disk.
    """
    own, drives = {_drive_of(name) for name in below}, dict[str, list[bool | None]]()
    for name, unused in idle.items():
        drives.setdefault(_drive_of(name), []).append(unused)
    others = {drive: namespaces for drive, namespaces in drives.items() if drive not in own}
    if free := [drive for drive, namespaces in others.items() if all(namespaces)]:
        return {"free": (True, f"seen: nothing uses {', '.join(sorted(free))}")}
    if not others or not all(False in namespaces for namespaces in others.values()):
        return {}
    return {"free": (False, f"seen: {', '.join(sorted(others))} in use, or not empty")}


def _drive_of(name: str) -> str:
    """Return the NVMe drive of a namespace or partition (`nvme0` of `nvme0n1p2`); other names are their own."""
    found = re.match(r"nvme\d+", name)
    return found[0] if found else name
