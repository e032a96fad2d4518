# SPDX-License-Identifier: Apache-2.0
"""A Comparison of two arms on one metric: an interval, a verdict, and why."""

from dataclasses import dataclass
from enum import StrEnum

ROUNDS_MIN = 6
"""With n paired rounds a two-sided sign test cannot get below p = 2 * 0.5**n. Six is the first n under 0.05 (0.031),
so fewer rounds are never called a difference, nor the same."""


class Verdict(StrEnum):
    """What may be said of a candidate against the baseline. `undecided` is an answer, not a failure."""

    BETTER = "better"
    WORSE = "worse"
    SAME = "same"
    UNDECIDED = "undecided"


@dataclass(frozen=True, slots=True, kw_only=True)
class Interval:
    """A ratio candidate/baseline (1.0 = no change) with its confidence interval."""

    estimate: float
    low: float
    high: float
    confidence: float


@dataclass(frozen=True, slots=True, kw_only=True)
class Comparison:
    """One candidate arm against the baseline, one workload, one metric, paired by round.

    `ratio` is None when there were too few rounds to compute one; `why` is the reason in words. Of arms that are not
    paired (results read from files) `rounds` counts the runs of the arm with fewer, and `change` is the ratio of
    their geometric means, which even one run each has.

    `noise` is the standard deviation of one round's difference (ln: 0.05 is about 5 %) as it went into the interval,
    `lag1` how alike neighbouring rounds were taken to be, and `rounds_left` a forecast for an undecided one: so many
    more rounds would decide it if the noise stays as it is. All three are None where they are not known.
    """

    workload: str
    metric: str
    baseline: str
    candidate: str
    rounds: int
    ratio: Interval | None
    verdict: Verdict
    why: str
    change: float | None = None
    noise: float | None = None
    lag1: float | None = None
    rounds_left: int | None = None
