# SPDX-License-Identifier: Apache-2.0
"""A search as GitHub's Markdown: its result, its arms, and the winner's configuration lines."""

from collections.abc import Iterator, Sequence

from virtune.model.tuning import Tuning
from virtune.report.markdown import code, heading, items
from virtune.report.reproduce import tune_again
from virtune.report.text.layout import set_at
from virtune.report.text.search.tune import answer_lines, headline, sections
from virtune.report.text.search.tune_arms import arms_table

COLUMNS = 110
"""The width of the table of arms: wide enough for names of three settings beside their intervals."""

Written = tuple[str, str, tuple[str, ...]]
"""A configuration for one program: a title, its text, and notes on it."""


def tuning_markdown(known: Tuning, facts: str, written: Sequence[Written]) -> str:
    """Return a search as Markdown, ending in a newline; `facts` are those of the host, as JSON."""
    return (
        "\n".join((*_head(known), *_sections(known, facts), *_written(written), *_again(known))).rstrip("\n") + "\n"
    )


def _head(known: Tuning) -> Iterator[str]:
    first, *rest = headline(known).plain.split("\n")
    yield heading(3, f"virtune: {first}")
    yield from (*items((*rest, *(one.plain for one in answer_lines(known)))), "")
    yield code(set_at(COLUMNS, arms_table(known)).strip("\n"))


def _sections(known: Tuning, facts: str) -> Iterator[str]:
    for title, lines in sections(known, facts):
        if lines:
            yield heading(4, title.capitalize())
            yield from (*items(lines), "")


def _written(written: Sequence[Written]) -> Iterator[str]:
    for title, text, notes in written:
        yield heading(4, title)
        if text:
            yield code(text)
        yield from (*items(notes), "")


def _again(known: Tuning) -> Iterator[str]:
    yield heading(4, "To repeat it")
    yield code(tune_again(known.study))
