# SPDX-License-Identifier: Apache-2.0
"""How long `virtune show derive` takes by one process and by several, in a SQLite file or a PostgreSQL database, and
there by the workers of a Dask cluster as well.

    python -m benchmarks.derive [--studies 100] [--rounds 12] [--processes 1,2] [--postgres] [--workers 1,2]
    python -m benchmarks.derive --into URL ...

The studies are those of a fleet, copies of one simulated comparison with all its captures, whose figures say that an
older method made them. Each row begins with the same store; with --into such studies are added for each row to a
database that is large already (`benchmarks.many`). The results are in fleet.md.
"""

import argparse
import contextlib
import io
import json
import os
import resource
import shutil
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from pathlib import Path

from tests.dasks import cluster

from virtune.cli import run
from virtune.model.errors import StorePlace, database_url
from virtune.model.measurement import METHOD
from virtune.store.store import Store

HOSTS = 20


def fill(place: StorePlace, folder: Path, studies: int, rounds: int, *, hosts: str = "host") -> None:
    """Add so many studies of hosts of this name to a store, which an older method measured."""
    words = ["--arm", "a:rig=simulated", "--arm", "b:rig=simulated,disk.aio=io_uring", "--seed", "1", "--quiet"]
    one = folder / "one.sqlite"
    more = ["--rounds", str(rounds), "--json", "--scratch", str(folder), "--store", str(one)]
    with contextlib.redirect_stdout(io.StringIO()):
        assert run(["compare", *words, *more]) == 0
    with Store(one) as kept:
        record = kept.get(kept.find("last"))
        captures = [kept.captures(record.study.id, each.trial.number) for each in record.trials]
    trials = tuple(
        replace(each, measurement=each.measurement and replace(each.measurement, method=METHOD - 1))
        for each in record.trials
    )
    for host in range(HOSTS):
        with Store(place, host=f"{hosts}{host:02d}") as store:
            for number in range(studies // HOSTS):
                study = replace(record.study, id=f"20260101-{number:06d}-{host:04x}")
                store.add_whole(replace(record, study=study, trials=trials, attempts=trials), captures)


@contextlib.contextmanager
def stores(
    folder: Path, studies: int, rounds: int, *, postgres: bool, into: str | None
) -> Iterator[Iterator[StorePlace]]:
    """Yield the same store again and again."""
    if into is not None:
        there = database_url(into)
        hosts = ((one, f"added{os.getpid()}-{one}-") for one in range(100))  # as no call before named them
        yield (_filled(there, folder / str(one), studies, rounds, hosts=name) for one, name in hosts)
        return
    if postgres:
        from tests.postgres import server

        with server() as database:
            named = ((one, database_url(database.new_database(f"n{one}").text)) for one in range(100))
            yield (_filled(place, folder / str(one), studies, rounds) for one, place in named)
        return
    first = folder / "first.sqlite"
    fill(first, folder, studies, rounds)
    yield (Path(shutil.copy(first, folder / f"{number}.sqlite")) for number in range(100))


def _filled(place: StorePlace, folder: Path, studies: int, rounds: int, *, hosts: str = "host") -> StorePlace:
    folder.mkdir()
    fill(place, folder, studies, rounds, hosts=hosts)
    return place


def derive(how: Sequence[str], environment: Mapping[str, str]) -> tuple[int, float, float]:
    """Derive a store; returns how many trials it derived, how long that took, and the CPU of its processes."""
    words = ["show", "derive", "--json", *how]
    before, begun = resource.getrusage(resource.RUSAGE_CHILDREN), time.monotonic()
    done = subprocess.run([sys.executable, "-m", "virtune", *words], capture_output=True, check=True, env=environment)
    took, after = time.monotonic() - begun, resource.getrusage(resource.RUSAGE_CHILDREN)
    cpu = after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime
    return sum(one["derived"] for one in json.loads(done.stdout)["studies"]), took, cpu


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--studies", type=int, default=100)
    parser.add_argument("--rounds", type=int, default=12)
    parser.add_argument("--processes", default="1,2")
    parser.add_argument("--postgres", action="store_true")
    parser.add_argument("--into", metavar="URL", help="a database that is there")
    parser.add_argument("--workers", default="", help="of a Dask cluster, with --postgres or --into")
    asked = parser.parse_args()
    ways = [("process", int(count)) for count in asked.processes.split(",") if count]
    ways += [("worker", int(count)) for count in asked.workers.split(",") if count]
    assert asked.postgres or asked.into or not asked.workers, "the workers of a cluster see no file of this machine"
    with (
        tempfile.TemporaryDirectory(prefix="vtderive") as folder,
        stores(Path(folder), asked.studies, asked.rounds, postgres=asked.postgres, into=asked.into) as every,
    ):
        print("| by | trials | time | speed-up | CPU |\n|---|---|---|---|---|", flush=True)
        first = None
        for number, (what, count) in enumerate(ways):
            place, there = next(every), Path(folder) / f"dask{number}"
            there.mkdir()
            with contextlib.ExitStack() as used:
                how, environment = ["--parallel", str(count)], dict(os.environ)
                if what == "worker":
                    dask = used.enter_context(cluster(there, count))
                    how, environment = ["--cluster", dask.address], {**environment, **dask.environment}
                derived, took, cpu = derive([*how, "--store", str(place)], environment)
            first = first or took
            # what the workers of a cluster take is not that of a child
            cost = f"{cpu:.1f} s" if what == "process" else "-"
            print(f"| {count} {what} | {derived} | {took:.1f} s | {first / took:.2f} | {cost} |", flush=True)


if __name__ == "__main__":
    main()
