# SPDX-License-Identifier: Apache-2.0
"""Read the gates, which are what a trial's evidence says of disturbances other than the disk (see
`virtune.model.remark`), and what limits conclusions from a fio result: errors, and loads that differed from the
request.

CPU pressure from other processes is separated from the rig's own. PSI cannot do that: a pool of 64 workers on two
CPUs makes "some task waits" true most of the time, on an otherwise idle machine. So the measure is how long the
threads of rig and load waited for a CPU, and the part of it for which other processes had the CPUs.
"""

import errno
import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Literal

from virtune.fio.consistency import leaves_depth, seconds_of
from virtune.fio.options import SYNCHRONOUS, size_of
from virtune.model.counters import DiskUse, Use
from virtune.model.measurement import FioResult, LoadResult, Stream
from virtune.model.remark import GATE_BY_ID, Gate, Remark, Weight, remark_of
from virtune.model.stack import DIRECT_CACHES, Stack
from virtune.model.text import format_bytes, format_count, format_ns, format_seconds, format_share
from virtune.model.workload import ENDS_ITSELF, Workload

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

WINDOW_SECONDS = 0.25
"""In less than this the kernel's clock ticks of 10 ms are too coarse, and fio's own start weighs too much."""

EDGE_SECONDS = 0.01
"""I/Os due in the last 10 ms of a run may complete after it, without a growing queue."""

CPU_LIMIT = 90.0
IN_SUBMISSION = 0.5


def no_io(load: LoadResult) -> Iterator[Remark]:
    """Judge by `no-io`."""
    if not load.streams:
        yield remark_of("no-io", text="The job did no I/O at all: 0 operations.")


def errors(load: LoadResult) -> Iterator[Remark]:
    """Judge by `errors`."""
    if load.error or load.errors:
        name = errno.errorcode.get(load.error, f"error {load.error}") if load.error else "errors"
        many = f" {load.errors:,} I/Os failed while fio went on." if load.errors else ""
        yield remark_of(
            "errors",
            text=f"fio reported {name}{f' ({load.error})' if load.error else ''}.{many} The numbers say nothing about"
            " the disk.",
        )


def short_ios(load: LoadResult) -> Iterator[Remark]:
    """Judge by `short-ios`."""
    short, dropped = (sum(getattr(one, name) for one in load.streams) for name in ("short_ios", "dropped_ios"))
    if short or dropped:
        yield remark_of("short-ios", text=f"{short:,} I/Os came back short and {dropped:,} were dropped.")


def cut_short(load: LoadResult) -> Iterator[Remark]:
    """Judge by `cut-short`."""
    if not load.streams or load.error:
        return
    options, ran = dict(load.options or ()), load.seconds
    timed = seconds_of(options, "runtime") if _time_based(load, options) else None
    if timed and ran and ended_before(ran, timed):
        steady = any(name in ("steadystate", "ss") for name in options)
        why = "it was to end once it was steady" if steady else "somebody, or another job, ended it"
        yield _ended(ran, timed, why)
    text = options.get("number_ios", "")
    number = int(text) if text.isascii() and text.isdigit() and len(text) < 16 else 0
    if load.ios < number * load.jobs:
        yield remark_of(
            "cut-short",
            text=f"The run ended after {load.ios:,} of {number * load.jobs:,} I/Os (number_ios): a runtime cut it, or"
            " the span was done with. The slowest I/Os of a disk are the likeliest to be missing.",
        )


def ended_itself(loads: Sequence[LoadResult]) -> Iterator[Remark]:
    """Judge the jobs of a trial by `cut-short` which say themselves when they end: its study has a time for them."""
    for load in loads:
        options = dict(load.options or ())
        limits = [f"{name}={options[name]}" for name in sorted(ENDS_ITSELF & options.keys())]
        timed = seconds_of(options, "runtime")
        if limits and timed and load.ios and ended_before(load.seconds, timed) and not _time_based(load, options):
            yield _ended(load.seconds, timed, f"`{load.name}` was done, by its {' and '.join(limits)}")


