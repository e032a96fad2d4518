# SPDX-License-Identifier: Apache-2.0
"""The audit of domains: every rule asked of every domain that was found, and the differences that would mend it."""

import difflib
from collections.abc import Iterable, Iterator
from dataclasses import replace
from typing import TYPE_CHECKING

from virtune.advise.audit import audit
from virtune.dialects.text.masking import masked
from virtune.flows.domains import FoundDomain
from virtune.model.domain import SettingChange
from virtune.model.errors import VirtuneError
from virtune.model.finding import Audited, Finding, Unread

if TYPE_CHECKING:
    from virtune.flows.earlier_studies import Past

DIFF_BYTES_MAX = 4 * 1024**2
"""Every turn reads the text again. Of a domain of 10 kB 400 turns are shown; one of thousands of disks is told what
to turn, and not shown it line by line."""


def audit_all(
    found: Iterable[FoundDomain | Unread], *, diffs: int, past: "Past | None" = None
) -> Iterator[Audited | Unread]:
    """Yield what the rules say of every domain, in their order; with `past` what was measured of it on this host too.

    The changes of the first `diffs` findings are written as differences, which cost more than finding them.
    """
    for one in found:
        if isinstance(one, Unread):
            yield replace(one, because=masked(one.because))
            continue
        findings = tuple(map(_without_secrets, audit(one.subject)))
        if past is not None:
            findings = tuple(replace(finding, measured=past.says(finding, one.subject)) for finding in findings)
        turns = sum(len(finding.seen.turns) for finding in findings)
        if diffs > 0 and len(one.text) * turns < DIFF_BYTES_MAX:
            findings = tuple(_with_diff(one, finding) for finding in findings)
            diffs -= len(findings)
        domain = one.subject.domain
        yield Audited(origin=one.origin, domain=domain.name, uuid=domain.uuid, findings=findings)


def _without_secrets(finding: Finding) -> Finding:
    """Return a finding that quotes no password: a disk's source may be an address with one."""
    seen = finding.seen
    measure = None if seen.measure is None else masked(seen.measure)
    return replace(finding, seen=replace(seen, seen=masked(seen.seen), advice=masked(seen.advice), measure=measure))


def _with_diff(found: FoundDomain, finding: Finding) -> Finding:
    if not finding.seen.turns:
        return finding
    try:
        return replace(finding, diff=difference(found, finding.seen.turns))
    except VirtuneError:  # a disk without a name, or two of one: then words must do
        return finding


def difference(found: FoundDomain, turns: tuple[SettingChange, ...]) -> str:
    """Return what turns change in a domain's text, as a unified difference; passwords are never shown."""
    name = found.subject.domain.name
    return unified(found.text, found.language.alter(found.text, *turns, domain=name), name=name)


def unified(before: bytes, after: bytes, *, name: str) -> str:
    """Return a unified difference of two texts; empty when there is none. Passwords are never shown."""
    lines = difflib.unified_diff(_lines(before), _lines(after), name, f"{name} (changed)", n=2)
    return "".join(lines).removesuffix("\n")


def _lines(text: bytes) -> list[str]:
    """The lines of a text with their ends, which `patch` compares too."""
    *lines, last = masked(text.decode(errors="replace")).split("\n")
    return [*(f"{line}\n" for line in lines), *([f"{last}\n\\ No newline at end of file\n"] if last else [])]
