# SPDX-License-Identifier: Apache-2.0
"""Verdicts share one error, are those of the last look, and stand in the table with the interval that decides."""

import math
from dataclasses import replace

import pytest
from tests.analyse.interim_studies import workload
from tests.analyse.verdict_runs import asked_of, run

from virtune.analyse.stats.planned import dunnett_alpha, level_of
from virtune.analyse.study.summarise import summarise
from virtune.analyse.study.thresholds import rule
from virtune.analyse.study.verdicts import confidence_of_one, judge, looks_of, pairs_of
from virtune.model.evidence import StudyRecord, TrialRecord
from virtune.model.reason import Reason
from virtune.model.remark import Remark, Weight
from virtune.model.stack import Disk, Stack
from virtune.model.verdict import PLANNED_ROUNDS_MIN, ROUNDS_MIN, Outcome, Verdict
from virtune.plan.goal import parse_conditions


def test_verdicts_share_their_error_among_pairs_workloads_and_metrics() -> None:
    one = asked_of()
    of_one = {
        "baseline": 1 - confidence_of_one(one),
        "all": 1 - confidence_of_one(replace(one, pairs="all")),
        "workloads": 1 - confidence_of_one(replace(one, workloads=(workload("w"), workload("x")))),
        "metrics": 1 - confidence_of_one(replace(one, also=("latency.p99", "latency.p50"))),
        "two arms": 1 - confidence_of_one(asked_of("ab")),
    }
    assert of_one == pytest.approx(
        {
            "baseline": dunnett_alpha(3, 0.05),
            "all": 0.05 / 6,
            "workloads": dunnett_alpha(3, 0.025),
            "metrics": dunnett_alpha(3, 0.05 / 3),
            "two arms": 0.05,
        }
    )
    assert 0.05 / 3 < of_one["baseline"] < 0.02


def test_the_pairs_with_the_baseline_get_verdicts_unless_all_are_asked_for() -> None:
    assert pairs_of(asked_of("abc")) == [("a", "b"), ("a", "c")]
    assert pairs_of(asked_of("abc", pairs="all")) == [("a", "b"), ("a", "c"), ("b", "c")]
    record = run(asked_of("abc"), 8)
    assert [(one.baseline, one.candidate) for one in judge(record)] == [("a", "b"), ("a", "c")]
    assert {one.ratio.confidence for one in judge(record) if one.ratio} == {confidence_of_one(record.study)}


def test_one_figure_has_one_interval_and_other_metrics_stand_by_themselves() -> None:
    result = summarise(run(asked_of(), 20, better=1.2))
    rows = {(one.candidate, one.metric): one for one in result.differences}
    for one in result.verdicts:
        assert rows[one.candidate, "iops"] == one
    alone = rows["d", "latency.p99"].ratio
    assert alone is not None
    assert alone.confidence == pytest.approx(0.95)
    assert rows["d", "iops"].ratio is not None
    assert rows["d", "iops"].ratio.confidence > 0.975


def test_a_look_counts_the_rounds_of_its_workload_from_the_fifth_on() -> None:
    one = replace(asked_of(), looks=((4, 0.1), (5, 0.2), (6, 0.3), (8, 0.4), (11, 0.5)))
    assert looks_of(one, range(1, 12)) == ((5, 0.2), (6, 0.3), (8, 0.4), (11, 0.5))
    assert looks_of(one, range(1, 7)) == ((5, 0.2), (6, 0.3))  # it was decided then, and has no more rounds
    assert looks_of(one, range(3, 12)) == ((6, 0.4), (9, 0.5))  # it began in the third round
    assert looks_of(replace(one, looks=()), range(1, 12)) == ()


def test_a_study_planned_to_take_six_rounds_at_least_is_judged_as_it_was_planned() -> None:
    """Its first look was in the first round, and none before the sixth may spend anything."""
    record = run(asked_of("abc"), 7, better=1.4)
    older = replace(record.study, fewest_rounds=ROUNDS_MIN)
    assert ROUNDS_MIN > record.study.fewest_rounds == PLANNED_ROUNDS_MIN
    assert looks_of(older, range(1, 8)) == tuple((number, number / 20) for number in (6, 7))
    later = [judge(replace(record, study=one))[1].ratio for one in (older, record.study)]
    assert later[0] is not None
    assert later[1] is not None
    assert later[0].low > later[1].low  # the look at five rounds costs the later ones a little
    early = [judge(replace(run(asked_of("abc"), 5, better=1.4), study=one)) for one in (older, record.study)]
    assert [one[1].verdict for one in early] == [Verdict.UNDECIDED, Verdict.BETTER]
    assert early[0][1].why == "5 paired rounds; 6 are the minimum for a verdict"


