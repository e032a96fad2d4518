# SPDX-License-Identifier: Apache-2.0
"""Do independent runs of virtune agree which disk stack is best, and do their verdicts contradict each other?

    python benchmarks/ranking.py run RUN [--rounds N] [--seconds S]   # one run, kept; two minutes or so
    python benchmarks/ranking.py show                                               # what all runs say together

A run compares threads, native and io_uring x raw and qcow2 x IOThread on and off by the rig vhost-user, in
interleaved rounds, with a seed of its own. Two runs agree when their best arms are the same, or neither calls the
other's best arm worse than its own: "the same winner, or the same". A contradiction is a pair of arms that one run
calls better and another worse.
"""

import argparse
import itertools
import json
import statistics
import subprocess
import sys
from pathlib import Path
from typing import Any

KEPT = Path("/var/tmp/virtune-ranking")
AXES = ("disk.aio=threads,native,io_uring", "disk.format=raw,qcow2", "export.iothread=on,off")


def main() -> None:
    """Run or show."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("what", choices=["run", "show"])
    parser.add_argument("number", type=int, nargs="?", default=1)
    parser.add_argument("--rounds", default="8")
    parser.add_argument("--seconds", default="1")
    parser.add_argument("--span", default="512M")
    asked = parser.parse_args()
    KEPT.mkdir(exist_ok=True)
    if asked.what == "run":
        run(asked.number, asked.rounds, asked.seconds, asked.span)
    else:
        show([json.loads(path.read_text()) for path in sorted(KEPT.glob("run-*.json"))])


def run(number: int, rounds: str, seconds: str, span: str) -> None:
    """Compare all arms once, in a study of its own."""
    words = [sys.executable, "-m", "virtune", "compare", "--rig", "vhost-user", "--workload", "randread-4k", "--json"]
    words += [word for axis in AXES for word in ("--vary", axis)]
    words += ["--rounds", rounds, "--seconds", seconds, "--ramp", "200ms", "--seed", str(1000 + number), "-q"]
    words += ["--span", span, "--scratch", str(KEPT), "--store", str(KEPT / "store.sqlite")]
    text = subprocess.run(words, check=True, stdout=subprocess.PIPE, text=True).stdout
    (KEPT / f"run-{number}.json").write_text(text)


def show(runs: list[Any]) -> None:
    """Print every run's ranking, whether they agree, and what the switches took."""
    tables = [iops(one) for one in runs]
    best = [max(table, key=lambda arm: table[arm]) for table in tables]
    arms = sorted(tables[0], key=lambda arm: -statistics.fmean(table[arm] / max(table.values()) for table in tables))
    print(f"{'arm':28}" + "".join(f"{'run ' + str(n):>18}" for n in range(1, len(runs) + 1)))
    for arm in arms:
        cells = (f"{table[arm] / 1e3:8.1f}k (#{place(table, arm):>2})" for table in tables)
        print(f"{arm:28}" + "".join(f"{cell:>18}" for cell in cells))
    print(f"best: {', '.join(best)}")
    for (m, one), (n, other) in itertools.combinations(enumerate(runs), 2):
        words = [verdict(one, best[n], best[m]), verdict(other, best[m], best[n])]
        agree = best[m] == best[n] or "worse" not in words
        said = "the same winner" if best[m] == best[n] else f"the other's winner is {words[0]} / {words[1]}"
        against = contradictions(one, other)
        print(f"run {m + 1} and {n + 1}: {'agree' if agree else 'DISAGREE'} ({said}), {len(against)} contradictions")
    took = [way["seconds"] for one in runs for arm in one["arms"] for way in ways(arm) if way["swapped"]]
    new = sum(1 for one in runs for arm in one["arms"] for way in ways(arm) if not way["swapped"])
    low, middle, high = (sorted(took)[int(len(took) * share)] * 1e3 for share in (0.05, 0.5, 0.95))
    print(
        f"{len(took)} switches: median {middle:.0f} ms, 5 % to 95 %: {low:.0f} to {high:.0f} ms; {new} new processes"
    )


def iops(document: Any) -> dict[str, float]:
    """IOPS over all rounds by arm."""
    return {arm["name"]: arm["workloads"][0]["values"]["iops"]["value"] for arm in document["arms"]}


def place(table: dict[str, float], arm: str) -> int:
    """The rank of an arm, from 1."""
    return sorted(table, key=lambda name: -table[name]).index(arm) + 1


def verdict(document: Any, candidate: str, baseline: str) -> str:
    """What a run says of one arm against another."""
    turned = {"better": "worse", "worse": "better"}
    for one in document["comparisons"]:
        if (one["candidate"], one["baseline"]) == (candidate, baseline):
            return str(one["verdict"])
        if (one["candidate"], one["baseline"]) == (baseline, candidate):
            return turned.get(one["verdict"], str(one["verdict"]))
    return "same"


def contradictions(one: Any, other: Any) -> list[tuple[str, str]]:
    """The pairs that one run calls better and the other worse."""
    pairs = [(found["candidate"], found["baseline"]) for found in one["comparisons"]]
    return [pair for pair in pairs if {verdict(one, *pair), verdict(other, *pair)} == {"better", "worse"}]


def ways(arm: Any) -> list[Any]:
    """How the trials of an arm came to run."""
    return [trial["changeover"] for trial in arm["rounds"] if trial["changeover"]]


main()
