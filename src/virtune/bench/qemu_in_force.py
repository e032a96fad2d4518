# SPDX-License-Identifier: Apache-2.0
"""What really runs in a QEMU that carries one stack after another, and what its guest sees of the disk.

A kernel AIO context or an io_uring, once made for an event loop, stays with it. So the first arm that brings one is
seen by what is there since the image was opened (QEMU 7.2) or since its first request (10.0), and from then on it is
seen by whether that very ring moves under load: the kernel shows an io_uring's tail in fdinfo, and the head of a
native context lies mapped in the process.
"""

import contextlib
import re
import struct
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from virtune.bench.guest import Guest, must
from virtune.model.evidence import UNDER_LOAD, Check
from virtune.model.stack import Stack

_AIO_RING = struct.Struct("<IIIII")
_AIO_MAGIC = 0xA10A10A1
_TAIL = re.compile(r"^SqTail:\s*(\d+)$", re.MULTILINE)
_MAPPED = re.compile(r"^([0-9a-f]+)-[0-9a-f]+ .*/\[aio\]", re.MULTILINE)

_MONITOR_THREAD = "IO mon_iothread"
"""QEMU's own thread for its monitor, which serves no disk."""

WORKERS_NS = 20_000_000
"""From 20 ms of CPU time of its worker threads on, they are held to do the I/O; the guest's requests then go nowhere
else."""

SERVING_NS = 2_000_000
"""An IOThread that serves nothing uses nothing; 2 ms are some hundred requests."""

_EVENT_IDX_BIT, _PACKED_BIT = 29, 34
"""VIRTIO_F_EVENT_IDX and VIRTIO_F_RING_PACKED (virtio 1.2, section 6)."""

_FEATURES = "the features that the guest's driver took, in its /sys/block/*/device"

Ring = tuple[str, int]
"""An io_uring by its descriptor, or a kernel AIO context by its address."""


def rings_of(pid: int) -> dict[Ring, int]:
    """Return the kernel's I/O rings that a process holds, and how far each has come; a tail moves with every use."""
    found: dict[Ring, int] = {}
    with contextlib.suppress(OSError):
        for entry in Path(f"/proc/{pid}/fd").iterdir():
            with contextlib.suppress(OSError):
                if str(entry.readlink()) == "anon_inode:[io_uring]":
                    shown = _TAIL.search(Path(f"/proc/{pid}/fdinfo/{entry.name}").read_text())
                    found["io_uring", int(entry.name)] = int(shown[1]) if shown else 0
    with contextlib.suppress(OSError), Path(f"/proc/{pid}/mem").open("rb", buffering=0) as memory:
        for address in _MAPPED.findall(Path(f"/proc/{pid}/maps").read_text(errors="replace")):
            memory.seek(int(address, 16))
            _, _, _, tail, magic = _AIO_RING.unpack(memory.read(_AIO_RING.size))
            if magic == _AIO_MAGIC:
                found["native", int(address, 16)] = tail
    return found


@dataclass(slots=True)
class Engines:
    """Which rings the arms so far brought, by event loop (`main` or the IOThread's id)."""

    brought: dict[str, set[Ring]] = field(default_factory=dict)

    def add(self, loops: Sequence[str], rings: set[Ring]) -> None:
        """Note rings that came with a disk which these loops serve; who does not own a ring never moves it."""
        for loop in loops:
            self.brought.setdefault(loop, set()).update(rings)

    def opened(self, loops: Sequence[str], bare: Mapping[Ring, int], now: Mapping[Ring, int]) -> set[Ring]:
        """Note what came with opening an image, and return it."""
        new = set(now) - set(bare)
        self.add(loops, new)
        return new

    def of(self, loops: Sequence[str]) -> set[Ring]:
        """Return the rings of these loops."""
        return {ring for loop in loops for ring in self.brought.get(loop, ())}


def loops_of(stack: Stack) -> tuple[str, ...]:
    """Return the event loops that serve a disk."""
    return stack.device.iothreads or ("main",)


def engine_check(stack: Stack, new: set[Ring]) -> Check:
    """Say which engine the image brought with it; nothing is found where its ring was there before."""
    kinds = {kind for kind, _ in new}
    if len(kinds) == 1:
        kind = kinds.pop()
        return Check(
            setting="disk.aio", asked=stack.disk.aio, found=kind, proof=f"a ring ({kind}) came with the image"
        )
    proof = "no ring came with the image: an earlier arm's may serve, or none; who moves under load decides"
    return Check(setting="disk.aio", asked=stack.disk.aio, found=None, proof=proof)


def engine_check_under_load(
    stack: Stack, before: Mapping[Ring, int], now: Mapping[Ring, int], rings: set[Ring], workers_ns: int
) -> Check | None:
    """Say which engine does the I/O: the one whose ring moved, else the worker threads; None where nothing moved.

    `rings` are those that arms brought to the loop that serves this disk. Every engine flushes in worker threads, so
    these prove nothing while a ring moves.
    """
    moved = {kind for kind, place in rings if now.get((kind, place)) != before.get((kind, place))}
    if len(moved) == 1:
        kind = moved.pop()
        proof = f"the ring of {kind} moved {UNDER_LOAD}"
        return Check(setting="disk.aio", asked=stack.disk.aio, found=kind, proof=proof)
    if not moved and workers_ns >= WORKERS_NS:
        proof = f"worker threads used {workers_ns / 1e6:.0f} ms of CPU and no ring moved {UNDER_LOAD}"
        return Check(setting="disk.aio", asked=stack.disk.aio, found="threads", proof=proof)
    return None


