# SPDX-License-Identifier: Apache-2.0
"""The screen of `virtune top` as lines: a session, a width and a height in, as many lines out."""

import itertools
from collections.abc import Iterator
from datetime import datetime

from rich.text import Text

from virtune.analyse.layers.frame import disk_series
from virtune.model.bottleneck import EMULATED_WORDS, DiskFrame, TopFrame, verdict_words
from virtune.model.live import RequestLayer
from virtune.model.text import format_bandwidth, format_count, format_ns, format_share, printable
from virtune.report.render.terminal import wrap
from virtune.report.top import LETTERS, head_line, legend, letter_of, row_line
from virtune.report.words import count_text
from virtune.tui.session import KEYS, TopSession

SERIES = 60
"""Samples in the series of a disk."""

_LEVELS, _PLAIN_LEVELS = " ▁▂▃▄▅▆▇█", " ._-=+*%#"

_FEET = (
    "q quit  ? help  Enter disk  left/right sort  r reverse  / filter  1-4 views",
    "q quit  ? help  Esc back  space pause  t T in time",
)


def screen(session: TopSession, width: int, height: int) -> list[Text]:
    """Return what is shown, exactly `height` lines of at most `width` cells."""
    found = session.frame()
    if session.help:
        body = list(_help(found, width))
    elif found is None:
        body = [Text(" waiting for a second sample" if session.samples else " waiting for the first sample")]
    elif session.disk is not None:
        body = list(_disk(session, width))
    else:
        body = _table(session, found, width, height - 2)
    lines = [_head(session, found), *body[: height - 2]]
    lines += [Text("")] * (height - 1 - len(lines))
    for line in (*lines, foot := _foot(session)):
        line.truncate(width, overflow="crop")
    return [*lines, foot]


def _head(session: TopSession, found: TopFrame | None) -> Text:
    """The first line: what is watched, when, and how it is shown."""
    line = Text("virtune top", style="bold")
    if found is None:
        return line
    when = datetime.fromtimestamp(found.wall_seconds, tz=session.zone)
    line.append(f"  {count_text(len(found.vms), 'VM')}, {count_text(len(found.disks), 'disk')}", style="not bold")
    line.append(f"  {when:%H:%M:%S}", style="not bold")
    words = f"  mean over {found.seconds:.0f} s" if session.accumulated else f"  over {found.seconds:.1f} s"
    line.append(words, style="not bold")
    if session.replay:
        line.append(f"  sample {session.position + 1} of {len(session.samples)}", style="not bold yellow")
    if session.paused:
        line.append("  PAUSED", style="bold yellow")
    if session.active:
        line.append("  active only", style="not bold")
    if session.words or session.typing:
        line.append(f"  /{printable(session.words)}{'_' if session.typing else ''}", style="bold")
    return line


def _foot(session: TopSession) -> Text:
    if session.typing:
        return Text(" type words of the name, Enter keeps them, Esc clears", style="dim")
    if session.help:
        return Text(" any key returns", style="dim")
    return Text(f" {_FEET[session.disk is not None]}", style="dim")


def _table(session: TopSession, found: TopFrame, width: int, height: int) -> list[Text]:
    """A table with as many rows as there is room for, those around the cursor."""
    above = list(_host(found, width)) if session.kind == "host" else []
    shown = session.table()
    room = max(1, height - len(above) - 1)
    place = session.index(shown)
    session.first_row = max(min(session.first_row, place), place - room + 1)
    session.first_row = max(0, min(session.first_row, len(shown.rows) - room))
    visible = shown.rows[session.first_row : session.first_row + room]
    lines = [*above, head_line(shown, width)]
    lines += [
        row_line(shown, row, width, marked=number == place) for number, row in enumerate(visible, session.first_row)
    ]
    if not shown.rows:
        words = " nothing passes the filter" if session.words or session.active else " nothing to show"
        lines.append(Text(words if found.vms else " no VM runs here", style="dim"))
    return lines


def _host(found: TopFrame, width: int) -> Iterator[Text]:
    """The host's CPUs and pressure."""
    cpu, bar = found.host.cpu, max(10, width - 34)
    parts = () if cpu is None else (
        ("usr", cpu.user_percent, "green"), ("sys", cpu.system_percent, "red"),
        ("iowait", cpu.iowait_percent, "yellow"), ("steal", cpu.steal_percent, "magenta"),
    )  # fmt: skip
    for name, percent, style in parts:
        cells = round(min(100.0, percent) / 100 * bar)
        yield Text(f" CPU {name:<7}{format_share(percent / 100):>6} ").append("#" * cells, style=style)
    said = [] if found.host.load_1min is None else [f"load {found.host.load_1min:.1f}"]
    if found.host.foreign_cpus is not None:
        said.append(f"others than these VMs use {found.host.foreign_cpus:.1f} CPUs")
    said += [
        f"{one.resource} pressure {format_share(one.some_percent / 100)}"
        for one in found.host.pressure
        if one.some_percent is not None
    ]
    yield from wrap(Text(f" {', '.join(said)}"), width)
    yield Text("")


