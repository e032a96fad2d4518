# SPDX-License-Identifier: Apache-2.0
"""Ways to choose a configuration, replayed over the same recorded seconds of real disks, of which the best is known.

    python -m benchmarks.replay [--runs 200] [--slices 100] [--apart SECONDS] [--record FILE]

The record is `benchmarks.tune`'s truth: interleaved rounds of every configuration. Whoever replays it asks for one
slice of a configuration after another and gets what that configuration did in the round of that moment: N slices are
as long as a round of N configurations. Each run begins at another round, and the record goes round. So everybody sees
the host's drift and noise as they were; only slices as long as the record's can be had. `--apart` lets virtune's
blocks begin that far apart, as `tune --spread` does.

The peers: the grid as bench-fio runs it (all loops of one configuration, then the next), Optuna's TPE alone (as many
trials as there are slices, the best value wins), mlos_core's SMAC where it is installed (`--ways mlos`).
"""

import argparse
import math
import statistics
import warnings
from collections.abc import Callable
from functools import partial
from pathlib import Path
from random import Random

import numpy as np

from benchmarks.tune import AXES, Key, Rounds, centered, packed, truth
from virtune.analyse.search.tuning import Race
from virtune.model.tuning import RaceRules

NEAR = 0.03
SLICE_SECONDS = 2.0
"""1.5 s and 0.5 s of ramp, as the truth's were."""


