# SPDX-License-Identifier: Apache-2.0
"""The next block of trials of a search, a function of its results so far and of its seed."""

from collections.abc import Iterator, Sequence
from random import Random

from virtune.model.knobs import whole_plot
from virtune.model.search import FIRST_ROUND, Phase
from virtune.model.study import Study, Trial
from virtune.model.tuning import Tuning
from virtune.plan.propose import proposals


def next_block(study: Study, known: Tuning, *, rounds: int, trials: int) -> tuple[Trial, ...]:
    """Return the trials of the next block, none when the search is over.

    `rounds` of the present phase are complete, and `trials` in all. The block depends on these only, so a search that
    was killed in the middle of a block gets the same block again.
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
            # A B B A: linear drift affects both alike
            return [winner, study.baseline] if rounds % 2 else [study.baseline, winner]
        case Phase.SOAK:
            count = -(-int(study.search.soak_seconds) // 10) if study.search else 1
            return [winner] if rounds < count else [study.baseline]


def _shuffled(study: Study, arms: Sequence[str], block: int) -> Iterator[str]:
    """Yield the arms in random order, grouped by what the rig can swap without a new process (a split plot).

    Groups and the arms within them are shuffled in each block: the cost of a new process is paid once per group and
    block, and the random effect of its start is drawn again each time.
    """
    chance = Random(f"{study.seed}/{block}")  # noqa: S311 - a fair order, not a secret
    groups: dict[tuple[object, ...], list[str]] = {}
    for name in sorted(arms):
        groups.setdefault(whole_plot(study.arm(name).stack), []).append(name)
    for group in chance.sample(list(groups.values()), len(groups)):
        yield from chance.sample(group, len(group))


def _first_of_plots(study: Study, arms: Sequence[str]) -> frozenset[str]:
    """Return the arms that begin a whole plot in a block with several.

    The process is restarted there even where the block before ended with the same plot; otherwise two blocks would
    share a start's random effect, and blocks must be independent.
    """
    plots = [whole_plot(study.arm(name).stack) for name in arms]
    if len(set(plots)) < 2:
        return frozenset()
    return frozenset(name for name, one, before in zip(arms, plots, [None, *plots], strict=False) if one != before)
