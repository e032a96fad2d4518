# SPDX-License-Identifier: Apache-2.0
"""Intervals of percentiles come from rounds: they hold the truth, and say so where nothing bounds them."""

import math
from collections import Counter
from random import Random

import pytest

from virtune.analyse.sections import ends_of, sections_of
from virtune.model.measurement import Histogram


def round_of(chance: Random, *, ios: int = 2000, tail: float = 0.0) -> Histogram:
    """A round of exponential latencies, all of them slower or faster together by what the host does meanwhile."""
    host = math.exp(chance.gauss(0, 0.1))
    found = Counter(round(host * chance.expovariate(1 / 100_000)) // 500 * 500 for _ in range(ios))
    found.update(round(chance.uniform(2e7, 8e7)) for _ in range(ios) if chance.random() < tail)
    return Histogram(bins=tuple(sorted((value, count) for value, count in found.items() if count)))


@pytest.mark.parametrize("percent", [50.0, 95.0, 99.0])
def test_the_interval_holds_the_truth_although_rounds_differ_more_than_their_ios_do(percent: float) -> None:
    # the mixture over hosts moves the percentile by less than 1 %
    truth, held = -100_000 * math.log(1 - percent / 100) * math.exp(0.1**2 / 2), 0
    for seed in range(40):
        chance = Random(seed)
        low, high = ends_of(sections_of([round_of(chance, ios=600) for _ in range(10)]), percent)
        assert low is not None
        assert high is not None
        held += low <= truth <= high
    assert held >= 34  # of 38 expected


def test_few_rounds_have_no_interval_and_many_are_ten_sections() -> None:
    chance = Random(1)
    rounds = [round_of(chance, ios=200) for _ in range(23)]
    assert ends_of(sections_of(rounds[:4]), 50.0) == (None, None)
    sections = sections_of(rounds)
    assert len(sections) == 10
    assert sum(one.count for one in sections) == sum(one.count for one in rounds)
    assert ends_of(sections_of([]), 99.9) == (None, None)


def test_a_tail_that_only_some_rounds_have_is_bounded_from_below_alone() -> None:
    chance = Random(2)
    rounds = [round_of(chance, ios=1000, tail=0.02 if number == 3 else 0.0) for number in range(10)]
    low, high = ends_of(sections_of(rounds), 99.9)
    assert low is not None
    assert high is None
