# SPDX-License-Identifier: Apache-2.0
"""A knob turned in libvirt's domain XML: only the element that it names is touched, byte for byte (pure).

What domain XML cannot say is refused with the reason; `REFUSALS` lists these.
"""

import re
from collections.abc import Callable, Mapping

from virtune.dialects.libvirt.domain import domain_element
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

DRIVER_ATTRIBUTES: Mapping[str, str] = {
    "disk.aio": "io",
    "disk.cache": "cache",
    "disk.discard": "discard",
    "disk.detect_zeroes": "detect_zeroes",
    "disk.copy_on_read": "copy_on_read",
    "disk.discard_no_unref": "discard_no_unref",
    "device.iothread": "iothread",
    "device.num_queues": "queues",
    "device.queue_size": "queue_size",
    "device.packed": "packed",
    "device.event_idx": "event_idx",
    "device.ioeventfd": "ioeventfd",
    "device.page_per_vq": "page_per_vq",
    "device.werror": "error_policy",
    "device.rerror": "rerror_policy",
}
"""Attributes of a disk's `<driver>`."""

CONTROLLER_ATTRIBUTES: Mapping[str, str] = {
    "device.iothread": "iothread",
    "scsi.num_queues": "queues",
    "scsi.cmd_per_lun": "cmd_per_lun",
    "scsi.max_sectors": "max_sectors",
}
"""Attributes of a controller's `<driver>`."""

LIMITS: Mapping[str, str] = {
    "disk.throttle_iops": "total_iops_sec",
    "disk.throttle_bps": "total_bytes_sec",
    "disk.throttle_iops_read": "read_iops_sec",
    "disk.throttle_iops_write": "write_iops_sec",
    "disk.throttle_bps_read": "read_bytes_sec",
    "disk.throttle_bps_write": "write_bytes_sec",
}
"""Elements of a disk's `<iotune>`."""

BUSES: Mapping[str, str] = {
    "virtio-blk": "virtio", "virtio-scsi": "scsi", "ahci": "sata", "ide": "ide", "usb": "usb",
}  # fmt: skip
"""What libvirt calls each kind of disk, where all that is still used have it; nvme came with libvirt 11.5."""

_CONVERT = "the image itself must be made anew: `qemu-img convert` while the VM is off"
REFUSALS: Mapping[str, str] = {
    "disk.format": _CONVERT,
    "disk.cluster_size": _CONVERT,
    "disk.extended_l2": _CONVERT,
    "disk.preallocation": _CONVERT,
    "disk.lazy_refcounts": "it is written in the image: `qemu-img amend -o lazy_refcounts=`",
    "disk.encryption": _CONVERT,
    "disk.aio_max_batch": "QEMU has it, libvirt has no word for it",
    "iothread.aio_max_batch": "QEMU has it, libvirt has no word for it",
    "device.seg_max_adjust": "libvirt has no word for it but `<qemu:override>`",
    "device.request_merging": "QEMU has it, libvirt has no word for it",
    "device.indirect_desc": "QEMU has it, libvirt has no word for it",
    "device.logical_block_size": "a disk that holds data is unreadable with another sector size",
    "nvme.ioeventfd": "QEMU has it, libvirt has no word for it",
    "machine.type": "another machine type changes the guest's devices; choose it by hand",
}
"""Knobs that QEMU has and that are not turned in domain XML: why not."""

_NUMBER = re.compile(r"[0-9]{1,9}")


def alter(text: bytes, *turns: SettingChange) -> bytes:
    """Return the text of a domain with knobs turned, one after the other.

    Raises PlanError for what this language cannot say or a place that the domain does not have.
    """
    for turn in turns:
        document = read_document(text)
        domain = domain_element(document)
        text = _turn(document, domain, turn)
    return text


def refusal(knob: str) -> str | None:
    """Return why a knob is not turned in domain XML; None for one that is."""
    if knob in _WAYS or knob in DRIVER_ATTRIBUTES or knob in CONTROLLER_ATTRIBUTES or knob in LIMITS:
        return None
    return REFUSALS.get(knob, "it is no part of a domain's configuration")


