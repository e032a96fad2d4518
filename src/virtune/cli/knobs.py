# SPDX-License-Identifier: Apache-2.0
"""`virtune knobs`: the settings of the I/O path, with the cost and risk of changing them."""

import json

import click

from virtune.cli.common.options import json_option
from virtune.cli.common.output import put
from virtune.model.knob import Layer
from virtune.report.json.knobs import knobs_document
from virtune.report.pages.knobs import knob_card, knob_table

LAYERS: dict[str, Layer] = {layer.name.lower().replace("_", "-"): layer for layer in Layer}
"""The layers by words without spaces."""


@click.command(name="knobs")
@click.argument("name", required=False)
@click.option("--layer", type=click.Choice(list(LAYERS)), help="Only the knobs of this layer.")
@click.option("--no-ask", is_flag=True, help="Do not ask the installed QEMU what it has.")
@click.option("--emulator", metavar="PATH", help="Ask this qemu-system program in the place of the installed one.")
@json_option
def command(name: str | None, layer: str | None, *, no_ask: bool, emulator: str | None, as_json: bool) -> None:
    """List the settings of the I/O path: values, cost of a change, risk.

    NAME is a knob (disk.aio), a number of the reference page (K45), or a family (iothread). A single knob is shown
    with all that is known about it, and with what the installed QEMU says.
    """
    from virtune.flows.probe import look

    shown = look(name, layer=LAYERS[layer] if layer else None, ask=not no_ask, emulator=emulator)
    if as_json:
        click.echo(json.dumps(knobs_document(shown.knobs, shown.answers, asked=shown.asked), indent=2))
    elif name is not None and len(shown.knobs) == 1:
        knob = shown.knobs[0]
        put(knob_card(knob, shown.answers.get(knob.id, ()), asked=shown.asked))
    else:
        put(knob_table(shown.knobs, shown.answers))
