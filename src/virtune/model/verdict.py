# SPDX-License-Identifier: Apache-2.0
"""A Comparison of two arms on one metric: an interval, a verdict, and why. A threshold (`--fail-if`) under which a
comparison fails, with the result of checking it; and a Proof: what replacing the accused layer says of a
diagnosis.
"""

import math
from dataclasses import dataclass
from enum import StrEnum
from typing import Annotated, Literal

from virtune.model.metric import BY_ID, Metric
from virtune.model.reason import Reason

ROUNDS_MIN = 6
"""With n paired rounds a two-sided sign test cannot get below p = 2 * 0.5**n. Six is the first n under 0.05 (0.031),
so fewer rounds are never called a difference, nor the same. Planned comparisons do not rest on that test: see
`fewest_planned`."""

PLANNED_ROUNDS_MIN = 5
"""The fewest rounds that decide a planned comparison of three arms or more: each arm adds to what is known of the
noise. By simulation (`benchmarks/decide.md`): fewer are too often wrong where a neighbour slows one arm. Two arms
need ROUNDS_MIN: in five rounds that correlate by 0.3, two equal ones are called different in 6.7 %."""

REPEATS_MIN = 4
"""The fewest runs of each arm that are not paired. With 4 and 4 the exact rank test can reach p = 2 / C(8, 4) =
0.029; with 3 and 4 it is 0.057."""

SIBLINGS_MIN = 2
"""The fewest runs of one configuration that tell how far such lie apart: Student's t allows for how little two tell,
so that they decide only a difference of more than 13 times their own."""


def fewest_planned(arms: int) -> int:
    return PLANNED_ROUNDS_MIN if arms > 2 else ROUNDS_MIN


class Verdict(StrEnum):
    """The verdict on a candidate against the baseline. `undecided` is a valid result, not a failure."""

    BETTER = "better"
    WORSE = "worse"
    SAME = "same"
    UNDECIDED = "undecided"


@dataclass(frozen=True, slots=True, kw_only=True)
class Interval:
    """A ratio candidate/baseline (1.0 = no change) with its confidence interval."""

    estimate: Annotated[float, "The ratio itself: of geometric means over the rounds. 1 is no change."]
    low: Annotated[float, "The lower end of the interval."]
    high: Annotated[float, "The upper end of the interval."]
    confidence: Annotated[float, "The confidence of this interval, 0 to 1."]

    def within(self, margin: float) -> bool:
        """Whether the whole interval lies within a factor of 1 + `margin` of no change (0.03: 1/1.03 to 1.03).

        The bounds are symmetric on the logarithm, so exchanging the two arms changes nothing.
        """
        return 1 / (1 + margin) < self.low and self.high < 1 + margin


@dataclass(frozen=True, slots=True, kw_only=True)
class BetweenRuns:
    """How far runs of one configuration at different times lie apart: of so many, the standard deviation of the
    logarithms of their means. `disturbed` names those of the compared runs that were disturbed too much to leave that
    out. Then `runs` are those that were disturbed as what is compared with the baseline was, `unlike` the others, and
    `widest` is how far any two lie apart: what disturbed one of them may be in any difference of that size. `names`
    are those of all that tell.
    """

    runs: int = 0
    names: tuple[str, ...] = ()
    spread: float = 0.0
    disturbed: str = ""
    unlike: int = 0
    widest: float = 0.0


@dataclass(frozen=True, slots=True, kw_only=True)
class RunDrift:
    """How a metric moved within both of two arms from run to run, in order of time, and what that makes of them."""

    per_run: Annotated[float, "The change from one run to the next, as a share (0.01 is +1 %)."]
    low: Annotated[float, "The lower end of its interval (99 %)."]
    high: Annotated[float, "The upper end of its interval (99 %)."]
    carried: Annotated[float, "candidate / baseline if nothing but this, carried on, lay between the arms."]
    rest: Annotated[Interval, "candidate / baseline with that taken out."]

    @property
    def apart(self) -> bool:
        """Whether the arms' runs lie further from each other, on average, than the one place of arms in turn."""
        return abs(math.log(self.carried)) > 1.5 * abs(math.log1p(self.per_run))


