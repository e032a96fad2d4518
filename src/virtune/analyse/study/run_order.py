# SPDX-License-Identifier: Apache-2.0
"""In which order runs from elsewhere were taken, by when each ended. Runs of two arms that were taken in turn, as
many of each, are rounds, as virtune's own: what the host does over the hours is in both runs of a round alike.

Times are the word of other clocks. One that is missing, cannot be, or is another run's as well, or runs of which one
began before the one before it had ended, leave the order unknown; nothing then rests on it.
"""

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import replace
from datetime import datetime
from itertools import groupby, pairwise

from virtune.model.evidence import StudyRecord
from virtune.model.study import RunOrder
from virtune.model.verdict import ROUNDS_MIN

RunPlaces = Mapping[tuple[str, str], Mapping[int, int]]
"""(arm, workload) -> round -> the place of that run among all runs of the workload, in order of time."""

_AHEAD = 86_400.0
"""Seconds by which the clock of another machine may be ahead of this one's."""

TimedRun = tuple[float, str, float | None]
"""When a run ended, in seconds since 1970, its arm, and for how many seconds it ran; None where that is not known."""


def order_of(runs: Sequence[TimedRun], *, now: float) -> RunOrder:
    """Return the order of one workload's runs; NaN is an end that is not known."""
    ended = sorted(runs) if all(0 < end <= now + _AHEAD for end, _, _ in runs) else []
    if not ended or any(seconds is None for _, _, seconds in ended):
        return RunOrder.UNKNOWN
    # times may be whole seconds, so that a run seems to begin a little early
    if any(after - before <= (seconds or 0.0) / 2 for (before, _, _), (after, _, seconds) in pairwise(ended)):
        return RunOrder.UNKNOWN
    names = [arm for _, arm, _ in ended]
    arms = len(set(names))
    if len([*groupby(names)]) == arms:
        return RunOrder.APART
    rounds = [names[start : start + arms] for start in range(0, len(names), arms)]
    return RunOrder.IN_TURN if all(len({*one}) == len(one) for one in rounds) else RunOrder.MIXED


def in_order(record: StudyRecord, seconds: Sequence[float | None]) -> StudyRecord:
    """Return results as a study that knows the order of its runs, of which each took so long; its rounds are paired
    where that was in turn, as often for each arm, and often enough for a verdict on pairs.
    """
    now = datetime.fromisoformat(record.study.created).timestamp()
    runs: dict[str, list[TimedRun]] = {}
    for one, took in zip(record.trials, seconds, strict=True):
        runs.setdefault(one.trial.workload, []).append((_moment(one.ended), one.trial.arm, took))
    found = {order_of(each, now=now) for each in runs.values()}
    order = found.pop() if len(found) == 1 else RunOrder.UNKNOWN if RunOrder.UNKNOWN in found else RunOrder.MIXED
    counts = {*Counter((one.trial.arm, one.trial.workload) for one in record.trials).values()}
    study = replace(record.study, order=order)
    if order is not RunOrder.IN_TURN or len(counts) > 1 or min(counts) < ROUNDS_MIN:
        return replace(record, study=study)
    turns, numbers = Counter[tuple[str, str]](), dict[int, int]()
    for one in sorted(record.trials, key=lambda one: _moment(one.ended)):
        turns[one.trial.arm, one.trial.workload] += 1
        numbers[one.trial.number] = turns[one.trial.arm, one.trial.workload]
    trials = tuple(replace(one, trial=replace(one.trial, round=numbers[one.trial.number])) for one in record.trials)
    study = replace(study, paired=True, trials=tuple(one.trial for one in trials))
    return replace(record, study=study, trials=trials)


def places_of(record: StudyRecord) -> RunPlaces:
    """Return the places of all runs of results from elsewhere; empty where their order is not known."""
    places, taken = dict[tuple[str, str], dict[int, int]](), Counter[str]()
    known = record.study.order not in (None, RunOrder.UNKNOWN)
    for one in sorted(record.trials, key=lambda one: _moment(one.ended)) if known else ():
        taken[one.trial.workload] += 1
        places.setdefault((one.trial.arm, one.trial.workload), {})[one.trial.round] = taken[one.trial.workload]
    return places


def _moment(ended: str) -> float:
    return datetime.fromisoformat(ended).timestamp() if ended else float("nan")
