# SPDX-License-Identifier: Apache-2.0
"""A table of a page, as plain values."""

from collections.abc import Sequence
from dataclasses import dataclass


@dataclass(frozen=True, slots=True, kw_only=True)
class Table:
    """A table: a caption, the heads of its columns (the first names the rows), its rows as text, and below them what
    they show.
    """

    caption: str
    columns: tuple[str, ...]
    rows: tuple[tuple[str, ...], ...]
    notes: tuple[str, ...] = ()

    @property
    def kinds(self) -> tuple[str, ...]:
        """How each column is set: figures, words that need room, or short texts that stay on a line; else empty."""
        return tuple(_kind([row[place] for row in self.rows]) for place in range(len(self.columns)))


_SHORT, _LONG = 32, 40
"""Characters of a text that stays on its line, and of one whose column needs room."""


def _kind(cells: Sequence[str]) -> str:
    longest = max(map(len, cells), default=0)
    if longest > _LONG:
        return "words"
    if all(cell[:1] in "0123456789+-~>" for cell in cells):  # an empty one too
        return "number"
    return "short" if longest <= _SHORT else ""
