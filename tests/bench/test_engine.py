# SPDX-License-Identifier: Apache-2.0
"""Which engine does a disk's I/O, from what is there, what moved, and who used the CPU."""

import os
from dataclasses import replace
from pathlib import Path

import pytest

from virtune.bench.daemon import Served, export_checks
from virtune.bench.daemon import iothread_check_under_load as export_thread_check
from virtune.bench.verify import (
    WORKERS_NS,
    WORKERS_NS_AGAINST,
    Activity,
    RingOwners,
    Spent,
    direct_check,
    engine_check,
    engine_check_under_load,
    iothread_check_under_load,
    moved_since,
    opened,
    require_verified,
    serving_thread,
    spent_by,
    spent_by_crew,
)
from virtune.model.errors import NotInForceError
from virtune.model.evidence import Check
from virtune.model.stack import Device, Disk, Stack
from virtune.probe.process import Process, Ring, Rings, Thread

URING: Ring = ("io_uring", 3)
CONTEXT: Ring = ("native", 0x1000)
BUSY = Activity(workers_ns=60_000_000, io_ns=100_000_000)


def seen(asked: str, activity: Activity) -> tuple[str | None, bool]:
    check = engine_check_under_load(asked, activity)
    assert (check.setting, check.asked) == ("disk.aio", asked)
    return check.found, check.hidden


@pytest.mark.parametrize("asked", ["threads", "native", "io_uring"])
def test_a_ring_that_moves_does_the_io(asked: str) -> None:
    for ring in (URING, CONTEXT):
        assert seen(asked, Activity(moved={ring: 5}, io_ns=100_000_000)) == (ring[0], False)


def test_workers_that_are_busy_beside_a_moving_ring_are_a_fallback_unless_the_load_flushes() -> None:
    beside = replace(BUSY, moved={URING: 9})
    assert seen("io_uring", beside)[0] == "threads"
    assert seen("io_uring", replace(beside, flushes=True))[0] == "io_uring"
    assert seen("io_uring", replace(beside, alone=False))[0] == "io_uring"  # another disk's workers


def test_workers_do_the_io_where_every_ring_was_seen_to_stand() -> None:
    still = replace(BUSY, moved={URING: 0, CONTEXT: 0})
    for asked in ("threads", "native", "io_uring"):
        assert seen(asked, still) == ("threads", False)
    assert seen("native", replace(still, flushes=True)) == ("threads", False)


def test_less_confirms_threads_than_contradicts_another_engine() -> None:
    some = Activity(workers_ns=WORKERS_NS, io_ns=WORKERS_NS)
    assert seen("threads", some)[0] == "threads"
    assert seen("native", some)[0] is None
    assert seen("native", replace(some, workers_ns=WORKERS_NS_AGAINST))[0] == "threads"
    assert seen("threads", replace(some, alone=False))[0] is None
    assert seen("threads", Activity())[0] is None


def test_a_ring_that_we_may_not_see_moving_is_neither_idle_nor_at_work() -> None:
    veiled = replace(BUSY, moved={CONTEXT: None}, flushes=True)
    assert seen("native", veiled) == (None, True)
    assert seen("native", replace(veiled, moved={}, hidden=frozenset({"native", "io_uring"}))) == (None, True)
    # something does the I/O, all others stand still and workers are idle: it can only be the one that is not shown
    quiet = Activity(moved={CONTEXT: None}, io_ns=100_000_000)
    assert seen("native", quiet)[0] == "native"
    assert seen("io_uring", quiet) == (None, False), "its own rings are shown, and none moved: that is no excuse"


@pytest.mark.parametrize("ns", [0, 5_000_000, 100_000_000])
def test_what_a_hidden_ring_may_have_done_excuses_no_threads_that_were_asked_for(ns: int) -> None:
    """The CPU time of the workers is always shown: where they were idle, something else did the I/O."""
    new = Activity(moved={URING: 900}, loop_rings=True, io_ns=ns)
    for idle in (new, replace(new, moved={}, loop_rings=False, hidden=frozenset({"io_uring", "native"}))):
        assert seen("threads", idle) == (None, False)
        assert seen("threads", replace(idle, alone=False)) == (None, True), "the workers may be of another disk"


