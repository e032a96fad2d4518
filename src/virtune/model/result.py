# SPDX-License-Identifier: Apache-2.0
"""A Result: what a study has found so far. One summary per arm and workload, the comparisons, and the warnings. A
Sweep: one stack under offered loads, step by step up to saturation. Fitness: whether a host is fit for
measurements, judged by an A/A test (two arms with the same stack).
"""

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace
from enum import StrEnum
from statistics import fmean
from typing import Annotated

from virtune.model.evidence import Check, Waiver
from virtune.model.live import Layers
from virtune.model.measurement import Histogram, Measurement
from virtune.model.metric import BY_ID, MeasuredAs, Metric
from virtune.model.reason import OF_VERDICTS, Reason, Why
from virtune.model.remark import Remark
from virtune.model.study import Study
from virtune.model.text import AT_LEAST_ONE, LEFT_OUT, At, format_seconds, format_share
from virtune.model.verdict import Comparison, Interval, Outcome, Threshold, Verdict


@dataclass(frozen=True, slots=True, kw_only=True)
class LoadPoint:
    """One offered load, over its rounds. Rates in IOPS, `latency_ns` the mean of all I/Os.

    `met`: the stack achieved the offered rate, in the mean; `short`: the rounds in which it did not, and `driven`
    those in which the load generator had no CPU to spare. `power` is achieved IOPS by mean latency, as each round's
    logarithm; `excess` each round's logarithm of the limited metric over its limit, empty where no limit was set.
    `beyond` is that of all rounds together, as tables show it: of a percentile that of all I/Os.
    """

    workload: str
    offered: float
    achieved: tuple[float, ...]
    met: bool
    latency_ns: float
    power: tuple[float, ...]
    excess: tuple[float, ...] = ()
    beyond: float | None = None
    short: int = 0
    driven: int = 0

    @property
    def iops(self) -> float:
        """What was achieved, the mean of the rounds."""
        return fmean(self.achieved)


def out_of_order(points: Sequence[LoadPoint]) -> tuple[LoadPoint, LoadPoint] | None:
    """Return the least load that broke the limit and the greatest that kept it, where that is greater."""
    broken = next((one for one in points if one.beyond is not None and one.beyond > 0), None)
    kept = [one for one in points if one.met and one.beyond is not None and one.beyond <= 0]
    if broken is None or not kept or kept[-1].offered < broken.offered:
        return None
    return broken, kept[-1]


@dataclass(frozen=True, slots=True, kw_only=True)
class LoadEstimate:
    """A load in IOPS with the interval that it lies in; None for an end that no load bounded."""

    iops: Annotated[float, "The load, in operations a second."]
    low: Annotated[float | None, "The lower end of its 95 % interval; null where no load bounds it."]
    high: Annotated[float | None, "The upper end of its 95 % interval; null where no load bounds it."]


@dataclass(frozen=True, slots=True, kw_only=True)
class LoadRuling:
    """What a condition on the greatest load of a sweep comes to."""

    condition: Annotated[Threshold, str, "The condition, as it was given.", At("condition.text")]
    outcome: Annotated[Outcome, "`undecided`: the loads that ran show neither."]
    text: Annotated[str, "What was shown, in one sentence.", At("text", key="why")]


@dataclass(frozen=True, slots=True, kw_only=True)
class LoadSweep:
    """The result of a sweep.

    `saturation` is the highest rate that the stack achieved, and `closed_loop` what it did without an offered rate:
    no load that was met did more than the saturation, and neither `knee`, `most` nor `closed_loop` lies beyond it
    (the last not beyond its interval). `knee` is the load with the greatest power (achieved IOPS by mean latency,
    Kleinrock 1979): beyond it more load adds latency rather than throughput. `most` is the greatest load at which the
    study's limit holds. Each is None where the sweep did not find it, and `why` then says so. A load is `met` from
    `met_share` of what was offered on. `rulings` judge the study's conditions.

    `gaps` are the pairs of neighbouring loads between which more loads are needed; `above` and `below` are the loads
    beyond which the curve has to be extended.
    """

    study: Study
    finished: bool
    points: tuple[LoadPoint, ...]
    saturation: LoadEstimate | None
    knee: LoadEstimate | None
    most: LoadEstimate | None
    why: tuple[Why, ...]
    closed_loop: LoadEstimate | None = None
    met_share: float = 1.0
    rulings: tuple[LoadRuling, ...] = ()
    gaps: tuple[tuple[float, float], ...] = ()
    above: float | None = None
    below: float | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Drift:
    """The drift of the rate over the whole check, as a share per minute, with its 95 % confidence interval."""

    per_minute: Annotated[float, "The change in a minute as a share (0.01 is +1 %)."]
    low: Annotated[float, "The lower end of its interval (95 %)."]
    high: Annotated[float, "The upper end of its interval (95 %)."]


