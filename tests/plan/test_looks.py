# SPDX-License-Identifier: Apache-2.0
"""How much of a plan is done at a look, and that what was spent stays spent."""

from dataclasses import replace

import pytest
from tests.analyse.interim_studies import study, workload

from virtune.cli.common.progress import after as after_event
from virtune.model.event import StudyStarted
from virtune.model.study import Study, Trial
from virtune.plan.trials import looked_at, plan_done
from virtune.store.progress import RunProgress


def after(rounds: int, *, budget: float | None = None, most: int = 100) -> Study:
    trials = tuple(Trial(number=one, round=one, arm="a", workload="w") for one in range(1, rounds + 1))
    return replace(study(workload("w"), rounds=most), trials=trials, budget_seconds=budget, sequential=True, looks=())


def test_a_plan_is_done_by_rounds_or_by_time_whichever_is_further() -> None:
    assert plan_done(after(20), 999.0) == 0.2
    assert plan_done(after(20, budget=300.0), 30.0) == 0.2
    assert plan_done(after(20, budget=300.0), 150.0) == 0.5
    assert plan_done(after(20, budget=300.0), 301.0) == 1.0


def test_the_most_trials_that_a_study_may_have_end_its_plan_as_well() -> None:
    assert plan_done(after(50_000, most=10**6), 0.0) == 1.0  # two arms


@pytest.mark.parametrize(
    ("made", "finished", "said"),
    [
        (after(6, most=20), False, "3 of at most 40"),  # two arms
        (after(6, most=20), True, "3 of 6"),
        (replace(after(6, most=20), sequential=False), False, "3 of 6"),
        (after(6, most=100_000, budget=38.0), False, "3 of at most 20"),  # of 2 s; the last round begins within it
        (after(30, most=20), False, "3 of at most 40"),
        (after(6, most=2), False, "3 of at most 6"),
        (replace(after(2), at_load=("50%",), workloads=()), False, "3"),  # which loads come is not known yet
    ],
)
def test_a_comparison_that_is_not_over_has_at_most_what_it_may_come_to(
    made: Study, finished: bool, said: str
) -> None:
    assert made.trials_text(3, finished=finished) == said
    run = after_event(RunProgress(study="s", title=""), StudyStarted(study=made, done=3, seconds_left=9.0), now=0.0)
    assert finished or f"{run.total}" == said.rpartition(" ")[2] or made.unsettled


def test_looks_follow_one_another_and_what_was_spent_stays_spent() -> None:
    once = looked_at(after(20, budget=300.0), 0.4)
    assert once.looks == ((20, 0.4),)
    resumed = replace(once, trials=after(21).trials)
    assert looked_at(resumed, 0.3).looks == ((20, 0.4), (21, 0.4))  # a clock that lost time
    assert looked_at(once, 1.0).looks == ((20, 1.0),)  # no further round has room
    assert looked_at(replace(once, looks=(), sequential=False), 0.5).looks == ()  # its rounds are fixed


@pytest.mark.parametrize(("last", "rounds", "looked"), [(50, 51, True), (100, 101, False), (100, 102, True)])
def test_many_rounds_are_not_looked_at_after_every_one(last: int, rounds: int, looked: bool) -> None:
    before = replace(after(rounds, most=1000), looks=((last, 0.1),))
    assert (len(looked_at(before, 0.2).looks or ()) == 2) is looked
    assert len(looked_at(before, 1.0).looks or ()) == 2
