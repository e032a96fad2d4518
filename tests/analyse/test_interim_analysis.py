# SPDX-License-Identifier: Apache-2.0
"""What a study that stops when it knows goes on with after a round: simulated rounds, judged by the product."""

import math
from collections.abc import Callable
from dataclasses import replace
from random import Random

import pytest
from tests.analyse.interim_studies import Disk, measured, study, workload

from virtune.analyse.study.thresholds import InterimAnalysis, look
from virtune.analyse.study.verdicts import LOST_ROUNDS, require_measured
from virtune.model.errors import LoadError
from virtune.model.evidence import StudyRecord
from virtune.model.study import Study, Trial
from virtune.model.verdict import ROUNDS_MIN, Outcome, Verdict
from virtune.plan.goal import parse_conditions
from virtune.plan.trials import propose


def run(asked: Study, disk: Disk) -> tuple[StudyRecord, InterimAnalysis]:
    """Run a study on a simulated disk until it stops; returns what the last look saw."""
    record = StudyRecord(study=asked, facts="", finished=False, trials=())
    seen = InterimAnalysis(verdicts=(), rulings=(), workloads=frozenset(one.name for one in asked.workloads), lost={})
    while proposed := propose(record.study, rounds=1, workloads=seen.workloads, without=seen.lost):
        asked = replace(record.study, trials=(*record.study.trials, *proposed))
        made = tuple(measured(trial, disk) for trial in proposed)
        record = replace(record, study=asked, trials=(*record.trials, *made))
        seen = look(record)
    return record, seen


def test_a_saturated_load_is_not_run_again_while_another_is_open() -> None:
    chance = Random(2)

    def disk(trial: Trial) -> dict[str, float] | str:
        behind = trial.workload == "at-90" and trial.arm == "b"
        return {"iops": 500.0 if behind else 1000.0, "latency.p99": 1e6 * math.exp(chance.gauss(0, 0.05))}

    record, seen = run(
        study(workload("at-50", 1000.0), workload("at-90", 1000.0), metric="latency.p99", rounds=20), disk
    )
    rounds = {
        name: {one.trial.round for one in record.trials if one.trial.workload == name} for name in ("at-50", "at-90")
    }
    assert rounds["at-50"] == set(range(1, 21))
    assert rounds["at-90"] == set(range(1, 7))
    (verdict,) = [one for one in seen.verdicts if one.workload == "at-90"]
    assert verdict.closed
    assert (
        verdict.why
        == "b is saturated at this load: latency not comparable, as less was done than was offered (50 % of it)"
    )


def noisy(change: float, seed: int, *, noise: float = 0.05) -> Callable[[Trial], dict[str, float]]:
    """A disk whose differences within a round vary by `noise` (ln) around `change`, in IOPS and in p99 alike."""
    chance = Random(seed)

    def disk(trial: Trial) -> dict[str, float]:
        true = change if trial.arm == "b" else 1.0
        iops, p99 = (math.exp(chance.gauss(0, noise / math.sqrt(2))) for _ in range(2))
        return {"iops": 1e4 * true * iops, "latency.p99": 1e6 / true * p99}

    return disk


@pytest.mark.parametrize(("change", "outcome"), [(0.92, Outcome.BREACHED), (1.0, Outcome.HELD)])
def test_a_study_goes_on_until_its_condition_is_decided(change: float, outcome: Outcome) -> None:
    """The verdict on -8 % falls long before it is shown to be more than -3 %, and it must not end the study."""
    asked = replace(study(workload("w")), conditions=parse_conditions(["iops < -3%"]))
    for seed in range(10 if outcome is Outcome.BREACHED else 5):  # what holds takes many more rounds
        record, seen = run(asked, noisy(change, seed))
        assert [one.outcome for one in seen.rulings] == [outcome]
        if outcome is Outcome.BREACHED:
            assert record.study.rounds_begun <= 40
            _, unasked = run(replace(asked, conditions=()), noisy(change, seed))
            assert [one.verdict for one in unasked.verdicts] == [Verdict.WORSE]


def test_a_condition_on_another_metric_is_waited_for() -> None:
    asked = replace(study(workload("w")), conditions=parse_conditions(["latency.p99 > +5%"]))
    quiet, restless = noisy(0.8, 1, noise=0.01), noisy(0.9, 2, noise=0.08)
    record, seen = run(asked, lambda trial: quiet(trial) | {"latency.p99": restless(trial)["latency.p99"]})
    assert [one.outcome for one in seen.rulings] == [Outcome.BREACHED]
    assert record.study.rounds_begun > ROUNDS_MIN
    assert seen.workloads == frozenset()


def test_what_no_round_gives_is_not_waited_for() -> None:
    asked = replace(study(workload("w")), conditions=parse_conditions(["sync.mean > +5%"]))
    record, seen = run(asked, noisy(0.5, 1))
    assert [one.outcome for one in seen.rulings] == [Outcome.UNDECIDED]
    assert record.study.rounds_begun == ROUNDS_MIN


@pytest.mark.parametrize("crashed", ["a", "c"])
def test_an_arm_that_always_fails_is_undecided_with_its_reason_and_the_others_go_on(crashed: str) -> None:
    alive = noisy(0.9, 4, noise=0.02)
    asked = replace(study(workload("w"), arms="abc"), conditions=parse_conditions(["iops < -3%"]))
    record, seen = run(asked, lambda trial: "fio went away" if trial.arm == crashed else alive(trial))
    require_measured(record.trials)
    failed = [one.trial.round for one in record.trials if one.failure]
    assert failed == list(range(1, LOST_ROUNDS + 1))
    reason = f"{crashed} gave no measurement in {LOST_ROUNDS} rounds: fio went away"
    for found in seen.verdicts:
        gone = crashed in (found.baseline, found.candidate)
        assert (found.verdict is Verdict.UNDECIDED, found.closed) == (gone, gone)
        assert (found.why == reason) is gone
    for ruling in (one for one in seen.rulings if crashed in (one.comparison.baseline, one.comparison.candidate)):
        assert (ruling.outcome, ruling.why) == (Outcome.UNDECIDED, reason)
    assert seen.workloads == frozenset()
    assert ROUNDS_MIN <= record.study.rounds_begun < 100


@pytest.mark.parametrize(("arms", "crashed"), [("ab", "b"), ("abc", "bc"), ("a", "a")])
def test_nothing_that_could_be_compared_is_a_failure(arms: str, crashed: str) -> None:
    alive = noisy(1.0, 4)
    made = [Trial(number=number, round=1, arm=arm, workload="w") for number, arm in enumerate(arms, 1)]
    records = [measured(one, lambda trial: "fio went away" if trial.arm in crashed else alive(trial)) for one in made]
    with pytest.raises(LoadError, match=f"no trial of arm '{crashed[0]}'.* gave a measurement"):
        require_measured(records)
    require_measured([one for one in records if one.failure is None])