_ONE_IN_TEN = 1.2816


@dataclass(frozen=True, slots=True, kw_only=True)
class SliceNoise:
    """Slices of one length: `sd` is the standard deviation of ln(slice / the next trial's slice), over `pairs`."""

    seconds: Annotated[float, "The length, in seconds."]
    pairs: Annotated[int, "Neighbouring trials that the noise rests on, a count."]
    sd: Annotated[float, "Standard deviation of ln(slice / slice of the next trial)."]
    blocks_per_minute: Annotated[float, "Pairs of such trials that fit into a minute."]
    cost: Annotated[float, "Time until a difference is known as well, against the best length."]

    @property
    def doubt(self) -> float:
        """By which factor the noise may be larger than `sd`, as far as so few pairs of trials tell it. By the
        chi-square quantile of Wilson and Hilferty (1931) for 90 %; by simulation, which finds the best length of a
        slice too, it holds in 72 to 93 % of checks, and `sd` itself in 8 to 57 %.
        """
        part = 2 / (9 * self.pairs)
        return math.pow(1 - part - _ONE_IN_TEN * math.sqrt(part), -1.5)

    def pairs_for(self, doubt: float) -> int:
        """Return how many pairs bring `doubt` down to that factor, which is above 1."""
        root = math.sqrt(_ONE_IN_TEN**2 + 4 * (1 - math.pow(doubt, -2 / 3))) - _ONE_IN_TEN
        return math.ceil(8 / (9 * root**2))


@dataclass(frozen=True, slots=True, kw_only=True)
class Reach:
    """The smallest difference that a comparison of so many minutes detects with 90 % power; None where it detects
    none. `at_most` is what it may be instead, as far as the trials tell the noise.
    """

    minutes: Annotated[int, "Minutes of two arms in turn."]
    blocks: Annotated[int, "Pairs of trials in them, with slices of the best length."]
    smallest: Annotated[
        float | None, "The smallest difference detected with 90 % power (0.05 is 5 %); null where nothing is."
    ]
    at_most: Annotated[
        float | None, "Up to here so few trials do not exclude that it is, in nine of ten; null where nothing is."
    ]


@dataclass(frozen=True, slots=True, kw_only=True)
class GateStanding:
    """The trials' readings at one gate: `clear`, `near` (half of its first limit), `warns` or `invalid`."""

    id: Annotated[str, "The gate; docs/reference/remarks.md lists them."]
    label: Annotated[str, "What it is about."]
    unit: Annotated[str, "share (0 to 1), count, 1/s, s, or C (degrees above the drive's own limit)."]
    readings: Annotated[int, "Attempts that were read, a count."]
    median: Annotated[float, "The median reading."]
    worst: Annotated[float, "The worst reading."]
    flag: Annotated[float | None, "Readings above this are a warning; null without such a limit."]
    invalid: Annotated[float | None, "Readings above this invalidate a trial; null without such a limit."]
    standing: Annotated[str, "clear, near (half of its first limit), warns or invalid, by the worst reading."]


@dataclass(frozen=True, slots=True, kw_only=True)
class SelfTest:
    """The verdict of the A/A test: better or worse is a false alarm."""

    verdict: Annotated[Verdict, "What would be said of two arms."]
    rounds: Annotated[int, "Pairs of trials that it rests on, a count."]
    ratio: Annotated[Interval | None, "One over the other; null where there were too few pairs."]
    why: Annotated[str, "The reason of the verdict, in words."]
    reason: Annotated[Reason, "The code of that reason.", {"enum": [*OF_VERDICTS]}]


@dataclass(frozen=True, slots=True, kw_only=True)
class Neighbour:
    """Another process that was active meanwhile: its mean CPU use in CPUs, and its disk I/O in bytes a second."""

    pid: Annotated[int, "The number of the process."]
    name: Annotated[str, "Its name."]
    cpus: Annotated[float, "CPUs that it used in the mean."]
    bandwidth_bps: Annotated[
        float | None, "Bytes a second that it moved at the storage layer; null where we may not see that."
    ]


