# SPDX-License-Identifier: Apache-2.0
"""Find settings of a domain that libvirt or QEMU would refuse, before it is written (pure).

From libvirt 11.3, src/conf/domain_validate.c and src/qemu/qemu_validate.c, and tried with `domxml-to-native` of 9.0.
Only settings that virtune's changes can cause are checked: libvirt itself decides.
"""

from collections.abc import Iterator, Mapping
from functools import lru_cache

from virtune.dialects.libvirt.elements import bus_of, domain_element, target_of, threads_in
from virtune.dialects.libvirt.words import DRIVER_ATTRIBUTES
from virtune.dialects.qemu.refused import refused_limits, refused_numbers
from virtune.dialects.text.xml import Element, read_document
from virtune.model.domain import QUEUES_AUTO, QUEUES_MAX, SCSI_QUEUES_AUTO, SCSI_QUEUES_MAX, Refusal
from virtune.model.errors import PlanError, ReadError

_KNOBS = {word: knob for knob, word in DRIVER_ATTRIBUTES.items()} | {"iothreads": "device.iothread_vq_mapping"}
_NAMELESS = "a disk without a name"
_LSI_BY_DEFAULT = ("x86_64", "i686")

VIRTIO_WORDS = (
    "queues", "queue_size", "packed", "event_idx", "ioeventfd", "page_per_vq", "iommu", "ats", "iothread",
)  # fmt: skip
"""Attributes of a `<driver>` that only virtio disks have."""

ROTATING_BUSES = ("scsi", "ide", "sata")
REMOVABLE_BUSES = ("usb", "scsi")
_DIRECT = ("none", "directsync")
_NO_IDE = ("q35", "pc-q35", "microvm")
"""Machines of x86 without an IDE controller, by how their names begin."""

_IDENTITY: Mapping[str, tuple[str, ...]] = {
    "wwn": ("ide", "scsi"),
    "vendor": ("scsi",),
    "product": ("ide", "sata", "scsi"),
}
"""What tells a guest which disk it is, and the buses that can carry it."""

_VHOST_USER_LACKS = (
    "cache", "io", "error_policy", "rerror_policy", "discard", "iothread", "detect_zeroes", "copy_on_read",
    "ioeventfd",
)  # fmt: skip
_BANDWIDTH = {"iothread_quota": (1000, 17592186044415), "iothread_period": (1000, 1000000)}
"""Microseconds: what libvirt takes (virDomainDefCputuneValidate); 0 and less is no bound."""


def require_accepted(before: bytes, after: bytes) -> None:
    """Raise PlanError where a changed domain has what libvirt or QEMU refuses, and had it not before."""
    known = frozenset(objections(before))
    new = [one for one in objections(after) if one not in known]
    if new:
        said, hint = new[0]
        raise PlanError(f"libvirt or QEMU would refuse this: {said}", hint=hint)


@lru_cache(maxsize=4)  # what each finding would change is compared with the same text
def objections(text: bytes) -> tuple[tuple[str, str], ...]:
    """Return the settings of a domain that would be refused, each with what to do about it (or nothing)."""
    domain = domain_element(read_document(text))
    found = [one[1:3] for one in refused_in(domain)]
    for disk in domain.all("devices/disk"):
        name = target_of(disk) or _NAMELESS
        found += [*_native(disk, name), *_queues(disk, name), *_without_effect(disk, name, bus_of(disk))]
    return (*found, *_vcpus(domain))


def refused_in(domain: Element) -> tuple[Refusal, ...]:
    """Return what is refused of a domain as it stands, without what other rules say of it (native AIO with a page
    cache, too many queues), and without what some versions pass over. Raises ReadError.
    """
    threads = {str(one.number) for one in threads_in(domain)}
    try:
        return tuple(_all(domain, threads))
    except ValueError:  # int()'s own limit
        raise ReadError("a number in it has thousands of digits") from None


