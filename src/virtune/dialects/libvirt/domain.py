# SPDX-License-Identifier: Apache-2.0
"""Read libvirt's domain XML into a Domain (pure).

What libvirt itself would refuse (`queues='many'`) is refused here too, with its line. Unknown elements do no
harm.
"""

import re
import shlex
from collections.abc import Iterator, Mapping, Sequence
from string import ascii_lowercase

from virtune.dialects.libvirt.elements import (
    WRAPPERS,
    attribute,
    bus_of,
    domain_element,
    number,
    target_of,
    threads_in,
)
from virtune.dialects.libvirt.objections import refused_in
from virtune.dialects.qemu.command import about_disks, changes_a_disk
from virtune.dialects.text.xml import Document, Element, read_document
from virtune.model.domain import (
    REQUEST_SIZE,
    Controller,
    DiskSource,
    Domain,
    DomainDisk,
    SourceKind,
)
from virtune.model.errors import ReadError

FILTERED = "throttlefilters"
"""The option of a disk whose limits are those of groups, and which can have none of its own then."""

_ROOT = re.compile(rb"(?:\xef\xbb\xbf)?(?:\s|<\?[^>]*>|<![^-\[][^>]*>|<!--.*?-->)*<([^\s/>]{1,60})", re.DOTALL)
"""The name of the first element, behind what may stand before it."""

_SOURCE_NAMES: Mapping[str, str] = {
    "file": "file",
    "block": "dev",
    "dir": "dir",
    "vhostuser": "path",
    "vhostvdpa": "dev",
}
_SCALE = {"b": 1, "bytes": 1, "KB": 10**3, "k": 1024, "KiB": 1024, "MB": 10**6, "M": 1024**2, "MiB": 1024**2,
          "GB": 10**9, "G": 1024**3, "GiB": 1024**3, "TB": 10**12, "T": 1024**4, "TiB": 1024**4}  # fmt: skip
_LIMIT_WORDS = ("_sec", "_sec_max", "_sec_max_length")
_NO_DRIVER = Element("driver", {}, 0, 0, b"")
AGENT_PORT = "org.qemu.guest_agent.0"
"""The port on which QEMU's guest agent listens."""

_DISKS_PER_SCSI_CONTROLLER = 15
"""libvirt spreads `sdX` names without an address over wide SCSI controllers: 16 units, one of them the controller."""


def read_domain(text: bytes) -> Domain:
    """Read one domain from what `virsh dumpxml` prints or a file holds; raises ReadError."""
    return domain_in(read_document(text))


def domain_in(document: Document) -> Domain:
    """Read the domain of a document."""
    root = domain_element(document)
    threads = root.child("iothreads")
    vcpu, weight, devices = root.child("vcpu"), root.find("blkiotune/weight"), root.child("devices")
    groups = {_text_of(one, "group_name"): tuple(_limits(one)) for one in root.all("throttlegroups/throttlegroup")}
    return Domain(
        name=_text_of(root, "name"),
        uuid=_text_of(root, "uuid") or None,
        kind=root.get("type") or "",
        line=root.line,
        vcpus=1 if vcpu is None else attribute(vcpu, "current") or number(vcpu.text, vcpu, "vcpu"),
        machine=root.value("os/type", "machine"),
        arch=root.value("os/type", "arch"),
        emulator=_text_of(root, "devices/emulator") or None,
        threads=threads_in(root),
        threads_line=threads.line if threads is not None else root.line,
        pins=tuple(_pins(root)),
        memory_nodes=root.value("numatune/memory", "nodeset"),
        guest_agent=any(one.get("name") == AGENT_PORT for one in root.all("devices/channel/target")),
        kvm_hidden=root.value("features/kvm/hidden", "state") == "on",
        host_devices=len(root.all("devices/hostdev")),
        io_weight=number(weight.text, weight, "weight") if weight is not None else None,
        disks=tuple(_disk(one, groups) for one in root.all("devices/disk")),
        controllers=tuple(_controller(one) for one in root.all("devices/controller")),
        written=frozenset(_written(root, devices)),
        refused=refused_in(root),
        elsewhere=tuple(_around(root)),
    )


def may_be_domain(text: bytes) -> bool:
    """Whether XML, well-formed or not, begins as a domain does: folders hold networks, pools and much else too. What
    has no begin of XML may have been one.
    """
    found = _ROOT.match(text)
    return found is None or found[1].decode(errors="replace") in ("domain", *WRAPPERS)


def _around(root: Element) -> Iterator[str]:
    """What is told to QEMU of disks past libvirt: options of its command line, properties of devices."""
    for one in root.children:
        prefix, _, tag = one.tag.rpartition(":")
        if tag == "commandline" and prefix:
            words = [arg.get("value") or "" for arg in one.all(f"{prefix}:arg")]
            yield from (f"{what} of <{one.tag}>" for what in about_disks(words))
        elif tag == "override" and prefix:
            aliases = (device.get("alias") or "" for device in one.all(f"{prefix}:device"))
            yield from (f"<{one.tag}> of {alias}" for alias in aliases if changes_a_disk(alias))


