# SPDX-License-Identifier: Apache-2.0
"""A fio result as text: its figures side by side, then the remarks on them, the most severe first."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from rich.console import Group, RenderableType
from rich.text import Text

from virtune.model.measurement import FioResult, LoadResult, Measurement, Stream
from virtune.model.metric import BY_ID, PERCENTILES
from virtune.model.remark import Remark, Weight
from virtune.model.text import format_bytes, format_count, format_ns
from virtune.report.render.terminal import Paragraph, Section, Table, remarks_table, right
from virtune.report.words import count_text, quantity

WIDTH = 98
"""The columns that fit side by side in 100 characters; further ones follow below, with their own labels."""

TITLE_WIDTH = 18
"""The longest title of a column; a longer one is cut at the begin, because the end of a path says most."""

_GAP = 3

FLOWS_MAX = 4
"""The most jobs and directions that are shown one by one; of more only the total is shown."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Flow:
    """One direction of one job, with its figures in the same form as the total's."""

    load: LoadResult
    stream: Stream
    measurement: Measurement


@dataclass(frozen=True, slots=True, kw_only=True)
class Concurrent:
    """Jobs that ran at the same time: their figures one by one and in total."""

    loads: tuple[LoadResult, ...]
    flows: tuple[Flow, ...]
    measurement: Measurement

    @property
    def name(self) -> str:
        return "+".join(dict.fromkeys(load.name for load in self.loads))


