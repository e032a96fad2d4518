# SPDX-License-Identifier: Apache-2.0
"""The ramp found: a start-up is found on simulated rounds as noisy as real ones, a steady load is left alone."""

import math

import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests.analyse.noisy_trials import noisy
from tests.report.records import study

from virtune.analyse.trial.rejection import halves, ramp_of, read_profile


def steady(arm: str, slice_: int) -> float:
    return 1.0


def burst(arm: str, slice_: int) -> float:
    """A bucket of tokens that lasts half a second: native alone begins a quarter faster."""
    return 1.25 if arm == "native" and slice_ < 2 else 1.0


def slow_start(arm: str, slice_: int) -> float:
    return 1 - 0.3 * math.exp(-slice_ * 0.25 / 0.7)


def test_a_start_that_is_faster_doubles_the_ramp_and_says_of_whom() -> None:
    ramp = ramp_of(study(8), noisy(study(8), burst, seed=1, sd=0.01))
    assert ramp.seconds == 1.0
    (finding,) = ramp.findings
    assert (finding.round, finding.arm, finding.before, finding.after) == (5, "native", 0.5, 1.0)
    assert finding.change == pytest.approx(1 / (1 + 0.25 * 2 / 8), abs=0.01)
    assert "did -6 % in the second half" in finding.text


def test_a_slow_start_is_found_in_most_noisy_studies() -> None:
    found = [bool(ramp_of(study(8), noisy(study(8), slow_start, seed=seed)).findings) for seed in range(100)]
    assert sum(found) >= 60


def test_a_steady_load_is_called_unsteady_at_most_as_often_as_promised() -> None:
    found = [bool(ramp_of(study(6), noisy(study(6), steady, seed=seed)).findings) for seed in range(1000)]
    assert sum(found) <= 20  # one in a hundred is promised, and 20 of 1000 are three standard deviations above


def test_the_ramp_of_a_round_rests_on_the_rounds_before_it_only() -> None:
    asked = study(8)
    trials = noisy(asked, burst, seed=1, sd=0.01)
    for before, seconds in ((1, 0.5), (5, 0.5), (6, 1.0), (8, 1.0)):
        assert ramp_of(asked, trials, before_round=before).seconds == seconds
    # a study that was interrupted within round 5 has nothing to go by until that round is whole
    assert ramp_of(asked, trials[:9], before_round=6).seconds == 0.5
    assert ramp_of(asked, (), before_round=6).seconds == 0.5


def test_the_ramp_doubles_at_most_four_times() -> None:
    asked = study(40)
    ramp = ramp_of(asked, noisy(asked, burst, seed=1, sd=0.01))
    assert [finding.after for finding in ramp.findings] == [1, 2, 4, 8]
    assert [finding.round for finding in ramp.findings] == [5, 10, 15, 20]


@pytest.mark.parametrize("profile", [(), (1.0,), (1.0, 2.0), (0.0, 0.0, 1.0, 1.0)])
def test_too_little_says_nothing(profile: tuple[float, ...]) -> None:
    assert halves(profile) is None


LOG = b"250, 100, 0, 0, 0\n250, 10, 1, 0, 0\n499, 200, 0, 0, 0\n499, 20, 1, 0, 0\n751, 300, 0, 0, 0\n"


def test_a_log_is_added_up_over_jobs_and_directions() -> None:
    assert read_profile(LOG) == ((110.0, 220.0), 0.25)
    assert read_profile(LOG + LOG) == ((220.0, 440.0), 0.25)


def test_a_long_log_is_put_together() -> None:
    log = b"".join(b"%d, %d, 0, 0, 0\n" % (250 * n, n) for n in range(1, 4001))
    profile, every = read_profile(log)
    assert (len(profile), every) == (2000, 0.5)
    assert profile[:2] == (1.5, 3.5)


@given(st.binary(max_size=200) | st.text("0123456789,. -nai\n", max_size=200).map(str.encode))
def test_any_log_is_read_or_left_out(log: bytes) -> None:
    profile, every = read_profile(log)
    assert all(math.isfinite(value) for value in profile)
    assert every >= 0
