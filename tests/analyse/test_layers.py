# SPDX-License-Identifier: Apache-2.0
"""Layers from planted truths: they add up, none is negative, and what cannot be told apart is not."""

import json
import random
from typing import Any

import pytest
from tests.analyse.edited_trials import HEADER, WORKLOAD, sample
from tests.analyse.recordings import recorded

from virtune.analyse.layers.path import depth_of, layers_of, split
from virtune.analyse.trial.counters import boundaries_of
from virtune.analyse.trial.derive import derive
from virtune.fio.workloads import parse_workload
from virtune.model.measurement import Measurement
from virtune.model.metric import Boundary
from virtune.model.stack import Disk, Stack

PLANTED: dict[Boundary, float] = {"application": 300e3, "guest": 120e3, "ring": 60e3, "backend": 40e3, "device": 80e3}
"""What a request spends in each layer, in ns."""

ORDER: tuple[Boundary, ...] = tuple(PLANTED)


def below(noise: float, rounds: int = 6, seed: int = 7) -> dict[Boundary, list[float]]:
    """The time from each boundary down, in every round, with independent noise (relative) in every layer."""
    chance = random.Random(seed)
    found: dict[Boundary, list[float]] = {one: [] for one in ORDER}
    for _ in range(rounds):
        parts = [PLANTED[one] * chance.gauss(1, noise) for one in ORDER]
        for index, one in enumerate(ORDER):
            found[one].append(sum(parts[index:]))
    return found


def same(rounds: int = 6, **others: float) -> dict[Boundary, list[float]]:
    return {one: [others.get(one, 1.0)] * rounds for one in ORDER[1:]}


def test_every_layer_is_found_and_they_add_up() -> None:
    seen = below(0.05)
    found = split("guest", seen, same(), [10e3] * 6, depth=8.0)
    assert [one.boundary for one in found.layers] == list(ORDER)
    for one in found.layers:
        assert one.low_ns is not None
        assert one.high_ns is not None
        assert one.low_ns <= PLANTED[one.boundary] <= one.high_ns
    assert sum(one.mean_ns for one in found.layers) == pytest.approx(found.total_ns)
    assert sum(one.share for one in found.layers) == pytest.approx(1)
    assert sum(one.in_flight for one in found.layers) + (found.idle or 0) == pytest.approx(8.0)
    assert found.qavg_ns == pytest.approx(60e3, rel=0.1)
    assert found.gavg_ns == pytest.approx(180e3, rel=0.1)
    assert found.davg_ns == pytest.approx(80e3, rel=0.1)
    assert found.kavg_ns == pytest.approx((found.gavg_ns or 0) - (found.davg_ns or 0))
    assert found.reasons == ()


def test_as_many_requests_are_in_flight_as_the_load_keeps_however_unlike_the_rounds_are() -> None:
    seen: dict[Boundary, list[float]] = {"application": [320e3, 3.2e6], "device": [160e3, 2.4e6]}
    counted: dict[Boundary, list[float]] = {"device": [1.0, 1.0]}
    found = split("file", seen, counted, [100e3, 10e3], depth=32.0)  # a cold first round, or a neighbour in one
    assert found.in_flight == pytest.approx(32.0)
    assert found.idle == pytest.approx(0.0)


def test_what_does_not_differ_from_nothing_is_joined_and_never_negative() -> None:
    seen = below(0.05)
    seen["ring"] = [value * (0.97 if index % 2 else 1.03) for index, value in enumerate(seen["guest"])]
    found = split("guest", seen, same(), [10e3] * 6, depth=None)
    assert [one.boundary for one in found.layers] == ["application", "guest", "backend", "device"]
    assert all(one.low_ns is not None and one.low_ns > 0 for one in found.layers)
    assert sum(one.mean_ns for one in found.layers) == pytest.approx(found.total_ns)
    assert "is not clearly above 0: the virtqueue is not told apart" in found.reasons[0]
    assert found.idle is None
    # the device's own time is the last to be given up
    seen = below(0.05)
    seen["backend"] = [value * (0.99 if index % 2 else 1.01) for index, value in enumerate(seen["device"])]
    found = split("guest", seen, same(), [10e3] * 6, depth=None)
    assert [one.boundary for one in found.layers] == ["application", "guest", "ring", "device"]


