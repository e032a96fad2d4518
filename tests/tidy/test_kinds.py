# SPDX-License-Identifier: Apache-2.0
"""The kinds of studies are a closed set: nobody compares their names as text."""

import ast
from collections.abc import Iterator
from pathlib import Path

from virtune.model.study import StudyKind

SOURCE = Path(__file__).parents[2] / "src" / "virtune"


def compared_as_text(tree: ast.AST) -> Iterator[str]:
    """Where something named `kind` is compared as text with the name of a kind of study."""
    for node in ast.walk(tree):
        match node:
            case ast.Compare(left=left, comparators=others) if "kind" in ast.unparse(left):
                words = [one.value for other in others for one in ast.walk(other) if isinstance(one, ast.Constant)]
            case ast.Match(subject=subject, cases=cases) if "kind" in ast.unparse(subject):
                patterns = [one for case in cases for one in ast.walk(case.pattern) if isinstance(one, ast.Constant)]
                words = [one.value for one in patterns]
            case _:
                continue
        if set(words) & set(StudyKind):
            yield ast.unparse(node).partition("\n")[0]


def test_no_kind_of_study_is_compared_as_text() -> None:
    texts = {path: path.read_text() for path in SOURCE.rglob("*.py")}
    found = {path: [*compared_as_text(ast.parse(text))] for path, text in texts.items() if "kind" in text}
    assert len(found) > 100, "modules of one name are different ones"
    assert {name: lines for name, lines in found.items() if lines} == {}


def test_a_kind_compared_as_text_is_noticed() -> None:
    planted = ("study.kind == 'compare'", "kind in ('tune', 'x')", "match kind:\n    case 'check': ...")
    assert all([*compared_as_text(ast.parse(source))] for source in planted)
    assert not [*compared_as_text(ast.parse("study.kind is StudyKind.CHECK or disk.kind == 'file'"))]