def test_an_engine_that_cpu_time_would_tell_is_not_excused_where_there_was_too_little() -> None:
    few = Activity(moved={URING: 3}, loop_rings=True, io_ns=1_000_000)
    assert seen("io_uring", few) == (None, False)
    assert seen("io_uring", replace(few, flushes=True)) == (None, True), "workers flush, whatever the engine"
    assert seen("io_uring", replace(few, alone=False)) == (None, True)
    assert seen("native", replace(few, moved={CONTEXT: None}, hidden=frozenset({"io_uring"}))) == (None, True)


def test_an_event_loop_that_runs_on_io_uring_moves_its_ring_for_itself() -> None:
    loop = Activity(moved={URING: 900}, loop_rings=True, io_ns=100_000_000)
    assert seen("io_uring", loop)[0] == "io_uring"  # by elimination: workers are idle
    assert seen("threads", replace(loop, workers_ns=60_000_000))[0] == "threads"
    assert seen("native", replace(loop, moved={URING: 900, CONTEXT: 4}))[0] == "native"


def test_a_ring_that_appears_with_the_image_is_a_first_sign() -> None:
    both = Rings(places={URING: 0, CONTEXT: 0})
    assert engine_check("native", {CONTEXT}, both).found == "native"
    assert engine_check("native", {URING}, both).agrees is False
    assert engine_check("native", {URING, CONTEXT}, both).found is None
    # an engine that an earlier arm left is not taken for this one's
    assert engine_check("native", set(), both).found is None
    assert engine_check("threads", set(), both).found is None
    assert engine_check("threads", set(), Rings()).found == "threads"
    assert engine_check("io_uring", set(), Rings()).found is None  # QEMU 10 makes it with the first request
    assert engine_check("threads", set(), Rings(hidden=frozenset({"native"}))).found is None


def test_rings_belong_to_the_loop_that_they_came_for() -> None:
    owners = RingOwners()
    assert owners.opened(("io1",), Rings(places={URING: 1}), Rings(places={URING: 2, CONTEXT: 0})) == {CONTEXT}
    assert (owners.of(("io1",)), owners.of(("main",))) == ({CONTEXT}, set())


def test_only_the_rings_that_may_serve_the_disk_are_compared_with_what_they_were(tmp_path: Path) -> None:
    place = tmp_path / "7"
    (place / "fd").mkdir(parents=True)
    (place / "fdinfo").mkdir()
    for number, tail in ((3, 10), (5, 20)):
        (place / "fd" / str(number)).symlink_to("anon_inode:[io_uring]")
        (place / "fdinfo" / str(number)).write_text(f"CqTail:\t{tail}\nUserFiles:\t0\n")
    before = Rings(places={("io_uring", 3): 8, ("io_uring", 5): 2**32 - 1})
    assert moved_since(Process(7, tmp_path), before).moved == {("io_uring", 3): 2, ("io_uring", 5): 21}
    assert moved_since(Process(7, tmp_path), before, {("io_uring", 3)}).moved == {("io_uring", 3): 2}
    assert moved_since(Process(7, tmp_path), Rings(places={("io_uring", 3): None})).moved[("io_uring", 3)] is None


def test_time_is_told_by_role_by_iothread_and_by_vcpu() -> None:
    named = [("qemu", 1), ("CPU 0/KVM", 2), ("CPU 11/TCG", 3), ("IO io1", 4), ("worker", 5), ("worker", 6)]
    named += [("iou-wrk-7", 50), ("IO mon_iothread", 60)]
    spent = spent_by(7, [Thread(tid=7 + i, name=name, cpu_ns=ns) for i, (name, ns) in enumerate(named)])
    assert spent.by_role == {"main": 1, "vcpu": 5, "iothread": 4, "worker": 11, "uring": 50, "other": 60}
    assert (spent.by_iothread, spent.by_vcpu, spent.io_ns) == ({"io1": 4}, {"0": 2, "11": 3}, 16)


