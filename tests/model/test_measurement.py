# SPDX-License-Identifier: Apache-2.0
"""Histograms: which bin is a percentile, what is resolved, and what two runs have together."""

import math
import random
from dataclasses import replace

import pytest

from virtune.model.measurement import Histogram, merge

TEN = Histogram(bins=tuple((value, 1) for value in range(1, 11)))


@pytest.mark.parametrize(("percent", "value"), [(0, 1), (10, 1), (10.1, 2), (25, 3), (50, 5), (95, 10), (100, 10)])
def test_a_percentile_is_the_first_bin_that_reaches_it(percent: float, value: float) -> None:
    assert TEN.percentile(percent) == value


def test_nothing_counted_has_no_percentile() -> None:
    assert Histogram(bins=()).percentile(50) is None


def test_a_percentile_is_resolved_by_what_lies_above_it() -> None:
    many = Histogram(bins=((1, 9_999), (2, 1)))
    assert many.resolves(99)  # 100 of 10,000 lie above
    assert not many.resolves(99.9)
    assert many.resolves(99.9, beyond=9)
    assert many.resolves(1)


def test_merged_bins_hold_the_counts_of_both() -> None:
    both = merge([Histogram(bins=((10, 3), (30, 1))), Histogram(bins=((10, 4), (20, 2)))])
    assert both.bins == ((10, 7), (20, 2), (30, 1))
    assert both.count == 10


def test_a_histogram_counts_as_its_bins_say() -> None:
    rng = random.Random(7)
    for _ in range(50):
        values = sorted(rng.sample(range(1, 500), rng.randint(1, 40)))
        found = Histogram(bins=tuple((value, rng.randint(0, 5)) for value in values))
        every = [value for value, count in found.bins for _ in range(count)]
        assert found.count == len(every)
        for percent in (0.0, 12.5, 50.0, 99.0, 100.0):
            at = max(1, math.ceil(percent * len(every) / 100))
            assert found.percentile(percent) == (float(every[at - 1]) if every else None)
        for value in (0.0, values[0], values[-1] - 0.5, 1000.0):
            assert found.count_to(value) == sum(one <= value for one in every)
    assert Histogram(bins=()).count == 0
    assert Histogram(bins=()).percentile(50.0) is None
    assert TEN.count == 10
    assert replace(TEN, bins=((1, 2),)).count == 2  # nothing that was worked out for another is kept
