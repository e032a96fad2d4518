# SPDX-License-Identifier: Apache-2.0
"""A threshold (`--fail-if`) under which a comparison fails, and the result of checking it."""

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
    """A limit on a metric: on its change against the baseline (`latency.p99 > +5%`), or on its value in any arm
    (`latency.p99 > 2ms`).

    `limit` is a ratio candidate/baseline (1.05 is +5 %). For a limit on a value, `value` is that value in the
    metric's base unit and `limit` is 1: the arm is compared with the value. `text` is the condition in its normal
    form.
    """

    metric: str
    relation: Literal["<", ">"]
    limit: float
    text: str
    value: float | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class ThresholdResult:
    """The result of one condition for one comparison: the outcome, and the reason in words and as a code.

    For a limit on a value, the comparison has that value in the place of the baseline.
    """

    condition: Threshold
    comparison: Comparison
    outcome: Outcome
    why: str
    reason: Reason
