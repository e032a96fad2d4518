# SPDX-License-Identifier: Apache-2.0
"""Read from a domain's XML how its guest is reached, started and stopped, and one disk's element (pure)."""

from virtune.dialects.libvirt.domain import domain_element
from virtune.dialects.text.xml import Element, read_document
from virtune.model.errors import ReadError

_AGENT = "org.qemu.guest_agent.0"


def has_agent(text: bytes) -> bool:
    """Whether the domain has the channel that QEMU's guest agent listens on."""
    return any(
        (target := channel.child("target")) is not None and target.get("name") == _AGENT
        for channel in _domain(text).all("devices/channel")
    )


def has_console(text: bytes) -> bool:
    """Whether the domain has a console that libvirt can open: one on a terminal of the host."""
    domain = _domain(text)
    return any(one.get("type") == "pty" for tag in ("console", "serial") for one in domain.all(f"devices/{tag}"))


def after_power_off(text: bytes) -> str:
    """Return what libvirt does when the guest powers itself off: `destroy` ends its process, `restart` does not."""
    said = _domain(text).child("on_poweroff")
    return said.text if said is not None and said.text else "destroy"


def boot_disks(text: bytes) -> frozenset[str]:
    """Return the disks that the guest may be started from: those with an order, or else the first of all.

    A kernel that is given from outside starts without any, but its root is somewhere: the first disk counts then too.
    """
    domain = _domain(text)
    disks = [disk for disk in domain.all("devices/disk") if (disk.get("device") or "disk") in ("disk", "lun")]
    ordered = frozenset(_target(disk) for disk in disks if disk.child("boot") is not None)
    return ordered or frozenset(_target(disk) for disk in disks[:1])


def plugged_counts(text: bytes) -> dict[str, int]:
    """Return how many network interfaces and host devices a domain has, which may be plugged in while it runs."""
    domain = _domain(text)
    return {tag: len(list(domain.all(f"devices/{tag}"))) for tag in ("interface", "hostdev")}


def disk_text(text: bytes, target: str) -> str:
    """Return the element of one disk as it is written; raises ReadError where there is none."""
    for disk in _domain(text).all("devices/disk"):
        if _target(disk) == target:
            return text[disk.start : disk.end].decode()
    raise ReadError(f"the domain has no disk {target[:60]!r}")


def _domain(text: bytes) -> Element:
    return domain_element(read_document(text))


def _target(disk: Element) -> str:
    target = disk.child("target")
    return (target.get("dev") if target is not None else None) or ""
