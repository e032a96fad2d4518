# SPDX-License-Identifier: Apache-2.0
"""A store of a million trials of a fleet: how long a list, a report and the fleet's verdict take, and their memory.

    python -m benchmarks.many make PLACE [--hosts 200] [--studies 50] [--rounds 50]
    python -m benchmarks.many time PLACE

PLACE is a new SQLite file, or the URL of an empty PostgreSQL database. The trials are those of one simulated
comparison with noise of their own, without captures, which none of these verbs reads; they are brought in by COPY, or
in one transaction. The results are in fleet.md.
"""

import argparse
import json
import math
import os
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from dataclasses import replace
from itertools import islice
from pathlib import Path
from random import Random

from virtune.cli import run
from virtune.model.errors import DatabaseUrl, StorePlace, database_url, is_database
from virtune.model.evidence import InForce, StudyRecord
from virtune.model.measurement import METHOD, Measurement
from virtune.model.study import Trial
from virtune.plan.codec import study_to_json
from virtune.store.queries import dump
from virtune.store.store import Store

Row = tuple[object, ...]
TABLES = {
    "studies": ("id", "created", "kind", "study", "facts", "finished"),
    "trials": ("id", "study_id", "number", "attempt", "round", "arm", "workload", "ended", "failure", "in_force"),
    "measurements": ("trial_id", "method", "measurement"),
}
NAME, BEGUN, QUESTIONS = "20260101-000000-0000", "2026-01-01T00:00:00+00:00", 5
SLOW = 7
"""The host whose disks have three quarters of the others' rate."""


def measured(rounds: int) -> StudyRecord:
    """Return a simulated comparison of two arms with so many rounds, of which only the first were measured."""
    with tempfile.TemporaryDirectory() as place:
        words = ["--arm", "a:rig=simulated", "--arm", "b:rig=simulated,disk.aio=io_uring", "--seed", "1", "--quiet"]
        store = Path(place) / "one.sqlite"
        assert run(["compare", *words, "--json", "--scratch", place, "--store", str(store)]) == 0
        with Store(store) as kept:
            record = kept.get(kept.find("last"))
    load = record.study.workloads[0].name
    trials = tuple(
        Trial(number=2 * number + place + 1, round=number + 1, arm="ab"[place], workload=load)
        for number in range(rounds) for place in (0, 1)
    )  # fmt: skip
    study = replace(record.study, id=NAME, created=BEGUN, trials=trials, rounds=rounds)
    return replace(record, study=study)


def name_of(number: int, host: int) -> str:
    return f"20260101-{number:06d}-{host:04x}"


class Fleet:
    """The rows of all studies of all hosts."""

    def __init__(self, hosts: int, studies: int, rounds: int) -> None:
        self.hosts, self.number, self.record = hosts, studies, measured(rounds)
        every = [replace(self.record.study, seconds=1.0 + one) for one in range(QUESTIONS)]
        self._studies = [study_to_json(one) for one in every]
        self._trials = {one.trial.arm: one for one in self.record.trials}
        self._rows = {arm: dump(InForce, one.in_force) for arm, one in self._trials.items()}
        self._measured = {arm: self._parts(arm) for arm in self._trials}

    def _parts(self, arm: str) -> tuple[str, str, float]:
        """A measurement as text, cut where its rate is."""
        found = self._trials[arm].measurement
        assert found is not None
        whole = dump(Measurement, replace(found, values=tuple(
            (name, 123456789.5 if name == "iops" else value) for name, value in found.values)))  # fmt: skip
        before, _, after = whole.partition("123456789.5")
        return before, after, dict(found.values)["iops"]

    def names(self) -> Iterator[tuple[int, int, str, str]]:
        """Yield every study: its host's number, its own, its key and its id."""
        for number in range(self.number):
            for host in range(self.hosts):
                name = name_of(number, host)
                yield host, number, f"host{host:03d}/{name}", name

    def studies(self) -> Iterator[Row]:
        facts = json.loads(self.record.facts)
        for host, number, key, name in self.names():
            text = self._studies[number % QUESTIONS].replace(NAME, name)
            facts["host"]["cpu"]["governors"] = ["powersave" if host == SLOW else "performance"]
            facts["host"]["number"] = host
            yield key, BEGUN, "compare", text, json.dumps(facts), 1

    def trials(self) -> Iterator[Row]:
        count = 0
        for _, _, key, _ in self.names():
            for one in self.record.study.trials:
                count += 1
                yield (count, key, one.number, 1, one.round, one.arm, one.workload, "2026-01-01T00:10:00+00:00", None,
                       self._rows[one.arm])  # fmt: skip

    def measurements(self) -> Iterator[Row]:
        count = 0
        for host, number, _, _ in self.names():
            chance = Random(host * 1000 + number)
            level = (0.75 if host == SLOW else 1.0) * math.exp(chance.gauss(0, 0.01))
            for one in self.record.study.trials:
                count += 1
                before, after, rate = self._measured[one.arm]
                yield count, METHOD, f"{before}{rate * level * math.exp(chance.gauss(0, 0.05)):.6f}{after}"


