# SPDX-License-Identifier: Apache-2.0
"""Compare arms by their trials: a verdict for every pair, and every other arm against the baseline. The evidence of
a workload's trials for a percentile: which kind of latency it is of, and whether there are enough I/Os. Arms
whose trials always fail are no longer measured.
"""

import math
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import combinations

from virtune.analyse.stats.paired import (
    REPEATS_MIN,
    Family,
    compare,
    compare_at_any_time,
    compare_planned,
    compare_unpaired,
)
from virtune.analyse.study.offered_load import Unmet, judged, rounds_by_workload, unmet_rounds
from virtune.analyse.trial.rejection import pardons, rejected_for
from virtune.model.errors import LoadError
from virtune.model.evidence import StudyRecord, TrialRecord, measured
from virtune.model.measurement import Measurement
from virtune.model.metric import BY_ID, DISTRIBUTIONS, METRICS, THREAD_ROLES, Distribution, Metric
from virtune.model.reason import Reason, because
from virtune.model.result import Waiver
from virtune.model.study import Arm, Study
from virtune.model.verdict import ROUNDS_MIN, Comparison, Verdict, fewest_planned
from virtune.model.workload import Workload

BEYOND = 20
"""The fewest latencies of a trial that must lie beyond a percentile for it to be used."""

StandIns = Mapping[tuple[str, str], str]
"""(workload, metric) -> the metric of completion latency that was measured instead."""


def stand_ins(trials: Iterable[TrialRecord]) -> dict[tuple[str, str], str]:
    """Return where completion latency replaces total latency: in all trials of a workload if one of them has no total
    latency. So two kinds of latency are never compared with one another.
    """
    found: dict[tuple[str, str], str] = {}
    for trial, one in measured(trials):
        values = dict(one.values)
        for metric in METRICS:
            if metric.instead in values and metric.id not in values:
                found[trial.workload, metric.id] = metric.instead
    return found


def measured_in_place(found: StandIns, workload: str, metric: Metric) -> Metric:
    """Return the metric that was measured for a requested one under a workload: itself, or that of completion
    latency.
    """
    return BY_ID[found.get((workload, metric.id), metric.id)]


def counts_of(measurement: Measurement) -> dict[Distribution, int]:
    """Return the number of latencies in each distribution of a trial."""
    if not (measurement.histogram or measurement.flushes or measurement.others):
        return {}  # as of a study that was read without them
    found = {kind: measurement.histogram_of(kind) for kind in DISTRIBUTIONS}
    return {kind: histogram.count for kind, histogram in found.items() if histogram is not None}


IN_STUDIES = frozenset({
    "cpu.host.usr", "cpu.host.sys", "cpu.idle", "slat.min", "slat.max", "slat.stdev", "clat.min", "clat.max",
    "clat.stdev", "latency.stdev", "iops.min", "iops.max", "iops.stdev", "load.ctx", "load.majf", "load.minf",
    "disk.merged", "device.writes", "device.written_bytes", "device.reached",
    *(f"clat.p{percent}" for percent in (50, 70, 90, 95, 99)), *(f"switches.io.{role}" for role in THREAD_ROLES),
})  # fmt: skip
"""The metrics that only the tables of built-in studies have."""


def enough_for(metric: Metric, count: float) -> bool:
    """Whether so many latencies are enough for a percentile; True for a metric that is not a percentile."""
    return metric.percent is None or count * (1 - metric.percent / 100) >= BEYOND


def told_metrics(study: Study, workload: str, trials: Iterable[TrialRecord]) -> list[Metric]:
    """Return the metrics to show for a workload: the usual and the requested ones, and those of reads and writes
    where it does both.
    """
    mixed = any(len(one.directions) > 1 for trial, one in measured(trials) if trial.workload == workload)
    asked = {*study.judged, *(threshold.metric for threshold in study.conditions)}
    asked |= IN_STUDIES if study.builtin else set()
    return [one for one in METRICS if one.id in asked or (one.told and (mixed or one.direction is None))]


