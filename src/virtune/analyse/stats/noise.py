# SPDX-License-Identifier: Apache-2.0
"""The noise of differences within rounds: Huber's clipping of dips, variances moderated by the other pairs. And how
stationary a host was: autocorrelation time, drift, variation between starts.

Values come as ln(metric), one row a round, one column an arm or a pair, NaN where nothing was measured.
"""

import math
from collections.abc import Callable, Hashable, Mapping, Sequence
from statistics import fmean

import numpy as np
from numpy.typing import NDArray

from virtune.analyse.stats.student import two_sided
from virtune.model.result import Drift

Values = NDArray[np.float64]
"""ln(metric), blocks x arms; NaN is "not measured"."""

EQUAL = 1e-12
"""Differences that vary less than this (ln) count as equal: it is the rounding of doubles."""

_WEIGHT_MIN = 0.3
"""The least share of unclipped differences that a pseudo-value is scaled by, so that few blocks do not blow it up."""

FAR_OUT = 2.0
"""Differences of more than so many times the clipping distance are far out. A host's hit one arm as often as another,
so that as many lie on one side as on the other. What one side has more of, by two or more (of up to _ONE_SUFFICES
rounds by one), is an arm's own and counts in full: an arm with a level that it has in one round of ten, and the same
mean as the baseline, was called different in 20 to 50 % of plans without (`benchmarks/decide.md`)."""

ONE_SIDED = 0.06
"""Where the share of differences clipped on one side exceeds that on the other by more than this, and by more than
one round (of up to _ONE_SUFFICES rounds by one), there is a second level. Without it an arm of two levels is called
different in 11 to 21 % of plans (`benchmarks/decide.md`)."""

_ONE_SUFFICES = 11
"""In so few rounds one that is far off may be half of what an arm does: more false alarms without this than 5 %."""

_ALIKE_LEVEL = 0.99
"""A pair that is noisier than the others beyond this quantile of F keeps its own variance. Without this one noisy arm
among many would be judged by the noise of quiet ones.
"""


def pseudo_values(found: Values, *, clip: float) -> Values:
    """Return values whose column mean is Huber's M-estimate, and whose variance over n is that of this estimate."""
    return clipped(found, clip=clip, far=math.inf)[0]


def clipped(found: Values, *, clip: float, far: float = FAR_OUT) -> tuple[Values, NDArray[np.bool_]]:
    """Return values whose column mean is Huber's M-estimate, and whose variance over n is that estimate's variance.

    The last two axes are rounds and columns; further ones are kept. The scale is that of all columns together, from
    the median absolute deviation, because a single column's is unreliable with few blocks; but a column that is
    noisier than the rest has its own scale, or all of it would be clipped. What one side has more of that is far out
    counts in full. Besides, which columns are such, or are clipped more on one side than on the other by more than
    ONE_SIDED of the rounds: that is no dip of the host but a second level, and the clipped mean is that of the more
    frequent one.
    """
    center = median_of(found)
    apart = np.abs(found - center[..., None, :])
    pooled = median_of(apart.reshape(*found.shape[:-2], -1, 1))
    scale = 1.4826 * np.maximum(median_of(apart), pooled)
    here = ~np.isnan(found)
    count = here.sum(axis=-2)
    # more than half are equal: dips cannot be recognised, so all differences count in full
    kept = scale.min(axis=-1)[..., None, None] < EQUAL
    scale, filled = np.maximum(scale, EQUAL), np.where(here, found, 0.0)
    pseudo, z, uneven = found, np.zeros_like(found), np.zeros(count.shape, bool)
    for _ in range(7):
        z = np.where(here, (filled - center[..., None, :]) / scale[..., None, :], 0.0)
        whole, uneven = _surplus(z, far * clip, np.where(count > _ONE_SUFFICES, 2, 1))
        weight = np.maximum((here & (whole | (np.abs(z) <= clip))).sum(axis=-2) / count, _WEIGHT_MIN)
        pseudo = center[..., None, :] + (scale / weight)[..., None, :] * np.where(whole, z, np.clip(z, -clip, clip))
        center = np.where(here, pseudo, 0.0).sum(axis=-2) / count
    lopsided = np.abs((z > clip).sum(axis=-2) - (z < -clip).sum(axis=-2))
    uneven |= lopsided > np.maximum(ONE_SIDED * count, count > _ONE_SUFFICES)
    return np.where(here, np.where(kept, found, pseudo), np.nan), uneven


def _surplus(z: Values, far: float, least: NDArray[np.int64]) -> tuple[NDArray[np.bool_], NDArray[np.bool_]]:
    """Return which values are far out and more than the other side has, the least far first; and the columns in which
    these are `least` or more.
    """
    up, down = (z > far).sum(axis=-2), (z < -far).sum(axis=-2)
    uneven: NDArray[np.bool_] = np.abs(up - down) >= least
    whole = np.zeros(z.shape, bool)
    if uneven.any():
        columns = np.swapaxes(z, -1, -2)[uneven]
        rank = columns.argsort(axis=-1).argsort(axis=-1)
        alike = np.minimum(up, down)[uneven][:, None]
        inner = (rank >= alike) & (rank < columns.shape[-1] - alike)
        np.swapaxes(whole, -1, -2)[uneven] = inner & (np.abs(columns) > far)
    return whole, uneven


