# SPDX-License-Identifier: Apache-2.0
"""Noise that arms lend one another: only where no arm is noisier than the others."""

from itertools import combinations

import numpy as np
import pytest

from virtune.analyse.stats.noise import arms_alike
from virtune.analyse.stats.planned import APART_LEVEL, planned_contrasts

ARMS, ROUNDS, RUNS = 5, 12, 300


def drawn(chance: np.random.Generator, *, baseline: float) -> np.ndarray[tuple[int, int], np.dtype[np.float64]]:
    noise = 0.05 * chance.standard_normal((ROUNDS, ARMS))
    noise[:, 0] *= baseline
    return noise


def alike(values: np.ndarray[tuple[int, int], np.dtype[np.float64]]) -> bool:
    pairs = list(combinations(range(ARMS), 2))
    own = np.array([np.var(values[:, a] - values[:, b], ddof=1) for a, b in pairs])
    return arms_alike(own, pairs, np.full(len(pairs), ROUNDS - 1.0), level=APART_LEVEL)


@pytest.mark.parametrize(("baseline", "low", "high"), [(1.0, 0.0, 0.2), (3.0, 0.8, 1.0), (10.0, 0.99, 1.0)])
def test_an_arm_that_is_noisier_is_found_and_equal_ones_seldom_are(baseline: float, low: float, high: float) -> None:
    chance = np.random.default_rng(1)
    apart = sum(not alike(drawn(chance, baseline=baseline)) for _ in range(RUNS)) / RUNS
    assert low <= apart <= high


def test_two_arms_lend_nothing_and_are_alike() -> None:
    assert arms_alike(np.array([1.0]), [(0, 1)], np.array([11.0]), level=APART_LEVEL)


def test_the_pairs_of_a_noisy_baseline_are_judged_by_their_own_noise() -> None:
    chance, wrong = np.random.default_rng(2), 0
    pairs = [(arm, 0) for arm in range(1, ARMS)]
    for _ in range(RUNS):
        found = planned_contrasts(drawn(chance, baseline=10.0), pairs, level=0.0125)  # Bonferroni: 5 % for all four
        wrong += any(abs(one.mean or 0.0) > one.radius for one in found)
    assert wrong / RUNS < 0.075  # 0.13 when the quiet arms lend their noise; 5 % and two standard errors
