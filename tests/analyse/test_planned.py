# SPDX-License-Identifier: Apache-2.0
"""Planned comparisons: seldom wrong, nearly as sharp as a test that looks once, silent where nothing can be said."""

import math

import numpy as np
import pytest
from benchmarks.batch import disagreements, judge_all
from hypothesis import given
from hypothesis import strategies as st
from numpy.typing import NDArray
from scipy import stats

from virtune.analyse.stats.anytime import contrasts
from virtune.analyse.stats.paired import Family, compare_planned
from virtune.analyse.stats.planned import (
    dunnett_alpha,
    level_of,
    mixed_quantile,
    planned_contrasts,
    rounds_to_decide,
    smallest_planned,
)
from virtune.model.metric import BY_ID
from virtune.model.reason import Reason
from virtune.model.tuning import Contrast
from virtune.model.verdict import PLANNED_ROUNDS_MIN, Comparison, Verdict

pytestmark = pytest.mark.xdist_group("quantiles")  # the tables of `benchmarks.batch` are made once

PLANNED = 20
LOOKS = tuple((float(count), count / PLANNED) for count in range(PLANNED_ROUNDS_MIN, PLANNED + 1))
AGAINST_FIRST = [("0", "1"), ("0", "2"), ("0", "3")]
ALPHA = dunnett_alpha(3, 0.05)


def rounds(
    seed: int, count: int = PLANNED, arms: int = 4, *, sd: float = 0.05, lag1: float = 0.0
) -> NDArray[np.float64]:
    """Equal arms; `sd` is that of one round's difference, `lag1` of an arm's noise stays from round to round."""
    noise = np.random.default_rng([seed, 8]).standard_normal((count, arms))
    for row in range(1, count):
        noise[row] = lag1 * noise[row - 1] + math.sqrt(1 - lag1**2) * noise[row]
    return 10 + sd / math.sqrt(2) * noise


def judged(values: NDArray[np.float64], count: int, *, planned: bool = True) -> list[Comparison]:
    """What is said of all arms against the first after so many rounds of a plan of 20."""
    arms = {str(arm): list(np.exp(values[:count, arm])) for arm in range(values.shape[1])}
    level = level_of(LOOKS[: count - PLANNED_ROUNDS_MIN + 1], ALPHA) if planned else ALPHA
    family = Family(metric=BY_ID["iops"], workload="w", margin=0.03, confidence=1 - ALPHA, fewest=5)
    return compare_planned(family, arms, AGAINST_FIRST, level=level)


@pytest.mark.parametrize(
    ("plans", "lag1", "most", "worse"),
    [
        (400, 0.0, 28, 0.1),
        pytest.param(2000, 0.0, 119, 0.07, marks=pytest.mark.long),
        pytest.param(2000, 0.3, 138, 0.08, marks=pytest.mark.long),
    ],
)
def test_equal_arms_are_seldom_called_different_over_the_whole_plan(
    plans: int, lag1: float, most: int, worse: float
) -> None:
    """A method of 5 % (at lag-1 0.3 of 6 %) passes, and one that is wrong as often as `worse` fails."""
    assert stats.binom.sf(most, plans, 0.06 if lag1 else 0.05) < 0.05
    assert stats.binom.cdf(most, plans, worse) < 0.06
    values = np.stack([rounds(seed, lag1=lag1) for seed in range(plans)])
    assert disagreements(values[:4], planned=PLANNED) == 0, "these are not the product's verdicts"
    assert (judge_all(values).first > 0).any(axis=1).sum() <= most


