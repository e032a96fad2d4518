# SPDX-License-Identifier: Apache-2.0
"""What is said of a study's rounds names only words that the study's rig knows."""

from dataclasses import replace

import pytest
from tests.report.records import record, study

from virtune.analyse.study.summarise import summarise
from virtune.model.durability import Promise
from virtune.model.evidence import Changeover, InForce
from virtune.model.reason import Reason
from virtune.model.result import Basis, Stopped
from virtune.model.rig import Rig
from virtune.model.search import Goal, Search
from virtune.model.verdict import Verdict
from virtune.plan.goal import parse_conditions
from virtune.report.pages.evidence import resting_on, steadiness, stopped_text
from virtune.report.reproduce import command_again


@pytest.mark.parametrize(("rig", "names"), [("storage-daemon", True), ("qemu", True), ("libvirt", False)])
def test_a_restart_is_offered_where_the_rig_can_restart(rig: Rig, names: bool) -> None:
    asked = study(2)
    asked = replace(asked, arms=tuple(replace(arm, stack=replace(arm.stack, rig=rig)) for arm in asked.arms))
    basis = Basis(workload="randread-4k", rounds=2, noise=None, lag1=None, seconds_left=None, starts=1)
    said = " ".join(steadiness(basis, asked))
    assert "QEMU was started once; what another start would change is not in the intervals" in said
    assert ("--restart" in said) is names
    search = Search(goal=Goal(), mode="quick", promise=Promise.FLUSH, ranked=("threads",))
    assert "--restart" not in " ".join(steadiness(basis, replace(asked, search=search))), "`tune` has none"


def test_it_is_said_which_arms_shared_a_start_and_which_rounds_count() -> None:
    kept = record(8)
    one, two = (
        InForce(checks=(), changeover=Changeover(swapped="export", seconds=0.1, process=process))
        for process in (1, 2)
    )
    trials = []
    for each in kept.trials:
        lost = each.trial.arm == "native" and each.trial.round == 3
        measured = None if lost or each.measurement is None else each.measurement
        trials.append(replace(each, in_force=one if each.trial.arm == "threads" else two, measurement=measured))
    found = summarise(replace(kept, trials=tuple(trials)))
    said = " ".join(resting_on(found, found.study.compared[0]))
    assert "QEMU was started once for threads and once for native; what another" in said
    assert "right for these starts of QEMU" in said
    assert "each verdict rests on 7 of 8 rounds: those in which both of its arms gave a result" in said
    alike = [replace(each, in_force=one) for each in kept.trials]
    found = summarise(replace(kept, trials=tuple(alike)))
    said = " ".join(resting_on(found, found.study.compared[0]))
    assert "QEMU was started once; what another start would change is not in the intervals" in said
    assert "right for this start of QEMU" in said
    least = min(one.rounds for one in found.verdicts if one.verdict is not Verdict.UNDECIDED)
    assert f"no interval shows what an arm does more rarely than once in {least} rounds, or a level" in said
    assert "8 rounds, in each of which every arm ran" in said
    why = replace(found.verdicts[0], reason=Reason.UNLESS_LASTING, why="unless levels last")
    said = " ".join(resting_on(replace(found, verdicts=(why, *found.verdicts[1:])), found.study.compared[0]))
    assert f"{why.candidate} against {why.baseline}, {why.measured.label}: unless levels last" in said


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
