# SPDX-License-Identifier: Apache-2.0
"""Intervals of percentiles come from rounds: they hold the truth, and say so where nothing bounds them."""

import math
from collections import Counter
from random import Random

import numpy as np
import pytest

from virtune.analyse.stats.student import ends_of, sections_of
from virtune.model.measurement import Histogram, merge


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
        low, high = ends_of(sections_of([round_of(chance, ios=600) for _ in range(10)]), percent, seconds=20)
        assert low is not None
        assert high is not None
        held += low <= truth <= high
    assert held >= 34  # of 38 expected


def test_few_rounds_have_no_interval_and_many_are_ten_sections() -> None:
    chance = Random(1)
    rounds = [round_of(chance, ios=200) for _ in range(23)]
    assert ends_of(sections_of(rounds[:4]), 50.0, seconds=8) == (None, None)
    sections = sections_of(rounds)
    assert len(sections) == 10
    assert sum(one.count for one in sections) == sum(one.count for one in rounds)
    assert ends_of(sections_of([]), 99.9, seconds=0) == (None, None)


def test_a_tail_that_only_some_rounds_have_is_bounded_from_below_alone() -> None:
    chance = Random(2)
    rounds = [round_of(chance, ios=1000, tail=0.02 if number == 3 else 0.0) for number in range(10)]
    low, high = ends_of(sections_of(rounds), 99.9, seconds=3600)
    assert low is not None
    assert high is None


EDGES = np.exp2(np.arange(16 * 64 + 1) / 64)
MIDDLES = np.sqrt(EDGES[1:] * EDGES[:-1])


def stalling(seed: int, rounds: int, *, each: int = 3000) -> list[Histogram]:
    """Rounds of 2 s on a host that stalls every 12 s in the mean, some stalls far worse than others."""
    chance = np.random.default_rng([6, seed])
    counts = np.zeros(2 * rounds)
    for _ in range(chance.poisson(2 * rounds / 12)):
        start, long = chance.integers(2 * rounds), chance.geometric(0.6)
        counts[start : start + long] = min(0.05, chance.lognormal(-5.2, 1.0))
    found = []
    for share in counts.reshape(rounds, 2):
        level = 4.6 + 0.11 * chance.standard_normal()
        logs = level + 0.35 * chance.standard_normal(each)
        stalled = chance.random(each) < 0.0004 + np.repeat(share, each // 2)
        logs[stalled] += 1.8 + 0.5 * chance.standard_normal(int(stalled.sum()))
        bins = np.histogram(np.exp(np.clip(logs, 0.01, 11)), EDGES)[0]
        found.append(Histogram(bins=tuple((int(1000 * MIDDLES[at]), int(bins[at])) for at in np.flatnonzero(bins))))
    return found


def test_of_a_tail_that_comes_in_heaps_a_minute_tells_only_that_it_is_no_less() -> None:
    truth = merge([one for seed in range(1000, 1012) for one in stalling(seed, 500)]).percentile(99.9)
    assert truth is not None
    held, both = 0, 0
    for seed in range(40):
        sections = sections_of(stalling(seed, 30))
        low, high = ends_of(sections, 99.9, seconds=60)
        assert low is not None
        assert high is None
        held += low <= 1.01 * truth
        whole = ends_of(sections, 99.9, seconds=3600)  # as if so little were enough
        both += low <= 1.01 * truth and (whole[1] is None or truth <= 1.01 * whole[1])
    assert held >= 36  # one-sided, at 0.975: fewer than 36 of 40 has probability 0.003
    assert both < held  # what is not claimed would not hold as often
