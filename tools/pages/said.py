# SPDX-License-Identifier: Apache-2.0
"""Extract a module's remarks from its source: id, weight, the sentence with its placeholders, advice.

A sentence is written where the remark is made, with its figures. So the page shows it as in the source, with the name
of each figure in braces.
"""

import ast
import inspect
from collections.abc import Iterator
from dataclasses import dataclass
from types import ModuleType

from virtune.model.remark import Weight

_SHORT = {"_warning": Weight.WARNING, "_note": Weight.NOTE}


@dataclass(frozen=True, slots=True, kw_only=True)
class Said:
    """One place where a remark is made; `weights` has several where the numbers decide."""

    id: str
    weights: tuple[str, ...]
    text: str
    advice: str
    function: str


def said_in(module: ModuleType) -> list[Said]:
    """Return every remark that a module makes, in the order of its source."""
    tree = ast.parse(inspect.getsource(module))
    functions = [node for node in tree.body if isinstance(node, ast.FunctionDef) and node.name not in _SHORT]
    return [one for function in functions for one in _Reader(module, function).remarks()]


def numbers_in(module: ModuleType) -> Iterator[tuple[str, object, str]]:
    """Yield the named numbers of a module with their reasons: (name, value, reason)."""
    body = ast.parse(inspect.getsource(module)).body
    for node, after in zip(body, [*body[1:], None], strict=True):
        if not isinstance(node, ast.Assign) or not isinstance(node.targets[0], ast.Name):
            continue
        name = node.targets[0].id
        value = getattr(module, name)
        if name.isupper() and not name.startswith("_") and isinstance(value, int | float):
            yield name, value, _string(after)


def _string(node: ast.stmt | None) -> str:
    if isinstance(node, ast.Expr) and isinstance(node.value, ast.Constant) and isinstance(node.value.value, str):
        return " ".join(node.value.value.split())
    return ""


class _Reader:
    """Reads the remarks of one function."""

    def __init__(self, module: ModuleType, function: ast.FunctionDef) -> None:
        self._module, self._function = module, function

    def remarks(self) -> Iterator[Said]:
        calls = [node for node in ast.walk(self._function) if isinstance(node, ast.Call)]
        for call in sorted(calls, key=lambda node: node.lineno):
            weights = self._weights(call)
            if weights:
                given = {word.arg: word.value for word in call.keywords if word.arg}
                names = ("id", "text", "advice")
                given |= dict(zip(names, call.args, strict=False))
                said = {name: self._words(given[name], call.lineno) if name in given else "" for name in names}
                yield Said(**said, weights=weights, function=self._function.name)

    def _weights(self, call: ast.Call) -> tuple[str, ...]:
        """Return the weights of a call that makes a remark; none for any other call."""
        if isinstance(call.func, ast.Name) and call.func.id == "Remark":
            weight = next(word.value for word in call.keywords if word.arg == "weight")
            branches = [weight.body, weight.orelse] if isinstance(weight, ast.IfExp) else [weight]
            return tuple(Weight[one.attr].value for one in branches if isinstance(one, ast.Attribute))
        makers = [call.func.body, call.func.orelse] if isinstance(call.func, ast.IfExp) else [call.func]
        return tuple(_SHORT[one.id].value for one in makers if isinstance(one, ast.Name) and one.id in _SHORT)

    def _words(self, node: ast.expr, line: int) -> str:
        match node:
            case ast.Constant(value=str(value)):
                return value
            case ast.JoinedStr(values=values):
                return "".join(self._words(one, line) for one in values)
            case ast.FormattedValue(value=ast.Name(id=name)) if isinstance(getattr(self._module, name, None), int):
                return str(getattr(self._module, name))
            case ast.FormattedValue(value=value):
                return f"{{{_last_name(value)}}}"
            case ast.BinOp(left=left, op=ast.Add(), right=right):
                return self._words(left, line) + self._words(right, line)
            case ast.IfExp(body=body, orelse=orelse):
                both = [self._words(one, line) for one in (body, orelse)]
                return "; or: ".join(one for one in both if one)
            case ast.Name(id=name):
                return self._named(name, line)
            case _:
                return "..."

    def _named(self, name: str, line: int) -> str:
        """Return the text of a name: the assignment last before the line, else the module's own."""
        values = [
            node.value
            for node in sorted(ast.walk(self._function), key=lambda node: getattr(node, "lineno", 0))
            if isinstance(node, ast.Assign) and node.lineno < line and ast.unparse(node.targets[0]) == name
        ]
        if values:
            return self._words(values[-1], line)
        found = getattr(self._module, name, "...")
        return found if isinstance(found, str) else "..."


def _last_name(node: ast.expr) -> str:
    """Return the word that says most of an expression: the last attribute or name in it."""
    if isinstance(node, ast.Call):
        return _last_name(node.args[-1] if node.args else node.func)
    if isinstance(node, ast.Attribute):
        return node.attr
    names = [one.id for one in ast.walk(node) if isinstance(one, ast.Name)]
    return names[-1] if names else "..."
