# SPDX-License-Identifier: Apache-2.0
"""Forecasts: what a rig costs counts, and what has to be repeated, and no more than will be."""

from dataclasses import replace

import pytest
from tests.plan.forecast_studies import DAEMON, GUEST, METAL, study_on

from virtune.model.stack import Device, Disk, Stack
from virtune.model.workload import Workload
from virtune.plan.trials import attempts_for, beside_seconds, round_seconds, setup_seconds


def test_a_round_takes_what_is_asked_for_and_what_each_rig_costs_besides() -> None:
    one, other = round_seconds(study_on(METAL)), round_seconds(study_on(GUEST))
    assert 3 < one < other
    assert round_seconds(study_on(METAL, GUEST)) == pytest.approx(one + other)
    twice = replace(study_on(METAL), workloads=(Workload(name="a", meaning="", jobs=()),) * 2)
    assert round_seconds(twice) == pytest.approx(2 * one)


def test_guests_cost_more_than_files_and_a_domain_that_is_attached_to_most() -> None:
    exported = Stack(export="vhost-user-blk")
    order = [exported, METAL, DAEMON, GUEST, replace(GUEST, guests=4), Stack(rig="libvirt", domain="d")]
    passed = replace(GUEST, device=Device(vfio_pci="0000:01:00.0"))  # each trial boots a machine
    assert beside_seconds(passed) > beside_seconds(GUEST) + GUEST.kind.boot_seconds
    costs = [beside_seconds(stack) for stack in order]
    assert costs == sorted(costs)


def test_what_comes_before_the_first_trial_counts() -> None:
    plain = setup_seconds(study_on(METAL), bytes_to_fill=0)
    assert setup_seconds(study_on(METAL), bytes_to_fill=10**9) > plain + 1
    assert setup_seconds(study_on(GUEST), bytes_to_fill=0) > plain + 5
    assert setup_seconds(study_on(METAL, Stack(disk=Disk(backend="null-co"))), bytes_to_fill=0) > plain


def test_nothing_repeated_is_nothing_more() -> None:
    assert attempts_for(10, []) == 10
    assert attempts_for(10, [False] * 8) == 10
    assert attempts_for(0, [True] * 3) == 0


def test_now_and_then_a_repeat_goes_on_as_it_did() -> None:
    assert attempts_for(12, [True, False, False, False, False, False]) == pytest.approx(12 * (1 + 1 / 6 + 1 / 36))


def test_a_cause_that_disturbs_most_trials_repeats_two_and_then_no_more() -> None:
    assert attempts_for(40, [], busy=True) == 44
    assert attempts_for(1, [], busy=True) == 3
    assert attempts_for(40, [True] * 3) == 42
    assert attempts_for(40, [True] * 6) == 40


def test_an_old_disturbance_is_forgotten() -> None:
    assert attempts_for(10, [True] * 6 + [False] * 6) == 10
