# SPDX-License-Identifier: Apache-2.0
"""The numbers that code compares each field with, for `turned`. Kept in a file, so that a new comparison changes no
census until somebody wants it to:

python -m tests.golden.limits     # writes them down again; then the censuses
"""

import ast
import json
import operator
from collections import defaultdict
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path

import virtune

COMPUTED: Mapping[type, Callable[[float, float], float]] = {
    ast.Mult: operator.mul, ast.Add: operator.add, ast.Sub: operator.sub, ast.Div: operator.truediv,
    ast.Pow: operator.pow, ast.LShift: lambda one, other: int(one) << int(other),
}  # fmt: skip


def _number(node: ast.expr, known: Mapping[str, float]) -> float | None:
    """What an expression of numbers and of a module's own constants is; None for others."""
    match node:
        case ast.Constant(value=int() | float() as value) if not isinstance(value, bool):
            return value
        case ast.Name(id=name):
            return known.get(name)
        case ast.BinOp(left=left, op=op, right=right) if type(op) in COMPUTED:
            one, other = _number(left, known), _number(right, known)
            return None if one is None or other is None else COMPUTED[type(op)](one, other)
    return None


def limits() -> Mapping[str, Sequence[float]]:
    """By the name of a field, the numbers that any code compares it with, and what is just above each."""
    found: dict[str, set[float]] = defaultdict(set)
    for path in sorted(Path(virtune.__file__).parent.rglob("*.py")):
        tree, known = ast.parse(path.read_text()), dict[str, float]()
        for node in tree.body:
            if isinstance(node, ast.Assign) and isinstance(node.targets[0], ast.Name):
                value = _number(node.value, known)
                if value is not None:
                    known[node.targets[0].id] = value
        for compare in (one for one in ast.walk(tree) if isinstance(one, ast.Compare)):
            sides = [compare.left, *compare.comparators]
            numbers = [one for one in (_number(side, known) for side in sides) if one is not None]
            names = {one.attr for side in sides for one in ast.walk(side) if isinstance(one, ast.Attribute)}
            for name in names:
                found[name].update(number + more for number in numbers for more in (0, 0.5, 1))
    return {name: sorted(numbers) for name, numbers in found.items()}


if __name__ == "__main__":
    rows = (f"{json.dumps(name)}: {json.dumps(numbers)}" for name, numbers in sorted(limits().items()) if numbers)
    Path(__file__).with_suffix(".json").write_text("{\n" + ",\n".join(rows) + "\n}\n")
