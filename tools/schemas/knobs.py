# SPDX-License-Identifier: Apache-2.0
"""The schema of knobs: what `virtune knobs --json` writes."""

import re

from tools.schemas.parts import identity, program_version
from tools.schemas.shape import Schema, by_name, exactly, maybe, rows, switch, table, text, whole, word, written
from virtune.model.knob import Change, Layer, Risk, Support
from virtune.report.text.knobs import EVIDENCE, SCHEMA

_TAGS = f"^({'|'.join(map(re.escape, EVIDENCE))}) "

_Kinds = tuple[tuple[str, str, dict[str, Schema]], ...]


def schema() -> str:
    """Return the schema as text."""
    body = table(
        "What `virtune knobs --json` writes.",
        {
            "schema": identity(SCHEMA),
            "virtune": program_version(),
            "asked": switch("Whether the installed QEMU was asked; false with `--no-ask`."),
            "knobs": rows("The knobs that were chosen, in the order of the I/O path.", {"$ref": "#/$defs/Knob"}),
        },
    )
    definitions = {"Knob": _knob(), "Domain": _domain(), "Ask": _ask(), "Answer": _answer()}
    return written(SCHEMA, "Knobs of the I/O path", body, definitions)


def _knob() -> Schema:
    return table(
        "One thing that can be turned.",
        {
            "id": text("Its name, `room.word` (disk.aio)."),
            "number": text("The topic that it belongs to; knobs of one topic share it.", pattern="^K[0-9]+$"),
            "layer": word("The level of the I/O path.", Layer),
            "default": text("What the system does when nobody turns it: a value, or words in round brackets."),
            "needs": rows("What must be there for it to work.", text("One condition, in words.")),
            "change": word("What it takes to turn it on a system that runs.", Change),
            "in_guest": maybe(word("The same in a guest of virtune's own, null where it is no other.", Change)),
            "risk": word("The worst that turning it can do.", Risk),
            "risk_note": text("That in words; empty where there is no risk."),
            "what": text("What it is."),
            "why": text("Why one would turn it."),
            "spelled": by_name("How each system writes it, by system.", text("The words to write.")),
            "source": rows(
                f"Where this is known from. Each begins with its evidence: {', '.join(EVIDENCE)}.",
                text("Evidence and source.", pattern=_TAGS),
                minItems=1,
            ),
            "place": rows("The path of what it sets in a stack; empty where virtune turns nothing.", text("A name.")),
            "domain": {"description": "What may be written.", "$ref": "#/$defs/Domain"},
            "ask": maybe({"description": "The question to QEMU by which it is looked for; null where there is none.",
                          "$ref": "#/$defs/Ask"}),
            "answers": rows("What each program said; empty without a question.", {"$ref": "#/$defs/Answer"}),
        },
    )  # fmt: skip


def _domain() -> Schema:
    low, high = whole("The smallest value."), whole("The largest value; 2^63 - 1 where nobody documents a bound.")
    power = switch("Whether it must be a power of two.")
    kinds: _Kinds = (
        ("choice", "One of a few words.", {"values": rows("The words.", text("A word."), minItems=1)}),
        (
            "number",
            "A whole number in a range.",
            {"low": low, "high": high, "unit": text("Its unit; empty for a count."), "power_of_two": power},
        ),
        ("size", "A number of bytes in a range.", {"low": low, "high": high, "power_of_two": power}),
        ("switch", "On or off.", {}),
        ("text", "Free text.", {"shape": text("What it looks like, in words.")}),
    )
    return {
        "oneOf": [table(says, {"kind": exactly("The kind of values.", kind), **own}) for kind, says, own in kinds]
    }


def _ask() -> Schema:
    kinds: _Kinds = (
        (
            "AskSchema",
            "Asks QMP query-qmp-schema.",
            {
                "command": text("The QMP command whose arguments are looked at."),
                "member": text("The argument, perhaps dotted (cache.direct)."),
                "variant": maybe(text("The variant that it belongs to (qcow2); null where it belongs to all.")),
            },
        ),
        (
            "AskDevice",
            "Asks QMP device-list-properties.",
            {"device": text("The type of device."), "property": text("The property.")},
        ),
        (
            "AskObject",
            "Asks QMP qom-list-properties.",
            {"object": text("The type of object."), "property": text("The property.")},
        ),
    )
    return {"oneOf": [table(says, {"kind": exactly("Which question.", kind), **own}) for kind, says, own in kinds]}


def _answer() -> Schema:
    return table(
        "What one installed program said.",
        {
            "program": text("The program that was asked, with its version."),
            "standing": word("How it stands to the knob.", Support),
            "values": rows("The words that it accepts, where it lists them.", text("A word.")),
            "detail": text("The type and default that it names, or why it was not asked."),
        },
    )
