# SPDX-License-Identifier: Apache-2.0
"""Confidence intervals at a look of a planned comparison: robust means, noise of all arms, autocorrelation; and the
level of a look by group-sequential boundaries: the error of a comparison with a planned end is spent over its
interim looks, most of it at the end.

Values come as ln(metric), one row a round, one column an arm, NaN where an arm did not run or gave nothing. The level
is that of `group_sequential`; this module turns it into an interval for the difference. Rounds may be autocorrelated,
and the autocorrelation is estimated from the same rounds, so the quantile is that of Student's t mixed over the
autocorrelations that are compatible with the data: a wide range with few rounds, a narrow one with many. Checked by
simulation (`benchmarks/decide.py`).

A plan ends after a time or a number of rounds, with interim looks. The error that may be spent up to a look depends
only on the share of the plan that is done, not on the data (Lan, DeMets, Biometrika 70, 1983; by time: Lan, DeMets,
Statistics in Medicine 8, 1989). The boundary of each look follows by the recursion of Armitage, McPherson and Rowe
(J. R. Stat. Soc. A 132, 1969) over the sums of independent rounds. A look's boundary gives an interval that holds at
all looks together (repeated confidence interval: Jennison, Turnbull, J. R. Stat. Soc. B 51, 1989). Student's t
replaces the normal distribution at the level of a look (Pocock, Biometrika 64, 1977).
"""

import math
from bisect import bisect_left
from collections.abc import Sequence
from dataclasses import dataclass
from functools import lru_cache, partial
from itertools import combinations
from statistics import NormalDist

import numpy as np
from numpy.typing import NDArray

from virtune.analyse.stats.anytime import EQUAL_BLOCKS, FORESEEN, LN_MAX, chance_outside, no_interval, too_few
from virtune.analyse.stats.anytime import quantile as anytime_quantile
from virtune.analyse.stats.arms import alone, between_levels, far_rounds, lasting, pair_noise, rare_rounds
from virtune.analyse.stats.noise import EQUAL, Values, clipped, lag1_of
from virtune.model.tuning import Contrast

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


FOUND_SDS = 1.2816
"""A difference of the interval's radius plus so many standard errors is found 9 times in 10 (normal quantile)."""

LN_FAR = 20.0
"""Differences beyond e^20 are a sign of a host on which nothing can be measured."""

CLIP = 2.0
"""Differences of more than so many (robust) standard deviations count as that many: 99 % efficient for normal data,
and a dip of the host in one round does not decide the verdict (Huber, Ann. Math. Stat. 35, 1964).
"""

ALIKE_SHARE = 0.8
"""The share of all degrees of freedom that a pair's noise has where arms are alike: 0.75 to 0.9 in simulations of 3
to 8 arms. The rest is the price of not knowing that they are.
"""

_FEW_DOUBT, _FEW_LATER = 0.009, 4.5
"""What six rounds add to 1 / df because they hardly show whether an arm is unlike the others, and the power by which
that falls with more rounds (`arm_noise`): within 10 % of simulations of 3 to 8 arms in 5 to 12 rounds.
"""

LAG1_RANGE = -0.3, 0.7
"""The prior of the lag-1 autocorrelation of rounds is uniform between these."""

_LAG1_STEPS = 41
"""The number of grid points in between; twice as many change no quantile by 0.1 %."""

LASTS, _SHARES = 0.9, np.linspace(0, 0.7, 8)
"""Levels that last, for the interval that allows for them: their correlation from round to round (they last about ten
rounds), and which share of the variance of rounds they may have, equally probable before anything is measured."""

_ROUNDS_FAR = 10**6
"""The longest forecast in rounds: two months at six seconds a round."""


def planned_contrasts(
    values: Values, pairs: Sequence[tuple[int, int]], *, level: float, alpha: float = 0.05
) -> list[Contrast]:
    """Compare pairs of arms (columns of `values`), each with an interval of this two-sided level, and one of level
    `alpha` where levels last as far as these rounds leave that open.

    The noise of all arms counts (`arm_noise`), also that of arms in none of the pairs. No values raise an error: a
    pair without an interval has an infinite radius and the reason.
    """
    usable = np.where(np.abs(values) <= LN_MAX, values, np.nan)
    every = list(combinations(range(values.shape[1]), 2))
    rounds = (~np.isnan(differences(usable, every))).sum(axis=0)
    answers = {pair: Contrast(blocks=int(n), why=too_few(int(n))) for pair, n in zip(every, rounds, strict=True)}
    kept = [pair for pair, n in zip(every, rounds, strict=True) if n >= 2]
    if kept:
        arms, seen = len({arm for pair in kept for arm in pair}), estimates(usable, kept, level=level)
        for place, pair in enumerate(kept):
            answers[pair] = _contrast(seen, place, level, alpha, arms)
    return [answers[pair] if pair in answers else answers[pair[::-1]].turned for pair in pairs]


