# SPDX-License-Identifier: Apache-2.0
"""Figures with a known value: units, what is a second's or a trial's, which device counts, what is averaged how."""

import json
from dataclasses import replace
from typing import Any

import pytest
from tests.analyse.attempts import attempt
from tests.analyse.edited_trials import BANDWIDTH, STACK, WORKLOAD, Edit, at, edited, said, trial
from tests.analyse.recordings import recorded
from tests.report.records import study

from virtune.analyse.study.offered_load import unmet_rounds
from virtune.analyse.study.verdicts import evidence_of, judge
from virtune.analyse.trial.derive import derive
from virtune.analyse.trial.measure import measurement_of
from virtune.fio.results import read_result
from virtune.model.evidence import BARRIER, InForce, StudyRecord, TrialRecord
from virtune.model.measurement import FioResult, Histogram, Measurement
from virtune.model.remark import Weight

SECONDS = 2


def fio_document(name: str = "randread.both") -> dict[str, Any]:
    text = recorded(name)
    document: dict[str, Any] = json.loads(text[text.index("\n{\n") : text.index("\n}\n") + 2])
    return document


def test_throttling_is_the_same_in_both_versions_of_control_groups() -> None:
    first = trial(at(throttle={"/cg/cpu.stat": "nr_throttled 2\nthrottled_time 100007000"}))
    second = trial(at(throttle={"/cg/cpu.stat": "nr_throttled 2\nthrottled_usec 100007"}))
    quiet = dict(trial().gates)["cpu-throttled"]
    assert dict(second.gates)["cpu-throttled"] > quiet
    # the first sample of the one begins at 7 us, that of the other at 7 us of the other unit
    assert dict(first.gates)["cpu-throttled"] == pytest.approx(dict(second.gates)["cpu-throttled"], rel=0.01)


def test_the_skew_of_guests_is_in_nanoseconds() -> None:
    parts = edited("randread.both") | {BARRIER: json.dumps({"skew_seconds": 0.004}).encode()}
    assert derive(parts, stack=STACK, workload=WORKLOAD).get("guests.skew") == pytest.approx(4e6)


def with_daemon(cpu_seconds: float) -> Edit:
    def edit(begin: dict[str, Any], stop: dict[str, Any]) -> None:
        for one, ran in ((begin, 0.0), (stop, cpu_seconds)):
            one["threads"]["daemon"] = {"9": ["qemu-storage-da", int(100 * ran), 0, int(ran * 1e9), 0]}
            one["stat"] = f"cpu {100 + int(200 * (ran > 0)) + int(100 * ran)} 0 0 100 0 0 0 0 0 0\n"

    return edit


def test_cpu_per_io_is_of_load_and_daemon_together_and_of_one_io() -> None:
    iops = trial().get("iops")
    assert iops is not None
    own = 2.0  # the load takes one CPU for two seconds
    assert trial().get("cpu_per_io") == pytest.approx(own / SECONDS / iops)
    assert trial(with_daemon(0.5)).get("cpu_per_io") == pytest.approx((own + 0.5) / SECONDS / iops)


def test_reads_that_neither_disk_nor_page_cache_served_are_seen() -> None:
    def nothing_read(begin: dict[str, Any], stop: dict[str, Any]) -> None:
        stop["diskstats"] = begin["diskstats"]
        stop["processes"]["load"]["7"]["io"] = begin["processes"]["load"]["7"]["io"]

    assert said(trial(nothing_read)).get("unserved") is Weight.INVALID


