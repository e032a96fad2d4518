# SPDX-License-Identifier: Apache-2.0
"""Curves of offered loads: one for each workload, with the knees of arms whose capacity is known, in all outputs."""

import json
import math
from dataclasses import replace
from functools import cache
from random import Random

from tests.plan.load_studies import study
from tests.published import complaints
from tests.report.records import record

from virtune.analyse.study.summarise import summarise
from virtune.bench.simulated import ALONE_NS, CAPACITY_IOPS, open_loop_ns
from virtune.fio.workloads import parse_workload
from virtune.flows.reports.report import svgs
from virtune.model.evidence import InForce, StudyRecord, TrialRecord
from virtune.model.measurement import Histogram, Measurement
from virtune.model.result import Result
from virtune.model.study import Study, Trial
from virtune.plan.loads import settled, with_loads
from virtune.report.charts.loads import load_curve
from virtune.report.json.result import result_document
from virtune.report.pages.evidence import note_lines

SHARE = {"a": 1.0, "b": 0.6}
LOADS = ("10%", "20%", "30%", "40%", "50%", "60%", "70%", "80%", "90%", "100%", f"{CAPACITY_IOPS * 1.2:.0f}iops")


def measured(asked: Study, trial: Trial) -> TrialRecord:
    """A trial of an arm that carries a share of CAPACITY_IOPS, a little more or less each time."""
    chance = Random(f"{trial.number}")
    capacity = CAPACITY_IOPS * SHARE[trial.arm] * math.exp(chance.gauss(0, 0.01))
    offered = asked.workload(trial.workload).offered_iops
    iops = min(offered or capacity, capacity)
    mean = open_loop_ns(offered or iops, capacity, depth=256, alone_ns=ALONE_NS * math.exp(chance.gauss(0, 0.02)))
    histogram = Histogram(bins=((round(mean), 97_000), (round(2 * mean), 3_000)))
    found = Measurement(values=(("iops", iops), ("latency.mean", mean)), histogram=histogram)
    return TrialRecord(trial=trial, ended="", in_force=InForce(), measurement=found)


@cache
def offered(*loads: str) -> tuple[StudyRecord, Result]:
    """Two arms under two workloads at these loads."""
    asked = study("randread-4k", *loads)
    begun = with_loads(replace(asked, workloads=(*asked.workloads, *parse_workload("randwrite-4k"))))
    probed = StudyRecord(
        study=begun, facts="", finished=False, trials=tuple(measured(begun, trial) for trial in begun.trials)
    )
    whole = settled(probed)
    trials = tuple(measured(whole, trial) for trial in whole.trials)
    found = StudyRecord(study=whole, facts="", finished=True, trials=trials)
    return found, summarise(found)


def test_each_arm_s_knee_is_found_below_its_own_capacity() -> None:
    _, result = offered(*LOADS)
    assert [(one.workload, one.arm) for one in result.knees] == [
        ("randread-4k", "a"), ("randread-4k", "b"), ("randwrite-4k", "a"), ("randwrite-4k", "b"),
    ]  # fmt: skip
    for one in result.knees:
        capacity = CAPACITY_IOPS * SHARE[one.arm]
        assert 0.4 * capacity < one.knee.iops < capacity
        assert one.knee.high is not None
        assert one.knee.iops <= one.knee.high <= 1.05 * capacity


def test_no_knee_is_told_where_no_load_was_beyond_it() -> None:
    assert offered("10%", "20%", "30%")[1].knees == ()
    assert offered("50%")[1].knees == ()


def test_a_workload_has_a_curve_of_its_own_with_its_knees() -> None:
    _, result = offered(*LOADS)
    read, write = (load_curve(result, one) for one in result.study.workloads if one.probe)
    assert read is not None
    assert write is not None
    assert (read.name, write.name) == ("loads-randread-4k", "loads-randwrite-4k")
    rows = read.spec["data"]["values"]
    assert len(rows) == len(read.rows) == 2 * len(LOADS), "one I/O at a time is not offered at a rate"
    assert {row["load"].partition("-at-")[0] for row in rows} == {"randread-4k"}
    knees = read.spec["layer"][0]["data"]["values"]
    assert [(one["arm"], one["iops"]) for one in knees] == [
        (one.arm, one.knee.iops) for one in result.knees if one.workload == "randread-4k"
    ]
    assert "knee of a" in "".join(svgs([read]))
    assert read.title.startswith("randread-4k: at ")
    assert "(a) to " in read.title


def test_the_document_and_the_notes_have_the_knees() -> None:
    _, result = offered(*LOADS)
    kept = record(8)
    document = result_document(replace(summarise(kept), knees=result.knees), kept)
    assert complaints("result", json.loads(json.dumps(document))) == []
    assert [one["knee"]["iops"] for one in document["knees"]] == [one.knee.iops for one in result.knees]
    told = [line for line in note_lines(result) if line.startswith("knee of ")]
    assert [line.partition(",")[0] for line in told] == ["knee of randread-4k", "knee of randwrite-4k"]
