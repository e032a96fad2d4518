# SPDX-License-Identifier: Apache-2.0
"""The audit: run every rule on one domain, and sort the findings by severity."""

from collections.abc import Mapping, Sequence

from virtune.advise import device, durability, engine, hypervisors, placement, running
from virtune.advise.consequences import Consequences
from virtune.advise.rule import RULES
from virtune.model.domain import Controller, DomainDisk
from virtune.model.finding import Finding, Rule, Seen, Subject

ROOMS = (durability, engine, device, placement, running, hypervisors)
"""The modules whose rules are asked, in the order of the reference page."""


def rules() -> tuple[Rule, ...]:
    """Return every rule."""
    return tuple(RULES.values())


def audit(subject: Subject, asked: Sequence[Rule] | None = None) -> tuple[Finding, ...]:
    """Run every rule, or some, and return the findings: the most severe first, then by place."""
    some = RULES.values() if asked is None else asked
    lines = {disk.target: disk.line for disk in reversed(subject.domain.disks)}
    consequences = Consequences(subject.domain)
    found = [_finding(rule, subject, seen, lines, consequences) for rule in some for seen in rule.check(subject)]
    return tuple(sorted(found, key=lambda one: (-one.rule.severity.rank, one.line, one.rule.id)))


def _finding(
    rule: Rule, subject: Subject, seen: Seen, lines: Mapping[str, int], consequences: Consequences
) -> Finding:
    domain = subject.domain
    at, line = "", domain.line
    match seen.at:
        case DomainDisk(target=target):
            at, line = target, lines.get(target, domain.line)
        case Controller(kind=kind, index=index, line=place):
            at, line = f"{kind}:{index}", place
        case None:
            pass
    takes, risk = consequences.of_all(seen.turns) if seen.turns else (rule.takes, rule.risk)
    return Finding(
        rule=rule, domain=domain.name, uuid=domain.uuid, at=at, line=line, seen=seen, takes=takes, risk=risk
    )