def differences(values: Values, pairs: Sequence[tuple[int, int]]) -> Values:
    """Return the differences of pairs of arms; the last axis of `values` are arms, and further ones are kept."""
    found: Values = values[..., [a for a, _ in pairs]] - values[..., [b for _, b in pairs]]
    return found


@dataclass(frozen=True, slots=True, kw_only=True)
class Estimates:
    """Of each pair (the last axis): its rounds; the mean of its differences; their variance with its degrees of
    freedom; whether one of its arms is far from its level in rounds of its own (`far`); and the least half-width that
    an arm's changes between levels that last allow (0: there are none), or rounds far off that would undo the
    difference were they more frequent (`rare`). `lag1` is one figure for all pairs together.
    """

    rounds: NDArray[np.int64]
    mean: Values
    variance: Values
    df: Values
    own: Values
    far: NDArray[np.bool_]
    lasts: Values
    rare: Values
    lag1: Values


def estimates(values: Values, pairs: Sequence[tuple[int, int]], *, level: float) -> Estimates:
    """Return what the rounds (rounds and arms are the last axes, one row for each study before them) say of pairs.

    The mean is Huber's but for pairs with an arm that is far from its level in rounds of its own, and pairs of two
    levels (`noise.clipped`): of these it is the plain mean, with their own noise where that is larger.
    """
    found = differences(values, pairs)
    rounds = (~np.isnan(found)).sum(axis=-2)
    weighed, lopsided = clipped(found, clip=CLIP)
    far = far_alone(values, pairs)
    whole = lopsided | far
    weighed = np.where(whole[..., None, :], found, weighed)
    mean = np.nanmean(weighed, axis=-2)
    own: Values = np.nanvar(weighed, axis=-2, ddof=1)
    free = rounds - 1.0
    variance, df = pair_noise(own, pairs, free)
    noisier = whole & (own > variance)
    variance, df = np.where(noisier, own, variance), np.where(noisier, free, df)
    # over its noise, so that the rounds of one noisy arm do not outweigh those of all others
    lag1 = lag1_of(weighed / np.sqrt(np.maximum(variance, EQUAL**2))[..., None, :])
    slow = lasting(values)
    slowest = np.maximum(slow[..., [a for a, _ in pairs]], slow[..., [b for _, b in pairs]])
    return Estimates(
        rounds=rounds,
        mean=mean,
        variance=variance,
        df=df,
        own=own,
        far=far,
        lasts=between_levels(found, slowest, level=level),
        rare=_undone(mean, values, pairs),
        lag1=lag1,
    )


def _undone(mean: Values, values: Values, pairs: Sequence[tuple[int, int]]) -> Values:
    """Return how far rare rounds of single arms may bring each pair's mean difference towards 0."""
    lower, higher = rare_rounds(values)
    first, second = [a for a, _ in pairs], [b for _, b in pairs]
    down = np.maximum(lower[..., first], higher[..., second])
    up = np.maximum(higher[..., first], lower[..., second])
    return np.where(mean > 0, down, up)


def far_alone(values: Values, pairs: Sequence[tuple[int, int]]) -> NDArray[np.bool_]:
    """Return for each pair whether one of its arms is far from its level in rounds of its own."""
    arms = alone(far_rounds(values), ~np.isnan(values))
    found: NDArray[np.bool_] = arms[..., [a for a, _ in pairs]] | arms[..., [b for _, b in pairs]]
    return found


