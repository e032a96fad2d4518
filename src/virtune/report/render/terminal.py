# SPDX-License-Identifier: Apache-2.0
"""Lay out text and tables for the terminal's width, without cutting text or separating a number from its unit. rich
crops a table cell that is too narrow for its text, and breaks a line between a number and its unit.

A reader of a narrow terminal then loses an id, a value, or the end of an interval. This layout breaks only between
words, and a word that is longer than the line (a URL, a path) runs over its end.
"""

import io
import re
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass

from rich.cells import cell_len
from rich.console import Console, ConsoleOptions, RenderableType, RenderResult
from rich.text import Text

GAP = 2
"""Blanks between two columns."""

WORD_MAX = 40
"""A longer word does not widen its column: it is a URL or a path, and runs over the end."""

_INTERVAL = r"\[[^\[\]]{1,48}\]"
_UNIT = r"(?:%|ns|us|ms|s|min|h|B|KiB|MiB|GiB|TiB|[kMG]?B/s|IOPS|C|CPUs?|points)(?![\w/])"
_WORDS = r"`[^`]{1,70}`|seed \d+|--[a-z][\w-]* [^\s-]\S*"
_WHOLE = re.compile(rf"{_WORDS}|[-+~<>=]*\d[\d.,]*[kMG]? {_UNIT}(?: {_INTERVAL})?|{_INTERVAL}")
"""Text that is not broken: a command in backticks, a number with its unit, an estimate with its interval, an option.
"""

_TIGHT = re.compile(rf"[-+~<>=]*\d[\d.,]*[kMG]? {_UNIT}|{_INTERVAL}")
"""The same for lines that are too short for those: an interval may begin a line, and a command may be broken."""


def wrap(text: Text, width: int, *, first: int | None = None) -> list[Text]:
    """Break a text into lines of at most `width` cells, the first of at most `first`; a longer word stays whole."""
    lines: list[Text] = []
    for paragraph in text.split("\n", allow_blank=True):
        room = (width if first is None else first) if not lines else width
        lines += _broken(paragraph, max(1, room), max(1, width))
    return lines


def _broken(text: Text, first: int, width: int) -> list[Text]:
    plain = text.plain
    pieces = _pieces(plain, 0, len(plain), _WHOLE)
    fitting = [
        part
        for begin, end in pieces
        for part in ([(begin, end)] if cell_len(plain[begin:end]) <= width else _pieces(plain, begin, end, _TIGHT))
    ]
    if not fitting:
        return [Text("")]
    lines, begin, stop, room = [], 0, fitting[0][1], first
    for start, end in fitting[1:]:
        if cell_len(plain[begin:end]) > room:
            lines.append((begin, stop))
            begin, room = start, width
        stop = end
    lines.append((begin, stop))
    return [text[begin:end] for begin, end in lines]


def _pieces(plain: str, begin: int, end: int, whole: re.Pattern[str]) -> list[tuple[int, int]]:
    """Return the begin and end of each part between which a line may be broken."""
    kept = [match.span() for match in whole.finditer(plain, begin, end)]
    found, start = [], begin
    for blank in re.finditer(r"\s+", plain[begin:end]):
        left, right = blank.start() + begin, blank.end() + begin
        if any(low <= left < high for low, high in kept) or left == begin:
            continue  # an indentation at the begin belongs to the line
        found.append((start, left))
        start = right
    if start < end:
        found.append((start, end))
    return found


def _line(text: Text) -> Text:
    """Return a line that rich neither wraps nor crops, without blanks at its end."""
    text.rstrip()
    text.no_wrap, text.overflow = True, "ignore"
    return text


class Paragraph:
    """A text with an indentation; the lines after the first begin `hanging` further to the right."""

    def __init__(self, text: Text | str, *, indent: int = 0, hanging: int = 0) -> None:
        self.text = Text(text) if isinstance(text, str) else text
        self.indent, self.hanging = indent, hanging

    def __rich_console__(self, console: Console, options: ConsoleOptions) -> RenderResult:
        """Wrap it at the width there is."""
        later = self.indent + self.hanging
        room = options.max_width
        for number, line in enumerate(wrap(self.text, room - later, first=room - self.indent)):
            yield _line(Text(" " * (later if number else self.indent)).append_text(line))


@dataclass(frozen=True, slots=True, kw_only=True)
class Column:
    """A column of a table: its head, whether its cells may be wrapped (to no less than `least` cells)."""

    title: str
    wraps: bool = False
    right: bool = False
    least: int = 24


@dataclass(frozen=True, slots=True)
class Section:
    """A heading between rows."""

    title: Text


Row = Sequence[Text | str]


class Records:
    """Rows in columns; if these do not fit side by side, a paragraph for each row. No cell is ever cut.

    A column that is empty is left out. With `above` an empty line stands before the table.
    """

    def __init__(
        self,
        columns: Sequence[Column],
        rows: Sequence[Row | Section] = (),
        *,
        indent: int = 0,
        heads: bool = True,
        above: bool = False,
    ) -> None:
        self.columns, self.rows = list(columns), list(rows)
        self.indent, self.heads, self.above = indent, heads, above

    def add_row(self, *cells: Text | str) -> None:
        """Add a row with a cell for each column."""
        self.rows.append(cells)

    def fits(self, width: int) -> bool:
        """Whether its columns fit side by side."""
        return _Filled(self).widths(width - self.indent) is not None

    def __rich_console__(self, console: Console, options: ConsoleOptions) -> RenderResult:
        """Lay out the table if it fits, else the paragraphs."""
        if self.above and self.rows:
            yield Text("")
        filled = _Filled(self)
        widths = filled.widths(options.max_width - self.indent)
        yield from filled.paragraphs() if widths is None else filled.table(widths)


