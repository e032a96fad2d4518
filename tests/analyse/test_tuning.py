# SPDX-License-Identifier: Apache-2.0
"""Searches over landscapes that are made up, block for block as the flow runs them, without a disk."""

import math
from dataclasses import replace

import pytest
from tests.analyse.search_worlds import World, landscape, searched, study_of

from virtune.analyse.search.pilot import seconds_of
from virtune.analyse.search.tuning import tuning
from virtune.analyse.stats.student import shift_of
from virtune.flows.run.tune import nothing_raced, require_percentiles
from virtune.model.errors import PreconditionError
from virtune.model.evidence import StudyRecord, TrialRecord
from virtune.model.measurement import Histogram
from virtune.model.reason import Reason
from virtune.model.remark import EMULATED
from virtune.model.search import Goal, Limit, Phase, phase_of
from virtune.model.study import Study, Trial
from virtune.model.tuning import LimitState, Place, Recommendation, Tuning
from virtune.model.verdict import Verdict
from virtune.plan.space import next_block


def test_the_winner_is_within_the_margin_and_its_distance_is_true() -> None:
    near = true = 0
    for seed in range(12):
        rates = landscape(seed)
        found, _ = searched(study_of(list(rates), seed=seed), World(rates, seed=seed))
        assert found.finished
        assert found.winner is not None
        assert found.distance is not None
        below = 1 - rates[found.winner] / max(rates.values())
        near += below <= 0.03
        true += below <= found.distance
        assert found.measured_seconds < 8 * 300 / 10
    assert near >= 11
    assert true >= 11


def test_among_equals_nothing_is_recommended_and_a_tie_is_called_one() -> None:
    changed = out = 0
    for seed in range(12):
        rates = {f"a{index}": 50_000.0 for index in range(5)}
        found, _ = searched(study_of(list(rates), seed=seed), World(rates, noise=0.02, seed=seed))
        changed += found.recommendation is Recommendation.CHANGE
        out += any(one.place is Place.ELIMINATED for one in found.standing.runners)
    assert changed <= 1  # 6 pairs at 0.97, and a winner that came out of a race
    assert out <= 2  # an error of 5 % each: three of twelve and more come once in fifty; with one of 30 % it is three


def test_a_certificate_needs_no_cap() -> None:
    rates = landscape(3)
    found, record = searched(study_of(list(rates), mode="certify"), World(rates, noise=0.02))
    assert found.probed.slices_max is None
    assert found.standing.certified
    assert found.distance is not None
    assert found.distance <= 0.03
    assert len(record.trials) > 8 * 3


def test_what_breaks_a_limit_is_out_and_the_best_that_keeps_it_wins() -> None:
    rates = {"base": 40_000.0, "fast": 60_000.0, "good": 50_000.0}
    limit = Limit(metric="cpu_per_io", sense="<=", value=15e-6, text="cpu_per_io<=15us")
    cpu = {"base": 10e-6, "fast": 20e-6, "good": 12e-6}
    found, _ = searched(study_of(list(rates), goal=Goal(limits=(limit,))), World(rates, noise=0.01, cpu=cpu))
    assert [arm for arm, _ in found.broken] == ["fast"]
    assert found.winner == found.standing.leader == "good"
    assert {check.state for check in found.checks if check.arm == "good"} == {LimitState.KEPT}
    assert found.recommendation is Recommendation.CHANGE
    unlimited, _ = searched(study_of(list(rates)), World(rates, noise=0.01, cpu=cpu))
    assert unlimited.winner == "fast"


def test_a_limit_that_may_be_broken_is_not_recommended_silently() -> None:
    rates = {"base": 40_000.0, "fast": 60_000.0}
    limit = Limit(metric="iops", sense=">=", value=60_000.0, text="iops>=60k")
    found, _ = searched(study_of(list(rates), goal=Goal(limits=(limit,))), World(rates))
    assert found.recommendation is Recommendation.UNDECIDED
    if found.winner == "fast":
        assert found.why.reason is Reason.MAY_BREAK_A_LIMIT
    else:
        assert found.winner is None


def test_a_limit_that_slices_keep_and_all_their_operations_together_break_is_not_called_kept() -> None:
    rates = {"base": 40_000.0, "fast": 60_000.0}
    limit = Limit(metric="latency.p99", sense="<=", value=2e6, text="latency.p99<=2ms")
    _, record = searched(study_of(list(rates), goal=Goal(limits=(limit,))), World(rates))

    def of_all(slow: int) -> Tuning:
        """The search where the p99 of each slice is 1 ms, and of all its operations so many in a million are slow."""
        many = Histogram(bins=((1_000_000, 1_000_000 - slow), (9_000_000, slow)))
        trials = tuple(
            replace(one, measurement=replace(
                one.measurement, histogram=many,
                values=(*((name, value) for name, value in one.measurement.values if name != limit.metric),
                        (limit.metric, 1e6 + one.trial.number)),
            ))
            for one in record.trials if one.measurement is not None
        )  # fmt: skip
        return tuning(replace(record, trials=trials, attempts=trials))

    assert {check.state for check in of_all(9_000).checks} == {LimitState.KEPT}
    assert {check.state for check in of_all(11_000).checks} == {LimitState.OPEN}
    assert of_all(11_000).recommendation is Recommendation.UNDECIDED


