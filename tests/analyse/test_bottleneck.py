# SPDX-License-Identifier: Apache-2.0
"""What limits a disk, from planted facts: each cause by its own evidence, and nothing where nothing is."""

import json
from collections.abc import Mapping
from dataclasses import replace
from typing import Any

import pytest
from tests.analyse.edited_trials import HEADER, STACK, WORKLOAD, sample
from tests.analyse.planted_paths import (
    NEAR,
    PLANTED,
    SHARES,
    SPINNING,
    STARVED,
    WORKER,
    layers,
    mostly,
    of,
    path,
    thread,
)
from tests.analyse.recordings import recorded

from virtune.analyse.layers.bottleneck import ROWS, judge
from virtune.analyse.layers.path import bottleneck_of, path_of, split
from virtune.analyse.trial.derive import derive
from virtune.fio.workloads import parse_workload
from virtune.model.bottleneck import Bottleneck, Cause, DataPath, limit_text
from virtune.model.live import BELOW, BLOCK_JOB, Operation
from virtune.model.measurement import Measurement
from virtune.model.metric import BOUNDARIES, Boundary
from virtune.model.stack import Stack
from virtune.model.text import Bytes


@pytest.mark.parametrize(("cause", "planted"), PLANTED, ids=[f"{n}-{one}" for n, (one, _) in enumerate(PLANTED)])
def test_what_is_planted_is_named_with_its_evidence(cause: Cause, planted: DataPath) -> None:
    found = judge(planted)
    assert found.cause is cause, found
    assert found.evidence or cause is Cause.UNDECIDED
    assert found.experiment


def test_more_rounds_are_advised_only_where_they_would_show_more() -> None:
    unseen = judge(DataPath(iops=500.0))
    assert "nothing was seen below the load" in unseen.evidence[0]
    assert "more rounds would not show more" in unseen.experiment
    assert "--rig qemu" in unseen.experiment
    joined = layers(SHARES)
    joined = replace(joined, reasons=("the time between two of them does not differ from 0",))
    assert judge(replace(path(), layers=joined)).experiment.startswith("more rounds, a quieter host")
    assert "begin with the largest" in judge(path()).experiment


def test_every_cause_is_planted_and_has_words() -> None:
    assert {cause for cause, _ in PLANTED} == set(Cause)


@pytest.mark.parametrize(
    "fine",
    [
        path(limits={"iops": (20_000.0, 10_000.0)}),
        path(served=0.97, throttled=0.01, load_busy=0.5, foreign_cpus=1.5),
        path(threads={"iothread": thread("iothread", "IO iothread0", busy=0.85)}),
        path(threads={"iothread": thread("iothread", "IO iothread0", busy=0.6, stalled=0.15)}),
        path(depth=32.0, workers_max=64),
        path(offered=12_000.0),
        path(mostly("ring", 0.45)),
        path(idle=1.0),
        path(device_ns=300_000.0, others_share=0.8),
        path(device_ns=2_000_000.0),
        path(served=1.9),
        path(served=1.2, tables=True),
        path(workers_max=1, depth=32.0, device_ns=20_000.0, threads={"worker": WORKER}),
        path(threads={"vcpu": SPINNING}, guest_polls=True),
        path(threads={"load": thread("load", "fio", busy=0.99)}, load_polls=True),
        path(threads={"iothread": thread("iothread", "IO iothread0", busy=0.1, stalled=0.25)}),
        path(mostly("ring", 0.05), threads={"iothread": thread("iothread", "IO iothread0", busy=0.99)}, polling=True),
    ],
)
def test_of_what_is_only_near_a_limit_nothing_is_named(fine: DataPath) -> None:
    assert judge(fine).cause is Cause.UNDECIDED


def test_a_thread_that_polls_while_the_device_works_is_not_the_limit() -> None:
    spinning = {"iothread": thread("iothread", "IO iothread0", busy=0.99)}
    assert judge(path(mostly("device", 0.8), threads=spinning, polling=True)).cause is Cause.DEVICE
    assert judge(path(mostly("ring", 0.8), threads=spinning, polling=True)).cause is Cause.IOTHREAD


