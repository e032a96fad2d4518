# SPDX-License-Identifier: Apache-2.0
"""`virtune top`: the columns of its tables, one look for a terminal or a pipe, and frames as CSV in base units; and
what `virtune watch` prints: a line where a rule begins or ceases to hold, and when the disks of VMs were slow.
"""

import csv
import io
import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Any, Literal

from rich.cells import cell_len, set_cell_size
from rich.console import Console, ConsoleOptions, RenderableType, RenderResult
from rich.text import Text

from virtune.model import bottleneck
from virtune.model.live import Layers, RequestLayer
from virtune.model.metric import BY_ID
from virtune.model.result import Neighbour
from virtune.model.text import (
    format_bandwidth,
    format_count,
    format_ns,
    format_seconds,
    format_share,
    printable,
    spreadsheet_cell,
)
from virtune.report.render.terminal import Paragraph, paragraph, paragraphs, unbroken
from virtune.report.words import count_text

TableKind = Literal["disks", "vms", "threads", "host"]

TABLE_KINDS: tuple[TableKind, ...] = ("disks", "vms", "threads", "host")

Units = Literal["both", "requests", "bytes"]

UNITS: tuple[Units, ...] = ("both", "requests", "bytes")

BAR = 12

LETTERS: Mapping[str, tuple[str, str]] = {
    "v": ("wait in the virtqueue", "yellow"),
    "q": ("QEMU", "cyan"),
    "d": ("host block layer and device", "magenta"),
    "=": ("several layers, not told apart", "blue"),
}
"""The letter of each layer in a bar, what it stands for, and its colour."""

Row = Any
"""A row of one of the tables: a DiskFrame, VmFrame, ThreadFrame or DeviceFrame."""

Cell = str | Text


@dataclass(frozen=True, slots=True)
class TopColumn:
    """A column: `letter` is the key that sorts by it, `value` what it sorts by (None stands last), `write` how that
    is shown; where more than that is shown, `drawn` is it.
    """

    title: str
    letter: str
    width: int
    value: Callable[[Row], float | str | None]
    write: Callable[[Any], str] = str
    drawn: Callable[[Row], Cell] | None = None
    right: bool = True

    def cell(self, row: Row) -> Cell:
        return self.write(self.value(row)) if self.drawn is None else self.drawn(row)


@dataclass(frozen=True, slots=True, kw_only=True)
class TopTable:
    """A table: its rows in order, its columns, and the one that it is sorted by."""

    columns: tuple[TopColumn, ...]
    rows: tuple[Row, ...]
    sort: int


def letter_of(layer: RequestLayer) -> str:
    if " + " in layer.label:
        return "="
    return {"ring": "v", "backend": "q", "device": "d"}.get(layer.boundary, "=")


def bar_of(layers: Layers | None, width: int) -> Text:
    """Return where the time of a request goes as a bar of letters, as wide as there is room: each layer's share."""
    bar, done, reached = Text(), 0, 0.0
    for one in () if layers is None else layers.layers:
        reached += one.share
        end = min(width, round(reached * width))
        letter = letter_of(one)
        bar.append(letter * (end - done), style=LETTERS[letter][1])
        done = max(done, end)
    return bar


def columns_of(kind: TableKind, units: Units = "both", *, limits: bool = False) -> tuple[TopColumn, ...]:
    """Return the columns of a table; `limits`: a disk has one, and a column shows how much of it is used."""
    columns = {"disks": DISKS, "vms": VMS, "threads": THREADS, "host": DEVICES}[kind]
    if kind == "disks" and limits:
        columns = (*columns, LIMIT_USED)
    if kind != "disks" or units == "both":
        return columns
    return tuple(_SPLIT[one.title][units] if one.title in _SPLIT else one for one in columns)


def rows_of(kind: TableKind, frame: bottleneck.TopFrame) -> tuple[Row, ...]:
    return {"disks": frame.disks, "vms": frame.vms, "threads": frame.threads, "host": frame.devices}[kind]


def name_of_row(row: Row) -> str:
    match row:
        case bottleneck.DiskFrame():
            return row.name
        case bottleneck.VmFrame():
            return row.vm
        case bottleneck.ThreadFrame():
            return f"{row.vm} {row.cost.name} {row.cost.tid}"
        case _:
            return " ".join((row.use.name, *(one.name for one in row.disks)))


