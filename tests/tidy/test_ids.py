# SPDX-License-Identifier: Apache-2.0
"""What is said of a trial, a host or a VM has an id of its own: two things are never called by one id."""

import ast
from collections import Counter
from collections.abc import Iterable, Iterator
from dataclasses import replace
from pathlib import Path

import pytest

from virtune.advise.audit import rules
from virtune.model.remark import GATES, REMARK_KINDS, Criterion, Weight

SOURCE = Path(__file__).parents[2] / "src" / "virtune"

READ_BACK = {"flows/run/check.py", "model/remark.py"}
"""Where a remark may be made without its kind: it was made before, by another version perhaps."""


def twice(every: Iterable[Criterion]) -> list[str]:
    """Return the ids that several criteria have."""
    return [name for name, count in Counter(one.id for one in every).items() if count > 1]


def made_without_kind(tree: ast.AST) -> Iterator[str]:
    for node in ast.walk(tree):
        if isinstance(node, ast.Call) and ast.unparse(node.func) in ("Remark", "remark.Remark"):
            yield ast.unparse(node)[:60]


def asked_for(tree: ast.AST) -> Iterator[str]:
    """Yield the ids by which kinds of remarks are taken from their table."""
    for node in ast.walk(tree):
        match node:
            case (
                ast.Call(func=ast.Name(id="remark_of"), args=[ast.Constant(value=str(name))])
                | ast.Subscript(value=ast.Name(id="_KIND"), slice=ast.Constant(value=str(name)))
            ):
                yield name


def test_no_id_means_two_things() -> None:
    every = (*REMARK_KINDS, *rules())
    assert len(every) > 100
    assert twice(every) == []
    assert set(GATES) < set(REMARK_KINDS)


def test_every_kind_is_asked_for_and_none_that_is_not_in_the_table() -> None:
    texts = [text for path in SOURCE.rglob("*.py") if "remark" in (text := path.read_text())]
    asked = {name for text in texts for name in asked_for(ast.parse(text))}
    assert len(asked) > 40
    assert asked == {one.id for one in REMARK_KINDS} - {gate.id for gate in GATES}


def test_a_remark_is_made_from_its_kind_alone() -> None:
    found = {str(path.relative_to(SOURCE)): [*made_without_kind(ast.parse(path.read_text()))]
             for path in SOURCE.rglob("*.py")}  # fmt: skip
    assert {name for name, calls in found.items() if calls} == READ_BACK


def test_an_id_that_is_taken_is_noticed() -> None:
    (rule, *_), (kind, *_) = rules(), REMARK_KINDS
    assert twice((*REMARK_KINDS, *rules(), replace(kind, why="something else"))) == [kind.id]
    assert twice((*REMARK_KINDS, *rules(), replace(rule, id="steal"))) == ["steal"]
    assert list(made_without_kind(ast.parse("yield Remark(id='steal', text='x')")))


def test_a_kind_has_only_the_weights_that_are_published() -> None:
    (kind,) = (one for one in REMARK_KINDS if one.id == "busy")
    assert kind.remark(text="x", weight=Weight.NOTE).advice == kind.advice
    with pytest.raises(ValueError, match="busy is never invalid"):
        kind.remark(text="x", weight=Weight.INVALID)
    with pytest.raises(ValueError, match="too many values"):
        kind.remark(text="x")
