# SPDX-License-Identifier: Apache-2.0
"""From the trials of a study to its Result: values over rounds, verdicts, and the evidence behind them: rounds,
noise, autocorrelation, time, and why the study stopped. And what a Result says further: the structures of VMs
with their shares of bare metal's IOPS, and a host's fitness for measurements, from an A/A test.

The noise of a difference includes what it includes in comparisons: the end of one trial is compared with the begin of
the next, so restarts and gaps are included, and only the length of the slices is varied.
"""

import itertools
import math
from collections import Counter, defaultdict
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import fields, replace
from datetime import datetime
from statistics import fmean, median, pstdev

from virtune.analyse.layers.path import layers_of
from virtune.analyse.stats.noise import between_starts, correlation_of, drift_of
from virtune.analyse.stats.paired import interval_of
from virtune.analyse.stats.planned import smallest_planned
from virtune.analyse.stats.student import ends_of, sections_of
from virtune.analyse.study.offered_load import knees_of, over_all
from virtune.analyse.study.thresholds import open_workloads, rulings_of
from virtune.analyse.study.unasked import unasked_of
from virtune.analyse.study.verdicts import (
    beside_verdicts,
    by_arm,
    differences_of,
    evidence_of,
    measured_in_place,
    patterns_of,
    rounds_of_arms,
    told_metrics,
    verdicts_of,
    with_typical,
)
from virtune.analyse.trial.rejection import pardons_of, ramp_of, sound_of
from virtune.model.bottleneck import OwnShare, Structure
from virtune.model.evidence import UNDER_LOAD, Check, StudyRecord, TrialRecord, Waiver, measured
from virtune.model.measurement import Histogram, Measurement, merge
from virtune.model.metric import DISTRIBUTIONS, Metric
from virtune.model.reason import Reason, Why, because
from virtune.model.remark import EMULATED, GATES, SIMULATED, Gate, Remark, Weight
from virtune.model.result import (
    ArmRemark,
    ArmSummary,
    Basis,
    Fitness,
    GateStanding,
    Neighbour,
    Reach,
    Result,
    SelfTest,
    SliceNoise,
    Stopped,
    Value,
)
from virtune.model.stack import Stack
from virtune.model.study import Arm, Study
from virtune.model.text import format_share
from virtune.model.verdict import Comparison, Verdict
from virtune.model.workload import Workload

_PAUSE = 5.0
"""A gap between trials of this many times the usual distance (and ten seconds) counts as an interruption."""


def basis_of(record: StudyRecord, verdicts: Sequence[Comparison]) -> tuple[Basis, ...]:
    """Return the evidence behind the verdicts of each workload; empty for a study without paired rounds."""
    if not record.study.paired or not verdicts:
        return ()
    each = trial_seconds(record)
    names = [workload.name for workload in record.study.compared]
    return tuple(_basis(record, name, [one for one in verdicts if one.workload == name], each) for name in names)


def stopped_by(record: StudyRecord, *, decided: bool) -> Stopped | None:
    """Return why a sequential study has ended; None while it runs, and for any other study.

    `decided`: no verdict and no condition needs more rounds.
    """
    study = record.study
    if not study.sequential or not record.finished:
        return None
    if decided:
        return Stopped.DECIDED
    return Stopped.ROUNDS if study.rounds_begun >= study.rounds else Stopped.BUDGET


def trial_seconds(record: StudyRecord) -> float:
    """Return the time from the end of one trial to the end of the next; the planned time where there is no
    measurement.
    """
    gaps = _gaps(record)
    return sum(gaps) / len(gaps) if gaps else record.study.seconds + record.study.ramp_seconds


def elapsed_seconds(record: StudyRecord) -> float | None:
    """Return the total time of the trials, counting the first as long as the others; None for fewer than two."""
    gaps = [] if record.study.imported else _gaps(record)
    return sum(gaps) + trial_seconds(record) if gaps else None


def _gaps(record: StudyRecord) -> list[float]:
    """Seconds between the ends of trials that followed one another without a pause."""
    ends = sorted(datetime.fromisoformat(trial.ended) for trial in record.trials if trial.ended)
    gaps = [(after - before).total_seconds() for before, after in itertools.pairwise(ends)]
    usual = max(10.0, _PAUSE * median(gaps)) if gaps else 0.0
    return [gap for gap in gaps if gap <= usual]


