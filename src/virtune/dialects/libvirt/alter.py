# SPDX-License-Identifier: Apache-2.0
"""Change a setting in libvirt's domain XML; everything but its element stays byte for byte (pure).

Settings that domain XML cannot express are refused with the reason (`words`), and so are values that libvirt would
refuse (`objections`).

Texts of a domain cannot be compared by lines: libvirt writes one in its own order and adds addresses and controllers.
"""

import re
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from itertools import count, islice
from string import ascii_lowercase

from virtune.dialects.language import no_disk
from virtune.dialects.libvirt.domain import THREADS_MAX, bus_of, domain_element, threads_in
from virtune.dialects.libvirt.objections import REMOVABLE_BUSES, ROTATING_BUSES, VIRTIO_WORDS
from virtune.dialects.libvirt.words import (
    BANDWIDTH,
    BLOCK_SIZES,
    CONTROLLER_ATTRIBUTES,
    DRIVER_ATTRIBUTES,
    FEATURES,
    LIMITS,
    OF_A_CONTROLLER,
    OF_A_THREAD,
    OF_EITHER,
    OF_THE_DOMAIN,
    PINS,
    POLL_WORDS,
    POOL_WORDS,
    SCHEDULERS,
    SCSI_MODELS,
    refusal,
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


_BEFORE_CPUTUNE = ("defaultiothread", "iothreadids", "iothreads", "vcpus", "vcpu", "memory", "name")
_SCHEDULER = re.compile(r"(batch|idle)|(fifo|rr) ([1-9][0-9]?)")
_MAPPED = re.compile(r"(?:io(?:thread)?)?([1-9][0-9]{0,4})(?::([0-9]{1,4})(?:-([0-9]{1,4}))?)?")


def turn_count(document: Document, turn: SettingChange) -> bytes:
    """Set or take away how many IOThreads there are."""
    domain = domain_element(document)
    count = domain.child("iothreads")
    if turn.value is None:
        return document.text if count is None else remove_element(document, count)
    if int(turn.value) > THREADS_MAX:
        raise PlanError(f"{int(turn.value):,} IOThreads are more than a host can have")
    if count is not None:
        return set_text(document, count, turn.value)
    return add_child(
        document, domain, f"<iothreads>{turn.value}</iothreads>", after=("vcpus", "vcpu", "memory", "name")
    )


def turn_listed(document: Document, turn: SettingChange) -> bytes:
    """Set an IOThread's own settings: its polling, and the size of its pool of worker threads."""
    domain, number = domain_element(document), turn.at.partition(":")[2]
    found = next((one for one in domain.all("iothreadids/iothread") if one.get("id") == number), None)
    word = POLL_WORDS.get(turn.knob)
    holder = found if word is None or found is None else found.child("poll")
    word = word or POOL_WORDS[turn.knob]
    if turn.value is None:
        return document.text if holder is None else remove_attribute(document, holder, word)
    if holder is not None:
        return set_attribute(document, holder, word, turn.value)
    if number not in {str(one.number) for one in threads_in(domain)}:
        raise PlanError(f"there is no IOThread {number}", hint="set iothread.count first")
    attribute = f" {word}='{turn.value}'"
    inside = f"<poll{attribute}/>" if turn.knob in POLL_WORDS else ""
    if found is not None:
        return add_child(document, found, inside)
    start = f"<iothread id='{number}'"
    listed = f"{start}>{inside}</iothread>" if inside else f"{start}{attribute}/>"
    ids = domain.child("iothreadids")
    if ids is not None:
        return add_child(document, ids, listed, after=("iothread",))
    return add_child(document, domain, f"<iothreadids>{listed}</iothreadids>", after=("iothreads", "vcpu", "name"))


def turn_pin(document: Document, turn: SettingChange) -> bytes:
    """Pin the emulator, an IOThread or a vCPU to CPUs."""
    tag, what = PINS[turn.knob]
    named = {what: turn.at.partition(":")[2]} if what else {}
    return _tuned(document, tag, named, {"cpuset": turn.value} if turn.value is not None else None)


def turn_scheduler(document: Document, turn: SettingChange) -> bytes:
    """Give the emulator or an IOThread a scheduler: `fifo 1`, `batch`."""
    tag, what = SCHEDULERS[turn.knob]
    named = {what: turn.at.partition(":")[2]} if what else {}
    if turn.value is None:
        return _tuned(document, tag, named, None)
    said = _SCHEDULER.fullmatch(turn.value)
    if said is None:
        raise PlanError(f"{turn.value[:40]!r} is not a scheduler", hint="write fifo 1, rr 1, batch or idle")
    words = {"scheduler": said[1]} if said[1] else {"scheduler": said[2], "priority": said[3]}
    return _tuned(document, tag, named, words)


def turn_bandwidth(document: Document, turn: SettingChange) -> bytes:
    """Set what share of a CPU all IOThreads may take together."""
    domain, tag = domain_element(document), BANDWIDTH[turn.knob]
    found = domain.find(f"cputune/{tag}")
    if turn.value is None:
        return document.text if found is None else remove_element(document, found)
    if found is not None:
        return set_text(document, found, turn.value)
    document, tune = _cputune(document)
    return add_child(document, tune, f"<{tag}>{turn.value}</{tag}>")


def turn_mapping(document: Document, place: Element, turn: SettingChange) -> bytes:
    """Spread the queues of a disk or a controller over IOThreads: `1+2`, or `1:0-1+2:2-3` with the queues of each."""
    driver = place.child("driver")
    listed = driver.child("iothreads") if driver is not None else None
    if turn.value is None:
        return document.text if listed is None else remove_element(document, listed)
    xml = "<iothreads>" + "".join(_mapped(word) for word in turn.value.split("+")) + "</iothreads>"
    if driver is None:
        return add_child(document, place, f"<driver>{xml}</driver>")
    if listed is None:
        return add_child(document, driver, xml)
    return document.text[: listed.start] + xml.encode() + document.text[listed.end :]


def _mapped(word: str) -> str:
    said = _MAPPED.fullmatch(word)
    if said is None:
        raise PlanError(f"{word[:40]!r} is not an IOThread", hint="write 1+2, or 1:0-1+2:2-3 with the queues of each")
    number, first, last = said.groups()
    if first is None:
        return f"<iothread id='{number}'/>"
    queues = range(int(first), int(last or first) + 1)
    return f"<iothread id='{number}'>{''.join(f'<queue id={one!r}/>' for one in map(str, queues))}</iothread>"


def _tuned(document: Document, tag: str, named: Mapping[str, str], words: Mapping[str, str] | None) -> bytes:
    """Set the attributes of one element of `<cputune>`, or take the element away."""
    tune = domain_element(document).child("cputune")
    found = None
    for one in tune.children if tune is not None else ():
        if one.tag == tag and all(one.get(name) == value for name, value in named.items()):
            found = one
    if words is None:
        return document.text if found is None else remove_element(document, found)
    if found is not None and len(words) == 1:
        ((name, value),) = words.items()
        return set_attribute(document, found, name, value)
    if found is not None:
        document = read_document(remove_element(document, found))
    said = "".join(f" {name}='{value}'" for name, value in {**named, **words}.items())
    document, tune = _cputune(document)
    return add_child(document, tune, f"<{tag}{said}/>", after=(tag, "emulatorpin", "vcpupin"))


def _cputune(document: Document) -> tuple[Document, Element]:
    """Return the `<cputune>` of a domain, which is made where it is missing."""
    domain = domain_element(document)
    tune = domain.child("cputune")
    if tune is None:
        document = read_document(add_child(document, domain, "<cputune/>", after=_BEFORE_CPUTUNE))
        tune = domain_element(document).child("cputune")
        assert tune is not None  # noqa: S101 - written the line before
    return document, tune


_VALUES: Mapping[tuple[str, str], str | None] = {
    ("device.werror", "enospc"): "enospace",
    ("device.werror", "auto"): None,
    ("device.rerror", "auto"): None,
    ("device.rotation_rate", "0"): None,
}
"""Values that libvirt writes differently, or by leaving the attribute out."""

_NUMBER = re.compile(r"[0-9]{1,9}")


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
    if turn.knob in OF_THE_DOMAIN:
        return _of_the_domain(document, turn)
    kind, _, number = turn.at.partition(":")
    if turn.knob in OF_A_THREAD or turn.knob == "vcpu.pin":
        _require_numbered(turn, "vcpu" if turn.knob == "vcpu.pin" else "iothread")
        if turn.knob in PINS:
            return turn_pin(document, turn)
        return turn_scheduler(document, turn) if turn.knob in SCHEDULERS else turn_listed(document, turn)
    if turn.knob in OF_A_CONTROLLER or (turn.knob in OF_EITHER and number):
        return _of_a_controller(document, _controller(domain, turn, kind, number), turn)
    return _of_a_disk(document, _disk(domain, turn), turn)


def _in_its_words(turn: SettingChange) -> SettingChange:
    """A turn with the value as libvirt writes it; raises PlanError for one that would need quoting."""
    if turn.value is None:
        return turn
    value = _VALUES.get((turn.knob, turn.value), turn.value)
    shape = r"[\w,.^:+ -]+" if turn.knob in SCHEDULERS else r"[\w,.^:+-]+"
    if value is not None and not re.fullmatch(shape, value):
        raise PlanError(f"{value[:60]!r} is not a value of {turn.knob}")
    return SettingChange(knob=turn.knob, at=turn.at, value=value)


def _of_the_domain(document: Document, turn: SettingChange) -> bytes:
    if turn.at:
        raise PlanError(
            f"{turn.knob} is of the whole domain, and {turn.at[:60]!r} is a place in it",
            hint=f"write {turn.knob}={turn.value or ''}",
        )
    if turn.knob in PINS:
        return turn_pin(document, turn)
    if turn.knob in SCHEDULERS:
        return turn_scheduler(document, turn)
    if turn.knob in BANDWIDTH:
        return turn_bandwidth(document, turn)
    if turn.knob in FEATURES:
        return _feature(document, turn)
    return turn_count(document, turn) if turn.knob == "iothread.count" else _hidden(document, turn)


def _of_a_controller(document: Document, controller: Element, turn: SettingChange) -> bytes:
    if turn.knob == "device.iothread_vq_mapping":
        return turn_mapping(document, controller, turn)
    if turn.knob == "device.scsi_controller":
        if turn.value is None:
            raise PlanError("a SCSI controller without a model is an emulated one: name the model")
        return set_attribute(document, controller, "model", SCSI_MODELS[turn.value])
    return _attribute(document, controller, "driver", CONTROLLER_ATTRIBUTES[turn.knob], turn.value)


def _of_a_disk(document: Document, disk: Element, turn: SettingChange) -> bytes:
    match turn.knob:
        case "device.bus":
            return turn_bus(document, disk, turn)
        case "device.rotation_rate":
            return _attribute(document, disk, "target", "rotation_rate", turn.value)
        case "disk.cache_size":
            return _metadata_cache(document, disk, turn)
        case "device.iothread_vq_mapping":
            return turn_mapping(document, disk, turn)
    if turn.knob in LIMITS:
        return _limit(document, disk, turn)
    if turn.knob in BLOCK_SIZES:
        return _attribute(document, disk, "blockio", BLOCK_SIZES[turn.knob], turn.value)
    return _attribute(document, disk, "driver", DRIVER_ATTRIBUTES[turn.knob], turn.value)


def _disk(domain: Element, turn: SettingChange) -> Element:
    names = []
    for disk in domain.all("devices/disk"):
        names.append(_name(disk))
        if turn.at and names[-1] == turn.at:
            return disk
    raise no_disk(turn, names)


def _controller(domain: Element, turn: SettingChange, kind: str, number: str) -> Element:
    if not number:
        raise PlanError(f"{turn.knob} is of a controller", hint=f"write {turn.knob}@scsi:0={turn.value or ''}")
    for one in domain.all("devices/controller"):
        if one.get("type") == kind and (one.get("index") or "0") == number:
            return one
    raise PlanError(f"the domain has no controller {turn.at[:60]!r}")


def _require_numbered(turn: SettingChange, kind: str) -> None:
    found, _, number = turn.at.partition(":")
    if found != kind or not _NUMBER.fullmatch(number):
        what = "a vCPU" if kind == "vcpu" else "an IOThread"
        example = "vcpu:0" if kind == "vcpu" else "iothread:1"
        raise PlanError(
            f"{turn.knob} is a setting of {what}, and {turn.at[:60]!r} names none",
            hint=f"write {turn.knob}@{example}={turn.value or ''}",
        )


def _attribute(document: Document, place: Element, tag: str, word: str, value: str | None) -> bytes:
    """Set or remove an attribute of a child, which is created if missing and removed when empty."""
    child = place.child(tag)
    if value is not None:
        if child is None:
            return add_child(document, place, f"<{tag} {word}='{value}'/>")
        return set_attribute(document, child, word, value)
    if child is None:
        return document.text
    if child.attributes.keys() == {word} and not child.children:
        return remove_element(document, child)
    return remove_attribute(document, child, word)


def _limit(document: Document, disk: Element, turn: SettingChange) -> bytes:
    tag, tune = LIMITS[turn.knob], disk.child("iotune")
    found = tune.child(tag) if tune is not None else None
    if turn.value is None:
        if found is None or tune is None:
            return document.text
        return remove_element(document, tune if len(tune.children) == 1 else found)
    if tune is None:
        return add_child(document, disk, f"<iotune><{tag}>{turn.value}</{tag}></iotune>", after=("target",))
    if found is None:
        return add_child(document, tune, f"<{tag}>{turn.value}</{tag}>")
    return set_text(document, found, turn.value)


def _metadata_cache(document: Document, disk: Element, turn: SettingChange) -> bytes:
    driver = disk.child("driver")
    cache = driver.child("metadata_cache") if driver is not None else None
    if turn.value is None:
        return document.text if cache is None else remove_element(document, cache)
    size = f"<metadata_cache><max_size unit='bytes'>{turn.value}</max_size></metadata_cache>"
    if driver is None:
        return add_child(document, disk, f"<driver>{size}</driver>")
    if cache is None:
        return add_child(document, driver, size)
    return document.text[: cache.start] + size.encode() + document.text[cache.end :]


def _feature(document: Document, turn: SettingChange) -> bytes:
    """A hint of KVM to the guest: `<features><kvm>` is made where it is missing."""
    tag = FEATURES[turn.knob]
    domain = domain_element(document)
    found = domain.find(f"features/kvm/{tag}")
    if turn.value is None:
        return document.text if found is None else remove_element(document, found)
    if found is not None:
        return set_attribute(document, found, "state", turn.value)
    xml = f"<{tag} state='{turn.value}'/>"
    features, kvm = domain.child("features"), domain.find("features/kvm")
    if kvm is not None:
        return add_child(document, kvm, xml)
    if features is not None:
        return add_child(document, features, f"<kvm>{xml}</kvm>")
    return add_child(document, domain, f"<features><kvm>{xml}</kvm></features>", after=("os", "vcpu", "name"))


def _hidden(document: Document, turn: SettingChange) -> bytes:
    found = domain_element(document).find("features/kvm/hidden")
    if turn.value in (None, "off"):
        return document.text if found is None else remove_element(document, found)
    raise PlanError("hiding KVM from a guest is not something that virtune does: it costs the guest its clock")


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