def test_two_arms_that_are_left_of_three_take_six_rounds_as_two_do() -> None:
    for count, verdict in ((PLANNED_ROUNDS_MIN, Verdict.UNDECIDED), (ROUNDS_MIN, Verdict.BETTER)):
        record = run(asked_of("abc"), count, better=1.4)
        assert judge(record)[1].verdict is Verdict.BETTER
        lost = (replace(one, measurement=None) if one.trial.arm == "b" else one for one in record.trials)
        left = replace(record, trials=tuple(lost))
        (_, found) = judge(left)
        assert (found.candidate, found.verdict) == ("c", verdict)
        if verdict is Verdict.UNDECIDED:
            assert found.why == "5 paired rounds; 6 are the minimum for a verdict"
        equal = replace(left, trials=tuple(one for one in run(asked_of("abc"), count).trials if one.trial.arm != "b"))
        (*_, ruled) = rule(equal, parse_conditions(["iops < -90%"]))
        assert ruled.outcome is (Outcome.HELD if verdict is Verdict.BETTER else Outcome.UNDECIDED)


def test_rounds_after_the_last_look_wait_for_the_next_one() -> None:
    record = run(asked_of("ab"), 12)
    early = replace(record, study=replace(record.study, looks=(record.study.looks or ())[:8]))
    first = StudyRecord(
        study=early.study,
        facts="",
        finished=False,
        trials=tuple(one for one in record.trials if one.trial.round <= 8),
    )
    assert judge(early) == judge(first)
    assert judge(early)[0].rounds == 8


def test_the_interval_is_wide_early_in_a_plan_and_narrow_at_its_end_for_the_same_rounds() -> None:
    widths = []
    for planned in (200, 20):
        (one,) = judge(run(asked_of("ab", rounds=planned), 20))
        assert one.ratio is not None
        widths.append(math.log(one.ratio.high / one.ratio.low))
    early = level_of(tuple((float(n), n / 200) for n in range(6, 21)), 0.05)
    assert early < 0.001
    assert widths[0] > 1.5 * widths[1]


def test_before_its_first_look_a_study_has_intervals_that_hold_at_any_time() -> None:
    record = run(asked_of("abc"), 12, better=1.1)
    old = replace(record, study=replace(record.study, looks=(), pairs="all"))
    found = judge(old)
    assert len(found) == 3
    assert {one.ratio.confidence for one in found if one.ratio} == {1 - 0.05 / 3}
    assert found[1].ratio is not None
    assert found[1].ratio.low != judge(record)[1].ratio.low  # type: ignore[union-attr]


def test_trials_that_do_not_count_are_not_compared() -> None:
    record = run(asked_of("ab", rounds=60), 30, noise=0.01)
    bad = Remark(id="steal", weight=Weight.INVALID, text="stolen", advice="")

    def disturbed(one: TrialRecord) -> TrialRecord:
        assert one.measurement is not None
        slow = tuple((name, value / 3) for name, value in one.measurement.values)
        return replace(one, measurement=replace(one.measurement, values=slow, remarks=(bad,)))

    trials = tuple(
        disturbed(one) if one.trial.round in (3, 11) and one.trial.arm == "b" else one for one in record.trials
    )
    (found,) = judge(replace(record, trials=trials))
    assert found.rounds == 28
    assert found.verdict is Verdict.SAME


