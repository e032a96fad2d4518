# SPDX-License-Identifier: Apache-2.0
"""The page of a fleet's audit: the page of an audit, with the rules over hosts and the hosts that gave no answer."""

from collections.abc import Sequence
from dataclasses import replace

from virtune.model.fleet import HostAudit, Unreached
from virtune.report.fleet_audit import rule_rows
from virtune.report.html.other_pages import audit_page
from virtune.report.html.page import ReportPage, Table
from virtune.report.text.fleet import names, together
from virtune.report.text.words import count_text


def fleet_audit_page(audits: Sequence[HostAudit], lost: Sequence[Unreached]) -> ReportPage:
    """Return the page: findings by severity, VMs by rules, rules over hosts, and every finding with its advice."""
    page = audit_page(*together(audits))
    over = Table(
        caption="rules over hosts",
        columns=("rule", "severity", "hosts", "VMs", "found on", "not on"),
        rows=tuple(
            (f"{row.rule.id} {row.rule.name}", row.rule.severity.value, str(len(row.hosts)), str(row.domains),
             names(row.hosts), names(row.without) or "-")
            for row in rule_rows(audits)
        ),
    )  # fmt: skip
    failed = tuple(("failed", f"{one.host.name}: {one.because}") for one in lost)
    return replace(
        page,
        title=f"audit of {count_text(len(audits), 'host')}",
        facts=(("hosts", f"{len(audits)} of {len(audits) + len(lost)} answered"), *page.facts),
        warnings=(*failed, *page.warnings),
        tables=(over, *page.tables),
    )
