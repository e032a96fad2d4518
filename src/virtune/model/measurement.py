# SPDX-License-Identifier: Apache-2.0
"""The measurement of one trial in base units: nanoseconds, bytes, operations, seconds, CPU-seconds.

Percentiles are kept as a Histogram (counts per bin), because counts can be added exactly and percentiles cannot.
"""

import math
from bisect import bisect_left, bisect_right
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from fractions import Fraction
from itertools import accumulate
from operator import itemgetter
from typing import Annotated

from virtune.model.metric import DIRECTIONS, Distribution
from virtune.model.remark import Remark, Weight
from virtune.model.text import LEFT_OUT

METHOD = 2
"""The number of the method by which measurements are derived from evidence; the same evidence gives the same figures
under the same number.
"""


class _Kept:
    """The room for what a histogram works out once; no field of it, so that it is neither stored nor compared."""

    __slots__ = ("_running",)
    _running: tuple[int, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class Histogram(_Kept):
    """Latencies as counts: `bins` are (value in ns, count), ascending, as fio's `json+` gives them.

    fio's bins are at most 0.8 % wide, and adding the counts of equal bins merges two runs exactly.
    """

    bins: tuple[tuple[int, int], ...]

    @property
    def count(self) -> int:
        running = self._running_counts()
        return running[-1] if running else 0

    def _running_counts(self) -> tuple[int, ...]:
        try:
            return self._running
        except AttributeError:
            made = tuple(accumulate(map(itemgetter(1), self.bins)))
            object.__setattr__(self, "_running", made)
            return made

    def percentile(self, percent: float) -> float | None:
        """Return the latency in ns that `percent` % of the counted stay at or below; None when nothing was counted.

        The same rule as fio's: the first bin at which the running count reaches percent/100 of all. Exact, because
        fio computes it in long double and a double would now and then pick the neighbouring bin.
        """
        running = self._running_counts()
        need = max(1, math.ceil(Fraction(percent) * self.count / 100))
        at = bisect_left(running, need)
        return float(self.bins[at][0]) if at < len(running) else None

    def count_to(self, value: float) -> int:
        """How many latencies lie at or below a value in ns."""
        at = bisect_right(self.bins, value, key=itemgetter(0))
        return self._running_counts()[at - 1] if at else 0

    def resolves(self, percent: float, *, beyond: int = 100) -> bool:
        """Whether at least `beyond` latencies lie above that percentile, so that it is meaningful."""
        return self.count * (1 - percent / 100) >= beyond


def merge(histograms: Iterable[Histogram]) -> Histogram:
    """Add histograms bin by bin: the histogram of all their latencies together."""
    total: dict[int, int] = {}  # a Counter is half as fast
    for histogram in histograms:
        for value, count in histogram.bins:
            total[value] = total.get(value, 0) + count
    return Histogram(bins=tuple(sorted(total.items())))


def percentile_of_all(histograms: Sequence[Histogram | None], percent: float) -> float | None:
    """Return the percentile in ns of what all of these counted together; None where one is not known, or all empty.

    The mean of their percentiles is another number: a few of them may hold all that is slow.
    """
    known = [one for one in histograms if one is not None]
    return merge(known).percentile(percent) if known and len(known) == len(histograms) else None


@dataclass(frozen=True, slots=True, kw_only=True)
class Latency:
    """One kind of latency: mean and extremes in ns, and its distribution as far as the source has it.

    `histogram` comes from `json+`; `percentiles` (percent, ns) from `json` or text, where no bins exist.
    """

    count: Annotated[int | None, "Latencies that were counted."] = None
    mean_ns: Annotated[float, "The mean in nanoseconds."]
    min_ns: Annotated[float | None, "The smallest in nanoseconds."] = None
    max_ns: Annotated[float | None, "The largest in nanoseconds."] = None
    stddev_ns: Annotated[float | None, "The standard deviation in nanoseconds."] = None
    histogram: Annotated[Histogram | None, LEFT_OUT] = None  # a document has what is derived of its bins
    percentiles: Annotated[
        tuple[tuple[float, float], ...], "Pairs of percent and nanoseconds, as the source printed them."
    ] = ()

    def percentile(self, percent: float) -> float | None:
        """Return a percentile in ns from the bins, else as the source printed it, else None."""
        if self.histogram is not None and self.histogram.bins:
            return self.histogram.percentile(percent)
        return dict(self.percentiles).get(percent)


STREAMS = ("read", "write", "trim", "mixed")
"""The directions of what fio reports; all of them as one where it was told so."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Stream:
    """One direction (`read`, `write` or `trim`) of one load."""

    direction: Annotated[str, "read, write or trim; `mixed` where fio was told to sum them up.", {"enum": [*STREAMS]}]
    ios: Annotated[int | None, "Completed I/Os, a count."]
    bytes: Annotated[int | None, "Bytes moved."]
    seconds: Annotated[float | None, "How long it ran, in seconds."]
    iops: Annotated[
        float, "Operations a second as fio says; the metrics count completions, which a ramp makes more of."
    ]
    bandwidth_bps: Annotated[float, "Bytes a second."]
    iops_samples: Annotated[int | None, "Samples of the operations a second that the next four rest on, a count."] = (
        None
    )
    iops_min: Annotated[float | None, "The smallest sample, in operations a second."] = None
    iops_max: Annotated[float | None, "The largest sample, in operations a second."] = None
    iops_mean: Annotated[float | None, "The mean of the samples, in operations a second."] = None
    iops_stddev: Annotated[float | None, "The standard deviation of the samples, in operations a second."] = None
    short_ios: Annotated[int, "I/Os that came back incomplete, a count."] = 0
    dropped_ios: Annotated[int, "I/Os that were dropped, a count."] = 0
    slat: Annotated[Latency | None, "Submission latency: the time in the call that hands an I/O over."] = None
    clat: Annotated[Latency | None, "Completion latency: from there until the I/O was seen to be done."] = None
    lat: Annotated[Latency | None, "Total latency: both together."] = None

    @property
    def completions(self) -> float:
        """Completions a second, from the number of latencies counted.

        fio's own figure leaves out the I/Os that were in flight when the ramp ended, although it counts their bytes
        and latencies: at depth 32 and 200 IOPS that is 8 % over 2 s. Where no latencies were counted, fio's figure is
        used.
        """
        counted = next((kind.count for kind in (self.lat, self.clat) if kind is not None and kind.count), None)
        return counted / self.seconds if counted and self.seconds else self.iops


@dataclass(frozen=True, slots=True, kw_only=True)
class DeviceUse:
    """The kernel's counters of one block device during the load (fio's `disk_util`, or our own counters)."""

    name: Annotated[str, "The kernel's name of the device."]
    reads: Annotated[int, "Read requests that it completed, a count."]
    writes: Annotated[int, "Write requests that it completed, a count."]
    read_bytes: Annotated[int | None, "Bytes read."] = None
    written_bytes: Annotated[int | None, "Bytes written."] = None
    read_merges: Annotated[int | None, "Reads that were merged into other requests, a count."] = None
    write_merges: Annotated[int | None, "Writes that were merged into other requests, a count."] = None
    read_seconds: Annotated[float | None, "The time that all reads spent at the device, added up, in seconds."] = None
    write_seconds: Annotated[float | None, "The time that all writes spent at the device, added up, in seconds."] = (
        None
    )
    busy_percent: Annotated[float, "The share of time in which it had a request, in %."]


@dataclass(frozen=True, slots=True, kw_only=True)
class LoadResult:
    """fio's result of one reporting group (the jobs that were reported together).

    `depth` is the requested number of I/Os in flight (iodepth x numjobs); `depth_levels` the share of requests (0..1)
    that fio saw at each depth class, from its IO depths line; `submit_levels` and `complete_levels` those of so many
    submitted or completed by one call. CPU is in % of one CPU, averaged over the jobs.
    `errors` counts I/Os that failed while fio went on. `options` are the job's own as fio echoes them; None where the
    source does not echo them, so that "not set" and "not known" remain distinct. `group` is fio's number of the
    reporting group: jobs behind a `stonewall` ran after those of lower groups, not at the same time. `sections`:
    several job sections are combined here, and only their common options are known. `began` is when the job started,
    in seconds since 1970 (fio 3.36 and later).
    """

    name: Annotated[str, "The name of the job or of the group."]
    engine: Annotated[str | None, "fio's I/O engine; null where the source does not say."]
    pattern: Annotated[str | None, "fio's `rw` word; null where the source does not say."]
    block_size: Annotated[int | None, "The size of a request in bytes; null where the source does not say one."]
    direct: Annotated[
        bool | None, "Whether O_DIRECT was asked for; null where it is not known, or no file was opened."
    ]
    jobs: Annotated[int, "Jobs that were reported together."]
    depth: Annotated[int | None, "I/Os in flight that were asked for, over all jobs (iodepth x numjobs)."]
    error: Annotated[int, "The error number that the job ended with; 0 is none."]
    streams: Annotated[tuple[Stream, ...], "What was done, by direction."]
    usr_percent: Annotated[float | None, "User CPU time in % of one CPU, in the mean over the jobs."]
    sys_percent: Annotated[float | None, "Kernel CPU time in % of one CPU, in the mean over the jobs."]
    context_switches: Annotated[int | None, "Context switches, a count."] = None
    major_faults: Annotated[int | None, "Page faults that read from a disk, a count."] = None
    minor_faults: Annotated[int | None, "Page faults without a read, a count."] = None
    sync: Annotated[Latency | None, "The latency of fsync and its like; null without any."] = None
    depth_levels: Annotated[
        tuple[tuple[str, float], ...],
        "Pairs of fio's class of I/Os in flight (1, 2, 4, .. >=64) and the share of requests issued with that many,"
        " 0 to 1.",
    ] = ()
    submit_levels: Annotated[tuple[tuple[str, float], ...], "The same classes, of I/Os submitted by one call."] = ()
    complete_levels: Annotated[tuple[tuple[str, float], ...], "The same classes, of I/Os completed by one call."] = ()
    rate_asked_iops: Annotated[
        float | None, "The load that was offered, in operations a second over all jobs; null for a closed loop."
    ] = None
    errors: Annotated[int, "I/Os that failed while fio went on, a count."] = 0
    options: Annotated[
        tuple[tuple[str, str], ...] | None,
        "Pairs of name and value: the job's options as fio echoes them; null where it does not.",
    ] = None
    group: Annotated[int | None, "fio's number of the reporting group; null where the source does not say."] = None
    sections: Annotated[
        bool, "Whether several job sections stand here as one; then only what all of them share is known."
    ] = False
    began: Annotated[float | None, "When the job started, in seconds since 1970; null before fio 3.36."] = None

    @property
    def ios(self) -> int:
        """I/Os of all directions, of those that are known."""
        return sum(stream.ios or 0 for stream in self.streams)

    @property
    def seconds(self) -> float:
        """How long its longest direction ran; 0 where no direction says so."""
        return max((stream.seconds or 0.0 for stream in self.streams), default=0.0)

    def option(self, name: str) -> str | None:
        """Return a job option as fio echoed it; None when it was not set, or is not known."""
        return dict(self.options or ()).get(name)

    @property
    def iops(self) -> float:
        return math.fsum(stream.iops for stream in self.streams)

    @property
    def bandwidth_bps(self) -> float:
        return math.fsum(stream.bandwidth_bps for stream in self.streams)


@dataclass(frozen=True, slots=True, kw_only=True)
class FioResult:
    """One fio run as read from its output, in any of its formats. `source`: `json+`, `json`, `text`,
    `diskspd` or `vdbench`.

    `ended` is when fio wrote it, in seconds since 1970; None where the source does not say, or not in which zone.
    `elapsed` is how long all of it took, in seconds, rounded up. `host` is the name of the machine that loaded the
    disk, None where the source does not say.
    """

    source: str
    version: str | None
    loads: tuple[LoadResult, ...]
    devices: tuple[DeviceUse, ...] = ()
    ended: float | None = None
    elapsed: float | None = None
    host: str | None = None

    @property
    def streams(self) -> tuple[Stream, ...]:
        return tuple(stream for load in self.loads for stream in load.streams)

    @property
    def seconds(self) -> float:
        """How long its longest load ran; 0 where none says so."""
        return max((load.seconds for load in self.loads), default=0.0)


@dataclass(frozen=True, slots=True, kw_only=True)
class Measurement:
    """The measurement of one trial: base metrics by id (see `virtune.model.metric`), the distributions, and remarks.

    `values` holds only what was measured: a missing metric was not measured, and is never zero by default.
    `histogram` is of the total latency of all I/Os, `flushes` of flushes, `others` are the remaining distributions.
    `gates` are the readings of all gates (`virtune.model.remark`) by id, also those below their limits. `profile` is
    IOPS over the measured time, one number per `profile_seconds`.
    """

    method: int = METHOD
    values: tuple[tuple[str, float], ...]
    histogram: Histogram | None = None
    flushes: Histogram | None = None
    others: tuple[tuple[Distribution, Histogram], ...] = ()
    remarks: tuple[Remark, ...] = ()
    gates: tuple[tuple[str, float], ...] = ()
    profile: tuple[float, ...] = ()
    profile_seconds: float = 0.0

    @property
    def causes(self) -> tuple[str, ...]:
        """Why the trial is invalid, by the ids of the remarks; empty when it counts."""
        return tuple(dict.fromkeys(one.id for one in self.remarks if one.weight is Weight.INVALID))

    def histogram_of(self, kind: Distribution) -> Histogram | None:
        """Return the distribution of that kind. For a load that only reads, the distribution of reads is that of all
        I/Os.
        """
        if kind in ("latency", "sync"):
            return self.histogram if kind == "latency" else self.flushes
        direction, _, of = kind.rpartition(".")
        others = dict(self.others)
        if direction and kind not in others and self.directions == (direction,):
            return self.histogram if of == "latency" else others.get("clat")
        return others.get(kind)

    @property
    def directions(self) -> tuple[str, ...]:
        """What the load did: `read`, `write` or both."""
        return tuple(one for one in DIRECTIONS if self.get(f"{one}.iops") is not None)

    def get(self, metric: str) -> float | None:
        return dict(self.values).get(metric)
