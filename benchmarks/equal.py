# SPDX-License-Identifier: Apache-2.0
"""The same stack twice or four times, many times over: how often is an arm called better or worse than the baseline?

    python benchmarks/equal.py [RUNS] [--arms 2 4] [--budget TIME | --rounds N] [--seconds TIME] [--keep FILE]
    python benchmarks/equal.py --told FILE        # the table of a kept file
    python -m benchmarks.equal --again FILE       # its rounds judged by today's plan, as they are and resampled

Each run is what a user would type, `virtune compare --rig metal --arm a: --arm b:`, which takes five minutes where it
is not decided sooner. Shorter trials in a shorter budget have as many rounds and looks, and how long a trial is does
not change how often equal arms are called different: `equal.py 20 --arms 2 4 --rounds 16 --seconds 300ms` takes 25
minutes on a quiet machine. Where one in twenty is promised, more than 5 of 40 runs are called different with
probability 0.01; a test that is broken on purpose (an ordinary t at every look) shows none in 40 runs of five minutes
with probability 0.02.

`--keep` adds a line for each run: the verdicts, and ln IOPS of every arm in every round. `--again` judges them by
the plan as it is now; resampled, a run begins in a random one of its rounds, goes round, and has a random baseline.
"""

import argparse
import json
import math
import os
import subprocess
import sys
import tempfile
from collections import Counter
from pathlib import Path
from random import Random
from typing import Any

from virtune.model.verdict import ROUNDS_MIN

DIFFERENT = ("better", "worse")


def main() -> None:
    """Run the comparisons, or read kept ones, and count their verdicts."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("runs", type=int, nargs="?", default=20, help="of each number of arms")
    parser.add_argument("--arms", type=int, nargs="+", default=[2])
    parser.add_argument("--budget", default="5m")
    parser.add_argument("--rounds", help="in place of a budget: under a heavy load a budget ends after a few")
    parser.add_argument("--seconds", default="2s")
    parser.add_argument("--ramp", default="500ms")
    parser.add_argument("--span", default="1G")
    parser.add_argument("--keep", type=Path)
    parser.add_argument("--told", type=Path)
    parser.add_argument("--again", type=Path)
    asked = parser.parse_args()
    if asked.told:
        print("\n".join(table([json.loads(line) for line in asked.told.read_text(encoding="utf-8").splitlines()])))
        return
    if asked.again:
        again([json.loads(line) for line in asked.again.read_text(encoding="utf-8").splitlines()])
        return
    kept: list[dict[str, Any]] = []
    for number in range(1, asked.runs + 1):
        for arms in asked.arms:
            kept.append(run(arms, asked))
            print(f"{number:3} {told(kept[-1])}", flush=True)
            if asked.keep:
                with asked.keep.open("a", encoding="utf-8") as file:
                    file.write(json.dumps(kept[-1]) + "\n")
    print("\n".join(["", *table(kept)]))


def run(arms: int, asked: argparse.Namespace) -> dict[str, Any]:
    """Compare equal arms once, in a store of its own, and return what is kept of it."""
    load = os.getloadavg()[0]
    with tempfile.TemporaryDirectory() as directory:
        words = [sys.executable, "-m", "virtune", "compare", "--rig", "metal", "-q", "--json"]
        words += [word for arm in range(arms) for word in ("--arm", f"{chr(ord('a') + arm)}:")]
        words += ["--rounds", asked.rounds] if asked.rounds else ["--budget", asked.budget]
        words += ["--seconds", asked.seconds, "--ramp", asked.ramp, "--span", asked.span]
        words += ["--scratch", f"{directory}/scratch", "--store", f"{directory}/store.sqlite"]
        found = json.loads(subprocess.run(words, capture_output=True, text=True, check=True).stdout)
    return {
        "arms": arms,
        "load": [round(load, 1), round(os.getloadavg()[0], 1)],
        "stopped": found["study"]["stopped"],
        "rounds": found["study"]["looks"][-1]["round"] if found["study"]["looks"] else 0,
        "repeated": sum(trial["attempt"] > 1 for arm in found["arms"] for trial in arm["rounds"]),
        "verdicts": [one["verdict"] for one in found["comparisons"]],
        "ratios": [[round(one["ratio"][key], 4) for key in ("low", "high")] if one["ratio"] else None
                   for one in found["comparisons"]],
        "ln_iops": values(found["arms"]),
    }  # fmt: skip


def values(arms: list[Any]) -> list[list[float | None]]:
    """Return ln IOPS of the last attempt of every arm in every round: rounds x arms."""
    each = [{trial["round"]: trial["measurement"] for trial in arm["rounds"]} for arm in arms]
    rounds = range(1, max((number for one in each for number in one), default=0) + 1)
    return [[ln_iops(one.get(number)) for one in each] for number in rounds]


def ln_iops(measurement: Any) -> float | None:
    """Return ln IOPS of a trial that measured something."""
    iops = measurement["values"].get("iops") if measurement else None
    return round(math.log(iops), 4) if iops else None


def again(runs: list[dict[str, Any]], times: int = 25) -> None:
    """Judge kept rounds by today's plan and print how many comparisons call an arm different."""
    from benchmarks.sooner import decided

    chance = Random(47)
    for arms in sorted({one["arms"] for one in runs}):
        some = [[row for row in one["ln_iops"] if None not in row] for one in runs if one["arms"] == arms]
        some = [rows for rows in some if len(rows) >= ROUNDS_MIN]
        wrong = 0
        for turn in range(times + 1):
            for rows in some:
                begin = chance.randrange(len(rows)) if turn else 0
                order = chance.sample(range(arms), arms) if turn else range(arms)
                drawn = rows[begin:] + rows[:begin]
                found = decided({str(arm): [math.exp(row[arm]) for row in drawn] for arm in order})[1]
                wrong += any(word in DIFFERENT for _, word in found.values())
            if turn in (0, times):
                print(f"{arms} arms, {'as they are' if not turn else f'{times} times resampled'}: {wrong} of"
                      f" {len(some) * (turn or 1)} called different", flush=True)  # fmt: skip
            wrong = wrong if turn else 0


def told(one: dict[str, Any]) -> str:
    """Say in a line what a run came to."""
    ends = (f"[{100 * (low - 1):+.2f}, {100 * (high - 1):+.2f}] %" for low, high in filter(None, one["ratios"]))
    said = f"{one['arms']} arms: {', '.join(one['verdicts'])} after {one['rounds']} rounds {' '.join(ends)}"
    return f"{said}; {one['repeated']} repeats, load {one['load'][0]} to {one['load'][1]}"


def table(runs: list[dict[str, Any]]) -> list[str]:
    """Return the table of all runs in Markdown."""
    lines = ["| arms | comparisons | one called different | all called the same | median rounds | load average |",
             "|---|---|---|---|---|---|"]  # fmt: skip
    for arms in sorted({one["arms"] for one in runs}):
        some = [one for one in runs if one["arms"] == arms]
        wrong = sum(any(word in DIFFERENT for word in one["verdicts"]) for one in some)
        same = sum(set(one["verdicts"]) == {"same"} for one in some)
        loads = sorted(one["load"][1] for one in some)
        rounds = sorted(one["rounds"] for one in some)[len(some) // 2]
        lines.append(f"| {arms} | {len(some)} | {wrong} | {same} | {rounds} | {loads[0]} to {loads[-1]} |")
    words = Counter(word for one in runs for word in one["verdicts"])
    return [*lines, "", f"{len(runs)} comparisons; verdicts: {dict(words)}"]


if __name__ == "__main__":
    main()
