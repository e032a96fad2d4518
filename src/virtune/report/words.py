# SPDX-License-Identifier: Apache-2.0
"""Figures in words: a value with its unit, a ratio as a percentage with its interval, with significant digits only.
All verbs use them.
"""

import math
from collections.abc import Iterable, Sequence
from typing import assert_never

from virtune.model.metric import Metric
from virtune.model.result import LoadEstimate
from virtune.model.text import format_bandwidth, format_count, format_ns, format_share
from virtune.model.verdict import Interval

TENFOLD = 10.0
"""From this ratio on a difference is written as a factor, and an interval's end as "or more"."""

HOPELESS = 100.0
"""An interval around 0 whose ends are further apart than this factor tells nothing: too few rounds, or too unlike."""

_CHANCE_LEAST = 0.01
"""A chance below it is said to be below it: no test here is so exact that more digits would tell more."""

TOO_FEW = "too few rounds to tell"

TOO_WIDE = "rounds too unlike to tell"


def difference_text(ratio: Interval, too_wide: str = TOO_WIDE) -> str:
    """Write a ratio as a difference in percent with its interval: `-12.3 % [-15.0, -9.5]`; one that does not say its
    direction either may be too wide for that.
    """
    if ratio.low <= 1 <= ratio.high and not 0 < ratio.low <= ratio.high <= ratio.low * HOPELESS:
        return f"{change_words(ratio.estimate)} [{too_wide}]"
    return f"{change_words(ratio.estimate)} [{_end(ratio.low, ratio.estimate)}, {_end(ratio.high, ratio.estimate)}]"


def end_words(end: float, estimate: float) -> str:
    """Write an end of an interval by itself: `+12.3 %`, or `x10 or more`."""
    words = _end(end, estimate)
    return words if words.startswith("x") else f"{words} %"


def change_words(ratio: float) -> str:
    """Write a ratio as a change: `-12.3 %`, or `x12` where it is ten times as much or more."""
    return f"x{ratio:,.3g}" if ratio >= TENFOLD else f"{percent_text(ratio)} %"


def limits_text(reach: float) -> str:
    """Write how far a ratio may be from 1 either way, from its natural logarithm: `-9.1 % to +10.0 %`."""
    if reach >= math.log(TENFOLD):
        return f"x{TENFOLD:.0f} or more, either way"
    return f"{change_words(math.exp(-reach))} to {change_words(math.exp(reach))}"


def percent_text(ratio: float) -> str:
    """Write a ratio as a signed percentage with its significant digits."""
    value = (ratio - 1) * 100
    if value > -100 and round(value, 1) <= -100:  # something is left
        return f"{math.trunc(value * 100) / 100:+g}"
    return f"{value:+,.0f}" if abs(value) >= 100 else f"{value:+.1f}"


def quantity(metric: Metric, number: float) -> str:
    """Write a value of a metric, which is in its base unit, for people."""
    match metric.unit:
        case "1/s":
            return format_count(number)
        case "B/s":
            return format_bandwidth(number)
        case "ns":
            return format_ns(number)
        case "%":
            return f"{number:.1f} %"
        case "s/io":
            return format_ns(number * 1e9)
        case "1/io":
            return f"{number:.3g}" if number < 1000 else format_count(number)
        case _:
            assert_never(metric.unit)


def share_text(share: float) -> str:
    """Write a share of 1 as a percentage: `0.4 %`, `8.2 %`, `53 %`."""
    return format_share(share, 1 if abs(share) < 0.1 else 0)


def count_text(count: int, word: str) -> str:
    """Write a count with its noun: `1 round`, `2 rounds`."""
    return f"{count:,} {word}{'' if count == 1 else 's'}"


def names_text(names: Iterable[str], most: int) -> str:
    once = list(dict.fromkeys(names))
    return ", ".join(once[:most]) + (f" and {len(once) - most} more" if len(once) > most else "")


def cut_text(text: str, most: int) -> str:
    return text if len(text) <= most else f"{text[: most - 3]}..."


def methods_text(methods: Sequence[int]) -> str:
    """Say by which of virtune's methods figures were derived: `method 8`, `methods 7 and 8`."""
    numbers = " and ".join(map(str, methods))
    return f"method{'' if len(methods) == 1 else 's'} {numbers or 'none'}"


def _end(ratio: float, estimate: float) -> str:
    """Write an end of an interval as its estimate is; a percentage is capped at a factor of ten."""
    if estimate >= TENFOLD:
        return f"x{ratio:,.3g}"
    return percent_text(ratio) if ratio < TENFOLD else "x10 or more"


def estimate_text(found: LoadEstimate) -> str:
    """Return a load with its interval; an unbounded end is shown as open."""
    if found.low is not None and found.high is not None and format_count(found.low) == format_count(found.high):
        return f"{format_count(found.iops)} IOPS (its interval is within these digits)"
    if found.low is None and found.high is None:
        return f"{format_count(found.iops)} IOPS (no interval: more rounds, or loads further out)"
    low = "open" if found.low is None else format_count(found.low)
    high = "open" if found.high is None else format_count(found.high)
    return f"{format_count(found.iops)} IOPS [{low} to {high}]"


def chance_text(chance: float) -> str:
    return "p < 0.01" if chance < _CHANCE_LEAST else f"p = {chance:.2f}"
