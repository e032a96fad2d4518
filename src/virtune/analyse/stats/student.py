# SPDX-License-Identifier: Apache-2.0
"""Student's t: its quantile for an interval, and the interval of a mean. Fisher's exact test of two counts."""

import math
from collections.abc import Sequence
from functools import lru_cache
from statistics import fmean, stdev


def two_sided(confidence: float, df: float) -> float:
    """Return the two-sided quantile of Student's t with so many degrees of freedom."""
    # scipy takes longer to load than reading a study of a thousand trials, so it is imported only for comparisons
    from scipy.special import stdtrit

    return float(stdtrit(df, 1 - (1 - confidence) / 2))


def mean_and_radius(values: Sequence[float], confidence: float) -> tuple[float, float | None]:
    """Return the mean of at least one value and the half-width of its interval; None for a single value."""
    mean = fmean(values)
    if len(values) < 2:
        return mean, None
    return mean, two_sided(confidence, len(values) - 1) * stdev(values) / math.sqrt(len(values))


@lru_cache(maxsize=4096)
def fisher(hit: int, tried: int, others_hit: int, others_tried: int) -> float:
    """Return the one-sided p of Fisher's exact test that one of two groups is not hit more often than the other."""
    if not hit or not others_tried:
        return 1.0
    # exact, as scipy.stats.fisher_exact, which takes a second to load in the middle of a study
    total, all_hit = tried + others_tried, hit + others_hit
    as_many = (
        math.comb(all_hit, mine) * math.comb(total - all_hit, tried - mine)
        for mine in range(hit, min(all_hit, tried) + 1)
    )
    return sum(as_many) / math.comb(total, tried)