@dataclass(frozen=True, slots=True, kw_only=True)
class Comparison:
    """One candidate arm against the baseline, one workload, one metric, paired by round.

    `ratio` is None when there were too few rounds to compute one; `why` is the reason in words, `reason` its code. Of
    arms that are not paired (results read from files) `rounds` counts the runs of the arm with fewer, and `change` is
    the ratio of their geometric means, which even one run each has.

    `plain` is the ratio of the arms' arithmetic means with its own interval, in which no round counts less; None
    where there is no other mean.

    `noise` is the standard deviation of one round's difference (ln: 0.05 is about 5 %) as it went into the interval,
    `lag1` is the autocorrelation of rounds that it allows for, and `rounds_left` a forecast for an undecided one:
    that many more rounds decide it with 90 % probability at this noise. All three are None where they are not known.
    `closed` is an undecided one that no more rounds will decide. `measured_as` is the metric of completion latency
    that was measured in the place of `metric`; None where that was measured itself. `drift` is what runs from
    elsewhere show in order of time; None where their order is not known, or no drift was found.
    """

    workload: str
    metric: str
    baseline: str
    candidate: str
    rounds: int
    ratio: Interval | None
    verdict: Verdict
    why: str
    reason: Reason
    change: float | None = None
    plain: Interval | None = None
    noise: float | None = None
    lag1: float | None = None
    rounds_left: int | None = None
    closed: bool = False
    measured_as: str | None = None
    drift: RunDrift | None = None

    @property
    def other_mean(self) -> Interval | None:
        """The plain mean where it is noticeably another one than `ratio`: by 1 %, and a sixth of the interval."""
        if self.plain is None or self.ratio is None or not self.ratio.low < self.ratio.high:
            return None
        away = abs(math.log(self.plain.estimate / self.ratio.estimate))
        return self.plain if away > max(0.01, math.log(self.ratio.high / self.ratio.low) / 6) else None

    @property
    def measured(self) -> Metric:
        """The metric that was measured, whose label says of which kind a latency is."""
        return BY_ID[self.measured_as or self.metric]

    @property
    def unsure(self) -> bool:
        """Whether a difference is none any more if arms keep a level for some rounds, which these do not exclude."""
        return self.reason is Reason.UNLESS_LASTING

    @property
    def said(self) -> str:
        """The verdict as it is said to people: `better`, or `perhaps better`, since the word is read, and copied,
        without what stands below it.
        """
        return f"{'perhaps ' if self.unsure else ''}{self.verdict.value}"

    @property
    def open(self) -> bool:
        """Whether more rounds are to be run for it."""
        return self.verdict is Verdict.UNDECIDED and not self.closed


class Outcome(StrEnum):
    """The result of a threshold. `undecided`: it may be breached, but the evidence does not decide."""

    BREACHED = "breached"
    HELD = "held"
    UNDECIDED = "undecided"


@dataclass(frozen=True, slots=True, kw_only=True)
class Threshold:
    """A limit on a metric: on its change against the baseline (`latency.p99 > +5%`), or on its value in any arm
    (`latency.p99 > 2ms`).

    `limit` is a ratio candidate/baseline (1.05 is +5 %). For a limit on a value, `value` is that value in the
    metric's base unit and `limit` is 1: the arm is compared with the value. `text` is the condition in its normal
    form.
    """

    metric: str
    relation: Literal["<", ">"]
    limit: float
    text: str
    value: float | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class ThresholdResult:
    """The result of one condition for one comparison: the outcome, and the reason in words and as a code.

    For a limit on a value, the comparison has that value in the place of the baseline.
    """

    condition: Threshold
    comparison: Comparison
    outcome: Outcome
    why: str
    reason: Reason


SIZE = 0.5
"""The share of the promised size that must be there. A diagnosis names a layer from half of an I/O's time on, and a
replacement takes some time of its own, so less than half of the promise is not what was said.
"""


class ProofOutcome(StrEnum):
    """What became of an accusation. `untested`: nothing was measured, and the proof says why."""

    CONFIRMED = "confirmed"
    REFUTED = "refuted"
    UNDECIDED = "undecided"
    UNTESTED = "untested"


class ProofReason(StrEnum):
    """Why an accusation ended as it did."""

    AS_SAID = "as-said"
    LESS_THAN_SAID = "less-than-said"
    NOT_THE_DEVICE = "not-the-device"
    NOISE = "noise"
    NOT_ACCUSED_AGAIN = "not-accused-again"
    NOTHING_ACCUSED = "nothing-accused"
    NO_INTERVENTION = "no-intervention"
    NOT_OURS = "not-ours"


OUTCOMES: dict[ProofReason, ProofOutcome] = {
    ProofReason.AS_SAID: ProofOutcome.CONFIRMED,
    ProofReason.LESS_THAN_SAID: ProofOutcome.REFUTED,
    ProofReason.NOT_THE_DEVICE: ProofOutcome.REFUTED,
    ProofReason.NOISE: ProofOutcome.UNDECIDED,
    ProofReason.NOT_ACCUSED_AGAIN: ProofOutcome.UNDECIDED,
    ProofReason.NOTHING_ACCUSED: ProofOutcome.UNTESTED,
    ProofReason.NO_INTERVENTION: ProofOutcome.UNTESTED,
    ProofReason.NOT_OURS: ProofOutcome.UNTESTED,
}


@dataclass(frozen=True, slots=True, kw_only=True)
class Proof:
    """The verdict on an accusation, with its reason and what was measured.

    `what` says what was replaced, in the arm `arm` of the comparison `study`; both are empty where nothing was
    measured, and `by_hand` then says what to try. `change` is the replaced stack's `metric` over that of the stack as
    it is, over `rounds` rounds; `least` is the ratio that it must reach (it must stay below it where `falls`), and
    `share` the part of an I/O's time that the diagnosis gave to the layer, None where it gave none. `stand_in` is the
    change with a device of the same mean latency. `notes` are what else a reader must know.
    """

    reason: ProofReason
    why: str
    what: str = ""
    arm: str = ""
    study: str = ""
    metric: str = ""
    change: Interval | None = None
    least: float | None = None
    falls: bool = False
    share: float | None = None
    stand_in: Interval | None = None
    rounds: int = 0
    by_hand: str = ""
    notes: tuple[str, ...] = ()

    @property
    def outcome(self) -> ProofOutcome:
        return OUTCOMES[self.reason]
