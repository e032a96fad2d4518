# SPDX-License-Identifier: Apache-2.0
"""Does `virtune tune` find the most IOPS at a bounded p99, and in which part of a dense sweep's time?

    python -m benchmarks.depth [--searches 10] [--scenarios quiet,noisy,drifting,alike]

Two engines, and the depth of the load as a knob, on the simulated rig, where the truth is a formula: at depth d a
disk of capacity C takes 80 us + d / C in the mean, and 2.1 times that at p99. `tune` gets ten depths, each about
sqrt(2) times the one before. The dense sweep is what a user would run without a search: both engines at each depth
from 1 to 32 for six rounds (the fewest that decide anything) of 2 s and 0.5 s of ramp, the defaults of `virtune
compare`; of those whose mean p99 keeps the limit, the one with the most IOPS. Both are the product itself: only its
disk is simulated. Seconds are those of load and ramps, repeated trials included, as `tune` states them.
"""

import argparse
import contextlib
import io
import itertools
import json
import statistics
import tempfile
from dataclasses import dataclass
from typing import Any

from virtune.bench.simulated import ALONE_NS, CAPACITY_IOPS, EFFECTS
from virtune.cli import run

ENGINES = {name: CAPACITY_IOPS * EFFECTS.get(("disk.aio", name), 1.0) for name in ("threads", "io_uring")}
LIMITS = {"500us": 500e-6, "1ms": 1e-3, "2ms": 2e-3}
TAIL = 2.1
DENSE = tuple(range(1, 33))
TRIED = (1, 2, 3, 4, 6, 8, 11, 16, 23, 32)
ROUNDS, SECONDS, RAMP = 6, 2.0, 0.5
CONFIRM_SECONDS = 5.0
"""The default of `virtune tune`."""

Point = tuple[str, int]
"""An engine and a depth."""


@dataclass(frozen=True, slots=True)
class Found:
    """What one of the two chose (None for no choice), the seconds that it measured, and those of them that confirmed
    the choice on fresh data.
    """

    point: Point | None
    seconds: float
    confirming: float = 0.0


def main() -> None:
    """Run both on every scenario and print a row for each limit."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--searches", type=int, default=10)
    parser.add_argument("--scenarios", default="quiet,noisy,drifting,alike")
    asked = parser.parse_args()
    heads = ("host, limit", "dense: chosen, s", "tune: chosen", "within 10 % of it", "keeps the limit", "of its time")
    print(f"| {' | '.join([*heads, 'with the confirmation'])} |")
    print("|---|---|---|---|---|---|---|")
    for scenario in asked.scenarios.split(","):
        rows = dense_rows(scenario)
        for limit in LIMITS:
            print(row(scenario, limit, rows, asked.searches), flush=True)


def row(scenario: str, limit: str, rows: dict[Point, tuple[float, float]], searches: int) -> str:
    """Search with different seeds and compare each choice with the dense sweep's."""
    dense = best_of(rows, LIMITS[limit])
    found = [searched(scenario, limit, seed) for seed in range(1, searches + 1)]
    chosen = [one.point for one in found if one.point is not None]
    best = iops_of(dense.point) if dense.point else 0.0
    near = sum(iops_of(point) >= 0.9 * best for point in chosen)
    kept = sum(p99_of(point) <= LIMITS[limit] for point in chosen)
    often = sorted(counted(chosen).items(), key=lambda pair: -pair[1])
    names = ", ".join(f"{count} x {name(point)}" for point, count in often)
    searching = [(one.seconds - one.confirming) / dense.seconds for one in found]
    whole = [one.seconds / dense.seconds for one in found]
    return (
        f"| {scenario}, {limit} | {name(dense.point)}, {dense.seconds:.0f} | {names or 'none'}"
        f" | {near} of {searches} | {kept} of {searches} | {of_time(searching)} | {of_time(whole)} |"
    )


def of_time(shares: list[float]) -> str:
    """Write shares of the dense sweep's time."""
    return f"{statistics.median(shares):.0%}, at most {max(shares):.0%}"


def counted(points: list[Point]) -> dict[Point, int]:
    """Count each."""
    return {point: points.count(point) for point in set(points)}


def name(point: Point | None) -> str:
    """Write a point."""
    return "none" if point is None else f"{point[0]} {point[1]}"


def mean_of(point: Point) -> float:
    """Return the true mean latency in seconds."""
    engine, depth = point
    return ALONE_NS / 1e9 + depth / ENGINES[engine]


def iops_of(point: Point) -> float:
    """Return the true IOPS."""
    return point[1] / mean_of(point)


def p99_of(point: Point) -> float:
    """Return the true p99 in seconds."""
    return TAIL * mean_of(point)


def best_of(rows: dict[Point, tuple[float, float]], limit: float) -> Found:
    """Return the dense sweep's choice from its IOPS and p99."""
    keeping = {point: iops for point, (iops, p99) in rows.items() if p99 <= limit}
    seconds = len(rows) * ROUNDS * (SECONDS + RAMP)
    return Found(max(keeping, key=lambda point: keeping[point]) if keeping else None, seconds)


def dense_rows(scenario: str) -> dict[Point, tuple[float, float]]:
    """Measure every point, and return the means of IOPS and p99 (seconds) of each."""
    words = ["compare", "--rig", f"simulated:{scenario}", "--rounds", str(ROUNDS), "--seconds", f"{SECONDS}s"]
    words += ["--ramp", f"{RAMP}s", "--seed", "1"]
    for engine, depth in itertools.product(ENGINES, DENSE):
        words += ["--arm", f"{engine}-{depth}:disk.aio={engine},workload.iodepth={depth}"]
    found: dict[Point, tuple[float, float]] = {}
    for arm in asked_for(words)["arms"]:
        engine, _, depth = arm["name"].rpartition("-")
        values = [one["measurement"]["values"] for one in arm["rounds"] if one["measurement"]]
        iops, p99 = (statistics.fmean(one[key] for one in values) for key in ("iops", "latency.p99"))
        found[engine, int(depth)] = iops, p99 / 1e9
    return found


def searched(scenario: str, limit: str, seed: int) -> Found:
    """Search once."""
    words = ["tune", "--rig", f"simulated:{scenario}", "--vary", f"disk.aio={','.join(ENGINES)}"]
    words += ["--vary", f"workload.iodepth={','.join(map(str, TRIED))}", "--maximize", "iops"]
    found = asked_for([*words, "--subject-to", f"latency.p99<={limit}", "--seed", str(seed)])
    settings = next((arm["settings"] for arm in found["arms"] if arm["name"] == found["winner"]), None)
    seconds, pairs = found["cost"]["measured_seconds"], found["confirmation"] and found["confirmation"]["pairs"]
    confirming = 2 * (pairs or 0) * (CONFIRM_SECONDS + RAMP)
    point = None if settings is None else (settings.get("disk.aio", "threads"), int(settings["workload.iodepth"]))
    return Found(point, seconds, confirming)


def asked_for(words: list[str]) -> Any:
    """Run virtune in a store of its own and return what it says."""
    with tempfile.TemporaryDirectory() as place, contextlib.redirect_stdout(io.StringIO()) as out:
        run([*words, "--store", f"{place}/store.sqlite", "--scratch", f"{place}/scratch", "-q", "--json"])
    return json.loads(out.getvalue())


if __name__ == "__main__":
    main()
