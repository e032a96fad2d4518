# SPDX-License-Identifier: Apache-2.0
"""The page of plan files: every key, its values, and an example that a test runs."""

from collections.abc import Iterator, Mapping
from typing import Any

from tools.pages.markdown import code, plain, table, whole
from tools.schemas.documents import begins_with, plan_document
from virtune.model.knob import describe_domain
from virtune.model.knobs import KNOBS

EXAMPLE = """\
title = "Does io_uring pay with qcow2, and how far is bare metal?"

workload = ["randread-4k", "rw=randwrite,bs=16k,iodepth=4,fsync=8"]
metric = "latency.p99"
baseline = "threads"
rounds = 8
seconds = 4
ramp = "500ms"
span = "256M"
seed = 1
margin = 0.05
confidence = 0.95

[set]                           # what every arm starts from
disk.format = "qcow2"
disk.cluster_size = "128k"

[vary]                          # one arm for each value, named by it
disk.aio = ["threads", "io_uring"]

[[arm]]                         # one more, with its own knobs
name = "writeback"
disk.cache = "writeback"

[[arm]]
name = "bare"
rig = "metal"
"""
"""Every key but `rig`, which stands in an arm."""


def page() -> str:
    """Return the page."""
    return whole("Plan files", (*_preface(), *_keys(), *_knobs(), *_rules()))


def _preface() -> Iterator[str]:
    yield "A comparison written down, for `virtune compare plan.toml`. TOML; whatever is not known here is"
    yield "refused by its name. A flag of the command line goes over the same key of the file; `--vary` or"
    yield "`--arm` go over all its arms. Where images lie, and targets of your own, are said on the command"
    yield "line only (`--scratch`, `--target`): a plan says what is compared, not on whose disk.\n"
    yield "```toml"
    yield EXAMPLE.rstrip()
    yield "```\n"
    yield "Its schema: [plan.schema.json](plan.schema.json).\n"


def _keys() -> Iterator[str]:
    properties: Mapping[str, Any] = plan_document()["properties"]
    yield "## Keys\n"
    yield "All may be left out, as long as `[vary]` and `[[arm]]` make two arms together.\n"
    yield from table(
        ("key", "value", "means"),
        ((code(name), _kind(name, one), plain(one["description"])) for name, one in properties.items()),
    )


def _kind(name: str, schema: Mapping[str, Any]) -> str:
    """Say what kind of value a key has, as far as its schema tells."""
    if "enum" in schema:
        return "[a metric](metrics.md)" if name == "metric" else ", ".join(map(str, schema["enum"]))
    if "anyOf" in schema:
        return " or ".join(_kind(name, one) for one in schema["anyOf"])
    bounds = [f"{sign} {schema[key]}" for key, sign in _BOUNDS.items() if key in schema]
    kind = "list of tables" if name == "arm" else _KINDS[schema["type"]]
    return f"{kind}{', ' if bounds else ''}{', '.join(bounds)}"


_BOUNDS = {
    "minimum": "at least",
    "exclusiveMinimum": "above",
    "maximum": "at most",
    "exclusiveMaximum": "below",
    "maxLength": "length at most",
    "maxItems": "at most",
}
_KINDS = {
    "string": "text",
    "integer": "whole number",
    "number": "number",
    "array": "list of texts",
    "object": "table",
    "boolean": "true or false",
}


def _knobs() -> Iterator[str]:
    yield "## Knobs\n"
    yield "What `[set]`, `[vary]` and `[[arm]]` may turn, beside `rig`; [knobs](knobs.md) says what they are."
    yield "What QEMU does by itself may be something else than what virtune's stacks begin with.\n"
    yield from table(
        ("knob", "values", "virtune's stacks begin with"),
        (
            (code(knob.id), plain(describe_domain(knob.domain)), plain(begins_with(knob)))
            for knob in KNOBS
            if knob.place
        ),
    )


def _rules() -> Iterator[str]:
    yield "## Rules\n"
    yield "- A knob is written as a dotted key (`disk.aio`), as a quoted one or in a table (`[set.disk]`); the"
    yield "  schema knows the first and the last."
    yield "- Texts stand in quotes; a size is a text (`128k`) or a number of bytes, a switch `true`, `false`,"
    yield "  `on` or `off`."
    yield '- An arm with `rig = "metal"` leaves out what `[set]` says: there is no QEMU that it could mean.'
    yield "- The names of arms and workloads are letters, digits, dots, dashes and underscores, at most 64."
    yield "- The arms of `[vary]` are named by their values; where these do not speak for themselves (`off`, `64k`)"
    yield "  by knob and value (`cluster_size=64k`)."
    yield "- A file is at most 64 KiB, a line at most 4200 characters."
