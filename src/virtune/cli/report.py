# SPDX-License-Identifier: Apache-2.0
"""`virtune show report`: a study as one HTML file with pictures."""

import json
import os
import stat
import webbrowser
from pathlib import Path
from typing import Any

import click

from virtune.cli.common.options import store_option, stored
from virtune.model.errors import StorePlace, UsageError

MARK = b'<meta name="generator" content="virtune">'
"""What a page begins with, so that only such a one is replaced by another."""

_HEAD_BYTES = 4096


@click.command(name="report")
@click.argument("study", default="last")
@click.option("--output", "-o", type=click.Path(path_type=Path, dir_okay=False), default=None,
              help="The HTML file.  [default: virtune-STUDY.html]")  # fmt: skip
@click.option("--svg", type=click.Path(path_type=Path, file_okay=False), default=None, metavar="DIR",
              help="Write each picture as SVG into this directory instead.")  # fmt: skip
@click.option("--png", type=click.Path(path_type=Path, file_okay=False), default=None, metavar="DIR",
              help="Write each picture as PNG into this directory instead.")  # fmt: skip
@click.option("--spec", is_flag=True, help="Print the Vega-Lite specifications of the pictures as JSON instead.")
@click.option("--interactive", is_flag=True,
              help="Add a script to the HTML file that shows values under the pointer and zooms; 1 MB more. Without"
                   " scripts the file stays as it is.")  # fmt: skip
@click.option("--open", "shows", is_flag=True, help="Show the HTML file in your browser.")
@store_option
def report(study: str, *, output: Path | None, shows: bool, store: StorePlace, **asked: Any) -> int:
    """Write STUDY (an id, the beginning of one, or `last`) as one HTML file with its pictures.

    The file needs no network and no script: the finding and its intervals first, then pictures of latency, time and
    cost, each with its numbers, and the proof.

    \b
    Examples:
      virtune show report --open
      virtune show report last -o result.html
      virtune show report 20261122 --png pictures/
    """  # noqa: D301 - click's own mark for lines that are not to be rewrapped
    from virtune.flows.reports.report import charts, pngs, report_html, svgs

    svg, png, interactive = asked["svg"], asked["png"], asked["interactive"]
    if sum(one is not None for one in (output, svg, png)) + asked["spec"] > 1:
        raise UsageError("one of -o, --svg, --png and --spec at a time")
    if (interactive or shows) and (svg or png or asked["spec"]):
        raise UsageError("--interactive and --open are for the HTML file")
    with stored(store, study) as (kept, name):
        if asked["spec"]:
            click.echo(json.dumps({chart.name: chart.spec for chart in charts(kept, name)}, indent=2))
            return 0
        if svg is not None or png is not None:
            made = charts(kept, name)
            kind, folder = ("svg", svg) if svg is not None else ("png", png)
            folder.mkdir(parents=True, exist_ok=True)
            contents = (text.encode() for text in svgs(made)) if svg is not None else pngs(made)
            for chart, content in zip(made, contents, strict=True):
                _write(folder / f"{chart.name}.{kind}", content)
            return 0
        content = report_html(kept, name, interactive=interactive).encode()
        output = output or Path(f"virtune-{name}.html")
        _write(output, content, "the result with pictures, for a browser: ")
    if shows and not webbrowser.open(output.absolute().as_uri()):
        click.echo("no browser is found here: copy the file to where one is", err=True)
    return 0


def _write(path: Path, content: bytes, what: str = "") -> None:
    """Write a new file, or replace a page of virtune's; anything else that is there is left as it is. `what` is said
    before its name.
    """
    try:
        descriptor = os.open(path, os.O_RDWR | os.O_CREAT | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC, 0o666)
    except OSError as error:
        raise UsageError(f"cannot write {path}: {error.strerror}", hint="choose another name") from None
    with os.fdopen(descriptor, "r+b") as file:
        there = os.fstat(file.fileno())
        if not stat.S_ISREG(there.st_mode) or (there.st_size and MARK not in file.read(_HEAD_BYTES)):
            raise UsageError(f"{path} exists and is not a report", hint="choose another name, or remove it")
        file.seek(0)
        file.truncate()
        file.write(content)
    click.echo(f"{what}{path}", err=True)
