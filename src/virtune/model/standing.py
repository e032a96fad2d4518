# SPDX-License-Identifier: Apache-2.0
"""A Contrast: the difference of two arms over the blocks so far. A Standing: the state of a race of many arms."""

import math
from dataclasses import dataclass, replace
from enum import StrEnum

from virtune.model.reason import Why

_LOG_MAX = 700.0
"""exp() of more than this overflows."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Contrast:
    """The difference `a - b` of two arms on the logarithm, over the blocks that both ran: `mean` +- `radius`.

    `radius` is infinite where the data do not allow an interval, and `why` then says why; else it is None. `sd` is
    the standard deviation of one block's difference (0.05: about 5 %), as it went into the radius: robust, moderated
    by the other pairs, and larger where neighbouring blocks are correlated (`lag1`, 0 to 0.9, is that
    autocorrelation). `df` are the degrees of freedom behind `sd`. `plain` is ln of the ratio of the arms' arithmetic
    means with the half-width of its own t interval, None where that was not asked for. `far`: one of the arms is far
    from its level in rounds of its own. `lasts`: one changes between levels that last, for which `radius` allows.
    """

    blocks: int
    mean: float = 0.0
    radius: float = math.inf
    sd: float | None = None
    df: float = 0.0
    lag1: float = 0.0
    why: Why | None = None
    plain: tuple[float, float] | None = None
    far: bool = False
    lasts: bool = False

    @property
    def low(self) -> float:
        """The lower end of the interval; minus infinity where there is none."""
        return self.mean - self.radius

    @property
    def high(self) -> float:
        """The upper end of the interval; infinity where there is none."""
        return self.mean + self.radius

    @property
    def turned(self) -> "Contrast":
        """The contrast `b - a`."""
        plain = None if self.plain is None else (-self.plain[0], self.plain[1])
        return replace(self, mean=-self.mean, plain=plain)


@dataclass(frozen=True, slots=True, kw_only=True)
class RaceRules:
    """How a race is run.

    An arm that can be at most `margin` (0.03 = 3 %) better than the leader is not measured further. `error` is the
    probability that any statement of the race, at any time, is wrong. The first look comes after `blocks_min` blocks,
    the next ones at numbers of blocks that grow by `growth`. With `contenders_first` only arms whose distance to the
    leader is below `hot` standard errors are measured until none of them is open: the best is found sooner, its
    distance to the rest is known later. After `slices_max` slices the race stops as it is (None: never). `arms_max`
    is how many arms share the error where some join later (None: those that there are).
    """

    margin: float = 0.03
    error: float = 0.05
    blocks_min: int = 3
    growth: float = 1.08
    contenders_first: bool = False
    hot: float = 1.0
    slices_max: int | None = None
    arms_max: int | None = None


class Place(StrEnum):
    """The state of an arm. `parked`: it cannot be better than the leader by more than the margin, so it is not
    measured further.
    """

    LEADER = "leader"
    OPEN = "open"
    PARKED = "parked"
    ELIMINATED = "eliminated"
    FAILED = "failed"


@dataclass(frozen=True, slots=True, kw_only=True)
class Runner:
    """One arm of a race. `against_leader` is leader - arm on the logarithm; None for the leader itself, and before
    the first look. For an eliminated arm it is the contrast that eliminated it, after `out_after` blocks.
    """

    arm: str
    place: Place
    blocks: int
    against_leader: Contrast | None = None
    out_after: int | None = None

    @property
    def better_at_most(self) -> float | None:
        """How much better than the leader this arm may be (0.1 = 10 %); 0 if it cannot, None if there is no bound."""
        if self.place in (Place.LEADER, Place.ELIMINATED):
            return 0.0
        if self.against_leader is None or not -self.against_leader.low < _LOG_MAX:
            return None
        return max(0.0, math.expm1(-self.against_leader.low))


@dataclass(frozen=True, slots=True, kw_only=True)
class Standing:
    """The state of a race: the leader, the eliminated arms, and a bound on how far the leader is below the best.

    `distance` (0.03 = "at most 3 % below the best") holds with probability 1 - error whenever it is read; None where
    there is no bound yet. It covers the arms with values, not `failed` ones. `up_next` are the arms of the next
    block, none when the race is over: `certified`, or out of slices. `slices_left` forecasts the slices that a
    certificate still takes, None where no forecast is possible.
    """

    blocks: int
    slices: int
    leader: str | None
    runners: tuple[Runner, ...]
    distance: float | None
    certified: bool
    up_next: tuple[str, ...]
    slices_left: int | None

    def runner(self, arm: str) -> Runner:
        """Return an arm's place; raises KeyError when there is none of that name."""
        return {runner.arm: runner for runner in self.runners}[arm]
