# SPDX-License-Identifier: Apache-2.0
"""Read fio's result in any of its formats, up to size limits: JSON and JSON+ here, its normal text by `results_text`,
with any text before and after it.

Every value is checked before it is used: a wrong type or an impossible number raises ReadError with one sentence.
fio's own oddities are accepted: `nan` and `-nan` (nothing was measured), the largest 64-bit number as the minimum of
nothing, percentiles named "0.00", bins that carry fio's constants, an "All clients" entry that sums the others. fio
2 writes latencies in microseconds (`clat`, where fio 3 has `clat_ns`), and up to 2.20 `io_bytes` is in KiB; the
bandwidth `bw` is in KiB/s in all of them.

Several runs may stand in one text (`fio --output-format=json ... >> file` appends). A run with --status-interval
writes its result again and again, each with all I/Os since its begin; the last is the run's, the others are states
of it.
"""

import codecs
import itertools
import json
import math
import re
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, TypeVar

from virtune.fio.consistency import require_consistent, stream_contradictions
from virtune.fio.diskspd import is_diskspd, read_diskspd, split_reports
from virtune.fio.options import MOST_JOBS, canonical, facts_of, shown, verifies_after
from virtune.fio.results_text import ALL_CLIENTS, SECTOR, read_text, split_runs
from virtune.fio.vdbench import is_vdbench, read_vdbench, split_executions
from virtune.model.errors import ReadError
from virtune.model.measurement import STREAMS, DeviceUse, FioResult, Histogram, Latency, LoadResult, Stream
from virtune.model.text import format_bytes, without_prefix
from virtune.model.workload import READING

KIB = 1024

_LARGEST = 2**64
"""fio counts in 64 bits; a number beyond that is not fio's."""

MOST_FAILURES = 1000
"""Lines that begin with a brace and are no JSON, as chatter may have some; each costs a walk through the text."""

_LEVEL = re.compile(r"(?:>=)?[0-9]{1,5}", re.ASCII)
MARKS = re.compile(r'"(?:fio version|jobs|timestamp_ms|jobname)"\s*:')
"""Keys that begin lines of fio's JSON."""

_START = re.compile(r"^[ \t]*+\{", re.MULTILINE)
_NOT_A_NUMBER = re.compile(r'"(?:[^"\\]|\\.)*+(?:"|\\?\Z)|-?\b(?:nan|inf|infinity)\b', re.IGNORECASE | re.DOTALL)
AGAIN = "let fio write it again: fio --output-format=json+ --output=result.json ..."

FioObject = Mapping[str, Any]


def objects(text: str) -> Iterator[tuple[str, FioObject]]:
    """Every fio result in the text, with its own text: from a line that begins with `{` to the brace that closes it.

    A start that leads nowhere is followed up where it broke, not one line later: no text is read more than twice.
    """
    position, found, failures, mended = 0, 0, 0, False
    broken: json.JSONDecodeError | None = None
    while failures < MOST_FAILURES and (start := _START.search(text, position)):
        begin = start.end() - 1
        try:
            value, position = json.JSONDecoder(strict=False).raw_decode(text, begin)
        except json.JSONDecodeError as error:
            if not mended and _NOT_A_NUMBER.match(text, error.pos):
                # fio wrote a number that JSON does not have. Only now, because repairing copies the text.
                quoted = _NOT_A_NUMBER.sub(lambda one: one[0] if one[0][0] == '"' else "null", text[begin:])
                text, position, mended = quoted, 0, True
                continue
            broken, failures = broken or error, failures + 1
            position = max(start.end(), error.pos)
        except (ValueError, RecursionError) as error:
            raise ReadError(f"the JSON is broken: {_why(error)}", hint=AGAIN) from None
        else:
            if isinstance(value, dict) and ("jobs" in value or "client_stats" in value):
                found += 1
                yield text[begin:position], value
    if broken and not found:
        raise ReadError(f"the JSON is broken: {_why(broken)}", hint=AGAIN)


def _why(error: ValueError | RecursionError) -> str:
    if isinstance(error, RecursionError):
        return "it is nested too deeply"
    if isinstance(error, json.JSONDecodeError):
        return f"{error.msg[:1].lower()}{error.msg[1:]} (line {error.lineno})"
    return "a number in it is too long"


