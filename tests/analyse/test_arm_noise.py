# SPDX-License-Identifier: Apache-2.0
"""The noise of pairs of arms: from all arms as far as they are alike, and from its own as far as they are not."""

from itertools import combinations

import numpy as np
import pytest
from numpy.typing import NDArray
from scipy.special import stdtrit

from virtune.analyse.stats.arms import certain, pair_noise
from virtune.analyse.stats.planned import ALIKE_SHARE, foreseen_freedom, planned_contrasts
from virtune.model.verdict import PLANNED_ROUNDS_MIN, ROUNDS_MIN

ARMS, ROUNDS, RUNS = 5, 12, 300


def drawn(chance: np.random.Generator, *, baseline: float) -> NDArray[np.float64]:
    noise = 0.05 * chance.standard_normal((ROUNDS, ARMS))
    noise[:, 0] *= baseline
    return noise


def judged(
    *factors: float, rounds: int = ROUNDS, runs: int = RUNS
) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
    """Return variance and degrees of freedom that many studies find of each pair of arms with these noises."""
    pairs = list(combinations(range(len(factors)), 2))
    noise = np.random.default_rng(7).standard_normal((runs, rounds, len(factors))) * factors
    apart = noise[:, :, [a for a, _ in pairs]] - noise[:, :, [b for _, b in pairs]]
    return pair_noise(apart.var(axis=1, ddof=1), pairs, np.full(len(pairs), rounds - 1.0))


@pytest.mark.parametrize(("arms", "rounds"), [(3, 12), (4, 25), (5, 5), (8, 6), (8, 12), (8, 25)])
def test_of_equal_arms_a_pairs_noise_is_as_certain_as_is_said(arms: int, rounds: int) -> None:
    variance, df = judged(*[1.0] * arms, rounds=rounds)
    said, found = 1 / np.mean(1 / df), 2 / np.var(np.log(variance))
    # in the fewest rounds less is said than is found, since one arm that is unlike would not be seen
    least, share = (0.75, ALIKE_SHARE - 0.1) if rounds > ROUNDS_MIN else (0.65, ALIKE_SHARE - 0.25)
    assert least < said / found < 1.25
    assert said > (rounds - 1) * (1.5 if arms == 3 else 2)
    assert share < said / ((rounds - 1) * (arms - 1)) < ALIKE_SHARE + 0.15
    assert foreseen_freedom(rounds, arms) == pytest.approx(said, rel=0.12)


def test_the_noise_of_a_pair_is_that_of_its_two_arms() -> None:
    variance, _ = judged(1.0, 1.0, 2.0, 5.0, rounds=200, runs=100)
    assert np.median(variance, axis=0) == pytest.approx([2, 5, 26, 5, 26, 29], rel=0.05)


def test_a_noisy_arm_takes_hardly_any_noise_from_the_quiet_ones_and_these_lend_one_another() -> None:
    variance, df = judged(10.0, 1.0, 1.0, 1.0, 1.0)
    noisy, quiet = df[:, :4], df[:, 4:]
    assert np.median(variance[:, :4]) > 0.85 * 101
    assert np.median(noisy) < 1.6 * (ROUNDS - 1)
    assert quiet.min() >= ROUNDS - 1
    alike = judged(10.0, *[1.0] * 7)[1][:, 7:]
    assert np.median(alike) > 4 * (ROUNDS - 1)


def test_arms_that_are_each_noisy_in_their_own_way_lend_one_another_little() -> None:
    _, alike = judged(*[1.0] * 8)
    _, unlike = judged(*np.geomspace(1, 20, 8))
    assert np.median(unlike) < 2 * (ROUNDS - 1) < 4 * (ROUNDS - 1) < np.median(alike)


def test_two_arms_and_arms_of_which_a_pair_is_missing_have_their_own_noise_alone() -> None:
    free = np.array([11.0, 11.0])
    for pairs in ([(0, 1)], [(0, 1), (0, 2)]):
        own = np.arange(1.0, len(pairs) + 1)
        variance, df = pair_noise(own, pairs, free[: len(pairs)])
        assert list(variance) == list(own)
        assert list(df) == [11.0] * len(pairs)


