# SPDX-License-Identifier: Apache-2.0
"""Write a result to stdout, as a table or as JSON, or to a plain report file."""

import io
import json
import shutil
import sys
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING

import click
from rich.console import Console, ConsoleOptions, Group, RenderableType, RenderResult
from rich.segment import Segment

from virtune.cli.common.result_output import STDOUT, ResultOutput, exit_code, is_page, write_text
from virtune.cli.common.surroundings import in_ascii
from virtune.model.bottleneck import Diagnosis
from virtune.model.evidence import StudyRecord
from virtune.model.result import Fitness, Result
from virtune.model.study import StudyKind
from virtune.model.text import printable

if TYPE_CHECKING:
    from virtune.model.published import PublishedStudy
    from virtune.store.store import Store

REPORT_COLUMNS = 110


class Clean:
    """Output without control characters, since names and remarks may come from untrusted files and stores.

    Trailing blanks, with which rich pads cells, are removed, so that output can be pasted into a wiki.
    """

    def __init__(self, renderable: RenderableType) -> None:
        self.renderable = renderable

    def __rich_console__(self, console: Console, options: ConsoleOptions) -> RenderResult:
        """Pass on every segment; rich's own line ends stand alone or at an end of a segment."""
        shown = in_ascii if options.ascii_only else str
        clean = (
            Segment(shown(printable(segment.text, keep="\n")), segment.style)
            for segment in console.render(self.renderable, options)
            if not segment.control
        )
        for line in Segment.split_lines(clean):
            while line and not line[-1].text.strip():
                line.pop()
            if line:
                line[-1] = Segment(line[-1].text.rstrip(), line[-1].style)
            yield from line
            yield Segment.line()


def show_check(found: Fitness, *, as_json: bool, limit: float | None = None, brief: bool = False) -> None:
    """Write what a check found to stdout; `limit` is the share of `--fail-if-noisier`.

    With `brief` it takes a dozen lines.
    """
    if as_json:
        from virtune.report.json.host import check_document

        click.echo(json.dumps(check_document(found), indent=2))
        return
    from virtune.report.pages.brief import of_check
    from virtune.report.pages.check import render

    put((of_check if brief else render)(found, limit))


def show_result(
    result: Result, record: StudyRecord, out: ResultOutput, *, brief: bool = False, proved: Diagnosis | None = None
) -> int:
    """Write a result to the requested outputs; returns the exit code of its conditions.

    With `brief` it takes a dozen lines. `proved` is what a study that tests a diagnosis says of it, which
    a terminal shows first.
    """
    if record.study.kind is StudyKind.CHECK and out.stdout_alone:
        from virtune.flows.run.check import fitness

        show_check(fitness(record), as_json=out.as_json, brief=brief)
        return 0
    rulings = out.rulings(record)
    authors = _authors(record)
    if out.report is not None:
        from virtune.flows.reports.report import page_text
        from virtune.report.pages.whole import plain_report

        write_report(
            out.report, page=lambda: page_text(result, record), plain=lambda: plain_report(result, record, authors)
        )
    if out.as_json:
        from virtune.report.json.result import result_document

        click.echo(json.dumps(result_document(result, record, rulings), indent=2))
    elif out.markdown != STDOUT:
        from virtune.report.pages.brief import finding, of_result
        from virtune.report.pages.builtin import ending
        from virtune.report.pages.result import condition_lines, passed_line, render
        from virtune.report.render.terminal import paragraphs, section

        if proved is not None:
            from virtune.report.pages.diagnose import proof_lines

            put(Group(*proof_lines(proved), ""))
        if brief:
            put(of_result(result, record.facts, rulings, authors))
        else:
            first = ending(result, authors, record.facts)
            conditions = section("--fail-if conditions", condition_lines(result, rulings))
            head = paragraphs(filter(None, (passed_line(rulings), finding(result))), indent=0)
            put(Group(*head, render(result, record.facts, first=first), *conditions))
    out.write(result, rulings, record.facts)
    if out.report is not None:
        say_report(out.report)
    return exit_code({ruling.outcome for ruling in rulings})


def say_report(path: Path) -> None:
    """Say where a report was written, and what is in it."""
    click.echo(f"\nthe whole result with its evidence: {path}", err=True)


def proof_shown(store: "Store", record: StudyRecord, result: Result) -> Diagnosis | None:
    """Return the verdict on the diagnosis that a study tests; None for any other study."""
    if record.study.accusation is None:
        return None
    from virtune.flows.run.prove import proof_of

    return proof_of(store, record, result)


SHELL_LINES = 4
"""Lines that stand below a result: where more of it is, and the shell's next prompt."""


def screen_lines() -> int | None:
    """Return how many lines a result may have to stay on the screen; None where there is no screen."""
    return shutil.get_terminal_size().lines - SHELL_LINES if sys.stdout.isatty() else None


def _authors(record: StudyRecord) -> "PublishedStudy | None":
    """Return what the authors of a built-in study printed; None of any other."""
    if not record.study.builtin:
        return None
    from virtune.flows.reports.report import published_study

    return published_study(record.study.builtin)


def put(renderable: RenderableType) -> None:
    """Write to stdout; outside a terminal 100 columns wide and without colour."""
    width = None if sys.stdout.isatty() else 100
    console = Console(width=width, highlight=False, soft_wrap=False, markup=False, emoji=False)
    console.print(Clean(renderable), crop=False, end="")


def write_report(path: Path, *, page: Callable[[], str], plain: Callable[[], RenderableType]) -> None:
    """Write the full report of a result: with charts to a `.html`, or as text, without colour and at one width."""
    if is_page(path):
        write_text(path, page())
        return
    text = io.StringIO()
    console = Console(
        file=text, width=REPORT_COLUMNS, highlight=False, markup=False, emoji=False, no_color=True,
        force_terminal=False,
    )  # fmt: skip
    console.print(Clean(plain()), crop=False, end="")
    write_text(path, text.getvalue())
