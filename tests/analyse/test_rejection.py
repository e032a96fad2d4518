# SPDX-License-Identifier: Apache-2.0
"""Which trials count: repeats, the safeguard for an arm, the host that is always like that, and interruptions."""

from collections.abc import Iterable, Sequence
from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests.analyse.attempts import attempt, attempts
from tests.report.records import study

from virtune.analyse.stats.student import fisher
from virtune.analyse.study.summarise import summarise
from virtune.analyse.trial.rejection import pardons, rejected_for, unsettled, why_again
from virtune.model.evidence import InForce, StudyRecord, TrialRecord
from virtune.model.measurement import Measurement
from virtune.model.remark import Remark, Weight
from virtune.model.study_options import ATTEMPTS
from virtune.report.pages.evidence import repeats_of


def again_after(made: Sequence[TrialRecord]) -> str | None:
    return why_again(made[-1].trial, made)


def test_an_invalid_trial_is_repeated_at_most_twice() -> None:
    made = [attempt(1, "threads"), attempt(2, "native", "cpu-wait")]
    assert again_after(made) == "disturbed (CPU contention), repeated: cpu-wait disturbed it"
    made.append(attempt(2, "native", "cpu-wait", number_of_attempt=2))
    assert again_after(made) is not None
    made.append(attempt(2, "native", "cpu-wait", number_of_attempt=3))
    assert len(made) == 1 + ATTEMPTS
    assert again_after(made) is None


def test_as_many_attempts_are_made_as_were_asked_for() -> None:
    made = [attempt(1, "threads", "cpu-wait")]
    trial = made[0].trial
    assert why_again(trial, made, most=1) is None
    assert unsettled(made, most=1) is None
    made += [attempt(1, "threads", "cpu-wait", number_of_attempt=n) for n in (2, 3)]
    assert why_again(trial, made, most=4) is not None
    assert unsettled(made, most=4) == trial
    # a failed trial gave nothing, so it is run again all the same
    assert why_again(trial, [attempt(1, "threads", failure="fio went away")], most=1) is not None


def test_a_valid_trial_stands_and_a_failed_one_is_run_once_more() -> None:
    assert again_after([attempt(1, "threads")]) is None
    failed = attempt(1, "threads", failure="fio went away")
    assert again_after([failed]) == "failed, repeated: fio went away"
    assert again_after([failed, failed]) is None


def test_a_cause_of_the_arm_is_tried_out_on_one_trial_only() -> None:
    three = [attempt(1, "threads", "page-cache") for _ in range(3)]
    assert again_after([*three, attempt(2, "native"), attempt(3, "threads", "page-cache")]) is None
    # another cause, another arm, and a cause of the moment are all tried again
    assert again_after([*three, attempt(2, "native"), attempt(3, "threads", "swap")]) is not None
    assert again_after([*three, attempt(2, "native", "page-cache")]) is not None
    moment = [attempt(1, "threads", "swap") for _ in range(3)]
    quiet = [attempt(2, "native") for _ in range(4)]
    assert again_after([*moment, *quiet, attempt(3, "threads", "swap")]) is not None


def test_one_arm_rejected_clearly_more_often_is_a_finding_about_it() -> None:
    made = attempts(rejected={"threads": 6, "native": 0}, tried={"threads": 7, "native": 8})
    (pardon,) = pardons(made)
    assert (pardon.cause, pardon.arm) == ("cpu-wait", "threads")
    assert "6 of 7 trials of threads" in pardon.text
    assert "0 of 8 of the other arms" in pardon.text
    disturbed = made[0].measurement
    assert disturbed is not None
    assert rejected_for("threads", disturbed, (pardon,)) == ()
    assert rejected_for("native", disturbed, (pardon,)) == ("cpu-wait",)


def test_an_arm_that_cannot_show_a_cause_says_nothing_of_it() -> None:
    """A page cache hides who else uses the disk: a neighbour was laid to the arm without one."""

    def read(one: TrialRecord, *gates: str) -> TrialRecord:
        assert one.measurement is not None
        return replace(one, measurement=replace(one.measurement, gates=tuple((gate, 0.5) for gate in gates)))

    rejected = {"none": 7, "writeback": 0}
    made = [
        read(one, "cpu-wait", *(["foreign-io"] if one.trial.arm == "none" else []))
        for one in attempts(rejected=rejected, tried={"none": 8, "writeback": 8}, cause="foreign-io")
    ]
    (pardon,) = pardons(made)
    assert pardon.arm is None
    assert pardon.text.startswith("foreign I/O in 7 of 8 trials of none (others do not show it): too many")
    assert pardons([one for one in made if one.trial.arm == "writeback"] + made[:5]) == (), "too few to say anything"
    (laid,) = pardons([read(one, "foreign-io") for one in made])
    assert laid.arm == "none", "where all can show it, it is the arm's"


@pytest.mark.parametrize(("one", "other"), [(3, 1), (2, 0), (4, 3), (0, 0)])
def test_equal_bad_luck_is_no_finding(one: int, other: int) -> None:
    assert pardons(attempts(rejected={"threads": one, "native": other}, tried={"threads": 8, "native": 8})) == ()


