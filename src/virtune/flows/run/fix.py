# SPDX-License-Identifier: Apache-2.0
"""`fix`: what the audit says of a VM's disk, measured on a scratch disk like it, and the changes that showed better.

What is measured is the changed configuration itself, read again: so what is applied afterwards is what was measured.
Where virtune writes no configuration, of a QEMU's command line, it is the VM as it is now with the changes made, and
what makes them by hand is said.
"""

import contextlib
import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from datetime import UTC, datetime, timedelta
from operator import attrgetter

from virtune.advise.audit import Consequences, audit
from virtune.advise.placement import NAME as FLASH
from virtune.advise.placement import flash
from virtune.advise.rule import RULES
from virtune.bench.live.emulators import emulators_here
from virtune.bench.live.monitor import monitored
from virtune.flows.domains.domains import FoundDomain
from virtune.flows.domains.like import LikeVm, as_it_is_now, looked_at
from virtune.flows.run.question import AS_IT_IS, Question
from virtune.model.domain import LIMIT_KNOBS, Domain, DomainDisk, SettingChange
from virtune.model.durability import durability_of
from virtune.model.errors import PlanError, PreconditionError, ReadError, RigError, UsageError
from virtune.model.evidence import Damaged, StudyRecord
from virtune.model.finding import Finding, Severity
from virtune.model.knob import Risk
from virtune.model.knobs import find
from virtune.model.reason import Reason
from virtune.model.result import Result
from virtune.model.stack import LIMITS, Stack
from virtune.model.study import Study, StudyKind
from virtune.model.study_options import Provenance, StudyOptions
from virtune.model.verdict import Comparison, Verdict
from virtune.model.workload import Workload
from virtune.plan.arms import apply_settings
from virtune.plan.like import carried, likeness
from virtune.plan.turned import turned
from virtune.store.store import Store

FIXES, ALL = "fixes", "all"
"""The arms with the changes of all errors and warnings, and with those of the tries besides."""