def _basis(record: StudyRecord, workload: str, verdicts: Sequence[Comparison], each: float) -> Basis:
    noises = [found.noise for found in verdicts if found.noise is not None]
    likeness = [found.lag1 for found in verdicts if found.lag1 is not None]
    open_ = [found.rounds_left for found in verdicts if found.open]
    left = [one for one in open_ if one is not None]
    seconds = None if len(left) < len(open_) else max(left, default=0) * each * len(record.study.arms)
    lag1 = median(likeness) if likeness else None
    known = Basis(
        workload=workload,
        rounds=max(found.rounds for found in verdicts),
        noise=median(noises) if noises else None,
        lag1=lag1,
        seconds_left=seconds,
    )
    return with_steadiness(known, record.study, record.trials)


def with_steadiness(known: Basis, study: Study, records: Iterable[TrialRecord]) -> Basis:
    """Return a basis completed by the host's stationarity during these trials."""
    trials = [one for one in records if one.trial.workload == known.workload and one.measurement is not None]
    profiles = [one.profile for _, one in measured(trials) if one.profile]
    steps = [one.profile_seconds for _, one in measured(trials) if one.profile_seconds > 0]
    correlation, is_open = correlation_of(profiles, median(steps)) if steps else (None, False)
    starts, lag1 = _starts(trials), known.lag1
    return replace(
        known,
        effective=None if lag1 is None else known.rounds * (1 - lag1) / (1 + lag1),
        correlation_seconds=correlation,
        correlation_open=is_open,
        drift=drift_of(_series(trials, study.metric)),
        starts=len({start for start in starts.values() if start is not None}),
        started=_started(study, trials, starts),
        start_spread=_start_spread(study, trials, starts),
    )


def _series(trials: Sequence[TrialRecord], metric: str) -> dict[str, list[tuple[float, float]]]:
    """Return (minutes, ln of a metric) of every trial, by arm."""
    found = defaultdict[str, list[tuple[float, float]]](list)
    for one in trials:
        value = None if one.measurement is None else one.measurement.get(metric)
        if value is not None and math.isfinite(value) and value > 0 and one.ended:
            minutes = datetime.fromisoformat(one.ended).timestamp() / 60
            found[one.trial.arm].append((minutes, math.log(value)))
    return found


def _starts(trials: Sequence[TrialRecord]) -> dict[int, tuple[int, int] | None]:
    """Return the start of the process that each trial ran in, by the trial's number; None if it was not recorded.

    A new disk in a running process is a start as well.
    """
    found: dict[int, tuple[int, int] | None] = {}
    anew = 0
    for one in sorted(trials, key=lambda trial: trial.trial.number):
        change = one.in_force.changeover
        anew += one.trial.restart
        found[one.trial.number] = None if change is None else (change.process, anew)
    return found


def _started(
    study: Study, trials: Sequence[TrialRecord], starts: dict[int, tuple[int, int] | None]
) -> tuple[tuple[tuple[str, ...], int], ...]:
    """Return the arms that shared the same starts, in the study's order, and how many starts these were."""
    carried = defaultdict[tuple[int, int], set[str]](set)
    for one in trials:
        if (start := starts[one.trial.number]) is not None:
            carried[start].add(one.trial.arm)
    groups = Counter(tuple(arm.name for arm in study.arms if arm.name in names) for names in carried.values())
    return tuple(groups.items())


def _start_spread(
    study: Study, trials: Sequence[TrialRecord], starts: dict[int, tuple[int, int] | None]
) -> float | None:
    """Return the variation between starts, from each trial's residual after its arm's and its round's mean."""
    logs = {
        (trial.arm, trial.round): math.log(value)
        for trial, one in measured(trials)
        if (value := one.get(study.metric)) and value > 0
    }
    arms, rounds = defaultdict[str, list[float]](list), defaultdict[int, list[float]](list)
    for (arm, _), value in logs.items():
        arms[arm].append(value)
    for (arm, number), value in logs.items():
        rounds[number].append(value - fmean(arms[arm]))
    found = [
        (start, logs[key] - fmean(arms[key[0]]) - fmean(rounds[key[1]]))
        for one in trials
        if (key := (one.trial.arm, one.trial.round)) in logs and (start := starts[one.trial.number]) is not None
    ]
    return between_starts(found)