def test_when_all_break_a_limit_there_is_no_winner() -> None:
    rates = {"base": 40_000.0, "fast": 60_000.0}
    limit = Limit(metric="iops", sense=">=", value=90_000.0, text="iops>=90k")
    found, _ = searched(study_of(list(rates), goal=Goal(limits=(limit,))), World(rates))
    assert found.winner is None
    assert found.recommendation is Recommendation.UNDECIDED
    assert found.why.reason is Reason.ALL_BREAK_A_LIMIT


def test_a_winner_that_differs_from_restart_to_restart_is_unstable() -> None:
    rates = {"base": 40_000.0, "fast": 80_000.0}
    found, _ = searched(study_of(list(rates)), World(rates, noise=0.01, restarts=0.2))
    assert found.confirmation is not None
    assert found.confirmation.unstable
    assert (found.recommendation, found.why.reason) == (Recommendation.UNDECIDED, Reason.UNSTABLE)
    assert "more than 10 %" in found.why.text
    steady, _ = searched(study_of(list(rates)), World(rates, noise=0.01))
    assert (steady.recommendation, steady.why.reason) == (Recommendation.CHANGE, Reason.CONFIRMED)
    assert steady.confirmation is not None
    assert (steady.confirmation.verdict, steady.confirmation.why.reason) == (Verdict.BETTER, Reason.BETTER_SIDE)


def test_what_an_emulator_was_fastest_with_is_never_recommended() -> None:
    rates = {"base": 40_000.0, "fast": 80_000.0}
    world = World(rates, noise=0.01)
    world.remarks = (EMULATED.remark(text="functional only: the guest was emulated"),)
    found, _ = searched(study_of(list(rates)), world)
    assert found.winner == "fast"
    assert found.recommendation is Recommendation.UNDECIDED
    assert found.why.reason is Reason.EMULATED
    assert "emulation" in found.why.text
    assert any("functional only" in note for note in found.notes)


def test_a_pair_that_is_lost_is_run_again() -> None:
    rates = {"base": 40_000.0, "fast": 80_000.0}

    class Loses(World):
        """Fails in the confirmation as often as it is told to."""

        def __init__(self, lost: int) -> None:
            super().__init__(rates, noise=0.01)
            self.lost = lost

        def value(self, trial: Trial) -> float:
            if phase_of(trial.round) is Phase.CONFIRM and self.lost:
                self.lost -= 1
                return math.nan
            return super().value(trial)

    for lost, pairs, rounds in ((1, 6, 7), (5, 6, 9), (100, 0, 12)):
        found, record = searched(study_of(list(rates)), Loses(lost))
        assert found.confirmation is not None
        confirmed = {one.trial.round for one in record.trials if phase_of(one.trial.round) is Phase.CONFIRM}
        assert (found.confirmation.pairs, len(confirmed)) == (pairs, rounds)
        assert (found.recommendation is Recommendation.CHANGE) == (pairs == 6)


def test_a_race_is_over_once_its_winner_is_being_confirmed() -> None:
    rates = {"base": 40_000.0, "fast": 41_500.0}
    found, record = searched(study_of(list(rates)), World(rates, noise=0.03))
    assert found.confirmation is not None
    rounds = sorted({one.trial.round for one in record.trials if phase_of(one.trial.round) is Phase.RACE})
    shorter = tuple(one for one in record.trials if one.trial.round not in rounds[4:])
    raced = tuple(one for one in shorter if phase_of(one.trial.round) is not Phase.CONFIRM)
    assert tuning(replace(record, trials=raced)).phase is Phase.RACE
    assert tuning(replace(record, trials=shorter)).phase is Phase.CONFIRM


def test_too_few_restarts_decide_nothing() -> None:
    rates = {"base": 40_000.0, "fast": 80_000.0}
    for pairs in (0, 1, 3, 5):
        found, _ = searched(study_of(list(rates), confirm_pairs=pairs), World(rates, noise=0.01))
        assert found.recommendation is Recommendation.UNDECIDED, pairs


