# SPDX-License-Identifier: Apache-2.0
"""A Result: what a study has found so far. One summary per arm and workload, the comparisons, and the warnings."""

from dataclasses import dataclass, replace
from enum import StrEnum

from virtune.model.evidence import Check
from virtune.model.fitness import Drift
from virtune.model.layers import Layers
from virtune.model.measurement import Histogram, Measurement
from virtune.model.metric import BY_ID, Metric
from virtune.model.remark import Remark
from virtune.model.study import Study
from virtune.model.sweep import LoadEstimate
from virtune.model.units import format_seconds, format_share
from virtune.model.verdict import Comparison


@dataclass(frozen=True, slots=True, kw_only=True)
class Value:
    """One metric of one arm over its rounds. `spread` is the relative standard deviation of the rounds.

    `resolved` is False for a percentile with too few I/Os beyond it to mean anything, and for the middle one of
    several results that have no distributions to add. `low` and `high` are the ends
    of a percentile's own 95 % interval, over sections of the rounds; `low` alone is a lower bound. `measured_as` is
    the metric of completion latency that was measured instead of `metric`, if one was. `typical` is the value of a
    typical round, where arms are compared within rounds: for the baseline a mean of its rounds like that of changes,
    and for another arm that times its change, so that values are as far apart as the verdicts say; a share's own
    median round.
    """

    metric: str
    value: float
    rounds: int
    spread: float | None
    resolved: bool = True
    low: float | None = None
    high: float | None = None
    measured_as: str | None = None
    typical: float | None = None

    @property
    def measured(self) -> Metric:
        """The metric that was measured, whose label says of which kind a latency is."""
        return BY_ID[self.measured_as or self.metric]

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
class Waiver:
    """A cause that no longer rejects trials, although it makes them invalid: it belongs to the arm, or (`arm` is
    None) to the host.
    """

    cause: str
    arm: str | None
    text: str


@dataclass(frozen=True, slots=True, kw_only=True)
class RampFinding:
    """A ramp that was too short: up to `round`, that arm's rate in the second half of its trials was `change` times
    that of the first.

    `before` and `after` are the ramps in seconds.
    """

    round: int
    arm: str
    workload: str
    change: float
    before: float
    after: float

    @property
    def text(self) -> str:
        """Describe the finding and its consequence."""
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
        """Return the value of a metric, None when it was not measured."""
        return next((value for value in self.values if value.metric == metric), None)


class Stopped(StrEnum):
    """Why a sequential study has ended."""

    DECIDED = "decided"
    ROUNDS = "rounds"
    BUDGET = "budget"


@dataclass(frozen=True, slots=True, kw_only=True)
class Basis:
    """The evidence behind the verdicts of one workload. Each pair's own figures are in its Comparison.

    `noise` is the standard deviation of one round's difference (ln: 0.05 is about 5 %), the median over the pairs;
    `lag1` is the lag-1 autocorrelation of rounds that the intervals allow for. None where no pair has them.
    `seconds_left` forecasts what deciding the rest still takes under that noise: 0 when nothing is undecided, None
    when no forecast is possible. `effective` is the effective sample size in rounds, `correlation_seconds` the
    autocorrelation time (`correlation_open`: longer than a trial, so at least this). `drift` is the host's drift, all
    arms together. `starts` counts the processes, or guest disks, that carried trials, and `started` those of each
    group of arms that shared them. `start_spread` is the standard deviation (ln) between starts; None where noise
    hides it.
    """

    workload: str
    rounds: int
    noise: float | None
    lag1: float | None
    seconds_left: float | None
    effective: float | None = None
    correlation_seconds: float | None = None
    correlation_open: bool = False
    drift: Drift | None = None
    starts: int = 0
    started: tuple[tuple[tuple[str, ...], int], ...] = ()
    start_spread: float | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class ArmKnee:
    """The knee of an arm's curve of offered loads under a workload: the load of the greatest IOPS by latency."""

    arm: str
    workload: str
    knee: LoadEstimate


@dataclass(frozen=True, slots=True, kw_only=True)
class Result:
    """The result of a study. `verdicts` are those of the pairs on the study's main metric, with a common error bound;
    `differences` are all other metrics against the baseline, each with its own error. `elapsed_seconds` is the time
    of its trials with all overhead, without interruptions; None for a single trial, whose begin is not stored.
    `looked` are the verdicts as they were after earlier rounds, each with its round; only pictures need them.
    `patterns` are what its figures show beside the verdicts, in sentences; `knees` those that offered loads show.
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

    def counts(self, arm: str, measurement: Measurement) -> bool:
        """Whether a trial of that arm counts: it is valid, or all that makes it invalid is waived."""
        free = {one.cause for one in self.pardons if one.arm in (None, arm)}
        return free.issuperset(measurement.causes)

    def summary(self, arm: str, workload: str) -> ArmSummary | None:
        """Return the summary of an arm under a workload."""
        return next((s for s in self.arms if (s.arm, s.workload) == (arm, workload)), None)

    def value(self, arm: str, workload: str, metric: str) -> Value | None:
        """Return a metric of an arm under a workload; None where it was not measured."""
        summary = self.summary(arm, workload)
        return None if summary is None else summary.get(metric)

    def value_of_a_round(self, arm: str, workload: str, metric: str) -> Value | None:
        """Return the same as it stands beside changes; None where it was not measured."""
        value = self.value(arm, workload, metric)
        return None if value is None else value.of_a_round

    @property
    def typical(self) -> bool:
        """Whether values of a typical round are known."""
        return any(value.typical is not None for arm in self.arms for value in arm.values)
