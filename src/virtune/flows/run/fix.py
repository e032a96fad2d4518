# SPDX-License-Identifier: Apache-2.0
"""`fix`: what the audit says of a VM's disk, measured on a scratch disk like it, and the changes that showed better.

What is measured is the changed configuration itself, read again: so what is applied afterwards is what was measured.
"""

import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from operator import attrgetter

from virtune.advise.audit import audit
from virtune.flows.domains.domains import FoundDomain
from virtune.flows.domains.like import LikeVm, looked_at
from virtune.flows.run.question import AS_IT_IS, Question
from virtune.model.domain import DomainDisk, SettingChange
from virtune.model.durability import durability_of
from virtune.model.errors import PlanError, ReadError
from virtune.model.evidence import Damaged, StudyRecord
from virtune.model.finding import Finding, Severity
from virtune.model.knob import Risk
from virtune.model.result import Result
from virtune.model.study import Study, StudyKind
from virtune.model.study_options import StudyOptions
from virtune.model.verdict import Comparison, Verdict
from virtune.plan.like import carried, likeness
from virtune.store.store import Store

FIXES, ALL = "fixes", "all"
"""The arms with the changes of all errors and warnings, and with those of the tries besides."""

HOURS_KEPT = 24
"""How long a measurement of the same question stands for a new one."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Candidate:
    """Changes of a VM that can be measured together: their arm's name and settings, and what they are for."""

    name: str
    turns: tuple[SettingChange, ...]
    settings: tuple[str, ...]
    why: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Fixes:
    """What can be done for a VM's disk. `needed` are the changes of errors and warnings, which hold as they stand;
    `candidates` are measured; `left` says what of the audit is in neither, and why.
    """

    disk: DomainDisk
    findings: tuple[Finding, ...]
    needed: tuple[SettingChange, ...]
    candidates: tuple[Candidate, ...]
    left: tuple[str, ...]


def fixes_for(found: FoundDomain, disk: DomainDisk, vm: LikeVm) -> Fixes:
    """Return what the audit of a VM offers for one of its disks, as arms of a comparison on the rig of `vm`."""
    findings = tuple(one for one in audit(found.subject) if _is_of(one, disk))
    left: list[str] = []
    needed: tuple[SettingChange, ...] = ()
    for finding in findings:
        if finding.rule.severity is not Severity.TRY and finding.seen.turns:
            needed = (*needed, *(turn for turn in finding.seen.turns if turn not in needed))
    tries = [one for one in findings if one.rule.severity is Severity.TRY]
    left += [f"{one.rule.id} ({one.seen.seen}): it names no setting" for one in tries if not one.seen.turns]
    tries = [one for one in tries if one.seen.turns]
    tries = list({one.rule.id: one for one in reversed(tries)}.values())[::-1]
    asked = [(FIXES, needed, "what the errors and warnings ask for")] if needed else []
    for one in tries:
        if one.risk is Risk.DATA:
            left.append(
                f"{one.rule.id} ({one.seen.seen}): it risks data, so it is for you to ask: {_set(one.seen.turns)}"
            )
        else:
            asked.append((one.rule.id, _together(needed, one.seen.turns), one.seen.seen))
    every = _together(*(turns for _, turns, _ in asked))
    if len(asked) > 1 + bool(needed):
        asked.append((ALL, every, "all of these together"))
    candidates: list[Candidate] = []
    measured: set[tuple[str, ...]] = {()}
    for name, turns, why in asked:
        try:
            settings = _settings(found, disk, turns, vm)
        except (PlanError, ReadError) as refusal:
            left.append(f"{name}: {refusal.message}")
            continue
        if settings not in measured:
            candidates.append(Candidate(name=name, turns=turns, settings=settings, why=why))
            measured.add(settings)
        elif name != ALL:
            left.append(f"{name} ({why}): nothing that it changes is seen on rig={vm.rig}, so it is not measured")
    return Fixes(disk=disk, findings=findings, needed=needed, candidates=tuple(candidates), left=tuple(left))


def _is_of(finding: Finding, disk: DomainDisk) -> bool:
    return finding.at in ("", disk.target) or (disk.bus == "scsi" and finding.at == f"scsi:{disk.controller}")