def test_near_a_limit_requests_must_wait_for_it_in_qemu() -> None:
    starved = {"iothread": STARVED}
    waiting = judge(path(mostly("backend", 0.9), limits=NEAR, device_ns=20_000.0, threads=starved))
    assert waiting.evidence[0] == "10k of the 12.5k that are allowed (iops)"
    assert waiting.evidence[1] == "7.2 requests waited in QEMU at a time"
    assert waiting.evidence[2].startswith("thread 'IO iothread0' could have run and had no CPU"), "the other reason"
    for other, cause in (
        (path(mostly("backend", 0.9), limits={"iops": (20_000.0, 10_000.0)}, device_ns=20_000.0), Cause.BACKEND),
        (path(mostly("backend", 0.9), limits=NEAR, device_ns=700_000.0), Cause.DEVICE),
        (path(mostly("device", 0.9), limits=NEAR), Cause.DEVICE),
        (path(limits=NEAR, threads=starved), Cause.HOST_CPU),
        (replace(path(mostly("backend", 0.9), limits=NEAR), layers=layers({"backend": 1.0})), Cause.UNDECIDED),
    ):
        found = judge(other)
        assert found.cause is cause
        assert any("that are allowed (iops)" in line for line in found.evidence), "what is allowed is always said"


def test_what_removes_a_limit_is_told_as_a_command_where_it_is_known() -> None:
    limits = {"iops": (10_200.0, 10_000.0)}
    assert "`disk.throttle_...` of the arm" in judge(path(limits=limits)).experiment
    assert "`virsh blkdeviotune`" in judge(path(limits=limits, origin="libvirt")).experiment
    by_hand = judge(path(limits=limits, origin="monitor")).experiment
    assert "`block_set_io_throttle` of QMP" in by_hand
    assert "virsh" not in by_hand
    known = judge(path(limits=limits, lifts={"iops": "virsh -c x blkdeviotune vm vda --total-iops-sec 0 --live"}))
    assert "`virsh -c x blkdeviotune vm vda --total-iops-sec 0 --live`" in known.experiment
    group = judge(path(limits={"control group, iops": (10_200.0, 10_000.0)}))
    assert "io.max" in group.experiment
    assert "virsh" not in group.experiment


def live(in_qemu: float, at_device: float, *, busy: float | None, **facts: Any) -> DataPath:
    """A running VM's disk, whose guest's part is not seen: requests in QEMU and at the device, and its busy time."""
    below: dict[Boundary, list[float]] = {"backend": [(in_qemu + at_device) / 10e3 * 1e9]}
    below |= {"device": [at_device / 10e3 * 1e9]} if at_device else {}
    found = split("guest", below, {"device": [1.0]}, [10e3], depth=None)
    device_ns = at_device / 10e3 * 1e9 if at_device else None
    return replace(path(**facts), layers=found, depth=None, idle=None, device_busy=busy, device_ns=device_ns)


@pytest.mark.parametrize("busy", [0.0, 0.02, 0.1, 0.3, 0.44])
@pytest.mark.parametrize("each_ms", [0.4, 30, 200])
@pytest.mark.parametrize("shares", [SHARES, {"ring": 0.1, "backend": 0.8, "device": 0.1}], ids=["all", "backend"])
def test_vcpus_that_wait_for_a_cpu_are_not_the_limit_by_what_they_used(
    busy: float, each_ms: float, shares: Mapping[Boundary, float]
) -> None:
    """Seen of a guest with few cpu.shares beside hogs: "the vCPUs: its 1 vCPUs used 0.00 CPUs"."""
    iops = 4e3 / each_ms
    facts = path(threads={"vcpu": thread("vcpu", "CPU 0/TCG", busy=busy, stalled=0.95 - busy)})
    found = judge(replace(facts, layers=layers(shares, iops=iops, depth=4.0), iops=iops))
    assert Cause.VCPU not in (found.cause, found.also)


def test_a_disk_that_rests_is_not_the_limit_of_a_guest_that_hands_over_few() -> None:
    """Seen of a guest under TCG: fio kept 16 in flight, 1.66 of them below the guest, one of two vCPUs was full."""
    vcpus = {"vcpu": thread("vcpu", "CPU 1/TCG", busy=0.15), "full": thread("vcpu", "CPU 0/TCG", busy=0.98)}
    found = judge(live(0.63, 1.03, busy=0.43, threads=vcpus))
    assert found.cause is Cause.UNDECIDED
    thread_ = "thread 'IO iothread0' used 30 % of a CPU"
    assert found.evidence[:3] == (
        f"this host's disk is not the limit: it had no request 57 % of the time, and {thread_}",
        "1.66 requests were in flight below the guest: it sends no more at a time, and its own part is not seen",
        "thread 'CPU 0/TCG' used 98 % of a CPU: a program that does its I/O there may send no more",
    )
    assert "aqu-sz is well above 1.66, the time passes in the guest (`top` there" in found.experiment
    alone = judge(live(0.63, 1.03, busy=0.43, threads={"vcpu": SPINNING}))
    assert alone.cause is Cause.VCPU, "all of its vCPUs are full"
    waiting = judge(live(0.63, 1.03, busy=0.43, threads={"vcpu": thread("vcpu", "CPU 0/KVM", busy=0.5, stalled=0.4)}))
    assert waiting.cause is Cause.HOST_CPU
    assert judge(live(2.0, 6.5, busy=0.46)).cause is Cause.UNDECIDED, "many at once, and none for longer"
    bursts = judge(live(0.2, 0.8, busy=0.3))
    assert bursts.cause is Cause.UNDECIDED, "several at once and none at other times are not one at a time"


