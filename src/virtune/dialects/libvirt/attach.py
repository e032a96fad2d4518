# SPDX-License-Identifier: Apache-2.0
"""The libvirt XML of a disk that is attached to a running domain, and how to find it there again (pure).

Its unique name is used twice: as serial number, by which the guest finds it, and in a user alias, which no other
device of the domain has, so that detaching by it never affects another disk.
"""

from collections.abc import Mapping
from string import ascii_lowercase

from virtune.dialects.libvirt.disk import disk_xml
from virtune.dialects.libvirt.domain import domain_element, read_domain
from virtune.dialects.qemu.guest import AGENT_PORT
from virtune.dialects.text.xml import Element, read_document
from virtune.model.errors import PreconditionError
from virtune.model.stack import Stack, thread_number

_ALIAS = "ua-"
"""libvirt requires this prefix for user aliases."""

_TARGETS = tuple(f"vd{letter}" for letter in reversed(ascii_lowercase))
"""The last names come first: a user will probably take the next free one for a new disk."""


def alias_of(name: str) -> str:
    """Return the alias under which libvirt, and QEMU, know the disk of a name."""
    return f"{_ALIAS}{name}"


def plug_xml(stack: Stack, *, image: str, target: str, name: str, writable: bool) -> str:
    """Render a stack as the disk to attach; raises ValueError for settings that libvirt cannot express."""
    also = [f"<serial>{name}</serial>", f"<alias name='{alias_of(name)}'/>"]
    also += [] if writable else ["<readonly/>"]
    thread = thread_number(stack.device.iothread or "") or 1
    return disk_xml(stack, image=image, target=target, iothread=thread, also=tuple(also)).disk + "\n"


def free_target(*domains: bytes) -> str:
    """Return a name for a disk that none of these configurations uses; raises PreconditionError without one."""
    used = {disk.target for text in domains for disk in read_domain(text).disks}
    found = next((target for target in _TARGETS if target not in used), None)
    if found is None:
        raise PreconditionError("the domain uses every name for a virtio disk from vda to vdz")
    return found


def find_plugged(domain: bytes, name: str) -> Element | None:
    """Return the disk of that name in a running domain's XML; None when it is not there."""
    root = domain_element(read_document(domain))
    return next(
        (disk for disk in root.all("devices/disk") if _attribute(disk, "alias", "name") == alias_of(name)), None
    )


def driver_words(disk: Element) -> Mapping[str, str]:
    """Return the attributes of a disk's `<driver>`."""
    driver = disk.child("driver")
    return {} if driver is None else dict(driver.attributes)


def has_agent_channel(domain: bytes) -> bool:
    """Whether a domain has the port on which a guest agent listens."""
    root = domain_element(read_document(domain))
    return any(_attribute(channel, "target", "name") == AGENT_PORT for channel in root.all("devices/channel"))


def _attribute(element: Element, child: str, attribute: str) -> str | None:
    found = element.child(child)
    return None if found is None else found.get(attribute)
