# SPDX-License-Identifier: Apache-2.0
"""Change a setting in libvirt's domain XML; everything but its element stays byte for byte (pure).

Settings that domain XML cannot express are refused with the reason (`words`), and so are values that libvirt would
refuse (`objections`).

Texts of a domain cannot be compared by lines: libvirt writes one in its own order and adds addresses and controllers.
"""

import re
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from itertools import count, islice

from virtune.dialects.language import Language, no_disk
from virtune.dialects.libvirt.domain import in_letters, number_of, read_domain
from virtune.dialects.libvirt.elements import THREADS_MAX, bus_of, domain_element, target_of, threads_in
from virtune.dialects.libvirt.objections import REMOVABLE_BUSES, ROTATING_BUSES, VIRTIO_WORDS, require_accepted
from virtune.dialects.libvirt.words import (
    CONTROLLER_ATTRIBUTES,
    DISK_WORDS,
    DOMAIN_WORDS,
    OF_A_CONTROLLER,
    OF_A_THREAD,
    OF_EITHER,
    OF_THE_DOMAIN,
    POLL_WORDS,
    POOL_WORDS,
    SCSI_MODELS,
    TUNED,
    refusal,
    says,
)
from virtune.dialects.text.xml import (
    Document,
    Element,
    add_child,
    read_document,
    remove_attribute,
    remove_element,
    set_attribute,
    set_text,
)
from virtune.model.domain import SettingChange
from virtune.model.errors import PlanError
from virtune.model.knobs import KNOBS

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
    if bus == bus_of(disk):
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
    disk = domain_element(document).all("devices/disk")[number]
    found = disk.find(path) if path else disk
    assert found is not None  # noqa: S101 - the caller saw it
    return found


def _free_name(domain: Element, moved: Element, bus: str) -> str:
    """Return the name under which a disk is on a bus: its own where that will do, else the first that is free."""
    others = [one for one in domain.all("devices/disk") if one is not moved and one.child("target") is not None]
    names = {target_of(one) for one in others}
    taken = {_place(one, bus) for one in others if bus_of(one) == bus}
    controllers = _controllers(domain, bus)
    prefix = _PREFIXES[bus]
    tried = (f"{prefix}{in_letters(number)}" for number in islice(count(), _NAMES_TRIED))
    own = target_of(moved)
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
    return _place_of_name(target_of(disk), bus)


def _place_of_name(name: str, bus: str) -> Place | None:
    """Where libvirt puts a disk without an address (virDomainDiskDefAssignAddress); None where it chooses."""
    number = number_of(name)
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


_AFTER: Mapping[str, tuple[str, ...]] = {
    "iotune": ("target",),
    "iothreads": ("vcpus", "vcpu", "memory", "name"),
    "iothreadids": ("iothreads", "vcpu", "name"),
    "features": ("os", "vcpu", "name"),
    "cputune": ("defaultiothread", "iothreadids", "iothreads", "vcpus", "vcpu", "memory", "name"),
}
"""Behind which others an element is put where it is missing; any other goes first."""

_SCHEDULER = re.compile(r"(batch|idle)|(fifo|rr) ([1-9][0-9]?)")
_MAPPED = re.compile(r"(?:io(?:thread)?)?([1-9][0-9]{0,4})(?::([0-9]{1,4})(?:-([0-9]{1,4}))?)?")
_NUMBER = re.compile(r"[0-9]{1,9}")

_VALUES: Mapping[tuple[str, str], str | None] = {
    ("device.werror", "enospc"): "enospace",
    ("device.werror", "auto"): None,
    ("device.rerror", "auto"): None,
    ("device.rotation_rate", "0"): None,
}
"""Values that libvirt writes differently, or by leaving the attribute out."""


