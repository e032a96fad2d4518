# SPDX-License-Identifier: Apache-2.0
"""From the trials of a study to its Result: values over rounds, every pair's verdict, differences to the baseline."""

import math
from collections.abc import Iterable, Sequence
from itertools import combinations

from virtune.analyse.compare import compare
from virtune.model.evidence import UNDER_LOAD, Check, StudyRecord, TrialRecord
from virtune.model.measurement import Histogram, Measurement, merge
from virtune.model.metric import BY_ID, METRICS, Metric
from virtune.model.remark import Remark, Weight
from virtune.model.result import ArmSummary, Beware, Result, Value
from virtune.model.study import Arm, Study
from virtune.model.verdict import Comparison
from virtune.model.workload import Workload


def summarise(record: StudyRecord, *, elapsed_seconds: float | None = None) -> Result:
    """Say what a study's trials say together; a study with no finished trial gives empty summaries."""
    study = record.study
    done = [trial for trial in record.trials if trial.measurement is not None]
    arms = tuple(
        _summary(arm, workload, _of(record.trials, arm.name, workload.name))
        for workload in study.workloads
        for arm in study.arms
    )
    return Result(
        study=study,
        finished=record.finished,
        trials_done=len(done),
        arms=arms,
        verdicts=tuple(_verdicts(study, record.trials)),
        differences=tuple(_differences(study, record.trials)),
        measured_seconds=len(done) * study.seconds,
        elapsed_seconds=elapsed_seconds,
    )


def pairs_of(study: Study) -> list[tuple[str, str]]:
    """Return every pair of arms, the baseline first where it takes part."""
    names = [study.baseline, *(arm.name for arm in study.arms if arm.name != study.baseline)]
    return list(combinations(names, 2))


def confidence_of_one(study: Study) -> float:
    """Return the confidence of each verdict, so that all of them together hold at the study's (Bonferroni)."""
    count = len(pairs_of(study)) * len(study.workloads)
    return 1 - (1 - study.confidence) / max(1, count)


def _of(trials: Iterable[TrialRecord], arm: str, workload: str) -> list[TrialRecord]:
    return [trial for trial in trials if (trial.trial.arm, trial.trial.workload) == (arm, workload)]


def _verdicts(study: Study, trials: Sequence[TrialRecord]) -> Iterable[Comparison]:
    confidence = confidence_of_one(study)
    for workload in study.workloads:
        for baseline, candidate in pairs_of(study):
            yield _compare(study, trials, workload, BY_ID[study.metric], baseline, candidate, confidence)


def _differences(study: Study, trials: Sequence[TrialRecord]) -> Iterable[Comparison]:
    for workload in study.workloads:
        for arm in study.arms:
            if arm.name == study.baseline:
                continue
            for metric in METRICS:
                found = _compare(study, trials, workload, metric, study.baseline, arm.name, study.confidence)
                if found.rounds:
                    yield found


def _compare(
    study: Study,
    trials: Sequence[TrialRecord],
    workload: Workload,
    metric: Metric,
    baseline: str,
    candidate: str,
    confidence: float,
) -> Comparison:
    base, other = (_by_round(trials, arm, workload.name, metric) for arm in (baseline, candidate))
    done = sorted({record.trial.round for record in _of(trials, candidate, workload.name)})
    return compare(
        metric,
        (baseline, [base.get(number, math.nan) for number in done]),
        (candidate, [other.get(number, math.nan) for number in done]),
        workload=workload.name,
        margin=study.margin,
        confidence=confidence,
    )


def _by_round(trials: Sequence[TrialRecord], arm: str, workload: str, metric: Metric) -> dict[int, float]:
    found = {}
    for record in _of(trials, arm, workload):
        value = _value(record.measurement, metric)
        if value is not None:
            found[record.trial.round] = value
    return found


def _value(measurement: Measurement | None, metric: Metric) -> float | None:
    """Return a trial's value, none for a trial that is invalid; a percentile with too few I/Os beyond it is none,
    rather than a number by chance.
    """
    if measurement is None or any(remark.weight is Weight.INVALID for remark in measurement.remarks):
        return None
    if metric.percent is not None and measurement.histogram is not None and measurement.histogram.bins:
        if not measurement.histogram.resolves(metric.percent, beyond=20):
            return None
        return measurement.histogram.percentile(metric.percent)
    return measurement.get(metric.id)


def _summary(arm: Arm, workload: Workload, records: list[TrialRecord]) -> ArmSummary:
    measured = [record.measurement for record in records if record.measurement is not None]
    histograms = [m.histogram for m in measured if m.histogram is not None and m.histogram.bins]
    merged = merge(histograms) if histograms and len(histograms) == len(measured) else None
    values = (_over_rounds(metric, measured, merged) for metric in METRICS)
    return ArmSummary(
        arm=arm.name,
        workload=workload.name,
        rounds=len(measured),
        values=tuple(value for value in values if value is not None),
        histogram=merged,
        in_force=_in_force(records),
        remarks=_remarks(measured),
        failures=tuple(record.failure for record in records if record.failure is not None),
    )


def _over_rounds(metric: Metric, measured: Sequence[Measurement], merged: Histogram | None) -> Value | None:
    """Rates and means: the geometric mean over rounds, which is what the ratios compare. Shares: the plain mean.
    Percentiles: from the merged histogram.
    """
    found = [value for m in measured if (value := m.get(metric.id)) is not None and math.isfinite(value)]
    if metric.percent is not None and merged is not None:
        percentile = merged.percentile(metric.percent)
        if percentile is None:
            return None
        resolved = merged.resolves(metric.percent)
        return Value(
            metric=metric.id, value=percentile, rounds=len(measured), spread=_spread(found), resolved=resolved
        )
    if not found or (metric.percent is not None and len(found) > 1):
        return None
    center = math.fsum(found) / len(found)
    if metric.unit != "%" and min(found) > 0:
        center = math.exp(math.fsum(math.log(value) for value in found) / len(found))
    return Value(metric=metric.id, value=center, rounds=len(found), spread=_spread(found))


def _spread(values: Sequence[float]) -> float | None:
    if len(values) < 2:
        return None
    mean = math.fsum(values) / len(values)
    return math.sqrt(math.fsum((v - mean) ** 2 for v in values) / (len(values) - 1)) / mean if mean else None


def _in_force(records: Sequence[TrialRecord]) -> tuple[Check, ...]:
    """Every different thing that was seen, once; what was seen under load stands beside what was seen before."""
    seen: dict[tuple[str, str, str | None, bool], Check] = {}
    for record in records:
        for check in record.in_force.checks:
            seen.setdefault((check.setting, check.asked, check.found, UNDER_LOAD in check.proof), check)
    known = {check.setting for check in seen.values() if check.found is not None}
    return tuple(check for check in seen.values() if check.found is not None or check.setting not in known)


def _remarks(measured: Sequence[Measurement]) -> tuple[Beware, ...]:
    """Each kind of remark once, with in how many rounds it was made."""
    first: dict[str, Remark] = {}
    counts: dict[str, int] = {}
    for measurement in measured:
        for remark in measurement.remarks:
            first.setdefault(remark.id, remark)
            counts[remark.id] = counts.get(remark.id, 0) + 1
    return tuple(Beware(remark=remark, rounds=counts[remark.id]) for remark in first.values())
