# SPDX-License-Identifier: Apache-2.0
"""Odd hosts: a funnel whose limits know the noise of each host and how unlike the hosts are anyway."""

import math
from collections.abc import Callable, Sequence

import numpy as np

from virtune.analyse.fleet.pooled import Values, arrays, restricted_likelihood
from virtune.analyse.stats.student import two_sided
from virtune.model.errors import UsageError
from virtune.model.fleet import FunnelPoint, HostEstimate

HOSTS_MIN = 3
"""Of two hosts neither is the odd one. Of three, the two others tell with one degree of freedom how unlike hosts are,
so that only a host is named which is some forty times as far away (t at p = 0.05 / 3) as they are from each other; of
five it must be six standard deviations away."""

FALSE_DISCOVERY = 0.05
"""Of the hosts called odd, at most this share is not odd, in the long run. Where no host is odd, this is the chance
that any is called so."""


def funnel(estimates: Sequence[HostEstimate], *, rate: float = FALSE_DISCOVERY) -> tuple[FunnelPoint, ...]:
    """Return every host's distance from the others, in the order given, and which are odd.

    Each host is compared with the mean of the others, so that it cannot hide itself in the variation that it makes
    (deleted residuals: Viechtbauer and Cheung 2010). Limits widen with a host's own noise and with the variation
    between hosts (funnel plot with additive over-dispersion: Spiegelhalter 2005); no host counts as quieter than a
    typical one. Degrees of freedom of the two by
    Welch and Satterthwaite; false discoveries over all hosts by Benjamini and Hochberg (1995). Several hosts that are
    odd in the same way widen the limits for one another. Raises UsageError for fewer than HOSTS_MIN hosts.
    """
    from scipy.special import stdtr

    if len(estimates) < HOSTS_MIN:
        raise UsageError(
            f"{len(estimates)} hosts cannot tell which one is odd", hint=f"gather a study of at least {HOSTS_MIN}"
        )
    values, variances = arrays(estimates)
    # by few rounds a host may look quieter than it is, and then everything would be beyond its noise
    typical = float(np.median(variances))
    owns = np.maximum(variances, typical)
    residuals = deleted_residuals(values, variances)
    found = [
        (distance, together + more) for (distance, together), more in zip(residuals, owns - variances, strict=True)
    ]
    freedom = [
        _freedom(own, one.df, together - own, typical, len(values) - 2)
        for own, one, (_, together) in zip(owns, estimates, found, strict=True)
    ]
    chances = [
        float(2 * stdtr(df, -abs(distance) / math.sqrt(together)))
        for df, (distance, together) in zip(freedom, found, strict=True)
    ]
    adjusted = false_discoveries(chances)
    return tuple(
        FunnelPoint(
            host=one.host,
            distance=distance,
            residual=distance / math.sqrt(together),
            limit=two_sided(0.95, df) * math.sqrt(together),
            p=p,
            adjusted=float(q),
            odd=bool(q <= rate),
        )
        for one, (distance, together), df, p, q in zip(estimates, found, freedom, chances, adjusted, strict=True)
    )


def false_discoveries(chances: Sequence[float]) -> Values:
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
) -> list[tuple[float, float]]:
    """Return for each host its distance from the mean of the others, and the variance of that distance."""
    without = 1 - np.eye(len(values))
    between = heterogeneity(values, variances, without)
    weights = without / (variances + between[:, None])
    distances = values - weights @ values / weights.sum(axis=1)
    together = variances + between + 1 / weights.sum(axis=1)
    return list(zip(distances.tolist(), together.tolist(), strict=True))


def _freedom(own: float, own_df: float, between: float, typical: float, between_df: float) -> float:
    """Return the degrees of freedom of a host's own variance and the one between hosts together (Satterthwaite 1946).

    The variance between hosts is what is left of the others' variance without their `typical` noise, so it is as
    uncertain as the two together. Taken by itself, one of zero would be called certain: of five alike hosts one was
    then called odd in 15 % of fleets.
    """
    return (own + between) ** 2 / (own**2 / own_df + (between + typical) ** 2 / between_df)
