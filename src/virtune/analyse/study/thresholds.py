# SPDX-License-Identifier: Apache-2.0
"""Judge conditions (`--fail-if`) by the measurements: breached, held, or undecided; an accusation, by the comparison
in which the accused layer was replaced; what needs more rounds; and the verdicts as they were after earlier
rounds.

A breach needs both effect and significance: the whole interval of the change lies beyond the limit. A condition is
held when the whole interval lies on the near side of the limit. It is undecided when the interval straddles the
limit, or when the comparison allows no conclusion (one run each, too few rounds, a metric that was not measured). A
condition on a value applies to every arm, the baseline too: the arm is compared with that value. The intervals of all
conditions, workloads and arms hold together at the study's confidence (Bonferroni).

The condition on the change is judged like any `--fail-if`: held or breached only where the whole interval lies on one
side. An accusation that the measured stack itself repeats is refuted by a breach; one that it does not repeat is
undecided, since the conditions are then not those of the diagnosis.
"""

import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace

from virtune.analyse.study.verdicts import (
    Evidence,
    Lost,
    against_baseline,
    against_value,
    evidence_of,
    judge,
    measured_in_place,
    verdicts_of,
)
from virtune.analyse.trial.rejection import percentile_of_sound
from virtune.model.bottleneck import Cause
from virtune.model.errors import UsageError
from virtune.model.evidence import StudyRecord
from virtune.model.metric import BY_ID
from virtune.model.reason import Reason, Why, because
from virtune.model.study import Study
from virtune.model.text import format_share
from virtune.model.verdict import (
    REPEATS_MIN,
    SIZE,
    Comparison,
    Interval,
    Outcome,
    Proof,
    ProofReason,
    Threshold,
    ThresholdResult,
    Verdict,
)


def rule(record: StudyRecord, conditions: Sequence[Threshold]) -> tuple[ThresholdResult, ...]:
    """Judge every condition for every candidate under every workload. Raises UsageError for a condition on a change
    in a study of one arm, which has no baseline.
    """
    study = record.study
    relative = next((one for one in conditions if one.value is None), None)
    if relative is not None and len(study.arms) < 2:
        raise UsageError(
            f"`{relative.text}` needs a baseline: with one arm there is nothing to compare",
            hint="compare two, or write a limit with its unit, such as `latency.p99 > 2ms`",
        )
    return tuple(rulings_of(evidence_of(record), conditions))


def open_workloads(
    evidence: Evidence, verdicts: Sequence[Comparison], rulings: Sequence[ThresholdResult]
) -> frozenset[str]:
    """Return the workloads that need more rounds: those with an open verdict or an undecided condition.

    A condition on a metric that no round measured (`sync.mean` of reads) waits no longer than a verdict can take.
    """
    fewest = evidence.study.fewest_rounds
    waiting = (one.comparison for one in rulings if one.outcome is Outcome.UNDECIDED and not one.comparison.closed)
    undecided = {one.workload for one in waiting if one.rounds or evidence.rounds.get(one.workload, 0) < fewest}
    return frozenset(undecided | {one.workload for one in verdicts if one.open})


def rulings_of(evidence: Evidence, conditions: Sequence[Threshold]) -> Iterator[ThresholdResult]:
    """Judge every condition by the evidence of a study's trials."""
    study = evidence.study
    judged = sum(len(study.arms) - (condition.value is None) for condition in conditions)
    confidence = 1 - (1 - study.confidence) / max(1, judged * len(study.compared))
    for condition in conditions:
        metric = BY_ID[condition.metric]
        apart = condition.value is None and evidence.between_runs is not None
        comparisons = (
            against_baseline(evidence, metric, confidence=confidence)
            if condition.value is None
            else against_value(evidence, metric, condition.value, confidence=confidence)
        )
        for comparison in comparisons:
            found = (
                ruled(condition, comparison, fewest=study.fewest_rounds)
                if study.paired
                else ruled(condition, comparison, fewest=REPEATS_MIN, units="runs", apart=apart)
            )
            yield found if condition.value is None else _by_all(found, evidence)


def _by_all(found: ThresholdResult, evidence: Evidence) -> ThresholdResult:
    """Leave a limit on a percentile open where that of all I/Os together, which tables show, is on its other side."""
    comparison, condition = found.comparison, found.condition
    metric = measured_in_place(evidence.stand_ins, comparison.workload, BY_ID[condition.metric])
    if found.outcome is Outcome.UNDECIDED or condition.value is None:
        return found
    of = (comparison.candidate, comparison.workload)
    whole = percentile_of_sound(evidence.trials, *of, metric, evidence.pardoned)
    above = (found.outcome is Outcome.BREACHED) == (condition.relation == ">")
    if whole is None or (whole > condition.value) is above or whole == condition.value:
        return found
    units = "rounds" if evidence.study.paired else "runs"
    why = because(Reason.NOT_BY_ALL, units=units, which="above" if above else "below")
    return replace(found, outcome=Outcome.UNDECIDED, why=why.text, reason=why.reason)


