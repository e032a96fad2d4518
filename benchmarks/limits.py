# SPDX-License-Identifier: Apache-2.0
"""Every verb under limits of memory, processes, files, sizes, stack and time: a sentence, or a traceback?

    nice -n 15 python -m benchmarks.limits [-LIMIT...] [CALL...]

Some calls of `benchmarks.runs` (or those that are named) are run under each limit, or
under those that are named: `-n -f`. Prints a table of the exit codes,
and on stderr what was said where that is not 0, every traceback, and what was left behind. A `-` ran to no end.
Limits of processes do not hold for root, so root runs those rows as `nobody` with Debian's Python, where that can
load virtune.
"""

import os
import shutil
import subprocess
import sys
import tempfile
from collections import Counter
from collections.abc import Iterator, Sequence
from pathlib import Path

from benchmarks.runs import CALLS, ROOT, Call, Runs

LIMITS: dict[str, tuple[int, ...]] = {
    "v": (100_000, 150_000, 200_000, 250_000, 300_000, 400_000, 500_000, 600_000, 800_000, 1_200_000, 2_000_000),
    "u": (1, 3, 5, 10, 30, 50),
    "n": (4, 8, 12, 16, 24, 64),
    "f": (0, 1, 16, 256, 4096),
    "s": (64, 128, 256, 1024),
    "t": (1, 2, 3, 5, 8),
}
"""37 limits: memory in KiB, processes, open files, the size of a file in KiB, stack in KiB, CPU seconds."""

FEW = ("list", "show", "import", "measure metal", "compare nbd", "compare simulated")
"""The calls that stand for the others: small ones, one that writes, and three that load."""

NOBODY = 65534

TIMEOUT_SECONDS = 240.0


def as_nobody(runs: Runs, words: list[str]) -> list[str] | None:
    """Return the command that runs virtune as another user; None where that cannot be."""
    if os.geteuid() != 0:
        return [sys.executable, "-m", "virtune", *words]
    python = "/usr/bin/python3"
    packages = next((Path(sys.prefix) / "lib").glob("python3.*/site-packages"))
    paths = f"PYTHONPATH={ROOT / 'src'}:{packages}"
    argv = ["setpriv", "--reuid=65534", "--regid=65534", "--clear-groups", "env", f"HOME={runs.home}", paths, python]
    argv += ["-m", "virtune"]
    tried = subprocess.run([*argv, "knobs"], capture_output=True, env=runs.env, cwd="/", check=False)
    return [*argv, *words] if tried.returncode == 0 else None


def under(runs: Runs, call: Call, kind: str, value: int) -> tuple[int | None, str]:
    """Run a call under one limit; return its exit code, None where it was not run, and what it said."""
    words = runs.words(call)
    argv = as_nobody(runs, words) if kind == "u" else [sys.executable, "-m", "virtune", *words]
    if argv is None:
        return None, "not run: no Python that another user can start has what virtune needs"
    script = f'ulimit -{kind} {value} || exit 99; exec "$@"'
    if kind == "u" and os.geteuid() == 0:
        # processes are counted by user, and only once it is that user
        split = argv.index("env")
        argv = [*argv[:split], "bash", "-c", script, "sh", *argv[split:]]
        script = 'exec "$@"'
    shell = ["bash", "-c", script, "sh", *argv]
    pipe = subprocess.PIPE
    with subprocess.Popen(shell, stdin=subprocess.DEVNULL, stdout=pipe, stderr=pipe, env=runs.env, cwd="/") as child:
        try:
            _, said = child.communicate(timeout=TIMEOUT_SECONDS)
        except subprocess.TimeoutExpired:
            child.kill()
            return None, f"no end after {TIMEOUT_SECONDS:g} s"
    return child.returncode, said.decode(errors="replace")


def rows(runs: Runs, calls: list[Call], kinds: Sequence[str]) -> Iterator[tuple[bool, bool]]:
    """Run all, print a row of a table for each limit and say in a line of its own what was wrong; yield of each run
    whether there was a traceback and whether anything was left.
    """
    print("| limit |", " | ".join(call.name for call in calls), "|\n|---|" + "---|" * len(calls))
    for kind, values in ((kind, LIMITS[kind]) for kind in kinds):
        for value in values:
            cells, notes = [], []
            for call in calls:
                _give(runs.home, NOBODY if kind == "u" else os.geteuid())
                code, said = under(runs, call, kind, value)
                _, left = runs.wait_for_nothing()
                traceback = "Traceback" in said and "virtune" in said
                last = next((line for line in said.splitlines() if line.startswith("error:")), said.strip()[-80:])
                cells.append("-" if code is None else str(code))
                notes += [] if code == 0 else [f"  {call.name}, -{kind} {value}: {last[:140]}"]
                notes += [f"TRACEBACK of {call.name} under -{kind} {value}: {said[-2000:]}"] if traceback else []
                notes += [f"LEFT by {call.name} under -{kind} {value}: {'; '.join(left)}"] if left else []
                if left:
                    runs.run("host", "clean", "--scratch", str(runs.scratch), ok=(0, 1))
                yield traceback, bool(left)
            print(f"| `ulimit -{kind} {value}` | {' | '.join(cells)} |", flush=True)
            print("\n".join(notes), file=sys.stderr, flush=True)


def _give(home: Path, user: int) -> None:
    """Let a user own where the runs keep their things."""
    if os.geteuid() == 0:
        for path in (home, *home.rglob("*")):
            os.chown(path, user, user, follow_symlinks=False)


def main() -> None:
    """Run what is asked for and count."""
    kinds = [word[1:] for word in sys.argv[1:] if word.startswith("-")] or [*LIMITS]
    asked = tuple(word for word in sys.argv[1:] if not word.startswith("-")) or FEW
    calls = [call for call in CALLS if call.name in asked]
    count: Counter[str] = Counter()
    with tempfile.TemporaryDirectory(dir="/var/tmp", prefix="vl") as directory:
        Path(directory).chmod(0o755)
        runs = Runs(Path(directory))
        runs.fill()
        assert shutil.which("setpriv")
        for traceback, left in rows(runs, calls, kinds):
            count.update(rows=1, tracebacks=traceback, left=left)
    print(f"\n{count['rows']} runs, {count['tracebacks']} with a traceback, {count['left']} left something behind")


if __name__ == "__main__":
    main()
