# SPDX-License-Identifier: Apache-2.0
"""A fio result for people: its figures side by side, then what they say together, gravest first."""

import math
from collections.abc import Callable, Iterator, Sequence
from dataclasses import asdict, dataclass
from typing import Any

from rich.console import Group, RenderableType
from rich.markup import escape
from rich.padding import Padding
from rich.table import Table
from rich.text import Text

from virtune import __version__
from virtune.model.measurement import FioResult, Latency, LoadResult, Measurement, Stream
from virtune.model.metric import METRICS, PERCENTILES
from virtune.model.remark import Remark, Weight
from virtune.model.units import format_bytes, format_count, format_ns

SCHEMA = "virtune/explain/1"

WIDTH = 98
"""What fits beside one another in 100 columns; further columns are set below, under labels of their own."""

TITLE_WIDTH = 18
"""The widest a column's title gets; of a longer one the end is shown, which says most of a path."""

_GAP = 3

FLOWS_MAX = 4
"""Jobs and directions shown one by one; of more than that only their sum is, which is the whole result."""

_STYLE = {Weight.INVALID: "red bold", Weight.WARNING: "yellow", Weight.NOTE: "cyan"}
_KINDS = ("slat", "clat", "lat")


@dataclass(frozen=True, slots=True, kw_only=True)
class Explained:
    """One fio result under the name it was given by: what was read, what follows from it, what it means."""

    name: str
    result: FioResult
    measurement: Measurement
    remarks: tuple[Remark, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class _Column:
    """Figures as text by row label; a row that a column does not have was not measured."""

    title: str
    cells: dict[str, str]

    @property
    def width(self) -> int:
        """Characters that the column takes."""
        return max(map(len, (*self.title.splitlines(), *self.cells.values())), default=0)


def render(explained: Sequence[Explained], together: Sequence[Remark] = ()) -> RenderableType:
    """Set results for a terminal: one table with a column for each, the remarks of each, and of all together."""
    alone = len(explained) == 1
    parts: list[RenderableType] = [_headline(item) for item in explained]
    columns = [column for item in explained for column in _columns(item, alone=alone)]
    for page in _pages(columns):
        parts += [Text(), _table(page)]
    for item in explained:
        parts += [Text(), *_remarks("What this says" if alone else f"What {item.name} says", item.remarks)]
        if not any(remark.weight is not Weight.NOTE for remark in item.remarks):
            parts.append(Padding(Text("No problem found in these figures; they are those of one run."), (0, 2)))
    if together:
        parts += [Text(), *_remarks("What they say together", together)]
    return Group(*parts)


def explained_document(explained: Sequence[Explained], together: Sequence[Remark] = ()) -> dict[str, Any]:
    """Return the same for machines: plain JSON values in base units (ns, bytes, 1/s)."""
    return {
        "schema": SCHEMA,
        "virtune": __version__,
        "units": {metric.id: metric.unit for metric in METRICS},
        "results": [_document(item) for item in explained],
        "together": [_remark(remark) for remark in together],
    }


def _remark(remark: Remark) -> dict[str, str]:
    return {"id": remark.id, "weight": remark.weight.value, "text": remark.text, "advice": remark.advice}


def _document(item: Explained) -> dict[str, Any]:
    return {
        "name": item.name,
        "source": item.result.source,
        "fio": item.result.version,
        "metrics": dict(item.measurement.values),
        "remarks": [_remark(remark) for remark in item.remarks],
        "loads": [_without_bins(asdict(load)) for load in item.result.loads],
        "devices": [asdict(device) for device in item.result.devices],
    }


def _without_bins(load: dict[str, Any]) -> dict[str, Any]:
    """The bins stay where they were read from; what they say is in the metrics."""
    for stream in load["streams"]:
        for kind in _KINDS:
            if stream[kind] is not None:
                del stream[kind]["histogram"]
    if load["sync"] is not None:
        del load["sync"]["histogram"]
    return load


def _headline(item: Explained) -> Text:
    text = Text(item.name, style="bold")
    source = {"text": "fio's text", "json": "fio's JSON", "json+": "fio's JSON+"}[item.result.source]
    text.append(f"  {item.result.version or 'fio'}, read from {source}", style="not bold dim")
    for load in _distinct(item.result.loads):
        text.append(f"\n  {describe(load)}", style="not bold")
    return text


def describe(load: LoadResult) -> str:
    """Say in one line what was asked of the disk, as far as the result tells."""
    seconds = max((stream.seconds or 0 for stream in load.streams), default=0)
    words = [
        load.pattern or "",
        f"of {format_bytes(load.block_size)}" if load.block_size else "",
        f"by {load.engine}" if load.engine else "",
    ]
    direct = {True: "direct=1", False: "buffered", None: "direct= not known"}[load.direct]
    direct = "over NBD" if load.engine == "nbd" else direct
    facts = [
        " ".join(word for word in words if word),
        f"{load.jobs} {'job' if load.jobs == 1 else 'jobs'}",
        f"depth {load.depth} in all" if load.depth else "",
        direct,
        f"{format_count(load.rate_asked_iops)} IOPS offered" if load.rate_asked_iops else "",
        format_ns(seconds * 1e9) if seconds else "",
    ]
    return f"{load.name}: {', '.join(fact for fact in facts if fact)}"


def _distinct(loads: Sequence[LoadResult]) -> Iterator[LoadResult]:
    """The first of jobs that are clones of one another."""
    seen: set[tuple[object, ...]] = set()
    for load in loads:
        kind = (load.name, load.engine, load.pattern, load.block_size, load.direct, load.depth)
        if kind not in seen:
            seen.add(kind)
            yield load


def _columns(item: Explained, *, alone: bool) -> Iterator[_Column]:
    """A column for every job and direction where there are few, and one for the whole."""
    streams = [(load, stream) for load in item.result.loads for stream in load.streams]
    if 1 < len(streams) <= FLOWS_MAX:
        several = len(item.result.loads) > 1
        for load, stream in streams:
            words = ("" if alone else item.name, load.name if several else "", stream.direction)
            yield _Column(title=_title(words), cells=dict(_of_flow(load, stream)))
    last = "together" if len(streams) > 1 else (streams[0][1].direction if streams else "")
    whole = dict(_of_whole(item))
    if len(streams) == 1:
        whole = {**dict(_of_flow(*streams[0])), **whole}
    yield _Column(title=_title(("" if alone else item.name, last)), cells=whole)


def _title(words: Sequence[str]) -> str:
    """One word a line; of a long one the end."""
    return "\n".join(w if len(w) <= TITLE_WIDTH else f"..{w[2 - TITLE_WIDTH :]}" for w in words if w)


def _of_flow(load: LoadResult, stream: Stream) -> Iterator[tuple[str, str]]:
    yield "IOPS", format_count(stream.iops)
    yield "bandwidth", _mebibytes(stream.bandwidth_bps)
    if stream.ios is not None:
        yield "I/Os", f"{stream.ios:,}"
    if stream.iops_stddev is not None and stream.iops_samples != 1:
        yield "IOPS stdev", f"{stream.iops_stddev:,.0f}"
    for kind in _KINDS:
        latency: Latency | None = getattr(stream, kind)
        if latency is not None:
            yield f"{kind} mean", _microseconds(latency.mean_ns)
    shown = [kind for kind in (stream.clat, stream.lat) if kind is not None and (kind.percentiles or kind.histogram)]
    for percent in PERCENTILES:
        if shown and (value := shown[0].percentile(percent)) is not None:
            yield f"p{percent:g}", _microseconds(value)
    if load.sync is not None:
        yield "sync mean", _microseconds(load.sync.mean_ns)
    yield from _cpu(load.usr_percent, load.sys_percent)


def _of_whole(item: Explained) -> Iterator[tuple[str, str]]:
    written: tuple[tuple[str, str, Callable[[float], str]], ...] = (
        ("IOPS", "iops", format_count),
        ("bandwidth", "bandwidth", _mebibytes),
        ("slat mean", "slat.mean", _microseconds),
        ("clat mean", "clat.mean", _microseconds),
        ("lat mean", "latency.mean", _microseconds),
        *((f"p{percent:g}", f"latency.p{percent:g}", _microseconds) for percent in PERCENTILES),
        ("sync mean", "sync.mean", _microseconds),
    )
    for label, metric, write in written:
        value = item.measurement.get(metric)
        if value is not None:
            yield label, write(value)
    ios = [stream.ios for load in item.result.loads for stream in load.streams]
    if ios and all(count is not None for count in ios):
        yield "I/Os", f"{sum(count or 0 for count in ios):,}"
    yield from _cpu(item.measurement.get("cpu.load.usr"), item.measurement.get("cpu.load.sys"))
    for device in item.result.devices:
        yield f"{device.name} reads", f"{device.reads:,}"
        yield f"{device.name} writes", f"{device.writes:,}"
        yield f"{device.name} busy", f"{device.busy_percent:.2f}%"


def _cpu(usr: float | None, system: float | None) -> Iterator[tuple[str, str]]:
    if usr is not None:
        yield "usr CPU", f"{usr:.2f}%"
    if system is not None:
        yield "sys CPU", f"{system:.2f}%"


_ROWS = (
    "IOPS", "IOPS stdev", "bandwidth", "I/Os", "slat mean", "clat mean", "lat mean",
    *(f"p{percent:g}" for percent in PERCENTILES), "sync mean", "usr CPU", "sys CPU",
)  # fmt: skip
_SECTIONS = frozenset({"I/Os", "lat mean", "sync mean", f"p{PERCENTILES[-1]:g}", "sys CPU"})
"""Rows after which a blank line stands."""


def _labels(columns: Sequence[_Column]) -> list[str]:
    """The rows that any of the columns has, devices last."""
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
    table = Table(box=None, pad_edge=False, padding=(0, _GAP, 0, 0), header_style="bold")
    table.add_column("", no_wrap=True, style="dim")
    for column in columns:
        table.add_column(escape(column.title), justify="right", no_wrap=True)
    rows = _labels(columns)
    for label in rows:
        table.add_row(escape(label), *(column.cells.get(label, "") for column in columns))
        if label in _SECTIONS and label != rows[-1]:
            table.add_row()
    return table


def _remarks(title: str, remarks: Sequence[Remark]) -> Iterator[RenderableType]:
    yield Text(title, style="bold")
    table = Table(box=None, show_header=False, pad_edge=False, padding=(0, 2, 0, 0))
    table.add_column(no_wrap=True)
    table.add_column(overflow="fold")
    for remark in remarks:
        table.add_row(Text(remark.weight.value, style=_STYLE[remark.weight]), Text(remark.text))
        if remark.advice:
            table.add_row("", Text(f"advice: {remark.advice}", style="dim"))
    if remarks:
        yield Padding(table, (0, 0, 0, 2))


def _mebibytes(bytes_per_second: float) -> str:
    return f"{_digits(bytes_per_second / 1024**2)} MiB/s"


def _microseconds(nanoseconds: float) -> str:
    return f"{_digits(nanoseconds / 1e3)} us"


def _digits(value: float) -> str:
    """Four significant digits, at most three decimals, and no zeros that say nothing."""
    if value <= 0:
        return "0"
    decimals = min(3, max(0, 3 - math.floor(math.log10(value))))
    written = f"{value:,.{decimals}f}"
    return written.rstrip("0").rstrip(".") if decimals else written
