# SPDX-License-Identifier: Apache-2.0
"""What a look at all of a study's figures shows beside its verdicts: a tail that all arms share, a first trial that
differs.
"""

import math
from collections.abc import Iterator, Sequence
from itertools import combinations
from statistics import fmean, stdev

from virtune.analyse.stats.student import two_sided
from virtune.model.evidence import TrialRecord
from virtune.model.result import ArmSummary, Value
from virtune.model.study import Study
from virtune.model.units import format_ns, format_share

BODY, TAIL = "latency.p50", "latency.p99.9"

APART = 1.2
"""From this ratio of their medians on, arms differ in the body of their latencies."""

NARROW = 2.0
"""An interval of the tail that is wider than this factor overlaps with anything, so it shows nothing."""

CONFIDENCE = 0.99
"""One study in a hundred whose first trial is like the others is told that it differs."""

LEAST = 0.03
"""A smaller difference of the first trial is of no interest, however certain it is."""

OTHERS_MIN = 4
"""With fewer other rounds of its arm, the first trial is not judged."""


def patterns_of(study: Study, arms: Sequence[ArmSummary], trials: Sequence[TrialRecord]) -> tuple[str, ...]:
    """Return what the figures show, a sentence each."""
    found = [*_tails(study, arms)]
    if (first := _first(trials)) is not None:
        found.append(first)
    return tuple(found)


def _tails(study: Study, arms: Sequence[ArmSummary]) -> Iterator[str]:
    """Yield the workloads in which arms differ in the body of their latencies and not in the tail."""
    several = len(study.compared) > 1
    for workload in study.compared:
        mine = [one for one in arms if one.workload == workload.name]
        tails = [one.get(TAIL) for one in mine]
        bodies = [one.get(BODY) for one in mine]
        known = [one for one in tails if one is not None and _narrow(one)]
        if len(mine) < 2 or len(known) < len(mine) or any(one is None for one in bodies):
            continue
        if not all(_overlap(one, other) for one, other in combinations(known, 2)):
            continue
        middles = [one.value for one in bodies if one is not None]
        if max(middles) < APART * min(middles):
            continue
        metal = any(study.arm(one.arm).stack.kind.front == "file" for one in mine)
        low, high = min(one.value for one in known), max(one.value for one in known)
        of = f" under {workload.name}" if several else ""
        yield (
            f"the tail is alike in all arms{', bare metal included' if metal else ''}{of}: p99.9 is"
            f" {format_ns(low)} to {format_ns(high)}, while medians differ by a factor of"
            f" {max(middles) / min(middles):.1f}. It comes from below them all, so percentiles from p99 on compare"
            " this host with itself"
        )


def _narrow(one: Value) -> bool:
    return one.resolved and one.low is not None and one.high is not None and 0 < one.high <= NARROW * one.low


def _overlap(one: Value, other: Value) -> bool:
    if one.low is None or one.high is None or other.low is None or other.high is None:
        return False
    return one.low <= other.high and other.low <= one.high


def _first(trials: Sequence[TrialRecord]) -> str | None:
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
    return (
        f"the first trial of all differs: {key[0]} did {format_share(math.expm1(away), signed=True)} IOPS in it"
        f" against its other {len(others)} rounds. The host, its caches or the disk were not warm yet"
    )