def test_arms_that_do_not_vary_at_all_raise_no_error() -> None:
    variance, df = pair_noise(np.zeros(3), list(combinations(range(3), 2)), np.full(3, 5.0))
    assert np.isfinite(variance).all()
    assert np.isfinite(df).all()


def test_an_arm_is_as_certain_as_the_sum_of_covariances_that_it_is() -> None:
    """Its variance is estimated from the differences of all pairs; by simulation."""
    pairs = list(combinations(range(ARMS), 2))
    noise = np.random.default_rng(8).standard_normal((4000, ROUNDS, ARMS))
    own = np.stack([np.var(noise[..., a] - noise[..., b], axis=1, ddof=1) for a, b in pairs], axis=-1)
    first = (own[:, :4].sum(axis=1) - own.sum(axis=1) / (ARMS - 1)) / (ARMS - 2)
    assert 2 / first.var() == pytest.approx(float(certain(np.array(ARMS), ROUNDS - 1.0)), rel=0.1)


def called_different(factors: NDArray[np.float64], rounds: int, seed: int) -> float:
    """Return the share of studies of equal arms with these noises (studies x arms) in which a pair with the first arm
    is called different by one look, at 5 % for all pairs together (Bonferroni).
    """
    runs, arms = factors.shape
    pairs = list(combinations(range(arms), 2))
    noise = np.random.default_rng(seed).standard_normal((runs, rounds, arms)) * factors[:, None, :]
    apart = noise[:, :, [a for a, _ in pairs]] - noise[:, :, [b for _, b in pairs]]
    variance, df = pair_noise(apart.var(axis=1, ddof=1), pairs, np.full(len(pairs), rounds - 1.0))
    beyond = np.abs(apart.mean(axis=1)) / np.sqrt(variance / rounds) > stdtrit(df, 1 - 0.025 / (arms - 1))
    return float(beyond[:, : arms - 1].any(axis=1).mean())


@pytest.mark.parametrize("baseline", [1.0, 3.0, 10.0])
@pytest.mark.parametrize(("arms", "rounds"), [(4, 12), (5, 12), (8, 12)])
def test_the_pairs_of_a_noisy_baseline_are_seldom_called_different(baseline: float, arms: int, rounds: int) -> None:
    """0.13 were when the quiet arms lent all of their noise."""
    factors = np.ones((4000, arms))
    factors[:, 0] = baseline
    assert called_different(factors, rounds, 2) < 0.07


@pytest.mark.parametrize("baseline", [2.0, 3.0])
@pytest.mark.parametrize("rounds", [PLANNED_ROUNDS_MIN, ROUNDS_MIN])
def test_in_the_fewest_rounds_a_noisier_baseline_that_hardly_shows_is_allowed_for(
    rounds: int, baseline: float
) -> None:
    factors = np.ones((4000, 8))
    factors[:, 0] = baseline
    # 0.083 and 0.084 without; means as they are, and Bonferroni, are called different more often than in a comparison
    assert called_different(factors, rounds, 2) < 0.075


@pytest.mark.parametrize("most", [1.0, 2.0, 5.0, 20.0])
def test_eight_arms_that_are_each_noisy_in_their_own_way_are_seldom_called_different(most: float) -> None:
    """6 to 7 % were while a test said which arms are alike, and those then shared one noise."""
    factors = np.exp(np.random.default_rng(9).uniform(0, np.log(most), (4000, 8)))
    assert called_different(factors, ROUNDS, 3) < 0.05


def test_the_rounds_of_one_noisy_arm_do_not_say_how_alike_all_rounds_are() -> None:
    """Its squares are a hundred times those of the others, which are independent from round to round."""
    chance, seen = np.random.default_rng(10), []
    for _ in range(60):
        noise = chance.standard_normal((25, 8))
        for row in range(1, 25):
            noise[row, 7] = 0.8 * noise[row - 1, 7] + 0.6 * noise[row, 7]
        noise[:, 7] *= 10
        seen.append(planned_contrasts(noise, [(1, 0)], level=0.01)[0].lag1)
    assert np.mean(seen) < 0.3  # a quarter of the pairs have it in them; 0.7 where all count by their squares
