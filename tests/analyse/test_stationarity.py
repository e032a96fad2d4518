# SPDX-License-Identifier: Apache-2.0
"""What is planted is found: a drift, what starts bring, how long a host remembers."""

import math

import numpy as np
import pytest

from virtune.analyse.stats.noise import between_starts, correlation_of, drift_of


def test_a_planted_drift_is_held_by_its_interval_and_none_is_shown_where_there_is_none() -> None:
    held = shown = 0
    for seed in range(100):
        chance = np.random.default_rng(seed)
        minutes = np.linspace(0, 5, 30)
        for slope in (0.0, 0.02):
            series = {
                arm: [(float(t), level + slope * t + 0.05 * chance.standard_normal()) for t in minutes]
                for arm, level in (("a", 10.0), ("b", 9.0))
            }
            found = drift_of(series)
            assert found is not None
            held += found.low <= math.expm1(slope) <= found.high
            shown += slope == 0.0 and not found.low <= 0 <= found.high
    assert held >= 183  # of 190 expected
    assert shown <= 10
    assert drift_of({"a": [(0.0, 1.0)]}) is None
    assert drift_of({"a": [(1.0, 1.0)] * 6}) is None


def test_what_starts_bring_is_told_from_what_trials_bring() -> None:
    for planted in (0.0, 0.05):
        found = []
        for seed in range(40):
            chance = np.random.default_rng(seed)
            starts = planted * chance.standard_normal(12)
            found.append(
                between_starts([(n, float(starts[n] + 0.02 * chance.standard_normal())) for n in range(12)] * 4)
            )
        rms = math.sqrt(np.mean([0.0 if one is None else one**2 for one in found]))
        assert rms == pytest.approx(math.hypot(planted, 0.02), abs=0.012)  # 4 equal trials each: theirs is in it
    assert between_starts([(1, 0.1), (1, 0.2)]) is None
    assert between_starts([(1, 0.1), (2, 0.2)]) is None


def test_the_autocorrelation_time_is_that_of_the_process() -> None:
    chance, keeps = np.random.default_rng(5), 0.8
    values = [0.0]
    for _ in range(20_000):
        values.append(keeps * values[-1] + math.sqrt(1 - keeps**2) * chance.standard_normal())
    seconds, is_open = correlation_of([[10 + value for value in values]], 0.25)
    assert seconds == pytest.approx(0.25 * (1 + keeps) / (1 - keeps), rel=0.2)
    assert not is_open
    assert correlation_of([[1.0, 1.0]], 0.25) == (None, False)


def test_trials_that_ended_at_one_moment_tell_no_drift() -> None:
    points = [(29453760.016666666, 4.6 + n / 100) for n in range(10)]
    assert drift_of({"a": points, "b": points[::-1]}) is None
    close = [(29453760.0 + n / 1e6, 4.6 + n % 3) for n in range(10)]
    assert drift_of({"a": close, "b": close}) is None
