# SPDX-License-Identifier: Apache-2.0
"""What a search runs next: a block of trials, a function of what it knows and of its seed."""

from collections.abc import Iterator, Sequence
from random import Random

from virtune.model.knobs import whole_plot
from virtune.model.search import FIRST_ROUND, Phase
from virtune.model.study import Study, Trial
from virtune.model.tuning import Tuning
from virtune.plan.propose import proposals


def next_block(study: Study, known: Tuning, *, rounds: int, trials: int) -> tuple[Trial, ...]:
    """Return the trials of the next block, none when the search is over.

    `rounds` of the present phase are complete, and `trials` in all; what is known is known from these alone. So the
    same block comes again when a search was killed in its middle.
    """
    if known.finished:
        return ()
    number = FIRST_ROUND[known.phase] + rounds
    arms = _arms(study, known, rounds)
    anew = _first_of_plots(study, arms) if known.phase is Phase.RACE else frozenset()
    pairs = [(arm, workload.name) for arm in arms for workload in study.workloads]
    return tuple(
        Trial(
            number=trials + index,
            round=number,
            arm=arm,
            workload=workload,
            restart=arm in anew and workload == study.workloads[0].name,
        )
        for index, (arm, workload) in enumerate(pairs, 1)
    )


def _arms(study: Study, known: Tuning, rounds: int) -> Sequence[str]:
    winner = known.winner or study.baseline
    match known.phase:
        case Phase.PROBE:
            return [study.baseline]
        case Phase.RACE:
            if known.wanted:
                leader = [known.standing.leader] if known.standing.leader else []
                return list(_shuffled(study, [*leader, *proposals(study, known, block=rounds)], rounds))
            return list(_shuffled(study, known.standing.up_next, rounds))
        case Phase.CONFIRM:
            # A B B A: what drifts evenly falls on both alike
            return [winner, study.baseline] if rounds % 2 else [study.baseline, winner]
        case Phase.SOAK:
            count = -(-int(study.search.soak_seconds) // 10) if study.search else 1
            return [winner] if rounds < count else [study.baseline]


def _shuffled(study: Study, arms: Sequence[str], block: int) -> Iterator[str]:
    """Yield the arms in random order, those together that the rig can swap for one another (a split plot).

    The groups come in random order and so do the arms within one, anew in each block: what is made anew is paid once
    for each group and block, and what it brings with it by chance is another one each time.
    """
    chance = Random(f"{study.seed}/{block}")  # noqa: S311 - a fair order, not a secret
    groups: dict[tuple[object, ...], list[str]] = {}
    for name in sorted(arms):
        groups.setdefault(whole_plot(study.arm(name).stack), []).append(name)
    for group in chance.sample(list(groups.values()), len(groups)):
        yield from chance.sample(group, len(group))


def _first_of_plots(study: Study, arms: Sequence[str]) -> frozenset[str]:
    """Return who begins a whole plot of a block that has several.

    It is made anew there even where the block before ended with the same one, or two blocks would share what it
    brought by chance, and blocks are what is counted.
    """
    plots = [whole_plot(study.arm(name).stack) for name in arms]
    if len(set(plots)) < 2:
        return frozenset()
    return frozenset(name for name, one, before in zip(arms, plots, [None, *plots], strict=False) if one != before)
