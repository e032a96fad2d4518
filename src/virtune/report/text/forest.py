# SPDX-License-Identifier: Apache-2.0
"""Confidence intervals drawn as text: a dot with a line to each side on an axis of ratios, and an arrow beyond its
ends.
"""

import math
from collections.abc import Iterable

from virtune.model.units import format_share

COLUMNS = 25
"""Odd, so that one column is "no change"."""

REACHES = (0.05, 0.1, 0.2, 0.3, 0.5, 1.0, 2.0, 4.0, 6.0, 9.0)
"""The possible ranges of the axis: a ratio of 1 + this to the right, and its reciprocal to the left."""


def reach_of(ends: Iterable[float]) -> float:
    """Return the smallest range that includes these ratios; the largest if none does."""
    widest = max((abs(math.log(end)) for end in ends if end > 0 and math.isfinite(end)), default=0.0)
    return next((reach for reach in REACHES if widest <= math.log1p(reach)), REACHES[-1])


def axis(reach: float, middle: str) -> str:
    """Return the labels of the axis: its ends and its middle."""
    left, right = f"{100 * (1 / (1 + reach) - 1):.0f} %", f"+{format_share(reach)}"
    if reach == REACHES[-1]:
        right = "x10"
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
