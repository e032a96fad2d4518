# SPDX-License-Identifier: Apache-2.0
"""What single arms do in their rounds beside those of the others: rounds far from its level, levels that last, and
noise: of each pair of arms from the noise of its two arms, and from that of all arms as far as they are alike.

A few rounds show an arm's own noise badly, and that of all arms together well, but arms need not be equally noisy.
How alike they are is unknown too. So the noise of an arm is taken over all degrees of likeness that fit what was
measured, each by how well it fits (empirical Bayes: Smyth, Stat. Appl. Genet. Mol. Biol. 3, 2004; an arm may also
be unlike all others: Phipson, Lee, Majewski, Alexander, Smyth, Ann. Appl. Stat. 10, 2016). A test whether arms are
alike, after which those that passed share one noise, is too sure of it: it kept those whose noise was seen too small
by chance, and 6 to 7 % of equal arms were called different where 5 % are promised.

Values come as ln(metric); the last two axes are rounds and arms, further ones are kept, as one row for each study.
NaN is "not measured". Both are looked for against the other arms of the same rounds, so that what befalls the host,
and every arm alike, is neither.
"""

import math
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from virtune.analyse.stats.noise import EQUAL, Values, median_of
from virtune.analyse.stats.student import fisher

UNLIKE = 0.1
"""The probability, before anything is measured, that an arm is unlike all others."""

_UNLIKE_FREEDOM: Values = np.array([1.0])
"""How an arm's noise is spread that is unlike: so many degrees of freedom are compatible with almost any."""

_LIKENESS: Values = 2.0 ** np.arange(11, dtype=np.float64)
"""The degrees of freedom that the common noise is worth for an arm: 1 is hardly alike, 1024 is equal. Equally
probable before anything is measured."""

_LEAST = 0.02
"""The least variance of an arm, as a share of that of the quietest pair's: an estimate that is a difference may be
below zero."""

_MOST_WEIGHT = 0.45
"""The most weight of an arm in the mean that arms are compared with: an arm cannot be compared with itself."""

_CAUTION, _LATER = 2.0, 3
"""How much it counts in six rounds that an arm may be unlike or not, and the power by which that falls with more
rounds. Calibrated: without it 6.8 % of eight equal arms were called different in six rounds where the baseline
is twice as noisy, and 10 % of four of which one was slowed in half of them. With it 5.0 and 2.2 %."""

_FREE = 5.0
"""The degrees of freedom of a difference in six rounds."""

_STEPS = 2
"""How often weights, and then the common variance, are taken anew from what was found with those before."""


def pair_noise(own: Values, pairs: Sequence[tuple[int, int]], free: Values) -> tuple[Values, Values]:
    """Return each pair's variance and degrees of freedom, from the variances `own` of all pairs of these arms.

    `own` and `free`, the degrees of freedom of each, have the pairs as their last axis; further axes are kept, as one
    row for each study. With two arms, or where pairs are missing, what is returned are the pairs' own.
    """
    names = sorted({arm for pair in pairs for arm in pair})
    arms = len(names)
    if arms < 3 or len(pairs) != arms * (arms - 1) // 2:
        return own, np.broadcast_to(free, own.shape)
    ends = _Ends(*(np.array([names.index(pair[end]) for pair in pairs]) for end in (0, 1)))
    each, effective = _of_arms(own, ends, arms)
    mean_free = free.mean(axis=-1, keepdims=True)
    far = certain(effective, mean_free)[..., None]
    common, weight, unlike = _likeness(each, far)
    lent = (1 - unlike) * (_LIKENESS / (far + _LIKENESS))
    mixed = (1 - lent) * each[..., None] + lent * common[..., None]
    # the degrees of freedom of a sum of two variances (Satterthwaite, Biometrics Bulletin 2, 1946)
    error = mixed**2 / (far + (1 - unlike) * _LIKENESS)
    found = mixed[..., ends.one, :] + mixed[..., ends.other, :]
    most = np.maximum(free, (arms - 1) * mean_free)
    freedom = found**2 / (error[..., ends.one, :] + error[..., ends.other, :])
    df = np.clip(freedom, free[..., None], most[..., None])
    logs, weight = np.log(found), weight[..., None, :]
    center = (logs * weight).sum(axis=-1, keepdims=True)
    # an arm that may be unlike the others, or not, is worse known than its mean variance says
    either = unlike * (1 - unlike) * (_LIKENESS / (far + _LIKENESS) * (each - common)[..., None]) ** 2
    either = _caution(free)[..., None] * (either[..., ends.one, :] + either[..., ends.other, :]) / found**2
    doubt = ((2 / df + either + (logs - center) ** 2) * weight).sum(axis=-1)
    worse = 2 / doubt < free  # then the pair's own rounds know more
    return np.where(worse, own, (found * weight).sum(axis=-1)), np.where(worse, free, np.minimum(2 / doubt, most))


