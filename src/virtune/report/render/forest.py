# SPDX-License-Identifier: Apache-2.0
"""Confidence intervals drawn as text: a dot with a line to each side on an axis of ratios, and an arrow beyond its
ends.
"""

import itertools
import math
from collections.abc import Iterable

from virtune.model.text import format_share
from virtune.model.verdict import Interval
from virtune.report.words import HOPELESS

COLUMNS = 25
"""Odd, so that one column is "no change"."""

REACHES = (0.05, 0.1, 0.2, 0.3, 0.5, 1.0, 2.0, 4.0, 6.0, 9.0)
"""The ranges of the axis up to a factor of ten: a ratio of 1 + this to the right, and its reciprocal to the left.
Beyond it goes by factors of 20, 50, 100 and so on.
"""


def reach_of(ends: Iterable[float]) -> float:
    """Return the smallest range that includes these ratios."""
    widest = max((abs(math.log(end)) for end in ends if end > 0 and math.isfinite(end)), default=0.0)
    beyond = (step * 10.0**power - 1 for power in itertools.count(1) for step in (2, 5, 10))
    return next(reach for reach in itertools.chain(REACHES, beyond) if widest <= math.log1p(reach) + 1e-9)


def axis_of(ratios: Iterable[Interval]) -> float:
    """Return the range of an axis on which these intervals are drawn, as text or as a picture: it holds every
    estimate, and the ends of intervals that are no wider than tells something.
    """
    found = list(ratios)
    ends = [end for one in found if one.high <= one.low * HOPELESS for end in (one.low, one.high)]
    return reach_of([*ends, *(one.estimate for one in found)])


def axis_ends(reach: float) -> tuple[str, str]:
    left = 100 * (1 / (1 + reach) - 1)
    if reach < REACHES[-1]:
        return f"{left:.0f} %", f"+{format_share(reach)}"
    return f"{left:.12g} %", f"x{1 + reach:,.0f}"


def axis(reach: float, middle: str) -> str:
    left, right = axis_ends(reach)
    half = COLUMNS // 2
    before = f"{left}{' ' * (half - len(left) - len(middle) // 2)}{middle}"
    return f"{before}{' ' * (COLUMNS - len(before) - len(right))}{right}"


def bar(low: float, estimate: float, high: float, reach: float) -> str:
    """Draw a ratio with its interval; `│` is no change. An arrow marks an end beyond the axis."""
    cells = [" "] * COLUMNS
    cells[COLUMNS // 2] = "│"
    first, last = _column(low, reach), _column(high, reach)
    for column in range(max(0, first), min(COLUMNS - 1, last) + 1):
        cells[column] = "─"
    if first >= 0:
        cells[min(first, COLUMNS - 1)] = "├"
    if last < COLUMNS:
        cells[max(last, 0)] = "┤"
    if first < 0:
        cells[0] = "◀"
    if last >= COLUMNS:
        cells[-1] = "▶"
    middle = _column(estimate, reach)
    if 0 <= middle < COLUMNS:
        cells[middle] = "●"
    return "".join(cells)


def _column(ratio: float, reach: float) -> int:
    """Return the column of a ratio; -1 and COLUMNS are beyond the ends."""
    if not ratio > 0:
        return -1
    if not math.isfinite(ratio):
        return COLUMNS
    half = COLUMNS // 2
    return max(-1, min(COLUMNS, half + round(math.log(ratio) / math.log1p(reach) * half)))
