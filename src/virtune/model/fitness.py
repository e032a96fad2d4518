# SPDX-License-Identifier: Apache-2.0
"""Fitness: whether a host is fit for measurements, judged by an A/A test (two arms with the same stack)."""

from dataclasses import dataclass

from virtune.model.remark import Remark
from virtune.model.verdict import Interval, Verdict


@dataclass(frozen=True, slots=True, kw_only=True)
class Drift:
    """How the rate moved over the whole check, as a share a minute, with its interval (95 %)."""

    per_minute: float
    low: float
    high: float


@dataclass(frozen=True, slots=True, kw_only=True)
class SliceNoise:
    """Slices of one length: `sd` is the standard deviation of ln(slice / the next trial's slice), over `pairs`.

    `cost` is what it takes to know the difference of two arms as well as with another length, the cheapest being 1.
    """

    seconds: float
    pairs: int
    sd: float
    blocks_per_minute: float
    cost: float


@dataclass(frozen=True, slots=True, kw_only=True)
class Reach:
    """What so many minutes of two arms in turn could find, 9 times in 10; None where they could find nothing."""

    minutes: int
    blocks: int
    smallest: float | None


@dataclass(frozen=True, slots=True, kw_only=True)
class GateStanding:
    """Where the trials stood at one gate: `clear`, `near` (half of its first limit), `warns` or `invalid`."""

    id: str
    label: str
    unit: str
    readings: int
    median: float
    worst: float
    flag: float | None
    invalid: float | None
    standing: str


@dataclass(frozen=True, slots=True, kw_only=True)
class SelfTest:
    """The stack held against itself: a verdict of better or worse is a false alarm."""

    verdict: Verdict
    rounds: int
    ratio: Interval | None
    why: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Neighbour:
    """Another process that worked meanwhile: CPUs in use in the mean, and bytes a second to and from disks."""

    pid: int
    name: str
    cpus: float
    bandwidth_bps: float | None


@dataclass(frozen=True, slots=True, kw_only=True)
class Fitness:
    """What a check says. Shares are relative (0.05 is 5 %); what could not be worked out is None.

    `windows_cv` is the standard deviation of IOPS in windows of `window_seconds` against their mean.
    `correlation_seconds` is the integrated autocorrelation time; with `correlation_open` it is at least that long,
    because the trials are too short to see its end. `unfit` are the reasons why the host is not fit to measure on,
    none where it is. `neighbours` is None when the check is shown again.
    """

    study: str
    workload: str
    trials: int
    measured_seconds: float
    iops: float | None
    window_seconds: float | None
    windows_cv: float | None
    correlation_seconds: float | None
    correlation_open: bool
    drift: Drift | None
    overhead_seconds: float | None
    slices: tuple[SliceNoise, ...]
    best_seconds: float | None
    confidence: float
    reaches: tuple[Reach, ...]
    same: SelfTest | None
    gates: tuple[GateStanding, ...]
    neighbours: tuple[Neighbour, ...] | None
    advice: tuple[Remark, ...]
    unfit: tuple[str, ...]

    def reach(self, minutes: int) -> float | None:
        """Return the smallest difference that so many minutes could find."""
        return next((one.smallest for one in self.reaches if one.minutes == minutes), None)