def test_a_guest_that_asks_for_little_is_not_said_to_be_held_back() -> None:
    """Seen of a guest that reads 60 times a second of itself, beside hogs on its CPU."""
    late = {"vcpu": thread("vcpu", "CPU 0/TCG", busy=0.16, stalled=0.84)}
    found = judge(live(0.1, 0.0, busy=None, threads=late, origin="monitor", throttled=0.5))
    assert found.cause is Cause.NOT_BOUND
    assert "thread 'CPU 0/TCG' could have run and had no CPU for 84 % of the time" in found.evidence
    assert "its control groups held CPUs back (cpu.max): 0.50 of them at a time, on average" in found.evidence
    loaded = live(6.0, 0.0, busy=None, threads={"iothread": STARVED}, origin="monitor")
    unseen = "whether it is cpu.max of its control group that holds it back is not seen"
    assert judge(loaded).cause is Cause.HOST_CPU
    assert unseen in judge(loaded).evidence
    assert unseen not in judge(replace(loaded, throttled=0.0)).evidence
    assert judge(replace(loaded, throttled=0.5)).cause is Cause.THROTTLE


@pytest.mark.parametrize("busy", [0.1, 0.6, 0.8, 0.99])
@pytest.mark.parametrize("role", ["main", "iothread"])
def test_few_requests_beside_a_busy_main_loop_are_not_known_to_be_all_that_is_wanted(busy: float, role: str) -> None:
    """Seen of a guest that had 0.44 requests in flight while another disk's encryption kept the main loop busy."""
    serves = {role: thread(role, "qemu-system-x86" if role == "main" else "IO iothread0", busy=busy)}
    found = judge(replace(live(0.3, 0.0, busy=None, threads=serves, origin="monitor"), serving=role))
    held_up = role == "main" and busy > 0.75
    assert (found.cause is Cause.UNDECIDED) is held_up, found
    assert (found.cause is Cause.NOT_BOUND) is not held_up
    assert any("the guest's vCPUs may wait while it works" in line for line in found.evidence) is held_up
    assert ("whether others wait in the guest is not seen" in found.evidence[0]) is held_up
    assert ("IOThread" in found.experiment) is held_up


def test_a_disk_without_requests_is_not_limited_by_what_its_group_does() -> None:
    idle = replace(path(limits={"iops": (300.0, 300.0)}), iops=0.0, layers=None, origin="monitor")
    for held, cause in ((None, Cause.UNDECIDED), (0, Cause.IDLE), (4, Cause.THROTTLE)):
        found = judge(replace(idle, held=held))
        assert found.cause is cause
        assert ("300 of the 300 that are allowed (iops)" in found.evidence) is (cause is not Cause.IDLE)


def test_kinds_of_requests_that_differ_are_told_apart() -> None:
    slow = Operation(kind="read", iops=100.0, bandwidth=0.0, mean_ns=20e6, in_flight=2.0)
    kinds = (slow, replace(slow, kind="write", mean_ns=1.5e6))
    disk = live(0.5, 15.5, busy=1.0, operations=kinds)
    assert "each takes: reads 20 ms, writes 1.50 ms" in judge(disk).evidence
    alike = judge(replace(disk, operations=(slow, replace(kinds[1], mean_ns=18e6))))
    assert not any(line.startswith("each takes") for line in alike.evidence)


def test_a_live_disk_that_is_at_its_limit_is_named() -> None:
    for in_qemu, at_device, busy in ((0.5, 15.5, 1.0), (1.0, 2.0, 0.97), (0.6, 1.4, 0.8), (6.0, 23.0, 0.72)):
        found = judge(live(in_qemu, at_device, busy=busy))
        assert found.cause is Cause.DEVICE, (in_qemu, at_device, busy)
        assert "of the time below the guest" in found.evidence[0]
    full = judge(live(0.5, 15.5, busy=1.0, threads={"a": SPINNING, "b": thread("vcpu", "CPU 1/KVM", busy=0.2)}))
    assert any("a program that does its I/O there may send no more" in line for line in full.evidence)
    assert judge(live(0.1, 0.8, busy=0.8)).cause is Cause.DEPTH, "one at a time, always the same one"
    assert judge(live(9.0, 1.0, busy=0.4)).cause is Cause.BACKEND, "many wait in QEMU while the device rests"
    assert judge(live(0.6, 0.4, busy=0.45)).cause is Cause.DEPTH


