# SPDX-License-Identifier: Apache-2.0
"""What is said of a live disk, whatever was counted: looks made at random, and what must hold of each."""

import dataclasses
import functools
import re
from random import Random
from typing import Any, NamedTuple

import pytest

from virtune.analyse.layers.bottleneck import judge
from virtune.analyse.layers.path import live_path, live_paths
from virtune.analyse.layers.stations import MOST, RESTING, SEVERAL, SLOW_NS
from virtune.model.bottleneck import Cause, DataPath
from virtune.model.counters import UNSEEN, DiskUse, PressureUse, RoleUse, ThreadUse, Use
from virtune.model.live import (
    DiskCount,
    DiskRates,
    LiveDisk,
    LiveVm,
    Operation,
    RingCount,
    RingRates,
    rates_between,
    ring_rates_between,
)
from virtune.model.metric import Boundary
from virtune.report.json.document import MAKERS, part
from virtune.report.json.parts import LayersPart
from virtune.report.pages.diagnose import operations_table

SEEDS = 1_500
SECONDS = 6.0

ACCUSED: dict[Cause, Boundary] = {Cause.DEVICE: "device", Cause.BACKEND: "backend", Cause.RING: "ring"}

SHARE = re.compile(r"(-?[\d,.]+) %")


def rising(chance: Random) -> int:
    """A count of a look: often none, from one to a million, and at times less than before."""
    return chance.choice((0, 0, -3, int(10 ** chance.uniform(0, 6)), int(10 ** chance.uniform(0, 6))))


def counts(chance: Random) -> tuple[DiskCount, DiskCount]:
    """Two counts of a disk with any mix of operations, whose requests take from a microsecond to ten seconds."""
    begin = dict.fromkeys((one.name for one in dataclasses.fields(DiskCount)), 10**7)
    end = dict(begin)
    for kind, time in (
        ("reads", "read_ns"),
        ("writes", "write_ns"),
        ("flushes", "flush_ns"),
        ("discards", "discard_ns"),
    ):
        count = rising(chance) if kind in ("reads", "writes") or chance.random() < 0.3 else 0
        end[kind] += count
        end[time] += int(count * 10 ** chance.uniform(3, 10))
    end["read_bytes"] += max(0, end["reads"] - begin["reads"]) * 4096
    end["written_bytes"] += max(0, end["writes"] - begin["writes"]) * 8192
    end["failed"] += chance.choice((0, 0, 0, 40))
    end["t_ns"] = begin["t_ns"] + int(SECONDS * 1e9)
    return DiskCount(**begin), DiskCount(**end)


def rings(chance: Random, done: int) -> tuple[RingRates, ...]:
    """Its virtqueue, seen or not, with as many requests as QEMU counted or others."""
    if chance.random() < 0.4:
        return ()
    completed = max(0, chance.choice((done, done, int(done * 1.02), int(done / 2), done + 2_000)))
    size = chance.choice((4, 256))
    offered = chance.uniform(0, size)
    quiet = 0.0 if completed and chance.random() < 0.8 else chance.uniform(0, SECONDS)
    return (
        RingRates(
            seconds=SECONDS, completed=completed, offered_mean=offered, taken_mean=offered * chance.random(),
            samples=int(chance.choice((10, 2_000))), size=size, inside=chance.randrange(size) if quiet else 0,
            quiet_seconds=quiet, stalled_seconds=chance.choice((0.0, chance.uniform(0, SECONDS + 0.1))),
            stalls=chance.randrange(4), within=completed,
        ),
    )  # fmt: skip