def ruled(
    condition: Threshold, comparison: Comparison, *, fewest: int, units: str = "rounds", apart: bool = False
) -> ThresholdResult:
    """Judge a condition by one comparison, which is sound from so many rounds, or runs that are not paired, on; with
    `apart` its interval is that of studies of different times.
    """
    outcome, why = _judge(condition, comparison, fewest, units)
    if apart and why.reason is Reason.CROSSES_LIMIT:
        why = _nearest(condition, comparison) or because(Reason.CROSSES_LIMIT, units="such studies in the store")
    return ThresholdResult(
        condition=condition, comparison=comparison, outcome=outcome, why=why.text, reason=why.reason
    )


def _judge(condition: Threshold, comparison: Comparison, fewest: int, units: str) -> tuple[Outcome, Why]:
    ratio, limit = comparison.ratio, condition.limit
    if ratio is None or not _sound(comparison, ratio, fewest=fewest):
        if comparison.rounds or comparison.closed or comparison.reason in (Reason.TOO_FEW_IOS, Reason.SATURATED):
            return Outcome.UNDECIDED, Why(reason=comparison.reason, text=comparison.why)
        where = " in both arms" if condition.value is None else ""
        return Outcome.UNDECIDED, because(Reason.NOT_MEASURED, where=where)
    above, below = ratio.low > limit, ratio.high < limit
    if not (above or below):
        if comparison.drift is not None and comparison.drift.apart:
            named = {"baseline": comparison.baseline, "candidate": comparison.candidate}
            return Outcome.UNDECIDED, because(Reason.RUN_DRIFT, **named)
        return Outcome.UNDECIDED, because(Reason.CROSSES_LIMIT, units=units)
    if above == (condition.relation == ">"):
        return Outcome.BREACHED, because(Reason.BEYOND_LIMIT)
    plain = comparison.plain  # a limit is not held by rounds that count less
    if plain is not None and not (plain.low > limit if above else plain.high < limit):
        return Outcome.UNDECIDED, because(Reason.CROSSES_LIMIT, units="rounds")
    return Outcome.HELD, because(Reason.WITHIN_LIMIT)


_SAID_MOST = 1000
"""A rise of so many percent is no limit that anybody would set."""


def _nearest(condition: Threshold, comparison: Comparison) -> Why | None:
    """Say which limit nearly all hold where nothing changed; None where the asked one is as far.

    By chance alone an estimate lies up to half an interval from no change, in 19 of 20 at 95 %, and its interval
    reaches another half beyond it.
    """
    ratio, below = comparison.ratio, condition.relation == "<"
    if ratio is None:
        return None
    whole = (ratio.estimate / ratio.high if below else ratio.high / ratio.estimate) ** 2
    percent = math.floor((whole - 1) * 100) if below else math.ceil((whole - 1) * 100)
    if (condition.limit <= whole if below else condition.limit >= whole) or not -100 < percent < _SAID_MOST:
        return None
    return because(Reason.LIMIT_TOO_NEAR, least=f"{condition.metric} {condition.relation} {percent:+d}%")


def _sound(comparison: Comparison, ratio: Interval, *, fewest: int) -> bool:
    """Whether an interval is reliable. One that includes 'no change' is, although it decides no verdict; one that
    excludes it is undecided because the sign test (of unpaired runs the rank test) does not agree, or because there
    are too few rounds.
    """
    if ratio.low >= ratio.high or comparison.reason in (Reason.DISTURBED_APART, Reason.UNLIKE_FLUSHES):
        return False
    if comparison.verdict is not Verdict.UNDECIDED:
        return True
    enough = comparison.rounds >= fewest and comparison.reason is not Reason.TOO_FEW
    return enough and ratio.low <= 1.0 <= ratio.high


@dataclass(frozen=True, slots=True, kw_only=True)
class InterimAnalysis:
    """Every pair's verdict and every condition's result so far, the workloads that need another round, and the arms
    left out of it.
    """

    verdicts: tuple[Comparison, ...]
    rulings: tuple[ThresholdResult, ...]
    workloads: frozenset[str]
    lost: Lost


def look(record: StudyRecord) -> InterimAnalysis:
    """Judge the trials so far. Both kinds of error are bounded however often this is done."""
    evidence = evidence_of(record)
    verdicts = tuple(verdicts_of(evidence))
    rulings = tuple(rulings_of(evidence, record.study.conditions))
    waiting = open_workloads(evidence, verdicts, rulings)
    return InterimAnalysis(verdicts=verdicts, rulings=rulings, workloads=waiting, lost=evidence.lost)


LOOKS_MAX = 24
"""More rounds than these are a pixel or two apart in a picture, and each takes computing time."""

_FEWEST = 2


def looked_back(record: StudyRecord) -> tuple[tuple[int, tuple[Comparison, ...]], ...]:
    """Return the verdicts of a comparison after some of its rounds, from the first that can have an interval to the
    last.

    Those of a study that was looked at while it ran are those of its looks, by the trials and the looks up to each.
    """
    study = record.study
    if study.imported or len(study.arms) < 2:
        return ()
    return tuple((number, judge(_up_to(record, number))) for number in _chosen(study, record))


