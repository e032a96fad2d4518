# SPDX-License-Identifier: Apache-2.0
"""Domains and their disks as a JSON document."""

from collections.abc import Mapping, Sequence
from typing import Annotated, TypedDict

from virtune.model.domain import DomainDisk
from virtune.model.finding import Finding, Running, Subject, Unread
from virtune.report.json.audit import FindingPart, finding_document
from virtune.report.json.document import AT_LEAST_ONE, IDENTITY, NOT_NEGATIVE

SCHEMA = "virtune/domains/1"

_Number = Annotated[int, "A number.", NOT_NEGATIVE]


class _Shown(TypedDict):
    """What the process shows of one disk."""

    target: Annotated[str, "The disk's target."]
    direct: Annotated[bool | None, "Whether the image is open with O_DIRECT; null where that cannot be seen."]
    aio: Annotated[str | None, "The engine on QEMU's command line; null for a disk that was plugged in later."]
    no_flush: Annotated[bool | None, "Whether flushes are ignored, on QEMU's command line."]


class DomainDiskPart(TypedDict):
    """One disk. What is not written in the configuration is null."""

    target: Annotated[str, "Its name in the configuration (vda)."]
    device: Annotated[str, "disk, lun, cdrom or floppy."]
    bus: Annotated[str | None, "Its bus."]
    kind: Annotated[str, "What its source is: file, block, network, volume, nvme, vhostuser, none."]
    source: Annotated[str, "The path, the device, or protocol and name."]
    format: Annotated[str | None, "The image's format."]
    cache: Annotated[str | None, "The cache mode."]
    io: Annotated[str | None, "The engine."]
    discard: Annotated[str | None, "What becomes of discards."]
    detect_zeroes: Annotated[str | None, "What becomes of zeroes."]
    iothread: Annotated[int | None, "The IOThread that serves it.", NOT_NEGATIVE]
    iothreads: Annotated[list[_Number], "The IOThreads that its queues are spread over."]
    queues: Annotated[int | None, "Its queues.", NOT_NEGATIVE]
    queue_size: Annotated[int | None, "The size of a queue.", NOT_NEGATIVE]
    limits: Annotated[Mapping[str, Annotated[int, "The limit.", NOT_NEGATIVE]], "Limits by libvirt's names."]
    backing: Annotated[int | None, "Images below it, where the configuration lists them.", NOT_NEGATIVE]


class RunningPart(TypedDict):
    """A domain that runs."""

    state: Annotated[str, "The state by libvirt's word."]
    reason: Annotated[str, "Why it is in that state."]
    pid: Annotated[int | None, "The QEMU process; null where it is not on this host.", AT_LEAST_ONE]
    io_urings: Annotated[int | None, "How many io_urings the process holds.", NOT_NEGATIVE]
    aio_contexts: Annotated[int | None, "How many kernel AIO contexts the process maps.", NOT_NEGATIVE]
    disks: Annotated[list[DomainDiskPart], "Its disks as they are plugged in now."]
    in_force: Annotated[list[_Shown], "What the process shows of them."]


class DomainPart(TypedDict):
    """One domain as it will start next, and as it runs."""

    origin: Annotated[str, "The file that it was read from, or the URI of its libvirt."]
    domain: Annotated[str, "Its name."]
    uuid: Annotated[str | None, "Its UUID."]
    kind: Annotated[str, "The hypervisor that it is for (kvm, qemu, xen)."]
    machine: Annotated[str | None, "The machine type."]
    vcpus: Annotated[int, "Its vCPUs.", NOT_NEGATIVE]
    iothreads: Annotated[list[_Number], "The numbers of its IOThreads."]
    pins: Annotated[
        Mapping[str, Annotated[str, "A set as libvirt writes it."]],
        "CPU sets by `vcpu:0`, `iothread:1`, `emulator`.",
    ]
    disks: Annotated[list[DomainDiskPart], "Its disks as they will be after a power-off."]
    running: Annotated[RunningPart | None, "How it runs; null when it does not."]
    findings: Annotated[list[FindingPart], "Where what is written is not what runs."]


class _Unread(TypedDict):
    """Something that could not be read."""

    origin: Annotated[str, "Which one."]
    because: Annotated[str, "Why not."]


class DomainsDocument(TypedDict):
    """What `virtune probe --connect URI --json` writes."""

    schema: Annotated[str, IDENTITY, {"const": SCHEMA}]
    domains: Annotated[list[DomainPart], "The domains."]
    unread: Annotated[list[_Unread], "What could not be read."]


def domains_document(
    found: Sequence[tuple[str, Subject, tuple[Finding, ...]]], unread: Sequence[Unread]
) -> DomainsDocument:
    """Return the document that `virtune probe --connect URI --json` writes."""
    return {
        "schema": SCHEMA,
        "domains": [_domain(*one) for one in found],
        "unread": [{"origin": one.origin, "because": one.because} for one in unread],
    }


def _domain(origin: str, subject: Subject, findings: tuple[Finding, ...]) -> DomainPart:
    domain, running = subject.domain, subject.running
    return {
        "origin": origin,
        "domain": domain.name,
        "uuid": domain.uuid,
        "kind": domain.kind,
        "machine": domain.machine,
        "vcpus": domain.vcpus,
        "iothreads": [thread.number for thread in domain.threads],
        "pins": dict(domain.pins),
        "disks": [_disk(disk) for disk in domain.disks],
        "running": None if running is None else _running(running),
        "findings": [finding_document(one) for one in findings],
    }


def _running(running: Running) -> RunningPart:
    return {
        "state": running.state,
        "reason": running.reason,
        "pid": running.pid,
        "io_urings": running.rings,
        "aio_contexts": running.contexts,
        "disks": [_disk(disk) for disk in running.live.disks],
        "in_force": [
            {"target": one.target, "direct": one.direct, "aio": one.aio, "no_flush": one.no_flush}
            for one in running.disks
        ],
    }


def _disk(disk: DomainDisk) -> DomainDiskPart:
    return {
        "target": disk.target,
        "device": disk.device,
        "bus": disk.bus,
        "kind": disk.source.kind,
        "source": disk.source.name,
        "format": disk.format,
        "cache": disk.cache,
        "io": disk.io,
        "discard": disk.discard,
        "detect_zeroes": disk.detect_zeroes,
        "iothread": disk.iothread,
        "iothreads": list(disk.mapping),
        "queues": disk.queues,
        "queue_size": disk.queue_size,
        "limits": dict(disk.limits),
        "backing": disk.backing,
    }
