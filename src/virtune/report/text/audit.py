# SPDX-License-Identifier: Apache-2.0
"""What an audit found: for people, and as one JSON document."""

import textwrap
from collections import Counter
from collections.abc import Iterator, Sequence
from typing import Any

from virtune.model.finding import Audited, Finding, Severity, Unread
from virtune.model.text import printable
from virtune.report.text.advice import IN_FILES, tag
from virtune.report.text.words import count_text

SCHEMA = "virtune/audit/1"

WIDTH = 100
SHOWN_IN_FULL = 40
"""Up to so many findings are shown one by one; more are counted by rule, with the first places of each."""

PLACES_SHOWN = 4


def page(audited: Sequence[Audited], unread: Sequence[Unread]) -> Iterator[str]:
    """Yield the lines of the page."""
    count = sum(len(one.findings) for one in audited)
    if count <= SHOWN_IN_FULL:
        for one in audited:
            yield from _domain(one)
    else:
        yield from _by_rule(audited)
    for lost in unread:
        yield printable(f"not read: {lost.origin}: {lost.because}")
    yield summary(audited, unread)


def summary(audited: Sequence[Audited], unread: Sequence[Unread]) -> str:
    """Return the last line: how many domains, how many findings of which weight."""
    counts = Counter(finding.rule.severity for one in audited for finding in one.findings)
    said = [_severities(counts[severity], severity) for severity in reversed(Severity) if counts[severity]]
    found = f"{_plural(len(audited), 'domain')}: {', '.join(said) or 'nothing found'}"
    return f"{found}; {len(unread)} not read" if unread else found


def document(audited: Sequence[Audited], unread: Sequence[Unread]) -> dict[str, Any]:
    """Return the document that `virtune audit --json` writes."""
    return {
        "schema": SCHEMA,
        "domains": [
            {
                "origin": one.origin,
                "domain": one.domain,
                "uuid": one.uuid,
                "findings": [finding_document(finding) for finding in one.findings],
            }
            for one in audited
        ],
        "unread": [{"origin": one.origin, "because": one.because} for one in unread],
    }


def finding_document(finding: Finding) -> dict[str, Any]:
    """Return one finding as a document's part."""
    rule, seen = finding.rule, finding.seen
    return {
        "rule": rule.id,
        "name": rule.name,
        "severity": rule.severity.value,
        "confidence": rule.confidence.value,
        "at": finding.at,
        "line": finding.line,
        "seen": seen.seen,
        "why": rule.why,
        "advice": seen.advice,
        "turns": [{"knob": turn.knob, "at": turn.at, "value": turn.value} for turn in seen.turns],
        "diff": finding.diff,
        "measure": seen.measure,
        "measured": list(finding.measured),
        "takes": finding.takes.value if finding.takes else None,
        "risk": finding.risk.value,
        "source": rule.source,
    }


def _domain(one: Audited) -> Iterator[str]:
    where = f"{one.domain}  ({one.origin})"
    if not one.findings:
        yield printable(f"{where}: nothing found")
        return
    yield printable(where)
    for finding in one.findings:
        yield from _finding(finding)
    yield ""


def _finding(finding: Finding) -> Iterator[str]:
    rule, seen = finding.rule, finding.seen
    place = finding.at or "domain"
    yield printable(f"  {rule.severity.value:<8}{rule.id:<5}{place:<8} {seen.seen}   (line {finding.line})")
    yield from _wrapped(rule.why)
    word = "worth measuring" if rule.severity is Severity.TRY else "do"
    yield from _wrapped(f"{word}: {seen.advice}{tag(finding.takes.value if finding.takes else '', finding.risk)}")
    for said in finding.measured:
        yield from _wrapped(said)
    if seen.measure:
        yield f"          $ {printable(seen.measure)}"
    for line in finding.diff.split("\n")[2:]:
        yield f"          {printable(line, keep=IN_FILES)}"


def _wrapped(text: str) -> list[str]:
    return textwrap.wrap(printable(text), WIDTH, initial_indent=" " * 10, subsequent_indent=" " * 10)


def _by_rule(audited: Sequence[Audited]) -> Iterator[str]:
    places: dict[str, list[Finding]] = {}
    for one in audited:
        for finding in one.findings:
            places.setdefault(finding.rule.id, []).append(finding)
    for found in sorted(places.values(), key=lambda some: (-some[0].rule.severity.rank, -len(some))):
        rule = found[0].rule
        domains = list(dict.fromkeys(f"{one.domain}{':' if one.at else ''}{one.at}" for one in found))
        more = f", and {len(domains) - PLACES_SHOWN} more" if len(domains) > PLACES_SHOWN else ""
        yield f"{rule.severity.value:<8}{rule.id:<5}{rule.name}: {_plural(len(found), 'place')}"
        yield from _wrapped(rule.why)
        yield from _wrapped(f"{', '.join(domains[:PLACES_SHOWN])}{more}")
    yield ""
    yield "One domain or file at a time is shown in full, with the changes; `--json` has everything."


def _plural(count: int, word: str) -> str:
    return f"{count:,} {word}{'' if count == 1 else 's'}"


def _severities(count: int, severity: Severity) -> str:
    """Count findings: `1 error`, `3 warnings`, `2 to try`."""
    return f"{count} to try" if severity is Severity.TRY else count_text(count, severity.value)