class Record:
    """The recorded seconds from some round on; `spent` counts slices."""

    def __init__(self, rounds: Rounds, begin: int) -> None:
        self._rounds, self._begin, self.spent = rounds, begin, 0

    def wait_until(self, slices: int) -> None:
        """Let time go on until so many slices could have run."""
        self.spent = max(self.spent, slices)

    def slice_of(self, key: Key) -> float:
        """Return ln(IOPS) of a configuration at this moment; time goes on by one slice."""
        each = len(self._rounds[0])
        found = self._rounds[(self._begin + self.spent // each) % len(self._rounds)][key]
        self.spent += 1
        return math.log(found)


Chooser = Callable[[Record, list[Key], int, int], tuple[Key, float | None]]
"""(record, configurations, slices to spend, seed) -> the chosen one, and the stated distance to the best."""


def virtune(record: Record, keys: list[Key], slices: int, seed: int, *, apart: int = 0) -> tuple[Key, float | None]:
    """Race as `tune --mode quick` does; blocks begin the time of `apart` slices apart."""
    names = {"+".join(key): key for key in keys}
    chance, race = Random(seed), Race(list(names), RaceRules(contenders_first=True, slices_max=slices))
    while race.standing.up_next:
        order, begun = chance.sample(race.standing.up_next, len(race.standing.up_next)), record.spent
        race.add({name: record.slice_of(names[name]) for name in order})
        record.wait_until(begun + apart)
    return names[race.standing.leader or next(iter(names))], race.standing.distance


def bench_fio(record: Record, keys: list[Key], slices: int, seed: int) -> tuple[Key, float | None]:
    """Run all loops of one configuration, then the next, and take the best mean."""
    order = Random(seed).sample(keys, len(keys))
    loops = max(1, slices // len(keys))
    means = {key: statistics.fmean(record.slice_of(key) for _ in range(loops)) for key in order}
    return max(means, key=lambda key: means[key]), None


def optuna_alone(record: Record, keys: list[Key], slices: int, seed: int) -> tuple[Key, float | None]:
    """Let TPE ask for one slice after another, and take the best value that it saw."""
    import optuna

    optuna.logging.set_verbosity(optuna.logging.ERROR)
    study = optuna.create_study(direction="maximize", sampler=optuna.samplers.TPESampler(seed=seed))

    def objective(trial: optuna.Trial) -> float:
        key = tuple(str(trial.suggest_categorical(knob, values)) for knob, values in AXES.items())
        if key not in keys:
            raise optuna.TrialPruned
        return record.slice_of(key)

    while record.spent < slices:
        study.optimize(objective, n_trials=1)
    best = study.best_trial.params
    return tuple(str(best[knob]) for knob in AXES), None


def mlos(record: Record, keys: list[Key], slices: int, seed: int) -> tuple[Key, float | None]:
    """Let mlos_core's SMAC suggest one configuration after another, each measured a few times; the best mean wins."""
    import ConfigSpace
    import pandas
    from mlos_core.data_classes import Observations
    from mlos_core.optimizers import OptimizerFactory, OptimizerType
    from smac.main.exceptions import ConfigurationSpaceExhaustedException

    space = ConfigSpace.ConfigurationSpace(seed=seed)
    space.add([ConfigSpace.CategoricalHyperparameter(knob, values) for knob, values in AXES.items()])
    optimizer = OptimizerFactory.create(
        parameter_space=space,
        optimization_targets=["score"],
        optimizer_type=OptimizerType.SMAC,
        optimizer_kwargs={"seed": seed, "max_trials": 10 * slices},
    )
    best: tuple[float, Key] | None = None
    repeats = max(1, slices // int(space.estimate_size()))  # as mlos_bench repeats every trial of a configuration
    while record.spent + repeats <= slices:
        try:
            suggestion = optimizer.suggest()
        except ConfigurationSpaceExhaustedException:  # it has had each of them once
            break
        key = tuple(str(suggestion.config[knob]) for knob in AXES)
        value = statistics.fmean(record.slice_of(key) for _ in range(repeats)) if key in keys else -100.0
        if key in keys and (best is None or value > best[0]):
            best = value, key
        done = suggestion.complete(pandas.Series({"score": -value}))
        optimizer.register(observations=Observations(observations=[done]))
    return best[1] if best else keys[0], None


def main() -> None:
    """Print one line for each way."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--runs", type=int, default=200)
    parser.add_argument("--slices", type=int, nargs="+", default=[60, 100, 200])
    parser.add_argument("--ways", nargs="+", choices=list(WAYS), default=["virtune", "bench-fio", "Optuna TPE"])
    parser.add_argument("--seed", type=int, default=0, help="of the first run")
    parser.add_argument("--apart", type=float, default=0.0, help="seconds between the beginnings of virtune's blocks")
    parser.add_argument("--record", type=Path, help="a file that `benchmarks.tune pack` wrote, instead of its latest")
    asked = parser.parse_args()
    rounds = packed(asked.record) if asked.record else truth()
    keys = list(rounds[0])
    level = {key: statistics.fmean(found) for key, found in centered(rounds).items()}
    top = max(level.values())
    near = sum(top - one <= math.log1p(NEAR) for one in level.values())
    print(f"{len(rounds)} rounds of {len(keys)} configurations; {near} of them within 3 % of the best")
    ways = WAYS | {"virtune": partial(virtune, apart=round(asked.apart / SLICE_SECONDS))}
    for slices in asked.slices:
        for name in asked.ways:
            gaps, said, took = list[float](), list[bool](), list[float]()
            for seed in range(asked.seed, asked.seed + asked.runs):
                record = Record(rounds, Random(seed).randrange(len(rounds)))
                with warnings.catch_warnings():
                    warnings.simplefilter("ignore")
                    key, distance = ways[name](record, keys, slices, seed)
                took.append(record.spent * SLICE_SECONDS)
                gaps.append(-math.expm1(level[key] - top))
                said.append(distance is None or math.expm1(top - level[key]) <= distance + 1e-9)
            right = float(np.mean([gap <= NEAR for gap in gaps]))
            print(
                f"{slices} slices, {statistics.fmean(took):.0f} s, {name}: within 3 % {right:.3f} (standard error"
                f" {math.sqrt(right * (1 - right) / asked.runs):.3f}), mean"
                f" {100 * np.mean(gaps):.1f} % below the best"
                + (f"; stated distance true {np.mean(said):.2f}" if name == "virtune" else "; states no distance"),
                flush=True,
            )


WAYS: dict[str, Chooser] = {"virtune": virtune, "bench-fio": bench_fio, "Optuna TPE": optuna_alone, "mlos": mlos}

if __name__ == "__main__":
    main()