def _together(*groups: Sequence[SettingChange]) -> tuple[SettingChange, ...]:
    """Return changes one after the other; of one setting the first decides."""
    found: dict[tuple[str, str], SettingChange] = {}
    for turn in (turn for group in groups for turn in group):
        found.setdefault((turn.knob, turn.at), turn)
    return tuple(found.values())


def _set(turns: Sequence[SettingChange]) -> str:
    return " ".join(f"--set {turn.knob}{turn.at and '@'}{turn.at}={turn.value or ''}" for turn in turns)


def _settings(found: FoundDomain, disk: DomainDisk, turns: Sequence[SettingChange], vm: LikeVm) -> tuple[str, ...]:
    """Return what a changed configuration has that the VM had not; raises PlanError for what cannot be written, or
    not be measured.
    """
    name, place = found.subject.domain.name, found.subject.domain.disks.index(disk)
    after = found.language.alter(found.text, *turns, domain=name)
    changed = next(one for one in found.language.domains(after) if one.name in ("", name))
    subject = replace(found.subject, domain=changed)
    then = dict(_pairs(carried(likeness(looked_at(subject, changed.disks[place])), vm.rig).settings))
    now = dict(_pairs(vm.settings))
    gone = [knob for knob in now if knob not in then]
    if gone:
        raise PlanError(f"it takes {', '.join(gone)} away, which an arm cannot: not measured")
    return tuple(f"{knob}={value}" for knob, value in then.items() if now.get(knob) != value)


def _pairs(settings: Sequence[str]) -> Iterator[tuple[str, str]]:
    for word in settings:
        knob, _, value = word.partition("=")
        yield knob, value


def question_of(asked: StudyOptions, fixes: Fixes, *, title: str) -> Question:
    """Return the comparison of a VM's disk as it is with each candidate."""
    arms = ((AS_IT_IS, ()), *((one.name, one.settings) for one in fixes.candidates))
    given = {name: getattr(asked, name) for name in StudyOptions.__dataclass_fields__}
    return Question(kind=StudyKind.COMPARE, **{**given, "arms": arms, "title": title})


def measured_before(store: Store, study: Study, *, since: str) -> StudyRecord | None:
    """Return the newest study of this host that asked the same, of the same stacks, loads and storage, and was begun
    since a time (ISO 8601, UTC), finished or not.
    """
    for listed in store.list(own=True):
        if isinstance(listed, Damaged) or listed.study.created < since:
            continue
        if all(asked(listed.study) == asked(study) for asked in _ASKED):
            return store.get(listed.study.id)
    return None


_ASKED = tuple(
    attrgetter(name)
    for name in ("title", "arms", "baseline", "workloads", "scratch", "target", "span_bytes", "metric", "margin")
)
"""What two measurements must have alike for the one to stand for the other."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ChosenFix:
    """What the measurement says is to be done: the candidate, None where none is better, in a sentence why."""

    candidate: Candidate | None
    turns: tuple[SettingChange, ...]
    why: str


def choose(record: StudyRecord, result: Result, fixes: Fixes) -> ChosenFix:
    """Return the candidate that is better by the most that is sure: by the nearer end of its interval. One that
    promises less durability than the disk has is not taken, and where none is better the fixes stand by themselves.
    """
    study = record.study
    now = durability_of(study.arm(study.baseline).stack)
    verdicts: Mapping[str, Comparison] = {
        one.candidate: one for one in result.verdicts if one.metric == study.metric and one.baseline == study.baseline
    }
    better = [
        one
        for one in fixes.candidates
        if (verdict := verdicts.get(one.name)) is not None
        and verdict.verdict is Verdict.BETTER
        and not durability_of(study.arm(one.name).stack).weaker_than(now.promise)
    ]
    if better:
        best = max(better, key=lambda one: _least(verdicts[one.name]))
        others = f", of {len(better)} that are better" if len(better) > 1 else ""
        why = f"{best.name} is surely better by the most{others}"
        return ChosenFix(candidate=best, turns=best.turns, why=why)
    stands = "; the errors and warnings are right whatever it costs" if fixes.needed else ""
    why = f"no change was measured to be better{stands}"
    return ChosenFix(candidate=None, turns=fixes.needed, why=why)


def _least(verdict: Comparison) -> float:
    """Return the distance from no change of the nearer end of its interval, on the logarithm."""
    ends = () if verdict.ratio is None else (verdict.ratio.low, verdict.ratio.high)
    return min((abs(math.log(end)) for end in ends if end > 0), default=0.0)
