# SPDX-License-Identifier: Apache-2.0
"""How large is the house? Lines, files, imports, records and functions of `src/virtune`, now and at another commit.

    python benchmarks/house.py [COMMIT]

Lines are those of the files, with comments and docstrings; code lines are those with a token, without both. A
function is used once where its name stands in one place besides its own definition.
"""

import ast
import io
import re
import subprocess
import sys
import tokenize
from collections import Counter
from collections.abc import Mapping
from pathlib import Path
from statistics import mean, median, quantiles

ROOT = Path(__file__).parents[1]
SOURCE = "src/virtune/"


def now() -> dict[str, str]:
    """Return the modules of the working tree, by their path below `src/virtune`."""
    place = ROOT / SOURCE
    return {str(path.relative_to(place)): path.read_text() for path in sorted(place.rglob("*.py"))}


def at(commit: str) -> dict[str, str]:
    """Return the modules as they were at a commit."""

    def git(*words: str) -> str:
        return subprocess.run(["git", *words], cwd=ROOT, check=True, capture_output=True, text=True).stdout

    names = git("ls-tree", "-r", "--name-only", commit, SOURCE).splitlines()
    return {name.removeprefix(SOURCE): git("show", f"{commit}:{name}") for name in names if name.endswith(".py")}


def code_lines(text: str) -> int:
    """Count the lines that hold a token which is neither a comment nor a docstring."""
    tree = ast.parse(text)
    documented = (ast.Module, ast.ClassDef, ast.FunctionDef, ast.AsyncFunctionDef)
    words = [node.body[0] for node in ast.walk(tree) if isinstance(node, documented) and ast.get_docstring(node)]
    said = {line for node in words for line in range(node.lineno, (node.end_lineno or node.lineno) + 1)}
    layout = (tokenize.COMMENT, tokenize.NL, tokenize.NEWLINE, tokenize.INDENT, tokenize.DEDENT, tokenize.ENDMARKER)
    found: set[int] = set()
    for token in tokenize.generate_tokens(io.StringIO(text).readline):
        if token.type not in layout:
            found |= set(range(token.start[0], token.end[0] + 1))
    return len(found - said)


def import_lines(tree: ast.Module) -> int:
    """Count the lines of import statements."""
    kinds = (ast.Import, ast.ImportFrom)
    return sum((node.end_lineno or 0) - node.lineno + 1 for node in ast.walk(tree) if isinstance(node, kinds))


def importers(trees: Mapping[str, ast.Module]) -> Counter[str]:
    """Count how many modules import each module."""
    names = {path.removesuffix(".py").removesuffix("/__init__").replace("/", "."): path for path in trees}
    found: Counter[str] = Counter()
    for path, tree in trees.items():
        wanted = set()
        for node in ast.walk(tree):
            if isinstance(node, ast.ImportFrom) and (node.module or "").startswith("virtune."):
                module = (node.module or "").removeprefix("virtune.")
                wanted |= {names.get(f"{module}.{one.name}", names.get(module)) for one in node.names}
        found.update(one for one in wanted if one and one != path)
    return found


def measures(modules: Mapping[str, str]) -> dict[str, str]:
    """Return the measures of all rooms together, in words."""
    trees = {path: ast.parse(text) for path, text in modules.items()}
    sizes = [len(text.splitlines()) for path, text in modules.items() if not path.endswith("__init__.py")]
    functions = [node for tree in trees.values() for node in ast.walk(tree) if isinstance(node, ast.FunctionDef)]
    lengths = [(node.end_lineno or 0) - node.lineno + 1 for node in functions]
    classes = [node for tree in trees.values() for node in ast.walk(tree) if isinstance(node, ast.ClassDef)]
    records = sum(any("dataclass" in ast.unparse(one) for one in node.decorator_list) for node in classes)
    typed = sum(any(ast.unparse(one) in ("TypedDict", "NamedTuple") for one in node.bases) for node in classes)
    words = Counter(re.findall(r"[A-Za-z_]\w*", "\n".join(modules.values())))
    once = [node for node in functions if words[node.name] == 2 and not node.name.startswith("__")]
    code = sum(map(code_lines, modules.values()))
    imports = sum(map(import_lines, trees.values()))
    single = sum(number == 1 for number in importers(trees).values())
    return {
        "lines": f"{sum(len(text.splitlines()) for text in modules.values()):,}",
        "files": f"{len(modules):,}",
        "code lines": f"{code:,}",
        "imports, share of code": f"{imports / code:.1%}",
        "file: median / max": f"{median(sizes):.0f} / {max(sizes)}",
        "files below 60 lines": str(sum(size < 60 for size in sizes)),
        "function: mean / p95 / max": f"{mean(lengths):.1f} / {quantiles(lengths, n=20)[-1]:.0f} / {max(lengths)}",
        "functions": f"{len(functions):,}",
        "functions used once": f"{len(once):,} ({sum((n.end_lineno or 0) - n.lineno + 1 for n in once):,} lines)",
        "modules with one importer": str(single),
        "dataclasses + typed dictionaries": f"{records} + {typed}",
    }


def rooms(modules: Mapping[str, str]) -> dict[str, tuple[int, int]]:
    """Return lines and files of each room."""
    found: dict[str, tuple[int, int]] = {}
    for path, text in modules.items():
        room = path.split("/")[0] if "/" in path else "beside the rooms"
        lines, files = found.get(room, (0, 0))
        found[room] = lines + len(text.splitlines()), files + 1
    return found


def main() -> None:
    """Print the measures, beside those of a commit where one is given."""
    trees = [now()] if len(sys.argv) < 2 else [at(sys.argv[1]), now()]
    said = [measures(one) for one in trees]
    for name in said[-1]:
        print(f"{name:34}", *(f"{one[name]:>22}" for one in said))
    by_room = [rooms(one) for one in trees]
    for room in sorted(
        {*by_room[0], *by_room[-1]}, key=lambda one: -max(found.get(one, (0, 0))[0] for found in by_room)
    ):
        print(f"{room:34}", *("{:>15,} {:>6}".format(*found.get(room, (0, 0))) for found in by_room))


if __name__ == "__main__":
    main()
