# SPDX-License-Identifier: Apache-2.0
"""What a study's verdicts rest on: rounds, noise, likeness of neighbouring rounds, time, and why it stopped."""

import itertools
from collections.abc import Sequence
from datetime import datetime
from statistics import median

from virtune.model.evidence import StudyRecord
from virtune.model.result import Basis, Stopped
from virtune.model.study import Study
from virtune.model.verdict import Comparison, Verdict

_PAUSE = 5.0
"""Of trials that end so many times the usual distance apart (and ten seconds) nobody was measuring in between."""


def basis_of(record: StudyRecord, verdicts: Sequence[Comparison]) -> tuple[Basis, ...]:
    """Return what the verdicts of each workload rest on; nothing for a study without pairs of its own rounds."""
    if not record.study.paired or not verdicts:
        return ()
    each = trial_seconds(record)
    return tuple(
        _basis(record.study, name, [found for found in verdicts if found.workload == name], each)
        for name in (workload.name for workload in record.study.compared)
    )


def stopped_by(record: StudyRecord, verdicts: Sequence[Comparison]) -> Stopped | None:
    """Return why a study that stops when it knows has ended; None while it has not, and for any other."""
    study = record.study
    if not study.sequential or not record.finished:
        return None
    if all(found.verdict is not Verdict.UNDECIDED for found in verdicts):
        return Stopped.DECIDED
    return Stopped.ROUNDS if study.rounds_begun >= study.rounds else Stopped.BUDGET


def trial_seconds(record: StudyRecord) -> float:
    """Return how long a trial takes from the end of the one before it; what was asked for where nothing shows it."""
    gaps = _gaps(record)
    return sum(gaps) / len(gaps) if gaps else record.study.seconds + record.study.ramp_seconds


def elapsed_seconds(record: StudyRecord) -> float | None:
    """Return how long the trials took together, the first one as long as the others; None for fewer than two."""
    gaps = [] if record.study.imported else _gaps(record)
    return sum(gaps) + trial_seconds(record) if gaps else None


def _gaps(record: StudyRecord) -> list[float]:
    """Seconds between the ends of trials that followed one another without a pause."""
    ends = sorted(datetime.fromisoformat(trial.ended) for trial in record.trials if trial.ended)
    gaps = [(after - before).total_seconds() for before, after in itertools.pairwise(ends)]
    usual = max(10.0, _PAUSE * median(gaps)) if gaps else 0.0
    return [gap for gap in gaps if gap <= usual]


def _basis(study: Study, workload: str, verdicts: Sequence[Comparison], each: float) -> Basis:
    noises = [found.noise for found in verdicts if found.noise is not None]
    likeness = [found.lag1 for found in verdicts if found.lag1 is not None]
    open_ = [found.rounds_left for found in verdicts if found.verdict is Verdict.UNDECIDED]
    rounds = [left for left in open_ if left is not None]
    seconds = None if len(rounds) < len(open_) else max(rounds, default=0) * each * len(study.arms)
    return Basis(
        workload=workload,
        rounds=max(found.rounds for found in verdicts),
        noise=median(noises) if noises else None,
        lag1=median(likeness) if likeness else None,
        seconds_left=seconds,
    )
