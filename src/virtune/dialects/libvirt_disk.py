# SPDX-License-Identifier: Apache-2.0
"""libvirt's words for a guest's disk: a Stack as a `<disk>` element, and the `<iothreads>` that it needs.

The mapping to QEMU's options was tried with `virsh domxml-to-native`, libvirt 9.0. What libvirt has no word for is
said, never dropped.
"""

from dataclasses import dataclass
from xml.sax.saxutils import escape, quoteattr

from virtune.model.stack import GUEST_RIGS, Stack

POLL_DEFAULT_NS = 32768
"""What QEMU does unasked on Linux, and therefore is not written: `<poll>` needs libvirt 9.4."""


@dataclass(frozen=True, slots=True, kw_only=True)
class DiskXml:
    """A disk for a domain: the `<disk>` element, what belongs beside `<vcpu>` (or nothing), and what to know."""

    disk: str
    domain: str = ""
    notes: tuple[str, ...] = ()


def disk_xml(
    stack: Stack,
    *,
    image: str,
    block_device: bool = False,
    target: str = "vda",
    iothread: int = 1,
    also: tuple[str, ...] = (),
) -> DiskXml:
    """Return a stack as libvirt writes it; `also` are further elements of the disk, a line each.

    Raises ValueError for a stack that libvirt has no words for at all.
    """
    if stack.rig == "metal" or stack.disk.backend == "null-co":
        raise ValueError("libvirt has no words for a disk without an image")
    if stack.rig in GUEST_RIGS and stack.device.bus != "virtio-blk":
        raise ValueError(f"a disk on {stack.device.bus} is not written for libvirt yet")
    disk = stack.disk
    driver = {
        "name": "qemu",
        "type": disk.format,
        "cache": disk.cache,
        "io": disk.aio,
        "discard": disk.discard,
        "detect_zeroes": disk.detect_zeroes,
    }
    driver |= _queues(stack)
    if stack.in_iothread:
        driver["iothread"] = str(iothread)
    kind, where = ("block", "dev") if block_device else ("file", "file")
    lines = [
        f"<disk type='{kind}' device='disk'>",
        *_driver(driver, disk.l2_cache_size),
        f"  <source {where}={quoteattr(image)}/>",
        f"  <target dev={quoteattr(target)} bus='virtio'/>",
        *_sizes(stack),
        *(f"  {element}" for element in also),
        *_limits(disk.throttle_iops, disk.throttle_bps),
        "</disk>",
    ]
    domain, notes = _threads(stack, iothread)
    return DiskXml(disk="\n".join(lines), domain=domain, notes=(*notes, *_unsaid(stack)))


def _queues(stack: Stack) -> dict[str, str]:
    """Return the attributes of the virtqueues: those of the guest's device, or what the export stands for."""
    if stack.rig not in GUEST_RIGS:
        return {} if stack.num_queues is None else {"queues": str(stack.num_queues)}
    device = stack.device
    words = {"queues": device.num_queues, "queue_size": device.queue_size}
    flags = {"packed": device.packed, "event_idx": device.event_idx}
    found = {name: str(value) for name, value in words.items() if value is not None}
    return found | {name: "on" if value else "off" for name, value in flags.items() if value is not None}


def _sizes(stack: Stack) -> list[str]:
    device = stack.device
    words = {"logical_block_size": device.logical_block_size, "physical_block_size": device.physical_block_size}
    said = "".join(f" {name}='{value}'" for name, value in words.items() if value is not None)
    return [f"  <blockio{said}/>"] if said else []


def _driver(attributes: dict[str, str], l2_cache_size: int | None) -> list[str]:
    words = " ".join(f"{name}={quoteattr(value)}" for name, value in attributes.items())
    if l2_cache_size is None:
        return [f"  <driver {words}/>"]
    return [
        f"  <driver {words}>",
        f"    <metadata_cache><max_size unit='bytes'>{l2_cache_size}</max_size></metadata_cache>",
        "  </driver>",
    ]


def _limits(iops: int | None, bytes_per_second: int | None) -> list[str]:
    asked = {"total_bytes_sec": bytes_per_second, "total_iops_sec": iops}
    lines = [f"    <{name}>{escape(str(value))}</{name}>" for name, value in asked.items() if value]
    return ["  <iotune>", *lines, "  </iotune>"] if lines else []


def _threads(stack: Stack, number: int) -> tuple[str, tuple[str, ...]]:
    if not stack.in_iothread:
        return "", ()
    lines = [f"<iothreads>{number}</iothreads>"]
    if stack.poll_max_ns in (None, POLL_DEFAULT_NS):
        return lines[0], ()
    poll = stack.poll_max_ns
    lines += ["<iothreadids>", f"  <iothread id='{number}'><poll max='{poll}'/></iothread>", "</iothreadids>"]
    live = f"virsh iothreadset DOMAIN {number} --poll-max-ns {poll} --live"
    return "\n".join(lines), (f"<poll> needs libvirt 9.4; before, and on a domain that runs: {live}",)


def _unsaid(stack: Stack) -> tuple[str, ...]:
    disk, notes = stack.disk, []
    if disk.l2_cache_size is not None:
        notes.append("<metadata_cache> is for all metadata of qcow2, where l2-cache-size is for its L2 tables alone")
    layout = (disk.cluster_size, disk.extended_l2, disk.lazy_refcounts, disk.preallocation)
    if any(value is not None for value in layout):
        notes.append("the layout of a qcow2 image is made by qemu-img, not by the domain")
    return tuple(notes)