def _chosen(study: Study, record: StudyRecord) -> Iterator[int]:
    """Yield at most LOOKS_MAX rounds: of a study with looks those, of any other all from the second on."""
    done = max((one.trial.round for one in record.trials if one.measurement is not None), default=0)
    looks = [number for number, _ in study.looks if number <= done]
    first = study.fewest_rounds if study.sequential else _FEWEST
    rounds = looks or list(range(first, done + 1))
    step = max(1, -(-len(rounds) // LOOKS_MAX))
    yield from sorted({*rounds[::step], *rounds[-1:]})


def _up_to(record: StudyRecord, number: int) -> StudyRecord:
    study = record.study
    return replace(
        record,
        study=replace(study, looks=tuple(one for one in study.looks if one[0] <= number)),
        trials=tuple(one for one in record.trials if one.trial.round <= number),
        attempts=tuple(one for one in record.attempts if one.trial.round <= number),
    )


def judge_proof(
    ruling: ThresholdResult, *, cause: Cause, again: Cause | None, share: float | None, stand_in: Comparison | None
) -> Proof:
    """Return the verdict on an accusation. `ruling` is of the arm with the replaced layer, `again` the diagnosis of
    the stack as it is in the same rounds (None without one), `stand_in` the arm with a device of the same mean
    latency, for an accusation of the device.
    """
    reason, why = _reason(ruling, cause=cause, again=again, share=share, stand_in=stand_in)
    change, limit = ruling.comparison.ratio, ruling.condition.limit
    if change is not None and ruling.outcome is Outcome.UNDECIDED and not change.low <= limit <= change.high:
        # of an interval that does not count the ends look as if they decided it
        why, change = f"{why} (the change in the mean: {format_share(change.estimate - 1, 1, signed=True)})", None
    return Proof(
        reason=reason,
        why=why,
        arm=ruling.comparison.candidate,
        metric=ruling.condition.metric,
        change=change,
        least=ruling.condition.limit,
        falls=_slower(ruling),
        share=share,
        stand_in=None if stand_in is None else stand_in.ratio,
        rounds=ruling.comparison.rounds,
    )


def _reason(
    ruling: ThresholdResult, *, cause: Cause, again: Cause | None, share: float | None, stand_in: Comparison | None
) -> tuple[ProofReason, str]:
    match ruling.outcome:
        case Outcome.UNDECIDED:
            return ProofReason.NOISE, f"the rounds do not decide it: {ruling.why}"
        case Outcome.BREACHED if again is not cause:
            words = "nothing" if again is None else again.words
            said = "which nothing seemed to limit" if again in (None, Cause.UNDECIDED) else f"limited by {words}"
            return ProofReason.NOT_ACCUSED_AGAIN, (
                f"the load changed too little, but these rounds had another stack to judge: {said}"
            )
        case Outcome.BREACHED:
            way = "slower" if _slower(ruling) else "faster"
            if share is None:
                return ProofReason.LESS_THAN_SAID, f"without it the load did not get {way}"
            return ProofReason.LESS_THAN_SAID, (
                f"without it the load got {way} by less than half of what follows from its share of the time, or not"
                " at all"
            )
        case Outcome.HELD if stand_in is not None:
            return _device(ruling, stand_in)
        case Outcome.HELD:
            size = "" if share is None else ", by at least half of what follows from its share of the time"
            return ProofReason.AS_SAID, f"without it the load got {'slower' if _slower(ruling) else 'faster'}{size}"


def _device(ruling: ThresholdResult, stand_in: Comparison) -> tuple[ProofReason, str]:
    """Tell the device from the file and the engine that were replaced with it: a stand-in with the device's latency
    must bring back at least half of the change.
    """
    gone, kept = ruling.comparison.ratio, stand_in.ratio
    if gone is None or kept is None:
        return ProofReason.NOISE, f"the rounds do not tell the device from what is above it: {stand_in.why}"
    higher = BY_ID[ruling.condition.metric].better == "higher"
    changed, left = _logs(gone, higher=higher), _logs(kept, higher=higher)
    if left[1] <= (1 - SIZE) * changed[0]:
        return ProofReason.AS_SAID, (
            "without it the load got faster, and a device of the same mean latency brought the time back"
        )
    if left[0] > (1 - SIZE) * changed[1]:
        return ProofReason.NOT_THE_DEVICE, (
            "a device of the same mean latency made the load as fast: the time is in the file, its engine, or the"
            " spread of the latencies"
        )
    return ProofReason.NOISE, "the rounds do not tell the device from the file and the engine above it"


def _logs(ratio: Interval, *, higher: bool) -> tuple[float, float]:
    """Return the ends of a change as logarithms of a speed: above 0 is faster."""
    ends = math.log(ratio.low), math.log(ratio.high)
    return ends if higher else (-ends[1], -ends[0])


def _slower(ruling: ThresholdResult) -> bool:
    higher = BY_ID[ruling.condition.metric].better == "higher"
    return (ruling.condition.limit < 1) == higher
