# SPDX-License-Identifier: Apache-2.0
"""The noise of differences within rounds: Huber's clipping of dips, variances moderated by the other pairs.

Values come as ln(metric), one row a round, one column an arm or a pair, NaN where nothing was measured.
"""

from collections.abc import Callable

import numpy as np
from numpy.typing import NDArray

Values = NDArray[np.float64]
"""ln(metric), blocks x arms; NaN is "not measured"."""

EQUAL = 1e-12
"""Differences that vary less than this (ln) count as equal: it is the rounding of doubles."""

_WEIGHT_MIN = 0.3
"""The least share of unclipped differences that a pseudo-value is scaled by, so that few blocks do not blow it up."""

_ALIKE_LEVEL = 0.99
"""A pair that is noisier than the others beyond this quantile of F keeps its own variance. Without this one noisy arm
among many would be judged by the noise of quiet ones.
"""


def pseudo_values(found: Values, *, clip: float) -> Values:
    """Return values whose column mean is Huber's M-estimate, and whose variance over n is that estimate's variance.

    The scale is that of all columns together, from the median absolute deviation, because a single column's is
    unreliable with few blocks; but a column that is noisier than the rest has its own scale, or all of it would be
    clipped.
    """
    center = median_of(found)
    apart = np.abs(found - center)
    scale = 1.4826 * np.maximum(median_of(apart), median_of(apart.reshape(-1, 1)))
    if scale.min() < EQUAL:  # more than half are equal: dips cannot be recognised, so all differences count in full
        return found
    here = ~np.isnan(found)
    count = here.sum(axis=0)
    filled = np.where(here, found, 0.0)
    pseudo = found
    for _ in range(7):
        z = (filled - center) / scale
        inside = (here & (np.abs(z) <= clip)).sum(axis=0)
        weight = np.maximum(inside / count, _WEIGHT_MIN)
        pseudo = center + scale * np.clip(z, -clip, clip) / weight
        center = np.where(here, pseudo, 0.0).sum(axis=0) / count
    return np.where(here, pseudo, np.nan)


def median_of(found: Values) -> Values:
    """Return each column's median without its NaN; numpy's own for that takes ten times as long on few rows."""
    count = (~np.isnan(found)).sum(axis=0)
    ordered = np.sort(found, axis=0)  # NaN last
    column = np.arange(found.shape[1])
    middle: Values = (ordered[(count - 1) // 2, column] + ordered[count // 2, column]) / 2
    return middle


def moderated(own: Values, df: Values, *, arms: int, lent: Callable[[float, int], float]) -> tuple[Values, Values]:
    """Return each pair's variance and degrees of freedom, moderated by the pooled variance of the other pairs.

    All pairs of N arms hold only N - 1 independent differences. `lent` gives the degrees of freedom that a pair takes
    from the pool, by its own and the number of arms, so that its own noise keeps its weight (Smyth 2004, with fixed
    weights).
    """
    if len(own) < 2:
        return own, df
    pooled = float((own * df).sum() / df.sum())
    if pooled <= 0:
        return own, df
    # scipy takes longer to load than reading a thousand trials: imported only for comparisons
    from scipy.special import fdtri

    from_others = np.array([lent(float(one), arms) for one in df])
    total = max(1.0, (arms - 1) * float(df.max()))
    from_others = np.where(own > pooled * fdtri(df, total, _ALIKE_LEVEL), 0.0, from_others)
    return (from_others * pooled + df * own) / (from_others + df), df + from_others


def lag1_of(weighed: Values) -> float:
    """Return the lag-1 autocorrelation over all pairs together, -1 to 1; 0 where nothing varies.

    Pairs count by their squares: give each over its standard deviation for all to count alike. For n independent
    values less their mean it is -1/n on average, which is added back.
    """
    blocks = float((~np.isnan(weighed)).sum(axis=0).mean())
    rest = weighed - np.nanmean(weighed, axis=0)
    squares = float(np.nansum(rest**2))
    if squares <= 0:
        return 0.0
    return float(np.nansum(rest[1:] * rest[:-1])) / squares + 1 / blocks
