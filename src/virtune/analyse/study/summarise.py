# SPDX-License-Identifier: Apache-2.0
"""From the trials of a study to its Result: values over rounds, verdicts, and the evidence behind them."""

import math
from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import replace
from statistics import median

from virtune.analyse.layers.measured import layers_of
from virtune.analyse.stats.percentile_intervals import ends_of, sections_of
from virtune.analyse.study.basis import basis_of, elapsed_seconds, stopped_by
from virtune.analyse.study.knee import knees_of
from virtune.analyse.study.patterns import patterns_of, rounds_of_arms
from virtune.analyse.study.percentile_evidence import measured_in_place, told_metrics
from virtune.analyse.study.thresholds import open_workloads, rulings_of
from virtune.analyse.study.typical import with_typical
from virtune.analyse.study.verdicts import differences_of, evidence_of, verdicts_of
from virtune.analyse.trial.rejection import pardons, rejected_for
from virtune.analyse.trial.warm_up import ramp_of
from virtune.model.evidence import UNDER_LOAD, Check, StudyRecord, TrialRecord
from virtune.model.measurement import Histogram, Measurement, merge
from virtune.model.metric import DISTRIBUTIONS, Metric
from virtune.model.remark import Remark, Weight
from virtune.model.result import ArmRemark, ArmSummary, Result, Value, Waiver
from virtune.model.study import Arm
from virtune.model.workload import Workload


def summarise(record: StudyRecord) -> Result:
    """Return the Result of a study's trials; a study without finished trials gives empty summaries."""
    study = record.study
    attempts = record.attempts or record.trials
    pardoned = pardons(attempts)
    evidence = evidence_of(record, pardoned)
    told = {one.name: told_metrics(study, one.name, record.trials) for one in study.workloads}
    by_arm, tried = _by_arm(record.trials), _by_arm(attempts)
    arms = tuple(
        _summary(
            (arm, workload),
            by_arm.get(key, []),
            tried.get(key, []),
            pardoned,
            tuple((one, measured_in_place(evidence.stand_ins, workload.name, one)) for one in told[workload.name]),
            seconds=study.seconds,
        )
        for workload in study.workloads
        for arm in study.arms
        for key in ((arm.name, workload.name),)
    )
    done = sum(1 for trial in record.trials if trial.measurement is not None)
    verdicts = tuple(verdicts_of(evidence))
    differences = tuple(differences_of(evidence, verdicts))
    arms = with_typical(arms, evidence, differences)
    rulings = rulings_of(evidence, study.conditions)
    return Result(
        study=study,
        finished=record.finished,
        trials_done=done,
        arms=arms,
        verdicts=verdicts,
        differences=differences,
        measured_seconds=done * study.seconds,
        elapsed_seconds=elapsed_seconds(record),
        stopped=stopped_by(record, decided=not open_workloads(evidence, verdicts, rulings)),
        basis=basis_of(record, verdicts),
        pardons=pardoned,
        ramps=ramp_of(study, record.trials).findings,
        patterns=()
        if study.imported
        else (*rounds_of_arms(evidence, verdicts), *patterns_of(study, arms, record.trials)),
        knees=tuple(knees_of(record, pardoned)),
    )


def _by_arm(trials: Iterable[TrialRecord]) -> dict[tuple[str, str], list[TrialRecord]]:
    found: dict[tuple[str, str], list[TrialRecord]] = {}
    for trial in trials:
        found.setdefault((trial.trial.arm, trial.trial.workload), []).append(trial)
    return found


def _summary(
    of: tuple[Arm, Workload],
    records: list[TrialRecord],
    tried: list[TrialRecord],
    pardoned: Sequence[Waiver],
    metrics: Sequence[tuple[Metric, Metric]],
    *,
    seconds: float,
) -> ArmSummary:
    """Sum up one arm under one workload. `metrics` are those to report, each with the metric measured instead."""
    arm, workload = of
    every = [record.measurement for record in records if record.measurement is not None]
    # the table shows the trials behind the verdicts; where none is valid it shows the invalid ones, with the reason
    measured = [one for one in every if not rejected_for(arm.name, one, pardoned)] or every
    kinds = {"latency", *(actual.of for _, actual in metrics if actual.percent is not None)}
    sections = {
        kind: _sections(m.histogram_of(kind) for m in measured) if kind in kinds else () for kind in DISTRIBUTIONS
    }
    merged = {kind: merge(parts) if parts else None for kind, parts in sections.items()}
    values = (
        _over_rounds(actual, measured, merged[actual.of], sections[actual.of], seconds=len(measured) * seconds)
        for _, actual in metrics
    )
    named = (
        replace(value, metric=metric.id, measured_as=None if actual is metric else actual.id)
        for (metric, actual), value in zip(metrics, values, strict=True)
        if value is not None
    )
    return ArmSummary(
        arm=arm.name,
        workload=workload.name,
        rounds=len(every),
        values=tuple(named),
        histogram=merged["latency"],
        in_force=_in_force(records),
        remarks=_remarks(arm, every, pardoned),
        failures=tuple(record.failure for record in records if record.failure is not None),
        attempts=len(tried),
        invalid=_invalid(tried),
        layers=layers_of(measured, arm.stack, arm.load_of(workload)),
    )


