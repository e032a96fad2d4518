# SPDX-License-Identifier: Apache-2.0
"""Verdicts: seldom wrong, able to find what is there, and "undecided" for everything that cannot bear one."""

import math
from dataclasses import replace
from random import Random
from statistics import fmean, stdev

import pytest
from hypothesis import given
from hypothesis import strategies as st
from scipy.special import stdtrit
from scipy.stats import wilcoxon

from virtune.analyse.stats.paired import (
    Family,
    compare,
    compare_at_any_time,
    compare_by_ranks,
    compare_planned,
    interval_of,
    rank_interval,
    sign_test,
)
from virtune.model.metric import BY_ID, Metric
from virtune.model.reason import Reason
from virtune.model.verdict import ROUNDS_MIN, Comparison, Verdict

IOPS, P99 = BY_ID["iops"], BY_ID["latency.p99"]


def family(metric: Metric, confidence: float) -> Family:
    return Family(metric=metric, workload="w", margin=0.03, confidence=confidence)


def judge(a: list[float], b: list[float], *, metric: str = "iops", confidence: float = 0.99) -> Comparison:
    return compare(family(BY_ID[metric], confidence), ("a", a), ("b", b))


def study(chance: Random, *, rounds: int, effect: float, noise: float, drift: float) -> Comparison:
    """One simulated study: both arms share the host's drift, each slice has noise of its own."""
    level = 0.0
    a, b = [], []
    for _ in range(rounds):
        level += chance.gauss(0, drift)
        a.append(50_000 * math.exp(level + chance.gauss(0, noise)))
        b.append(50_000 * math.exp(level + chance.gauss(0, noise)) * (1 + effect))
    return judge(a, b)


@pytest.mark.parametrize(("noise", "drift"), [(0.02, 0.0), (0.10, 0.05), (0.25, 0.2)])
def test_two_equal_arms_are_called_different_in_at_most_one_of_a_hundred(noise: float, drift: float) -> None:
    chance = Random(11)
    verdicts = [study(chance, rounds=8, effect=0, noise=noise, drift=drift).verdict for _ in range(1000)]
    wrong = sum(verdict in (Verdict.BETTER, Verdict.WORSE) for verdict in verdicts)
    assert wrong <= 16  # 10 expected; more than 16 has probability 0.02


def test_a_tenth_less_is_found_under_ordinary_noise() -> None:
    chance = Random(12)
    found = [study(chance, rounds=12, effect=-0.10, noise=0.04, drift=0.1) for _ in range(300)]
    assert sum(comparison.verdict is Verdict.WORSE for comparison in found) >= 270
    assert not any(comparison.verdict in (Verdict.BETTER, Verdict.SAME) for comparison in found)


def test_a_quiet_host_says_same() -> None:
    chance = Random(13)
    found = [study(chance, rounds=8, effect=0, noise=0.004, drift=0.1).verdict for _ in range(200)]
    assert sum(verdict is Verdict.SAME for verdict in found) >= 190


@pytest.mark.parametrize("rounds", [6, 8, 30])
@pytest.mark.parametrize(
    ("metric", "one", "other", "seconds", "verdict"),
    [
        ("iops", 300.0, 300.0, 2.0, Verdict.SAME),  # a limit of the disk holds both back
        ("write.iops", 300.0, 300.0, 2.0, Verdict.SAME),
        ("iops", 30.0, 30.0, 2.0, Verdict.UNDECIDED),  # one I/O more or less is more than the margin
        ("iops", 300.0, 300.0, 0.0, Verdict.UNDECIDED),  # what was counted is not known
        (
            "iops",
            300.0,
            360.0,
            2.0,
            Verdict.UNDECIDED,
        ),  # a difference that no round adds to is none that was measured
        ("latency.p99", 300.0, 300.0, 2.0, Verdict.UNDECIDED),  # a time is no count
    ],
)
def test_arms_that_counted_alike_in_every_round_are_alike_as_far_as_a_count_tells(
    metric: str, one: float, other: float, seconds: float, verdict: Verdict, rounds: int
) -> None:
    asked = replace(family(BY_ID[metric], 0.99), trial_seconds=seconds)
    values = {"a": [one] * rounds, "b": [other] * rounds, "c": [one] * rounds}
    found = [
        compare(asked, ("a", values["a"]), ("b", values["b"])),
        *compare_at_any_time(asked, values, [("a", "b")]),
        *compare_planned(asked, values, [("a", "b")], level=0.01),
    ]
    assert {each.verdict for each in found} == {verdict}
    if verdict is Verdict.SAME:
        assert all(each.ratio is not None and each.ratio.low < 1 < each.ratio.high for each in found)
    else:
        assert {each.reason for each in found} == {Reason.NO_NOISE}, "more rounds tell no more"


