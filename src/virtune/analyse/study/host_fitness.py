# SPDX-License-Identifier: Apache-2.0
"""A host's fitness for measurements, from an A/A test: noise, autocorrelation time, drift, minimum detectable effect.

The noise of a difference includes what it includes in comparisons: the end of one trial is compared with the begin of
the next, so restarts and gaps are included, and only the length of the slices is varied.
"""

import itertools
import math
from collections.abc import Iterator, Sequence
from datetime import datetime
from statistics import fmean, median, pstdev

from virtune.analyse.stats.planned import smallest_planned
from virtune.analyse.stats.stationarity import correlation_of, drift_of
from virtune.analyse.study.summarise import summarise
from virtune.model.evidence import StudyRecord, TrialRecord
from virtune.model.fitness import Fitness, GateStanding, Neighbour, Reach, SelfTest, SliceNoise
from virtune.model.gate import GATES, Gate
from virtune.model.reason import Reason, Why, because
from virtune.model.remark import Remark
from virtune.model.remark_kinds import SIMULATED
from virtune.model.units import format_share
from virtune.model.verdict import Comparison, Verdict

SLICES = (0.5, 1.0, 2.0, 4.0)
"""The slice lengths compared, in seconds. Longer ones are best only where changing arms takes tens of seconds."""

MINUTES = (1, 5, 15)

NEAR = 0.5
"""From this share of its first limit on, a gate's reading is `near`."""

UNFIT = 0.05
"""A host on which a five-minute comparison detects no difference of 5 % is not fit: most settings differ by less."""

_MINUTES_OF_A_COMPARISON = 5

_OF_THE_HOST = frozenset(
    {"governor", "idle", "turbo", "ksm", "virtual", "cpu-limit", "io-limit", "busy", "load", "swap-used", "clock"}
)
"""The probe's findings that affect measurements; missing programs do not add noise."""


def fitness_of(
    record: StudyRecord, *, findings: Sequence[Remark] = (), neighbours: tuple[Neighbour, ...] | None = None
) -> Fitness:
    """Return what the trials of a check show of its host. `findings` are those of the probe."""
    trials = [one for one in record.trials if one.measurement is not None]
    profiles = [one.measurement.profile for one in trials if one.measurement is not None and one.measurement.profile]
    steps = {one.measurement.profile_seconds for one in trials if one.measurement is not None} - {0.0}
    step = median(steps) if steps else None
    overhead = _overhead(record, trials)
    slices = _slices(record, profiles, step, overhead) if step is not None else ()
    best = min(slices, key=lambda one: one.cost, default=None)
    windows = [value for profile in profiles for value in profile]
    correlation, is_open = correlation_of(profiles, step) if step is not None else (None, False)
    standings = _standings(record.attempts or record.trials)
    same = next((_self_test(one) for one in summarise(record).verdicts), None)
    reaches = tuple(_reach(minutes, best, record.study.confidence) for minutes in MINUTES)
    unfit = tuple(_unfit(reaches, same, standings))
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
        drift=drift_of({"": _rates(trials)}),
        overhead_seconds=overhead,
        slices=slices,
        best_seconds=None if best is None else best.seconds,
        confidence=record.study.confidence,
        reaches=reaches,
        same=same,
        gates=standings,
        neighbours=neighbours,
        advice=tuple(_advice(record, standings, findings)),
        unfit=tuple(one.text for one in unfit),
        unfit_reasons=tuple(one.reason for one in unfit),
    )


def _unfit(reaches: Sequence[Reach], same: SelfTest | None, standings: Sequence[GateStanding]) -> Iterator[Why]:
    """Yield the reasons why this host is not fit for measurements."""
    smallest = next(one.smallest for one in reaches if one.minutes == _MINUTES_OF_A_COMPARISON)
    if smallest is None:
        yield because(Reason.TOO_FEW_TRIALS)
    elif smallest > UNFIT:
        yield because(Reason.ONLY_LARGE_DIFFERENCES, least=format_share(smallest))
    if same is not None and same.verdict in (Verdict.BETTER, Verdict.WORSE):
        yield because(Reason.FALSE_DIFFERENCE)
    for one in standings:
        if one.invalid is not None and one.median > one.invalid:
            yield because(Reason.MOSTLY_INVALID, cause=one.label)


def _self_test(comparison: Comparison) -> SelfTest:
    return SelfTest(
        verdict=comparison.verdict,
        rounds=comparison.rounds,
        ratio=comparison.ratio,
        why=comparison.why,
        reason=comparison.reason,
    )


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
            # equal stacks differ only by noise, so the true mean is zero
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


def _rates(trials: Sequence[TrialRecord]) -> list[tuple[float, float]]:
    """Return (minutes, ln IOPS) of every trial."""
    return [
        (datetime.fromisoformat(one.ended).timestamp() / 60, math.log(rate))
        for one in trials
        if one.measurement is not None and (rate := one.measurement.get("iops"))
    ]


def _reach(minutes: int, best: SliceNoise | None, confidence: float) -> Reach:
    blocks = 0 if best is None else int(minutes * best.blocks_per_minute)
    smallest = None if best is None else smallest_planned(blocks, sd=best.sd, alpha=1 - confidence)
    return Reach(minutes=minutes, blocks=blocks, smallest=smallest)


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
    """Return advice: that figures are simulated, each gate's worst text above its limits, the probe's findings."""
    spoke = {one.id for one in standings if one.standing in ("warns", "invalid")}
    spoke |= {SIMULATED.id} if record.study.simulated else set()
    worst: dict[str, tuple[float, Remark]] = {}
    for one in record.attempts or record.trials:
        if one.measurement is None:
            continue
        values = dict(one.measurement.gates)
        for remark in one.measurement.remarks:
            if remark.id in spoke and values.get(remark.id, 0.0) >= worst.get(remark.id, (-math.inf, None))[0]:
                worst[remark.id] = (values.get(remark.id, 0.0), remark)
    gates = sorted((remark for _, remark in worst.values()), key=lambda one: one.weight.rank)
    return [*gates, *(one for one in findings if one.id in _OF_THE_HOST and one.id not in worst)]