def is_active(row: Row) -> bool:
    match row:
        case bottleneck.DiskFrame():
            return row.rates.requests > 0 or bool(row.path.held) or row.path.uncounted > 0
        case bottleneck.VmFrame():
            return row.iops > 0
        case bottleneck.ThreadFrame():
            return row.cost.cpu_seconds > 0 or bool(row.cost.wait_seconds)
        case _:
            return bool(row.use.reads + row.use.writes)


def table(
    kind: TableKind,
    rows: Sequence[Row],
    *,
    sort: int,
    reverse: bool = False,
    units: Units = "both",
    words: str = "",
    active: bool = False,
) -> TopTable:
    """Return a table: rows whose name has the words, in the order of a column. Numbers begin with the greatest, names
    with the first; rows without a value come last either way.
    """
    limits = kind == "disks" and any(one.path.limits for one in rows)
    columns = columns_of(kind, units, limits=limits)
    sort %= len(columns)
    value = columns[sort].value
    kept = [one for one in rows if words.lower() in name_of_row(one).lower() and (is_active(one) or not active)]
    kept.sort(key=name_of_row)
    known = [one for one in kept if value(one) is not None]
    numeric = all(isinstance(value(one), float | int) for one in known)
    known.sort(key=lambda one: value(one) or (0 if numeric else ""), reverse=numeric != reverse)
    return TopTable(columns=columns, rows=(*known, *(one for one in kept if value(one) is None)), sort=sort)


def head_line(shown: TopTable, width: int) -> Text:
    line = Text(" ")
    for index, (column, room) in enumerate(zip(shown.columns, _widths(shown, width), strict=True)):
        title = Text(column.title)
        place = column.title.find(column.letter)
        title.stylize("underline", place, place + 1)
        text = _fitted(title, room, right=column.right)
        text.stylize("bold reverse" if index == shown.sort else "bold")
        line.append_text(text).append(" ")
    line.rstrip()
    return line


def row_line(shown: TopTable, row: Row, width: int, *, marked: bool = False) -> Text:
    """Return a row; the one that the cursor is on begins with `>`."""
    line = Text(">" if marked else " ")
    for column, room in zip(shown.columns, _widths(shown, width), strict=True):
        cell = column.cell(row)
        text = Text(printable(cell)) if isinstance(cell, str) else cell
        line.append_text(_fitted(text, room, right=column.right)).append(" ")
    line.rstrip()
    if isinstance(row, bottleneck.DiskFrame) and row.gone:
        line.stylize("dim")
    if marked:
        line.stylize("bold")
    return line


def verdict_cell(row: bottleneck.DiskFrame) -> Text:
    if row.gone:
        return Text("gone", style="dim")
    if row.path.iops <= 0 and not row.path.uncounted and not row.found.cause.accuses:
        # whether some wait is known where its virtqueue is seen
        return Text("waits" if row.path.held else "idle" if row.path.held == 0 else "no I/O", style="dim")
    style = {bottleneck.Cause.NOT_BOUND: "green", bottleneck.Cause.UNDECIDED: "dim"}.get(row.found.cause, "red")
    return Text(row.found.cause.value, style=style)


def _widths(shown: TopTable, width: int) -> list[int]:
    fixed = [column.width for column in shown.columns[1:]]
    return [max(shown.columns[0].width, width - 1 - sum(fixed) - len(fixed)), *fixed]


