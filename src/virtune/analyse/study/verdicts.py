# SPDX-License-Identifier: Apache-2.0
"""Compare arms by their trials: a verdict for every pair, and every other arm against the baseline. The evidence of
a workload's trials for a percentile: which kind of latency it is of, and whether there are enough I/Os. Arms
whose trials always fail are no longer measured.

And what a look at all figures shows beside the verdicts: a tail that all arms share, a first trial that differs,
rounds in which one arm alone fell, arms that change their level, and the values of a typical round, which differ
between arms by what the comparison within rounds says. A mean over all rounds does not: one disturbed round moves it,
and the comparison gives such a round little weight. Nor does a percentile of all I/Os together: a few bad rounds
decide the p99 of all, whatever the other rounds show. The baseline's value is the same kind of mean as a change is:
where a part of its rounds were slow, its median times a change would be a value that the other arm never had.
"""

import math
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import combinations
from statistics import fmean, median, stdev

import numpy as np
from numpy.typing import NDArray

from virtune.analyse.stats.anytime import logs
from virtune.analyse.stats.arms import alone, beside_others, far_rounds, from_levels, lasting, lonely, smooth
from virtune.analyse.stats.noise import between_groups
from virtune.analyse.stats.paired import (
    Family,
    compare,
    compare_at_any_time,
    compare_planned,
    compare_unpaired,
    interval_of,
    mean_of_rounds,
)
from virtune.analyse.stats.student import two_sided
from virtune.analyse.study.offered_load import Unmet, has_unmet_rate, judged, rounds_by_workload, unmet_rounds
from virtune.analyse.study.run_order import RunPlaces, places_of
from virtune.analyse.trial.rejection import pardons_of, rejected_for
from virtune.model.durability import Promise, durability_of
from virtune.model.errors import LoadError
from virtune.model.evidence import StudyRecord, TrialRecord, Waiver, measured
from virtune.model.measurement import Measurement
from virtune.model.metric import BY_ID, DISTRIBUTIONS, METRICS, THREAD_ROLES, Distribution, Metric
from virtune.model.reason import Reason, Why, because
from virtune.model.remark import label_of
from virtune.model.result import ArmSummary, Value
from virtune.model.stack import DIRECT_CACHES, Stack
from virtune.model.study import Study
from virtune.model.text import format_ns, format_share
from virtune.model.verdict import REPEATS_MIN, ROUNDS_MIN, BetweenRuns, Comparison, Interval, Verdict, fewest_planned
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


def by_arm(trials: Iterable[TrialRecord]) -> dict[tuple[str, str], list[TrialRecord]]:
    """Return the trials of each arm under each workload."""
    found: dict[tuple[str, str], list[TrialRecord]] = {}
    for one in trials:
        found.setdefault((one.trial.arm, one.trial.workload), []).append(one)
    return found


Lost = dict[tuple[str, str], str]
"""(arm, workload) -> why it is no longer measured."""


