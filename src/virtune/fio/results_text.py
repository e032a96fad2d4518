# SPDX-License-Identifier: Apache-2.0
"""Parse fio's normal output into a FioResult, with any text before, after and between its lines.

The text has less than JSON: numbers are rounded as printed, and `direct=` is missing unless the command line is
included. Missing values are None. fio 3 writes `IOPS=35.3k, BW=138MiB/s (145MB/s)(276MiB/2001msec)`, fio 2 wrote
`io=276MB, bw=138MB/s, iops=35300, runt=2001msec` and meant 1024 by its k. Units of time stand in parentheses and
change from line to line.

`direct=` is read from the fio command line in a transcript of a terminal, where every option of it can be read and
no job file is on it.

Of several runs in one text each begins with the command in a transcript, the first job that fio announces, its
version, or its results: with what of these comes first after the results of the run before. Results of the same
process that come again are of --status-interval, and every machine of `fio --client` reports once: neither is
another run.
"""

import re
import shlex
from collections import Counter
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, field, replace
from html import unescape
from typing import Any, TypeVar

from virtune.fio.options import MOST_JOBS, JobFacts, canonical, facts_of, shown
from virtune.model.errors import ReadError
from virtune.model.measurement import DeviceUse, FioResult, Latency, LoadResult, Stream
from virtune.model.text import ESCAPE, prefix_of

_COMMAND = re.compile(r"(?:^|.*[\s$#%>/;&|])fio\s+(?P<words>-.*--?name[= ].*)$")
_FLAGS = frozenset(
    {"time_based", "group_reporting", "norandommap", "thread", "randrepeat", "refill_buffers", "stonewall"}
)
_OUTPUT = ("output", "eta", "status-interval", "client", "server", "minimal", "append-terse", "terse-version")


def words_of(line: str) -> str | None:
    """The part of a line after `fio`, when it is a command that defines jobs."""
    match = _COMMAND.match(line) if "name" in line and "fio" in line else None
    return match["words"] if match else None


def jobs_of(words: str) -> dict[str, dict[str, str]]:
    """The options of every job on a command line, by job name; empty when any part of it cannot be read."""
    try:
        parts = shlex.split(words.replace("\\\n", " "))
    except ValueError:
        return {}
    shared: list[tuple[str, str]] = []
    jobs: dict[str, list[tuple[str, str]]] = {}
    current = shared
    for name, value in _pairs(parts):
        if value is None:
            return {}
        if name == "name":
            current = jobs.setdefault(value, list(shared))
        elif not name.startswith(_OUTPUT):
            current.append((name, value))
    return {name: canonical(options) for name, options in jobs.items()}


def _pairs(parts: list[str]) -> list[tuple[str, str | None]]:
    """Options with their values; a value of None marks a word that is no option (a job file, a pipe, ...)."""
    pairs: list[tuple[str, str | None]] = []
    waiting: str | None = None
    for part in parts:
        if part.startswith("--"):
            name, equals, value = part[2:].partition("=")
            pairs.append((name, value if equals else ""))
            waiting = None if equals or name in _FLAGS else name
        elif waiting is not None:
            pairs[-1] = (waiting, part)
            waiting = None
        else:
            if part in {"|", ">", ">>", "2>&1", "&", ";", "&&"}:
                break
            pairs.append((part, None))
    return pairs


MOST_LINES = 1_000_000
"""A day of fio's status line, one a second, is 86,400. A text of more lines than this is not one fio result."""

LONGEST_LINE = 4000
"""fio's own lines are shorter than 200 characters, a command line seldom longer than 1000."""

_NUMBER = r"\d{1,20}(?:\.\d{1,12})?"
_AMOUNT = rf"{_NUMBER}[kKMGTPE]?"
_UNIT = r"\((?P<unit>nsec|usec|msec|sec)\)"
_STATISTICS = "".join(
    rf"(?=.*?\b{name}=\s*(?P<{name}>{form})(?:,|\s|$))"
    for name, form in (("min", _AMOUNT), ("max", _AMOUNT), ("avg", _NUMBER), ("stdev", _NUMBER))
)
"""In any order: other versions have had another one."""


def _pattern(text: str) -> re.Pattern[str]:
    return re.compile(text, re.ASCII)


