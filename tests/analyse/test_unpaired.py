# SPDX-License-Identifier: Apache-2.0
"""Arms whose runs are no pairs: a planted difference is found, none is not, and degenerate input decides nothing."""

import math
from random import Random

import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests.analyse.unpaired_runs import compared

from virtune.analyse.stats.paired import EarlierRun, between_runs, rank_test, welch
from virtune.model.reason import Reason
from virtune.model.verdict import REPEATS_MIN, BetweenRuns, Verdict


def test_welch_is_the_interval_of_the_textbook() -> None:
    # scipy's own, on the same logarithms
    from scipy.stats import ttest_ind

    chance = Random(1)
    base = [chance.gauss(5.0, 0.02) for _ in range(6)]
    other = [chance.gauss(5.1, 0.08) for _ in range(9)]
    found = welch(base, other, confidence=0.95)
    assert found is not None
    theirs = ttest_ind(other, base, equal_var=False).confidence_interval(0.95)
    assert (math.log(found.low), math.log(found.high)) == pytest.approx((theirs.low, theirs.high))


def test_the_rank_test_is_scipys_with_and_without_ties_exact_and_not() -> None:
    from scipy.stats import mannwhitneyu

    chance = Random(2)
    draws = (chance.random, lambda: float(chance.randint(0, 4)), lambda: 1.0)
    for _ in range(300):
        draw, shift = chance.choice(draws), chance.choice((0.0, 0.3))
        base, other = ([draw() + extra for _ in range(chance.randint(1, 14))] for extra in (0.0, shift))
        theirs = mannwhitneyu(base, other, alternative="two-sided").pvalue
        assert rank_test(base, other) == pytest.approx(theirs, abs=1e-12), (base, other)


@pytest.mark.parametrize("runs", [4, 6, 10])
def test_two_arms_alike_are_seldom_called_different(runs: int) -> None:
    chance = Random(7)
    wrong = 0
    for _ in range(400):
        base, other = ([math.exp(chance.gauss(9, 0.05)) for _ in range(runs)] for _ in range(2))
        wrong += compared(base, other, confidence=0.95).verdict in (Verdict.BETTER, Verdict.WORSE)
    assert wrong / 400 <= 0.075  # nominal 0.05; two standard errors of 400 trials above it


def test_a_planted_tenth_is_found_and_has_the_right_sign() -> None:
    chance = Random(3)
    base = [math.exp(chance.gauss(9, 0.02)) for _ in range(6)]
    other = [1.1 * math.exp(chance.gauss(9, 0.02)) for _ in range(6)]
    assert compared(base, other).verdict is Verdict.BETTER
    assert compared(other, base).verdict is Verdict.WORSE
    assert compared(base, other, metric="latency.p99").verdict is Verdict.WORSE
    assert compared(base, other).ratio is not None


def earlier(*runs: list[float], reference: int = 1) -> BetweenRuns:
    """Runs in order of time, of which so many lead up to the reference."""
    return between_runs([EarlierRun(rounds=run, after=at >= reference) for at, run in enumerate(runs)])


@pytest.mark.parametrize(("known", "spread"), [(2, 0.05), (3, 0.3), (4, 0.05), (8, 0.05), (20, 0.01)])
def test_runs_of_one_configuration_at_different_times_are_seldom_called_different(known: int, spread: float) -> None:
    """Each run has a level of its own, however alike its rounds are."""
    chance = Random(11)

    def run() -> list[float]:
        level = chance.gauss(9, spread)
        return [math.exp(chance.gauss(level, 0.01)) for _ in range(6)]

    without, wrong = 0, 0
    for _ in range(400):
        base, other, *rest = (run() for _ in range(known + 1))
        without += compared(base, other, confidence=0.95).verdict in (Verdict.BETTER, Verdict.WORSE)
        between = earlier(base, *rest)
        wrong += compared(base, other, confidence=0.95, between=between).verdict in (Verdict.BETTER, Verdict.WORSE)
    assert without / 400 > 0.2  # which is why
    assert wrong / 400 <= 0.075


NIGHTS = 0.15
"""What nights differ by, as a standard deviation of the logarithm."""


def a_night(chance: Random, *, level: float = 1.0) -> list[float]:
    """The rounds of a night."""
    mean = chance.gauss(9, NIGHTS) + math.log(level)
    return [math.exp(chance.gauss(mean, 0.01)) for _ in range(6)]


