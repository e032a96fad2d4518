# SPDX-License-Identifier: Apache-2.0
"""Rules that limit conclusions from a fio result: errors, and loads that differed from the request."""

import errno
import math
from collections.abc import Iterator

from virtune.analyse.trial.measure import completions
from virtune.fio.job_options import SYNCHRONOUS
from virtune.model.gate import GATE_BY_ID
from virtune.model.measurement import LoadResult, Stream
from virtune.model.remark import Remark, Weight
from virtune.model.remark_kinds import (
    CUT_SHORT,
    DEPTH,
    ERRORS,
    LITTLE,
    NO_IO,
    SHORT_IOS,
    SHORT_RUN,
    SPREAD,
)
from virtune.model.units import format_count, format_ns, format_share

LITTLE_MARGIN = 0.10
"""Operations a second times mean latency is the number in flight (Little's law). In a closed loop it comes out within
3 % of the depth; 10 % leaves room for fio's rounding in text and for the ends of a short run."""

SPREAD_LIMIT = 0.10
"""Standard deviation of the IOPS samples against their mean. A quiet device stays below 5 %. At 10 %, a run of 10 s
(20 samples) cannot tell differences below 9 %."""

SPREAD_FACTOR = 1.96
"""How many standard errors hold 95 % of a normal distribution."""

FEW_SAMPLES = 5
"""A standard deviation of fewer samples says nothing."""

SHORT_SECONDS = 5.0
"""Ten of fio's half-second samples: less is not enough to see whether a device is steady."""

FEW_IOS = 1_000
"""With fewer I/Os, p99 rests on fewer than ten of them."""

RATE_MET = 0.99

EDGE_SECONDS = 0.01
"""I/Os due in the last 10 ms of a run may complete after it, without a growing queue."""

CPU_LIMIT = 90.0
IN_SUBMISSION = 0.5


def no_io(load: LoadResult) -> Iterator[Remark]:
    """Judge by `no-io`."""
    if not load.streams:
        yield NO_IO.remark(text="The job did no I/O at all: 0 operations.")


def errors(load: LoadResult) -> Iterator[Remark]:
    """Judge by `errors`."""
    if load.error or load.errors:
        name = errno.errorcode.get(load.error, f"error {load.error}") if load.error else "errors"
        many = f" {load.errors:,} I/Os failed while fio went on." if load.errors else ""
        yield ERRORS.remark(
            text=f"fio reported {name}{f' ({load.error})' if load.error else ''}.{many} The numbers say nothing about"
            " the disk.",
        )


def short_ios(load: LoadResult) -> Iterator[Remark]:
    """Judge by `short-ios`."""
    short, dropped = (
        sum(stream.short_ios for stream in load.streams),
        sum(stream.dropped_ios for stream in load.streams),
    )
    if short or dropped:
        yield SHORT_IOS.remark(text=f"{short:,} I/Os came back short and {dropped:,} were dropped.")


def cut_short(load: LoadResult) -> Iterator[Remark]:
    """Judge by `cut-short`."""
    text = load.option("number_ios") or ""
    asked = int(text) if text.isascii() and text.isdigit() and len(text) < 16 else 0
    done = sum(stream.ios or 0 for stream in load.streams)
    if not asked or not load.streams or load.error or done >= asked * load.jobs:
        return
    yield CUT_SHORT.remark(
        text=f"The run ended after {done:,} of {asked * load.jobs:,} I/Os (number_ios): a runtime cut it, or the span"
        " was done with. The slowest I/Os of a disk are the likeliest to be missing.",
    )


def depth_ignored(load: LoadResult) -> Iterator[Remark]:
    """Judge by `depth`."""
    per_job = _per_job(load)
    if load.engine in SYNCHRONOUS and per_job is not None and per_job > 1:
        yield DEPTH.remark(
            text=f"iodepth={per_job} had no effect: {load.engine} does one I/O at a time, so the depth over all jobs"
            f" was {load.jobs}, not {load.depth}.",
            advice="use io_uring or libaio for a depth above 1, or numjobs",
        )


