# SPDX-License-Identifier: Apache-2.0
"""The schema of a plan file, as the plan's reader gives it, with words that name units and defaults."""

from typing import Any

from tools.schemas.shape import Schema, written
from virtune.model.knob import Knob, describe_domain
from virtune.model.knobs import BY_ID
from virtune.model.stack import Stack, setting_of
from virtune.plan.planfile import plan_schema, plan_words

IDENTITY = "virtune/plan/3"


def schema() -> str:
    """Return the schema as text."""
    return written(IDENTITY, "A plan file", document())


def document() -> Schema:
    """Return the reader's own schema with these words, and without what TOML cannot say (null)."""
    found = plan_schema()
    for name in ("$schema", "title"):
        del found[name]
    keys: Schema = found["properties"]
    found["properties"] = {name: _key(schema) for name, schema in keys.items()}
    found["description"] = "The values that a plan file's TOML stands for, with dotted keys as tables."
    for place in (keys["set"], keys["vary"], keys["arm"]["items"]):
        _say_knobs(place["properties"])
    return found


def _key(schema: Schema) -> Schema:
    plain = {key: value for key, value in schema.items() if key not in ("title", "default")}
    choices: list[Any] = [one for one in plain.get("anyOf", ()) if one != {"type": "null"}]
    if len(choices) == 1:
        plain = {key: value for key, value in plain.items() if key != "anyOf"} | choices[0]
    return plain


def _say_knobs(properties: Schema) -> None:
    """Give each knob its words: what it is, what may be written, what it is otherwise."""
    for room, schema in properties.items():
        if room == "rig":
            schema["description"] = plan_words("rig")
        elif room != "name":
            schema["description"] = f"The knobs `{room}.*`."
            for name, own in schema["properties"].items():
                knob = BY_ID[f"{room}.{name}"]
                own["description"] = (
                    f"{knob.what} Values: {describe_domain(knob.domain)}. Default: {begins_with(knob)}."
                )


def begins_with(knob: Knob) -> str:
    """Return the value that virtune's stacks have when nobody turns the knob."""
    value = setting_of(Stack(), knob)
    if isinstance(value, bool):
        return "on" if value else "off"
    return "QEMU's own" if value is None else str(value)