VERSION = _pattern(r"(?P<version>fio-\d[\w.+-]{0,60})$")
CLIENT = _pattern(r"hostname=[^,]{0,100}, be=\d")
DEFINITION = _pattern(
    r"(?P<name>.{1,200}?): \(g=(?P<group>\d{1,6})\): rw=(?P<rw>[a-z]{1,20}), "
    r"bs=(?:\(R\) )?(?P<bs>[\w.-]{1,60}).*?\bioengine=(?P<engine>[\w.-]{1,80}).*?, iodepth=(?P<depth>\d{1,7})"
)
CLONES = _pattern(r"\.\.\.$")
HEADER = _pattern(
    r"(?P<name>.{0,200}?): ?\(groupid=(?P<group>\d{1,6}), jobs=(?P<jobs>\d{1,6})\): err=\s*(?P<error>\d{1,6})"
    r"(?: \(.*?\))?: pid=(?P<pid>\d{1,10})"
)
FLOW = _pattern(
    rf"(?P<direction>read|write|trim|mixed)\s*: IOPS=(?P<iops>{_AMOUNT}), BW=(?P<bw>[\w.]{{1,30}}(?:/s)?)"
    r"(?: \([^)]{1,40}\))?(?:\((?P<io>[\w.]{1,30})/(?P<runtime>\d{1,15})msec\))?"
)
FLOW_2 = _pattern(
    rf"(?P<direction>read|write|trim|mixed)\s*: io=(?P<io>[\w.]{{1,30}}), bw=(?P<bw>[\w.]{{1,30}}/s), "
    rf"iops=(?P<iops>{_AMOUNT}), runt=\s*(?P<runtime>\d{{1,15}})msec"
)
FLOW_UNREAD = _pattern(r"(?:read|write|trim|mixed)\s*: (?!\(g(?:roupid)?=\d)")
"""A direction in a form that is not known; a job of that name begins with its group."""

LATENCY = _pattern(rf"(?P<kind>slat|clat|lat|sync)\s*{_UNIT}\s*: {_STATISTICS}")
PERCENTILES = _pattern(rf"(?P<kind>slat|clat|lat|sync) percentiles {_UNIT}")
PERCENTILE = _pattern(r"(?P<percent>\d{1,3}\.\d{1,12})th=\[\s*(?P<value>\d{1,20})\]")
SAMPLES = _pattern(rf"iops\s*: {_STATISTICS}(?:.*, samples=\s*(?P<samples>\d{{1,15}}))?")
CPU = _pattern(
    rf"cpu\s*: usr=\s*(?P<usr>{_NUMBER})%, sys=\s*(?P<sys>{_NUMBER})%(?:, ctx=(?P<ctx>\d{{1,20}}))?"
    r"(?:, majf=(?P<majf>\d{1,20}), minf=(?P<minf>\d{1,20}))?"
)
DEPTHS = _pattern(r"(?P<of>IO depths|submit|complete)\s*:")
DEPTH = _pattern(rf"(?P<level>(?:>=)?\d{{1,4}})=\s*(?P<share>{_NUMBER})%")
ISSUED = _pattern(r"issued[\w ]{0,10}:.*?total=(?P<total>.{1,200}?)\s*,?\s*short=(?P<short>.{1,200}?),?\s*drop")
DROPPED = _pattern(r".*\bdrop(?:ped)?=(?P<dropped>.{1,200})")
FAILED = _pattern(r"errors\s*: total=(?P<total>\d{1,20})")
STATUS = _pattern(r"Run status group (?P<group>\d{1,6})")
DEVICE = _pattern(
    r"(?P<name>[\w.!/:-]{1,100}): ios=(?P<reads>\d{1,20})/(?P<writes>\d{1,20}),"
    r"(?: sectors=(?P<read_sectors>\d{1,20})/(?P<write_sectors>\d{1,20}),)?"
    r" merge=(?P<read_merges>\d{1,20})/(?P<write_merges>\d{1,20}),"
    r" ticks=(?P<read_ticks>\d{1,20})/(?P<write_ticks>\d{1,20}),"
    rf" in_queue=\d{{1,20}}, util=\s*(?P<util>{_NUMBER})%"
)
FAILURE = _pattern(r"fio: .{0,400}\berror=(?P<why>[^\x00-\x1f]{1,120})")

