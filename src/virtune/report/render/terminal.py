# SPDX-License-Identifier: Apache-2.0
"""Lay out text and tables for the terminal's width, without cutting text or separating a number from its unit. rich
crops a table cell that is too narrow for its text, and breaks a line between a number and its unit.

A reader of a narrow terminal then loses an id, a value, or the end of an interval. This layout breaks only between
words, and a word that is longer than the line (a URL, a path) runs over its end.
"""

import io
import re
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass

from rich.cells import cell_len
from rich.console import Console, ConsoleOptions, RenderableType, RenderResult
from rich.text import Text

from virtune.model.remark import Remark, Weight

GAP = 2

WEIGHT_STYLE = {Weight.INVALID: "bold red", Weight.WARNING: "yellow", Weight.NOTE: "cyan"}
"""How the word before a remark is set."""

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


def unbroken(text: Text) -> Text:
    """Return a line that rich neither wraps nor crops, without blanks at its end."""
    text.rstrip()
    text.no_wrap, text.overflow = True, "ignore"
    return text


class Paragraph:
    """A text with an indentation; the lines after the first begin `hanging` further to the right."""

    def __init__(self, text: Text | str, *, indent: int = 0, hanging: int = 0) -> None:
        self.text, self.indent, self.hanging = _text(text), indent, hanging

    def __rich_console__(self, console: Console, options: ConsoleOptions) -> RenderResult:
        later = self.indent + self.hanging
        room = options.max_width
        for number, line in enumerate(wrap(self.text, room - later, first=room - self.indent)):
            yield unbroken(Text(" " * (later if number else self.indent)).append_text(line))


def paragraph(text: Text | str, style: str = "", *, indent: int = 0) -> Paragraph:
    """Return a text whose further lines begin two blanks to the right."""
    return Paragraph(Text(text, style=style) if isinstance(text, str) else text, indent=indent, hanging=2)


def paragraphs(texts: Iterable[Text | str], style: str = "", *, indent: int = 2) -> list[RenderableType]:
    """Return several of them, below a heading."""
    return [paragraph(text, style, indent=indent) for text in texts]


def heading(text: str, beside: Text | str = "") -> Text:
    """Return a heading with an empty line above it; `beside` stands behind it."""
    return Text(f"\n{text}", style="bold").append(beside)


def section(title: str, texts: Iterable[Text | str]) -> list[RenderableType]:
    found = paragraphs(texts)
    return [heading(title), *found] if found else []


def pasted(text: str) -> Text:
    """Return a command in one line, however narrow the terminal, so that it can be pasted."""
    return Text(f"  {text}", no_wrap=True, overflow="ignore")


@dataclass(frozen=True, slots=True, kw_only=True)
class Column:
    """A column of a table: its head, whether its cells may be wrapped (to no less than `least` cells)."""

    title: str
    wraps: bool = False
    right: bool = False
    least: int = 24


def right(*titles: str) -> list[Column]:
    """Return columns of figures."""
    return [Column(title=title, right=True) for title in titles]


def wide(*titles: str, least: int = 24) -> list[Column]:
    """Return columns of words that may be wrapped."""
    return [Column(title=title, wraps=True, least=least) for title in titles]


@dataclass(frozen=True, slots=True)
class Section:
    """A heading between rows."""

    title: Text


Row = Sequence[Text | str]

_SHORT, _LONG = 32, 40
"""Characters of a text that stays on its line in HTML, and of one whose column needs room."""


