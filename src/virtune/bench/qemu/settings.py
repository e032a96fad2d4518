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
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from io import FileIO
from pathlib import Path

from virtune.bench.guest.channel import Guest, must
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

Rings = Mapping[Ring, int | None]
"""How far each ring has come, None where the kernel does not let us see it."""

_HIDDEN = -1
"""The place of all rings of a kind, where the kernel does not even say which there are."""


def rings_of(pid: int, *, proc: Path = Path("/proc")) -> Rings:
    """Return the kernel's I/O rings that a process holds, and how far each has come; a tail moves with every use.

    `proc` is where the kernel shows processes.
    """
    place = proc / str(pid)
    return {**_io_urings(place), **_contexts(place)}


def _io_urings(place: Path) -> dict[Ring, int | None]:
    found: dict[Ring, int | None] = {}
    try:
        for entry in (place / "fd").iterdir():
            with contextlib.suppress(FileNotFoundError):  # it was closed meanwhile
                if str(entry.readlink()) == "anon_inode:[io_uring]":
                    shown = _TAIL.search((place / "fdinfo" / entry.name).read_text())
                    found["io_uring", int(entry.name)] = int(shown[1]) if shown else None
    except OSError:
        found["io_uring", _HIDDEN] = None
    return found


def _contexts(place: Path) -> dict[Ring, int | None]:
    try:
        addresses = [int(found, 16) for found in _MAPPED.findall((place / "maps").read_text(errors="replace"))]
    except OSError:
        return {("native", _HIDDEN): None}
    try:
        with (place / "mem").open("rb", buffering=0) as memory:
            tails = {address: _tail_at(memory, address) for address in addresses}
    except (OSError, struct.error):
        return {("native", address): None for address in addresses}
    return {("native", address): tail for address, tail in tails.items() if tail is not None}


def _tail_at(memory: FileIO, address: int) -> int | None:
    """Return the tail of the context that is mapped there, None where it is something else."""
    memory.seek(address)
    _, _, _, tail, magic = _AIO_RING.unpack(memory.read(_AIO_RING.size))
    return tail if magic == _AIO_MAGIC else None


@dataclass(slots=True)
class Engines:
    """Which rings the arms so far brought, by event loop (`main` or the IOThread's id)."""

    brought: dict[str, set[Ring]] = field(default_factory=dict)

    def add(self, loops: Sequence[str], rings: set[Ring]) -> None:
        """Note rings that came with a disk which these loops serve; who does not own a ring never moves it."""
        for loop in loops:
            self.brought.setdefault(loop, set()).update(ring for ring in rings if ring[1] != _HIDDEN)

    def opened(self, loops: Sequence[str], bare: Rings, now: Rings) -> set[Ring]:
        """Note what came with opening an image, and return it."""
        new = {ring for ring in set(now) - set(bare) if ring[1] != _HIDDEN}
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
    stack: Stack, before: Rings, now: Rings, rings: set[Ring], workers_ns: int
) -> Check | None:
    """Say which engine does the I/O: the one whose ring moved, else the worker threads; None where nothing moved.

    `rings` are those that arms brought to the loop that serves this disk. Every engine flushes in worker threads, so
    these prove nothing while a ring moves, or may move unseen.
    """
    moved = {kind for kind, place in rings if now.get((kind, place)) != before.get((kind, place))}
    if len(moved) == 1:
        kind = moved.pop()
        proof = f"the ring of {kind} moved {UNDER_LOAD}"
        return Check(setting="disk.aio", asked=stack.disk.aio, found=kind, proof=proof)
    unseen = [ring for ring, tail in now.items() if tail is None and (ring in rings or ring[1] == _HIDDEN)]
    if not moved and unseen:
        proof = f"worker threads used {workers_ns / 1e6:.0f} ms of CPU, and whether a ring of {unseen[0][0]} moved"
        proof += f" {UNDER_LOAD} is not ours to see"
        return Check(setting="disk.aio", asked=stack.disk.aio, found=None, proof=proof)
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


@dataclass(frozen=True, slots=True, kw_only=True)
class Spent:
    """Nanoseconds on a CPU: by role, of each IOThread by its id, of each vCPU by its number."""

    by_role: Mapping[str, int]
    by_iothread: Mapping[str, int]
    by_vcpu: Mapping[str, int]


def spent_by(pid: int, threads: Iterable[tuple[int, str, int]]) -> Spent:
    """Say of a process's threads (id, name, nanoseconds) who spent them; `CPU 0/KVM` is the vCPU 0."""
    roles: dict[str, int] = {}
    iothreads: dict[str, int] = {}
    vcpus: dict[str, int] = {}
    for tid, comm, used in threads:
        role = role_of(comm, main=tid == pid)
        roles[role] = roles.get(role, 0) + used
        name = comm.partition(" ")[2]
        if role == "iothread":
            iothreads[name] = used
        if role == "vcpu":
            vcpus[name.partition("/")[0]] = used
    return Spent(by_role=roles, by_iothread=iothreads, by_vcpu=vcpus)


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
