# SPDX-License-Identifier: Apache-2.0
"""Runs against one fault only the tests that reach it, in a child forked from a process that has collected them all.

What a run costs is then the tests themselves: nothing is imported or collected again. The functions of the changed
file are given the code of the change; whoever starts another process finds it in the file too. What was computed
while modules were imported stays as it was, so a fault that survives here has to be tried in a new process as well.
"""

import ast
import contextlib
import gc
import hashlib
import inspect
import json
import os
import sys
import threading
import time
import traceback
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from itertools import zip_longest
from pathlib import Path
from types import CodeType, FrameType, FunctionType
from typing import TextIO

import pytest

from benchmarks.planted import FOUND, OK, SURVIVED, TIME_OUT, Fault, planted, waited

HANGS = 120.0
"""A test that takes so long, in seconds, waits for what never comes."""

NEAR_FIRST = 5.0
"""A test that imports the changed module runs before one that takes as long divided by this."""


@dataclass(frozen=True, slots=True)
class Reached:
    """What a test does without a fault: how long it takes and which functions of virtune it calls (`file:name`)."""

    seconds: float
    functions: frozenset[str]


@dataclass(slots=True, kw_only=True, eq=False)
class Warm:
    """A pytest plugin that runs, instead of all collected tests, those that reach each fault, the shortest first,
    until `seconds` have passed.

    `kept` is a file where what each test reaches is read and written; only test modules that changed since are asked
    again.
    """

    copy: Path
    faults: Sequence[Fault]
    say: Callable[[Fault, str, str], None]
    seconds: float
    kept: Path | None = None
    failed: str = ""
    items: dict[str, pytest.Item] = field(default_factory=dict)

    @property
    def source(self) -> str:
        return str(self.copy / "src/virtune") + "/"

    def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
        if report.failed:
            self.failed = report.nodeid

    def pytest_runtestloop(self, session: pytest.Session) -> bool:
        self.items = {item.nodeid: item for item in session.items}
        reached = self._reached()
        for fault in self.faults:
            target = function_of(fault, (self.copy / "src/virtune" / fault.file).read_text())
            near = tuple(f"tests/{name}" for name in fault.near)
            called = {name: one for name, one in reached.items() if target in one.functions}
            if not called:  # a function newer than what is kept of its tests
                file = fault.file + ":"
                called = {k: v for k, v in reached.items() if any(one.startswith(file) for one in v.functions)}
            costs = {k: v.seconds / (NEAR_FIRST if k.startswith(near) else 1) for k, v in called.items()}
            self.say(fault, *self._tried(fault, sorted(costs, key=costs.__getitem__), reached))
        return True

    def _tried(self, fault: Fault, wanted: list[str], reached: dict[str, Reached]) -> tuple[str, str]:
        """Run tests until one finds the fault; a test that also fails without it finds nothing."""
        path, count = self.copy / "src/virtune" / fault.file, len(wanted)
        whole = path.read_text()
        changed = planted(fault, whole)
        while wanted:
            path.write_text(changed)
            try:
                status, failed = self._forked(wanted, lambda: put_in(path, whole, changed))
            finally:
                path.write_text(whole)
            if status == TIME_OUT:
                return FOUND, f"a test does not end in {HANGS:g} s"
            if not failed:
                break
            if not self._forked([failed], lambda: None)[1]:
                return FOUND, failed
            del reached[failed]
            wanted = wanted[wanted.index(failed) + 1 :]
        return SURVIVED, f"{count} tests reach it"

    def _forked(self, names: Sequence[str], first: Callable[[], None]) -> tuple[int, str]:
        """Run tests in a child until one fails; returns how the child ended, and the one that failed."""
        read, write = os.pipe()
        child = os.fork()
        if not child:
            with ending():
                first()
                ends = time.monotonic() + self.seconds
                for name, following in zip_longest(names, names[1:]):
                    self._run(name, following)
                    if self.failed or time.monotonic() > ends:
                        os.write(write, self.failed.encode())
                        break
        os.close(write)
        status = waited(child, self.seconds + HANGS)
        with os.fdopen(read) as file:
            return status, file.read()

    def _run(self, name: str, following: str | None) -> None:
        item, other = self.items[name], self.items[following] if following else None
        item.config.hook.pytest_runtest_protocol(item=item, nextitem=other)

    def _reached(self) -> dict[str, Reached]:
        """Return what each test reaches that passes as things are, from `kept` where its module is the same and all
        that it reached is still there under its name.
        """
        kept = json.loads(self.kept.read_text()) if self.kept and self.kept.exists() else {}
        modules = {name.partition("::")[0] for name in self.items}
        sums = {name: hashlib.sha256((self.copy / name).read_bytes()).hexdigest() for name in sorted(modules)}
        known = {name: kept[name] for name, text in sums.items() if kept.get(name, {}).get("sum") == text}
        for name, text in sums.items():
            known.setdefault(name, {"sum": text, "tests": {}})
        there = {name for path in Path(self.source).rglob("*.py") for name in functions_in(path, Path(self.source))}
        for one in known.values():
            one["tests"] = {name: row for name, row in one["tests"].items() if there.issuperset(row[1])}
        # a module that is as it was may have other tests: those of a table that lies beside it
        left = [name for name in self.items if name not in known[name.partition("::")[0]]["tests"]]
        place = self.copy / "reached.jsonl"
        place.touch()
        child = os.fork()
        if not child:
            with ending(), place.open("w") as file:
                self._record(left, file)
        waited(child, 24 * 3600)
        for line in place.read_text().splitlines():
            name, seconds, functions = json.loads(line)
            known[name.partition("::")[0]]["tests"][name] = [seconds, functions]
        if self.kept:
            self.kept.write_text(json.dumps(known))
        rows = {name: row for one in known.values() for name, row in one["tests"].items() if name in self.items}
        return {name: Reached(seconds, frozenset(functions)) for name, (seconds, functions) in rows.items()}

    def _record(self, names: Sequence[str], file: TextIO) -> None:
        """Write a line for each test that passes: its name, its seconds and the functions that it calls."""
        called: dict[int, CodeType] = {}

        def note(frame: FrameType, event: str, arg: object) -> None:  # noqa: ARG001 - as Python calls it
            called[id(frame.f_code)] = frame.f_code

        source = self.source
        for name, following in zip_longest(names, names[1:]):
            called.clear()
            self.failed, begun = "", time.monotonic()
            threading.settrace(note)
            sys.settrace(note)
            self._run(name, following)
            sys.settrace(None)
            took = time.monotonic() - begun
            if not self.failed:
                ours = [code for code in called.values() if code.co_filename.startswith(source)]
                functions = {f"{code.co_filename.removeprefix(source)}:{code.co_qualname}" for code in ours}
                file.write(json.dumps([name, round(took, 3), sorted(functions)]) + "\n")


