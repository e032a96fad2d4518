# SPDX-License-Identifier: Apache-2.0
"""What a search runs next: a block of trials, a function of what it knows and of its seed."""

from collections.abc import Iterator, Sequence
from random import Random

from virtune.model.search import FIRST_ROUND, Phase
from virtune.model.study import Study, Trial
from virtune.model.tuning import Tuning


def next_block(study: Study, known: Tuning, *, rounds: int, trials: int) -> tuple[Trial, ...]:
    """Return the trials of the next block, none when the search is over.

    `rounds` of the present phase are complete, and `trials` in all; what is known is known from these alone. So the
    same block comes again when a search was killed in its middle.
    """
    if known.finished:
        return ()
    number = FIRST_ROUND[known.phase] + rounds
    workloads = [workload.name for workload in study.workloads]
    pairs = [(arm, workload) for arm in _arms(study, known, rounds) for workload in workloads]
    return tuple(
        Trial(number=trials + index, round=number, arm=arm, workload=workload)
        for index, (arm, workload) in enumerate(pairs, 1)
    )


def _arms(study: Study, known: Tuning, rounds: int) -> Sequence[str]:
    winner = known.winner or study.baseline
    match known.phase:
        case Phase.PROBE:
            return [study.baseline]
        case Phase.RACE:
            return list(_shuffled(study, known.standing.up_next, rounds))
        case Phase.CONFIRM:
            # A B B A: what drifts evenly falls on both alike
            return [winner, study.baseline] if rounds % 2 else [study.baseline, winner]
        case Phase.SOAK:
            count = -(-int(study.search.soak_seconds) // 10) if study.search else 1
            return [winner] if rounds < count else [study.baseline]


def _shuffled(study: Study, arms: Sequence[str], block: int) -> Iterator[str]:
    """Yield the arms in random order, those together that share what is costly to change (a split plot).

    The groups come in random order and so do the arms within one, anew in each block: a new process is paid once for
    each group and block, and what it brings with it by chance is another one each time.
    """
    chance = Random(f"{study.seed}/{block}")  # noqa: S311 - a fair order, not a secret
    costly = {factor.knob for factor in study.search.factors if factor.costly} if study.search else set()
    groups: dict[tuple[tuple[str, str], ...], list[str]] = {}
    for name in arms:
        settings = study.arm(name).settings
        groups.setdefault(tuple(pair for pair in settings if pair[0] in costly), []).append(name)
    for group in chance.sample(sorted(groups), len(groups)):
        yield from chance.sample(groups[group], len(groups[group]))
