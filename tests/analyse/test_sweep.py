# SPDX-License-Identifier: Apache-2.0
"""What a sweep finds of a disk that is known: a queue with a capacity, measured with noise."""

import math
from collections import Counter
from dataclasses import replace
from functools import cache
from random import Random
from statistics import fmean

import pytest
from scipy.stats import ttest_ind
from tests.analyse.swept_disks import DEPTH, TAIL, recorded, run, study

from virtune.analyse.study.offered_load import knee_of, load_point, most_of, saturation_of, swept
from virtune.bench.simulated import CAPACITY_IOPS, open_loop_ns
from virtune.model.errors import PlanError
from virtune.model.measurement import Histogram, Measurement
from virtune.model.reason import Reason
from virtune.model.result import LoadPoint
from virtune.model.search import Limit, SweepPlan
from virtune.model.verdict import Outcome
from virtune.model.workload import Workload
from virtune.plan.goal import parse_limit

DENSE = tuple(f"{share / 2:g}%" for share in range(5, 201, 5)) + tuple(
    f"{CAPACITY_IOPS * share / 1000:.0f}iops" for share in range(1025, 1251, 25)
)
"""Every 2.5 % up to a quarter beyond saturation: what a user would run without a search."""


@cache
def true_knee() -> float:
    loads = (CAPACITY_IOPS * share / 1000 for share in range(1, 1000))
    return max(loads, key=lambda load: load / open_loop_ns(load, CAPACITY_IOPS, depth=DEPTH))


def true_most(limit_ns: float) -> float:
    loads = (CAPACITY_IOPS * share / 10_000 for share in range(1, 10_000))
    return max(load for load in loads if TAIL * open_loop_ns(load, CAPACITY_IOPS, depth=DEPTH) <= limit_ns)


SEEDS = range(40)


def test_the_capacity_of_a_disk_is_found_within_a_twentieth() -> None:
    found = [run(SweepPlan(), seed=seed)[0].saturation for seed in SEEDS]
    assert all(one is not None and one.iops == pytest.approx(CAPACITY_IOPS, rel=0.05) for one in found)


def test_the_interval_of_the_knee_holds_the_knee_with_90_percent_probability() -> None:
    found = [run(SweepPlan(), seed=seed)[0].knee for seed in SEEDS]
    held = sum(one is not None and (one.low or 0) <= true_knee() <= (one.high or math.inf) for one in found)
    assert held >= 0.9 * len(found)
    assert all(one is not None and one.high is not None and one.high < 1.05 * CAPACITY_IOPS for one in found)
    bounded = [one for one in found if one is not None and one.low is not None]
    assert len(bounded) >= 0.8 * len(found), "an interval that holds all says nothing"


def test_the_knee_does_not_move_with_where_the_sweep_ends() -> None:
    known, _ = run(SweepPlan(), seed=1)
    last = known.points[-1]
    assert not last.met
    further = (
        replace(last, offered=last.offered * more, power=tuple(p - more for p in last.power)) for more in (2, 4)
    )
    assert knee_of((*known.points, *further)) == knee_of(known.points)
    assert saturation_of((*known.points, *further)) == saturation_of(known.points)


@pytest.mark.parametrize("limit", ["latency.p99<=250us", "latency.p99<=400us", "latency.p99<=1ms"])
def test_the_greatest_load_within_a_limit_is_that_of_a_dense_sweep_in_a_quarter_of_its_time(limit: str) -> None:
    asked = parse_limit(limit)
    dense, dense_trials = run(SweepPlan(limit=asked, loads=DENSE), seed=0)
    assert dense.most is not None
    truth = true_most(asked.value)
    assert dense.most.iops == pytest.approx(truth, rel=0.1)
    near = inside = 0
    for seed in SEEDS:
        known, trials = run(SweepPlan(limit=asked), seed=seed)
        assert trials <= dense_trials / 4
        assert known.most is not None
        near += known.most.iops == pytest.approx(dense.most.iops, rel=0.1)
        inside += (known.most.low or 0) <= truth <= (known.most.high or math.inf)
    assert near >= 0.95 * len(SEEDS)
    assert inside >= 0.9 * len(SEEDS)


def test_a_limit_that_nothing_keeps_and_one_that_all_keep_are_said() -> None:
    never, _ = run(SweepPlan(limit=parse_limit("latency.p99<=1us")), seed=1)
    assert never.most is None
    assert [one.reason for one in never.why] == [Reason.LIMIT_ALWAYS_BROKEN]
    assert "is broken at the least load already" in never.why[0].text
    # a queue of 256 waits 6.4 ms at most
    always, _ = run(SweepPlan(limit=parse_limit("latency.p99<=1s"), loads=("10%", "20%")), seed=1)
    assert always.most is None
    reasons = {one.reason: one.text for one in always.why}
    assert list(reasons) == [Reason.NOT_SATURATED, Reason.TOO_FEW_LOADS, Reason.LIMIT_ALWAYS_KEPT]
    assert "holds at every load that was offered" in reasons[Reason.LIMIT_ALWAYS_KEPT]
    assert "saturation was not reached" in reasons[Reason.NOT_SATURATED]


