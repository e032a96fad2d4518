# SPDX-License-Identifier: Apache-2.0
"""Do the fast tests find small faults? Each fault of `data/planted.toml` is planted alone in a copy of the checkout.

    python -m benchmarks.planted            # all of them
    python -m benchmarks.planted analyse    # one room
    python -m benchmarks.planted 7 12       # single ones, by number
    python -m benchmarks.planted suite      # ten that the suite must never let pass
    python -m benchmarks.planted --check    # only whether every fault can still be planted

The copy is a temporary directory; the checkout is only read. Of each fault the tests nearest to it run first, then
the whole folder (`--near` leaves the folder out), always without those marked `real`, until the first one fails. A
test run that does not end in `--seconds` has found the fault too: something waits that did not wait before. As in
CI, a skip that nobody expects fails a run, and import contracts are tests. Prints found or SURVIVED of each and a
table in Markdown.

Exits with 1 when one survived that the table does not excuse, and with 2 when nothing can be said: the text that a
fault replaces does not stand exactly once in its file, or tests do not pass without a fault.
"""

import argparse
import contextlib
import importlib
import os
import re
import shutil
import signal
import sys
import tempfile
import time
import tomllib
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import NoReturn

CHECKOUT = Path(__file__).resolve().parents[1]
TABLE = CHECKOUT / "benchmarks/data/planted.toml"
COPIED = (
    "src",
    "tests",
    "benchmarks",
    "tools",
    "docs",
    "pyproject.toml",
    "README.md",
    "CHANGELOG.md",
    "ARCHITECTURE.md",
    "CONTRIBUTING.md",
)
WARM = ("pytest", "numpy", "scipy.stats", "scipy.special", "pydantic", "rich.console")
"""What every child would import otherwise, seconds of it; nothing of virtune, which must come from the copy."""

SAYS_FAILED = re.compile(r"^(FAILED|ERROR|rule broken).*|^.* BROKEN$", re.MULTILINE)
"""The line of a log that says what found a fault: a test, a module that cannot be imported, a rule of the suite, a
contract."""

FOUND, SURVIVED = "found", "SURVIVED"
QUIET = ("-q", "--no-header", "-p", "no:cacheprovider", "-m")
FAST, REAL = (*QUIET, "not real and not long"), (*QUIET, "real and not long")
"""Which tests are meant: those that start nothing, or those with real daemons and guests."""

CONTRACTS = "lint-imports"
"""Named as a test, it stands for the import contracts of pyproject.toml."""

OK, FAILED = 0, 1  # pytest's exit statuses; with any other it did not test
TIME_OUT = -1


class TableError(Exception):
    """A fault of the table can no longer be planted, or its tests cannot run."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Fault:
    """One small change of one file, what it does, and the tests nearest to it.

    `excuse` is why nothing can find it; only a fault that changes nothing which can be observed has one.
    """

    number: int
    room: str
    file: str
    says: str
    before: str
    after: str
    near: tuple[str, ...] = ()
    excuse: str = ""


def table() -> list[Fault]:
    """Read the faults; raises TableError for one that cannot be planted in the checkout as it is."""
    rows = tomllib.loads(TABLE.read_text())["fault"]
    faults = [Fault(number=n, **{**row, "near": tuple(row.get("near", ()))}) for n, row in enumerate(rows, 1)]
    for fault in faults:
        planted(fault, (CHECKOUT / "src/virtune" / fault.file).read_text())
        for name in fault.near:
            if name != CONTRACTS and not (CHECKOUT / "tests" / name.partition("::")[0]).exists():
                raise TableError(f"{fault.number}: there is no tests/{name}")
    return faults


def planted(fault: Fault, text: str) -> str:
    """Return a file's text with the fault in it; raises TableError unless the text it replaces is there once."""
    if (count := text.count(fault.before)) != 1 or fault.before == fault.after:
        raise TableError(f"{fault.number}: {fault.before!r} stands {count} times in {fault.file}, not once")
    return text.replace(fault.before, fault.after)


