# SPDX-License-Identifier: Apache-2.0
"""The screen of `virtune top`: its state, which keys change and which has no clock, and its lines for a size."""

import itertools
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from datetime import datetime, tzinfo

from rich.text import Text

from virtune.analyse.layers.path import disk_series, frame
from virtune.model.bottleneck import EMULATED_WORDS, DiskFrame, TopFrame
from virtune.model.live import LiveSample, RequestLayer
from virtune.model.text import format_bandwidth, format_count, format_ns, format_share, printable
from virtune.report import top
from virtune.report.render.terminal import wrap
from virtune.report.words import count_text

KEPT = 300
"""Live samples that can be gone back to, and the length of the series of a disk."""

GONE_SAMPLES = 5
"""For so many samples a disk that was unplugged stays in the table, marked as gone."""

JUMP = 60
"""Samples that a jump in time skips."""

INTERVALS = (0.2, 0.5, 1.0, 2.0, 5.0, 10.0, 30.0, 60.0)
"""The intervals that `+` and `-` step through, in seconds."""

KEYS: tuple[tuple[str, str], ...] = (
    ("q", "quit"),
    ("? h", "this help"),
    ("1 2 3 4", "disks, VMs, threads, host"),
    ("up down", "move; PgUp PgDn Home End too"),
    ("Enter Esc", "look into a disk, and back"),
    ("left right", "sort by the column beside"),
    ("A to Z", "sort by the underlined letter"),
    ("r", "reverse the order"),
    ("/", "filter by words; Esc clears"),
    ("o", "only what is active"),
    ("b", "both, requests, or bytes"),
    ("a", "means since the begin"),
    ("space", "pause; play a recording"),
    ("+ -", "longer, shorter interval"),
    ("t T", "the next, previous sample"),
    ("j J", f"{JUMP} samples on, or back"),
    (":", "list of commands"),
)


