# SPDX-License-Identifier: Apache-2.0
"""What is said of a study's rounds names only words that the study's rig knows."""

from dataclasses import replace

import pytest
from tests.report.records import record, study

from virtune.analyse.study.summarise import summarise
from virtune.model.result import Basis, Stopped
from virtune.model.rig import Rig
from virtune.model.verdict import Verdict
from virtune.plan.thresholds import parse_conditions
from virtune.report.reproduce import command_again
from virtune.report.text.study.basis import steadiness, stopped_text


@pytest.mark.parametrize(("rig", "names"), [("storage-daemon", True), ("qemu", True), ("libvirt", False)])
def test_a_restart_is_offered_where_the_rig_can_restart(rig: Rig, names: bool) -> None:
    asked = study(2)
    asked = replace(asked, arms=tuple(replace(arm, stack=replace(arm.stack, rig=rig)) for arm in asked.arms))
    basis = Basis(workload="randread-4k", rounds=2, noise=None, lag1=None, seconds_left=None, starts=1)
    said = " ".join(steadiness(basis, asked))
    assert "QEMU was started once; how much another start would change is not in the intervals" in said
    assert ("--restart" in said) is names


def test_a_study_that_waited_for_its_conditions_says_so_and_asks_for_them_again() -> None:
    kept = record(12)
    asked = replace(kept.study, sequential=True, conditions=parse_conditions(["iops < -3%", "cpu_per_io > +900%"]))
    found = summarise(replace(kept, study=asked))
    assert found.stopped is Stopped.ROUNDS  # IOPS are decided, and equal times of a CPU never are
    assert "--fail-if 'iops < -3%' --fail-if 'cpu_per_io > +900%'" in command_again(asked)
    found = summarise(replace(kept, study=replace(asked, conditions=asked.conditions[:1])))
    assert found.stopped is Stopped.DECIDED
    said = "stopped: every pair of arms is decided, and every --fail-if condition that more rounds can decide"
    assert stopped_text(found) == said
    few = replace(asked, conditions=parse_conditions(["latency.p99 > +10%"]))  # of which nothing was measured
    found = summarise(replace(kept, study=few))
    assert (found.stopped, stopped_text(found)) == (Stopped.DECIDED, said), "said of a condition that is undecided"
    undecided = tuple(replace(one, verdict=Verdict.UNDECIDED) for one in found.verdicts)
    # such as a percentile of trials that have too few I/Os for it: no number of rounds decides it
    assert stopped_text(replace(found, verdicts=undecided)) == "stopped: more rounds alone would decide nothing more"