_MARKS = _pattern(
    r"\b(?:(?:read|write|trim|mixed)\s*: ?(?:IOPS=|io=)|(?:slat|clat|lat) \((?:nsec|usec|msec|sec)\)\s*:"
    r"|cpu\s*: usr=|IO depths\s*:|Run status group \d|iops\s*: min=)"
)
"""What fio begins lines with that every result has."""

_LINE = re.compile(r"[^\r\n]+")
_HOST = re.compile(r"<[^<>]{1,80}> ?")
_SIZE = _pattern(rf"(?P<number>{_NUMBER})(?P<prefix>[kKMGTPE]?)(?P<binary>i?)(?P<unit>B|bit)?(?:/s)?")
_PREFIXES = "kMGTPE"


def lines_of(text: str) -> Iterator[str]:
    """Every line that may mean something, bare: without colours, blanks around it, `<host>` of fio --client, HTML's
    entities, and what a log or a quotation puts around each line.

    A status line rewrites itself with carriage returns; each state of it counts as a line.
    """
    return (line for _, line in placed_lines(text))


def placed_lines(text: str) -> Iterator[tuple[int, str]]:
    """Every line that may mean something, as in `lines_of`, with where it begins in the text."""
    if text.count("\n") + text.count("\r") > MOST_LINES:
        raise ReadError(
            f"this has more than {MOST_LINES:,} lines", hint="give fio's own output, without logs around it"
        )
    text = text.replace("\xa0", " ")
    prefix = prefix_of(text, _MARKS)
    for match in _LINE.finditer(text):
        if match.end() - match.start() <= LONGEST_LINE:
            line = ESCAPE.sub("", match[0]) if "\x1b" in match[0] else match[0]
            if prefix is not None and (before := prefix.match(line)):
                line = line[before.end() :]
            line = line.strip()
            if line.endswith(('"', '",')) and line.count('"') % 2:
                line = line.rstrip('",')  # one string of a list, whose begin is the prefix
            line = unescape(line) if "&" in line else line
            yield match.start(), _HOST.sub("", line, count=1) if line.startswith("<") else line


def amount(text: str) -> float:
    """A count as fio shortens it: `934k` -> 934000, `1.2M` -> 1200000."""
    if text[-1].isdigit():
        return float(text)
    return float(_scaled(text[:-1], 1000, text[-1]))


def size(text: str, *, old: bool) -> float | None:
    """Bytes out of `138MiB/s`, `145MB/s` or `290MB`. fio 2 (`old`) wrote MB for 1024 * 1024 bytes."""
    match = _SIZE.fullmatch(text)
    if match is None:
        return None
    base = 1024 if match["binary"] or old else 1000
    value = _scaled(match["number"], base, match["prefix"])
    return value / 8 if match["unit"] == "bit" else value


def nanoseconds(text: str, unit: str) -> float:
    """A time in its printed unit as nanoseconds, without the dust of binary fractions: 3.89 msec -> 3890000."""
    return round(amount(text) * {"nsec": 1, "usec": 1e3, "msec": 1e6, "sec": 1e9}[unit], 6)


def _scaled(number: str, base: int, prefix: str) -> float:
    power = _PREFIXES.upper().index(prefix.upper()) + 1 if prefix else 0
    return round(float(number) * float(base**power), 6)


_T = TypeVar("_T")


@dataclass(slots=True)
class Definition:
    """A job as fio announces it before it starts; `clones` when numjobs makes more of the same."""

    name: str
    group: str
    engine: str
    pattern: str
    block_size: int | None
    depth: int
    clones: bool = False