@dataclass(slots=True, kw_only=True)
class TopSession:
    """What the screen shows. `samples` are those that can be gone to, `position` the one that is shown; a live
    session follows the last one unless it is paused. `zone` is that of the times, None for this host's.
    """

    samples: Sequence[LiveSample]
    position: int = 0
    replay: bool = False
    interval: float = 1.0
    paused: bool = False
    kind: top.TableKind = "disks"
    sorts: dict[top.TableKind, int] = field(default_factory=lambda: dict(top.SORT_FIRST))
    reverse: bool = False
    units: int = 0
    words: str = ""
    typing: bool = False
    active: bool = False
    accumulated: bool = False
    cursor: str = ""
    first_row: int = 0
    disk: tuple[str, str] | None = None
    help: bool = False
    quit: bool = False
    first: LiveSample | None = None
    zone: tzinfo | None = None
    plain: bool = False
    _frames: dict[tuple[int, int, bool], TopFrame | None] = field(default_factory=dict)

    def push(self, sample: LiveSample) -> None:
        """Add a live sample; raises TypeError for a recording, which has all of its own."""
        if not isinstance(self.samples, list):
            raise TypeError("a recording takes no samples")
        self.first = self.first or sample
        self.samples.append(sample)
        over = len(self.samples) - KEPT
        if over > 0:
            del self.samples[:over]
        self.position = max(0, self.position - max(0, over)) if self.paused else len(self.samples) - 1

    def frame(self) -> TopFrame | None:
        """Return what is shown: the interval that ends at the position, or all since the begin."""
        if not self.samples or self.position >= len(self.samples):
            return None
        now = self.samples[self.position]
        key = (self.position, now.host.t_ns, self.accumulated)
        if key not in self._frames:
            begin = self.first or self.samples[0]
            before = begin if self.accumulated or self.position == 0 else self.samples[self.position - 1]
            self._frames = {key: frame(before, now)}
        return self._frames[key]

    def table(self) -> top.TopTable:
        found = self.frame()
        rows: tuple[top.Row, ...] = () if found is None else top.rows_of(self.kind, found)
        if self.kind == "disks" and found is not None:
            rows = (*rows, *self._gone())
        return top.table(
            self.kind, rows, sort=self.sorts[self.kind], reverse=self.reverse, units=top.UNITS[self.units],
            words=self.words, active=self.active,
        )  # fmt: skip

    def index(self, shown: top.TopTable) -> int:
        """Return the row that the cursor is on: it stays on its disk when the order changes."""
        names = [top.name_of_row(one) for one in shown.rows]
        return names.index(self.cursor) if self.cursor in names else 0

    def row(self) -> DiskFrame | None:
        """Return the disk that is looked into; None when it is not there any more."""
        found = self.frame()
        disks = () if found is None else found.disks
        return next((one for one in disks if (one.vm, one.disk) == self.disk), None)

    def recent(self, count: int) -> Sequence[LiveSample]:
        """Return the samples up to the one that is shown, at most so many."""
        return self.samples[max(0, self.position - count + 1) : self.position + 1]

    def press(self, key: str) -> None:
        """Take a key: a character, or the name of one that has none (`up`, `enter`, `escape`)."""
        if self.typing:
            self._type(key)
        elif self.help:
            self.help, self.quit = False, key == "q"
        elif (action := _ACTIONS.get(key)) is not None:
            action(self)
        elif key in _KINDS:
            self.kind, self.disk, self.cursor, self.first_row = _KINDS[key], None, "", 0
        elif key in _MOVES and self.disk is None:
            self._move(_MOVES[key])
        elif self.disk is None:
            letters = [one.letter for one in self.table().columns]
            if key in letters:
                self._sort(letters.index(key))

    def step(self, samples: int) -> None:
        """Go on or back in time. A live session is paused by that; at its end it follows again."""
        last = max(0, len(self.samples) - 1)
        self.position = min(last, max(min(1, last), self.position + samples))
        if not self.replay:
            self.paused = self.position < last

    def _gone(self) -> list[DiskFrame]:
        """Return disks that were there a few samples ago and are not now, with their last figures."""
        found: dict[tuple[str, str], DiskFrame] = {}
        here = _disks_of(self.samples[self.position])
        for back in range(1, min(GONE_SAMPLES, self.position - 1) + 1):
            place = self.position - back
            lost = _disks_of(self.samples[place]) - here - found.keys()
            last = frame(self.samples[place - 1], self.samples[place]) if lost else None
            for one in () if last is None else last.disks:
                if (one.vm, one.disk) in lost:
                    found[one.vm, one.disk] = replace(one, gone=True)
        return list(found.values())

    def _type(self, key: str) -> None:
        match key:
            case "enter":
                self.typing = False
            case "escape":
                self.typing, self.words = False, ""
            case "backspace":
                self.words = self.words[:-1]
            case "space":
                self.words += " "
            case _ if len(key) == 1:
                self.words += key

    def _move(self, rows: int) -> None:
        shown = self.table()
        if shown.rows:
            place = min(len(shown.rows) - 1, max(0, self.index(shown) + rows))
            self.cursor = top.name_of_row(shown.rows[place])

    def _sort(self, column: int) -> None:
        self.sorts[self.kind] = column % len(self.table().columns)

    def sort_beside(self, by: int) -> None:
        if self.disk is None:
            self._sort(self.sorts[self.kind] + by)

    def enter(self) -> None:
        shown = self.table()
        if self.disk is None and self.kind == "disks" and shown.rows:
            row = shown.rows[self.index(shown)]
            self.cursor, self.disk = top.name_of_row(row), (row.vm, row.disk)

    def escape(self) -> None:
        """Return from a disk; clear the filter where there is nothing to return from."""
        if self.disk is not None:
            self.disk = None
        else:
            self.words = ""

    def pause(self) -> None:
        """Pause or go on; a live session then shows the last sample."""
        self.paused = not self.paused
        if not self.paused and not self.replay:
            self.position = max(0, len(self.samples) - 1)

    def longer(self, by: int) -> None:
        """Choose the next longer interval, or with -1 the next shorter."""
        if by > 0:
            self.interval = next((one for one in INTERVALS if one > self.interval), INTERVALS[-1])
        else:
            self.interval = next((one for one in reversed(INTERVALS) if one < self.interval), INTERVALS[0])


