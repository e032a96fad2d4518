# SPDX-License-Identifier: Apache-2.0
"""The published schemas are sound, strict, and say what every key means."""

import json
import re
from collections.abc import Iterator
from typing import Any

import pytest
from jsonschema import Draft202012Validator
from tests.published import REFERENCE, SCHEMAS, schema
from tools.schemas.facts_words import FACTS
from tools.schemas.keys import RECORD, keys_of, record
from tools.schemas.shape import Shapes

from virtune.model.facts import HostFacts
from virtune.report.json import (
    advice,
    audit,
    check,
    diagnose,
    domains,
    explain,
    knobs,
    listing,
    probe,
    result_parts,
    sweep,
    tune_parts,
)
from virtune.report.json import derive as derive_json
from virtune.report.json import fleet as fleet_json
from virtune.report.json import fleet_apply as fleet_apply_json
from virtune.report.json import fleet_gather as fleet_gather_json
from virtune.report.json import fleet_install as fleet_install_json
from virtune.report.json import fleet_inventory as fleet_inventory_json
from virtune.report.json import fleet_report as fleet_report_json
from virtune.report.json import fleet_run as fleet_run_json
from virtune.report.json import top as top_json

WRITTEN = {
    "advice": advice.SCHEMA,
    "audit": audit.SCHEMA,
    "check": check.SCHEMA,
    "diagnose": diagnose.SCHEMA,
    "domains": domains.SCHEMA,
    "explain": explain.SCHEMA,
    "fleet-audit": fleet_json.AUDIT,
    "fleet-probe": fleet_json.PROBE,
    "fleet-gather": fleet_gather_json.SCHEMA,
    "fleet-report": fleet_report_json.SCHEMA,
    "fleet-run": fleet_run_json.SCHEMA,
    "fleet-install": fleet_install_json.SCHEMA,
    "derive": derive_json.SCHEMA,
    "fleet-apply": fleet_apply_json.SCHEMA,
    "fleet-inventory": fleet_inventory_json.SCHEMA,
    "knobs": knobs.SCHEMA,
    "list": listing.SCHEMA,
    "probe": probe.SCHEMA,
    "result": result_parts.SCHEMA,
    "sweep": sweep.SCHEMA,
    "top": top_json.SCHEMA,
    "tune": tune_parts.SCHEMA,
}


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
    assert {path.name for path in REFERENCE.glob("*.schema.json")} == {f"{name}.schema.json" for name in SCHEMAS}
    for name, identity in WRITTEN.items():
        found = schema(name)
        assert found["properties"]["schema"]["const"] == identity
        assert found["$id"] == f"urn:{identity.replace('/', ':')}"


def test_the_table_of_documents_names_them_all_with_their_present_numbers() -> None:
    table = (REFERENCE.parent / "README.md").read_text()
    named = re.findall(r"^\| `(virtune/[a-z-]+/\d+)` \|", table, re.MULTILINE)
    assert sorted(named) == sorted(WRITTEN.values())


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


def test_a_fact_without_words_stops_the_generation_and_so_do_words_without_a_fact() -> None:
    fewer = {name: words for name, words in FACTS.items() if name != "KernelFacts.release"}
    with pytest.raises(KeyError, match=r"KernelFacts\.release"):
        Shapes(fewer).of(HostFacts)
    shapes = Shapes(FACTS | {"KernelFacts.colour": "Its colour."})
    shapes.of(HostFacts)
    assert shapes.unused() == ["KernelFacts.colour"]


def test_a_key_that_is_renamed_comes_or_goes_needs_the_next_number() -> None:
    """What other programs read by `virtune/result/8` keeps its keys; `tools.schemas.keys` says how to change them."""
    texts = {name: (REFERENCE / f"{name}.schema.json").read_text() for name in SCHEMAS}
    assert record(texts) == RECORD.read_text()
    for name, text in texts.items():
        (identity,) = {value for key, value in json.loads(text).items() if key == "$id"}
        keys = keys_of(json.loads(text))
        assert len(keys) >= 9, name
        for key in ("study", "schema", "title"):
            if f'"{key}": {{' not in text:
                continue
            renamed = text.replace(f'"{key}": {{', f'"{key}s": {{')
            with pytest.raises(ValueError, match="raise its number"):
                record({name: renamed})
            later = renamed.replace(identity, f"{identity}0")
            assert f"{key}s" in record({name: later}), "with another number it is another document"
    fewer = texts["check"].replace('"drift": {', '"metrics": {')
    with pytest.raises(ValueError, match="drift"):
        record({"check": fewer})
