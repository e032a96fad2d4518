# SPDX-License-Identifier: Apache-2.0
"""The house rules as tests: what no linter knows."""

import ast
import builtins
import re
from collections.abc import Iterator, Sequence
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
SOURCE = ROOT / "src" / "virtune"
MODULES = sorted(SOURCE.rglob("*.py"))
TESTS = sorted((ROOT / "tests").rglob("*.py"))
PURE = ("model", "fio", "dialects", "plan", "analyse", "advise", "report")
FORBIDDEN_STEMS = ("utils", "util", "helpers", "common", "misc", "base", "manager")
MODULE_LINES_MAX = 800
FUNCTION_LINES_MAX = 50


def name_of(path: Path) -> str:
    return str(path.relative_to(ROOT))


def by_room(paths: Sequence[Path], root: Path) -> dict[str, list[Path]]:
    """Return the modules of each folder of a root: one test for a room, since each test has a cost of its own."""
    found: dict[str, list[Path]] = {}
    for path in paths:
        found.setdefault(path.relative_to(root).parts[0], []).append(path)
    return found


OPENING = (".read_text", ".read_bytes", ".write_text", ".write_bytes", ".open", ".stat", ".exists")


@pytest.mark.parametrize("room", by_room(MODULES, SOURCE))
def test_the_modules_of_a_room_keep_the_rules_of_the_house(room: str) -> None:
    paths = by_room(MODULES, SOURCE)[room]
    found = {name_of(path): broken(path.stem, room, path.read_text()) for path in paths}
    assert {name: said for name, said in found.items() if said} == {}


def broken(stem: str, room: str, text: str) -> list[str]:
    """What a module breaks; all rules at once, since to parse it is most of the work."""
    tree = ast.parse(text)
    found = [
        *([] if text.startswith("# SPDX-License-Identifier: Apache-2.0\n") else ["its first line is the licence's"]),
        *([] if ast.get_docstring(tree) else ["the first line of the docstring is the module's role"]),
        *([f"{stem} says nothing"] if stem in FORBIDDEN_STEMS else []),
        *([f"once imported, {stem} hides Python's own from its package"] if stem in vars(builtins) else []),
        *([f"more than {MODULE_LINES_MAX} lines"] if len(text.splitlines()) > MODULE_LINES_MAX else []),
    ]
    face = room in ("cli", "__main__.py", "interrupts.py", "warden.py")
    if not face and room != "shell.py" and "os.environ" in text:
        found.append("only the faces and the shell read the environment")
    for node in ast.walk(tree):
        if isinstance(node, ast.FunctionDef):
            length = (node.end_lineno or 0) - node.lineno + 1
            found += [f"{node.name} has {length} lines"] if length > FUNCTION_LINES_MAX else []
        elif isinstance(node, ast.Call):
            call = ast.unparse(node.func)
            if not face and call in ("print", "sys.exit", "exit", "os._exit"):
                found.append(f"only the faces call {call}")
            if room != "warden.py" and call.endswith(("rmtree", "umount2", ".rmdir", "removedirs")):
                found.append(f"only the warden removes directories, and it asks for proof: {call}")
            if room in PURE and (call == "open" or call.endswith(OPENING)):
                found.append(f"a pure room calls {call}")
            if re.fullmatch(r"random\.\w+", call):
                found.append(f"{call}: chance has a seed")
    return found


def test_a_module_that_breaks_a_rule_is_found() -> None:
    good = '# SPDX-License-Identifier: Apache-2.0\n"""Says what it is for."""\n'
    assert broken("arms", "model", good) == []
    planted = {
        "": "licence",
        good.partition("\n")[0] + "\nx = 1\n": "docstring",
        good + "x = 1\n" * MODULE_LINES_MAX: "lines",
        good + "def long() -> None:\n" + "    x = 1\n" * FUNCTION_LINES_MAX: "long has",
        good + "print(1)\n": "only the faces call print",
        good + "import os\nx = os.environ\n": "environment",
        good + "x = path.read_text()\n": "pure room",
        good + "x = random.random()\n": "seed",
        good + "shutil.rmtree(place)\n": "asks for proof",
    }
    for text, why in planted.items():
        assert any(why in said for said in broken("arms", "model", text)), why
    assert broken("utils", "model", good) == ["utils says nothing"]
    assert broken("list", "cli", good) == ["once imported, list hides Python's own from its package"]
    assert broken("compare", "cli", good + "print(open(1))\n") == []


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


@pytest.mark.parametrize("room", by_room(TESTS, ROOT / "tests"))
def test_nothing_is_mocked_patched_or_skipped(room: str) -> None:
    found = {name_of(path): [*fakes(ast.parse(path.read_text()))] for path in by_room(TESTS, ROOT / "tests")[room]}
    assert {name: said for name, said in found.items() if said} == {}


def test_what_is_mocked_patched_or_skipped_is_found() -> None:
    planted = ["from unittest import {}", "{}.setattr(os, 'fork', None)", "@pytest.{}.skip\ndef test(): ..."]
    for source, word in zip(planted, ("mock", "monkeypatch", "mark"), strict=True):
        assert len(list(fakes(ast.parse(source.format(word))))) == 1


def borrowed(tree: ast.AST) -> Iterator[str]:
    """What a test takes from where it should not: builders from another test, private names from the product."""
    for node in ast.walk(tree):
        match node:
            case ast.ImportFrom(module=str(module), names=names):
                words = [*module.split("."), *(one.name for one in names)]
                if words[0] == "tests" and any(word.startswith("test_") for word in words):
                    yield ast.unparse(node)
                if words[0] == "virtune" and any(
                    word.startswith("_") and not word.startswith("__") for word in words
                ):
                    yield ast.unparse(node)
            case _:
                pass


@pytest.mark.parametrize("room", by_room(TESTS, ROOT / "tests"))
def test_builders_lie_beside_tests_and_private_names_are_not_tested(room: str) -> None:
    found = {name_of(path): [*borrowed(ast.parse(path.read_text()))] for path in by_room(TESTS, ROOT / "tests")[room]}
    assert {name: said for name, said in found.items() if said} == {}


def test_what_is_borrowed_from_a_test_or_private_is_found() -> None:
    wrong = ("from tests.report.test_documents import record", "from virtune.model.text import _SIZE")
    assert all([*borrowed(ast.parse(source))] for source in wrong)
    assert not [*borrowed(ast.parse("from tests.report.records import record\nfrom virtune import __version__"))]


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
        assert re.search(rf"`virtune {verb}\b|\b`?{verb.split()[-1]}`", readme), verb


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


def test_which_cache_modes_write_through_is_asked_and_not_copied() -> None:
    copied = re.compile(r"""["']writethrough["'], ["']directsync["']""")
    copies = [name_of(path) for path in MODULES if copied.search(path.read_text()) and path.parent.name != "model"]
    assert copies == []
