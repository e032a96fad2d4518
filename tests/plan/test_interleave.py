# SPDX-License-Identifier: Apache-2.0
"""The order of trials: complete rounds, fair, and the same again for the same seed."""

from collections import Counter
from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from virtune.model.errors import PlanError
from virtune.model.stack import Stack
from virtune.model.study import Arm, Study, StudyKind
from virtune.model.workload import Workload
from virtune.plan.trials import propose, trial_seed, trials

names = st.lists(st.text(min_size=1, max_size=3), min_size=1, max_size=5, unique=True)
rounds = st.integers(1, 8)
seeds = st.integers(0, 2**40)


@given(names, names, rounds, seeds)
def test_every_round_is_complete(arms: list[str], workloads: list[str], rounds: int, seed: int) -> None:
    plan = trials(arms, workloads, rounds=rounds, seed=seed)
    assert [t.number for t in plan] == list(range(1, len(plan) + 1))
    assert [t.round for t in plan] == sorted(t.round for t in plan)
    seen = Counter((t.round, t.arm, t.workload) for t in plan)
    assert seen == {(n, a, w): 1 for n in range(1, rounds + 1) for a in arms for w in workloads}


@given(names, names, rounds, seeds)
def test_the_same_seed_gives_the_same_order_and_more_rounds_go_on(
    arms: list[str], workloads: list[str], rounds: int, seed: int
) -> None:
    short = trials(arms, workloads, rounds=rounds, seed=seed)
    longer = trials(arms, workloads, rounds=rounds + 1, seed=seed)
    assert longer[: len(short)] == short


def test_each_seed_has_an_order_of_its_own() -> None:
    arms = ["a", "b", "c", "d"]
    orders = {tuple(one.arm for one in trials(arms, ["w"], rounds=8, seed=seed)) for seed in range(20)}
    assert len(orders) == 20


def test_no_arm_is_always_first() -> None:
    plan = trials(["a", "b"], ["w"], rounds=400, seed=1)
    first = Counter(t.arm for t in plan[::2])
    assert 150 < first["a"] < 250


@pytest.mark.parametrize(
    ("arms", "workloads", "rounds"),
    [([], ["w"], 1), (["a"], [], 1), (["a"], ["w"], 0), (["a", "a"], ["w"], 1), (["a"], ["w"], 10**9)],
)
def test_what_is_no_plan_is_refused(arms: list[str], workloads: list[str], rounds: int) -> None:
    with pytest.raises(PlanError):
        trials(arms, workloads, rounds=rounds, seed=1)


def test_every_round_has_its_own_seed_and_all_arms_share_it() -> None:
    assert trial_seed(7, 1) != trial_seed(7, 2)


def study_of(*arms: str, rounds: int) -> Study:
    return Study(
        id="s",
        created="2026-01-01T00:00:00Z",
        kind=StudyKind.COMPARE,
        arms=tuple(Arm(name=name, stack=Stack()) for name in arms),
        baseline="a",
        workloads=(Workload(name="w", meaning="", jobs=()),),
        rounds=rounds,
        seconds=2,
        ramp_seconds=1,
        seed=1,
        scratch="/s",
        span_bytes=1,
        trials=trials(arms, ["w"], rounds=rounds, seed=1),
    )


def test_a_lost_arm_goes_on_no_more_and_the_others_keep_their_order() -> None:
    begun = replace(study_of("a", "b", "c", rounds=3), rounds=20)
    whole = propose(begun, rounds=4, workloads=["w"])
    rest = propose(begun, rounds=4, workloads=["w"], without={("b", "w"), ("a", "another")})
    assert Counter(one.arm for one in rest) == {"a": 4, "c": 4}
    assert [(one.round, one.arm) for one in rest] == [(one.round, one.arm) for one in whole if one.arm != "b"]
    assert [one.number for one in rest] == list(range(10, 18))


def sequential(rounds: int, seed: int, *, arms: int = 2, workloads: int = 2) -> Study:
    return Study(
        id="s", created="", kind=StudyKind.COMPARE, baseline="a0", seconds=1, ramp_seconds=0, scratch="/s",
        arms=tuple(Arm(name=f"a{number}", stack=Stack()) for number in range(arms)),
        workloads=tuple(Workload(name=f"w{number}", meaning="", jobs=()) for number in range(workloads)),
        rounds=rounds, seed=seed, span_bytes=1, sequential=True,
    )  # fmt: skip


@given(st.integers(1, 12), st.lists(st.integers(1, 4), min_size=1, max_size=12), seeds)
def test_proposed_in_whatever_steps_the_order_is_the_same(rounds: int, steps: list[int], seed: int) -> None:
    study = sequential(rounds, seed)
    for step in steps:
        study = replace(study, trials=study.trials + propose(study, rounds=step, workloads=["w0", "w1"]))
    whole = trials(["a0", "a1"], ["w0", "w1"], rounds=min(rounds, sum(steps)), seed=seed)
    assert study.trials == whole


def test_a_workload_that_needs_no_more_is_left_out_and_the_others_keep_their_order() -> None:
    study = sequential(5, 3)
    study = replace(study, trials=propose(study, rounds=2, workloads=["w0", "w1"]))
    following = propose(study, rounds=1, workloads=["w1"])
    assert [one.number for one in following] == [9, 10]
    full = trials(["a0", "a1"], ["w0", "w1"], rounds=3, seed=3)
    assert [one.arm for one in following] == [one.arm for one in full if (one.round, one.workload) == (3, "w1")]
    assert propose(study, rounds=1, workloads=[]) == ()
    assert propose(replace(study, rounds=2), rounds=1, workloads=["w0"]) == ()