@dataclass(slots=True)
class Group:
    """One reporting group while its lines come in; `lost` while they belong to a direction that was not read,
    `issued` how many I/Os fio says it did, None where it says nothing.
    """

    key: tuple[str, str, str]
    jobs: int
    error: int
    streams: list[Stream] = field(default_factory=list)
    sync: Latency | None = None
    sync_count: int | None = None
    usr: float | None = None
    sys: float | None = None
    switches: int | None = None
    major: int | None = None
    minor: int | None = None
    levels: tuple[tuple[str, float], ...] = ()
    submitted: tuple[tuple[str, float], ...] = ()
    completed: tuple[tuple[str, float], ...] = ()
    errors: int = 0
    lost: bool = False
    issued: int | None = None

    def change(self, kind: str, make: Callable[[Latency | None], Latency | None]) -> None:
        """Put a kind of latency in its place: `sync` is the group's, the others are the last stream's."""
        if kind == "sync":
            self.sync = make(self.sync)
        elif self.streams and not self.lost:
            last = self.streams[-1]
            changed: dict[str, Any] = {kind: make(getattr(last, kind))}
            self.streams[-1] = replace(last, **changed)

    def flow(self, match: "_Match") -> None:
        """`read: IOPS=35.3k, BW=138MiB/s (145MB/s)(276MiB/2001msec)`; fio 2: `read : io=..., bw=..., iops=...`."""
        old = match.re is FLOW_2
        bandwidth = size(match["bw"], old=old)
        self.lost = bandwidth is None or len(self.streams) >= len(_DIRECTIONS)
        if bandwidth is None or self.lost:
            return
        moved = size(match["io"], old=old) if match["io"] else None
        stream = Stream(
            direction=match["direction"],
            ios=None,
            bytes=round(moved) if moved is not None else None,
            seconds=int(match["runtime"]) / 1000 if match["runtime"] else None,
            iops=amount(match["iops"]),
            bandwidth_bps=bandwidth,
        )
        self.streams.append(stream)

    def unread(self, match: "_Match") -> None:  # noqa: ARG002
        """A direction that cannot be read: the following lines belong to it, and not to the direction before."""
        self.lost = True

    def latency(self, match: "_Match") -> None:
        """`clat (usec): min=25, max=3435, avg=209.27, stdev=68.98`."""
        ns = {name: nanoseconds(match[name], match["unit"]) for name in ("min", "max", "avg", "stdev")}
        found = Latency(mean_ns=ns["avg"], min_ns=ns["min"], max_ns=ns["max"], stddev_ns=ns["stdev"])
        self.change(match["kind"], lambda _: found)

    def sampled(self, match: "_Match") -> None:
        """`iops        : min=33208, max=37358, avg=35314.00, stdev=929.21, samples=6`."""
        if self.streams and not self.lost:
            self.streams[-1] = replace(
                self.streams[-1],
                iops_samples=int(match["samples"]) if match["samples"] else None,
                iops_min=amount(match["min"]),
                iops_max=amount(match["max"]),
                iops_mean=amount(match["avg"]),
                iops_stddev=amount(match["stdev"]),
            )

    def cpu(self, match: "_Match") -> None:
        """`cpu          : usr=2.88%, sys=22.93%, ctx=18381, majf=0, minf=26`."""
        self.usr, self.sys = float(match["usr"]), float(match["sys"])
        counts = (int(match[name]) if match[name] else None for name in ("ctx", "majf", "minf"))
        self.switches, self.major, self.minor = counts

    def depths(self, match: "_Match") -> None:
        """`IO depths    : 1=0.1%, 2=0.1%, 4=0.1%, 8=100.0%, 16=0.0%, 32=0.0%, >=64=0.0%`, and of `submit` and
        `complete` below it.
        """
        levels = tuple((one["level"], float(one["share"]) / 100) for one in DEPTH.finditer(match.string))
        setattr(self, {"submit": "submitted", "complete": "completed"}.get(match["of"], "levels"), levels)

    def issues(self, match: "_Match") -> None:
        """`issued rwts: total=70692,70898,0,0 short=0,0,0,0 dropped=0,0,0,0`, and fio 2's `total=r=70692/w=...`."""
        dropped = DROPPED.match(match.string)
        rows = [_numbers(match["total"]), _numbers(match["short"]), _numbers(dropped["dropped"]) if dropped else []]
        total, short, drop = (dict(zip(_DIRECTIONS, row, strict=False)) for row in rows)
        self.sync_count = total.get("sync")
        self.issued = sum(total.get(direction, 0) for direction in _DIRECTIONS[:3])
        self.streams = [
            replace(
                stream,
                ios=self.issued if stream.direction == "mixed" else total.get(stream.direction),
                short_ios=short.get(stream.direction, 0),
                dropped_ios=drop.get(stream.direction, 0),
            )
            for stream in self.streams
        ]

    def failed(self, match: "_Match") -> None:
        """`errors    : total=12, first_error=5/<Input/output error>`, with continue_on_error."""
        self.errors = int(match["total"])


