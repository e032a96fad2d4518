# SPDX-License-Identifier: Apache-2.0
"""What a look at all of a study's figures shows beside its verdicts: a tail that all arms share, a first trial that
differs.
"""

import math
from collections.abc import Iterator, Mapping, Sequence
from itertools import combinations
from statistics import fmean, stdev

from virtune.analyse.stats.paired import interval_of
from virtune.analyse.stats.student import two_sided
from virtune.model.evidence import TrialRecord
from virtune.model.result import ArmSummary
from virtune.model.study import Study
from virtune.model.units import format_ns, format_share
from virtune.model.verdict import Interval

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

OTHERS_MIN = 4
"""With fewer other rounds of its arm, the first trial is not judged."""


def patterns_of(study: Study, arms: Sequence[ArmSummary], trials: Sequence[TrialRecord]) -> tuple[str, ...]:
    """Return what the figures show, a sentence each."""
    found = [*_tails(study, arms, trials)]
    if (first := _first(study, trials)) is not None:
        found.append(first)
    return tuple(found)


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
    for one in trials:
        if one.measurement is not None and (value := one.measurement.get(metric)):
            found.setdefault(one.trial.arm, {})[one.trial.round] = value
    return found


def _first(study: Study, trials: Sequence[TrialRecord]) -> str | None:
    """Say that the first trial differs from the other rounds of its arm, by the prediction interval of one more."""
    done = [one for one in trials if one.measurement is not None and (one.measurement.get("iops") or 0.0) > 0]
    if not done or done[0].trial.round != 1 or done[0] is not trials[0]:
        return None
    key = (done[0].trial.arm, done[0].trial.workload)
    mine = [
        math.log(one.measurement.get("iops") or 1.0)
        for one in done
        if one.measurement is not None and (one.trial.arm, one.trial.workload) == key
    ]
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
