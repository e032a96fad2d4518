# SPDX-License-Identifier: Apache-2.0
"""What a fleet costs a host that is being measured: its CPU while it is followed or looked at, and its IOPS.

    python -m benchmarks.fleet_idle [--seconds 60] [--rounds 30]

A task that runs is planted on a host (a network namespace with an sshd of its own, as in tests/fleet): its lock is
held, and nothing of it takes CPU. Counted is all CPU time on the host, from the sshd down, by its control group: with
nobody there, followed as `fleet run` does, looked at as `fleet status` does, and left again. Then fio loads a
file with and without a follower in turn; the ratio of its IOPS has a 95 % interval. The results are in fleet.md.
"""

import argparse
import contextlib
import fcntl
import json
import math
import os
import subprocess
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path
from random import Random
from statistics import fmean, stdev

from tests.fleet.machines import Machine, Machines, machines

from virtune.analyse.stats.student import two_sided
from virtune.flows.fleet.ask import FleetAccess
from virtune.flows.fleet.run import states_of
from virtune.model.fleet import FleetHost, FleetRun, FleetTask, TaskState

TASK = "idle.0"


@contextlib.contextmanager
def planted(machine: Machine) -> Iterator[None]:
    """Have a task that runs, as far as anybody can tell."""
    place = machine.place / "data" / "virtune" / "fleet-tasks" / TASK
    place.mkdir(parents=True)
    (place / "words.json").write_text('["check"]')
    (place / "pid").write_text(str(os.getpid()))
    with (place / "lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        yield


def cpu_seconds(machine: Machine) -> float:
    """All CPU time that was used on the host so far."""
    assert machine.group is not None
    return int((machine.group / "cpuacct.usage").read_text()) / 1e9


@contextlib.contextmanager
def counted(machine: Machine) -> Iterator[None]:
    """Count the CPU time of a host's sshd and all that it starts, in a control group."""
    group = Path("/sys/fs/cgroup/cpuacct") / f"vtidle{os.getpid()}"
    group.mkdir()
    assert machine.sshd is not None
    (group / "cgroup.procs").write_text(str(machine.sshd.pid))
    machine.group = group
    try:
        yield
    finally:
        Path("/sys/fs/cgroup/cpuacct/cgroup.procs").write_text(str(machine.sshd.pid))
        with contextlib.suppress(OSError):
            group.rmdir()


@contextlib.contextmanager
def calling(*words: str) -> Iterator[None]:
    """Have a program run, once it has said something or a second has passed."""
    with subprocess.Popen(words, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL) as process:
        try:
            time.sleep(3)  # it connects, and its Python starts; that is not what is counted
            yield
        finally:
            process.terminate()


def follower(fleet: Machines, machine: Machine) -> list[str]:
    """What `fleet run` has running for a task: one connection, and the host's virtune that follows."""
    return ["ssh", "-F", str(fleet.config), machine.name, "virtune", "fleet", "here", TASK, "--follow"]


def iops(place: Path) -> float:
    """Load a file for two seconds."""
    words = ["fio", "--name=x", f"--filename={place}", "--size=64M", "--rw=randread", "--bs=4k", "--iodepth=4",
             "--ioengine=io_uring", "--direct=1", "--time_based", "--runtime=2", "--output-format=json"]  # fmt: skip
    done = subprocess.run(words, capture_output=True, check=True)
    return float(json.loads(done.stdout)["jobs"][0]["read"]["iops"])


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--seconds", type=float, default=60)
    parser.add_argument("--rounds", type=int, default=30)
    asked = parser.parse_args()
    chance = Random(1)
    with tempfile.TemporaryDirectory(prefix="vtidle") as folder, machines(Path(folder), "a") as fleet:
        machine, file = fleet.by_name["a"], Path(folder) / "file"
        host = FleetHost(name="a", target="a", config=str(fleet.config))
        task = FleetTask(name=TASK, host=host, part=0)
        run = FleetRun(name="idle", created="", words=("check",), tasks=(task,), at_once=1, shares="shares")
        with planted(machine), counted(machine):
            print("| on the host | CPU |\n|---|---|", flush=True)
            with calling("sleep", "600"):
                report("nobody is there", machine, asked.seconds)
            with calling(*follower(fleet, machine)):
                report("followed, as `fleet run` does", machine, asked.seconds)
            before = cpu_seconds(machine)
            for _ in range(20):
                states = states_of(run, FleetAccess())
                assert states[TASK].state is TaskState.RUNNING
            each = (cpu_seconds(machine) - before) / 20 * 1000
            print(f"| one look by `fleet status`, with its connection | {each:.0f} ms |", flush=True)
            logs = []
            iops(file)
            for _ in range(asked.rounds):
                found = {}
                for with_it in chance.sample((True, False), 2):
                    with calling(*follower(fleet, machine)) if with_it else calling("sleep", "600"):
                        found[with_it] = iops(file)
                logs.append(math.log(found[True] / found[False]))
        reach = two_sided(0.95, len(logs) - 1) * stdev(logs) / math.sqrt(len(logs))
        low, mean, high = (math.expm1(fmean(logs) + one) for one in (-reach, 0.0, reach))
        print(f"IOPS beside a follower: {mean:+.1%} ({low:+.1%} to {high:+.1%}, {asked.rounds} rounds)")


def report(words: str, machine: Machine, seconds: float) -> None:
    """Print what share of one CPU the host used meanwhile."""
    before = cpu_seconds(machine)
    time.sleep(seconds)
    print(f"| {words} | {(cpu_seconds(machine) - before) / seconds:.3%} |", flush=True)


if __name__ == "__main__":
    main()
