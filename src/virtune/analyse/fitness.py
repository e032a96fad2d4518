# SPDX-License-Identifier: Apache-2.0
"""A host's fitness to measure, from the same stack run against itself: noise, its memory, drift, what could be found.

The noise of a difference is taken where comparisons take it: the end of one trial against the begin of the next one,
so that restarts, gaps and everything in them is in it, and only the length of the slices is varied.
"""

import itertools
import math
from collections.abc import Sequence
from datetime import datetime
from statistics import fmean, median, pstdev

from virtune.analyse.anytime import LAG1_DOUBT, LAG1_MAX, quantile
from virtune.analyse.summarise import summarise
from virtune.model.evidence import StudyRecord, TrialRecord
from virtune.model.fitness import Drift, Fitness, GateStanding, Neighbour, Reach, SelfTest, SliceNoise
from virtune.model.gate import GATES, Gate
from virtune.model.remark import Remark, Weight
from virtune.model.verdict import Comparison

SLICES = (0.5, 1.0, 2.0, 4.0)
"""Lengths that are tried, in seconds. Longer ones are best only where changing arms costs tens of seconds."""

MINUTES = (1, 5, 15)

FOUND_SDS = 1.2816
"""A difference of the interval's radius plus so many standard errors is found 9 times in 10 (normal quantile)."""

LN_MAX = 20.0
"""Differences beyond e^20 are no differences any more, but a host on which nothing can be measured."""

DRIFT_LEVEL = 0.95

NEAR = 0.5
"""From this share of its first limit on a gate is near it."""

NOISY = 0.05
"""A host on which five minutes find no 5 % is told what to do about it first."""

_OF_THE_HOST = frozenset(
    {"governor", "idle", "turbo", "ksm", "virtual", "cpu-limit", "io-limit", "busy", "load", "swap", "clock"}
)
"""What the probe finds that makes measurements differ; what it finds missing is no matter of noise."""


def fitness_of(
    record: StudyRecord, *, findings: Sequence[Remark] = (), neighbours: tuple[Neighbour, ...] | None = None
) -> Fitness:
    """Say what the trials of a check say of its host. `findings` are those of the probe."""
    trials = [one for one in record.trials if one.measurement is not None]
    profiles = [one.measurement.profile for one in trials if one.measurement is not None and one.measurement.profile]
    steps = {one.measurement.profile_seconds for one in trials if one.measurement is not None} - {0.0}
    step = median(steps) if steps else None
    overhead = _overhead(record, trials)
    slices = _slices(record, profiles, step, overhead) if step is not None else ()
    best = min(slices, key=lambda one: one.cost, default=None)
    windows = [value for profile in profiles for value in profile]
    correlation, is_open = _correlation(profiles, step) if step is not None else (None, False)
    standings = _standings(record.attempts or record.trials)
    result = summarise(record)
    return Fitness(
        study=record.study.id,
        workload=record.study.workloads[0].name,
        trials=len(trials),
        measured_seconds=len(trials) * record.study.seconds,
        iops=fmean(windows) if windows else None,
        window_seconds=step,
        windows_cv=pstdev(windows) / fmean(windows) if len(windows) > 1 and fmean(windows) > 0 else None,
        correlation_seconds=correlation,
        correlation_open=is_open,
        drift=_drift(trials),
        overhead_seconds=overhead,
        slices=slices,
        best_seconds=None if best is None else best.seconds,
        confidence=record.study.confidence,
        reaches=tuple(_reach(minutes, best, record.study.confidence) for minutes in MINUTES),
        same=next((_self_test(one) for one in result.verdicts), None),
        gates=standings,
        neighbours=neighbours,
        advice=tuple(_advice(record, standings, findings)),
    )


def _self_test(comparison: Comparison) -> SelfTest:
    return SelfTest(verdict=comparison.verdict, rounds=comparison.rounds, ratio=comparison.ratio, why=comparison.why)


def _overhead(record: StudyRecord, trials: Sequence[TrialRecord]) -> float | None:
    """Return the seconds of a trial in which nothing is measured, its ramp included, from when trials ended."""
    made = record.attempts or record.trials
    ends = sorted(datetime.fromisoformat(one.ended).timestamp() for one in made if one.measurement is not None)
    if len(ends) < 2 or len(trials) < 2:
        return None
    return max(record.study.ramp_seconds, (ends[-1] - ends[0]) / (len(ends) - 1) - record.study.seconds)


def _slices(
    record: StudyRecord, profiles: Sequence[Sequence[float]], step: float, overhead: float | None
) -> tuple[SliceNoise, ...]:
    found: list[tuple[float, int, float]] = []
    for seconds in SLICES:
        count = round(seconds / step)
        pairs = [
            math.log(fmean(after[:count]) / fmean(before[-count:]))
            for before, after in itertools.pairwise(profiles)
            if min(len(before), len(after)) >= count and min(fmean(after[:count]), fmean(before[-count:])) > 0
        ]
        if len(pairs) >= 3:
            # equal stacks differ by nothing but noise, so the mean is known: it is zero
            found.append((seconds, len(pairs), math.sqrt(fmean(one * one for one in pairs))))
    gap = record.study.ramp_seconds if overhead is None else overhead
    costs = [(seconds + gap) * sd**2 for seconds, _, sd in found]
    least = min(costs, default=0.0)
    return tuple(
        SliceNoise(
            seconds=seconds,
            pairs=pairs,
            sd=sd,
            blocks_per_minute=60 / (2 * (seconds + gap)),
            cost=cost / least if least else 1.0,
        )
        for (seconds, pairs, sd), cost in zip(found, costs, strict=True)
    )


