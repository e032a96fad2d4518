# SPDX-License-Identifier: Apache-2.0
"""The probe of domains: what is written, what runs, and where the two differ."""

from collections.abc import Iterable

from virtune.advise.audit import audit, rules
from virtune.flows.domains import FoundDomain
from virtune.model.finding import Finding, Rule, Subject, Unread

IN_FORCE: frozenset[str] = frozenset({"R08", "R13", "R29", "R37", "R80", "R81"})
"""Rules that say that something written is not what runs; all others are the audit's."""


def probe_domains(
    found: Iterable[FoundDomain | Unread],
) -> tuple[list[tuple[str, Subject, tuple[Finding, ...]]], list[Unread]]:
    """Return every domain with what differs from what is written, and what could not be read."""
    asked: tuple[Rule, ...] = tuple(one for one in rules() if one.id in IN_FORCE)
    known: list[tuple[str, Subject, tuple[Finding, ...]]] = []
    lost: list[Unread] = []
    for one in found:
        if isinstance(one, Unread):
            lost.append(one)
        else:
            known.append((one.origin, one.subject, audit(one.subject, asked)))
    return known, lost
