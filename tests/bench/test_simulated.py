# SPDX-License-Identifier: Apache-2.0
"""The simulated rig: its effects are known and found again, its noise is as said, and it is never measured."""

import math
import statistics
from dataclasses import replace
from pathlib import Path

import pytest
from tests.bench.loading import Kept

from virtune.bench.port import DiskImageSpec, LoadJob, Surroundings, Window
from virtune.bench.simulated import EFFECTS, SCENARIOS, effect_of, session
from virtune.fio.generator import Clients
from virtune.fio.job import fio_job
from virtune.fio.results import read_result
from virtune.fio.workloads import parse_workload
from virtune.model.errors import LoadError, PlanError, RigError
from virtune.model.knobs import BY_ID
from virtune.model.rig import RIGS, read_rig, rig_words, rig_words_with_where
from virtune.model.stack import Disk, Stack
from virtune.plan.arms import arms_from_vary, base_stack, check_arms, make_arm
from virtune.shell import Warden

BASE = Stack(rig="simulated", domain="exact")


def iops(stack: Stack, *, rounds: range = range(1, 2), seed: int = 1, workload: str = "randread-4k") -> list[float]:
    """The figures of a stack, round after round; a trial that fails gives none."""
    (asked,) = parse_workload(workload)
    found = []
    with session(stack, Surroundings(warden=Warden("none"), scratch=Path())) as rig:
        for number in rounds:
            with rig.up(stack, DiskImageSpec(image=None, size_bytes=2**30, writes=False)) as bench:
                clients = Clients(engines=frozenset({"psync", "io_uring"}))
                job = fio_job(asked, bench.target, seconds=2, ramp_seconds=0, seed=1, clients=clients)
                load = LoadJob(job=job, workload=asked, program="fio")
                try:
                    window = Window(seconds=2.0, ramp_seconds=0.0, round=number, seed=seed)
                    output = bench.run([load], window, Kept())
                except LoadError:
                    continue
            found.append(sum(one.iops for one in read_result(output.output.decode()).loads))
    return found


def test_every_effect_is_of_a_value_that_a_knob_has() -> None:
    for knob, value in EFFECTS:
        assert knob in RIGS["simulated"].applies
        assert not value or BY_ID[knob].read(value) == value


def test_a_known_effect_is_in_the_figures() -> None:
    fast = replace(BASE, disk=Disk(aio="io_uring"))
    assert effect_of(BASE) == 1.0
    assert effect_of(fast) == 1.25
    # at a depth of 32 requests wait for one another, so the figures follow the capacity nearly as far
    (one,), (other,) = iops(BASE), iops(fast)
    assert 1.20 < other / one < 1.25
    alone = "rw=randread,bs=4k,iodepth=1"
    assert iops(fast, workload=alone)[0] / iops(BASE, workload=alone)[0] < 1.06, "one alone waits for the disk only"


def test_limits_and_offered_loads_hold() -> None:
    assert iops(replace(BASE, disk=Disk(throttle_iops=500))) == pytest.approx([500.0], rel=0.01)
    offered = "rw=randread,bs=4k,iodepth=32,rate_iops=1000"
    assert iops(BASE, workload=offered) == pytest.approx([1000.0], rel=0.01)


def test_the_same_seed_gives_the_same_figures_and_another_one_others() -> None:
    noisy = replace(BASE, domain="noisy")
    assert iops(noisy, rounds=range(1, 6)) == iops(noisy, rounds=range(1, 6))
    assert iops(noisy, rounds=range(1, 6)) != iops(noisy, rounds=range(1, 6), seed=2)
    assert iops(noisy, rounds=range(3, 6)) == iops(noisy, rounds=range(1, 6))[2:], "whoever resumes finds them again"


def test_noise_drift_and_autocorrelation_are_as_the_scenario_says() -> None:
    def logs(name: str, rounds: int) -> list[float]:
        return [math.log(value) for value in iops(replace(BASE, domain=name), rounds=range(1, rounds + 1))]

    noisy, said = logs("noisy", 200), SCENARIOS["noisy"]
    assert statistics.stdev(noisy) == pytest.approx(math.hypot(said.noise, said.round_noise), rel=0.2)
    alike = logs("alike", 400)
    own = statistics.correlation(alike[:-1], alike[1:])
    said = SCENARIOS["alike"]
    share = said.noise**2 / (said.noise**2 + said.round_noise**2)
    assert own == pytest.approx(said.alike * share, abs=0.15)
    drifting = logs("drifting", 50)
    assert drifting[-1] - drifting[0] == pytest.approx(49 * math.log(1 - SCENARIOS["drifting"].drift), abs=0.3)


@pytest.mark.parametrize("name", ["alike", "drifting", "noisy"])
def test_rounds_with_high_numbers_cost_no_time_and_have_figures_as_the_first(name: str) -> None:
    stack = replace(BASE, domain=name)
    # the rounds of a search's confirmation are numbered from a million on; a thousand millions took hours
    late = [math.log(one) for one in iops(stack, rounds=range(10**9 + 1, 10**9 + 21))]
    early = [math.log(one) for one in iops(stack, rounds=range(1, 21))]
    assert abs(statistics.fmean(late) - statistics.fmean(early)) < 0.2


@pytest.mark.parametrize("name", ["failing", "hanging", "dipping"])
def test_failures_hangs_and_dips_come_as_often_as_the_scenario_says(name: str) -> None:
    rounds, said = range(1, 201), SCENARIOS[name]
    found = iops(replace(BASE, domain=name), rounds=rounds)
    failed = 1 - len(found) / len(rounds)
    assert failed == pytest.approx(said.failures + said.hangs, abs=0.08)
    median = statistics.median(found)
    assert sum(one < 0.85 * median for one in found) / len(found) == pytest.approx(said.dips, abs=0.08)


def test_an_unknown_scenario_is_refused_with_those_that_there_are() -> None:
    with pytest.raises(RigError, match="no scenario 'quite'") as caught:
        iops(replace(BASE, domain="quite"))
    assert caught.value.hint is not None
    assert "quiet" in caught.value.hint


def test_it_is_a_rig_that_nobody_is_offered() -> None:
    assert "simulated" not in rig_words()
    assert not any("simulated" in word for word in rig_words_with_where())
    named = read_rig("simulated:noisy")
    assert named is not None
    assert (named.kind.name, named.where) == ("simulated", "noisy")
    assert arms_from_vary(base_stack(["rig=simulated"])[0], ["disk.aio=threads,native"])[0].stack.rig == "simulated"


def test_simulated_arms_are_never_compared_with_measured_ones() -> None:
    arms = [make_arm("a", ["rig=simulated"]), make_arm("b", ["disk.aio=native"])]
    with pytest.raises(PlanError, match="simulated arms cannot be compared with measured ones"):
        check_arms(arms)
