# SPDX-License-Identifier: Apache-2.0
"""A document's keys, types and words stand once: in the TypedDict that mypy holds its maker to."""

import json
from pathlib import Path
from typing import Annotated, Literal, NotRequired, TypedDict, get_type_hints

import pytest
from jsonschema import Draft202012Validator
from tools.schemas.documents import DOCUMENTS, record
from tools.schemas.shape import Shapes

from virtune.model.verdict import Verdict
from virtune.report.json.document import AT_LEAST_ONE, Moment, Name
from virtune.report.json.result import SweepDocument

ROOT = Path(__file__).parents[2]


class Inner(TypedDict):
    """A part."""

    name: Name
    verdict: Annotated[Verdict | None, "What was said."]


class Whole(TypedDict):
    """A document.

    This paragraph is for those who read the source.
    """

    schema: Annotated[str, "Which document.", {"const": "virtune/whole/1"}]
    created: Annotated[Moment, "When."]
    rounds: Annotated[int | None, "How many.", AT_LEAST_ONE]
    way: Annotated[Literal["up", "down"], "Where to."]
    unit: Annotated[Literal["round"], "Of what."]
    part: Annotated[Inner | None, "A part of it."]
    parts: Annotated[list[Inner], "More of them."]
    note: NotRequired[Annotated[str, "Perhaps a word."]]


GOOD: Whole = {
    "schema": "virtune/whole/1", "created": "2026-01-02T03:04:05+00:00", "rounds": None, "way": "up", "unit": "round",
    "part": None, "parts": [{"name": "a", "verdict": Verdict.SAME}, {"name": "b", "verdict": None}],
}  # fmt: skip


def test_a_schema_says_and_demands_what_its_type_does() -> None:
    found = json.loads(Shapes(named={Inner: "Inner"}).document("All", Whole))
    assert found["$id"] == "urn:virtune:whole:1"
    assert found["description"] == "A document."
    assert found["properties"]["rounds"] == {"type": ["integer", "null"], "description": "How many.", "minimum": 1}
    assert found["properties"]["schema"] == {"description": "Which document.", "const": "virtune/whole/1"}
    assert found["properties"]["part"] == {
        "description": "A part of it.",
        "anyOf": [{"$ref": "#/$defs/Inner"}, {"type": "null"}],
    }
    assert found["required"] == [key for key in get_type_hints(Whole) if key != "note"]
    judge = Draft202012Validator(found)
    as_read = json.loads(json.dumps(GOOD))
    assert judge.is_valid(as_read)
    assert judge.is_valid(as_read | {"note": "x", "rounds": 1, "part": {"name": "c", "verdict": "better"}})
    wrong = ({"schema": "virtune/whole/2"}, {"created": "today"}, {"rounds": 0}, {"rounds": "1"}, {"way": "left"},
             {"unit": "run"}, {"part": {"name": "c"}}, {"parts": [{"name": 1, "verdict": None}]},
             {"parts": [{"name": "c", "verdict": "faster"}]}, {"note": None}, {"stranger": 1})  # fmt: skip
    assert [change for change in wrong if judge.is_valid(as_read | change)] == []
    for key in GOOD:
        assert not judge.is_valid({name: value for name, value in as_read.items() if name != key}), key


def test_a_key_or_a_type_without_words_stops_the_generation() -> None:
    silent = TypedDict("silent", {"named": Name, "mute": int})  # noqa: UP013 - as a fault that is planted
    silent.__doc__ = "A part."
    with pytest.raises(TypeError, match="silent has no words for mute"):
        Shapes().of(silent)
    bare = TypedDict("bare", {"named": Name})  # noqa: UP013
    bare.__doc__ = None
    with pytest.raises(TypeError, match="bare has no words for itself"):
        Shapes().of(bare)


def test_a_key_that_is_renamed_where_it_is_defined_is_another_document() -> None:
    hints = dict(get_type_hints(SweepDocument, include_extras=True))
    title, page = DOCUMENTS["sweep"][0], "sweep.schema.json"
    assert Shapes().document(title, SweepDocument) == (ROOT / "docs" / "reference" / page).read_text()
    hints["knees"] = hints.pop("knee")
    renamed = TypedDict("renamed", hints)  # type: ignore[misc]
    renamed.__doc__ = SweepDocument.__doc__
    with pytest.raises(ValueError, match=r"knee\b.* knees\b"):
        record({page: Shapes().document(title, renamed)})
