# SPDX-License-Identifier: Apache-2.0
"""The rounds of a search as values: one row a round, ln of the goal's metric by arm."""

import math
from collections.abc import Iterable, Mapping, Sequence
from statistics import fmean

from virtune.analyse.study.verdicts import comparable
from virtune.analyse.trial.rejection import rejected_for
from virtune.model.evidence import TrialRecord
from virtune.model.metric import Metric
from virtune.model.result import Waiver
from virtune.model.search import Search
from virtune.model.study import Study

Rows = dict[int, dict[tuple[str, str], dict[str, float]]]
"""round -> (arm, workload) -> metric id -> value."""


def search_of(study: Study) -> Search:
    """Return the search of a study; raises ValueError for a study of another kind."""
    if study.search is None:
        raise ValueError(f"study {study.id} is no search")
    return study.search


def rows_of(trials: Iterable[TrialRecord], pardoned: Sequence[Waiver]) -> Rows:
    """Return the comparable values of trials, by round: none of a trial that failed or is invalid."""
    rows: Rows = {}
    for one in trials:
        rows.setdefault(one.trial.round, {})[one.trial.arm, one.trial.workload] = values_of(one, pardoned)
    return rows


def values_of(record: TrialRecord, pardoned: Sequence[Waiver]) -> dict[str, float]:
    """Return the comparable values of one trial: none if it failed or is invalid."""
    measurement = record.measurement
    if measurement is None or rejected_for(record.trial.arm, measurement, pardoned):
        return {}
    return comparable(measurement)


def flushes_of(study: Study, trials: Iterable[TrialRecord]) -> float | None:
    """Return the flushes a second of the workload with the fewest, None where none flushes."""
    counts: dict[str, list[int]] = {}
    for one in trials:
        histogram = None if one.measurement is None else one.measurement.histogram_of("sync")
        if histogram is not None and histogram.count:
            counts.setdefault(one.trial.workload, []).append(histogram.count)
    return min((fmean(found) / study.seconds for found in counts.values()), default=None)


def block_of(study: Study, metric: Metric, row: Mapping[tuple[str, str], Mapping[str, float]]) -> dict[str, float]:
    """Return ln of the goal's metric by arm, higher is better: the mean over workloads, NaN where one is missing."""
    sign = 1.0 if metric.better == "higher" else -1.0
    arms = dict.fromkeys(arm for arm, _ in row)
    return {
        arm: sign * fmean(log_of(row.get((arm, workload.name), {}).get(metric.id)) for workload in study.workloads)
        for arm in arms
    }


def log_of(value: float | None) -> float:
    """Return ln of a value, NaN for an impossible rate or time."""
    return math.log(value) if value is not None and math.isfinite(value) and value > 0 else math.nan


def mean_of(logs: Iterable[float]) -> float | None:
    """Return the geometric mean; None without values."""
    found = list(logs)
    return math.exp(fmean(found)) if found else None
