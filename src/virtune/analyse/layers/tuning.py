# SPDX-License-Identifier: Apache-2.0
"""Answers to the tuning guideline's questions from the measurements of a running disk, with their evidence."""

import re
from collections.abc import Iterable, Mapping

from virtune.model.bottleneck import Cause, DataPath
from virtune.model.units import format_share

BUSY = 0.95
"""From this share of time with a request on, a drive counts as always busy; with several queues it may still do more.
"""

SEVERAL = 1.5
"""From this mean number of requests in flight on, the load counts as parallel."""


def not_applicable(path: DataPath, cause: Cause) -> str:
    """Return why the guideline says nothing of a disk; empty if it does."""
    if path.iops <= 0:
        return "no I/O was completed"
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
        found["jobs"] = (layers.in_flight >= SEVERAL, f"{layers.in_flight:.1f} requests in flight at a time")
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