@pytest.mark.parametrize("bad", [1, 2, 5, 12])
@pytest.mark.parametrize("reference", [1, 6])
def test_bad_nights_do_not_excuse_the_next_nor_a_good_one_after_them(bad: int, reference: int) -> None:
    """Sixteen times slower, after six good nights; the reference is the first of them, or the last."""
    chance = Random(17)
    told = wrong = 0
    for _ in range(200):
        good = [a_night(chance) for _ in range(6)]
        nights = [*good, *(a_night(chance, level=1 / 16) for _ in range(bad))]
        between, base = earlier(*nights, reference=reference), good[reference - 1]
        next_bad, next_good = a_night(chance, level=1 / 16), a_night(chance)
        told += compared(base, next_bad, confidence=0.95, between=between).verdict is Verdict.WORSE
        wrong += compared(base, next_good, confidence=0.95, between=between).verdict not in {
            Verdict.UNDECIDED,
            Verdict.SAME,
        }
    assert told == 200
    assert wrong / 200 <= 0.08


def test_a_night_that_was_disturbed_or_is_among_the_first_tells_however_far_it_is() -> None:
    def spread(*levels: float, calm: bool) -> float:
        chance = Random(5)
        nights = [a_night(chance, level=level) for level in levels]
        return between_runs([EarlierRun(rounds=one, calm=calm, after=at > 0) for at, one in enumerate(nights)]).spread

    usual = [1.0] * 5
    assert spread(*usual, 1 / 50, calm=True) < 2 * NIGHTS < 1 < spread(*usual, 1 / 50, calm=False)
    assert spread(1.0, 1.0, 1 / 50, 1.0, calm=True) > 1


@pytest.mark.parametrize(("calm", "tells"), [(3, True), (2, False)])
def test_nights_that_others_disturbed_excuse_none_that_nobody_did_where_there_are_others(
    calm: int, tells: bool
) -> None:
    chance = Random(7)
    calms = [EarlierRun(rounds=a_night(chance)) for _ in range(calm)]
    busy = [EarlierRun(rounds=a_night(chance, level=0.03), calm=False) for _ in range(3)]
    both = between_runs([*calms, *busy])
    assert (both == between_runs(calms)) == tells
    # of what was disturbed itself they do tell
    assert between_runs([*calms, *busy], disturbed="tonight").widest > math.log(10)


def test_too_few_runs_of_one_configuration_decide_nothing_and_show_no_interval() -> None:
    fast, slow = [100.0, 101.0, 99.0, 100.5, 99.5], [50.0, 51.0, 49.0, 50.5, 49.5]
    assert compared(fast, slow).verdict is Verdict.WORSE
    found = compared(fast, slow, between=earlier(fast, []))
    assert (found.verdict, found.reason, found.ratio) == (Verdict.UNDECIDED, Reason.BETWEEN_RUNS, None)
    assert found.change == pytest.approx(0.5, rel=0.01)
    assert "beside the one that is compared the store has 1;" in found.why
    assert compared(fast, slow, between=earlier(fast, fast[1:])).verdict is Verdict.WORSE
    further = [value * 1.1 for value in fast]
    assert compared(fast, slow, between=earlier(fast, further)).verdict is Verdict.UNDECIDED, "13 times that"


def test_one_run_each_shows_the_difference_and_cannot_decide() -> None:
    found = compared([100.0], [150.0])
    assert (found.verdict, found.ratio, found.rounds) == (Verdict.UNDECIDED, None, 1)
    assert found.change == pytest.approx(1.5)
    assert found.why == "one run each cannot decide"


def test_fewer_runs_than_the_rank_test_needs_decide_nothing() -> None:
    assert rank_test([1.0, 2.0, 3.0], [4.0, 5.0, 6.0, 7.0]) > 0.05  # which is why
    assert rank_test([1.0, 2.0, 3.0, 3.5], [4.0, 5.0, 6.0, 7.0]) < 0.05
    fewer = [100.0 + n / 10 for n in range(REPEATS_MIN - 1)]
    found = compared(fewer, [value * 2 for value in fewer])
    assert found.verdict is Verdict.UNDECIDED
    assert "3 and 3 runs; 4 of each" in found.why


def test_one_wild_run_makes_no_difference() -> None:
    base = [100.0, 101.0, 99.0, 100.5, 99.5, 100.2]
    assert compared(base, [100.1, 100.6, 99.2, 99.9, 101.2, 1e6]).verdict is Verdict.UNDECIDED


def test_equal_values_are_a_stuck_source() -> None:
    found = compared([100.0] * 5, [200.0] * 5)
    assert found.verdict is Verdict.UNDECIDED
    assert "exactly the same" in found.why


number = st.floats(allow_nan=True, allow_infinity=True)


@given(st.lists(number, max_size=8), st.lists(number, max_size=8))
def test_no_values_raise_and_too_few_never_decide(base: list[float], other: list[float]) -> None:
    found = compared(base, other)
    usable = [sum(1 for value in values if math.isfinite(value) and value > 0) for values in (base, other)]
    assert found.rounds == min(usable)
    if min(usable) < REPEATS_MIN:
        assert found.verdict is Verdict.UNDECIDED
    if found.ratio is not None:
        assert 0 <= found.ratio.low <= found.ratio.estimate <= found.ratio.high < math.inf