def alter(text: bytes, turn: SettingChange) -> bytes:
    """Return the text of a domain with one setting changed.

    Raises PlanError for a setting that this language cannot express or a place that the domain does not have.
    """
    document = read_document(text)
    domain = domain_element(document)
    because = refusal(turn.knob)
    if because is not None:
        raise PlanError(f"{turn.knob} cannot be written into a libvirt domain: {because}")
    turn = _in_its_words(turn)
    kind, _, number = turn.at.partition(":")
    if turn.knob in OF_THE_DOMAIN:
        return _of_the_domain(document, domain, turn)
    if turn.knob in OF_A_THREAD or turn.knob == "vcpu.pin":
        _require_numbered(turn, "vcpu" if turn.knob == "vcpu.pin" else "iothread")
        return _tuned(document, turn) if turn.knob in TUNED else _listed(document, domain, turn, number)
    if turn.knob in OF_A_CONTROLLER or (turn.knob in OF_EITHER and number):
        return _of_a_controller(document, _controller(domain, turn, kind, number), turn)
    disks = {target_of(disk): disk for disk in reversed(domain.all("devices/disk"))}
    if not turn.at or turn.at not in disks:
        raise no_disk(turn, map(target_of, domain.all("devices/disk")))
    return _of_a_disk(document, disks[turn.at], turn)


def _in_its_words(turn: SettingChange) -> SettingChange:
    """A turn with the value as libvirt writes it; raises PlanError for one that would need quoting."""
    if turn.value is None:
        return turn
    value = _VALUES.get((turn.knob, turn.value), turn.value)
    shape = r"[\w,.^:+ -]+" if turn.knob.endswith(".scheduler") else r"[\w,.^:+-]+"
    if value is not None and not re.fullmatch(shape, value):
        raise PlanError(f"{value[:60]!r} is not a value of {turn.knob}")
    return SettingChange(knob=turn.knob, at=turn.at, value=value)


def _of_the_domain(document: Document, domain: Element, turn: SettingChange) -> bytes:
    if turn.at:
        raise PlanError(
            f"{turn.knob} is of the whole domain, and {turn.at[:60]!r} is a place in it",
            hint=f"write {turn.knob}={turn.value or ''}",
        )
    if turn.knob in TUNED:
        return _tuned(document, turn)
    if turn.knob == "iothread.count" and int(turn.value or 0) > THREADS_MAX:
        raise PlanError(f"{int(turn.value or 0):,} IOThreads are more than a host can have")
    if turn.knob == "cpu.kvm_hidden":
        if turn.value not in (None, "off"):
            raise PlanError(
                "hiding KVM from a guest is not something that virtune does: it costs the guest its clock"
            )
        turn = replace(turn, value=None)
    way, word = DOMAIN_WORDS[turn.knob]
    if way.startswith("cputune/") and turn.value is not None:
        document, _ = _cputune(document)
        domain = domain_element(document)
    return _set(document, domain, way, word, turn.value)


def _of_a_controller(document: Document, controller: Element, turn: SettingChange) -> bytes:
    if turn.knob == "device.iothread_vq_mapping":
        return _mapping(document, controller, turn)
    if turn.knob == "device.scsi_controller":
        if turn.value is None:
            raise PlanError("a SCSI controller without a model is an emulated one: name the model")
        return set_attribute(document, controller, "model", SCSI_MODELS[turn.value])
    return _set(document, controller, "driver", CONTROLLER_ATTRIBUTES[turn.knob], turn.value)


def _of_a_disk(document: Document, disk: Element, turn: SettingChange) -> bytes:
    match turn.knob:
        case "device.bus":
            return turn_bus(document, disk, turn)
        case "disk.cache_size":
            return _in_driver(
                document, disk, "metadata_cache", turn, f"<max_size unit='bytes'>{turn.value}</max_size>"
            )
        case "device.iothread_vq_mapping":
            return _mapping(document, disk, turn)
    return _set(document, disk, *DISK_WORDS[turn.knob], turn.value)


def _set(document: Document, place: Element, way: str, word: str, value: str | None) -> bytes:
    """Set an attribute, or the text where `word` is empty, of the element at the end of a way, or take it away.

    What is missing of the way is made. An element goes with its only attribute or its text, `<iotune>` with its last
    limit.
    """
    there, missing = [place], way.split("/")
    while missing and (child := there[-1].child(missing[0])) is not None:
        there.append(child)
        missing.pop(0)
    last = there[-1]
    if missing and value is None:
        return document.text
    if missing:
        xml = f"<{missing[-1]} {word}='{value}'/>" if word else f"<{missing[-1]}>{value}</{missing[-1]}>"
        for tag in reversed(missing[:-1]):
            xml = f"<{tag}>{xml}</{tag}>"
        return add_child(document, last, xml, after=_AFTER.get(missing[0], ()))
    if value is not None:
        return set_attribute(document, last, word, value) if word else set_text(document, last, value)
    if word and (last.attributes.keys() != {word} or last.children):
        return remove_attribute(document, last, word)
    emptied = there[-2].tag == "iotune" and len(there[-2].children) == 1
    return remove_element(document, there[-2] if emptied else last)