def _all(domain: Element, threads: set[str]) -> Iterator[Refusal]:
    for said, hint in (*_placement(domain, threads), *_pools(domain)):
        yield "", said, hint, ""
    names: set[str] = set()
    for disk in domain.all("devices/disk"):
        name = target_of(disk) or _NAMELESS
        if name in names:
            yield name, f"two disks are called {name}", "give each a name of its own", ""
        names.add(name)
        bus = bus_of(disk)
        for said, hint, knob in _bus_words(disk, name, bus) if bus is not None else ():
            yield name, said, hint, knob
        for said, hint in _of_a_disk(domain, disk, name, threads):
            yield name, said, hint, ""
    for controller in domain.all("devices/controller"):
        if controller.get("type") == "scsi":
            name = f"scsi:{controller.get('index') or '0'}"
            for said, hint in _controller(domain, controller, name, threads):
                yield name, said, hint, ""
    for said, hint in _groups(domain):
        yield "", said, hint, ""


def _of_a_disk(domain: Element, disk: Element, name: str, threads: set[str]) -> Iterator[tuple[str, str]]:
    yield from _engine(disk, name)
    for element in filter(None, (disk.child("target"), disk.child("blockio"))):
        yield from refused_numbers(element.attributes, name)
    yield from _threads(disk, name, threads)
    yield from _limits(disk, name)
    yield from _image(disk, name)
    if bus_of(disk) == "ide" and (domain.value("os/type", "machine") or "").startswith(_NO_IDE):
        yield f"its machine type has no IDE controller for {name}", f"device.bus@{name}=ahci is SATA"
    if disk.get("type") == "vhostuser":
        yield from _vhost_user(disk, name)


def _placement(domain: Element, threads: set[str]) -> Iterator[tuple[str, str]]:
    for tag in ("iothreadpin", "iothreadsched"):
        for one in domain.all(f"cputune/{tag}"):
            number = one.get("iothread") or one.get("iothreads") or ""
            if number.isdecimal() and number not in threads:
                yield f"there is no IOThread {number} to pin or schedule", "set iothread.count first"
    for tag, (low, high) in _BANDWIDTH.items():
        for one in domain.all(f"cputune/{tag}"):
            if one.text.isdecimal() and one.text != "0" and not low <= int(one.text) <= high:
                yield f"{tag} is {one.text}, and libvirt takes {low:,} to {high:,} us", ""


def _vcpus(domain: Element) -> Iterator[tuple[str, str]]:
    vcpu = domain.child("vcpu")
    cpus = int(vcpu.text) if vcpu is not None and vcpu.text.isdecimal() else 1
    for one in domain.all("cputune/vcpupin"):
        number = one.get("vcpu") or ""
        if number.isdecimal() and int(number) >= cpus:
            yield f"there is no vCPU {number} to pin: it has {cpus}, and the first is 0", ""


def _pools(domain: Element) -> Iterator[tuple[str, str]]:
    """libvirt takes a missing maximum for less than any minimum (virDomainDefIOThreadsValidate; tried with 9.0)."""
    for one in domain.all("iothreadids/iothread"):
        low, high = one.get("thread_pool_min") or "", one.get("thread_pool_max") or ""
        if high.isdecimal() and int(high) == 0:
            yield f"thread_pool_max of IOThread {one.get('id') or ''} is 0, and libvirt takes 1 or more", ""
        elif low.isdecimal() and (int(high) if high.isdecimal() else -1) < int(low):
            number = one.get("id") or ""
            yield (
                f"thread_pool_min of IOThread {number} is {low}, and its thread_pool_max is {high or 'not set'}",
                f"set iothread.thread_pool_max@iothread:{number}={low} or more too",
            )


def _native(disk: Element, name: str) -> Iterator[tuple[str, str]]:
    cache = disk.value("driver", "cache")
    if disk.value("driver", "io") == "native" and cache not in _DIRECT:
        yield (
            f"io='native' needs cache none or directsync, and the cache of {name} is {cache or 'not set'}",
            f"set disk.cache@{name}=none too, or disk.aio@{name}=threads",
        )


def _engine(disk: Element, name: str) -> Iterator[tuple[str, str]]:
    if disk.value("driver", "copy_on_read") == "on":
        if disk.child("readonly") is not None:
            yield f"copy_on_read writes, and {name} is read-only", ""
        if disk.get("device") in ("cdrom", "floppy", "lun"):
            yield f"copy_on_read is for disks, and {name} is a {disk.get('device')}", ""


