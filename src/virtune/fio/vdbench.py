# SPDX-License-Identifier: Apache-2.0
"""Read what Vdbench reports, which HCIBench runs in VMware's VMs: its tables (`summary.html`, `totals.html`, what it
prints) and its `flatfile.html`, of 5.04.

Each run definition (RD=) is a load, and they ran one after the other. Its figures are those of the average line,
`avg_2-60`, which leaves out the first interval, or those of `warmup=`. I/Os are not printed: their rate times the
time is their number, as the histograms show. A latency is from the call that reads or writes to its return.
Percentiles there are none: a histogram's buckets reach from one value to twice that. A table does not say what was
asked for; the flatfile's `xfersize` is the first of several, and the size of all where every mean is the same.
(Report.java, Flat.java, RD_entry.java and SdStats.java of Vdbench 5.04 have all this.)
"""

import re
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import islice, pairwise

from virtune.fio.diskspd import number_in
from virtune.model.errors import ReadError
from virtune.model.measurement import FioResult, Latency, LoadResult, Stream
from virtune.model.text import printable

_TOD = r"(\d\d):(\d\d):(\d\d)\.\d{3}"
_STARTS = re.compile(rf"^{_TOD} Starting RD=([^;\s]{{1,200}})(.{{0,2000}})$", re.MULTILINE)
_IN_TEXT = re.compile(rf"^(?:<a name=[^>\n]{{1,80}}></a><i><b>)?{_TOD} Starting RD=", re.MULTILINE)
_IN_FLAT = re.compile(r"^[ \t]*tod[ \t]+(?:timestamp[ \t]+)?Run[ \t]+Interval[ \t][^\n]*$", re.MULTILINE)
_AVERAGE = re.compile(rf"^{_TOD}[ \t]*avg_(\d{{1,9}})-(\d{{1,9}})[ \t]+(.*)$", re.MULTILINE)
_INTERVAL = re.compile(rf"^{_TOD}[ \t]+\d{{1,9}}[ \t]+(.*)$", re.MULTILINE)
_TITLES = re.compile(r"^.*[ \t]interval[ \t]+(i/o[ \t].*)\n(.*)$", re.MULTILINE)
_OF_FLAT = {
    "i/o rate": "rate", "bytes i/o": "bytes/io", "read pct": "read%", "resp time": "resp", "read resp": "read_resp",
    "write resp": "write_resp", "resp max": "resp_max", "read max": "read_max", "write max": "write_max",
    "resp stddev": "resp_std", "queue depth": "queue_depth",
}  # fmt: skip
"""The two lines of a table's titles, and the flatfile's name of the column."""

_HINT = "give Vdbench's whole flatfile.html, summary.html or what it printed"
_FORMATS = ("format_for_", "SD_format")
"""How the names of runs begin that only write what is read later."""
_UNLIMITED = 9_999_977
"""Rates from here on are Vdbench's words for `max` and `curve`."""
_MIB = 1024**2
_MS = 1e6
_DAY = 86_400
_MOST_RUNS = 1000


@dataclass(frozen=True, slots=True, kw_only=True)
class _Run:
    """A run definition: its average by the flatfile's names of the columns, and the seconds that it is of.

    `size` is that of every request, in bytes; None where they differ.
    """

    name: str
    seconds: float
    average: Mapping[str, str]
    size: int | None

    def figure(self, column: str) -> float:
        """Return a number that Vdbench always prints; raises ReadError where it is none."""
        found = number_in(self.average.get(column))
        if found is None:
            raise ReadError(f"the {column} of run {self.name} in this Vdbench result is no number", hint=_HINT)
        return found


def is_vdbench(text: str) -> bool:
    """Whether a text is what Vdbench reports."""
    return _IN_FLAT.search(text) is not None or _IN_TEXT.search(text) is not None


def split_executions(text: str) -> list[str]:
    """Return what each execution printed, where a text has several, one after the other."""
    begins = [found.start() for found in re.finditer(r"^Vdbench distribution:", text, re.MULTILINE)][1:]
    parts = [text[begin:end] for begin, end in zip([0, *begins], [*begins, len(text)], strict=True)]
    return [part for part in parts if is_vdbench(part)]


