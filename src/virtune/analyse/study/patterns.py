# SPDX-License-Identifier: Apache-2.0
"""What a look at all of a study's figures shows beside its verdicts: a tail that all arms share, a first trial that
differs, rounds in which one arm alone fell, arms that change their level, and the values of a typical round,
which differ between arms by what the comparison within rounds says.

A mean over all rounds does not: one disturbed round moves it, and the comparison gives such a round little weight.
Nor does a percentile of all I/Os together: a few bad rounds decide the p99 of all, whatever the other rounds show.
The baseline's value is the same kind of mean as a change is: where a part of its rounds were slow, its median times
a change would be a value that the other arm never had.
"""

import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from itertools import combinations
from statistics import fmean, median, stdev

import numpy as np
from numpy.typing import NDArray

from virtune.analyse.stats.anytime import logs
from virtune.analyse.stats.arms import alone, beside_others, far_rounds, from_levels, lasting, lonely, smooth
from virtune.analyse.stats.paired import interval_of, mean_of_rounds
from virtune.analyse.stats.student import two_sided
from virtune.analyse.study.verdicts import Evidence, measured_in_place, values_at_look
from virtune.model.evidence import TrialRecord, measured
from virtune.model.metric import BY_ID, Metric
from virtune.model.result import ArmSummary, Value
from virtune.model.study import Study
from virtune.model.text import format_ns, format_share
from virtune.model.verdict import Comparison, Interval

BODY, TAILS = "latency.p50", ("latency.p99", "latency.p99.9")

APART = 1.2
"""From this ratio of their medians on, arms differ in the body of their latencies."""

ALIKE = 1.5
"""Tails are alike if the interval of their ratio lies within this factor: single rounds' tails vary by as much."""

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
    low, count = np.cumsum(ordered)[:-1], len(ordered)
    first = np.arange(1, count)
    between = low**2 * (1 / first + 1 / (count - first))
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
            f" makes the slowest I/Os slow lies below all arms: percentiles from p{name} on say nothing of the arms"
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
    return all(one is not None and one.within(ALIKE - 1) for one in ratios)


def _ratio(rounds: Mapping[str, Mapping[int, float]], one: str, other: str) -> Interval | None:
    """Return the ratio of two arms in the rounds that both had."""
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
