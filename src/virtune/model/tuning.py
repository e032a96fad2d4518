# SPDX-License-Identifier: Apache-2.0
"""A Tuning: the findings of a search so far. Undecided is a valid result. A Contrast: the difference of two arms
over the blocks so far. A Standing: the state of a race of many arms. A Space: the configurations that a search
may choose from, and why others are left out.
"""

import math
from dataclasses import dataclass, field, replace
from enum import StrEnum
from typing import Annotated

from virtune.model.durability import Durability, Promise
from virtune.model.reason import Reason, Why, because
from virtune.model.result import Basis, RampFinding
from virtune.model.search import Factor, Limit, Phase, Removed, Search
from virtune.model.study import Arm, Study
from virtune.model.text import NOT_NEGATIVE, At
from virtune.model.verdict import Interval, Verdict

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
    from its level in rounds of its own; `rare`: in so few that `radius` is what more of them would make of the mean.
    `lasts`: one changes between levels that last, for which `radius` allows. `if_lasting` is the half-width where
    levels last as far as these rounds leave that open, None where that was not asked for.
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
    rare: bool = False
    lasts: bool = False
    if_lasting: float | None = None

    @property
    def low(self) -> float:
        return self.mean - self.radius

    @property
    def high(self) -> float:
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


class LimitState(StrEnum):
    """Whether an arm keeps a limit: certainly kept, certainly broken, or undecided."""

    KEPT = "kept"
    BROKEN = "broken"
    OPEN = "open"


@dataclass(frozen=True, slots=True, kw_only=True)
class LimitCheck:
    """One arm against one limit, by its slices."""

    arm: Annotated[str, "Its name."]
    workload: Annotated[str, "The workload of this check."]
    limit: Annotated[Limit, str, "The limit, as it was written.", At("limit.text")]
    blocks: Annotated[int, "Slices that gave a value.", NOT_NEGATIVE]
    value: Annotated[float | None, "The metric, in its base unit."] = None
    low: Annotated[float | None, "The lower end of its interval, null where there is none."] = None
    high: Annotated[float | None, "The upper end of its interval, null where there is none."] = None
    state: Annotated[LimitState, "Whether it is certainly kept, certainly broken, or open."] = LimitState.OPEN


@dataclass(frozen=True, slots=True, kw_only=True)
class Confirmation:
    """Winner against baseline on fresh data, started anew for each measurement.

    A start is a new process, or in a guest a new disk in the same machine: `processes` is in
    how many the winner was measured (None where nobody wrote it down). `ratio` is winner / baseline of the goal's
    metric, Hodges-Lehmann over pairs of starts, at the confidence that so many pairs allow. `spread` is the relative
    standard deviation over starts. `breaks` are limits that the winner's fresh data do not keep.
    """

    pairs: int
    winner: float | None
    baseline: float | None
    ratio: Interval | None
    verdict: Verdict
    why: Why
    spread: float | None = None
    baseline_spread: float | None = None
    breaks: tuple[str, ...] = ()
    processes: int | None = None

    @property
    def unstable(self) -> bool:
        return self.spread is not None and self.spread > UNSTABLE


UNSTABLE = 0.10
"""Beyond this spread over starts a winner is called unstable (TUNA, arXiv 2503.01801)."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Soak:
    """One arm under load for minutes without a pause: the metric's last third over its first (1.0 is steady)."""

    arm: Annotated[str, "Its name."]
    seconds: Annotated[float, "How long.", {"minimum": 0}]
    ratio: Annotated[float | None, "The metric's last third over its first; 1 is steady."]


class Recommendation(StrEnum):
    """The recommendation: change to the winner, keep the baseline, or undecided."""

    CHANGE = "change"
    KEEP = "keep"
    UNDECIDED = "undecided"