def test_where_threads_have_no_names_the_crew_is_known() -> None:
    threads = [Thread(tid=tid, name=name, cpu_ns=10) for tid, name in ((7, "qsd"), (8, "qsd"), (9, "iou-wrk-7"))]
    spent = spent_by_crew(threads, {7})
    assert (spent.of("main"), spent.of("worker"), spent.io_ns) == (10, 10, 20)


def test_the_thread_that_serves_is_told_from_the_one_that_is_only_there() -> None:
    assert serving_thread(2_000_000, 0) is True
    assert serving_thread(0, 30_000_000) is False
    assert serving_thread(0, 6_000_000) is None
    assert serving_thread(0, 6_000_000, main_enough_ns=5_000_000) is False
    assert serving_thread(0, 0) is None
    with_thread = Stack(rig="qemu", device=Device(iothread="io1"))
    for own, main, found in ((30, 0, "io1"), (0, 30, "none"), (0, 0, None)):
        spent = Spent(by_role={"iothread": own * 1_000_000, "main": main * 1_000_000})
        check = iothread_check_under_load(with_thread, spent)
        assert check is not None
        assert check.found == found
    for requests, found in ((40, None), (40_000, "none")):  # a guest without a CPU, and one whose disk is elsewhere
        spent = Spent(by_role={"iothread": 0, "main": 43_000_000}, requests=requests)
        check = iothread_check_under_load(with_thread, spent)
        assert check is not None
        assert check.found == found
    check = iothread_check_under_load(Stack(rig="qemu"), Spent(by_role={"main": 43_000_000}, requests=40))
    assert check is not None
    assert check.found == "none", "the main loop that was asked for is busy"
    check = iothread_check_under_load(Stack(rig="qemu"), Spent(by_role={"iothread": 30_000_000}))
    assert check is not None
    assert (check.asked, check.found) == ("none", "an IOThread")


def test_o_direct_is_read_from_the_descriptor_of_this_very_file(tmp_path: Path) -> None:
    image = tmp_path / "image.raw"
    image.write_bytes(bytes(4096))
    me = Process(os.getpid())
    assert opened(me, image).direct is None
    buffered = os.open(image, os.O_RDONLY)
    assert opened(me, image).direct == "off"
    direct = os.open(image, os.O_RDONLY | os.O_DIRECT)
    assert opened(me, image).direct is None, "held both ways"
    os.close(buffered)
    assert opened(me, image).direct == "on"
    assert direct_check(Disk(cache="none"), opened(me, image)).agrees is True
    assert direct_check(Disk(cache="writeback"), opened(me, image)).agrees is False
    os.close(direct)


def test_what_is_not_what_was_asked_for_ends_the_study() -> None:
    good = Check(setting="disk.aio", asked="native", found="native", proof="seen")
    unseen = replace(good, found=None)
    require_verified("a", [good, unseen])
    with pytest.raises(NotInForceError, match=r"arm 'a': disk\.aio=native was requested, but threads is running"):
        require_verified("a", [good, replace(good, found="threads")])


def test_an_export_that_the_main_loop_serves_is_told_from_one_in_its_iothread() -> None:
    stack = Stack(export="vhost-user-blk")
    for own, main, found in ((10**9, 0, "on"), (0, 10**9, "off"), (0, 0, None)):
        assert export_thread_check(stack, 9, own, main).found == found
    served = Served(kind="vhost-user-blk", threads=frozenset({9}), poll_max_ns=None, queues=1)
    (before,) = [one for one in export_checks(stack, served) if one.setting == "export.iothread"]
    assert before.found is None, "that there is a thread does not say that the export runs in it"
