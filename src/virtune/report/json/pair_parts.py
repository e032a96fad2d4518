# SPDX-License-Identifier: Apache-2.0
"""The keys of a comparison and of a condition in a result document."""

from typing import Annotated, TypedDict

from virtune.model.condition import Outcome, ThresholdResult
from virtune.model.reason import OF_VERDICTS, Reason
from virtune.model.verdict import Comparison, Interval, Verdict
from virtune.report.json.document import AT_LEAST_ONE, CODE, NOT_NEGATIVE

A_METRIC_NAME = {"$ref": "#/$defs/MetricName"}

MeasuredAs = Annotated[
    str | None,
    "The metric of completion latency that was measured in its place; null where it was itself.",
    {"anyOf": [A_METRIC_NAME, {"type": "null"}]},
]

_OF_RATIO = "of candidate / baseline, or of candidate / value; null where there is no interval."


class IntervalPart(TypedDict):
    """A ratio candidate/baseline (1.0 = no change) with its confidence interval."""

    estimate: Annotated[float, "The ratio itself: of geometric means over the rounds. 1 is no change."]
    low: Annotated[float, "The lower end of the interval."]
    high: Annotated[float, "The upper end of the interval."]
    confidence: Annotated[float, "The confidence of this interval, 0 to 1."]


class _Pair(TypedDict):
    """Two arms, one workload, one metric, paired by round."""

    workload: Annotated[str, "The workload's name."]
    metric: Annotated[str, "The metric.", A_METRIC_NAME]
    baseline: Annotated[str, "The baseline of the comparison."]
    candidate: Annotated[str, "The arm that is judged."]
    rounds: Annotated[int, "Rounds that both arms have a usable value in.", NOT_NEGATIVE]
    ratio: Annotated[IntervalPart | None, "candidate / baseline; null where there were too few rounds."]
    plain: Annotated[
        IntervalPart | None,
        "The ratio of the arms' arithmetic means, with a t interval of its own: no round counts less in it. `ratio`"
        " is robust; where the two disagree, extreme rounds matter. null where there is no other mean.",
    ]
    change: Annotated[float | None, "Of arms that are not paired: the ratio of their geometric means, else null."]
    noise: Annotated[
        float | None,
        "Standard deviation of one round's difference (ln), as it went into the interval; null where the rounds were"
        " fixed beforehand, or bear none.",
        NOT_NEGATIVE,
    ]
    lag1: Annotated[
        float | None,
        "How alike neighbouring rounds were taken to be, 0 to 0.9; null as `noise`.",
        NOT_NEGATIVE,
    ]
    rounds_left: Annotated[
        int | None,
        "A forecast for an undecided pair: so many more rounds would decide it if the noise stays; null where that"
        " cannot be said.",
        AT_LEAST_ONE,
    ]
    measured_as: MeasuredAs
    why: Annotated[str, "The reason of the verdict, in words."]
    reason: Annotated[Reason, CODE, {"enum": [*OF_VERDICTS]}]


class ComparisonPart(_Pair):
    """Two arms, one workload, one metric, paired by round."""

    verdict: Annotated[Verdict, "What may be said of the candidate. `undecided` is an answer."]


class DifferencePart(_Pair):
    """Two arms, one workload, one metric, paired by round."""

    difference: Annotated[Verdict, "What may be said of the candidate. `undecided` is an answer."]


class ConditionPart(TypedDict):
    """The result of one condition for one comparison. All of them together hold at the study's confidence."""

    condition: Annotated[str, "The condition."]
    metric: Annotated[str, "The metric.", A_METRIC_NAME]
    limit: Annotated[
        float | None,
        "The ratio candidate / baseline that is the limit (1.05 is +5 %); null for a limit on a value.",
        NOT_NEGATIVE,
    ]
    value: Annotated[float | None, "The value that is the limit, in the metric's base unit; null for a change."]
    workload: Annotated[str, "The workload's name."]
    baseline: Annotated[str | None, "The baseline; null for a limit on a value."]
    candidate: Annotated[str, "The arm that is judged."]
    low: Annotated[float | None, f"The lower end of the interval {_OF_RATIO}"]
    high: Annotated[float | None, f"The upper end of the interval {_OF_RATIO}"]
    measured_as: MeasuredAs
    confidence: Annotated[float | None, "The confidence of this interval, 0 to 1."]
    outcome: Annotated[
        Outcome,
        "`breached`: the whole interval lies beyond the limit; `held`: on the near side of it; `undecided`: it"
        " straddles the limit, or nothing can be concluded.",
    ]
    why: Annotated[str, "The reason, in words."]
    reason: Annotated[Reason, CODE, {"enum": [*OF_VERDICTS]}]


def comparison_part(found: Comparison) -> ComparisonPart:
    """Return a comparison with a verdict as a document's part."""
    return {**_pair(found), "verdict": found.verdict}


def difference_part(found: Comparison) -> DifferencePart:
    """Return the difference of a metric as a document's part."""
    return {**_pair(found), "difference": found.verdict}


def condition_part(ruling: ThresholdResult) -> ConditionPart:
    """Return a condition's result as a document's part."""
    condition, comparison = ruling.condition, ruling.comparison
    ratio = comparison.ratio
    return {
        "condition": condition.text,
        "metric": condition.metric,
        "limit": None if condition.value is not None else condition.limit,
        "value": condition.value,
        "workload": comparison.workload,
        "baseline": None if condition.value is not None else comparison.baseline,
        "candidate": comparison.candidate,
        "low": None if ratio is None else ratio.low,
        "high": None if ratio is None else ratio.high,
        "measured_as": comparison.measured_as,
        "confidence": None if ratio is None else ratio.confidence,
        "outcome": ruling.outcome,
        "why": ruling.why,
        "reason": ruling.reason,
    }


def interval_part(found: Interval | None) -> IntervalPart | None:
    """Return a ratio with its interval as a document's part; None without one."""
    if found is None:
        return None
    return {"estimate": found.estimate, "low": found.low, "high": found.high, "confidence": found.confidence}


def _pair(found: Comparison) -> _Pair:
    return {
        "workload": found.workload,
        "metric": found.metric,
        "baseline": found.baseline,
        "candidate": found.candidate,
        "rounds": found.rounds,
        "ratio": interval_part(found.ratio),
        "plain": interval_part(found.plain),
        "change": found.change,
        "noise": found.noise,
        "lag1": found.lag1,
        "rounds_left": found.rounds_left,
        "measured_as": found.measured_as,
        "why": found.why,
        "reason": found.reason,
    }
