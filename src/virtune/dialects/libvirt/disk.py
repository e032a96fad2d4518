# SPDX-License-Identifier: Apache-2.0
"""The libvirt XML of a guest's disk: a Stack as a `<disk>` element, with the `<iothreads>` that it needs.

The mapping to QEMU's options was tried with `virsh domxml-to-native`, libvirt 9.0. Settings that libvirt cannot
express are reported, never dropped silently.

A disk that is attached to a running domain has one name twice: as serial number, by which the guest finds it, and in
a user alias, which no other device of the domain has, so that detaching by it never affects another disk.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from string import ascii_lowercase
from xml.sax.saxutils import escape

from virtune.dialects.libvirt.domain import read_domain
from virtune.dialects.libvirt.elements import domain_element
from virtune.dialects.libvirt.words import BLOCK_SIZES, CONTROLLER_ATTRIBUTES, DRIVER_ATTRIBUTES
from virtune.dialects.text.xml import Element, read_document
from virtune.model.errors import PreconditionError
from virtune.model.knobs import BY_ID
from virtune.model.stack import LIMITS, POLL_DEFAULT_NS, Mapped, Stack, mapping_of, setting_of, thread_number

_TARGETS = {
    "virtio-blk": ("virtio", "vda"),
    "virtio-scsi": ("scsi", "sda"),
    "ahci": ("sata", "sda"),
    "ide": ("ide", "hda"),
}
"""libvirt's name of each bus, and of the first disk on it."""


@dataclass(frozen=True, slots=True, kw_only=True)
class DiskXml:
    """A disk for a domain: the `<disk>` element, its `<controller>` and the elements beside `<vcpu>` (or nothing),
    and notes.
    """

    disk: str
    controller: str = ""
    domain: str = ""
    notes: tuple[str, ...] = ()


def disk_xml(
    stack: Stack,
    *,
    image: str,
    block_device: bool = False,
    target: str | None = None,
    iothread: int = 1,
    also: tuple[str, ...] = (),
) -> DiskXml:
    """Return a stack as libvirt writes it; `also` are further elements of the disk, a line each. `target` is the name
    that libvirt gives the disk, the first of its bus where nothing is said.

    Raises ValueError for a stack that libvirt cannot express at all.
    """
    if stack.device.vfio_pci is not None:
        return DiskXml(disk=_passed(stack.device.vfio_pci), notes=_unsaid(stack))
    if stack.kind.front == "file" or stack.disk.backend != "file":
        raise ValueError("a disk without an image in a file is not written for libvirt")
    bus = stack.device.bus if stack.kind.in_guest else "virtio-blk"
    # into a domain that runs a disk is plugged without a controller of its own
    if bus not in _TARGETS or (stack.kind.users_guest and bus != "virtio-blk"):
        raise ValueError(f"a disk on {bus} is not written for libvirt yet")
    disk = stack.disk
    driver = {"name": "qemu", "type": disk.format, **_written(stack, DRIVER_ATTRIBUTES, "disk.")}
    mapping = stack.device.iothread_vq_mapping
    mapped = () if mapping is None else tuple(enumerate(mapping_of(mapping), iothread))
    of_disk = bus != "virtio-scsi"  # there queues and threads are the controller's
    served = _served(stack, DRIVER_ATTRIBUTES if of_disk else CONTROLLER_ATTRIBUTES)
    served |= {"iothread": str(iothread)} if stack.in_iothread and not mapped else {}
    driver |= served if of_disk else {}
    tables = (
        f"    <metadata_cache><max_size unit='bytes'>{disk.l2_cache_size}</max_size></metadata_cache>".splitlines()
    )
    tables = [] if disk.l2_cache_size is None else tables
    kind, where = ("block", "dev") if block_device else ("file", "file")
    lines = [
        f"<disk type='{kind}' device='disk'>",
        *_driver(driver, [*(_mapping(mapped) if of_disk else ()), *tables]),
        f"  <source {where}={_quoted(image)}/>",
        f"  <target dev={_quoted(target or _TARGETS[bus][1])} bus='{_TARGETS[bus][0]}'/>",
        *_sizes(stack),
        *(f"  {element}" for element in also),
        *_limits(disk.limits),
        "</disk>",
    ]
    domain, notes = _threads(stack, iothread)
    controller = "" if of_disk else _controller(served, _mapping(mapped))
    return DiskXml(disk="\n".join(lines), controller=controller, domain=domain, notes=(*notes, *_unsaid(stack)))


def _controller(served: dict[str, str], inside: list[str]) -> str:
    driver = _driver(served, inside) if served or inside else []
    return "\n".join(["<controller type='scsi' index='0' model='virtio-scsi'>", *driver, "</controller>"])


def _passed(address: str) -> str:
    """Write a PCI device of the host's that a guest gets as it is; libvirt takes it from the host while it runs."""
    domain, bus, rest = address.split(":")
    slot, function = rest.split(".")
    place = f"domain='0x{domain}' bus='0x{bus}' slot='0x{slot}' function='0x{function}'"
    source = f"  <source><address {place}/></source>"
    return f"<hostdev mode='subsystem' type='pci' managed='yes'>\n{source}\n</hostdev>"


def _served(stack: Stack, words: Mapping[str, str]) -> dict[str, str]:
    """Return the attributes of the virtqueues: those of the guest's device, or what the export stands for."""
    if not stack.kind.in_guest:
        return {} if stack.num_queues is None else {"queues": str(stack.num_queues)}
    found = {**_written(stack, words, "device."), **_written(stack, words, "scsi.")}
    return {word: value for word, value in found.items() if word != "iothread"}  # by its number in the domain