SIGNS = [(agree, count) for count in (20, 30) for agree in range(count // 2 - 1, count)]


@pytest.mark.parametrize(("agree", "count"), SIGNS)
def test_a_difference_that_about_six_of_ten_rounds_do_not_share_is_undecided(agree: int, count: int) -> None:
    """A part of the rounds carries a mean that is far from 0, and the others are a little on the other side."""
    chance = np.random.default_rng([agree, count])
    shares = np.floor(np.arange(count + 1) * agree / count)  # spread evenly over the rounds
    apart = np.where(np.diff(shares) > 0, 0.3, -0.01) + chance.uniform(-0.005, 0.005, count)
    base = 9 + 0.001 * chance.standard_normal(count)
    arms = {"a": list(np.exp(base)), "b": list(np.exp(base + apart))}
    family = Family(metric=BY_ID["iops"], workload="w", margin=0.03, confidence=0.95)
    (one,) = compare_planned(family, arms, [("a", "b")], level=0.04)
    assert one.ratio is not None
    assert one.ratio.low > 1, "the interval itself leaves it open"
    shared = stats.binomtest(agree, count, 0.5).pvalue <= 0.5
    assert one.verdict is (Verdict.BETTER if shared else Verdict.UNDECIDED)
    assert shared or one.reason is Reason.SIGN_TEST


def test_looking_without_the_plan_is_wrong_far_too_often() -> None:
    wrong = sum(
        any(
            one.verdict is not Verdict.UNDECIDED
            for n in range(6, 21)
            for one in judged(rounds(seed), n, planned=False)
        )
        for seed in range(20)
    )
    assert wrong > 4


@pytest.mark.parametrize(("plans", "least"), [(30, 23), pytest.param(100, 84, marks=pytest.mark.long)])
def test_a_difference_is_found_nearly_as_often_as_by_a_test_that_looks_once(plans: int, least: int) -> None:
    """One arm of four is 4.5 % better at a round sd of 5 %: Dunnett's test at the end finds it in 93 %."""
    found = 0
    for seed in range(plans):
        values = rounds(seed)
        values[:, 3] += 0.045
        found += any(judged(values, n)[2].verdict is Verdict.BETTER for n in range(PLANNED_ROUNDS_MIN, PLANNED + 1))
    assert found >= least


def test_what_is_plain_is_decided_after_the_fewest_rounds_and_the_rest_later() -> None:
    values = rounds(1, sd=0.02)
    values[:, 3] += 0.3
    first = judged(values, PLANNED_ROUNDS_MIN)
    assert [one.verdict for one in first] == [Verdict.UNDECIDED, Verdict.UNDECIDED, Verdict.BETTER]
    last = judged(values, PLANNED)
    assert last[0].ratio is not None
    assert first[0].ratio is not None
    assert last[0].ratio.high / last[0].ratio.low < first[0].ratio.high / first[0].ratio.low


def test_equal_arms_are_the_same_by_the_interval_that_is_shown() -> None:
    """Early in a long plan that is the interval that holds at any time: hardly anything is spent by then."""
    values = rounds(2, 12, sd=0.005)
    level = level_of(((12.0, 0.001),), ALPHA)
    arms = {str(arm): list(np.exp(values[:, arm])) for arm in range(4)}
    alone = planned_contrasts(values, [(1, 0)], level=level)[0]
    whenever = contrasts(values, [(1, 0), (2, 0), (3, 0)], alpha=ALPHA)[0]
    reaches = [abs(one.mean) + one.radius for one in (whenever, alone)]
    assert reaches[0] < reaches[1]
    margin = math.expm1(sum(reaches) / 2)
    family = Family(metric=BY_ID["iops"], workload="w", margin=margin, confidence=1 - ALPHA)
    one, *_ = compare_planned(family, arms, AGAINST_FIRST, level=level)
    assert one.verdict is Verdict.SAME
    assert one.ratio is not None
    assert math.log(one.ratio.high) == pytest.approx(whenever.high)


def test_pairs_lend_one_another_their_noise_but_not_to_one_that_is_noisier() -> None:
    values = rounds(8, 8, 8, sd=0.02)
    alone = planned_contrasts(values[:, :2], [(0, 1)], level=0.01)[0]
    among = planned_contrasts(values, [(0, 1)], level=0.01)[0]
    assert among.df > alone.df
    assert among.radius < alone.radius
    values[:, 7] += np.random.default_rng(8).standard_normal(8)
    wild = planned_contrasts(values, [(7, 0)], level=0.01)[0]
    assert wild.df == pytest.approx(7, abs=0.5)
    assert wild.low < 0 < wild.high


def test_what_was_measured_of_autocorrelation_widens_the_interval_and_few_rounds_leave_it_open() -> None:
    plain = [mixed_quantile(0.01, 1e6, 0.0, count, 2) for count in (10, 50, 1000)]
    assert plain == sorted(plain, reverse=True)
    assert plain[-1] == pytest.approx(2.576, rel=0.02)
    assert mixed_quantile(0.01, 1e6, 0.4, 1000, 2) == pytest.approx(2.576 * math.sqrt(1.4 / 0.6), rel=0.03)
    assert mixed_quantile(0.01, 20, 0.4, 20, 4) > 1.2 * mixed_quantile(0.01, 20, 0.0, 20, 4)
    assert [mixed_quantile(level, 6, 0.1, 6, 3) for level in (0.0, 5e-324, 1e-300)] == [math.inf] * 3
    assert math.isfinite(mixed_quantile(1e-17, 6, 0.1, 6, 3))


def test_a_pair_turned_round_is_the_same_turned_round() -> None:
    values = rounds(4)
    values[:, 2] += 0.05
    found = planned_contrasts(values, [(0, 2), (2, 0)], level=0.01)
    assert found[0].mean == -found[1].mean != 0
    assert found[0].radius == found[1].radius


def test_a_crashed_arm_takes_no_other_with_it() -> None:
    values = rounds(11, 10)
    values[:, 2] = np.nan
    values[0, 1] = np.inf
    found = planned_contrasts(values, [(0, 1), (0, 2), (3, 0)], level=0.01)
    assert [one.blocks for one in found] == [9, 0, 10]
    assert [math.isfinite(one.radius) for one in found] == [True, False, True]


@given(st.lists(st.lists(st.floats(width=32), min_size=3, max_size=3), max_size=12), st.floats(0, 0.5))
def test_nothing_that_can_be_measured_breaks_it(rows: list[list[float]], level: float) -> None:
    values = np.array(rows, dtype=np.float64).reshape(-1, 3)
    for found in planned_contrasts(values, [(0, 1), (2, 0), (1, 2)], level=level):
        assert found.radius > 0
        assert math.isfinite(found.mean)
        assert (found.why is None) == math.isfinite(found.radius)


def test_what_is_said_to_be_found_is_found_with_90_percent_probability() -> None:
    least = smallest_planned(PLANNED, sd=0.05, alpha=ALPHA, arms=4)
    assert least is not None
    hits = 0
    for seed in range(120):
        values = rounds(seed)
        values[:, 1] += math.log1p(least)
        hits += judged(values, PLANNED)[0].verdict is Verdict.BETTER
    assert 99 <= hits <= 117  # nine in ten are 108, with a standard error of 3.3
    assert smallest_planned(2, sd=0.05, alpha=ALPHA) is None


@pytest.mark.parametrize("effect", [0.0, 0.05])
def test_a_plan_as_long_as_is_forecast_decides_with_90_percent_probability(effect: float) -> None:
    kept = told = 0
    for seed in range(60):
        values = rounds(seed, 900, 2)
        values[:, 0] += effect
        early = planned_contrasts(values[:12], [(0, 1)], level=0.03)[0]
        count = rounds_to_decide(early, margin=0.03, alpha=0.05)
        assert count is not None
        assert count > 12
        told += 1
        late = planned_contrasts(values[:count], [(0, 1)], level=0.044)[0]
        kept += abs(late.mean) > late.radius or abs(late.mean) + late.radius < math.log1p(0.03)
    assert kept >= 0.83 * told
    assert rounds_to_decide(Contrast(blocks=1), margin=0.03, alpha=0.05) is None