def threads_of(pid: int) -> Iterator[tuple[int, str, int]]:
    """Yield each thread's id, name and nanoseconds on a CPU."""
    with contextlib.suppress(OSError):
        for task in Path(f"/proc/{pid}/task").iterdir():
            with contextlib.suppress(OSError, ValueError, IndexError):
                yield (
                    int(task.name),
                    (task / "comm").read_text().strip(),
                    int((task / "schedstat").read_text().split()[0]),
                )


def role_of(comm: str, *, main: bool) -> str:
    """Return what a thread of QEMU's does, by the name that `debug-threads=on` gives it.

    `worker` is the pool that does blocking I/O, `uring` the kernel's own; others `vcpu`, `iothread`, `main`
    and `other`.
    """
    if comm.startswith("CPU "):
        return "vcpu"
    if comm.startswith("IO ") and comm != _MONITOR_THREAD:
        return "iothread"
    if comm.startswith("worker"):
        return "worker"
    if comm.startswith("iou-"):
        return "uring"
    return "main" if main else "other"


def iothread_check_under_load(stack: Stack, spent: Mapping[str, int]) -> Check | None:
    """Say whether an IOThread or the main loop serves the disk, from who burnt CPU (ns by role) under load.

    An IOThread without a disk sleeps; the main loop has other things to do as well (the monitor, the agent's port).
    """
    served, main = spent.get("iothread", 0), spent.get("main", 0)
    asked = stack.device.iothread or "none"
    if stack.device.iothread_vq_mapping is not None:
        return None  # which of them serve is a question of its own
    if served < SERVING_NS and main < WORKERS_NS:
        return None
    own = served >= SERVING_NS
    proof = f"IOThreads used {served / 1e6:.0f} ms of CPU {UNDER_LOAD}, the main loop {main / 1e6:.0f}"
    found = asked if own == (asked != "none") else ("an IOThread" if own else "none")
    return Check(setting="device.iothread", asked=asked, found=found, proof=proof)


def seen_in_guest(
    guest: Guest, serial: str, *, timeout_seconds: float, program: Sequence[str] = ("disk",)
) -> dict[str, str]:
    """Wait until a guest sees the disk of that serial number, and return what it sees (`virtune/guest/disk`).

    `program` is how that script is called there.
    """
    words = [*program, serial, str(int(timeout_seconds))]
    text = must(guest, words, timeout_seconds=timeout_seconds + 5).decode(errors="replace")
    return dict(line.split("=", 1) for line in text.splitlines() if "=" in line)


def guest_checks(stack: Stack, seen: Mapping[str, str], *, vcpus: int, writes: bool) -> Iterator[Check]:
    """Hold what the guest sees of its disk against what was asked for."""
    device, proof = stack.device, "the guest's /sys/block"
    asked_cache = "write through" if stack.disk.cache in ("writethrough", "directsync") else "write back"
    # Linux takes a write-protected SCSI disk for one without a cache, whatever it says
    told = writes or device.bus != "virtio-scsi"
    found_cache = seen.get("write_cache") if told else None
    yield Check(setting="guest.write_cache", asked=asked_cache, found=found_cache, proof=proof)
    queues = device.num_queues or device.scsi_num_queues or device.max_ioqpairs
    if queues is not None:
        # a guest makes no more queues than it has CPUs
        expected = str(min(queues, vcpus))
        yield Check(setting="guest.queues", asked=expected, found=seen.get("queues"), proof=f"{proof}/*/mq")
    features = seen.get("features", "")
    for name, asked, bit in (("packed", device.packed, _PACKED_BIT), ("event_idx", device.event_idx, _EVENT_IDX_BIT)):
        if asked is not None:
            took = ("on" if features[bit] == "1" else "off") if len(features) > bit else None
            yield Check(setting=f"guest.{name}", asked="on" if asked else "off", found=took, proof=_FEATURES)
    if device.queue_size is not None and "[none]" in seen.get("scheduler", ""):
        size, depth = str(device.queue_size), seen.get("nr_requests")
        yield Check(setting="guest.queue_size", asked=size, found=depth, proof=f"{proof}/*/queue/nr_requests")
    if device.bus == "ide":
        depth = seen.get("queue_depth")
        yield Check(setting="guest.queue_depth", asked="1", found=depth, proof=f"{proof}/*/device/queue_depth")
    for name, value in (
        ("logical_block_size", device.logical_block_size),
        ("physical_block_size", device.physical_block_size),
    ):
        if value is not None:
            yield Check(setting=f"device.{name}", asked=str(value), found=seen.get(name), proof=proof)
