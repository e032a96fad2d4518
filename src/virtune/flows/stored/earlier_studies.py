# SPDX-License-Identifier: Apache-2.0
"""The results of stored studies of this host on the changes that an audit suggests to try."""

import contextlib
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from itertools import permutations

from virtune.analyse.study.summarise import metal_of, shares_of_metal, structure_of
from virtune.fio.generator import clones_of
from virtune.flows.stored.show import by_todays_method, current, newest, of_this_host
from virtune.model.bottleneck import OwnShare
from virtune.model.domain import DomainDisk, SettingChange, disk_of
from virtune.model.errors import StoreError, StorePlace
from virtune.model.evidence import StudyRecord
from virtune.model.finding import Finding, Subject
from virtune.model.measurement import METHOD
from virtune.model.metric import BY_ID
from virtune.model.remark import EMULATED
from virtune.model.result import Result
from virtune.model.stack import Disk, Stack
from virtune.model.study import Arm, Study
from virtune.model.verdict import Comparison, Verdict
from virtune.report.words import difference_text, methods_text
from virtune.store.store import Store

SAID_MAX = 3
"""The most verdicts quoted on one change; older ones are in the store."""

NEWEST = 1000
"""How many of the newest studies are looked at; what is older may be of another QEMU and kernel."""

RULES = ("R18", "R26", "R30", "R34")
"""The rules whose advice is a setting that studies vary. Other rules are about images that a study does not have (a
sparse file, a chain of overlays).
"""

_DISK = {"disk.aio": "aio", "disk.cache": "cache", "disk.detect_zeroes": "detect_zeroes"}
_KEPT = ("format", "aio", "cache")
"""The settings that must be the same in a study and in the domain; all others must not differ between its two arms.
"""

Turned = Mapping[str, tuple[object, object]]
"""Settings by name, each with its value before and after."""

_OPPOSITE = {Verdict.BETTER: Verdict.WORSE, Verdict.WORSE: Verdict.BETTER}


class Past:
    """The studies of a store that can be compared with a domain of this host; empty without a store."""

    def __init__(self, path: StorePlace) -> None:
        self._path = path
        self._listed: tuple[Study, ...] | None = None
        self._results: dict[str, tuple[StudyRecord, Result] | None] = {}
        self._said: dict[object, tuple[str, ...]] = {}

    def says(self, finding: Finding, subject: Subject) -> tuple[str, ...]:
        """Return the stored results on a finding's changes, a sentence for each workload of each study."""
        disk = subject.domain.disk(finding.at)
        if disk is None or finding.rule.id not in RULES or subject.host.kernel is None:
            return ()
        now, turned = disk_of(disk), dict(_turned(disk, finding.seen.turns))
        if now is None or not turned:
            return ()
        key = (now, tuple(sorted(turned.items())))
        if key not in self._said:  # ten thousand domains have few kinds of disks
            found = (text for study in self._studies() for text in self._of(study, now, turned))
            self._said[key] = tuple(text for _, text in zip(range(SAID_MAX), found, strict=False))
        return self._said[key]

    def _of(self, study: Study, now: Disk, turned: Turned) -> Iterator[str]:
        for first, second in permutations(study.arms, 2):
            if _answers(first.stack, second.stack, now, turned) and (found := self._result(study.id)) is not None:
                yield from _sentences(*found, first, second)

    def _studies(self) -> tuple[Study, ...]:
        if self._listed is None:
            self._listed = ()
            if self._path.exists():
                # without a readable store an audit only lacks these results
                with contextlib.suppress(StoreError), Store(self._path, reading=True) as store:
                    kept = [one for one in newest(store, NEWEST) if one.finished]
                    studies = (one.study for one in kept if not one.study.imported and one.study.search is None)
                    self._listed = tuple(one for one in studies if not one.simulated)
        return self._listed

    def _result(self, study_id: str) -> tuple[StudyRecord, Result] | None:
        if study_id not in self._results:
            self._results[study_id] = None
            with contextlib.suppress(StoreError), Store(self._path, reading=True) as store:
                here = of_this_host(store.get(study_id).facts)
                self._results[study_id] = current(store, study_id) if here else None
        return self._results[study_id]