def result_of(document: FioObject) -> FioResult:
    """Return what one result says; raises ReadError where fio cannot have written it."""
    version = document.get("fio version")
    entries = entries_of(document)
    names = Counter(_name(entry) for entry in entries)
    loads = [
        _load(entry, options_of(document, entry), _shared(document), names[_name(entry)], f"jobs[{number}]")
        for number, entry in enumerate(entries)
    ]
    loads = _in_turn(loads)
    kinds = [kind for load in loads for stream in load.streams for kind in (stream.clat, stream.lat)]
    return FioResult(
        source="json+" if any(kind and kind.histogram for kind in kinds) else "json",
        version=shown(version) if isinstance(version, str) else None,
        loads=tuple(loads),
        devices=tuple(_devices(document)),
        ended=_ended(document),
        elapsed=max((found for entry in entries if (found := _float(entry, "elapsed", "jobs"))), default=None),
    )


def _in_turn(loads: list[LoadResult]) -> list[LoadResult]:
    """Give the jobs of a group that began later than its others, or waited for one, a group of their own."""
    free = itertools.count(1 + max((load.group or 0 for load in loads), default=0))
    first, later = dict[int | None, tuple[str, str]](), dict[tuple[object, ...], int]()
    found = []
    for load in loads:
        begin = load.option("wait_for") or "", (load.option("startdelay") or "").lstrip("0")
        if begin != first.setdefault(load.group, begin):
            key = load.group, *begin
            load = replace(load, group=later[key] if key in later else later.setdefault(key, next(free)))  # noqa: PLW2901
        found.append(load)
    return found


def _name(entry: FioObject) -> tuple[str, ...]:
    """What the clones of one job have in common."""
    return _text(entry, "jobname"), *(str(_int(entry, key, "jobs")) for key in ("groupid", "port"))


def entries_of(document: FioObject) -> list[FioObject]:
    """The jobs, those of `fio --client` too; what "All clients" sums is not counted again."""
    entries = [*_array(document, "jobs"), *_array(document, "client_stats")]
    single = [entry for entry in entries if entry.get("jobname") != ALL_CLIENTS]
    if not entries:
        raise ReadError("this fio JSON holds no job", hint="fio did not come as far as running one; see its stderr")
    return single or entries


def options_of(document: FioObject, entry: FioObject) -> dict[str, str] | None:
    """The options of a job over the global ones, which alone are echoed of a section without options; None when fio
    did not echo any.
    """
    own = entry.get("job options")
    if not isinstance(own, dict):
        return _shared(document) or None
    return _shared(document) | canonical((name, value) for name, value in own.items() if isinstance(value, str))


def _shared(document: FioObject) -> dict[str, str]:
    """The options of the [global] section, which hold for every job that does not say otherwise."""
    shared = document.get("global options")
    items = shared.items() if isinstance(shared, dict) else ()
    return canonical((name, value) for name, value in items if isinstance(value, str))


def _load(
    entry: FioObject, options: dict[str, str] | None, shared: dict[str, str], alike: int, where: str
) -> LoadResult:
    streams = _flows(entry, where)
    facts = facts_of(options) if options is not None else None
    ran = max((stream.seconds or 0.0 for stream in streams), default=0.0)
    if facts is not None and facts.pattern not in READING and verifies_after(options or {}):
        ran = math.fsum(stream.seconds or 0.0 for stream in streams)
        streams = tuple(stream for stream in streams if stream.direction != "read")
    if options is not None and options.get("lat_percentiles") not in (None, "0"):
        streams = tuple(_in_their_place(stream) for stream in streams)
    jobs, mixed = _jobs(entry, options, streams, alike, ran)
    if mixed:
        # fio echoes one section of several; only options that all of them share are certain.
        facts, options = facts_of(shared), None
    sync = _object(entry, "sync", where) if "sync" in entry else {}
    began = _float(entry, "job_start", where)
    return LoadResult(
        name=_text(entry, "jobname") or where,
        engine=facts.engine if facts and (not mixed or "ioengine" in shared) else None,
        pattern=facts.pattern if facts and (not mixed or "rw" in shared) else None,
        block_size=facts.block_size if facts and (not mixed or "bs" in shared) else None,
        direct=facts.direct if facts and (not mixed or shared.keys() & {"direct", "buffered"}) else None,
        jobs=jobs,
        depth=facts.depth * jobs if facts and not mixed else None,
        error=_int(entry, "error", where) or 0,
        streams=streams,
        usr_percent=_float(entry, "usr_cpu", where),
        sys_percent=_float(entry, "sys_cpu", where),
        context_switches=_int(entry, "ctx", where),
        major_faults=_int(entry, "majf", where),
        minor_faults=_int(entry, "minf", where),
        sync=_latency(sync, "lat", f"{where}.sync"),
        depth_levels=_levels(entry, "level", where),
        submit_levels=_levels(entry, "submit", where),
        complete_levels=_levels(entry, "complete", where),
        rate_asked_iops=facts.rate_iops * jobs if facts and facts.rate_iops and not mixed else None,
        errors=_int(entry, "total_err", where) or 0,
        options=tuple(options.items()) if options is not None else None,
        group=_int(entry, "groupid", where),
        sections=mixed,
        began=began / 1000 if began else None,
    )