@pytest.mark.parametrize("bad", [math.nan, 0.0])
def test_an_arm_that_gives_nothing_is_out_and_the_rest_goes_on(bad: float) -> None:
    rates = {"base": 40_000.0, "dead": bad, "fast": 60_000.0}
    found, _ = searched(study_of(list(rates)), World(rates))
    assert found.winner == "fast"
    assert {one.arm: one.place for one in found.standing.runners}["dead"] is Place.FAILED


def test_a_search_without_a_trial_says_so() -> None:
    found = tuning(StudyRecord(study=study_of(["a", "b"]), facts="", finished=False, trials=()))
    assert not found.finished
    assert found.phase is Phase.PROBE
    assert found.winner is None
    assert found.recommendation is Recommendation.UNDECIDED


def test_slow_disks_get_longer_slices_and_a_soak_is_compared_with_its_beginning() -> None:
    rates = {"base": 400.0, "fast": 800.0}
    writes = study_of(list(rates), slice_seconds=None, soak_seconds=60.0)
    found, record = searched(writes, World(rates, noise=0.01))
    assert found.probed.slice_seconds == 5.0
    assert [soak.arm for soak in found.soaks] == ["fast", "base"]
    assert all(soak.ratio == pytest.approx(1, abs=0.1) for soak in found.soaks)
    assert sum(phase_of(one.trial.round) is Phase.SOAK for one in record.trials) == 12


def test_a_soak_that_gave_no_values_is_told_all_the_same() -> None:
    rates = {"base": 40_000.0, "fast": 80_000.0}

    class Silent(World):
        """Gives nothing in the soak."""

        def value(self, trial: Trial) -> float:
            return math.nan if phase_of(trial.round) is Phase.SOAK else super().value(trial)

    found, _ = searched(study_of(list(rates), soak_seconds=60.0), Silent(rates, noise=0.01))
    assert [(soak.arm, soak.seconds, soak.ratio) for soak in found.soaks] == [("fast", 60, None), ("base", 60, None)]


def test_a_ramp_that_is_too_short_is_doubled_for_the_rest_of_the_race() -> None:
    rates = {"base": 40_000.0, "fast": 42_000.0, "near": 41_500.0}
    world = World(rates, noise=0.05)
    world.profile = (0.8, 0.9, 1.0, 1.0)
    found, record = searched(study_of(list(rates)), world)
    assert (found.ramps[0].before, found.ramps[0].after, found.ramps[0].round) == (0.5, 1.0, 1005)
    late = sum(one.trial.round > 1005 for one in record.trials)
    assert late
    assert found.measured_seconds >= 1.5 * len(record.trials) + 0.5 * late  # longer ramps are part of what it cost
    world = World(rates, noise=0.05)
    world.profile = (1.0, 1.0, 1.0, 1.0)
    steady, _ = searched(study_of(list(rates)), world)
    assert steady.ramps == ()


def test_the_shift_of_a_textbook() -> None:
    # Hollander, Wolfe, Chicken, table 3.1 (depression scores): estimate -0.46, 96.1 % interval [-0.786, -0.010]
    x = [1.83, 0.50, 1.62, 2.48, 1.68, 1.88, 1.55, 3.06, 1.30]
    y = [0.878, 0.647, 0.598, 2.05, 1.06, 1.29, 1.06, 3.14, 1.29]
    found = shift_of([b - a for a, b in zip(x, y, strict=True)], confidence=0.95)
    assert found is not None
    assert found.estimate == pytest.approx(-0.46, abs=0.001)
    assert found.low == pytest.approx(-0.786)
    assert found.high == pytest.approx(-0.010)
    assert found.confidence == pytest.approx(0.961, abs=0.001)
    assert shift_of([], confidence=0.95) is None
    assert shift_of([math.nan], confidence=0.95) is None