@contextlib.contextmanager
def copied() -> Iterator[Path]:
    """Yield a copy of what the tests need of the checkout, and remove it."""
    with tempfile.TemporaryDirectory(prefix="planted-") as place:
        copy = Path(place)
        leave = shutil.ignore_patterns("__pycache__", "target", ".venv")
        for name in COPIED:
            source = CHECKOUT / name
            if source.is_dir():
                shutil.copytree(source, copy / name, ignore=leave, symlinks=True)
            elif source.exists():
                shutil.copy2(source, copy / name)
        yield copy


def run_tests(copy: Path, names: Sequence[str], seconds: float, which: Sequence[str] = FAST) -> int:
    """Run tests of the copy in a child of their own; returns pytest's exit status, or TIME_OUT."""
    sys.stdout.flush()
    child = os.fork()
    if not child:
        _child(copy, names, which)
    return waited(child, seconds)


def waited(child: int, seconds: float) -> int:
    """Wait for a child that leads a session; returns its exit status, or TIME_OUT and all of it is killed."""
    ends = time.monotonic() + seconds
    while time.monotonic() < ends:
        done, status = os.waitpid(child, os.WNOHANG)
        if done:
            return os.waitstatus_to_exitcode(status)
        time.sleep(0.05)
    os.killpg(child, signal.SIGKILL)
    os.waitpid(child, 0)
    return TIME_OUT


def enter(copy: Path) -> None:
    """Make this process, a child, one that tests the copy."""
    os.chdir(copy)
    log = os.open(copy / "pytest.log", os.O_WRONLY | os.O_CREAT | os.O_TRUNC)
    os.dup2(log, 1)
    os.dup2(log, 2)
    os.environ |= {"PYTHONPATH": str(copy / "src"), "PYTHONDONTWRITEBYTECODE": "1", "VIRTUNE_NO_SKIPS": "1"}
    sys.dont_write_bytecode = True
    for name in [name for name in sys.modules if name.partition(".")[0] in ("virtune", "tests", "benchmarks")]:
        del sys.modules[name]
    sys.path[:0] = [str(copy / "src"), str(copy)]


def _child(copy: Path, names: Sequence[str], which: Sequence[str]) -> NoReturn:
    os.setsid()
    enter(copy)
    status = 70
    try:
        status = int(_tested(copy, names, which))
    finally:
        os._exit(status)


def _tested(copy: Path, names: Sequence[str], which: Sequence[str]) -> int:
    pytest, virtune = importlib.import_module("pytest"), importlib.import_module("virtune")
    assert Path(str(virtune.__file__)).is_relative_to(copy), "the tests would run against the checkout"
    if CONTRACTS in names:
        return int(importlib.import_module("importlinter.cli").lint_imports(no_cache=True))
    return int(pytest.main([*which, "-x", *(f"tests/{name}" for name in names)]))


def require_sound(copy: Path, names: Sequence[str], seconds: float) -> None:
    """Raise TableError unless these tests pass in the copy as it is: a test that fails anyway finds nothing."""
    status = run_tests(copy, names, seconds)
    if status != OK:
        log = "they do not end in time" if status == TIME_OUT else (copy / "pytest.log").read_text(errors="replace")
        raise TableError(f"{', '.join(names)}: these do not pass without a fault:\n{log[-2000:]}")


def tried(fault: Fault, copy: Path, *, near_only: bool, seconds: float, sound: set[Sequence[str]]) -> tuple[str, str]:
    """Plant a fault, run its tests and take it out again; returns found or survived, and by what.

    `sound` are the tests that are known to pass without a fault.
    """
    folder = () if near_only or not (copy / "tests" / fault.room).is_dir() else (fault.room,)
    tests = [names for names in (fault.near, folder) if names]
    for names in tests:
        outcome, by = planted_run(fault, copy, names, seconds=seconds, sound=sound)
        if outcome == FOUND:
            return outcome, by
    return SURVIVED, fault.excuse


