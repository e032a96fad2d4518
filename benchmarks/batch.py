# SPDX-License-Identifier: Apache-2.0
"""The product's judging of planned comparisons for thousands of runs at once, which one by one would take hours.

`disagreements` holds it against the product itself; `benchmarks.decide` does so before every part.
"""

import math
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cache
from itertools import combinations

import numpy as np
from numpy.typing import NDArray
from scipy import interpolate, special, stats

from virtune.analyse.stats.anytime import HUBER_K, LAG1_DOUBT, LAG1_MAX, quantile
from virtune.analyse.stats.arms import far_rounds, lonely
from virtune.analyse.stats.noise import lag1_of, pseudo_values
from virtune.analyse.stats.paired import FEW_ROUNDS, Family, compare_planned
from virtune.analyse.stats.planned import (
    Estimates,
    differences,
    dunnett_alpha,
    estimates,
    level_of,
    mixed_quantile,
    plain_means,
)
from virtune.model.metric import BY_ID
from virtune.model.reason import Reason
from virtune.model.verdict import Verdict, fewest_planned

Rounds = NDArray[np.float64]
"""ln(metric), runs x rounds x arms; the first arm is the baseline."""

MARGIN, ERROR = 0.03, 0.05
BETTER, WORSE, SAME, UNDECIDED = 1, -1, 0, 9
_WORDS = {Verdict.BETTER: BETTER, Verdict.WORSE: WORSE, Verdict.SAME: SAME, Verdict.UNDECIDED: UNDECIDED}


@dataclass(frozen=True, slots=True, kw_only=True)
class Judged:
    """A look at many runs: verdict, mean and radius (ln) of the interval that is shown, runs x pairs; and whether the
    result says of an arm that its level lasts or that rounds are far from it (`said`), or of a difference that levels
    that last would undo it (`unless`), or that it was decided in few rounds (`few`). `rounds` is that of the
    look.
    """

    verdict: NDArray[np.int64]
    mean: NDArray[np.float64]
    radius: NDArray[np.float64]
    said: NDArray[np.bool_]
    unless: NDArray[np.bool_]
    few: NDArray[np.bool_]
    rounds: NDArray[np.int64]


@dataclass(frozen=True, slots=True, kw_only=True)
class Ended:
    """Many runs: the look at which each stopped, and the round in which a pair was first called different (or 0)."""

    last: Judged
    first: NDArray[np.int64]


def pairs_of(arms: int, *, every: bool) -> list[tuple[int, int]]:
    """Return (candidate, baseline) of the pairs that get verdicts."""
    return [(b, a) for a, b in combinations(range(arms), 2)] if every else [(arm, 0) for arm in range(1, arms)]


def alpha_of(arms: int, *, every: bool) -> float:
    """Return the error of one comparison."""
    return ERROR / len(pairs_of(arms, every=True)) if every else dunnett_alpha(arms - 1, ERROR)


def judge_all(values: Rounds, *, every: bool = False) -> Ended:
    """Judge runs after every round that can decide, each until all of its pairs are decided or its plan is over."""
    runs, planned, arms = values.shape
    pairs, alpha = pairs_of(arms, every=every), alpha_of(arms, every=every)
    shape = runs, len(pairs)
    first, verdict = np.zeros(shape, np.int64), np.full(shape, UNDECIDED)
    mean, radius = np.zeros(shape), np.full(shape, math.inf)
    said, unless, few = (np.zeros(runs, bool) for _ in range(3))
    open_, stopped = np.arange(runs), np.zeros(runs, np.int64)
    for count in range(fewest_planned(arms), planned + 1):
        level = level_at(count, planned, alpha, fewest=fewest_planned(arms))
        seen = judge(values[open_, :count], pairs, alpha=alpha, level=level)
        verdict[open_], mean[open_], radius[open_], said[open_] = seen.verdict, seen.mean, seen.radius, seen.said
        stopped[open_], unless[open_], few[open_] = count, seen.unless, seen.few
        different = np.isin(seen.verdict, (BETTER, WORSE))
        first[open_] = np.where((first[open_] == 0) & different, count, first[open_])
        open_ = open_[(seen.verdict == UNDECIDED).any(axis=1)]
        if not len(open_):
            break
    last = Judged(verdict=verdict, mean=mean, radius=radius, said=said, unless=unless, few=few, rounds=stopped)
    return Ended(last=last, first=first)


@cache
def level_at(count: int, planned: int, alpha: float, *, fewest: int) -> float:
    """Return the level after so many rounds of a plan that is looked at after each from the `fewest` on."""
    return level_of(tuple((float(n), n / planned) for n in range(fewest, count + 1)), alpha)


