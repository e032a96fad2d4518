# SPDX-License-Identifier: Apache-2.0
"""A Search: the goal (the metric that it improves, and the limits that its recommendation must keep) and the rules
of a study of the kind `tune`. The number of a round tells its phase. And a SweepPlan: the loads that a sweep
offers, and the limit that it tests.
"""

from dataclasses import dataclass
from enum import StrEnum
from typing import Annotated, Literal

from virtune.model.durability import Promise
from virtune.model.metric import BY_ID, Metric
from virtune.model.reason import OF_REFUSALS, Reason, Why
from virtune.model.study_options import Mode
from virtune.model.text import At, Name


@dataclass(frozen=True, slots=True, kw_only=True)
class Limit:
    """A limit on a metric: `value` in the metric's base unit, and `text` as it was written."""

    metric: str
    sense: Literal["<=", ">="]
    value: float
    text: str

    def kept_by(self, value: float) -> bool:
        return value <= self.value if self.sense == "<=" else value >= self.value


@dataclass(frozen=True, slots=True, kw_only=True)
class Goal:
    """The goal of a search. The metric itself defines which direction is better."""

    metric: str = "iops"
    limits: tuple[Limit, ...] = ()

    @property
    def improves(self) -> Metric:
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


GRID_SECONDS = 60.0 * 5
"""The seconds that the classic grid spends on a configuration: five runs of a minute."""


class Phase(StrEnum):
    """The phase of a search that a round belongs to. Each phase begins at its own round number, so a trial's phase is
    never ambiguous.
    """

    PROBE = "probe"
    RACE = "race"
    CONFIRM = "confirm"
    SOAK = "soak"


FIRST_ROUND = {Phase.PROBE: 1, Phase.RACE: 1_001, Phase.CONFIRM: 1_000_001, Phase.SOAK: 2_000_001}
"""No phase can run into the next: a study has at most 100,000 trials."""


def phase_of(number: int) -> Phase:
    return max((first, phase) for phase, first in FIRST_ROUND.items() if first <= number)[1]


@dataclass(frozen=True, slots=True, kw_only=True)
class Factor:
    """A knob that is varied."""

    knob: Annotated[str, "Its id."]
    values: Annotated[tuple[str, ...], "The values it takes, as they are written."]
    costly: Annotated[bool, "Whether turning it makes a process or a guest's device anew (a whole plot)."] = False


@dataclass(frozen=True, slots=True, kw_only=True)
class Removed:
    """Configurations that were left out of a space, and why."""

    what: Annotated[str, "A value, or one of the configurations by name."]
    count: Annotated[int | None, "How many configurations; null for a value that this host has not.", {"minimum": 1}]
    why: Annotated[str, "The reason, in words."]
    reason: Annotated[Reason, "The same as a code, whatever the words are.", {"enum": [*OF_REFUSALS]}]

    @classmethod
    def by(cls, why: Why, *, what: str, count: int | None = 1) -> "Removed":
        return cls(what=what, count=count, why=why.text, reason=why.reason)


@dataclass(frozen=True, slots=True, kw_only=True)
class SetApart:
    """Configurations that promise another durability, for one reason, and are never ranked with the others."""

    names: Annotated[tuple[Name, ...], "Their names.", {"minItems": 1}, At("names", key="arms")]
    promise: Annotated[Promise, "What they promise.", At("promise", key="durability")]
    weaker: Annotated[bool, "Whether that is less than what the ranked promise."]
    words: Annotated[str, "What a write survives there, and why.", At("words", key="why")]


@dataclass(frozen=True, slots=True, kw_only=True)
class Search:
    """The space and the rules of a search.

    `ranked` are the arms that compete, by name: all but a baseline of another durability. `slice_seconds` is None
    where the probe is to choose. `budget_seconds` bounds the whole search; None is the mode's own bound.
    `confirm_pairs` is the number of paired starts of winner and baseline at the end, each of `confirm_seconds`; a
    pair without both values is replaced by another. With `tries` (None: all race from the start) at most so many of
    the ranked are raced, in the order in which they are proposed. Blocks of the race begin at least `spread_seconds`
    apart, so that the race sees the host in more than one of its states. `vary` is the request to vary, as it was
    written; empty for the rig's own choice, None if unknown. `emulated`: guests may be, and nothing is recommended
    of these. Without a budget the mode quick may take `patience`
    times as long on a restless host.
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
    patience: float = 1.0
    emulated: bool = False

    @property
    def racing(self) -> int:
        return len(self.ranked) if self.tries is None else min(self.tries, len(self.ranked))

    @property
    def grid_seconds(self) -> float:
        return len(self.ranked) * GRID_SECONDS


RESOLUTION = 0.05
"""Neighbouring loads around a knee or a limit lie no further apart than this, so a point between is within 5 %."""

SWEEP_LOADS_MAX = 30
"""The most loads that a sweep chooses by itself; a curve that needs more is too noisy for another load to help."""


@dataclass(frozen=True, slots=True, kw_only=True)
class SweepPlan:
    """The rules of a sweep: `limit` is the limit whose greatest load is searched, `loads` are the requested loads,
    empty to choose them.

    `rounds` is how often each load runs.
    """

    limit: Limit | None = None
    loads: tuple[str, ...] = ()
    rounds: int = 3