def summarise(record: StudyRecord) -> Result:
    """Return the Result of a study's trials; a study without finished trials gives empty summaries."""
    study = record.study
    attempts = record.attempts or record.trials
    pardoned = pardons_of(record)
    evidence = evidence_of(record, pardoned)
    told = {one.name: told_metrics(study, one.name, record.trials) for one in study.workloads}
    ran, tried = by_arm(record.trials), by_arm(attempts)
    arms = tuple(
        _summary(
            (arm, workload),
            ran.get(key, []),
            tried.get(key, []),
            pardoned,
            tuple((one, measured_in_place(evidence.stand_ins, workload.name, one)) for one in told[workload.name]),
            study=study,
        )
        for workload in study.workloads
        for arm in study.arms
        for key in ((arm.name, workload.name),)
    )
    done = len([*measured(record.trials)])
    verdicts = tuple(verdicts_of(evidence))
    differences = tuple(differences_of(evidence, verdicts))
    arms = with_typical(arms, evidence, differences)
    rulings = tuple(rulings_of(evidence, study.conditions))
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
        patterns=() if study.imported else (*rounds_of_arms(evidence), *patterns_of(study, arms, record.trials)),
        knees=tuple(knees_of(record, pardoned)),
        unasked=tuple(unasked_of(study, record.trials)),
        beside=tuple(beside_verdicts(evidence, verdicts, arms)),
    )


def _summary(
    of: tuple[Arm, Workload],
    records: list[TrialRecord],
    tried: list[TrialRecord],
    pardoned: Sequence[Waiver],
    metrics: Sequence[tuple[Metric, Metric]],
    *,
    study: Study,
) -> ArmSummary:
    """Sum up one arm under one workload. `metrics` are those to report, each with the metric measured instead."""
    arm, workload = of
    every = [one for _, one in measured(records)]
    # the table shows the trials behind the verdicts; where none is valid it shows the invalid ones, with the reason
    counted = [one for _, one in measured(sound_of(records, pardoned))]
    kinds = {"latency", *(actual.of for _, actual in metrics if actual.percent is not None)}
    sections = {
        kind: _sections(one.histogram_of(kind) for one in counted) if kind in kinds else () for kind in DISTRIBUTIONS
    }
    merged = {kind: merge(parts) if parts else None for kind, parts in sections.items()}
    values = (
        _over_rounds(actual, counted, merged[actual.of], sections[actual.of], study=study) for _, actual in metrics
    )
    named = (
        replace(value, metric=metric.id, measured_as=None if actual is metric else actual.id)
        for (metric, actual), value in zip(metrics, values, strict=True)
        if value is not None
    )
    # every distinct check once; checks made under load are listed besides those made before
    checks = [check for record in records for check in record.in_force.checks]
    seen: dict[tuple[object, ...], Check] = {}
    for one in checks:
        seen.setdefault((one.guest, one.setting, one.asked, one.found, UNDER_LOAD in one.proof), one)
    known = {(one.guest, one.setting) for one in checks if one.found is not None}
    return ArmSummary(
        arm=arm.name,
        workload=workload.name,
        rounds=len(every),
        values=tuple(named),
        histogram=merged["latency"],
        in_force=tuple(
            one for one in seen.values() if one.found is not None or (one.guest, one.setting) not in known
        ),
        remarks=_remarks(arm, every, pardoned),
        failures=tuple(record.failure for record in records if record.failure is not None),
        attempts=len(tried),
        invalid=tuple(Counter(cause for _, one in measured(tried) for cause in one.causes).most_common()),
        layers=layers_of(counted, arm.stack, arm.load_of(workload)),
    )


def _sections(histograms: Iterable[Histogram | None]) -> Sequence[Histogram]:
    """Add the distributions of all rounds into sections; none unless every round has one."""
    found = list(histograms)
    filled = [histogram for histogram in found if histogram is not None and histogram.bins]
    return sections_of(filled) if len(filled) == len(found) else ()