@dataclass(frozen=True, slots=True, kw_only=True)
class Fitness:
    """The result of a check. Shares are relative (0.05 is 5 %); a figure that could not be computed is None.

    `earlier` are what five minutes detected by the checks before it, None where they did not tell.
    """

    study: Annotated[str, "By which `show` finds it again."]
    workload: Annotated[str, "What the disk was asked."]
    rig: Annotated[str, LEFT_OUT]
    trials: Annotated[int, "Trials that gave a measurement, a count."]
    measured_seconds: Annotated[float, "Their measured time together, in seconds."]
    iops: Annotated[float | None, "Operations a second, the mean of all windows."]
    window_seconds: Annotated[float | None, "The length of a window, in seconds."]
    windows_cv: Annotated[float | None, "Standard deviation of IOPS in windows against their mean (0.05 is 5 %)."]
    correlation_seconds: Annotated[
        float | None, "Integrated autocorrelation time: windows nearer than this tell much the same."
    ]
    correlation_open: Annotated[bool, "Whether it is at least that long, since no trial saw its end."]
    drift: Annotated[Drift | None, "How IOPS moved over the whole check; null with fewer than four trials."]
    overhead_seconds: Annotated[float | None, "Seconds of a trial in which nothing is measured, its ramp included."]
    slices: Annotated[tuple[SliceNoise, ...], "What trials of other lengths would have given."]
    best_seconds: Annotated[float | None, "The length that finds a difference soonest, in seconds."]
    confidence: Annotated[float, "The confidence of `reaches`, 0 to 1."]
    reaches: Annotated[
        tuple[Reach, ...], "The smallest difference that a comparison of that length detects by its planned end."
    ]
    same: Annotated[SelfTest | None, "The A/A test of one stack: `better` or `worse` would be a false alarm."]
    gates: Annotated[tuple[GateStanding, ...], "Where the trials stood at the gates."]
    neighbours: Annotated[
        tuple[Neighbour, ...] | None,
        "Who else worked meanwhile, the busiest first; null when it is shown again.",
    ]
    advice: tuple[Remark, ...]
    unfit: Annotated[tuple[str, ...], "Why the host is not fit to measure on, in words; none where it is fit."]
    unfit_reasons: tuple[Reason, ...]
    earlier: Annotated[tuple[float | None, ...], LEFT_OUT] = ()

    def reach(self, minutes: int) -> float | None:
        """Return the smallest difference that a comparison of so many minutes detects."""
        return next((one.smallest for one in self.reaches if one.minutes == minutes), None)

    def most(self, minutes: int) -> float | None:
        """Return the difference that a comparison of so many minutes detects at most, as far as the trials tell."""
        return next((one.at_most for one in self.reaches if one.minutes == minutes), None)

    def minutes_for(self, share: float) -> int | None:
        """Return about how many minutes detect differences of that size, where the longest of `reaches` do not: the
        noise of a mean falls with the root of its number. None where they do, or nothing is known.
        """
        longest = max(self.reaches, key=lambda one: one.minutes, default=None)
        if longest is None or longest.smallest is None or longest.smallest <= share:
            return None
        return math.ceil(longest.minutes * math.pow(math.log1p(longest.smallest) / math.log1p(share), 2))

    def noisier(self, share: float) -> Outcome:
        """Judge whether the host is too noisy for differences of that size in five minutes: breached where it is, or
        more than noise makes the host unfit, and held where the trials exclude it.
        """
        smallest, most = self.reach(5), self.most(5)
        others = [one for one in self.unfit_reasons if one is not Reason.ONLY_LARGE_DIFFERENCES]
        if others or smallest is None or smallest > share:
            return Outcome.BREACHED
        return Outcome.HELD if most is not None and most <= share else Outcome.UNDECIDED

    def times_longer(self, share: float) -> int | None:
        """Return how many times as long a check excludes that five minutes detect only more than that, if its noise
        stays; None where none does, or nothing is known.
        """
        smallest, best = self.reach(5), next((one for one in self.slices if one.seconds == self.best_seconds), None)
        if smallest is None or best is None or smallest >= share:
            return None
        return max(2, math.ceil(best.pairs_for(share / smallest) / best.pairs))


