# SPDX-License-Identifier: Apache-2.0
"""Estimate the levels of all arms from all blocks, where not every block held every arm.

A parked arm and the leader share only early blocks, in which the leader probably had luck. So leader and contenders
are judged from all blocks together: ln value = level of the block + level of the arm + noise, with the arms' levels
shrunk towards their common mean (the best linear unbiased prediction of a two-way layout with random arms; Henderson
1975, Searle, Casella, McCulloch 1992, 7.4), single dips clipped as Huber does. This only decides what to measure
next. The reported results rest on the intervals of `anytime`.
"""

import math

import numpy as np

from virtune.analyse.stats.anytime import HUBER_K
from virtune.analyse.stats.noise import Values

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
