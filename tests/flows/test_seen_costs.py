# SPDX-License-Identifier: Apache-2.0
"""What a host's kept studies show of what stacks cost makes the next forecast better."""

import json
from dataclasses import replace
from datetime import datetime, timedelta
from pathlib import Path

import pytest
from tests.plan.forecast_studies import DAEMON, GUEST, METAL, study_on

from virtune.flows.run.trial import Pace
from virtune.flows.stored.show import seen_costs
from virtune.model.evidence import InForce, TrialRecord
from virtune.model.stack import Stack
from virtune.model.study import Study, Trial
from virtune.plan.trials import START_SECONDS, seen_of, setup_seconds, trial_seconds
from virtune.probe.cpu import cpu_facts
from virtune.store.store import Store

HERE = json.dumps({"host": {"cpu": {"model": cpu_facts().model}}})
BEGUN = datetime.fromisoformat("2026-01-01T00:00:00+00:00")


def keep(store: Store, name: str, *stacks: Stack, first: float, each: float, facts: str = HERE) -> None:
    """Keep a study whose first attempt ended after `first` seconds and the others every `each` seconds."""
    study = replace(study_on(*stacks), id=name, created=BEGUN.isoformat(), scratch="/used", span_bytes=10**9)
    arms = [arm.name for arm in study.arms]
    trials = tuple(Trial(number=n, round=n, arm=arms[n % len(arms)], workload="w") for n in range(1, 9))
    store.add_study(replace(study, trials=trials), facts=facts)
    for place, trial in enumerate(trials):
        ended = (BEGUN + timedelta(seconds=first + place * each)).isoformat()
        store.add_trial(name, TrialRecord(trial=trial, ended=ended, in_force=InForce(checks=())), ())


@pytest.fixture
def store(tmp_path: Path) -> Store:
    return Store(tmp_path / "store.sqlite")


def asked(*stacks: Stack) -> Study:
    return replace(study_on(*stacks), id="new", scratch="/used", span_bytes=10**9)


def test_a_host_that_has_measured_nothing_is_forecast_by_what_the_rigs_say(store: Store) -> None:
    with store:
        seen = seen_costs(store, asked(GUEST))
    assert (seen.beside, seen.ready) == ({}, {})
    assert setup_seconds(asked(GUEST), bytes_to_fill=0, seen=seen) > 5


def test_what_guests_took_to_boot_and_their_trials_besides_is_learnt(store: Store) -> None:
    with store:
        keep(store, "first", GUEST, first=40.0, each=10.0)  # its images were filled first: 4 s of the 40
        keep(store, "second", GUEST, first=37.0, each=10.0)
        seen = seen_costs(store, asked(GUEST))
        pace = Pace(asked(GUEST), done=0, busy=False, seen=seen)
    assert trial_seconds(asked(GUEST), GUEST, seen) == pytest.approx(10.0)
    assert pace.left((), rounds=10) == pytest.approx(100.0)
    # a trial of 3 s and 1.5 s besides was in what came before the first end
    assert setup_seconds(asked(GUEST), bytes_to_fill=0, seen=seen) == pytest.approx(START_SECONDS + 32.5, abs=0.6)


def test_arms_of_other_rigs_and_studies_of_other_hosts_teach_nothing(store: Store) -> None:
    other = json.dumps({"host": {"cpu": {"model": "another"}}})
    with store:
        keep(store, "elsewhere", GUEST, first=90.0, each=60.0, facts=other)
        keep(store, "damaged", GUEST, first=90.0, each=60.0, facts="{")
        keep(store, "here", METAL, first=9.0, each=4.0)
        assert seen_costs(store, asked(GUEST)).beside == {}
        mixed = seen_costs(store, asked(METAL, DAEMON))
    assert trial_seconds(asked(METAL), METAL, mixed) == pytest.approx(4.0)
    assert trial_seconds(asked(DAEMON), DAEMON, mixed) == trial_seconds(asked(DAEMON), DAEMON)


def test_a_pause_is_no_cost_and_of_few_attempts_nothing_is_learnt(store: Store) -> None:
    with store:
        keep(store, "slept", METAL, first=9.0, each=1000.0)
        assert seen_costs(store, asked(METAL)).beside == {}
    assert seen_of(()).ready == {}


def test_what_is_simulated_takes_no_time() -> None:
    simulated = Stack(rig="simulated")
    assert Pace(asked(simulated), done=0, busy=True).left((), rounds=10) < 2
    assert setup_seconds(asked(simulated), bytes_to_fill=10**12) == START_SECONDS