_SHARES = (0.5, 0.9, 0.97, 1.03, 1.1, 2.0)
"""Asked loads, as shares of the one that is true."""


@pytest.mark.parametrize("limit", ["", "latency.p99<=250us", "latency.p99<=1ms"])
def test_a_load_that_is_asked_for_is_judged_as_the_known_disk_has_it(limit: str) -> None:
    """Both kinds of error in one of twenty at most, wherever the asked load lies; far from it it is decided."""
    asked = parse_limit(limit) if limit else None
    truth = true_most(asked.value) if asked else CAPACITY_IOPS
    words = [f"iops < {share * truth:.0f}" for share in _SHARES]
    found = [run(SweepPlan(limit=asked), seed=seed, conditions=words)[0].rulings for seed in SEEDS]
    for at, share in enumerate(_SHARES):
        right, wrong = (Outcome.HELD, Outcome.BREACHED) if share < 1 else (Outcome.BREACHED, Outcome.HELD)
        outcomes = Counter(one[at].outcome for one in found)
        assert outcomes[wrong] <= 0.05 * len(SEEDS), (share, outcomes)
        assert outcomes[right] >= 0.95 * len(SEEDS) or 0.8 < share < 1.2, (share, outcomes)


@pytest.mark.parametrize(
    ("limit", "loads", "rounds", "asked", "outcome", "tells"),
    [
        ("", ("10%", "20%"), 3, 0.15, Outcome.HELD, ""),  # never saturated: what was met is carried
        ("", ("10%", "20%"), 3, 0.5, Outcome.UNDECIDED, "a greater one among --loads tells"),
        ("", ("10%", "20%"), 1, 0.15, Outcome.UNDECIDED, "more --rounds tell"),  # single trials show nothing
        ("latency.p99<=1s", ("10%", "20%"), 3, 0.15, Outcome.HELD, ""),  # the limit is kept at every load
        ("latency.p99<=1s", ("10%", "20%"), 3, 0.5, Outcome.UNDECIDED, "a greater one among --loads tells"),
        ("latency.p99<=1us", (), 3, 0.5, Outcome.BREACHED, ""),  # it is broken at every load
        ("latency.p99<=1us", (), 3, 0.0001, Outcome.BREACHED, ""),  # the asked load is offered, however small
        ("latency.p99<=1us", ("10%", "20%"), 3, 0.0001, Outcome.UNDECIDED, "a smaller one among --loads tells"),
    ],
)
def test_an_asked_load_is_judged_by_loads_that_ran(
    limit: str, loads: tuple[str, ...], rounds: int, asked: float, outcome: Outcome, tells: str
) -> None:
    plan = SweepPlan(limit=parse_limit(limit) if limit else None, loads=loads, rounds=rounds)
    (found,) = run(plan, seed=1, conditions=[f"iops < {asked * CAPACITY_IOPS:.0f}"])[0].rulings
    assert found.outcome is outcome, found.text
    assert found.text.endswith(tells)


@pytest.mark.parametrize("kept", [1, 2, 3])
def test_loads_that_were_met_are_carried_however_few_trials_tell_of_those_beyond(kept: int) -> None:
    """Of a disk of which each load beyond saturation had one trial, no load was said to be carried."""
    words = [f"iops < {CAPACITY_IOPS / 2:.0f}", f"iops < {2 * CAPACITY_IOPS:.0f}"]
    record = recorded(SweepPlan(), seed=1, conditions=words)
    beyond = {one.workload for one in swept(record).points if not one.met}
    seen = Counter[str]()
    trials = []
    for one in record.trials:
        seen[one.trial.workload] += 1
        if one.trial.workload not in beyond or seen[one.trial.workload] <= kept:
            trials.append(one)
    half, double = swept(replace(record, trials=tuple(trials), attempts=tuple(trials))).rulings
    assert half.outcome is Outcome.HELD, half.text
    assert double.outcome is (Outcome.BREACHED if kept > 1 else Outcome.UNDECIDED), double.text