def plain_means(values: Values, pairs: Sequence[tuple[int, int]], *, alpha: float) -> tuple[Values, Values]:
    """Return for each pair ln of the ratio of its arms' arithmetic means, over the rounds that both have, and the
    half-width of its t interval (of the linearised ratio), infinite for fewer than two rounds.
    """
    from scipy.special import stdtrit

    one, other = values[..., [a for a, _ in pairs]], values[..., [b for _, b in pairs]]
    here = ~np.isnan(one - other)
    rounds = here.sum(axis=-2)
    known = np.maximum(rounds, 1)
    most = np.max(np.where(here, np.maximum(one, other), -np.inf), axis=-2, initial=-LN_MAX)[..., None, :]
    up, down = (np.exp(np.where(here, arm - most, -np.inf)) for arm in (one, other))
    means = [np.maximum(arm.sum(axis=-2) / known, np.finfo(float).tiny) for arm in (up, down)]
    rest = up / means[0][..., None, :] - down / means[1][..., None, :]
    error = np.sqrt((rest**2).sum(axis=-2) / np.maximum(rounds - 1, 1) / known)
    sds = -stdtrit(np.maximum(rounds - 1.0, 1.0), alpha / 2)
    return np.log(means[0]) - np.log(means[1]), np.where(rounds > 1, sds * error, np.inf)


def _contrast(seen: Estimates, place: int, level: float, alpha: float, arms: int) -> Contrast:
    n, middle, lag1 = int(seen.rounds[place]), float(seen.mean[place]), float(seen.lag1)
    if seen.own[place] < EQUAL**2:
        return Contrast(blocks=n, mean=middle, why=EQUAL_BLOCKS)
    sd, df = math.sqrt(float(seen.variance[place])), float(seen.df[place])
    lasts, rare = float(seen.lasts[place]), float(seen.rare[place])
    radius = max(mixed_quantile(level, df, lag1, n, arms) * sd / math.sqrt(n), lasts, rare)
    if_lasting = mixed_quantile(alpha, df, lag1, n, arms, lasting=True) * sd / math.sqrt(n)
    why = None if math.isfinite(radius) else no_interval(n, "rounds")
    likely = min(max(lag1, 0.0), LAG1_RANGE[1])
    worth = math.sqrt((1 + likely) / (1 - likely))
    return Contrast(
        blocks=n,
        mean=middle,
        radius=radius,
        sd=sd * worth,
        df=df,
        lag1=likely,
        why=why,
        far=bool(seen.far[place]),
        lasts=lasts > 0,
        rare=rare >= radius,
        if_lasting=max(radius, if_lasting),
    )


def foreseen_freedom(rounds: int, arms: int) -> float:
    """Return about how many degrees of freedom a pair's noise has after so many rounds of arms that are alike."""
    free = rounds - 1.0
    if arms < 3:
        return free
    return 1 / (1 / (free * ALIKE_SHARE * (arms - 1)) + _FEW_DOUBT * math.pow(5 / free, _FEW_LATER))


_LEAST_LEVEL = 1e-200
"""Below it a quantile of few degrees of freedom is no finite number any more."""


@lru_cache(maxsize=8192)
def mixed_quantile(level: float, df: float, lag1: float, rounds: int, arms: int, *, lasting: bool = False) -> float:
    """Return the two-sided quantile at `level`, in standard errors of independent rounds.

    `lag1` is the autocorrelation measured over `rounds` rounds of `arms` arms. For each possible autocorrelation r,
    the true standard error is larger and the measured variance too small by known factors; r is weighted by the
    likelihood of the measured value. `lasting`: the same for each share of the variance that levels may have which
    last about ten rounds. Infinite for a level below 1e-200, where scipy's quantile overflows.
    """
    if level < _LEAST_LEVEL or rounds < 3:
        return math.inf
    from scipy.special import stdtr, stdtrit

    worth, expected, error = _possible(rounds, arms, lasting=lasting)
    weight = np.exp(-(((lag1 - expected) / error) ** 2) / 2) / error + 1e-300
    weight /= weight.sum()
    widths = np.sqrt(worth * (rounds - 1) / (rounds - worth))
    low, high = 0.0, -float(stdtrit(df, level / 2)) * float(widths.max())
    while high - low > 1e-4 * high:
        middle = (low + high) / 2
        beyond = 2 * float(weight @ stdtr(df, -middle / widths))
        low, high = (middle, high) if beyond > level else (low, middle)
    return high


