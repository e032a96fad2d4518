# SPDX-License-Identifier: Apache-2.0
"""A search as GitHub's Markdown: its result, its arms, and the winner's configuration lines."""

from collections.abc import Iterator, Sequence

from virtune.model.tuning import Tuning
from virtune.report.markdown import code, plain
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
    yield f"### virtune: {plain(first)}\n"
    yield from (f"* {plain(line)}" for line in rest)
    yield from (f"* {plain(line.plain)}" for line in answer_lines(known))
    yield ""
    yield code(set_at(COLUMNS, arms_table(known)).strip("\n"))


def _sections(known: Tuning, facts: str) -> Iterator[str]:
    for title, lines in sections(known, facts):
        if lines:
            yield f"#### {title.capitalize()}\n"
            yield from (f"* {plain(line)}" for line in lines)
            yield ""


def _written(written: Sequence[Written]) -> Iterator[str]:
    for title, text, notes in written:
        yield f"#### {plain(title)}\n"
        if text:
            yield code(text)
        yield from (f"* {plain(note)}" for note in notes)
        yield ""


def _again(known: Tuning) -> Iterator[str]:
    yield "#### To repeat it\n"
    yield code(tune_again(known.study))