def _correlation(profiles: Sequence[Sequence[float]], step: float) -> tuple[float | None, bool]:
    """Return the integrated autocorrelation time in seconds, and whether it goes on beyond the trials' length.

    1 + 2 x the sum of the autocorrelations up to the first that is not positive, over all trials around one mean.
    """
    values = [value for profile in profiles for value in profile]
    center = fmean(values) if values else 0.0
    spread = fmean((value - center) ** 2 for value in values) if values else 0.0
    if spread <= 0:
        return None, False
    total = 1.0
    longest = max(len(profile) for profile in profiles)
    for lag in range(1, longest):
        products = [
            (before - center) * (after - center)
            for profile in profiles
            for before, after in zip(profile, profile[lag:], strict=False)
        ]
        if not products:
            break
        if fmean(products) <= 0:
            return total * step, False
        total += 2 * fmean(products) / spread
    return total * step, True


def _drift(trials: Sequence[TrialRecord]) -> Drift | None:
    """Return the slope of ln(IOPS) over time by least squares, with Student's t on its error."""
    points = [
        (datetime.fromisoformat(one.ended).timestamp() / 60, math.log(rate))
        for one in trials
        if one.measurement is not None and (rate := one.measurement.get("iops"))
    ]
    if len(points) < 4:
        return None
    x, y = fmean(time for time, _ in points), fmean(value for _, value in points)
    width = math.fsum((time - x) ** 2 for time, _ in points)
    if width <= 0:
        return None
    slope = math.fsum((time - x) * (value - y) for time, value in points) / width
    left = math.fsum((value - y - slope * (time - x)) ** 2 for time, value in points)
    # scipy takes longer to load than a study takes to be read, so only who checks pays
    from scipy.special import stdtrit

    free = len(points) - 2
    radius = float(stdtrit(free, (1 + DRIFT_LEVEL) / 2)) * math.sqrt(left / free / width)
    return Drift(per_minute=math.expm1(slope), low=math.expm1(slope - radius), high=math.expm1(slope + radius))


def _reach(minutes: int, best: SliceNoise | None, confidence: float) -> Reach:
    blocks = 0 if best is None else int(minutes * best.blocks_per_minute)
    radius = quantile(blocks, blocks - 1, 1 - confidence)
    if best is None or not math.isfinite(radius):
        return Reach(minutes=minutes, blocks=blocks, smallest=None)
    # blocks that look independent are doubted all the same, which makes every interval that much wider
    doubt = min(LAG1_DOUBT / math.sqrt(blocks), LAG1_MAX)
    # the mean varies by chance, and so does the radius: by its sd (1/2n of its square) and that correlation (1/n)
    chance = math.sqrt(1 + 1.5 * radius**2 / blocks)
    sds = radius * math.sqrt((1 + doubt) / (1 - doubt)) + FOUND_SDS * chance
    return Reach(minutes=minutes, blocks=blocks, smallest=math.expm1(min(sds * best.sd / math.sqrt(blocks), LN_MAX)))


def _standings(attempts: Sequence[TrialRecord]) -> tuple[GateStanding, ...]:
    found = []
    for gate in GATES:
        readings = [
            value
            for one in attempts
            if one.measurement is not None
            for name, value in one.measurement.gates
            if name == gate.id
        ]
        if readings:
            found.append(
                GateStanding(
                    id=gate.id,
                    label=gate.label,
                    unit=gate.unit,
                    readings=len(readings),
                    median=median(readings),
                    worst=max(readings),
                    flag=gate.flag,
                    invalid=gate.invalid,
                    standing=_standing(gate, max(readings)),
                )
            )
    return tuple(found)


def _standing(gate: Gate, worst: float) -> str:
    if gate.invalid is not None and worst > gate.invalid:
        return "invalid"
    if gate.flag is not None and worst > gate.flag:
        return "warns"
    limit = gate.flag or gate.invalid
    if gate.unit == "C":  # below its limit a temperature is negative, and twice the distance is near
        return "near" if gate.flag is not None and worst > 2 * gate.flag else "clear"
    return "near" if limit and worst > NEAR * limit else "clear"


def _advice(record: StudyRecord, standings: Sequence[GateStanding], findings: Sequence[Remark]) -> list[Remark]:
    """Return what to do: of the gates that spoke (the worst text of each), then of what the probe found."""
    spoke = {one.id for one in standings if one.standing in ("warns", "invalid")}
    worst: dict[str, tuple[float, Remark]] = {}
    for one in record.attempts or record.trials:
        if one.measurement is None:
            continue
        values = dict(one.measurement.gates)
        for remark in one.measurement.remarks:
            if remark.id in spoke and values.get(remark.id, 0.0) >= worst.get(remark.id, (-math.inf, None))[0]:
                worst[remark.id] = (values.get(remark.id, 0.0), remark)
    order = [Weight.INVALID, Weight.WARNING, Weight.NOTE]
    gates = sorted((remark for _, remark in worst.values()), key=lambda one: order.index(one.weight))
    return [*gates, *(one for one in findings if one.id in _OF_THE_HOST and one.id not in worst)]
