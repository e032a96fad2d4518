# SPDX-License-Identifier: Apache-2.0
"""Parse fio's normal output into a FioResult, with any text before, after and between its lines.

The text has less than JSON: numbers are rounded as printed, and `direct=` is missing unless the command line is
included. Missing values are None.
"""

import re
from collections import Counter
from collections.abc import Callable
from dataclasses import replace

from virtune.fio import command_line as fio_command
from virtune.fio import text_lines as fio_lines
from virtune.fio.job_options import MOST_JOBS, shown
from virtune.fio.text_groups import Definition, Group, load_of
from virtune.fio.text_lines import amount, nanoseconds, size
from virtune.fio.text_runs import ALL_CLIENTS
from virtune.model.errors import ReadError
from virtune.model.measurement import DeviceUse, FioResult, Latency, LoadResult, Stream

SECTOR = 512
_MOST_PERCENTILES = 20
"""fio's own limit of a percentile list (FIO_IO_U_LIST_MAX_LEN)."""

_DIRECTIONS = ("read", "write", "trim", "sync")
_Match = re.Match[str]


def read_text(text: str) -> FioResult:
    """Read fio's normal output out of the text of one run; raises ReadError when there is none."""
    reader = _Reader()
    for line in fio_lines.lines_of(text):
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
        """Take one line."""
        if self._goes_on(line):
            return
        if line.startswith("|"):
            self._percentiles(line)
            return
        for pattern, take in _TAKERS:
            if match := pattern.match(line):
                take(self, match)
                return
        if "percentiles (" in line:
            self._table = None  # of one priority only: the table of all was, or will be, another

    def _goes_on(self, line: str) -> bool:
        """Collect a command over its continuation lines."""
        words = line if self.command.endswith("\\") else fio_command.words_of(line)
        if words is None or len(self.command) > fio_lines.LONGEST_LINE:
            return False
        self.command = self.command.removesuffix("\\") + " " + words
        if not words.endswith("\\"):
            self.commanded |= fio_command.jobs_of(self.command)
            self.command = ""
        return True

    def take_version(self, match: _Match) -> None:
        """`fio-3.33`."""
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

    def take_flow(self, match: _Match) -> None:
        """`read: IOPS=35.3k, BW=138MiB/s (145MB/s)(276MiB/2001msec)`; fio 2: `read : io=..., bw=..., iops=...`."""
        old = match.re is fio_lines.FLOW_2
        bandwidth = size(match["bw"], old=old)
        if self._group is None:
            return
        self._group.lost = bandwidth is None or len(self._group.streams) >= len(_DIRECTIONS)
        if bandwidth is None or self._group.lost:
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
        self._group.streams.append(stream)

    def take_unread(self, match: _Match) -> None:  # noqa: ARG002
        """A direction that cannot be read: the following lines belong to it, and not to the direction before."""
        if self._group is not None:
            self._group.lost = True

    def take_latency(self, match: _Match) -> None:
        """`clat (usec): min=25, max=3435, avg=209.27, stdev=68.98`."""
        if self._group is None:
            return
        ns = {name: nanoseconds(match[name], match["unit"]) for name in ("min", "max", "avg", "stdev")}
        self._group.change(
            match["kind"],
            lambda _: Latency(mean_ns=ns["avg"], min_ns=ns["min"], max_ns=ns["max"], stddev_ns=ns["stdev"]),
        )

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
            for match in fio_lines.PERCENTILE.finditer(line)
            if 0 < float(match["percent"]) <= 100
        )
        self._group.change(
            kind, lambda old: replace(old, percentiles=(old.percentiles + row)[:_MOST_PERCENTILES]) if old else None
        )

    def take_samples(self, match: _Match) -> None:
        """`iops        : min=33208, max=37358, avg=35314.00, stdev=929.21, samples=6`."""
        if self._group is None or not self._group.streams or self._group.lost:
            return
        self._group.streams[-1] = replace(
            self._group.streams[-1],
            iops_samples=int(match["samples"]) if match["samples"] else None,
            iops_min=amount(match["min"]),
            iops_max=amount(match["max"]),
            iops_mean=amount(match["avg"]),
            iops_stddev=amount(match["stdev"]),
        )

    def take_cpu(self, match: _Match) -> None:
        """`cpu          : usr=2.88%, sys=22.93%, ctx=18381, majf=0, minf=26`."""
        if self._group is not None:
            self._group.usr, self._group.sys = float(match["usr"]), float(match["sys"])
            self._group.switches, self._group.major, self._group.minor = (
                int(match[name]) if match[name] else None for name in ("ctx", "majf", "minf")
            )

    def take_depths(self, match: _Match) -> None:
        """`IO depths    : 1=0.1%, 2=0.1%, 4=0.1%, 8=100.0%, 16=0.0%, 32=0.0%, >=64=0.0%`, and of `submit` and
        `complete` below it.
        """
        if self._group is not None:
            found = fio_lines.DEPTH.finditer(match.string)
            levels = tuple((level["level"], float(level["share"]) / 100) for level in found)
            match match["of"]:
                case "submit":
                    self._group.submitted = levels
                case "complete":
                    self._group.completed = levels
                case _:
                    self._group.levels = levels

    def take_issued(self, match: _Match) -> None:
        """`issued rwts: total=70692,70898,0,0 short=0,0,0,0 dropped=0,0,0,0`, and fio 2's `total=r=70692/w=...`."""
        if self._group is None:
            return
        dropped = fio_lines.DROPPED.match(match.string)
        rows = [_numbers(match["total"]), _numbers(match["short"]), _numbers(dropped["dropped"]) if dropped else []]
        total, short, drop = (dict(zip(_DIRECTIONS, row, strict=False)) for row in rows)
        self._group.sync_count = total.get("sync")
        self._group.issued = sum(total.get(direction, 0) for direction in _DIRECTIONS[:3])
        self._group.streams = [
            replace(
                stream,
                ios=sum(total.get(d, 0) for d in _DIRECTIONS[:3])
                if stream.direction == "mixed"
                else total.get(stream.direction),
                short_ios=short.get(stream.direction, 0),
                dropped_ios=drop.get(stream.direction, 0),
            )
            for stream in self._group.streams
        ]

    def take_failed(self, match: _Match) -> None:
        """`errors    : total=12, first_error=5/<Input/output error>`, with continue_on_error."""
        if self._group is not None:
            self._group.errors = int(match["total"])

    def take_status(self, match: _Match) -> None:
        """`Run status group 0 (all jobs):`: nothing more of the groups comes."""
        self._closed.add(match["group"])
        self._group = None

    def take_device(self, match: _Match) -> None:
        """`vda: ios=63122/63435, merge=0/0, ticks=10750/10679, in_queue=21429, util=84.33%`."""
        counted = {
            name: int(match[name])
            for name in ("reads", "writes", "read_merges", "write_merges", "read_ticks", "write_ticks")
        }
        sectors = match["read_sectors"], match["write_sectors"]
        # Given again (--status-interval) the last one holds; the next client's device of the same name is another.
        self.devices[match["name"], len(self.groups)] = DeviceUse(
            name=match["name"],
            reads=counted["reads"],
            writes=counted["writes"],
            read_bytes=int(sectors[0]) * SECTOR if sectors[0] else None,
            written_bytes=int(sectors[1]) * SECTOR if sectors[1] else None,
            read_merges=counted["read_merges"],
            write_merges=counted["write_merges"],
            read_seconds=counted["read_ticks"] / 1000,
            write_seconds=counted["write_ticks"] / 1000,
            busy_percent=float(match["util"]),
        )

    def take_failure(self, match: _Match) -> None:
        """`fio: pid=0, err=2/file:..., func=open, error=No such file or directory`: why there may be no result."""
        self.failure = self.failure or match["why"].strip()

    def result(self) -> FioResult:
        """Return the result of all lines."""
        groups = [group for group in self.groups.values() if group.key[0] != ALL_CLIENTS]
        groups = groups or list(self.groups.values())
        if not groups and self.failure:
            raise ReadError(
                f"fio gave no result: {self.failure}", hint="the lines before it say at which file or option"
            )
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
            loads=tuple(self._load(group) for group in groups),
            devices=tuple(self.devices.values()),
        )

    def _load(self, group: Group) -> LoadResult:
        return load_of(group, self._mine(group), self.commanded.get(group.key[0]))

    def _mine(self, group: Group) -> list[Definition]:
        """The definitions behind a group: with group reporting all of its number, otherwise those of its name."""
        name, number, _ = group.key
        numbered = [d for d in self.definitions if d.group == number]
        return [d for d in numbered if d.name == name] if self._results[number] > 1 else numbered


