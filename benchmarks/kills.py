# SPDX-License-Identifier: Apache-2.0
"""SIGKILL, or two quick Ctrl-C, at random instants of every verb and rig: what is left, and what is lost?

    nice -n 15 python -m benchmarks.kills [COUNT] [SEED] [kill|interrupt] [NAME...]

Each time one of the calls of `benchmarks.runs` (or those whose name begins with a NAME) is begun, and virtune alone
is killed at an instant drawn from its whole length, or its process group is interrupted twice within 0.4 s. Calls
that end before that do not count, and are drawn again. One in ten is begun as a program of its own, the others are
forked from this process, which has loaded all of virtune: that saves a second of CPU each.

15 s later at most no process, directory, mount or loop device of the run may be there and `virtune host clean` must
have nothing to do but half a scratch image and, in a libvirt domain, what was plugged in; then the domain must be as
it was, after `virtune apply undo` if it was changed, which is killed in turn now and then. No trial may be gone from
a store, no connection or lock be left in PostgreSQL, and nothing may print a traceback. What was imported or gathered
must be whole when that is called again. One interrupted study in five is resumed to its end. Prints a line for each,
and a table in the end.
"""

import contextlib
import os
import signal
import subprocess
import sys
import tempfile
import time
from collections import defaultdict
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from random import Random
from typing import NoReturn

from benchmarks.runs import CALLS, Call, Runs, load_all
from virtune.model.errors import StorePlace

WARM = 0.9
"""The share of calls that are forked from this process."""

EXPECTED = (".partial", "-passing", "note that a run measured in", "from the domain", "virtune-run-ask-")
"""What `virtune host clean` removes after a kill by design: nobody but virtune can take a disk out of a domain, and
half a scratch image is in nobody's way until the next run."""

INTERRUPTED = (0, 130, -signal.SIGINT)


class Forked:
    """A virtune that was forked from this process, with the few things that a Popen is asked here."""

    def __init__(self, runs: Runs, words: Sequence[str]) -> None:
        self._said = tempfile.TemporaryFile()  # noqa: SIM115 - it lives as long as this does
        self.returncode: int | None = None
        self.pid = os.fork()
        if self.pid == 0:
            _become_virtune(runs, words, self._said.fileno())

    def poll(self) -> int | None:
        if self.returncode is None:
            pid, status = os.waitpid(self.pid, os.WNOHANG)
            if pid:
                self.returncode = os.waitstatus_to_exitcode(status)
        return self.returncode

    def wait(self, timeout: float) -> int:
        deadline = time.monotonic() + timeout
        while (code := self.poll()) is None:
            if time.monotonic() >= deadline:
                raise subprocess.TimeoutExpired("virtune", timeout)
            time.sleep(0.005)
        return code

    def said(self) -> str:
        self._said.seek(0)
        return self._said.read().decode(errors="replace")


class Started:
    """A virtune that is a program of its own, from its interpreter's first instant on."""

    def __init__(self, runs: Runs, words: Sequence[str]) -> None:
        self._said = tempfile.TemporaryFile()  # noqa: SIM115 - it lives as long as this does
        argv = [sys.executable, "-m", "virtune", *words]
        streams = {"stdin": subprocess.DEVNULL, "stdout": self._said, "stderr": self._said}
        self._child = subprocess.Popen(argv, env=runs.env, start_new_session=True, **streams)  # type: ignore[call-overload]
        self.pid: int = self._child.pid

    def poll(self) -> int | None:
        code: int | None = self._child.poll()
        return code

    def wait(self, timeout: float) -> int:
        return int(self._child.wait(timeout))

    def said(self) -> str:
        self._said.seek(0)
        return self._said.read().decode(errors="replace")


def _become_virtune(runs: Runs, words: Sequence[str], said: int) -> NoReturn:
    status = 1
    try:
        os.setsid()
        nothing = os.open(os.devnull, os.O_RDONLY)
        for number, descriptor in ((0, nothing), (1, said), (2, said)):
            os.dup2(descriptor, number)
        os.environ.clear()
        os.environ.update(runs.env)
        tempfile.tempdir = None
        signal.signal(signal.SIGINT, signal.default_int_handler)
        from virtune.cli import main

        sys.argv[1:] = words
        main()
        status = 0
    except SystemExit as end:
        status = end.code if isinstance(end.code, int) else int(end.code is not None)
    except BaseException:  # noqa: BLE001 - as the interpreter does: it is shown, and the status is 1
        sys.excepthook(*sys.exc_info())
    finally:
        with contextlib.suppress(OSError, ValueError):
            sys.stdout.flush()
            sys.stderr.flush()
        os._exit(status)