def _caution(free: Values) -> Values:
    """Return how much it counts that an arm may be unlike: much in the fewest rounds, little from ten on."""
    return _CAUTION * (_FREE / free) ** _LATER


@dataclass(frozen=True, slots=True)
class _Ends:
    """The places of each pair's two arms."""

    one: NDArray[np.int64]
    other: NDArray[np.int64]


def certain(arms: Values, free: Values | float) -> Values:
    """Return the degrees of freedom of an arm's own variance, where the differences of all pairs have `free`.

    The estimate is a sum of elements of the sample covariance matrix, with variances 2 / free on its diagonal and
    1 / free beside it.
    """
    return free / (1 + 2 / (arms - 1) + 1 / ((arms - 1) * (arms - 2)))


def _of_arms(own: Values, ends: _Ends, arms: int) -> tuple[Values, Values]:
    """Return each arm's own variance, and how many arms together are its standard of comparison.

    The variance of a difference is the sum of its two arms' (Grubbs, J. Am. Stat. Assoc. 43, 1948). Here an arm is
    compared with a weighted mean of all, in which a noisy arm weighs little: its rounds would drown all others.
    """
    apart = np.zeros((*own.shape[:-1], arms, arms))
    apart[..., ends.one, ends.other] = apart[..., ends.other, ends.one] = own
    least = np.maximum(_LEAST * own.min(axis=-1, keepdims=True) / 2, EQUAL**2)
    weight = np.full((*own.shape[:-1], arms), 1 / arms)
    each = _against_mean(apart, weight, least)
    for _ in range(_STEPS if arms > 3 else 0):  # of three arms the estimates do not depend on weights
        weight = 1 / np.maximum(each, np.median(each, axis=-1, keepdims=True))
        weight = np.minimum(weight / weight.sum(axis=-1, keepdims=True), _MOST_WEIGHT)
        weight /= weight.sum(axis=-1, keepdims=True)
        each = _against_mean(apart, weight, least)
    return each, np.maximum(1 / (weight**2).sum(axis=-1, keepdims=True), 3.0)


def _against_mean(apart: Values, weight: Values, least: Values) -> Values:
    """Return each arm's variance, from those of all differences and the weights of the arms in a mean of them.

    The difference of arm i from that mean has the variance v_i (1 - 2 w_i) + sum of w_j^2 v_j: solved for all v_i.
    """
    turned = (apart @ weight[..., None])[..., 0]
    seen = turned - (weight * turned).sum(axis=-1, keepdims=True) / 2
    free = 1 - 2 * weight
    mean = (weight**2 * seen / free).sum(axis=-1, keepdims=True)
    mean /= 1 + (weight**2 / free).sum(axis=-1, keepdims=True)
    found: Values = np.maximum((seen - mean) / free, least)
    return found


def _likeness(each: Values, free: Values) -> tuple[Values, Values, Values]:
    """Return the common variance; the probability of each degree of likeness; and for each arm and degree that of the
    arm's being unlike all others.
    """
    common: Values = np.median(each, axis=-1, keepdims=True)
    weight, unlike = _given(each / common, free)
    for _ in range(_STEPS):
        counts = ((1 - unlike) * weight[..., None, :]).sum(axis=-1)
        common = (counts * each).sum(axis=-1, keepdims=True) / counts.sum(axis=-1, keepdims=True)
        weight, unlike = _given(each / common, free)
    return common, weight, unlike


def _given(ratio: Values, free: Values) -> tuple[Values, Values]:
    """Return both probabilities of `_likeness`, given each arm's variance over the common one."""
    alike = math.log1p(-UNLIKE) + _log_f(ratio[..., None], free, _LIKENESS)
    apart = math.log(UNLIKE) + _log_f(ratio[..., None], free, _UNLIKE_FREEDOM)
    both = np.logaddexp(alike, apart)
    fits = both.sum(axis=-2)
    weight: Values = np.exp(fits - fits.max(axis=-1, keepdims=True))
    unlike: Values = np.exp(apart - both)
    return weight / weight.sum(axis=-1, keepdims=True), unlike


def _log_f(ratio: Values, free: Values, lent: Values) -> Values:
    """Return the log density of F, but for a part that is the same for all degrees of likeness."""
    # scipy takes longer to load than reading a thousand trials: imported only for comparisons
    from scipy.special import gammaln

    scale = gammaln((free + lent) / 2) - gammaln(lent / 2) + lent / 2 * np.log(lent)
    found: Values = scale + (free / 2 - 1) * np.log(ratio) - (free + lent) / 2 * np.log(lent + free * ratio)
    return found


