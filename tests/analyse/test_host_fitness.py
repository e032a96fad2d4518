# SPDX-License-Identifier: Apache-2.0
"""A host's fitness worked out of simulated trials whose noise, memory and drift are known."""

import math
from dataclasses import replace
from random import Random

import numpy as np
import pytest
from rich.console import Console
from tests.analyse.host_records import STEP, host
from tests.published import complaints
from tests.report.records import as_read

from virtune.analyse.stats.planned import final_level, planned_contrasts
from virtune.analyse.study.summarise import fitness_of
from virtune.model.measurement import Measurement
from virtune.model.reason import Reason
from virtune.model.remark import Remark, Weight
from virtune.model.result import Fitness, Neighbour
from virtune.model.verdict import Outcome
from virtune.report.json.host import check_document
from virtune.report.pages.check import least_text, limit_lines, sentence
from virtune.report.pages.result import PASSED


def test_independent_noise_is_found_as_it_was_made() -> None:
    found = fitness_of(host(sd=0.10, rounds=50))
    assert found.windows_cv == pytest.approx(0.10, rel=0.1)
    assert found.correlation_seconds == pytest.approx(STEP, rel=0.3)
    assert not found.correlation_open
    assert found.overhead_seconds == 1
    for one in found.slices:  # the difference of two means of n windows
        assert one.sd == pytest.approx(0.10 * math.sqrt(2 / (one.seconds / STEP)), rel=0.25), one
    assert found.same is not None
    assert found.same.verdict.value in ("same", "undecided")


def test_noise_with_a_memory_of_a_second_is_seen_to_have_it() -> None:
    # AR(1): the integrated autocorrelation time is step x (1 + rho) / (1 - rho)
    found = fitness_of(host(sd=0.10, rho=0.6, rounds=200))
    assert found.correlation_seconds == pytest.approx(STEP * 1.6 / 0.4, rel=0.25)


def test_without_memory_long_slices_cost_least_and_with_it_short_ones() -> None:
    free, held = (fitness_of(host(sd=0.10, rho=rho, rounds=100)) for rho in (0.0, 0.97))
    assert free.best_seconds == 4.0
    assert held.best_seconds is not None
    assert held.best_seconds <= 1.0
    assert min(one.cost for one in held.slices) == 1


def test_the_detectable_difference_shrinks_with_time_and_grows_with_noise() -> None:
    quiet, loud = (fitness_of(host(sd=sd, rounds=10)) for sd in (0.02, 0.20))
    for found in (quiet, loud):
        smallest = [one.smallest for one in found.reaches if one.smallest is not None]
        assert len(smallest) == 3
        assert smallest == sorted(smallest, reverse=True)
    assert (quiet.reach(5) or 1) < 0.03
    assert (loud.reach(5) or 0) > 4 * (quiet.reach(5) or 1)
    assert sentence(quiet).startswith("FIT: a 5-minute comparison of two arms detects differences of ")
    still = sentence(fitness_of(host(sd=0.0001, rounds=10)))
    assert still.endswith("detects differences of 0.1 % and more (90 % power)"), (
        "nothing detects a difference of 0.0 %"
    )
    assert sentence(loud).startswith("NOT FIT: a 5-minute comparison detects only differences of ")
    assert (quiet.unfit, len(loud.unfit)) == ((), 1)
    assert (quiet.unfit_reasons, loud.unfit_reasons) == ((), (Reason.ONLY_LARGE_DIFFERENCES,))
    assert [loud.noisier(share) for share in (0.05, 0.9)] == [Outcome.BREACHED, Outcome.HELD], (
        "who looks for so much may"
    )


def test_a_short_check_says_how_much_worse_the_host_may_be() -> None:
    """Six trials of 1 s said FIT with 1.4 % where five minutes then found nothing below 10 %."""
    long = fitness_of(host(sd=0.05, rounds=60))
    true = long.reach(5)
    assert true is not None
    short = [fitness_of(host(sd=0.05, rounds=3, seed=seed)) for seed in range(40)]
    assert sum((one.most(5) or 0.0) >= 0.98 * true for one in short) >= 28
    assert all("trials do not exclude that it takes" in sentence(one) for one in short)
    assert "do not exclude" not in sentence(long)


