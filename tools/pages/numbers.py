# SPDX-License-Identifier: Apache-2.0
"""The named numbers of a module, with the reasons that its source gives for them."""

import ast
import inspect
from collections.abc import Iterator
from types import ModuleType


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