@dataclass(frozen=True, slots=True, kw_only=True)
class Explained:
    """One fio result by its file's name: the result, the measurement derived from it, and the remarks."""

    name: str
    result: FioResult
    parts: tuple[Concurrent, ...]
    remarks: tuple[Remark, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class _Column:
    """Figures as text by row label; a missing row was not measured."""

    title: str
    cells: dict[str, str]

    @property
    def width(self) -> int:
        return max(map(len, (*self.title.splitlines(), *self.cells.values())), default=0)


def render(explained: Sequence[Explained], together: Sequence[Remark] = ()) -> RenderableType:
    alone = len(explained) == 1
    parts: list[RenderableType] = [_headline(item) for item in explained]
    of = percentiles_of([flow.measurement for item in explained for part in item.parts for flow in part.flows])
    columns = [column for item in explained for column in _columns(item, of or "clat", alone=alone)]
    for page in _pages(columns):
        parts += [Text(), _table(page)]
    for item in explained:
        parts += [Text(), Text("What this says" if alone else f"What {item.name} says", style="bold")]
        parts += [remarks_table(item.remarks)] if item.remarks else []
        if not any(remark.weight is not Weight.NOTE for remark in item.remarks):
            parts.append(Paragraph("No problem found in these figures; they are those of one run.", indent=2))
    if together:
        parts += [Text(), Text("What they say together", style="bold"), remarks_table(together)]
    return Group(*parts)


def percentiles_of(measurements: Sequence[Measurement]) -> str | None:
    """Say which kind of latency all of them have percentiles of: `latency` (total), else `clat`, else none."""
    for of in ("latency", "clat"):
        if measurements and all(one.get(f"{of}.p50") or one.get(f"{of}.p99") for one in measurements):
            return of
    return None


def _headline(item: Explained) -> Text:
    text = Text(item.name, style="bold")
    sources = {"text": "fio's text", "json": "fio's JSON", "json+": "fio's JSON+"}
    source = sources.get(item.result.source, "its report")
    text.append(f"  {item.result.version or 'fio'}, read from {source}", style="not bold dim")
    for load, alike in _distinct(item.result.loads):
        text.append(f"\n  {describe(load, alike)}", style="not bold")
    return text


_PACE = ("thinktime", "latency_target", "random_distribution", "percentage_random", "rate_process")
"""Options (by their first letters) without which a rate or a latency is not understood."""


def describe(load: LoadResult, alike: int = 1) -> str:
    """Say what a load is; `alike` entries of the result are clones of it."""
    jobs, seconds = load.jobs * alike, load.seconds
    size = f"of {format_bytes(load.block_size)}" if load.block_size else ""
    words = (load.pattern or "", size, f"by {load.engine}" if load.engine else "")
    direct = {True: "direct=1", False: "buffered", None: "direct= not known"}[load.direct]
    direct = "over NBD" if load.engine == "nbd" else direct
    facts = [
        " ".join(filter(None, words)),
        "several jobs" if load.sections else count_text(jobs, "job"),
        f"depth {load.depth * alike} in all" if load.depth else "",
        direct,
        f"{format_count(load.rate_asked_iops)} IOPS offered" if load.rate_asked_iops else "",
        *(f"{name}={value}" for name, value in load.options or () if name.startswith(_PACE) and value != "0"),
        format_ns(seconds * 1e9) if seconds else "",
    ]
    return f"{load.name}: {', '.join(filter(None, facts))}"


def _distinct(loads: Sequence[LoadResult]) -> Iterator[tuple[LoadResult, int]]:
    """The first of jobs that are clones of one another, and how many they are."""
    found: dict[tuple[object, ...], list[LoadResult]] = {}
    for one in loads:
        key = (one.name, one.group, one.engine, one.pattern, one.block_size, one.direct, one.depth)
        found.setdefault(key, []).append(one)
    yield from ((alike[0], len(alike)) for alike in found.values())


def _columns(item: Explained, of: str, *, alone: bool) -> Iterator[_Column]:
    """A column for every job and direction if there are few, and one for each part that ran together."""
    few = sum(len(part.flows) for part in item.parts) <= FLOWS_MAX
    several = len(item.result.loads) > 1
    for part in item.parts:
        single = len(part.flows) == 1
        for flow in part.flows if few and not single else ():
            words = ("" if alone else item.name, flow.load.name if several else "", flow.stream.direction)
            # the CPU time belongs to the job: for one that reads and writes it is given once, under both together
            cpu = len(flow.load.streams) == 1
            yield _Column(title=_title(words), cells=dict(_of_flow(flow, of, cpu=cpu)))
        last = "together" if len(part.flows) > 1 else (part.flows[0].stream.direction if part.flows else "")
        name = part.name if len(item.parts) > 1 or (several and single) else ""
        cells = dict(_of_part(part, of))
        if len(item.parts) == 1:
            cells |= dict(_of_devices(item.result))
        if single:
            cells = {**dict(_of_flow(part.flows[0], of, cpu=False)), **cells}
        yield _Column(title=_title(("" if alone else item.name, name, last)), cells=cells)
    devices = dict(_of_devices(item.result))
    if devices and len(item.parts) > 1:
        yield _Column(title=_title(("" if alone else item.name, "all jobs")), cells=devices)


def _title(words: Sequence[str]) -> str:
    """One word a line; a long word is cut at its begin."""
    return "\n".join(w if len(w) <= TITLE_WIDTH else f"..{w[2 - TITLE_WIDTH :]}" for w in words if w)


def _of_flow(flow: Flow, of: str, *, cpu: bool) -> Iterator[tuple[str, str]]:
    stream = flow.stream
    yield from _figures(flow.measurement, of, cpu=cpu)
    if stream.ios is not None:
        yield "I/Os", f"{stream.ios:,}"
    if stream.iops_stddev is not None and stream.iops_samples != 1:
        yield "IOPS stdev", f"{stream.iops_stddev:,.0f}"
    for label, name in _EXTREMES:
        if (value := flow.measurement.get(name)) is not None:
            yield label, quantity(BY_ID[name], value)
    if cpu:
        yield from _of_kernel(flow.load)


def _of_kernel(load: LoadResult) -> Iterator[tuple[str, str]]:
    """What the kernel counted of a job, and how many I/Os one call of it handed over and took back."""
    if load.context_switches is not None:
        yield "context switches", f"{load.context_switches:,}"
    if load.major_faults is not None and load.minor_faults is not None:
        yield "page faults", f"{load.major_faults:,} major, {load.minor_faults:,} minor"
    for label, levels in (("I/Os a submission", load.submit_levels), ("I/Os a completion", load.complete_levels)):
        # fio names a class by the most that belong to it, and the last one by the least
        named = (
            (one if one in ("0", "1") or one.startswith(">") else f"up to {one}", share) for one, share in levels
        )
        shares = [f"{level}: {share * 100:.0f} %" for level, share in named if share >= _SHOWN_SHARE]
        if shares:
            yield label, ", ".join(shares)


def _of_part(part: Concurrent, of: str) -> Iterator[tuple[str, str]]:
    yield from _figures(part.measurement, of, cpu=True)
    if len(part.loads) == 1:
        yield from _of_kernel(part.loads[0])
    ios = [flow.stream.ios for flow in part.flows]
    if ios and all(count is not None for count in ios):
        yield "I/Os", f"{sum(count or 0 for count in ios):,}"


def _figures(measurement: Measurement, of: str, *, cpu: bool) -> Iterator[tuple[str, str]]:
    percentiles = (f"{of}.p{percent:g}" for percent in PERCENTILES)
    shares = ("cpu.load.usr", "cpu.load.sys") if cpu else ()
    for name in ("iops", "bandwidth", "slat.mean", "clat.mean", "latency.mean", *percentiles, "sync.mean", *shares):
        value = measurement.get(name)
        if value is not None:
            yield _LABELS.get(name, BY_ID[name].label), quantity(BY_ID[name], value)


def _of_devices(result: FioResult) -> Iterator[tuple[str, str]]:
    for device in result.devices:
        yield f"{device.name} reads", f"{device.reads:,}"
        yield f"{device.name} writes", f"{device.writes:,}"
        yield f"{device.name} busy", f"{device.busy_percent:.1f} %"

        if device.read_merges is not None and device.write_merges is not None:
            yield f"{device.name} merged", f"{device.read_merges + device.write_merges:,}"


_SHOWN_SHARE = 0.005
"""A class of fewer I/Os would read as 0 %."""

_EXTREMES = tuple((name.replace(".", " "), name) for name in ("slat.min", "slat.max", "clat.min", "clat.max"))

_LABELS = {"cpu.load.usr": "usr CPU", "cpu.load.sys": "sys CPU"}
_ROWS = (
    "IOPS", "IOPS stdev", "bandwidth", "I/Os", "slat mean", "slat min", "slat max", "clat mean", "clat min",
    "clat max", "latency mean",
    *(f"{of} p{percent:g}" for of in ("clat", "latency") for percent in PERCENTILES), "sync mean", "usr CPU",
    "sys CPU", "context switches", "page faults", "I/Os a submission", "I/Os a completion",
)  # fmt: skip
_LAST = f"p{PERCENTILES[-1]:g}"
_SECTIONS = frozenset(("I/Os", "latency mean", "sync mean", f"clat {_LAST}", f"latency {_LAST}", "I/Os a completion"))
"""Rows after which a blank line stands."""


def _labels(columns: Sequence[_Column]) -> list[str]:
    """The rows of all columns, devices last."""
    found = dict.fromkeys(label for column in columns for label in column.cells)
    return [label for label in _ROWS if label in found] + [label for label in found if label not in _ROWS]


def _pages(columns: Sequence[_Column]) -> Iterator[list[_Column]]:
    """The columns in groups that fit beside one another."""
    labels = max(map(len, _labels(columns)), default=0)
    page: list[_Column] = []
    taken = labels
    for column in columns:
        if page and taken + _GAP + column.width > WIDTH:
            yield page
            page, taken = [], labels
        page.append(column)
        taken += _GAP + column.width
    if page and labels:
        yield page


def _table(columns: Sequence[_Column]) -> Table:
    most = max(column.title.count("\n") for column in columns)
    titles = ("\n" * (most - column.title.count("\n")) + column.title for column in columns)  # they end at one line
    table = Table(["", *right(*titles)], gap=_GAP)
    rows = _labels(columns)
    for label in rows:
        table.add_row(Text(label, style="dim"), *(column.cells.get(label, "") for column in columns))
        table.rows += [Section(Text(""))] if label in _SECTIONS and label != rows[-1] else []
    return table