def read_vdbench(text: str) -> FioResult:
    """Read one report; raises ReadError where Vdbench cannot have written it, or wrote no average."""
    titles = _IN_FLAT.search(text)
    plain = re.sub(r"<[^<>\n]{0,300}>", "", text.replace("\r\n", "\n"))
    found = _of_table(plain) if titles is None else _of_flat(titles[0].lower().split(), plain)
    runs = [run for run in islice(found, _MOST_RUNS + 1) if not run.name.startswith(_FORMATS)]
    if len(runs) > _MOST_RUNS:
        raise ReadError(f"this Vdbench result has more than {_MOST_RUNS:,} runs", hint="give a part of it")
    if not runs:
        raise ReadError("this Vdbench result has no run that measured", hint=_HINT)
    counts, seen = Counter(run.name for run in runs), Counter[str]()
    loads = []
    for group, run in enumerate(runs):
        seen[run.name] += 1  # of a loop (forthreads=, forxfersize=) all runs have one name
        name = f"{run.name}~{seen[run.name]}" if counts[run.name] > 1 else run.name
        loads.append(_load(run, name=name, group=group))
    version = re.search(r"^Vdbench distribution: vdbench(\d)(\d\d)(\d\d)?\b", plain, re.MULTILINE)
    told = f" {'.'.join(filter(None, version.groups()))}" if version else ""
    return FioResult(source="vdbench", version=f"Vdbench{told}", loads=tuple(loads))


def _of_table(text: str) -> Iterator[_Run]:
    starts = list(_STARTS.finditer(text))
    titles: list[str] = []
    for start, following in zip(starts, [*starts[1:], None], strict=True):
        part = text[start.end() : following.start() if following else len(text)]
        name = printable(start[4], most=100)
        average = _AVERAGE.search(part)
        if average is None:
            raise ReadError(f"this Vdbench result ends before the average of run {name}", hint=_HINT)
        if found := _TITLES.search(part):
            pairs = zip(found[1].split(), found[2].split(), strict=False)
            titles = [_OF_FLAT.get(title, title) for title in map(" ".join, pairs)]
        if not titles and not name.startswith(_FORMATS):
            hint = "give its flatfile.html, which has its reads and writes"
            raise ReadError(f"run {name} of this Vdbench result is no load of disks", hint=hint)
        rows = [row for row in (one[4].split() for one in _INTERVAL.finditer(part)) if len(row) >= len(titles)]
        cells = average[6].split()
        if len(cells) < len(titles):
            raise ReadError(f"the average of run {name} in this Vdbench result is cut", hint=_HINT)
        row = dict(zip(titles, cells, strict=False))
        if limit := re.search(r"; I/O rate: *(\d{1,9});", start[5]):
            row["reqrate"] = limit[1]
        at = titles.index("bytes/io") if "bytes/io" in titles else None
        first, last = int(average[4]), int(average[5])
        yield _Run(
            name=name, seconds=(last - first + 1) * _interval(start, average, last), average=row,
            size=None if at is None or not rows else _size([one[at] for one in (cells, *rows)]),
        )  # fmt: skip


def _size(means: Iterable[str]) -> int | None:
    """Return the size of every request, where the means of all intervals with any are the same; else None."""
    found = {one for one in means if one != "0"}
    size = found.pop() if len(found) == 1 else ""
    return int(size) if re.fullmatch(r"[0-9]{1,12}", size) else None


