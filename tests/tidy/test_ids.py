# SPDX-License-Identifier: Apache-2.0
"""What is said of a trial, a host or a VM has an id of its own: two things are never called by one id."""

import ast
from collections import defaultdict
from collections.abc import Iterator, Mapping
from pathlib import Path

from virtune.advise.audit import rules
from virtune.model.gate import GATES

SOURCE = Path(__file__).parents[2] / "src" / "virtune"

SAME_FACT: Mapping[str, str] = {
    "rate-unmet": "a gate says it of a trial, a reading rule of a result without one (derive._AT_THE_GATES)",
    "saturated-cpu": "a gate says it of a trial, a reading rule of a result without one (derive._AT_THE_GATES)",
    "page-cache": "a gate says it of a direct arm, remarks of other arms and results: the cache served it",
    "unserved": "derive says it by the counters of a trial, cache_rules by those that fio kept",
    "io-limit": "a gate says it of a trial, `check` and `probe` of the host before one",
}
"""Ids that several places say because it is one fact, seen in several ways."""


def said(sources: Mapping[str, str]) -> dict[str, set[str]]:
    """Return the places, a module or the list of gates, that make a remark or a gate of each id."""
    found: dict[str, set[str]] = defaultdict(set)
    for module, source in sources.items():
        tree = ast.parse(source)
        makers = dict(_makers(tree))
        for call in (node for node in ast.walk(tree) if isinstance(node, ast.Call)):
            name = getattr(call.func, "id", "")
            if name in ("Remark", "Gate"):
                values = [word.value for word in call.keywords if word.arg == "id"]
            elif name in makers and len(call.args) > makers[name]:
                values = [call.args[makers[name]]]
            else:
                continue
            for value in values:
                if isinstance(value, ast.Constant):
                    found[str(value.value)].add(module)
    return found


def _makers(tree: ast.AST) -> Iterator[tuple[str, int]]:
    """Functions that make a remark with an id that they are given, and the place of that argument."""
    for function in (node for node in ast.walk(tree) if isinstance(node, ast.FunctionDef)):
        names = [one.arg for one in function.args.args]
        for call in (node for node in ast.walk(function) if isinstance(node, ast.Call)):
            given = [word.value for word in call.keywords if word.arg == "id"]
            if getattr(call.func, "id", "") != "Remark" or not given or not isinstance(given[0], ast.Name):
                continue
            if given[0].id in names:
                yield function.name, names.index(given[0].id)


def doubles(found: Mapping[str, set[str]]) -> dict[str, set[str]]:
    return {name: modules for name, modules in found.items() if len(modules) > 1 and name not in SAME_FACT}


def test_no_id_means_two_things() -> None:
    found = said({str(path.relative_to(SOURCE)): path.read_text() for path in SOURCE.rglob("*.py")})
    assert found.keys() >= {gate.id for gate in GATES}, "gates are found"
    assert len(found) > 40
    assert doubles(found) == {}
    # an exception that is none any more is taken off the list
    assert {name for name in SAME_FACT if len(found[name]) < 2} == set()
    assert len({gate.id for gate in GATES}) == len(GATES)
    assert not {rule.id for rule in rules()} & found.keys()


def test_an_id_that_is_taken_is_noticed() -> None:
    maker = "def note(identity, text):\n    return Remark(id=identity, text=text)\nnote('steal', 'x')\n"
    assert doubles(said({"a": "Gate(id='steal')", "b": maker})) == {"steal": {"a", "b"}}
    assert doubles(said({"a": "Gate(id='steal')", "b": maker.replace("'steal'", "'other'")})) == {}
