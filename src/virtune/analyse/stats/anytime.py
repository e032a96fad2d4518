# SPDX-License-Identifier: Apache-2.0
"""Anytime-valid confidence intervals of differences: they hold after every block, whenever one stops. And the levels
of all arms estimated from all blocks, where not every block held every arm.

Values come as ln(metric), one row a block, one column an arm, NaN where an arm did not run or gave nothing. The data
are the differences of two arms within blocks. Ordinary 95 % t intervals, checked after every block until one excludes
zero, are wrong in 40 % of cases; the normal mixture of t tests keeps its error however often one looks (Wang, Ramdas,
arXiv 2310.03722; Lindon et al., arXiv 2210.08589). It is exact for independent Gaussian differences. Real disks need
additions, checked by simulation (`benchmarks/simulated.py`): Huber's weights against dips, a variance moderated by
the other pairs while blocks are few, and a correction for autocorrelated blocks.

A parked arm and the leader share only early blocks, in which the leader probably had luck. So leader and contenders
are judged from all blocks together: ln value = level of the block + level of the arm + noise, with the arms' levels
shrunk towards their common mean (the best linear unbiased prediction of a two-way layout with random arms; Henderson
1975, Searle, Casella, McCulloch 1992, 7.4), single dips clipped as Huber does. This only decides what to measure
next. The reported results rest on the intervals of `anytime`.
"""

import math
from bisect import bisect_left
from collections.abc import Hashable, Sequence
from functools import partial
from statistics import NormalDist

import numpy as np

from virtune.analyse.stats.noise import EQUAL, Values, lag1_of, moderated, pseudo_values
from virtune.model.reason import NO_MEASUREMENT, Reason, Why, because
from virtune.model.tuning import Contrast

LN_MAX = 745.2
"""No ln of a positive double lies further from 0; a larger value is not a measurement."""

HUBER_K = 1.5
"""Differences of more than so many (robust) standard deviations count as that many: 96 % efficient for normal data,
and a dip of the host in one block does not decide the verdict (Huber 1964).
"""

PRIOR = 1.0
"""The mixture's variance, in standard deviations of one block: the radius is smallest for effects of about this size.
Between 0.3 and 3 it changes by less than 5 % at ten blocks and more."""

LAG1_MAX = 0.9
"""Beyond this the correction would divide by almost zero; such blocks carry almost no information."""

LAG1_DOUBT = 1.0
"""So many of its own standard errors are added to the lag-1 correlation of blocks. With none, two equal arms whose
blocks correlate by 0.3 are called different in 9 % of studies that look 60 times at "95 %", with one in 5 to 6 %."""

FORESEEN = 0.9
"""The probability with which forecasts hold, if the noise stays."""

_BLOCKS_FAR = 10**7
"""The longest forecast in blocks: four months at a second a block."""


def logs(values: Sequence[float]) -> list[float]:
    """Return ln of each value, NaN for an impossible rate or time: zero, negative, infinite, not a number."""
    return [math.log(value) if math.isfinite(value) and value > 0 else math.nan for value in values]


def quantile(blocks: float, df: float, alpha: float) -> float:
    """Return the |t| that a mean over `blocks` blocks exceeds, ever, with probability at most `alpha`.

    Infinite where there are too few blocks to exclude anything. Source: the right-Haar mixture t test, method of Wang
    and Ramdas: with g = 1 + n tau^2 and K = (sqrt(g) / alpha)^(2 / (df + 1)) it is sqrt(df (K - 1) / (1 - K / g)).
    """
    if blocks < 2 or df <= 0:
        return math.inf
    gain = 1 + blocks * PRIOR
    power = 2 / (df + 1) * (math.log(gain) / 2 - math.log(alpha))
    if power >= math.log(gain):
        return math.inf
    bound = math.exp(power)
    return math.sqrt(df * (bound - 1) / (1 - bound / gain))


def contrast(a: Sequence[float], b: Sequence[float], *, alpha: float) -> Contrast:
    """Compare two arms by their ln values of the same blocks; see `contrasts`."""
    return contrasts(np.array([a, b], dtype=np.float64).T.reshape(-1, 2), [(0, 1)], alpha=alpha)[0]


