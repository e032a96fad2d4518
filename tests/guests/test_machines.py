# SPDX-License-Identifier: Apache-2.0
"""What a guest is besides its disk, and the knobs of its device: asked for, seen in QEMU, seen in the guest."""

import os
from dataclasses import replace
from pathlib import Path

import pytest
from tests.bench.loading import raw_job, run
from tests.conftest import SPAN
from tests.guests.rig_parts import GUEST, MIB, OF_OLDER, OLDER, engine_at_work, found, ground, load

from virtune.bench.port import DiskImageSpec
from virtune.bench.qemu.rig import GuestSession
from virtune.fio.results import read_result
from virtune.model.errors import LoadError, RigError
from virtune.model.stack import Device, Disk, Kernel, Machine, Pins
from virtune.model.text import Bytes

pytestmark = [pytest.mark.real, pytest.mark.xdist_group("guests")]


def test_the_rings_and_the_threads_of_a_device(rig: GuestSession, image: Path) -> None:
    device = Device(iothread="io1", num_queues=1, queue_size=64, packed=True, event_idx=False, write_cache=False)
    device = replace(device, logical_block_size=Bytes(4096), physical_block_size=Bytes(4096))
    pins = Pins(vcpu="0", iothread="0", emulator="0")
    stack = replace(GUEST, device=device, pins=pins, thread_pool_max=3, poll_max_ns=0)
    with rig.up(stack, ground(image)) as bench:
        checks = (*bench.in_force.checks, *load(bench).checks)
        seen = found(checks)
        asked = {
            "device.num_queues": "1", "device.queue_size": "64", "device.packed": "on", "device.event_idx": "off",
            "guest.packed": "on", "guest.event_idx": "off", "guest.queues": "1", "device.write_cache": "off",
            "guest.write_cache": "write through", "device.logical_block_size": "4096",
            "iothread.thread_pool_max": "3", "iothread.poll_max_ns": "0", "vcpu.pin": "0", "iothread.pin": "0",
            "emulator.pin": "0",
        }  # fmt: skip
        assert {name: seen[name] for name in asked} == asked
        # the IOThread, its three workers, and some that the main loop had before: 16 requests would have as many
        workers = [check.proof for check in checks if check.setting == "iothread.pin"][-1]
        assert 2 <= int(workers.split()[2]) <= 8, workers
    # the same machine goes on elsewhere, with other limits and without the pins
    with rig.up(replace(GUEST, device=device, thread_pool_max=5), ground(image)) as bench:
        assert bench.changeover is not None
        assert bench.changeover.swapped == "nodes"
        assert found(bench.in_force.checks)["iothread.thread_pool_max"] == "5"
        allowed = {os.sched_getaffinity(int(task.name)) == os.sched_getaffinity(0)
                   for task in Path(f"/proc/{bench.vm.child.pid}/task").iterdir()}  # fmt: skip
        assert allowed == {True}
    nowhere = replace(stack, pins=Pins(iothread="4095"))
    with pytest.raises(RigError, match=r"iothread\.pin=4095 was refused: none of these CPUs is there"):
        rig.up(nowhere, ground(image)).__enter__()


@pytest.mark.long(always="the pins of all other threads are verified in each run, above")
def test_a_pin_holds_where_the_kernel_writes_in_threads_of_its_own(rig: GuestSession, tmp_path: Path) -> None:
    own = tmp_path / "own.raw"
    own.write_bytes(bytes(SPAN))
    stack = replace(GUEST, disk=Disk(aio="io_uring", cache="writeback"), pins=Pins(emulator="0"))
    with rig.up(stack, DiskImageSpec(image=own, size_bytes=SPAN, writes=True)) as bench:
        seen = found((*bench.in_force.checks, *load(bench, rw="randwrite").checks))
        assert seen["emulator.pin"] == "0"