def test_time_below_qemu_is_not_qemus_own_where_nothing_tells_them_apart() -> None:
    served = judge(live(8.0, 0.0, busy=None, origin="monitor", protocol="nbd"))
    assert served.cause is Cause.UNDECIDED
    assert "host block layer and device, which are not told apart" in served.evidence[0]
    assert "over nbd: its server and the network" in served.experiment
    for unknown in ("", "file", "host_device"):
        found = judge(live(8.0, 0.0, busy=None, origin="monitor", protocol=unknown))
        assert "network" not in found.experiment, "nothing says that there is one"
    direct = judge(live(8.0, 0.0, busy=0.9, origin="monitor", direct=True))
    assert "cache" not in direct.experiment, "its requests pass the page cache by"
    beside = judge(live(8.0, 0.0, busy=0.9, origin="monitor", unread=("a backing image: /x",)))
    assert "in its path, and not measured: a backing image: /x" in beside.evidence
    assert "cache" not in beside.experiment
    cached = judge(live(8.0, 0.0, busy=0.9, origin="monitor"))
    assert cached.cause is Cause.UNDECIDED
    assert "`cache=none` tells them apart" in cached.experiment
    assert "this host's disk had a request 90 % of the time" in cached.evidence


def test_the_limit_of_an_arm_is_named_by_its_own_setting() -> None:
    stack = replace(STACK, disk=replace(STACK.disk, throttle_iops=500, throttle_bps_read=Bytes(1 << 20)))
    measured = Measurement(values=(("iops", 499.0), ("read.bandwidth", 1e6), ("latency.mean", 1e6)))
    found = judge(path_of({}, measured, stack, WORKLOAD))
    assert found.cause is Cause.THROTTLE
    assert found.experiment == "raise or remove the limit (`disk.throttle_iops` of the arm) and measure again"


def test_of_several_threads_without_a_cpu_the_one_that_waits_longest_is_named() -> None:
    found = judge(path(threads={"iothread": STARVED, "vcpu": thread("vcpu", "CPU 0/KVM", busy=0.4, stalled=0.5)}))
    assert found.evidence[0] == "thread 'CPU 0/KVM' could have run and had no CPU for 50 % of the time"


def test_others_on_the_disk_are_named_and_so_is_what_to_do() -> None:
    found = judge(path({"application": 0.6, "ring": 0.4}, device_ns=600_000.0, others_share=0.8))
    assert "others caused 80 % of the bytes of its disk" in found.evidence
    assert found.experiment.startswith("stop the others")
    starved = judge(path(device_ns=300_000.0, others_share=0.8, threads={"iothread": STARVED}))
    assert starved.cause is Cause.HOST_CPU
    assert starved.evidence[-1] == "others caused 80 % of the bytes of its disk", "it loads both"
    alone = judge(path(mostly("device", 0.9), depth=1.0, device_ns=90_000.0, others_share=0.98, neighbours=("vm2",)))
    assert alone.cause is Cause.DEVICE, "more I/Os in flight give back nothing that a neighbour took"
    assert "others caused 98 % of the bytes of its disk (also on it: vm2)" in alone.evidence
    assert alone.experiment.startswith("stop the others")
    unsure = judge(path(depth=1.0, device_ns=9e6, others_share=0.98))
    assert (unsure.cause, unsure.experiment) == (Cause.UNDECIDED, alone.experiment)


def test_where_a_thread_ends_follows_from_what_an_io_costs_it() -> None:
    found = judge(path(threads={"iothread": thread("iothread", "IO iothread0", busy=0.95)}))
    assert "95.0 us of CPU for each I/O, so at most 10.5k IOPS" in found.evidence[0]


def test_rounds_that_do_not_agree_decide_nothing() -> None:
    def said(cause: Cause) -> Bottleneck:
        return Bottleneck(cause=cause, evidence=(f"by {cause}",), experiment="x")

    assert bottleneck_of([]) is None
    device, load = said(Cause.DEVICE), said(Cause.LOAD)
    found = bottleneck_of([device, load, device])
    assert found is not None
    assert (found.cause, found.rounds, found.of, found.evidence) == (Cause.DEVICE, 2, 3, ("by device",))
    found = bottleneck_of([device, load])
    assert found is not None
    assert found.cause is Cause.UNDECIDED
    assert "device 1, load-generator 1" in found.evidence[0]


