# SPDX-License-Identifier: Apache-2.0
"""The order of trials: every arm under every workload once per round, so that drift affects all of them alike."""

from collections.abc import Collection, Sequence
from dataclasses import replace
from random import Random

from virtune.model.errors import PlanError
from virtune.model.study import Study, Trial

TRIALS_MAX = 100_000
"""At three seconds each this is more than three days; a plan with more is taken for a mistake."""


def trials(
    arms: Sequence[str], workloads: Sequence[str], *, rounds: int, seed: int, restart: bool = False
) -> tuple[Trial, ...]:
    """Plan the trials: `rounds` complete blocks of every arm under every workload, every other one in a new random
    order and the one after it in the reverse of that, so that no arm gains by its place in a round.

    The same seed gives the same order, and more rounds go on where fewer ended. `restart`: each in a new process.
    """
    if not arms or not workloads or rounds < 1:
        raise PlanError("a study needs an arm, a workload and a round")
    count = len(arms) * len(workloads) * rounds
    if count > TRIALS_MAX:
        raise PlanError(f"{count:,} trials are more than {TRIALS_MAX:,}", hint="fewer rounds, arms or workloads")
    pairs = [(arm, workload) for arm in arms for workload in workloads]
    if len(set(pairs)) < len(pairs):
        raise PlanError("two arms, or two workloads, have the same name")
    chance = Random(seed)  # noqa: S311 - a fair order, not a secret
    order: list[tuple[int, str, str]] = []
    places = pairs
    for block in range(1, rounds + 1):
        places = chance.sample(pairs, len(pairs)) if block % 2 else places[::-1]
        order += ((block, *pair) for pair in places)
    return tuple(
        Trial(number=number, round=block, arm=arm, workload=workload, restart=restart)
        for number, (block, arm, workload) in enumerate(order, 1)
    )


def propose(
    study: Study,
    *,
    rounds: int,
    workloads: Collection[str],
    without: Collection[tuple[str, str]] = (),
    restart: bool = False,
) -> tuple[Trial, ...]:
    """Return the trials of the next `rounds` rounds of these workloads, after those in `study.trials`; none when the
    study's rounds are used up.

    The same seed gives the same order, in however many steps it is requested; a workload that needs no more trials,
    or an arm under one (`without`), leaves the order of the others as it is.
    """
    begun = study.rounds_begun
    names = [arm.name for arm in study.arms], [workload.name for workload in study.workloads]
    last = min(begun + rounds, most_rounds(study))
    if last <= begun:
        return ()
    drawn = trials(*names, rounds=last, seed=study.seed, restart=restart)
    wanted = (trial for trial in drawn if trial.round > begun and trial.workload in workloads)
    next_ones = (trial for trial in wanted if (trial.arm, trial.workload) not in without)
    return tuple(replace(trial, number=number) for number, trial in enumerate(next_ones, len(study.trials) + 1))


def most_rounds(study: Study) -> int:
    """Return the most rounds of a study: the requested ones, and for a comparison at most the allowed number of
    trials.

    A comparison ends when it is decided or out of time, so a limit that is never reached does no harm.
    """
    allowed = TRIALS_MAX // max(1, len(study.arms) * len(study.workloads))
    return min(study.rounds, allowed) if study.sequential else study.rounds


def trial_seed(study_seed: int, block: int) -> int:
    """Return the seed of all loads of one round: equal offsets for every arm, new ones in the next round."""
    return study_seed + block
