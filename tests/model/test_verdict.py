# SPDX-License-Identifier: Apache-2.0
"""When rounds are enough for a verdict, and when an interval lies within a margin."""

import pytest

from virtune.model.verdict import ROUNDS_MIN, Interval, fewest_planned


def sign_test(rounds: int) -> float:
    """The smallest p that a two-sided sign test of so many rounds can have."""
    return 2 * 0.5**rounds


def test_the_fewest_rounds_are_the_first_that_could_show_a_difference() -> None:
    assert sign_test(ROUNDS_MIN) < 0.05 <= sign_test(ROUNDS_MIN - 1)


def test_a_plan_takes_a_round_fewer_where_a_third_arm_shows_the_noise() -> None:
    assert [fewest_planned(arms) for arms in (2, 3, 4, 8)] == [6, 5, 5, 5]


@pytest.mark.parametrize("margin", [0.03, 0.25])
@pytest.mark.parametrize("end", [0.76, 0.79, 0.81, 0.95, 0.9705, 0.972, 1.0, 1.02, 1.031, 1.24, 1.26])
def test_exchanging_the_sides_changes_nothing(margin: float, end: float) -> None:
    one = Interval(estimate=1.0, low=min(end, 1.0), high=max(end, 1.0), confidence=0.95)
    other = Interval(estimate=1.0, low=1 / one.high, high=1 / one.low, confidence=0.95)
    assert one.within(margin) == other.within(margin)
    assert one.within(margin) == (1 / (1 + margin) < end < 1 + margin)