_HOURS_KEPT = 24
"""How long a measurement of the same question stands for a new one."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Candidate:
    """Changes of a VM that can be measured together: their arm's name, what they are for, the settings that they give
    it, and the knobs of those that they take away.
    """

    name: str
    turns: tuple[SettingChange, ...]
    why: str
    settings: tuple[str, ...]
    without: frozenset[str] = frozenset()

    @property
    def text(self) -> str:
        """What it changes, as settings."""
        return ", ".join((*self.settings, *(f"no {knob}" for knob in sorted(self.without))))


@dataclass(frozen=True, slots=True, kw_only=True)
class Fixes:
    """What can be done for a VM's disk. `needed` are the changes of errors and warnings, which hold as they stand,
    and what was asked for by the rules `also`; `candidates` are measured; `left` says what of the audit is in
    neither, and why.
    """

    disk: DomainDisk
    findings: tuple[Finding, ...]
    needed: tuple[SettingChange, ...]
    candidates: tuple[Candidate, ...]
    left: tuple[str, ...]
    also: tuple[str, ...] = ()


def fixes_for(
    found: FoundDomain, disk: DomainDisk, vm: LikeVm, *, also: Sequence[str] = (), comes_back: bool = False
) -> Fixes:
    """Return what the audit of a VM offers for one of its disks, as arms of a comparison on the rig of `vm`.

    `also` are rules whose changes are made too, though they risk data, or lift what may be meant. `comes_back`: a
    restart shows whether the guest boots with the change. `disk` is the VM's as it is now. Raises UsageError for what
    is no rule.
    """
    unknown = [name for name in also if name not in RULES]
    if unknown:
        raise UsageError(f"there is no rule {unknown[0]!r}", hint="`virtune fix VM` lists what is left, by its rule")
    places = ("", disk.target, f"scsi:{disk.controller}" if disk.bus == "scsi" else "")
    findings = tuple(one for one in _findings(found) if one.at in places)
    found = as_it_is_now(found)
    # what is done by hand shows by itself whether the guest boots
    needed, tries, left = _sorted(findings, also=also, comes_back=comes_back or not found.language.writes)
    # as where the same was called before, and killed when the change was made
    offering = {one.rule.id for one in findings if one.seen.turns}
    left += [f"{name}: it finds nothing to change at {disk.target}" for name in also if name not in offering]
    asked = [(FIXES, needed, "what errors, warnings and --also ask for")] if needed else []
    asked += [(name, _together(needed, turns), why) for name, turns, why in tries]
    alone = {name: turns for name, turns, _ in tries}
    template, dropped = _of_template(found, disk, needed)
    if template:
        asked.append((FLASH, _together(needed, template), "the engine and cache of the template for flash"))
        alone[FLASH] = template
        left += dropped
    if len(asked) > 1 + bool(needed):
        asked.append((ALL, _together(*(turns for _, turns, _ in asked)), "all of these together"))
    candidates: list[Candidate] = []
    for name, turns, why in asked:
        try:
            settings, without = _arm(found, disk, _changed(found, turns), vm)
        except (PlanError, ReadError) as refusal:
            left.append(f"{name}: {_own_reason(found, alone.get(name, ()), refusal.message)}")
            continue
        known = {((), frozenset()), *((one.settings, one.without) for one in candidates)}
        if (settings, without) not in known:
            candidates.append(Candidate(name=name, turns=turns, why=why, settings=settings, without=without))
        elif name != ALL:
            left.append(f"{name} ({why}): nothing that it changes is seen on rig={vm.rig}, so it is not measured")
    return Fixes(
        disk=disk, findings=findings, needed=needed, candidates=tuple(candidates), left=tuple(left), also=tuple(also)
    )


def _findings(found: FoundDomain) -> tuple[Finding, ...]:
    """Return what the audit says of a VM: as it is now, and what its next start would have besides where only that is
    written.
    """
    now = as_it_is_now(found)
    later = () if now is found else audit(found.subject)
    each: dict[tuple[str, str, str], Finding] = {}
    for one in (*audit(now.subject), *later):
        each.setdefault((one.rule.id, one.at, one.seen.seen), one)
    return tuple(each.values())


def _changed(found: FoundDomain, turns: Sequence[SettingChange]) -> Domain:
    """Return a VM with these changes. Raises PlanError or ReadError where they cannot be made."""
    if not found.language.writes:
        return turned(found.subject.domain, *turns)
    return _read_again(found, found.language.alter(found.text, *turns, domain=found.subject.domain.name))


def _read_again(found: FoundDomain, after: bytes) -> Domain:
    return next(one for one in found.language.domains(after) if one.name in ("", found.subject.domain.name))


def _own_reason(found: FoundDomain, alone: Sequence[SettingChange], said: str) -> str:
    """Return why a try cannot be made by its own changes; what was `said` of all that it goes with, if they can."""
    try:
        _changed(found, alone)
    except (PlanError, ReadError) as refusal:
        return refusal.message
    return f"it goes with what cannot be made: {said}" if alone else said


_Try = tuple[str, tuple[SettingChange, ...], str]
"""Its name, its changes, and what they are for."""


def _sorted(
    findings: Sequence[Finding], *, also: Sequence[str], comes_back: bool
) -> tuple[tuple[SettingChange, ...], list[_Try], list[str]]:
    """Return the changes that are needed, those to try, of each rule the first, and what is left and why."""
    needed: tuple[SettingChange, ...] = ()
    tries: list[_Try] = []
    left: list[str] = []
    for one in findings:
        turns, said = one.seen.turns, f"{one.rule.id} ({one.seen.seen})"
        if not turns:
            left.append(f"{said}: it names no setting; {one.seen.advice}")
        elif (one.seen.meant or one.risk is Risk.DATA) and one.rule.id not in also:
            why = "it risks data" if one.risk is Risk.DATA else "it may be meant"
            left.append(f"{said}: {why}, so it is for you to ask, by --also {one.rule.id}: {_set(turns)}")
        elif not comes_back and any(turn.knob in DRIVEN for turn in turns):
            why = "a guest without the driver does not boot, so it takes a running VM, --restart and --healthy"
            left.append(f"{said}: {why}: {_set(turns)}")
        elif one.rule.id in also:
            needed = _together(turns, needed)  # what is asked for by name goes over what another rule would have
        elif one.rule.severity is not Severity.TRY:
            needed = _together(needed, turns)
        elif all(one.rule.id != name for name, _, _ in tries):
            tries.append((one.rule.id, turns, one.seen.seen))
    return needed, tries, left


DRIVEN = ("device.bus", "device.scsi_controller")
"""For another one of these a guest needs another driver."""


def _of_template(
    found: FoundDomain, disk: DomainDisk, needed: Sequence[SettingChange]
) -> tuple[tuple[SettingChange, ...], tuple[str, ...]]:
    """Return what the template for flash gives this disk without another IOThread, which the audit tries, and without
    a risk for data; and what of the template this leaves out, and why, but for what is `needed` besides.
    """
    given = {one.knob for one in needed if one.at == disk.target}
    risk, template = Consequences(found.subject.domain).risk, flash(found.subject)
    turns = [one for one in template.turns if one.at == disk.target and one.knob != "device.iothread"]
    safe = tuple(one for one in turns if risk(one) is not Risk.DATA)
    cache = Reason.DURABLE_CACHE if "disk.cache" in given else None
    left = [one.why.text for one in template.left if one.at == disk.target and one.why.reason is not cache]
    left += [f"{_set([one])} risks data" for one in turns if one not in safe and one.knob not in given]
    return safe, tuple(f"of the template {FLASH}: {why}" for why in left)


def _together(*groups: Sequence[SettingChange]) -> tuple[SettingChange, ...]:
    """Return changes one after the other; of one setting the first decides."""
    found: dict[tuple[str, str], SettingChange] = {}
    for turn in (turn for group in groups for turn in group):
        found.setdefault((turn.knob, turn.at), turn)
    return tuple(found.values())


def _set(turns: Sequence[SettingChange]) -> str:
    return " ".join(f"--set {turn.knob}{turn.at and '@'}{turn.at}={turn.value or ''}" for turn in turns)


def _arm(found: FoundDomain, disk: DomainDisk, changed: Domain, vm: LikeVm) -> tuple[tuple[str, ...], frozenset[str]]:
    """Return what a disk has in a changed configuration that it had not, and the knobs that it lacks then, nothing
    where both are the same on that rig; raises PlanError for what cannot be measured.
    """
    subject = replace(found.subject, domain=changed)
    same = changed.disks[found.subject.domain.disks.index(disk)]  # another bus gives it another name
    words = carried(likeness(looked_at(subject, same)), vm.rig).settings
    stacks = [apply_settings(Stack(), (f"rig={vm.rig}", *some))[0] for some in (vm.settings, words)]
    if stacks[0] == stacks[1]:  # what was left behind of the VM may be what is changed
        return (), frozenset()
    then, now = dict(_pairs(words)), dict(_pairs(vm.settings))
    settings = tuple(f"{knob}={value}" for knob, value in then.items() if now.get(knob) != value)
    return settings, frozenset(now.keys() - then.keys())


def candidate_of(found: FoundDomain, target: str, after: bytes, vm: LikeVm) -> Candidate | None:
    """Return a whole changed configuration as one candidate; None where a disk on that rig is as it was."""
    disk = found.subject.domain.disk(target)
    settings, without = ((), frozenset[str]()) if disk is None else _arm(found, disk, _read_again(found, after), vm)
    if not (settings or without):
        return None
    return Candidate(name="changed", turns=(), why="what was changed", settings=settings, without=without)


def _pairs(settings: Sequence[str]) -> Iterator[tuple[str, str]]:
    for word in settings:
        knob, _, value = word.partition("=")
        yield knob, value


def asked_again(study: Study) -> StudyOptions:
    """Return how a study was measured, to measure in the same way again what it was about; its loads are apart."""
    stack = study.arm(study.baseline).stack
    budget = study.budget_seconds if study.kind is StudyKind.COMPARE else None
    rounds = study.rounds if study.kind is StudyKind.COMPARE and budget is None else None
    return StudyOptions(
        rig=f"{stack.rig}:{stack.domain}" if stack.domain else str(stack.rig), connect=study.connect,
        workloads=tuple(one.name for one in study.workloads), metric=study.metric, margin=study.margin, rounds=rounds,
        budget=budget, seconds=study.seconds, ramp=study.ramp_seconds, span=study.span_bytes,
        attempts=study.attempts,
    )  # fmt: skip


def question_of(
    asked: StudyOptions, candidates: Sequence[Candidate], vm: LikeVm, *, title: str, loads: Sequence[Workload] = ()
) -> Question:
    """Return the comparison of a VM's disk as it is with each candidate."""
    gone = frozenset[str]().union(*(one.without for one in candidates))
    taken = dict(one for one in _pairs(vm.settings) if one[0] in gone)
    held = tuple(word for word in vm.settings if word.partition("=")[0] not in gone)
    arms = [(AS_IT_IS, tuple(f"{knob}={value}" for knob, value in taken.items()))]
    for one in candidates:
        own = {knob for knob, _ in _pairs(one.settings)} | one.without
        kept = (f"{knob}={value}" for knob, value in taken.items() if knob not in own)
        arms.append((one.name, (*kept, *one.settings)))
    return Question.of(
        asked, StudyKind.COMPARE, arms=tuple(arms), baseline=AS_IT_IS, title=title, like=vm.said,
        vm=replace(vm, settings=held), given_workloads=tuple(loads),
    )  # fmt: skip