def depth_not_filled(load: LoadResult) -> Iterator[Remark]:
    """Judge by `depth`."""
    per_job = _per_job(load)
    if load.engine in SYNCHRONOUS or per_job is None or per_job < 2 or load.rate_asked_iops or not load.depth_levels:
        return
    levels = [(int(level.lstrip(">=")), share) for level, share in load.depth_levels]
    asked = max((level for level, _ in levels if level <= per_job), default=1)
    reached = math.fsum(share for level, share in levels if level >= asked)
    usual, share = max(levels, key=lambda pair: pair[1])
    if reached < 0.5 and share > 0:
        yield DEPTH.remark(
            text=f"The queue never filled: iodepth={per_job} was asked for, {format_share(reached)} of the I/Os"
            " were issued"
            f" with {asked} or more in flight, and {format_share(min(share, 1))} with {usual}.",
            advice="look for what holds the submitting job back: CPU, buffered I/O, a rate, a small file",
        )


def depth_in_submission(load: LoadResult) -> Iterator[Remark]:
    """Judge by `depth`."""
    per_job, share = _per_job(load), in_submission(load)
    if (
        load.engine == "libaio"
        and load.direct is False
        and per_job
        and per_job > 1
        and share
        and share > IN_SUBMISSION
    ):
        yield DEPTH.remark(
            text=f"Depth {per_job} is nominal: libaio without O_DIRECT does the I/O inside the submission call, where"
            f" the job spent {format_share(share)} of its time (slat x IOPS). About one I/O was in progress at"
            " a time.",
            advice="use direct=1, or io_uring, which hands buffered I/O that would block to a worker",
        )


def in_submission(load: LoadResult) -> float | None:
    """The share of a job's time spent in submission calls: slat times operations a second."""
    if not load.streams or any(stream.slat is None for stream in load.streams):
        return None
    return math.fsum(stream.iops * stream.slat.mean_ns for stream in load.streams if stream.slat) / 1e9 / load.jobs


def _per_job(load: LoadResult) -> int | None:
    return load.depth // load.jobs if load.depth else None


def little(load: LoadResult) -> Iterator[Remark]:
    """Judge by `little`."""
    asked = load.jobs if load.engine in SYNCHRONOUS else load.depth
    flying = in_flight(load)
    idle = any(name.startswith(("rate", "thinktime")) for name, _ in load.options or ())
    if not asked or flying is None or idle or abs(flying / asked - 1) <= LITTLE_MARGIN:
        return
    numbers = f"{format_count(load.iops)} operations a second at their mean latency keep {flying:.3g} I/Os in flight"
    if flying > asked:
        yield LITTLE.remark(
            weight=Weight.INVALID,
            text=f"{numbers}, and only {asked} were asked for: these figures do not belong together.",
            advice="was the text put together from several runs, or do other jobs hide in this group?",
        )
        return
    cpu = f" (its CPU: usr {load.usr_percent:.4g} %, sys {load.sys_percent:.4g} %)" if _has_cpu(load) else ""
    unknown = "" if load.options is not None else ", or a rate or think time that this text does not show,"
    yield LITTLE.remark(
        weight=Weight.WARNING,
        text=f"{numbers}, of {asked} asked for: {format_share(1 - flying / asked)} of the time passed outside"
        " the I/Os. The"
        f" load generator{cpu}{unknown} set the pace, so this is not the limit of the disk.",
    )


def in_flight(load: LoadResult) -> float | None:
    """I/Os in flight in the mean by Little's law, time in fsync included; None when a latency is missing."""
    seconds = max((stream.seconds or 0 for stream in load.streams), default=0)
    if seconds < 1 or any(stream.lat is None for stream in load.streams):
        return None
    total = math.fsum(stream.iops * stream.lat.mean_ns for stream in load.streams if stream.lat)
    if load.sync is not None:
        if load.sync.count is None:
            return None
        total += load.sync.count / seconds * load.sync.mean_ns
    return total / 1e9