def _ended(ran: float, whole: float, why: str) -> Remark:
    least = format_seconds(ran) if ran >= 1 else format_ns(ran * 1e9)
    return remark_of(
        "cut-short",
        text=f"The run ended after {least} of the {format_seconds(whole)} that it was to run: {why}.",
        advice="compare it only with runs that were as long",
    )


def ended_before(ran: float, whole: float) -> bool:
    """Whether a run of so many seconds ended before the whole of another, or of what was asked for."""
    return ran < ENDED_EARLY * whole - min(EDGE_OF_RUN, whole / 2)


def _time_based(load: LoadResult, options: Mapping[str, str]) -> bool:
    """Whether the run was to last as long as `runtime`, and not to end with its span. On a command line fio does not
    echo `--time_based`; then more bytes than the span tell.
    """
    if "time_based" in options or options.keys() & {"loops", "io_size", "verify"}:
        return options.get("time_based", "0") != "0"
    span = size_of(options.get("size", ""))
    return (
        span is not None and sum(one.bytes or 0 for one in load.streams if one.direction != "trim") > span * load.jobs
    )


def depth_ignored(load: LoadResult) -> Iterator[Remark]:
    """Judge by `depth`."""
    per_job = _per_job(load)
    if load.engine in SYNCHRONOUS and per_job is not None and per_job > 1:
        yield remark_of(
            "depth",
            text=f"iodepth={per_job} had no effect: {load.engine} does one I/O at a time, so the depth of each"
            f" job was 1, not {per_job}.",
            advice="use io_uring or libaio for a depth above 1, or numjobs",
        )


def depth_not_filled(load: LoadResult) -> Iterator[Remark]:
    """Judge by `depth`."""
    per_job = _per_job(load)
    if load.engine in SYNCHRONOUS or per_job is None or per_job < 2 or load.rate_asked_iops or not load.depth_levels:
        return
    if leaves_depth(load.options or (), but=("fsync", "fdatasync", "sync_file_range")):
        return
    levels = [(int(level.lstrip(">=")), share) for level, share in load.depth_levels]
    asked = max((level for level, _ in levels if level <= per_job), default=1)
    reached = math.fsum(share for level, share in levels if level >= asked)
    usual, share = max(levels, key=lambda pair: pair[1])
    if reached < 0.5 and share > 0:
        yield remark_of(
            "depth",
            text=f"The queue never filled: iodepth={per_job} was asked for, {format_share(reached)} of the I/Os were"
            f" issued with {asked} or more in flight, and {format_share(min(share, 1))} with {usual}.",
            advice="look for what holds the submitting job back: CPU, buffered I/O, a rate, a small file",
        )


def depth_in_submission(load: LoadResult) -> Iterator[Remark]:
    """Judge by `depth`."""
    per_job, share = _per_job(load) or 0, in_submission(load) or 0.0
    if load.engine == "libaio" and load.direct is False and per_job > 1 and share > IN_SUBMISSION:
        yield remark_of(
            "depth",
            text=f"Depth {per_job} is nominal: libaio without O_DIRECT does the I/O inside the submission call, where"
            f" the job spent {format_share(share)} of its time (slat x IOPS). About one I/O was in progress at"
            " a time.",
            advice="use direct=1, or io_uring, which hands buffered I/O that would block to a worker",
        )


def in_submission(load: LoadResult) -> float | None:
    """The share of a job's time spent in submission calls: slat times operations a second. None where that is no
    share: the I/Os of one batch wait in the same call, and other threads than the job's submit.
    """
    if not load.streams or any(stream.slat is None for stream in load.streams):
        return None
    if any(name.startswith(("iodepth_batch", "io_submit_mode")) for name, _ in load.options or ()):
        return None
    return math.fsum(stream.iops * stream.slat.mean_ns for stream in load.streams if stream.slat) / 1e9 / load.jobs


def _per_job(load: LoadResult) -> int | None:
    return load.depth // load.jobs if load.depth else None


