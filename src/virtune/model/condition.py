# SPDX-License-Identifier: Apache-2.0
"""A Condition under which a comparison is to fail, and what became of it."""

from dataclasses import dataclass
from enum import StrEnum
from typing import Literal

from virtune.model.reason import Reason
from virtune.model.verdict import Comparison


class Outcome(StrEnum):
    """The result of a threshold. `undecided`: it may be breached, but the evidence does not decide."""

    BREACHED = "breached"
    HELD = "held"
    UNDECIDED = "undecided"


@dataclass(frozen=True, slots=True, kw_only=True)
class Threshold:
    """What a metric is not to do: change so against the baseline (`latency.p99 > +5%`), or have such a value in any
    arm (`latency.p99 > 2ms`).

    `limit` is a ratio candidate/baseline (1.05 is +5 %). Of a condition on a value `value` is that, in the
    metric's base unit, and `limit` is 1: the arm is compared with it. `text` is the condition as it is written again.
    """

    metric: str
    relation: Literal["<", ">"]
    limit: float
    text: str
    value: float | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class ThresholdResult:
    """One condition held against one comparison: the outcome, and why in words and as a code.

    Of a condition on a value the comparison is one of an arm with that value, in the baseline's place.
    """

    condition: Threshold
    comparison: Comparison
    outcome: Outcome
    why: str
    reason: Reason