def load_of(group: Group, definitions: list[Definition], options: dict[str, str] | None) -> LoadResult:
    """Make the LoadResult of a group out of its lines, the definitions behind it, and its command line."""
    name, number, _ = group.key
    facts = facts_of(options) if options is not None and len(definitions) < 2 else None
    streams = tuple(_counted(stream) for stream in group.streams)
    return LoadResult(
        name=name or f"group {number}",
        engine=agreed(d.engine for d in definitions) or (facts.engine if facts else None),
        pattern=agreed(d.pattern for d in definitions) or (facts.pattern if facts else None),
        block_size=agreed(d.block_size for d in definitions) or (facts.block_size if facts else None),
        direct=facts.direct if facts else None,
        jobs=group.jobs,
        depth=_depth(definitions, facts, group.jobs),
        error=group.error,
        streams=tuple(stream for stream in streams if stream.direction != "mixed") or streams,
        usr_percent=group.usr,
        sys_percent=group.sys,
        context_switches=group.switches,
        major_faults=group.major,
        minor_faults=group.minor,
        sync=replace(group.sync, count=group.sync_count) if group.sync else None,
        depth_levels=group.levels,
        submit_levels=group.submitted,
        complete_levels=group.completed,
        rate_asked_iops=facts.rate_iops * group.jobs if facts and facts.rate_iops else None,
        errors=group.errors,
        options=tuple(options.items()) if facts and options is not None else None,
        group=int(number),
    )


def _counted(stream: Stream) -> Stream:
    """Every I/O of a stream has each kind of latency, so the issued count is theirs. With disable_lat fio counts that
    of submission from the run's begin.
    """
    kinds = stream.slat if stream.lat else None, stream.clat, stream.lat
    slat, clat, lat = (replace(kind, count=stream.ios) if kind else None for kind in kinds)
    return replace(stream, slat=slat, clat=clat, lat=lat)


def agreed(values: Iterable[_T]) -> _T | None:
    """Return what all of them say, if they say the same."""
    found = set(values)
    return found.pop() if len(found) == 1 else None


def _depth(definitions: list[Definition], facts: JobFacts | None, jobs: int) -> int | None:
    """I/Os in flight that were asked for; None when jobs of different depth and unknown number are one group."""
    depths = {d.depth for d in definitions} or ({facts.depth} if facts else set())
    if len(depths) == 1:
        return depths.pop() * jobs
    if definitions and len(definitions) == jobs and not any(d.clones for d in definitions):
        return sum(d.depth for d in definitions)
    return None


_SIGNS = ("(g=", "(groupid=", "fio", "Run status group", "hostname=")
"""What a line has that says something of a run; others are not matched against anything."""

ALL_CLIENTS = "All clients"


def split_runs(text: str) -> list[str]:
    """Return the text of each run, in their order; all of it where there is one run or none."""
    splitter = _Splitter()
    for position, line in placed_lines(text):
        if any(sign in line for sign in _SIGNS):
            splitter.take(position, line)
    ends = [*splitter.begins, len(text)]
    return [text[begin:end] for begin, end in zip([0, *splitter.begins], ends, strict=True)]


@dataclass(slots=True)
class _Splitter:
    """Takes the lines one by one. `begins` are where the second run and those after it begin."""

    begins: list[int] = field(default_factory=list)
    _reported: set[tuple[str, str, str]] = field(default_factory=set)
    _closed: set[str] = field(default_factory=set)
    _next: int | None = None
    _announced: bool = False
    _machines: int = 0
    _further_machines: int = 0
    _reports: int = 1

    def take(self, position: int, line: str) -> None:
        if match := HEADER.match(line):
            self._header(position, (match["name"], match["group"], match["pid"]))
        elif match := STATUS.match(line):
            self._closed.add(match["group"])
        elif CLIENT.match(line):
            self._may_begin(position)
            if self._reported:
                self._further_machines += 1
            else:
                self._machines += 1
        elif DEFINITION.match(line) or VERSION.match(line):
            self._may_begin(position)
            self._announced = bool(self._reported)
        elif words_of(line) is not None:
            self._may_begin(position)

    def _may_begin(self, position: int) -> None:
        """Note the first line after results that may belong to another run."""
        if self._reported and self._next is None:
            self._next = position

    def _header(self, position: int, key: tuple[str, str, str]) -> None:
        """Take the head of a group's results."""
        name, group, _ = key
        if self._machines:
            # all machines answer before the first reports, and each reports once: all its jobs, then its groups' sums
            if group in self._closed and key not in self._reported and name != ALL_CLIENTS:
                self._reports += 1
                self._closed = set()
            new = self._reports > self._machines or self._further_machines > 0
        else:
            new = self._announced or (group in self._closed and key not in self._reported and name != ALL_CLIENTS)
        if new:
            self.begins.append(position if self._next is None else self._next)
            self._reported, self._closed, self._reports = set(), set(), 1
            self._machines, self._further_machines = self._further_machines, 0
        self._reported.add(key)
        self._next, self._announced = None, False