def make(place: StorePlace, fleet: Fleet) -> None:
    """Fill a new store."""
    with Store(place):
        pass
    for table, columns in TABLES.items():
        begun = time.monotonic()
        rows: Iterator[Row] = getattr(fleet, table)()
        if isinstance(place, DatabaseUrl):
            copy(place, table, columns, rows)
        else:
            insert(place, table, columns, rows)
        print(f"{table}: {time.monotonic() - begun:.0f} s", flush=True)


def copy(place: DatabaseUrl, table: str, columns: tuple[str, ...], rows: Iterator[Row]) -> None:
    import psycopg

    with psycopg.connect(place.text, options="-c search_path=virtune", autocommit=True) as db:
        with db.cursor().copy(f"COPY {table} ({', '.join(columns)}) FROM STDIN".encode()) as target:
            for row in rows:
                target.write_row(row)
        if table == "trials":
            db.execute(b"SELECT setval('trials_id_seq', max(id)) FROM trials")
        db.execute(b"ANALYZE")


def insert(place: Path, table: str, columns: tuple[str, ...], rows: Iterator[Row]) -> None:
    import sqlite3

    with sqlite3.connect(place) as db:
        db.execute("PRAGMA synchronous=OFF")
        marks = ", ".join("?" * len(columns))
        while part := list(islice(rows, 20_000)):
            db.executemany(f"INSERT INTO {table} ({', '.join(columns)}) VALUES ({marks})", part)  # noqa: S608


def clock(place: str, studies: int) -> None:
    """Print how long each verb takes, its CPU time and its memory."""
    last = ["show", f"host{SLOW:03d}/{name_of(studies - 1, SLOW)}", "--json"]
    page = Path(tempfile.mkdtemp(prefix="vtmany")) / "page.html"
    reports = [last, ["report", last[1], "--output", str(page)], ["fleet", "report"], ["fleet", "report", "--json"]]
    verbs = [["list"], ["show", "list", "--all"], ["show", "list", "--json"], *reports]
    print("| verb | time | CPU | memory |\n|---|---|---|---|")
    for words in verbs:
        timed(words, place)  # then the pages of the database are in memory
        took, cpu, memory = timed(words, place)
        print(f"| `{' '.join(words)}` | {took:.2f} s | {cpu:.2f} s | {memory:.0f} MiB |", flush=True)


def timed(words: list[str], place: str) -> tuple[float, float, float]:
    """Run a verb: its seconds, its seconds of CPU, and its memory in MiB."""
    begun = time.monotonic()
    with subprocess.Popen(
        [sys.executable, "-m", "virtune", *words, "--store", place], stdout=subprocess.DEVNULL
    ) as process:
        _, status, used = os.wait4(process.pid, 0)
        process.returncode = os.waitstatus_to_exitcode(status)
    assert process.returncode == 0, words
    return time.monotonic() - begun, used.ru_utime + used.ru_stime, used.ru_maxrss / 1024


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("what", choices=("make", "time"))
    parser.add_argument("place")
    parser.add_argument("--hosts", type=int, default=200)
    parser.add_argument("--studies", type=int, default=50)
    parser.add_argument("--rounds", type=int, default=50)
    asked = parser.parse_args()
    if asked.what == "time":
        return clock(asked.place, asked.studies)
    place: StorePlace = database_url(asked.place) if is_database(asked.place) else Path(asked.place)
    return make(place, Fleet(asked.hosts, asked.studies, asked.rounds))


if __name__ == "__main__":
    main()