def lost_of(trials: Iterable[TrialRecord]) -> Lost:
    """Return the arms that never gave a measurement under a workload, from `LOST_ROUNDS` rounds on."""
    return {
        (arm, workload): because(Reason.ARM_LOST, arm=arm, rounds=len(mine), failure=mine[-1].failure).text
        for (arm, workload), mine in by_arm(trials).items()
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
    pardoned: Sequence[Waiver] = ()
    between_runs: Mapping[tuple[str, str], BetweenRuns] | None = None
    places: RunPlaces


def evidence_of(record: StudyRecord, pardoned: Sequence[Waiver] | None = None) -> Evidence:
    """Read the data for comparisons from a study's trials; `pardoned` if already known."""
    free = pardons_of(record) if pardoned is None else pardoned
    rows: Rows = {}
    for one in record.trials:
        rows.setdefault((one.trial.arm, one.trial.workload), {})[one.trial.round] = values_of(one, free)
    return Evidence(
        study=record.study,
        rows=rows,
        unmet=unmet_rounds(record.study, record.trials),
        rounds=rounds_by_workload(record.trials),
        lost={} if record.study.imported else lost_of(record.trials),
        stand_ins=stand_ins(record.trials),
        trials=record.trials,
        pardoned=free,
        between_runs=record.between_runs,
        places=places_of(record),
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


BESIDE = ("iops", "latency.mean", "latency.p99", "latency.p99.9", "sync.p99")
"""What is looked at for differences that the verdicts on another metric hide: few, since they share the error."""


def beside_verdicts(
    evidence: Evidence, verdicts: Sequence[Comparison], arms: Sequence[ArmSummary]
) -> Iterator[Comparison]:
    """Yield where arms are worse than the baseline on a metric beside the study's, whose verdict does not say worse;
    and where they are better, and that verdict does not tell them apart.

    Only differences wholly beyond the margin, and no percentile that is uncertain in one of the arms. The intervals
    of all these metrics hold together.
    """
    study = evidence.study
    main = {(one.workload, one.baseline, one.candidate): one for one in verdicts if one.metric == study.metric}
    values = {(arm.arm, arm.workload, value.metric): value for arm in arms for value in arm.values}
    beside = [BY_ID[name] for name in BESIDE if name != study.metric]
    confidence = 1 - (1 - confidence_of_one(study)) / len(beside)
    for metric in beside:
        for one in against_baseline(evidence, metric, confidence=confidence):
            both = [values.get((arm, one.workload, metric.id)) for arm in (one.baseline, one.candidate)]
            known = all(value is not None and value.resolved and value.bound is None for value in both)
            if known and _hidden(one, main.get((one.workload, one.baseline, one.candidate)), study.margin):
                # a load that flushes may look faster by leaving more to its flushes
                flushes = (one.candidate, one.workload, "sync.mean") in values
                if one.verdict is Verdict.WORSE or not (flushes and metric.of == "latency"):
                    yield one


def _hidden(one: Comparison, main: Comparison | None, margin: float) -> bool:
    """Whether a difference is sure and beyond the margin, and the verdict on the main metric does not tell it."""
    if main is None or one.ratio is None or one.unsure:
        return False
    if one.ratio.high > 1 / (1 + margin) and one.ratio.low < 1 + margin:
        return False
    told = (Verdict.WORSE,) if one.verdict is Verdict.WORSE else (Verdict.BETTER, Verdict.WORSE)
    return one.verdict in (Verdict.BETTER, Verdict.WORSE) and main.verdict not in told


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
    for arm in study.arms:
        # no arm's name can contain a NUL, so no arm is taken for the limit
        limit = replace(arm, name=f"\0{shown}")
        # its rounds alone show the noise, as with two arms
        alone = replace(study, arms=(limit, arm), baseline=limit.name, fewest_rounds=ROUNDS_MIN)
        for workload in study.compared:
            actual = measured_in_place(evidence.stand_ins, workload.name, metric)
            mine = evidence.rows.get((arm.name, workload.name), {})
            rows = {
                (arm.name, workload.name): mine,
                (limit.name, workload.name): {number: {actual.id: value} for number in mine},
            }
            held = replace(evidence, study=alone, rows=rows, between_runs=None)
            for one in _compare(held, workload, metric, [(limit.name, arm.name)], confidence):
                found = replace(one, baseline=shown, why=one.why.replace(limit.name, shown))
                fewest = alone.fewest_rounds if study.paired else REPEATS_MIN
                few = found.verdict is Verdict.UNDECIDED and 0 < found.rounds < fewest
                runs = "1 run" if found.rounds == 1 else f"{found.rounds} runs"
                why = because(Reason.TOO_FEW, had=runs, least=fewest)
                yield replace(found, why=why.text, reason=why.reason) if few else found


def comparable(measurement: Measurement) -> dict[str, float]:
    """Return the comparable values of a valid trial. It leaves out percentiles with too few I/Os beyond them, which
    are random, and latencies of an offered load that was not achieved, which say nothing of it.
    """
    values = dict(measurement.values)
    counts = counts_of(measurement)
    for metric in _PERCENTILES if counts else ():
        if metric.id in values and not enough_for(metric, counts.get(metric.of, math.inf)):
            del values[metric.id]
    if has_unmet_rate(measurement):
        return {name: value for name, value in values.items() if BY_ID[name].unit != "ns"}
    return values


def _against_baseline(study: Study) -> list[tuple[str, str]]:
    return [(study.baseline, arm.name) for arm in study.arms if arm.name != study.baseline]


def values_of(record: TrialRecord, pardoned: Sequence[Waiver]) -> dict[str, float]:
    """Return the comparable values of one trial: none if it failed or is invalid."""
    measurement = record.measurement
    if measurement is None or rejected_for(record.trial.arm, measurement, pardoned):
        return {}
    return comparable(measurement)


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
        elif unlike := _unlike_flushes(found, actual, evidence.study):
            decided = rounds >= evidence.study.fewest_rounds
            undecided = replace(found, verdict=Verdict.UNDECIDED, why=unlike.text, reason=unlike.reason)
            yield replace(undecided, rounds_left=None, closed=decided)
        elif found.rounds and (apart := _apart(found, evidence)):
            yield replace(found, verdict=Verdict.UNDECIDED, why=apart.text, reason=apart.reason)
        else:
            yield judged(found, evidence.unmet, rounds, fewest=evidence.study.fewest_rounds)


def _unlike_flushes(found: Comparison, metric: Metric, study: Study) -> Why | None:
    """Say why the time of flushes tells nothing of two arms: one that keeps each write as it completes, or drops
    flushes, has little left to do in one, and one whose writes wait in the host's page cache has them to do too.
    """
    if not metric.id.startswith("sync."):
        return None
    arms = [study.arm(name) for name in (found.baseline, found.candidate)]
    stacks = [arm.stack for arm in arms if arm.stack.kind.made_here]
    kept = [
        durability_of(one).promise.words + (_IN_PAGE_CACHE if _waits_in_page_cache(one) else "") for one in stacks
    ]
    if len(set(kept)) < 2:
        return None
    names = {"baseline": found.baseline, "candidate": found.candidate}
    return because(Reason.UNLIKE_FLUSHES, **names, kept=kept[0], other=kept[1])


def _waits_in_page_cache(stack: Stack) -> bool:
    """Whether a completed write is in the host's page cache until a flush writes it."""
    flushed = durability_of(stack).promise is Promise.FLUSH
    return flushed and stack.kind.front != "file" and stack.disk.cache not in DIRECT_CACHES


_IN_PAGE_CACHE = ", and until then its writes are in the host's page cache"


def _apart(found: Comparison, evidence: Evidence) -> Why | None:
    """Say why runs of different times tell nothing: what disturbed them was too much to be left out, and it was not
    the same for both, as it is for arms that run in turn; nor is it known how far runs lie apart that it disturbed.
    """
    found_in = (None, found.baseline, found.candidate)
    passing = (one for one in evidence.pardoned if one.cause != "generator" and one.arm in found_in)
    causes = dict.fromkeys(label_of(one.cause) for one in passing)
    between = (evidence.between_runs or {}).get((found.workload, found.metric), BetweenRuns())
    if evidence.study.paired or not causes or between.disturbed:
        return None
    return because(Reason.DISTURBED_APART, causes=", ".join(causes))


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
    family = Family(
        metric=metric, workload=workload.name, margin=study.margin, confidence=confidence, trial_seconds=study.seconds
    )
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
    if evidence.between_runs is not None:
        family = replace(family, between_runs=evidence.between_runs.get((workload.name, metric.id), BetweenRuns()))
    judge_two = compare if study.paired else compare_unpaired
    for names in pairs:
        ran = [rows.get((name, workload.name), {}) for name in names]
        # unpaired runs have numbers of their own
        done = [sorted(ran[0].keys() & ran[1].keys())] * 2 if study.paired else [[*one] for one in ran]
        first, second = (
            (name, [one[number].get(metric.id, math.nan) for number in numbers])
            for name, one, numbers in zip(names, ran, done, strict=True)
        )
        at = [evidence.places.get((name, workload.name)) for name in names]
        where = [[place[number] for number in numbers] for place, numbers in zip(at, done, strict=True) if place]
        yield judge_two(family, first, second, (where[0], where[1]) if len(where) == len(names) else None)


BODY, TAILS = "latency.p50", ("latency.p99", "latency.p99.9")

APART = 1.2
"""From this ratio of their medians on, arms differ in the body of their latencies."""

ALIKE, CONTRADICTED = 1.5, 1.1
"""Tails are alike if the interval of their ratio lies within the first factor: single rounds' tails vary by as much.
Not where it shows a difference whose middle is more than the second, which the table tells.
"""

OF_PAIR = 0.95
"""The confidence of each pair's interval; every pair of arms must pass."""

CONFIDENCE = 0.99
"""One study in a hundred whose first trial is like the others is told that it differs."""

LEAST = 0.03
"""A smaller difference of the first trial is of no interest, however certain it is."""

TWO_LEVELS = 0.75
"""Rounds stand at two levels where the levels explain this much of their variance; of normal rounds up to 0.64."""

_ECHO = 0.6
"""Of three arms the others move half as much against their mean as the one that changes its level."""

OTHERS_MIN = 4
"""With fewer other rounds of its arm, the first trial is not judged."""


def patterns_of(study: Study, arms: Sequence[ArmSummary], trials: Sequence[TrialRecord]) -> tuple[str, ...]:
    """Return what the figures show, a sentence each."""
    first = _first(study, trials)
    return (*_tails(study, arms, trials), *([] if first is None else [first]))


def rounds_of_arms(evidence: Evidence) -> Iterator[str]:
    """Yield what the rounds of single arms did on the metrics that are judged: those far from the arm's level, and
    levels that last. Nothing of a search, whose rounds do not hold all arms.
    """
    study = evidence.study
    if not study.sequential or study.search is not None or len(study.arms) < 2:
        return
    for workload in study.compared:
        for metric in study.judged:
            actual = measured_in_place(evidence.stand_ins, workload.name, BY_ID[metric])
            rows, _ = values_at_look(study, evidence.rows, workload, actual)
            rows = {name: row for name, row in rows.items() if any(map(math.isfinite, row))}
            if len(rows) > 1 and len(next(iter(rows.values()))) >= study.fewest_rounds:
                of_load = f" under {workload.name}" if len(study.compared) > 1 else ""
                yield from _far(rows, f"{actual.label}{of_load}")
                yield from _levels(study, rows, f"{actual.label}{of_load}")


def _far(rows: Mapping[str, Sequence[float]], what: str) -> Iterator[str]:
    """Yield the arms that are far from their level clearly more often than others, or that alone are, however seldom:
    a verdict may rest on such a round's being no more than chance.
    """
    values = _logs(rows)
    here, far, away = ~np.isnan(values), far_rounds(values), from_levels(values)
    clearly = alone(far, here)
    for place, name in enumerate(rows):
        for side in (-1, 1):
            count, others = int((far[:, place] == side).sum()), int((far == side).sum())
            if not count or not (clearly[place] or lonely(far, side)[place]):
                continue
            depth = math.exp(float(np.median(away[far[:, place] == side, place])))
            moved = f"fell to {format_share(depth)}" if side < 0 else f"rose to {depth:.1f} times"
            rest = " and ".join(one for one in rows if one != name) if len(rows) < 4 else "the other arms"
            others_ran = int(here.sum() - here[:, place].sum())
            none = f"none of {rest} did" if count == others else f"of {rest} {others - count} of {others_ran} did"
            so = ". So the arm does that, and not the host, and means count these rounds in full"
            ran = int(here[:, place].sum())
            tail = none + (so if clearly[place] else "")
            yield f"{count} of {ran} rounds of {name} {moved} of its usual {what}; {tail}"


def _levels(study: Study, rows: Mapping[str, Sequence[float]], what: str) -> Iterator[str]:
    """Yield the arms that change between levels that last, or drift, against the other arms."""
    values = _logs(rows)
    slow, beside, names = lasting(values), beside_others(values), [*rows]
    moved = [float(np.ptp(smooth(beside[:, [place]], int(one)))) if one else 0.0 for place, one in enumerate(slow)]
    # what one arm does, all others do against it, though less
    told = [place for place in range(len(names)) if moved[place] > max(moved) * _ECHO] if max(moved) > 0 else []
    if not told:
        return
    restart = not any(trial.restart for trial in study.trials) and not all(
        arm.stack.kind.users_guest for arm in study.arms
    )
    advice = "; --restart gives each trial a start of its own" if restart else ""
    so = f"the intervals allow for so few changes{advice}"
    if len(told) == len(names) > 2:
        yield f"{what}: arms change slowly against one another, by up to {format_share(math.expm1(max(moved)))}: {so}"
        return
    for place in told[:1] if len(names) == 2 else told:
        # a difference does not tell which of two arms it was
        name = names[place] if len(names) > 2 else f"{names[1]} against {names[0]}"
        one = beside[:, place if len(names) > 2 else 1]
        split, explained = _two_levels(one)
        high = one > split
        near = np.concatenate([high[:1], high, high[-1:]]).astype(int)
        lasts = near[:-2] + near[1:-1] + near[2:] > 1  # a single round is no change of level
        changes = int((lasts[1:] != lasts[:-1]).sum())
        if explained >= TWO_LEVELS:
            away = math.expm1(float(one[high].mean() - one[~high].mean()))
            times = "once" if changes == 1 else f"{changes} times"
            yield (
                f"{what}: {name} stood at one of two levels, {format_share(away)} apart, and changed {times} in"
                f" {len(one)} rounds: {so}"
            )
        else:
            most = format_share(math.expm1(moved[place]))
            yield f"{what}: {name} changes slowly, by up to {most} in {len(one)} rounds: {so}"


def _two_levels(values: NDArray[np.float64]) -> tuple[float, float]:
    """Return the value that parts these best into two groups, and the share of their variance between the groups: of
    normal values up to 0.64.
    """
    ordered = np.sort(values - values.mean())
    between = between_groups(ordered)
    best = int(between.argmax())
    whole = float((ordered**2).sum())
    return float(values.mean() + ordered[best : best + 2].mean()), float(between[best]) / whole if whole else 0.0


def _logs(rows: Mapping[str, Sequence[float]]) -> NDArray[np.float64]:
    return np.array([logs(row) for row in rows.values()], dtype=np.float64).T


def _tails(study: Study, arms: Sequence[ArmSummary], trials: Sequence[TrialRecord]) -> Iterator[str]:
    """Yield the workloads in which arms differ in the body of their latencies and not in the tail."""
    several = len(study.compared) > 1
    for workload in study.compared:
        mine = [one for one in arms if one.workload == workload.name]
        bodies = {one.arm: body.shown for one in mine if (body := one.get(BODY)) is not None}
        if len(mine) < 2 or len(bodies) < len(mine) or max(bodies.values()) < APART * min(bodies.values()):
            continue
        here = [one for one in trials if one.trial.workload == workload.name]
        tail = next((one for one in TAILS if _alike(one, bodies, here)), None)
        known = [] if tail is None else [one for summary in mine if (one := summary.get(tail)) is not None]
        if tail is None or len(known) < len(mine):
            continue
        metal = any(study.arm(one.arm).stack.kind.front == "file" for one in mine)
        low, high = (of(one.shown for one in known) for of in (min, max))
        apart = max(bodies.values()) / min(bodies.values())
        name, of_load = tail.partition(".p")[2], f" under {workload.name}" if several else ""
        yield (
            f"the tail is alike in all arms{', the disk without QEMU included' if metal else ''}{of_load}: p{name} is"
            f" {format_ns(low)} to {format_ns(high)}, while medians differ by a factor of {apart:.1f}. So what"
            f" makes the slowest I/Os slow is one for all arms, below or beside them: percentiles from p{name} on say"
            " more of that than of the arms"
        )


def _alike(tail: str, bodies: Mapping[str, float], trials: Sequence[TrialRecord]) -> bool:
    """Whether the rounds show that the tails of the two arms whose bodies differ most do not differ as those do, and
    that the tails of every two arms are alike.
    """
    first, last = min(bodies, key=bodies.__getitem__), max(bodies, key=bodies.__getitem__)
    body, found = (_ratio(_by_arm(metric, trials), first, last) for metric in (BODY, tail))
    if body is None or found is None or body.low <= 1 or found.high >= body.low:
        return False
    rounds = _by_arm(tail, trials)
    ratios = (_ratio(rounds, one, other) for one, other in combinations(bodies, 2))
    return all(one is not None and one.within(ALIKE - 1) and not _contradicts(one) for one in ratios)


def _contradicts(ratio: Interval) -> bool:
    surely = not ratio.low <= 1 <= ratio.high
    return surely and abs(math.log(ratio.low * ratio.high)) / 2 > math.log(CONTRADICTED)


def _ratio(rounds: Mapping[str, Mapping[int, float]], one: str, other: str) -> Interval | None:
    first, second = rounds.get(one, {}), rounds.get(other, {})
    return interval_of([(first[n], second[n]) for n in sorted(first.keys() & second.keys())], confidence=OF_PAIR)


def _by_arm(metric: str, trials: Sequence[TrialRecord]) -> dict[str, dict[int, float]]:
    found: dict[str, dict[int, float]] = {}
    for trial, one in measured(trials):
        if value := one.get(metric):
            found.setdefault(trial.arm, {})[trial.round] = value
    return found


def _first(study: Study, trials: Sequence[TrialRecord]) -> str | None:
    """Say that the first trial differs from the other rounds of its arm, by the prediction interval of one more."""
    done = [(trial, iops) for trial, one in measured(trials) if (iops := one.get("iops") or 0.0) > 0]
    if not done or done[0][0].round != 1 or done[0][0] is not trials[0].trial:
        return None
    key = (done[0][0].arm, done[0][0].workload)
    mine = [math.log(iops) for trial, iops in done if (trial.arm, trial.workload) == key]
    first, others = mine[0], mine[1:]
    if len(others) < OTHERS_MIN:
        return None
    away = first - fmean(others)
    reach = two_sided(CONFIDENCE, len(others) - 1) * stdev(others) * math.sqrt(1 + 1 / len(others))
    if abs(away) <= max(reach, LEAST):
        return None
    counted = (
        "It counts like the others, but a change is a robust mean, in which one extreme round has little weight"
        if study.sequential and len(study.arms) > 1
        else "It counts like the others"
    )
    return (
        f"the first trial of all differs: {key[0]} did {format_share(abs(math.expm1(away)))}"
        f" {'fewer' if away < 0 else 'more'} IOPS in it than in its other {len(others)} rounds, as the host, its"
        f" caches or the disk were not warm yet. {counted}"
    )


def with_typical(
    arms: Sequence[ArmSummary], evidence: Evidence, differences: Sequence[Comparison]
) -> tuple[ArmSummary, ...]:
    """Return the summaries with the values of a typical round, where arms are compared within rounds."""
    if not evidence.study.paired:
        return tuple(arms)
    most: dict[str, int] = {}
    for one in differences:
        most[one.workload] = max(most.get(one.workload, 0), one.rounds)
    ratios = {
        (one.candidate, one.workload, one.metric): one.ratio.estimate
        for one in differences
        # a percentile that few rounds have enough I/Os for is not that of a typical round
        if one.ratio is not None and 2 * one.rounds > most[one.workload]
    }
    compared = {(workload, metric) for _, workload, metric in ratios}
    busy = {workload for workload, _ in compared}
    return tuple(
        replace(one, values=_in_order([_typical(value, one, evidence, ratios, compared) for value in one.values]))
        if one.workload in busy
        else one
        for one in arms
    )


def _in_order(values: Sequence[Value]) -> tuple[Value, ...]:
    """Leave out the typical value of a percentile that is below one of a lower percentile: each has its own rounds
    of little weight, so on a very noisy host they may contradict one another.
    """
    greatest: dict[str, float] = {}
    kept = list(values)
    percentiles = [place for place, value in enumerate(values) if BY_ID[value.metric].percent is not None]
    for place in sorted(percentiles, key=lambda place: BY_ID[values[place].metric].percent or 0.0):
        value = values[place]
        kind = BY_ID[value.metric].of
        if value.typical is None:
            continue
        if value.typical < greatest.get(kind, 0.0):
            kept[place] = replace(value, typical=None)
        else:
            greatest[kind] = value.typical
    return tuple(kept)


def _typical(
    value: Value,
    summary: ArmSummary,
    evidence: Evidence,
    ratios: Mapping[tuple[str, str, str], float],
    compared: set[tuple[str, str]],
) -> Value:
    metric, workload, baseline = BY_ID[value.metric], summary.workload, evidence.study.baseline
    if not metric.compared:  # the use of a CPU or device: by itself, like the arm's other values
        known = metric.unit == "%" and metric.over == "mean"
        rounds = list(filter(math.isfinite, _rounds(evidence, summary.arm, workload, metric)))
        return replace(value, typical=median(rounds) if rounds else None) if known else value
    if (workload, value.metric) not in compared:
        return value
    ratio = 1.0 if summary.arm == baseline else ratios.get((summary.arm, workload, value.metric))
    actual = measured_in_place(evidence.stand_ins, workload, metric)
    base = mean_of_rounds(_rounds(evidence, baseline, workload, actual), robust=evidence.study.sequential)
    return value if ratio is None or base is None else replace(value, typical=base * ratio)


def _rounds(evidence: Evidence, arm: str, workload: str, metric: Metric) -> list[float]:
    return [row.get(metric.id, math.nan) for row in evidence.rows.get((arm, workload), {}).values()]
