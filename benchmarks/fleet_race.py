# SPDX-License-Identifier: Apache-2.0
"""The race of `virtune fleet tune` on simulated fleets: how often what it says is wrong, and how much faster it is.

    python -m benchmarks.fleet_race [--fleets 1000] [--optuna 40]

Twelve arms, gaps between them exponential with a mean of 8 %, rounds that vary by 6 %; the effect of each arm on each
host is its own, with a standard deviation `tau`. A race is wrong where it eliminated the arm that is the best over
all hosts of this kind, or certified one that is more than the margin (3 %) worse than that. Time is counted in slices
that pass: hosts measure side by side.

With --optuna the same slices on the same hosts are given to others too: to Optuna's TPE, whose trials run on all of
them side by side (a trial is a slice), of which the best trial is taken, as Optuna's users do, or the arm with the
best mean; and to the race on one host of the fleet alone.
"""

import argparse
import math
from collections.abc import Iterator

import numpy as np

from virtune.analyse.search.fleet_race import HOSTS_MIN, TURNS, FleetRace, rounds_of
from virtune.analyse.search.tuning import Race
from virtune.model.tuning import Place, RaceRules

ARMS, GAP, NOISE, MARGIN = 12, 0.08, 0.06, 0.03
SLICES_MAX = 3000


def fleet(chance: np.random.Generator, hosts: int, tau: float, *, odd: bool) -> tuple[np.ndarray, np.ndarray]:
    """Return the arms' true levels over all such hosts, and on each of some hosts. `odd`: on half of the hosts, of
    another generation, three arms are 10 % lower and three 10 % higher, and hosts have heavy tails.
    """
    heavy = chance.standard_t(3, (hosts, ARMS)) / math.sqrt(3)
    levels = -chance.exponential(GAP, ARMS)
    own = levels + tau * (heavy if odd else chance.normal(size=(hosts, ARMS)))
    if odd:
        shift = np.zeros(ARMS)
        shift[:3], shift[3:6] = -0.1, 0.1
        own[chance.random(hosts) < 0.5] += shift
        levels = levels + shift / 2
    return levels, own


def raced(chance: np.random.Generator, levels: np.ndarray, own: np.ndarray) -> tuple[bool, bool, bool, int]:
    """Return whether a race certified, was wrong, chose within the margin, and how many slices passed."""
    names = [str(one) for one in range(ARMS)]
    race, slices = FleetRace(names, RaceRules(margin=MARGIN)), 0
    up = list(names)
    for turn in range(TURNS):
        rows, rounds = [], rounds_of(turn, len(own))
        for host, mine in enumerate(own):
            for _ in range(rounds):
                common = chance.normal(0, 0.05)
                rows.append((str(host), {arm: mine[int(arm)] + common + chance.normal(0, NOISE) for arm in up}))
        race.turn(rows)
        slices += rounds * len(up)
        up = list(race.standing.up_next)
        if not up or race.more_hosts_only:
            break
    return *judged(race, levels), slices


def judged(race: Race, levels: np.ndarray) -> tuple[bool, bool, bool]:
    known, best = race.standing, str(int(levels.argmax()))
    behind = levels.max() - levels[int(known.leader or 0)]
    gone = any(one.arm == best and one.place is Place.ELIMINATED for one in known.runners)
    far = behind > math.log1p(MARGIN)
    return known.certified, gone or (known.certified and far), not far


def alone(chance: np.random.Generator, own: np.ndarray, most: int = SLICES_MAX) -> tuple[int, int]:
    """Return the slices of a race on one host to its certificate, or to so many slices, and its leader."""
    names = [str(one) for one in range(ARMS)]
    race, slices, up = Race(names, RaceRules(margin=MARGIN)), 0, list(names)
    while up and slices < most:
        race.add({arm: own[int(arm)] + chance.normal(0, NOISE) for arm in up})
        slices += len(up)
        up = list(race.standing.up_next)
    return slices, int(race.standing.leader or 0)


def by_optuna(chance: np.random.Generator, own: np.ndarray, slices: int) -> tuple[int, int]:
    """Return the arm of the best trial, and that of the best mean, where each host runs a trial a slice."""
    import optuna

    optuna.logging.set_verbosity(optuna.logging.ERROR)
    sampler = optuna.samplers.TPESampler(seed=int(chance.integers(2**31)), constant_liar=True)
    study = optuna.create_study(direction="maximize", sampler=sampler)
    found: dict[int, list[float]] = {}
    for _ in range(slices):
        trials = [study.ask() for _ in own]
        arms = [trial.suggest_categorical("arm", range(ARMS)) for trial in trials]
        for mine, trial, arm in zip(own, trials, arms, strict=True):
            level = mine[arm] + chance.normal(0, 0.05) + chance.normal(0, NOISE)
            found.setdefault(arm, []).append(level)
            study.tell(trial, level)
    return study.best_params["arm"], max(found, key=lambda arm: float(np.mean(found[arm])))


def others(fleets: int) -> Iterator[str]:
    yield "| hosts | tau | this race | Optuna, best trial | Optuna, best mean | the race on one host |"
    yield "|---|---|---|---|---|---|"
    for hosts in (3, 6, 20):
        for tau in (0.0, 0.02, 0.05, 0.1):
            chance, near = np.random.default_rng(hosts * 100 + int(1000 * tau)), []
            for _ in range(fleets):
                levels, own = fleet(chance, hosts, tau, odd=False)
                if hosts < HOSTS_MIN:
                    levels = own.mean(axis=0)
                *_, ours, slices = raced(chance, levels, own)
                chosen = (*by_optuna(chance, own, slices), alone(chance, own[0], slices)[1])
                near.append((ours, *(levels.max() - levels[arm] <= math.log1p(MARGIN) for arm in chosen)))
            yield f"| {hosts} | {tau:.0%} | {' | '.join(f'{one:.0%}' for one in np.mean(near, axis=0))} |"


def rows(fleets: int) -> Iterator[str]:
    yield "| hosts | tau | wrong | certified | leader within 3 % of the best | slices, median | as fast as one host |"
    yield "|---|---|---|---|---|---|---|"
    for hosts in (3, 6, 14, 20):
        for tau, odd in ((0.0, False), (0.02, False), (0.05, False), (0.1, False), (0.02, True)):
            chance = np.random.default_rng(hosts * 100 + int(1000 * tau) + odd)
            found, single = [], []
            for number in range(fleets):
                levels, own = fleet(chance, hosts, tau, odd=odd)
                if hosts < HOSTS_MIN:
                    levels = own.mean(axis=0)
                found.append(raced(chance, levels, own))
                if number < 100:
                    single.append(alone(chance, own[0])[0])
            certified, wrong, near, slices = map(np.array, zip(*found, strict=True))
            speed = np.median(single) / np.median(slices)
            kind = f"{tau:.0%}" + (", two generations, heavy tails" if odd else "")
            yield (
                f"| {hosts} | {kind} | {wrong.mean():.1%} | {certified.mean():.0%} | {near.mean():.0%} |"
                f" {np.median(slices):.0f} | {speed:.1f} |"
            )


def main() -> None:
    asked = argparse.ArgumentParser(description=__doc__)
    asked.add_argument("--fleets", type=int, default=1000)
    asked.add_argument("--optuna", type=int, metavar="FLEETS")
    words = asked.parse_args()
    for row in rows(words.fleets) if words.optuna is None else others(words.optuna):
        print(row, flush=True)


if __name__ == "__main__":
    main()
