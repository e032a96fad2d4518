# SPDX-License-Identifier: Apache-2.0
"""Verify settings on the running processes: which engine does a disk's I/O (io_uring, native, which is Linux AIO, or
threads), which thread serves it (an IOThread, several, or the main loop), how its image is opened, what its guest
sees.

The traces of each engine in its process (`virtune.probe.process` reads it):

* io_uring and native: a ring, and its position moves with every request
* threads:  no ring; worker threads that use CPU time

A process that has run other stacks may hold all of these, since an event loop keeps its rings, and a QEMU whose event
loop itself runs on io_uring (10.2 and newer) always has a ring. QEMU 10.0 makes a ring with the first request, not
when the image is opened. So rings that appear with the image are a first sign; rings that move under load decide.

The thread that serves a disk is seen by the CPU time under load. A QEMU with `debug-threads=on` names its threads by
their role. A `qemu-storage-daemon` names none, so there the threads that existed before an image was opened are its
crew, and all others are workers.
"""

import json
import os
import time
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from virtune.dialects.qemu.qmp import FILE_NODE, FORMAT_NODE, OPENED
from virtune.model.counters import OF_URING, thread_role
from virtune.model.errors import NotInForceError
from virtune.model.evidence import UNDER_LOAD, Check, InForce
from virtune.model.knobs import BY_ID
from virtune.model.stack import (
    DIRECT_CACHES,
    LIMITS,
    THROUGH_CACHES,
    Disk,
    RbdPlace,
    Stack,
    setting_of,
    writes_through,
)
from virtune.model.text import setting_text
from virtune.probe.cpu import parse_list
from virtune.probe.process import IO_URING, NATIVE, Process, Ring, Rings, Thread
from virtune.warden import at_work

WORKERS_SHARE = 0.10
"""From this share of the I/O threads' CPU time on, worker threads are taken to do the I/O. Measured with QEMU 7.2,
4 KiB random reads: 0.5 and more with aio=threads, 0.00 with native and io_uring."""

_CPU_NS_ENOUGH = 20_000_000
"""Below 20 ms of CPU time its shares allow no conclusion."""

WORKERS_NS = 100_000
"""Worker threads that used 0.1 ms have done I/O: a request costs each some 10 us. That is enough to confirm."""

WORKERS_NS_AGAINST = 20_000_000
"""To contradict takes more than to confirm: a flush, or opening an image, may give workers a millisecond of work. The
same is needed in a process that serves other disks too, with the same workers.
"""

_LOOKS, _LOOK_SECONDS = 5, 0.004
"""An AIO context's ring wraps after some hundred positions, so one check may find it at the same position as before.
"""

