# SPDX-License-Identifier: Apache-2.0
"""Check whether this host can hand an NVMe drive to a guest, and which one an address or a device node means.

All of it is read from the kernel's own files before anything is changed. The host must see the drive through its own
driver, so that what is on it can be looked at.
"""

import os
import re
import resource
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import TypedDict

from virtune import warden
from virtune.model.errors import RigError
from virtune.model.machine import MEMORY, Machine
from virtune.model.units import format_bytes
from virtune.probe.devices import node_number

NVME_CLASS = "0x010802"
"""Mass storage, non-volatile memory, NVMe (PCI Code and ID Assignment)."""

NVME = "nvme"
"""The host's driver of NVMe drives."""

_NAMESPACE = re.compile(r"nvme\d+(c\d+)?n\d+", re.ASCII)
_CONTROLLER = re.compile(r"nvme\d+", re.ASCII)
_SECTOR_BYTES = 512
_CAP_IPC_LOCK = 14
"""The number of the capability that lifts the limit of locked memory (linux/capability.h)."""

_SPARE_BYTES = 64 * 1024**2
"""QEMU locks all of a guest's memory, and some of its firmware's and devices' besides."""

_UNSAFE = "sys/module/vfio/parameters/enable_unsafe_noiommu_mode"


@dataclass(frozen=True, slots=True, kw_only=True)
class Drive:
    """An NVMe drive that the host drives and could hand to a guest: its PCI address and IOMMU group, the device node
    of its only namespace with the kernel's number (`259:0`), its size and serial number.
    """

    address: str
    group: str
    node: str
    number: str
    size_bytes: int
    serial: str


def drive_at(address: str, root: Path = Path("/")) -> Drive:
    """Return the drive at a PCI address; raises RigError with the first reason why it cannot be handed to a guest."""
    groups, devices = root / "sys/kernel/iommu_groups", root / "sys/bus/pci/devices"
    _require_iommu(root, groups)
    place = devices / address
    if not place.exists():
        nvme = sorted(one.name for one in _listed(devices) if _word(one / "class") == NVME_CLASS)
        has = f"its NVMe disks: {', '.join(nvme)}" if nvme else "it has no NVMe disk"
        raise RigError(f"this host has no PCI device {address}", hint=has)
    if (kind := _word(place / "class")) != NVME_CLASS:
        raise RigError(f"the PCI device {address} is no NVMe disk: its class is {kind}")
    driver = warden.driver_of(place)
    if driver != NVME:
        raise RigError(
            f"the disk {address} is driven by {driver or 'nothing'}, so nobody can see what is on it",
            hint=f"give it back to the host (`driverctl unset-override {address}`): virtune takes it when needed",
        )
    group = _group(place, groups, devices)
    namespace = _namespace(place, root)
    return Drive(address=address, group=group, **namespace, serial=_word(next(_controllers(place)) / "serial"))


def address_of(node: Path, root: Path = Path("/")) -> str:
    """Return the PCI address of the NVMe drive that a device node is; raises RigError for any other node."""
    number = node_number(str(node), root)
    home = root / "sys/dev/block" / str(number)
    name = home.resolve().name if number is not None and home.exists() else ""
    for device in _listed(root / "sys/bus/pci/devices"):
        if name and any(name in _namespaces(one) for one in _controllers(device)):
            return device.name
    raise RigError(f"{node} is no NVMe drive of this host's PCI bus, so it cannot be handed to a guest")


def require_lockable(machine: Machine) -> None:
    """Raise RigError where a guest's memory may not be locked: a drive reaches all of it at any time, so that the
    kernel keeps it in place.
    """
    needed = (machine.memory or MEMORY) + _SPARE_BYTES
    most, _ = resource.getrlimit(resource.RLIMIT_MEMLOCK)
    if most == resource.RLIM_INFINITY or most >= needed or _may_lock():
        return
    raise RigError(
        f"a guest that drives a disk itself has its memory locked, {format_bytes(needed)}, and we may lock "
        f"{format_bytes(most)}",
        hint="run as root, or raise the limit (`ulimit -l`, or memlock in /etc/security/limits.conf)",
    )