def contrasts(
    values: Values,
    pairs: Sequence[tuple[int, int]],
    *,
    alpha: float,
    doubt: float = LAG1_DOUBT,
    units: Sequence[Hashable] | None = None,
) -> list[Contrast]:
    """Compare pairs of arms (columns of `values`), each with an interval of confidence 1 - `alpha` at any time.

    The pairs' noise is pooled in part, so give pairs of one workload and one metric. Arms with equal `units` (one for
    each column) are not independent within a block, and count as one when noise is pooled. No values raise an error:
    a pair without an interval has an infinite radius and the reason.
    """
    if not pairs:
        return []
    usable = np.where(np.abs(values) <= LN_MAX, values, np.nan)
    found = usable[:, [a for a, _ in pairs]] - usable[:, [b for _, b in pairs]]
    blocks = (~np.isnan(found)).sum(axis=0)
    known = blocks >= 2
    answers = [Contrast(blocks=int(n), why=too_few(int(n))) for n in blocks]
    if not known.any():
        return answers
    weighed = pseudo_values(found[:, known], clip=HUBER_K)
    mean, own = np.nanmean(weighed, axis=0), np.nanvar(weighed, axis=0, ddof=1)
    taking_part = {arm for pair, good in zip(pairs, known, strict=True) if good for arm in pair}
    arms = len(taking_part if units is None else {units[arm] for arm in taking_part})
    variance, df = moderated(own, blocks[known] - 1.0, arms=arms, lent=lent_by)
    lag1 = _lag1(weighed, arms=arms, doubt=doubt)
    for place, index in enumerate(np.flatnonzero(known)):
        n = int(blocks[index])
        if own[place] < EQUAL**2:
            answers[index] = Contrast(blocks=n, mean=float(mean[place]), why=EQUAL_BLOCKS)
            continue
        sd = math.sqrt(float(variance[place]) * (1 + lag1) / (1 - lag1))
        radius = quantile(n, float(df[place]), alpha) * sd / math.sqrt(n)
        why = None if math.isfinite(radius) else no_interval(n, "blocks")
        answers[index] = Contrast(
            blocks=n, mean=float(mean[place]), radius=radius, sd=sd, df=float(df[place]), lag1=lag1, why=why
        )
    return answers


