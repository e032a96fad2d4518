# SPDX-License-Identifier: Apache-2.0
"""A Search: what a study of the kind `tune` is after, and by which rules; its phases are told by the rounds."""

from dataclasses import dataclass
from enum import StrEnum
from typing import Literal

from virtune.model.durability import Promise
from virtune.model.goal import Goal

Mode = Literal["quick", "certify"]

GRID_SECONDS = 60.0 * 5
"""What each configuration costs in the classic way: five runs of a minute."""


class Phase(StrEnum):
    """What a round of a search is for. Each phase begins at a round of its own, so that no trial's use is guessed."""

    PROBE = "probe"
    RACE = "race"
    CONFIRM = "confirm"
    SOAK = "soak"


FIRST_ROUND = {Phase.PROBE: 1, Phase.RACE: 1_001, Phase.CONFIRM: 1_000_001, Phase.SOAK: 2_000_001}
"""No phase can run into the next: a study has at most 100,000 trials."""


def phase_of(number: int) -> Phase:
    """Return the phase that a round belongs to."""
    return max((first, phase) for phase, first in FIRST_ROUND.items() if first <= number)[1]


@dataclass(frozen=True, slots=True, kw_only=True)
class Factor:
    """A knob that is varied, by id, and the values it takes, as they are written.

    `costly`: for turning it the rig makes a process or a guest's device anew, where the others need a swap.
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
class SetApart:
    """Configurations that promise another durability than the ranking's, and are never ranked with it.

    `names` are those that promise the same, for the same reason: `words`.
    """

    names: tuple[str, ...]
    promise: Promise
    weaker: bool
    words: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Search:
    """What is searched, and how.

    `ranked` are the arms that compete, by name: all but a baseline that promises something else. `slice_seconds` is
    None where the probe is to choose. `budget_seconds` bounds the whole search; None is the mode's own bound.
    `confirm_pairs` are the starts of winner and baseline in the end, each of `confirm_seconds`; one
    that gives no values of both is made up for by another. With `tries` (None:
    all race from the start) at most so many of the ranked are raced, in the order in which they are proposed.
    Blocks of the race begin at least `spread_seconds` apart, so that a host is seen in more than one of its moods.
    `vary` is what was asked to be varied, as it was written; nothing is the rig's own choice, None is not known.
    """

    goal: Goal
    mode: Mode
    promise: Promise
    ranked: tuple[str, ...]
    factors: tuple[Factor, ...] = ()
    removed: tuple[Removed, ...] = ()
    apart: tuple[SetApart, ...] = ()
    error: float = 0.05
    slice_seconds: float | None = None
    budget_seconds: float | None = None
    confirm_pairs: int = 6
    confirm_seconds: float = 5.0
    soak_seconds: float = 0.0
    tries: int | None = None
    spread_seconds: float = 0.0
    vary: tuple[str, ...] | None = None

    @property
    def racing(self) -> int:
        """How many configurations race at most."""
        return len(self.ranked) if self.tries is None else min(self.tries, len(self.ranked))

    @property
    def grid_seconds(self) -> float:
        """What the classic grid over the same configurations measures."""
        return len(self.ranked) * GRID_SECONDS
