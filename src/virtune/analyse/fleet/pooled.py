# SPDX-License-Identifier: Apache-2.0
"""The mean over hosts and the next host, by a random-effects model."""

import math
from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

from virtune.analyse.stats.student import two_sided
from virtune.model.errors import UsageError
from virtune.model.fleet import HostEstimate, Pooled

Values = NDArray[np.float64]

_HALVINGS = 60
"""So many halvings bring the bracket of a variance below the precision of a float."""


def pooled(estimates: Sequence[HostEstimate], *, confidence: float = 0.95) -> Pooled:
    """Return the mean over hosts with its interval, the interval of the next host, and how unlike the hosts are.

    Heterogeneity by restricted maximum likelihood (Viechtbauer 2005; recommended by Langan et al. 2019). The interval
    is Hartung and Knapp's (2001) with Student's t on k - 1 degrees of freedom; its error is never below that of the
    plain model (Roever, Knapp and Friede 2015: else too narrow where hosts are unequally precise). The next host's
    interval is that of Higgins, Thompson and Spiegelhalter (2009), with k - 2 degrees.
    Raises UsageError for fewer than two hosts.
    """
    from scipy.special import chdtrc

    values, variances = arrays(estimates)
    count = len(values)
    if count < 2:
        raise UsageError("one host has no mean over hosts", hint="gather a study of at least two hosts")
    between = float(restricted_likelihood(values, variances, everyone(values))[0])
    mean, plain = mean_of(values, variances, between)
    error = plain * math.sqrt(max(1.0, _spread_ratio(values, variances, between, mean)))
    radius = two_sided(confidence, count - 1) * error
    reach = two_sided(confidence, count - 2) * math.sqrt(between + error**2) if count > 2 else None
    q = cochran_q(values, variances)
    return Pooled(
        hosts=count,
        mean=mean,
        error=error,
        low=mean - radius,
        high=mean + radius,
        next_low=None if reach is None else mean - reach,
        next_high=None if reach is None else mean + reach,
        tau=math.sqrt(between),
        i_squared=_i_squared(variances, between),
        q=q,
        q_p=float(chdtrc(count - 1, q)),
        confidence=confidence,
    )


def arrays(estimates: Sequence[HostEstimate]) -> tuple[Values, Values]:
    """Return the values and their variances. Raises UsageError where one of them is unusable."""
    for one in estimates:
        if not (math.isfinite(one.value) and math.isfinite(one.error) and one.error > 0 and one.df > 0):
            raise UsageError(f"{one.host} has no usable standard error", hint="measure at least two rounds on it")
    values = np.array([one.value for one in estimates], dtype=np.float64)
    return values, np.array([one.error for one in estimates], dtype=np.float64) ** 2


def mean_of(values: Values, variances: Values, between: float) -> tuple[float, float]:
    """Return the weighted mean and its standard error, for a known variance between hosts."""
    weights = 1 / (variances + between)
    return float(weights @ values / weights.sum()), float(weights.sum() ** -0.5)


def cochran_q(values: Values, variances: Values) -> float:
    """Return Cochran's Q: the weighted squares of the distances from the mean without variation between hosts."""
    mean, _ = mean_of(values, variances, 0.0)
    return float(((values - mean) ** 2 / variances).sum())


def everyone(values: Values) -> Values:
    """Return one subset of the hosts with all of them in it."""
    return np.ones((1, len(values)))


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


def _spread_ratio(values: Values, variances: Values, between: float, mean: float) -> float:
    """Return Hartung and Knapp's q: the observed weighted spread over the one that the model expects."""
    return float(((values - mean) ** 2 / (variances + between)).sum() / (len(values) - 1))


def _i_squared(variances: Values, between: float) -> float:
    """Return Higgins and Thompson's (2002) I squared, with their typical variance of a host's noise."""
    weights = 1 / variances
    typical = (len(variances) - 1) * weights.sum() / (weights.sum() ** 2 - (weights**2).sum())
    return float(between / (between + typical))