def _require_iommu(root: Path, groups: Path) -> None:
    if any(_word(one / "name") != "vfio-noiommu" for one in _listed(groups)):
        return
    unsafe = _word(root / _UNSAFE) in ("Y", "1")
    without = " (enable_unsafe_noiommu_mode is no substitute: the drive could then write to all of its memory)"
    raise RigError(
        f"this host has no IOMMU in use, so no device can be handed to a guest{without if unsafe else ''}",
        hint="the firmware's switch (VT-d, AMD-Vi) and `intel_iommu=on` on the kernel's command line turn it on",
    )


def _group(place: Path, groups: Path, devices: Path) -> str:
    """Return the drive's IOMMU group; raises RigError where it cannot be handed over alone."""
    group = _target(place / "iommu_group")
    if not group or _word(groups / group / "name") == "vfio-noiommu":
        raise RigError(f"the disk {place.name} is behind no IOMMU, and could write to all of the host's memory")
    others = sorted(one.name for one in _listed(groups / group / "devices") if one.name != place.name)
    free = (warden.VFIO, "pcieport", "")
    held = [one for one in others if warden.driver_of(devices / one) not in free]
    if held:
        raise RigError(f"the disk {place.name} shares its IOMMU group {group} with {held[0]}, which the host drives")
    if not os.access(place / "driver_override", os.W_OK):
        raise RigError(f"the driver of the disk {place.name} may not be changed by us", hint="run as root")
    return group


def _namespace(place: Path, root: Path) -> "_Namespace":
    """Return the only namespace of a drive; raises RigError for a drive with several, or with several controllers."""
    controllers = list(_controllers(place))
    found = [name for one in controllers for name in _namespaces(one)]
    if len(found) != 1:
        has = "no namespace" if not found else f"{len(found)} namespaces ({', '.join(found)})"
        raise RigError(f"the disk {place.name} has {has}, and virtune hands over drives with one")
    for subsystem in _listed(root / "sys/class/nvme-subsystem"):
        members = [one.name for one in _listed(subsystem) if _CONTROLLER.fullmatch(one.name)]
        if controllers[0].name in members and len(members) > 1:
            raise RigError(f"the disk {place.name} is one of several paths to the same data: {', '.join(members)}")
    home = root / "sys/class/block" / found[0]
    sectors, number = _word(home / "size"), _word(home / "dev")
    if not sectors.isdecimal() or not number:
        raise RigError(f"the size of /dev/{found[0]} cannot be read")
    return {"node": f"/dev/{found[0]}", "number": number, "size_bytes": int(sectors) * _SECTOR_BYTES}


class _Namespace(TypedDict):
    node: str
    number: str
    size_bytes: int


def _controllers(device: Path) -> Iterator[Path]:
    """Yield the NVMe controllers of a PCI device that its driver runs: one."""
    yield from (one for one in _listed(device / NVME) if _CONTROLLER.fullmatch(one.name))


def _namespaces(controller: Path) -> list[str]:
    """Return the block devices of a controller; where the kernel could take several paths to it, of all paths."""
    names = (one.name for one in _listed(controller) if _NAMESPACE.fullmatch(one.name))
    return [re.sub(r"c\d+", "", name) for name in names]


def _may_lock() -> bool:
    """Whether this process may lock any amount of memory."""
    for line in _word(Path("/proc/self/status")).splitlines():
        if line.startswith("CapEff:"):
            return bool(int(line.split()[1], 16) >> _CAP_IPC_LOCK & 1)
    return False


def _listed(directory: Path) -> list[Path]:
    try:
        return sorted(directory.iterdir())
    except OSError:
        return []


def _word(path: Path) -> str:
    try:
        return path.read_text().strip()
    except OSError:
        return ""


def _target(link: Path) -> str:
    """Return the last part of where a link leads, empty without one."""
    try:
        return link.readlink().name
    except OSError:
        return ""
