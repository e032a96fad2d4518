# SPDX-License-Identifier: Apache-2.0
"""The interim looks of a comparison with a planned end, and the share of the plan done at each."""

from dataclasses import replace

from virtune.model.study import Study
from virtune.plan.interleave import most_rounds

LOOKS_APART = 0.02
"""Looks are at least this share of the earlier rounds apart, so up to 50 rounds there is one after every round: more
looks would hardly decide earlier, and each takes computing time.
"""


def plan_done(study: Study, seconds: float) -> float:
    """Return the share of a study's plan that is done after so many seconds of trials: of its rounds or its budget,
    whichever is further.
    """
    done = study.rounds_begun / most_rounds(study)
    return min(1.0, done if study.budget_seconds is None else max(done, seconds / study.budget_seconds))


def looked_at(study: Study, share: float) -> Study:
    """Return the study with a look after the rounds so far, at this share of its plan.

    Error that was spent stays spent, so a share is never less than at the look before, even if the clock jumps after
    a resumption. A study of an older virtune, which has no such plan, stays as it is.
    """
    if study.looks is None:
        return study
    rounds = study.rounds_begun
    before = tuple(one for one in study.looks if one[0] < rounds)
    last, spent = before[-1] if before else (0, 0.0)
    if share < 1 and rounds - last < LOOKS_APART * last:
        return study
    return replace(study, looks=(*before, (rounds, max(share, spent))))