@dataclass(frozen=True, slots=True, kw_only=True)
class Probed:
    """The probe's measurements of the baseline and what follows from them: slice length, the most slices of the race,
    forecast for a certificate.

    `iops` and `flushes` are rates per second of the workload with the lowest. `restless`: neighbouring slices differ
    so much that a search of the usual length often misses the best.
    """

    slices: int
    iops: float | None
    flushes: float | None
    sd: float | None
    slice_seconds: float
    slices_max: int | None
    certificate_seconds: float | None
    restless: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class ArmAttempts:
    """The attempts at one arm's trials in all phases: how many there were, how many failed, how many were invalid by
    cause.
    """

    arm: str
    attempts: int
    failed: int = 0
    invalid: tuple[tuple[str, int], ...] = ()


_RACED = (Place.OPEN, Place.PARKED, Place.ELIMINATED)


@dataclass(frozen=True, slots=True, kw_only=True)
class Tuning:
    """What a search has found so far.

    `broken` are the arms that certainly break a limit, with the number of blocks after which that was known.
    `distance` is the most by which the winner may be below the best (0.5: half of it); a Standing's distance is the
    most by which the best may be above the leader. `tied` are the arms that equal the leader within the margin.
    `values` are the goal's metric by arm: geometric means, or a percentile of merged histograms, over the race's
    slices; of several workloads the first's. Where configurations are proposed, `wanted` is how many join in the next
    block, and `levels` are the ln values of those tried so far, on one scale: the proposals are made from them.
    `repeated` counts the attempts that failed or were disturbed and ran again, `ramps` are the ramps that were too
    short and were doubled, and `notes` are the warnings that remain. `attempts` counts each arm's attempts by
    outcome. `basis` is the evidence behind the race, by workload. `beside_seconds` is the overhead of a slice (start,
    stop, checks), and `race_seconds_left` is what the budget still has for the race: below 0 where it is too small,
    None without a budget.
    """

    study: Study
    phase: Phase
    finished: bool
    probed: Probed
    standing: Standing
    broken: tuple[tuple[str, int], ...] = ()
    checks: tuple[LimitCheck, ...] = ()
    winner: str | None = None
    distance: float | None = None
    tied: tuple[str, ...] = ()
    confirmation: Confirmation | None = None
    soaks: tuple[Soak, ...] = ()
    recommendation: Recommendation = Recommendation.UNDECIDED
    why: Why = field(default_factory=lambda: because(Reason.NOT_FINISHED))
    values: tuple[tuple[str, float], ...] = ()
    measured_seconds: float = 0.0
    elapsed_seconds: float = 0.0
    beside_seconds: float = 0.0
    race_seconds_left: float | None = None
    notes: tuple[str, ...] = ()
    repeated: int = 0
    ramps: tuple[RampFinding, ...] = ()
    basis: tuple[Basis, ...] = ()
    attempts: tuple[ArmAttempts, ...] = ()
    wanted: int = 0
    levels: tuple[tuple[str, float], ...] = ()

    @property
    def search(self) -> Search:
        assert self.study.search is not None  # noqa: S101 - a Tuning is of a search
        return self.study.search

    @property
    def settled(self) -> bool:
        """Whether the search is over and its settings are advice: it recommends a change, or to keep the baseline
        where nothing may be better.
        """
        keeps = self.recommendation is Recommendation.KEEP and not self.rivals
        return self.finished and (keeps or self.recommendation is Recommendation.CHANGE)

    @property
    def won(self) -> bool:
        return self.settled and not self.rivals

    @property
    def rivals(self) -> tuple[str, ...]:
        """The arms that may be better than the leader by more than the margin: while there are any, which one is the
        best is undecided.
        """
        bounds = [(runner.arm, runner.better_at_most) for runner in self.standing.runners if runner.place in _RACED]
        return tuple(arm for arm, bound in bounds if bound is None or bound > self.study.margin)

    @property
    def speedup(self) -> float | None:
        """The classic grid's measuring time divided by this search's; None before anything was measured."""
        return self.search.grid_seconds / self.measured_seconds if self.measured_seconds > 0 else None


@dataclass(frozen=True, slots=True, kw_only=True)
class Spelled:
    """A configuration as one program writes it; `text` is empty where it cannot be written, and a note says why."""

    program: str
    title: str
    text: str
    notes: tuple[str, ...] = ()


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
        return self.arms if self.ranked_baseline else self.arms[1:]