def test_a_loop_device_counts_what_the_page_cache_served_so_the_disk_below_it_tells() -> None:
    def over_a_file(begin: dict[str, Any], stop: dict[str, Any]) -> None:
        for one, second in ((begin, 1), (stop, 3)):
            whole = BANDWIDTH * second // 512
            below = (whole - BANDWIDTH // 512) // 2 if one is stop else 0
            one["diskstats"] = [
                f"7 0 loop0 {second * 58000} 0 {whole} 0 0 0 0 0 8 {second * 1000} {second * 8000}",
                f"254 0 vda {below // 8} 0 {below} 0 0 0 0 0 8 {second * 1000} {second * 8000}",
            ]
        stop["residency"] = {"image": [64 * 1024**2, 0]}

    assert said(trial(over_a_file)).get("page-cache") is Weight.INVALID


def test_foreign_io_of_little_is_no_reading() -> None:
    def idle(begin: dict[str, Any], stop: dict[str, Any]) -> None:
        begin["diskstats"] = ["254 0 vda 0 0 0 0 0 0 0 0 0 0 0"]
        stop["diskstats"] = ["254 0 vda 10 0 80 0 0 0 0 0 0 10 10"]  # 40 KiB in two seconds, none of it ours
        for one in (begin, stop):
            one["processes"]["load"]["7"]["io"] = "read_bytes: 0\nwrite_bytes: 0"

    assert dict(trial(idle).gates)["foreign-io"] == 0.0


def test_swapping_is_counted_by_the_second() -> None:
    found = trial(at(vmstat=["pswpin 405", "pswpout 6"]))
    assert dict(found.gates)["swap"] == 400 / SECONDS
    assert said(found)["swap"] is Weight.WARNING


def test_what_the_kernel_counts_in_sectors_is_in_bytes() -> None:
    document = fio_document()
    (disk,) = document["disk_util"]
    disk |= {"read_sectors": 8, "write_sectors": 24}
    (device,) = read_result(json.dumps(document)).devices
    assert (device.read_bytes, device.written_bytes) == (4096, 12288)


@pytest.mark.parametrize(
    ("line", "bandwidth"),
    [
        ("  read: IOPS=1000, BW=4000KiB/s (4096kB/s)(8000KiB/2000msec)", 4_096_000),
        ("  read : io=8000.0KB, bw=4000.0KB/s, iops=1000, runt=  2000msec", 4_096_000),
    ],
)
def test_the_text_of_fio_2_and_3_means_the_same_bytes(line: str, bandwidth: int) -> None:
    text = f"rr: (groupid=0, jobs=1): err= 0: pid=7: Sun Nov  1 00:00:00 2026\n{line}\n"
    (load,) = read_result(text).loads
    assert load.streams[0].bandwidth_bps == bandwidth


def test_a_job_without_a_distribution_leaves_none_of_the_whole() -> None:
    load = read_result(json.dumps(fio_document())).loads[0]
    (stream,) = load.streams
    assert stream.lat is not None
    counted = replace(stream, lat=replace(stream.lat, histogram=Histogram(bins=((1000, 7),))))
    bare = replace(stream, lat=replace(stream.lat, histogram=None))
    one, other = (replace(load, streams=(flow,)) for flow in (counted, bare))
    result = FioResult(source="json", version="fio-3.33", loads=(one, one))
    both = measurement_of(result).histogram
    assert both is not None
    assert both.count == 14
    assert measurement_of(replace(result, loads=(one, other))).histogram is None


def test_an_offered_load_is_met_within_a_hundredth() -> None:
    asked = study(1)
    workload = replace(asked.workloads[0], offered_iops=1000.0)
    asked = replace(asked, workloads=(workload,), seconds=1000.0)
    (one, *_) = asked.trials
    rates = [Measurement(values=(("iops", rate),)) for rate in (1000.0, 992.0, 980.0)]
    done = [
        TrialRecord(trial=replace(one, round=n), ended="", in_force=InForce(), measurement=rate)
        for n, rate in enumerate(rates, 1)
    ]
    assert unmet_rounds(asked, done) == {(one.arm, one.workload): {3: 0.98}}


def test_a_rejected_trial_is_in_no_comparison() -> None:
    made = [attempt(n, ("threads", "native")[n % 2], *(["page-cache"] if n == 3 else [])) for n in range(1, 17)]
    asked = study(8)
    trials = tuple(replace(one, trial=replace(one.trial, number=n)) for n, one in enumerate(made, 1))
    record = StudyRecord(study=replace(asked, trials=tuple(one.trial for one in trials)), facts="", finished=True,
                         trials=trials)  # fmt: skip
    rows = evidence_of(record).rows
    disturbed = made[2].trial
    assert "iops" not in rows[disturbed.arm, disturbed.workload][disturbed.round]
    (found,) = judge(record)
    assert found.rounds == 7