def test_no_interval_of_a_latency_has_times_below_0() -> None:
    chance, left_out = random.Random(15), 0
    for seed in range(200):
        rounds = chance.choice((2, 2, 3, 4, 6))
        found = split(
            "guest", below(chance.choice((0.05, 0.5, 1.5)), rounds, seed), same(rounds), [10e3] * rounds, depth=1.0
        )
        for one in found.layers:
            assert (one.low_ns is None) == (one.high_ns is None)
            assert one.low_ns is None or one.low_ns >= 0
        without = any(one.low_ns is None for one in found.layers)
        assert without == any("are too few" in reason for reason in found.reasons)
        left_out += without
    assert 5 < left_out < 195


@pytest.mark.parametrize(("ratio", "told"), [(0.94, False), (0.96, True), (1.04, True), (1.06, False)])
def test_a_boundary_that_counts_other_requests_is_left_out_with_its_reason(ratio: float, told: bool) -> None:
    found = split("guest", below(0.02), same(device=ratio), [10e3] * 6, depth=None)
    assert ("device" in [one.boundary for one in found.layers]) is told
    assert (found.davg_ns is not None) is told
    if not told:
        counted = f"{ratio * 100:.0f} % of" if ratio < 1 else f"{ratio} times"
        assert f"counted {counted} the requests of the load" in found.reasons[0]
        assert "QEMU block layer and engine + host block layer and device" in found.layers[-1].label
    assert sum(one.mean_ns for one in found.layers) == pytest.approx(found.total_ns)


def test_of_one_round_no_interval_is_told_and_what_cannot_be_is_joined() -> None:
    seen: dict[Boundary, list[float]] = {"application": [300e3], "guest": [310e3], "backend": [100e3]}
    found = split("guest", seen, same(1), [10e3], depth=4.0)
    assert [(one.boundary, one.low_ns) for one in found.layers] == [("application", None), ("backend", None)]
    assert found.idle == pytest.approx(1.0)
    with pytest.raises(ValueError, match="no boundary"):
        split("guest", {}, {}, [], depth=None)


def guest_trial(*, stop: bool = True) -> Measurement:
    """A guest's trial of 2 s: the recorded fio did 58,000 I/Os a second, 1/8 of a ms each at depth 8."""
    begin, end = sample(1, "begin"), sample(3, "stop")
    for one, second in ((begin, 1), (end, 3)):
        one["threads"] = {"guest": {
            "7": ["qemu-system-x86", 5 * second, 5 * second, second * 10**8, 0],
            "8": ["CPU 0/KVM", 100 * second, 0, second * 10**9, second * 10**8],
            "9": ["IO iothread0", 20 * second, 30 * second, second * 5 * 10**8, second * 5 * 10**8],
        }}  # fmt: skip
        one["processes"] = {"guest": one["processes"]["load"]}
        one["switches"] = {"guest": {"8": [58_164 * second, 29_082 * second], "9": [5_816 * second, 0]}}
    lines = b"".join(json.dumps(line).encode() + b"\n" for line in (HEADER, begin, end))

    def guest(second: int, mark: str) -> dict[str, Any]:
        text = f"{second + 0.5} 1.0\ncpu 1 2\n 254 0 vda {58000 * second} 0 0 {58 * 110 * second} 0 0 0 0 4 0 0\n"
        return {"t": second * 10**9 + 5, "mark": mark, "text": text}

    looks = {
        mark: {"t": second * 10**9, "stats": {
            "rd_operations": 58000 * second, "wr_operations": 0,
            "rd_total_time_ns": 58000 * 60_000 * second, "wr_total_time_ns": 0,
        }, "exits": 116_328 * second}
        for mark, second in (("begin", 1), ("stop", 3))
    }  # fmt: skip
    marks = [guest(1, "begin"), guest(3, "stop")] if stop else [guest(1, "begin")]
    parts = {
        "fio.json": recorded("randread.both").encode(),
        "counters.jsonl": lines,
        "guest.json": b'{"device": "/dev/vda"}',
        "guest-counters.jsonl": b"".join(json.dumps(one).encode() + b"\n" for one in ({"schema": ""}, *marks)),
        "qemu-blockstats.json": json.dumps(looks).encode(),
        "virtqueue.json": json.dumps({"completed": 116_000, "seconds": 2.0, "offered_mean": 5.22}).encode(),
    }
    return derive(parts, stack=Stack(rig="qemu", disk=Disk(aio="native")), workload=WORKLOAD)


