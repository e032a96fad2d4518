# SPDX-License-Identifier: Apache-2.0
"""How often virtune's statistics are right, and what they cost: simulated hosts, where the truth is known.

    python -m benchmarks.simulated race [RUNS]

Drives the product's own `analyse.race` over simulated slices. Seeds are fixed.
"""

import math
import sys
import time

import numpy as np

from benchmarks.hosts import Host, landscape
from virtune.analyse.race import Race
from virtune.model.standing import RaceRules, Standing

SECONDS, RAMP_SECONDS = 1.0, 0.5
GRID_SECONDS = 300.0
"""A classic grid measures every configuration five times for 60 s."""


def run_race(kind: str, count: int, seed: int, rules: RaceRules) -> tuple[Standing, float, float]:
    """Race `count` stacks on a simulated host: the standing, how far below the best the leader is, seconds."""
    stacks = landscape(count, np.random.default_rng([1, count, seed]))
    chance = np.random.default_rng([1, count, seed, 77])
    slices = rules.slices_max or count * 210
    host = Host(kind, chance, seconds=slices * (SECONDS + RAMP_SECONDS + 0.5))
    arms = [str(arm) for arm in range(count)]
    race = Race(arms, rules)
    standing = race.standing
    while standing.up_next and standing.slices + len(standing.up_next) <= slices:
        order = chance.permutation(standing.up_next)
        race.add({arm: host.run(stacks, int(arm), seconds=SECONDS, ramp_seconds=RAMP_SECONDS) for arm in order})
        standing = race.standing
    truth = stacks.truth(kind)
    return standing, float(np.expm1(truth.max() - truth[int(standing.leader or 0)])), host.measuring


def races(runs: int, counts: list[int], kinds: list[str]) -> None:
    for kind in kinds:
        for count in counts:
            for quick in (False, True):
                cap = math.floor(count * GRID_SECONDS / 10 / (SECONDS + RAMP_SECONDS)) if quick else None
                rules = RaceRules(contenders_first=quick, slices_max=cap)
                started, found = time.monotonic(), [run_race(kind, count, seed, rules) for seed in range(runs)]
                near = np.mean([gap <= 0.03 for _, gap, _ in found])
                true = np.mean([s.distance is None or gap <= s.distance + 1e-12 for s, gap, _ in found])
                sure = np.mean([s.certified for s, _, _ in found])
                cost = np.mean([seconds for _, _, seconds in found])
                distances = [math.inf if s.distance is None else s.distance for s, _, _ in found]
                print(
                    f"{kind:7} {count:3} {'quick' if quick else 'certify':8} within 3 % {near:.3f}  true {true:.3f}  "
                    f"certified {sure:.2f}  {cost:6.0f} s = grid/{count * GRID_SECONDS / cost:.1f}  "
                    f"median distance {np.median(distances):.3f}  [{time.monotonic() - started:.0f} s]",
                    flush=True,
                )


if __name__ == "__main__":
    races(int(sys.argv[2]), [int(n) for n in sys.argv[3].split(",")], sys.argv[4].split(","))
