# SPDX-License-Identifier: Apache-2.0
"""Do independent runs of virtune agree which disk stack is best, and do their verdicts contradict each other?

    python benchmarks/ranking.py run RUN [--rounds N] [--seconds S]   # one run, kept; two minutes or so
    python benchmarks/ranking.py show                                               # what all runs say together
    python benchmarks/ranking.py winners [--margin 0.05] [--budget 10m]             # their winners against each other

A run compares threads, native and io_uring x raw and qcow2 x IOThread on and off by the rig vhost-user, in
interleaved rounds, with a seed of its own. Two runs agree when their best arms are the same, or when each calls the
other's best arm "same"; "undecided" is neither. They contradict each other where one calls an arm better that the
other calls worse. `winners` compares the winners of all runs, alone and for as long as it takes to call them the same
within the margin, which a run of twelve arms has no time for.
"""

import argparse
import itertools
import json
import statistics
import subprocess
import sys
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from virtune.analyse.stats.paired import Family, compare
from virtune.model.metric import BY_ID

KEPT = Path("/var/tmp/virtune-ranking")
AXES = ("disk.aio=threads,native,io_uring", "disk.format=raw,qcow2", "export.iothread=on,off")


def main() -> None:
    """Run or show."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("what", choices=["run", "show", "winners"])
    parser.add_argument("number", type=int, nargs="?", default=1)
    parser.add_argument("--rounds", default="8")
    parser.add_argument("--seconds", default="1")
    parser.add_argument("--span", default="512M")
    parser.add_argument("--margin", default="0.05")
    parser.add_argument("--budget", default="10m")
    asked = parser.parse_args()
    KEPT.mkdir(exist_ok=True)
    if asked.what == "run":
        run(asked.number, asked.rounds, asked.seconds, asked.span)
        return
    runs = [json.loads(path.read_text()) for path in sorted(KEPT.glob("run-*.json"))]
    if asked.what == "show":
        show(runs)
    else:
        winners(runs, asked)


def winners(runs: list[Any], asked: argparse.Namespace) -> None:
    """Compare the fastest arm of every run with those of the others, and print what is found."""
    knobs = [axis.partition("=")[0] for axis in AXES]
    best = dict.fromkeys(max(table, key=lambda arm: table[arm]) for table in map(iops, runs))
    words = [sys.executable, "-m", "virtune", "compare", "--rig", "vhost-user", "--workload", "randread-4k"]
    for number, name in enumerate(best, 1):
        values = [part.rpartition("=")[2] for part in name.split("+")]
        settings = ",".join(f"{knob}={value}" for knob, value in zip(knobs, values, strict=True))
        words += ["--arm", f"winner{number}:{settings}"]
    words += ["--margin", asked.margin, "--budget", asked.budget, "--seconds", asked.seconds, "--ramp", "200ms", "-q"]
    words += ["--span", asked.span, "--scratch", str(KEPT), "--store", str(KEPT / "store.sqlite"), "--json"]
    found = json.loads(subprocess.run(words, check=True, stdout=subprocess.PIPE, text=True).stdout)
    print("; ".join(f"winner{number} is {name}" for number, name in enumerate(best, 1)))
    for one in found["comparisons"]:
        ratio = one["ratio"]
        ends = f" {100 * (ratio['low'] - 1):+.1f} to {100 * (ratio['high'] - 1):+.1f} %" if ratio else ""
        print(f"{one['candidate']} against {one['baseline']}: {one['verdict']}{ends}")
    rounds = found["basis"]["workloads"][0]["rounds"]
    print(f"{rounds} rounds, margin {asked.margin}, stopped: {found['study']['stopped']}")


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
    for number, (one, table, first) in enumerate(zip(runs, tables, best, strict=True), 1):
        counts = Counter(found["verdict"] for found in one["comparisons"])
        worse = [arm for arm in sorted(table) if verdict(one, arm, first) == "worse"]
        print(f"run {number}: best {first}; worse than it: {', '.join(worse) or 'none for certain'}; {dict(counts)}")
    for (m, one), (n, other) in itertools.combinations(enumerate(runs), 2):
        words = {verdict(one, best[n], best[m]), verdict(other, best[m], best[n])}
        said = "the same winner" if best[m] == best[n] else f"the winners are {' and '.join(sorted(words))}"
        against = contradictions(one, other)
        print(
            f"run {m + 1} and {n + 1}: {said}; {len(against)} pairs of arms called better by one, worse by the other"
        )
    for number, one in enumerate(runs, 1):
        print(f"run {number}: " + "; ".join(effects(one)))
    took = [way["seconds"] for one in runs for arm in one["arms"] for way in ways(arm) if way["swapped"]]
    new = sum(1 for one in runs for arm in one["arms"] for way in ways(arm) if not way["swapped"])
    low, middle, high = (sorted(took)[int(len(took) * share)] * 1e3 for share in (0.05, 0.5, 0.95))
    print(
        f"{len(took)} switches: median {middle:.0f} ms, 5 % to 95 %: {low:.0f} to {high:.0f} ms; {new} new processes"
    )


def effects(document: Any) -> Iterator[str]:
    """Say of each axis which value is better: in each round, the mean over arms that differ in nothing else.

    What virtune calls invalid (too little of the CPU, others at the disk) is left out with its partner.
    """
    rounds: dict[int, dict[str, float]] = {}
    for name, trial in ((arm["name"], trial) for arm in document["arms"] for trial in arm["rounds"]):
        if all(remark["weight"] != "invalid" for remark in trial["measurement"]["remarks"]):
            rounds.setdefault(trial["round"], {})[name] = trial["measurement"]["values"]["iops"]
    pairs = [pair for axis in AXES for pair in itertools.combinations(levels(axis), 2)]
    for one, other in pairs:
        ratios = [ratio for found in rounds.values() if (ratio := ratio_in(found, one, other))]
        confidence = 1 - 0.01 / len(pairs)
        family = Family(metric=BY_ID["iops"], workload="randread-4k", margin=0.03, confidence=confidence)
        found = compare(family, (one, [1.0] * len(ratios)), (other, ratios))
        change = "" if found.ratio is None else f" {100 * (found.ratio.estimate - 1):+.0f} %"
        yield f"{other} against {one}: {found.verdict.value}{change} ({len(ratios)} rounds)"


def ratio_in(found: dict[str, float], one: str, other: str) -> float | None:
    """The geometric mean over the pairs of arms that differ in this value only; None without a pair."""
    partners = [(arm, "+".join(other if word == one else word for word in arm.split("+"))) for arm in found]
    ratios = [found[twin] / found[arm] for arm, twin in partners if arm != twin and twin in found]
    return statistics.geometric_mean(ratios) if ratios else None


def levels(axis: str) -> list[str]:
    """The values of an axis as they stand in the names of arms."""
    knob, _, values = axis.partition("=")
    return [f"{knob.rpartition('.')[2]}={value}" for value in values.split(",")]


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