def _interval(start: re.Match[str], average: re.Match[str], count: int) -> int:
    """Return the seconds of an interval: what was asked for where the clock agrees, else by the clock alone."""
    took = (_clock(average) - _clock(start)) % _DAY
    asked = re.search(r"; elapsed=(\d{1,9})(?: warmup=(\d{1,9}))?;", start[5])
    if asked:
        whole = int(asked[1]) + int(asked[2] or 0)
        took += _DAY * max(0, round((whole - took) / _DAY))
        if count and whole % count == 0 and abs(whole - took) <= max(5, whole // 10):
            return whole // count
    return max(1, round(took / max(1, count)))


def _clock(at: re.Match[str]) -> int:
    return int(at[1]) * 3600 + int(at[2]) * 60 + int(at[3])


def _of_flat(titles: Sequence[str], text: str) -> Iterator[_Run]:
    clock, means, name = list[int](), list[str](), ""
    for line in text.splitlines():
        cells = line.split()
        at = re.fullmatch(_TOD, cells[0]) if cells else None
        if at is None:
            continue
        row = dict(zip(titles, cells, strict=False))
        span = re.fullmatch(r"avg_(\d{1,9})-(\d{1,9})", row.get("interval", ""))
        if len(cells) != len(titles) or (clock and row["run"] != name) or (span and int(span[2]) != len(clock)):
            break
        name = row["run"]
        means.append(row.get("bytes/io", ""))
        if span is None:
            clock.append(_clock(at))
            continue
        steps = [(later - earlier) % _DAY for earlier, later in pairwise(clock)]
        each = max(1, round(sum(steps) / max(1, len(steps))))
        size = _size(means)
        yield _Run(
            name=printable(name, most=100), seconds=(int(span[2]) - int(span[1]) + 1) * each, average=row,
            size=size if str(size) == row.get("xfersize") else None,
        )  # fmt: skip
        clock, means = [], []
    else:
        if not clock:
            return
    raise ReadError("this flatfile of Vdbench ends, or lacks lines, before the average of a run", hint=_HINT)


def _load(run: _Run, *, name: str, group: int) -> LoadResult:
    row = run.average
    rate, threads, queue = (number_in(row.get(column)) for column in ("reqrate", "threads", "queue_depth"))
    depth = None
    if rate is not None and rate >= _UNLIMITED and threads and queue:
        # every thread always has a request in flight, of each disk as many
        all_of_them = round(threads * max(1, round(queue / threads)))
        depth = all_of_them if abs(queue - all_of_them) <= all_of_them / 10 else None
    return LoadResult(
        name=name, engine=None, pattern=_pattern(row), block_size=run.size, direct=None, jobs=1, depth=depth, error=0,
        streams=tuple(stream for stream in _streams(run) if stream.ios) if run.seconds > 0 else (),
        usr_percent=None, sys_percent=None, group=group,
        rate_asked_iops=rate if rate is not None and 0 < rate < _UNLIMITED else None,
    )  # fmt: skip


def _pattern(row: Mapping[str, str]) -> str | None:
    """fio's word for what was asked for; None where a share of it is random, or the table does not say."""
    reads, random = number_in(row.get("rdpct")), number_in(row.get("seekpct"))
    if reads is None or random not in (0, 100):
        return None
    kind = "read" if reads == 100 else "write" if reads == 0 else "rw"
    return f"rand{kind}" if random else kind


def _streams(run: _Run) -> Iterator[Stream]:
    if "read_rate" in run.average:  # of files; it has the columns of both
        for way in ("read", "write"):
            yield _stream(run, way, run.figure(f"{way}_rate"), run.figure(f"mb_{way}") * _MIB, f"{way}_resp")
        return
    rate, reads, size = run.figure("rate"), run.figure("read%") / 100, run.figure("bytes/io")
    if run.size is None and 0 < reads < 1:  # how large the reads were, and how large the writes, is not told
        yield _stream(run, "mixed", rate, rate * size, "resp")
        return
    for way, share in (("read", reads), ("write", 1 - reads)):
        whole = share == 1 and f"{way}_max" not in run.average
        yield _stream(run, way, rate * share, rate * share * size, f"{way}_resp", of="resp" if whole else way)


def _stream(run: _Run, way: str, rate: float, size: float, mean: str, of: str | None = None) -> Stream:
    ios = round(rate * run.seconds)
    most, spread = (number_in(run.average.get(f"{of or mean}_{what}")) for what in ("max", "std"))
    return Stream(
        direction=way, ios=ios, bytes=round(size * run.seconds), seconds=run.seconds, iops=rate, bandwidth_bps=size,
        lat=Latency(
            count=ios, mean_ns=round(run.figure(mean) * _MS), max_ns=None if most is None else round(most * _MS),
            stddev_ns=None if spread is None else round(spread * _MS),
        ),
    )  # fmt: skip
