# SPDX-License-Identifier: Apache-2.0
"""The evidence behind a study's verdicts: rounds, noise, autocorrelation, time, and why the study stopped."""

import itertools
import math
from collections import Counter, defaultdict
from collections.abc import Iterable, Sequence
from dataclasses import replace
from datetime import datetime
from statistics import fmean, median

from virtune.analyse.stats.stationarity import between_starts, correlation_of, drift_of
from virtune.model.evidence import StudyRecord, TrialRecord
from virtune.model.result import Basis, Stopped
from virtune.model.study import Study
from virtune.model.verdict import Comparison

_PAUSE = 5.0
"""A gap between trials of this many times the usual distance (and ten seconds) counts as an interruption."""


def basis_of(record: StudyRecord, verdicts: Sequence[Comparison]) -> tuple[Basis, ...]:
    """Return the evidence behind the verdicts of each workload; empty for a study without paired rounds."""
    if not record.study.paired or not verdicts:
        return ()
    each = trial_seconds(record)
    return tuple(
        _basis(record, name, [found for found in verdicts if found.workload == name], each)
        for name in (workload.name for workload in record.study.compared)
    )


def stopped_by(record: StudyRecord, *, decided: bool) -> Stopped | None:
    """Return why a sequential study has ended; None while it runs, and for any other study.

    `decided`: no verdict and no condition needs more rounds.
    """
    study = record.study
    if not study.sequential or not record.finished:
        return None
    if decided:
        return Stopped.DECIDED
    return Stopped.ROUNDS if study.rounds_begun >= study.rounds else Stopped.BUDGET


def trial_seconds(record: StudyRecord) -> float:
    """Return the time from the end of one trial to the end of the next; the planned time where there is no
    measurement.
    """
    gaps = _gaps(record)
    return sum(gaps) / len(gaps) if gaps else record.study.seconds + record.study.ramp_seconds


def elapsed_seconds(record: StudyRecord) -> float | None:
    """Return the total time of the trials, counting the first as long as the others; None for fewer than two."""
    gaps = [] if record.study.imported else _gaps(record)
    return sum(gaps) + trial_seconds(record) if gaps else None


def _gaps(record: StudyRecord) -> list[float]:
    """Seconds between the ends of trials that followed one another without a pause."""
    ends = sorted(datetime.fromisoformat(trial.ended) for trial in record.trials if trial.ended)
    gaps = [(after - before).total_seconds() for before, after in itertools.pairwise(ends)]
    usual = max(10.0, _PAUSE * median(gaps)) if gaps else 0.0
    return [gap for gap in gaps if gap <= usual]


def _basis(record: StudyRecord, workload: str, verdicts: Sequence[Comparison], each: float) -> Basis:
    noises = [found.noise for found in verdicts if found.noise is not None]
    likeness = [found.lag1 for found in verdicts if found.lag1 is not None]
    open_ = [found.rounds_left for found in verdicts if found.open]
    left = [one for one in open_ if one is not None]
    seconds = None if len(left) < len(open_) else max(left, default=0) * each * len(record.study.arms)
    lag1 = median(likeness) if likeness else None
    known = Basis(
        workload=workload,
        rounds=max(found.rounds for found in verdicts),
        noise=median(noises) if noises else None,
        lag1=lag1,
        seconds_left=seconds,
    )
    return with_steadiness(known, record.study, record.trials)


def with_steadiness(known: Basis, study: Study, records: Iterable[TrialRecord]) -> Basis:
    """Return a basis completed by the host's stationarity during these trials."""
    trials = [one for one in records if one.trial.workload == known.workload and one.measurement is not None]
    profiles = [m.profile for one in trials if (m := one.measurement) is not None and m.profile]
    steps = [m.profile_seconds for one in trials if (m := one.measurement) is not None and m.profile_seconds > 0]
    correlation, is_open = correlation_of(profiles, median(steps)) if steps else (None, False)
    starts, lag1 = _starts(trials), known.lag1
    return replace(
        known,
        effective=None if lag1 is None else known.rounds * (1 - lag1) / (1 + lag1),
        correlation_seconds=correlation,
        correlation_open=is_open,
        drift=drift_of(_series(study, trials)),
        starts=len({start for start in starts.values() if start is not None}),
        started=_started(study, trials, starts),
        start_spread=_start_spread(study, trials, starts),
    )


def _series(study: Study, trials: Sequence[TrialRecord]) -> dict[str, list[tuple[float, float]]]:
    """Return (minutes, ln of the study's metric) of every trial, by arm."""
    found: dict[str, list[tuple[float, float]]] = {}
    for one in trials:
        value = None if one.measurement is None else one.measurement.get(study.metric)
        if value is not None and math.isfinite(value) and value > 0 and one.ended:
            minutes = datetime.fromisoformat(one.ended).timestamp() / 60
            found.setdefault(one.trial.arm, []).append((minutes, math.log(value)))
    return found


def _starts(trials: Sequence[TrialRecord]) -> dict[int, tuple[int, int] | None]:
    """Return the start of the process that each trial ran in, by the trial's number; None if it was not recorded.

    A new disk in a running process is a start as well.
    """
    found: dict[int, tuple[int, int] | None] = {}
    anew = 0
    for one in sorted(trials, key=lambda trial: trial.trial.number):
        change = one.in_force.changeover
        anew += one.trial.restart
        found[one.trial.number] = None if change is None else (change.process, anew)
    return found


def _started(
    study: Study, trials: Sequence[TrialRecord], starts: dict[int, tuple[int, int] | None]
) -> tuple[tuple[tuple[str, ...], int], ...]:
    """Return the arms that shared the same starts, in the study's order, and how many starts these were."""
    carried = defaultdict[tuple[int, int], set[str]](set)
    for one in trials:
        if (start := starts[one.trial.number]) is not None:
            carried[start].add(one.trial.arm)
    groups = Counter(tuple(arm.name for arm in study.arms if arm.name in names) for names in carried.values())
    return tuple(groups.items())


def _start_spread(
    study: Study, trials: Sequence[TrialRecord], starts: dict[int, tuple[int, int] | None]
) -> float | None:
    """Return the variation between starts, from each trial's residual after its arm's and its round's mean."""
    logs = {
        (one.trial.arm, one.trial.round): math.log(value)
        for one in trials
        if one.measurement is not None and (value := one.measurement.get(study.metric)) and value > 0
    }
    arms, rounds = defaultdict[str, list[float]](list), defaultdict[int, list[float]](list)
    for (arm, _), value in logs.items():
        arms[arm].append(value)
    for (arm, number), value in logs.items():
        rounds[number].append(value - fmean(arms[arm]))
    found = [
        (start, logs[key] - fmean(arms[key[0]]) - fmean(rounds[key[1]]))
        for one in trials
        if (key := (one.trial.arm, one.trial.round)) in logs and (start := starts[one.trial.number]) is not None
    ]
    return between_starts(found)
