# SPDX-License-Identifier: Apache-2.0
"""The picture of an audit: VMs by the rules that found something."""

from collections import Counter
from collections.abc import Sequence

from virtune.model.finding import Audited, Severity
from virtune.report.charts.chart import Chart, colour_scale, filled
from virtune.report.words import count_text

MOST_DOMAINS = 120
"""The most rows that are readable; those with the worst findings are drawn, and the table has all."""

SEVERITY_COLOURS = {Severity.ERROR: "#ff9b8f", Severity.WARNING: "#ffc27a", Severity.TRY: "#9fd0ee"}

_CELL = 18


def audit_map(audited: Sequence[Audited]) -> Chart | None:
    """Draw VMs by rules; None where fewer than two VMs have findings."""
    found = [one for one in audited if one.findings]
    found.sort(key=lambda one: (-max(each.rule.severity.rank for each in one.findings), -len(one.findings)))
    if len(found) < 2:
        return None
    drawn = found[:MOST_DOMAINS]
    rules = {finding.rule.id: finding.rule for one in drawn for finding in one.findings}
    columns = sorted(rules, key=lambda name: (-rules[name].severity.rank, name))
    rows = [
        {"vm": f"{place}. {one.domain}", "rule": rule, "count": count, "severity": rules[rule].severity.value}
        for place, one in enumerate(drawn, 1)
        for rule, count in Counter(finding.rule.id for finding in one.findings).items()
    ]
    most = Counter(rule for one in found for rule in {finding.rule.id for finding in one.findings}).most_common(1)[0]
    left = len(found) - len(drawn)
    rest = f" {left} VMs with fewer findings are in the table of findings only." if left else ""
    return Chart(
        name="audit-map",
        title=f"{most[0]} ({rules[most[0]].name}) is found in {most[1]} of {count_text(len(audited), 'VM')}",
        reading=f"A row is a VM, a column a rule, the number how many of its disks or places are concerned.{rest}",
        spec=filled(
            "cells", height=_CELL * len(drawn), rows=rows, row="vm", column="rule", columns=columns, text="count",
            colour="severity", colours=colour_scale(SEVERITY_COLOURS, (one.severity for one in rules.values())),
        ),
        columns=("VM", "rule", "severity", "places"),
        rows=tuple((str(row["vm"]), str(row["rule"]), str(row["severity"]), str(row["count"])) for row in rows),
    )  # fmt: skip