def test_a_noisy_disk_gives_a_wide_interval_and_ends() -> None:
    quiet, _ = run(SweepPlan(), seed=2, noise=0.01)
    noisy, _ = run(SweepPlan(), seed=2, noise=0.2)
    assert quiet.saturation is not None
    assert noisy.saturation is not None
    widths = [(one.saturation.high or 0) - (one.saturation.low or 0) for one in (quiet, noisy) if one.saturation]
    assert widths[1] > 3 * widths[0]


def test_one_round_of_each_load_has_no_interval() -> None:
    known, _ = run(SweepPlan(rounds=1), seed=3)
    assert known.knee is not None
    assert (known.knee.low, len(known.points[0].power)) == (None, 1)


@pytest.mark.parametrize(
    ("plan", "words"),
    [
        (SweepPlan(limit=parse_limit("iops>=50k")), "a limit on a latency"),
        (SweepPlan(loads=("fast",)), "not an offered load"),
    ],
)
def test_what_cannot_be_swept_is_refused(plan: SweepPlan, words: str) -> None:
    with pytest.raises(PlanError, match=words):
        study(plan, 1)


def test_a_load_bounds_the_knee_where_a_t_test_of_its_power_shown_to_be_less_says_so() -> None:
    """Of three loads far apart, each with as many rounds as it likes, two are compared with the best (Bonferroni)."""
    chance, bounded = Random(1), 0
    for _ in range(60):
        groups = [[chance.gauss(mean, 0.1) for _ in range(chance.randint(2, 9))] for mean in (0.9, 1.05, 0.9)]
        points = [
            LoadPoint(
                workload="w", offered=load, achieved=(load,), met=True, latency_ns=1e6, power=tuple(power),
            )
            for load, power in zip((1000.0, 2000.0, 4000.0), groups, strict=True)
        ]  # fmt: skip
        best = max(range(3), key=lambda index: fmean(groups[index]))
        less = [ttest_ind(groups[best], groups[one]).pvalue < 0.05 / 2 for one in range(3)]
        found = knee_of(points)
        assert found is not None
        assert found.iops == points[best].offered
        assert found.low == next((points[one].offered for one in range(best - 1, -1, -1) if less[one]), None)
        assert found.high == next((points[one].offered for one in range(best + 1, 3) if less[one]), None)
        bounded += (found.low is not None) + (found.high is not None)
    assert 15 < bounded < 105


SHARE = 0.98
"""Of what was offered: less is not met."""

LIMIT = Limit(metric="latency.p99", sense="<=", value=2e7, text="latency.p99<=20ms")


def offered(load: float, *trials: tuple[float, float]) -> LoadPoint:
    """A load whose trials did so many IOPS with such a p99 (ns)."""
    made = [
        Measurement(values=(("iops", iops), ("latency.mean", p99 / 4), ("latency.p99", p99))) for iops, p99 in trials
    ]
    point = load_point(Workload(name=f"at-{load}", meaning="", jobs=(), offered_iops=load), made, LIMIT, SHARE)
    assert point is not None
    return point


def restless(chance: Random, counted: tuple[int, ...]) -> list[LoadPoint]:
    """Loads 4 to 30 % apart of a disk whose speed changes from load to load; of each so many trials count."""
    points, load = [], 10_000.0
    for _ in range(9):
        carries = 30_000 * math.exp(chance.gauss(0, 0.15))
        trials = [
            (min(load, carries * math.exp(chance.gauss(0, 0.01))),
             2e7 * (load / carries) ** 2 * math.exp(chance.gauss(0, 0.05)))
            for _ in range(chance.choice(counted))
        ]  # fmt: skip
        points.append(offered(load, *trials))
        load *= chance.choice((1.04, 1.1, 1.3))
    return points


@pytest.mark.parametrize("seed", range(60))
def test_no_interval_is_narrower_than_what_the_loads_that_ran_can_tell(seed: int) -> None:
    points = restless(Random(seed), (1, 2, 3))
    several = {one.offered for one in points if len(one.achieved) > 1}
    several |= {one.iops for one in points if len(one.achieved) > 1}
    for found in (most_of(points), knee_of(points)):
        if found is not None:
            assert found.low is None or found.low in several, "a single trial bounds nothing"
            assert found.high is None or any(found.high <= 1.1 * one for one in several)
            if found.low is not None and found.high is not None:
                assert found.low <= found.iops <= found.high
                assert found.high / found.low >= 1.04 - 1e-9, "loads nearer to one another did not run"