_TAKERS: tuple[tuple[re.Pattern[str], Callable[[_Reader, _Match], None]], ...] = (
    (fio_lines.LATENCY, _Reader.take_latency),
    (fio_lines.PERCENTILES, _Reader.take_table),
    (fio_lines.SAMPLES, _Reader.take_samples),
    (fio_lines.FLOW, _Reader.take_flow),
    (fio_lines.FLOW_2, _Reader.take_flow),
    (fio_lines.FLOW_UNREAD, _Reader.take_unread),
    (fio_lines.CPU, _Reader.take_cpu),
    (fio_lines.DEPTHS, _Reader.take_depths),
    (fio_lines.ISSUED, _Reader.take_issued),
    (fio_lines.FAILED, _Reader.take_failed),
    (fio_lines.HEADER, _Reader.take_header),
    (fio_lines.DEFINITION, _Reader.take_definition),
    (fio_lines.CLONES, _Reader.take_clones),
    (fio_lines.STATUS, _Reader.take_status),
    (fio_lines.DEVICE, _Reader.take_device),
    (fio_lines.VERSION, _Reader.take_version),
    (fio_lines.FAILURE, _Reader.take_failure),
)


def _numbers(text: str) -> list[int]:
    return [int(number) for number in re.findall(r"[0-9]{1,20}", text)]


def _block_size(text: str) -> int | None:
    """`16.0KiB-16.0KiB` is one size; `4096B-65536B` is a range, and then there is no one block size."""
    low, _, high = text.partition("-")
    found = size(low, old=True) if high in ("", low) else None
    return round(found) if found is not None else None
