# SPDX-License-Identifier: Apache-2.0
"""The schema of knobs: what `virtune knobs --json` writes."""

from tools.schemas.typed import Typed, schema_of
from virtune.report.json.knobs import SCHEMA, AnswerPart, AskOfKnob, DomainOfKnob, KnobPart, KnobsDocument

NAMED = {KnobPart: "Knob", DomainOfKnob: "Domain", AskOfKnob: "Ask", AnswerPart: "Answer"}


def schema() -> str:
    """Return the schema as text."""
    shapes = Typed(named=NAMED)
    shapes.of(AskOfKnob)  # the key `ask` refers to it beside null
    return schema_of(SCHEMA, "Knobs of the I/O path", KnobsDocument, shapes)