def named(
    comparison: Comparison, metric: Metric, actual: Metric, trials: Iterable[TrialRecord], *, enough: bool
) -> Comparison:
    """Label a comparison with the requested metric and the one measured instead, and mark it where no trial of an arm
    has enough I/Os for the percentile. `enough`: its workload has had the rounds that a verdict takes.
    """
    so_named = replace(comparison, metric=metric.id, measured_as=None if actual is metric else actual.id)
    if comparison.rounds or actual.percent is None:
        return so_named
    least = _least_counted(comparison, actual, trials)
    if not least or enough_for(actual, least):
        return so_named
    needed = math.ceil(round(BEYOND / (1 - actual.percent / 100), 6))
    times = math.ceil(needed / least)
    why = because(
        Reason.TOO_FEW_IOS,
        percent=f"{actual.percent:g}",
        needed=f"{needed:,}",
        had=f"{least:,}",
        times="twice" if times == 2 else f"{times:,} times",
    )
    return replace(so_named, why=why.text, reason=why.reason, closed=comparison.closed or enough)


def _least_counted(comparison: Comparison, metric: Metric, trials: Iterable[TrialRecord]) -> int:
    """Return the number of latencies in the largest trial of the arm with fewer; 0 where nothing was counted."""
    most = dict.fromkeys((comparison.baseline, comparison.candidate), 0)
    for trial, one in measured(trials):
        if trial.arm in most and trial.workload == comparison.workload:
            histogram = one.histogram_of(metric.of)
            most[trial.arm] = max(0 if histogram is None else histogram.count, most[trial.arm])
    return min((count for count in most.values() if count), default=0)


LOST_ROUNDS = 3
"""After so many rounds without a measurement, with two attempts in each, an arm is given up."""

Lost = dict[tuple[str, str], str]
"""(arm, workload) -> why it is no longer measured."""


def lost_of(trials: Iterable[TrialRecord]) -> Lost:
    """Return the arms that never gave a measurement under a workload, from `LOST_ROUNDS` rounds on."""
    found: dict[tuple[str, str], list[TrialRecord]] = {}
    for record in trials:
        found.setdefault((record.trial.arm, record.trial.workload), []).append(record)
    return {
        (arm, workload): because(Reason.ARM_LOST, arm=arm, rounds=len(mine), failure=mine[-1].failure).text
        for (arm, workload), mine in found.items()
        if len(mine) >= LOST_ROUNDS and all(one.measurement is None for one in mine)
    }


def require_measured(trials: Iterable[TrialRecord]) -> None:
    """Raise LoadError if fewer than two of the tried arms gave measurements, or the only one gave none."""
    reasons: dict[str, set[str]] = {}
    told = set()
    for record in trials:
        reasons.setdefault(record.trial.arm, set()).update([record.failure] if record.failure else [])
        if record.measurement is not None:
            told.add(record.trial.arm)
    silent = [arm for arm in reasons if arm not in told]
    if silent and len(told) < 2:
        hint = "; ".join(sorted(reason for arm in silent for reason in reasons[arm]))
        raise LoadError(f"no trial of arm {' and of '.join(map(repr, silent))} gave a measurement", hint=hint)


_PERCENTILES = tuple(metric for metric in METRICS if metric.percent is not None)


Rows = dict[tuple[str, str], dict[int, dict[str, float]]]
"""(arm, workload) -> round -> metric id -> value: the comparable values, read from the trials once."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Evidence:
    """The data for comparisons: the values of valid rounds, and the rounds in which the offered load was not
    achieved.

    `rounds` is how many each workload has had, `lost` are the arms no longer measured, `stand_ins` is where
    completion latency replaces total latency.
    """

    study: Study
    rows: Rows
    unmet: Unmet
    rounds: Mapping[str, int]
    lost: Lost
    stand_ins: StandIns
    trials: Sequence[TrialRecord]


def evidence_of(record: StudyRecord, pardoned: Sequence[Waiver] | None = None) -> Evidence:
    """Read the data for comparisons from a study's trials; `pardoned` if already known."""
    free = pardons(record.attempts or record.trials) if pardoned is None else pardoned
    return Evidence(
        study=record.study,
        rows=_rows(record.trials, free),
        unmet=unmet_rounds(record.study, record.trials),
        rounds=rounds_by_workload(record.trials),
        lost={} if record.study.imported else lost_of(record.trials),
        stand_ins=stand_ins(record.trials),
        trials=record.trials,
    )


def pairs_of(study: Study) -> list[tuple[str, str]]:
    """Return the pairs that get verdicts, with the baseline first in its pairs."""
    if study.pairs == "baseline":
        return _against_baseline(study)
    names = [study.baseline, *(arm.name for arm in study.arms if arm.name != study.baseline)]
    return list(combinations(names, 2))


