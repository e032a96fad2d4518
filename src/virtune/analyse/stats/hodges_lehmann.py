# SPDX-License-Identifier: Apache-2.0
"""The Hodges-Lehmann shift of paired values with Wilcoxon's exact interval, without assuming a distribution. It
serves a handful of restarts.

It depends on the order of the values only, so outliers do no harm.
"""

import math
from collections.abc import Sequence
from dataclasses import dataclass
from statistics import median


@dataclass(frozen=True, slots=True, kw_only=True)
class Shift:
    """The median of all means of two differences, with its interval and that interval's confidence."""

    estimate: float
    low: float
    high: float
    confidence: float


def shift_of(differences: Sequence[float], *, confidence: float) -> Shift | None:
    """Return the shift of paired differences; None where there are none, or where one is no number.

    The interval is the narrowest of Wilcoxon's that has at least `confidence`. Few pairs allow less: then it is the
    widest that they allow, with its true confidence (5 pairs: 0.9375, 6: 0.969). Source: Hollander, Wolfe, Chicken,
    Nonparametric Statistical Methods, 3rd ed., 3.3.
    """
    if not differences or not all(math.isfinite(one) for one in differences):
        return None
    count = len(differences)
    means = sorted((differences[i] + differences[j]) / 2 for i in range(count) for j in range(i, count))
    cut, has = _cut(count, confidence)
    return Shift(estimate=median(means), low=means[cut], high=means[len(means) - 1 - cut], confidence=has)


def _cut(count: int, confidence: float) -> tuple[int, float]:
    """Return how many of the sorted means lie outside on each side, and the resulting confidence.

    P(T+ <= k) of the signed-rank statistic by counting the subsets of 1..n with each sum.
    """
    ways = [1]
    for rank in range(1, count + 1):
        longer = [*ways, *[0] * rank]
        for total, number in enumerate(ways):
            longer[total + rank] += number
        ways = longer
    below, cut = ways[0], 0
    while 1 - 2 * (below + ways[cut + 1]) / 2**count >= confidence:
        below += ways[cut + 1]
        cut += 1
    return cut, 1 - 2 * below / 2**count