@pytest.mark.parametrize("side", ["b", "ab"])
def test_runs_of_different_times_in_which_others_used_the_host_decide_nothing(side: str) -> None:
    """Two nights of one configuration, and a host that was busy in one of them or in both: +134 %, a CI run said."""
    record = run(asked_of("ab", rounds=60), 20, better=2.0, noise=0.01)
    record = replace(record, study=replace(record.study, paired=False, sequential=False))
    bad = Remark(id="cpu-wait", weight=Weight.INVALID, text="contended", advice="")

    def busy(one: TrialRecord) -> TrialRecord:
        assert one.measurement is not None
        found = (bad,) if one.trial.arm in side else ()
        return replace(one, measurement=replace(one.measurement, remarks=found))

    conditions = parse_conditions(["iops < -3%", "iops > +5%"])
    (quiet,) = judge(record)
    assert quiet.verdict is Verdict.BETTER
    assert [one.outcome for one in rule(record, conditions)] == [Outcome.HELD, Outcome.BREACHED]
    record = replace(record, trials=tuple(map(busy, record.trials)))
    (found,) = judge(record)
    assert (found.verdict, found.reason) == (Verdict.UNDECIDED, Reason.DISTURBED_APART)
    assert {one.outcome for one in rule(record, conditions)} == {Outcome.UNDECIDED}
    of_load = replace(bad, id="generator")  # the load's own, the same in both
    overhead = tuple(replace(one, measurement=replace(one.measurement, remarks=(of_load,))) for one in record.trials)  # type: ignore[type-var]
    (found,) = judge(replace(record, trials=overhead))
    assert found.verdict is Verdict.BETTER
    same = run(asked_of("ab", rounds=60), 20, noise=0.01)
    same = replace(same, study=replace(same.study, paired=False, sequential=False))
    same = replace(same, trials=tuple(map(busy, same.trials)))
    assert {one.outcome for one in rule(same, conditions)} == {Outcome.UNDECIDED}, "no difference is as little known"


@pytest.mark.parametrize(
    ("first", "second", "alike"),
    [
        ("none", "writethrough", False),
        ("none", "unsafe", False),
        ("directsync", "writethrough", True),
        ("none", "writeback", False),
        ("writeback", "writeback", True),
    ],
)
def test_flushes_with_unlike_work_are_not_compared(first: str, second: str, *, alike: bool) -> None:
    """Under writethrough a flush has nothing left to do, and cache=unsafe drops it: 13 times as fast, it said. Under
    writeback it has the writes to do as well: 65 % longer it took, with writes a third shorter.
    """
    record = run(asked_of("ab"), 20, better=2.0, noise=0.01)
    arms = [
        replace(arm, stack=Stack(rig="storage-daemon", disk=Disk(cache=cache)))  # type: ignore[arg-type]
        for arm, cache in zip(record.study.arms, (first, second), strict=True)
    ]
    asked = replace(record.study, arms=tuple(arms), also=("sync.mean",))
    timed = tuple(
        replace(
            one, measurement=replace(found, values=(*found.values, ("sync.mean", 1e9 / dict(found.values)["iops"])))
        )
        for one in record.trials
        if (found := one.measurement) is not None
    )
    record = replace(record, study=asked, trials=timed)
    iops, flush = judge(record)
    assert iops.verdict is Verdict.BETTER
    assert (flush.verdict is Verdict.BETTER) is alike
    assert alike or (flush.reason is Reason.UNLIKE_FLUSHES and not flush.open)
    against, limit = (
        rule(record, parse_conditions(["sync.mean < -3%"])),
        rule(record, parse_conditions(["sync.mean > 1s"])),
    )
    assert [one.outcome for one in against] == [Outcome.BREACHED if alike else Outcome.UNDECIDED]
    assert [one.outcome for one in limit] == [Outcome.HELD] * 2, "a limit is of each arm by itself"


def test_conditions_share_the_error_among_themselves_workloads_and_arms() -> None:
    record = run(asked_of("abc"), 20)
    for texts, count in ((["iops < -3%"], 2), (["iops < -3%", "latency.p99 > +5%"], 4)):
        found = rule(record, parse_conditions(texts))
        assert len(found) == count
        assert {round(1 - one.comparison.ratio.confidence, 9) for one in found if one.comparison.ratio} == {
            round(0.05 / count, 9)
        }


@pytest.mark.parametrize(("arms", "fewest"), [("ab", 6), ("abc", 5), ("abcde", 5)])
def test_a_study_is_decided_at_a_look_and_not_before_five_rounds_of_three_arms_or_six_of_two(
    arms: str, fewest: int
) -> None:
    for count, decided in ((fewest - 1, False), (fewest, True)):
        found = judge(run(asked_of(arms), count, better=3.0, noise=0.01))[-1]
        assert (found.verdict is Verdict.BETTER) is decided
        assert found.rounds == count