@dataclass(frozen=True, slots=True, kw_only=True)
class Value:
    """One metric of one arm over its rounds. `spread` is the relative standard deviation of the rounds."""

    metric: Annotated[str, LEFT_OUT]
    value: Annotated[
        float,
        "The geometric mean of rates and times, the mean of shares in %; a percentile comes from the added"
        " histograms. In the metric's unit.",
    ]
    rounds: Annotated[int, "Rounds that it rests on.", AT_LEAST_ONE]
    spread: Annotated[float | None, "Relative standard deviation of the rounds (0.03 is 3 %); null without one."]
    resolved: Annotated[
        bool,
        "False for a percentile with fewer than 100 I/Os beyond it, and for the middle one of imported results that"
        " have no distributions to add.",
    ] = True
    low: Annotated[
        float | None,
        "The lower end of a percentile's own 95 % interval, over sections of the rounds; null for other metrics and"
        " with fewer than five rounds.",
    ] = None
    high: Annotated[float | None, "The upper end; null as `low`, and where the data bound it only from below."] = None
    measured_as: MeasuredAs = None
    typical: Annotated[
        float | None,
        "The value of a typical round, as tables show it beside changes: for the baseline the mean of its rounds (of"
        " logarithms, extreme rounds count less), for another arm that times its change; of a share in % the arm's"
        " own median round. Null where arms are not compared within rounds.",
    ] = None

    @property
    def measured(self) -> Metric:
        """The metric that was measured, whose label says of which kind a latency is."""
        return BY_ID[self.measured_as or self.metric]

    @property
    def bound(self) -> float | None:
        """The lower bound, where that is all that is known."""
        return self.low if self.high is None else None

    @property
    def shown(self) -> float:
        """The value that tables show beside changes: that of a typical round where it is known."""
        return self.value if self.typical is None else self.typical

    @property
    def of_a_round(self) -> "Value":
        """What tables show beside changes: itself, or as it is in a typical round, where that is known."""
        return self if self.typical is None else replace(self, value=self.typical, resolved=True, low=None, high=None)


