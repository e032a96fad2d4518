# SPDX-License-Identifier: Apache-2.0
"""The audit of domains, and advice for each: the requested setting changes, and the diff of its configuration."""

from collections.abc import Collection, Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING

from virtune.advise.audit import Consequences, audit, not_audited, not_looked_at, rules, rules_by_need
from virtune.advise.device import lifting, limits_now, told
from virtune.advise.placement import flash
from virtune.dialects.text.masking import masked
from virtune.flows.domains.domains import FoundDomain, unified
from virtune.model.domain import LIMIT_KNOBS, SettingChange
from virtune.model.errors import PlanError, UsageError, VirtuneError
from virtune.model.finding import (
    Advice,
    Audited,
    Finding,
    LeftAlone,
    NewFinding,
    PassedOver,
    Rule,
    Severity,
    Unread,
)
from virtune.model.knobs import find
from virtune.model.reason import Reason, because
from virtune.model.text import setting_text

if TYPE_CHECKING:
    from virtune.flows.domains.measured import Measured
    from virtune.flows.stored.earlier_studies import Past


WORK_BYTES_MAX = 24 * 1024**2
"""Every change reads the text three times, at some 10 MB a second: a domain of 10 kB may have 2,400 changes."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Wish:
    """The requested changes: a template, what a study showed to be better, the fixes of some rules' findings, or
    settings by name.

    With nothing named: the fixes of errors and warnings.
    """

    template: str | None = None
    measured: "Measured | None" = None
    rules: tuple[str, ...] = ()
    turns: tuple[SettingChange, ...] = ()


def advise(found: FoundDomain, wish: Wish, findings: Sequence[Finding] | None = None) -> Advice:
    """Return the advice for one domain, without changes if none are needed. `findings` are the audit's.

    A change of a rule or template that the configuration cannot take is left out and reported; raises PlanError where
    the user named it.
    """
    groups, left = _wanted(found, wish, findings)
    if len(found.text) * (count := sum(map(len, groups)) + len(wish.turns)) > WORK_BYTES_MAX:
        raise PlanError(f"{count:,} changes of one domain are too many at once", hint="name some with --set")
    after, made, unsaid = found.text, list[SettingChange](), list[LeftAlone]()
    names: dict[str, str] = {}
    for group in groups:
        try:
            after, changed = _changed(found, after, group, names)
        except PlanError as refusal:
            unsaid.append(LeftAlone(why=because(Reason.NOT_WRITABLE, refusal=refusal.message)))
        else:
            made += changed
    after, changed = _changed(found, after, wish.turns, names)
    made += changed
    said = found.language.commands
    commands = said(found.text, after, Path(found.origin).stem) if said is not None and made else ()
    diff = unified(found.text, after, name=found.subject.domain.name) if found.language.given_back else ""
    consequences = Consequences(found.subject.domain)
    effects = tuple((consequences.takes(turn), consequences.risk(turn)) for turn in made)
    return Advice(
        turns=tuple(made),
        effects=effects,
        after=after,
        diff=diff,
        left=(*left, *unsaid, *_live_alone(found, [turn for turn in wish.turns if turn not in made])),
        commands=commands,
        warnings=_warnings(found, after) if made else (),
    )


def advise_all(every: Sequence[FoundDomain], wish: Wish) -> Iterator[tuple[FoundDomain, Advice]]:
    """Yield the advice for each domain. A change of a disk that only some of them have is for those; raises PlanError
    as `advise` does, with the name of the domain where there are several.
    """
    each = [{disk.target for disk in one.subject.domain.disks} for one in every]
    known = set[str]().union(*each)
    for one, disks in zip(every, each, strict=True):
        absent = dict.fromkeys(turn.at for turn in wish.turns if turn.at in known - disks)
        turns = tuple(turn for turn in wish.turns if turn.at not in absent)
        if absent and not (turns or wish.rules or wish.template or wish.measured):
            advice = Advice(turns=(), effects=(), after=one.text, diff="")
        else:
            try:
                advice = advise(one, replace(wish, turns=turns))
            except PlanError as error:
                of = f"{one.subject.domain.name or one.origin}: " if len(every) > 1 else ""
                raise PlanError(f"{of}{error.message}", hint=error.hint) from None
        left = (LeftAlone(at=at, why=because(Reason.NOT_WRITABLE, refusal="there is no such disk")) for at in absent)
        yield one, replace(advice, left=(*advice.left, *left))


def _live_alone(found: FoundDomain, turns: Sequence[SettingChange]) -> Iterator[LeftAlone]:
    """Yield the limits that these changes of a configuration do not reach, since only the running VM has them."""
    asked = {turn.at for turn in turns if turn.knob in LIMIT_KNOBS}
    for disk in found.subject.disks:
        now = limits_now(found.subject, disk)
        if disk.target in asked and now and now != disk.rate_limits:
            why = because(Reason.LIMIT_IS_LIVE, limits=told(now), how=lifting(found.subject, disk))
            yield LeftAlone(at=disk.target, why=why)


def _warnings(found: FoundDomain, after: bytes) -> tuple[NewFinding, ...]:
    """Return the audit's errors and warnings in a changed configuration that were not in the old one."""
    name = found.subject.domain.name
    changed = next((one for one in found.language.domains(after) if one.name in ("", name)), None)
    if changed is None:
        return ()
    known = {(one.rule.id, one.at) for one in audit(found.subject)}
    new = (one for one in audit(replace(found.subject, domain=replace(changed, name=name))))
    return tuple(
        NewFinding(
            rule=one.rule.id,
            at=one.at,
            text=masked(f"{one.rule.id} {one.at or 'domain'}: {one.seen.seen}; {one.seen.advice}"),
        )
        for one in new
        if one.rule.severity is not Severity.TRY and (one.rule.id, one.at) not in known
    )