def confidence_of_one(study: Study) -> float:
    """Return the confidence of each verdict, so that all together hold at the study's confidence.

    Workloads, metrics and pairs share the error by Bonferroni; comparisons with one common baseline by Dunnett.
    """
    alpha = (1 - study.confidence) / max(1, len(study.compared) * len(study.judged))
    count = len(pairs_of(study))
    if study.pairs == "baseline" and count > 1:
        from virtune.analyse.stats.planned import dunnett_alpha

        return 1 - dunnett_alpha(count, alpha)
    return 1 - alpha / max(1, count)


def judge(record: StudyRecord) -> tuple[Comparison, ...]:
    """Return the verdict of every pair on the study's metrics by the trials so far."""
    return tuple(verdicts_of(evidence_of(record)))


def verdicts_of(evidence: Evidence) -> Iterator[Comparison]:
    """Yield every pair's comparison on the study's metrics, with a common error bound."""
    study = evidence.study
    confidence = confidence_of_one(study)
    for workload in study.compared:
        for metric in study.judged:
            yield from _compare(evidence, workload, BY_ID[metric], pairs_of(study), confidence)


def differences_of(evidence: Evidence, verdicts: Sequence[Comparison]) -> Iterator[Comparison]:
    """Yield every other arm against the baseline on every metric that was measured in both.

    For a metric with verdicts these are the verdicts, so that one figure has one interval; every other metric is
    compared by itself, at the study's confidence.
    """
    study = evidence.study
    pairs = _against_baseline(study)
    judged_already = {(one.workload, one.metric, one.baseline, one.candidate): one for one in verdicts}
    for workload in study.compared:
        for metric in (one for one in told_metrics(study, workload.name, evidence.trials) if one.compared):
            found: Iterable[Comparison] = (
                [judged_already[workload.name, metric.id, *pair] for pair in pairs]
                if metric.id in study.judged
                else _compare(evidence, workload, metric, pairs, study.confidence)
            )
            yield from (one for one in found if one.rounds)


def against_baseline(evidence: Evidence, metric: Metric, *, confidence: float) -> Iterator[Comparison]:
    """Compare every other arm with the baseline on one metric, under every workload; each at this confidence."""
    study = evidence.study
    for workload in study.compared:
        yield from _compare(evidence, workload, metric, _against_baseline(study), confidence)


def against_value(evidence: Evidence, metric: Metric, value: float, *, confidence: float) -> Iterator[Comparison]:
    """Compare every arm with a value instead of the baseline, under every workload: a ratio above 1 is above the
    value. Each holds at this confidence.
    """
    study = evidence.study
    shown = f"{value:g}"
    # no arm's name can contain a NUL, so no arm is taken for the limit
    limit = Arm(name=f"\0{shown}", stack=study.arms[0].stack)
    for arm in study.arms:
        # its rounds alone show the noise, as with two arms
        alone = replace(study, arms=(limit, arm), baseline=limit.name, fewest_rounds=ROUNDS_MIN)
        for workload in study.compared:
            actual = measured_in_place(evidence.stand_ins, workload.name, metric)
            mine = evidence.rows.get((arm.name, workload.name), {})
            rows = {
                (arm.name, workload.name): mine,
                (limit.name, workload.name): {number: {actual.id: value} for number in mine},
            }
            held = replace(evidence, study=alone, rows=rows)
            for one in _compare(held, workload, metric, [(limit.name, arm.name)], confidence):
                found = replace(one, baseline=shown, why=one.why.replace(limit.name, shown))
                fewest = alone.fewest_rounds if study.paired else REPEATS_MIN
                few = found.verdict is Verdict.UNDECIDED and 0 < found.rounds < fewest
                runs = "1 run" if found.rounds == 1 else f"{found.rounds} runs"
                why = because(Reason.TOO_FEW, had=runs, least=fewest)
                yield replace(found, why=why.text, reason=why.reason) if few else found


def comparable(measurement: Measurement) -> dict[str, float]:
    """Return the comparable values of a valid trial. It leaves out percentiles with too few I/Os beyond them, which
    are random, and latencies of an offered load that was not achieved, which measure an ever-growing queue.
    """
    values = dict(measurement.values)
    counts = counts_of(measurement)
    for metric in _PERCENTILES if counts else ():
        if metric.id in values and not enough_for(metric, counts.get(metric.of, math.inf)):
            del values[metric.id]
    if any(remark.id == "rate-unmet" for remark in measurement.remarks):
        return {name: value for name, value in values.items() if BY_ID[name].unit != "ns"}
    return values


