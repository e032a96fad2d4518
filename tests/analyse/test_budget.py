# SPDX-License-Identifier: Apache-2.0
"""A budget bounds all of a search: made-up ones with a clock of their own, waits between blocks included."""

import math
from dataclasses import replace
from datetime import datetime, timedelta
from pathlib import Path

import pytest
from tests.analyse.search_worlds import World, landscape, study_of

from virtune.analyse.search.pilot import seconds_of
from virtune.analyse.search.tuning import tuning
from virtune.flows.run.tune import no_room, probed_words, require_budget, seconds_left, tuning_study
from virtune.model.errors import PlanError
from virtune.model.evidence import StudyRecord
from virtune.model.search import Phase, phase_of
from virtune.model.stack import Stack
from virtune.model.study import Study, Trial
from virtune.model.study_options import StudyOptions
from virtune.model.tuning import Recommendation, Tuning
from virtune.plan.space import next_block
from virtune.plan.trials import SeenCosts, kind_of


class Clock:
    """Runs a search as the flow does: blocks begin apart, a slice takes `beside` more than its ramp and its run."""

    def __init__(self, study: Study, world: World, *, beside: float = 0.45) -> None:
        self.record = StudyRecord(study=study, facts="", finished=False, trials=())
        self.now, self.begun = 0.0, -1e9
        self._study, self._world, self._beside = study, world, beside

    def step(self) -> Tuning:
        """Run one block; what is known before it."""
        assert self._study.search is not None
        known = tuning(self.record)
        rounds = {one.trial.round for one in self.record.trials if phase_of(one.trial.round) is known.phase}
        if known.phase is Phase.RACE and not known.finished:
            self.now = self.begun = max(self.now, self.begun + self._study.search.spread_seconds)
        for trial in next_block(self._study, known, rounds=len(rounds), trials=len(self.record.trials)):
            seconds = seconds_of(self._study, known.probed.slice_seconds, known.phase)
            self.now += seconds + self._study.ramp_seconds + self._beside
            ended = datetime.fromisoformat(self._study.created) + timedelta(seconds=round(self.now))
            ran = replace(self._world.run(trial), ended=ended.isoformat())
            self.record = replace(self.record, trials=(*self.record.trials, ran))
        return known

    def run(self) -> Tuning:
        while not (known := self.step()).finished:
            assert len(self.record.trials) < 5000
        return known


@pytest.mark.parametrize(
    ("arms", "mode", "budget", "spread", "soak", "beside"),
    [
        (2, "certify", 600.0, 30.0, 0.0, 0.45),
        (4, "certify", 600.0, 30.0, 0.0, 0.45),
        (8, "certify", 300.0, 15.0, 60.0, 0.45),
        (8, "quick", 600.0, 0.0, 120.0, 0.45),
        (8, "quick", 240.0, 0.0, 0.0, 1.7),
    ],
)
def test_a_budget_is_not_passed_and_it_is_what_is_forecast(
    arms: int, mode: str, budget: float, spread: float, soak: float, beside: float
) -> None:
    rates = dict(list(landscape(1).items())[:arms])
    near = {name: 50_000 * (rate / 50_000) ** 0.05 for name, rate in rates.items()}  # near ties take all there is
    study = study_of(list(near), mode=mode, budget_seconds=budget, spread_seconds=spread, soak_seconds=soak)
    seen = SeenCosts(beside={kind_of(study.arms[0].stack): 0.45})
    before = seconds_left(tuning(StudyRecord(study=study, facts="", finished=False, trials=())), seen)
    assert before == pytest.approx(budget, rel=0.02)
    clock = Clock(study, World(near, noise=0.1), beside=beside)
    found = clock.run()
    assert clock.now <= budget * 1.01
    assert clock.now >= budget * (0.5 if found.winner == study.baseline else 0.85)  # and it is made use of
    assert found.distance is not None
    assert found.elapsed_seconds == pytest.approx(clock.now, abs=1)


def test_a_search_that_goes_on_has_what_is_left_of_its_budget() -> None:
    rates = {f"a{index}": 50_000.0 for index in range(4)}
    study = study_of(list(rates), mode="certify", budget_seconds=600.0, spread_seconds=30.0)
    clock = Clock(study, World(rates, noise=0.1))
    while clock.now < 300:
        clock.step()
    clock.now += 86_400  # killed, and gone on with the next day
    clock.run()
    assert clock.now - 86_400 <= 606


def on_rig(study: Study, stack: Stack) -> Study:
    return replace(study, arms=tuple(replace(arm, stack=stack) for arm in study.arms))


@pytest.mark.parametrize(
    ("stack", "least", "words"),
    [
        (Stack(rig="storage-daemon"), 143.0, "2 min 23 s"),
        (Stack(rig="qemu"), 198.0, "3 min 18 s"),
        (Stack(rig="simulated"), 2.0, ""),
    ],
    ids=lambda value: value.rig if isinstance(value, Stack) else "",
)
def test_a_budget_is_refused_by_what_is_forecast(stack: Stack, least: float, words: str) -> None:
    """38 slices of 1 s in probe and blocks, 12 of 5 s in the confirmation; on the simulated rig no time passes."""
    rates = {f"a{index}": 50_000.0 for index in range(8)}

    def study(budget: float) -> Study:
        return on_rig(study_of(list(rates), budget_seconds=budget), stack)

    if words:
        with pytest.raises(PlanError, match=rf"too short: 4 blocks of 8 configurations .* take about {words}"):
            require_budget(study(least - 5))
    require_budget(study(least))
    forecast = seconds_left(tuning(StudyRecord(study=study(least), facts="", finished=False, trials=())))
    assert forecast is not None
    assert min(forecast, least) == pytest.approx(least, abs=1)  # who has a budget is told no more than that
    require_budget(on_rig(study_of(list(rates)), stack))


