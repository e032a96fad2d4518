# SPDX-License-Identifier: Apache-2.0
"""The heat table of an audit: which rule found something in which VM."""

from collections import Counter
from collections.abc import Sequence

from virtune.model.finding import Audited, Severity
from virtune.report.charts.chart import Chart, specification
from virtune.report.words import count_text

MOST_DOMAINS = 120
"""The most rows that are readable; those with the worst findings are drawn, and the table has all."""

SEVERITY_COLOURS = {Severity.ERROR: "#ff9b8f", Severity.WARNING: "#ffc27a", Severity.TRY: "#9fd0ee"}
"""The colour of each severity."""

_INK = "#111111"
"""The text colours on these backgrounds, on a light and on a dark page."""

_CELL = 18


def audit_map(audited: Sequence[Audited]) -> Chart | None:
    """Draw VMs by rules; None where fewer than two VMs have findings."""
    found = sorted((one for one in audited if one.findings), key=_weight, reverse=True)
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
    severities = [one for one in SEVERITY_COLOURS if any(rule.severity is one for rule in rules.values())]
    axis = {"title": None, "labelLimit": 260, "grid": False}
    colour = {
        "field": "severity", "type": "nominal", "legend": {"title": None, "orient": "top"},
        "scale": {"domain": [one.value for one in severities],
                  "range": [SEVERITY_COLOURS[one] for one in severities]},
    }  # fmt: skip
    spec = {
        "data": {"values": rows},
        "encoding": {
            "x": {"field": "rule", "type": "nominal", "sort": columns, "axis": {**axis, "orient": "top"}},
            "y": {"field": "vm", "type": "nominal", "sort": None, "axis": axis},
        },
        "layer": [
            {"mark": {"type": "rect", "opacity": 1}, "encoding": {"color": colour}},
            {"mark": {"type": "text", "fontSize": 11, "color": _INK}, "encoding": {"text": {"field": "count"}}},
        ],
    }
    most = Counter(rule for one in found for rule in {finding.rule.id for finding in one.findings}).most_common(1)[0]
    left = len(found) - len(drawn)
    rest = f" {left} VMs with fewer findings are in the table of findings only." if left else ""
    return Chart(
        name="audit-map",
        title=f"{most[0]} ({rules[most[0]].name}) is found in {most[1]} of {count_text(len(audited), 'VM')}",
        reading=f"A row is a VM, a column a rule, the number how many of its disks or places are concerned.{rest}",
        spec=specification(spec, height=_CELL * len(drawn)),
        columns=("VM", "rule", "severity", "places"),
        rows=tuple((str(row["vm"]), str(row["rule"]), str(row["severity"]), str(row["count"])) for row in rows),
    )


def _weight(one: Audited) -> tuple[int, int]:
    return max(finding.rule.severity.rank for finding in one.findings), len(one.findings)