def _disk(session: TopSession, width: int) -> Iterator[Text]:
    """One disk: its figures, what limits it, where its time goes, its threads, its last minute."""
    row = session.row()
    name = ":".join(session.disk or ())
    if row is None:
        yield Text(f" {printable(name)} is not there any more", style="yellow")
        return
    path, split = row.path, row.rates
    latency = "no latency" if row.latency_ns is None else format_ns(row.latency_ns)
    title = Text(f" {printable(name)}", style="bold")
    title.append(
        f"  {format_count(path.iops)} IOPS ({format_count(split.reads / split.seconds)} reads),"
        f" {format_bandwidth(path.bandwidth)}, {latency}, {row.in_flight:.2f} in flight", style="not bold",
    )  # fmt: skip
    yield title
    kinds = [one for one in path.operations if one.mean_ns is not None]
    told = [f"{one.words} {format_count(one.iops)}/s {format_ns(one.mean_ns or 0.0)}" for one in kinds]
    yield from wrap(Text(f"   {', '.join(told)}"), width) if told[1:] else ()
    if path.emulated:
        yield from wrap(Text(f" {EMULATED_WORDS}", style="yellow"), width)
    yield from wrap(Text(f" {verdict_words(row.found.cause)}", "bold"), width)
    for line in (*row.found.evidence, f"next: {row.found.experiment}"):
        yield from (Text("   ").append_text(part) for part in wrap(Text(line), width - 3))
    if path.layers is not None:
        yield Text(" where the time of a request goes", style="bold")
        yield from _waterfall(path.layers.layers, width)
    yield from _series(session, width)
    yield from _threads(row)


def _waterfall(layers: tuple[RequestLayer, ...], width: int) -> Iterator[Text]:
    """Each layer as a bar that begins where the one above it ends."""
    room = max(10, width - 57)
    reached = 0.0
    for one in layers:
        begin, reached = reached, reached + one.share
        letter = letter_of(one)
        label = one.label if len(one.label) <= 37 else LETTERS[letter][0]
        text = Text(f"   {label:<37} {format_ns(one.mean_ns):>7} {format_share(one.share):>5} ")
        left, right = round(begin * room), max(round(begin * room) + 1, round(reached * room))
        yield text.append(" " * min(left, room - 1)).append(letter * (right - left), style=LETTERS[letter][1])


def _threads(row: DiskFrame) -> Iterator[Text]:
    """The threads that carry its I/O, the busiest first."""
    busy = sorted((one for one in row.path.threads if one.busy >= 0.005), key=lambda one: -one.busy)[:4]
    if busy:
        yield Text(" threads: CPU, and waiting for one", style="bold")
    for one in busy:
        yield Text(
            f"   {printable(one.name):<15} {one.role:<8} {format_share(one.busy):>5} {format_share(one.stalled):>5}"
        )


def _series(session: TopSession, width: int) -> Iterator[Text]:
    """The last samples as small curves, each scaled to its own greatest value."""
    vm, disk = session.disk or ("", "")
    values = disk_series(session.recent(min(SERIES, width - 30) + 1), vm, disk)
    if len(values) < 2:
        return
    yield Text(f" its last {count_text(len(values), 'sample')}", style="bold")
    levels = _PLAIN_LEVELS if session.plain else _LEVELS
    for number, (title, write) in enumerate(
        (
            ("IOPS", format_count),
            ("bandwidth", format_bandwidth),
            ("latency", format_ns),
            ("in flight", "{:.2f}".format),
        )
    ):
        row = [one[number] for one in values]
        most = max(row)
        curve = "".join(levels[0 if one <= 0 or most <= 0 else max(1, round(one / most * 8))] for one in row)
        yield Text(f"   {title:<10} ").append(curve, style="cyan").append(f" {write(row[-1])}, most {write(most)}")


def _help(found: TopFrame | None, width: int) -> Iterator[Text]:
    """The keys, the letters of the bar, and what cannot be seen."""
    half = (len(KEYS) + 1) // 2
    for left, right in itertools.zip_longest(KEYS[:half], KEYS[half:], fillvalue=("", "")):
        line = Text()
        for keys, words in (left, right):
            line.append(f" {keys:<10} ", style="bold").append(f"{words:<28}", style="not bold")
        yield line
    yield Text("")
    yield from wrap(Text(" bar: ").append_text(legend()), width)
    yield from wrap(Text(" CPU/IO: QEMU's CPU time for each I/O, vCPUs not included; FLY: I/Os in flight"), width)
    yield from wrap(Text(" CAP: how much of its limit a disk uses; (TCG): a VM without KVM"), width)
    for words in () if found is None else found.missing:
        yield from wrap(Text(f" not seen: {words}", style="yellow"), width)