def _against_baseline(study: Study) -> list[tuple[str, str]]:
    return [(study.baseline, arm.name) for arm in study.arms if arm.name != study.baseline]


def _rows(trials: Iterable[TrialRecord], pardoned: Sequence[Waiver]) -> Rows:
    rows: Rows = {}
    for record in trials:
        trial, measurement = record.trial, record.measurement
        counts = measurement is not None and not rejected_for(trial.arm, measurement, pardoned)
        rows.setdefault((trial.arm, trial.workload), {})[trial.round] = (
            comparable(measurement) if counts and measurement is not None else {}
        )
    return rows


def _compare(
    evidence: Evidence, workload: Workload, metric: Metric, pairs: Sequence[tuple[str, str]], confidence: float
) -> Iterator[Comparison]:
    rounds = evidence.rounds.get(workload.name, 0)
    actual = measured_in_place(evidence.stand_ins, workload.name, metric)
    for one in _by_rounds(evidence, workload, actual, pairs, confidence):
        found = named(one, metric, actual, evidence.trials, enough=rounds >= evidence.study.fewest_rounds)
        lost = [why for arm in (found.baseline, found.candidate) if (why := evidence.lost.get((arm, workload.name)))]
        if lost:
            why = "; ".join(lost)
            yield replace(
                found, verdict=Verdict.UNDECIDED, why=why, reason=Reason.ARM_LOST, rounds_left=None, closed=True
            )
        else:
            yield judged(found, evidence.unmet, rounds, fewest=evidence.study.fewest_rounds)


def looks_of(study: Study, rounds: Sequence[int]) -> tuple[tuple[int, float], ...]:
    """Return the looks at a workload that has had these rounds: (how many there were, share of the plan done).

    There are no looks at fewer rounds than can decide, and none without a new round: a decided workload has no more.
    """
    found: list[tuple[int, float]] = []
    for last, share in study.looks:
        count = sum(1 for number in rounds if number <= last)
        if count >= study.fewest_rounds and (not found or count > found[-1][0]):
            found.append((count, share))
    return tuple(found)


def values_at_look(
    study: Study, rows: Rows, workload: Workload, metric: Metric
) -> tuple[dict[str, list[float]], tuple[tuple[int, float], ...]]:
    """Return the values of each arm in the rounds up to the last look, NaN where a round gave none, and the looks."""
    of_arm = {arm.name: rows.get((arm.name, workload.name), {}) for arm in study.arms}
    numbers = sorted(set[int]().union(*of_arm.values()))
    looks = looks_of(study, numbers)
    taken = numbers[: looks[-1][0]] if looks else numbers
    values = {
        name: [row.get(number, {}).get(metric.id, math.nan) for number in taken] for name, row in of_arm.items()
    }
    return values, looks


def _by_rounds(
    evidence: Evidence, workload: Workload, metric: Metric, pairs: Sequence[tuple[str, str]], confidence: float
) -> Iterator[Comparison]:
    study, rows = evidence.study, evidence.rows
    family = Family(metric=metric, workload=workload.name, margin=study.margin, confidence=confidence)
    if study.sequential:
        values, looks = values_at_look(study, rows, workload, metric)
        if any(math.isfinite(value) for row in values.values() for value in row):
            # an arm that was lost, or saturated, tells nothing of the noise: two that are left need as many as two
            told = sum(2 * sum(map(math.isfinite, row)) > len(row) for row in values.values())
            each = (study.seconds + study.ramp_seconds) * len(study.arms) * len(study.workloads)
            family = replace(family, fewest=max(study.fewest_rounds, fewest_planned(told)), round_seconds=each)
            if looks:
                from virtune.analyse.stats.planned import level_of

                yield from compare_planned(family, values, pairs, level=level_of(looks, family.alpha))
            else:
                yield from compare_at_any_time(family, values, pairs)
            return
    judge_two = compare if study.paired else compare_unpaired
    for names in pairs:
        ran = [rows.get((name, workload.name), {}) for name in names]
        # unpaired runs have numbers of their own
        done = [sorted(ran[0].keys() & ran[1].keys())] * 2 if study.paired else [[*one] for one in ran]
        arms = [
            (name, [one[number].get(metric.id, math.nan) for number in numbers])
            for name, one, numbers in zip(names, ran, done, strict=True)
        ]
        yield judge_two(family, *arms)
