# SPDX-License-Identifier: Apache-2.0
"""A Space: the configurations that a search may choose from, and why others are not among them."""

from dataclasses import dataclass

from virtune.model.durability import Durability, Promise
from virtune.model.study import Arm


@dataclass(frozen=True, slots=True, kw_only=True)
class Factor:
    """A knob that is varied, by id, and the values it takes, as they are written.

    `costly`: turning it needs a new image or a new process, where the others need a swap of the disk.
    """

    knob: str
    values: tuple[str, ...]
    costly: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class Removed:
    """What was left out of a space: how many configurations, one of them by name, and why.

    `count` is None for a value that this host does not have at all.
    """

    what: str
    count: int | None
    why: str


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
