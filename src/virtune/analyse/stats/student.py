# SPDX-License-Identifier: Apache-2.0
"""Student's t: its quantile for an interval, and the interval of a mean."""

import math
from collections.abc import Sequence
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
