# SPDX-License-Identifier: Apache-2.0
"""What a write survives, for each cache mode and format, as the knob's table of flushes has it."""

from dataclasses import replace

import pytest

from virtune.model.contradictions import contradictions
from virtune.model.durability import Promise, Survives, durability_of
from virtune.model.stack import Device, Disk, Kernel, Stack, writes_through
from virtune.model.study_options import OPTIONS

RAW = {
    "none": (Promise.FLUSH, Survives.HOST_CRASH, Survives.POWER_CUT),
    "writeback": (Promise.FLUSH, Survives.PROCESS_KILL, Survives.POWER_CUT),
    "writethrough": (Promise.EVERY_WRITE, Survives.POWER_CUT, Survives.POWER_CUT),
    "directsync": (Promise.EVERY_WRITE, Survives.POWER_CUT, Survives.POWER_CUT),
    "unsafe": (Promise.VOLATILE, Survives.PROCESS_KILL, Survives.PROCESS_KILL),
}


def test_a_search_can_be_asked_for_every_promise_that_keeps_data() -> None:
    assert OPTIONS["durability"].choices == tuple(one.value for one in Promise if one is not Promise.NOTHING)


@pytest.mark.parametrize("cache", RAW)
def test_each_cache_mode_promises_what_its_flushes_keep(cache: str) -> None:
    disk = replace(Disk(), cache=cache)  # type: ignore[arg-type]
    found = durability_of(Stack(disk=disk))
    assert (found.promise, found.completed, found.flushed) == RAW[cache]
    assert cache in found.words
    qcow2 = durability_of(Stack(disk=replace(disk, format="qcow2")))
    assert qcow2.promise is found.promise
    assert qcow2.flushed is found.flushed
    assert qcow2.completed is (found.completed if cache in ("writethrough", "directsync") else Survives.NOTHING)


@pytest.mark.parametrize("cache", ["none", "writeback", "unsafe"])
def test_a_device_without_a_write_cache_has_each_write_flushed(cache: str) -> None:
    stack = Stack(rig="qemu", disk=replace(Disk(), cache=cache), device=Device(write_cache=False))  # type: ignore[arg-type]
    assert contradictions(stack) == ()
    assert writes_through(stack)
    found = durability_of(stack)
    # the flush after each write is one of those that `unsafe` ignores
    kept = (
        (Promise.VOLATILE, Survives.PROCESS_KILL) if cache == "unsafe" else (Promise.EVERY_WRITE, Survives.POWER_CUT)
    )
    assert (found.promise, found.completed) == kept
    assert not writes_through(replace(stack, device=Device(write_cache=True)))


@pytest.mark.parametrize("cache", RAW)
def test_a_guest_that_never_flushes_keeps_what_completed_writes_do(cache: str) -> None:
    disk = Disk(cache=cache, filesystem="ext4")  # type: ignore[arg-type]
    never = Stack(rig="qemu", disk=disk, kernel=Kernel(mount_barrier=False))
    assert contradictions(never) == ()
    found, with_flushes = durability_of(never), durability_of(replace(never, kernel=Kernel(mount_barrier=True)))
    assert found.flushed is found.completed is with_flushes.completed
    kept = with_flushes.promise is Promise.EVERY_WRITE  # there is nothing to flush
    assert found.promise is (Promise.EVERY_WRITE if kept else Promise.VOLATILE)


@pytest.mark.parametrize(
    ("filesystem", "kernel", "said"),
    [
        ("none", Kernel(mount_noatime=True), "guest.mount_noatime means nothing without a filesystem"),
        ("xfs", Kernel(mount_noatime=True, mount_commit=9), "guest.mount_commit is an option of ext4"),
        ("xfs", Kernel(mount_noatime=False), None),
        ("ext4", Kernel(mount_commit=9), None),
    ],
)
def test_a_mount_option_is_of_a_filesystem_that_has_it(filesystem: str, kernel: Kernel, said: str | None) -> None:
    disk = Disk(filesystem=filesystem)  # type: ignore[arg-type]
    told = contradictions(Stack(rig="qemu", disk=disk, kernel=kernel))
    assert told == () if said is None else any(one.startswith(said) for one in told)


def test_a_write_cache_that_the_cache_mode_or_the_bus_rules_out() -> None:
    through = Stack(rig="qemu", disk=Disk(cache="directsync"), device=Device(write_cache=True))
    nvme = Stack(rig="qemu", device=Device(bus="nvme", write_cache=False))
    daemon = Stack(rig="storage-daemon", device=Device(write_cache=False))
    for stack, said in (
        (through, "write_cache=on cannot be"),
        (nvme, "bus=nvme"),
        (daemon, "device.write_cache means"),
    ):
        assert any(said in one for one in contradictions(stack)), said


def test_a_disk_that_keeps_nothing_and_a_plain_file() -> None:
    assert durability_of(Stack(disk=Disk(backend="null-co"))).promise is Promise.NOTHING
    assert durability_of(Stack(rig="metal")).promise is Promise.FLUSH
    assert durability_of(Stack(rig="metal", kernel=Kernel(mount_barrier=False))).promise is Promise.FLUSH


def test_classes_are_ordered() -> None:
    unsafe = durability_of(Stack(disk=Disk(cache="unsafe")))
    assert unsafe.weaker_than(Promise.FLUSH)
    assert not unsafe.weaker_than(Promise.VOLATILE)
    assert not durability_of(Stack(disk=Disk(cache="directsync"))).weaker_than(Promise.FLUSH)
