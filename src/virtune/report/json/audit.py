# SPDX-License-Identifier: Apache-2.0
"""The findings of an audit as a JSON document."""

from collections.abc import Sequence
from typing import Annotated, TypedDict

from virtune.model.domain import SettingChange
from virtune.model.finding import Audited, Confidence, Finding, NotLookedAt, PassedOver, Severity, Unread
from virtune.model.knob import Change, Risk
from virtune.report.json.document import AT_LEAST_ONE, IDENTITY, NOT_NEGATIVE, Sentence

SCHEMA = "virtune/audit/2"


class TurnPart(TypedDict):
    """One knob of one place, and the value that it is to have."""

    knob: Annotated[str, "The knob, as `virtune knobs` lists it."]
    at: Annotated[str, "A disk (`vda`), an IOThread (`iothread:1`), a controller (`scsi:0`); empty for the domain."]
    value: Annotated[str | None, "The value; null takes the setting away."]


class FindingPart(TypedDict):
    """What one rule says about one place."""

    rule: Annotated[
        str, "The rule's id, which is stable; docs/reference/rules.md lists them.", {"pattern": "^R[0-9]+$"}
    ]
    name: Annotated[str, "The rule's name."]
    severity: Annotated[Severity, "`error` and `warning` hold as they stand, `try` is worth measuring."]
    confidence: Annotated[Confidence, "How sure condition and direction are."]
    at: Annotated[str, "The disk (`vda`) or controller (`scsi:0`); empty for the domain."]
    line: Annotated[int, "The line of the configuration on which that begins.", AT_LEAST_ONE]
    seen: Annotated[str, "What was seen."]
    why: Annotated[str, "Why it matters."]
    advice: Annotated[str, "What to do, or what to try."]
    turns: Annotated[list[TurnPart], "The knobs to turn for that; empty where no knob does it."]
    diff: Annotated[str, "The same as a unified difference of the configuration; empty where there is none."]
    measure: Annotated[str | None, "The command that settles a thing worth trying."]
    measured: Annotated[list[Sentence], "What kept studies of this host say of the change."]
    takes: Annotated[Change | None, "What it takes to apply it to a VM that runs."]
    risk: Annotated[Risk, "The worst that applying it can do."]
    source: Annotated[str, "Where the rule is known from."]


class NotLookedAtPart(TypedDict):
    """Rules that could not look at a domain, or not at everything in it."""

    unknown: Annotated[str, "What is not known."]
    rules: Annotated[list[Annotated[str, {"pattern": "^R[0-9]+$"}]], "The rules that need it, by their ids."]


class _Domain(TypedDict):
    """One domain."""

    origin: Annotated[str, "The file that it was read from, or the URI of its libvirt."]
    domain: Annotated[str, "Its name."]
    uuid: Annotated[str | None, "Its UUID; null where the file has none."]
    disks: Annotated[int, "How many disks with data it has.", NOT_NEGATIVE]
    not_audited: Annotated[
        str | None, "Why the rules cannot judge its disks: no findings then mean nothing. null where they can."
    ]
    not_looked_at: Annotated[list[NotLookedAtPart], "What rules could not look at, for want of a fact."]
    findings: Annotated[list[FindingPart], "What was found, the most severe first."]


class _Unread(TypedDict):
    """Something that was not audited."""

    origin: Annotated[str, "Which file."]
    because: Annotated[str, "Why not."]


class _PassedOver(TypedDict):
    """Files of a folder that hold no VM in a language that virtune knows."""

    origin: Annotated[str, "The folder."]
    count: Annotated[int, "How many of its files hold none.", AT_LEAST_ONE]
    files: Annotated[int, "How many files it has.", AT_LEAST_ONE]
    names: Annotated[list[str], "Some of those that hold none."]


class AuditDocument(TypedDict):
    """What `virtune audit --json` writes."""

    schema: Annotated[str, IDENTITY, {"const": SCHEMA}]
    domains: Annotated[list[_Domain], "The domains that were read, in the order in which they were."]
    unread: Annotated[list[_Unread], "What could not be read."]
    passed_over: Annotated[list[_PassedOver], "Folders that hold other files beside VMs."]


def audit_document(
    audited: Sequence[Audited], unread: Sequence[Unread], passed: Sequence[PassedOver]
) -> AuditDocument:
    """Return the document that `virtune audit --json` writes."""
    return {
        "schema": SCHEMA,
        "domains": [
            {
                "origin": one.origin,
                "domain": one.domain,
                "uuid": one.uuid,
                "disks": one.disks,
                "not_audited": one.not_audited or None,
                "not_looked_at": not_looked_at_part(one.not_looked_at),
                "findings": [finding_document(finding) for finding in one.findings],
            }
            for one in audited
        ],
        "unread": [{"origin": one.origin, "because": one.because} for one in unread],
        "passed_over": [
            {"origin": one.origin, "count": one.count, "files": one.files, "names": list(one.names)} for one in passed
        ],
    }


def not_looked_at_part(lacked: Sequence[NotLookedAt]) -> list[NotLookedAtPart]:
    """Return what rules could not look at as a document's part."""
    return [{"unknown": one.unknown, "rules": list(one.rules)} for one in lacked]


def finding_document(finding: Finding) -> FindingPart:
    """Return one finding as a document's part."""
    rule, seen = finding.rule, finding.seen
    return {
        "rule": rule.id,
        "name": rule.name,
        "severity": rule.severity,
        "confidence": rule.confidence,
        "at": finding.at,
        "line": finding.line,
        "seen": seen.seen,
        "why": rule.why,
        "advice": seen.advice,
        "turns": [turn_part(turn) for turn in seen.turns],
        "diff": finding.diff,
        "measure": seen.measure,
        "measured": list(finding.measured),
        "takes": finding.takes,
        "risk": finding.risk,
        "source": rule.source,
    }


def turn_part(turn: SettingChange) -> TurnPart:
    """Return a setting change as a document's part."""
    return {"knob": turn.knob, "at": turn.at, "value": turn.value}