def judge(values: Rounds, pairs: Sequence[tuple[int, int]], *, alpha: float, level: float) -> Judged:
    """Judge runs at one look."""
    arms = values.shape[2]
    every = pairs_of(arms, every=True)
    mean, radius, seen = _planned(values, every, level)
    turned = [every.index(max((a, b), (b, a))) for a, b in pairs]
    mean, radius = mean[:, turned], radius[:, turned]
    found = differences(values, pairs)
    other_mean, other = _whenever(found, len({arm for pair in pairs for arm in pair}), alpha)
    reach = math.log1p(MARGIN)
    plain, around = plain_means(values, pairs, alpha=alpha)
    steady = seen.lasts[:, turned] == 0
    quiet = ~seen.far[:, turned] & (np.abs(plain) + around < reach)
    alike = steady & quiet & (np.abs(other_mean) + other < reach)
    mean, radius = np.where(alike, other_mean, mean), np.where(alike, other, radius)
    within = np.abs(mean) + radius < reach
    up = (found > 0).sum(axis=1)
    fewer = np.minimum(up, found.shape[1] - up)
    agree = np.minimum(1.0, 2 * stats.binom.cdf(fewer, found.shape[1], 0.5)) <= 0.5
    told = ~within & (np.abs(mean) > radius) & agree & (np.sign(mean) == np.sign(plain))
    verdict = np.where(within & quiet, SAME, np.where(told, np.sign(mean).astype(np.int64), UNDECIDED))
    far = far_rounds(values)
    odd = np.any(lonely(far, 1) | lonely(far, -1), axis=1)
    said: NDArray[np.bool_] = odd | np.any(seen.far[:, turned] | (seen.lasts[:, turned] > 0), axis=1)
    undone = np.zeros(told.shape, bool)
    if told.any():
        sds = _quantiles(alpha, seen.df, seen.lag1[:, None], values.shape[1], arms, lasting=True)
        if_lasting = (sds * np.sqrt(seen.variance / values.shape[1]))[:, turned]
        undone = told & (np.abs(mean) <= if_lasting)
    rounds = np.full(len(values), values.shape[1])
    unless: NDArray[np.bool_] = np.any(undone, axis=1)
    few: NDArray[np.bool_] = np.any(told & ~undone, axis=1) & (values.shape[1] < FEW_ROUNDS)
    return Judged(verdict=verdict, mean=mean, radius=radius, said=said, unless=unless, few=few, rounds=rounds)


def _planned(values: Rounds, pairs: list[tuple[int, int]], level: float) -> tuple[Rounds, Rounds, Estimates]:
    _, count, arms = values.shape
    seen = estimates(values, pairs, level=level)
    sds = _quantiles(level, seen.df, seen.lag1[:, None], count, arms)
    return seen.mean, np.maximum(sds * np.sqrt(seen.variance / count), np.maximum(seen.lasts, seen.rare)), seen


def _quantiles(level: float, df: Rounds, lag1: Rounds, rounds: int, arms: int, *, lasting: bool = False) -> Rounds:
    """`mixed_quantile` between the points of a grid, whose log is nearly linear in 1 / df."""
    if level / 2 <= 0:
        return np.full_like(df, math.inf)
    grid = _grid(level, rounds, arms, lasting=lasting)
    sds: Rounds = np.exp(grid.ev(1 / df, np.broadcast_to(np.clip(lag1, -1, 1), df.shape)))
    return sds


@cache
def _grid(level: float, rounds: int, arms: int, *, lasting: bool) -> interpolate.RectBivariateSpline:
    most = (arms - 1) * (rounds - 1.0)
    turned, steps = np.linspace(1 / most, 2 / (rounds - 1.0), 9), np.linspace(-1, 1, 61)
    table = [
        [mixed_quantile(level, 1 / one, float(step), rounds, arms, lasting=lasting) for step in steps]
        for one in turned
    ]
    return interpolate.RectBivariateSpline(turned, steps, np.log(table))


def _whenever(found: Rounds, arms: int, alpha: float) -> tuple[Rounds, Rounds]:
    count = found.shape[1]
    weighed = pseudo_values(found, clip=HUBER_K)
    variance, df = _moderated(weighed.var(axis=1, ddof=1), count - 1.0, arms)
    lag1 = np.clip(lag1_of(weighed) + LAG1_DOUBT / math.sqrt(count * (arms - 1)), 0, LAG1_MAX)[:, None]
    sds = np.zeros_like(df)
    for one in np.unique(df):
        sds = np.where(df == one, quantile(count, float(one), alpha), sds)
    return weighed.mean(axis=1), sds * np.sqrt(variance * (1 + lag1) / (1 - lag1) / count)


def _moderated(own: Rounds, df: float, arms: int) -> tuple[Rounds, Rounds]:
    if own.shape[1] < 2:
        return own, np.full_like(own, df)
    pooled = own.mean(axis=1, keepdims=True)
    noisy = own > pooled * special.fdtri(df, max(1.0, (arms - 1) * df), 0.99)
    lent = np.where(noisy, 0.0, min((arms - 2) * df, 2 * df + 4))
    return (lent * pooled + df * own) / (lent + df), df + lent


def disagreements(values: Rounds, *, planned: int) -> int:
    """Return how many verdicts of these runs, after all of their rounds, differ from the product's own."""
    _, count, arms = values.shape
    pairs, alpha = pairs_of(arms, every=False), alpha_of(arms, every=False)
    fewest = fewest_planned(arms)
    level = level_at(count, planned, alpha, fewest=fewest)
    mine = judge(values, pairs, alpha=alpha, level=level)
    differ = 0
    for run, one in enumerate(values):
        rows = {str(arm): list(np.exp(one[:, arm])) for arm in range(arms)}
        family = Family(metric=BY_ID["iops"], workload="w", margin=MARGIN, confidence=1 - alpha, fewest=fewest)
        found = compare_planned(family, rows, [(str(b), str(a)) for a, b in pairs], level=level)
        for index, theirs in enumerate(found):
            high = mine.mean[run, index] + mine.radius[run, index]
            most = 1e-3 * max(1.0, mine.radius[run, index])
            near = theirs.ratio is None or abs(math.log(theirs.ratio.high) - high) < most
            differ += _WORDS[theirs.verdict] != mine.verdict[run, index] or not near
        differ += any(one.reason is Reason.UNLESS_LASTING for one in found) != mine.unless[run]
        differ += any(one.reason is Reason.FEW_ROUNDS for one in found) != mine.few[run]
    return differ