def test_a_host_that_is_always_like_that_does_not_reject_everything() -> None:
    (pardon,) = pardons(attempts(rejected={"threads": 3, "native": 2}, tried={"threads": 3, "native": 3}))
    assert pardon.arm is None
    assert "in 5 of 6 trials: too many to leave out" in pardon.text
    assert pardons(attempts(rejected={"threads": 3, "native": 2}, tried={"threads": 3, "native": 2})) == ()


@pytest.mark.parametrize("cause", ["page-cache", "unserved", "little", "errors"])
def test_what_was_no_disk_is_never_let_in(cause: str) -> None:
    made = attempts(rejected={"threads": 8, "native": 0}, tried={"threads": 8, "native": 8}, cause=cause)
    assert pardons(made) == ()


def test_a_study_interrupted_between_two_attempts_goes_on_with_the_next() -> None:
    quiet = [attempt(1, "threads"), attempt(2, "native")]
    assert unsettled([]) is None
    assert unsettled(quiet) is None
    disturbed = [*quiet, attempt(3, "threads", "swap")]
    pending = unsettled(disturbed)
    assert pending is not None
    assert pending.number == 3
    given_up = [*disturbed, *(attempt(3, "threads", "swap", number_of_attempt=n) for n in (2, 3))]
    assert unsettled(given_up) is None
    assert unsettled([*disturbed, attempt(4, "native")]) is None  # it went on, so that was decided then


def record(made: Iterable[TrialRecord]) -> StudyRecord:
    every = tuple(made)
    last = {one.trial.number: one for one in every}
    return StudyRecord(study=study(8), facts="", finished=False, trials=tuple(last.values()), attempts=every)


def test_the_result_counts_attempts_and_leaves_invalid_trials_out_of_the_table() -> None:
    made = [
        attempt(1, "threads", "swap"),
        attempt(1, "threads", number_of_attempt=2),
        attempt(2, "native"),
        attempt(3, "threads", "page-cache", "swap"),
        attempt(4, "native", failure="gone"),
    ]
    result = summarise(record(made))
    threads, native = result.arms
    assert (threads.attempts, dict(threads.invalid)) == (3, {"swap": 2, "page-cache": 1})
    assert (native.attempts, native.invalid) == (2, ())
    assert [repeats_of(one) for one in result.arms] == [1, 0], "a last attempt that failed or is invalid is no repeat"
    iops = threads.get("iops")
    assert iops is not None
    assert iops.value == pytest.approx(1001)
    assert (iops.rounds, threads.rounds) == (1, 2)


def test_a_mild_disturbance_is_not_counted_among_the_trials_that_are_left_out() -> None:
    made = []
    for number, share in enumerate((0.23, 0.04, 0.03), 1):
        weight = Weight.INVALID if share > 0.1 else Weight.WARNING
        remark = Remark(id="foreign-io", weight=weight, text=f"{share:.0%}")
        found = Measurement(values=(("iops", 1000.0),), remarks=(remark,), gates=(("foreign-io", share),))
        trial = attempt(number, "threads").trial
        made.append(TrialRecord(trial=trial, ended="", in_force=InForce(), measurement=found))
    said = summarise(record(made)).summary("threads", made[0].trial.workload)
    assert said is not None
    told = {one.remark.weight: (one.rounds, one.worst) for one in said.remarks}
    assert told == {Weight.INVALID: (1, 0.23), Weight.WARNING: (2, 0.04)}


def test_pardoned_trials_count_and_their_remark_is_a_warning() -> None:
    made = [attempt(n + 1, ("threads", "native")[n % 2], "cpu-wait") for n in range(16)]
    result = summarise(record(made))
    assert [comparison.rounds for comparison in result.verdicts] == [8]
    assert {one.remark.weight for arm in result.arms for one in arm.remarks} == {Weight.WARNING}
    assert [pardon.arm for pardon in result.pardons] == [None]


def test_latencies_of_a_load_that_was_not_met_are_not_compared() -> None:
    def saturated(number: int, arm: str, *, met: bool) -> TrialRecord:
        remark = Remark(id="rate-unmet", weight=Weight.WARNING, text="saturated")
        values = (("iops", 1000.0 + number), ("latency.mean", 1e6 + number), ("latency.p99", 2e6 + number))
        found = Measurement(values=values, remarks=() if met else (remark,))
        return TrialRecord(trial=attempt(number, arm).trial, ended="", in_force=InForce(), measurement=found)

    for met, metrics in ((True, {"latency.mean", "latency.p99"}), (False, set())):
        made = [saturated(n + 1, ("threads", "native")[n % 2], met=met or n % 2 == 0) for n in range(16)]
        result = summarise(record(made))
        told = {one.metric for one in result.differences if one.rounds and one.ratio is not None}
        assert told - {"iops"} == metrics


@given(tried=st.integers(1, 40), others=st.integers(1, 40), rejected=st.floats(0, 1), others_rejected=st.floats(0, 1))
def test_the_exact_test_is_the_one_of_scipy(tried: int, others: int, rejected: float, others_rejected: float) -> None:
    from scipy.stats import fisher_exact  # it takes seconds to load, and no other test of this module needs it

    mine, theirs = round(rejected * tried), round(others_rejected * others)
    table = [[mine, tried - mine], [theirs, others - theirs]]
    assert fisher(mine, tried, theirs, others) == pytest.approx(
        float(fisher_exact(table, alternative="greater").pvalue), rel=1e-9
    )