@pytest.mark.parametrize(
    ("words", "offered"),
    [("rw=randread,rate_iops=200", 200.0), ("rw=randread,rate_iops=200,numjobs=2", 400.0),
     ("rw=randread", None), ("rw=randread,rate_iops=5,6", None)],
)  # fmt: skip
def test_a_load_that_is_offered_is_compared_with_its_rate(words: str, offered: float | None) -> None:
    measured = Measurement(values=(("iops", 199.0), ("latency.mean", 1e6)))
    path = path_of({}, measured, Stack(), parse_workload(words)[0])
    assert path.offered == offered
    assert path.depth is None or offered is None


def test_what_others_read_from_the_device_does_not_hide_a_page_cache() -> None:
    begin, stop = sample(1, "begin"), sample(3, "stop")
    parts = {"fio.json": recorded("randread.both").encode(), "counters.jsonl": lines(begin, stop)}
    path = path_of(parts, derive(parts, stack=STACK, workload=WORKLOAD), STACK, WORKLOAD)
    assert path.served == pytest.approx(1, abs=0.02)
    for one in (begin, stop):
        one["processes"]["load"]["7"]["io"] = "read_bytes: 4096\nwrite_bytes: 0"
    parts["counters.jsonl"] = lines(begin, stop)
    path = path_of(parts, derive(parts, stack=STACK, workload=WORKLOAD), STACK, WORKLOAD)
    assert path.served == 0
    assert judge(path).cause is Cause.PAGE_CACHE


def test_a_limit_of_a_control_group_on_the_disk_is_the_limit_of_a_trial() -> None:
    header = HEADER | {"io_limits": ["254:0 read_iops=1000000", "8:0 read_iops=10"]}
    captured = b"".join(json.dumps(one).encode() + b"\n" for one in (header, sample(1, "begin"), sample(3, "stop")))
    parts = {"fio.json": recorded("randread.both").encode(), "counters.jsonl": captured}
    measured = derive(parts, stack=STACK, workload=WORKLOAD)
    limits = path_of(parts, measured, STACK, WORKLOAD).limits
    assert limits == {"control group, read.iops": (1e6, measured.get("read.iops"))}


def lines(*samples: dict[str, Any]) -> bytes:
    return b"".join(json.dumps(line).encode() + b"\n" for line in (HEADER, *samples))


JOINED = {Cause.DEVICE: "device", Cause.BACKEND: "backend", Cause.RING: "ring"}


@pytest.mark.parametrize("joins", range(2 ** (len(BOUNDARIES) - 1)))
@pytest.mark.parametrize("seen", [BOUNDARIES, BOUNDARIES[2:]], ids=["trial", "live"])
def test_a_layer_that_is_not_told_apart_is_accused_under_none_of_its_names(
    seen: tuple[Boundary, ...], joins: int
) -> None:
    """Every way to join neighbours, with most of the time in each of the layers in turn."""
    for heavy in seen:
        shares = mostly(heavy, 0.9)
        totals = {one: sum(shares[below] for below in seen[index:]) * 1e6 for index, one in enumerate(seen)}
        kept = [one for index, one in enumerate(seen) if index == 0 or not joins >> (index - 1) & 1]
        found = split("guest", {one: [totals[one]] for one in kept}, {one: [1.0] for one in kept}, [8e3], depth=None)
        judged = judge(replace(path(origin="monitor"), layers=found, depth=None, latency_ns=None))
        apart = {one.boundary for one in found.layers if not one.joined}
        assert judged.cause is Cause.UNDECIDED or JOINED.get(judged.cause, "") in apart, (kept, heavy, judged)
        if heavy in apart and heavy in JOINED.values():
            assert JOINED.get(judged.cause) == heavy, "and one that is apart is named"
        elif heavy in ("ring", "backend", "device"):
            assert "not told apart" in judged.evidence[0], (kept, heavy, judged)


def test_a_layer_lies_where_its_label_says() -> None:
    found = layers({"application": 0.2, "ring": 0.5, "device": 0.3})
    for asked in (("ring",), ("backend",), ("ring", "device")):
        assert BELOW["guest"]["ring"] not in " ".join(one.label for one in found.within(*asked) if one.joined)
    assert [one.boundary for one in found.within("ring", "backend")] == ["ring"]


