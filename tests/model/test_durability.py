# SPDX-License-Identifier: Apache-2.0
"""What a write survives, for each cache mode and format, as the knob's table of flushes has it."""

from dataclasses import replace

import pytest

from virtune.model.durability import Promise, Survives, durability_of
from virtune.model.stack import Disk, Stack

RAW = {
    "none": (Promise.FLUSH, Survives.HOST_CRASH, Survives.POWER_CUT),
    "writeback": (Promise.FLUSH, Survives.PROCESS_KILL, Survives.POWER_CUT),
    "writethrough": (Promise.EVERY_WRITE, Survives.POWER_CUT, Survives.POWER_CUT),
    "directsync": (Promise.EVERY_WRITE, Survives.POWER_CUT, Survives.POWER_CUT),
    "unsafe": (Promise.VOLATILE, Survives.PROCESS_KILL, Survives.PROCESS_KILL),
}


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


def test_a_disk_that_keeps_nothing_and_a_plain_file() -> None:
    assert durability_of(Stack(disk=Disk(backend="null-co"))).promise is Promise.NOTHING
    assert durability_of(Stack(rig="metal")).promise is Promise.FLUSH


def test_classes_are_ordered() -> None:
    unsafe = durability_of(Stack(disk=Disk(cache="unsafe")))
    assert unsafe.weaker_than(Promise.FLUSH)
    assert not unsafe.weaker_than(Promise.VOLATILE)
    assert not durability_of(Stack(disk=Disk(cache="directsync"))).weaker_than(Promise.FLUSH)
