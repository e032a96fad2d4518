# SPDX-License-Identifier: Apache-2.0
"""Do the fast tests find faults that nobody has seen yet? Small faults are drawn at random and planted one at a time.

    python -m benchmarks.fresh                          # 40 faults, another draw each day
    python -m benchmarks.fresh --seed 7 --count 100     # a draw to repeat
    python -m benchmarks.fresh report dialects          # only in these rooms
    python -m benchmarks.fresh --floor 0.85             # exit 1 below this share
    python -m benchmarks.fresh --kept FILE              # ask only changed test modules what they reach

The faults of `planted` were written down because a test missed them once, so that all of them are found says little.
These are new with each seed: a comparison reversed, a sign, `and` for `or`, a condition negated, a number changed, a
call left out. The tests that reach the changed function run (`reach`), in a copy of the checkout and without those
marked `real`; what survives them is tried once more in a new process, by the tests that import its module. A fault
that changes nothing which can be observed counts as missed, so the share found is a lower bound. Prints each
survivor with its line.
"""

import argparse
import ast
import contextlib
import datetime
import importlib
import json
import os
import random
import re
import sys
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

import pytest

from benchmarks.planted import (
    CHECKOUT,
    FAST,
    FOUND,
    SURVIVED,
    WARM,
    Fault,
    TableError,
    copied,
    enter,
    planted_run,
    summary,
    waited,
)
from benchmarks.reach import Warm, ending

ROOMS = ("advise", "analyse", "apply", "bench/verify.py", "dialects", "fio", "flows", "model", "plan", "store")
"""What judges, verifies and writes; what only tells is drawn where `report` is asked for."""

TESTS = (
    *("advise", "analyse", "apply", "bench", "cli", "dialects", "fleet", "flows", "golden", "model", "plan", "store"),
    "tidy/test_method.py",
)
"""The tests that may find a fault, with the folder of each room that is asked for."""

NEAREST_MAX = 6
"""The most test modules that run before the whole folder does."""

NEAR_SECONDS = 600.0
"""So long, on a busy machine, may the tests nearest to a fault take: what takes longer waits for what never comes."""

COMPARED: dict[type[ast.cmpop], str] = {
    ast.Lt: ">=", ast.LtE: ">", ast.Gt: "<=", ast.GtE: "<", ast.Eq: "!=", ast.NotEq: "==",
    ast.Is: "is not", ast.IsNot: "is", ast.In: "not in", ast.NotIn: "in",
}  # fmt: skip
COMPUTED: dict[type[ast.operator], str] = {ast.Add: "-", ast.Sub: "+", ast.Mult: "/", ast.Div: "*"}
CALLED = {"min": "max", "max": "min", "any": "all", "all": "any"}


@dataclass(frozen=True, slots=True, kw_only=True)
class Place:
    """An expression or statement of a source file and the text that takes its place."""

    node: ast.expr | ast.stmt
    after: str


def places(tree: ast.Module) -> Iterator[Place]:
    """Yield every small fault that can be planted inside the functions of a module."""
    for function in ast.walk(tree):
        if isinstance(function, ast.FunctionDef):
            for statement in function.body[ast.get_docstring(function) is not None :]:
                cut = {
                    id(inner) for one in ast.walk(statement) if isinstance(one, ast.Slice) for inner in ast.walk(one)
                }
                for node in ast.walk(statement):
                    if id(node) not in cut:  # where a sentence is cut off is nobody's fault
                        yield from _faults(node)


def _faults(node: ast.AST) -> Iterator[Place]:
    say = ast.unparse
    match node:
        case ast.Compare(left=left, ops=[op], comparators=[right]):
            yield Place(node=node, after=f"({say(left)} {COMPARED[type(op)]} {say(right)})")
        case ast.BinOp(left=left, op=op, right=right) if type(op) in COMPUTED:
            yield Place(node=node, after=f"({say(left)} {COMPUTED[type(op)]} {say(right)})")
        case ast.BoolOp(op=op, values=values):
            other = " or " if isinstance(op, ast.And) else " and "
            yield Place(node=node, after=f"({other.join(f'({say(one)})' for one in values)})")
        case ast.UnaryOp(op=ast.Not(), operand=operand):
            yield Place(node=node, after=f"bool({say(operand)})")
        case ast.Constant(value=bool() as value):
            yield Place(node=node, after=str(not value))
        case ast.Constant(value=int() | float() as number):
            yield Place(node=node, after=repr(number + 1))
        case ast.Call(func=ast.Name(id=name), args=arguments) if name in CALLED and arguments:
            yield Place(node=node, after=CALLED[name] + say(node).removeprefix(name))
        case ast.If(test=test) | ast.IfExp(test=test):
            yield Place(node=test, after=f"(not ({say(test)}))")
        case ast.Expr(value=ast.Call()):
            yield Place(node=node, after="pass")
        case _:
            pass


def fault_at(place: Place, file: str, text: str, number: int) -> Fault | None:
    """Return the fault with enough of the lines around it to stand once in its file; None for a file that cannot
    be parsed with it, as inside an f-string.
    """
    node = place.node
    assert node.end_lineno is not None
    assert node.end_col_offset is not None
    lines = text.encode().splitlines(keepends=True)
    start = sum(map(len, lines[: node.lineno - 1])) + node.col_offset
    end = sum(map(len, lines[: node.end_lineno - 1])) + node.end_col_offset
    raw = text.encode()
    low, high = sum(map(len, lines[: node.lineno - 1])), sum(map(len, lines[: node.end_lineno]))
    first, last = node.lineno - 1, node.end_lineno
    while raw.count(raw[low:high]) != 1 and (first > 0 or last < len(lines)):
        first, last = max(0, first - 1), min(len(lines), last + 1)
        low, high = sum(map(len, lines[:first])), sum(map(len, lines[:last]))
    after = raw[low:start] + place.after.encode() + raw[end:high]
    was = raw[start:end].decode().replace("\n", " ")
    try:
        ast.parse(raw[:low] + after + raw[high:])
    except SyntaxError:
        return None
    return Fault(
        number=number,
        room=file.partition("/")[0],
        file=file,
        says=f"line {node.lineno}: `{was[:60]}` became `{place.after[:60]}`",
        before=raw[low:high].decode(),
        after=after.decode(),
        near=nearest(file),
    )