def _pins(root: Element) -> Iterator[tuple[str, str]]:
    for tag, key in (("vcpupin", "vcpu"), ("iothreadpin", "iothread")):
        for one in root.all(f"cputune/{tag}"):
            yield f"{key}:{one.get(key) or ''}", one.get("cpuset") or ""
    if root.find("cputune/emulatorpin") is not None:
        yield "emulator", root.value("cputune/emulatorpin", "cpuset") or ""


def _written(root: Element, devices: Element | None) -> Iterator[str]:
    """The elements that a libvirt before some version does not know and drops in silence."""
    if root.all("iothreadids/iothread/poll"):
        yield "iothreadids/iothread/poll"
    for disk in devices.children if devices is not None else ():
        if disk.tag == "disk":
            yield from (
                f"disk/{path}" for path in ("driver/iothreads", "source/dataStore") if disk.find(path) is not None
            )
        elif disk.tag == "controller" and disk.find("driver/iothreads") is not None:
            yield "controller/driver/iothreads"


def _disk(disk: Element, groups: Mapping[str, tuple[tuple[str, int], ...]]) -> DomainDisk:
    target, name = disk.child("target"), target_of(disk)
    driver = disk.child("driver") or _NO_DRIVER
    filters = [one.get("group") or "" for one in disk.all("throttlefilters/throttlefilter")]
    size, group = driver.find("metadata_cache/max_size"), disk.find("iotune/group_name")
    return DomainDisk(
        target=name,
        line=disk.line,
        device=disk.get("device") or "disk",
        bus=bus_of(disk),
        source=_source(disk),
        driver=driver.get("name"),
        format=driver.get("type"),
        cache=driver.get("cache"),
        io=_said(driver, "io"),
        discard=_said(driver, "discard"),
        detect_zeroes=_said(driver, "detect_zeroes"),
        copy_on_read=driver.get("copy_on_read"),
        werror=_said(driver, "error_policy"),
        rerror=_said(driver, "rerror_policy"),
        iothread=attribute(driver, "iothread"),
        mapping=_mapping(driver),
        queues=attribute(driver, "queues") or None,  # libvirt takes 0 for what is not set
        queue_size=attribute(driver, "queue_size") or None,
        ioeventfd=driver.get("ioeventfd"),
        metadata_cache_bytes=_bytes(size) if size is not None else None,
        limits=_limits_of(disk, [groups.get(name, ()) for name in filters]),
        limits_group=" ".join(filters) if group is None else group.text,
        controller=_controller_of(disk, name),
        rotation_rate=attribute(target, "rotation_rate") if target is not None else None,
        backing=_backing(disk),
        read_only=disk.child("readonly") is not None,
        shareable=disk.child("shareable") is not None,
        transient=disk.child("transient") is not None,
        options=frozenset({FILTERED}) if filters else frozenset(),
    )


def _said(driver: Element, name: str) -> str | None:
    word = driver.get(name)
    return None if word == "default" else word  # libvirt's own word for what is not set


def _source(disk: Element) -> DiskSource:
    kind = disk.get("type") or "file"
    source = disk.child("source")
    if source is None or not source.attributes:
        return DiskSource(kind="none")
    if kind == "network":
        protocol = source.get("protocol") or ""
        return DiskSource(kind="network", name=f"{protocol}:{source.get('name') or ''}", protocol=protocol)
    if kind == "volume":
        return DiskSource(kind="volume", name=f"{source.get('pool') or ''}/{source.get('volume') or ''}")
    if kind == "nvme":
        return DiskSource(kind="nvme", name=source.get("namespace") or "")
    if kind not in _SOURCE_NAMES:
        raise ReadError(f"line {disk.line}: disk type {kind[:40]!r} is not one that libvirt knows")
    name = source.get(_SOURCE_NAMES[kind]) or ""
    known: SourceKind = kind  # type: ignore[assignment]  # one of the keys above
    return DiskSource(kind=known if name else "none", name=name)


def _mapping(driver: Element) -> tuple[int, ...]:
    found = (attribute(one, "id") for one in driver.all("iothreads/iothread")) if driver.children else ()
    return tuple(one for one in found if one is not None)


def _limits_of(disk: Element, groups: Sequence[tuple[tuple[str, int], ...]]) -> tuple[tuple[str, int], ...]:
    """The limits of a disk: its own, or those of the groups that it passes, the smaller of each."""
    tune = disk.child("iotune")
    found = dict(_limits(tune)) if tune is not None else {}
    for name, value in (limit for group in groups for limit in group if limit[1]):
        found[name] = min(value, found.get(name) or value)
    return tuple(found.items())


def _text_of(element: Element, path: str) -> str:
    found = element.find(path)
    return found.text if found is not None else ""


def _limits(tune: Element) -> Iterator[tuple[str, int]]:
    for one in tune.children:
        if one.tag.endswith(_LIMIT_WORDS) or one.tag == "size_iops_sec":
            yield one.tag, number(one.text, one, one.tag)