def test_lower_is_better_for_latency() -> None:
    a, b = [1e6 + n for n in range(8)], [2e6 + 3 * n for n in range(8)]
    assert judge(a, b, metric="latency.p99").verdict is Verdict.WORSE
    assert judge(b, a, metric="latency.p99").verdict is Verdict.BETTER
    assert judge(a, b, metric="iops").verdict is Verdict.BETTER


def test_the_interval_is_the_textbook_s() -> None:
    chance = Random(1)
    pairs = [(chance.uniform(1, 2), chance.uniform(1, 2)) for _ in range(9)]
    found = interval_of(pairs, confidence=0.95)
    assert found is not None
    logs = [math.log(b / a) for a, b in pairs]
    radius = stdtrit(len(logs) - 1, 0.975) * stdev(logs) / math.sqrt(len(logs))
    assert found.low == pytest.approx(math.exp(fmean(logs) - radius))
    assert found.high == pytest.approx(math.exp(fmean(logs) + radius))


@pytest.mark.parametrize("rounds", [6, 7, 9, 12, 15])
@pytest.mark.parametrize("level", [0.05, 0.03125, 0.3])
def test_the_rank_interval_holds_all_that_the_signed_rank_test_does_not_reject(rounds: int, level: float) -> None:
    chance = Random(rounds)
    pairs = [(1.0, math.exp(chance.gauss(0.1, 0.3))) for _ in range(rounds)]
    found = rank_interval(pairs, level=level, confidence=1 - level)
    assert found is not None
    for end, inwards in ((found.low, 1), (found.high, -1)):
        p = {way: wilcoxon([math.log(value / end) - way * 1e-9 for _, value in pairs], method="exact").pvalue
             for way in (inwards, -inwards)}  # fmt: skip
        assert p[-inwards] <= level < p[inwards]
    assert found.low < found.estimate < found.high
    turned = rank_interval([(b, a) for a, b in pairs], level=level, confidence=1 - level)
    assert turned is not None
    assert (turned.low, turned.high) == pytest.approx((1 / found.high, 1 / found.low))


def test_too_few_rounds_have_no_rank_interval() -> None:
    pairs = [(1.0, 1.5 + n / 10) for n in range(6)]
    assert all(rank_interval(pairs[:few], level=0.05, confidence=0.95) is None for few in range(6))
    whole = rank_interval(pairs, level=0.05, confidence=0.95)
    assert whole is not None
    assert (whole.low, whole.high) == pytest.approx((1.5, 2.0)), "all six have to agree"
    assert rank_interval(pairs, level=0.03, confidence=0.97) is None


@pytest.mark.parametrize("wins", range(9))
def test_the_sign_test_is_the_textbook_s(wins: int) -> None:
    pairs = [(1.0, 2.0)] * wins + [(2.0, 1.0)] * (8 - wins)
    as_rare = sum(math.comb(8, k) for k in range(9) if math.comb(8, k) <= math.comb(8, wins))
    assert sign_test(pairs) == pytest.approx(as_rare / 2**8)


def test_six_is_the_first_number_of_rounds_that_can_decide() -> None:
    assert 2 * 0.5**ROUNDS_MIN < 0.05 <= 2 * 0.5 ** (ROUNDS_MIN - 1)
    few = ROUNDS_MIN - 1
    found = judge([1.0 + n / 100 for n in range(few)], [9.0 + n / 10 for n in range(few)])
    assert found.verdict is Verdict.UNDECIDED
    assert found.why == "5 paired rounds; 6 are the minimum for a verdict"