@pytest.mark.parametrize("sd", [0.002, 0.02, 0.05, 0.2])
@pytest.mark.parametrize("rounds", [3, 10, 60])
def test_a_limit_on_the_noise_is_held_only_where_the_trials_exclude_more(sd: float, rounds: int) -> None:
    """A check that did not exclude 5.6 % was let through a gate of 5 %."""
    found = fitness_of(host(sd=sd, rounds=rounds))
    smallest, most = found.reach(5), found.most(5)
    assert smallest is not None
    assert most is not None
    assert smallest < most
    between = math.sqrt(smallest * most)
    judged = {share: found.noisier(share) for share in (0.9 * smallest, between, 0.99 * most, most, 1.1 * most)}
    assert [*judged.values()] == [Outcome.BREACHED, *[Outcome.UNDECIDED] * 2, *[Outcome.HELD] * 2]
    said = {share: limit_said(found, share) for share in judged}
    assert all(said[share].startswith(f"{PASSED[outcome]}: ") for share, outcome in judged.items()), said
    assert all(
        least_text(most) in said[share] for share, outcome in judged.items() if outcome is not Outcome.BREACHED
    )
    assert not list(limit_lines(found, None))


def limit_said(found: Fitness, share: float) -> str:
    """What is written of a limit on the noise, in one line."""
    console = Console(width=1000, no_color=True)
    with console.capture() as captured:
        console.print(*limit_lines(found, share))
    return captured.get()


def test_a_check_as_much_longer_as_it_says_decides() -> None:
    short = fitness_of(host(sd=0.05, rounds=10))
    smallest, most = short.reach(5), short.most(5)
    assert smallest is not None
    assert most is not None
    for share in (1.1 * smallest, 0.99 * most):
        times = short.times_longer(share)
        assert times is not None
        assert f"a check {times} times as long" in limit_said(short, share) or times > 20
        best = next(one for one in short.slices if one.seconds == short.best_seconds)
        assert smallest * replace(best, pairs=times * best.pairs).doubt <= share
        assert times == 2 or smallest * replace(best, pairs=(times - 1) * best.pairs).doubt > share
    assert short.times_longer(smallest) is None, "none is long enough"


@pytest.mark.parametrize(("every", "times"), [(0, 1.0), (4, 1.3125), (8, 1.140625)])
def test_a_comparison_takes_longer_where_disturbed_trials_are_made_again(every: int, times: float) -> None:
    """Of which every fourth is disturbed, a trial is made once, 1/4 a second and 1/16 a third time."""
    quiet = host(sd=0.05, rounds=40)
    busy = Remark(id="cpu-wait", weight=Weight.INVALID, text="CPU contention")
    trials = tuple(
        replace(one, measurement=one.measurement and replace(one.measurement, remarks=(busy,)))
        if every and one.trial.number % every == 0
        else one
        for one in quiet.trials
    )
    pairs = [next(reach.blocks for reach in fitness_of(one).reaches if reach.minutes == 15)
             for one in (quiet, replace(quiet, trials=trials))]  # fmt: skip
    assert pairs[0] == pytest.approx(times * pairs[1], abs=2)


def test_a_stack_that_differs_from_itself_or_trials_that_do_not_count_make_a_host_unfit() -> None:
    odd = host(sd=0.01, rounds=10)
    one_arm = odd.study.arms[0].name
    trials = tuple(
        replace(one, measurement=faster(one.measurement))
        if one.trial.arm == one_arm and one.measurement is not None
        else one
        for one in odd.trials
    )
    false = fitness_of(replace(odd, trials=trials))
    assert false.unfit == ("the same stack was called different from itself (A/A test)",)
    assert false.unfit_reasons == (Reason.FALSE_DIFFERENCE,)
    assert false.same is not None
    assert false.same.reason in (Reason.BETTER_SIDE, Reason.WORSE_SIDE)
    disturbed = fitness_of(host(sd=0.01, rounds=10, gates=(("clock-step", 0.2),)))
    assert [why.startswith("most trials are invalid: ") for why in disturbed.unfit] == [True]
    assert disturbed.unfit_reasons == (Reason.MOSTLY_INVALID,)
    assert false.noisier(0.5) is Outcome.BREACHED
    assert disturbed.noisier(0.5) is Outcome.BREACHED, "quiet enough, and NOT FIT"


def faster(found: Measurement) -> Measurement:
    """The same course, and IOPS that do not fit it: what a verdict is taken from and noise is not."""
    return replace(found, values=(("iops", 2 * dict(found.values)["iops"]),))


def test_what_is_said_to_be_found_is_found() -> None:
    """Comparisons at the end of their plan: nine in ten find the difference, few find none."""
    forecast = fitness_of(host(sd=0.10, rounds=100))
    best = next(one for one in forecast.slices if one.seconds == forecast.best_seconds)
    reach = next(one for one in forecast.reaches if one.minutes == 5)
    assert reach.smallest is not None
    chance, planted, hits = Random(3), math.log1p(reach.smallest), 0
    level = final_level(1 - forecast.confidence)
    for _ in range(150):
        noise = [[chance.gauss(0, best.sd / math.sqrt(2)) for _ in range(reach.blocks)] for _ in range(2)]
        values = np.array([[value + planted for value in noise[0]], noise[1]]).T
        hits += planned_contrasts(values, [(0, 1)], level=level)[0].low > 0
    assert 123 <= hits <= 147  # nine in ten are 135, with a standard error of 3.7


