# SPDX-License-Identifier: Apache-2.0
"""`virtune explain`: read fio results and say what they mean."""

import json
import sys
from pathlib import Path

import click

from virtune.analyse.trial.compare_results import beside
from virtune.analyse.trial.explain import explain
from virtune.analyse.trial.measure import measurement_of
from virtune.cli.options import json_option, store_option
from virtune.cli.output import put
from virtune.fio.results import LIMIT, read_result, refuse_length, text_of
from virtune.model.errors import ReadError, UsageError
from virtune.model.text import printable
from virtune.probe.reading import read_up_to
from virtune.report.text.explain import Explained, explained_document, render


@click.command(name="explain")
@click.argument("inputs", metavar="FILE|RUN|-...", nargs=-1, required=True)
@json_option
@store_option
def command(inputs: tuple[str, ...], *, as_json: bool, store: Path) -> None:
    """Read fio results and say what they mean.

    FILE is what any fio wrote: JSON, JSON+ or its normal text, with or without a terminal's or a log's lines around
    it. `-` reads standard input. RUN is a study in the store (an id, the beginning of one, or `last`): the first
    trial of each of its arms, or the one trial that `RUN:NUMBER` names. Several are shown side by side.

    \b
    Examples:
      virtune explain result.json
      fio job.fio | virtune explain -
      virtune explain before.txt after.txt
      virtune explain last:3
    """  # noqa: D301 - click wants the escape itself
    explained = [_explain(shown, text) for name in inputs for shown, text in load_input(name, store)]
    remarks = [beside(explained[0].result, other.result) for other in explained[1:]]
    together = tuple(remark for remark in remarks if remark is not None)
    if as_json:
        click.echo(json.dumps(explained_document(explained, together), indent=2))
    else:
        put(render(explained, together))


def load_input(name: str, store: Path) -> list[tuple[str, str]]:
    """Return what a name stands for, as (name to show, text): `-` is standard input, then a file, then a study."""
    try:
        if name == "-":
            content, shown = sys.stdin.buffer.read(LIMIT + 1), "standard input"
        else:
            shown = printable(Path(name).name)
            content = read_up_to(Path(name), LIMIT + 1)
    except FileNotFoundError:
        return _from_store(name, store)
    except (OSError, ValueError) as error:
        reason = error.strerror if isinstance(error, OSError) and error.strerror else str(error)
        raise UsageError(f"cannot read {name!r}: {reason}", hint="give the path of a fio result") from None
    refuse_length(len(content))
    return [(shown, text_of(content))]


def _from_store(name: str, store: Path) -> list[tuple[str, str]]:
    from virtune.flows.show import fio_outputs
    from virtune.store.sqlite import Store

    unknown = UsageError(f"no file and no study {name!r}", hint="give the path of a fio result, a study, or -")
    study, _, number = name.partition(":")
    if not store.exists() or not (number.isdecimal() or number == "") or len(number) > 9:
        raise unknown
    with Store(store, reading=True) as kept:
        try:
            found = kept.find(study)
        except UsageError:
            raise unknown from None
        outputs = fio_outputs(kept, found, int(number) if number else None)
    return [(label, text_of(content)) for label, content in outputs]


def _explain(shown: str, text: str) -> Explained:
    try:
        result = read_result(text)
    except ReadError as error:
        raise ReadError(f"{shown}: {error.message}", hint=error.hint) from None
    return Explained(name=shown, result=result, measurement=measurement_of(result), remarks=explain(result))
