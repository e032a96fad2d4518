# SPDX-License-Identifier: Apache-2.0
"""The probe of domains: their configuration, their running state, and where the two differ."""

from collections.abc import Iterable

from virtune.advise.audit import audit, rules
from virtune.flows.domains.domains import FoundDomain
from virtune.model.finding import Finding, PassedOver, Rule, Subject, Unread

IN_FORCE: frozenset[str] = frozenset({"R08", "R13", "R29", "R37", "R80", "R81"})
"""The rules on differences between configuration and running state; all others belong to the audit."""


def probe_domains(
    found: Iterable[FoundDomain | Unread | PassedOver],
) -> tuple[list[tuple[str, Subject, tuple[Finding, ...]]], list[Unread]]:
    """Return every domain with the differences from its configuration, and those that could not be read."""
    asked: tuple[Rule, ...] = tuple(one for one in rules() if one.id in IN_FORCE)
    known: list[tuple[str, Subject, tuple[Finding, ...]]] = []
    lost: list[Unread] = []
    for one in found:
        if isinstance(one, Unread):
            lost.append(one)
        elif isinstance(one, FoundDomain):
            known.append((one.origin, one.subject, audit(one.subject, asked)))
    return known, lost
