# SPDX-License-Identifier: Apache-2.0
"""The published schemas are sound, strict, and say what every key means."""

import json
import re
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Annotated, Any

import pytest
from jsonschema import Draft202012Validator
from tests.published import REFERENCE, SCHEMAS, schema
from tools.schemas.documents import DOCUMENTS, PLAN, RECORD, keys_of, record, shapes_of
from tools.schemas.shape import Shapes

from virtune.model.facts import HostFacts


@dataclass(frozen=True)
class Unread:
    """What could not be read."""

    named: Annotated[str, "What it is."]
    because: str


def objects(part: Any, path: str = "$") -> Iterator[tuple[str, dict[str, Any]]]:
    """Every object in a schema that names its properties."""
    if isinstance(part, dict):
        if part.get("type") == "object" or part.get("type") == ["object", "null"]:
            yield path, part
        for key, inner in part.items():
            yield from objects(inner, f"{path}.{key}")
    elif isinstance(part, list):
        for index, inner in enumerate(part):
            yield from objects(inner, f"{path}[{index}]")


def test_there_is_a_schema_for_every_document() -> None:
    assert set(SCHEMAS) == {*DOCUMENTS, "plan"}
    assert {path.name for path in REFERENCE.glob("*.schema.json")} == {f"{name}.schema.json" for name in SCHEMAS}
    for name in DOCUMENTS:
        found = schema(name)
        assert found["$id"] == f"urn:{found['properties']['schema']['const'].replace('/', ':')}"
    assert schema("plan")["$id"] == f"urn:{PLAN.replace('/', ':')}"


def test_the_table_of_documents_names_them_all_with_their_present_numbers() -> None:
    table = (REFERENCE.parent / "README.md").read_text()
    named = re.findall(r"^\| `(virtune/[a-z-]+/\d+)` \|", table, re.MULTILINE)
    assert sorted(named) == sorted(schema(name)["properties"]["schema"]["const"] for name in DOCUMENTS)


@pytest.mark.parametrize("name", SCHEMAS)
def test_a_schema_is_sound_and_says_who_made_it(name: str) -> None:
    found = schema(name)
    Draft202012Validator.check_schema(found)
    assert next(iter(found)) == "$comment"
    assert "tools.reference" in found["$comment"]
    used = str(found)
    for definition in found.get("$defs", {}):
        assert f"#/$defs/{definition}'" in used, definition


@pytest.mark.parametrize("name", SCHEMAS)
def test_every_key_has_words_and_no_stranger_is_let_in(name: str) -> None:
    seen = 0
    for path, part in objects(schema(name)):
        if part.keys() == {"type"}:  # says only that it is not null
            continue
        assert "additionalProperties" in part, path
        for key, one in part.get("properties", {}).items():
            assert len(one.get("description", "")) >= 5, f"{path}.{key}"
            seen += 1
        if "properties" in part:
            assert part["additionalProperties"] is False, path
    assert seen >= 9


def test_a_field_without_words_stops_the_generation() -> None:
    assert shapes_of("probe").of(HostFacts) == {"$ref": "#/$defs/HostFacts"}
    with pytest.raises(TypeError, match="Unread has no words for because"):
        Shapes().of(list[Unread])


def test_a_key_that_is_renamed_comes_or_goes_needs_the_next_number() -> None:
    """What other programs read by `virtune/result/1` keeps its keys; `tools.schemas.documents` says how."""
    texts = {f"{name}.schema.json": (REFERENCE / f"{name}.schema.json").read_text() for name in SCHEMAS}
    assert record(texts) == RECORD.read_text()
    for name, text in texts.items():
        assert len(keys_of(text)) >= 9, name
        identity = json.loads(text)["$id"]
        for key in ("study", "schema", "title"):
            if f'"{key}": {{' not in text:
                continue
            renamed = text.replace(f'"{key}": {{', f'"{key}s": {{')
            with pytest.raises(ValueError, match=rf"\b{key}\b.* raise its number"):
                record({name: renamed})
            later = renamed.replace(identity, f"{identity}0")
            assert f"{identity}0".removeprefix("urn:").replace(":", "/") in record({name: later})
    fewer = texts["check.schema.json"].replace('"drift": {', '"metrics": {')
    with pytest.raises(ValueError, match="drift"):
        record({"check.schema.json": fewer})