class Table:
    """Rows in columns, the same for all outputs. A terminal on which they do not fit side by side has a paragraph for
    each row, and a column that is empty is left out; no cell is ever cut.

    HTML has the `caption` above and the `notes` below. With `above` an empty line stands before the table.
    """

    def __init__(
        self,
        columns: Iterable[Column | str],
        rows: Iterable[Row | Section] = (),
        *,
        caption: str = "",
        notes: Iterable[str] = (),
        indent: int = 0,
        gap: int = GAP,
        heads: bool = True,
        above: bool = False,
    ) -> None:
        self.columns = [Column(title=one) if isinstance(one, str) else one for one in columns]
        self.rows, self.caption, self.notes = list(rows), caption, tuple(notes)
        self.indent, self.gap, self.heads, self.above = indent, gap, heads, above

    def add_row(self, *cells: Text | str) -> None:
        self.rows.append(cells)

    @property
    def titles(self) -> tuple[str, ...]:
        """The heads of its columns; the first one names the rows."""
        return tuple(column.title for column in self.columns)

    @property
    def cells(self) -> tuple[tuple[str, ...], ...]:
        """Its rows as text, without the headings between them."""
        rows = (row for row in self.rows if not isinstance(row, Section))
        return tuple(tuple(str(cell) for cell in row) for row in rows)

    @property
    def kinds(self) -> tuple[str, ...]:
        """How HTML sets each column: figures, words that need room, short texts that stay on a line, or anyhow."""
        return tuple(_kind(column) for column in zip(*self.cells, strict=True)) or ("number",) * len(self.columns)

    def filled(self) -> "Table":
        cells = self.cells
        return self.only(*(number for number in range(len(self.columns)) if any(row[number] for row in cells)))

    def only(self, *numbers: int) -> "Table":
        rows = [row if isinstance(row, Section) else [row[number] for number in numbers] for row in self.rows]
        columns = [self.columns[number] for number in numbers]
        found = Table(columns, rows, caption=self.caption, notes=self.notes)
        found.indent, found.gap, found.heads = self.indent, self.gap, self.heads
        return found

    def fits(self, width: int) -> bool:
        return self.filled().widths(width - self.indent) is not None

    def __rich_console__(self, console: Console, options: ConsoleOptions) -> RenderResult:
        if self.above and self.rows:
            yield Text("")
        table = self.filled()
        widths = table.widths(options.max_width - self.indent)
        heads = [Text(title, style="bold") for title in table.titles]
        if widths is not None and self.heads and any(heads):
            yield from table.side_by_side(heads, widths)
        for row in table.rows:
            if isinstance(row, Section):
                yield unbroken(row.title.copy())
            elif widths is None:
                yield from table.below_one_another(row)
            else:
                yield from table.side_by_side(row, widths)

    def widths(self, room: int) -> list[int] | None:
        """Return the width of each column; None where they do not fit side by side."""
        columns = [[line for cell in column for line in cell.split("\n")] for column in zip(*self.cells, strict=True)]
        heads = self.titles if self.heads else [""] * len(columns)
        every = ((*head.split("\n"), *cells) for head, cells in zip(heads, columns, strict=True))
        natural = [max(map(cell_len, lines)) for lines in every]
        least = [
            min(wide, max(column.least, _longest(cells))) if column.wraps else wide
            for column, cells, wide in zip(self.columns, columns, natural, strict=True)
        ]
        spare = room - self.gap * (len(self.columns) - 1) - sum(least)
        if spare < 0:
            return None
        wants = [wide - little for wide, little in zip(natural, least, strict=True)]
        given = [want if sum(wants) <= spare else spare * want // sum(wants) for want in wants]
        return [little + more for little, more in zip(least, given, strict=True)]

    def side_by_side(self, row: Row, widths: Sequence[int]) -> Iterator[Text]:
        wrapped = [wrap(_text(cell), width) for cell, width in zip(row, widths, strict=True)]
        for number in range(max(map(len, wrapped), default=0)):
            line = Text(" " * self.indent)
            for column, parts, width in zip(self.columns, wrapped, widths, strict=True):
                part = parts[number] if number < len(parts) else Text("")
                blank = max(0, width - part.cell_len)
                line.append(" " * blank if column.right else "").append_text(part)
                line.append(" " * ((0 if column.right else blank) + self.gap))
            yield unbroken(line)

    def below_one_another(self, row: Row) -> Iterator[Paragraph]:
        """Lay out a row as its first cell and a line below for each other; cells without a head join the first."""
        first, *rest = zip(self.titles, map(_text, row), strict=True)
        head = first[1].copy()
        for title, cell in rest:
            if not title and cell:
                head = head.append("  " if head else "").append_text(cell)
        yield Paragraph(head, indent=self.indent, hanging=4)
        for title, cell in rest:
            if title and cell:
                yield paragraph(Text().append(f"{title}: ", style="dim").append_text(cell), indent=self.indent + 2)


def _kind(cells: Sequence[str]) -> str:
    longest = max(map(len, cells), default=0)
    if longest > _LONG:
        return "words"
    if all(cell[:1] in "0123456789+-~>" for cell in cells):  # an empty one too
        return "number"
    return "short" if longest <= _SHORT else ""


def _longest(cells: Sequence[str]) -> int:
    """Return how wide the longest word of a column is; a very long one (a URL) runs over the column's end."""
    words = (word for cell in cells for word in cell.split())
    return max((size for word in words if (size := cell_len(word)) <= WORD_MAX), default=0)


def remarks_table(remarks: Iterable[Remark]) -> Table:
    """Return a row for each remark: its word, its text, and its advice below."""
    table = Table(["", *wide("", least=30)], indent=2)
    for remark in remarks:
        text = Text(remark.text).append(f"\nadvice: {remark.advice}" if remark.advice else "", style="dim")
        table.add_row(Text(remark.weight.value, style=WEIGHT_STYLE[remark.weight]), text)
    return table


class FirstThatFits:
    """Of several ways to set the same, the first of which every table fits the width; the last one where none
    does.
    """

    def __init__(self, *ways: Sequence[Table]) -> None:
        self.ways = ways

    def __rich_console__(self, console: Console, options: ConsoleOptions) -> RenderResult:
        width = options.max_width
        yield from next((way for way in self.ways if all(one.fits(width) for one in way)), self.ways[-1])


def height_of(console: Console, options: ConsoleOptions) -> Callable[[Sequence[RenderableType]], int]:
    """Return what counts the lines that some parts take on a terminal."""
    return lambda parts: sum(len(console.render_lines(part, options, pad=False)) for part in parts)


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

    def __init__(self, table: Callable[[Sequence[str]], Table], arms: Sequence[str]) -> None:
        self.table, self.arms = table, arms

    def __rich_console__(self, console: Console, options: ConsoleOptions) -> RenderResult:
        start = 0
        while start < max(1, len(self.arms)):
            count = min(COLUMNS_MAX, len(self.arms) - start)
            while count > 1 and not self.table(self.arms[start : start + count]).fits(options.max_width):
                count -= 1
            table = self.table(self.arms[start : start + count])
            if table.rows:
                yield table
            start += max(1, count)
