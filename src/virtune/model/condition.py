# SPDX-License-Identifier: Apache-2.0
"""A Condition under which a comparison is to fail, and what became of it."""

from dataclasses import dataclass
from enum import StrEnum
from typing import Literal

from virtune.model.verdict import Comparison


class Outcome(StrEnum):
    """What is shown of a condition. `undecided`: it may be breached, and is not shown to be."""

    BREACHED = "breached"
    HELD = "held"
    UNDECIDED = "undecided"


@dataclass(frozen=True, slots=True, kw_only=True)
class Threshold:
    """A metric's change against the baseline that is not to be: `latency.p99 > +5%`.

    `limit` is a ratio candidate/baseline (1.05 is +5 %); `text` is the condition as it is written again.
    """

    metric: str
    relation: Literal["<", ">"]
    limit: float
    text: str


@dataclass(frozen=True, slots=True, kw_only=True)
class ThresholdResult:
    """One condition held against one comparison: the outcome, and why in words."""

    condition: Threshold
    comparison: Comparison
    outcome: Outcome
    why: str