def _written(stack: Stack, words: Mapping[str, str], prefix: str) -> dict[str, str]:
    """Return the attributes of those knobs of a table that a stack has a value for, and whose names so begin."""
    knobs = {word: BY_ID[name] for name, word in words.items() if name.startswith(prefix)}
    values = {word: setting_of(stack, knob) for word, knob in knobs.items() if knob.place}
    flags = {True: "on", False: "off"}
    return {
        word: flags[value] if isinstance(value, bool) else str(value)
        for word, value in values.items()
        if value is not None
    }


def _sizes(stack: Stack) -> list[str]:
    # a new disk may have any sector size; `alter` leaves that of one with data on it alone
    words = {"device.logical_block_size": "logical_block_size", **BLOCK_SIZES}
    said = "".join(f" {name}='{value}'" for name, value in _written(stack, words, "device.").items())
    return [f"  <blockio{said}/>"] if said else []


def _driver(attributes: dict[str, str], inside: list[str]) -> list[str]:
    words = "".join(f" {name}={_quoted(value)}" for name, value in attributes.items())
    return [f"  <driver{words}>", *inside, "  </driver>"] if inside else [f"  <driver{words}/>"]


def _quoted(value: str) -> str:
    """Return an attribute's value in the quotes that libvirt itself writes."""
    return "'" + escape(value, {"'": "&apos;"}) + "'"


def _mapping(mapped: Sequence[tuple[int, Mapped]]) -> list[str]:
    """Write the IOThreads that share a disk, by their numbers in the domain."""
    rows = []
    for number, one in mapped:
        queues = "".join(f"<queue id='{queue}'/>" for queue in one.queues)
        rows.append(
            f"      <iothread id='{number}'>{queues}</iothread>" if queues else f"      <iothread id='{number}'/>"
        )
    return ["    <iothreads>", *rows, "    </iothreads>"] if rows else []


def _limits(asked: Mapping[str, int]) -> list[str]:
    names = ((limit.libvirt, asked.get(limit.qmp)) for limit in sorted(LIMITS, key=lambda one: one.libvirt))
    lines = [f"    <{name}>{escape(str(value))}</{name}>" for name, value in names if value is not None]
    return ["  <iotune>", *lines, "  </iotune>"] if lines else []


def _threads(stack: Stack, number: int) -> tuple[str, tuple[str, ...]]:
    if not stack.in_iothread:
        return "", ()
    numbers = [number + more for more in range(max(1, len(stack.device.iothreads)))]
    lines, notes = [f"<iothreads>{numbers[-1]}</iothreads>"], []
    if len(numbers) > 1:
        notes.append(
            "several IOThreads for one disk need libvirt 10.0 (virtio-scsi: 11.2); older ones drop the words"
        )
    pool = "" if stack.thread_pool_max is None else f" thread_pool_max='{stack.thread_pool_max}'"
    poll = None if stack.poll_max_ns == POLL_DEFAULT_NS else stack.poll_max_ns
    if stack.poll_max_ns == POLL_DEFAULT_NS:
        notes.append(f"poll_max_ns={POLL_DEFAULT_NS} is QEMU's default, so no <poll> is written")
    if poll is None and not pool:
        return lines[0], tuple(notes)
    inside = "/>" if poll is None else f"><poll max='{poll}'/></iothread>"
    lines += ["<iothreadids>", *(f"  <iothread id='{one}'{pool}{inside}" for one in numbers), "</iothreadids>"]
    if poll is not None:
        live = "; ".join(f"virsh iothreadset DOMAIN {one} --poll-max-ns {poll} --live" for one in numbers)
        notes.append(f"<poll> needs libvirt 9.4; before, and on a domain that runs: {live}")
    return "\n".join(lines), tuple(notes)


def _unsaid(stack: Stack) -> tuple[str, ...]:
    disk = stack.disk
    notes = {
        "<metadata_cache> is for all metadata of qcow2, where l2-cache-size is for its L2 tables alone": (
            disk.l2_cache_size is not None
        ),
        "libvirt reads in the image which images are below it": bool(disk.backing_depth),
        "a data file needs libvirt 10.10, which names it as <dataStore> in <source>": bool(disk.data_file),
        "an encrypted image needs <encryption format='luks'> in <source>, with the UUID of a secret that "
        "`virsh secret-define` and `virsh secret-set-value` make": disk.encryption == "luks",
    }
    return tuple(note for note, applies in notes.items() if applies)


_ALIAS = "ua-"
"""libvirt requires this prefix for user aliases."""

_VIRTIO_NAMES = tuple(f"vd{letter}" for letter in reversed(ascii_lowercase))
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
    found = next((target for target in _VIRTIO_NAMES if target not in used), None)
    if found is None:
        raise PreconditionError("the domain uses every name for a virtio disk from vda to vdz")
    return found


def find_plugged(domain: bytes, name: str) -> Element | None:
    """Return the disk of that name in a running domain's XML; None when it is not there."""
    disks = domain_element(read_document(domain)).all("devices/disk")
    return next((disk for disk in disks if disk.value("alias", "name") == alias_of(name)), None)


def driver_words(disk: Element) -> Mapping[str, str]:
    """Return the attributes of a disk's `<driver>`."""
    driver = disk.child("driver")
    return {} if driver is None else dict(driver.attributes)