class FirstThatFits:
    """Of several ways to set the same, the first of which every table fits the width; the last one where none
    does.
    """

    def __init__(self, *ways: Sequence[Records]) -> None:
        self.ways = ways

    def __rich_console__(self, console: Console, options: ConsoleOptions) -> RenderResult:
        """Set that way's tables below one another."""
        width = options.max_width
        yield from next((way for way in self.ways if all(one.fits(width) for one in way)), self.ways[-1])


class _Filled:
    """A table without its empty columns, and its layout."""

    def __init__(self, of: Records) -> None:
        cells = [row for row in of.rows if not isinstance(row, Section)]
        used = [number for number in range(len(of.columns)) if any(len(row[number]) for row in cells)]
        self.columns = [of.columns[number] for number in used]
        self.rows = [row if isinstance(row, Section) else [_text(row[number]) for number in used] for row in of.rows]
        self.indent, self.heads = of.indent, of.heads

    def table(self, widths: Sequence[int]) -> Iterator[Text]:
        """Set the rows in columns of these widths."""
        if self.heads and any(column.title for column in self.columns):
            heads = [Text(column.title, style="bold") for column in self.columns]
            yield from self._row(heads, widths)
        for row in self.rows:
            if isinstance(row, Section):
                yield _line(row.title.copy())
            else:
                yield from self._row(row, widths)

    def widths(self, room: int) -> list[int] | None:
        """Return the width of each column; None where they do not fit side by side."""
        natural = [self._natural(number) for number in range(len(self.columns))]
        least = [
            min(wide, max(column.least, self._longest(number))) if column.wraps else wide
            for number, (wide, column) in enumerate(zip(natural, self.columns, strict=True))
        ]
        room -= GAP * (len(self.columns) - 1)
        spare = room - sum(least)
        if spare < 0:
            return None
        wants = [wide - little for wide, little in zip(natural, least, strict=True)]
        given = [want if sum(wants) <= spare else spare * want // sum(wants) for want in wants]
        return [little + more for little, more in zip(least, given, strict=True)]

    def _longest(self, number: int) -> int:
        """Return how wide the longest word of a column is; a very long one (a URL) runs over the column's end."""
        words = (word for cell in self._cells(number) for word in cell.split())
        return max((size for word in words if (size := cell_len(word)) <= WORD_MAX), default=0)

    def _cells(self, number: int) -> list[str]:
        rows = [row for row in self.rows if not isinstance(row, Section)]
        return [line for row in rows for line in row[number].plain.split("\n")]

    def _natural(self, number: int) -> int:
        cells = self._cells(number)
        return max((cell_len(cell) for cell in [*cells, self.columns[number].title if self.heads else ""]), default=0)

    def _row(self, cells: Sequence[Text], widths: Sequence[int]) -> Iterator[Text]:
        wrapped = [wrap(cell, width) for cell, width in zip(cells, widths, strict=True)]
        for number in range(max(map(len, wrapped), default=0)):
            line = Text(" " * self.indent)
            for column, lines, width in zip(self.columns, wrapped, widths, strict=True):
                part = lines[number] if number < len(lines) else Text("")
                blank = max(0, width - part.cell_len)
                line.append(" " * blank if column.right else "").append_text(part)
                line.append(" " * ((0 if column.right else blank) + GAP))
            yield _line(line)

    def paragraphs(self) -> Iterator[Paragraph | Text]:
        """Lay out each row as its first cell and a line below for each other; cells without a head join the first."""
        for row in self.rows:
            if isinstance(row, Section):
                yield _line(row.title.copy())
                continue
            first, *rest = zip(self.columns, row, strict=True)
            head = first[1].copy()
            for column, cell in rest:
                if not column.title and cell:
                    head = head.append("  " if head else "").append_text(cell)
            yield Paragraph(head, indent=self.indent, hanging=4)
            for column, cell in rest:
                if column.title and cell:
                    text = Text().append(f"{column.title}: ", style="dim").append_text(cell)
                    yield Paragraph(text, indent=self.indent + 2, hanging=2)


def set_at(width: int, *parts: RenderableType) -> str:
    """Return the layout at that width as text, without colour."""
    file = io.StringIO()
    console = Console(file=file, width=width, no_color=True, highlight=False, markup=False, emoji=False)
    console.print(*parts, sep="\n", crop=False)
    return "\n".join(line.rstrip() for line in file.getvalue().split("\n"))


def _text(cell: Text | str) -> Text:
    return Text(cell) if isinstance(cell, str) else cell


COLUMNS_MAX = 4
"""Arms beside the baseline: more are hard to read, however wide the terminal."""


class SideBySide:
    """A table of the baseline with as many other arms as fit, then one with the next arms; an empty table is left
    out.
    """

    def __init__(self, table: Callable[[Sequence[str]], Records], arms: Sequence[str]) -> None:
        self.table, self.arms = table, arms

    def __rich_console__(self, console: Console, options: ConsoleOptions) -> RenderResult:
        """Lay out as many arms as fit the width; one that does not fit is laid out as paragraphs."""
        start = 0
        while start < max(1, len(self.arms)):
            count = min(COLUMNS_MAX, len(self.arms) - start)
            while count > 1 and not self.table(self.arms[start : start + count]).fits(options.max_width):
                count -= 1
            table = self.table(self.arms[start : start + count])
            if table.rows:
                yield table
            start += max(1, count)
