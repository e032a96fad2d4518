# SPDX-License-Identifier: Apache-2.0
"""Offered loads: what may be asked for, and what job follows from it."""

from collections.abc import Collection
from random import Random

import pytest
from tests.plan.load_studies import study

from virtune.model.errors import PlanError
from virtune.model.evidence import InForce, StudyRecord, TrialRecord
from virtune.model.measurement import Measurement
from virtune.model.remark import Remark, Weight
from virtune.model.study import Study
from virtune.plan.loads import disturbed_probes, read_loads, settled, with_loads


def after(begun: Study, *iops: float) -> Study:
    """The study when its probes have measured these rates, one a round."""
    return settled(probed(begun, *iops))


def probed(begun: Study, *iops: float, disturbed_rounds: Collection[int] = ()) -> StudyRecord:
    by_round = dict(enumerate(iops, 1))
    remark = Remark(id="cpu-wait", weight=Weight.INVALID, text="others had the CPU")
    records = tuple(
        TrialRecord(
            trial=trial,
            ended="",
            in_force=InForce(),
            measurement=Measurement(
                values=(("iops", by_round[trial.round]),),
                remarks=(remark,) if trial.round in disturbed_rounds else (),
            ),
        )
        for trial in begun.trials
    )
    return StudyRecord(study=begun, facts="", finished=False, trials=records)


def test_the_baseline_alone_is_probed_and_all_arms_follow_at_shares_of_the_geometric_mean() -> None:
    begun = with_loads(study("randread-4k", "50%,5kiops"))
    assert begun.unsettled
    assert [(t.number, t.arm, t.workload) for t in begun.trials] == [(n, "a", "randread-4k") for n in (1, 2, 3)]
    full = after(begun, 1000.0, 2000.0, 4000.0)
    assert not full.unsettled
    assert [(w.name, w.offered_iops) for w in full.compared] == [
        ("randread-4k-qd1", None), ("randread-4k-at-50pct", 1000.0), ("randread-4k-at-5kiops", 5000.0),
    ]  # fmt: skip
    assert full.trials[:3] == begun.trials
    assert [t.number for t in full.trials] == list(range(1, 3 + 6 * 2 * 3 + 1))
    options = full.workload("randread-4k-at-50pct").jobs[0].as_dict()
    assert (options["rate_iops"], options["iodepth"]) == ("1000", "256")
    assert full.workload("randread-4k-qd1").depth == 1


def test_a_mix_is_offered_in_its_own_shares_and_by_every_clone() -> None:
    full = after(with_loads(study("oltp-8k-70-30,numjobs=2", "50%")), 4000.0, 4000.0, 4000.0)
    (offered,) = (workload for workload in full.compared if workload.offered_iops)
    assert offered.jobs[0].get("rate_iops", "") == "700,300"
    assert offered.offered_iops == 2000


def test_a_disturbed_probe_sets_no_load_unless_there_is_no_other() -> None:
    begun = with_loads(study("randread-4k", "50%"))
    disturbed = probed(begun, 1000.0, 10.0, 4000.0, disturbed_rounds=(2,))
    assert settled(disturbed).workload("randread-4k-at-50pct").offered_iops == 1000
    assert list(disturbed_probes(disturbed)) == []
    all_of_it = probed(begun, 1000.0, 2000.0, 4000.0, disturbed_rounds=(1, 2, 3))
    assert settled(all_of_it).workload("randread-4k-at-50pct").offered_iops == 1000
    (said,) = disturbed_probes(all_of_it)
    assert "under randread-4k was disturbed (CPU contention)" in said


def test_every_share_up_to_four_times_saturation_is_offered() -> None:
    chance = Random(400)
    for share in (0.001, 100, 101, 125, 400, *(round(chance.uniform(0.001, 400), 3) for _ in range(40))):
        full = after(with_loads(study("randread-4k", f"{share}%")), 1e6, 1e6, 1e6)
        (offered,) = (workload for workload in full.compared if workload.offered_iops)
        assert offered.offered_iops == pytest.approx(share * 1e4, abs=1), share
        assert offered.jobs[0].get("iodepth", "") == "256", "as deep below saturation as beyond it"


@pytest.mark.parametrize(
    "load", ["", "0%", "401%", "999%", "50", "iops", "0iops", "-5%", "1e3iops", "50%%", "9" * 400 + "iops"]
)
def test_what_is_no_load_is_refused(load: str) -> None:
    with pytest.raises(PlanError, match="is not an offered load"):
        read_loads((load,))


@pytest.mark.parametrize(
    ("workload", "reason"),
    [
        ("rw=randread + rw=randwrite", "must have one job"),
        ("rw=randread,rate_iops=500", "a pace of its own"),
        ("rw=randread,ioengine=psync", "waits for each I/O"),
    ],
)
def test_what_cannot_be_offered_at_a_rate_is_refused_before_anything_runs(workload: str, reason: str) -> None:
    with pytest.raises(PlanError, match=reason):
        with_loads(study(workload, "50%"))


@pytest.mark.parametrize(
    ("words", "rates"), [("rwmixread=70", "700,300"), ("rwmixwrite=70", "300,700"), ("", "500,500")]
)
def test_a_mixed_load_is_offered_as_it_is_mixed(words: str, rates: str) -> None:
    begun = with_loads(study(f"name=mix,rw=randrw,bs=4k,{words}".rstrip(","), "1kiops"))
    full = after(begun, 1000.0, 1000.0, 1000.0) if begun.unsettled else begun
    (offered,) = [one for one in full.compared if one.offered_iops]
    assert offered.jobs[0].as_dict()["rate_iops"] == rates