def _in_their_place(stream: Stream) -> Stream:
    """fio 3.1 to 3.12 print the percentiles that `lat_percentiles` asks for, which are of the total latency, in the
    place of those of completion (stat.c, add_ddir_status_json).
    """
    clat, lat = stream.clat, stream.lat
    if clat is None or lat is None or lat.percentiles or lat.histogram:
        return stream
    return replace(
        stream,
        clat=replace(clat, percentiles=(), histogram=None),
        lat=replace(lat, percentiles=clat.percentiles, histogram=clat.histogram),
    )


def _jobs(
    entry: FioObject, options: dict[str, str] | None, streams: tuple[Stream, ...], alike: int, ran: float
) -> tuple[int, bool]:
    """How many jobs the entry stands for, of which the longest `ran` for these seconds, and whether they are of
    several kinds.

    fio does not say. Without group reporting every clone has an entry; with it the entry's `job_runtime` is the sum
    over all its jobs, and when that is more than `numjobs` times the run, several job sections were reported as one,
    under the name of the first and the options of the last. Before fio 3.8 there is no `job_runtime`; then only
    figures that the options cannot have made tell.
    """
    asked = facts_of(options).jobs if options is not None and alike == 1 else 1
    wrong = (why for one in streams for why in stream_contradictions(one, options or {}))
    if options is not None and "job_runtime" not in entry and any(wrong):
        return asked + 1, True
    total = _float(entry, "job_runtime", "job") or 0.0
    if ran < 0.5:
        return asked, False
    counted = math.ceil(total / 1000 / ran - 0.1)  # up: a section may end long before the others
    return (counted, True) if counted > asked else (asked, False)


def _flows(entry: FioObject, where: str) -> tuple[Stream, ...]:
    """The directions with I/O. `mixed` is the sum of the others, and is used only where it is alone."""
    found = [
        _flow(direction, _object(entry, direction, where), f"{where}.{direction}")
        for direction in STREAMS
        if direction in entry
    ]
    streams = tuple(stream for stream in found if stream is not None)
    return tuple(stream for stream in streams if stream.direction != "mixed") or streams


def _flow(direction: str, data: FioObject, where: str) -> Stream | None:
    """One direction; None for one without I/O."""
    ios, size = _int(data, "total_ios", where), _int(data, "io_bytes", where)
    iops = _float(data, "iops", where)
    if not ios and not size and not iops:
        return None
    if size is not None and "io_kbytes" not in data and any(kind in data for kind in ("slat", "clat", "lat")):
        size *= KIB  # fio up to 2.20, whose bytes were KiB; 2.21 says both
    runtime = _float(data, "runtime", where)
    bandwidth = _float(data, "bw_bytes", where)
    if bandwidth is None:
        bandwidth = (_float(data, "bw", where) or 0.0) * KIB
    samples = _int(data, "iops_samples", where)
    sampled = samples is None or samples > 0
    lat = _latency(data, "lat", where)
    return Stream(
        direction=direction,
        ios=ios,
        bytes=size,
        seconds=runtime / 1000 if runtime is not None else None,
        iops=iops or 0.0,
        bandwidth_bps=bandwidth,
        iops_samples=samples,
        iops_min=_float(data, "iops_min", where) if sampled else None,
        iops_max=_float(data, "iops_max", where) if sampled else None,
        iops_mean=_float(data, "iops_mean", where) if sampled else None,
        iops_stddev=_float(data, "iops_stddev", where) if sampled else None,
        short_ios=_int(data, "short_ios", where) or 0,
        dropped_ios=_int(data, "drop_ios", where) or 0,
        slat=_latency(data, "slat", where) if lat else None,  # with disable_lat it is counted from the run's begin
        clat=_latency(data, "clat", where),
        lat=lat,
    )


