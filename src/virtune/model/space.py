# SPDX-License-Identifier: Apache-2.0
"""A Space: the configurations that a search may choose from, and why others are not among them."""

from dataclasses import dataclass

from virtune.model.durability import Durability, Promise
from virtune.model.search import Factor, Removed
from virtune.model.study import Arm


@dataclass(frozen=True, slots=True, kw_only=True)
class Apart:
    """A configuration that makes another promise than the ranking's, so that it is never ranked with it."""

    arm: Arm
    durability: Durability


@dataclass(frozen=True, slots=True, kw_only=True)
class Space:
    """What is searched: `arms` are ranked, all of the class `promise`; `baseline` is the name of what is there now.

    The baseline is the first of the arms. Where its own promise is another, `ranked_baseline` is False: then it is
    only what the winner is held against.
    """

    factors: tuple[Factor, ...]
    arms: tuple[Arm, ...]
    baseline: str
    promise: Promise
    ranked_baseline: bool = True
    removed: tuple[Removed, ...] = ()
    apart: tuple[Apart, ...] = ()

    @property
    def ranked(self) -> tuple[Arm, ...]:
        """The arms that compete."""
        return self.arms if self.ranked_baseline else self.arms[1:]
