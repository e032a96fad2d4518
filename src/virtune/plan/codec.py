# SPDX-License-Identifier: Apache-2.0
"""Convert studies to JSON and back without loss, refusing unknown fields.

A later virtune must be able to read the store: a field added since gets its default, while an unknown field was
written by a newer virtune and is refused instead of dropped.
"""

import json
from functools import cache
from typing import Any

from pydantic import TypeAdapter, ValidationError
from pydantic_core import PydanticSerializationError

from virtune.model.errors import PlanError
from virtune.model.study import Study


def study_to_json(study: Study) -> str:
    """Write a study as one line of JSON.

    Raises PlanError for text that JSON cannot carry (a path that is not UTF-8, a number that is not finite).
    """
    try:
        plain = _studies().dump_python(study, mode="json")
        text = json.dumps(plain, ensure_ascii=False, allow_nan=False, separators=(",", ":"))
        text.encode()
    except (PydanticSerializationError, ValueError) as error:
        raise PlanError(f"this study cannot be written as JSON: {error}") from error
    return text


def study_from_json(text: str) -> Study:
    """Read a study back; raises PlanError with the place and the reason."""
    adapter = _studies()
    try:
        study = adapter.validate_json(text, strict=True)
    except ValidationError as error:
        first = error.errors(include_url=False, include_input=False)[0]
        place = ".".join(str(step) for step in first["loc"]) or "the text"
        raise PlanError(f"not a study as virtune writes it: {place}: {first['msg']}") from error
    except ValueError as error:  # lone surrogates never reach the JSON reader
        raise PlanError(f"not a study as virtune writes it: {error}") from error
    if adapter.dump_json(study) == text.encode():
        return study  # as it is written today, so nothing in it is unknown; the rest takes four times as long
    strange = _stranger(json.loads(text), adapter.dump_python(study, mode="json"), ())
    if strange:
        raise PlanError(
            f"{'.'.join(strange)} of this study is unknown here",
            hint="it was written by a newer virtune; read it with that version",
        )
    return study


@cache
def _studies() -> TypeAdapter[Study]:
    return TypeAdapter(Study)


def _stranger(given: Any, kept: Any, place: tuple[str, ...]) -> tuple[str, ...]:
    """Return the path of the first unknown key, or an empty one."""
    if given == kept:
        return ()  # most of it, even where an older virtune wrote the rest
    if isinstance(given, dict) and isinstance(kept, dict):
        pairs = [(key, given[key], kept.get(key)) for key in given]
        unknown = next((key for key in given if key not in kept), None)
        if unknown is not None:
            return (*place, unknown)
    elif isinstance(given, list) and isinstance(kept, list):
        pairs = [(str(index), *both) for index, both in enumerate(zip(given, kept, strict=False))]
    else:
        return ()
    found = (_stranger(one, other, (*place, key)) for key, one, other in pairs)
    return next((path for path in found if path), ())
