# SPDX-License-Identifier: Apache-2.0
"""The gates on recorded evidence: a quiet trial passes them all, and planted trouble is found by its own gate."""

import json
from dataclasses import replace
from typing import Any

import pytest
from tests.analyse.edited_trials import BANDWIDTH, HEADER, STACK, WORKLOAD, Edit, at, edited, said, stat, trial
from tests.analyse.recordings import recorded

from virtune.analyse.trial.derive import derive
from virtune.model.errors import LoadError
from virtune.model.evidence import Check
from virtune.model.remark import GATE_BY_ID, GATES, Weight
from virtune.model.rig import ExportKind
from virtune.model.stack import Disk, Stack
from virtune.model.text import format_count
from virtune.model.workload import Workload, job


def test_a_quiet_trial_passes_every_gate() -> None:
    found = trial()
    assert said(found) == {}
    assert found.causes == ()
    seen = {name for name, _ in found.gates}
    assert seen == {gate.id for gate in GATES} - {"rate-unmet"}  # nothing was offered


def crowd(begin: dict[str, Any], stop: dict[str, Any]) -> None:
    """64 workers of ours queue behind one another on two CPUs: PSI says 90 %."""
    for second, one in ((1, begin), (3, stop)):
        one["stat"] = f"cpu {195 * second} 0 0 {5 * second} 0 0 0 0 0 0\n"
        one["threads"]["daemon"] = {
            str(100 + n): ["worker", 0, 0, second * 95 * 10**7 // 64, second * 10**8] for n in range(64)
        }
        one["pressure"] = {"cpu": f"some total={second * 900_000}"}


def test_own_waiting_is_no_foreign_pressure() -> None:
    found = trial(crowd)
    assert said(found) == {"cpu-pressure": Weight.WARNING}
    assert dict(found.gates)["cpu-wait"] < 0.02


@pytest.mark.parametrize(("disk", "begins"), [
    (Disk(), "the CPUs may be part of the limit: for 90 % of the time"),
    (Disk(throttle_iops=300), "threads waited for a CPU: for 90 % of the time"),
    (Disk(throttle_iops_write=300), "threads waited for a CPU: for 90 % of the time"),
])  # fmt: skip
def test_of_a_disk_with_its_own_limit_waits_are_not_called_the_limit(disk: Disk, begins: str) -> None:
    (remark,) = (one for one in trial(crowd, stack=replace(STACK, disk=disk)).remarks if one.id == "cpu-pressure")
    assert remark.text.startswith(begins)


def neighbour(wait: float, busy: float) -> Edit:
    def edit(begin: dict[str, Any], stop: dict[str, Any]) -> None:
        stop["threads"]["load"]["7"][4] = 10**7 + int(wait * 2e9)
        stop["stat"] = f"cpu {100 + int(200 * busy)} 0 0 {100 + int(200 * (2 - busy))} 0 0 0 0 0 0\n"

    return edit


def slow(*, waits: float, others_bytes: int, busy: float) -> Edit:
    """A load whose disk is slow for its own reasons: it wants 2 % of a CPU and moves 3 MB, beside others who burn the
    CPUs and move so many bytes, where the disk has a request for a share of the time.
    """

    def edit(begin: dict[str, Any], stop: dict[str, Any]) -> None:
        neighbour(waits / 2, 2.0)(begin, stop)
        stop["threads"]["load"]["7"][1] = 100 + 4
        stop["threads"]["load"]["7"][3] = 10**9 + 4 * 10**7
        moved = BANDWIDTH + 3 * 10**6
        read = (moved + others_bytes) // 512
        stop["processes"]["load"]["7"] = {"stat": stat(7, user=104), "io": f"read_bytes: {moved}\nwrite_bytes: 0"}
        stop["diskstats"] = [f"254 0 vda 59000 0 {read} 0 0 0 0 0 8 {1000 + int(2000 * busy)} 24000"]

    return edit


def stolen(percent: int) -> Edit:
    return at(stat=f"cpu 300 0 2 {500 - 4 * percent} 0 0 0 {4 * percent} 0 0\n")


def foreign(share: float) -> Edit:
    moved = int((2 / (1 - share) + 1) * BANDWIDTH / 512)
    return at(diskstats=[f"254 0 vda 200000 0 {moved} 0 0 0 0 0 8 3000 24000"])


def cached(share: float) -> Edit:
    def edit(begin: dict[str, Any], stop: dict[str, Any]) -> None:
        moved = int(BANDWIDTH * (1 + 2 * (1 - share)))
        stop["diskstats"] = [f"254 0 vda 100000 0 {moved // 512} 0 0 0 0 0 8 3000 24000"]
        stop["processes"]["load"]["7"]["io"] = f"read_bytes: {moved}\nwrite_bytes: 0"
        stop["residency"] = {"image": [64 * 1024**2, 0]}

    return edit


def throttled(microseconds: int) -> Edit:
    return at(throttle={"/cg/cpu.stat": f"nr_periods 20\nnr_throttled 2\nthrottled_usec {7 + microseconds}"})


def faults(count: int) -> Edit:
    def edit(begin: dict[str, Any], stop: dict[str, Any]) -> None:
        stop["processes"]["load"]["7"]["stat"] = stat(7, majflt=count, user=300)

    return edit


PLANTED: dict[str, tuple[Edit, str, Weight]] = {
    "a neighbour now and then": (neighbour(0.4, 1.5), "cpu-wait", Weight.WARNING),
    "a neighbour on each CPU": (neighbour(2.0, 2.0), "cpu-wait", Weight.INVALID),
    "some steal": (stolen(2), "steal", Weight.WARNING),
    "much steal": (stolen(9), "steal", Weight.INVALID),
    "throttled once": (throttled(10_000), "cpu-throttled", Weight.WARNING),
    "throttled all the time": (throttled(900_000), "cpu-throttled", Weight.INVALID),
    "throttled, version 1": (
        at(throttle={"/cg/cpu.stat": "nr_throttled 2\nthrottled_time 900000000"}), "cpu-throttled", Weight.INVALID
    ),
    "a hot CPU": (at(heat={"/cpu0": "4"}), "cpu-heat", Weight.INVALID),
    "a slower CPU": (at(frequency={"/cpu0": "2500000", "/cpu1": "2700000"}), "frequency", Weight.WARNING),
    "a warm drive": (at(drives={"/hwmon0/temp1_input": "77000"}), "drive-heat", Weight.WARNING),
    "a hot drive": (at(drives={"/hwmon0/temp1_input": "80500"}), "drive-heat", Weight.INVALID),
    "a neighbour's file": (foreign(0.05), "foreign-io", Weight.WARNING),
    "a neighbour's backup": (foreign(0.3), "foreign-io", Weight.INVALID),
    "a little from memory": (cached(0.05), "page-cache", Weight.WARNING),
    "much from memory": (cached(0.4), "page-cache", Weight.INVALID),
    "some swapping": (at(vmstat=["pswpin 9", "pswpout 6"]), "swap", Weight.WARNING),
    "much swapping": (at(vmstat=["pswpin 9005", "pswpout 6"]), "swap", Weight.INVALID),
    "page faults": (faults(11), "major-faults", Weight.WARNING),
    "the clock set back": (at(wall=1.7e9 - 3597), "clock-step", Weight.INVALID),
    "a machine that stood still": (at(wall=1.7e9 + 8), "clock-step", Weight.INVALID),
    "another clock": (at(clock_source="hpet"), "clock-source", Weight.INVALID),
}  # fmt: skip


@pytest.mark.parametrize("name", PLANTED)
def test_a_planted_trouble_is_found_by_its_gate_and_by_no_other(name: str) -> None:
    edit, gate, weight = PLANTED[name]
    found = trial(edit)
    others = set(said(found)) - {gate, "cpu-pressure"}
    assert said(found).get(gate) is weight, (said(found), found.gates)
    assert others == set(), said(found)
    assert found.causes == ((gate,) if weight is Weight.INVALID else ())
    assert next(remark.text for remark in found.remarks if remark.id == gate)


@pytest.mark.parametrize(
    ("edit", "gate", "least", "most"),
    [
        (slow(waits=0.17, others_bytes=0, busy=0.1), "cpu-wait", 0.07, 0.09),  # of its 0.21 s of CPU 81 %
        (slow(waits=0.05, others_bytes=0, busy=0.1), "cpu-wait", 0.02, 0.03),
        (slow(waits=1.9, others_bytes=0, busy=0.1), "cpu-wait", 0.8, 1.0),  # it hardly ever ran
        (slow(waits=0, others_bytes=3 * 10**6, busy=0.015), "foreign-io", 0.014, 0.016),  # half of the bytes
        (slow(waits=0, others_bytes=30 * 10**6, busy=0.09), "foreign-io", 0.08, 0.1),
        (slow(waits=0, others_bytes=30 * 10**6, busy=1.0), "foreign-io", 0.9, 0.92),  # a disk that they keep busy
    ],
)  # fmt: skip
def test_a_slow_disk_is_not_called_disturbed_by_what_did_not_slow_it(
    edit: Edit, gate: str, least: float, most: float
) -> None:
    """What a load that hardly does anything loses by others is bounded by the time for which they were in its way."""
    assert least < dict(trial(edit).gates)[gate] < most


def test_a_limit_on_our_io_is_said_and_does_not_invalidate() -> None:
    found = trial(header=HEADER | {"io_limits": ["254:0 rbps=1048576"]})
    assert said(found) == {"io-limit": Weight.WARNING}
    assert "254:0 rbps=1048576" in found.remarks[0].text


def test_every_gate_with_a_limit_has_a_planted_case() -> None:
    planted = {(gate, weight) for _, gate, weight in PLANTED.values()} | {("io-limit", Weight.WARNING)}
    of_fio = {"generator", "saturated-cpu", "rate-unmet"}  # planted below, in fio's own output
    for gate in GATES:
        if gate.id not in of_fio:
            assert gate.flag is None or (gate.id, Weight.WARNING) in planted, gate.id
            assert gate.invalid is None or (gate.id, Weight.INVALID) in planted, gate.id


@pytest.mark.parametrize(("share", "weight"), [(1.0, None), (0.95, Weight.WARNING), (0.85, Weight.INVALID)])
def test_time_outside_the_ios_is_the_generator_s(share: float, weight: Weight | None) -> None:
    found = derive(edited("randread.both", lat=share), stack=STACK, workload=WORKLOAD)
    assert said(found).get("generator") is weight


def test_a_job_without_a_rest_is_said() -> None:
    found = derive(edited("randread.both", usr_cpu=40.0, sys_cpu=55.0), stack=STACK, workload=WORKLOAD)
    assert said(found) == {"saturated-cpu": Weight.WARNING}


def test_an_offered_load_that_was_not_met_is_called_saturated() -> None:
    found = derive(
        {"fio.json": recorded("rate-unmet.both").encode(), "counters.jsonl": b""}, stack=STACK, workload=WORKLOAD
    )
    assert said(found).get("rate-unmet") is Weight.WARNING
    text = next(remark.text for remark in found.remarks if remark.id == "rate-unmet")
    assert text.startswith("saturated: ")
    assert f" and {format_count(dict(found.values)['iops'])} done: " in text, "the number of the tables"
    met = derive(
        {"fio.json": recorded("rate-met.both").encode(), "counters.jsonl": b""}, stack=STACK, workload=WORKLOAD
    )
    assert "rate-unmet" not in said(met)


def test_with_damaged_counters_only_fio_is_judged() -> None:
    found = derive(edited("randread.both"), stack=STACK, workload=WORKLOAD)
    assert {name for name, _ in found.gates} == {"generator", "saturated-cpu"}


def test_what_was_run_elsewhere_is_explained_and_not_turned_away() -> None:
    parts = edited("randread.both", lat=0.85, usr_cpu=40.0, sys_cpu=55.0)
    found = derive({"fio.json": parts["fio.json"]}, stack=STACK, workload=WORKLOAD)
    assert found.gates == ()
    assert said(found) == {"little": Weight.WARNING, "saturated-cpu": Weight.WARNING}


def test_a_stack_through_the_page_cache_has_no_gate_for_it() -> None:
    found = trial(cached(0.9), stack=Stack(disk=Disk(cache="writeback")))
    assert said(found) == {"page-cache": Weight.WARNING}
    assert "page-cache" not in dict(found.gates)


def test_without_schedstat_pressure_stands_in() -> None:
    def edit(begin: dict[str, Any], stop: dict[str, Any]) -> None:
        neighbour(0, 2.0)(begin, stop)
        for one in (begin, stop):
            one["threads"]["load"]["7"][4] = None
        stop["pressure"] = {"cpu": "some total=1810000"}

    assert dict(trial(edit).gates)["cpu-wait"] == pytest.approx(0.9 * 0.5, rel=0.03)


def test_a_gate_says_no_more_than_its_limits() -> None:
    for gate in GATES:
        assert GATE_BY_ID[gate.id] is gate
        assert gate.flag is not None or gate.invalid is not None
        assert gate.flag is None or gate.invalid is None or gate.flag <= gate.invalid


def test_the_disks_of_all_guests_answer_for_the_loads_of_all() -> None:
    one = edited("randread.both")["fio.json"]  # two seconds, in which its device saw 95 % of its requests
    parts = {"counters.jsonl": b"", "fio.json": one, "fio-2.json": one, "fio-3.json": one}
    found = derive(parts, stack=Stack(rig="qemu", guests=3), workload=WORKLOAD)
    assert "unserved" not in said(found)
    alone = derive({"fio.json": one}, stack=STACK, workload=WORKLOAD)
    assert found.get("iops") == pytest.approx(3 * (alone.get("iops") or 0))


@pytest.mark.parametrize(("skew", "said"), [(0.0501, "51 ms apart, more than 50 ms"), (0.05, ""), (2.0, "2000 ms")])
def test_guests_that_did_not_begin_together_are_never_said_to_be_apart_by_the_limit(skew: float, said: str) -> None:
    parts = edited("randread.both") | {"barrier.json": json.dumps({"skew_seconds": skew}).encode()}
    found = derive(parts, stack=Stack(rig="qemu", guests=2), workload=WORKLOAD)
    told = " ".join(remark.text for remark in found.remarks if remark.id == "start-skew")
    assert said in told
    assert bool(said) == bool(told)


@pytest.mark.parametrize(
    ("export", "load", "found", "warned"),
    [
        ("fuse", {"rw": "randwrite", "iodepth": "2"}, None, True),
        ("fuse", {"rw": "randrw", "numjobs": "2"}, "lost", True),
        ("fuse", {"rw": "randwrite", "iodepth": "2"}, "kept", False),
        ("fuse", {"rw": "randwrite"}, None, False),
        ("fuse", {"rw": "randread", "iodepth": "2"}, None, False),
        ("nbd", {"rw": "randwrite", "iodepth": "2"}, None, False),
    ],
)
def test_writes_beside_others_through_fuse_are_warned_of_until_the_data_were_checked(
    export: ExportKind, load: dict[str, str], found: str | None, warned: bool
) -> None:
    checks = [] if found is None else [Check(setting="data", asked="kept", found=found, proof="read back")]
    writes = Workload(name="w", meaning="", jobs=(job("w", load),))
    parts = {"fio.json": edited("randread.both")["fio.json"]}
    remarks = derive(parts, stack=Stack(export=export), workload=writes, checks=checks).remarks
    assert [one.weight for one in remarks if one.id == "fuse-writes"] == [Weight.WARNING] * warned


@pytest.mark.parametrize(
    ("disks", "shared"),
    [([["sda"], ["sda"]], "sda"), ([["sda", "sdb"], ["sdb", "sdc"]], "sdb"), ([["sda"], ["sdb"]], "")],
)
def test_guests_that_are_spread_over_one_disk_are_told(disks: list[list[str]], shared: str) -> None:
    parts = edited("randread.both") | {"disks.json": json.dumps({"disks": disks}).encode()}
    found = derive(parts, stack=Stack(rig="qemu", guests=2, spread="/srv"), workload=WORKLOAD)
    told = [remark.text for remark in found.remarks if remark.id == "one-disk"]
    assert told == ([f"the images that guests.spread keeps apart both lie on {shared}"] if shared else [])


@pytest.mark.parametrize("name", ["barrier.json", "disks.json"])
@pytest.mark.parametrize(
    "content",
    [
        b"",
        b"{",
        b"\xff",
        b"[]",
        b"{}",
        b'{"disks": [7], "skew_seconds": []}',
        pytest.param(b"[" * 100_000, id="deep"),
    ],
)
def test_a_damaged_capture_of_guests_is_said_by_its_name(name: str, content: bytes) -> None:
    with pytest.raises(LoadError, match=f"{name} cannot be read"):
        derive(edited("randread.both") | {name: content}, stack=Stack(rig="qemu", guests=2), workload=WORKLOAD)


def offered(rate: int, done: float, *, seconds: float = 2.0, process: str = "linear") -> set[str]:
    """What is said of a job that was offered a rate (1/s) and did so much of it."""
    document = json.loads(edited("rate-met.both")["fio.json"])
    job = document["jobs"][0]
    job["job options"] |= {"rate_iops": str(rate), "rate_process": process}
    ios = round(done * seconds)
    job["read"] |= {"runtime": round(seconds * 1000), "total_ios": ios, "iops": 0.97 * done}
    for kind in ("lat_ns", "clat_ns"):
        job["read"][kind] |= {"N": ios, "bins": {"30000000": ios}}
    return set(said(derive({"fio.json": json.dumps(document).encode()}, stack=STACK, workload=WORKLOAD)))


def test_what_is_in_flight_at_the_edges_or_comes_at_random_is_not_called_saturated() -> None:
    assert "rate-unmet" not in offered(100, 100.0)  # fio's own figure leaves out what the ramp had in flight
    assert "rate-unmet" not in offered(
        500, 0.97 * 500, process="poisson"
    )  # 1000 arrivals, within 3 standard deviations
    assert "rate-unmet" in offered(500, 0.97 * 500)
    assert "rate-unmet" in offered(500, 0.80 * 500, process="poisson")