def test_a_guests_discard_reaches_the_image_when_it_may(rig: GuestSession, tmp_path: Path) -> None:
    own = tmp_path / "own.raw"
    for discard, kept in (("ignore", True), ("unmap", False)):
        own.write_bytes(b"\1" * SPAN)
        os.sync()
        stack = replace(GUEST, disk=Disk(discard=discard))  # type: ignore[arg-type]
        with rig.up(stack, DiskImageSpec(image=own, size_bytes=SPAN, writes=True)) as bench:
            words = ["blkdiscard", bench.target.path]  # type: ignore[union-attr]
            assert bench.vm.guest.run(words, timeout_seconds=120).status == 0
        assert (own.stat().st_blocks * 512 > SPAN // 2) is kept


def test_huge_pages_that_the_host_has_not_are_refused(rig: GuestSession, image: Path) -> None:
    for size, why in ((Bytes(4 * MIB), "no huge pages of 4 MiB"), (Bytes(2 * MIB), "huge pages of 2 MiB free, and")):
        stack = replace(GUEST, machine=Machine(hugepages=size, memory=Bytes(2**40)))
        with pytest.raises(RigError, match=why):
            rig.up(stack, ground(image)).__enter__()


def test_memory_on_a_node_that_the_host_has_not_is_refused(rig: GuestSession, image: Path) -> None:
    for nodes in ("4095", "0,4095"):
        with pytest.raises(RigError, match=r"this host has the NUMA nodes .*, and memory\.numa="):
            rig.up(replace(GUEST, machine=Machine(numa=nodes)), ground(image)).__enter__()


@pytest.mark.long(always="test_rig.py boots such a board in each run, once")
def test_an_older_board_with_ide_and_what_it_is_made_of(rig: GuestSession, image: Path) -> None:
    """The last one, since the machine of the others ends with it."""
    stack = replace(GUEST, machine=OLDER, device=Device(bus="ide"))
    with rig.up(stack, ground(image)) as bench:
        seen = found((*bench.in_force.checks, *load(bench).checks))
        assert {name: seen[name] for name in OF_OLDER} == OF_OLDER
        process = bench.vm.child.pid
    with rig.up(replace(stack, disk=Disk(aio="native")), ground(image)) as bench:
        assert bench.changeover is not None
        assert (bench.changeover.swapped, bench.changeover.process) == ("nodes", process)
        assert engine_at_work(bench) == "native"
    # virtio-blk is plugged into the same board, and what is no longer asked needs another machine
    with rig.up(replace(GUEST, machine=OLDER), ground(image)) as bench:
        assert bench.changeover is not None
        assert bench.changeover.swapped is None
        assert "device.bus is the machine's" in bench.changeover.text


def test_a_queue_is_kept_for_polled_completions(rig: GuestSession, image: Path) -> None:
    """The last of each run, since the machine of the others ends with it."""
    with rig.up(replace(GUEST, kernel=Kernel(blk_poll_queues=1)), ground(image)) as bench:
        seen = found(bench.in_force.checks)
        polled = bench.vm.guest.look.run("cat /sys/block/vda/queue/io_poll", timeout_seconds=60).stdout
        assert (seen["guest.blk_poll_queues"], polled) == ("1", b"1\n")
        words = "[x]\nioengine=io_uring\nhipri=1\ndirect=1\nbs=4k\nrw=randread\ntime_based=1\nruntime=500ms\n"
        text = f"{words}filename={bench.target.path}\nsize={SPAN}\nallow_file_create=0\n"  # type: ignore[union-attr]
        done = run(bench, raw_job(text, engine="io_uring", workload="rw=randread,hipri=1"), seconds=0.5)
        assert found(done.checks)["workload.hipri"] == "on"
        assert read_result(done.output.decode()).loads[0].streams[0].iops
    with rig.up(GUEST, ground(image)) as bench, pytest.raises(LoadError, match="no poll queues: the guest's /sys"):
        run(bench, raw_job(text, engine="io_uring", workload="rw=randread,hipri=1"), seconds=0.5)