@dataclass
class Row:
    """What happened to one kind of call."""

    ended: int = 0
    alone: int = 0
    trials: int = 0
    resumed: int = 0
    slowest_seconds: float = 0.0
    wrong: list[str] = field(default_factory=list)


@dataclass
class Killer:
    """Calls, ends, looks. `lengths` are how long calls were seen to take, so that instants fall inside them."""

    runs: Runs
    how: str
    chance: Random
    rows: dict[str, Row] = field(default_factory=lambda: defaultdict(Row))
    lengths: dict[str, float] = field(default_factory=dict)
    whole: dict[str, int] = field(default_factory=dict)
    number: int = 0
    there_before: frozenset[str] = frozenset()

    def __post_init__(self) -> None:
        self.there_before = frozenset(self._clean())

    def once(self, call: Call) -> bool:
        """Begin one call and end it at some instant; returns whether it still ran then."""
        runs, row = self.runs, self.rows[call.name]
        before, domain = runs.kept(), runs.domain_as_it_is(call.domain) if call.domain else ""
        warm, fresh = self.chance.random() < WARM, runs.new_store(call.fresh) if call.fresh else None
        words = runs.words(call, fresh)
        child = Forked(runs, words) if warm else Started(runs, words)
        begun, instant = time.monotonic(), self.chance.uniform(0.0, self.lengths.get(call.name, call.seconds))
        with contextlib.suppress(subprocess.TimeoutExpired):
            child.wait(instant + (0.0 if warm else 0.3))
        if (code := child.poll()) is not None:
            self.lengths[call.name] = time.monotonic() - begun
            wrong = [f"exit {code}: {child.said()[-200:]}"] if code not in (0, 1, 2, 3) else []
            row.wrong += wrong
            print(f"    {call.name:18} had ended ({code}) {'; '.join(wrong)}", flush=True)
            runs.wait_for_nothing()
            if call.undo:
                self._put_back(call)
            return False
        self.number += 1
        wrong = self._end(child)
        gone, left = runs.wait_for_nothing()
        wrong += [f"left {', '.join(left)}"] if left else []
        wrong += self._cleaned()
        wrong += self._put_back(call) if call.undo else []
        wrong += (
            ["the domain is not as it was"] if call.domain and runs.domain_as_it_is(call.domain) != domain else []
        )
        wrong += self._made_whole(call.name, words, fresh) if fresh else []
        after = runs.kept()
        wrong += [f"{before - after} trials lost"] if after < before else []
        row.ended, row.alone, row.trials = row.ended + 1, row.alone + (not warm), row.trials + after - before
        row.slowest_seconds = max(row.slowest_seconds, gone)
        resumed = (
            call.stores
            and call.loads
            and "{postgres}" not in call.words
            and after > before
            and self.chance.random() < 0.2
        )
        if resumed:
            wrong += self._resumed(row)
        row.wrong += wrong
        print(
            f"{self.number:3} {call.name:18} after {instant:5.2f} s, gone in {gone:.2f} s, "
            f"{after - before} trials more{', resumed' if resumed else ''}{'' if warm else ', started alone'}"
            f"{'  WRONG: ' if wrong else ''}{'; '.join(wrong)}",
            flush=True,
        )
        return True

    def _end(self, child: Forked | Started) -> list[str]:
        if self.how == "kill":
            os.kill(child.pid, signal.SIGKILL)
            child.wait(60)
        else:
            for wait in (self.chance.uniform(0.02, 0.4), 0.0):
                with contextlib.suppress(ProcessLookupError):
                    os.killpg(child.pid, signal.SIGINT)
                time.sleep(wait)
            try:
                child.wait(90)
            except subprocess.TimeoutExpired:
                os.kill(child.pid, signal.SIGKILL)
                return [f"went on for 90 s after two interrupts: {child.said()[-200:]}"]
        said, code = child.said(), child.poll()
        wrong = [f"traceback: {said[-400:]}"] if "Traceback" in said else []
        return wrong + ([f"exit {code}: {said[-200:]}"] if self.how != "kill" and code not in INTERRUPTED else [])

    def _put_back(self, call: Call) -> list[str]:
        """Undo what was changed; one in four times that is killed in its turn."""
        words = [word.format(home=self.runs.home) for word in call.undo]
        if self.chance.random() < 0.25:
            child = Forked(self.runs, words)
            with contextlib.suppress(subprocess.TimeoutExpired):
                child.wait(self.chance.uniform(0.0, 2.0))
            if child.poll() is None:
                os.kill(child.pid, signal.SIGKILL)
                child.wait(60)
        said = self.runs.fork_and_wait(Forked, *words, ok=(0, 1, 2, 3))
        return [f"undo: {said[-300:]}"] if "error" in said and "no change" not in said else []

    def _made_whole(self, name: str, words: Sequence[str], fresh: StorePlace) -> list[str]:
        """Call it again to its end: what its store holds then must be what it always holds."""
        killed = self.runs.trials_in(fresh)
        self.runs.fork_and_wait(Forked, *words, ok=(0,))
        found = self.runs.trials_in(fresh)
        whole = self.whole.setdefault(name, found)
        if isinstance(fresh, Path):
            fresh.unlink()
        return [] if killed <= found == whole else [f"{killed} trials, then {found} of {whole}"]

    def _cleaned(self) -> list[str]:
        lines = [line for line in self._clean() if "nothing" not in line and line not in self.there_before]
        found = [line for line in lines if not any(one in line for one in EXPECTED)]
        return [f"clean found {line}" for line in found] + [f"after clean: {one}" for one in self.runs.litter()]

    def _clean(self) -> list[str]:
        return self.runs.fork_and_wait(Forked, "clean", "--scratch", str(self.runs.scratch)).strip().splitlines()

    def _resumed(self, row: Row) -> list[str]:
        row.resumed += 1
        runs = self.runs
        said = runs.fork_and_wait(Forked, "resume", "-q", "--store", str(runs.store), ok=(0, 2, 4, 5))
        unfinished = runs.unfinished()
        return [f"resume left it unfinished: {said[-200:]}"] if unfinished else []