def little(load: LoadResult) -> Iterator[Remark]:
    """Judge by `little`."""
    found = closed_loop(load)
    if found is None or abs(found[0] / found[1] - 1) <= LITTLE_MARGIN:
        return
    flying, asked = found
    numbers = f"{format_count(load.iops)} operations a second at their mean latency keep {flying:.3g} I/Os in flight"
    if flying > asked:
        yield remark_of(
            "little",
            weight=Weight.INVALID,
            text=f"{numbers}, and only {asked} were asked for: these figures do not belong together.",
            advice="was the text put together from several runs, or do other jobs hide in this group?",
        )
        return
    told = _cpu_percent(load) is not None
    cpu = f" (its CPU: usr {load.usr_percent:.4g} %, sys {load.sys_percent:.4g} %)" if told else ""
    unknown = "" if load.options is not None else ", or a rate or think time that this text does not show,"
    yield remark_of(
        "little",
        weight=Weight.WARNING,
        text=f"{numbers}, of {asked} asked for: {format_share(1 - flying / asked)} of the time passed outside the"
        f" I/Os. The load generator{cpu}{unknown} set the pace, so this is not the limit of the disk.",
    )


def closed_loop(load: LoadResult) -> tuple[float, int] | None:
    """I/Os in flight in the mean and those asked for; None if either is unknown, or the load pauses by itself, or
    is to hold fewer at times. Time in fsync counts as one that is in flight.
    """
    asked, flying = load.jobs if load.engine in SYNCHRONOUS else load.depth, in_flight(load)
    paused = leaves_depth(load.options or (), but=("fsync", "fdatasync", "number_ios"))
    return None if paused or not asked or flying is None else (flying, asked)


def spent_ns(streams: Sequence[Stream], kind: Literal["slat", "clat", "lat"]) -> float | None:
    """Return the time that all I/Os took together, by one kind of latency; None where a stream does not tell."""
    each = [(getattr(stream, kind), stream.ios) for stream in streams]
    if any(latency is None or not ios for latency, ios in each):
        return None
    return math.fsum(latency.mean_ns * ios for latency, ios in each)


def in_flight(load: LoadResult) -> float | None:
    """I/Os in flight in the mean by Little's law, time in fsync included; None when a latency is missing."""
    if load.seconds < 1 or any(stream.lat is None for stream in load.streams):
        return None
    if load.sync is not None and load.sync.count is None:
        return None
    return _flying(load, flush_ns(load))


def _flying(load: LoadResult, flush: float) -> float:
    """I/Os in flight in the mean, where a flush takes so many ns."""
    total = math.fsum(stream.iops * stream.lat.mean_ns for stream in load.streams if stream.lat)
    flushes = load.sync.count or 0 if load.sync is not None else 0
    return (total + flushes / load.seconds * flush) / 1e9 if load.seconds else 0.0


def flush_ns(load: LoadResult) -> float:
    """The mean time of a flush, 0 where none was timed.

    fio's libaio, seen with 3.33, flushes in its own call and counts from when the I/O that had the same place was
    sent. At depth 1 that is the write before: it is taken off where else more would be in flight than can be.
    """
    if load.sync is None:
        return 0.0
    mean = load.sync.mean_ns
    before = next((one.clat.mean_ns for one in load.streams if one.direction == "write" and one.clat), 0.0)
    alone = load.engine == "libaio" and load.depth == load.jobs
    twice = alone and _flying(load, mean) > load.jobs * (1 + LITTLE_MARGIN)
    return max(0.0, mean - before) if twice else mean


def shortfall(load: LoadResult) -> float | None:
    """Return the share of the offered load that was not achieved, beyond what the run's end and random arrivals
    explain; None where no load was offered. Arrivals at random (`rate_process=poisson`) count with three standard
    deviations.
    """
    asked = load.rate_asked_iops
    if not asked or not load.streams:
        return None
    seconds = load.seconds
    slack = EDGE_SECONDS / seconds + load.jobs / (asked * seconds) if seconds else 0.0  # one I/O of each may be due
    if seconds and load.option("rate_process") == "poisson":
        slack += 3 / math.sqrt(asked * seconds)
    return max(0.0, 1 - done_of(load) / asked - slack)


