# SPDX-License-Identifier: Apache-2.0
"""How long reports and the local page take, and how large they are.

    python -m benchmarks.report [--studies 10000] [--rounds 14,500]

Reports are of simulated studies of 4 arms with so many rounds (14: 56 trials, 500: 2,000). The page of studies lists
a store of copies of one of them.
"""

import argparse
import contextlib
import io
import sqlite3
import tempfile
import time
from pathlib import Path

from virtune.cli import run
from virtune.flows.reports.report import report_html
from virtune.store.store import Store

ARMS = ("one", "two", "three", "four")
"""Equal ones, so that nothing is decided and all rounds run."""


def simulated(store: Path, rounds: int) -> None:
    """Put a simulated study of four arms into a store."""
    arms = [word for name in ARMS for word in ("--arm", f"{name}:rig=simulated")]
    sure = ["--rounds", str(rounds), "--confidence", "0.9999999", "--margin", "0.001"]
    with contextlib.redirect_stdout(io.StringIO()):
        assert run(["compare", *arms, *sure, "--seed", "7", "-q", "--store", str(store)]) == 0


def report_cost(folder: Path, rounds: int) -> str:
    """Time the report of a study with so many rounds."""
    store = folder / f"{rounds}.sqlite"
    simulated(store, rounds)
    with Store(store, reading=True) as kept:
        name = kept.find("last")
        trials = len(kept.get(name).trials)
        begun, cpu = time.perf_counter(), time.process_time()
        page = report_html(kept, name)
        took, cpu = time.perf_counter() - begun, time.process_time() - cpu
    return f"report of {trials:,} trials: {took:.1f} s, {cpu:.1f} s of CPU time, {len(page.encode()) / 1e6:.2f} MB"


def list_cost(folder: Path, studies: int) -> str:
    """Time a page of a store of so many studies, without and with a filter that reads all of them."""
    store = folder / "many.sqlite"
    simulated(store, 8)
    with sqlite3.connect(store) as db:
        name, created, kind, study, facts = db.execute(
            "select id, created, kind, study, facts from studies"
        ).fetchone()
        for number in range(studies - 1):
            copy = f"copy-{number}"
            row = (copy, created, kind, study.replace(name, copy), facts, 1)
            db.execute("insert into studies (id, created, kind, study, facts, finished) values (?,?,?,?,?,?)", row)
    told = []
    with Store(store, reading=True) as kept:
        for what, words, offset in (
            ("first page", "", 0),
            ("last page", "", studies - 25),
            ("filtered", "Randread", 0),
        ):
            begun, cpu = time.perf_counter(), time.process_time()
            found = kept.page(words=words, kind="", limit=25, offset=offset)
            took, cpu = time.perf_counter() - begun, time.process_time() - cpu
            told.append(f"{what} {1000 * took:.0f} ms ({1000 * cpu:.0f} ms of CPU time)")
            assert found.total == studies
    return f"{studies:,} studies: {', '.join(told)}"


def main() -> None:
    """Print a line for each."""
    parser = argparse.ArgumentParser()
    parser.add_argument("--studies", type=int, default=10_000)
    parser.add_argument("--rounds", default="14,500")
    asked = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        print(list_cost(Path(folder), asked.studies))
        for rounds in asked.rounds.split(","):
            print(report_cost(Path(folder), int(rounds)))


if __name__ == "__main__":
    main()