def planted_run(
    fault: Fault,
    copy: Path,
    names: Sequence[str],
    *,
    seconds: float,
    sound: set[Sequence[str]],
    which: Sequence[str] = FAST,
) -> tuple[str, str]:
    """Plant a fault, run these tests and take it out again; raises TableError where they fail without it."""
    if names not in sound:
        require_sound(copy, names, seconds)
        sound.add(names)
    path = copy / "src/virtune" / fault.file
    whole = path.read_text()
    path.write_text(planted(fault, whole))
    try:
        status = run_tests(copy, names, seconds, which)
    finally:
        path.write_text(whole)
    if status == TIME_OUT:
        return FOUND, f"no end in {seconds:g} s"
    log = (copy / "pytest.log").read_text(errors="replace")
    if status == FAILED:
        return FOUND, _by(log)
    # a fault that stops the modules from being imported is found by whatever imports them
    if status != OK and not any(words in log for words in ("ImportError", "rror while", "ERROR collecting")):
        raise TableError(f"{fault.number}: pytest ended with {status}:\n{log[-2000:]}")
    return (SURVIVED, "") if status == OK else (FOUND, f"the tests cannot be imported: {_by(log)}")


def _by(log: str) -> str:
    """Return the line that says what found a fault."""
    found = SAYS_FAILED.search(log)
    return found.group() if found else "?"


def summary(results: Sequence[tuple[Fault, str, str]]) -> str:
    """Set the results as a table, a row for each room."""
    lines = ["| room | planted | found | survivors |", "|---|---|---|---|"]
    for room in dict.fromkeys(fault.room for fault, _, _ in results):
        mine = [one for one in results if one[0].room == room]
        left = [f"{fault.number} {fault.says}" for fault, outcome, _ in mine if outcome == SURVIVED]
        lines.append(f"| {room} | {len(mine)} | {len(mine) - len(left)} | {'; '.join(left) or '-'} |")
    found = sum(outcome == FOUND for _, outcome, _ in results)
    return "\n".join([*lines, f"| all | {len(results)} | {found} | |"])


def chosen(faults: Sequence[Fault], words: set[str]) -> list[Fault]:
    """Return the faults of these rooms and numbers, all where none is named; raises TableError for a word that is
    neither.
    """
    unknown = words - {word for one in faults for word in (one.room, str(one.number))}
    if unknown:
        raise TableError(f"no room and no number: {', '.join(sorted(unknown))}")
    return [one for one in faults if not words or words & {one.room, str(one.number)}]


def main() -> int:
    """Plant what was asked for; returns the exit status."""
    parser = argparse.ArgumentParser(
        prog="planted", description="Plant small faults and see whether tests find them."
    )
    parser.add_argument("which", nargs="*", help="rooms (analyse) or numbers (7); all without")
    parser.add_argument(
        "--near", action="store_true", help="only the tests named for each fault, not the whole folder"
    )
    parser.add_argument("--check", action="store_true", help="only see whether every fault can be planted")
    parser.add_argument("--seconds", type=float, default=600, help="the longest that the tests of one fault may run")
    args = parser.parse_args()
    try:
        faults = table()
        wanted = chosen(faults, set(args.which))
        if args.check:
            print(f"{len(faults)} faults can be planted")
            return 0
        os.environ["OPENBLAS_NUM_THREADS"] = "1"  # no thread may live where a child is forked
        for name in WARM:
            importlib.import_module(name)
        results: list[tuple[Fault, str, str]] = []
        sound: set[Sequence[str]] = set()
        with copied() as copy:
            for fault in wanted:
                outcome, by = tried(fault, copy, near_only=args.near, seconds=args.seconds, sound=sound)
                results.append((fault, outcome, by))
                print(f"{fault.number:3} {outcome:8} {fault.file}: {fault.says}  [{by[:110]}]", flush=True)
    except TableError as error:
        print(f"planted: {error}", file=sys.stderr)
        return 2
    print(f"\n{summary(results)}")
    return int(any(outcome == SURVIVED and not fault.excuse for fault, outcome, _ in results))


if __name__ == "__main__":
    sys.exit(main())
