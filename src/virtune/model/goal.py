# SPDX-License-Identifier: Apache-2.0
"""A Goal: the metric that a search improves, and the limits that its recommendation must keep."""

from dataclasses import dataclass
from typing import Literal

from virtune.model.metric import BY_ID, Metric


@dataclass(frozen=True, slots=True, kw_only=True)
class Limit:
    """A limit on a metric: `value` in the metric's base unit, and `text` as it was written."""

    metric: str
    sense: Literal["<=", ">="]
    value: float
    text: str

    def kept_by(self, value: float) -> bool:
        """Whether a value keeps the limit."""
        return value <= self.value if self.sense == "<=" else value >= self.value


@dataclass(frozen=True, slots=True, kw_only=True)
class Goal:
    """The goal of a search. The metric itself defines which direction is better."""

    metric: str = "iops"
    limits: tuple[Limit, ...] = ()

    @property
    def improves(self) -> Metric:
        """The metric to be improved."""
        return BY_ID[self.metric]

    @property
    def metrics(self) -> tuple[Metric, ...]:
        """The metrics that every slice must measure: the goal's and the limited ones."""
        return (self.improves, *(BY_ID[limit.metric] for limit in self.limits))

    @property
    def words(self) -> str:
        """Return the goal as it is written on the command line."""
        verb = "maximize" if self.improves.better == "higher" else "minimize"
        return " ".join([f"{verb} {self.metric}", *(f"subject to {limit.text}" for limit in self.limits)])
