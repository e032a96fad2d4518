# SPDX-License-Identifier: Apache-2.0
"""Fitness: whether a host is fit for measurements, judged by an A/A test (two arms with the same stack)."""

from dataclasses import dataclass

from virtune.model.reason import Reason
from virtune.model.remark import Remark
from virtune.model.verdict import Interval, Verdict


@dataclass(frozen=True, slots=True, kw_only=True)
class Drift:
    """The drift of the rate over the whole check, as a share per minute, with its 95 % confidence interval."""

    per_minute: float
    low: float
    high: float


@dataclass(frozen=True, slots=True, kw_only=True)
class SliceNoise:
    """Slices of one length: `sd` is the standard deviation of ln(slice / the next trial's slice), over `pairs`.

    `cost` is the relative time that slices of this length need for the same precision; the cheapest length has 1.
    """

    seconds: float
    pairs: int
    sd: float
    blocks_per_minute: float
    cost: float


@dataclass(frozen=True, slots=True, kw_only=True)
class Reach:
    """The smallest difference that a comparison of so many minutes detects with 90 % power; None where it detects
    none.
    """

    minutes: int
    blocks: int
    smallest: float | None


@dataclass(frozen=True, slots=True, kw_only=True)
class GateStanding:
    """The trials' readings at one gate: `clear`, `near` (half of its first limit), `warns` or `invalid`."""

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
    """The verdict of the A/A test: better or worse is a false alarm."""

    verdict: Verdict
    rounds: int
    ratio: Interval | None
    why: str
    reason: Reason


@dataclass(frozen=True, slots=True, kw_only=True)
class Neighbour:
    """Another process that was active meanwhile: its mean CPU use in CPUs, and its disk I/O in bytes a second."""

    pid: int
    name: str
    cpus: float
    bandwidth_bps: float | None


@dataclass(frozen=True, slots=True, kw_only=True)
class Fitness:
    """The result of a check. Shares are relative (0.05 is 5 %); a figure that could not be computed is None.

    `windows_cv` is the standard deviation of IOPS in windows of `window_seconds` against their mean.
    `correlation_seconds` is the integrated autocorrelation time; with `correlation_open` it is at least that long,
    because the trials are too short to see its end. `unfit` are the reasons why the host is not fit to measure on,
    none where it is, and `unfit_reasons` their codes. `neighbours` is None when the check is shown again.
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
    unfit_reasons: tuple[Reason, ...]

    def reach(self, minutes: int) -> float | None:
        """Return the smallest difference that a comparison of so many minutes detects."""
        return next((one.smallest for one in self.reaches if one.minutes == minutes), None)

    def finds(self, share: float) -> bool:
        """Whether five minutes detect differences of that size here, and nothing but noise makes the host unfit."""
        smallest = self.reach(5)
        others = [one for one in self.unfit_reasons if one is not Reason.ONLY_LARGE_DIFFERENCES]
        return smallest is not None and smallest <= share and not others