def measured_before(store: Store, study: Study) -> StudyRecord | None:
    """Return the newest study of this host in the last hours that asked the same, of the same stacks, loads and
    storage, finished or not.
    """
    same = (one for one in _recent(store) if all(asked(one) == asked(study) for asked in _ASKED))
    return next((store.get(one.id) for one in same), None)


def load_before(store: Store, title: str) -> tuple[Workload, ...]:
    """Return the load of the VM as it was seen for the newest study of that title in the last hours, so that a fix
    which goes on measures under the same; none without one.
    """
    named = (one for one in _recent(store) if one.title == title)
    of_vm = {("workloads", Provenance.LIKE)}
    return next((one.workloads for one in named if of_vm & {(row.name, row.source) for row in one.options}), ())


def _recent(store: Store) -> Iterator[Study]:
    since = (datetime.now(UTC) - timedelta(hours=_HOURS_KEPT)).isoformat(timespec="seconds")
    for listed in store.list(own=True):
        if not isinstance(listed, Damaged) and listed.study.created >= since:
            yield listed.study


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
    """Return the candidate that is better by the most that is sure: by the nearer end of its interval, one that is
    perhaps better behind all others. One that promises less durability than the disk has is not taken, and where none
    is better the fixes stand by themselves.
    """
    study = record.study
    now = durability_of(study.arm(study.baseline).stack)
    better = [
        one
        for one in fixes.candidates
        if is_better(study, result, one.name)
        and not durability_of(study.arm(one.name).stack).weaker_than(now.promise)
    ]
    if better:
        sure = [one for one in better if not any(found.unsure for found in _main(study, result, one.name))]
        best = max(sure or better, key=lambda one: _least(study, result, one.name))
        others = f", with the largest certain gain of {len(sure)} that are better" if len(sure) > 1 else ""
        perhaps = "" if sure else ", which is perhaps better: measure again before you rely on it"
        why = f"the change to make: {best.name}{others}{perhaps}{_of_memory(record, best.name)}"
        return ChosenFix(candidate=best, turns=best.turns, why=why)
    why = f"no change was measured to be better{_behind_limit(study, fixes)}{_stands(fixes)}"
    return ChosenFix(candidate=None, turns=fixes.needed, why=why)