def _latency(data: FioObject, kind: str, where: str) -> Latency | None:
    """One kind of latency, in ns; None without measurements (fio then writes zeros)."""
    key, scale = (f"{kind}_ns", 1) if f"{kind}_ns" in data else (kind, 1000)
    if key not in data:
        return None
    value, where = _object(data, key, where), f"{where}.{key}"
    count, mean = _int(value, "N", where), _float(value, "mean", where)
    highest = _float(value, "max", where)
    if mean is None or count == 0 or (count is None and not mean and not highest):
        return None
    bins = _object(value, "bins", where) if "bins" in value else {}
    percentiles = _object(value, "percentile", where) if "percentile" in value else {}
    least, spread = _float(value, "min", where), _float(value, "stddev", where)
    return Latency(
        count=count,
        mean_ns=_scaled(mean, scale),
        min_ns=None if least is None else _scaled(least, scale),
        max_ns=None if highest is None else _scaled(highest, scale),
        stddev_ns=None if spread is None else _scaled(spread, scale),
        histogram=_histogram(bins, f"{where}.bins", scale),
        percentiles=tuple(sorted(_percentiles(percentiles, f"{where}.percentile", scale))),
    )


def _scaled(value: float, scale: int) -> float:
    """A number of fio 2 in ns, without the dust of binary fractions: 1001.72 us are 1001720 ns."""
    return value if scale == 1 else round(value * scale, 6)


def _histogram(bins: FioObject, where: str, scale: int) -> Histogram | None:
    """The bins; early fio 3 lists empty ones and its own constants among them."""
    counted = {}
    for key in bins:
        if key.isascii() and key.isdigit() and len(key) <= 20:
            count = _int(bins, key, where)
            if count:
                counted[int(key) * scale] = count
    return Histogram(bins=tuple(sorted(counted.items()))) if counted else None


def _percentiles(percentiles: FioObject, where: str, scale: int) -> Iterator[tuple[float, float]]:
    for key in percentiles:
        if re.fullmatch(r"[0-9]{1,3}(\.[0-9]{1,12})?", key) and 0 < float(key) <= 100:
            value = _float(percentiles, key, where)
            if value is not None:
                yield float(key), value * scale


def _levels(entry: FioObject, of: str, where: str) -> tuple[tuple[str, float], ...]:
    levels = _object(entry, f"iodepth_{of}", where) if f"iodepth_{of}" in entry else {}
    known = (key for key in levels if _LEVEL.fullmatch(key))
    shares = ((key, _float(levels, key, f"{where}.iodepth_level")) for key in known)
    return tuple((key, share / 100) for key, share in shares if share is not None)


def _devices(document: FioObject) -> Iterator[DeviceUse]:
    for number, disk in enumerate(_array(document, "disk_util")):
        where = f"disk_util[{number}]"
        reads, writes = _int(disk, "read_ios", where), _int(disk, "write_ios", where)
        busy = _float(disk, "util", where)
        if reads is None or writes is None or busy is None:
            continue
        sectors = _int(disk, "read_sectors", where), _int(disk, "write_sectors", where)
        ticks = _float(disk, "read_ticks", where), _float(disk, "write_ticks", where)
        yield DeviceUse(
            name=_text(disk, "name") or where,
            reads=reads,
            writes=writes,
            read_bytes=sectors[0] * SECTOR if sectors[0] is not None else None,
            written_bytes=sectors[1] * SECTOR if sectors[1] is not None else None,
            read_merges=_int(disk, "read_merges", where),
            write_merges=_int(disk, "write_merges", where),
            read_seconds=ticks[0] / 1000 if ticks[0] is not None else None,
            write_seconds=ticks[1] / 1000 if ticks[1] is not None else None,
            busy_percent=busy,
        )