_TURN = 2**32
"""Positions are 32-bit numbers of the kernel, which wrap around."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Activity:
    """A process's activity since its stack is up.

    `moved` is how far each ring that may serve the disk moved, None where that is not shown; `hidden` are kinds of
    rings that are not visible at all. `workers_ns` is the workers' part of `io_ns`, the CPU time of all I/O threads.
    `alone`: the process serves no other disk. `loop_rings`: its event loop itself runs on io_uring, so a ring also
    moves for other events. `flushes`: the load causes flushes, or the image
    is encrypted: every engine does both in workers.
    """

    moved: Mapping[Ring, int | None] = field(default_factory=dict)
    hidden: frozenset[str] = frozenset()
    workers_ns: int = 0
    io_ns: int = 0
    alone: bool = True
    loop_rings: bool = False
    flushes: bool = False


@dataclass(slots=True)
class RingOwners:
    """The rings of the arms so far, by event loop (`main` or the IOThread's id).

    An event loop keeps its ring, which may serve the next arm's disk.
    """

    brought: dict[str, set[Ring]] = field(default_factory=dict)

    def add(self, loops: Sequence[str], rings: Collection[Ring]) -> None:
        """Record rings that appeared with a disk of these loops; only its owner moves a ring."""
        for loop in loops:
            self.brought.setdefault(loop, set()).update(rings)

    def opened(self, loops: Sequence[str], bare: Rings, now: Rings) -> set[Ring]:
        """Record the rings that appeared when an image was opened, and return them."""
        new = set(now.places) - set(bare.places)
        self.add(loops, new)
        return new

    def of(self, loops: Sequence[str]) -> set[Ring]:
        return {ring for loop in loops for ring in self.brought.get(loop, ())}


_A_RING = {IO_URING: "an io_uring", NATIVE: "a kernel AIO context"}
"""What completes the requests of each engine, in words."""


def loops_of(stack: Stack) -> tuple[str, ...]:
    """Return the event loops that serve a guest's disk."""
    return stack.device.iothreads or ("main",)


def engine_check(asked: str, came: Collection[Ring], now: Rings) -> Check:
    """Check which engine an image added: `came` are the new rings since it was opened."""
    kinds = {kind for kind, _ in came}
    found: str | None = None
    if len(kinds) == 1:
        found = kinds.pop()
        proof = f"{_A_RING.get(found, found)} appeared when the image was opened"
    elif not now.places and not now.hidden and asked == "threads":
        found, proof = "threads", "the process holds neither an io_uring nor a kernel AIO context"
    else:
        proof = "no ring appeared when the image was opened that tells the engine; the load will"
    return Check("disk.aio", asked, found, proof)


def engine_check_under_load(asked: str, activity: Activity) -> Check:
    """Check which engine does the I/O now, by moved rings and CPU time; without evidence nothing is found."""
    found = _engine_seen(asked, activity)
    words = [f"{_A_RING.get(kind, kind)} completed requests {UNDER_LOAD}" for kind in sorted(_worked(activity))]
    words.append(f"worker threads used {activity.workers_ns / 1e6:.0f} ms of CPU time {UNDER_LOAD}")
    veiled = _veiled(asked, activity)
    if found is None and veiled:
        words.append(f"whether {_A_RING.get(veiled[0], veiled[0])} completed requests is not shown to us")
    excused = _untellable(asked, veiled, activity)
    return Check("disk.aio", asked, found, "; ".join(words), hidden=excused)


def moved_since(process: Process, before: Rings, mine: Collection[Ring] | None = None) -> Activity:
    """Return how far each ring moved since `before`: those of `mine`, or all of the process.

    A native context is read until it is seen to move.
    """
    found: dict[Ring, int | None] = {}
    hidden: frozenset[str] = frozenset()
    for look in range(_LOOKS):
        if look:
            time.sleep(_LOOK_SECONDS)
        now = process.rings()
        hidden = now.hidden
        for ring, place in now.places.items():
            if mine is None or ring in mine:
                then = before.places.get(ring, 0)
                went = None if place is None or then is None else (place - then) % _TURN
                found[ring] = found.get(ring) or went
        if not any(kind == NATIVE and went == 0 for (kind, _), went in found.items()):
            break
    return Activity(moved=found, hidden=hidden)


def _engine_seen(asked: str, activity: Activity) -> str | None:
    worked, veiled = _worked(activity), _veiled(asked, activity)
    busy = activity.io_ns >= _CPU_NS_ENOUGH and activity.workers_ns >= WORKERS_SHARE * activity.io_ns
    if asked in worked:
        return "threads" if busy and activity.alone and not activity.flushes else asked
    if worked:
        return min(worked)
    least = WORKERS_NS if asked == "threads" and activity.alone else WORKERS_NS_AGAINST
    # where all rings stood still, even little CPU time of workers is the I/O
    if activity.workers_ns >= least and not veiled:
        return "threads"
    if busy and activity.alone and (asked == "threads" or not activity.flushes):
        return "threads"
    # where only this engine is invisible, and none of the others does the I/O, it is this one
    enough = activity.io_ns >= _CPU_NS_ENOUGH and activity.alone and not busy
    return asked if enough and veiled == [asked] else None


def _untellable(asked: str, veiled: list[str], activity: Activity) -> bool:
    """Whether no load, however long, could verify the requested engine. Only that excuses an unverified setting:
    where only another engine is hidden, or the workers' CPU time would show it, it counts as unverified.
    """
    if asked == "threads":
        return bool(veiled) and not activity.alone
    by_elimination = veiled == [asked] and activity.alone and not activity.flushes
    return asked in veiled and not by_elimination


def _worked(activity: Activity) -> set[str]:
    moved = {kind for (kind, _), went in activity.moved.items() if went}
    return moved - {IO_URING} if activity.loop_rings else moved


def _veiled(asked: str, activity: Activity) -> list[str]:
    """Return the kinds of rings that may do the I/O invisibly."""
    kinds = {kind for (kind, _), went in activity.moved.items() if went is None} | activity.hidden
    if activity.loop_rings and asked != NATIVE:
        kinds.add(IO_URING)
    return sorted(kinds)


_EVENT_IDX_BIT, _PACKED_BIT = 29, 34
"""VIRTIO_F_EVENT_IDX and VIRTIO_F_RING_PACKED (virtio 1.2, section 6)."""

_FEATURES = "the features that the guest's driver took, in its /sys/block/*/device"


def guest_checks(
    stack: Stack, seen: Mapping[str, str], *, vcpus: int, writes: bool, proof: str = "the guest's /sys/block"
) -> Iterator[Check]:
    """Compare the disk's properties in the guest with the request."""
    device = stack.device
    asked_cache = "write through" if writes_through(stack) else "write back"
    # Linux treats a write-protected SCSI disk as one without a cache
    told = writes or device.bus != "virtio-scsi"
    found_cache = seen.get("write_cache") if told else None
    yield Check("guest.write_cache", asked_cache, found_cache, proof)
    queues = device.num_queues or device.scsi_num_queues or device.max_ioqpairs
    expected = None if queues is None else min(queues, vcpus)  # a guest makes no more queues than it has CPUs
    packed, event_idx = (
        seen["features"][bit] == "1" if len(seen.get("features", "")) > bit else None
        for bit in (_PACKED_BIT, _EVENT_IDX_BIT)
    )
    as_the_device = "[none]" in seen.get("scheduler", "") and stack.kernel.nr_requests is None
    size = device.queue_size if as_the_device else None
    depth = 1 if device.bus == "ide" else None
    rows: tuple[Row, ...] = (
        ("guest.queues", expected, seen.get("queues"), f"{proof}/*/mq"),
        ("guest.packed", device.packed, packed, _FEATURES),
        ("guest.event_idx", device.event_idx, event_idx, _FEATURES),
        ("guest.queue_size", size, seen.get("nr_requests"), f"{proof}/*/queue/nr_requests"),
        ("guest.queue_depth", depth, seen.get("queue_depth"), f"{proof}/*/device/queue_depth"),
        ("device.logical_block_size", device.logical_block_size, seen.get("logical_block_size"), proof),
        ("device.physical_block_size", device.physical_block_size, seen.get("physical_block_size"), proof),
    )
    yield from requested(rows)


def kernel_checks(stack: Stack, disks: Sequence[Mapping[str, str]], *, proof: str) -> Iterator[Check]:
    """Compare how the guest's kernel runs its disks with the request; `disks` are what it says of each."""
    polls = stack.kernel.blk_poll_queues
    by_driver = {} if polls is None else {"blk_poll_queues": str(polls)}
    for name, asked in (stack.kernel.asked | by_driver).items():
        found = sorted({at_work(seen.get(name, "")) for seen in disks})
        where = "the guest's kernel log" if name in by_driver else f"{proof}/*/queue/{name}"
        yield Check(f"guest.{name}", asked, ", ".join(found) if all(found) else None, where)


Row = tuple[str, object, object, str]
"""A setting, its request and its finding, None where there is none, and the proof."""


def requested(rows: Iterable[Row]) -> Iterator[Check]:
    """Return a check for each setting that was requested."""
    for setting, asked, found, proof in rows:
        if asked is not None:
            yield Check(setting, setting_text(asked), None if found is None else setting_text(found), proof)


_NODES = "QMP query-named-block-nodes"


@dataclass(frozen=True, slots=True, kw_only=True)
class Opened:
    """How a process opened a file: `direct` is on or off, None if unknown; `hidden`: the process's descriptors are
    not shown to us.
    """

    direct: str | None
    proof: str
    hidden: bool = False


def opened(process: Process, *files: Path) -> Opened:
    """Return whether a process opened all files of an image with O_DIRECT; unknown if it does not hold one, or holds
    them both ways.
    """
    flags: dict[int, int] = {}
    for file in files:
        held = process.opened(file)
        if held is None:
            return Opened(direct=None, proof="the process's descriptors are not shown to us", hidden=True)
        if not held:
            what = "the file" if len(files) == 1 else str(file)
            return Opened(direct=None, proof=f"the process does not hold {what} open")
        flags |= held
    proof = ", ".join(
        f"opened with{'' if value & os.O_DIRECT else 'out'} O_DIRECT (fdinfo/{number}: flags 0{value:o})"
        for number, value in sorted(flags.items())
    )
    answers = {bool(value & os.O_DIRECT) for value in flags.values()}
    return Opened(direct=setting_text(answers.pop()) if len(answers) == 1 else None, proof=proof)


def direct_check(disk: Disk, held: Opened) -> Check:
    """Compare how the image is opened with the requested cache mode."""
    asked = setting_text(disk.cache in DIRECT_CACHES)
    return Check("O_DIRECT", asked, held.direct, held.proof, hidden=held.hidden)


def cache_checks(stack: Stack, held: Opened, nodes: Sequence[Mapping[str, Any]]) -> Iterator[Check]:
    """Check whether the image is opened with O_DIRECT, whether flushes are honoured, and which cache mode that is."""
    disk = stack.disk
    yield direct_check(disk, held)
    no_flush = [node["cache"]["no-flush"] for node in nodes if node["node-name"] in OPENED]
    ignored = setting_text(any(no_flush)) if no_flush else None
    yield Check("cache.no-flush", setting_text(disk.cache == "unsafe"), ignored, _NODES)
    found, proof = _cache_mode(disk, held.direct, ignored)
    yield Check("disk.cache", disk.cache, found, proof, hidden=held.hidden)


def node_checks(
    stack: Stack, nodes: Sequence[Mapping[str, Any]], limits: Mapping[str, Any] | None
) -> Iterator[Check]:
    """Check back end, format, options and limits by QMP."""
    disk, by_name = stack.disk, {node["node-name"]: node for node in nodes}
    file_node, format_node = by_name.get(FILE_NODE, {}), by_name.get(FORMAT_NODE, {})
    # on a block device QEMU's `file` back end is called `host_device`
    driver = file_node.get("drv")
    same = (disk.backend, driver) == ("file", "host_device")
    proof = f"{_NODES}: host_device" if same else _NODES
    yield Check("disk.backend", disk.backend, "file" if same else driver, proof)
    yield Check("disk.format", disk.format, format_node.get("drv"), _NODES)
    zeroes = format_node.get("detect_zeroes")
    yield Check("disk.detect_zeroes", disk.detect_zeroes, zeroes, _NODES)
    image = format_node.get("image", {})
    details = image.get("format-specific", {}).get("data", {})
    rows: list[Row] = [
        ("disk.cluster_size", disk.cluster_size, image.get("cluster-size"), _NODES),
        ("disk.extended_l2", disk.extended_l2, details.get("extended-l2"), _NODES),
        ("disk.lazy_refcounts", disk.lazy_refcounts, details.get("lazy-refcounts"), _NODES),
        ("disk.backing_depth", disk.backing_depth, format_node.get("backing_file_depth"), _NODES),
        ("disk.data_file", disk.data_file, "data-file" in details if image else None, _NODES),
        ("disk.encryption", disk.encryption, _encryption(details) if image else None, _NODES),
    ]
    for one in LIMITS:
        limit = setting_of(stack, BY_ID[one.knob])
        value = None if limits is None and limit else (limits or {}).get(one.qmp, 0)
        rows.append((one.knob, limit, value, "QMP qom-get limits"))
    yield from requested(rows)


def _encryption(details: Mapping[str, Any]) -> str:
    return str(details.get("encrypt", {}).get("format", "none"))


def rbd_checks(stack: Stack, nodes: Sequence[Mapping[str, Any]]) -> Iterator[Check]:
    """Check of a disk on Ceph the pool, and librbd's cache, which QEMU's cache mode switches."""
    disk = stack.disk
    if disk.rbd is None:
        return
    node = next((one for one in nodes if one["node-name"] == FILE_NODE), {})
    place = _rbd_place(node.get("image", {}).get("filename", ""))
    proof = f"{_NODES}: {node.get('file', 'no such node')}"
    yield Check("disk.rbd", disk.rbd, None if place is None else place.text, proof)
    cache = node.get("cache", {})
    direct, ignored = (setting_text(cache[name]) if name in cache else None for name in ("direct", "no-flush"))
    found, _ = _cache_mode(disk, direct, ignored)
    told = "librbd's cache is off" if direct == "on" else "librbd's cache is on"
    yield Check("disk.cache", disk.cache, found, f"{_NODES}: {told}")


def _rbd_place(filename: str) -> RbdPlace | None:
    """Read the pool of an image from how QEMU names it; None for an image that is not virtune's."""
    try:
        said = json.loads(filename.removeprefix("json:"))
        ours = str(said["image"]).startswith("virtune-")
        named = {name: said.get(name) or None for name in ("namespace", "user", "conf")}
        return RbdPlace(pool=said["pool"], **named) if ours else None
    except (ValueError, KeyError, TypeError):
        return None


def _cache_mode(disk: Disk, direct: str | None, ignored: str | None) -> tuple[str | None, str]:
    if direct is None or ignored is None:
        return None, "O_DIRECT or no-flush is not visible"
    if disk.cache in THROUGH_CACHES:
        meaning = "flush after each write is an option of the export, which QEMU accepts and does not show"
        return (None, meaning) if direct == setting_text(disk.cache == "directsync") else ("another", meaning)
    modes = {("on", "off"): "none", ("off", "off"): "writeback", ("off", "on"): "unsafe"}
    mode = modes.get((direct, ignored), f"direct={direct},no-flush={ignored}")
    meanings = {
        "none": "no host page cache; flushes are honoured",
        "writeback": "through the host page cache; flushes are honoured",
        "unsafe": "through the host page cache; flushes are ignored: data is lost when the host dies",
    }
    return mode, meanings.get(mode, "not one of QEMU's named cache modes")


def cpus_check(knob: str, asked: str, process: Process, threads: Iterable[Thread], when: str) -> Check:
    """Check that these threads may run on the requested CPUs and on no others; nothing is found without any."""
    places = [cpus for one in threads if (cpus := process.cpus_of(one.tid)) is not None]
    wrong = {cpus for cpus in places if set(parse_list(cpus)) != set(parse_list(asked))}
    proof = f"Cpus_allowed_list of {len(places)} threads in /proc/{process.pid}/task{when}"
    return Check(knob, asked, min(wrong, default=asked) if places else None, proof)


def require_verified(arm: str, checks: Sequence[Check]) -> None:
    """Raise NotInForceError for the first requested setting that differs from the running one."""
    for check in InForce(checks=tuple(checks)).mismatches:
        raise NotInForceError(
            f"arm {arm!r}: {check.setting}={check.asked} was requested, but {check.found} is running",
            hint=f"seen by: {check.proof}",
        )


SERVING_NS = 1_000_000
"""An IOThread that serves nothing sleeps and uses nothing; 1 ms is some hundred requests."""

TELLING_REQUESTS = 1000
"""So many requests take the thread that serves them more than SERVING_NS, however quick it is."""

MAIN_LOOP_NS = 20_000_000
"""A QEMU's main loop also serves the monitor and the agent's port; that takes less than 20 ms."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Spent:
    """Nanoseconds on a CPU: by role, of each IOThread by its id, of each vCPU by its number. `requests` are those
    that the disk completed meanwhile, None if nobody counted them.
    """

    by_role: Mapping[str, int] = field(default_factory=dict)
    by_iothread: Mapping[str, int] = field(default_factory=dict)
    by_vcpu: Mapping[str, int] = field(default_factory=dict)
    requests: int | None = None

    @property
    def tells(self) -> bool:
        """Whether the disk completed so much that an idle IOThread does not serve it: a guest that hardly has a CPU
        keeps the main loop busy with its timers and the monitor.
        """
        return self.requests is None or self.requests >= TELLING_REQUESTS

    def of(self, role: str) -> int:
        """Return the CPU time of a role's threads."""
        return self.by_role.get(role, 0)

    @property
    def io_ns(self) -> int:
        """The CPU time of the threads that may do the disk's I/O, without vCPUs and kernel threads."""
        return self.of("main") + self.of("iothread") + self.of("worker")


def cpu_of(process: Process) -> dict[int, int]:
    """Return each thread's CPU time in ns, as the reference for later differences."""
    return {thread.tid: thread.cpu_ns for thread in process.threads()}


def since(process: Process, before: Mapping[int, int]) -> list[Thread]:
    """Return the threads with the CPU time of each since then."""
    return [
        Thread(tid=one.tid, name=one.name, cpu_ns=one.cpu_ns - before.get(one.tid, 0)) for one in process.threads()
    ]


def spent_by(pid: int, threads: Iterable[Thread]) -> Spent:
    """Return the CPU time of a QEMU's threads by role; `CPU 0/KVM` is the vCPU 0."""
    roles: dict[str, int] = {}
    iothreads: dict[str, int] = {}
    vcpus: dict[str, int] = {}
    for thread in threads:
        role = thread_role(thread.name, main=thread.tid == pid)
        roles[role] = roles.get(role, 0) + thread.cpu_ns
        name = thread.name.partition(" ")[2]
        if role == "iothread":
            iothreads[name] = thread.cpu_ns
        if role == "vcpu":
            vcpus[name.partition("/")[0]] = thread.cpu_ns
    return Spent(by_role=roles, by_iothread=iothreads, by_vcpu=vcpus)


def spent_by_crew(threads: Iterable[Thread], crew: Iterable[int]) -> Spent:
    """Return the CPU time by role where threads have no names: `crew` existed before any image, all others are
    workers.
    """
    known = frozenset(crew)
    roles = {"main": 0, "worker": 0}
    for thread in threads:
        if not thread.name.startswith(OF_URING):
            roles["main" if thread.tid in known else "worker"] += thread.cpu_ns
    return Spent(by_role=roles)


def serving_thread(own_ns: int, main_ns: int, *, main_enough_ns: int = MAIN_LOOP_NS) -> bool | None:
    """Return whether an IOThread serves the disk (True) or the main loop (False), by their CPU time under load."""
    if own_ns >= SERVING_NS:
        return True
    return False if main_ns >= main_enough_ns else None


def iothread_check_under_load(stack: Stack, spent: Spent) -> Check | None:
    """Check whether an IOThread or the main loop serves a guest's disk; None where that does not apply."""
    if stack.device.iothread_vq_mapping is not None:
        return None  # a separate check covers which of them serve it
    own, main = spent.of("iothread"), spent.of("main")
    asked = stack.device.iothread or "none"
    served = serving_thread(own, main)
    if served is False and asked != "none" and not spent.tells:
        served = None
    found = None
    if served is not None:
        found = asked if served == (asked != "none") else ("an IOThread" if served else "none")
    proof = f"IOThreads used {own / 1e6:.0f} ms of CPU {UNDER_LOAD}, the main loop {main / 1e6:.0f}"
    return Check("device.iothread", asked, found, proof)


def mapping_check_under_load(stack: Stack, spent: Spent) -> Check | None:
    """Check which IOThreads serve a disk with several; None for others.

    A load from a single CPU may leave mapped threads idle; activity of an unmapped thread, or of the main loop
    instead, is a mismatch.
    """
    mapping = stack.device.iothread_vq_mapping
    if mapping is None:
        return None
    served = sorted(name for name, used in spent.by_iothread.items() if used >= SERVING_NS)
    used = ", ".join(f"{name} {ns / 1e6:.0f} ms" for name, ns in sorted(spent.by_iothread.items()))
    ours = set(served) <= set(stack.device.iothreads)
    found = "+".join(served) or ("none" if spent.of("main") >= MAIN_LOOP_NS and spent.tells else None)
    found = mapping if served and ours else found
    proof = f"CPU of the IOThreads {UNDER_LOAD}: {used or 'none'}"
    return Check("device.iothread_vq_mapping", mapping, found, proof)
