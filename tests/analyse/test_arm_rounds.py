# SPDX-License-Identifier: Apache-2.0
"""What the rounds of one arm do beside the others: planted falls, peaks, levels and orders, each said and judged."""

from itertools import pairwise
from random import Random

import numpy as np
import pytest
from benchmarks.batch import BETTER, WORSE, judge_all
from benchmarks.decide import ROUGH, rough
from tests.analyse.verdict_runs import asked_of, run

from virtune.analyse.stats.arms import alone, far_rounds, lasting
from virtune.analyse.study.summarise import summarise
from virtune.model.reason import Reason
from virtune.model.result import Result
from virtune.model.text import format_seconds
from virtune.model.verdict import Verdict
from virtune.plan.trials import trials

pytestmark = pytest.mark.xdist_group("quantiles")  # the tables of `benchmarks.batch` are made once

ROUNDS = 20


def planted(seed: int, arms: str, hit: dict[tuple[str, int], float], *, rounds: int = ROUNDS) -> Result:
    """A study with a calm host, in which arms are off by a factor in some rounds."""
    asked = asked_of(arms, rounds=rounds)
    return summarise(run(asked, rounds, noise=0.02, seed=seed, odd=hit))


@pytest.mark.parametrize("seed", range(12))
def test_an_arm_that_alone_falls_or_peaks_is_never_the_same_and_the_page_says_how_often_and_how_deep(
    seed: int,
) -> None:
    chance = Random(seed)
    arms = "abcd"[: chance.randint(2, 4)]
    arm, count = chance.choice(arms), chance.randint(5, 9)
    factor = chance.choice((chance.uniform(0.2, 0.7), chance.uniform(1.5, 4)))
    where = chance.sample(range(1, ROUNDS + 1), count)
    found = planted(seed, arms, {(arm, number): factor for number in where})
    mine = [one for one in found.verdicts if arm in (one.baseline, one.candidate)]
    assert Verdict.SAME not in [one.verdict for one in mine]
    wrong = Verdict.BETTER if (factor < 1) == (arm != "a") else Verdict.WORSE
    assert wrong not in [one.verdict for one in mine]
    (said,) = [one for one in found.patterns if f"{count} of {ROUNDS} rounds of {arm} " in one]
    assert ("fell to" if factor < 1 else "rose to") in said
    told = float(said.split(" to ")[1].split()[0])
    assert told == pytest.approx(factor * 100 if factor < 1 else factor, rel=0.06)
    assert "none of" in said


@pytest.mark.parametrize("seed", range(4))
def test_a_single_round_that_fell_is_no_accusation_and_still_keeps_arms_from_being_the_same(seed: int) -> None:
    found = planted(seed, "ab", {("b", 3 + seed): 0.3})
    (one,) = found.verdicts
    assert one.verdict is Verdict.UNDECIDED
    assert one.reason in (Reason.PLAIN_MEAN, Reason.NOT_SETTLED, Reason.RARE_ROUNDS)
    assert one.plain is not None
    assert one.reason is not Reason.PLAIN_MEAN or one.other_mean == one.plain
    assert one.plain.estimate == pytest.approx(1 - 0.7 / ROUNDS, abs=0.01)
    (said,) = [one for one in found.patterns if one.startswith(f"1 of {ROUNDS} rounds of b fell to ")]
    assert said.endswith("none of a did")


@pytest.mark.parametrize("seed", range(4))
def test_rounds_in_which_the_host_falls_for_all_arms_are_neither_said_nor_hinder(seed: int) -> None:
    chance = Random(seed)
    where = chance.sample(range(1, ROUNDS + 1), 6)
    found = planted(seed, "ab", {(arm, number): 0.3 for arm in "ab" for number in where})
    assert [one.verdict for one in found.verdicts] == [Verdict.SAME]
    assert not any("rounds of" in said or "level" in said for said in found.patterns)