@lru_cache(maxsize=1024)
def _possible(rounds: int, arms: int, *, lasting: bool) -> tuple[Values, Values, Values]:
    """Return for each possible autocorrelation r the factor on the variance of a mean, the expected measured value,
    and that value's standard deviation.

    With covariances r^|s-t| a mean of n rounds has the variance L / n, where L = (1 + r) / (1 - r) less what a finite
    series lacks, and squares about the mean add up to n - L. The lag-1 products about the mean follow in the same
    way; their ratio is what many arms show on average, and a single pair shows r - (1 + 4 r) / n (Kendall,
    Biometrika 41, 1954), to both of which `lag1_of` adds 1 / n. Of independent pairs of n rounds the variance of what
    is measured is (n - 2)^2 / (n^2 (n - 1)) (Dufour, Roy, Biometrika 72, 1985), times 1 - r^2 (Bartlett 1946). Where
    levels last they have that with r = LASTS, by a share of the variance, and the rest is independent.
    """
    n = float(rounds)
    r, share = (np.array([LASTS]), _SHARES) if lasting else (np.linspace(*LAG1_RANGE, _LAG1_STEPS), np.ones(1))
    past = r**rounds
    worth = (1 + r) / (1 - r) - 2 * r * (1 - past) / (n * (1 - r) ** 2)
    products = (n - 1) * (r + worth / n) - 2 * worth + 2 * (1 - past) / (n * (1 - r))
    products = share * products - (1 - share) * (1 - 1 / n)
    worth, r = 1 - share + share * worth, share * r
    many = products / (n - worth) + 1 / n
    expected = many - (many - r * (1 - 4 / n)) / (arms - 1)
    error = (n - 2) / n * np.sqrt((1 - r**2) / ((n - 1) * (arms - 1)))
    return worth, expected, error


def smallest_planned(rounds: int, *, sd: float, alpha: float, arms: int = 2) -> float | None:
    """Return the difference (0.03 is 3 %) that a plan of so many rounds detects with 90 % power; None for none.

    `alpha` is that of one comparison. It applies at the plan's end, for rounds with a measured autocorrelation of
    zero, and includes the random error of the mean and of the radius's two parts: the sd (1/2 df of its square) and
    the autocorrelation (1/n).
    """
    if rounds < 3:
        return None
    df = foreseen_freedom(rounds, arms)
    sds = mixed_quantile(final_level(alpha), df, 0.0, rounds, arms)
    chance = math.sqrt(1 + sds**2 * (1 / (2 * df) + 1 / (rounds * (arms - 1))))
    return math.expm1(min((sds + FOUND_SDS * chance) * sd / math.sqrt(rounds), LN_FAR))


def rounds_to_decide(found: Contrast, *, margin: float, alpha: float, arms: int = 2) -> int | None:
    """Forecast the rounds that a plan needs to decide a pair with 90 % probability at this noise.

    Decided means that the interval at the plan's end excludes 0, or lies within +-ln(1 + margin). The mean then is
    predicted from the present one: normal, with the variance sd^2 (1/n0 - 1/n), which allows for a true difference
    smaller than the present one (Spiegelhalter, Abrams, Myles 2004, 6.6). None where the noise is unknown or the
    number too large.
    """
    if found.sd is None:
        return None
    level, reach = final_level(alpha), math.log1p(margin)
    low, high = found.blocks, max(found.blocks, 8)
    chance = partial(_chance, found, reach=reach, level=level, alpha=alpha, arms=arms)
    while chance(high) < FORESEEN:
        low, high = high, 2 * high
        if high > _ROUNDS_FAR:
            return None
    return bisect_left(range(high), FORESEEN, low + 1, key=chance)


def _chance(found: Contrast, rounds: int, *, reach: float, level: float, alpha: float, arms: int) -> float:
    """Return the probability that a pair is decided at the end of a plan of so many rounds.

    One standard error of the sd is added, since it is taken from few rounds and the time goes with its square.
    """
    if rounds <= found.blocks:
        return 0.0
    sd = (found.sd or 0.0) * (1 + 1 / math.sqrt(2 * max(1.0, found.df)))
    df = foreseen_freedom(rounds, arms)
    error = sd / math.sqrt(rounds)
    radius = mixed_quantile(level, df, 0.0, rounds, arms) * error
    narrower = min(radius, anytime_quantile(rounds, df, alpha) * error)
    spread = sd * math.sqrt(1 / found.blocks - 1 / rounds)
    return chance_outside(NormalDist(found.mean, spread), radius, inner=reach - narrower)
