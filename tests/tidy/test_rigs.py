# SPDX-License-Identifier: Apache-2.0
"""Nobody asks for a rig's name: what is to be known of a rig stands in its row (`virtune.model.rig`)."""

import ast
import tomllib
from collections.abc import Iterator
from pathlib import Path

import pytest

from virtune.bench.port import SESSIONS
from virtune.model.rig import RIGS, read_rig, rig_words, rig_words_with_where
from virtune.model.study_options import OPTIONS, for_verb

SOURCES = sorted(Path("src/virtune").rglob("*.py"))
ROW = Path("src/virtune/model/rig.py")
NAMES = {*RIGS, *rig_words()}


def is_rig(node: ast.expr) -> bool:
    word = node.attr if isinstance(node, ast.Attribute) else node.id if isinstance(node, ast.Name) else ""
    return word in ("rig", "rigs")


def names(node: ast.expr) -> bool:
    if isinstance(node, ast.Constant):
        return node.value in NAMES
    return isinstance(node, ast.Tuple | ast.Set | ast.List) and any(names(one) for one in node.elts)


def questions(tree: ast.AST) -> Iterator[str]:
    """Yield every place that compares or matches a rig, or rigs, with names."""
    for node in ast.walk(tree):
        if isinstance(node, ast.BinOp):
            sides = [node.left, node.right]
            if any(map(is_rig, sides)) and any(map(names, sides)):
                yield ast.unparse(node)
        if isinstance(node, ast.Compare):
            sides = [node.left, *node.comparators]
            if any(map(is_rig, sides)) and any(map(names, sides)):
                yield ast.unparse(node)
        elif isinstance(node, ast.Match) and is_rig(node.subject):
            yield f"match {ast.unparse(node.subject)}"


def test_no_module_asks_for_a_rigs_name() -> None:
    texts = {str(path): path.read_text() for path in SOURCES if path != ROW}
    assert len(texts) > 300
    found = {path: [*questions(ast.parse(text))] for path, text in texts.items() if "rig" in text}
    assert {path: said for path, said in found.items() if said} == {}


@pytest.mark.parametrize(
    "words",
    [
        "stack.rig == 'metal'",
        "'qemu' != arm.stack.rig",
        "rig in ('metal', 'vhost-user')",
        "'qemu' in rigs",
        "rigs & {'metal'}",
        "match s.rig:\n case _: 0",
    ],
)
def test_a_question_is_noticed(words: str) -> None:
    assert list(questions(ast.parse(words)))


def test_every_rig_stands_beside_the_others_in_the_import_contract() -> None:
    contracts = tomllib.loads(Path("pyproject.toml").read_text())["tool"]["importlinter"]["contracts"]
    (layers,) = (one["layers"] for one in contracts if one["name"] == "Rigs do not know one another")
    rooms = {place.partition(":")[0].split(".")[2] for place in SESSIONS.values()}
    assert rooms in [set(layer.split(" | ")) for layer in layers]


def test_every_word_for_a_rig_is_offered_and_explained_where_it_can_be_used() -> None:
    """The words of `--rig` follow from the rows: of a rig without knobs nothing is tuned, a check needs no guest."""
    for row in RIGS.values():
        assert len(row.help) == (1 + len(row.aliases or ()) if row.made_here else 0)

    def offered(verb: str) -> tuple[str, ...]:
        return for_verb(OPTIONS["rig"].choices, verb) or ()

    assert offered("compare") == (*rig_words(), *rig_words_with_where())
    for verb, kinds in (
        ("tune", {"storage-daemon", "qemu", "libvirt"}), ("check", {"storage-daemon", "metal"})
    ):  # fmt: skip
        assert {found.kind.name for found in map(read_rig, offered(verb)) if found} == kinds