def _turned(disk: DomainDisk, turns: Sequence[SettingChange]) -> Iterator[tuple[str, tuple[object, object]]]:
    """Yield the settings of a Stack that changes affect: the name, and the value before and after."""
    now = disk_of(disk)
    for turn in turns:
        if turn.knob in _DISK and now is not None:
            name = _DISK[turn.knob]
            yield name, (getattr(now, name), turn.value or getattr(Disk(), name))
        elif turn.knob == "device.iothread":
            yield "in_iothread", (False, turn.value is not None)
        elif turn.knob == "device.num_queues" and (turn.value or "").isdecimal():
            yield "queues", (disk.queues or 1, int(turn.value or 1))


def _answers(first: Stack, second: Stack, now: Disk, turned: Turned) -> bool:
    """Whether two arms differ exactly as the disk before and after the change."""
    if not first.kind.has_qemu or any(getattr(first.disk, name) != getattr(now, name) for name in _KEPT):
        return False
    if any((_get(first, name), _get(second, name)) != values for name, values in turned.items()):
        return False
    return _without(first, turned) == _without(second, turned)


def _get(stack: Stack, name: str) -> object:
    return getattr(stack.disk if name in _DISK.values() else stack, name)


def _without(stack: Stack, turned: Turned) -> Stack:
    """A stack with the changed settings at their defaults."""
    plain = replace(stack.disk, **{name: getattr(Disk(), name) for name in turned if name in _DISK.values()})
    stack = replace(stack, disk=plain)
    if "in_iothread" in turned:
        stack = replace(stack, iothread=None)
    return replace(stack, num_queues=None) if "queues" in turned else stack


def _sentences(record: StudyRecord, result: Result, now: Arm, then: Arm) -> Iterator[str]:
    emulated = {
        arm.workload for arm in result.arms for one in arm.remarks if one.remark.id == EMULATED.id
    }  # such figures describe the emulator
    metric = BY_ID[result.study.metric]
    older = "" if record.methods == (METHOD,) else f", figures of {methods_text(record.methods)}"
    for verdict in result.verdicts:
        if {verdict.baseline, verdict.candidate} != {now.name, then.name} or verdict.workload in emulated:
            continue
        queues = {now.stack.queues, then.stack.queues}
        clones = clones_of(result.study.workload(verdict.workload).jobs)
        if len(queues) > 1 and clones < max(queues):
            continue  # a load with fewer clones than queues ran the same on both
        seen = verdict if verdict.baseline == now.name else _turned_round(verdict)
        size = f", {metric.label} {difference_text(seen.ratio)}" if seen.ratio is not None else ""
        told = "undecided" if seen.verdict is Verdict.UNDECIDED else f"{seen.said} so"
        yield (
            f"measured on this host: {told}{size} ({seen.workload}, {then.stack.rig}, study {result.study.id}{older})"
        )


def _turned_round(one: Comparison) -> Comparison:
    of = one.ratio
    ratio = None if of is None else replace(of, estimate=1 / of.estimate, low=1 / of.high, high=1 / of.low)
    return replace(one, ratio=ratio, verdict=_OPPOSITE.get(one.verdict, one.verdict))


STUDIES_READ = 1000
"""Among how many of the newest studies one of the structure is looked for."""


def own_shares(place: StorePlace, structure: str) -> tuple[OwnShare, ...]:
    """Return the shares of a structure under each workload, from the newest study of this host that has it; empty
    without such a study, and without a store that can be read.
    """
    found: dict[str, OwnShare] = {}
    if place.exists():
        with contextlib.suppress(StoreError), Store(place, reading=True) as store:
            for study in (one.study for one in newest(store, STUDIES_READ)):
                wanted = not study.simulated and any(structure_of(arm.stack) == structure for arm in study.arms)
                if not wanted or metal_of(study) is None:
                    continue
                record = by_todays_method(store, study.id)
                for one in shares_of_metal(record) if of_this_host(record.facts) else ():
                    if one.structure == structure:
                        found.setdefault(one.workload, one)
    return tuple(found.values())
