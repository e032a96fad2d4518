# SPDX-License-Identifier: Apache-2.0
"""Differences as people read them: the sign, the ends in their order, and no number that says nothing."""

import math

import pytest

from virtune.model.verdict import Interval
from virtune.report.words import change_words, count_text, difference_text, limits_text, share_text


def ratio(estimate: float, low: float, high: float) -> Interval:
    return Interval(estimate=estimate, low=low, high=high, confidence=0.95)


@pytest.mark.parametrize(
    ("interval", "text"),
    [
        (ratio(0.877, 0.85, 0.905), "-12.3 % [-15.0, -9.5]"),
        (ratio(1.1, 1.001, 1.208), "+10.0 % [+0.1, +20.8]"),
        (ratio(3.0, 1.5, 9.0), "+200 % [+50.0, +800]"),
        (ratio(3.0, 1.5, 12.0), "+200 % [+50.0, x10 or more]"),
        (ratio(12.3, 9.1, 16.0), "x12.3 [x9.1, x16]"),
        (ratio(1.0, 0.09, 9.1), "+0.0 % [rounds too unlike to tell]"),
        (ratio(0.7, 0.001, 714.25), "-30.0 % [rounds too unlike to tell]"),
        (ratio(0.7, 0.0, 1.2), "-30.0 % [rounds too unlike to tell]"),
        (ratio(0.06, 0.001, 0.714), "-94.0 % [-99.9, -28.6]"),
        (ratio(1.2, 1.1, math.inf), "+20.0 % [+10.0, x10 or more]"),
        (ratio(0.7, 0.0, 0.9), "-30.0 % [-100, -10.0]"),
    ],
)
def test_a_difference_has_its_sign_and_its_ends_in_order(interval: Interval, text: str) -> None:
    assert difference_text(interval) == text


def test_shares_changes_and_counts() -> None:
    assert (share_text(0.004), share_text(0.082), share_text(0.53)) == ("0.4 %", "8.2 %", "53 %")
    assert (change_words(0.5), change_words(25.0)) == ("-50.0 %", "x25")
    assert change_words(0.0004) == "-99.96 %", "something is left"
    assert limits_text(math.log(1.1)) == "-9.1 % to +10.0 %"
    assert limits_text(5_000.0) == "x10 or more, either way", "no logarithm is too large"
    assert (count_text(1, "round"), count_text(2, "round"), count_text(0, "trial")) == (
        "1 round", "2 rounds", "0 trials",
    )  # fmt: skip
