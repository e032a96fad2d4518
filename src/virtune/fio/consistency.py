# SPDX-License-Identifier: Apache-2.0
"""Check a fio result: its numbers must agree with one another, and with the options that shall have made them."""

import math
import re
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass

from virtune.fio.options import SYNCHRONOUS, facts_of, milliseconds, size_of, verifies_after, whole
from virtune.model.errors import ReadError
from virtune.model.measurement import FioResult, Latency, LoadResult, Stream
from virtune.model.text import format_bandwidth, format_bytes, format_count
from virtune.model.workload import ENDS_ITSELF, READING, WRITING

IOS_ENOUGH = 1000
"""With fewer I/Os, those in flight at the end of the ramp matter: fio counts their bytes, but not the I/Os."""

FACTOR_MAX = 2.0
"""fio derives both rates from the same counts and the same time, so they agree within rounding; a result in which
they differ by this much was written or changed by something else."""

SAME_SIZE = 0.1
"""How far the mean size of I/Os may be from the block sizes of the options that made them; the last may be short."""

CUT_TO = 1.002
"""By its map of what is done fio cuts a random I/O that runs into another one. How much depends on the sizes: the
mean of 4k/99:4m/1 is 1.07 times the smallest, of 4k/50:8k/50 1.36 times. But some stay larger than the smallest.
"""

SIGMAS = 6
"""Counts that chance decides may be so many standard deviations from their mean: beyond that is 1 in 500 million."""

RATE_SLACK = 0.1
"""fio catches up with what it owes after a stall, and its timer is coarse."""

LESS_IN_FLIGHT = 8
"""How many times fewer I/Os than the depth an honest closed loop may show in flight by Little's law.

fio fills its queue before it looks for completions. On a device that needs no time, filling takes D submissions of s
each, and emptying D reaps of r each. If all completions of a look carry the time of its begin, an I/O lasts D x s / 2
in the mean, of a cycle of D x (s + r): so D / 2 x s / (s + r) are in flight. Where reaping costs up to three times as
much as submitting that is D / 8, and every slower device shows more.
"""

ROUNDED = "fio before 3.39 rounds the depth of io_uring up to a power of two, and ioengine=libaio keeps it"
"""The one contradiction that is nobody's lie (fio's commit af0ad0fa)."""

GATHERING = frozenset({"vsync"})
"""Synchronous engines that gather neighbouring I/Os into one call, up to the depth."""

_DIRECTIONS = ("read", "write", "trim")
_UNFILLED = (
    "rate", "thinktime", "iodepth_", "latency_", "fsync", "fdatasync", "sync_file_range", "serialize_overlap",
    "io_submit_mode", "number_ios", "flow", "verify",
)  # fmt: skip
"""Options (by their first letters) with which a closed loop does not keep its depth filled all the time."""


def leaves_depth(options: Iterable[tuple[str, str]], *, but: tuple[str, ...] = ()) -> bool:
    """Whether an option lets a closed loop hold fewer I/Os in flight than its depth; `but` those that begin so."""
    return any(
        name.startswith(_UNFILLED) and not name.startswith(but) and (value not in ("0", "inline") or "depth" in name)
        for name, value in options
    )


@dataclass(frozen=True, slots=True, kw_only=True)
class Contradiction:
    """An option, and what the figures say that ran instead. `proof` is the arithmetic."""

    option: str
    asked: str
    found: str
    proof: str


def contradictions(
    load: LoadResult, options: Mapping[str, str], *, jobs: int, syncs: int | None = None, spent: float | None = None
) -> Iterator[Contradiction]:
    """Yield the options that cannot have made the figures of so many clones, which are reported together. `syncs` is
    the number of flushes where none was timed, `spent` the seconds that all clones ran, added up.

    Every bound holds for a fio that does what it is told on any device, however slow or disturbed.
    """
    facts = facts_of(options)
    offloaded = options.get("io_submit_mode", "inline") != "inline"
    depth = 1 if facts.engine in SYNCHRONOUS - GATHERING and not offloaded else facts.depth
    for stream in load.streams:
        yield from stream_contradictions(stream, options, jobs=jobs, spare=depth * jobs)
    if facts.pattern in READING and verifies_after(options):
        return  # the reads of the verification are counted with those of the load
    yield from _of_mix(load, options, jobs, spare=depth * jobs)
    yield from _of_flushes(load, options, jobs, spare=depth * jobs, untimed=syncs)
    yield from _of_time(load, options, jobs, spent)
    yield from _of_amount(load, options, jobs, spare=depth * jobs)
    if not any(name.startswith("latency_") for name in options):
        yield from _of_depth(load, options, depth=depth, jobs=jobs)


