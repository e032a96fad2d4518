# SPDX-License-Identifier: Apache-2.0
"""How often virtune's statistics are right, and what they cost: simulated hosts, where the truth is known.

    python -m benchmarks.simulated [equal|planted|race ...] [--runs 200]

Drives the product's own `analyse.stats.paired` and `analyse.search.race` over simulated slices (`hosts.py`). Seeds
are fixed.
"""

import argparse
import math
from collections.abc import Callable, Iterator

import numpy as np

from benchmarks.batch import level_at
from benchmarks.hosts import HOSTS, Host, equal_stacks, landscape
from virtune.analyse.search.tuning import Race
from virtune.analyse.stats.paired import Family, compare_planned
from virtune.model.metric import BY_ID
from virtune.model.study_options import SPREAD_SECONDS
from virtune.model.tuning import RaceRules, Standing
from virtune.model.verdict import ROUNDS_MIN, Comparison, Verdict

MARGIN, CONFIDENCE = 0.03, 0.95
BUDGET_SECONDS, OVERHEAD_SECONDS = 300.0, 0.4
"""The defaults of `virtune compare`, and what a trial costs beside its ramp and its measured time."""

SIMULATED_SECONDS = 6000.0

SLICE, SLICE_RAMP = 1.0, 0.5
GRID_SECONDS = 300.0
"""A classic grid measures every configuration five times for 60 s."""


def looks(slice_of: Callable[[int], float], planned: int) -> Iterator[Comparison]:
    """Compare two arms as `virtune compare` does by a plan of so many rounds, and yield what it says at a look."""
    arms: dict[str, list[float]] = {"a": [], "b": []}
    family = Family(metric=BY_ID["iops"], workload="w", margin=MARGIN, confidence=CONFIDENCE)
    for count in range(1, planned + 1):
        for index, row in enumerate(arms.values()):
            row.append(math.exp(slice_of(index)))
        if count >= ROUNDS_MIN:
            level = level_at(count, planned, 1 - CONFIDENCE, fewest=ROUNDS_MIN)
            yield compare_planned(family, arms, [("a", "b")], level=level)[0]


def compared(slice_of: Callable[[int], float], rounds: int) -> Comparison:
    """Return what a comparison says when it stops: as soon as it is decided, at `rounds` at the latest."""
    return next(
        one for one in looks(slice_of, rounds) if one.verdict is not Verdict.UNDECIDED or one.rounds >= rounds
    )


def on_host(kind: str, seed: int, effect: float) -> Callable[[int], float]:
    stacks = equal_stacks(2, effect=effect)
    host = Host(kind, np.random.default_rng([3, seed]), seconds=SIMULATED_SECONDS, switch_seconds=OVERHEAD_SECONDS)
    return lambda arm: host.run(stacks, arm, seconds=2.0, ramp_seconds=0.5)


def correlated(seed: int, lag1: float, sd: float) -> Callable[[int], float]:
    """Two equal arms whose blocks keep `lag1` of their noise, and nothing else that they share."""
    chance, state = np.random.default_rng([4, seed]), [0.0, 0.0]

    def slice_of(arm: int) -> float:
        keeps = lag1 if state[arm] else 0.0
        state[arm] = keeps * state[arm] + math.sqrt(1 - keeps**2) * chance.standard_normal()
        return 10 + sd * state[arm]

    return slice_of


def equal(runs: int) -> None:
    rounds = int(BUDGET_SECONDS / 2 / (2.0 + 0.5 + OVERHEAD_SECONDS))
    cases: list[tuple[str, Callable[[int], Callable[[int], float]]]] = [
        *((kind, lambda seed, kind=kind: on_host(kind, seed, 0.0)) for kind in HOSTS),
        ("independent blocks", lambda seed: correlated(seed, 0.0, 0.05)),
        ("blocks that correlate by 0.3", lambda seed: correlated(seed, 0.3, 0.05)),
    ]
    for name, case in cases:
        found = [compared(case(seed), rounds) for seed in range(runs)]
        share = {verdict: np.mean([one.verdict is verdict for one in found]) for verdict in Verdict}
        different = share[Verdict.BETTER] + share[Verdict.WORSE]
        print(f"equal arms, {name}: called different {different:.3f}, same {share[Verdict.SAME]:.2f}", flush=True)


