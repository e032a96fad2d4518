# SPDX-License-Identifier: Apache-2.0
"""Intervals that may be looked at after every block: seldom wrong, of use, silent where nothing can be said."""

import math

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from numpy.typing import NDArray

from virtune.analyse.stats.anytime import blocks_for, blocks_to_decide, contrast, contrasts, logs, quantile
from virtune.model.tuning import Contrast

ALL_OF_FOUR = [(a, b) for a in range(4) for b in range(a)]


def blocks(seed: int, count: int, arms: int, *, sd: float = 0.05, lag1: float = 0.0) -> NDArray[np.float64]:
    """Equal arms: independent noise, or noise of which `lag1` stays from block to block."""
    noise = np.random.default_rng(seed).standard_normal((count, arms))
    for row in range(1, count):
        noise[row] = lag1 * noise[row - 1] + math.sqrt(1 - lag1**2) * noise[row]
    return 10 + sd * noise


def ever_different(values: NDArray[np.float64], pairs: list[tuple[int, int]], alpha: float) -> bool:
    """Whether somebody who looks after every block would ever have said "different"."""
    return any(
        found.low > 0 or found.high < 0
        for count in range(3, len(values) + 1)
        for found in contrasts(values[:count], pairs, alpha=alpha)
    )


@pytest.mark.parametrize("lag1", [0.0, 0.3])
def test_equal_arms_are_seldom_called_different_however_often_one_looks(lag1: float) -> None:
    wrong = sum(
        ever_different(blocks(seed, 30, 4, lag1=lag1), ALL_OF_FOUR, alpha=0.05 / len(ALL_OF_FOUR))
        for seed in range(50)
    )
    assert wrong <= 5  # at 5 %, more than 5 of 50 has probability 0.04


def test_the_quantile_is_the_one_of_the_literature() -> None:
    found = [quantile(n, n - 1, 0.05) for n in (5, 10, 30)]
    assert found == pytest.approx([8.453, 3.870, 3.347], abs=1e-3)
    assert quantile(4, 3, 0.05) == quantile(1, 0, 0.05) == math.inf


def test_a_difference_is_found_and_the_interval_holds_it() -> None:
    values = blocks(3, 25, 2)
    values[:, 0] += math.log(1.1)
    found = contrasts(values, [(0, 1), (1, 0)], alpha=0.05)
    assert 0 < found[0].low < math.log(1.1) < found[0].high
    assert found[1].mean == pytest.approx(-found[0].mean)
    assert found[0].why is None


def test_dips_of_the_host_do_not_widen_the_interval_as_they_would_the_plain_one() -> None:
    calm = blocks(5, 30, 2)
    dipped = calm.copy()
    dipped[[4, 17], 0] -= 0.7
    found = contrasts(dipped, [(0, 1)], alpha=0.05)[0]
    plain = float(np.std(dipped[:, 0] - dipped[:, 1], ddof=1))
    assert found.sd is not None
    assert found.sd < plain / 1.5
    assert found.low < 0 < found.high


def test_pairs_lend_one_another_their_noise_but_not_to_one_that_is_noisier() -> None:
    values = blocks(7, 6, 8, sd=0.02)
    alone = contrast(list(values[:, 0]), list(values[:, 1]), alpha=0.01)
    among = contrasts(values, [(0, arm) for arm in range(1, 8)], alpha=0.01)
    assert among[0].df > alone.df
    assert among[0].radius < alone.radius / 1.5
    values[:, 7] += np.random.default_rng(8).standard_normal(6)
    wild = contrasts(values, [(0, arm) for arm in range(1, 8)], alpha=0.01)[-1]
    assert wild.df == 5
    assert wild.low < 0 < wild.high


def test_blocks_that_are_alike_count_for_less() -> None:
    same = [contrasts(blocks(9, 40, 4, lag1=lag1), [(0, 1)], alpha=0.05)[0].lag1 for lag1 in (0.0, 0.8)]
    assert same[0] < 0.4 < 0.6 < same[1] <= 0.9


@pytest.mark.parametrize(
    ("a", "b", "why"),
    [
        ([], [], "no block has a usable value of both"),
        ([1.0], [2.0], "one block cannot show"),
        ([5.0, 6.0], [5.0, 6.1], "2 blocks are too few"),
        ([5.0] * 30, [5.0] * 30, "exactly the same ratio"),
        ([5.0, 6.0, 7.0] * 9, [6.0, 7.2, 8.4] * 9, "exactly the same ratio"),
        ([0.0] * 30, [1.0] * 30, "no block has a usable value"),
        ([math.nan] * 30, [1.0] * 30, "no block has a usable value"),
        ([math.inf, -1.0] * 15, [1.0] * 30, "no block has a usable value"),
    ],
)
def test_what_can_bear_no_interval_has_none_and_says_why(a: list[float], b: list[float], why: str) -> None:
    found = contrast(logs(a), logs(b), alpha=0.05)
    assert found.radius == math.inf
    assert found.why is not None
    assert why in found.why.text


def test_a_crashed_arm_takes_no_other_with_it() -> None:
    values = blocks(11, 10, 4)
    values[:, 2] = np.nan
    values[0, 1] = np.inf
    found = contrasts(values, [(0, 1), (0, 2), (0, 3)], alpha=0.05)
    assert [one.blocks for one in found] == [9, 0, 10]
    assert [math.isfinite(one.radius) for one in found] == [True, False, True]


@given(st.lists(st.lists(st.floats(width=32), min_size=3, max_size=3), max_size=12), st.floats(1e-6, 0.5))
def test_nothing_that_can_be_measured_breaks_it(rows: list[list[float]], alpha: float) -> None:
    values = np.array(rows, dtype=np.float64).reshape(-1, 3)
    for found in contrasts(values, [(0, 1), (0, 2), (1, 2)], alpha=alpha):
        assert found.radius > 0
        assert math.isfinite(found.mean)
        assert (found.why is None) == math.isfinite(found.radius)


def test_the_forecast_is_what_it_takes() -> None:
    count = blocks_for(0.03, sd=0.05, alpha=0.05)
    assert count is not None
    assert quantile(count, count - 1, 0.05) * 0.05 / math.sqrt(count) <= 0.03
    assert quantile(count - 1, count - 2, 0.05) * 0.05 / math.sqrt(count - 1) > 0.03
    assert blocks_for(0.03, sd=0.05, alpha=0.05, arms=8) == pytest.approx(count, abs=12)
    assert blocks_for(1e-9, sd=0.05, alpha=0.05) is None
    assert blocks_for(0.0, sd=0.05, alpha=0.05) is None


def decided(found: Contrast) -> bool:
    return abs(found.mean) > found.radius or abs(found.mean) + found.radius < math.log(1.03)


@pytest.mark.parametrize("effect", [0.0, 0.05])
def test_what_is_forecast_after_ten_blocks_is_enough_with_90_percent_probability(effect: float) -> None:
    kept = told = 0
    for seed in range(75):
        values = blocks(seed, 700, 2)
        values[:, 0] += effect
        early = contrasts(values[:10], [(0, 1)], alpha=0.05)[0]
        count = blocks_to_decide(early, margin=0.03, alpha=0.05)
        if decided(early):
            continue
        assert count is not None
        assert count > 10
        told += 1
        kept += decided(contrasts(values[:count], [(0, 1)], alpha=0.05)[0])
    assert told > 50
    assert kept >= 0.85 * told  # 0.9 of them expected, where noise is known but for chance


def test_without_known_noise_nothing_is_forecast() -> None:
    assert blocks_to_decide(contrast([1.0], [2.0], alpha=0.05), margin=0.03, alpha=0.05) is None