@pytest.mark.parametrize(("arms", "apart", "begins"), [("ab", 0.15, (1, 8, 17, 24)), ("abc", 0.25, (1, 11))])
def test_an_arm_that_stands_at_one_of_two_levels_is_said_with_their_distance_and_its_changes(
    arms: str, apart: float, begins: tuple[int, ...]
) -> None:
    ends = [*begins[1:], 31]
    high = [n for begin, end in list(zip(begins, ends, strict=True))[::2] for n in range(begin, end)]
    found = planted(3, arms, {("b", number): 1 + apart for number in high}, rounds=30)
    (said,) = [one for one in found.patterns if "one of two levels" in one]
    name = "b against a" if arms == "ab" else "b"
    assert f"{name} stood at one of two levels, " in said
    assert float(said.split("levels, ")[1].split()[0]) == pytest.approx(100 * apart, abs=3)
    changes = {1: "once", 3: "3 times"}[len(begins) - 1]
    assert f"changed {changes} in 30 rounds" in said
    assert "--restart" in said
    (mine,) = [one for one in found.verdicts if one.candidate == "b"]
    assert (mine.verdict, mine.reason) == (Verdict.UNDECIDED, Reason.LASTING_LEVELS)


def test_a_plain_difference_is_told_although_an_arm_changes_its_level() -> None:
    found = planted(3, "ab", {("b", n): 2.0 if n < 11 else 2.2 for n in range(1, 21)})
    assert [one.verdict for one in found.verdicts] == [Verdict.BETTER]
    assert any("two levels" in said for said in found.patterns)


@pytest.mark.parametrize("arms", [2, 4, 8])
def test_independent_rounds_are_seldom_said_to_last_or_to_be_far_off(arms: int) -> None:
    """7 % at most are said to last; 34 of 300 are two standard errors and more above that."""
    values = 0.05 * np.random.default_rng([7, arms]).standard_normal((300, 24, arms))
    assert (lasting(values) > 0).any(axis=1).sum() < 34
    assert not alone(far_rounds(values), np.ones(values.shape, bool)).any(axis=1).sum()


@pytest.mark.parametrize(
    "kind",
    [
        "two-point-arm",
        "two-point-base",
        "uneven-point-arm",
        "three-point-arm",
        "first-slower",
        "last-slower",
        "again-faster",
        "skewed-arm",
    ],
)
def test_equal_arms_of_two_modes_are_seldom_called_different(kind: str) -> None:
    """Of 300 plans at 5 % more than 24 are wrong with probability 0.007; the clipped mean has 30 to 150."""
    size = max(size for name, size in ROUGH if name == kind)
    chance = np.random.default_rng([11, len(kind)])
    last = judge_all(9 + rough(chance, kind, size, (300, 30, 2), 0.03)).last
    assert np.isin(last.verdict, (BETTER, WORSE)).sum() <= 24


@pytest.mark.parametrize(
    ("kind", "size"), [("point-arm-10", 0.3), ("point-arm-10", 1.0), ("point-arm-25", 0.6), ("point-arm-90", 0.8)]
)
def test_equal_arms_are_seldom_called_different_without_a_word_on_rare_rounds_that_were_seen(
    kind: str, size: float
) -> None:
    """The clipped mean has 50 to 150 of 300; what has not happened yet nobody can say."""
    share = int(kind.rpartition("-")[2]) / 100
    values = rough(np.random.default_rng([13, round(10 * size)]), kind, size, (300, 30, 2), 0.05)
    last = judge_all(9 + values).last
    rare = (values[:, :, -1] > np.log1p(size) * (0.5 - share)) == (share < 0.5)
    seen = np.cumsum(rare, axis=1)[np.arange(300), last.rounds - 1] > 0
    assert (np.isin(last.verdict, (BETTER, WORSE)).any(axis=1) & seen & ~last.said).sum() <= 24


@pytest.mark.parametrize(("kind", "size"), [("states", 0.05), ("slow-share", 0.1), ("short-states", 0.1)])
def test_equal_arms_whose_levels_last_are_seldom_called_different_without_a_word_on_it(
    kind: str, size: float
) -> None:
    """40 to 70 of 300 are called different, and without what levels that last would change 30 to 65 had no word."""
    values = rough(np.random.default_rng([17, len(kind)]), kind, size, (300, 25, 4), 0.05)
    last = judge_all(9 + values).last
    told = np.isin(last.verdict, (BETTER, WORSE)).any(axis=1)
    assert (told & ~last.said & ~last.unless).sum() <= 21