FAR = math.log(1.2)
"""A round is far from its arm's level from a factor of 1.2 on, up or down, ..."""

FAR_SDS = 4.0
"""... and so many robust standard deviations of the arm's rounds."""

ALONE = 0.05
"""Fisher's exact test, one-sided, below this: far rounds are the arm's own and no chance of the host. It accuses
nobody wrongly where it is wrong, but has both means speak; so it is not shared by the arms."""

LASTING = 0.07
"""How often levels that last are seen in rounds that are independent, over all arms of a study together."""

_HALVES = (1, 2, 4, 8, 16)
"""Slow changes are looked for in this many of the slowest cosines over the rounds, of half a wave and more."""

_LEVELS = 1.0, 2.0
"""The interval of a mean reaches as far as the levels are apart at least, and twice that at most."""

RARE = 0.05
"""How sure it is that an arm's rare rounds are no more frequent than the widened interval allows."""

_LEAST_LEVEL = 1e-12
"""Below it that bound is the lesser one."""

_OUTLYING = 2.0
"""A value of more than so many robust standard deviations counts as that many where slow changes are looked for."""


def from_levels(values: Values) -> Values:
    """Return how far each arm is from its own median round, less the median of the other arms in the same round."""
    own = values - median_of(values)[..., None, :]
    across = np.swapaxes(own, -1, -2)
    others = [median_of(np.delete(across, arm, axis=-2)) for arm in range(values.shape[-1])]
    return own - np.stack(others, axis=-1)


def far_rounds(values: Values) -> NDArray[np.int64]:
    """Return for each arm and round 1 where it is far above the arm's own level against the other arms', -1 where it
    is far below it, and 0.
    """
    if values.shape[-1] < 2 or not values.shape[-2]:
        return np.zeros(values.shape, np.int64)
    apart = from_levels(values)
    spread = np.abs(apart - median_of(apart)[..., None, :])
    pooled = median_of(spread.reshape(*values.shape[:-2], -1, 1))
    reach = np.maximum(FAR, FAR_SDS * 1.4826 * np.maximum(median_of(spread), pooled))[..., None, :]
    far = np.abs(apart) > reach
    if values.shape[-1] == 2:  # a difference alone does not tell which of two has changed
        own = np.abs(values - median_of(values)[..., None, :])
        far &= own > own[..., ::-1]
    found: NDArray[np.int64] = np.where(far, np.sign(apart), 0.0).astype(np.int64)
    return found


def alone(far: NDArray[np.int64], here: NDArray[np.bool_]) -> NDArray[np.bool_]:
    """Return for each arm whether rounds far below, or far above, are clearly more frequent with it than with the
    other arms; `here` are the rounds that were measured.
    """
    tried = here.sum(axis=-2)
    found = np.zeros(tried.shape, bool)
    for side in (-1, 1):
        hit = (far == side).sum(axis=-2)
        total, all_hit = tried.sum(axis=-1), hit.sum(axis=-1)
        for place in zip(*np.nonzero(hit), strict=True):
            mine, study = (int(hit[place]), int(tried[place])), place[:-1]
            others = int(all_hit[study]) - mine[0], int(total[study]) - mine[1]
            found[place] |= fisher(*mine, *others) < ALONE
    return found


def lonely(far: NDArray[np.int64], side: int) -> NDArray[np.bool_]:
    """Return for each arm whether it is far off on this side in some round, and no other arm in any."""
    mine = (far == side).sum(axis=-2)
    found: NDArray[np.bool_] = (mine > 0) & (mine == mine.sum(axis=-1, keepdims=True))
    return found


def rare_rounds(values: Values) -> tuple[Values, Values]:
    """Return for each arm by how much its mean may be lower, and higher, than its rounds have it, because rounds far
    off that it has alone, or clearly more often, may be more frequent than so few rounds show; 0 for none.

    By the upper limit of their share (Clopper, Pearson, Biometrika 26, 1934) and how far off they are on average.
    """
    # scipy takes longer to load than reading a thousand trials: imported only for comparisons
    from scipy.special import betaincinv

    far, here = far_rounds(values), ~np.isnan(values)
    clearly, rounds, answer = alone(far, here), np.maximum(here.sum(axis=-2), 1), []
    for side in (-1, 1):
        hit = far == side
        count = hit.sum(axis=-2)
        depth = np.where(hit, np.abs(from_levels(values)), 0.0).sum(axis=-2) / np.maximum(count, 1)
        most = betaincinv(count + 1.0, np.maximum(rounds - count, 1), 1 - RARE)
        mine = (count > 0) & (clearly | lonely(far, side))
        answer.append(np.where(mine, depth * (most - count / rounds), 0.0))
    return answer[0], answer[1]