def nearest(file: str) -> tuple[str, ...]:
    """Return the tests that import a module, those of its own room first."""
    module = "virtune." + file.removesuffix(".py").replace("/", ".")
    wanted = re.compile(rf"^(from|import) {re.escape(module)}\b", re.MULTILINE)
    tests = CHECKOUT / "tests"
    found = [path for path in sorted(tests.rglob("test_*.py")) if wanted.search(path.read_text())]
    fast = [path for path in found if "pytestmark = pytest.mark.real" not in path.read_text()]
    room = file.partition("/")[0]
    fast.sort(key=lambda path: path.relative_to(tests).parts[0] != room)
    return tuple(str(path.relative_to(tests)) for path in fast[:NEAREST_MAX])


def drawn(rooms: tuple[str, ...], count: int, seed: int) -> list[Fault]:
    """Draw faults, as many in each room as its share of all places."""
    chance = random.Random(seed)
    source = CHECKOUT / "src/virtune"
    asked = [source / room for room in rooms]
    modules = [path for place in asked for path in ([place] if place.is_file() else sorted(place.rglob("*.py")))]
    files = {path: path.read_text() for path in modules}
    found = [(path, place) for path, text in files.items() for place in places(ast.parse(text))]
    faults: list[Fault] = []
    for path, place in chance.sample(found, len(found)):
        fault = fault_at(place, str(path.relative_to(source)), files[path], len(faults) + 1)
        if fault is not None:
            faults.append(fault)
        if len(faults) == count:
            break
    return faults


def warm(faults: Sequence[Fault], copy: Path, seconds: float, kept: Path | None) -> dict[int, tuple[str, str]]:
    """Run against each fault the fast tests that reach it; returns found or survived, and by what, by number."""
    results = copy / "results.jsonl"
    results.touch()
    sys.stdout.flush()
    child = os.fork()
    if not child:
        terminal = os.dup(1)
        with ending(), results.open("a", buffering=1) as file:

            def say(fault: Fault, outcome: str, by: str) -> None:
                file.write(json.dumps([fault.number, outcome, by]) + "\n")
                os.write(terminal, (line(fault, outcome, by) + "\n").encode())

            enter(copy)
            plugin = Warm(copy=copy, faults=faults, say=say, seconds=seconds, kept=kept)
            folders = [one.room for one in faults if (copy / "tests" / one.room).is_dir()]
            pytest.main([*FAST, *(f"tests/{name}" for name in dict.fromkeys([*TESTS, *folders]))], plugins=[plugin])
    waited(child, 24 * 3600)
    return {number: (outcome, by) for number, outcome, by in map(json.loads, results.read_text().splitlines())}


def line(fault: Fault, outcome: str, by: str) -> str:
    """Say whether a fault was found, and by what."""
    return f"{fault.number:3} {outcome:8} {fault.file} {fault.says}  [{by[:110]}]"


def tried(fault: Fault, copy: Path, sound: set[Sequence[str]]) -> tuple[str, str]:
    """Try a fault that survived once more, in a new process that imports what has it; by the tests nearest to it."""
    with contextlib.suppress(TableError):  # the nearest tests are all marked `real`
        if fault.near:
            return planted_run(fault, copy, fault.near, seconds=NEAR_SECONDS, sound=sound)
    return SURVIVED, ""


def main() -> int:
    """Plant what was drawn; returns the exit status."""
    today = int(datetime.datetime.now(tz=datetime.UTC).strftime("%Y%m%d"))
    parser = argparse.ArgumentParser(prog="fresh", description="Plant faults drawn at random; see what tests find.")
    parser.add_argument("room", nargs="*", help=f"only in these rooms of src/virtune  [{' '.join(ROOMS)}]")
    parser.add_argument("--seed", type=int, default=today, help="of the draw; today's date without")
    parser.add_argument("--count", type=int, default=40)
    parser.add_argument("--floor", type=float, default=0.0, help="exit with 1 where a smaller share is found")
    parser.add_argument("--seconds", type=float, default=60, help="how long tests are started for one fault")
    parser.add_argument("--kept", type=Path, help="read and write here what each test reaches")
    args = parser.parse_args()
    os.environ["OPENBLAS_NUM_THREADS"] = "1"  # no thread may live where a child is forked
    for name in WARM:
        importlib.import_module(name)
    results: list[tuple[Fault, str, str]] = []
    sound: set[Sequence[str]] = set()
    print(f"seed {args.seed}")
    faults = drawn(tuple(args.room) or ROOMS, args.count, args.seed)
    with copied() as copy:
        first = warm(faults, copy, args.seconds, args.kept and args.kept.absolute())
        for fault in faults:
            outcome, by = first[fault.number]
            if outcome != FOUND:
                outcome, again = tried(fault, copy, sound)
                by = again or by
                print(line(fault, outcome, by), flush=True)
            results.append((fault, outcome, by))
    share = sum(outcome == FOUND for _, outcome, _ in results) / max(1, len(results))
    print(f"\n{summary(results)}\n\n{share:.0%} found")
    return int(share < args.floor)


if __name__ == "__main__":
    sys.exit(main())
