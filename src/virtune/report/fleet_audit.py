# SPDX-License-Identifier: Apache-2.0
"""What the audits of many hosts say together: rules over hosts and VMs, and where hosts differ."""

from collections.abc import Sequence
from dataclasses import dataclass

from virtune.model.finding import Rule
from virtune.model.fleet import HostAudit


@dataclass(frozen=True, slots=True, kw_only=True)
class RuleRow:
    """One rule over a fleet: the hosts that have a finding of it, those that have none, how many VMs and findings."""

    rule: Rule
    hosts: tuple[str, ...]
    without: tuple[str, ...]
    domains: int
    findings: int


def rule_rows(audits: Sequence[HostAudit]) -> tuple[RuleRow, ...]:
    """Return the rules that found something, the most severe and the most frequent first.

    A host without VMs has nothing to find, so it is not among those without a finding.
    """
    known = {finding.rule.id: finding.rule for one in audits for vm in one.audited for finding in vm.findings}
    rows = [_row(rule, audits) for rule in known.values()]
    return tuple(sorted(rows, key=lambda row: (-row.rule.severity.rank, -row.domains, row.rule.id)))


def _row(rule: Rule, audits: Sequence[HostAudit]) -> RuleRow:
    counts = {
        one.host.name: [sum(finding.rule.id == rule.id for finding in vm.findings) for vm in one.audited]
        for one in audits
        if one.audited
    }
    return RuleRow(
        rule=rule,
        hosts=tuple(host for host, found in counts.items() if any(found)),
        without=tuple(host for host, found in counts.items() if not any(found)),
        domains=sum(bool(count) for found in counts.values() for count in found),
        findings=sum(map(sum, counts.values())),
    )