def lasting(values: Values) -> NDArray[np.int64]:
    """Return for each arm how many slow cosines over the rounds tell its levels, 0 where it keeps one level.

    Rounds that are independent have as much variance in slow waves as in fast ones. How much an arm has in the
    slowest is compared with that (a beta distribution), for each arm and for all arms together.
    """
    # scipy takes longer to load than reading a thousand trials: imported only for comparisons
    from scipy.special import betainc

    *studies, rounds, arms = values.shape
    halves = [one for one in _HALVES if 3 * one <= rounds]
    if arms < 2 or not halves:
        return np.zeros((*studies, arms), np.int64)
    turned = _bounded(beside_others(values))
    power = np.cumsum((waves(rounds, halves[-1]).T @ turned) ** 2, axis=-2)[..., [one - 1 for one in halves], :]
    whole = np.maximum((turned**2).sum(axis=-2), 1e-300)[..., None, :]
    few = np.array(halves, dtype=np.float64)
    own = betainc((rounds - 1 - few)[:, None] / 2, few[:, None] / 2, np.clip(1 - power / whole, 0, 1))
    free = max(1, arms - 1)
    share = np.clip(1 - (power / whole).mean(axis=-1), 0, 1)
    together = betainc(free * (rounds - 1 - few) / 2, free * few / 2, share)
    each = LASTING / 2 / len(halves)
    one_arm = own.min(axis=-2) < (each if arms > 2 else 2 * each) / free
    all_arms = (together.min(axis=-1) < each)[..., None] & (arms > 2)
    several = np.array(halves)[together.argmin(axis=-1)][..., None]
    return np.where(one_arm, np.array(halves)[own.argmin(axis=-2)], np.where(all_arms, several, 0))


def beside_others(values: Values) -> Values:
    """Return each arm's rounds less the mean of the other arms in the same round, all less their own mean; 0 where
    nothing was measured.
    """
    here = ~np.isnan(values)
    filled = np.where(here, values, 0.0)
    own = np.where(here, filled - (filled.sum(axis=-2) / np.maximum(here.sum(axis=-2), 1))[..., None, :], 0.0)
    others = here.sum(axis=-1, keepdims=True) - here
    return np.where(here, own - (own.sum(axis=-1, keepdims=True) - own) / np.maximum(others, 1), 0.0)


def waves(rounds: int, count: int) -> Values:
    """Return the slowest cosines over so many rounds, one a column, the first of half a wave; orthonormal."""
    turns = (np.arange(rounds) + 0.5)[:, None] * np.arange(1, count + 1) * math.pi / rounds
    found: Values = math.sqrt(2 / rounds) * np.cos(turns)
    return found


def smooth(values: Values, count: int) -> Values:
    """Return what so many slow cosines have of columns without NaN: their levels, less their mean."""
    basis = waves(values.shape[-2], count)
    found: Values = basis @ (basis.T @ values)
    return found


def between_levels(found: Values, slow: NDArray[np.int64], *, level: float) -> Values:
    """Return the half-width of the interval of each column's mean, at this two-sided level, that its levels allow
    which so many slow cosines (`slow`) tell; 0 for none.

    The variance of a mean is what slow waves have of it, and it is known from as many as there are (equal-weighted
    cosines: Lazarus, Lewis, Stock, Watson, J. Bus. Econ. Stat. 36, 2018). Of few waves that may be any width, but a
    mean is hardly further off than twice the distance of the levels.
    """
    from scipy.special import stdtrit

    rounds = np.maximum((~np.isnan(found)).sum(axis=-2), 1)
    rest = np.where(np.isnan(found), 0.0, found - np.nanmean(found, axis=-2, keepdims=True))
    answer: Values = np.zeros(slow.shape)
    for one in np.unique(slow[slow > 0]):
        power = ((waves(found.shape[-2], int(one)).T @ rest) ** 2).mean(axis=-2)
        levels = smooth(rest, int(one))
        reach = levels.max(axis=-2) - levels.min(axis=-2)
        sds = -stdtrit(float(one), max(level, _LEAST_LEVEL) / 2)
        answer = np.where(slow == one, np.clip(sds * np.sqrt(power / rounds), *(k * reach for k in _LEVELS)), answer)
    return answer


def _bounded(values: Values) -> Values:
    """Return columns with outlying values bounded, less their mean."""
    rest = values - median_of(values)[..., None, :]
    scale = np.maximum(1.4826 * median_of(np.abs(rest)), np.sqrt((rest**2).mean(axis=-2)) / 2)[..., None, :]
    rest = np.clip(rest, -_OUTLYING * scale, _OUTLYING * scale)
    found: Values = rest - rest.mean(axis=-2, keepdims=True)
    return found
