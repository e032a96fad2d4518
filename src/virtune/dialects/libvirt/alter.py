# SPDX-License-Identifier: Apache-2.0
"""Change a setting in libvirt's domain XML; everything but its element stays byte for byte (pure).

Settings that domain XML cannot express are refused with the reason (`words`), and so are values that libvirt would
refuse (`objections`).
"""

import re
from collections.abc import Mapping

from virtune.dialects.language import no_disk
from virtune.dialects.libvirt.bus import turn_bus
from virtune.dialects.libvirt.domain import domain_element
from virtune.dialects.libvirt.threads import (
    turn_bandwidth,
    turn_count,
    turn_listed,
    turn_mapping,
    turn_pin,
    turn_scheduler,
)
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


def _name(disk: Element) -> str:
    target = disk.child("target")
    return (target.get("dev") if target is not None else None) or ""


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