def _over_rounds(
    metric: Metric,
    counted: Sequence[Measurement],
    merged: Histogram | None,
    sections: Sequence[Histogram],
    *,
    study: Study,
) -> Value | None:
    """Rates and means: the geometric mean over rounds, which is what the ratios compare; of a sweep, which compares
    none, of all rounds together. Shares: the plain mean. Percentiles: from the merged histogram, with an interval
    over sections of the rounds; of several imported results without distributions the middle one's, which is marked.
    """
    found = [value for one in counted if (value := one.get(metric.id)) is not None and math.isfinite(value)]

    def over(value: float) -> Value:
        return Value(metric=metric.id, value=value, rounds=len(found), spread=_spread(found))

    if metric.percent is not None and merged is not None:
        percentile = merged.percentile(metric.percent)
        if percentile is None:
            return None
        low, high = ends_of(sections, metric.percent, seconds=len(counted) * study.seconds, whole=merged)
        resolved = merged.resolves(metric.percent)
        return replace(over(percentile), rounds=len(counted), resolved=resolved, low=low, high=high)
    if not found:
        return None
    if metric.percent is not None and len(found) > 1:
        return replace(over(median(found)), resolved=False)
    if metric.over != "mean":
        return over(min(found) if metric.over == "min" else max(found))
    if study.sweep is not None:
        return over(over_all(metric, counted))
    center = math.fsum(found) / len(found)
    if metric.unit != "%" and min(found) > 0:
        center = math.exp(math.fsum(math.log(value) for value in found) / len(found))
    return over(center)


def _spread(values: Sequence[float]) -> float | None:
    if len(values) < 2:
        return None
    mean = math.fsum(values) / len(values)
    return math.sqrt(math.fsum((v - mean) ** 2 for v in values) / (len(values) - 1)) / mean if mean else None


def _remarks(arm: Arm, every: Sequence[Measurement], pardoned: Sequence[Waiver]) -> tuple[ArmRemark, ...]:
    """Return each kind of remark once for each weight, with its number of rounds; a pardoned one is a warning."""
    free = {one.cause for one in pardoned if one.arm in (None, arm.name)}
    made: dict[tuple[str, Weight], list[tuple[int, Remark, float | None]]] = {}
    for number, measurement in enumerate(every):
        gates = dict(measurement.gates)
        for remark in measurement.remarks:
            mild = remark.id in free and remark.weight is Weight.INVALID
            said = replace(remark, weight=Weight.WARNING) if mild else remark
            made.setdefault((remark.id, said.weight), []).append((number, said, gates.get(remark.id)))
    return tuple(_worst(same) for same in made.values())


def _worst(same: Sequence[tuple[int, Remark, float | None]]) -> ArmRemark:
    """Return the remark of the round with the highest reading; a round may have made it of reads and of writes."""
    _, worst, _ = max(same, key=lambda one: -math.inf if one[2] is None else one[2])
    readings = [reading for _, _, reading in same if reading is not None]
    return ArmRemark(
        remark=worst,
        rounds=len({number for number, _, _ in same}),
        worst=max(readings, default=None),
        median=median(readings) if readings else None,
    )


CONFIDENCE = 0.95


def structure_of(stack: Stack) -> Structure | None:
    """Return the structure that a stack is; None for one without guests."""
    if not stack.kind.in_guest:
        return None
    if stack.device.vfio_pci is not None:
        return "structure-3"
    if stack.guests > 1:
        return "structure-1"
    return "structure-4" if stack.in_iothread else "structure-2"


def metal_of(study: Study) -> Arm | None:
    """Return the first arm that is bare metal, None without one."""
    return next((arm for arm in study.arms if arm.stack.kind.front == "file"), None)


def shares_of_metal(record: StudyRecord) -> Iterator[OwnShare]:
    """Yield the share of every arm that is a structure, under every workload that bare metal had too; none for an
    arm without two rounds in which both count.
    """
    study = record.study
    metal = metal_of(study)
    if metal is None:
        return
    rows = evidence_of(record).rows
    emulated = {trial.arm for trial, one in measured(record.trials) for said in one.remarks if said.id == EMULATED.id}
    for arm in study.arms:
        structure = structure_of(arm.stack)
        for workload in study.workloads if structure is not None else ():
            mine, other = (rows.get((name, workload.name), {}) for name in (arm.name, metal.name))
            pairs = [
                (base, done)
                for number, row in sorted(mine.items())
                if (done := row.get("iops")) and (base := other.get(number, {}).get("iops"))
            ]
            ratio = interval_of(pairs, confidence=CONFIDENCE)
            if structure is not None and ratio is not None:
                yield OwnShare(
                    structure=structure,
                    study=study.id,
                    arm=arm.name,
                    workload=workload.name,
                    rounds=len(pairs),
                    ratio=ratio,
                    emulated=arm.name in emulated,
                )


SLICES = (0.5, 1.0, 2.0, 4.0)
"""The slice lengths compared, in seconds. Longer ones are best only where changing arms takes tens of seconds."""

