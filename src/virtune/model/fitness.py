# SPDX-License-Identifier: Apache-2.0
"""Fitness: whether a host is fit for measurements, judged by an A/A test (two arms with the same stack)."""

from dataclasses import dataclass
from typing import Annotated

from virtune.model.reason import Reason
from virtune.model.remark import Remark
from virtune.model.verdict import Interval, Verdict


@dataclass(frozen=True, slots=True, kw_only=True)
class Drift:
    """The drift of the rate over the whole check, as a share per minute, with its 95 % confidence interval."""

    per_minute: Annotated[float, "The change in a minute as a share (0.01 is +1 %)."]
    low: Annotated[float, "The lower end of its interval (95 %)."]
    high: Annotated[float, "The upper end of its interval (95 %)."]


@dataclass(frozen=True, slots=True, kw_only=True)
class SliceNoise:
    """Slices of one length: `sd` is the standard deviation of ln(slice / the next trial's slice), over `pairs`.

    `cost` is the relative time that slices of this length need for the same precision; the cheapest length has 1.
    """

    seconds: Annotated[float, "The length, in seconds."]
    pairs: Annotated[int, "Neighbouring trials that the noise rests on, a count."]
    sd: Annotated[float, "Standard deviation of ln(slice / slice of the next trial)."]
    blocks_per_minute: Annotated[float, "Pairs of such trials that fit into a minute."]
    cost: Annotated[float, "Time until a difference is known as well, against the best length."]


@dataclass(frozen=True, slots=True, kw_only=True)
class Reach:
    """The smallest difference that a comparison of so many minutes detects with 90 % power; None where it detects
    none.
    """

    minutes: Annotated[int, "Minutes of two arms in turn."]
    blocks: Annotated[int, "Pairs of trials in them, with slices of the best length."]
    smallest: Annotated[
        float | None, "The smallest difference detected with 90 % power (0.05 is 5 %); null where nothing is."
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

    verdict: Verdict
    rounds: int
    ratio: Interval | None
    why: str
    reason: Reason


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