def done_of(load: LoadResult) -> float:
    """Return the operations a second of all directions."""
    return math.fsum(stream.completions for stream in load.streams)


def rate_unmet(load: LoadResult) -> Iterator[Remark]:
    """Judge by `rate-unmet`."""
    asked, short = load.rate_asked_iops, shortfall(load)
    if asked and short is not None and short > 1 - RATE_MET:
        done = done_of(load)
        yield GATE_BY_ID["rate-unmet"].remark(
            text=f"{format_count(asked)} operations a second were offered and {format_count(done)} were done"
            f" ({format_share(done / asked, 1)}): what is owed grows without end, so these latencies say nothing of"
            " that load.",
        )


def spread(load: LoadResult) -> Iterator[Remark]:
    """Judge by `spread`."""
    for stream in load.streams:
        found = relative_spread(load, stream)
        if found is None or found[0] < SPREAD_LIMIT:
            continue
        relative, samples = found
        smallest = SPREAD_FACTOR * math.sqrt(2 / samples) * relative
        yield remark_of(
            "spread",
            text=f"{stream.direction} IOPS swung by {format_share(relative)} around their mean within this one run:"
            f" standard deviation {stream.iops_stddev:,.0f}{' a job' if load.jobs > 1 else ''}, mean"
            f" {stream.iops_mean:,.0f},"
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
    seconds, ios = load.seconds, load.ios
    if load.streams and seconds and ios and (seconds < SHORT_SECONDS or ios < FEW_IOS):
        yield remark_of(
            "short-run",
            text=f"{ios:,} I/Os in {format_ns(seconds * 1e9)} are a short look: caches, garbage collection and"
            " neighbours show up later.",
        )


def saturated_cpu(load: LoadResult) -> Iterator[Remark]:
    """Judge by `saturated-cpu`."""
    if (total := _cpu_percent(load)) is not None and total > CPU_LIMIT:
        yield GATE_BY_ID["saturated-cpu"].remark(
            text=f"Each job kept a CPU {total:.1f} % busy (usr {load.usr_percent:.4g} %, sys"
            f" {load.sys_percent:.4g} %): the load generator may be the limit rather than the disk.",
            advice="spread the load over more jobs and CPUs, and see whether IOPS rise",
        )


def _cpu_percent(load: LoadResult) -> float | None:
    usr, system = load.usr_percent, load.sys_percent
    return None if usr is None or system is None else usr + system


RESIDENT_BYTES = 1024**2
"""If less of the image than this is in the page cache, the cache cannot serve reads that are spread over all of it.
"""

EDGE_OF_RUN = 0.5
"""A margin in seconds, at most half of a run. On a busy host fio counted less than 0.36 s of a run of 0.4 s that
nobody ended.
"""

ENDED_EARLY = 0.9
"""A run that lasted less than this share of its time, and of that margin, was ended."""

LITTLE_BPS = 128 * 1024
"""Other processes with less I/O than this (bytes a second) do not disturb, however small the load is."""

PRESSURE_PERCENT = 25.0
"""From this share of time on in which some task waited for a CPU, the CPU affects the measurement."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Reading:
    """One gate's reading in one trial, in the gate's unit, with its meaning in words."""

    gate: Gate
    value: float
    text: str

    @property
    def weight(self) -> Weight | None:
        """The severity of the reading; None when it is within both limits."""
        return self.gate.weight_of(self.value)

    def remark(self) -> Remark | None:
        """Return its remark; None when it is within both limits."""
        if self.weight is None:
            return None
        return self.gate.remark(weight=self.weight, text=self.text)


def read_gates(result: FioResult, used: Use | None, stack: Stack, workload: Workload) -> tuple[Reading, ...]:
    """Read every gate for which there is evidence; a gate without evidence passes.

    `used` is the host's resource use in the measured time, None if unknown.
    """
    found = list(_of_load(result))
    if used is not None:
        found += [*_of_cpu(used), *_of_device(result, used, stack, workload), *_of_host(used, workload)]
    return tuple(found)


def _reading(gate: str, value: float, text: str) -> Reading:
    return Reading(gate=GATE_BY_ID[gate], value=value, text=text)


def _of_load(result: FioResult) -> Iterator[Reading]:
    short = [1 - found[0] / found[1] for load in result.loads if (found := closed_loop(load)) is not None]
    if short:
        text = (
            f"{format_share(max(short))} of the time passed outside the I/Os (Little's law): the load generator, not"
            " only the disk, was the limit"
        )
        yield _reading("generator", max(0.0, *short), text)
    cpu = [total / 100 for load in result.loads if (total := _cpu_percent(load)) is not None]
    if cpu:
        busy = format_share(max(cpu))
        text = f"a job of the load kept its CPU {busy} busy: it may be the limit rather than the disk"
        yield _reading("saturated-cpu", max(cpu), text)
    for load in result.loads:
        offered, unmet = load.rate_asked_iops, shortfall(load)
        if offered and unmet is not None:
            text = (
                f"saturated: {format_count(offered)} operations a second were offered and"
                f" {format_count(done_of(load))} done: what is owed grows without end, so its latencies say"
                " nothing of that load and are not compared"
            )
            yield _reading("rate-unmet", unmet, text)


def _of_cpu(used: Use) -> Iterator[Reading]:
    if used.cpu is not None:
        text = f"CPU steal {used.cpu.steal_percent:.1f} %: the physical host ran other VMs meanwhile"
        yield _reading("steal", used.cpu.steal_percent / 100, text)
        if (lost := _waited_for_others(used)) is not None:
            wanted = " in which these wanted a CPU" if _wanted_cpus(used) >= 1 else ""
            text = (
                "CPU contention: other processes kept QEMU and the load waiting for about"
                f" {format_share(lost, 1 if lost < 0.1 else 0)} of the time{wanted}"
            )
            yield _reading("cpu-wait", lost, text)
    if used.throttled_seconds is not None:
        share = min(1.0, used.throttled_seconds / used.seconds)
        text = f"a control group throttled the CPU for {format_seconds(used.throttled_seconds)} of the measured time"
        yield _reading("cpu-throttled", share, text)
    if used.heat_throttles is not None:
        yield _reading("cpu-heat", used.heat_throttles, f"thermal throttling: {used.heat_throttles} events")
    if used.frequency_ratio is not None:
        text = f"the fastest CPU dropped to {format_share(used.frequency_ratio)} of its initial frequency"
        yield _reading("frequency", max(0.0, 1 - used.frequency_ratio), text)


def _wanted_cpus(used: Use) -> float:
    """Return how many CPUs our threads wanted: what they had, and waited for."""
    return math.fsum(role.cpu_seconds + (role.wait_seconds or 0.0) for role in used.roles) / used.seconds


def _waited_for_others(used: Use) -> float | None:
    """Return the share of runnable time that our threads waited, times the part of others in the busy time.

    A load that sleeps for its disk most of the time loses little by waits that are a large share of the little CPU
    that it wants: below one CPU they are a share of the whole time. Without schedstat the PSI share of time in which
    some task waited is used, which is never less.
    """
    if used.cpu is None or not used.roles or used.cpu.busy_seconds <= 0 or (foreign := used.foreign_cpus) is None:
        return None
    waits, waited = [one.wait_seconds for one in used.roles if one.wait_seconds is not None], used.some_waited("cpu")
    if waits:
        waited = math.fsum(waits) / used.seconds / max(1.0, _wanted_cpus(used))
    return None if waited is None else waited * foreign * used.seconds / used.cpu.busy_seconds


def own_pressure(used: Use, stack: Stack) -> Iterator[Remark]:
    """`cpu-pressure`: our own threads compete for the CPUs. The trial is valid; whether that is what limits it is not
    known, and less so of a disk with a limit of its own.
    """
    some = (used.some_waited("cpu") or 0.0) * 100
    if some > PRESSURE_PERCENT:
        what = "threads waited for a CPU" if stack.disk.limits else "the CPUs may be part of the limit"
        yield remark_of(
            "cpu-pressure",
            text=f"{what}: for {some:.0f} % of the time some thread had to wait for one, mostly one of QEMU or the"
            " load itself",
        )


def _of_device(result: FioResult, used: Use, stack: Stack, workload: Workload) -> Iterator[Reading]:
    direct = is_direct(stack, workload)
    if used.drive_over_c is not None:
        where = "above" if used.drive_over_c > 0 else "below"
        text = f"the drive is {abs(used.drive_over_c):.0f} degrees {where} its throttling limit"
        yield _reading("drive-heat", used.drive_over_c, text)
    if not used.disks or stack.disk.backend != "file" or not direct or stack.spread is not None:
        return
    # of a partition the whole disk, as others may use its other partitions; else the filesystem's device
    first, last = used.disks[0], used.disks[-1]
    disk = last if len(used.disks) == 2 and first.name.startswith(last.name) else first
    foreign = used.foreign_share(disk.name)
    moved = disk.read_bytes + disk.written_bytes
    if foreign is not None:
        enough = foreign * moved >= LITTLE_BPS * used.seconds
        # of a load that is slow for another reason any little is a large share: it took no more than the disk's time
        busy = disk.busy_percent / 100
        part = f"{format_bytes(foreign * moved)} of {format_bytes(moved)}"
        text = f"{format_share(foreign)} of the I/O of {disk.name}, {part}, was not of QEMU or the load"
        text += f"; it was busy for {format_share(busy)} of the time" if busy < foreign else ""
        yield _reading("foreign-io", min(foreign, busy) if enough else 0.0, text)
    served = served_share(result, used, workload)
    resident = max((cache.end_bytes for cache in used.caches), default=0)
    if served is not None:
        text = f"{medium(used).name} served {format_share(served)} of the bytes read, the page cache the rest"
        yield _reading("page-cache", max(0.0, 1 - served) if resident >= RESIDENT_BYTES else 0.0, text)


def is_direct(stack: Stack, workload: Workload) -> bool:
    """Whether all I/O is meant to bypass the host's page cache."""
    return workload.direct and (stack.kind.front == "file" or stack.disk.cache in DIRECT_CACHES)


def served_share(result: FioResult, used: Use, workload: Workload) -> float | None:
    """Return the device's bytes read over fio's (bytes, because requests are merged).

    None where nothing was read, and for a load that ends after a number of I/Os, which is too short for a bandwidth.
    The device's bytes are those of the counters' window and fio's are a mean: stalls of the host make them differ.
    """
    if workload.recorded:
        return None
    asked = math.fsum(one.bandwidth_bps for one in result.streams if one.direction == "read") * used.seconds
    return medium(used).read_bytes / asked if used.disks and asked > 0 else None


def medium(used: Use) -> DiskUse:
    """Return the device whose reads show what the page cache did not serve.

    A loop device counts every read, also those from the cached pages of its file, so the device below it is used.
    """
    below = (disk for disk in used.disks if not disk.name.startswith("loop"))
    return next(below, used.disks[0]) if used.disks[0].name.startswith("loop") else used.disks[0]


def _of_host(used: Use, workload: Workload) -> Iterator[Reading]:
    text = f"a control group limits our I/O: {'; '.join(used.io_limits)}"
    yield _reading("io-limit", len(used.io_limits), text)
    if used.swapped_pages is not None:
        rate = used.swapped_pages / used.seconds
        text = f"the host swapped {used.swapped_pages} pages, {rate:.0f} a second"
        yield _reading("swap", rate, text)
    faults = [role.major_faults for role in used.roles if role.major_faults is not None]
    if faults and all(job.get("ioengine", "") != "mmap" for job in workload):
        text = f"{sum(faults)} major page faults: QEMU or the load waited for memory to be read from disk"
        yield _reading("major-faults", sum(faults), text)
    step = format_seconds(used.clock_step_seconds)
    text = f"the clock stepped by {step}, or the machine was suspended for that long"
    yield _reading("clock-step", used.clock_step_seconds, text)
    text = f"the kernel changed its clock source: {' to '.join(used.clock_sources)}"
    yield _reading("clock-source", max(0, len(used.clock_sources) - 1), text)
