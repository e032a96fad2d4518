# SPDX-License-Identifier: Apache-2.0
"""What a page has of a built-in study: its own table and words, as in the terminal, and its authors' figures."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace

from rich.console import RenderableType
from rich.text import Text

from virtune.model.published import PublishedStudy
from virtune.model.result import Result
from virtune.report.html.table import Table
from virtune.report.text.builtin.studies import ending
from virtune.report.text.columns import SideBySide
from virtune.report.text.layout import Paragraph, Records, Section


@dataclass(frozen=True, slots=True, kw_only=True)
class Block:
    """A piece of it: a heading, then a table, then lines; each may be absent."""

    heading: str = ""
    table: Table | None = None
    lines: tuple[str, ...] = ()


def study_part(result: Result, published: PublishedStudy | None = None, facts: str = "") -> tuple[Block, ...]:
    """Return the blocks of a built-in study; none for other studies."""
    return tuple(_blocks(ending(result, published, facts), f"study {result.study.builtin}"))


def _blocks(parts: Sequence[RenderableType], name: str) -> Iterator[Block]:
    """A text alone stands above what follows: a heading where it begins a line of its own, else a table's caption."""
    caption, block = name, Block()
    for part in parts:
        if isinstance(part, Text):
            if part.plain.startswith("\n"):
                if block != Block():
                    yield block
                block = Block(heading=part.plain.strip())
                caption = block.heading
            else:
                caption = part.plain
        elif isinstance(part, Paragraph):
            block = replace(block, lines=(*block.lines, part.text.plain))
        elif isinstance(part, Records | SideBySide):
            records = part if isinstance(part, Records) else part.table(part.arms)
            if block.table is not None or block.lines:
                yield block
                block = Block()
            block = replace(block, table=_table(records, caption))
    if block != Block():
        yield block


def _table(records: Records, caption: str) -> Table:
    rows = [[_plain(cell) for cell in row] for row in records.rows if not isinstance(row, Section)]
    filled = [place for place in range(len(records.columns)) if any(row[place] for row in rows)]
    return Table(
        caption=caption,
        columns=tuple(records.columns[place].title for place in filled),
        rows=tuple(tuple(row[place] for place in filled) for row in rows),
    )


def _plain(cell: Text | str) -> str:
    return cell.plain if isinstance(cell, Text) else cell
