# SPDX-License-Identifier: Apache-2.0
"""Write what was found to stdout, as a page or as JSON, or to a plain report file."""

import io
import json
import shutil
import sys
from collections.abc import Callable
from pathlib import Path

import click
from rich.console import Console, ConsoleOptions, RenderableType, RenderResult
from rich.segment import Segment

from virtune.cli.common.result_output import is_page, write_text
from virtune.cli.common.surroundings import in_ascii
from virtune.model.text import printable

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


def show(document: Callable[[], object], page: Callable[[], RenderableType], *, as_json: bool) -> None:
    """Write what was found to stdout, as a document or as a page; what is not asked for is not made."""
    if as_json:
        click.echo(json.dumps(document(), indent=2))
    else:
        put(page())


SHELL_LINES = 4
"""Lines that stand below a result: where more of it is, and the shell's next prompt."""


def screen_lines() -> int | None:
    """Return how many lines a result may have to stay on the screen; None where there is no screen."""
    return shutil.get_terminal_size().lines - SHELL_LINES if sys.stdout.isatty() else None


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