def _fitted(text: Text, room: int, *, right: bool) -> Text:
    """Return a text of exactly so many cells. Of a name that is too long the end is kept, which tells disks apart."""
    over = cell_len(text.plain) - room
    if over > 0:
        begin = set_cell_size(text.plain, max(0, room // 2 - 2))
        end = text.plain[len(text.plain) - (room - 2 - len(begin)) :]
        return Text(set_cell_size(f"{begin}..{end}", room), style=text.style)
    blanks = " " * -over
    return Text(blanks).append_text(text) if right else text.append(blanks)


def _megabytes(bandwidth: float) -> str:
    number = bandwidth / 1e6
    return f"{number:,.0f}" if number >= 100 else f"{number:.1f}" if number >= 10 or not number else f"{number:.2f}"


def _time(nanoseconds: float | None) -> str:
    return "-" if not nanoseconds else format_ns(nanoseconds)


def _share(share: float | None) -> str:
    return "-" if share is None else format_share(share)


def _flying(number: float) -> str:
    return "-" if number <= 0 else f"{number:.2f}" if number < 10 else f"{number:.0f}"


def _largest(row: bottleneck.DiskFrame) -> float | None:
    layers = row.path.layers
    return None if layers is None else max((one.share for one in layers.layers), default=None)


DISKS: tuple[TopColumn, ...] = (
    TopColumn("DISK", "D", 13, lambda row: row.name, right=False),
    TopColumn("IOPS", "I", 6, lambda row: row.path.iops, format_count),
    TopColumn("MB/s", "M", 6, lambda row: row.path.bandwidth, _megabytes),
    TopColumn("LATENCY", "L", 7, lambda row: row.latency_ns, _time),
    TopColumn("BY LAYER", "Y", BAR, _largest, drawn=lambda row: bar_of(row.path.layers, BAR), right=False),
    TopColumn("CPU/IO", "C", 7, lambda row: row.cpu_per_io_ns, _time),
    TopColumn("FLY", "F", 4, lambda row: row.in_flight, _flying),
    TopColumn("LIMITED BY", "B", 11, lambda row: verdict_cell(row).plain, drawn=verdict_cell, right=False),
)

LIMIT_USED = TopColumn(
    "CAP", "A", 5, lambda row: row.path.limit_used, lambda used: "" if used is None else format_share(used)
)
"""How much of its nearest limit a disk uses; shown where any disk has one."""

_SPLIT: Mapping[str, Mapping[str, TopColumn]] = {
    "IOPS": {
        "requests": TopColumn("READ/s", "R", 6, lambda row: row.rates.reads / row.rates.seconds, format_count),
        "bytes": TopColumn("R MB/s", "R", 6, lambda row: row.rates.read_bytes / row.rates.seconds, _megabytes),
    },
    "MB/s": {
        "requests": TopColumn("WRIT/s", "W", 6, lambda row: row.rates.writes / row.rates.seconds, format_count),
        "bytes": TopColumn("W MB/s", "W", 6, lambda row: row.rates.written_bytes / row.rates.seconds, _megabytes),
    },
}

VMS: tuple[TopColumn, ...] = (
    TopColumn(
        "VM",
        "V",
        16,
        lambda row: row.vm,
        drawn=lambda row: f"{row.vm} (TCG)" if row.emulated else row.vm,
        right=False,
    ),
    TopColumn("DISKS", "D", 5, lambda row: len(row.disks)),
    TopColumn("IOPS", "I", 6, lambda row: row.iops, format_count),
    TopColumn("MB/s", "M", 6, lambda row: row.bandwidth, _megabytes),
    TopColumn("LATENCY", "L", 7, lambda row: row.latency_ns, _time),
    TopColumn("FLY", "F", 4, lambda row: row.in_flight, _flying),
    TopColumn("CPU", "C", 6, lambda row: row.cpus(), _share),
    TopColumn("VCPU", "U", 6, lambda row: row.cpus("vcpu"), _share),
    TopColumn("NO CPU", "N", 6, lambda row: row.stalled, _share),
)

THREADS: tuple[TopColumn, ...] = (
    TopColumn("VM", "V", 14, lambda row: row.vm, right=False),
    TopColumn("THREAD", "H", 15, lambda row: row.cost.name, right=False),
    TopColumn("ROLE", "R", 8, lambda row: row.cost.role, right=False),
    TopColumn("CPU", "C", 5, lambda row: row.cost.busy, format_share),
    TopColumn("USR", "U", 5, lambda row: row.cost.user_seconds / row.cost.seconds, format_share),
    TopColumn("SYS", "S", 5, lambda row: row.cost.system_seconds / row.cost.seconds, format_share),
    TopColumn("NO CPU", "N", 6, lambda row: row.cost.stalled, format_share),
    TopColumn("CPU/IO", "I", 7, lambda row: row.cost.busy / row.iops * 1e9 if row.iops > 0 else None, _time),
)

DEVICES: tuple[TopColumn, ...] = (
    TopColumn("DEVICE", "D", 16, lambda row: row.use.name, right=False),
    TopColumn("READ/s", "R", 7, lambda row: row.use.reads / row.seconds, format_count),
    TopColumn("WRITE/s", "W", 7, lambda row: row.use.writes / row.seconds, format_count),
    TopColumn("MB/s", "M", 6, lambda row: (row.use.read_bytes + row.use.written_bytes) / row.seconds, _megabytes),
    TopColumn("LATENCY", "L", 7, lambda row: row.use.latency_us_mean, lambda mean: _time((mean or 0) * 1e3)),
    TopColumn("FLY", "F", 5, lambda row: row.use.queue_depth_mean, _flying),
    TopColumn("OTHERS", "O", 6, lambda row: row.others_share, _share),
    TopColumn("BUSY", "B", 5, lambda row: row.use.busy_percent, lambda percent: format_share(percent / 100)),
)

SORT_FIRST: Mapping[TableKind, int] = {"disks": 1, "vms": 2, "threads": 3, "host": 7}

LAYERS = {"v": "virtqueue_ns", "q": "qemu_ns", "d": "device_ns", "=": "joined_ns"}
"""The column of each layer; `joined_ns` is of layers that are not told apart."""

CSV_COLUMNS = (
    "time", "seconds", "vm", "disk", "iops", "read_iops", "write_iops", "flushes_per_second", "bandwidth_bps",
    "read_bps", "write_bps", "latency_ns", *LAYERS.values(), "in_flight", "cpu_per_io_ns", "cause", "limit_used",
    "read_latency_ns", "write_latency_ns", "flush_latency_ns", "discards_per_second", "discard_latency_ns",
    "failed_per_second",
)  # fmt: skip


def csv_head() -> str:
    return _line(CSV_COLUMNS)


def csv_rows(frame: bottleneck.TopFrame) -> str:
    """Return a line for each disk; a value that is unknown is empty."""
    return "".join(_line(_cells(frame, one)) for one in frame.disks)


def _cells(frame: bottleneck.TopFrame, one: bottleneck.DiskFrame) -> Iterator[object]:
    rates, seconds = one.rates, one.rates.seconds
    yield from (f"{frame.wall_seconds:.3f}", repr(seconds), spreadsheet_cell(one.vm), spreadsheet_cell(one.disk))
    yield from (one.path.iops, rates.reads / seconds, rates.writes / seconds, rates.flushes / seconds)
    yield from (one.path.bandwidth, rates.read_bytes / seconds, rates.written_bytes / seconds, one.latency_ns)
    layers = () if one.path.layers is None else one.path.layers.layers
    for letter in LAYERS:
        mine = [layer.mean_ns for layer in layers if letter_of(layer) == letter]
        yield sum(mine) if mine else None
    yield from (one.in_flight, one.cpu_per_io_ns, one.found.cause.value, one.path.limit_used)
    kinds = {each.kind: each for each in one.path.operations}
    yield from (kinds[name].mean_ns for name in ("read", "write", "flush"))
    discards = kinds.get("discard")
    yield from (None, None) if discards is None else (discards.iops, discards.mean_ns)
    yield None if rates.failed is None else rates.failed / seconds


def _line(cells: object) -> str:
    text = io.StringIO()
    csv.writer(text, lineterminator="\n").writerow(cells)  # type: ignore[arg-type]
    return text.getvalue()


class TopText:
    """The disks of a frame, a line each, with what could not be seen."""

    def __init__(self, frame: bottleneck.TopFrame) -> None:
        self.frame = frame

    def __rich_console__(self, console: Console, options: ConsoleOptions) -> RenderResult:
        frame = self.frame
        disks = f"{count_text(len(frame.disks), 'disk')} of {count_text(len(frame.vms), 'running VM')}"
        yield Text(f"{disks}, seen for {format_seconds(frame.seconds)}; {host_words(frame)}", style="dim")
        shown = table("disks", rows_of("disks", frame), sort=SORT_FIRST["disks"])
        if shown.rows:
            yield unbroken(head_line(shown, options.max_width))
        for row in shown.rows:
            yield unbroken(row_line(shown, row, options.max_width))
            yield from paragraphs(_why(row), "dim", indent=3)
        if any(bar_of(row.path.layers, 1).plain for row in shown.rows):
            yield Paragraph(legend(), indent=1, hanging=1)
        if frame.emulated:
            yield paragraph(f"{', '.join(frame.emulated)}: {bottleneck.EMULATED_WORDS}", "yellow")
        yield from paragraphs((f"not seen: {line}" for line in frame.missing), "yellow", indent=0)


_STACKED = re.compile(r"(dm-|md|loop|bcache|drbd)\d+")
"""The kernel's names of devices that lie on others."""


class DevicesText:
    """The host's devices of a frame, with the disks of VMs on each, and what others do to it. `others` are other
    processes of this host that moved much, None where nobody looked.
    """

    def __init__(self, frame: bottleneck.TopFrame, others: Sequence[Neighbour] | None) -> None:
        self.frame, self.others = frame, others

    def __rich_console__(self, console: Console, options: ConsoleOptions) -> RenderResult:
        frame, kept = self.frame, [one for one in self.frame.devices if one.disks and self._is_lowest(one)]
        on = f"{count_text(len(kept), 'device')} with disks of {count_text(len(frame.vms), 'running VM')}"
        yield Text(f"{on}, seen for {format_seconds(frame.seconds)}; {host_words(frame)}", style="dim")
        shown = table("host", kept, sort=SORT_FIRST["host"])
        if shown.rows:
            yield unbroken(head_line(shown, options.max_width))
        for row in shown.rows:
            yield unbroken(row_line(shown, row, options.max_width))
            most_first = sorted(row.disks, key=lambda one: -one.path.bandwidth)
            yield from paragraphs((_on_device(one, row) for one in most_first), indent=3)
        moving = [one for one in self.others or () if one.bandwidth_bps]
        if moving:
            names = (f"{one.name} ({one.pid}) {format_bandwidth(one.bandwidth_bps or 0.0)}" for one in moving)
            yield paragraph(f"other processes, over all devices: {', '.join(names)}")
        nowhere = [one.name for one in frame.disks if not one.devices]
        yield from paragraphs([f"on no device of this host that is seen: {', '.join(nowhere)}"] if nowhere else [])
        if shown.rows:
            yield paragraph("OTHERS: at least so much of its bytes, by others than the VMs on it", "dim")
            yield paragraph("the kernel counts what a device does, QEMU what its disks ask for", "dim")
        yield from paragraphs((f"not seen: {line}" for line in frame.missing), "yellow", indent=0)

    def _is_lowest(self, one: bottleneck.DeviceFrame) -> bool:
        return not _STACKED.fullmatch(one.use.name) or any(disk.devices[-1] == one.use.name for disk in one.disks)


def _on_device(one: bottleneck.DiskFrame, device: bottleneck.DeviceFrame) -> str:
    """Say what a disk asks of its device, what share of what that moves this is, what lies between them, and what
    limits it. A disk that asks for more than its device moves has it from a cache, or several devices below it.
    """
    asked = f"{one.name}: {format_count(one.path.iops)} IOPS, {format_bandwidth(one.path.bandwidth)}"
    moved = (device.use.read_bytes + device.use.written_bytes) / device.seconds if device.seconds else 0.0
    share = f", {format_share(one.path.bandwidth / moved)} of its bytes" if 0 < one.path.bandwidth <= moved else ""
    each = f", {format_ns(one.latency_ns)} each" if one.latency_ns else ""
    between = [name for name in one.devices if _STACKED.fullmatch(name) and name != device.use.name]
    through = f", through {', '.join(between)}" if between else ""
    return f"{asked}{share}{each}{through}; {verdict_cell(one).plain}"


def _why(row: bottleneck.DiskFrame) -> Iterator[str]:
    """Yield what limits a disk with its first evidence, and what else is known of it: stalls, limits, others."""
    cause = row.found.cause
    if row.path.iops <= 0 and not cause.accuses and not row.path.held and not row.path.failed:
        return
    words = cause.words if cause is bottleneck.Cause.UNDECIDED else row.found.claim
    yield f"{words}: {row.found.evidence[0]}"
    yield from row.found.evidence[1:]


def legend() -> Text:
    text = Text()
    for letter, (words, style) in LETTERS.items():
        text.append(", " if text.plain else "").append(letter, style=style).append(f" {words}")
    return text


def host_words(frame: bottleneck.TopFrame) -> str:
    cpu = frame.host.cpu
    if cpu is None:
        return "host CPUs unknown"
    parts = [f"host CPUs {format_share(cpu.busy_percent / 100)} busy"]
    if cpu.steal_percent >= 1:
        parts.append(f"steal {format_share(cpu.steal_percent / 100)}")
    if frame.host.foreign_cpus is not None and any(vm.seen for vm in frame.vms):
        parts.append(f"others than these VMs used {frame.host.foreign_cpus:.1f} CPUs")
    return ", ".join(parts)


def event_line(found: bottleneck.RuleEvent) -> str:
    """Return how a rule stands; times are those of this host's zone."""
    look, rule = found.look, found.rule
    head = f"{_clock(look.wall_seconds)} {'SLOW' if found.holds else 'over'} {look.name} {rule.text}"
    if found.gone:
        return printable(f"{head}: the disk is no longer there")
    value = "" if found.value is None else _value(rule.metric, found.value)
    if not found.holds:
        return printable(f"{head}: {value or 'no request'}, after {format_seconds(found.seconds)}")
    return printable(f"{head}: {value}, {', '.join(_reasons(look))}")


def _value(metric: str, value: float) -> str:
    unit = BY_ID[metric].unit if metric in BY_ID else "ns"
    write = {"ns": format_ns, "1/s": format_count, "B/s": format_bandwidth}
    return write[unit](value) if unit in write else format_ns(value * 1e9)


def _reasons(look: bottleneck.DiskLook) -> Iterator[str]:
    yield bottleneck.Bottleneck(cause=look.cause, evidence=(), experiment="").claim
    if look.layer and not any(look.layer in line for line in look.evidence):
        yield f"{format_share(look.layer_share)} of the time in {look.layer}"
    yield from look.evidence


def history_lines(
    between: tuple[float, float], looks: int, torn: int, windows: Mapping[str, Sequence[bottleneck.SlowWindow]]
) -> Iterator[RenderableType]:
    begin, end = (_clock(one, day=True) for one in between)
    yield paragraph(
        f"{begin} to {end}: {count_text(looks, 'look')} at disks of {count_text(len(windows), 'VM')}", "dim"
    )
    yield from _torn(torn)
    for vm, found in windows.items():
        if not found:
            yield paragraph(f"{vm}: nothing stood out", "bold")
        for one in found:
            worst, mean = one.worst, "none completed" if one.latency_ns is None else format_ns(one.latency_ns)
            yield paragraph(f"{worst.name}  {_clock(one.begin_seconds)} to {_clock(one.end_seconds)}", "bold")
            told = f"{mean} a request, usually {format_ns(one.usual_ns)}; worst {format_ns(worst.took_ns)} at"
            yield from paragraphs((f"{told} {_clock(worst.wall_seconds)}", *_reasons(worst)))


def moment_lines(found: Sequence[bottleneck.DiskLook], torn: int) -> Iterator[RenderableType]:
    yield from _torn(torn)
    for one in sorted(found, key=lambda one: -one.took_ns):
        rate = f"{format_count(one.iops)} IOPS, {format_bandwidth(one.bandwidth)}, {format_ns(one.took_ns)}"
        yield paragraph(f"{one.name}  {_clock(one.wall_seconds)}, {format_seconds(one.seconds)}: {rate}", "bold")
        yield from paragraphs(_reasons(one))


def _torn(torn: int) -> Iterator[RenderableType]:
    if torn:
        yield paragraph(f"{count_text(torn, 'record')} of the history is torn, and left out", "yellow")


def _clock(seconds: float, *, day: bool = False) -> str:
    return f"{datetime.fromtimestamp(seconds):{'%Y-%m-%d ' * day}%H:%M:%S}"
