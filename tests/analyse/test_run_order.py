# SPDX-License-Identifier: Apache-2.0
"""Runs in order of time: independent noise is seldom called a drift and keeps its verdict, a drift is found and is no
difference of the arms, and times that cannot be tell no order.
"""

import math
from collections.abc import Callable, Iterator
from random import Random

import pytest

from virtune.analyse.stats.paired import Family, Places, compare, compare_unpaired
from virtune.analyse.study.run_order import order_of
from virtune.model.metric import BY_ID
from virtune.model.study import RunOrder
from virtune.model.verdict import Comparison, Verdict

FAMILY = Family(metric=BY_ID["iops"], workload="w", margin=0.03, confidence=0.95)
TRIED = 400

Noise = Callable[[Random], float]
NOISES: dict[str, Noise] = {
    "normal": lambda chance: chance.gauss(0, 0.02),
    "heavy tails": lambda chance: 0.02 * chance.gauss(0, 1) / math.sqrt(chance.gammavariate(1.5, 1 / 1.5)),
    "dips": lambda chance: chance.gauss(0, 0.01) - (0.3 if chance.random() < 0.1 else 0),
    "skewed": lambda chance: -0.02 * chance.expovariate(1),
}


def worlds(
    order: str, noise: Noise = NOISES["normal"], *, drift: float = 0.0, effect: float = 0.0
) -> Iterator[tuple[tuple[str, list[float]], tuple[str, list[float]], Places]]:
    """Runs of A and B in this order, `drift` (ln) further with each and B `effect` (ln) beyond A."""
    chance = Random(order)
    places = [[place for place, arm in enumerate(order) if arm == name] for name in "AB"]
    for _ in range(TRIED):
        values = [
            math.exp(9 + drift * place + effect * (arm == "B") + noise(chance)) for place, arm in enumerate(order)
        ]
        a, b = ([values[place] for place in side] for side in places)
        yield ("A", a), ("B", b), (places[0], places[1])


def share(found: list[bool]) -> float:
    return sum(found) / len(found)


def differs(found: Comparison) -> bool:
    return found.verdict in (Verdict.BETTER, Verdict.WORSE)


@pytest.mark.parametrize("noise", NOISES.values(), ids=NOISES.keys())
@pytest.mark.parametrize("runs", [4, 6, 10])
@pytest.mark.parametrize("effect", [0.0, -0.1])
def test_independent_noise_is_seldom_a_drift_and_keeps_its_verdict(noise: Noise, runs: int, effect: float) -> None:
    drifts, kept = list[bool](), list[bool]()
    for a, b, places in worlds("A" * runs + "B" * runs, noise, effect=effect):
        found = compare_unpaired(FAMILY, a, b, places)
        drifts.append(found.drift is not None)
        kept.append(found.verdict is compare_unpaired(FAMILY, a, b).verdict)
    assert share(drifts) <= 0.02  # nominal 0.01; two standard errors of 400 above it
    assert share(kept) >= 0.98


@pytest.mark.parametrize(("runs", "drift"), [(6, 0.02), (6, -0.04), (10, 0.01), (10, -0.02)])
def test_a_drift_is_no_difference_of_arms_that_ran_one_after_the_other(runs: int, drift: float) -> None:
    before, after, told = list[bool](), list[bool](), list[bool]()
    for a, b, places in worlds("A" * runs + "B" * runs, drift=drift):
        found = compare_unpaired(FAMILY, a, b, places)
        before.append(differs(compare_unpaired(FAMILY, a, b)))
        after.append(differs(found))
        told.append(found.drift is not None and found.drift.low <= math.expm1(drift) <= found.drift.high)
    assert share(before) >= 0.95
    assert share(after) <= 0.05
    assert share(told) >= 0.95


@pytest.mark.parametrize("effect", [0.0, -0.3])
def test_what_is_left_without_the_drift_has_the_confidence_that_is_said(effect: float) -> None:
    covered, right = list[bool](), list[bool]()
    for a, b, places in worlds("AAAAAAAABBBBBBBB", drift=-0.03, effect=effect):
        found = compare_unpaired(FAMILY, a, b, places)
        assert found.drift is not None
        assert found.ratio is not None
        covered.append(found.drift.rest.low <= math.exp(effect) <= found.drift.rest.high)
        assert found.ratio.low <= found.drift.rest.low <= found.drift.rest.high <= found.ratio.high
        right.append(found.verdict is (Verdict.WORSE if effect else Verdict.UNDECIDED))
    assert share(right) >= 0.975
    assert 0.925 <= share(covered) <= 0.975


@pytest.mark.parametrize("order", ["ABABABABABAB", "ABBAABBABAAB"])
def test_turns_take_a_drift_out_and_find_what_it_hid(order: str) -> None:
    found = [compare(FAMILY, *world) for world in worlds(order, drift=-0.04, effect=-0.1)]
    hidden = [compare_unpaired(FAMILY, a, b) for a, b, _ in worlds(order, drift=-0.04, effect=-0.1)]
    assert share([one.verdict is Verdict.WORSE for one in found]) >= 0.95
    assert share([differs(one) for one in hidden]) <= 0.1
    alike = [compare(FAMILY, *world) for world in worlds(order, drift=-0.04)]
    assert share([differs(one) for one in alike]) <= 0.05


def test_turns_too_few_for_pairs_have_their_drift_taken_out() -> None:
    found = [compare_unpaired(FAMILY, *world) for world in worlds("ABABABABAB", drift=-0.04, effect=-0.1)]
    assert share([one.verdict is Verdict.WORSE for one in found]) >= 0.95
    alike = [compare_unpaired(FAMILY, *world) for world in worlds("ABABABABAB", drift=-0.04)]
    assert share([differs(one) for one in alike]) <= 0.07


NOW, MINUTE = 1_790_000_000.0, 60.0


def ended(order: str, *, seconds: float | None = 50.0, gap: float = MINUTE) -> RunOrder:
    return order_of([(NOW - 9999 + gap * place, arm, seconds) for place, arm in enumerate(order)], now=NOW)


@pytest.mark.parametrize(
    ("order", "found"),
    [
        ("AB", RunOrder.APART),
        ("AAABBB", RunOrder.APART),
        ("CCBBAA", RunOrder.APART),
        ("ABAB", RunOrder.IN_TURN),
        ("ABBAAB", RunOrder.IN_TURN),
        ("ABCBCA", RunOrder.IN_TURN),
        ("ABABA", RunOrder.IN_TURN),
        ("AABB" * 2, RunOrder.MIXED),
        ("ABAA", RunOrder.MIXED),
    ],
)
def test_the_order_is_that_of_the_ends(order: str, found: RunOrder) -> None:
    assert ended(order) is found


def test_runs_that_overlap_or_of_unknown_times_have_no_order() -> None:
    assert ended("ABAB", gap=26.0) is RunOrder.IN_TURN, "whole seconds, and a load that began before its ramp"
    assert ended("ABAB", gap=25.0) is RunOrder.UNKNOWN
    assert ended("ABAB", gap=0.0, seconds=0.0) is RunOrder.UNKNOWN
    assert ended("ABAB", seconds=None) is RunOrder.UNKNOWN
    for wrong in (math.nan, math.inf, -1.0, 0.0, NOW + 2 * 86_400):
        assert order_of([(wrong, "A", 1.0), (NOW, "B", 1.0)], now=NOW) is RunOrder.UNKNOWN
    assert order_of([], now=NOW) is RunOrder.UNKNOWN
