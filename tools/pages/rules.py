# SPDX-License-Identifier: Apache-2.0
"""The page of rules: everything that `virtune audit` checks in a domain."""

from collections.abc import Iterator

from tools.pages.markdown import plain, table, whole
from virtune.advise.audit import rules
from virtune.model.finding import Rule, Severity

_MEANINGS = {
    Severity.ERROR: "does not work, or puts data at risk; holds without a measurement",
    Severity.WARNING: "is not what it seems to be; holds without a measurement",
    Severity.TRY: "may be quicker: measure it before you believe it",
}


def page() -> str:
    """Return the page."""
    return whole("Rules", _lines())


def _lines() -> Iterator[str]:
    yield "What `virtune audit` looks for in the configuration of VMs. A rule speaks only of facts that are there;"
    yield "where one is unknown (a file says nothing of its host: `--here`), the audit names the rule as one that"
    yield "could not look. A domain whose disks no rule can judge (of another type than QEMU's, or partly in a file"
    yield "that was not read) is `not audited`: no findings then mean nothing, and the exit code is 5."
    yield "Ids are stable.\n"
    yield from table(("severity", "means"), ((one.value, _MEANINGS[one]) for one in reversed(Severity)))
    for severity in reversed(Severity):
        yield f"## {severity.value.capitalize()}\n"
        for rule in rules():
            if rule.severity is severity:
                yield from _rule(rule)


def _rule(rule: Rule) -> Iterator[str]:
    yield f"### {rule.id} {rule.name}\n"
    yield f"{plain(rule.why)}\n"
    takes = rule.takes.value if rule.takes else "nothing is to be applied"
    yield f"Applying takes: {takes}. Risk: {rule.risk.value}. Confidence: {rule.confidence.value}.\n"
    if rule.needs:
        yield f"Needs, beside the configuration: {'; '.join(need.value for need in rule.needs)}.\n"
    yield f"Source: {plain(rule.source)}\n"
