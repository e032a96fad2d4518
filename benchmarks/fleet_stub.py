# SPDX-License-Identifier: Apache-2.0
"""Two hundred hosts by an `ssh` that replays what a host said: time and memory of who controls them, report, page.

    python -m benchmarks.fleet_stub [--hosts 200] [--parallel 64]

The studies are those of `benchmarks.many`, one for each host, which its `ssh` gives as the bundle that a host sends.
The results are in fleet.md.
"""

import argparse
import contextlib
import io
import os
import subprocess
import sys
import tempfile
import time
from pathlib import Path

from benchmarks.many import Fleet, make, name_of
from virtune import __version__
from virtune.flows.fleet.here import line_of
from virtune.flows.stored.import_bundle import rows_bundle
from virtune.model.fleet import TaskProgress, TaskState
from virtune.store.store import Store

SSH = """#!/bin/sh
place=$(dirname "$0")
master=
while [ $# -gt 0 ]; do
    case $1 in
    -M) master=yes ;;
    -S) socket=$2; shift ;;
    -o | -F) shift ;;
    --) host=$2; shift; shift; break ;;
    esac
    shift
done
if [ "$master" ]; then : > "$socket"; exec sleep 3600; fi
case $* in
*--version*) echo "virtune, version VERSION" ;;
*--estimate*) cat "$place/estimate" ;;
*--follow*) cat "$place/$host.running"; sleep 2; cat "$place/$host.finished" ;;
*--rows*) cat "$place/$host.zip" ;;
*) echo "$host /usr/bin/virtune" ;;
esac
"""


def record(place: Path, hosts: int, rounds: int) -> Path:
    """Write what each host says; returns the inventory."""
    with contextlib.redirect_stdout(io.StringIO()):
        make(place / "all.sqlite", Fleet(hosts, 1, rounds))
    total = 2 * rounds
    (place / "estimate").write_text(line_of(TaskProgress(state=TaskState.WAITING, left_seconds=60.0)) + "\n")
    for number in range(hosts):
        host, study = f"host{number:03d}", name_of(0, number)
        with Store(place / "all.sqlite", reading=True, host=host) as store:
            (place / f"{host}.zip").write_bytes(rows_bundle(store, study))
        for state, done in ((TaskState.RUNNING, 3), (TaskState.FINISHED, total)):
            said = TaskProgress(state=state, study=study, done=done, total=total, left_seconds=50.0)
            (place / f"{host}.{state}").write_text(line_of(said) + "\n")
    (place / "ssh").write_text(SSH.replace("VERSION", __version__))
    (place / "ssh").chmod(0o755)
    (place / "hosts").write_text("".join(f"host{number:03d}\n" for number in range(hosts)))
    return place / "hosts"


def timed(words: list[str], env: dict[str, str]) -> str:
    """Run a verb and return its row."""
    begun = time.monotonic()
    with subprocess.Popen([sys.executable, "-m", "virtune", *words], env=env, stdout=subprocess.DEVNULL) as process:
        _, status, used = os.wait4(process.pid, 0)
        process.returncode = os.waitstatus_to_exitcode(status)
    assert process.returncode == 0, words
    took, cpu = time.monotonic() - begun, used.ru_utime + used.ru_stime
    shown = " ".join(one for one in words if "/" not in one)
    return f"| `{shown}` | {took:.1f} s | {cpu:.1f} s | {used.ru_maxrss / 1024:.0f} MiB |"


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--hosts", type=int, default=200)
    parser.add_argument("--parallel", type=int, default=64)
    parser.add_argument("--rounds", type=int, default=12)
    asked = parser.parse_args()
    with tempfile.TemporaryDirectory(prefix="vtstub") as folder:
        place = Path(folder)
        hosts = record(place, asked.hosts, asked.rounds)
        env = {**os.environ, "PATH": f"{place}:{os.environ['PATH']}", "XDG_DATA_HOME": str(place / "data")}
        store = ["--store", str(place / "gathered.sqlite")]
        print("| verb | time | CPU | memory |\n|---|---|---|---|", flush=True)
        run = ["fleet", "run", "-i", str(hosts), "--parallel", str(asked.parallel), "--quiet", *store, "check"]
        for words in (
            run,
            ["fleet", "report", *store],
            ["fleet", "report", "--html", str(place / "page.html"), *store],
        ):
            print(timed(words, env), flush=True)


if __name__ == "__main__":
    main()
