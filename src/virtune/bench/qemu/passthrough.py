# SPDX-License-Identifier: Apache-2.0
"""Check whether this host could pass an NVMe disk through to a guest. virtune does not load such a disk: the guest
drives it directly, so that nothing below the guest could protect its data from a load.

The check names the obstacle, or without one the options that pass the disk through.
"""

import os
from pathlib import Path

from virtune.dialects.libvirt.disk import disk_xml
from virtune.dialects.qemu.device import guest_arguments, guest_command_line
from virtune.model.errors import RigError
from virtune.model.stack import Stack

NVME_CLASS = "0x010802"
"""Mass storage, non-volatile memory, NVMe (PCI Code and ID Assignment)."""


def refuse_passthrough(stack: Stack, root: Path = Path("/")) -> None:
    """Raise RigError with the first reason why the disk at this PCI address is not loaded."""
    address = stack.device.vfio_pci
    if address is None:
        return
    groups, devices = root / "sys/kernel/iommu_groups", root / "sys/bus/pci/devices"
    if not groups.is_dir() or not any(groups.iterdir()):
        raise RigError(
            "this host has no IOMMU in use, so no device can be handed to a guest",
            hint="the firmware's switch (VT-d, AMD-Vi) and `intel_iommu=on` on the kernel's command line turn it on",
        )
    place = devices / address
    if not place.exists():
        nvme = sorted(one.name for one in devices.iterdir() if _word(one / "class") == NVME_CLASS)
        has = f"its NVMe disks: {', '.join(nvme)}" if nvme else "it has no NVMe disk"
        raise RigError(f"this host has no PCI device {address}", hint=has)
    if (kind := _word(place / "class")) != NVME_CLASS:
        raise RigError(f"the PCI device {address} is no NVMe disk: its class is {kind}")
    driver = _target(place / "driver")
    if driver != "vfio-pci":
        raise RigError(
            f"the disk {address} is driven by {driver or 'nothing'}, and a guest needs it with vfio-pci",
            hint=f"unmount what is on it, then `driverctl set-override {address} vfio-pci`",
        )
    group = _target(place / "iommu_group")
    others = sorted(one.name for one in (groups / group / "devices").iterdir() if one.name != address)
    held = [one for one in others if _target(devices / one / "driver") not in ("vfio-pci", "pcieport", "")]
    if held:
        raise RigError(f"the disk {address} shares its IOMMU group {group} with {held[0]}, which the host drives")
    if not os.access(root / "dev/vfio" / group, os.R_OK | os.W_OK):
        raise RigError(f"/dev/vfio/{group} is not accessible", hint="run as root, or own that file")
    raise RigError(
        f"the disk {address} could be handed to a guest, and virtune loads none that the host does not see",
        hint="your VM gets it by\n" + passthrough_words(stack),
    )


def passthrough_words(stack: Stack) -> str:
    """Return QEMU's options and libvirt's element that pass the disk through."""
    line = guest_command_line(guest_arguments(stack, image="", size_bytes=0))
    return f"QEMU: {line}\nlibvirt: {disk_xml(stack, image='').disk}"


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
