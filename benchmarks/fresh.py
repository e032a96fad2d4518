# SPDX-License-Identifier: Apache-2.0
"""Do the fast tests find faults that nobody has seen yet? Small faults are drawn at random and planted one at a time.

    python -m benchmarks.fresh                          # 40 faults, another draw each day
    python -m benchmarks.fresh --seed 7 --count 100     # a draw to repeat
    python -m benchmarks.fresh report dialects          # only in these rooms
    python -m benchmarks.fresh --floor 0.85             # exit 1 below this share, `flows` apart
    python -m benchmarks.fresh --kept FILE              # ask only changed test modules what they reach

The faults of `planted` were written down because a test missed them once, so that all of them are found says little.
These are new with each seed: a comparison reversed, a sign, `and` for `or`, a condition negated, a number changed, a
call left out. The fast tests that reach the changed function run (`reach`), in a copy of the checkout; what survives
them is tried once more in a new process, by the fast tests that import its module, and then by the tests with real
daemons and guests that are nearest to it, for some minutes. A fault that changes nothing which can be observed counts
as missed, so the share found is a lower bound. Prints what found each, and each survivor with its line.
"""

import argparse
import ast
import contextlib
import datetime
import importlib
import json
import math
import os
import random
import re
import sys
import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

import pytest

from benchmarks.planted import (
    CHECKOUT,
    FAST,
    FOUND,
    OK,
    REAL,
    SURVIVED,
    WARM,
    Fault,
    TableError,
    copied,
    enter,
    planted_run,
    run_tests,
    summary,
    waited,
)
from benchmarks.reach import Warm, ending

ROOMS = ("advise", "analyse", "apply", "bench/verify.py", "dialects", "fio", "flows", "model", "plan", "store")
"""What judges, verifies and writes; what only tells is drawn where `report` is asked for."""

JUDGES = tuple(room for room in ROOMS if room != "flows")
"""The rooms that the floor is for: in `flows` a third of all lines only waits, says or asks others."""

TESTS = (
    *("advise", "analyse", "apply", "bench", "cli", "dialects", "fleet", "flows", "golden", "model", "plan", "store"),
    "tidy/test_method.py",
)
"""The tests that may find a fault, with the folder of each room that is asked for."""

NEAREST_MAX = 6
"""The most test modules that run before the whole folder does."""

TESTS_ROOT = CHECKOUT / "tests"

IMPORTED_MAX = 2
"""So many of them run in a process that imports what has the fault; all have run where it was imported before."""

ALL_REAL = re.compile(r"^pytestmark = .*pytest\.mark\.real", re.MULTILINE)

NEAR_SECONDS = 600.0
"""So long, on a busy machine, may the tests nearest to a fault take: what takes longer waits for what never comes."""

REAL_SECONDS = 45.0
"""So long do test modules with real daemons begin for one fault, those nearest to it first."""

BY_REAL = "real: "

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
    """Return the modules of fast tests that import a module, those of its own room first."""
    wanted = re.compile(rf"^(from|import) {re.escape(dotted(file))}\b", re.MULTILINE)
    texts = {str(path.relative_to(TESTS_ROOT)): path.read_text() for path in sorted(TESTS_ROOT.rglob("test_*.py"))}
    fast = [name for name, text in texts.items() if wanted.search(text) and not ALL_REAL.search(text)]
    room = file.partition("/")[0]
    return tuple(sorted(fast, key=lambda name: name.partition("/")[0] != room)[:NEAREST_MAX])


def dotted(file: str) -> str:
    """Return the name of a module of virtune."""
    return "virtune." + file.removesuffix(".py").replace("/", ".")


