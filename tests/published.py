# SPDX-License-Identifier: Apache-2.0
"""The published schemas, and variants of a document that its schema must reject."""

import copy
import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from jsonschema import Draft202012Validator

REFERENCE = Path(__file__).parents[1] / "docs" / "reference"
SCHEMAS = (
    "advice",
    "audit",
    "check",
    "diagnose",
    "domains",
    "explain",
    "fleet-audit",
    "derive",
    "fleet-apply",
    "fleet-gather",
    "fleet-history",
    "fleet-runs",
    "fleet-install",
    "fleet-run",
    "fleet-inventory",
    "fleet-probe",
    "fleet-report",
    "fleet-tune",
    "knobs",
    "list",
    "plan",
    "probe",
    "result",
    "sweep",
    "top",
    "tune",
    "watch",
    "watch-event",
)

OPEN = frozenset(
    {"metrics", "settings", "options", "values", "unknown", "spelled", "spelled_notes", "pins", "limits", "invalid"}
)
"""Objects whose keys are names: one fewer is as good a document."""

Path_ = tuple[str | int, ...]


def schema(name: str) -> dict[str, Any]:
    found: dict[str, Any] = json.loads((REFERENCE / f"{name}.schema.json").read_text())
    return found


def validator(name: str) -> Draft202012Validator:
    return Draft202012Validator(schema(name))


def complaints(name: str, document: object) -> list[str]:
    """What a schema has against a document: the place, and the reason."""
    return [f"{error.json_path}: {error.message[:200]}" for error in validator(name).iter_errors(document)]


def strictly(text: str) -> Any:
    """Read JSON as other programs do, which know no NaN and no Infinity."""

    def refuse(word: str) -> None:
        raise ValueError(f"{word} is no JSON")

    return json.loads(text, parse_constant=refuse)


def invalid_variants(document: Any) -> Iterator[tuple[str, Any]]:
    """Yield the document with a key too many, a key too few, or a value of another type, each at every place.

    Of objects in one list, or under one set of names, that have the same keys, with values of the same types, the
    first is varied.
    """
    for path, value in _places(document, (), set()):
        where = ".".join(map(str, path))
        if isinstance(value, dict):
            yield f"{where}: stranger", _changed(document, path, {**value, "stranger": 1})
            if path and path[-1] in OPEN:
                continue
            for key in value:
                fewer = {name: inner for name, inner in value.items() if name != key}
                yield f"{where}: no {key}", _changed(document, path, fewer)
        elif not isinstance(value, list):
            other = 7 if isinstance(value, str) else {"stranger": 1}
            yield f"{where}: {other} for {value!r}", _changed(document, path, other)


def _places(value: Any, path: Path_, seen: set[object]) -> Iterator[tuple[Path_, Any]]:
    if isinstance(value, dict | list):
        kind = (_place(path), _shape(value))
        if kind in seen:
            return
        seen.add(kind)
    yield path, value
    inner = value.items() if isinstance(value, dict) else enumerate(value) if isinstance(value, list) else ()
    for key, one in inner:
        yield from _places(one, (*path, key), seen)


def _place(path: Path_) -> tuple[str, ...]:
    """Return a path without the numbers in lists and without names."""
    return tuple("*" if isinstance(one, int) or (n and path[n - 1] in OPEN) else one for n, one in enumerate(path))


def _shape(value: Any) -> object:
    """What a value has in common with others that a schema describes by the same words."""
    if isinstance(value, dict):
        return tuple((key, _shape(one)) for key, one in value.items())
    return tuple(_shape(one) for one in value) if isinstance(value, list) else type(value)


def _changed(document: Any, path: Path_, value: Any) -> Any:
    if not path:
        return value
    copied = copy.deepcopy(document)
    place = copied
    for key in path[:-1]:
        place = place[key]
    place[path[-1]] = value
    return copied
