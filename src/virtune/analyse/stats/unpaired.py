# SPDX-License-Identifier: Apache-2.0
"""Compare two arms whose runs are not paired: results of different days, read from files.

The observations are repeated runs. The interval is Welch's t on ln(metric), which allows different variances; a rank
test must agree, so that one outlier run cannot cause a difference. Changes of the host between the runs of the two
arms are part of the difference, and the interval cannot include them.
"""

import math
from collections.abc import Sequence
from statistics import fmean, variance

from virtune.analyse.stats.student import two_sided
from virtune.model.metric import Metric
from virtune.model.reason import NO_MEASUREMENT, Reason, Why, because
from virtune.model.units import format_share
from virtune.model.verdict import Comparison, Interval, Verdict

REPEATS_MIN = 4
"""The fewest runs of each arm. With 4 and 4 the exact rank test can reach p = 2 / C(8, 4) = 0.029; with 3 and 4 it is
0.057.
"""

_RANK_LEVEL = 0.05
_LOG_MAX = 700.0


def compare_unpaired(
    metric: Metric,
    baseline: tuple[str, Sequence[float]],
    candidate: tuple[str, Sequence[float]],
    *,
    workload: str,
    margin: float,
    confidence: float,
) -> Comparison:
    """Compare two arms by their repeats. Values that are missing, zero or not finite are left out.

    `rounds` of the Comparison are the usable repeats of the arm that has fewer. With one run each there is a `change`
    and no interval; degenerate input is undecided with its reason, never an exception.
    """
    base, other = _usable(baseline[1]), _usable(candidate[1])
    fewest = min(len(base), len(other))
    change = math.exp(_bounded(fmean(other) - fmean(base))) if fewest else None
    ratio = welch(base, other, confidence=confidence)
    verdict, why = _judge(metric, base, other, ratio, margin=margin, change=change)
    lost = len(baseline[1]) + len(candidate[1]) - len(base) - len(other)
    return Comparison(
        workload=workload,
        metric=metric.id,
        baseline=baseline[0],
        candidate=candidate[0],
        rounds=fewest,
        ratio=ratio,
        verdict=verdict,
        why=why.text + (f" ({lost} run{'' if lost == 1 else 's'} had no usable value)" if lost else ""),
        reason=why.reason,
        change=change,
    )


def welch(base: Sequence[float], other: Sequence[float], *, confidence: float) -> Interval | None:
    """Return exp(mean(other) - mean(base)) with Welch's interval; None for fewer than two values of either.

    Source: Welch 1947, the degrees of freedom after Satterthwaite; any textbook.
    """
    if min(len(base), len(other)) < 2:
        return None
    parts = [variance(values) / len(values) for values in (base, other)]
    difference, squared = fmean(other) - fmean(base), math.fsum(parts)
    weights = math.fsum(part**2 / (len(values) - 1) for part, values in zip(parts, (base, other), strict=True))
    freedom = squared**2 / weights if weights > 0 else float(len(base) + len(other) - 2)
    radius = two_sided(confidence, freedom) * math.sqrt(squared)
    if not abs(difference) + radius <= _LOG_MAX:
        return None
    low, high = math.exp(difference - radius), math.exp(difference + radius)
    return Interval(estimate=math.exp(difference), low=low, high=high, confidence=confidence)


def rank_test(base: Sequence[float], other: Sequence[float]) -> float:
    """Return the two-sided p of the Mann-Whitney test that both arms are equal; exact for few runs without ties."""
    # scipy.stats takes most of a second to load, and only comparisons of files need it
    from scipy.stats import mannwhitneyu

    return float(mannwhitneyu(base, other, alternative="two-sided").pvalue)


def _usable(values: Sequence[float]) -> list[float]:
    return [math.log(value) for value in values if math.isfinite(value) and value > 0]


def _bounded(value: float) -> float:
    return max(-_LOG_MAX, min(_LOG_MAX, value))


def _judge(
    metric: Metric,
    base: Sequence[float],
    other: Sequence[float],
    ratio: Interval | None,
    *,
    margin: float,
    change: float | None,
) -> tuple[Verdict, Why]:
    fewest = min(len(base), len(other))
    if fewest == 0 or change is None:
        return Verdict.UNDECIDED, because(Reason.NO_VALUE, which="one of the two has no usable value")
    if len(base) == len(other) == 1:
        return Verdict.UNDECIDED, because(Reason.ONE_RUN_EACH)
    if fewest < REPEATS_MIN:
        runs = f"{len(base)} and {len(other)} runs"
        return Verdict.UNDECIDED, because(Reason.TOO_FEW, had=runs, least=f"{REPEATS_MIN} of each")
    if ratio is None:
        return Verdict.UNDECIDED, because(Reason.NO_INTERVAL, units="runs")
    if ratio.low == ratio.high:
        return Verdict.UNDECIDED, because(Reason.NO_NOISE, unit="run", what="value", so=NO_MEASUREMENT)
    if ratio.within(margin):
        return Verdict.SAME, because(Reason.WITHIN_MARGIN, margin=format_share(margin))
    if ratio.low <= 1.0 <= ratio.high:
        return Verdict.UNDECIDED, because(Reason.NOT_SETTLED, margin=format_share(margin))
    if rank_test(base, other) > _RANK_LEVEL:
        return Verdict.UNDECIDED, because(Reason.RANK_TEST)
    if (ratio.low > 1.0) == (metric.better == "higher"):
        return Verdict.BETTER, because(Reason.BETTER_SIDE)
    return Verdict.WORSE, because(Reason.WORSE_SIDE)