def test_a_disk_whose_requests_take_long_is_never_said_not_to_be_the_limit() -> None:
    slow = split("guest", {"backend": [201.5e6], "device": [201e6]}, {"device": [1.0]}, [2.0], depth=None)
    sick = replace(path(origin="monitor", threads={}), iops=2.0, layers=slow, depth=None, latency_ns=None)
    found = judge(sick)
    assert found.cause is Cause.DEVICE
    assert found.evidence[0] == "each request takes 202 ms, of it 201 ms in: host block layer and device"
    unknown = split("guest", {"backend": [201e6]}, {}, [2.0], depth=None)
    assert judge(replace(sick, layers=unknown)).cause is Cause.UNDECIDED
    quick = split("guest", {"backend": [2e6], "device": [1.5e6]}, {"device": [1.0]}, [2.0], depth=None)
    told = judge(replace(sick, layers=quick))
    assert told.cause is Cause.NOT_BOUND
    assert "each request takes 2 ms, of it 1.50 ms in: host block layer and device" in told.evidence
    offered = path(offered=10_000.0, depth=1.0)
    late = replace(offered, layers=layers(mostly("device", 0.9), iops=10.0, depth=1.0), latency_ns=None)
    assert (judge(offered).cause, judge(late).cause) == (Cause.NOT_BOUND, Cause.DEVICE)


def test_stalls_errors_and_what_else_is_known_stand_beside_every_cause() -> None:
    facts: dict[str, Any] = {
        "stalled": 0.25,
        "stalls": 3,
        "seconds": 6.0,
        "failed": 12.0,
        "unread": ("a throttle filter",),
    }
    for cause, planted in PLANTED:
        if planted.iops > 0 and cause not in (Cause.NOT_BOUND, Cause.HUNG) and planted.layers is not None:
            told = judge(replace(planted, **facts)).evidence
            assert "12 requests a second failed" in told
            assert "for 25 % of the time nothing was completed while requests were in flight, in 3 stalls" in told
            assert "in its path, and not measured: a throttle filter" in told
    slow = layers(SHARES, iops=10.0, depth=8.0)
    regular = judge(replace(path(), layers=slow, stalled=0.9, stalls=10, seconds=10.0))
    assert not any("stall" in line for line in regular.evidence), "each request takes that long"


def test_a_burst_is_not_so_many_of_what_is_allowed() -> None:
    assert limit_text("iops", 100.0, 400.0) == "400, in a burst beyond the 100 that are allowed for long (iops)"
    assert limit_text("iops", 150.0, 149.0) == "149 of the 150 that are allowed (iops)"
    assert "held CPUs back (cpu.max): 2.40 of them at a time" in judge(path(throttled=2.4)).evidence[0]


@pytest.mark.parametrize("seconds", [0.6, 1.0, 10.0])
@pytest.mark.parametrize(("unit", "limit"), [("iops", 0.2), ("read.iops", 1.0), ("iops", 500.0), ("write.bps", 1e5)])
def test_a_disk_that_its_limit_lets_do_little_does_not_hang(unit: str, limit: float, seconds: float) -> None:
    found = judge(DataPath(iops=0.0, held=8, held_seconds=seconds, limits={unit: (limit, 0.0)}))
    allowed = limit * seconds / (2**20 if unit.endswith("bps") else 1)
    assert (found.cause is Cause.HUNG) is (allowed >= 3), found
    assert "8 " in found.evidence[0]
    assert any("that are allowed" in line for line in found.evidence)


@pytest.mark.parametrize("throttled", [None, 0.0, 0.2, 0.8, 1.6])
@pytest.mark.parametrize("seconds", [0.6, 1.0, 10.0])
def test_a_vm_whose_quota_is_used_up_may_complete_nothing_without_a_hang(
    throttled: float | None, seconds: float
) -> None:
    found = judge(DataPath(iops=0.0, held=8, held_seconds=seconds, throttled=throttled))
    causes = {found.cause, found.also}
    assert Cause.HUNG in causes
    assert (Cause.THROTTLE in causes) is ((throttled or 0.0) >= 0.1), found
    assert any("held CPUs back" in line for line in found.evidence) is (Cause.THROTTLE in causes)


@pytest.mark.parametrize("sync_us", [10, 60, 200])
@pytest.mark.parametrize("every", [1, 4])
def test_a_load_that_waits_for_its_flushes_holds_nothing_back(sync_us: int, every: int) -> None:
    """At depth 1 a write takes 100 us, and after so many of them comes a flush."""
    rate = 1e6 / (100 + sync_us / every)
    values = {
        "iops": rate,
        "write.iops": rate,
        "latency.mean": 1e5,
        "write.latency.mean": 1e5,
        "sync.mean": sync_us * 1e3,
    }
    measured = Measurement(values=tuple(values.items()))
    seen = path_of({}, measured, Stack(), parse_workload(f"rw=randwrite,bs=4k,iodepth=1,fsync={every}")[0])
    assert seen.idle == pytest.approx(0.0, abs=1e-6)
    assert sum(one.in_flight for one in seen.operations) == pytest.approx(1.0)
    assert judge(seen).cause is (Cause.FLUSH if sync_us / every >= 100 else Cause.DEPTH), seen