def test_a_trial_of_a_guest_is_timed_at_every_boundary() -> None:
    found = guest_trial()
    assert found.get("below.guest") == pytest.approx(110e3)
    assert found.get("below.ring") == pytest.approx(90e3)
    assert found.get("below.backend") == pytest.approx(60e3)
    assert found.get("requests.guest") == pytest.approx(100, abs=1)
    assert found.get("requests.backend") == pytest.approx(100, abs=1)
    assert found.get("below.device") is not None
    layers = layers_of([found], Stack(rig="qemu"), WORKLOAD)
    assert layers is not None
    assert layers.qavg_ns == pytest.approx(30e3)
    assert sum(one.mean_ns for one in layers.layers) == pytest.approx(found.get("latency.mean"))
    assert layers_of([], Stack(), WORKLOAD) is None


def test_a_boundary_that_was_not_read_twice_is_not_told() -> None:
    assert guest_trial(stop=False).get("below.guest") is None


def test_cpu_time_is_told_by_what_threads_do() -> None:
    found, iops = guest_trial(), 58_164
    assert found.get("cpu.io.vcpu") == pytest.approx(1 / iops, rel=0.01)
    assert found.get("cpu.io.iothread") == pytest.approx(0.5 / iops, rel=0.01)
    assert found.get("cpu.io.main") == pytest.approx(0.1 / iops, rel=0.01)
    assert found.get("cpu.io.worker") is None
    assert found.get("switches.io.vcpu") == pytest.approx(1.5, rel=0.01)
    assert found.get("switches.io.iothread") == pytest.approx(0.1, rel=0.01)
    assert found.get("switches.io.main") is None, "its switches were not read"
    assert found.get("exits.io") == pytest.approx(2, rel=0.01)
    assert found.get("wait.iothread") == pytest.approx(50)
    assert found.get("wait.vcpu") == pytest.approx(100 / 11)
    assert found.get("cpu.host.usr") == pytest.approx(50, abs=1)


@pytest.mark.parametrize(
    ("words", "depth"),
    [("rw=randread,iodepth=8,numjobs=2", 16), ("rw=randread,iodepth=8,rate_iops=100", None),
     ("rw=randread,iodepth=8,thinktime=5", None), ("rw=randread,number_ios=100", None)],
)  # fmt: skip
def test_the_depth_is_told_of_a_load_that_is_held_to_it(words: str, depth: float | None) -> None:
    assert depth_of(parse_workload(words)[0]) == depth


def test_an_export_has_the_layers_that_its_virtqueues_show() -> None:
    rings = {"completed": 20_000, "seconds": 2.0, "offered_mean": 7.0, "taken_mean": 4.0}
    stack = Stack(export="vhost-user-blk", disk=Disk(backend="null-co"))
    parts = {"virtqueue.json": json.dumps(rings).encode()}
    found = boundaries_of(parts, None, stack)
    assert {name: round(one.mean_ns) for name, one in found.items()} == {"ring": 700_000, "backend": 400_000}
    silent = json.dumps(rings | {"taken_mean": None}).encode()
    assert list(boundaries_of({"virtqueue.json": silent}, None, stack)) == ["ring"], "and no more than they show"
    assert boundaries_of(parts, None, Stack(rig="metal")) == {}