def _backing(disk: Element) -> int | None:
    """The number of backing files; None where the chain is not listed to its end."""
    depth, store = 0, disk.child("backingStore")
    if store is None:
        return None
    while store is not None and store.children:
        depth, store = depth + 1, store.child("backingStore")
    return depth


def _controller(one: Element) -> Controller:
    driver = one.child("driver")
    kind, index, model = one.get("type") or "", attribute(one, "index") or 0, one.get("model")
    if driver is None:  # as most of a machine's dozen have none
        return Controller(kind=kind, index=index, line=one.line, model=model)
    return Controller(
        kind=kind,
        index=index,
        line=one.line,
        model=model,
        queues=attribute(driver, "queues") or None,
        iothread=attribute(driver, "iothread"),
        mapping=_mapping(driver),
    )


def _controller_of(disk: Element, name: str) -> int:
    address = disk.child("address")
    if address is not None:
        return attribute(address, "controller") or 0
    number = number_of(name) if name.startswith("sd") else None
    return 0 if number is None else number // _DISKS_PER_SCSI_CONTROLLER


def in_letters(number: int) -> str:
    """Return the letters of the disk of a number: a to z, then aa."""
    letters = ""
    while number >= 0:
        letters = ascii_lowercase[number % 26] + letters
        number = number // 26 - 1
    return letters


def number_of(name: str) -> int | None:
    """Return the number that the letters of a disk's name stand for, from 0; None for no such name."""
    letters = name[2:]
    if not letters or len(letters) > 4 or any(letter not in ascii_lowercase for letter in letters):
        return None
    number = 0
    for letter in letters:
        number = number * 26 + ascii_lowercase.index(letter) + 1
    return number - 1


def _bytes(size: Element) -> int:
    unit = size.get("unit") or "bytes"
    if unit not in _SCALE:
        raise ReadError(f"line {size.line}: {unit[:40]!r} is not a unit of sizes")
    return number(size.text, size, size.tag) * _SCALE[unit]


def has_agent(text: bytes) -> bool:
    """Whether the domain has the channel that QEMU's guest agent listens on."""
    return any(target.get("name") == AGENT_PORT for target in _domain(text).all("devices/channel/target"))


def has_console(text: bytes) -> bool:
    """Whether the domain has a console that libvirt can open: one on a terminal of the host."""
    domain = _domain(text)
    return any(one.get("type") == "pty" for tag in ("console", "serial") for one in domain.all(f"devices/{tag}"))


def after_power_off(text: bytes) -> str:
    """Return what libvirt does when the guest powers itself off: `destroy` ends its process, `restart` does not."""
    return _text_of(_domain(text), "on_poweroff") or "destroy"


def boot_disks(text: bytes) -> frozenset[str]:
    """Return the disks that the guest may be started from: those with an order, or else the first of all.

    A kernel that is given from outside starts without any, but its root is somewhere: the first disk counts then too.
    """
    domain = _domain(text)
    disks = [disk for disk in domain.all("devices/disk") if (disk.get("device") or "disk") in ("disk", "lun")]
    ordered = frozenset(target_of(disk) for disk in disks if disk.child("boot") is not None)
    return ordered or frozenset(target_of(disk) for disk in disks[:1])


def plugged_counts(text: bytes) -> dict[str, int]:
    """Return how many network interfaces and host devices a domain has, which may be plugged in while it runs."""
    domain = _domain(text)
    return {tag: len(domain.all(f"devices/{tag}")) for tag in ("interface", "hostdev")}


def disk_text(text: bytes, target: str) -> str:
    """Return the element of one disk as it is written; raises ReadError where there is none."""
    for disk in _domain(text).all("devices/disk"):
        if target_of(disk) == target:
            return text[disk.start : disk.end].decode()
    raise ReadError(f"the domain has no disk {target[:60]!r}")


def _domain(text: bytes) -> Element:
    return domain_element(read_document(text))


def limits_command(uri: str, domain: str, now: DomainDisk, wanted: dict[str, int]) -> str | None:
    """Return the command of virsh that gives a running disk the `wanted` limits (by libvirt's names) in place of its
    present ones; None for a disk with limits of groups, which can have none of its own.
    """
    if FILTERED in now.options:
        return None
    # virsh resets what it is not told of a kind of limit, but for a burst's length, which cannot be without its burst
    names = [*{**dict(now.limits), **wanted}]
    words = [word for name in names for word in (f"--{name.replace('_', '-')}", str(wanted.get(name, 0)))]
    return shlex.join(["virsh", "-c", uri, "blkdeviotune", domain, now.target, *words, "--live"])


def without(limit: str, disk: DomainDisk) -> dict[str, int]:
    """Return the limits of a disk without one of them and its bursts, and without the size of what counts as one
    request where no limit counts them any more, which QEMU refuses.
    """
    left = {name: value for name, value in disk.limits if name != limit and not name.startswith(f"{limit}_max")}
    if not any(value and name.endswith("_iops_sec") and name != REQUEST_SIZE for name, value in left.items()):
        left.pop(REQUEST_SIZE, None)
    return left
