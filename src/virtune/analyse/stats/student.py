# SPDX-License-Identifier: Apache-2.0
"""Student's t: its quantile for an interval, and the interval of a mean."""

import math
from collections.abc import Sequence
from statistics import fmean, stdev


def two_sided(confidence: float, df: float) -> float:
    """Return how many standard errors lie on each side of an estimate with so many degrees of freedom."""
    # scipy takes longer to load than a study of a thousand trials takes to be read, so only who compares pays
    from scipy.special import stdtrit

    return float(stdtrit(df, 1 - (1 - confidence) / 2))


def mean_and_radius(values: Sequence[float], confidence: float) -> tuple[float, float | None]:
    """Return the mean of at least one value and the half-width of its interval; None for one value alone."""
    mean = fmean(values)
    if len(values) < 2:
        return mean, None
    return mean, two_sided(confidence, len(values) - 1) * stdev(values) / math.sqrt(len(values))
