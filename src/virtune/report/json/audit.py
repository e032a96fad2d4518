# SPDX-License-Identifier: Apache-2.0
"""Domains as JSON documents: how they are configured and run, the findings of an audit, and advice."""

from collections.abc import Mapping, Sequence
from typing import Annotated, Any, TypedDict

from virtune.model import finding
from virtune.model.domain import Domain, SettingChange
from virtune.model.knob import Change, Risk
from virtune.report.json.document import AT_LEAST_ONE, IDENTITY, NOT_NEGATIVE, OR_NULL, At, Sentence, part

AUDIT = "virtune/audit/1"

_Number = Annotated[int, "A number.", NOT_NEGATIVE]


class FindingPart(TypedDict):
    """What one rule says about one place."""

    rule: Annotated[
        str,
        "The rule's id, which is stable; docs/reference/rules.md lists them.",
        {"pattern": "^R[0-9]+$"},
        At("rule.id"),
    ]
    name: Annotated[str, "The rule's name.", At("rule.name")]
    severity: Annotated[
        finding.Severity, "`error` and `warning` hold as they stand, `try` is worth measuring.", At("rule.severity")
    ]
    confidence: Annotated[finding.Confidence, "How sure condition and direction are.", At("rule.confidence")]
    at: Annotated[str, "The disk (`vda`) or controller (`scsi:0`); empty for the domain."]
    line: Annotated[int, "The line of the configuration on which that begins.", AT_LEAST_ONE]
    seen: Annotated[str, "What was seen.", At("seen.seen")]
    why: Annotated[str, "Why it matters.", At("rule.why")]
    advice: Annotated[str, "What to do, or what to try.", At("seen.advice")]
    turns: Annotated[
        Any, list[SettingChange], "The knobs to turn for that; empty where no knob does it.", At("seen.turns")
    ]
    diff: Annotated[str, "The same as a unified difference of the configuration; empty where there is none."]
    measure: Annotated[str | None, "The command that settles a thing worth trying.", At("seen.measure")]
    measured: Annotated[list[Sentence], "What kept studies of this host say of the change."]
    takes: Annotated[Change | None, "What it takes to apply it to a VM that runs."]
    risk: Annotated[Risk, "The worst that applying it can do."]
    source: Annotated[str, "Where the rule is known from.", At("rule.source")]


class _AuditedDomain(TypedDict):
    """One domain."""

    origin: Annotated[str, "The file that it was read from, or the URI of its libvirt."]
    domain: Annotated[str, "Its name."]
    uuid: Annotated[str | None, "Its UUID; null where the file has none."]
    disks: Annotated[int, "How many disks with data it has.", NOT_NEGATIVE]
    not_audited: Annotated[
        str | None,
        "Why the rules cannot judge its disks: no findings then mean nothing. null where they can.",
        OR_NULL,
    ]
    not_looked_at: Annotated[Any, list[finding.NotLookedAt], "What rules could not look at, for want of a fact."]
    findings: Annotated[list[FindingPart], "What was found, the most severe first."]


class AuditDocument(TypedDict):
    """What `virtune audit --json` writes."""

    schema: Annotated[str, IDENTITY, {"const": AUDIT}]
    domains: Annotated[list[_AuditedDomain], "The domains that were read, in the order in which they were."]
    unread: Annotated[Any, list[finding.Unread], "What could not be read."]
    passed_over: Annotated[Any, list[finding.PassedOver], "Folders that hold other files beside VMs."]


class AdvisedDomain(TypedDict):
    """The advice for one domain."""

    origin: Annotated[str, "The file that it was read from, or the URI of its libvirt."]
    domain: Annotated[str, "Its name."]
    uuid: Annotated[str | None, "Its UUID; null where the file has none."]
    turns: Annotated[Any, list[SettingChange], "The changes; empty where nothing is to be changed."]
    diff: Annotated[str, "The same as a unified difference of the configuration."]
    commands: Annotated[
        list[Annotated[str, "A command line."]], "The same as command lines, where the system takes it so."
    ]
    warnings: Annotated[
        list[Annotated[str, "The rule, the place and the reason."]],
        "Errors and warnings that `virtune audit` has of the changed configuration and had not before.",
    ]
    warning_rules: Annotated[
        Any, list[finding.NewFinding], "The rules and places of these warnings, in the same order."
    ]
    left: Annotated[list[Annotated[str, "The place and the reason."]], "What is left alone, and why."]
    left_reasons: Annotated[Any, list[finding.LeftAlone], "The same as codes and places, in the same order."]


class AdviceDocument(TypedDict):
    """What `virtune apply advise --json` writes."""

    schema: Annotated[str, IDENTITY, {"const": "virtune/advice/1"}]
    domains: Annotated[list[AdvisedDomain], "The domains, in the order in which they were read."]


