# SPDX-License-Identifier: Apache-2.0
"""While a comparison runs it says what it still waits for: pairs and conditions."""

from tests.report.test_documents import record

from virtune.analyse.study.thresholds import rule
from virtune.analyse.study.verdicts import judge
from virtune.cli.progress import round_line
from virtune.plan.thresholds import parse_conditions


def test_after_a_round_it_says_how_many_pairs_and_conditions_are_decided() -> None:
    kept = record(12)
    rulings = rule(kept, parse_conditions(["iops < -3%", "cpu_per_io > +5%"]))
    assert round_line(12, judge(kept), rulings) == "round 12: 1 of 1 pairs decided, 1 of 2 conditions"
    assert round_line(12, judge(kept), ()) == "round 12: 1 of 1 pairs decided"
