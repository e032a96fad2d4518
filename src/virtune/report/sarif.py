# SPDX-License-Identifier: Apache-2.0
"""An audit as SARIF 2.1.0, the exchange format of code scanners.

https://docs.oasis-open.org/sarif/sarif/v2.1.0/sarif-v2.1.0.html
"""

from collections.abc import Iterator, Sequence
from pathlib import PurePath
from typing import Any
from urllib.parse import quote

from virtune import __version__
from virtune.model.finding import Audited, Finding, PassedOver, Rule, Severity, Unread

_LEVELS = {Severity.TRY: "note", Severity.WARNING: "warning", Severity.ERROR: "error"}


def sarif(
    rules: Sequence[Rule], audited: Sequence[Audited], unread: Sequence[Unread], passed: Sequence[PassedOver] = ()
) -> dict[str, Any]:
    """Return the log. What was not looked at is listed under the invocation, which is marked as failed where an input
    could not be read or audited.
    """
    places = {rule.id: number for number, rule in enumerate(rules)}
    notes = list(_notifications(audited, unread, passed))
    invocation: dict[str, Any] = {"executionSuccessful": not any(note["level"] == "error" for note in notes)}
    if notes:
        invocation["toolExecutionNotifications"] = notes
    return {
        "$schema": "https://json.schemastore.org/sarif-2.1.0.json",
        "version": "2.1.0",
        "runs": [
            {
                "tool": {
                    "driver": {"name": "virtune", "version": __version__, "rules": [_rule(one) for one in rules]}
                },
                "invocations": [invocation],
                "results": [_result(one, finding, places) for one in audited for finding in one.findings],
            }
        ],
    }


def _notifications(
    audited: Sequence[Audited], unread: Sequence[Unread], passed: Sequence[PassedOver]
) -> Iterator[dict[str, Any]]:
    """What was not read or audited, then what single rules could not look at, each rule of a domain once."""
    for one in unread:
        yield _note("error", f"{one.origin}: {one.because}")
    for vm in audited:
        if vm.not_audited:
            yield _note("error", f"{vm.origin}: {vm.domain}: not audited: {vm.not_audited}")
        for lack in vm.not_looked_at:
            for rule in lack.rules:
                note = _note("note", f"{vm.origin}: {vm.domain}: {rule} could not look: unknown: {lack.unknown}")
                yield {**note, "associatedRule": {"id": rule}}
    for over in passed:
        yield _note("note", f"{over.origin}: {over.count} of {over.files} files hold no VM that virtune can read")


def _note(level: str, text: str) -> dict[str, Any]:
    return {"level": level, "message": {"text": text}}


def _rule(rule: Rule) -> dict[str, Any]:
    return {
        "id": rule.id,
        "name": rule.name,
        "shortDescription": {"text": rule.name.replace("-", " ")},
        "fullDescription": {"text": rule.why},
        "help": {"text": f"Source: {rule.source}"},
        "defaultConfiguration": {"level": _LEVELS[rule.severity]},
    }


def _result(one: Audited, finding: Finding, places: dict[str, int]) -> dict[str, Any]:
    place = f"{one.domain}/{finding.at}" if finding.at else one.domain
    location: dict[str, Any] = {"logicalLocations": [{"fullyQualifiedName": place, "kind": "resource"}]}
    if "://" not in one.origin:
        location["physicalLocation"] = {
            "artifactLocation": {"uri": quote(PurePath(one.origin).as_posix().encode(errors="surrogateescape"))},
            "region": {"startLine": finding.line},
        }
    change = f"\n\n{finding.diff}" if finding.diff else ""
    return {
        "ruleId": finding.rule.id,
        "ruleIndex": places[finding.rule.id],
        "level": _LEVELS[finding.rule.severity],
        "message": {"text": f"{finding.seen.seen}: {finding.seen.advice}{change}"},
        "locations": [location],
        "partialFingerprints": {"virtune/1": f"{one.uuid or one.domain}/{finding.at}/{finding.rule.id}"},
    }
