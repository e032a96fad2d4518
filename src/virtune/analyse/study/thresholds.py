# SPDX-License-Identifier: Apache-2.0
"""Judge conditions (`--fail-if`) by the measurements: breached, held, or undecided.

A breach needs both effect and significance: the whole interval of the change lies beyond the limit. A condition is
held when the whole interval lies on the near side of the limit. It is undecided when the interval straddles the
limit, or when the comparison allows no conclusion (one run each, too few rounds, a metric that was not measured). A
condition on a value applies to every arm, the baseline too: the arm is compared with that value. The intervals of all
conditions, workloads and arms hold together at the study's confidence (Bonferroni).
"""

from collections.abc import Iterator, Sequence

from virtune.analyse.stats.unpaired import REPEATS_MIN
from virtune.analyse.study.verdicts import Evidence, against_baseline, against_value, evidence_of
from virtune.model.condition import Outcome, Threshold, ThresholdResult
from virtune.model.errors import UsageError
from virtune.model.evidence import StudyRecord
from virtune.model.metric import BY_ID
from virtune.model.reason import Reason, Why, because
from virtune.model.study import Study
from virtune.model.verdict import Comparison, Interval, Verdict


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
    return rulings_of(evidence_of(record), conditions)


def rulings_of(evidence: Evidence, conditions: Sequence[Threshold]) -> tuple[ThresholdResult, ...]:
    """Judge every condition by the evidence of a study's trials."""
    return tuple(_rulings(evidence, conditions))


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


def _rulings(evidence: Evidence, conditions: Sequence[Threshold]) -> Iterator[ThresholdResult]:
    study = evidence.study
    judged = sum(len(study.arms) - (condition.value is None) for condition in conditions)
    confidence = 1 - (1 - study.confidence) / max(1, judged * len(study.compared))
    for condition in conditions:
        metric = BY_ID[condition.metric]
        comparisons = (
            against_baseline(evidence, metric, confidence=confidence)
            if condition.value is None
            else against_value(evidence, metric, condition.value, confidence=confidence)
        )
        for comparison in comparisons:
            outcome, why = _judge(condition, comparison, study)
            yield ThresholdResult(
                condition=condition, comparison=comparison, outcome=outcome, why=why.text, reason=why.reason
            )


def _judge(condition: Threshold, comparison: Comparison, study: Study) -> tuple[Outcome, Why]:
    ratio, limit = comparison.ratio, condition.limit
    if ratio is None or not _sound(comparison, ratio, fewest=study.fewest_rounds if study.paired else REPEATS_MIN):
        known = comparison.rounds or comparison.closed
        why = Why(reason=comparison.reason, text=comparison.why) if known else _missing(condition)
        return Outcome.UNDECIDED, why
    above, below = ratio.low > limit, ratio.high < limit
    if not (above or below):
        return Outcome.UNDECIDED, because(Reason.CROSSES_LIMIT, units="rounds" if study.paired else "runs")
    if above == (condition.relation == ">"):
        return Outcome.BREACHED, because(Reason.BEYOND_LIMIT)
    plain = comparison.plain  # a limit is not held by rounds that count less
    if plain is not None and not (plain.low > limit if above else plain.high < limit):
        return Outcome.UNDECIDED, because(Reason.CROSSES_LIMIT, units="rounds")
    return Outcome.HELD, because(Reason.WITHIN_LIMIT)


def _missing(condition: Threshold) -> Why:
    return because(Reason.NOT_MEASURED, where=" in both arms" if condition.value is None else "")


def _sound(comparison: Comparison, ratio: Interval, *, fewest: int) -> bool:
    """Whether an interval is reliable. One that includes 'no change' is, although it decides no verdict; one that
    excludes it is undecided because the sign test (of unpaired runs the rank test) does not agree, or because there
    are too few rounds.
    """
    if ratio.low >= ratio.high:
        return False
    if comparison.verdict is not Verdict.UNDECIDED:
        return True
    enough = comparison.rounds >= fewest and comparison.reason is not Reason.TOO_FEW
    return enough and ratio.low <= 1.0 <= ratio.high