def _sections(histograms: Iterable[Histogram | None]) -> Sequence[Histogram]:
    """Add the distributions of all rounds into sections; none unless every round has one."""
    found = list(histograms)
    filled = [histogram for histogram in found if histogram is not None and histogram.bins]
    return sections_of(filled) if len(filled) == len(found) else ()


def _over_rounds(
    metric: Metric,
    measured: Sequence[Measurement],
    merged: Histogram | None,
    sections: Sequence[Histogram],
    *,
    seconds: float,
) -> Value | None:
    """Rates and means: the geometric mean over rounds, which is what the ratios compare. Shares: the plain mean.
    Percentiles: from the merged histogram, with an interval over sections of the rounds, `seconds` together; of
    several imported results without distributions the middle one's, which is marked.
    """
    found = [value for m in measured if (value := m.get(metric.id)) is not None and math.isfinite(value)]
    if metric.percent is not None and merged is not None:
        percentile = merged.percentile(metric.percent)
        if percentile is None:
            return None
        low, high = ends_of(sections, metric.percent, seconds=seconds, whole=merged)
        return Value(
            metric=metric.id,
            value=percentile,
            rounds=len(measured),
            spread=_spread(found),
            resolved=merged.resolves(metric.percent),
            low=low,
            high=high,
        )
    if not found:
        return None
    if metric.percent is not None and len(found) > 1:
        return Value(metric=metric.id, value=median(found), rounds=len(found), spread=_spread(found), resolved=False)
    if metric.over != "mean":
        center = min(found) if metric.over == "min" else max(found)
        return Value(metric=metric.id, value=center, rounds=len(found), spread=_spread(found))
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
    """Every distinct check once; checks made under load are listed besides those made before."""
    seen: dict[tuple[object, ...], Check] = {}
    for record in records:
        for check in record.in_force.checks:
            key = check.guest, check.setting, check.asked, check.found, UNDER_LOAD in check.proof
            seen.setdefault(key, check)
    known = {(check.guest, check.setting) for check in seen.values() if check.found is not None}
    return tuple(one for one in seen.values() if one.found is not None or (one.guest, one.setting) not in known)


def _invalid(tried: Sequence[TrialRecord]) -> tuple[tuple[str, int], ...]:
    """Return how many attempts were invalid, by cause, the most frequent first."""
    causes = Counter(cause for one in tried if one.measurement is not None for cause in one.measurement.causes)
    return tuple(causes.most_common())


def _remarks(arm: Arm, measured: Sequence[Measurement], pardoned: Sequence[Waiver]) -> tuple[ArmRemark, ...]:
    """Return each kind of remark once for each weight, with its number of rounds; a pardoned one is a warning."""
    free = {one.cause for one in pardoned if one.arm in (None, arm.name)}
    made: dict[tuple[str, Weight], list[tuple[Remark, float | None]]] = {}
    for measurement in measured:
        gates = dict(measurement.gates)
        for remark in measurement.remarks:
            mild = remark.id in free and remark.weight is Weight.INVALID
            said = replace(remark, weight=Weight.WARNING) if mild else remark
            made.setdefault((remark.id, said.weight), []).append((said, gates.get(remark.id)))
    return tuple(_worst(same) for same in made.values())


def _worst(same: Sequence[tuple[Remark, float | None]]) -> ArmRemark:
    """Return the remark of the round with the highest reading."""
    worst, _ = max(same, key=lambda one: -math.inf if one[1] is None else one[1])
    readings = [reading for _, reading in same if reading is not None]
    return ArmRemark(
        remark=worst,
        rounds=len(same),
        worst=max(readings, default=None),
        median=median(readings) if readings else None,
    )
