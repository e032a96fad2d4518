# SPDX-License-Identifier: Apache-2.0
"""A Tuning: the findings of a search so far. Undecided is a valid result."""

from dataclasses import dataclass, field
from enum import StrEnum

from virtune.model.goal import Limit
from virtune.model.reason import Reason, Why, because
from virtune.model.result import Basis, RampFinding
from virtune.model.search import Phase
from virtune.model.standing import Place, Standing
from virtune.model.study import Study
from virtune.model.verdict import Interval, Verdict


class LimitState(StrEnum):
    """Whether an arm keeps a limit: certainly kept, certainly broken, or undecided."""

    KEPT = "kept"
    BROKEN = "broken"
    OPEN = "open"


@dataclass(frozen=True, slots=True, kw_only=True)
class LimitCheck:
    """One arm against one limit, by its slices: the value with its interval in the metric's base unit."""

    arm: str
    workload: str
    limit: Limit
    blocks: int
    value: float | None = None
    low: float | None = None
    high: float | None = None
    state: LimitState = LimitState.OPEN


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
        """Whether the winner's starts differ by more than a tenth."""
        return self.spread is not None and self.spread > UNSTABLE


UNSTABLE = 0.10
"""Beyond this spread over starts a winner is called unstable (TUNA, arXiv 2503.01801)."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Soak:
    """One arm under load for minutes without a pause: the metric's last third over its first (1.0 is steady)."""

    arm: str
    seconds: float
    ratio: float | None


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
    def settled(self) -> bool:
        """Whether the search is over and recommends something: only then there is a winner, whose settings are
        advice.
        """
        return self.finished and self.recommendation is not Recommendation.UNDECIDED

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
        search = self.study.search
        if search is None or self.measured_seconds <= 0:
            return None
        return search.grid_seconds / self.measured_seconds
