# SPDX-License-Identifier: Apache-2.0
"""The schema of domains: what `virtune probe --connect URI --json` writes."""

from tools.schemas.audit import finding, turn
from tools.schemas.parts import identity
from tools.schemas.shape import Schema, by_name, maybe, rows, switch, table, text, whole, written
from virtune.report.text.domains import SCHEMA


def schema() -> str:
    """Return the schema as text."""
    unread = table("Something that could not be read.", {"origin": text("Which one."), "because": text("Why not.")})
    body = table(
        "What `virtune probe --connect URI --json` writes.",
        {
            "schema": identity(SCHEMA),
            "domains": rows("The domains.", {"$ref": "#/$defs/Domain"}),
            "unread": rows("What could not be read.", unread),
        },
    )
    parts = {"Domain": _domain(), "Running": _running(), "Disk": _disk(), "Finding": finding(), "Turn": turn()}
    return written(SCHEMA, "Domains and their disks", body, parts)


def _domain() -> Schema:
    return table(
        "One domain as it will start next, and as it runs.",
        {
            "origin": text("The file that it was read from, or the URI of its libvirt."),
            "domain": text("Its name."),
            "uuid": maybe(text("Its UUID.")),
            "kind": text("The hypervisor that it is for (kvm, qemu, xen)."),
            "machine": maybe(text("The machine type.")),
            "vcpus": whole("Its vCPUs.", minimum=0),
            "iothreads": rows("The numbers of its IOThreads.", whole("A number.", minimum=0)),
            "pins": by_name("CPU sets by `vcpu:0`, `iothread:1`, `emulator`.", text("A set as libvirt writes it.")),
            "disks": rows("Its disks as they will be after a power-off.", {"$ref": "#/$defs/Disk"}),
            "running": maybe({"description": "How it runs; null when it does not.", "$ref": "#/$defs/Running"}),
            "findings": rows("Where what is written is not what runs.", {"$ref": "#/$defs/Finding"}),
        },
    )


def _running() -> Schema:
    shown = table(
        "What the process shows of one disk.",
        {
            "target": text("The disk's target."),
            "direct": maybe(switch("Whether the image is open with O_DIRECT; null where that cannot be seen.")),
            "aio": maybe(text("The engine on QEMU's command line; null for a disk that was plugged in later.")),
            "no_flush": maybe(switch("Whether flushes are ignored, on QEMU's command line.")),
        },
    )
    return table(
        "A domain that runs.",
        {
            "state": text("The state by libvirt's word."),
            "reason": text("Why it is in that state."),
            "pid": maybe(whole("The QEMU process; null where it is not on this host.", minimum=1)),
            "io_urings": maybe(whole("How many io_urings the process holds.", minimum=0)),
            "aio_contexts": maybe(whole("How many kernel AIO contexts the process maps.", minimum=0)),
            "disks": rows("Its disks as they are plugged in now.", {"$ref": "#/$defs/Disk"}),
            "in_force": rows("What the process shows of them.", shown),
        },
    )


def _disk() -> Schema:
    return table(
        "One disk. What is not written in the configuration is null.",
        {
            "target": text("Its name in the configuration (vda)."),
            "device": text("disk, lun, cdrom or floppy."),
            "bus": maybe(text("Its bus.")),
            "kind": text("What its source is: file, block, network, volume, nvme, vhostuser, none."),
            "source": text("The path, the device, or protocol and name."),
            "format": maybe(text("The image's format.")),
            "cache": maybe(text("The cache mode.")),
            "io": maybe(text("The engine.")),
            "discard": maybe(text("What becomes of discards.")),
            "detect_zeroes": maybe(text("What becomes of zeroes.")),
            "iothread": maybe(whole("The IOThread that serves it.", minimum=0)),
            "iothreads": rows("The IOThreads that its queues are spread over.", whole("A number.", minimum=0)),
            "queues": maybe(whole("Its queues.", minimum=0)),
            "queue_size": maybe(whole("The size of a queue.", minimum=0)),
            "limits": by_name("Limits by libvirt's names.", whole("The limit.", minimum=0)),
            "backing": maybe(whole("Images below it, where the configuration lists them.", minimum=0)),
        },
    )
