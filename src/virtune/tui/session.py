# SPDX-License-Identifier: Apache-2.0
"""The state of `virtune top`'s screen: which table, which row, which moment; keys change it, and it has no clock."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from datetime import tzinfo

from virtune.analyse.layers.frame import frame
from virtune.model.bottleneck import DiskFrame, TopFrame
from virtune.model.live import LiveSample
from virtune.report.top import (
    SORT_FIRST,
    TABLE_KINDS,
    UNITS,
    Row,
    TableKind,
    TopTable,
    name_of_row,
    rows_of,
    table,
)

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
"""Every key with what it does, for the help."""


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
    kind: TableKind = "disks"
    sorts: dict[TableKind, int] = field(default_factory=lambda: dict(SORT_FIRST))
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

    def table(self) -> TopTable:
        """Return the table that is shown, whole."""
        found = self.frame()
        rows: tuple[Row, ...] = () if found is None else rows_of(self.kind, found)
        if self.kind == "disks" and found is not None:
            rows = (*rows, *self._gone())
        return table(
            self.kind, rows, sort=self.sorts[self.kind], reverse=self.reverse, units=UNITS[self.units],
            words=self.words, active=self.active,
        )  # fmt: skip

    def index(self, shown: TopTable) -> int:
        """Return the row that the cursor is on: it stays on its disk when the order changes."""
        names = [name_of_row(one) for one in shown.rows]
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
            self.cursor = name_of_row(shown.rows[place])

    def _sort(self, column: int) -> None:
        self.sorts[self.kind] = column % len(self.table().columns)

    def sort_beside(self, by: int) -> None:
        """Sort by the column so many to the right."""
        if self.disk is None:
            self._sort(self.sorts[self.kind] + by)

    def enter(self) -> None:
        """Look into the disk under the cursor."""
        shown = self.table()
        if self.disk is None and self.kind == "disks" and shown.rows:
            row = shown.rows[self.index(shown)]
            self.cursor, self.disk = name_of_row(row), (row.vm, row.disk)

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
    session.units = (session.units + 1) % len(UNITS)


_KINDS: Mapping[str, TableKind] = {str(number): kind for number, kind in enumerate(TABLE_KINDS, 1)}

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