def test_drift_is_found_with_its_interval() -> None:
    found = fitness_of(host(sd=0.02, drift=0.05, rounds=20)).drift
    assert found is not None
    assert found.low < math.expm1(0.05) < found.high
    assert found.low > 0
    none = fitness_of(host(sd=0.02, rounds=20, seed=2)).drift
    assert none is not None
    assert none.low < 0 < none.high


def test_gates_stand_by_their_worst_reading_and_advise() -> None:
    said = Remark(id="steal", weight=Weight.WARNING, text="stolen", advice="move away")
    gates = (("steal", 0.02), ("cpu-wait", 0.03), ("foreign-io", 0.0), ("drive-heat", -8.0), ("clock-step", 0.2))
    found = fitness_of(host(sd=0.1, gates=gates, remarks=(said,)))
    assert {one.id: one.standing for one in found.gates} == {
        "steal": "warns",
        "cpu-wait": "near",
        "foreign-io": "clear",
        "drive-heat": "near",
        "clock-step": "invalid",
    }
    governor = Remark(id="governor", weight=Weight.WARNING, text="powersave", advice="performance")
    tool = Remark(id="tool", weight=Weight.WARNING, text="no qemu", advice="install it")
    advice = fitness_of(host(sd=0.1, gates=gates, remarks=(said,)), findings=(governor, tool)).advice
    assert advice == (said, governor)


def test_disturbed_trials_promise_nothing() -> None:
    bad = Remark(id="steal", weight=Weight.INVALID, text="stolen", advice="")
    whole = host(sd=0.01, rounds=10)

    def disturbed(*numbers: int) -> float | None:
        trials = tuple(
            replace(one, measurement=replace(one.measurement, remarks=(bad,)))
            if number in numbers and one.measurement is not None
            else one
            for number, one in enumerate(whole.trials)
        )
        return fitness_of(replace(whole, trials=trials)).reach(5)

    assert disturbed(0, 9) is not None
    assert disturbed(*range(0, 20, 2)) is None, "none of them follows another"
    assert disturbed(*range(3, 20)) is None, "two pairs"
    assert disturbed(*range(4, 20)) is not None, "three"


def test_how_long_it_takes_is_said_where_a_quarter_of_an_hour_finds_too_little() -> None:
    loud, quiet = (fitness_of(host(sd=sd, rounds=40)) for sd in (0.6, 0.02))
    smallest = loud.reach(15)
    assert smallest is not None
    assert smallest > 0.05
    took = loud.minutes_for(0.05)
    assert took is not None
    assert took > 15
    assert (loud.minutes_for(0.03) or 0) > 2 * took
    assert (quiet.minutes_for(0.05), loud.minutes_for(0.9)) == (None, None)


@pytest.mark.parametrize("kept", [0, 1, 2, 3])
def test_a_check_that_was_interrupted_says_what_there_is(kept: int) -> None:
    whole = host(sd=0.1)
    found = fitness_of(replace(whole, trials=whole.trials[:kept]))
    assert found.trials == kept
    assert found.best_seconds is None
    assert all(one.smallest is None for one in found.reaches)
    assert "too few" in sentence(found)
    assert complaints("check", as_read(check_document(found))) == []


def test_equal_rates_and_rates_of_zero_break_nothing() -> None:
    whole = host(sd=0.0)
    for value in (0.0, 7.0):
        trials = tuple(
            replace(one, measurement=replace(one.measurement, profile=(value,) * 16))
            for one in whole.trials
            if one.measurement is not None
        )
        found = fitness_of(replace(whole, trials=trials))
        assert complaints("check", as_read(check_document(found))) == []
        assert found.correlation_seconds is None


def test_the_document_keeps_to_its_schema() -> None:
    around = (Neighbour(pid=7, name="make", cpus=1.5, bandwidth_bps=None),)
    said = Remark(id="steal", weight=Weight.WARNING, text="stolen", advice="")
    found = fitness_of(host(sd=0.1, gates=(("steal", 0.02),), remarks=(said,)), neighbours=around)
    assert complaints("check", as_read(check_document(found))) == []
    assert complaints("check", as_read(check_document(found)) | {"stranger": 1}) != []
