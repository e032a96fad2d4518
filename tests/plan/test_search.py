# SPDX-License-Identifier: Apache-2.0
"""The blocks of a search: whole plots together and made anew, and proposals of which none was tried."""

import itertools
import math
from dataclasses import replace
from functools import cache

import numpy as np
import pytest
from benchmarks import large

from virtune.analyse.search.tuning import tuning
from virtune.model.evidence import StudyRecord
from virtune.model.knobs import whole_plot
from virtune.model.search import Phase, phase_of
from virtune.model.stack import Stack
from virtune.model.study import Study, Trial
from virtune.model.study_options import StudyOptions
from virtune.model.tuning import Tuning
from virtune.plan.arms import apply_settings
from virtune.plan.space import TRIES, next_block, space_of, tries_for
from virtune.plan.space import HostSupport as What

GUEST = ("device.bus=virtio-blk,virtio-scsi", "disk.discard=ignore,unmap", "disk.format=raw,qcow2")
DAEMON = ("disk.aio=threads,native", "disk.format=raw,qcow2")


def race_blocks(rig: str, vary: tuple[str, ...], count: int) -> tuple[Study, list[tuple[Trial, ...]]]:
    """The first blocks of a race, in which all arms are equal."""
    space = space_of(StudyOptions(rig=rig, vary=vary), What(answers={}))
    study = large.study_of(space, 3)
    assert study.search is not None
    study = replace(study, search=replace(study.search, tries=None))
    record = StudyRecord(study=study, facts="", finished=False, trials=())
    chance, found = np.random.default_rng(1), list[tuple[Trial, ...]]()
    while len(found) < count:
        known = tuning(record)
        rounds = {one.trial.round for one in record.trials if phase_of(one.trial.round) is known.phase}
        block = next_block(study, known, rounds=len(rounds), trials=len(record.trials))
        trials = [large.kept(one, math.exp(10 + 0.05 * chance.standard_normal())) for one in block]
        record = replace(record, trials=(*record.trials, *trials))
        found += [block] if known.phase is Phase.RACE else []
    return study, found


def test_whole_plots_run_together_in_random_order_and_each_begins_anew() -> None:
    study, blocks = race_blocks("qemu", GUEST, 6)
    assert study.search is not None
    assert {factor.knob: factor.costly for factor in study.search.factors} == {
        "device.bus": True, "disk.discard": True, "disk.format": False,
    }  # fmt: skip
    orders = set()
    for block in blocks:
        plots = [whole_plot(study.arm(trial.arm).stack) for trial in block]
        groups = [plot for plot, _ in itertools.groupby(plots)]
        assert len(groups) == len(set(groups))  # no plot is made twice in a block
        begins = [index for index in range(len(plots)) if index == 0 or plots[index] != plots[index - 1]]
        assert [index for index, trial in enumerate(block) if trial.restart] == begins
        orders.add(tuple(plots))
    assert len({order[0] for order in orders}) > 1


def test_where_all_can_be_swapped_for_one_another_nothing_is_made_anew() -> None:
    _, blocks = race_blocks("storage-daemon", DAEMON, 2)
    assert not any(trial.restart for block in blocks for trial in block)
    one = apply_settings(Stack(), ["rig=qemu", "disk.aio=threads"])[0]
    assert whole_plot(one) == whole_plot(replace(one, disk=replace(one.disk, aio="native")))


def begun() -> tuple[Study, Tuning]:
    space = space_of(StudyOptions(rig="storage-daemon", vary=DAEMON), What(answers={}))
    study = large.study_of(space, 3)
    return study, tuning(StudyRecord(study=study, facts="", finished=False, trials=()))


def test_a_confirmation_goes_a_b_b_a() -> None:
    study, known = begun()
    winner = next(arm.name for arm in study.arms if arm.name != study.baseline)
    known = replace(known, phase=Phase.CONFIRM, winner=winner)
    order = [trial.arm for rounds in range(4) for trial in next_block(study, known, rounds=rounds, trials=2 * rounds)]
    assert order == [study.baseline, winner, winner, study.baseline] * 2


def test_another_seed_is_another_order() -> None:
    study, known = begun()
    arms = tuple(arm.name for arm in study.arms)
    known = replace(known, phase=Phase.RACE, wanted=0, standing=replace(known.standing, up_next=arms))
    orders = {
        tuple(trial.arm for trial in next_block(replace(study, seed=seed), known, rounds=1, trials=0))
        for seed in range(10)
    }
    assert {tuple(sorted(order)) for order in orders} == {tuple(sorted(arms))}
    assert len(orders) > 1


@cache
def searched(seed: int) -> tuple[Tuning, StudyRecord, float]:
    return large.searched(large.space(), "quiet", seed, "TPE")[:3]


@pytest.mark.xdist_group("search")
@pytest.mark.parametrize("seed", [1, pytest.param(2, marks=pytest.mark.long)])
def test_of_a_large_space_few_are_tried_and_one_near_the_best_of_all_wins(seed: int) -> None:
    known, record, gap = searched(seed)
    ran = [one.trial.arm for one in record.trials if phase_of(one.trial.round) is Phase.RACE]
    assert len(set(ran)) == len(known.standing.runners) <= 64
    assert known.finished
    assert sum(phase_of(one.trial.round) is Phase.RACE for one in record.trials) * 1.5 < 64 * 300 / 10
    assert gap <= (0.03 if seed == 1 else 0.08)


@pytest.mark.xdist_group("search")
def test_a_killed_search_gets_the_same_proposals_again() -> None:
    _, record, _ = searched(1)
    seen: set[str] = set()
    joined = 0
    for number, trials in itertools.groupby(record.trials, key=lambda one: one.trial.round):
        block = [one.trial for one in trials]
        if phase_of(number) is Phase.RACE and not {one.arm for one in block} <= seen and joined < 3:
            before = tuple(one for one in record.trials if one.trial.round < number)
            known = tuning(replace(record, trials=before))
            assert known.wanted
            rounds = len({one.trial.round for one in before if phase_of(one.trial.round) is Phase.RACE})
            assert next_block(record.study, known, rounds=rounds, trials=len(before)) == tuple(block)
            joined += 1
        seen |= {one.arm for one in block} if phase_of(number) is Phase.RACE else set()
    assert joined == 3


@pytest.mark.parametrize("count", [100, 101])
def test_from_a_hundred_on_not_all_are_raced(count: int) -> None:
    assert tries_for(count) == (None if count <= 100 else TRIES)