def shortfall(load: LoadResult) -> float | None:
    """Return the share of the offered load that was not achieved, beyond what the run's end and random arrivals
    explain; None where no load was offered. Arrivals at random (`rate_process=poisson`) count with three standard
    deviations.
    """
    asked = load.rate_asked_iops
    if not asked or not load.streams:
        return None
    seconds = max(stream.seconds or 0.0 for stream in load.streams)
    slack = EDGE_SECONDS / seconds if seconds else 0.0
    if seconds and load.option("rate_process") == "poisson":
        slack += 3 / math.sqrt(asked * seconds)
    return max(0.0, 1 - done_of(load) / asked - slack)


def done_of(load: LoadResult) -> float:
    """Return the operations a second of all directions."""
    return math.fsum(completions(stream) for stream in load.streams)


def rate_unmet(load: LoadResult) -> Iterator[Remark]:
    """Judge by `rate-unmet`."""
    asked, short = load.rate_asked_iops, shortfall(load)
    if asked and short is not None and short > 1 - RATE_MET:
        done = done_of(load)
        yield GATE_BY_ID["rate-unmet"].remark(
            text=f"{format_count(asked)} operations a second were offered and {format_count(done)}"
            f" were done ({format_share(done / asked, 1)}): latencies at this load are those of an ever-growing"
            " queue.",
        )


def spread(load: LoadResult) -> Iterator[Remark]:
    """Judge by `spread`."""
    for stream in load.streams:
        found = relative_spread(load, stream)
        if found is None or found[0] < SPREAD_LIMIT:
            continue
        relative, samples = found
        smallest = SPREAD_FACTOR * math.sqrt(2 / samples) * relative
        yield SPREAD.remark(
            text=f"{stream.direction} IOPS swung by {format_share(relative)} around their mean within this one"
            " run: standard"
            f" deviation {stream.iops_stddev:,.0f}{' a job' if load.jobs > 1 else ''}, mean {stream.iops_mean:,.0f},"
            f" {stream.iops_samples} samples. Were the samples independent, two such runs would still differ by up to"
            f" {format_share(smallest)} by chance, so one run cannot support a claim of a difference below"
            f" {format_share(smallest)}.",
        )


def relative_spread(load: LoadResult, stream: Stream) -> tuple[float, float] | None:
    """The standard deviation of a stream's IOPS samples against their mean, and the number of samples over time.

    None where there are too few. For jobs reported together fio gives the sum of their means, the pooled deviation of
    one job and the samples of all; independent jobs are assumed, which makes the spread the smallest it can be.
    """
    if not stream.iops_stddev or not stream.iops_mean or not stream.iops_samples:
        return None
    samples = stream.iops_samples / load.jobs
    return (stream.iops_stddev * math.sqrt(load.jobs) / stream.iops_mean, samples) if samples >= FEW_SAMPLES else None


def short_run(load: LoadResult) -> Iterator[Remark]:
    """Judge by `short-run`."""
    seconds = max((stream.seconds or 0 for stream in load.streams), default=0)
    ios = sum(stream.ios or 0 for stream in load.streams)
    if load.streams and seconds and ios and (seconds < SHORT_SECONDS or ios < FEW_IOS):
        yield SHORT_RUN.remark(
            text=f"{ios:,} I/Os in {format_ns(seconds * 1e9)} are a short look: caches, garbage collection and"
            " neighbours show up later.",
        )


def saturated_cpu(load: LoadResult) -> Iterator[Remark]:
    """Judge by `saturated-cpu`."""
    if _has_cpu(load) and (total := (load.usr_percent or 0) + (load.sys_percent or 0)) > CPU_LIMIT:
        yield GATE_BY_ID["saturated-cpu"].remark(
            text=f"Each job kept a CPU {total:.1f} % busy (usr {load.usr_percent:.4g} %, sys"
            f" {load.sys_percent:.4g} %):"
            " the load generator may be the limit rather than the disk.",
            advice="spread the load over more jobs and CPUs, and see whether IOPS rise",
        )


def _has_cpu(load: LoadResult) -> bool:
    return load.usr_percent is not None and load.sys_percent is not None