def _changed(
    found: FoundDomain, text: bytes, turns: Sequence[SettingChange], names: dict[str, str]
) -> tuple[bytes, list[SettingChange]]:
    """Return a text with the changes made, all or none, and those that had an effect."""
    made, now = list[SettingChange](), dict(names)
    for turn, changed in found.language.steps(text, turns, now, domain=found.subject.domain.name):
        if changed != text:
            made.append(turn)
        text = changed
    names |= now
    return text, made


_BUSES = {"virtio": "virtio-blk", "scsi": "virtio-scsi", "sata": "ahci"}
"""Other systems' names of a disk's bus, which users write as well."""


def read_turn(text: str) -> SettingChange:
    """Read `disk.cache@vda=none`, `iothread.count=2`, `disk.aio@vda=` (which removes it); raises PlanError."""
    name, equals, value = text.partition("=")
    knob, _, at = name.partition("@")
    if not equals:
        raise PlanError(f"{text!r} turns no knob", hint="write disk.cache@vda=none")
    known = find(knob)
    if not value:
        return SettingChange(knob=knob, at=at, value=None)
    try:
        read = known.read(_BUSES.get(value, value) if knob == "device.bus" else value)
    except ValueError as error:
        raise PlanError(f"{knob}: {error}") from None
    return SettingChange(knob=knob, at=at, value=value if isinstance(read, str) else setting_text(read))


def _wanted(
    found: FoundDomain, wish: Wish, findings: Sequence[Finding] | None
) -> tuple[list[Sequence[SettingChange]], tuple[LeftAlone, ...]]:
    """Return the changes that rules or a template request, in groups that are made together; and what is left out."""
    if wish.template is not None or wish.measured is not None:
        template = flash(found.subject) if wish.measured is None else wish.measured.template(found.subject)
        return [(turn,) for turn in template.turns], template.left
    if wish.turns and not wish.rules:
        return [], ()
    _known(wish.rules, "")
    groups: list[Sequence[SettingChange]] = []
    left: list[LeftAlone] = []
    findings = audit(found.subject) if findings is None else findings
    for finding in findings:
        asked = finding.rule.id in wish.rules if wish.rules else finding.rule.severity is not Severity.TRY
        if asked and finding.seen.turns and finding.seen.meant and not wish.rules:
            why = because(Reason.MEANT, seen=masked(finding.seen.seen), rule=finding.rule.id)
            try:
                _changed(found, found.text, finding.seen.turns, {})
            except PlanError as refusal:  # asking for it would end there
                why = because(Reason.NOT_WRITABLE, refusal=f"{masked(finding.seen.seen)}: {refusal.message}")
            left.append(LeftAlone(rule=finding.rule.id, at=finding.at, why=why))
        elif asked and finding.seen.turns:
            # the most severe finding on a knob of one place decides
            taken = {(turn.knob, turn.at) for group in groups for turn in group}
            groups.append([turn for turn in finding.seen.turns if (turn.knob, turn.at) not in taken])
        elif asked:
            why = because(Reason.NO_SETTING, seen=masked(finding.seen.seen), advice=masked(finding.seen.advice))
            left.append(LeftAlone(rule=finding.rule.id, at=finding.at, why=why))
    tries = [one for one in findings if one.rule.severity is Severity.TRY and one.seen.turns]
    if tries and not wish.rules:
        named = ", ".join(dict.fromkeys(f"{one.rule.id} ({masked(one.seen.seen)})" for one in tries))
        left.append(LeftAlone(why=because(Reason.TO_BE_MEASURED, rules=named)))
    return groups, tuple(left)


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
    known = _known(ignored, " to ignore")
    asked = [rule for rule in known.values() if rule.id not in ignored]
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
            disks=sum(disk.holds_data for disk in domain.disks), written=one.language.writes,
        )  # fmt: skip


def _known(names: Collection[str], what: str) -> dict[str, Rule]:
    """Return all rules by their ids; raises UsageError for a name that none has."""
    known = {rule.id: rule for rule in rules()}
    for name in names:
        if name not in known:
            raise UsageError(f"no rule {name!r}{what}", hint="docs/reference/rules.md lists them")
    return known


def _without_secrets(finding: Finding) -> Finding:
    """Return a finding without passwords: a disk's source may be an address with one."""
    seen = finding.seen
    measure = None if seen.measure is None else masked(seen.measure)
    said, advice = masked(seen.seen), masked(seen.advice)
    if (said, advice, measure) == (seen.seen, seen.advice, seen.measure):
        return finding
    return replace(finding, seen=replace(seen, seen=said, advice=advice, measure=measure))


def _with_diff(found: FoundDomain, finding: Finding) -> Finding:
    if not finding.seen.turns or finding.seen.meant or not found.language.given_back:
        return finding
    name = found.subject.domain.name
    try:
        after = found.language.alter(found.text, *finding.seen.turns, domain=name)
    except VirtuneError:  # a disk without a name, or two with the same: then there is only text
        return finding
    return replace(finding, diff=unified(found.text, after, name=name))