def test_a_budget_is_refused_by_what_slices_cost_on_this_host() -> None:
    study = study_of([f"a{index}" for index in range(8)], budget_seconds=150.0)
    require_budget(study)
    with pytest.raises(PlanError, match="too short"):
        require_budget(study, SeenCosts(beside={kind_of(study.arms[0].stack): 2.0}))


@pytest.mark.parametrize(("beside", "raced", "pairs"), [(1.0, True, 5), (6.0, False, 0)])
def test_a_budget_is_kept_where_slices_take_longer_than_was_thought(beside: float, raced: bool, pairs: int) -> None:
    """The confirmation gives way first: a winner that is not confirmed is undecided, and said to be."""
    rates = {f"a{index}": 50_000.0 * (1.1 if index == 5 else 1) for index in range(8)}
    study = study_of(list(rates), budget_seconds=150.0)
    clock = Clock(study, World(rates), beside=beside)
    found = clock.run()
    assert clock.now <= 150.0 * 1.01
    assert (found.standing.blocks >= 4) is raced
    assert (found.standing.leader is not None) is raced
    assert (0 if found.confirmation is None else found.confirmation.pairs) <= pairs
    assert found.recommendation is Recommendation.UNDECIDED
    if not raced:
        assert found.standing.blocks == 0
        assert "do not fit into --budget" in no_room(found).message


def test_time_between_blocks_is_part_of_what_a_search_took() -> None:
    rates = {"base": 40_000.0, "fast": 41_000.0}
    study = study_of(list(rates), mode="certify", spread_seconds=300.0)
    clock = Clock(study, World(rates, noise=0.05))
    found = clock.run()
    assert clock.now > 1500
    assert found.elapsed_seconds == pytest.approx(clock.now, abs=1)


def test_what_ran_again_is_part_of_what_a_search_measured() -> None:
    rates = {"base": 40_000.0, "fast": 80_000.0}
    study = study_of(list(rates))
    clock = Clock(study, World(rates, noise=0.01))
    once = clock.run().measured_seconds
    disturbed = tuple(replace(one, attempt=1) for one in clock.record.trials[:5])
    again = replace(clock.record, attempts=(*disturbed, *(replace(one, attempt=2) for one in clock.record.trials)))
    assert tuning(again).measured_seconds == pytest.approx(once + 5 * 1.5)
    failed = tuple(replace(one, measurement=None, failure="did not come up") for one in disturbed)
    none = replace(again, attempts=(*failed, *again.attempts[5:]))
    assert tuning(none).measured_seconds == pytest.approx(once)


@pytest.mark.parametrize(
    ("asked", "said"),
    [
        ({"soak": 300.0}, "a soak of 5 min 00 s with the winner and with the baseline leaves nothing of 10 min 00 s"),
        ({"spread": 300.0}, "4 blocks 5 min 00 s apart do not fit into 10 min 00 s"),
    ],
)
def test_what_cannot_fit_into_a_budget_is_refused(asked: dict[str, float], said: str) -> None:
    with pytest.raises(PlanError) as caught:
        tuning_study(StudyOptions(budget=600.0, scratch=Path("/nowhere"), **asked))  # type: ignore[arg-type]
    assert said in caught.value.message


def test_a_lost_pair_is_made_up_for_only_within_the_budget() -> None:
    class Loses(World):
        """Gives nothing in the confirmation."""

        def value(self, trial: Trial) -> float:
            return math.nan if phase_of(trial.round) is Phase.CONFIRM else super().value(trial)

    rates = {"base": 40_000.0, "fast": 41_000.0}
    study = study_of(list(rates), mode="certify", budget_seconds=300.0, spread_seconds=15.0)
    clock = Clock(study, Loses(rates, noise=0.1))
    assert clock.run().winner == "fast"
    assert clock.now <= 303
    confirmed = {one.trial.round for one in clock.record.trials if phase_of(one.trial.round) is Phase.CONFIRM}
    assert 6 <= len(confirmed) < 12


def probed(*, noise: float, patience: float = 1.0, budget: float | None = None) -> Tuning:
    """A search of four equal arms, when its probe is over."""
    rates = {f"a{index}": 50_000.0 for index in range(4)}
    study = study_of(list(rates), patience=patience, budget_seconds=budget)
    clock = Clock(study, World(rates, noise=noise))
    while (found := clock.step()).phase is not Phase.RACE:
        pass
    return found


@pytest.mark.parametrize(("noise", "told"), [(0.3, True), (0.05, False)])
def test_a_search_on_a_restless_host_is_told_to_take_its_time(noise: float, told: bool) -> None:
    words = probed_words(probed(noise=noise, budget=120.0))
    assert ("restless" in words) is told
    assert ("larger --budget" in words) is told


def test_without_a_budget_a_search_takes_longer_on_a_restless_host_and_only_there() -> None:
    calm, usual, longer = (
        probed(noise=noise, patience=patience) for noise, patience in ((0.05, 2.5), (0.3, 1.0), (0.3, 2.5))
    )
    assert (calm.probed.restless, usual.probed.restless, longer.probed.restless) == (False, True, True)
    assert calm.probed.slices_max == usual.probed.slices_max  # as a search of before is judged
    assert calm.probed.slices_max is not None
    assert longer.probed.slices_max is not None
    assert longer.probed.slices_max > 2.5 * calm.probed.slices_max
    assert "so it takes longer" in probed_words(longer)
    assert "restless" not in probed_words(calm)
    limited = [probed(noise=0.3, patience=patience, budget=120.0) for patience in (1.0, 2.5)]
    assert limited[0].probed.slices_max == limited[1].probed.slices_max  # a budget is kept whatever the host does