def stream_contradictions(
    stream: Stream, options: Mapping[str, str], *, jobs: int = 1, spare: int = 0
) -> Iterator[Contradiction]:
    """Yield why these options cannot have made a stream: they have no such direction, or blocks of other sizes.

    `spare` I/Os may be counted with their bytes alone, or without them.
    """
    pattern = options.get("rw", "read").partition(":")[0]
    does = {
        "read": pattern in READING,
        "write": pattern in WRITING and not pattern.endswith("trim"),
        "trim": "trim" in pattern,
    }
    if not does.get(stream.direction, True):
        proof = f"it counts {stream.ios or 0:,} {stream.direction}s"
        yield Contradiction(option="rw", asked=pattern, found=f"{stream.direction}s", proof=proof)
        return
    name, sizes = _sizes(options, stream.direction)
    if not sizes or not stream.bytes or not stream.ios:
        return
    least, most = float(min(sizes) * (stream.ios - spare)), float(max(sizes) * (stream.ios + spare))
    if name == "bssplit" and math.isclose(math.fsum(sizes.values()), 1.0):
        # the size of each I/O is drawn, and clones may draw alike
        mean = math.fsum(size * share for size, share in sizes.items())
        deviation = math.sqrt(math.fsum(share * (size - mean) ** 2 for size, share in sizes.items()))
        chance = SIGMAS * deviation * math.sqrt(stream.ios * jobs) + spare * max(sizes)
        least, most = stream.ios * mean - chance, stream.ios * mean + chance
        if pattern.startswith("rand") and options.get("norandommap", "0") == "0":
            least = CUT_TO * min(sizes) * (stream.ios - spare) / (1 - SAME_SIZE)
    if not least * (1 - SAME_SIZE) <= stream.bytes <= most * (1 + SAME_SIZE):
        each = format_bytes(stream.bytes / stream.ios)
        proof = f"{stream.bytes:,} bytes in {stream.ios:,} {stream.direction}s are {each} each"
        yield Contradiction(option=name, asked=options.get(name, "4k"), found=each, proof=proof)


def require_consistent(result: FioResult) -> FioResult:
    """Return a result unchanged; raises ReadError for an inconsistent one."""
    for load in result.loads:
        for stream in load.streams:
            where = f"{load.name or 'a job'}, {stream.direction}"
            why = _rates(stream) or _counts(stream)
            if why is not None:
                raise ReadError(f"this fio result contradicts itself ({where}): {why}", hint=_HINT)
    return result


def _rates(stream: Stream) -> str | None:
    """Check IOPS against bandwidth, by the size of an I/O."""
    if not stream.ios or not stream.bytes or stream.ios < IOS_ENOUGH or not stream.iops or not stream.bandwidth_bps:
        return None
    each, said = stream.bytes / stream.ios, stream.bandwidth_bps / stream.iops
    # a rate too small for a float divides to 0, which is no size that an I/O had
    if said and max(each / said, said / each) <= FACTOR_MAX:
        return None
    expected = stream.iops * each
    return (
        f"{format_count(stream.iops)} IOPS of {format_bytes(each)} are {format_bandwidth(expected)}, "
        f"and it says {format_bandwidth(stream.bandwidth_bps)}"
    )


def _counts(stream: Stream) -> str | None:
    """Check the number of I/Os against the number of their latencies."""
    counted = next((kind.count for kind in (stream.lat, stream.clat) if kind is not None and kind.count), None)
    if not counted or not stream.ios or min(counted, stream.ios) < IOS_ENOUGH:
        return None
    if max(counted / stream.ios, stream.ios / counted) <= FACTOR_MAX:
        return None
    return f"it counts {stream.ios:,} I/Os and {counted:,} latencies"


_HINT = "measure again with the fio of your distribution; was the result edited, or written by something else?"


def _sizes(options: Mapping[str, str], direction: str) -> tuple[str, dict[int, float]]:
    """Return the option that sets the sizes of that direction's I/Os, and these with their shares, as far as they are
    known. Of several values one counts for reads, the next for writes, the last for what is left.
    """
    named = [name for name in ("bs", "bsrange", "bssplit") if name in options]
    name = named[0] if named else "bs"
    parts = options.get(name, "4k").split(",")
    if len(named) > 1 or direction not in _DIRECTIONS:
        return name, {}
    part = parts[min(_DIRECTIONS.index(direction), len(parts) - 1)]
    sizes: dict[int, float] = {}
    for text in part.split(":" if name == "bssplit" else "-"):
        size, share = size_of(text.partition("/")[0]), whole(text.partition("/")[2])
        if not size:
            return name, {}
        sizes[size] = sizes.get(size, 0.0) + (share or 0) / 100
    return name, sizes


