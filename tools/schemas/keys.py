# SPDX-License-Identifier: Apache-2.0
"""The keys of every published document by the version of its schema: a key that comes, goes or is renamed needs the
next number. `python -m tools.reference` records the keys of a number that it has not seen, and stops where the keys
of a recorded one differ. Only while no other commit has a number may its entry be taken out of the file by hand.
"""

import json
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

from tools.schemas.shape import COMMENT

RECORD = Path(__file__).resolve().parents[2] / "docs" / "reference" / "keys.json"

_BY_NAME = ("metrics", "values", "units", "gates", "set", "vary", "arm")
"""Keys whose own keys are names of metrics, gates or knobs: another one of these is no other document."""


def keys_of(schema: Mapping[str, Any]) -> list[str]:
    """Return every key of a document, as a path: `arms[].rounds[].number`; a definition's begin by its name."""
    found = [*_keys(schema, "")]
    for name, definition in schema.get("$defs", {}).items():
        found += _keys(definition, f"<{name}>")
    return sorted(set(found))


def record(schemas: Mapping[str, str]) -> str:
    """Return the record with the keys of `schemas` (texts by the name of their page) in it; raises ValueError for
    keys that differ from those recorded for the same number.
    """
    kept: dict[str, Any] = json.loads(RECORD.read_text(encoding="utf-8")) if RECORD.exists() else {}
    kept.pop("$comment", None)
    for page, text in schemas.items():
        schema = json.loads(text)
        identity, keys = str(schema["$id"]).removeprefix("urn:").replace(":", "/"), keys_of(schema)
        before = kept.setdefault(identity, keys)
        if before != keys:
            moved = sorted(set(before) ^ set(keys))
            raise ValueError(
                f"{page}: {identity} has other keys than were published ({', '.join(moved[:6])}); raise its number"
                " and say so in CHANGELOG.md"
            )
    return json.dumps({"$comment": COMMENT, **dict(sorted(kept.items()))}, indent=1) + "\n"


def _keys(schema: Any, path: str) -> Iterator[str]:
    if isinstance(schema, list):
        for one in schema:
            yield from _keys(one, path)
        return
    if not isinstance(schema, dict):
        return
    for name, inner in schema.get("properties", {}).items():
        yield f"{path}.{name}".lstrip(".")
        if name not in _BY_NAME:
            yield from _keys(inner, f"{path}.{name}".lstrip("."))
    for word in ("anyOf", "allOf"):
        yield from _keys(schema.get(word), path)
    for word in ("items", "additionalProperties", "prefixItems"):
        yield from _keys(schema.get(word), f"{path}[]")
