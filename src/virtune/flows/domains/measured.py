# SPDX-License-Identifier: Apache-2.0
"""What a study showed to be better, carried into a VM: the winner of a search, or the better arm of a comparison."""

import re
from collections.abc import Sequence
from dataclasses import dataclass

from virtune.advise.measured import changes
from virtune.advise.placement import Template
from virtune.analyse.search.tuning import tuning
from virtune.flows.stored.show import by_todays_method, current
from virtune.model.domain import DomainDisk
from virtune.model.errors import PlanError, StorePlace, UsageError
from virtune.model.evidence import StudyRecord
from virtune.model.finding import Subject
from virtune.model.result import Result
from virtune.model.stack import Stack
from virtune.model.study import Study
from virtune.model.verdict import Comparison, Verdict
from virtune.plan.like import Looked, likeness
from virtune.report.pages.result import change_text
from virtune.store.store import Store

_LIKE = re.compile(r"(?P<vm>.+):(?P<disk>[^: ]+) \(.*\)")


@dataclass(frozen=True, slots=True, kw_only=True)
class Measured:
    """A configuration that a study showed to be better than another: both, and what it showed, in a sentence. `disk`
    is the disk that the study was like, empty where it was like none.
    """

    before: Stack
    after: Stack
    said: str
    disk: str = ""

    def template(self, subject: Subject) -> Template:
        """Return what it changes in a VM; raises UsageError where the VM has several disks, and none of that name."""
        disk = _disk(subject, self.disk)
        image = subject.image(disk)
        known = likeness(Looked(domain=subject.domain, disk=disk, image=image)).settings
        now = {name: value for name, _, value in (word.partition("=") for word in known)}
        return changes(subject, disk, self.before, self.after, now=now)


def measured(place: StorePlace, name: str, *, disk: str = "") -> Measured:
    """Return what a study (`ID`, `last`, or `ID:ARM`) showed to be better than its baseline.

    Without an arm it is a search's winner, or the only better arm of a comparison. Raises PlanError where nothing was
    better, or several arms were; an arm that is named is taken with its verdict, whatever that is.
    """
    study_name, _, arm = name.partition(":")
    with Store(place) as store:
        found = store.find(study_name)
        record = store.get(found)
        if not record.study.arms or record.study.imported:
            raise PlanError(f"{found} was imported: which settings it had is not known")
        if record.study.simulated:
            raise PlanError(f"{found} is simulated, and no advice rests on invented figures")
        if record.study.search is not None:
            chosen, said = _winner(by_todays_method(store, found), arm)
        else:
            chosen, said = better_arm(*current(store, found), arm)
    study = record.study
    like = _LIKE.fullmatch(next((one.value for one in study.options if one.name == "like"), ""))
    return Measured(
        before=study.arm(study.baseline).stack, after=study.arm(chosen).stack, said=f"{study.id}: {said}",
        disk=disk or (like["disk"] if like else ""),
    )  # fmt: skip


def _winner(record: StudyRecord, arm: str) -> tuple[str, str]:
    known = tuning(record)
    if arm:
        _require_arm(record.study, arm)
        return arm, f"{arm}, as you named it"
    if known.winner is None or not known.settled or known.winner == known.study.baseline:
        why = known.why.text
        raise PlanError(
            f"the search {known.study.id} recommends nothing: {why}", hint=f"`virtune show {known.study.id}`"
        )
    return known.winner, f"{known.winner} won"


def better_arm(record: StudyRecord, result: Result, arm: str) -> tuple[str, str]:
    """Return the arm that is named, or the only one that is better under every workload, and what is said of it;
    raises PlanError. One that is perhaps better has to be named.
    """
    study = record.study
    main = [one for one in result.verdicts if one.metric == study.metric and one.baseline == study.baseline]
    if arm:
        _require_arm(study, arm)
        return arm, _said([one for one in main if one.candidate == arm], arm)
    said = {arm: {one.said for one in main if one.candidate == arm} for arm in (one.candidate for one in main)}
    better = [candidate for candidate, words in said.items() if words == {Verdict.BETTER.value}]
    if len(better) == 1:
        return better[0], _said([one for one in main if one.candidate == better[0]], better[0])
    if not better:
        perhaps = next((one for one, words in said.items() if words == {f"perhaps {Verdict.BETTER.value}"}), None)
        beside = "" if perhaps is None else f"; {perhaps} is perhaps better"
        raise PlanError(
            f"no arm of {study.id} is better than {study.baseline} under every workload{beside}",
            hint=f"`virtune show {study.id}`; `--from {study.id}:{perhaps or 'ARM'}` takes it all the same",
        )
    raise PlanError(
        f"{len(better)} arms of {study.id} are better than {study.baseline}: {', '.join(better)}",
        hint=f"name one: `--from {study.id}:{better[0]}`; `virtune tune` finds the best of several",
    )


def _said(verdicts: Sequence[Comparison], arm: str) -> str:
    told = "; ".join(f"{one.said} under {one.workload} ({change_text(one)})" for one in verdicts)
    return f"{arm}: {told}" if told else f"{arm}, without a verdict"


def _require_arm(study: Study, arm: str) -> None:
    names = [one.name for one in study.arms]
    if arm not in names or arm == study.baseline:
        raise PlanError(f"{study.id} has no arm {arm!r} beside its baseline", hint=f"it has {', '.join(names[:12])}")


def _disk(subject: Subject, name: str) -> DomainDisk:
    disks = [one for one in subject.disks if name in ("", one.target)]
    if len(disks) == 1:
        return disks[0]
    there = ", ".join(one.target for one in subject.disks)
    vm = subject.domain.name or "the VM"
    if not disks:
        raise UsageError(f"{vm} has no disk {name!r} with data", hint=f"it has {there}" if there else None)
    raise UsageError(f"{vm} has the disks {there}, and the study was like none of them", hint="name one by --disk")
