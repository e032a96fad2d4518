# SPDX-License-Identifier: Apache-2.0
"""The house rules as tests: what no linter knows."""

import ast
import re
from collections.abc import Iterator
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
SOURCE = ROOT / "src" / "virtune"
MODULES = sorted(SOURCE.rglob("*.py"))
TESTS = sorted((ROOT / "tests").rglob("*.py"))
PURE = ("model", "fio", "dialects", "plan", "analyse", "advise", "report")
FORBIDDEN_STEMS = ("utils", "util", "helpers", "common", "misc", "base", "manager")
MODULE_LINES_MAX = 400
FUNCTION_LINES_MAX = 50


def name_of(path: Path) -> str:
    return str(path.relative_to(ROOT))


def calls(tree: ast.AST) -> Iterator[str]:
    for node in ast.walk(tree):
        if isinstance(node, ast.Call):
            yield ast.unparse(node.func)


@pytest.mark.parametrize("path", MODULES, ids=name_of)
def test_a_module_is_small_and_says_its_role(path: Path) -> None:
    text = path.read_text()
    tree = ast.parse(text)
    assert text.startswith("# SPDX-License-Identifier: Apache-2.0\n")
    assert ast.get_docstring(tree), "the first line of the docstring is the module's role"
    assert path.stem not in FORBIDDEN_STEMS
    assert len(text.splitlines()) <= MODULE_LINES_MAX
    for node in ast.walk(tree):
        if isinstance(node, ast.FunctionDef):
            length = (node.end_lineno or 0) - node.lineno + 1
            assert length <= FUNCTION_LINES_MAX, f"{node.name} has {length} lines"


@pytest.mark.parametrize("path", MODULES, ids=name_of)
def test_only_the_faces_print_exit_and_read_the_environment(path: Path) -> None:
    room = path.relative_to(SOURCE).parts[0]
    if room in ("cli", "__main__.py", "warden.py"):
        return
    text = path.read_text()
    for call in calls(ast.parse(text)):
        assert call not in ("print", "sys.exit", "exit", "os._exit"), call
    if room != "shell.py":
        assert "os.environ" not in text


@pytest.mark.parametrize("path", [p for p in MODULES if p.relative_to(SOURCE).parts[0] in PURE], ids=name_of)
def test_pure_rooms_open_nothing(path: Path) -> None:
    for call in calls(ast.parse(path.read_text())):
        assert call != "open"
        assert not call.endswith(
            (".read_text", ".read_bytes", ".write_text", ".write_bytes", ".open", ".stat", ".exists")
        )


def test_chance_has_a_seed() -> None:
    for path in MODULES:
        for call in calls(ast.parse(path.read_text())):
            assert not re.fullmatch(r"random\.\w+", call), f"{name_of(path)}: {call}"


def fakes(tree: ast.AST) -> Iterator[str]:
    """What in a test stands in for the real thing, or leaves it out whatever the machine."""
    for node in ast.walk(tree):
        match node:
            case ast.Import() | ast.ImportFrom() if "mock" in ast.unparse(node):
                yield ast.unparse(node)
            case ast.Call(func=ast.Attribute(attr="setattr" | "setitem" | "patch") as func):
                yield ast.unparse(func)
            case ast.Attribute(value=ast.Attribute(attr="mark"), attr="skip" | "xfail"):
                yield ast.unparse(node)


@pytest.mark.parametrize("path", TESTS, ids=name_of)
def test_nothing_is_mocked_patched_or_skipped(path: Path) -> None:
    assert not list(fakes(ast.parse(path.read_text())))


def test_what_is_mocked_patched_or_skipped_is_found() -> None:
    planted = ["from unittest import {}", "{}.setattr(os, 'fork', None)", "@pytest.{}.skip\ndef test(): ..."]
    for source, word in zip(planted, ("mock", "monkeypatch", "mark"), strict=True):
        assert len(list(fakes(ast.parse(source.format(word))))) == 1


def test_todo_has_an_issue_and_fixme_is_not() -> None:
    for path in [*MODULES, *TESTS]:
        if path == Path(__file__):
            continue
        for line in path.read_text().splitlines():
            assert "FIXME" not in line, name_of(path)
            assert "TODO" not in line or re.search(r"TODO\(#\d+\)", line), name_of(path)


def test_every_noun_of_the_model_is_in_the_glossary() -> None:
    glossary = (ROOT / "docs" / "glossary.md").read_text()
    for path in sorted((SOURCE / "model").rglob("*.py")):
        for node in ast.parse(path.read_text()).body:
            if isinstance(node, ast.ClassDef) and not node.name.startswith("_"):
                assert re.search(rf"\b{node.name}\b", glossary), (
                    f"{node.name} ({name_of(path)}) is not in the glossary"
                )


def test_the_map_of_the_house_is_the_house() -> None:
    text = (ROOT / "ARCHITECTURE.md").read_text()
    rooms = {path.name for path in SOURCE.iterdir() if path.is_dir() and not path.name.startswith("__")}
    drawn = set(re.findall(r"^[├└]── (\w+)/", text, flags=re.MULTILINE))
    assert drawn == rooms


def test_every_verb_is_in_the_readme() -> None:
    from virtune.cli import VERBS

    readme = (ROOT / "README.md").read_text()
    for verb in VERBS:
        assert re.search(rf"`virtune {verb}\b|\b`?{verb}`", readme), verb


def test_no_file_is_huge() -> None:
    for path in [*MODULES, *TESTS, *(ROOT / "docs").rglob("*.*")]:
        assert path.stat().st_size < 200_000, name_of(path)


def test_a_public_class_name_means_one_thing() -> None:
    places: dict[str, list[str]] = {}
    for path in MODULES:
        for node in ast.parse(path.read_text()).body:
            if isinstance(node, ast.ClassDef) and not node.name.startswith("_"):
                places.setdefault(node.name, []).append(name_of(path))
    assert {name: where for name, where in places.items() if len(where) > 1} == {}