@pytest.mark.parametrize(
    ("a", "b", "why"),
    [
        ([], [], "0 paired rounds"),
        ([1.0], [2.0], "1 paired round;"),
        ([5.0] * 8, [5.0] * 8, "exactly the same ratio"),
        ([5.0] * 8, [6.0] * 8, "exactly the same ratio"),
        ([0.0] * 8, [1.0] * 8, r"8 of 8 had no usable value"),
        ([math.nan] * 8, [1.0] * 8, r"8 of 8 had no usable value"),
        ([math.inf] * 8, [1.0] * 8, r"8 of 8 had no usable value"),
        (
            [1.0, 1.1, 0.9, math.nan, 1.0, 1.2, 1.0],
            [-1.0, 2.0, 2.0, 2.0, 2.0, 2.1, 2.0],
            r"2 of 7 had no usable value",
        ),
    ],
)
def test_degenerate_input_is_undecided_with_its_reason(a: list[float], b: list[float], why: str) -> None:
    found = judge(a, b)
    assert found.verdict is Verdict.UNDECIDED
    assert why in found.why


def test_one_wild_round_makes_no_difference() -> None:
    a = [100.0, 101.0, 99.0, 100.5, 99.5, 100.2, 99.8, 100.1]
    b = [x * 1.5 for x in a]
    b[0], b[1], b[2] = a[0] * 0.99, a[1] * 0.995, a[2] * 0.99
    assert judge(a, b, confidence=0.5).verdict is Verdict.UNDECIDED
    few = [x * (1 + 0.06 * (-1) ** n) for n, x in enumerate(a)]
    for wild in (1.5, 10.0, 1e6, 1e300):
        few[0] = a[0] * wild
        found = compare_by_ranks(family(IOPS, 0.95), ("a", a), ("b", few), level=0.05)
        assert found.verdict is Verdict.UNDECIDED


@given(
    st.lists(st.tuples(st.floats(), st.floats()), max_size=12),
    st.sampled_from(["iops", "latency.p99", "cpu_per_io"]),
    st.floats(0.5, 0.999),
)
def test_nothing_that_can_be_measured_breaks_a_comparison(
    pairs: list[tuple[float, float]], metric: str, confidence: float
) -> None:
    found = judge([a for a, _ in pairs], [b for _, b in pairs], metric=metric, confidence=confidence)
    assert found.verdict in Verdict
    if found.ratio is not None:
        assert found.ratio.low <= found.ratio.high or math.isnan(found.ratio.low)
    if len(pairs) < ROUNDS_MIN:
        assert found.verdict is Verdict.UNDECIDED


@given(st.lists(st.floats(1, 1e6), min_size=6, max_size=10), st.floats(0.1, 10))
def test_swapping_the_arms_turns_the_verdict_round(values: list[float], factor: float) -> None:
    other = [value * factor * (1 + 0.001 * n) for n, value in enumerate(values)]
    turned = {Verdict.BETTER: Verdict.WORSE, Verdict.WORSE: Verdict.BETTER}
    forth, back = judge(values, other).verdict, judge(other, values).verdict
    assert back is turned.get(forth, forth)


@pytest.mark.parametrize("factor", [0.9696, 0.9711, 1.0299, 1.0302])
def test_near_the_margin_it_makes_no_difference_which_one_is_the_baseline(factor: float) -> None:
    a = [1000.0 + n for n in range(8)]
    b = [value * factor * math.exp(1e-5 * (-1) ** n) for n, value in enumerate(a)]
    expected = Verdict.SAME if 1 / 1.03 < factor < 1.03 else None
    forth, back = judge(a, b).verdict, judge(b, a).verdict
    assert (forth is Verdict.SAME) == (back is Verdict.SAME) == (expected is Verdict.SAME)


def looked_at(a: list[float], b: list[float], *, confidence: float = 0.95) -> Comparison:
    """The same two arms in a study that is looked at after every round."""
    return compare_at_any_time(family(IOPS, confidence), {"a": a, "b": b}, [("a", "b")])[0]