SECTOR = 512
_MOST_PERCENTILES = 20
"""fio's own limit of a percentile list (FIO_IO_U_LIST_MAX_LEN)."""

_DIRECTIONS = ("read", "write", "trim", "sync")
_Match = re.Match[str]


def read_text(text: str) -> FioResult:
    """Read fio's normal output out of the text of one run; raises ReadError when there is none."""
    reader = _Reader()
    for line in lines_of(text):
        reader.read(line)
    return reader.result()


class _Reader:
    """Takes the lines one by one. Each form of line has a method; a line that fits none is ignored."""

    def __init__(self) -> None:
        self.version: str | None = None
        self.definitions: list[Definition] = []
        self.groups: dict[tuple[str, str, str], Group] = {}
        self.devices: dict[tuple[str, int], DeviceUse] = {}
        self.command = ""
        self.commanded: dict[str, dict[str, str]] = {}
        self.failure = ""
        self._group: Group | None = None
        self._table: tuple[str, str] | None = None
        self._closed: set[str] = set()
        self._results: Counter[str] = Counter()

    def read(self, line: str) -> None:
        if self._goes_on(line):
            return
        if line.startswith("|"):
            self._percentiles(line)
            return
        for pattern, note in _OF_GROUP:
            if match := pattern.match(line):
                if self._group is not None:
                    note(self._group, match)
                return
        for pattern, take in _TAKERS:
            if match := pattern.match(line):
                take(self, match)
                return
        if "percentiles (" in line:
            self._table = None  # of one priority only: the table of all was, or will be, another

    def _goes_on(self, line: str) -> bool:
        """Collect a command over its continuation lines."""
        words = line if self.command.endswith("\\") else words_of(line)
        if words is None or len(self.command) > LONGEST_LINE:
            return False
        self.command = self.command.removesuffix("\\") + " " + words
        if not words.endswith("\\"):
            self.commanded |= jobs_of(self.command)
            self.command = ""
        return True

    def take_version(self, match: _Match) -> None:
        self.version = match["version"]

    def take_definition(self, match: _Match) -> None:
        """`rr: (g=0): rw=randread, bs=(R) 4096B-4096B, ..., ioengine=libaio, iodepth=32`."""
        if len(self.definitions) > MOST_JOBS:
            raise ReadError(f"this announces more than {MOST_JOBS} jobs, which no fio runs")
        self.definitions.append(
            Definition(
                name=shown(match["name"]),
                group=match["group"],
                engine=match["engine"],
                pattern=match["rw"],
                block_size=_block_size(match["bs"]),
                depth=int(match["depth"]) or 1,
            )
        )

    def take_clones(self, match: _Match) -> None:  # noqa: ARG002
        """`...` under a definition: numjobs makes more of it."""
        if self.definitions:
            self.definitions[-1].clones = True

    def take_header(self, match: _Match) -> None:
        """`rr: (groupid=0, jobs=1): err= 0: pid=7299: ...`. The same again comes of --status-interval."""
        key = (shown(match["name"]), match["group"], match["pid"])
        self._group = self.groups[key] = Group(key=key, jobs=int(match["jobs"]) or 1, error=int(match["error"]))
        self._table = None
        if len(self.groups) > MOST_JOBS:
            raise ReadError(f"this has results of more than {MOST_JOBS} jobs, which no fio runs")

    def take_table(self, match: _Match) -> None:
        """`clat percentiles (usec):`, the head of a table."""
        self._table = (match["kind"], match["unit"])

    def _percentiles(self, line: str) -> None:
        """`| 99.00th=[  334], 99.50th=[  375], ...`."""
        if self._group is None or self._table is None:
            return
        kind, unit = self._table
        row = tuple(
            (float(match["percent"]), nanoseconds(match["value"], unit))
            for match in PERCENTILE.finditer(line)
            if 0 < float(match["percent"]) <= 100
        )
        self._group.change(
            kind, lambda old: replace(old, percentiles=(old.percentiles + row)[:_MOST_PERCENTILES]) if old else None
        )

    def take_status(self, match: _Match) -> None:
        """`Run status group 0 (all jobs):`: nothing more of the groups comes."""
        self._closed.add(match["group"])
        self._group = None

    def take_device(self, match: _Match) -> None:
        """`vda: ios=63122/63435, merge=0/0, ticks=10750/10679, in_queue=21429, util=84.33%`."""
        sectors = match["read_sectors"], match["write_sectors"]
        # Given again (--status-interval) the last one holds; the next client's device of the same name is another.
        self.devices[match["name"], len(self.groups)] = DeviceUse(
            name=match["name"],
            reads=int(match["reads"]),
            writes=int(match["writes"]),
            read_bytes=int(sectors[0]) * SECTOR if sectors[0] else None,
            written_bytes=int(sectors[1]) * SECTOR if sectors[1] else None,
            read_merges=int(match["read_merges"]),
            write_merges=int(match["write_merges"]),
            read_seconds=int(match["read_ticks"]) / 1000,
            write_seconds=int(match["write_ticks"]) / 1000,
            busy_percent=float(match["util"]),
        )

    def take_failure(self, match: _Match) -> None:
        """`fio: pid=0, err=2/file:..., func=open, error=No such file or directory`: why there may be no result."""
        self.failure = self.failure or match["why"].strip()

    def result(self) -> FioResult:
        groups = [group for group in self.groups.values() if group.key[0] != ALL_CLIENTS]
        groups = groups or list(self.groups.values())
        if not groups and self.failure:
            hint = "the lines before it say at which file or option"
            raise ReadError(f"fio gave no result: {self.failure}", hint=hint)
        if not groups and self._closed:
            raise ReadError("this fio run did no I/O at all", hint="fio's messages before the result say why")
        if not groups:
            raise ReadError(
                "there is no fio result in this",
                hint="virtune reads fio's JSON, JSON+ and its normal text; JSON+ tells most: --output-format=json+",
            )
        for group in groups:
            if not group.streams and (group.issued is None or (group.issued and not group.error)):
                name = shown(group.key[0]) or f"group {group.key[1]}"
                raise ReadError(
                    f"no figures could be read of the job {name!r}: no line of reads or writes follows its head",
                    hint="give fio's output whole, as it wrote it; JSON+ is safest: --output-format=json+",
                )
        self._results = Counter(number for _, number, _ in self.groups)
        return FioResult(
            source="text",
            version=self.version,
            loads=tuple(load_of(one, self._mine(one), self.commanded.get(one.key[0])) for one in groups),
            devices=tuple(self.devices.values()),
        )

    def _mine(self, group: Group) -> list[Definition]:
        """The definitions behind a group: with group reporting all of its number, otherwise those of its name."""
        name, number, _ = group.key
        numbered = [d for d in self.definitions if d.group == number]
        return [d for d in numbered if d.name == name] if self._results[number] > 1 else numbered


