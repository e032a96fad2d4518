# SPDX-License-Identifier: Apache-2.0
"""An audit as SARIF: its levels, its lines, and whether it was a success."""

import pytest

from virtune.model.finding import Audited, Confidence, Finding, Rule, Seen, Severity, Unread
from virtune.model.knob import Change, Risk
from virtune.report.sarif import sarif


def rule(severity: Severity) -> Rule:
    return Rule(
        id="R99", name="a-rule", severity=severity, confidence=Confidence.DOCUMENTED, why="why", source="here",
        takes=Change.POWEROFF, risk=Risk.NONE, check=lambda _: iter(()),
    )  # fmt: skip


def audited(severity: Severity, origin: str = "vm.xml") -> Audited:
    seen = Seen(seen="seen", advice="advice")
    found = Finding(
        rule=rule(severity), domain="vm", uuid=None, at="vda", line=7, seen=seen, takes=None, risk=Risk.NONE
    )
    return Audited(origin=origin, domain="vm", uuid=None, findings=(found,))


@pytest.mark.parametrize(
    ("severity", "level"), [(Severity.TRY, "note"), (Severity.WARNING, "warning"), (Severity.ERROR, "error")]
)
def test_each_severity_has_its_level(severity: Severity, level: str) -> None:
    (run,) = sarif([rule(severity)], [audited(severity)], [])["runs"]
    assert run["results"][0]["level"] == level
    assert run["tool"]["driver"]["rules"][0]["defaultConfiguration"]["level"] == level


def test_a_finding_is_at_its_line_and_what_is_no_file_has_none() -> None:
    (run,) = sarif([rule(Severity.ERROR)], [audited(Severity.ERROR)], [])["runs"]
    where = run["results"][0]["locations"][0]["physicalLocation"]
    assert where == {"artifactLocation": {"uri": "vm.xml"}, "region": {"startLine": 7}}
    (run,) = sarif([rule(Severity.ERROR)], [audited(Severity.ERROR, "qemu:///system")], [])["runs"]
    assert "physicalLocation" not in run["results"][0]["locations"][0]


def test_an_audit_that_could_not_read_all_was_no_success() -> None:
    (run,) = sarif([], [], [])["runs"]
    assert run["invocations"] == [{"executionSuccessful": True}]
    (run,) = sarif([], [], [Unread(origin="x.xml", because="broken")])["runs"]
    (invocation,) = run["invocations"]
    assert invocation["executionSuccessful"] is False
    assert invocation["toolExecutionNotifications"][0]["message"]["text"] == "x.xml: broken"