def nearest_real(file: str) -> list[str]:
    """Return the modules of tests with real daemons: first those named as the changed module, then those named as its
    folders, then those that import most of the way to it.
    """
    module = dotted(file).split(".")
    *folders, stem = (set(re.findall("[a-z]+", one)) for one in Path(file).with_suffix("").parts)

    def nearness(path: Path) -> tuple[int, int, int]:
        names = set(re.findall("[a-z]+", str(path.relative_to(TESTS_ROOT))))
        imported = (one.split(".") for one in re.findall(r"^from (virtune[\w.]*)", path.read_text(), re.MULTILINE))
        alike = (sum(a == b for a, b in zip(one, module, strict=False)) for one in imported)
        return len(stem & names), sum(bool(one & names) for one in folders), max(alike, default=0)

    real = [path for path in sorted(TESTS_ROOT.rglob("test_*.py")) if "pytest.mark.real" in path.read_text()]
    return [str(path.relative_to(TESTS_ROOT)) for path in sorted(real, key=nearness, reverse=True)]


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
    """Try a fault that survived once more, in a new process that imports what has it: by the fast tests nearest to
    it, then by those with real daemons.
    """
    near = fault.near[:IMPORTED_MAX]
    if near and planted_run(fault, copy, near, seconds=NEAR_SECONDS, sound={near})[0] == FOUND:
        outcome, by = planted_run(fault, copy, near, seconds=NEAR_SECONDS, sound=sound)
        if outcome == FOUND:
            return outcome, by
    ends = time.monotonic() + REAL_SECONDS
    for name in nearest_real(fault.file):
        if time.monotonic() > ends:
            break
        with contextlib.suppress(TableError):  # all that is real in it is long
            outcome, by = tried_real(fault, copy, (name,))
            if outcome == FOUND:
                return outcome, by
    return SURVIVED, ""


def tried_real(fault: Fault, copy: Path, names: Sequence[str]) -> tuple[str, str]:
    """Try a fault by tests with real daemons: they must fail with it, pass without it and fail with it again, since
    where others use the CPUs they may also fail by chance.
    """

    def with_it() -> tuple[str, str]:
        return planted_run(fault, copy, names, seconds=NEAR_SECONDS, sound={names}, which=REAL)

    if with_it()[0] == FOUND and run_tests(copy, names, NEAR_SECONDS, REAL) == OK:
        outcome, by = with_it()
        return outcome, BY_REAL + by
    return SURVIVED, ""


def main() -> int:
    """Plant what was drawn; returns the exit status."""
    today = int(datetime.datetime.now(tz=datetime.UTC).strftime("%Y%m%d"))
    parser = argparse.ArgumentParser(prog="fresh", description="Plant faults drawn at random; see what tests find.")
    parser.add_argument("room", nargs="*", help=f"only in these rooms of src/virtune  [{' '.join(ROOMS)}]")
    parser.add_argument("--seed", type=int, default=today, help="of the draw; today's date without")
    parser.add_argument("--count", type=int, default=40)
    parser.add_argument(
        "--floor", type=float, default=0.0, help="exit with 1 where less is found in what judges, verifies and writes"
    )
    parser.add_argument("--seconds", type=float, default=300, help="how long tests are started for one fault")
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
    print(f"\n{summary(results)}\n")
    shares = [said(results, rooms) for rooms in ((JUDGES, ROOMS) if not args.room else (args.room,))]
    return int(shares[0] < args.floor)


def said(results: Sequence[tuple[Fault, str, str]], rooms: Sequence[str]) -> float:
    """Print what was found in some rooms and by which tests, with Wilson's interval of 95 %; returns the share."""
    outcomes = {fault.number: (outcome, by) for fault, outcome, by in results if fault.file.startswith(tuple(rooms))}
    found = [by for outcome, by in outcomes.values() if outcome == FOUND]
    count, real = max(1, len(outcomes)), sum(by.startswith(BY_REAL) for by in found)
    share, z2 = len(found) / count, 1.96**2
    middle, half = share + z2 / 2 / count, math.sqrt(z2 * share * (1 - share) / count + (z2 / 2 / count) ** 2)
    low, high = ((middle + way * half) / (1 + z2 / count) for way in (-1, 1))
    by_kind = f"{len(found) - real} by fast tests, {real} by tests with real daemons"
    print(f"{', '.join(rooms)}: {len(found)} of {count}, {share:.0%} ({low:.0%} to {high:.0%}); {by_kind}")
    return share


if __name__ == "__main__":
    sys.exit(main())