class Slow(World):
    """A disk that gives as many latencies as a slice has time for, two of a thousand ten times the usual one."""

    def __init__(self, rates: dict[str, float], *, flushing: float = 0.0, noise: float = 0.01) -> None:
        super().__init__(rates, noise=noise)
        self.flushing = flushing

    def value(self, trial: Trial) -> float:
        return self.rates[trial.arm] * math.exp(self.chance.gauss(0, self.noise))

    def run_for(self, trial: Trial, seconds: float) -> TrialRecord:
        ran = self.run(trial)
        iops = self.rates[trial.arm]
        histogram = self.histogram(iops, round(iops * seconds))
        flushes = self.histogram(iops * self.flushing, round(iops * self.flushing * seconds))
        tails = tuple(
            (f"{name}.p{percent:g}", found)
            for name, bins in (("latency", histogram), ("sync", flushes))
            for percent in (99.0, 99.9)
            if (found := bins.percentile(percent)) is not None
        )
        assert ran.measurement is not None
        values = (*ran.measurement.values, *((name, value * self.noisy()) for name, value in tails))
        return replace(ran, measurement=replace(ran.measurement, values=values, histogram=histogram, flushes=flushes))

    def noisy(self) -> float:
        return math.exp(self.chance.gauss(0, 0.02))

    @staticmethod
    def histogram(rate: float, count: int) -> Histogram:
        usual = round(1e9 / rate) if rate else 1
        slow = max(1, count // 500) if count else 0  # two of a thousand: what p99.9 sees and p99 does not
        return Histogram(bins=((usual, count - slow), (10 * usual, slow)) if count else ())


def raced_slowly(study: Study, world: Slow) -> Tuning:
    record = StudyRecord(study=study, facts="", finished=False, trials=())
    for _ in range(500):
        known = tuning(record)
        rounds = {one.trial.round for one in record.trials if phase_of(one.trial.round) is known.phase}
        block = next_block(study, known, rounds=len(rounds), trials=len(record.trials))
        if not block:
            return known
        seconds = seconds_of(study, known.probed.slice_seconds, known.phase)
        record = replace(record, trials=(*record.trials, *(world.run_for(trial, seconds) for trial in block)))
    raise AssertionError("it does not end")


@pytest.mark.parametrize("iops", [2_000.0, 9_000.0])
def test_a_slice_holds_what_a_rare_percentile_needs(iops: float) -> None:
    rates = {"base": iops, "fast": 1.5 * iops}
    study = study_of(list(rates), goal=Goal(metric="latency.p99.9"), slice_seconds=None)
    found = raced_slowly(study, Slow(rates))
    assert found.winner == "fast"
    assert not any(one.place is Place.FAILED for one in found.standing.runners)
    assert found.recommendation is Recommendation.CHANGE  # confirmed by runs that are long enough for it too
    limit = Limit(metric="latency.p99.9", sense="<=", value=8e9 / iops, text="latency.p99.9<=")
    limited = study_of(list(rates), goal=Goal(limits=(limit,)), slice_seconds=None)
    found = raced_slowly(limited, Slow(rates))
    assert all(check.blocks for check in found.checks)
    assert found.winner == "fast"
    assert {check.state for check in found.checks if check.arm == "fast"} == {LimitState.KEPT}
    assert found.recommendation is Recommendation.CHANGE


def test_a_rate_that_is_too_low_for_a_percentile_is_said_after_the_probe() -> None:
    def probed(goal: Goal, iops: float, *, flushing: float = 0.0, seconds: float | None = None) -> Tuning:
        study = study_of(["base", "fast"], goal=goal, slice_seconds=seconds)
        world = Slow({"base": iops, "fast": iops}, flushing=flushing, noise=0.0)
        trials = tuple(
            world.run_for(Trial(number=number, round=number, arm="base", workload="reads"), 1.0)
            for number in range(1, 7)
        )
        return tuning(StudyRecord(study=study, facts="", finished=False, trials=trials))

    rare = Goal(metric="latency.p99.9")
    require_percentiles(probed(rare, 2_000))
    with pytest.raises(PreconditionError) as caught:
        require_percentiles(probed(rare, 800))
    assert caught.value.message == (
        "latency.p99.9 needs 30,000 I/Os in a slice, and the baseline makes 16,000 in 20 s"
    )
    assert caught.value.hint == "`--seconds 38s`; at 1,500 IOPS it could be told"
    require_percentiles(probed(rare, 800, seconds=38.0))
    with pytest.raises(PreconditionError, match=r"latency\.p99\.9 needs 20,000"):
        require_percentiles(probed(rare, 8_000, seconds=1.0))
    limit = Limit(metric="sync.p99", sense="<=", value=1e9, text="sync.p99<=1s")
    require_percentiles(probed(Goal(limits=(limit,)), 8_000, flushing=0.1))
    with pytest.raises(PreconditionError, match=r"sync\.p99 needs 3,000 flushes in a slice"):
        require_percentiles(probed(Goal(limits=(limit,)), 8_000, flushing=0.01))


def test_a_race_in_which_all_was_measured_and_nothing_counts_says_that() -> None:
    rates = {"base": 900.0, "fast": 950.0}
    study = study_of(list(rates), goal=Goal(metric="latency.p99.9"), slice_seconds=1.0)
    world = Slow(rates)
    trials = tuple(
        world.run_for(Trial(number=number, round=1000 + number, arm=arm, workload="reads"), 1.0)
        for number, arm in enumerate(("base", "fast"), 1)
    )
    known = tuning(StudyRecord(study=study, facts="", finished=False, trials=trials))
    assert nothing_raced(known, trials).message == "2 slices were measured, and none has a latency.p99.9 that counts"
    failed = tuple(replace(one, measurement=None, failure="fio ended") for one in trials)
    assert nothing_raced(known, failed).message == "no configuration gave a measurement"
