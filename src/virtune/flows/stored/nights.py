# SPDX-License-Identifier: Apache-2.0
"""How far studies of one configuration lie apart that were measured at different times, by those in the store."""

import contextlib
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from statistics import fmean, median

from virtune.analyse.stats.paired import EarlierRun, between_runs
from virtune.analyse.study.verdicts import Rows, evidence_of
from virtune.analyse.trial.rejection import pardons_of
from virtune.flows.stored.show import by_todays_method
from virtune.model.errors import StoreError, StorePlace
from virtune.model.evidence import StudyRecord, measured
from virtune.model.metric import BY_ID
from virtune.model.remark import GATE_BY_ID
from virtune.model.verdict import BetweenRuns


@dataclass(frozen=True, slots=True, kw_only=True)
class Stored:
    """One arm of a study in the store."""

    record: StudyRecord
    arm: str


EARLIER_MAX = 20
"""The most studies of one configuration that tell how far such lie apart: those nearest to the reference."""


def nights_apart(
    record: StudyRecord, labelled: Mapping[str, Stored], called: Mapping[str, str], store: StorePlace
) -> dict[tuple[str, str], BetweenRuns]:
    """Return how far studies that ask the same as the baseline's lie apart, by workload and metric; what is compared
    with it does not tell, `called` are the names of its workloads here. Of the two studies alone their rounds do not
    show it: what they share, the hour and the state of host and disk, is in each of them alike. Where what is
    compared with the baseline was disturbed too much to leave that out, those count that were disturbed so too.
    """
    from virtune.store.store import Store

    base, sides = labelled[record.study.baseline], _Sides.of(record, labelled)
    least = sides.least
    others = {one.record.study.id for one in labelled.values()} - {base.record.study.id}
    values: dict[tuple[str, str], list[tuple[EarlierRun, frozenset[str]]]] = {}
    with Store(store, reading=True) as kept:
        finished = kept.finished((base.record.study.kind,), own=True)
        asks = next((one.question for one in finished if one.id == base.record.study.id), None)
        alike = [one.id for one in reversed(finished) if one.question == asks and one.id not in others]
        reference = alike.index(base.record.study.id) + 1 if base.record.study.id in alike else 0
        lead = alike[:reference][-EARLIER_MAX:]
        for study in lead + alike[reference:][: EARLIER_MAX - len(lead)]:
            with contextlib.suppress(StoreError):
                found = by_todays_method(kept, study)
                causes = {*_disturbing(found, base.arm), *_busier(_readings(found, base.arm), least)}
                run, rows = EarlierRun(rounds=(), name=study, after=study not in lead), evidence_of(found).rows
                for name, here in called.items():
                    rounds = rows.get((base.arm, name), {}).values()
                    for metric in dict.fromkeys(metric for one in rounds for metric in one):
                        mine = [one[metric] for one in rounds if metric in one]
                        told = values.setdefault((here, metric), [])
                        told.append((replace(run, rounds=mine), frozenset(causes)))
    return {key: sides.told(runs, *key) for key, runs in values.items()}


@dataclass(frozen=True, slots=True, kw_only=True)
class _Sides:
    """What is compared: its values, and by arm what disturbed most of its trials, and what its gates read."""

    baseline: str
    rows: Rows
    disturbing: Mapping[str, frozenset[str]]
    readings: Mapping[str, Mapping[str, float]]

    @classmethod
    def of(cls, record: StudyRecord, labelled: Mapping[str, Stored]) -> "_Sides":
        """Return those of a study that holds arms of others against each other."""
        return cls(
            baseline=record.study.baseline,
            rows=evidence_of(record).rows,
            disturbing={label: frozenset(_disturbing(one.record, one.arm)) for label, one in labelled.items()},
            readings={label: _readings(one.record, one.arm) for label, one in labelled.items()},
        )

    @property
    def least(self) -> dict[str, float]:
        """What the gates read of the arm that has least of it, where they read all."""
        every = [*self.readings.values()]
        return {gate: min(one[gate] for one in every) for gate in every[0] if all(gate in one for one in every)}

    def told(self, runs: Sequence[tuple[EarlierRun, frozenset[str]]], workload: str, metric: str) -> BetweenRuns:
        """Return what earlier runs tell, each with what disturbed it."""
        causes = self._causes(workload, metric)
        asked = frozenset[str]().union(*(found for label, found in causes.items() if label != self.baseline))
        each = [replace(run, alike=asked <= then, calm=not then) for run, then in runs]
        return between_runs(each, disturbed=" and ".join(label for label, found in causes.items() if found))

    def _causes(self, workload: str, metric: str) -> dict[str, set[str]]:
        """Return what may be all of a difference: what disturbed most of an arm's trials, and what the worse of two
        arms, where there are no more, had more of.
        """
        causes = {label: {*found} for label, found in self.disturbing.items()}
        base = self._level(self.baseline, workload, metric)
        for label in causes:
            level = self._level(label, workload, metric)
            # of more than two sides what one had would excuse the others
            if len(causes) == 2 and level is not None and base is not None and level != base:
                higher = (level > base) == (BY_ID[metric].better == "higher")
                worse, better = (self.baseline, label) if higher else (label, self.baseline)
                causes[worse] |= _busier(self.readings[worse], self.readings[better])
        return causes

    def _level(self, arm: str, workload: str, metric: str) -> float | None:
        found = [one[metric] for one in self.rows.get((arm, workload), {}).values() if metric in one]
        return fmean(found) if found else None


_OTHERS = ("steal", "cpu-wait", "foreign-io")
"""The gates of what others take of the CPUs and of the disk; a control group's limit, or swapping, is our own."""

_MORE = 2.0
"""So many times as much of it makes another night: of CPU contention, ten unchanged nights of one host read 0.3 to
3.4 %, and one beside two processes that used the CPUs 18 %, in which the disk did a quarter less. Steal and foreign
I/O are judged by the same factor without such a measurement.
"""


def _readings(record: StudyRecord, arm: str) -> dict[str, float]:
    """Return the median of what the gates read in an arm's trials of what others took; without those not read."""
    every: dict[str, list[float]] = {}
    for trial, one in measured(record.trials):
        for gate, value in one.gates if trial.arm == arm else ():
            every.setdefault(gate, []).append(value)
    return {gate: median(values) for gate, values in every.items() if gate in _OTHERS}


def _busier(readings: Mapping[str, float], usual: Mapping[str, float]) -> frozenset[str]:
    """Return what is worth a warning, and more than twice what is usual, where that is known."""
    known = {gate: max(GATE_BY_ID[gate].flag or 0.0, _MORE * usual[gate]) for gate in readings if gate in usual}
    return frozenset(gate for gate, most in known.items() if readings[gate] > most)


def _disturbing(record: StudyRecord, arm: str) -> Iterator[str]:
    """Yield what disturbed most of an arm's trials, so that they count nevertheless."""
    of_arm = (one for one in pardons_of(record) if one.arm in (None, arm))
    return (one.cause for one in of_arm if one.cause != "generator")