def _controller(domain: Element, turn: SettingChange, kind: str, number: str) -> Element:
    if not number:
        raise PlanError(f"{turn.knob} is of a controller", hint=f"write {turn.knob}@scsi:0={turn.value or ''}")
    for controller in domain.all("devices/controller"):
        if controller.get("type") == kind and (controller.get("index") or "0") == number:
            return controller
    raise PlanError(f"the domain has no controller {turn.at[:60]!r}")


def _require_numbered(turn: SettingChange, kind: str) -> None:
    found, _, number = turn.at.partition(":")
    if found != kind or not _NUMBER.fullmatch(number):
        what, example = ("a vCPU", "vcpu:0") if kind == "vcpu" else ("an IOThread", "iothread:1")
        raise PlanError(
            f"{turn.knob} is a setting of {what}, and {turn.at[:60]!r} names none",
            hint=f"write {turn.knob}@{example}={turn.value or ''}",
        )


def _listed(document: Document, domain: Element, turn: SettingChange, number: str) -> bytes:
    """Set an IOThread's own settings: its polling, and the size of its pool of worker threads."""
    found = next((one for one in domain.all("iothreadids/iothread") if one.get("id") == number), None)
    polls = turn.knob in POLL_WORDS
    word = POLL_WORDS[turn.knob] if polls else POOL_WORDS[turn.knob]
    holder = found.child("poll") if polls and found is not None else found
    if turn.value is None:
        return document.text if holder is None else remove_attribute(document, holder, word)
    if holder is not None:
        return set_attribute(document, holder, word, turn.value)
    if number not in {str(one.number) for one in threads_in(domain)}:
        raise PlanError(f"there is no IOThread {number}", hint="set iothread.count first")
    attribute = f" {word}='{turn.value}'"
    if found is not None:
        return add_child(document, found, f"<poll{attribute}/>")
    start = f"<iothread id='{number}'"
    listed = f"{start}><poll{attribute}/></iothread>" if polls else f"{start}{attribute}/>"
    ids = domain.child("iothreadids")
    if ids is not None:
        return add_child(document, ids, listed, after=("iothread",))
    return add_child(document, domain, f"<iothreadids>{listed}</iothreadids>", after=_AFTER["iothreadids"])


def _mapping(document: Document, place: Element, turn: SettingChange) -> bytes:
    """Spread the queues of a disk or a controller over IOThreads: `1+2`, or `1:0-1+2:2-3` with the queues of each."""
    threads = () if turn.value is None else map(_mapped, turn.value.split("+"))
    return _in_driver(document, place, "iothreads", turn, "".join(threads))


def _mapped(word: str) -> str:
    said = _MAPPED.fullmatch(word)
    if said is None:
        raise PlanError(f"{word[:40]!r} is not an IOThread", hint="write 1+2, or 1:0-1+2:2-3 with the queues of each")
    number, first, last = said.groups()
    if first is None:
        return f"<iothread id='{number}'/>"
    queues = range(int(first), int(last or first) + 1)
    return f"<iothread id='{number}'>{''.join(f'<queue id={one!r}/>' for one in map(str, queues))}</iothread>"


def _in_driver(document: Document, place: Element, tag: str, turn: SettingChange, inside: str) -> bytes:
    """Put an element into a `<driver>`, in the place of the one that is there, or take that away."""
    driver, found = place.child("driver"), place.find(f"driver/{tag}")
    if turn.value is None:
        return document.text if found is None else remove_element(document, found)
    xml = f"<{tag}>{inside}</{tag}>"
    if driver is None:
        return add_child(document, place, f"<driver>{xml}</driver>")
    if found is None:
        return add_child(document, driver, xml)
    return document.text[: found.start] + xml.encode() + document.text[found.end :]


