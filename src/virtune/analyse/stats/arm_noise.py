# SPDX-License-Identifier: Apache-2.0
"""The noise of each pair of arms: from the noise of its two arms, and from that of all arms as far as they are alike.

A few rounds show an arm's own noise badly, and that of all arms together well, but arms need not be equally noisy.
How alike they are is unknown too. So the noise of an arm is taken over all degrees of likeness that fit what was
measured, each by how well it fits (empirical Bayes: Smyth, Stat. Appl. Genet. Mol. Biol. 3, 2004; an arm may also
be unlike all others: Phipson, Lee, Majewski, Alexander, Smyth, Ann. Appl. Stat. 10, 2016). A test whether arms are
alike, after which those that passed share one noise, is too sure of it: it kept those whose noise was seen too small
by chance, and 6 to 7 % of equal arms were called different where 5 % are promised.
"""

import math
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from virtune.analyse.stats.noise import EQUAL, Values

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