def blocks_for(reach: float, *, sd: float, alpha: float, arms: int = 2) -> int | None:
    """Forecast how many blocks bring the radius down to `reach` at this noise; None if too many.

    `sd` is a Contrast's; `arms` is the number of arms whose noise is pooled.
    """
    if not (reach > 0 and sd > 0):
        return None

    def reached(n: int) -> bool:
        own = n - 1.0
        return quantile(n, own + lent_by(own, arms), alpha) * sd / math.sqrt(n) <= reach

    high = 2
    while not reached(high):
        high *= 2
        if high > _BLOCKS_FAR:
            return None
    return bisect_left(range(high), x=True, lo=high // 2 + 1, key=reached)


def blocks_to_decide(found: Contrast, *, margin: float, alpha: float, arms: int = 2) -> int | None:
    """Forecast the total number of blocks after which a pair is decided, with 90 % probability at this noise.

    Decided means that the interval excludes 0, or lies within +-ln(1 + margin). The mean after n blocks is predicted
    from that after n0: normal, with the variance sd^2 (1/n0 - 1/n), which allows for a true difference smaller than
    the present one (predictive power: Spiegelhalter, Abrams, Myles 2004, 6.6). None where the noise is unknown or the
    number too large.
    """
    if found.sd is None:
        return None
    reach = math.log1p(margin)
    # then every mean is decided
    longest = blocks_for(reach / 2, sd=_sd_after(found, found.blocks, arms), alpha=alpha, arms=arms)
    if longest is None or longest <= found.blocks:
        return longest
    chance = partial(_chance_to_decide, found, reach=reach, alpha=alpha, arms=arms)
    return bisect_left(range(longest), FORESEEN, found.blocks + 1, key=chance)


def _chance_to_decide(found: Contrast, blocks: int, *, reach: float, alpha: float, arms: int) -> float:
    """Return the probability that a pair is decided after so many blocks."""
    own = blocks - 1.0
    radius = quantile(blocks, own + lent_by(own, arms), alpha) * _sd_after(found, blocks, arms) / math.sqrt(blocks)
    spread = _sd_after(found, math.inf, arms) * math.sqrt(1 / found.blocks - 1 / blocks)
    return chance_outside(NormalDist(found.mean, spread), radius, inner=reach - radius)


def chance_outside(mean: NormalDist, radius: float, *, inner: float) -> float:
    """Return the probability that a mean will lie beyond the radius, or below `inner`, on either side of 0."""
    inner = min(inner, radius)  # beyond the radius it is counted already
    different = 1 - mean.cdf(radius) + mean.cdf(-radius)
    return different + (mean.cdf(inner) - mean.cdf(-inner) if inner > 0 else 0.0)


def _sd_after(found: Contrast, blocks: float, arms: int) -> float:
    """Predict a pair's sd: the allowance for unknown autocorrelation shrinks as blocks are added.

    One standard error of the sd is added, since it is taken from few blocks and the time goes with its square.
    """
    sd, pairs = (found.sd or 0.0) * (1 + 1 / math.sqrt(2 * max(1.0, found.df))), arms - 1
    now, then = (LAG1_DOUBT / math.sqrt(count * pairs) for count in (found.blocks, blocks))
    lag1 = min(max(found.lag1 - now + then, 0.0), found.lag1)
    return sd * math.sqrt((1 - found.lag1) / (1 + found.lag1) * (1 + lag1) / (1 - lag1))


EQUAL_BLOCKS = because(Reason.NO_NOISE, unit="block", what="ratio", so=NO_MEASUREMENT)


def too_few(blocks: int) -> Why:
    """Return why so few blocks allow no interval."""
    words = "no block has a usable value of both" if blocks == 0 else "one block cannot show how blocks differ"
    return because(Reason.NO_VALUE, which=words)


def no_interval(count: int, units: str) -> Why:
    """Return why the interval of so many blocks or rounds is unbounded."""
    return Why(reason=Reason.NO_INTERVAL, text=f"{count} {units} are too few for an interval")


def lent_by(own: float, arms: int) -> float:
    """The degrees of freedom taken from other pairs: at most twice a pair's own plus four, so that its own noise
    dominates.
    """
    return min((arms - 2) * own, 2 * own + 4)


def _lag1(weighed: Values, *, arms: int, doubt: float) -> float:
    """Return an upper estimate of the lag-1 autocorrelation of blocks, over all pairs together, 0 to LAG1_MAX.

    For n independent values less their mean it is -1/n on average, which is added back; its standard error is added
    too, because a few blocks cannot prove independence.
    """
    blocks = float((~np.isnan(weighed)).sum(axis=0).mean())
    if not np.nanvar(weighed) > 0:
        return 0.0
    return min(max(float(lag1_of(weighed)) + doubt / math.sqrt(blocks * (arms - 1)), 0.0), LAG1_MAX)


_PASSES = 3
"""Clipping and levels depend on each other; after three passes their changes no longer affect the order."""

_SPREAD = 0.003, 1.0
"""Bounds on the standard deviation of arms' levels (ln): a smaller one cannot be measured on any host, and a larger
one would not shrink the levels at all.
"""

_NOISE_MIN = 1e-4
"""The least noise (sd of ln) that is assumed: a smaller one was not really measured."""


def levels(values: Values) -> tuple[Values, Values]:
    """Return the arms' levels (ln, around 0; 0 for an arm without a value) and their covariance.

    `values` are blocks x arms, NaN is "not measured".
    """
    here = ~np.isnan(values)
    kept = here.sum(axis=1) > 1
    here, filled = here[kept], np.where(here, values, 0.0)[kept]
    arms, size = values.shape[1], here.sum(axis=1, keepdims=True)
    if not len(here):
        return np.zeros(arms), np.eye(arms)
    apart = np.diag(here.sum(axis=0)) - here.T @ (here / size)
    inverse = np.linalg.pinv(apart, hermitian=True)
    free = max(1, int(here.sum()) - len(here) - int(here.any(axis=0).sum()) + 1)
    used, level, pull, noise = filled, np.zeros(arms), np.zeros(arms), 0.0
    for _ in range(_PASSES):
        center = (used * here).sum(axis=1, keepdims=True) / size
        pull = ((used - center) * here).sum(axis=0)
        level = inverse @ pull
        fitted = level + ((used - level) * here).sum(axis=1, keepdims=True) / size
        rest = (filled - fitted)[here]
        noise = max(1.4826 * float(np.median(np.abs(rest))) * math.sqrt(len(rest) / free), _NOISE_MIN)
        used = fitted + np.clip(filled - fitted, -HUBER_K * noise, HUBER_K * noise)
    seen = here.any(axis=0)
    spread = float(np.mean(level[seen] ** 2) - noise**2 * np.mean(np.diag(inverse)[seen]))
    prior = np.eye(arms) / min(max(spread, _SPREAD[0] ** 2), _SPREAD[1] ** 2)
    covariance = np.linalg.inv(apart / noise**2 + prior)
    return covariance @ pull / noise**2, covariance