def _turn(document: Document, domain: Element, turn: SettingChange) -> bytes:
    because = refusal(turn.knob)
    if because is not None:
        raise PlanError(f"{turn.knob} cannot be written into a libvirt domain: {because}")
    if turn.knob in _WAYS:
        return _WAYS[turn.knob](document, domain, turn)
    kind, _, number = turn.at.partition(":")
    if number:
        controller = _one(domain, "devices/controller", turn, type=kind, index=number)
        return _driver_attribute(document, controller, CONTROLLER_ATTRIBUTES, turn)
    if turn.knob in LIMITS:
        return _limit(document, domain, turn)
    return _driver_attribute(document, _disk(domain, turn), DRIVER_ATTRIBUTES, turn)


def _disk(domain: Element, turn: SettingChange) -> Element:
    for disk in domain.all("devices/disk"):
        target = disk.child("target")
        if target is not None and target.get("dev") == turn.at:
            return disk
    raise PlanError(f"the domain has no disk {turn.at!r}", hint="`virtune probe --connect URI` lists its disks")


def _one(domain: Element, path: str, turn: SettingChange, **attributes: str) -> Element:
    for one in domain.all(path):
        if all(one.get(name) == value for name, value in attributes.items()):
            return one
    raise PlanError(f"the domain has no {turn.at!r}")


def _driver_attribute(document: Document, place: Element, words: Mapping[str, str], turn: SettingChange) -> bytes:
    if turn.knob not in words:
        raise PlanError(f"{turn.knob} is no setting of {turn.at!r}")
    driver = place.child("driver")
    if turn.value is None:
        return document.text if driver is None else remove_attribute(document, driver, words[turn.knob])
    if driver is None:
        name = " name='qemu'" if place.tag == "disk" else ""
        return add_child(document, place, f"<driver{name} {words[turn.knob]}='{_safe(turn)}'/>")
    return set_attribute(document, driver, words[turn.knob], turn.value)


def _limit(document: Document, domain: Element, turn: SettingChange) -> bytes:
    disk, tag = _disk(domain, turn), LIMITS[turn.knob]
    tune = disk.child("iotune")
    found = tune.child(tag) if tune is not None else None
    if turn.value is None:
        return document.text if found is None else remove_element(document, found)
    if tune is None:
        return add_child(document, disk, f"<iotune><{tag}>{_safe(turn)}</{tag}></iotune>", after=("target",))
    if found is None:
        return add_child(document, tune, f"<{tag}>{_safe(turn)}</{tag}>")
    return set_text(document, found, turn.value)


def _bus(document: Document, domain: Element, turn: SettingChange) -> bytes:
    """Another bus. The address belongs to the old one: libvirt gives a new one when the domain is defined."""
    disk = _disk(domain, turn)
    target = disk.child("target")
    if target is None or turn.value is None:
        raise PlanError("a disk cannot be without a bus")
    bus = BUSES.get(turn.value, turn.value)
    if bus not in BUSES.values():
        raise PlanError(f"libvirt has no bus {turn.value[:40]!r} for disks: it has {', '.join(BUSES.values())}")
    models = {one.get("model") for one in domain.all("devices/controller") if one.get("type") == "scsi"}
    if bus == "scsi" and "virtio-scsi" not in models:
        raise PlanError("the domain has no virtio-scsi controller, and libvirt would make one that is emulated")
    text = set_attribute(document, target, "bus", bus)
    again = read_document(text)
    address = _disk(domain_element(again), turn).child("address")
    return text if address is None else remove_element(again, address)


def _rotation_rate(document: Document, domain: Element, turn: SettingChange) -> bytes:
    target = _disk(domain, turn).child("target")
    if target is None:
        raise PlanError(f"the disk {turn.at!r} has no target")
    if turn.value is None:
        return remove_attribute(document, target, "rotation_rate")
    return set_attribute(document, target, "rotation_rate", turn.value)


def _thread_count(document: Document, domain: Element, turn: SettingChange) -> bytes:
    count = domain.child("iothreads")
    if turn.value is None:
        return document.text if count is None else remove_element(document, count)
    if count is not None:
        return set_text(document, count, turn.value)
    return add_child(
        document, domain, f"<iothreads>{_safe(turn)}</iothreads>", after=("vcpus", "vcpu", "memory", "name")
    )


