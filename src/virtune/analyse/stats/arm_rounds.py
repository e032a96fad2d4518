# SPDX-License-Identifier: Apache-2.0
"""What the rounds of one arm did beside those of the others: rounds far from its level, and levels that last.

Values come as ln(metric); the last two axes are rounds and arms, further ones are kept, as one row for each study.
NaN is "not measured". Both are looked for against the other arms of the same rounds, so that what befalls the host,
and every arm alike, is neither.
"""

import math

import numpy as np
from numpy.typing import NDArray

from virtune.analyse.stats.noise import Values, median_of
from virtune.analyse.stats.student import fisher

FAR = math.log(1.2)
"""A round is far from its arm's level from a factor of 1.2 on, up or down, ..."""

FAR_SDS = 5.0
"""... and so many robust standard deviations of the arm's rounds."""

ALONE = 0.05
"""Fisher's exact test, one-sided, below this: far rounds are the arm's own and no chance of the host. It accuses
nobody wrongly where it is wrong, but has both means speak; so it is not shared by the arms."""

LASTING = 0.07
"""How often levels that last are seen in rounds that are independent, over all arms of a study together."""

_HALVES = (1, 2, 4, 8, 16)
"""Slow changes are looked for in this many of the slowest cosines over the rounds, of half a wave and more."""

_LEVELS = 0.5, 2.0
"""The interval of a mean reaches half the distance of the levels at least, or one of them would be outside of it, and
twice that at most."""

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
