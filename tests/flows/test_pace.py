# SPDX-License-Identifier: Apache-2.0
"""What is left is learnt from the trials that ran, arm by arm."""

import pytest
from tests.plan.forecast_studies import DAEMON, GUEST, METAL, study_on

from virtune.flows.run.trial import Pace
from virtune.model.study import Trial
from virtune.plan.trials import round_seconds


def trials_of(*arms: str) -> tuple[Trial, ...]:
    return tuple(Trial(number=number, round=1, arm=arm, workload="w") for number, arm in enumerate(arms, 1))


def test_before_the_first_trial_it_is_what_the_rigs_are_known_to_cost() -> None:
    study = study_on(METAL, GUEST)
    pace = Pace(study, done=0, busy=False)
    assert pace.left(trials_of("arm0", "arm1")) == pytest.approx(round_seconds(study))
    assert pace.left((), rounds=3) == pytest.approx(3 * round_seconds(study))
    assert pace.left(()) == 0
    assert Pace(study, done=0, busy=True).left((), rounds=3) > 3.5 * round_seconds(study)


def test_each_arm_takes_what_it_took_and_one_that_has_not_run_is_as_slow_as_its_host() -> None:
    pace = Pace(study_on(METAL, DAEMON), done=0, busy=False)
    pace.ran("arm0", asked=3.0, took=8.0, repeated=False)
    assert pace.left(trials_of("arm0")) == pytest.approx(8)
    assert pace.left(trials_of("arm1")) == pytest.approx(8, abs=0.2)
    pace.ran("arm1", asked=3.0, took=3.5, repeated=False)
    assert pace.left(trials_of("arm0", "arm1")) == pytest.approx(11.5)


def test_loads_that_end_sooner_than_asked_are_learnt_too() -> None:
    pace = Pace(study_on(METAL), done=0, busy=False)
    pace.ran("arm0", asked=3.0, took=0.6, repeated=False)
    assert pace.left((), rounds=10) == pytest.approx(6)


def test_repeats_are_learnt() -> None:
    pace = Pace(study_on(METAL), done=0, busy=False)
    for repeated in (True, False, False, False):
        pace.ran("arm0", asked=3.0, took=3.0, repeated=repeated)
    assert pace.left((), rounds=16) == pytest.approx(48 * (1 + 0.25 + 0.0625))
    assert pace.rounds == 3


def test_what_an_earlier_run_took_counts_in_the_time_so_far() -> None:
    study = study_on(METAL)
    assert Pace(study, done=4, busy=False).seconds == pytest.approx(4 * round_seconds(study), abs=0.5)