def _bus_words(disk: Element, name: str, bus: str) -> Iterator[tuple[str, str, str]]:
    driver, target = disk.child("driver"), disk.child("target")
    words = {} if driver is None else driver.attributes
    there = [word for word in VIRTIO_WORDS if word in words and word != "queue_size"]
    if driver is not None and driver.child("iothreads") is not None:
        there.append("iothreads")
    if bus != "virtio":
        hint = "a SCSI disk has the queues and the IOThread of its controller: scsi.num_queues@scsi:0=, "
        hint = hint + "device.iothread@scsi:0=" if bus == "scsi" else f"device.bus@{name}=virtio-blk comes first"
        for word in there:
            yield f"{word}= is for virtio disks, and the bus of {name} is {bus}", hint, _KNOBS.get(word, "")
        if disk.get("model") is not None:
            yield f"model= is for virtio disks, and the bus of {name} is {bus}", "", ""
    if target is not None and target.get("rotation_rate") is not None and bus not in ROTATING_BUSES:
        said = f"rotation_rate= is for SCSI, SATA and IDE disks, and the bus of {name} is {bus}"
        yield said, "", "device.rotation_rate"
    if target is not None and target.get("removable") is not None and bus not in REMOVABLE_BUSES:
        yield f"removable= is for USB and SCSI disks, and the bus of {name} is {bus}", "", ""
    for tag, buses in _IDENTITY.items():
        if disk.child(tag) is not None and bus not in buses:
            yield f"<{tag}> of {name} cannot be on the bus {bus}, and the guest may know the disk by it", "", ""
    kind = disk.get("device") or "disk"
    if kind == "lun" and bus not in ("scsi", "virtio"):
        yield f"{name} is a LUN passed through, which the bus {bus} cannot carry", "", ""
    if kind == "cdrom" and bus == "virtio":
        yield f"{name} is a CD-ROM, and a virtio disk has no medium to change", "a CD-ROM is on SATA, SCSI or IDE", ""
    if kind == "disk" and bus in ("ide", "sata") and disk.child("readonly") is not None:
        yield f"{name} is read-only, which the bus {bus} cannot be", "", ""


def _without_effect(disk: Element, name: str, bus: str | None) -> Iterator[tuple[str, str]]:
    """What libvirt 9.0 passes over."""
    if disk.value("driver", "queue_size") is not None and bus != "virtio":
        yield f"queue_size= is for virtio disks, and the bus of {name} is {bus}", ""


def _queues(disk: Element, name: str) -> Iterator[tuple[str, str]]:
    """What libvirt takes, and QEMU does not: the VM would not start."""
    queues = disk.value("driver", "queues") or ""
    if queues.isdecimal() and QUEUES_MAX < int(queues) != QUEUES_AUTO:
        yield f"{name} has {int(queues):,} queues, and QEMU takes at most {QUEUES_MAX:,}", ""


def _threads(disk: Element, name: str, threads: set[str]) -> Iterator[tuple[str, str]]:
    driver = disk.child("driver")
    if driver is None:
        return
    number = driver.get("iothread")
    if number is not None:
        yield from _thread(number, name, threads)
    if number is not None and driver.child("iothreads") is not None:
        yield (
            f"{name} has an IOThread and is spread over several: it is one or the other",
            f"take one away: device.iothread@{name}= or device.iothread_vq_mapping@{name}=",
        )
    yield from _mapping(driver, name, threads)


def _thread(number: str, name: str, threads: set[str]) -> Iterator[tuple[str, str]]:
    if number == "0":
        yield "IOThreads are numbered from 1", ""
    elif number not in threads:
        there = f"it has {', '.join(sorted(threads, key=int)[:8])}" if threads else "it has none"
        yield f"{name} names IOThread {number}, and {there}", "set iothread.count too"


