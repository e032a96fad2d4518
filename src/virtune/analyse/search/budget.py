# SPDX-License-Identifier: Apache-2.0
"""How much of its time budget a search has spent, and whether another block of the race fits.

Time is taken from the stored trials, so a search that was killed resumes with what is left.
"""

import itertools
import math
from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime
from statistics import fmean

from virtune.analyse.search.blocks import search_of
from virtune.analyse.search.confirm import SOAK_SLICE_SECONDS
from virtune.analyse.search.pilot import (
    OVERHEAD_SECONDS,
    PROBE_SLICES,
    confirm_seconds,
    probe_seconds,
    seconds_of,
    soak_seconds,
)
from virtune.analyse.trial.warm_up import Ramp, ramp_at
from virtune.model.evidence import TrialRecord
from virtune.model.search import Phase, phase_of
from virtune.model.study import Study
from virtune.model.tuning import Probed

_PAUSE_SECONDS = 120.0
"""A gap between two trials that exceeds their length by more than this was an interruption and does not count."""

_BEFORE_RACE = (Phase.PROBE, Phase.RACE)


@dataclass(frozen=True, slots=True, kw_only=True)
class BudgetSpent:
    """The time of a search up to now, and what is left of it, in seconds.

    `beside` is the overhead of a slice: the ramp, and the time that slices took besides ramp and run. `race_left` is
    the budget left for the race, None without a budget; below 0 where it is too small. `confirming` is the part
    reserved for the confirmation.
    """

    elapsed: float
    beside: float
    race_left: float | None
    confirming: float = 0.0


def limit_of(study: Study) -> float | None:
    """Return the seconds that a search may take, None for any; a simulated one takes next to none of them."""
    return None if study.simulated else search_of(study).budget_seconds


def elapsed_seconds(study: Study, attempts: Sequence[TrialRecord]) -> float:
    """Return the seconds from the beginning to the last trial, without the time that an interruption took."""
    longest = _longest(study)
    moments = [datetime.fromisoformat(study.created), *_ends(attempts)]
    steps = [(b - a).total_seconds() for a, b in itertools.pairwise(moments)]
    return math.fsum(step for step in steps if step <= longest)


def spent_by(study: Study, probed: Probed, attempts: Sequence[TrialRecord], ramp: Ramp) -> BudgetSpent:
    """Return the time of the attempts so far.

    The time left for the race depends only on the trials of probe and race: later ones do not move its end.
    """
    search = search_of(study)
    racing = [one for one in attempts if phase_of(one.trial.round) in _BEFORE_RACE]
    beside = ramp.seconds + _overhead(study, probed, racing, ramp)
    left, pairs, limit = None, 0.0, limit_of(study)
    if limit is not None:
        pairs = search.confirm_pairs * confirm_seconds(study, probed.slice_seconds, beside=beside)
        after = pairs + soak_seconds(study, probed.slice_seconds, beside=beside)
        before = elapsed_seconds(study, racing) + probe_seconds(study, slices=max(0, PROBE_SLICES - probed.slices))
        left = limit - before - after
    return BudgetSpent(elapsed=elapsed_seconds(study, attempts), beside=beside, race_left=left, confirming=pairs)


def block_fits(
    study: Study, probed: Probed, spent: BudgetSpent, *, arms: int, before: int, unconfirmed: bool = False
) -> bool:
    """Whether a block of so many arms fits the budget, after one of `before` arms (0 for the first).

    `unconfirmed`: it may use the time of the confirmation too.
    """
    if spent.race_left is None:
        return True
    each = (probed.slice_seconds + spent.beside) * len(study.workloads)
    wait = max(0.0, search_of(study).spread_seconds - before * each) if before else 0.0
    return wait + arms * each <= spent.race_left + (spent.confirming if unconfirmed else 0.0)


def pair_fits(study: Study, probed: Probed, spent: BudgetSpent) -> bool:
    """Whether one more pair of the confirmation, and the soak, fit the budget."""
    budget = limit_of(study)
    pair = confirm_seconds(study, probed.slice_seconds, beside=spent.beside)
    soak = soak_seconds(study, probed.slice_seconds, beside=spent.beside)
    return budget is None or spent.elapsed + pair + soak <= budget


def _overhead(study: Study, probed: Probed, attempts: Sequence[TrialRecord], ramp: Ramp) -> float:
    """Return the overhead of a slice besides ramp and run: the mean over slices that followed one another without a
    wait.
    """
    ran = sorted(attempts, key=lambda one: (one.ended, one.trial.number, one.attempt))
    found = []
    for before, one in itertools.pairwise(ran):
        phase = phase_of(one.trial.round)
        if before.trial.round != one.trial.round and phase is not Phase.PROBE:
            continue  # blocks of the race may begin apart
        gap = (datetime.fromisoformat(one.ended) - datetime.fromisoformat(before.ended)).total_seconds()
        if gap <= _longest(study):
            asked = seconds_of(study, probed, phase) + ramp_at(ramp, study.ramp_seconds, one.trial.round)
            found.append(gap - asked)
    return max(OVERHEAD_SECONDS, fmean(found)) if found else OVERHEAD_SECONDS


def _longest(study: Study) -> float:
    search = search_of(study)
    return max(study.seconds, search.confirm_seconds, SOAK_SLICE_SECONDS, search.spread_seconds) + _PAUSE_SECONDS


def _ends(attempts: Sequence[TrialRecord]) -> list[datetime]:
    return sorted(datetime.fromisoformat(one.ended) for one in attempts)