def planted(runs: int) -> None:
    """One arm is faster by 5 %: how often that is found in the budget, and by a plan as long as was stated.

    What `virtune compare` states of an undecided pair at the end of its plan: the rounds that decide it with 90 %
    probability. They are run anew, on the host as it is then.
    """
    each = 2 * (2.0 + 0.5 + OVERHEAD_SECONDS)
    budget = int(BUDGET_SECONDS / each)
    for kind in HOSTS:
        first, last, stated = list[Comparison](), list[Comparison](), list[int]()
        for seed in range(runs):
            found = compared(on_host(kind, seed, 0.05), budget)
            first.append(found)
            if found.verdict is Verdict.UNDECIDED and found.rounds_left is not None:
                until = min(found.rounds + found.rounds_left, int(SIMULATED_SECONDS / each))
                stated.append(until)
                found = compared(on_host(kind, seed + 10_000, 0.05), until)
            last.append(found)
        at_budget, at_stated = (np.mean([one.verdict is Verdict.BETTER for one in ends]) for ends in (first, last))
        wrong = np.mean([one.verdict in (Verdict.WORSE, Verdict.SAME) for one in last])
        print(
            f"5 % planted, {kind}: found {at_budget:.3f} within {BUDGET_SECONDS:.0f} s (median"
            f" {np.median([one.rounds * each for one in first]):.0f} s), {at_stated:.3f} by the stated plan"
            + (f" (of the {len(stated)} undecided: median {np.median(stated) * each:.0f} s)" if stated else "")
            + f"; called the same or slower {wrong:.3f}",
            flush=True,
        )


def run_race(kind: str, count: int, seed: int, rules: RaceRules) -> tuple[Standing, float, float]:
    """Race `count` stacks on a simulated host: the standing, how far below the best the leader is, seconds."""
    stacks = landscape(count, np.random.default_rng([1, count, seed]))
    chance = np.random.default_rng([1, count, seed, 77])
    slices = rules.slices_max or count * 200
    spread = SPREAD_SECONDS if rules.slices_max is None else 0.0
    host = Host(kind, chance, seconds=(slices + count) * (SLICE + SLICE_RAMP + 0.5) + 200 * spread)
    race = Race([str(arm) for arm in range(count)], rules)
    standing = race.standing
    while standing.up_next and standing.slices <= slices:
        order, begun = chance.permutation(standing.up_next), host.clock
        race.add({arm: host.run(stacks, int(arm), seconds=SLICE, ramp_seconds=SLICE_RAMP) for arm in order})
        standing = race.standing
        host.wait_until(begun + spread)
    truth = stacks.truth(kind)
    return standing, float(np.expm1(truth.max() - truth[int(standing.leader or 0)])), host.measuring


def race(runs: int) -> None:
    for kind in HOSTS:
        for count in (8, 16, 32):
            for quick in (True,) if kind == "shared" else (False, True):
                cap = math.floor(count * GRID_SECONDS / 10 / (SLICE + SLICE_RAMP)) if quick else None
                rules = RaceRules(contenders_first=quick, slices_max=cap)
                found = [run_race(kind, count, seed, rules) for seed in range(runs)]
                cost = float(np.mean([seconds for _, _, seconds in found]))
                true = np.mean([s.distance is None or gap <= s.distance + 1e-12 for s, gap, _ in found])
                near = np.mean([gap <= 0.03 for _, gap, _ in found])
                print(
                    f"race, {kind}, {count} arms, {'quick' if quick else 'certify'}: "
                    f"within 3 % {near:.3f}, stated distance true {true:.3f}, "
                    f"certified {np.mean([s.certified for s, _, _ in found]):.2f}, "
                    f"{cost:.0f} s = 1/{count * GRID_SECONDS / cost:.1f} of the grid",
                    flush=True,
                )


if __name__ == "__main__":
    parts = {"equal": equal, "planted": planted, "race": race}
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("parts", nargs="*", choices=[*parts, []], default=[])
    parser.add_argument("--runs", type=int, default=200)
    asked = parser.parse_args()
    for name in asked.parts or parts:
        parts[name](asked.runs)
