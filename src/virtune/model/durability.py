# SPDX-License-Identifier: Apache-2.0
"""Durability: which failures a guest's write survives after completion, and after a flush.

The speed of stacks with different durability is not comparable, because one of them does less work. So a search ranks
only stacks of one class. The class is what the guest is promised; `Survives` says what happens beyond that.

    every-write   what is completed survives a power cut             cache=writethrough, directsync; write_cache=off
    flush         what was flushed survives a power cut              cache=none, writeback; a plain O_DIRECT file
    volatile      even what was flushed is lost when the host dies   cache=unsafe
    nothing       nothing is kept at all                             backend=null-co

All of it holds as far as the drive honours a flush, which nothing above the drive can see.
"""

from dataclasses import dataclass, replace
from enum import IntEnum
from typing import assert_never

from virtune.model.stack import THROUGH_CACHES, Stack, writes_through
from virtune.model.text import Worded


class Promise(Worded):
    """The class of a stack: what it promises to a guest, in words too; the strongest first."""

    EVERY_WRITE = "every-write", "every completed write survives a power cut"
    FLUSH = "flush", "what was flushed survives a power cut"
    VOLATILE = "volatile", "even what was flushed is lost when the host crashes"
    NOTHING = "nothing", "no data is kept"


class Survives(IntEnum):
    """The worst failure that data survives; each includes those before it."""

    NOTHING = 0
    PROCESS_KILL = 1
    HOST_CRASH = 2
    POWER_CUT = 3


_ORDER = tuple(Promise)

_EVENTS = {
    Survives.NOTHING: "not even the end of the QEMU process",
    Survives.PROCESS_KILL: "the end of the QEMU process",
    Survives.HOST_CRASH: "a crash of the host's kernel",
    Survives.POWER_CUT: "a power cut",
}


@dataclass(frozen=True, slots=True)
class Durability:
    """What a stack promises: the class, and the failures that a completed and a flushed write survive. `why` names
    the cause.
    """

    promise: Promise
    completed: Survives
    flushed: Survives
    why: str

    def weaker_than(self, promise: Promise) -> bool:
        return _ORDER.index(self.promise) > _ORDER.index(promise)

    @property
    def words(self) -> str:
        if self.completed is self.flushed:
            return f"a completed write survives {_EVENTS[self.completed]} ({self.why})"
        return (
            f"a flushed write survives {_EVENTS[self.flushed]}, one only completed {_EVENTS[self.completed]} "
            f"({self.why})"
        )


def durability_of(stack: Stack) -> Durability:
    """Return what a stack promises.

    QEMU keeps the metadata of a qcow2 image in its own memory until a flush, so a completed write that allocated a
    cluster is lost even when only the process dies. `cache=unsafe` drops the flush of the file, not that of the
    metadata to the page cache (QEMU: block/io.c, bdrv_co_flush and BDRV_O_NO_FLUSH).
    """
    found = _of_disk(stack)
    if stack.kernel.mount_barrier is False and stack.kind.front != "file" and found.promise is Promise.FLUSH:
        why = "guest.mount_barrier=off: the guest's filesystem never flushes"
        return replace(found, promise=Promise.VOLATILE, flushed=found.completed, why=why)
    return found


def _of_disk(stack: Stack) -> Durability:
    disk = stack.disk
    if stack.kind.front == "file":
        direct = "opened with O_DIRECT, as the load does by default"
        return Durability(Promise.FLUSH, Survives.HOST_CRASH, Survives.POWER_CUT, direct)
    if disk.backend == "null-co":
        return Durability(Promise.NOTHING, Survives.NOTHING, Survives.NOTHING, "backend=null-co keeps no data")
    why = f"cache={disk.cache}" + (", qcow2 metadata in QEMU's memory" if disk.format == "qcow2" else "")
    in_memory = disk.format == "qcow2"
    if writes_through(stack) and disk.cache != "unsafe":
        through = f"cache={disk.cache}" if disk.cache in THROUGH_CACHES else "device.write_cache=off"
        return Durability(Promise.EVERY_WRITE, Survives.POWER_CUT, Survives.POWER_CUT, through)
    match disk.cache:
        case "none" | "directsync":
            completed = Survives.NOTHING if in_memory else Survives.HOST_CRASH
            return Durability(Promise.FLUSH, completed, Survives.POWER_CUT, why)
        case "writeback" | "writethrough":
            completed = Survives.NOTHING if in_memory else Survives.PROCESS_KILL
            return Durability(Promise.FLUSH, completed, Survives.POWER_CUT, why)
        case "unsafe":
            completed = Survives.NOTHING if in_memory else Survives.PROCESS_KILL
            return Durability(Promise.VOLATILE, completed, Survives.PROCESS_KILL, why)
        case _:
            assert_never(disk.cache)