def test_a_load_whose_few_bad_rounds_hold_all_its_slow_operations_does_not_keep_the_limit() -> None:
    # of each of six rounds 1,000 I/Os; in two of them one of ten takes 40 ms
    def of(slow: int) -> Measurement:
        many = Histogram(bins=((1_000_000, 1000 - slow), (40_000_000, slow))[: 2 if slow else 1])
        p99 = many.percentile(99) or 0.0
        return Measurement(values=(("iops", 1e4), ("latency.mean", 5e6), ("latency.p99", p99)), histogram=many)

    rounds = [of(100 if number < 2 else 0) for number in range(6)]
    asked = Workload(name="w", meaning="", jobs=(), offered_iops=1e4)
    point = load_point(asked, rounds, LIMIT, SHARE)
    assert point is not None
    assert fmean(point.excess) < 0, "by the mean of the rounds' percentiles the limit would be kept"
    assert point.beyond == pytest.approx(math.log(4e7 / 2e7), rel=0.05), "3 % of all I/Os take 40 ms: that is its p99"
    before = offered(5e3, *[(5e3, 1e6)] * 6)
    found = most_of([before, point])
    assert found is not None
    assert found.iops < 1e4


@pytest.mark.parametrize("seed", range(20))
def test_single_trials_give_no_interval_of_anything(seed: int) -> None:
    points = restless(Random(seed), (1,))
    for found in (most_of(points), knee_of(points), saturation_of(points)):
        assert found is None or (found.low, found.high) == (None, None)


def test_a_disk_that_does_less_at_the_greater_load_has_an_interval_of_the_step_between_them() -> None:
    fast, slow = [(70_400.0, 1e7)] * 2 + [(70_400.0, 1.1e7)], [(66_000.0, 9e7), (66_100.0, 9.1e7), (65_900.0, 9e7)]
    points = [offered(56_000, *((56_000.0, p99) for p99 in (8e6, 9e6, 8e6))), offered(70_400, *fast)]
    found = most_of([*points, offered(73_900, *slow)])
    assert found is not None
    assert found.low == 70_400
    assert found.high == pytest.approx(73_900)


def test_an_interval_holds_all_loads_that_contradict_one_another() -> None:
    """A slow spell of the disk in the midst of a sweep: 20k is shown to break the limit, and 40k to keep it."""
    spread = (0.98, 1.0, 1.02)

    def load(at: float, p99: float) -> LoadPoint:
        return offered(at, *((at, p99 * one) for one in spread))

    found = most_of([load(10_000, 5e6), load(20_000, 4e7), load(40_000, 5e6), load(41_000, 6e6), load(50_000, 9e7)])
    assert found is not None
    assert (found.low, found.high) == (10_000, 50_000)


@pytest.mark.parametrize("stalled", [(2000.0, 3000.0, 3000.0), (1000.0, 3000.0, 3000.0, 3000.0)])
@pytest.mark.parametrize("beyond", [True, False])
def test_a_load_of_which_a_trial_stalled_is_no_saturation_and_breaks_no_limit(
    stalled: tuple[float, ...], beyond: bool
) -> None:
    loads = [offered(load, *[(load, 1e7)] * 3) for load in (1000.0, 2000.0)]
    points = [*loads, offered(3000.0, *((iops, 1e7) for iops in stalled))]
    points += [offered(4000.0, *[(4000.0, 1e7)] * 3)] * beyond
    assert not points[2].met, "as its row says"
    assert (saturation_of(points), most_of(points)) == (None, None)
    full = offered(5000.0, (4100.0, 9e7), (4000.0, 9e7), (4050.0, 9e7))
    found = saturation_of([*points, full])
    assert found is not None
    assert found.iops == pytest.approx(4050)


@pytest.mark.parametrize("seed", range(40))
def test_a_load_is_met_by_what_its_row_says_of_it(seed: int) -> None:
    """One of three trials that stalls, or two that just fall short: the mark is that of the mean that is shown."""
    chance = Random(seed)
    point = offered(70_400, *((70_400 * chance.choice((0.82, 0.975, 0.99, 1.0)), 1e7) for _ in range(3)))
    assert point.met is (point.iops >= SHARE * point.offered)


@pytest.mark.parametrize(("away", "false"), [(0.97, " holds at every load"), (1.03, " is broken at the least")])
def test_of_a_limit_that_trials_lie_at_it_is_said_that_it_may_hold_or_be_broken(away: float, false: str) -> None:
    """One of two trials had 7.7 ms beside a flat `latency.p99<=5ms holds`."""
    truth = TAIL * open_loop_ns(CAPACITY_IOPS / 10, CAPACITY_IOPS, depth=DEPTH)
    near = SweepPlan(limit=parse_limit(f"latency.p99<={away * truth:.0f}ns"), loads=("10%",))
    found = [run(near, seed=seed)[0].why[-1].text for seed in SEEDS]
    assert sum(false in one for one in found) <= 0.05 * len(found), found
    unsure = [one for one in found if "more --rounds tell" in one]
    assert len(unsure) >= 0.5 * len(found), found