def _of_mix(load: LoadResult, options: Mapping[str, str], jobs: int, *, spare: int) -> Iterator[Contradiction]:
    """Compare the share of reads with what was asked for. fio draws the direction of each I/O, and clones may draw
    alike: of n I/Os of which p are to be reads, n x p are, with a deviation of at most sqrt(n x p x (1 - p) x jobs).
    """
    mixed = options.get("rw", "read").partition(":")[0] in ("rw", "readwrite", "randrw")
    asked = {name: options[name] for name in ("rwmixread", "rwmixwrite") if name in options}
    if not mixed or len(asked) > 1 or any(name.startswith(("rate", "bssplit")) for name in options):
        return
    name, text = next(iter(asked.items()), ("rwmixread", "50"))
    if not text.isascii() or not text.isdigit() or int(text) > 100:
        return
    share = int(text) / 100
    counts = {stream.direction: stream.ios for stream in load.streams}
    mine, total = counts.get(name[5:], 0), sum(ios or 0 for ios in counts.values())
    if mine is None or counts.keys() - {"read", "write"}:
        return
    allowed = SIGMAS * math.sqrt(total * share * (1 - share) * jobs) + spare + 1
    if abs(mine - total * share) > allowed:
        found = f"{100 * mine / total:.3g}"
        proof = (
            f"{mine:,} of {total:,} I/Os are {name[5:]}s, and {share:.0%} are {total * share:,.0f} +- {allowed:,.0f}"
        )
        yield Contradiction(option=name, asked=text, found=found, proof=proof)


def _of_flushes(
    load: LoadResult, options: Mapping[str, str], jobs: int, *, spare: int, untimed: int | None
) -> Iterator[Contradiction]:
    """Compare the number of flushes with that of writes. More are no contradiction: beside reads fio flushes again
    and again between the same two writes.
    """
    asked = {name: every for name in ("fsync", "fdatasync") if (every := whole(options.get(name, "0")))}
    writes = next((stream.ios for stream in load.streams if stream.direction == "write"), None)
    found = untimed if load.sync is None else load.sync.count
    if len(asked) != 1 or writes is None or found is None:
        return
    ((name, every),) = asked.items()
    least = 0.95 * writes / every - 2 * jobs - spare / every - 1
    if found < least:
        said = "none" if not found else f"{writes / found:.3g}"
        proof = f"{found:,} flushes of {writes:,} writes, and {name}={every} are at least {least:,.0f}"
        yield Contradiction(option=name, asked=str(every), found=said, proof=proof)


def _of_time(load: LoadResult, options: Mapping[str, str], jobs: int, spent: float | None) -> Iterator[Contradiction]:
    """Compare the time with the run time that was asked for, of one clone and of all together. A clone ends no
    earlier, and later by what its last I/Os and flushes take.
    """
    asked, ran = seconds_of(options, "runtime"), load.seconds
    if not asked or not ran or options.get("time_based", "0") == "0" or ENDS_ITSELF & options.keys():
        return
    least = asked * 0.95 - 0.02
    slowest = max((kind.max_ns or 0.0 for kind in (*_latencies(load), load.sync) if kind is not None), default=0.0)
    most = asked * 1.1 + 0.5 + 2 * slowest / 1e9
    # a clone that waits for a CPU at its end runs on after its last I/O; one clone more would add a whole run
    together = max(jobs * (ran * 1.01 + 0.002), (jobs + 0.5) * ran)
    idle = any(name.startswith(("rate", "thinktime", "fsync", "fdatasync", "end_fsync")) for name in options)
    if ran < least or (ran > most and not idle):
        proof = f"it counts I/Os of {ran:g} s"
        yield Contradiction(option="runtime", asked=options["runtime"], found=f"{ran:g} s", proof=proof)
    elif spent is not None and not jobs * least <= spent <= together:
        proof = f"all clones together ran {spent:g} s, the longest {ran:g} s"
        yield Contradiction(option="numjobs", asked=str(jobs), found=f"{spent / ran:.3g}", proof=proof)