def used(chance: Random, done: int, each_us: float) -> Use | None:
    """The host's disk and QEMU's threads, with a device that counts the same requests or others."""
    if chance.random() < 0.2:
        return None
    reads = max(0, chance.choice((done, done, done * 70, done // 2, 0)))
    mean = chance.choice((each_us * chance.uniform(0, 1.1), 10 ** chance.uniform(0, 7)))
    busy, waits = chance.choice(((1.0, 0.1), (1.0, 1.0), (0.3, 0.1), (0.3, 0.0)))
    threads = tuple(
        ThreadUse(tid=tid, comm=name, cpu_seconds=busy * SECONDS * chance.random(),
                  wait_seconds=waits * SECONDS * chance.random(),
                  first=tid == 1)
        for tid, name in ((1, "qemu"), (2, "CPU 0/KVM"), (3, "IO io1"))
    )  # fmt: skip
    device = DiskUse(
        name="sda", reads=reads, writes=0, read_bytes=reads * 4096, written_bytes=0, read_merges=0, write_merges=0,
        discards=0, flushes=0, read_latency_us_mean=mean, write_latency_us_mean=None,
        latency_us_mean=mean if reads else None, busy_percent=chance.uniform(0, 100), queue_depth_mean=1.0,
        stuck=0 if reads else chance.randrange(3),
    )  # fmt: skip
    role = RoleUse(
        role="guest", cpu_seconds=1.0, user_seconds=0.5, system_seconds=0.5, wait_seconds=None, threads=threads,
        read_bytes=chance.choice((None, 0, reads * 4096, reads * 400)), written_bytes=0,
        major_faults=chance.choice((0, 0, 0, 0, 300)),
    )  # fmt: skip
    return Use(
        begin_ns=0, end_ns=int(SECONDS * 1e9), cpu=None, roles=(role,), disks=(device,) * chance.randrange(2),
        pressure=(PressureUse(resource="memory", some_percent=chance.uniform(0, 100), full_percent=None),),
        caches=(), load_1min=None, throttled_seconds=None, swapped_pages=None,
    )  # fmt: skip


class Look(NamedTuple):
    """What a disk did, and the facts of its path."""

    rates: DiskRates
    path: DataPath


def looked(seed: int) -> Look | None:
    """A look at a disk; None where its counters went back."""
    chance = Random(seed)
    before, after = counts(chance)
    rates = rates_between(before, after)
    done, each_us = rates.requests, rates.total_ns / 1e3 / max(1, rates.requests)
    disk = LiveDisk(
        target="vda", path=chance.choice(("/x", None)), threads=chance.choice(((), ("IO io1",))), devices=("sda",),
        direct=chance.random() < 0.5, limits=chance.choice(({}, {"iops": 10 ** chance.uniform(0, 6)})),
        unread=chance.choice(((), ("a backing image: /y",))), protocol=chance.choice(("", "file", "nbd")),
    )  # fmt: skip
    vm = LiveVm(name="vm", pid=1, disks=(disk,), uri=chance.choice(("", "qemu:///system")))
    both = {"vda": before}, {"vda": after}
    seen = used(chance, done, abs(each_us))
    found = live_paths(vm, (disk,), both, seen, {"vda": rings(chance, done)})
    return next((Look(rates, path) for _, rates, path in found), None)


@functools.cache
def looks() -> list[tuple[int, Look]]:
    """The looks of all seeds, made where they are first asked for: each worker of a run collects this module."""
    return [(seed, found) for seed in range(SEEDS) if (found := looked(seed)) is not None]


def told(found: Look) -> tuple[Cause, list[str]]:
    verdict = judge(found.path)
    return verdict.cause, [*verdict.evidence, verdict.experiment]


def test_looks_differ_in_all_that_matters() -> None:
    """Else what holds of them says little."""
    causes = {judge(found.path).cause for _, found in looks()}
    assert causes >= set(Cause) - {Cause.WORKERS, Cause.LOAD}
    assert sum(found.path.iops == 0 for _, found in looks()) > 20
    assert any(one.joined for _, found in looks() if found.path.layers for one in found.path.layers.layers)


def test_no_layer_is_accused_that_is_not_apart() -> None:
    for seed, found in looks():
        cause, path = judge(found.path).cause, found.path
        if cause not in ACCUSED or path.layers is None:
            continue
        apart = {one.boundary: one.share for one in path.layers.layers if not one.joined}
        measured = cause is Cause.DEVICE and (path.device_ns or 0.0) >= MOST * path.layers.total_ns
        tables = cause is Cause.BACKEND and (path.served or 0.0) > 1
        assert measured or tables or apart.get(ACCUSED[cause], 0.0) >= MOST, (seed, cause, path.layers)


def test_a_disk_that_completes_nothing_while_requests_wait_is_not_idle_and_not_unbound() -> None:
    for seed, found in looks():
        path, (cause, lines) = found.path, told(found)
        if path.iops > 0 or not path.held:
            continue
        assert cause is not Cause.NOT_BOUND, seed
        assert cause is not Cause.UNDECIDED or path.failed or "in flight" in lines[0], (seed, lines)
        if path.held_seconds >= 0.5 and not any(limit < 10 for limit, _ in path.limits.values()):
            assert cause is Cause.HUNG, (seed, lines)
            assert lines[0].startswith(f"{path.held} request{' waits' if path.held == 1 else 's wait'}"), lines


def test_no_wait_of_a_vcpu_explains_requests_that_take_long_below_it() -> None:
    named = 0
    for seed, found in looks():
        cause, lines = told(found)
        path = found.path
        if cause is not Cause.HOST_CPU or "CPU 0/KVM" not in lines[0] or path.layers is None:
            continue
        named += 1
        ring = sum(one.share for one in path.layers.layers if one.boundary == "ring" and not one.joined)
        assert path.layers.total_ns < SLOW_NS or ring >= MOST, (seed, lines)
    assert named > 5


def test_what_only_the_virtqueue_completes_is_no_idle_disk() -> None:
    """QEMU counts no discard of virtio-blk: a disk that had hundreds a second was said to have completed nothing."""
    unseen = 0
    for seed, found in looks():
        path, (cause, lines) = found.path, told(found)
        if not path.uncounted or path.iops > 0 or cause is Cause.HUNG:
            continue
        unseen += cause is Cause.UNDECIDED
        assert not any("no I/O was completed" in line for line in lines), (seed, lines)
        assert cause is not Cause.NOT_BOUND, seed
        assert any("that QEMU does not count" in line for line in lines), (seed, lines)
    assert unseen > 5


def test_nothing_limits_no_disk_whose_requests_take_long() -> None:
    for seed, found in looks():
        if judge(found.path).cause is Cause.NOT_BOUND:
            layers = found.path.layers
            assert layers is not None, seed
            assert layers.total_ns < SLOW_NS, seed
            assert any("each request takes" in line for line in told(found)[1]), seed


def test_what_is_in_flight_is_the_sum_of_its_operations() -> None:
    for seed, found in looks():
        path, rates = found.path, found.rates
        assert sum(one.in_flight for one in path.operations) == pytest.approx(rates.in_flight), seed
        assert sum(one.iops for one in path.operations) == pytest.approx(path.iops), seed
        written: list[Any] = [part(Operation, one) for one in path.operations]
        assert [one["iops"] for one in written] == [one.iops for one in path.operations]
        assert operations_table(path.operations) is not None
        if path.layers is not None and path.layers.top == "backend":
            assert path.layers.in_flight == pytest.approx(rates.in_flight), seed


def test_no_sentence_has_a_figure_that_cannot_be() -> None:
    for seed, found in looks():
        lines = told(found)[1] + list(() if found.path.layers is None else found.path.layers.reasons)
        for line in lines:
            shares = [float(number.replace(",", "")) for number in SHARE.findall(line)]
            assert all(0 <= share <= 100 for share in shares), (seed, line)
            assert not re.search(r"(^| )-\d", line) or "is not clearly above 0" in line, (seed, line)
            assert "nan" not in line, (seed, line)
        if found.path.layers is not None:
            assert MAKERS[LayersPart](found.path.layers)["total_ns"] == found.path.layers.total_ns, seed


def test_of_flushes_it_is_not_said_that_others_answered_them() -> None:
    """QEMU, the virtqueue and the sum of operations count them; this host's disk is then not compared."""
    for seed, found in looks():
        layers, rates = found.path.layers, found.rates
        if layers is not None and rates.uncompared > 0.05 and layers.top == "backend":
            assert not any("counted" in line for line in layers.reasons), (seed, layers.reasons)
            assert "device" not in {one.boundary for one in layers.layers}, seed


def test_a_page_cache_is_named_only_where_it_can_be_what_limits() -> None:
    """Not beside a backing image, encryption or a filter that may serve or hold the requests, nor of requests that
    take longer than memory does, nor of a VM that asks for little.
    """
    found = [(seed, one.path) for seed, one in looks() if judge(one.path).cause is Cause.PAGE_CACHE]
    for seed, path in found:
        layers = path.layers
        assert not path.unread, seed
        assert layers is None or (layers.total_ns < SLOW_NS and layers.in_flight >= RESTING), (seed, layers)
    assert found


def test_of_requests_that_wait_below_it_a_guest_is_not_suspected() -> None:
    """A control group's limit, which `top` does not read, held 8 requests for 158 ms each above a disk at rest."""
    rested = 0
    for seed, found in looks():
        path, lines = found.path, told(found)[1]
        if path.layers is None or not any("this host's disk is not the limit" in line for line in lines):
            continue
        rested += 1
        at_device = path.iops * (path.device_ns or 0.0) / 1e9
        device = sum(one.share for one in path.layers.within("device"))
        most = max(device, (path.device_ns or 0.0) / path.layers.total_ns) >= MOST
        assert most or path.layers.in_flight - at_device < SEVERAL, (seed, path.layers)
    assert rested


@pytest.mark.parametrize("share", [0.0, 0.1, 0.5, 0.9])
@pytest.mark.parametrize("inside", [1, 8, 256])
def test_what_hangs_is_no_wait_in_the_virtqueue(share: float, inside: int) -> None:
    """QEMU times a request when it ends, and the virtqueue holds it meanwhile."""
    quiet, each_ns = SECONDS * share, 2_000_000
    done = int(inside * (SECONDS - quiet) * 1e9 / each_ns)
    begin = dict.fromkeys((one.name for one in dataclasses.fields(DiskCount)), 0)
    after = DiskCount(**begin | {"reads": done, "read_ns": done * each_ns, "t_ns": int(SECONDS * 1e9)})
    ring = RingRates(
        seconds=SECONDS, completed=done, offered_mean=inside * 1.01, taken_mean=None, samples=2_000, size=256,
        inside=inside, quiet_seconds=quiet,
    )  # fmt: skip
    disk = LiveDisk(target="vda", path=None, threads=(), devices=(), direct=True, limits={}, protocol="nbd")
    path = live_path(disk, rates_between(DiskCount(**begin), after), UNSEEN, rings=(ring,), all_read=0)
    assert path.layers is not None
    assert path.layers.total_ns == pytest.approx(each_ns, rel=0.02)
    assert path.layers.top == ("backend" if share else "ring")


@pytest.mark.parametrize("seconds", [1.0, 10.0])
@pytest.mark.parametrize("done", [0, 5, 100, 16_000])
@pytest.mark.parametrize("late", [0, 3, 50, 5_000])
@pytest.mark.parametrize("share", [0.0, 0.02, 0.2])
@pytest.mark.parametrize("few", [0, 8, 40])
def test_counts_that_begin_apart_tell_of_no_other_requests(
    seconds: float, done: int, late: int, share: float, few: int
) -> None:
    """A burst of requests may come between QEMU's count and the virtqueue's, at the end of a look: `late`. A few that
    QEMU does not count ask for the disk's name.
    """
    more = int(share * done) + few
    begin = dict.fromkeys((one.name for one in dataclasses.fields(DiskCount)), 0)
    after = DiskCount(**begin | {"reads": done, "read_ns": done * 100_000, "t_ns": int(seconds * 1e9)})
    count = RingCount(completed=7 + done + more + late, before=7 + done + more, seconds=seconds, samples=1_000)
    ring = ring_rates_between((RingCount(completed=7),), (count,))
    assert ring is not None
    disk = LiveDisk(target="vda", path=None, protocol="nbd")
    counts = ({"vda": DiskCount(**begin)}, {"vda": after})
    vm = LiveVm(name="vm", pid=None, disks=(disk,))
    ((_, _, path),) = live_paths(vm, (disk,), counts, None, {"vda": (ring,)})
    assert (path.uncounted > 0) is (more > max(10, 0.05 * done))


@pytest.mark.parametrize("more", range(-6, 7))
def test_of_few_requests_a_count_of_one_or_two_more_tells_of_no_others(more: int) -> None:
    """A disk of 200 ms at depth 1, looked at for 3 s: seen were 17 requests in the virtqueue beside 14 of QEMU."""
    done, seconds, each_ns = 15, 3.0, 200_000_000
    begin = dict.fromkeys((one.name for one in dataclasses.fields(DiskCount)), 0)
    after = DiskCount(**begin | {"reads": done, "read_ns": done * each_ns, "t_ns": int(seconds * 1e9)})
    ring = RingRates(seconds=seconds, completed=done + more, offered_mean=1.0, taken_mean=None, samples=600)
    disk = LiveDisk(target="vda", path=None, protocol="nbd")
    path = live_path(disk, rates_between(DiskCount(**begin), after), UNSEEN, rings=(ring,), all_read=0)
    assert path.layers is not None
    alike = abs(more) <= 3
    assert (path.layers.total_ns == pytest.approx(each_ns)) is alike
    assert any(" counted " in reason for reason in path.layers.reasons) is not alike
