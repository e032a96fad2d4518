# SPDX-License-Identifier: Apache-2.0
"""Differences in words: a ratio as a percentage, with its interval."""

from virtune.model.verdict import Interval


def difference_text(ratio: Interval) -> str:
    """Write a ratio as a difference in percent with its interval: `-12.3 % [-15.0, -9.5]`."""
    return f"{percent_text(ratio.estimate)} % [{percent_text(ratio.low)}, {percent_text(ratio.high)}]"


def percent_text(ratio: float) -> str:
    """Write a ratio as a signed percentage with as many digits as it bears."""
    value = (ratio - 1) * 100
    return f"{value:+,.0f}" if abs(value) >= 100 else f"{value:+.1f}"
