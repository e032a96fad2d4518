# SPDX-License-Identifier: Apache-2.0
"""Group-sequential boundaries: the error of a comparison with a planned end is spent over its interim looks, most of
it at the end.

A plan ends after a time or a number of rounds, with interim looks. The error that may be spent up to a look depends
only on the share of the plan that is done, not on the data (Lan, DeMets, Biometrika 70, 1983; by time: Lan, DeMets,
Statistics in Medicine 8, 1989). The boundary of each look follows by the recursion of Armitage, McPherson and Rowe
(J. R. Stat. Soc. A 132, 1969) over the sums of independent rounds. A look's boundary gives an interval that holds at
all looks together (repeated confidence interval: Jennison, Turnbull, J. R. Stat. Soc. B 51, 1989). Student's t
replaces the normal distribution at the level of a look (Pocock, Biometrika 64, 1977).
"""

import math
from functools import lru_cache

import numpy as np
from numpy.typing import NDArray

EARLY = 0.06
"""The share of the error that is spent evenly over the plan, so that a large difference ends it after five rounds.
The rest is spent late: the last look then has a level of 4.9 % where a test with one look has 5 %.
"""

LATE = 32.0
"""How late the rest is spent, as the power of e by which it grows (Hwang, Shih, DeCani, Stat. Med. 9, 1990: gamma
-32). O'Brien and Fleming's, at about -4, spends more half-way, when the autocorrelation of rounds is still uncertain:
then 9 to 14 % of equal arms are called different at an autocorrelation of 0.3, and 6 % by this.
"""

_POINTS = 257
"""The points of the grid between the boundaries; odd, as Simpson's rule requires. The boundaries are then exact to
1e-4.
"""

_FAR = 12.0
"""A boundary beyond so many standard deviations spends no error and is left out."""

_PLAN_LOOKS = 40
"""The number of looks that a forecast assumes; more of them hardly change the last boundary."""

Looks = tuple[tuple[float, float], ...]
"""(rounds, share of the plan done), rising in both, for every look so far."""

Grid = tuple[NDArray[np.float64], NDArray[np.float64]]
"""Sums between the boundaries and the weighted density there: the state after a look."""


def spent(share: float, alpha: float) -> float:
    """Return the part of `alpha` that may be spent when this share (0 to 1) of a plan is done; at 1 all of it."""
    done = min(max(share, 0.0), 1.0)
    return alpha * (EARLY * done + (1 - EARLY) * math.expm1(LATE * done) / math.expm1(LATE))


def level_of(looks: Looks, alpha: float) -> float:
    """Return the two-sided level of the last of these looks, so that the error of all looks together is at most
    `alpha`. 0 where nothing is left for the look.

    Exact for the mean of independent Gaussian rounds; error 1e-4 of the level.
    """
    if not looks:
        return 0.0
    return level_after(tuple((rounds, spent(share, alpha)) for rounds, share in looks))


def final_level(alpha: float) -> float:
    """Return the approximate level at the last look of any plan, for forecasts."""
    steps = range(1, _PLAN_LOOKS + 1)
    return level_of(tuple((float(step), step / _PLAN_LOOKS) for step in steps), alpha)


def level_after(cumulative: Looks) -> float:
    """Return the level at the last look, where (rounds, error spent so far) are given for each."""
    from scipy.special import ndtr

    boundary, _ = _at(cumulative)
    return float(2 * ndtr(-boundary))


@lru_cache(maxsize=4096)
def _at(cumulative: Looks) -> tuple[float, Grid]:
    """Return the last look's boundary, in standard deviations of the sum, and the state after it."""
    start = max((index for index in range(1, len(cumulative)) if index % 50 == 0), default=0)
    for index in range(50, start + 1, 50):  # deep recursions are done in steps, whose results are remembered
        _at(cumulative[:index])
    rounds, total = cumulative[-1]
    before_rounds, before = cumulative[-2] if len(cumulative) > 1 else (0.0, 0.0)
    from scipy.special import ndtri

    increment = total - before
    if len(cumulative) == 1:
        boundary = _FAR if increment <= 0 else min(_FAR, -float(ndtri(increment / 2)))
        sums = _points(boundary * math.sqrt(rounds))
        density = np.exp(-(sums**2) / (2 * rounds)) / math.sqrt(2 * math.pi * rounds)
        return boundary, (sums, density * _simpson(sums))
    sums, mass = _at(cumulative[:-1])[1]
    step = math.sqrt(rounds - before_rounds)
    edge = _edge(sums, mass, step, increment, far=_FAR * math.sqrt(rounds))
    ahead = _points(edge)
    kernel = np.exp(-(((ahead[:, None] - sums[None, :]) / step) ** 2) / 2) / (step * math.sqrt(2 * math.pi))
    return edge / math.sqrt(rounds), (ahead, (kernel @ mass) * _simpson(ahead))


def _edge(
    sums: NDArray[np.float64], mass: NDArray[np.float64], step: float, increment: float, *, far: float
) -> float:
    """Return the sum beyond which, on both sides, just the increment of the error lies."""
    from scipy.special import ndtr

    def beyond(edge: float) -> float:
        return 2 * float(mass @ ndtr((sums - edge) / step))

    if increment <= 0 or beyond(far) >= increment:
        return far
    low, high = 0.0, far
    while high - low > 1e-9 * far:
        middle = (low + high) / 2
        low, high = (middle, high) if beyond(middle) > increment else (low, middle)
    return high


def _points(edge: float) -> NDArray[np.float64]:
    return np.linspace(-edge, edge, _POINTS)


def _simpson(points: NDArray[np.float64]) -> NDArray[np.float64]:
    weights = np.ones(len(points))
    weights[1:-1:2], weights[2:-1:2] = 4.0, 2.0
    found: NDArray[np.float64] = weights * (points[1] - points[0]) / 3
    return found


@lru_cache(maxsize=256)
def dunnett_alpha(others: int, alpha: float) -> float:
    """Return the error of each of `others` comparisons with one baseline, for a total error of `alpha`.

    Any two of them share the baseline, so their correlation is 0.5 where all arms are equally noisy (Dunnett, J. Am.
    Stat. Assoc. 50, 1955; normal quantiles, which are conservative compared with his t). By Gauss-Hermite quadrature,
    exact to 1e-8.
    """
    if others < 2:
        return alpha
    from scipy.special import ndtr, ndtri

    common, weights = np.polynomial.hermite_e.hermegauss(64)
    weights = weights / weights.sum()
    half = math.sqrt(0.5)

    def within(bound: float) -> float:
        each = ndtr((bound - half * common) / half) - ndtr((-bound - half * common) / half)
        return float(weights @ each**others)

    low, high = 0.0, -float(ndtri(alpha / (2 * others)))  # Bonferroni's
    while high - low > 1e-10:
        middle = (low + high) / 2
        low, high = (middle, high) if within(middle) < 1 - alpha else (low, middle)
    return float(2 * ndtr(-high))