_OF_GROUP: tuple[tuple[re.Pattern[str], Callable[[Group, _Match], None]], ...] = (
    (LATENCY, Group.latency),
    (SAMPLES, Group.sampled),
    (FLOW, Group.flow),
    (FLOW_2, Group.flow),
    (FLOW_UNREAD, Group.unread),
    (CPU, Group.cpu),
    (DEPTHS, Group.depths),
    (ISSUED, Group.issues),
    (FAILED, Group.failed),
)
_TAKERS: tuple[tuple[re.Pattern[str], Callable[[_Reader, _Match], None]], ...] = (
    (PERCENTILES, _Reader.take_table),
    (HEADER, _Reader.take_header),
    (DEFINITION, _Reader.take_definition),
    (CLONES, _Reader.take_clones),
    (STATUS, _Reader.take_status),
    (DEVICE, _Reader.take_device),
    (VERSION, _Reader.take_version),
    (FAILURE, _Reader.take_failure),
)


def _numbers(text: str) -> list[int]:
    return [int(number) for number in re.findall(r"[0-9]{1,20}", text)]


def _block_size(text: str) -> int | None:
    """`16.0KiB-16.0KiB` is one size; `4096B-65536B` is a range, and then there is no one block size."""
    low, _, high = text.partition("-")
    found = size(low, old=True) if high in ("", low) else None
    return round(found) if found is not None else None