def _array(data: FioObject, key: str) -> list[FioObject]:
    value = data.get(key, [])
    if not isinstance(value, list) or not all(isinstance(entry, dict) for entry in value):
        raise ReadError(f"`{key}` in the JSON is not a list of objects", hint=AGAIN)
    if len(value) > MOST_JOBS:
        raise ReadError(f"`{key}` in the JSON has more entries ({len(value):,}) than fio writes", hint=AGAIN)
    return value


def _object(data: FioObject, key: str, where: str) -> FioObject:
    value = data[key]
    if not isinstance(value, dict):
        raise ReadError(f"`{where}.{key}` in the JSON is not an object", hint=AGAIN)
    return value


def _text(data: FioObject, key: str) -> str:
    value = data.get(key, "")
    return shown(value) if isinstance(value, str) else ""


def _ended(document: FioObject) -> float | None:
    """When fio wrote it; None where that is not a time: it is no figure, and the others are read without it."""
    for key, unit in (("timestamp_ms", 1000), ("timestamp", 1)):
        value = document.get(key)
        if isinstance(value, int | float) and not isinstance(value, bool) and 0 < value <= _LARGEST:
            return value / unit
    return None


def _float(data: FioObject, key: str, where: str) -> float | None:
    """A number that fio wrote; None when it is absent or fio's way to say that there is none (nan, inf, null)."""
    value = data.get(key)
    if value is None or (isinstance(value, float) and not math.isfinite(value)):
        return None
    if isinstance(value, bool) or not isinstance(value, int | float):
        raise ReadError(f"`{where}.{key}` in the JSON is not a number", hint=AGAIN)
    if not 0 <= value <= _LARGEST:
        raise ReadError(f"`{where}.{key}` in the JSON is not a number that fio can write", hint=AGAIN)
    return float(value)


def _int(data: FioObject, key: str, where: str) -> int | None:
    value = _float(data, key, where)
    return None if value is None else int(data[key])


MOST_RUNS = 1000
"""A loop over all loads of a big comparison makes some hundred runs; each takes memory and a column of a table."""


@dataclass(frozen=True, slots=True, kw_only=True)
class FioRun:
    """One run: its own part of the text, its result, and how many states of it the text had."""

    text: str
    result: FioResult
    states: int = 1


@dataclass(frozen=True, slots=True)
class _State:
    """One result with the moment when it was written, and since when its I/O runs, both in seconds since 1970."""

    result: FioResult
    written: float | None
    began: float | None


def json_runs(text: str) -> list[FioRun]:
    """Read every run whose JSON or JSON+ is in a text; raises ReadError when there is none."""
    runs: list[FioRun] = []
    last: _State | None = None
    for piece, document in objects(text):
        if len(runs) == MOST_RUNS:
            raise ReadError(f"this holds more than {MOST_RUNS:,} fio runs", hint="give a part of it")
        state = _state(document)
        states = 1
        if last is not None and _goes_on(last, state):
            states += runs.pop().states
        runs.append(FioRun(text=piece, result=state.result, states=states))
        last = state
    if not runs:
        raise ReadError("there is no complete fio JSON in this", hint=AGAIN)
    return runs


def _state(document: FioObject) -> _State:
    result = result_of(document)
    milliseconds = document.get("timestamp_ms")
    exact = isinstance(milliseconds, int | float) and not isinstance(milliseconds, bool)
    # without milliseconds the earliest moment that it may have been written at, and below the latest
    written = result.ended
    if written is None:
        return _State(result, None, None)
    took = max(result.seconds, (result.elapsed or 1.0) - 1)  # rounded up
    return _State(result, written, written - took + (0 if exact else 1))


def _goes_on(earlier: _State, later: _State) -> bool:
    """Whether the later is of the same run: the same jobs with no fewer I/Os, which began before the earlier was
    written.
    """
    jobs, others = ([(one.name, one.group, one.jobs) for one in state.result.loads] for state in (earlier, later))
    if jobs != others:
        return False
    begins, more = ([one.began for one in state.result.loads] for state in (earlier, later))
    if None not in begins and None not in more:
        return begins == more
    counts, further = _counts(earlier.result), _counts(later.result)
    grown = all(further.get(key, 0) >= ios for key, ios in counts.items())
    return grown and later.began is not None and earlier.written is not None and later.began < earlier.written