def _behind_limit(study: Study, fixes: Fixes) -> str:
    """Say that the disk's own limit is in every arm, and what measures without it."""
    lifts = [one.rule.id for one in fixes.findings if any(turn.knob in LIMIT_KNOBS for turn in one.seen.turns)]
    if not lifts or not all(arm.stack.disk.limits for arm in study.arms):
        return ""
    return f"; the disk's own limit is in every arm, and may be all that shows: --also {lifts[0]} measures without it"


def _stands(fixes: Fixes) -> str:
    """Say of what changes all the same who asks for it."""
    found = dict.fromkeys(
        one.rule.id for one in fixes.findings if any(turn in fixes.needed for turn in one.seen.turns)
    )
    why = {True: "--also asks for it", False: "an error or a warning, right whatever it costs"}
    told = ", ".join(f"{name} ({why[name in fixes.also]})" for name in found)
    return f"; changed all the same: {told}" if told else ""


def _of_memory(record: StudyRecord, arm: str) -> str:
    """Say in how many of an arm's trials and the baseline's a page cache answered many of the reads."""
    both = [
        any(remark.id == "page-cache" for remark in one.measurement.remarks)
        for one in record.trials
        if one.trial.arm in (arm, record.study.baseline) and one.measurement is not None
    ]
    if not any(both):
        return ""
    return (
        f"; in {sum(both)} of {len(both)} trials of {record.study.baseline} and {arm} the host's page cache answered"
        " reads in the disk's place, so that much is shown only for data that fits into this host's memory"
    )