def median_of(found: Values) -> Values:
    """Return each column's median without its NaN; numpy's own for that takes ten times as long on few rows."""
    count = (~np.isnan(found)).sum(axis=-2)
    ordered = np.sort(found, axis=-2)  # NaN last
    ends = np.stack([(count - 1) // 2, count // 2], axis=-2)
    middle: Values = np.take_along_axis(ordered, ends, axis=-2).mean(axis=-2)
    return middle


def between_groups(ordered: Values) -> Values:
    """Return the squares between two groups of these values, whose mean is 0: the first one and the others, the first
    two and the others, and so on. Where they are in order the largest is of the best split (Fisher, J. Am. Stat.
    Assoc. 53, 1958).
    """
    count = ordered.shape[-1]
    low, first = np.cumsum(ordered, axis=-1)[..., :-1], np.arange(1, count)
    return np.asarray(low**2 * (1 / first + 1 / (count - first)))


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


def lag1_of(weighed: Values) -> Values:
    """Return the lag-1 autocorrelation over all pairs together, -1 to 1; 0 where nothing varies. The last two axes
    are rounds and pairs.

    Pairs count by their squares: give each over its standard deviation for all to count alike. For n independent
    values less their mean it is -1/n on average, which is added back.
    """
    here = ~np.isnan(weighed)
    count = here.sum(axis=-2)
    filled = np.where(here, weighed, 0.0)
    rest = np.where(here, filled - (filled.sum(axis=-2) / np.maximum(count, 1))[..., None, :], 0.0)
    squares = (rest**2).sum(axis=(-2, -1))
    products = (rest[..., 1:, :] * rest[..., :-1, :]).sum(axis=(-2, -1))
    known: Values = products / np.where(squares > 0, squares, 1.0) + 1 / np.maximum(count.mean(axis=-1), 1)
    return np.where(squares > 0, known, 0.0)


DRIFT_LEVEL = 0.95

POINTS_MIN = 4
"""A line through fewer points has no usable error estimate."""


def correlation_of(profiles: Sequence[Sequence[float]], step: float) -> tuple[float | None, bool]:
    """Return the integrated autocorrelation time in seconds, and whether it goes on beyond the trials' length.

    1 + 2 x the sum of the autocorrelations up to the first that is not positive, over all trials around one mean.
    """
    values = [value for profile in profiles for value in profile]
    center = fmean(values) if values else 0.0
    spread = fmean((value - center) ** 2 for value in values) if values else 0.0
    if spread <= 0:
        return None, False
    total = 1.0
    around = [np.array(profile, dtype=np.float64) - center for profile in profiles]
    for lag in range(1, max(map(len, around))):
        longer = [profile for profile in around if len(profile) > lag]
        products = sum(float(profile[:-lag] @ profile[lag:]) for profile in longer)
        if products <= 0:
            return total * step, False
        total += 2 * products / sum(len(profile) - lag for profile in longer) / spread
    return total * step, True


SLOPE_MAX = math.log(1e6)
"""Where the interval includes a millionfold a minute, the times are too close together, or wrong: no drift is
reported.
"""


def drift_of(series: Mapping[str, Sequence[tuple[float, float]]], *, level: float = DRIFT_LEVEL) -> Drift | None:
    """Return the slope of ln(rate) over time, common to all arms, by least squares, with Student's t on its error.

    `series` are (minutes, ln rate) by arm; each arm has a level of its own.
    """
    kept = [points for points in series.values() if len(points) > 1]
    free = sum(map(len, kept)) - len(kept) - 1
    if sum(map(len, kept)) < POINTS_MIN or free < 1:
        return None
    moved = [
        (time - when, value - level)
        for points in kept
        for when, level in [(fmean(x for x, _ in points), fmean(y for _, y in points))]
        for time, value in points
    ]
    width = math.fsum(time**2 for time, _ in moved)
    if width <= 0:
        return None
    slope = math.fsum(time * value for time, value in moved) / width
    left = math.fsum((value - slope * time) ** 2 for time, value in moved)
    radius = two_sided(level, free) * math.sqrt(left / free / width)
    if abs(slope) + radius > SLOPE_MAX:
        return None
    return Drift(per_minute=math.expm1(slope), low=math.expm1(slope - radius), high=math.expm1(slope + radius))


def between_starts(values: Sequence[tuple[Hashable, float]]) -> float | None:
    """Return the standard deviation (ln) between starts, besides the noise of trials within a start; 0 if none is
    detected.

    `values` are (start, ln value less the arm's mean). None unless several starts were measured, one of them more
    than once. Method of moments in a one-way layout (Searle, Casella, McCulloch 1992, 3.6).
    """
    groups: dict[Hashable, list[float]] = {}
    for start, value in values:
        groups.setdefault(start, []).append(value)
    count, starts = len(values), len(groups)
    if starts < 2 or count <= starts:
        return None
    center = fmean(value for _, value in values)
    within = math.fsum((value - fmean(one)) ** 2 for one in groups.values() for value in one) / (count - starts)
    between = math.fsum(len(one) * (fmean(one) - center) ** 2 for one in groups.values()) / (starts - 1)
    size = (count - math.fsum(len(one) ** 2 for one in groups.values()) / count) / (starts - 1)
    return math.sqrt(max(0.0, (between - within) / size))