def _mapping(driver: Element, name: str, threads: set[str]) -> Iterator[tuple[str, str]]:
    listed = driver.all("iothreads/iothread")
    numbers = [one.get("id") or "" for one in listed]
    for number in numbers:
        yield from _thread(number, name, threads)
    if len(set(numbers)) < len(numbers):
        yield f"the queues of {name} are given to one IOThread twice", ""
    said = [one.get("id") or "" for thread in listed for one in thread.all("queue")]
    if not said:
        return
    if any(one.child("queue") is None for one in listed):
        yield f"{name} says the queues of some IOThreads only: it is all or none", ""
    queues = driver.get("queues") or ""
    wanted = [str(one) for one in range(int(queues))] if queues.isdecimal() and int(queues) < 1024 else []
    if sorted(said) != sorted(wanted):
        have = f"queues 0 to {len(wanted) - 1}" if wanted else "no number of queues"
        yield f"{name} has {have}, and each of them must be given out once", f"set device.num_queues@{name} too"


def _limits(disk: Element, name: str) -> Iterator[tuple[str, str]]:
    tune = disk.child("iotune")
    if tune is None:
        return
    numbers = [one for one in tune.children if one.tag != "group_name"]
    values = {one.tag: int(one.text) for one in numbers if one.text.isascii() and one.text.isdecimal()}
    yield from refused_limits(values, name)
    if tune.child("group_name") is not None and not any(values.values()):
        yield f"a throttle group of {name} needs a limit", f"set disk.throttle_iops@{name} or another too"
    if disk.child("throttlefilters") is not None:
        yield f"{name} has throttle filters, and then no <iotune>", ""


def _groups(domain: Element) -> Iterator[tuple[str, str]]:
    """Disks of one throttle group share one limit, so all of them must say the same."""
    said: dict[str, tuple[str, dict[str, str]]] = {}
    for disk in domain.all("devices/disk"):
        group, target = disk.find("iotune/group_name"), disk.child("target")
        tune = disk.child("iotune")
        if group is None or tune is None or target is None:
            continue
        name, limits = target.get("dev") or "", {one.tag: one.text for one in tune.children if one.text != "0"}
        first, other = said.setdefault(group.text, (name, limits))
        if other != limits:
            yield f"{name} and {first} are in one throttle group and have different limits", "give both the same"


def _image(disk: Element, name: str) -> Iterator[tuple[str, str]]:
    driver = disk.child("driver")
    kind = (driver.get("type") if driver is not None else None) or "raw"
    if disk.child("shareable") is not None and disk.child("readonly") is None and kind != "raw":
        yield f"{name} is shared, which needs raw, and it is {kind}", ""
    if driver is not None and kind != "qcow2":
        if driver.child("metadata_cache") is not None:
            yield f"a metadata cache is for qcow2 images, and {name} is {kind}", ""
        if driver.get("discard_no_unref") == "on":
            yield f"discard_no_unref= is for qcow2 images, and {name} is {kind}", ""


def _vhost_user(disk: Element, name: str) -> Iterator[tuple[str, str]]:
    driver = disk.child("driver")
    there = [word for word in _VHOST_USER_LACKS if driver is not None and driver.get(word) is not None]
    there += ["metadata_cache"] if driver is not None and driver.child("metadata_cache") is not None else []
    there += [tag for tag in ("iotune", "blockio") if disk.child(tag) is not None]
    for word in there:
        yield f"{word} cannot be set on {name}: another program serves this vhost-user disk", "set it in that program"


def _controller(domain: Element, controller: Element, name: str, threads: set[str]) -> Iterator[tuple[str, str]]:
    driver, model = controller.child("driver"), controller.get("model") or "auto"
    if model == "auto" and (domain.value("os/type", "arch") or "x86_64") not in _LSI_BY_DEFAULT:
        model = "virtio-scsi"  # of most other machines, or not known
    if driver is None:
        return
    queues = driver.get("queues") or ""
    if queues.isdecimal() and SCSI_QUEUES_MAX < int(queues) != SCSI_QUEUES_AUTO:
        yield f"{name} has {int(queues):,} queues, and QEMU takes at most {SCSI_QUEUES_MAX:,}", ""
    words = [word for word in ("queues", "cmd_per_lun", "max_sectors", "iothread", "ioeventfd") if driver.get(word)]
    if words and not model.startswith("virtio"):
        yield f"{words[0]}= is for virtio-scsi controllers, and {name} is {model.replace('auto', 'emulated')}", ""
    number = driver.get("iothread")
    if number is not None:
        yield from _thread(number, name, threads)
    yield from _mapping(driver, name, threads)