@contextlib.contextmanager
def ending() -> Iterator[None]:
    """Let this process, a child, lead a session of its own and end after the block, whatever happens in it."""
    os.setsid()
    status = 70
    try:
        yield
        status = OK
    except BaseException:
        os.write(2, traceback.format_exc().encode())
        raise
    finally:
        os._exit(status)


def function_of(fault: Fault, text: str) -> str:
    """Return `file:name` of the function that has the fault, as a code object says it."""
    pairs = zip(fault.before, fault.after, strict=False)
    same = next((at for at, (was, now) in enumerate(pairs) if was != now), 0)
    line = text.count("\n", 0, text.index(fault.before) + same) + 1
    names: list[str] = []
    inner: ast.AST | None = ast.parse(text)
    while inner is not None:
        if isinstance(inner, ast.FunctionDef):
            names += [inner.name, "<locals>"]
        elif isinstance(inner, ast.ClassDef):
            names.append(inner.name)
        inner = next(
            (
                one
                for one in ast.walk(inner)
                if one is not inner
                and isinstance(one, ast.FunctionDef | ast.ClassDef)
                and one.lineno <= line <= (one.end_lineno or 0)
            ),
            None,
        )
    return f"{fault.file}:{'.'.join(names[:-1])}"


def functions_in(path: Path, source: Path) -> Iterator[str]:
    """Yield `file:name` of every function of a file, of those inside others too."""
    left = [compile(path.read_text(), str(path), "exec")]
    while left:
        one = left.pop()
        yield f"{path.relative_to(source)}:{one.co_qualname}"
        left += (inner for inner in one.co_consts if isinstance(inner, CodeType))


def put_in(path: Path, before: str, after: str) -> None:
    """Give the functions and methods of a file, as they live in this process, the code of its changed text."""
    old, new = (list(outermost(compile(text, str(path), "exec"))) for text in (before, after))
    code = {(was.co_qualname, was.co_firstlineno): now for was, now in zip(old, new, strict=True)}
    gc.disable()
    gc.unfreeze()
    for one in gc.get_objects():
        if type(one) is FunctionType and one.__code__.co_filename == str(path):
            where = (one.__code__.co_qualname, one.__code__.co_firstlineno)
            one.__code__ = code.get(where, one.__code__)


def outermost(body: CodeType) -> Iterator[CodeType]:
    """Yield the code of what a module or class defines, in order; what is defined inside a function is part of it."""
    for one in body.co_consts:
        if isinstance(one, CodeType):
            if one.co_flags & inspect.CO_OPTIMIZED:
                yield one
            else:
                yield from outermost(one)