@dataclass(frozen=True, slots=True, kw_only=True)
class ArmRemark:
    """A remark on one arm, and in how many of its rounds it was made. The text is that of the worst round.

    `worst` and `median` are the readings of its gate in these rounds, in the gate's unit; None where no gate made it.
    """

    remark: Remark
    rounds: int
    worst: float | None = None
    median: float | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class RampFinding:
    """A ramp that was too short: a look after five rounds found the measured time not steady from its begin."""

    round: Annotated[int, "The last round with the ramp that was too short.", {"minimum": 1}]
    arm: Annotated[str, "The arm whose halves differed most."]
    workload: Annotated[str, "Under which workload."]
    change: Annotated[
        float, "IOPS of the second half of its trials over those of the first.", {"exclusiveMinimum": 0}
    ]
    before: Annotated[float, "The ramp up to then, in seconds.", {"minimum": 0}]
    after: Annotated[float, "The ramp from then on, of all arms, in seconds.", {"exclusiveMinimum": 0}]

    @property
    def text(self) -> str:
        return (
            f"the ramp of {format_seconds(self.before)} was too short: {self.arm} ({self.workload}) did"
            f" {format_share(self.change - 1, signed=True)} in the second half of its trials against the first,"
            f" up to round {self.round};"
            f" after that it was {format_seconds(self.after)} for all arms"
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class ArmSummary:
    """One arm under one workload: its values over all rounds, the checks of its settings (also those that disagree or
    could not be seen), and its failures.

    `attempts` counts all, failed ones too; `invalid` counts the invalid ones, by the id of the cause.
    `layers` says where the time of a request goes, None where nothing was seen below the application.
    """

    arm: str
    workload: str
    rounds: int
    values: tuple[Value, ...]
    histogram: Histogram | None
    in_force: tuple[Check, ...]
    remarks: tuple[ArmRemark, ...]
    failures: tuple[str, ...]
    attempts: int = 0
    invalid: tuple[tuple[str, int], ...] = ()
    layers: Layers | None = None

    def get(self, metric: str) -> Value | None:
        return next((value for value in self.values if value.metric == metric), None)


class Stopped(StrEnum):
    """Why a sequential study has ended."""

    DECIDED = "decided"
    ROUNDS = "rounds"
    BUDGET = "budget"


@dataclass(frozen=True, slots=True, kw_only=True)
class Basis:
    """What the verdicts of one workload rest on."""

    workload: Annotated[str, "Its name."]
    rounds: Annotated[int, "Rounds of the pair that has most.", {"minimum": 0}]
    noise: Annotated[
        float | None,
        "Standard deviation of one round's difference (ln; 0.05 is about 5 %), the median over the pairs; null where"
        " no pair has one.",
        {"minimum": 0},
    ]
    lag1: Annotated[
        float | None,
        "How alike neighbouring rounds were taken to be, 0 to 0.9, as the intervals allow for.",
        {"minimum": 0},
    ]
    seconds_left: Annotated[
        float | None,
        "What deciding the rest would take if the noise stays: 0 when nothing is undecided, null when that cannot be"
        " said.",
        {"minimum": 0},
    ]
    effective: Annotated[
        float | None,
        "How many independent rounds the rounds are worth, neighbours being as alike as `lag1` says; null where that"
        " is.",
        {"minimum": 0},
    ] = None
    correlation_seconds: Annotated[
        float | None,
        "The integrated autocorrelation time of the load within trials, in seconds; null where no trial kept its"
        " course.",
        {"minimum": 0},
    ] = None
    correlation_open: Annotated[bool, "Whether it goes on beyond a trial, so that it is at least this."] = False
    drift: Annotated[Drift | None, "How the metric moved over the study, all arms together."] = None
    starts: Annotated[
        int, "How many processes, or disks of a guest made anew, carried the trials.", {"minimum": 0}
    ] = 0
    started: Annotated[tuple[tuple[tuple[str, ...], int], ...], LEFT_OUT] = ()
    """The same of each group of arms that shared them."""

    start_spread: Annotated[
        float | None,
        "Standard deviation (ln) of what their starts brought beside the noise of trials; null where starts cannot be"
        " told from trials.",
        {"minimum": 0},
    ] = None


@dataclass(frozen=True, slots=True, kw_only=True)
class ArmKnee:
    """The knee of an arm's curve of offered loads under a workload: the load of the greatest IOPS by latency."""

    arm: Annotated[str, "The arm."]
    workload: Annotated[str, "Which workload was offered."]
    knee: Annotated[LoadEstimate, "That load with its interval."]


@dataclass(frozen=True, slots=True, kw_only=True)
class Result:
    """The result of a study. `verdicts` are those of the pairs on the study's main metric, with a common error bound;
    `differences` are all other metrics against the baseline, each with its own error. `elapsed_seconds` is the time
    of its trials with all overhead, without interruptions; None for a single trial, whose begin is not stored.
    `looked` are the verdicts as they were after earlier rounds, each with its round; only pictures need them.
    `patterns` are what its figures show beside the verdicts, in sentences; `knees` those that offered loads show;
    `unasked` in what its arms differ that none asks for; `beside` are the differences on other metrics that the
    verdicts on the main one hide, with a common error bound of their own.
    """

    study: Study
    finished: bool
    trials_done: int
    arms: tuple[ArmSummary, ...]
    verdicts: tuple[Comparison, ...]
    differences: tuple[Comparison, ...]
    measured_seconds: float
    elapsed_seconds: float | None
    pardons: tuple[Waiver, ...] = ()
    ramps: tuple[RampFinding, ...] = ()
    stopped: Stopped | None = None
    basis: tuple[Basis, ...] = ()
    looked: tuple[tuple[int, tuple[Comparison, ...]], ...] = ()
    patterns: tuple[str, ...] = ()
    knees: tuple[ArmKnee, ...] = ()
    unasked: tuple[str, ...] = ()
    beside: tuple[Comparison, ...] = ()

    @property
    def caveats(self) -> tuple[str, ...]:
        """What limits its comparison, a sentence each: by its plan, and by what its guests showed."""
        return (*self.study.caveats, *self.unasked)

    def counts(self, arm: str, measurement: Measurement) -> bool:
        """Whether a trial of that arm counts: it is valid, or all that makes it invalid is waived."""
        free = {one.cause for one in self.pardons if one.arm in (None, arm)}
        return free.issuperset(measurement.causes)

    def summary(self, arm: str, workload: str) -> ArmSummary | None:
        return next((s for s in self.arms if (s.arm, s.workload) == (arm, workload)), None)

    def value(self, arm: str, workload: str, metric: str) -> Value | None:
        summary = self.summary(arm, workload)
        return None if summary is None else summary.get(metric)

    def value_of_a_round(self, arm: str, workload: str, metric: str) -> Value | None:
        """Return the same as it stands beside changes; None where it was not measured."""
        value = self.value(arm, workload, metric)
        return None if value is None else value.of_a_round

    @property
    def typical(self) -> bool:
        return any(value.typical is not None for arm in self.arms for value in arm.values)