def _tuned(document: Document, turn: SettingChange) -> bytes:
    """Pin the emulator, an IOThread or a vCPU to CPUs, or give it a scheduler: `fifo 1`, `batch`."""
    tag, what = TUNED[turn.knob]
    named = {what: turn.at.partition(":")[2]} if what else {}
    tune = domain_element(document).child("cputune")
    alike = [one for one in (tune.children if tune is not None else ()) if one.tag == tag]
    found = next((one for one in reversed(alike) if named.items() <= one.attributes.items()), None)
    if turn.value is None:
        return document.text if found is None else remove_element(document, found)
    words = {"cpuset": turn.value}
    if turn.knob.endswith(".scheduler"):
        said = _SCHEDULER.fullmatch(turn.value)
        if said is None:
            raise PlanError(f"{turn.value[:40]!r} is not a scheduler", hint="write fifo 1, rr 1, batch or idle")
        words = {"scheduler": said[1]} if said[1] else {"scheduler": said[2], "priority": said[3]}
    if found is not None and len(words) == 1:
        return set_attribute(document, found, *next(iter(words.items())))
    if found is not None:
        document = read_document(remove_element(document, found))
    said_of_it = "".join(f" {name}='{value}'" for name, value in {**named, **words}.items())
    document, tune = _cputune(document)
    return add_child(document, tune, f"<{tag}{said_of_it}/>", after=(tag, "emulatorpin", "vcpupin"))


def _cputune(document: Document) -> tuple[Document, Element]:
    """Return the `<cputune>` of a domain, which is made where it is missing."""
    domain = domain_element(document)
    tune = domain.child("cputune")
    if tune is None:
        document = read_document(add_child(document, domain, "<cputune/>", after=_AFTER["cputune"]))
        tune = domain_element(document).child("cputune")
        assert tune is not None  # noqa: S101 - written the line before
    return document, tune


LIBVIRT = Language(
    name="libvirt",
    title="libvirt",
    text="a libvirt domain",
    knows=lambda text: text.lstrip(b"\xef\xbb\xbf \t\r\n").startswith(b"<"),
    domains=lambda text: (read_domain(text),),
    turn=lambda text, turn, _: alter(text, turn),
    require_accepted=require_accepted,
    says={knob.id: says(knob) for knob in KNOBS if refusal(knob.id) is None},
    refusals={knob.id: because for knob in KNOBS if (because := refusal(knob.id)) is not None},
)
"""libvirt."""


_OWN = ("address", "alias", "controller")
"""Elements that libvirt makes and numbers by itself."""

_KEYS = {"disk": ("target", "dev"), "interface": ("mac", "address")}
"""The attribute of a child that distinguishes elements of the same name."""

Statement = tuple[str, str, str]
"""The way to an element, the name of an attribute of it (empty for its text), the value."""


def dropped(*, before: bytes, asked: bytes, found: bytes) -> tuple[str, ...]:
    """Return the new settings in the text given to libvirt that are missing in its answer."""
    lost = (_statements(asked) - _statements(before)) - _statements(found)
    return tuple(sorted({_said(one) for one in lost}))


def foreign(*, asked: bytes, found: bytes) -> tuple[str, ...]:
    """Return the differences of a domain from the text given to libvirt, without libvirt's own additions."""
    wanted, now = _statements(asked), _statements(found)
    return tuple(sorted({_said(one) for one in (now - wanted) + (wanted - now) if not _is_own(one)}))


def unmet(text: bytes, turns: Sequence[SettingChange]) -> tuple[SettingChange, ...]:
    """Return the changes that a domain's text does not have yet."""
    return tuple(turn for turn in turns if foreign(asked=alter(text, turn), found=text))


def _statements(text: bytes) -> Counter[Statement]:
    return Counter(_of(domain_element(read_document(text))))


def _of(root: Element) -> Iterator[Statement]:
    waiting = [("", root)]
    while waiting:
        way, element = waiting.pop()
        here = f"{way}/{element.tag}{_key(element)}"
        yield here, "", element.text
        for name, value in element.attributes.items():
            yield here, name, value
        waiting.extend((here, child) for child in element.children)


def _key(element: Element) -> str:
    child, attribute = _KEYS.get(element.tag, ("", ""))
    named = element.child(child) if child else None
    return f"[{named.get(attribute)}]" if named is not None else ""


def _is_own(statement: Statement) -> bool:
    return any(part.partition("[")[0] in _OWN for part in statement[0].split("/"))


def _said(statement: Statement) -> str:
    way, name, value = statement
    place = way.removeprefix("/domain").removeprefix("/")
    return f"{place} {name}={value!r}" if name else f"<{place}>{f' {value!r}' if value else ''}"
