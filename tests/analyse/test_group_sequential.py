# SPDX-License-Identifier: Apache-2.0
"""Boundaries against published tables, and a spending that never spends more than there is."""

import math

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from scipy.special import ndtr, ndtri

from virtune.analyse.stats.planned import dunnett_alpha, final_level, level_after, level_of, spent

FIFTHS = [0.2, 0.4, 0.6, 0.8, 1.0]


@pytest.mark.parametrize(
    ("spending", "published"),
    [
        # O'Brien-Fleming-like and Pocock-like spending of Lan and DeMets (1983), five equal looks, two-sided 0.05
        (lambda t: 4 * ndtr(ndtri(0.0125) / math.sqrt(t)), [4.8769, 3.3569, 2.6803, 2.2898, 2.0310]),
        (lambda t: 0.05 * math.log1p((math.e - 1) * t), [2.4380, 2.4268, 2.4101, 2.3966, 2.3859]),
    ],
)
def test_boundaries_are_those_of_the_literature(spending: object, published: list[float]) -> None:
    spends = tuple((share, float(spending(share))) for share in FIFTHS)  # type: ignore[operator]
    found = [-ndtri(level_after(spends[:count]) / 2) for count in range(1, 6)]
    assert found == pytest.approx(published, abs=2e-4)


def test_all_looks_together_err_as_often_as_is_spent() -> None:
    """Sums of normal rounds, looked at after every round from the sixth; 4,000 have a standard error of 0.3 %."""
    looks = tuple((float(count), count / 40) for count in range(6, 41))
    levels = [level_of(looks[: index + 1], 0.05) for index in range(len(looks))]
    sums = np.random.default_rng(3).standard_normal((4000, 40)).cumsum(axis=1)[:, 5:]
    bounds = -ndtri(np.array(levels) / 2) * np.sqrt(np.arange(6, 41))
    assert (np.abs(sums) > bounds).any(axis=1).mean() == pytest.approx(0.05, abs=0.009)
    late = (np.abs(sums) > bounds)[:, :17].any(axis=1).mean()  # half of the plan has spent 3 % of the error
    assert late == pytest.approx(spent(22 / 40, 0.05), abs=0.002)


@given(st.lists(st.tuples(st.integers(1, 60), st.floats(0, 1)), min_size=1, max_size=8), st.floats(1e-4, 0.2))
def test_any_looks_have_a_level_that_what_was_spent_bounds(steps: list[tuple[int, float]], alpha: float) -> None:
    rounds, share, looks = 0.0, 0.0, []
    for more, done in steps:
        rounds, share = rounds + more, max(share, done)
        looks.append((rounds, share))
    level = level_of(tuple(looks), alpha)
    assert 0 <= level <= alpha * (1 + 1e-6) or level <= spent(share, alpha) * (1 + 1e-3)


def test_a_look_at_which_nothing_is_spent_decides_nothing() -> None:
    assert level_of((), 0.05) == 0
    assert level_of(((6.0, 0.5), (7.0, 0.5)), 0.05) < 1e-12


def test_a_plan_of_one_look_is_an_ordinary_test_and_the_last_of_many_nearly_so() -> None:
    assert level_of(((30.0, 1.0),), 0.05) == pytest.approx(0.05, rel=1e-6)
    assert 0.042 < final_level(0.05) < 0.05


def test_a_long_plan_needs_no_deep_recursion() -> None:
    looks = tuple((float(count), count / 1500) for count in range(6, 1500, 2))
    assert 0 < level_of(looks, 0.05) < 0.05


def test_comparisons_with_one_baseline_share_the_error_as_dunnett_says() -> None:
    # two-sided 5 % of Dunnett's table (correlation 0.5, infinite degrees of freedom) for 2, 3, 5 and 9 others
    found = [-ndtri(dunnett_alpha(others, 0.05) / 2) for others in (1, 2, 3, 5, 9)]
    assert found == pytest.approx([1.960, 2.212, 2.349, 2.511, 2.686], abs=0.003)
    assert dunnett_alpha(3, 0.05) > 0.05 / 3
