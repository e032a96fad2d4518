# SPDX-License-Identifier: Apache-2.0
"""Many estimates with their variances: the variation between them, each against the others, two levels, and ranks."""

import math
from collections.abc import Callable, Sequence

import numpy as np
from numpy.typing import NDArray

from virtune.analyse.stats.noise import Values, between_groups

_HALVINGS = 60
"""So many halvings bring the bracket of a variance below the precision of a float."""


def mean_of(values: Values, variances: Values, between: float) -> tuple[float, float]:
    """Return the weighted mean and its standard error, for a known variance between hosts."""
    weights = 1 / (variances + between)
    return float(weights @ values / weights.sum()), float(weights.sum() ** -0.5)


def restricted_likelihood(values: Values, variances: Values, subsets: Values) -> Values:
    """Return the variance between hosts by restricted maximum likelihood, for each subset of them.

    A row of `subsets` has 1 for a host that is in it, else 0. The likelihood's slope is followed by bisection, since
    Fisher scoring can go back and forth for ever where one host is far more precise than the others.
    """
    high = np.full(len(subsets), np.ptp(values) ** 2 + variances.max())
    while (slopes := _slope(values, variances, subsets, high)).max() > 0:
        high = np.where(slopes > 0, 2 * high, high)
    low = np.zeros_like(high)
    for _ in range(_HALVINGS):
        middle = (low + high) / 2
        rising = _slope(values, variances, subsets, middle) > 0
        low, high = np.where(rising, middle, low), np.where(rising, high, middle)
    return np.where(_slope(values, variances, subsets, np.zeros_like(high)) > 0, (low + high) / 2, 0.0)


def _slope(values: Values, variances: Values, subsets: Values, between: Values) -> Values:
    """Return twice the derivative of the restricted likelihood by the variance between hosts (Viechtbauer 2005)."""
    weights = subsets / (variances + between[:, None])
    first, second = weights.sum(axis=1), (weights**2).sum(axis=1)
    means = weights @ values / first
    squares = (weights**2 * (values - means[:, None]) ** 2).sum(axis=1)
    return np.asarray(squares - first + second / first)


def false_discoveries(chances: Sequence[float] | Values) -> Values:
    """Return every p as Benjamini and Hochberg (1995) adjust it: as scipy.stats, which takes a second to load."""
    order = np.argsort(chances)[::-1]
    scaled = np.array(chances)[order] * len(order) / np.arange(len(order), 0, -1)
    adjusted = np.empty(len(order))
    adjusted[order] = np.minimum.accumulate(scaled).clip(max=1.0)
    return adjusted


def deleted_residuals(
    values: Values,
    variances: Values,
    heterogeneity: Callable[[Values, Values, Values], Values] = restricted_likelihood,
) -> tuple[Values, Values]:
    """Return each host's distance from the mean of the others, and the variance of that distance."""
    without = 1 - np.eye(len(values))
    between = heterogeneity(values, variances, without)
    weights = without / (variances + between[:, None])
    distances = values - weights @ values / weights.sum(axis=1)
    return distances, variances + between + 1 / weights.sum(axis=1)


_TWO_LEVELS = 0.64, 0.84
"""Values stand at two levels where these explain more of their variance than the first plus the second over the root
of their number: of normal ones 1 to 2 % do, of 6 to 100 values."""


def two_levels(ordered: Values) -> int:
    """Return how many of these values, in ascending order, are at the lower of two levels; 0 where one level and its
    variation explain them, and where a value would stand alone.
    """
    rest, count = ordered - ordered.mean(), len(ordered)
    if count < 6 or not (whole := float((rest**2).sum())):
        return 0
    between = between_groups(rest)[1:-1] / whole  # neither of one value
    return int(between.argmax()) + 2 if between.max() >= _TWO_LEVELS[0] + _TWO_LEVELS[1] / math.sqrt(count) else 0


DRAWS = 10_000
"""So many draws put the ends of a 95 % interval of ranks within one rank in forty."""


def drawn_ranks(
    values: Values, variances: Values, df: Sequence[float], *, confidence: float, seed: int
) -> tuple[Values, Values, Values, NDArray[np.bool_]]:
    """Return the mean rank of each value, 1 is the highest, the ends of its interval, and which it is tied with.

    Every draw takes each value with its noise anew (Student's t of its degrees of freedom) and ranks them; the
    interval holds that share of the draws (Goldstein and Spiegelhalter 1996; Marshall and Spiegelhalter 1998). Two
    are tied where each was above the other in more draws than an end of the interval leaves out.
    """
    chance = np.random.default_rng(seed)
    drawn = values + chance.standard_t(df, size=(DRAWS, len(values))) * np.sqrt(variances)
    # the place of each value, a row, in every draw, a column
    places = np.ascontiguousarray((-drawn).argsort(axis=1).argsort(axis=1).T.astype(np.int32) + 1)
    tail = (1 - confidence) / 2
    low, high = np.quantile(places, [tail, 1 - tail], axis=1, method="nearest")
    # in which share of the draws each value, a row, was above each other one
    above = np.array([np.count_nonzero(mine < places, axis=1) for mine in places]) / DRAWS
    return places.mean(axis=1), low, high, np.minimum(above, above.T) > tail
