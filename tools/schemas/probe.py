# SPDX-License-Identifier: Apache-2.0
"""The schema of a host's facts: what `virtune probe --json` writes and every study keeps."""

from tools.schemas.facts_words import FACTS
from tools.schemas.parts import identity, remark
from tools.schemas.shape import Schema, Shapes, by_name, rows, table, text, written
from virtune.model.facts import HostFacts
from virtune.report.json.probe import SCHEMA


def schema() -> str:
    """Return the schema as text."""
    body, definitions = document()
    return written(SCHEMA, "The facts of a host", body, definitions)


def document() -> tuple[Schema, dict[str, Schema]]:
    """Return the document's schema, and the definitions that it refers to."""
    shapes = Shapes(FACTS)
    host = shapes.of(HostFacts)
    if shapes.unused():
        raise KeyError(f"words for facts that are gone: {', '.join(shapes.unused())}")
    body = table(
        "What `virtune probe --json` writes. The unit of a fact is in its name.",
        {
            "schema": identity(SCHEMA),
            "host": {
                "description": "All facts. One that could not be read is null, and `unknown` says why.",
                **host,
            },
            "findings": rows("What to know before measuring on this host, the most severe first.", remark()),
            "unknown": by_name(
                "Why a fact is not known, by its path below `host` (cpu.governors, disks[0].device.model).",
                text("The reason in one clause."),
            ),
        },
    )
    return body, shapes.definitions