def _disks_of(sample: LiveSample) -> set[tuple[str, str]]:
    return {
        (vm.name, disk.target)
        for vm in sample.vms
        for disk in vm.disks
        if disk.target in sample.counts.get(vm.name, {})
    }


def _toggle(name: str) -> Callable[[TopSession], None]:
    def turn(session: TopSession) -> None:
        setattr(session, name, not getattr(session, name))

    return turn


def _next_units(session: TopSession) -> None:
    session.units = (session.units + 1) % len(top.UNITS)


_KINDS: Mapping[str, top.TableKind] = {str(number): kind for number, kind in enumerate(top.TABLE_KINDS, 1)}

_MOVES: Mapping[str, int] = {
    "up": -1, "down": 1, "pageup": -15, "pagedown": 15, "home": -(10**9), "end": 10**9,
}  # fmt: skip

_ACTIONS: Mapping[str, Callable[[TopSession], None]] = {
    "q": _toggle("quit"),
    "?": _toggle("help"),
    "h": _toggle("help"),
    "r": _toggle("reverse"),
    "/": _toggle("typing"),
    "o": _toggle("active"),
    "a": _toggle("accumulated"),
    "b": _next_units,
    "space": TopSession.pause,
    "enter": TopSession.enter,
    "escape": TopSession.escape,
    "left": lambda session: session.sort_beside(-1),
    "right": lambda session: session.sort_beside(1),
    "+": lambda session: session.longer(1),
    "-": lambda session: session.longer(-1),
    "t": lambda session: session.step(1),
    "T": lambda session: session.step(-1),
    "j": lambda session: session.step(JUMP),
    "J": lambda session: session.step(-JUMP),
}
"""What each key does that is no move and no table."""

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
    lines = [*above, top.head_line(shown, width)]
    lines += [
        top.row_line(shown, row, width, marked=number == place)
        for number, row in enumerate(visible, session.first_row)
    ]
    if not shown.rows:
        words = " nothing passes the filter" if session.words or session.active else " nothing to show"
        lines.append(Text(words if found.vms else " no VM runs here", style="dim"))
    return lines


def _host(found: TopFrame, width: int) -> Iterator[Text]:
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
    yield from wrap(Text(f" {row.found.claim}", "bold"), width)
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
        letter = top.letter_of(one)
        label = one.label if len(one.label) <= 37 else top.LETTERS[letter][0]
        text = Text(f"   {label:<37} {format_ns(one.mean_ns):>7} {format_share(one.share):>5} ")
        left, right = round(begin * room), max(round(begin * room) + 1, round(reached * room))
        yield text.append(" " * min(left, room - 1)).append(letter * (right - left), style=top.LETTERS[letter][1])


def _threads(row: DiskFrame) -> Iterator[Text]:
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
    half = (len(KEYS) + 1) // 2
    for left, right in itertools.zip_longest(KEYS[:half], KEYS[half:], fillvalue=("", "")):
        line = Text()
        for keys, words in (left, right):
            line.append(f" {keys:<10} ", style="bold").append(f"{words:<28}", style="not bold")
        yield line
    yield Text("")
    yield from wrap(Text(" bar: ").append_text(top.legend()), width)
    yield from wrap(Text(" CPU/IO: QEMU's CPU time for each I/O, vCPUs not included; FLY: I/Os in flight"), width)
    yield from wrap(Text(" CAP: how much of its limit a disk uses; (TCG): a VM without KVM"), width)
    for words in () if found is None else found.missing:
        yield from wrap(Text(f" not seen: {words}", style="yellow"), width)
