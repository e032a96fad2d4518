# SPDX-License-Identifier: Apache-2.0
"""Kill what carries a fleet's study at many instants, and count what was lost: sshd, study, controller, link.

    python -m benchmarks.fleet_faults [--instants 30] [--seed 1]

Each time a simulated comparison runs on a host (a network namespace with an sshd of its own, as in tests/fleet), one
thing is killed or taken down at a random instant of the run, and `fleet run --again` goes on where the controller is
gone. Counted are trials that are missing, trials that were measured twice, and studies too many, on the host and in
the gathered store. The results are in fleet.md.
"""

import argparse
import contextlib
import json
import os
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from collections import Counter
from pathlib import Path
from random import Random

from tests.fleet.machines import Machine, listen, machines

from virtune.model.evidence import Listed
from virtune.store.store import Store

FAULTS = ("sshd", "sessions", "study", "controller", "link")
STUDY = ["compare", "--arm", "x:rig=simulated", "--arm", "y:rig=simulated,disk.aio=io_uring", "--seed", "3"]
RUN_SECONDS = 600


def kept(place: Path) -> list[tuple[int, int]]:
    """Trials and attempts of every study in a store."""
    with Store(place, reading=True) as store:
        names = [one.study.id for one in store.list() if isinstance(one, Listed)]
        records = [store.get(name) for name in names]
    return [(len(one.trials), len(one.attempts)) for one in records]


def strike(fault: str, machine: Machine, controller: "subprocess.Popen[bytes]") -> bool:
    """Do it; returns whether there was something to strike."""
    assert machine.sshd is not None
    if fault == "controller":
        controller.kill()
        return True
    if fault == "study":
        with contextlib.suppress(OSError, ValueError, StopIteration):
            task = next((machine.place / "data" / "virtune" / "fleet-tasks").glob("*"))
            os.kill(int((task / "pid").read_text()), signal.SIGKILL)
            return True
        return False
    if fault == "link":
        machine.link("down")
        time.sleep(2)
        machine.link("up")
        return True
    struck = machine.sessions()
    for pid in struck:
        with contextlib.suppress(ProcessLookupError):
            os.kill(pid, signal.SIGKILL)
    if fault == "sshd":  # the listener, too; what starts it again is another
        machine.sshd.kill()
        machine.sshd.wait()
        listen(machine)
    return bool(struck)


def once(machine: Machine, config: Path, fault: str, chance: Random, place: Path) -> tuple[str, bool, float]:
    """Run a study under one fault: the result, whether anything was struck, and when."""
    shutil.rmtree(machine.place / "data" / "virtune", ignore_errors=True)
    env = {**os.environ, "XDG_DATA_HOME": str(place / "home")}
    into = ["--into", str(place / "all"), "--json"]
    words = [sys.executable, "-m", "virtune", "fleet", "run"]
    hosts = ["--ssh-config", str(config), "--host", machine.name]
    after = chance.uniform(0.5, 12)
    quiet = {"stdout": subprocess.DEVNULL, "stderr": subprocess.DEVNULL}
    with subprocess.Popen([*words, *hosts, *into, *STUDY], env=env, **quiet) as controller:  # type: ignore[call-overload]
        time.sleep(after)
        struck = controller.poll() is None and strike(fault, machine, controller)
        controller.wait(RUN_SECONDS)
    done = subprocess.CompletedProcess[str]([], 1)
    for _ in range(3):
        again = [*words, "--again", "last", *into]
        done = subprocess.run(again, env=env, capture_output=True, text=True, timeout=RUN_SECONDS, check=False)
        if done.returncode == 0:
            break
    if "no run 'last'" in done.stderr:
        return "nothing had begun", struck, after
    if done.returncode:
        return f"not finished: {done.stderr.strip()[-200:]} {done.stdout[-300:]}", struck, after
    (task,) = json.loads(done.stdout)["tasks"]
    there = kept(machine.place / "data" / "virtune" / "virtune.sqlite")
    here = kept(place / "all" / f"{machine.name}.sqlite")
    sound = task["state"] == "finished" and there == here == [(12, 12)]
    return "nothing lost" if sound else f"{task['state']}: {there} there, {here} here", struck, after


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--instants", type=int, default=30)
    parser.add_argument("--seed", type=int, default=1)
    asked = parser.parse_args()
    chance, counts = Random(asked.seed), Counter[tuple[str, str]]()
    with tempfile.TemporaryDirectory(prefix="vtfaults") as folder:
        place = Path(folder)
        with machines(place, "a", "b") as fleet:
            for number in range(asked.instants):
                fault, mine = FAULTS[number % len(FAULTS)], place / f"run{number}"
                mine.mkdir()
                said, struck, after = once(fleet.by_name["a"], fleet.config, fault, chance, mine)
                counts[fault, said if struck else f"{said} (it was over)"] += 1
                print(
                    f"{number + 1}: {fault} after {after:.1f} s: {'' if struck else 'over already; '}{said}",
                    flush=True,
                )
    print("\n| killed or down | result | times |\n|---|---|---|")
    for (fault, said), times in sorted(counts.items()):
        print(f"| {fault} | {said} | {times} |")


if __name__ == "__main__":
    main()
