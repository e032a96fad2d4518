# SPDX-License-Identifier: Apache-2.0
"""Move a disk to another bus in libvirt's domain XML: rename it, and remove settings of the old bus (pure)."""

from collections.abc import Iterator, Mapping
from itertools import count, islice
from string import ascii_lowercase

from virtune.dialects.libvirt.domain import bus_of, domain_element
from virtune.dialects.libvirt.objections import REMOVABLE_BUSES, ROTATING_BUSES, VIRTIO_WORDS
from virtune.dialects.text.xml import (
    Document,
    Element,
    read_document,
    remove_attribute,
    remove_element,
    set_attribute,
)
from virtune.model.domain import SettingChange
from virtune.model.errors import PlanError

BUSES: Mapping[str, str] = {
    "virtio-blk": "virtio", "virtio-scsi": "scsi", "ahci": "sata", "ide": "ide", "usb": "usb",
}  # fmt: skip
"""libvirt's name of each kind of disk that all current versions have; nvme came with libvirt 11.5."""

_PREFIXES: Mapping[str, str] = {"virtio": "vd", "scsi": "sd", "sata": "sd", "usb": "sd", "ide": "hd"}
"""How the disks of each bus are named; from the letters behind it libvirt takes the place on a bus of drives."""

_NAMES_TRIED = 1000

Place = tuple[int, int, int]
"""Controller, bus of it, unit: where a drive is."""


def turn_bus(document: Document, disk: Element, turn: SettingChange) -> bytes:
    """Return the text with a disk on another bus, under a name of that bus; unchanged where it is on it already.

    The address goes, since libvirt gives a new one when the domain is defined, and so do the settings that only the
    old bus has. Raises PlanError for a bus that libvirt has not, or on which there is no room.
    """
    if turn.value is None:
        raise PlanError("a disk cannot be without a bus")
    bus = BUSES.get(turn.value, turn.value)
    if bus not in _PREFIXES:
        raise PlanError(f"libvirt has no bus {turn.value[:40]!r} for disks: it has {', '.join(_PREFIXES)}")
    domain = domain_element(document)
    if bus == _bus(disk):
        return document.text
    name = _free_name(domain, disk, bus)
    number = [id(one) for one in domain.all("devices/disk")].index(id(disk))
    text = document.text
    for path, word in _left_behind(disk, bus):
        again = read_document(text)
        place = _nth(again, number, path)
        text = remove_attribute(again, place, word) if word else remove_element(again, place)
    for word, value in (("bus", bus), ("dev", name)):
        again = read_document(text)
        text = set_attribute(again, _nth(again, number, "target"), word, value)
    return text


def _left_behind(disk: Element, bus: str) -> Iterator[tuple[str, str]]:
    """Yield what a disk has only on its old bus: the way to an element, and its attribute (none for all of it)."""
    if disk.child("address") is not None:
        yield "address", ""
    driver, target = disk.child("driver"), disk.child("target")
    if bus != "virtio":
        if driver is not None:
            yield from (("driver", word) for word in VIRTIO_WORDS if word in driver.attributes)
            yield from (("driver/iothreads", "") for _ in driver.all("iothreads"))
        if "model" in disk.attributes:
            yield "", "model"
    for word, buses in (("rotation_rate", ROTATING_BUSES), ("removable", REMOVABLE_BUSES)):
        if bus not in buses and target is not None and word in target.attributes:
            yield "target", word


def _nth(document: Document, number: int, path: str) -> Element:
    """Return an element of the disk of a number, or the disk itself."""
    disk = next(islice(domain_element(document).all("devices/disk"), number, None))
    found = disk.find(path) if path else disk
    assert found is not None  # noqa: S101 - the caller saw it
    return found


def _bus(disk: Element) -> str:
    target = disk.child("target")
    return (target.get("bus") if target is not None else None) or bus_of(_name(disk)) or ""


def _name(disk: Element) -> str:
    target = disk.child("target")
    return (target.get("dev") if target is not None else None) or ""


def _free_name(domain: Element, moved: Element, bus: str) -> str:
    """Return the name under which a disk is on a bus: its own where that will do, else the first that is free."""
    others = [one for one in domain.all("devices/disk") if one is not moved and one.child("target") is not None]
    names = {_name(one) for one in others}
    taken = {_place(one, bus) for one in others if _bus(one) == bus}
    controllers = _controllers(domain, bus)
    prefix = _PREFIXES[bus]
    tried = (f"{prefix}{_letters(number)}" for number in islice(count(), _NAMES_TRIED))
    own = _name(moved)
    for name in (own, *tried) if own.startswith(prefix) else tried:
        place = _place_of_name(name, bus)
        if name not in names and (place is None or (place not in taken and place[0] in controllers)):
            return name
    raise PlanError(f"there is no place left on the bus {bus}")


def _controllers(domain: Element, bus: str) -> frozenset[int]:
    """Return the controllers that a disk may go to: of SCSI those of virtio, of the others what libvirt adds too."""
    if bus == "ide":
        return frozenset({0})
    if bus != "scsi":
        return frozenset(range(_NAMES_TRIED))
    found = [one for one in domain.all("devices/controller") if one.get("type") == "scsi"]
    virtio = [one for one in found if (one.get("model") or "").startswith("virtio")]
    if not virtio:
        raise PlanError(
            "the domain has no virtio-scsi controller, and libvirt would add an emulated one",
            hint="add <controller type='scsi' model='virtio-scsi'/> first",
        )
    return frozenset(int(one.get("index") or 0) for one in virtio if (one.get("index") or "0").isdecimal())


def _place(disk: Element, bus: str) -> Place | None:
    address = disk.child("address")
    if address is not None and address.get("type") == "drive":
        words = (address.get(word) or "0" for word in ("controller", "bus", "unit"))
        controller, channel, unit = (int(word) if word.isdecimal() else 0 for word in words)
        return controller, channel, unit
    return _place_of_name(_name(disk), bus)


def _place_of_name(name: str, bus: str) -> Place | None:
    """Where libvirt puts a disk without an address (virDomainDiskDefAssignAddress); None where it chooses."""
    number = _number(name)
    if number is None:
        return None
    if bus == "scsi":  # 16 units, of which 7 is the controller's own
        unit = number % 15
        return number // 15, 0, unit + (unit >= 7)
    if bus == "sata":
        return number // 6, 0, number % 6
    if bus == "ide":
        return number // 4, number % 4 // 2, number % 2
    return None


def _letters(number: int) -> str:
    """Return the letters of the disk of a number: a to z, then aa."""
    letters = ""
    while number >= 0:
        letters = ascii_lowercase[number % 26] + letters
        number = number // 26 - 1
    return letters


def _number(name: str) -> int | None:
    letters = name[2:]
    if not letters or len(letters) > 4 or any(letter not in ascii_lowercase for letter in letters):
        return None
    number = 0
    for letter in letters:
        number = number * 26 + ascii_lowercase.index(letter) + 1
    return number - 1