def _counts(result: FioResult) -> dict[tuple[int, str], int]:
    """Return the I/Os of each job's directions."""
    return {
        (number, stream.direction): stream.ios or 0
        for number, load in enumerate(result.loads)
        for stream in load.streams
    }


LIMIT = 32 * 1024**2
"""The longest text accepted, in bytes or characters. fio's JSON+ takes about 50 kB a job, so this is some 600
jobs; parsing a longer one would take gigabytes of memory, and it is not one fio result."""

_T = TypeVar("_T")

_OTHERS: tuple[tuple[Callable[[str], bool], Callable[[str], list[str]], Callable[[str], FioResult]], ...] = (
    (is_diskspd, split_reports, read_diskspd),
    (is_vdbench, split_executions, read_vdbench),
)
"""The reports of other programs: how one is known, split into its runs, and read."""

_TERSE = re.compile(r"^(?:\d;fio-\d|[2-5];[^;\n]{1,200};\d)", re.MULTILINE)


def text_of(content: bytes) -> str:
    """Decode any bytes: UTF-8, or UTF-16 as some shells redirect it, with replacement characters for the rest."""
    return content.decode(encoding_of(content), errors="replace")


def encoding_of(content: bytes) -> str:
    """Return the encoding of a text by its byte order mark, which decoding by it leaves out."""
    return "utf-16" if content.startswith((codecs.BOM_UTF16_LE, codecs.BOM_UTF16_BE)) else "utf-8-sig"


def read_result(text: str) -> FioResult:
    """Read the fio result of one run; raises ReadError with one sentence and a hint, also where there are several."""
    runs = read_runs(text)
    if len(runs) > 1:
        raise ReadError(f"this holds {len(runs)} fio runs", hint="give each run a file of its own")
    return runs[0].result


def read_runs(text: str) -> list[FioRun]:
    """Read every run in a text, choosing the form by its content; raises ReadError with one sentence and a hint."""
    refuse_length(len(text))
    if not text.strip():
        raise ReadError("this is empty", hint="fio --output-format=json+ --output=result.json ... writes a result")
    bare = without_prefix(text, MARKS) if '"fio version"' in text else text
    # whole or broken
    if _START.search(bare) and any(f'"{key}"' in bare for key in ("jobs", "client_stats", "fio version")):
        runs = json_runs(bare)
        for number, run in enumerate(runs, 1):
            _of_run(number, len(runs), require_consistent, run.result)
        return runs
    if _TERSE.search(text):
        raise ReadError(
            "fio's terse format is not supported: its fields are told by their place alone, which differs by version",
            hint="run fio with --output-format=json+, or read its normal output",
        )
    split, read = next(
        ((split, read) for of_it, split, read in _OTHERS if of_it(text)),
        (split_runs, read_text),
    )
    parts = split(text)
    if len(parts) > MOST_RUNS:
        raise ReadError(f"this holds more than {MOST_RUNS:,} fio runs", hint="give a part of it")
    return [FioRun(text=part, result=_of_run(number, len(parts), read, part)) for number, part in enumerate(parts, 1)]


def run_of(runs: Sequence[FioRun], number: int) -> FioRun:
    """Return the run with that number, from 1; raises ReadError when there is none."""
    if not 1 <= number <= len(runs):
        count = f"{len(runs)} runs" if len(runs) > 1 else "one run"
        raise ReadError(f"there is no run {number} in it", hint=f"it holds {count}")
    return runs[number - 1]


def _of_run(number: int, count: int, read: Callable[[_T], FioResult], given: _T) -> FioResult:
    """Read one of several runs; a ReadError says which."""
    try:
        return read(given)
    except ReadError as error:
        if count == 1:
            raise
        raise ReadError(f"run {number} of {count}: {error.message}", hint=error.hint) from None


def refuse_length(length: int) -> None:
    """Raise ReadError for a text that is too long to be one fio result, before it is parsed."""
    if length > LIMIT:
        raise ReadError(
            f"this is longer than {format_bytes(LIMIT)}, and no fio result beyond that is read",
            hint="give fio's own output only, without logs around it",
        )