PAIRS_MIN = 3
"""From fewer pairs of trials nothing is promised."""

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
    profiles = [one.profile for _, one in measured(trials) if one.profile]
    steps = {one.profile_seconds for _, one in measured(trials)} - {0.0}
    step = median(steps) if steps else None
    overhead = _overhead(record, trials)
    slices = _slices(record, profiles, step, overhead) if step is not None else ()
    best = min(slices, key=lambda one: one.cost, default=None)
    windows = [value for profile in profiles for value in profile]
    correlation, is_open = correlation_of(profiles, step) if step is not None else (None, False)
    standings = _standings(record.attempts or record.trials)
    tested = next(iter(summarise(record).verdicts), None)
    same = None if tested is None else SelfTest(**{one.name: getattr(tested, one.name) for one in fields(SelfTest)})
    calm = [not one.causes for _, one in measured(trials)]
    pairs = sum(before and after for before, after in itertools.pairwise(calm))
    promising = best if pairs >= PAIRS_MIN else None
    disturbed = calm.count(False) / len(calm) if calm else 0.0
    # how often a comparison makes a trial here on average: a disturbed one again, up to so many times
    again = math.fsum(disturbed**number for number in range(record.study.attempts))
    reaches = tuple(_reach(minutes, promising, again, record.study.confidence) for minutes in MINUTES)
    unfit = tuple(_unfit(reaches, same, standings))
    return Fitness(
        study=record.study.id,
        workload=record.study.workloads[0].name,
        rig=record.study.arms[0].stack.rig,
        trials=len(trials),
        measured_seconds=len(trials) * record.study.seconds,
        iops=fmean(windows) if windows else None,
        window_seconds=step,
        windows_cv=pstdev(windows) / fmean(windows) if len(windows) > 1 and fmean(windows) > 0 else None,
        correlation_seconds=correlation,
        correlation_open=is_open,
        drift=drift_of({"": [*itertools.chain(*_series(trials, "iops").values())]}),
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
        yield because(Reason.ONLY_LARGE_DIFFERENCES, least=format_share(smallest, 1))
    if same is not None and same.verdict in (Verdict.BETTER, Verdict.WORSE):
        yield because(Reason.FALSE_DIFFERENCE)
    for one in standings:
        if one.invalid is not None and one.median > one.invalid:
            yield because(Reason.MOSTLY_INVALID, cause=one.label)


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
        if len(pairs) >= PAIRS_MIN:
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


def _reach(minutes: int, best: SliceNoise | None, again: float, confidence: float) -> Reach:
    blocks = 0 if best is None else int(minutes * best.blocks_per_minute / again)
    smallest = None if best is None else smallest_planned(blocks, sd=best.sd, alpha=1 - confidence)
    most = None if best is None or smallest is None else smallest * best.doubt
    return Reach(minutes=minutes, blocks=blocks, smallest=smallest, at_most=most)


def _standings(attempts: Sequence[TrialRecord]) -> tuple[GateStanding, ...]:
    found = []
    for gate in GATES:
        readings = [value for _, one in measured(attempts) for name, value in one.gates if name == gate.id]
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
    if (weight := gate.weight_of(worst)) is not None:
        return "invalid" if weight is Weight.INVALID else "warns"
    limit = gate.flag or gate.invalid
    if gate.unit == "C":  # below its limit a temperature is negative, and twice the distance is near
        return "near" if gate.flag is not None and worst > 2 * gate.flag else "clear"
    return "near" if limit and worst > NEAR * limit else "clear"


def _advice(record: StudyRecord, standings: Sequence[GateStanding], findings: Sequence[Remark]) -> list[Remark]:
    """Return advice: that figures are simulated, each gate's worst text above its limits, the probe's findings."""
    spoke = {one.id for one in standings if one.standing in ("warns", "invalid")}
    spoke |= {SIMULATED.id} if record.study.simulated else set()
    worst: dict[str, tuple[float, Remark]] = {}
    for _, one in measured(record.attempts or record.trials):
        values = dict(one.gates)
        for remark in one.remarks:
            if remark.id in spoke and values.get(remark.id, 0.0) >= worst.get(remark.id, (-math.inf, None))[0]:
                worst[remark.id] = (values.get(remark.id, 0.0), remark)
    gates = sorted((remark for _, remark in worst.values()), key=lambda one: one.weight.rank)
    return [*gates, *(one for one in findings if one.id in _OF_THE_HOST and one.id not in worst)]