def stopped_when_decided(seed: int, *, effect: float, noise: float, rounds: int) -> Comparison:
    """A study that looks after every round and stops when it knows."""
    chance = Random(seed)
    a, b = list[float](), list[float]()
    found = None
    for number in range(rounds):
        host = chance.gauss(0, 0.1)
        a.append(50_000 * math.exp(host + chance.gauss(0, noise)))
        b.append(50_000 * math.exp(host + chance.gauss(0, noise)) * (1 + effect))
        if number + 1 >= ROUNDS_MIN:
            found = looked_at(a, b)
            if found.verdict is not Verdict.UNDECIDED:
                return found
    assert found is not None
    return found


def test_looking_after_every_round_calls_equal_arms_different_in_at_most_one_of_twenty() -> None:
    verdicts = [stopped_when_decided(seed, effect=0, noise=0.04, rounds=40).verdict for seed in range(60)]
    assert sum(verdict in (Verdict.BETTER, Verdict.WORSE) for verdict in verdicts) <= 6  # P = 0.03 at 5 %


def test_a_planted_twentieth_is_found_sooner_the_quieter_the_host_is() -> None:
    rounds = []
    for noise in (0.01, 0.03):
        found = [stopped_when_decided(seed, effect=-0.05, noise=noise, rounds=60) for seed in range(20)]
        assert sum(one.verdict is Verdict.WORSE for one in found) >= 18
        rounds.append(sum(one.rounds for one in found) / len(found))
    assert rounds[0] < 10 < rounds[1] < 40


def test_an_undecided_pair_says_how_many_rounds_would_decide_it_and_a_decided_one_does_not() -> None:
    chance = Random(3)
    a = [100 * math.exp(chance.gauss(0, 0.05)) for _ in range(60)]
    b = [104 * math.exp(chance.gauss(0, 0.05)) for _ in range(60)]
    early, late = looked_at(a[:8], b[:8]), looked_at([x / 2 for x in a], b)
    assert early.verdict is Verdict.UNDECIDED
    assert early.rounds_left is not None
    assert 10 < early.rounds_left < 2000  # eight rounds say little of where the mean will be
    assert early.noise == pytest.approx(0.07, rel=0.8)
    assert (late.verdict, late.rounds_left) == (Verdict.BETTER, None)


def test_other_arms_lend_their_noise_to_a_pair() -> None:
    chance = Random(8)
    arms = {name: [chance.gauss(100, 1) for _ in range(6)] for name in "abcdef"}
    asked = family(IOPS, 0.99)
    alone = compare_at_any_time(asked, {name: arms[name] for name in "ab"}, [("a", "b")])[0]
    among = compare_at_any_time(asked, arms, [("a", name) for name in "bcdef"])[0]
    assert alone.ratio is not None
    assert among.ratio is not None
    widths = [one.high - one.low for one in (alone.ratio, among.ratio)]
    assert widths[1] < widths[0] / 2


@pytest.mark.parametrize(
    ("a", "b", "why"),
    [
        ([], [], "0 paired rounds"),
        ([1.0], [2.0], "1 paired round;"),
        ([5.0] * 8, [6.0] * 8, "exactly the same ratio"),
        ([0.0] * 8, [1.0] * 8, "8 of 8 had no usable value"),
        ([math.nan] * 8, [1.0] * 8, "8 of 8 had no usable value"),
        ([1e-300, 1e300] * 4, [1e300, 1e-300] * 4, "too much"),
    ],
)
def test_degenerate_input_is_undecided_with_its_reason_at_any_time(a: list[float], b: list[float], why: str) -> None:
    found = looked_at(a, b)
    assert (found.verdict, found.rounds_left) == (Verdict.UNDECIDED, None) or "wildly" in why
    assert found.verdict is Verdict.UNDECIDED
    assert why in found.why


@given(st.lists(st.tuples(st.floats(), st.floats()), max_size=12), st.floats(0.5, 0.999))
def test_nothing_that_can_be_measured_breaks_a_look(pairs: list[tuple[float, float]], confidence: float) -> None:
    found = looked_at([a for a, _ in pairs], [b for _, b in pairs], confidence=confidence)
    if len(pairs) < ROUNDS_MIN:
        assert found.verdict is Verdict.UNDECIDED
    if found.ratio is None:
        assert found.verdict is Verdict.UNDECIDED
