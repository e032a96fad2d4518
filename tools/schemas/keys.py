# SPDX-License-Identifier: Apache-2.0
"""The keys of every published document, as a digest for each number of its schema: a key that comes, goes or is
renamed needs the next number. `python -m tools.reference` records a number that it has not seen, and stops where the
keys of a recorded one differ. Only while no other commit has a number may its entry be taken out by hand.
"""

import hashlib
import json
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

from tools.schemas.shape import COMMENT

REFERENCE = Path(__file__).resolve().parents[2] / "docs" / "reference"
RECORD = REFERENCE / "keys.json"

_BY_NAME = ("metrics", "values", "units", "gates", "set", "vary", "arm")
"""Keys whose own keys are names of metrics, gates or knobs: another one of these is no other document."""


def keys_of(text: str) -> list[str]:
    """Return every key of a schema's documents, as a path: `arms[].rounds[].number`."""
    schema = json.loads(text)
    return sorted(set(_keys(schema, "", schema.get("$defs", {}))))


def record(schemas: Mapping[str, str]) -> str:
    """Return the record with the keys of `schemas` (texts by the names of their files) in it; raises ValueError for
    keys that differ from those recorded for the same number.
    """
    kept: dict[str, str] = json.loads(RECORD.read_text(encoding="utf-8")) if RECORD.exists() else {}
    kept.pop("$comment", None)
    for page, text in schemas.items():
        identity, keys = str(json.loads(text)["$id"]).removeprefix("urn:").replace(":", "/"), keys_of(text)
        digest = hashlib.sha256("\n".join(keys).encode()).hexdigest()[:16]
        if kept.setdefault(identity, digest) != digest:
            published = (REFERENCE / page).read_text(encoding="utf-8") if (REFERENCE / page).exists() else "{}"
            moved = sorted(set(keys_of(published)) ^ set(keys))
            raise ValueError(
                f"{page}: {identity} has other keys than were published ({', '.join(moved[:6])}); raise its number"
                " and say so in CHANGELOG.md"
            )
    return json.dumps({"$comment": COMMENT, **dict(sorted(kept.items()))}, indent=1) + "\n"


def _keys(schema: Any, path: str, definitions: Mapping[str, Any]) -> Iterator[str]:
    if isinstance(schema, list):
        for one in schema:
            yield from _keys(one, path, definitions)
        return
    if not isinstance(schema, dict):
        return
    if "$ref" in schema:
        yield from _keys(definitions[schema["$ref"].removeprefix("#/$defs/")], path, definitions)
    for name, inner in schema.get("properties", {}).items():
        yield f"{path}.{name}".lstrip(".")
        if name not in _BY_NAME:
            yield from _keys(inner, f"{path}.{name}".lstrip("."), definitions)
    for word in ("anyOf", "allOf", "oneOf"):
        yield from _keys(schema.get(word), path, definitions)
    for word in ("items", "additionalProperties", "prefixItems"):
        yield from _keys(schema.get(word), f"{path}[]", definitions)
