# SPDX-License-Identifier: Apache-2.0
"""The facts and the audits of many hosts as JSON documents."""

from collections.abc import Mapping, Sequence
from typing import Annotated, TypedDict

from virtune import __version__
from virtune.model.finding import Severity
from virtune.model.fleet import Difference, HostAnswer, HostAudit, Unreached
from virtune.report.json.audit import NotLookedAtPart, not_looked_at_part
from virtune.report.json.document import IDENTITY, NOT_NEGATIVE, Name, ProgramVersion
from virtune.report.pages.fleet import rule_rows

PROBE = "virtune/fleet-probe/1"
AUDIT = "virtune/fleet-audit/2"


class LostHost(TypedDict):
    """A host that gave no answer."""

    name: Annotated[str, "Its name in the inventory."]
    because: Annotated[str, "Why not, in one sentence."]
    hint: Annotated[str | None, "The next thing to do; null where none helps."]


class _Facts(TypedDict):
    """One host."""

    name: Annotated[str, "Its name in the inventory."]
    calls_itself: Annotated[str, "The host's own name, as `uname -n` says it."]
    facts: Annotated[
        Mapping[str, str],
        "What `virtune probe --json` says there, as text by path (`disks.vda.device.scheduler`), without what "
        "changes from minute to minute and what is unknown.",
    ]


class _Value(TypedDict):
    """One value of a fact."""

    value: Annotated[str, "The value; `absent` where the host has no such fact."]
    hosts: Annotated[list[Name], "The hosts that have it."]


class _Difference(TypedDict):
    """One fact that is not the same on all hosts."""

    key: Annotated[str, "The path of the fact."]
    values: Annotated[list[_Value], "Its values, the most frequent first."]


class FleetProbeDocument(TypedDict):
    """What `virtune fleet probe --json` writes."""

    schema: Annotated[str, IDENTITY, {"const": PROBE}]
    virtune: ProgramVersion
    hosts: Annotated[list[_Facts], "The hosts that answered, in the order of the inventory."]
    differences: Annotated[list[_Difference], "Facts that differ, those first in which the fewest hosts stand apart."]
    failed: Annotated[list[LostHost], "The hosts that gave no answer."]


class _Finding(TypedDict):
    """What one rule says about one place."""

    rule: Annotated[str, "The rule's id; docs/reference/rules.md lists them.", {"pattern": "^R[0-9]+$"}]
    severity: Annotated[Severity, "`error` and `warning` hold as they stand, `try` is worth measuring."]
    at: Annotated[str, "The disk (`vda`) or controller (`scsi:0`); empty for the VM."]
    seen: Annotated[str, "What was seen."]
    advice: Annotated[str, "What to do, or what to try."]


class _Domain(TypedDict):
    """One VM."""

    domain: Annotated[str, "The host's name in the inventory, a slash, and the name of the VM."]
    uuid: Annotated[str | None, "Its UUID; null where its configuration has none."]
    not_audited: Annotated[str | None, "Why the rules cannot judge its disks; null where they can."]
    not_looked_at: Annotated[list[NotLookedAtPart], "What rules could not look at, for want of a fact."]
    findings: Annotated[list[_Finding], "What was found, the most severe first."]


class _Unread(TypedDict):
    """Something that could not be audited."""

    origin: Annotated[str, "The host, and the file there."]
    because: Annotated[str, "Why not."]


class _Audit(TypedDict):
    """One host."""

    name: Annotated[str, "Its name in the inventory."]
    calls_itself: Annotated[str, "The host's own name, as `uname -n` says it."]
    domains: Annotated[list[_Domain], "Its VMs."]
    unread: Annotated[list[_Unread], "What could not be read there."]


class _Rule(TypedDict):
    """One rule over all hosts."""

    rule: Annotated[str, "The rule's id.", {"pattern": "^R[0-9]+$"}]
    name: Annotated[str, "The rule's name."]
    severity: Annotated[Severity, "Its severity."]
    hosts: Annotated[list[Name], "The hosts where it found something."]
    without: Annotated[list[Name], "The hosts with VMs where it found nothing."]
    domains: Annotated[int, "The number of VMs where it found something.", NOT_NEGATIVE]
    findings: Annotated[int, "The number of findings.", NOT_NEGATIVE]


class FleetAuditDocument(TypedDict):
    """What `virtune fleet audit --json` writes."""

    schema: Annotated[str, IDENTITY, {"const": AUDIT}]
    virtune: ProgramVersion
    hosts: Annotated[list[_Audit], "The hosts that answered, in the order of the inventory."]
    rules: Annotated[list[_Rule], "The rules that found something, the most severe and the most frequent first."]
    failed: Annotated[list[LostHost], "The hosts that gave no answer."]


def probe_document(
    answers: Sequence[tuple[HostAnswer, Mapping[str, str]]],
    differing: Sequence[Difference],
    lost: Sequence[Unreached],
) -> FleetProbeDocument:
    """Return the facts of the hosts and what differs."""
    return {
        "schema": PROBE,
        "virtune": __version__,
        "hosts": [
            {"name": one.host.name, "calls_itself": one.calls_itself, "facts": dict(facts)} for one, facts in answers
        ],
        "differences": [
            {"key": one.key, "values": [{"value": value, "hosts": list(hosts)} for value, hosts in one.values]}
            for one in differing
        ],
        "failed": failed(lost),
    }


def audit_document(audits: Sequence[HostAudit], lost: Sequence[Unreached]) -> FleetAuditDocument:
    """Return the audits of the hosts and the rules over all of them."""
    return {
        "schema": AUDIT,
        "virtune": __version__,
        "hosts": [_audit(one) for one in audits],
        "rules": [
            {
                "rule": row.rule.id,
                "name": row.rule.name,
                "severity": row.rule.severity,
                "hosts": list(row.hosts),
                "without": list(row.without),
                "domains": row.domains,
                "findings": row.findings,
            }
            for row in rule_rows(audits)
        ],
        "failed": failed(lost),
    }


def failed(lost: Sequence[Unreached]) -> list[LostHost]:
    """Return the hosts that gave no answer."""
    return [{"name": one.host.name, "because": one.because, "hint": one.hint} for one in lost]


def _audit(one: HostAudit) -> _Audit:
    return {
        "name": one.host.name,
        "calls_itself": one.calls_itself,
        "domains": [
            {
                "domain": vm.domain,
                "uuid": vm.uuid,
                "not_audited": vm.not_audited or None,
                "not_looked_at": not_looked_at_part(vm.not_looked_at),
                "findings": [
                    {
                        "rule": finding.rule.id,
                        "severity": finding.rule.severity,
                        "at": finding.at,
                        "seen": finding.seen.seen,
                        "advice": finding.seen.advice,
                    }
                    for finding in vm.findings
                ],
            }
            for vm in one.audited
        ],
        "unread": [{"origin": lost.origin, "because": lost.because} for lost in one.unread],
    }