def _of_amount(load: LoadResult, options: Mapping[str, str], jobs: int, *, spare: int) -> Iterator[Contradiction]:
    """Compare the number of I/Os with a number, or a rate, that was asked for."""
    done = load.ios
    number = whole(options.get("number_ios", ""))
    sizes = [size for stream in load.streams for size in _sizes(options, stream.direction)[1]]
    room = size_of(options.get("size", ""))
    whole_run = bool(number and sizes and room and number * max(sizes) <= room)
    if number and (done > number * jobs + spare or (whole_run and done < number * jobs - spare)):
        proof = f"{done:,} I/Os of {number:,} for each of {jobs}"
        yield Contradiction(option="number_ios", asked=str(number), found=f"{done / jobs:,.0f}", proof=proof)
    rate, ran = facts_of(options).rate_iops, load.seconds
    if rate and ran:
        owed = rate * jobs * (ran + (seconds_of(options, "ramp_time") or 0.0))
        most = owed * (1 + RATE_SLACK) + SIGMAS * math.sqrt(owed) + spare
        if done > most:
            name = "rate_iops" if "rate_iops" in options else "rate"
            proof = f"{done:,} I/Os in {ran:g} s, and {most:,.0f} is the most that is offered"
            yield Contradiction(option=name, asked=options[name], found=f"{done / ran / jobs:,.0f}", proof=proof)


def _of_depth(load: LoadResult, options: Mapping[str, str], *, depth: int, jobs: int) -> Iterator[Contradiction]:
    """Compare what was in flight with the depth, by fio's own count of it and by Little's law."""
    levels = [(int(level.lstrip(">=")), share) for level, share in load.depth_levels]
    deeper = [level for level, share in levels if level > depth and share > 0]
    filled = depth > 1 and not leaves_depth(options.items()) and facts_of(options).engine not in GATHERING
    done = load.ios
    # a queue that was emptied and filled eight times was full
    closed = filled and "trim" not in options.get("rw", "") and done >= 8 * depth * jobs
    name, asked = ("iodepth", options.get("iodepth", "1")) if jobs == 1 or depth > 1 else ("numjobs", str(jobs))
    if deeper and options.get("io_submit_mode", "inline") == "inline":
        rounded = facts_of(options).engine == "io_uring" and depth & (depth - 1)
        why = f"; {ROUNDED}" if rounded else ""
        proof = f"it counts I/Os that were issued with {max(deeper)} or more in flight{why}"
        yield Contradiction(option="iodepth", asked=str(depth), found=f"{max(deeper)} or more", proof=proof)
    elif closed and levels and not any(share > 0 for level, share in levels if 2 * level > depth or level == 64):
        usual = max((level for level, share in levels if share > 0), default=0)
        proof = f"it counts no I/O that was issued with {depth} in flight, and a closed loop fills its queue"
        yield Contradiction(
            option="iodepth",
            asked=str(depth),
            found="1" if usual == 1 else f"{usual} to {2 * usual - 1}",
            proof=proof,
        )
    bounds = _in_flight(load)
    if bounds is None or deeper:
        return
    flying, most = bounds[0], depth * jobs * bounds[1]
    if flying > most and not any(one.startswith("rate") for one in options):
        proof = f"by Little's law {flying:.3g} I/Os were in flight, and at most {most:.3g} can have been"
        yield Contradiction(option=name, asked=asked, found=f"{flying / (jobs if depth > 1 else 1):.3g}", proof=proof)
    elif closed and flying * LESS_IN_FLIGHT < depth * jobs:
        proof = f"by Little's law {flying:.3g} I/Os were in flight, of {depth * jobs}"
        yield Contradiction(option="iodepth", asked=asked, found=f"{flying / jobs:.3g}", proof=proof)


def _in_flight(load: LoadResult) -> tuple[float, float] | None:
    """Return how many I/Os were in flight in the mean, and the most that one place of the queue can make of it.

    A place holds one I/O after another, so those that complete in a time T last at most T and what the first of them
    had lasted before: 1 + slowest / T. None where latencies are missing.
    """
    ran, kinds = load.seconds, _latencies(load)
    if not ran or len(kinds) < len(load.streams) or any(kind.count is None or kind.max_ns is None for kind in kinds):
        return None
    total = math.fsum((kind.count or 0) * kind.mean_ns for kind in kinds) / 1e9
    slowest = max(kind.max_ns or 0.0 for kind in kinds) / 1e9
    return total / ran, 1.02 + (slowest + 0.002) / ran  # fio counts whole milliseconds, and prints six digits


def _latencies(load: LoadResult) -> list[Latency]:
    return [stream.lat for stream in load.streams if stream.lat is not None]


def seconds_of(options: Mapping[str, str], name: str) -> float | None:
    """Return an option that is a time; None where there is none."""
    text = options.get(name, "")
    return milliseconds(text) / 1000 if re.fullmatch(r"[0-9]{1,12}(us|ms|s|m|h)?", text, re.ASCII) else None
