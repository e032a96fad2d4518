# SPDX-License-Identifier: Apache-2.0
"""The audit of domains: run every rule on every domain found, and make the diffs that would fix the findings."""

from collections.abc import Collection, Iterable, Iterator
from dataclasses import replace
from typing import TYPE_CHECKING

from virtune.advise.audit import audit, not_audited, not_looked_at, rules, rules_by_need
from virtune.dialects.text.masking import masked
from virtune.flows.domains.advise import Wish, advise
from virtune.flows.domains.difference import unified
from virtune.flows.domains.domains import FoundDomain
from virtune.model.errors import UsageError, VirtuneError
from virtune.model.finding import Audited, Finding, PassedOver, Rule, Unread

if TYPE_CHECKING:
    from virtune.flows.stored.earlier_studies import Past

DIFF_BYTES_MAX = 4 * 1024**2
"""Every change reads the text again. A domain of 10 kB gets up to 400 diffs; one with thousands of disks gets advice
without diffs.
"""


def audit_all(
    found: Iterable[FoundDomain | Unread | PassedOver],
    *,
    diffs: int,
    each: bool,
    ignored: Collection[str] = (),
    past: "Past | None" = None,
) -> Iterator[Audited | Unread | PassedOver]:
    """Yield the findings of every domain, in order, and what was not looked at; with `past` also the stored
    measurements of this host on them.

    Diffs, which cost more time than findings, are made for at most `diffs` findings: one for `each` finding, or one
    per domain for all its errors and warnings. Raises UsageError for an unknown rule to ignore.
    """
    asked = _asked(ignored)
    by_need = rules_by_need(asked)
    for one in found:
        if isinstance(one, PassedOver):
            yield one
            continue
        if isinstance(one, Unread):
            yield replace(one, because=masked(one.because))
            continue
        findings = tuple(map(_without_secrets, audit(one.subject, asked)))
        if past is not None:
            findings = tuple(replace(finding, measured=past.says(finding, one.subject)) for finding in findings)
        turns = sum(len(finding.seen.turns) for finding in findings)
        together, commands = "", tuple[str, ...]()
        if diffs > 0 and len(one.text) * turns < DIFF_BYTES_MAX:
            diffs -= len(findings)
            if each:
                findings = tuple(_with_diff(one, finding) for finding in findings)
            else:
                advice = advise(one, Wish(), findings)
                together, commands = advice.diff, advice.commands
        domain = one.subject.domain
        because = masked(not_audited(domain))
        yield Audited(
            origin=one.origin, domain=domain.name, uuid=domain.uuid, findings=findings, diff=together,
            commands=commands, not_audited=because,
            not_looked_at=() if because and not domain.elsewhere else not_looked_at(one.subject, by_need),
            disks=sum(disk.holds_data for disk in domain.disks),
        )  # fmt: skip


def _asked(ignored: Collection[str]) -> list[Rule]:
    known = {rule.id: rule for rule in rules()}
    for name in ignored:
        if name not in known:
            raise UsageError(f"no rule {name!r} to ignore", hint="docs/reference/rules.md lists them")
    return [rule for rule in known.values() if rule.id not in ignored]


def _without_secrets(finding: Finding) -> Finding:
    """Return a finding without passwords: a disk's source may be an address with one."""
    seen = finding.seen
    measure = None if seen.measure is None else masked(seen.measure)
    return replace(finding, seen=replace(seen, seen=masked(seen.seen), advice=masked(seen.advice), measure=measure))


def _with_diff(found: FoundDomain, finding: Finding) -> Finding:
    if not finding.seen.turns or not found.language.given_back:
        return finding
    name = found.subject.domain.name
    try:
        after = found.language.alter(found.text, *finding.seen.turns, domain=name)
    except VirtuneError:  # a disk without a name, or two with the same: then there is only text
        return finding
    return replace(finding, diff=unified(found.text, after, name=name))