def test_causes_are_ranked_with_what_speaks_for_and_against_them() -> None:
    starved = thread("iothread", "IO iothread0", busy=0.3, stalled=0.6)
    found = judge(path(mostly("ring", 0.8), threads={"iothread": starved}, throttled=0.02))
    first, *others = found.hypotheses
    assert (found.cause, found.also, first.name, first.named) == (Cause.HOST_CPU, None, "host-cpu", True)
    assert first.share == pytest.approx(0.6)
    ring = next(one for one in others if one.name == "ring")
    assert ring.stands, "what waits for the thread waits in the virtqueue, and is not named beside the reason"
    assert not ring.named
    assert ring.share == pytest.approx(0.8)
    quota = next(one for one in others if one.name == "quota")
    assert quota.against == ("2 % of the time, and it counts from 10 % on",)
    unseen = {one.name: one.unseen for one in others if one.unseen}
    assert unseen["memory"] == "how long tasks of this host wait for memory (PSI)"
    assert "host-cpu" not in unseen


def test_of_two_that_are_seen_by_the_same_facts_both_are_named() -> None:
    def seen(held_back: float) -> Bottleneck:
        waits = thread("iothread", "IO iothread0", busy=0.2, stalled=0.7)
        return judge(path(threads={"iothread": waits}, throttled=held_back, origin="monitor", foreign_cpus=0.0))

    both = seen(0.15)
    assert (both.cause, both.also) == (Cause.HOST_CPU, Cause.THROTTLE)
    assert both.claim == "limited by contention for this host's CPUs, or a limit that was set"
    assert any("had no CPU for 70 %" in line for line in both.evidence)
    assert any("held CPUs back (cpu.max): 0.15" in line for line in both.evidence)
    assert ("too few CPUs" in " ".join(both.evidence), "too few CPUs" in " ".join(seen(0.0).evidence)) == (
        False,
        True,
    )
    alone = seen(0.9)
    assert (alone.cause, alone.also) == (Cause.THROTTLE, None), "the quota accounts for all of it"
    full = {"iothread": thread("iothread", "IO iothread0", busy=0.97), "vcpu": thread("vcpu", "CPU 0/KVM", busy=0.99)}
    assert (judge(path(threads=full)).cause, judge(path(threads=full)).also) == (Cause.VCPU, Cause.IOTHREAD)


@pytest.mark.parametrize(("cause", "planted"), PLANTED, ids=[f"{n}-{one}" for n, (one, _) in enumerate(PLANTED)])
def test_what_is_named_stands_and_what_does_not_stand_says_why(cause: Cause, planted: DataPath) -> None:
    found = judge(planted)
    assert len({one.name for one in found.hypotheses}) == len(found.hypotheses)
    assert [one.cause for one in found.hypotheses if one.named][:1] == ([cause] if cause.accuses else [])
    for one in found.hypotheses:
        assert 0 <= one.share <= 1
        assert one.stands or not one.named
        assert bool(one.against) == (bool(one.supports) and not one.stands), one
        assert bool(one.experiment) == bool(one.supports), one
        assert not one.named or set(one.supports) <= set(found.evidence)


def test_what_a_cause_explains_is_a_cause() -> None:
    names = {row.name for row in ROWS}
    assert len(names) == len(ROWS)
    for row in ROWS:
        assert {*row.explains.split(), *row.may_explain.split()} <= names - {row.name}, row.name
        assert 0 < row.least <= 1


@pytest.mark.parametrize("kind", ["backup", "mirror", "stream", "commit"])
@pytest.mark.parametrize("role", ["iothread", "vcpu"])
@pytest.mark.parametrize("stalled", [0.2, 0.3, 0.45, 0.6])
def test_beside_a_block_job_a_few_waits_for_a_cpu_are_not_the_cause(kind: str, role: str, stalled: float) -> None:
    """Seen of a backup to a slow target, whose writes took 129 ms: "contention for this host's CPUs", of 20 %."""
    threads = {role: thread(role, f"a {role}", busy=0.4, stalled=stalled)}
    for busy in (None, 0.08, 1.0):
        for in_qemu, at_device in ((6.0, 0.0), (6.0, 0.5)):
            seen = live(in_qemu, at_device, busy=busy, threads=threads, unread=(f"{BLOCK_JOB} ({kind} nightly)",))
            found = judge(seen)
            assert (Cause.HOST_CPU in (found.cause, found.also)) is (stalled >= 0.5), found
            assert found.cause is not Cause.BACKEND, "the job's writes are in it"
            assert any(f"({kind} nightly)" in line for line in found.evidence)
            assert judge(replace(seen, unread=())).cause in (Cause.HOST_CPU, Cause.BACKEND)


