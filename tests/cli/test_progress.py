# SPDX-License-Identifier: Apache-2.0
"""While a comparison runs it says what it still waits for: pairs and conditions."""

import pytest
from tests.report.test_documents import record

from virtune.analyse.study.thresholds import rule
from virtune.analyse.study.verdicts import judge
from virtune.cli.progress import Face, place_text, round_line
from virtune.model.event import Noticed, StepStarted, TrialPlace
from virtune.model.study import Trial
from virtune.plan.thresholds import parse_conditions


def test_after_a_round_it_says_how_many_pairs_and_conditions_are_decided() -> None:
    kept = record(12)
    rulings = rule(kept, parse_conditions(["iops < -3%", "cpu_per_io > +5%"]))
    assert round_line(12, judge(kept), rulings) == "round 12: 1 of 1 pairs decided, 1 of 2 conditions"
    assert round_line(12, judge(kept), ()) == "round 12: 1 of 1 pairs decided"


def test_a_trial_s_place_is_in_its_round_and_no_total_is_promised_that_may_not_come() -> None:
    trial = Trial(number=10, round=3, arm="a", workload="w")
    assert place_text(trial, TrialPlace(number=2, of=4, rounds=6), "about ") == "round 3 of 6, trial 2 of 4"
    assert place_text(trial, TrialPlace(number=2, of=4, rounds=37), "at most about ") == (
        "round 3 of at most 37, trial 2 of 4"
    )
    assert place_text(trial, TrialPlace(number=2, of=4, rounds=None), "about ") == "round 3, trial 2 of 4"


def test_quiet_is_quiet(capsys: pytest.CaptureFixture[str]) -> None:
    with Face(quiet=True) as face:
        face(Noticed(text="trial 1 is repeated"))
        face(StepStarted(what="filling"))
    assert capsys.readouterr() == ("", "")
    with Face() as face:
        face(Noticed(text="trial 1 is repeated"))
    assert "trial 1 is repeated" in capsys.readouterr().err
