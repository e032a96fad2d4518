# SPDX-License-Identifier: Apache-2.0
"""Intervals as text: the dot where the estimate is, arrows where the axis ends first."""

import pytest

from virtune.report.render.forest import COLUMNS, REACHES, axis, bar, reach_of


def test_no_change_is_the_middle_and_better_is_to_the_right() -> None:
    middle = COLUMNS // 2
    assert bar(1.0, 1.0, 1.0, 0.1)[middle] == "●"
    up, down = bar(1.04, 1.05, 1.06, 0.1), bar(0.94, 0.95, 0.96, 0.1)
    assert up.index("●") > middle > down.index("●")
    assert up[middle] == down[middle] == "│"
    assert up.index("├") < up.index("●") < up.index("┤")


@pytest.mark.parametrize(
    ("ratios", "first", "last"),
    [
        ((0.98, 1.0, 1.02), " ", " "),
        ((0.2, 1.0, 1.02), "◀", " "),
        ((0.98, 1.0, 5.0), " ", "▶"),
        ((0.0, 1.0, float("inf")), "◀", "▶"),
        ((3.0, 4.0, 5.0), " ", "▶"),
        ((0.2, 0.25, 0.3), "◀", " "),
    ],
)
def test_what_goes_on_beyond_the_axis_has_an_arrow(ratios: tuple[float, float, float], first: str, last: str) -> None:
    drawn = bar(*ratios, 0.3)
    assert len(drawn) == COLUMNS
    assert (drawn[0], drawn[-1]) == (first, last)


@pytest.mark.parametrize("reach", REACHES)
def test_the_axis_says_where_it_ends(reach: float) -> None:
    head = axis(reach, "0")
    assert len(head) == COLUMNS
    assert head[COLUMNS // 2] == "0"
    assert head.startswith("-")
    assert reach_of([1 + reach * 0.99]) == reach
    assert reach_of([1 / (1 + reach * 0.99)]) == reach