def is_better(study: Study, result: Result, arm: str) -> bool:
    """Whether an arm is better than the baseline under a workload, and the same or better under every other."""
    found = {one.verdict for one in _main(study, result, arm)}
    return Verdict.BETTER in found <= {Verdict.BETTER, Verdict.SAME}


def is_worse(study: Study, result: Result, arm: str) -> bool:
    """Whether an arm is worse than the baseline under any workload."""
    return any(one.verdict is Verdict.WORSE for one in _main(study, result, arm))


def _main(study: Study, result: Result, arm: str) -> tuple[Comparison, ...]:
    """Return an arm's verdicts on the study's metric, one for each workload."""
    return tuple(
        one
        for one in result.verdicts
        if (one.candidate, one.metric, one.baseline) == (arm, study.metric, study.baseline)
    )


def _least(study: Study, result: Result, arm: str) -> float:
    """Return how far from no change an arm's verdicts are, by the nearer end of each interval, on the logarithm."""
    ratios = [one.ratio for one in _main(study, result, arm) if one.verdict is Verdict.BETTER and one.ratio]
    ends = [(one.low, one.high) for one in ratios if one.low > 0]
    return min((min(abs(math.log(low)), abs(math.log(high))) for low, high in ends), default=0.0)


def by_hand(found: FoundDomain, target: str, turns: Sequence[SettingChange]) -> Iterator[str]:
    """Yield what makes these changes of a disk: its limits at once, where it runs and its monitor tells how, and all
    of them from the next start on, but for limits that it has now alone.
    """
    limits = {one.knob: one for one in LIMITS}
    if any(turn.knob in limits and turn.value is None for turn in turns):
        for command in _lifts(found, target):
            yield f"at once and until QEMU ends, by QMP, the limits of {target} are lifted by: {command}"
        if found.subject.running is not None:
            yield f"`virtune diagnose {found.subject.like or found.subject.domain.name}` tells what limits it now"
    written = found.subject.domain.disk(target)
    for turn in turns:
        limit, at = limits.get(turn.knob), turn.at or "the VM"
        if limit is not None and turn.value is None:
            if written is None or limit.libvirt not in written.rate_limits:
                continue
            how = f"leave out throttling.{limit.qmp} ({limit.drive}) of its -drive, or x-{limit.qmp} of its group"
        else:
            how = f"no {turn.knob}" if turn.value is None else f"{turn.knob}={turn.value}"
            spelled = find(turn.knob).spelled.get("qemu")
            how += f" ({spelled})" if spelled else ""
            how += ", once its guest has the driver" if turn.knob in DRIVEN else ""
        yield f"from its next start on, in what starts it, for {at}: {how}"


def _lifts(found: FoundDomain, target: str) -> tuple[str, ...]:
    """Return the commands of the monitor that lift the limits of a disk that runs here; none where it has none."""
    sockets = (one.sockets for one in emulators_here() if str(one.command_line) == found.origin)
    for place in (place for some in sockets for place in some):
        with contextlib.suppress(PreconditionError, RigError), monitored(place, paused_too=True) as view:
            return tuple(
                dict.fromkeys(way for one in view.vm.disks if one.target == target for way in one.lifts.values())
            )
    return ()