@pytest.mark.parametrize(("kind", "size", "most"), [("point-arm-10", 1.0, 45), ("point-arm-25", 0.6, 21)])
def test_what_an_arm_does_in_a_few_of_its_rounds_is_no_more_certain_than_so_few_are(
    kind: str, size: float, most: int
) -> None:
    """Equal arms of which one doubles its IOPS in a tenth of its rounds: without, 78 of 300 are called different."""
    values = rough(np.random.default_rng([19, len(kind)]), kind, size, (300, 25, 4), 0.05)
    assert np.isin(judge_all(9 + values).last.verdict, (BETTER, WORSE)).any(axis=1).sum() <= most


def test_a_verdict_that_lasting_levels_would_undo_says_so_and_a_plain_one_does_not() -> None:
    (near,) = planted(2, "ab", {("b", number): 1.02 for number in range(1, 11)}, rounds=10).verdicts
    assert (near.verdict, near.reason) == (Verdict.BETTER, Reason.UNLESS_LASTING)
    assert "on the better side, unless arms keep a level for some rounds" in near.why
    assert "[-" in near.why, "the interval that includes no change"
    (plain,) = planted(2, "ab", {("b", number): 1.3 for number in range(1, 11)}, rounds=10).verdicts
    assert (plain.verdict, plain.reason) == (Verdict.BETTER, Reason.FEW_ROUNDS)


@pytest.mark.parametrize(("count", "few"), [(6, True), (37, True), (38, False), (45, False)])
@pytest.mark.parametrize("arms", ["ab", "abcd"])
def test_a_difference_that_is_decided_in_few_rounds_says_in_how_many(count: int, arms: str, *, few: bool) -> None:
    asked = asked_of(arms, rounds=50)
    found = summarise(run(asked, count, better=1.5, noise=0.02, seed=3)).verdicts[-1]
    assert (found.verdict, found.reason) == (Verdict.BETTER, Reason.FEW_ROUNDS if few else Reason.BETTER_SIDE)
    seconds = count * len(arms) * (asked.seconds + asked.ramp_seconds)
    assert found.why.startswith(f"decided in {count} rounds ({format_seconds(seconds)} of load): ") is few


@pytest.mark.parametrize(
    ("kind", "size"),
    [("states", 0.15), ("states-arm", 0.1), ("point-arm-90", 0.8), ("step-arm", 0.1), ("drift-arm", 0.2)],
)
def test_two_equal_arms_that_stop_before_a_level_changes_are_seldom_called_different_without_a_word(
    kind: str, size: float
) -> None:
    """20 to 39 % are called different, and 15 to 39 % had no word on it (benchmarks/decide.md)."""
    values = rough(np.random.default_rng([23, len(kind)]), kind, size, (300, 51, 2), 0.05)
    last = judge_all(9 + values).last
    told = np.isin(last.verdict, (BETTER, WORSE)).any(axis=1)
    assert told.sum() > 30
    assert (told & ~last.said & ~last.unless & ~last.few).sum() <= 21


@pytest.mark.parametrize("factor", [0.4, 2.5])
def test_a_single_round_beside_a_plain_difference_is_said_and_does_not_hide_it(factor: float) -> None:
    rounds = {("b", number): 1.2 for number in range(1, ROUNDS + 1)}
    found = planted(5, "ab", rounds | {("b", 7): 1.2 * factor})
    assert [one.verdict for one in found.verdicts] == [Verdict.BETTER]
    (said,) = [one for one in found.patterns if one.startswith(f"1 of {ROUNDS} rounds of b ")]
    assert said.endswith("none of a did")


@pytest.mark.parametrize("arms", [1, 2, 3, 5])
@pytest.mark.parametrize("workloads", [1, 2])
def test_a_round_and_the_next_have_opposite_orders_however_a_study_is_resumed(arms: int, workloads: int) -> None:
    names = [f"a{n}" for n in range(arms)], [f"w{n}" for n in range(workloads)]
    for seed in range(5):
        plan = trials(*names, rounds=7, seed=seed)
        orders = [[(one.arm, one.workload) for one in plan if one.round == number] for number in range(1, 8)]
        for first, second in list(pairwise(orders))[::2]:
            assert second == first[::-1]
        assert trials(*names, rounds=3, seed=seed) == plan[: 3 * arms * workloads]