class DomainDiskPart(TypedDict):
    """One disk. What is not written in the configuration is null."""

    target: Annotated[str, "Its name in the configuration (vda)."]
    device: Annotated[str, "disk, lun, cdrom or floppy."]
    bus: Annotated[str | None, "Its bus."]
    kind: Annotated[
        str, "What its source is: file, block, network, volume, nvme, vhostuser, none.", At("source.kind")
    ]
    source: Annotated[str, "The path, the device, or protocol and name.", At("source.name")]
    format: Annotated[str | None, "The image's format."]
    cache: Annotated[str | None, "The cache mode."]
    io: Annotated[str | None, "The engine."]
    discard: Annotated[str | None, "What becomes of discards."]
    detect_zeroes: Annotated[str | None, "What becomes of zeroes."]
    iothread: Annotated[int | None, "The IOThread that serves it.", NOT_NEGATIVE]
    iothreads: Annotated[list[_Number], "The IOThreads that its queues are spread over.", At("mapping")]
    queues: Annotated[int | None, "Its queues.", NOT_NEGATIVE]
    queue_size: Annotated[int | None, "The size of a queue.", NOT_NEGATIVE]
    limits: Annotated[Mapping[str, Annotated[int, "The limit.", NOT_NEGATIVE]], "Limits by libvirt's names."]
    backing: Annotated[int | None, "Images below it, where the configuration lists them.", NOT_NEGATIVE]


class RunningPart(TypedDict):
    """A domain that runs."""

    state: Annotated[str, "The state by libvirt's word."]
    reason: Annotated[str, "Why it is in that state."]
    pid: Annotated[int | None, "The QEMU process; null where it is not on this host.", AT_LEAST_ONE]
    io_urings: Annotated[int | None, "How many io_urings the process holds.", NOT_NEGATIVE, At("rings")]
    aio_contexts: Annotated[
        int | None, "How many kernel AIO contexts the process maps.", NOT_NEGATIVE, At("contexts")
    ]
    disks: Annotated[list[DomainDiskPart], "Its disks as they are plugged in now.", At("live.disks")]
    in_force: Annotated[Any, list[finding.ProcessDisk], "What the process shows of them.", At("disks")]


class DomainPart(TypedDict):
    """One domain as it will start next, and as it runs."""

    origin: Annotated[str, "The file that it was read from, or the URI of its libvirt."]
    domain: Annotated[str, "Its name.", At("name")]
    uuid: Annotated[str | None, "Its UUID."]
    kind: Annotated[str, "The hypervisor that it is for (kvm, qemu, xen)."]
    machine: Annotated[str | None, "The machine type."]
    vcpus: Annotated[int, "Its vCPUs.", NOT_NEGATIVE]
    iothreads: Annotated[list[_Number], "The numbers of its IOThreads."]
    pins: Annotated[
        Mapping[str, Annotated[str, "A set as libvirt writes it."]], "CPU sets by `vcpu:0`, `iothread:1`, `emulator`."
    ]
    disks: Annotated[list[DomainDiskPart], "Its disks as they will be after a power-off."]
    running: Annotated[RunningPart | None, "How it runs; null when it does not."]
    findings: Annotated[list[FindingPart], "Where what is written is not what runs."]


class DomainsDocument(TypedDict):
    """What `virtune host probe --connect URI --json` writes."""

    schema: Annotated[str, IDENTITY, {"const": "virtune/domains/1"}]
    domains: Annotated[list[DomainPart], "The domains."]
    unread: Annotated[Any, list[finding.Unread], "What could not be read."]


def audit_document(
    audited: Sequence[finding.Audited], unread: Sequence[finding.Unread], passed: Sequence[finding.PassedOver]
) -> AuditDocument:
    return part(AuditDocument, domains=audited, unread=unread, passed_over=passed)


def advice_document(domains: Sequence[AdvisedDomain]) -> AdviceDocument:
    return part(AdviceDocument, domains=domains)


def advised_domain(origin: str, domain: Domain, advice: finding.Advice) -> AdvisedDomain:
    return part(
        AdvisedDomain,
        advice,
        origin=origin,
        domain=domain.name,
        uuid=domain.uuid,
        warnings=[one.text for one in advice.warnings],
        warning_rules=advice.warnings,
        left=[one.text for one in advice.left],
        left_reasons=advice.left,
    )


def domains_document(
    found: Sequence[tuple[str, finding.Subject, tuple[finding.Finding, ...]]], unread: Sequence[finding.Unread]
) -> DomainsDocument:
    return part(DomainsDocument, domains=[_domain(*one) for one in found], unread=unread)


def _domain(origin: str, subject: finding.Subject, findings: tuple[finding.Finding, ...]) -> DomainPart:
    domain = subject.domain
    return part(
        DomainPart,
        domain,
        origin=origin,
        iothreads=[thread.number for thread in domain.threads],
        running=subject.running,
        findings=findings,
    )
