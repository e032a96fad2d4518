# SPDX-License-Identifier: Apache-2.0
"""`virtune diagnose`: what limits a disk under its load, and where the time of a request goes."""

import json
from pathlib import Path

import click

from virtune.cli.options import json_option, require_store, store_option
from virtune.model.bottleneck import Diagnosis
from virtune.model.errors import UsageError


@click.command(name="diagnose")
@click.option("--run", "study", metavar="STUDY[:TRIAL]", help="A stored study (an id or `last`) or a trial.")
@json_option
@store_option
def command(study: str | None, *, as_json: bool, store: Path) -> None:
    """Say what limits a disk under its load, with the evidence and the next experiment.

    The time of a request is split into layers: application, guest block layer, virtqueue, QEMU, host device. Nothing
    is added to what is looked at, and nothing changed.

    \b
    Examples:
      virtune diagnose --run last
      virtune diagnose --run last:3 --json
    """  # noqa: D301 - click wants the escape itself
    from virtune.cli.output import put
    from virtune.report.json.diagnose import diagnose_document
    from virtune.report.text.diagnose import render

    if study is None:
        raise UsageError("nothing to diagnose", hint="`virtune diagnose --run last` looks at your last study")
    found = _of_study(study, store)
    if as_json:
        click.echo(json.dumps(diagnose_document(found), indent=2))
    else:
        put(render(found))


def _of_study(name: str, path: Path) -> tuple[Diagnosis, ...]:
    from virtune.flows.diagnose import diagnose_study
    from virtune.store.sqlite import Store

    study, _, number = name.partition(":")
    if number and not (number.isdecimal() and len(number) < 9):
        raise UsageError(f"no trial {number!r}", hint="`--run last:3` is the third trial of the last study")
    require_store(path, study)
    with Store(path, reading=True) as kept:
        return diagnose_study(kept, kept.find(study), int(number) if number else None)
