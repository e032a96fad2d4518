# SPDX-License-Identifier: Apache-2.0
"""The noise of differences within rounds: Huber's clipping of dips, variances moderated by the other pairs.

Values come as ln(metric), one row a round, one column an arm or a pair, NaN where nothing was measured.
"""

from collections.abc import Callable, Sequence

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

_FREEDOMS = tuple(2.0**power for power in range(11))


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


def moderated(
    own: Values,
    df: Values,
    *,
    arms: int,
    lent: Callable[[float, int], float],
    among: NDArray[np.bool_] | None = None,
) -> tuple[Values, Values]:
    """Return each pair's variance and degrees of freedom, moderated by the pooled variance of the other pairs.

    All pairs of N arms hold only N - 1 independent differences. `lent` gives the degrees of freedom that a pair takes
    from the pool, by its own and the number of arms, so that its own noise keeps its weight (Smyth 2004, with fixed
    weights). Only the pairs `among` are pooled, those of `arms` similar arms; without it all are.
    """
    borrows = np.ones(len(own), dtype=bool) if among is None else among
    if borrows.sum() < 2:
        return own, df
    from_others = np.array([lent(float(one), arms) for one in df])
    pooled = float((own * df)[borrows].sum() / df[borrows].sum())
    if pooled <= 0:
        return own, df
    # scipy takes longer to load than reading a thousand trials: imported only for comparisons
    from scipy.special import fdtri

    total = max(1.0, (arms - 1) * float(df.max()))
    noisy = own > pooled * fdtri(df, total, _ALIKE_LEVEL)
    from_others = np.where(noisy | ~borrows, 0.0, from_others)
    return (from_others * pooled + df * own) / (from_others + df), df + from_others


def common_freedom(own: Values, df: Values) -> float:
    """Return the degrees of freedom that the pooled noise of these pairs is worth for each: the more their variances
    differ beyond chance, the fewer (Smyth, Stat. Appl. Genet. Mol. Biol. 3, 2004, 6.2: the estimate of d0).

    Rounded down to a power of two from 1 to 1024, since few pairs tell it no better than that.
    """
    known = own >= EQUAL**2
    if known.sum() < 2:
        return _FREEDOMS[-1]
    # scipy takes longer to load than reading a thousand trials: imported only for comparisons
    from scipy.special import polygamma

    beyond = np.log(own[known]).var(ddof=1) - polygamma(1, df[known] / 2).mean()
    return max((one for one in _FREEDOMS if polygamma(1, one / 2) >= beyond), default=_FREEDOMS[0])


def noisy_arms(own: Values, pairs: Sequence[tuple[int, int]], df: Values, *, level: float) -> frozenset[int]:
    """Return the arms that are noisier than the others together, tested at this level over all arms, worst first.

    Each arm's own variance follows from those of all pairs, since that of a difference is the sum of its two arms'
    (Grubbs, J. Am. Stat. Assoc. 43, 1948). Of k equal arms with n degrees of freedom it is as certain as one with n /
    (1 + 2 / (k - 1) + 1 / ((k - 1) (k - 2))): the estimate is a sum of elements of the sample covariance matrix, with
    variances 2 / n on its diagonal and 1 / n beside it. An arm that is found is left out, and the rest are tested
    again. With fewer than three arms, or with pairs missing, none can be found.
    """
    arms = sorted({arm for pair in pairs for arm in pair})
    if len(pairs) != len(arms) * (len(arms) - 1) // 2:
        return frozenset()
    # scipy takes longer to load than reading a thousand trials: imported only for comparisons
    from scipy.special import fdtri

    known, free, noisy = dict(zip(pairs, own, strict=True)), float(df.max()), frozenset[int]()
    while (count := len(arms)) >= 3:
        half = sum(known.values()) / (count - 1)
        with_arm = np.array([sum(one for pair, one in known.items() if arm in pair) for arm in arms])
        each = (with_arm - half) / (count - 2)
        worst = int(each.argmax())
        others = max(0.0, float(each.sum() - each[worst]) / (count - 1))
        certain = free / (1 + 2 / (count - 1) + 1 / ((count - 1) * (count - 2)))
        if each[worst] <= float(fdtri(certain, (count - 1) * certain, 1 - level / count)) * others:
            return noisy
        gone = arms.pop(worst)
        noisy |= {gone}
        known = {pair: one for pair, one in known.items() if gone not in pair}
    return noisy


def lag1_of(weighed: Values) -> float:
    """Return the lag-1 autocorrelation over all pairs together, -1 to 1; 0 where nothing varies.

    For n independent values less their mean it is -1/n on average, which is added back.
    """
    blocks = float((~np.isnan(weighed)).sum(axis=0).mean())
    rest = weighed - np.nanmean(weighed, axis=0)
    squares = float(np.nansum(rest**2))
    if squares <= 0:
        return 0.0
    return float(np.nansum(rest[1:] * rest[:-1])) / squares + 1 / blocks