@pytest.mark.parametrize(("seconds", "stalled", "named"), [(1.0, 0.2, False), (1.0, 0.31, True), (6.0, 0.2, True)])
def test_a_short_look_accuses_nobody_of_two_waits_for_a_cpu(seconds: float, stalled: float, named: bool) -> None:
    late = {"iothread": thread("iothread", "IO iothread0", busy=0.4, stalled=stalled)}
    found = judge(live(6.0, 0.0, busy=None, threads=late, seconds=seconds, origin="monitor"))
    assert (found.cause is Cause.HOST_CPU) is named


@pytest.mark.parametrize(("seconds", "iops", "rests"), [(1.0, 133.0, False), (6.0, 133.0, True), (1.0, 5e3, True)])
def test_of_few_requests_no_disk_is_said_to_rest_that_may_not(seconds: float, iops: float, rests: bool) -> None:
    """Seen in a second of 133 requests, whose main loop was busy: 0.45 in flight, "its rate is not bound"."""
    below: dict[Boundary, list[float]] = {"backend": [0.45 / iops * 1e9]}
    found = split("guest", below, {}, [iops], depth=None)
    answer = judge(DataPath(iops=iops, layers=found, seconds=seconds, origin="monitor"))
    assert (answer.cause is Cause.NOT_BOUND) is rests


@pytest.mark.parametrize("front", ["IDE", "USB"])
@pytest.mark.parametrize("busy", [None, 0.9])
@pytest.mark.parametrize(
    ("flight", "cause"),
    [
        (0.02, Cause.NOT_BOUND),
        (0.17, Cause.UNDECIDED),
        (0.4, Cause.UNDECIDED),
        (0.6, Cause.DEPTH),
        (0.98, Cause.DEPTH),
    ],
)
def test_a_front_end_that_takes_one_request_at_a_time_is_named(
    front: str, busy: float | None, flight: float, cause: Cause
) -> None:
    """Seen of IDE: 2,755 IOPS where virtio-blk had 7,000, "its rate is not bound by the disk", "a greater depth"."""
    for at_device in (0.0, 0.1 * flight, 0.8 * flight):
        seen = live(flight - at_device, at_device, busy=busy, origin="monitor", front=front, seconds=6.0)
        found = judge(seen)
        assert found.cause is cause, found
        told = f"an emulated {front} disk takes one request at a time, whatever the guest has"
        assert any(told in line for line in found.evidence) is (cause is not Cause.NOT_BOUND)
        assert ("attach it as virtio-blk or virtio-scsi" in found.experiment) is (cause is not Cause.NOT_BOUND)
        assert "depth" not in found.experiment
        assert not any("it sends no more at a time" in line for line in found.evidence)
    assert judge(live(0.17, 0.0, busy=busy, origin="monitor")).cause is Cause.NOT_BOUND


@pytest.mark.parametrize("direct", [True, False])
@pytest.mark.parametrize("busy", [None, 0.9])
def test_a_flush_after_each_write_is_a_candidate(direct: bool, busy: float | None) -> None:
    """Seen of cache=directsync over a device whose flushes take 20 ms: "a longer `--seconds` or a quieter host"."""
    mode, instead = ("directsync", "none") if direct else ("writethrough", "writeback")
    facts: dict[str, Any] = {"origin": "monitor", "writethrough": True, "direct": direct}
    found = judge(live(8.0, 0.0, busy=busy, operations=of(write=(400, 20e6)), **facts))
    assert f"each write is followed by a flush in QEMU (cache={mode}), which is in its time" in found.evidence
    assert found.experiment.startswith(f"`cache={instead}` shows")
    (row,) = (one for one in found.hypotheses if one.name == "write-through")
    assert (row.stands, row.share) == (False, 1.0)
    assert row.against == ("how much of a write's time its flush takes is not measured",)
    alone = judge(live(0.67, 0.0, busy=0.6, operations=of(write=(400, 1.6e6)), **facts))
    assert alone.cause is Cause.DEPTH
    assert f"or shorten each: `cache={instead}` shows" in alone.experiment
    reads = judge(live(8.0, 0.0, busy=busy, operations=of(read=(400, 20e6)), **facts))
    assert not any("flush" in line for line in (*reads.evidence, reads.experiment))


def test_what_a_qcow2_image_reads_besides_may_be_either() -> None:
    """Seen of a compressed image: "its cache of them is too small"."""
    found = judge(path(served=8.3, tables=True))
    assert found.cause is Cause.BACKEND
    assert "tables of the image that its cache does not hold, or compressed clusters" in found.evidence[0]
    assert "qemu-img check -U" in found.experiment
