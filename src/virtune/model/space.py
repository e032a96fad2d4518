# SPDX-License-Identifier: Apache-2.0
"""A Space: the configurations that a search may choose from, and why others are left out."""

from dataclasses import dataclass

from virtune.model.durability import Durability, Promise
from virtune.model.search import Factor, Removed
from virtune.model.study import Arm


@dataclass(frozen=True, slots=True, kw_only=True)
class Apart:
    """A configuration whose durability differs from the ranking's, so it is not ranked."""

    arm: Arm
    durability: Durability


@dataclass(frozen=True, slots=True, kw_only=True)
class Space:
    """The search space: `arms` are ranked, all with the durability `promise`; `baseline` is the name of the present
    configuration.

    The baseline is the first of the arms. If its own durability differs, `ranked_baseline` is False: it is then only
    compared with the winner.
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