def order(count: int, calls: Sequence[Call], chance: Random) -> Iterator[Call]:
    """Yield calls in random order, for ever, as often as their shares say; at first `count` of them."""
    total = sum(call.share for call in calls)
    first = [call for call in calls for _ in range(max(1, round(call.share * count / total)))]
    chance.shuffle(first)
    yield from first
    while True:
        yield from chance.choices(calls, [call.share for call in calls])


def table(rows: dict[str, Row]) -> Iterator[str]:
    """The table for kills.md."""
    yield "| call | ended | of these programs of their own | trials kept | resumed | all gone after | wrong |"
    yield "|---|---|---|---|---|---|---|"
    for name, row in sorted(rows.items()):
        yield (
            f"| {name} | {row.ended} | {row.alone} | {row.trials} | {row.resumed} | {row.slowest_seconds:.1f} s "
            f"| {len(row.wrong)} |"
        )
    ended, wrong = sum(row.ended for row in rows.values()), sum(len(row.wrong) for row in rows.values())
    yield f"| all | {ended} | {sum(row.alone for row in rows.values())} | | | | {wrong} |"


def main() -> int:
    """Kill, look, clean, resume; print the table; returns 1 when anything was wrong."""
    count = int(sys.argv[1]) if len(sys.argv) > 1 else 25
    chance = Random(int(sys.argv[2]) if len(sys.argv) > 2 else 20)
    how = sys.argv[3] if len(sys.argv) > 3 else "kill"
    names = tuple(sys.argv[4:])
    # who starts this in the background may have had it ignored, and so would every virtune that is started from here
    signal.signal(signal.SIGINT, signal.default_int_handler)
    calls = [call for call in CALLS if not names or call.name.startswith(names)]
    with contextlib.ExitStack() as ends:
        directory = ends.enter_context(tempfile.TemporaryDirectory(dir="/var/tmp", prefix="vk"))
        runs = Runs(Path(directory))
        runs.fill()
        runs.with_hosts()
        if any("{postgres}" in call.words or call.fresh == "database" for call in calls):
            ends.enter_context(runs.with_server())
        if any(call.domain for call in calls):
            ends.enter_context(runs.with_domains())
        load_all()
        killer = Killer(runs, how, chance)
        for call in order(count, calls, chance):
            if killer.number >= count:
                break
            killer.once(call)
        for line in table(killer.rows):
            print(line)
        for name, row in killer.rows.items():
            for wrong in row.wrong:
                print(f"{name}: {wrong}")
        return 1 if any(row.wrong for row in killer.rows.values()) else 0


if __name__ == "__main__":
    # set before NumPy is loaded: no thread may live where a child is forked
    os.environ["OPENBLAS_NUM_THREADS"] = "1"
    sys.exit(main())
