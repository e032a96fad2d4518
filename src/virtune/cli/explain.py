# SPDX-License-Identifier: Apache-2.0
"""`virtune explain`: read fio results and say what they mean."""

import codecs
import json
import sys
from pathlib import Path

import click

from virtune.analyse.beside import beside
from virtune.analyse.explain import explain
from virtune.analyse.fio import LIMIT, read_result, refuse_length
from virtune.analyse.measure import measurement_of
from virtune.cli.options import json_option
from virtune.cli.showing import put
from virtune.model.errors import ReadError, UsageError
from virtune.report.explain import Explained, explained_document, render


@click.command(name="explain")
@click.argument("inputs", metavar="FILE|-...", nargs=-1, required=True)
@json_option
def command(inputs: tuple[str, ...], *, as_json: bool) -> None:
    """Read fio results and say what they mean.

    FILE is what any fio wrote: JSON, JSON+ or its normal text, with or without a terminal's or a log's lines around
    it. `-` reads standard input. Several files are shown side by side.

    \b
    Examples:
      virtune explain result.json
      fio job.fio | virtune explain -
      virtune explain before.txt after.txt
    """  # noqa: D301 - click wants the escape itself
    explained = [_explain(name, load_input(name)) for name in inputs]
    remarks = [beside(explained[0].result, other.result) for other in explained[1:]]
    together = tuple(remark for remark in remarks if remark is not None)
    if as_json:
        click.echo(json.dumps(explained_document(explained, together), indent=2))
    else:
        put(render(explained, together))


def load_input(name: str) -> str:
    """Return the text that a name on the command line stands for: `-` is standard input, all else a file.

    Whatever else a name may come to stand for is looked up here.
    """
    try:
        if name == "-":
            content = sys.stdin.buffer.read(LIMIT + 1)
        else:
            with Path(name).open("rb") as file:
                content = file.read(LIMIT + 1)
    except FileNotFoundError:
        raise UsageError(f"no file {name!r}", hint="give the path of a fio result, or - for standard input") from None
    except (OSError, ValueError) as error:
        reason = error.strerror if isinstance(error, OSError) and error.strerror else str(error)
        raise UsageError(f"cannot read {name!r}: {reason}", hint="give the path of a fio result") from None
    refuse_length(len(content))
    return _decode(content)


def _decode(content: bytes) -> str:
    """Text of any bytes: UTF-8, or UTF-16 as some shells redirect it; the rest shows as replacement characters."""
    encoding = "utf-16" if content.startswith((codecs.BOM_UTF16_LE, codecs.BOM_UTF16_BE)) else "utf-8-sig"
    return content.decode(encoding, errors="replace")


def _explain(name: str, text: str) -> Explained:
    shown = "standard input" if name == "-" else _printable(Path(name).name)
    try:
        result = read_result(text)
    except ReadError as error:
        raise ReadError(f"{shown}: {error.message}", hint=error.hint) from None
    return Explained(name=shown, result=result, measurement=measurement_of(result), remarks=explain(result))


def _printable(name: str) -> str:
    return "".join(character if character.isprintable() else "?" for character in name)