def _pin(document: Document, domain: Element, turn: SettingChange) -> bytes:
    """A pin of the emulator, an IOThread or a vCPU: `<cputune>` is made where it is missing."""
    kind, number = _numbered(turn) if turn.at else ("", "")
    tag = {"iothread.pin": "iothreadpin", "vcpu.pin": "vcpupin", "emulator.pin": "emulatorpin"}[turn.knob]
    named = {} if tag == "emulatorpin" else {kind: number}
    tune = domain.child("cputune")
    found = None
    for one in tune.children if tune is not None else ():
        if one.tag == tag and all(one.get(name) == value for name, value in named.items()):
            found = one
    if turn.value is None:
        return document.text if found is None else remove_element(document, found)
    if found is not None:
        return set_attribute(document, found, "cpuset", turn.value)
    words = "".join(f" {name}='{value}'" for name, value in named.items())
    xml = f"<{tag}{words} cpuset='{_safe(turn)}'/>"
    if tune is None:
        place = ("iothreadids", "iothreads", "vcpus", "vcpu", "memory", "name")
        text = add_child(document, domain, "<cputune/>", after=place)
        document = read_document(text)
        made = domain_element(document).child("cputune")
        assert made is not None  # noqa: S101 - written the line before
        tune = made
    return add_child(document, tune, xml, after=(tag, "emulatorpin", "vcpupin"))


def _poll(document: Document, domain: Element, turn: SettingChange) -> bytes:
    """How long an IOThread polls, in `<iothreadids>`, which must then list the thread."""
    _, number = _numbered(turn)
    ids = domain.child("iothreadids")
    found = next((one for one in domain.all("iothreadids/iothread") if one.get("id") == number), None)
    poll = found.child("poll") if found is not None else None
    if turn.value is None:
        return document.text if poll is None else remove_attribute(document, poll, "max")
    if poll is not None:
        return set_attribute(document, poll, "max", turn.value)
    xml = f"<poll max='{_safe(turn)}'/>"
    if found is not None:
        return add_child(document, found, xml)
    listed = f"<iothread id='{number}'>{xml}</iothread>"
    if ids is not None:
        return add_child(document, ids, listed, after=("iothread",))
    return add_child(document, domain, f"<iothreadids>{listed}</iothreadids>", after=("iothreads", "vcpu", "name"))


def _metadata_cache(document: Document, domain: Element, turn: SettingChange) -> bytes:
    disk = _disk(domain, turn)
    driver = disk.child("driver")
    cache = driver.child("metadata_cache") if driver is not None else None
    if turn.value is None:
        return document.text if cache is None else remove_element(document, cache)
    size = f"<metadata_cache><max_size unit='bytes'>{_safe(turn)}</max_size></metadata_cache>"
    if driver is None:
        return add_child(document, disk, f"<driver name='qemu'>{size}</driver>")
    if cache is None:
        return add_child(document, driver, size)
    text = remove_element(document, cache)
    again = read_document(text)
    rest = _disk(domain_element(again), turn).child("driver")
    assert rest is not None  # noqa: S101 - only its child went
    return add_child(again, rest, size)


def _hidden(document: Document, domain: Element, turn: SettingChange) -> bytes:
    found = domain.find("features/kvm/hidden")
    if turn.value in (None, "off"):
        return document.text if found is None else remove_element(document, found)
    raise PlanError("hiding KVM from a guest is not something that virtune does: it costs the guest its clock")


def _numbered(turn: SettingChange) -> tuple[str, str]:
    """Part `iothread:1`."""
    kind, _, number = turn.at.partition(":")
    if kind not in ("iothread", "vcpu") or not _NUMBER.fullmatch(number):
        raise PlanError(f"{turn.at[:60]!r} is no IOThread and no vCPU", hint="write iothread:1 or vcpu:0")
    return kind, number


def _safe(turn: SettingChange) -> str:
    """A value that is put into new XML: one that needs no quoting, since every value of these knobs is such."""
    value = turn.value or ""
    if not re.fullmatch(r"[\w,.^:+-]+", value):
        raise PlanError(f"{value[:60]!r} is no value of {turn.knob}")
    return value


_WAYS: Mapping[str, Callable[[Document, Element, SettingChange], bytes]] = {
    "device.bus": _bus,
    "device.rotation_rate": _rotation_rate,
    "iothread.count": _thread_count,
    "iothread.pin": _pin,
    "vcpu.pin": _pin,
    "emulator.pin": _pin,
    "iothread.poll_max_ns": _poll,
    "disk.cache_size": _metadata_cache,
    "cpu.kvm_hidden": _hidden,
}
"""Knobs that are more than one attribute of a `<driver>`."""
