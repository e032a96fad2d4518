# SPDX-License-Identifier: Apache-2.0
"""The rig `libvirt`: an existing running domain, which is left as it was found.

For every stack a scratch disk made by virtune is attached, and detached and removed when the block ends, even after a
failure. Nothing else of the domain is changed; its live and its inactive XML are compared with the original ones.

fio is the guest's own. Every agent command costs the host a process and some milliseconds of CPU, so there are few in
the measured time: the guest records its own counters, and the results are fetched at the end.

libvirt's own connection to QEMU's monitor is not used: a command on it taints the domain, and the mark stays. So a
setting that only the monitor shows (whether flushes are honoured) is taken from libvirt's live XML, and marked so.
"""

import contextlib
import json
import math
import time
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from itertools import accumulate
from pathlib import Path

from virtune import shell
from virtune.bench.guest.agent import (
    ARM_SECONDS,
    SCHEMA,
    SPEED_HINT,
    AgentGuest,
    FioLoad,
    GuestError,
    must,
    read_clock,
    seen_in_guest,
    speed_words,
    wrong_speed,
)
from virtune.bench.libvirt.access import (
    DomainAccess,
    Plugged,
    alone_in,
    require_possible,
    scripts,
    strike_out,
    sweep_guest,
    take_out,
    unplug,
    write_down,
    written_down,
)
from virtune.bench.libvirt.during import DomainJob, DomainSnapshots
from virtune.bench.live.domain import counts_of, exits_in
from virtune.bench.live.monitor import FIELDS
from virtune.bench.load import Loaded, run_loads
from virtune.bench.port import DiskImageSpec, Keep, LoadJob, LoadOutput, Surroundings, Window
from virtune.bench.verify import (
    Opened,
    RingOwners,
    Row,
    Spent,
    direct_check,
    engine_check,
    engine_check_under_load,
    guest_checks,
    iothread_check_under_load,
    kernel_checks,
    loops_of,
    moved_since,
    opened,
    requested,
    since,
    spent_by,
)
from virtune.dialects.libvirt.alter import foreign
from virtune.dialects.libvirt.disk import driver_words, find_plugged, free_target, plug_xml
from virtune.dialects.libvirt.domain import read_domain
from virtune.dialects.libvirt.elements import domain_element
from virtune.dialects.text.xml import Element, read_document
from virtune.fio.job import OPERATIONS
from virtune.model.errors import LoadError, PreconditionError, RigError, VirtuneError
from virtune.model.evidence import UNDER_LOAD, VM_JOBS, Changeover, Check, InForce
from virtune.model.knobs import BY_ID
from virtune.model.stack import LIMITS, GuestTarget, Stack, setting_of, thread_number
from virtune.probe.images import read_qcow2
from virtune.probe.process import IO_URING, Process, Ring, Rings
from virtune.virsh import DumpedDomain, LibvirtRefused, as_file

_LIVE = "libvirt's live XML"

_SHARE = 0.5
"""A ring that takes at least half as many requests as the disk completes is taken to serve this disk."""


def accelerator_of(kind: str, process: Process | None) -> tuple[str, str]:
    """Return the guest's accelerator, `kvm` or `tcg`, and the proof."""
    said = f"libvirt runs it as a domain of type {kind}"
    links = None if process is None else process.descriptors()
    if links:
        held = "anon_inode:kvm-vm" in links.values()
        return ("kvm" if held else "tcg"), f"{said}; its process holds {'a' if held else 'no'} VM of KVM's"
    return ("kvm" if kind == "kvm" else "tcg"), said


_KNOBS = {
    "type": "disk.format",
    "discard": "disk.discard",
    "detect_zeroes": "disk.detect_zeroes",
    "queues": "device.num_queues",
    "iothread": "driver.iothread",
}
"""The knobs of the attributes of libvirt's <driver>; the others have the knob's own name. An IOThread named there
need not serve the disk; that is verified under load.
"""


def driver_checks(stack: Stack, asked: Element, found: Element) -> Iterator[Check]:
    """Compare each attribute of the requested <driver> with the live XML; libvirt may drop some."""
    has = driver_words(found)
    for name, value in driver_words(asked).items():
        # these are verified on the process and in the guest
        if name in ("name", "cache", "io"):
            continue
        yield Check(_KNOBS.get(name, f"device.{name}"), value, has.get(name, "libvirt's default"), _LIVE)
    limits = {one.tag: str(one.text) for limit in LIMITS for one in found.all(f"iotune/{limit.libvirt}")}
    cache = found.child("driver")
    sizes = [] if cache is None else [str(one.text) for one in cache.all("metadata_cache/max_size")]
    rows: tuple[Row, ...] = (
        *((one.knob, setting_of(stack, BY_ID[one.knob]), limits.get(one.libvirt, "0"), _LIVE) for one in LIMITS),
        ("disk.l2_cache_size", stack.disk.l2_cache_size, next(iter(sizes), "libvirt's default"), _LIVE),
    )
    yield from requested(rows)
    target = found.child("target")
    bus = None if target is None else target.get("bus")
    plugged = "virtio-blk" if bus == "virtio" else bus
    yield Check("device.bus", stack.device.bus, plugged, _LIVE)


def image_checks(stack: Stack, image: Path) -> Iterator[Check]:
    """Compare the image's options with the request; a domain's monitor is not used for that."""
    header = read_qcow2(image)
    for name in ("cluster_size", "extended_l2", "lazy_refcounts"):
        found = None if header is None else getattr(header, name)
        yield from requested([(f"disk.{name}", getattr(stack.disk, name), found, f"the header of {image}")])


def cache_check(
    stack: Stack, process: Process | None, image: Path, found: Element, seen: Mapping[str, str]
) -> Iterator[Check]:
    """Verify the cache mode of the image: by its descriptor, by the guest, and the rest by libvirt."""
    held = (
        Opened(direct=None, proof="the domain's process is not seen from here", hidden=True)
        if process is None
        else opened(process, image)
    )
    asked, direct = stack.disk.cache, held.direct
    yield direct_check(stack.disk, held)
    said = driver_words(found).get("cache", "default")
    through = seen.get("write_cache") == "write through"
    if direct is None:
        mode, how = None, f"libvirt's live XML says {said}; the image's descriptor could not be looked at"
    else:
        likely = (
            ("directsync" if through else "none") if direct == "on" else ("writethrough" if through else "writeback")
        )
        mode = said if (likely, said) == ("writeback", "unsafe") else likely
        how = (
            f"O_DIRECT {direct} on the image's descriptor, {seen.get('write_cache')} in the guest, {said} in libvirt"
        )
    yield Check("disk.cache", asked, mode, how, hidden=held.hidden)


def disk_checks(
    stack: Stack, asked: Element, found: Element, seen: Mapping[str, str], *, vcpus: int, writes: bool
) -> Iterator[Check]:
    """Compare the disk's settings at libvirt and in the guest with the request."""
    yield from driver_checks(stack, asked, found)
    yield from guest_checks(stack, seen, vcpus=vcpus, writes=writes)
    yield from kernel_checks(stack, (seen,), proof="the guest's /sys/block")


def took(rings: Rings, now: Rings, requests: int) -> dict[Ring, int]:
    """Return the older rings that completed as much as the disk did, and how much: each may serve it.

    A ring may be shared with another disk of the domain, because an event loop has one of each kind.
    """
    came = {
        ring: (after - place) % 2**32
        for ring, place in rings.places.items()
        if ring[0] == IO_URING and place is not None and (after := now.places.get(ring)) is not None
    }
    return {ring: count for ring, count in came.items() if requests and count >= _SHARE * requests}


_ANSWER_SECONDS = 20.0
_RESULT_SECONDS = 60.0
_LOOK_SECONDS = 2.0
"""The interval of checks whether the load has ended early, and whether the disk completes any request."""

_ENDING_SECONDS = 0.25
"""The interval of checks after its planned end."""

_START = """place=$1; export place
rm -rf "$place" && mkdir -m 700 "$place" && cd "$place" && mkfifo go && cat >load.fio || exit 1
sh "$2/counters" $$ </dev/null >/dev/null 2>&1 &
shift 2; exec "$@" >said 2>&1
"""
"""Starts fio in a new directory, where its prerun leaves a file too, and a counter script beside it. Output goes into
a file: an answer of more than libvirt's 10 MiB would disconnect the domain's agent.
"""

_ARM = """place=$1; export place
sh "$2/armed" "$3" "$4" "$5"
"""

_COLLECT = f"""cd "$1" || exit 1
cat load_iops.*.log >log 2>/dev/null
cat {OPERATIONS}_lat.*.log >each 2>/dev/null
wc -c <load.json; wc -c <log; wc -c <each
cat load.json log each counters >all
"""
"""Collects a load's results in one file, since each file takes three agent commands; the lengths separate the parts.
"""

_SHORT_SECONDS = 15.0
_FURNISH = """mkdir -m 700 "$1" && cd "$1" || exit 1; shift
while [ $# -gt 0 ]; do printf %s "$2" >"$1" || exit 1; shift 2; done
"""


@dataclass(kw_only=True)
class DomainBench(Loaded):
    """A domain with the scratch disk of one stack. `place` is the load's directory in the guest."""

    way: DomainAccess
    disk: str
    place: str
    scripts: str
    accelerator: str
    xml: str
    brought: set[Ring]
    all_before: Mapping[str, int] = field(default_factory=dict)

    @property
    def process(self) -> Process | None:
        return self.way.process

    @property
    def guest(self) -> AgentGuest:
        return self.way.guest

    def run(self, jobs: Sequence[LoadJob], window: Window, keep: Keep) -> LoadOutput:
        keep.capture("accelerator.txt", self.accelerator)
        before = self._jobs()
        try:
            return run_loads([DomainLoad(self, jobs[0])], window, keep)
        finally:
            if found := before | (after := self._jobs()):
                moved = {name: before.get(name) != after.get(name) for name in found}
                keep.capture(VM_JOBS, json.dumps(moved) + "\n")

    def under_load(self, *, flushes: bool) -> tuple[Check, ...]:
        process, aio = self.process, self.stack.disk.aio
        if process is None:
            proof = f"the domain's process is not seen from here, so nothing tells {UNDER_LOAD}"
            asked = {"disk.aio": aio, "device.iothread": self.stack.device.iothread}
            return tuple(
                Check(name, value, None, proof, hidden=True) for name, value in asked.items() if value is not None
            )
        rings, now = process.rings(), self._requests()  # in this order: what moved a ring by then is in the counts
        requests = now.get(self.disk, 0) - self.requests_before
        spent = replace(spent_by(process.pid, since(process, self.spent_before)), requests=requests)
        older, elsewhere = took(self.rings_before, rings, requests), self._elsewhere(now)
        others = sum(elsewhere.values())
        # what the domain's other disks may have moved alone tells nothing of this one
        shared = {ring for ring, count in older.items() if count - others < _SHARE * requests}
        found = moved_since(process, self.rings_before, self.brought | older.keys())
        activity = replace(
            found,
            moved={**found.moved, **dict.fromkeys(shared - self.brought)},
            workers_ns=spent.of("worker"),
            io_ns=spent.io_ns,
            alone=False,  # the domain's own disks are served by the same threads
            flushes=flushes,
        )
        checks = (engine_check_under_load(aio, activity), self._thread_check(spent, requests, elsewhere))
        return tuple(check for check in checks if check is not None)

    def _thread_check(self, spent: Spent, requests: int, elsewhere: Mapping[str, float]) -> Check | None:
        """Check which thread serves the disk, by the CPU time of those on which no other disk was busy."""
        domain, busy = read_domain(self.xml.encode()), dict[int, float]()
        for disk in domain.disks:
            for number in domain.threads_of(disk) if elsewhere.get(disk.target) else ():
                busy[number] = busy.get(number, 0) + elsewhere[disk.target]
        asked = self.stack.device.iothread
        if busy.pop(thread_number(asked or "") or 0, 0) >= _SHARE * requests:
            proof = f"{asked} serves other disks of the domain, which were as busy: its CPU time tells nothing"
            return Check("device.iothread", str(asked), None, proof, hidden=True)
        theirs = sum(ns for name, ns in spent.by_iothread.items() if thread_number(name) in busy)
        roles = {**spent.by_role, "iothread": spent.of("iothread") - theirs}
        return iothread_check_under_load(self.stack, replace(spent, by_role=roles))

    def begin(self) -> None:
        self.all_before = self._requests()
        super().begin()

    def operations(self) -> int:
        return self._requests().get(self.disk, 0)

    def _elsewhere(self, now: Mapping[str, int]) -> dict[str, float]:
        """Return how many requests each other disk of the domain completed under load; of one with a job, which are
        not counted, any number.
        """
        jobs = {name.rpartition(" of ")[2] for name in self._jobs()}
        return {
            name: math.inf if name in jobs else count - self.all_before.get(name, 0)
            for name, count in now.items()
            if name != self.disk
        }

    def _requests(self) -> dict[str, int]:
        counts = counts_of(self.way.virsh.run("domstats", "--block", self.way.uuid), 0)
        return {name: one.reads + one.writes + one.flushes for name, one in counts.items()}

    def _jobs(self) -> dict[str, str]:
        return self.way.jobs([one.target for one in read_domain(self.xml.encode()).disks if one.target != self.disk])

    def block_statistics(self) -> dict[str, int]:
        """Return what QEMU has counted of the disk, by QEMU's names."""
        found = counts_of(self.way.virsh.run("domstats", "--block", self.way.uuid), 0).get(self.disk)
        return {} if found is None else {theirs: getattr(found, ours) for ours, theirs in FIELDS.items()}

    def exits(self) -> int | None:
        """Return how often KVM has left the guest for the host; None where libvirt does not report it."""
        return exits_in(self.way.virsh.run("domstats", "--vcpu", self.way.uuid))

    def trouble(self) -> str | None:
        if self.way.process is None or self.way.process.exists:
            return None
        return f"{self.way.domain} stopped while it was measured"

    def evidence(self) -> str:
        asked = (("domstate", "--reason", self.way.uuid), ("domblkstat", self.way.uuid, self.disk))
        said = [f"{words[0]}: {self.way.virsh.run(*words, ok=(0, 1)).strip()}" for words in asked]
        return "\n".join(said) + "\n"


class DomainLoad(FioLoad):
    """fio in a domain, checked seldom. `_marks` are the moments of the host's clock by their names."""

    bench: DomainBench
    look_seconds = _LOOK_SECONDS

    def __init__(self, bench: DomainBench, job: LoadJob) -> None:
        super().__init__(bench, job, bench.guest)
        self.complaints = (f"{bench.place}/said", f"{bench.place}/load.json")
        self._marks: list[tuple[str, float]] = []
        self._counters = b""
        self._asked = 0.0

    def start(self) -> None:
        bench, argv = self.bench, self.words(barrier=f"{self.bench.scripts}/barrier", place="")
        self.command = " ".join(argv)
        words = ["sh", "-c", _START, "sh", bench.place, bench.scripts, *argv]
        self.process = bench.guest.start(words, timeout_seconds=_ANSWER_SECONDS, stdin=self.job.job.text.encode())

    def waits(self) -> bool:
        waiting = [self.bench.place, self.bench.scripts, str(self.job.clones), str(int(ARM_SECONDS))]
        words = ["sh", "-c", _ARM, "sh", *waiting, str(self.process.pid)]
        return self.guest.run(words, timeout_seconds=ARM_SECONDS + _ANSWER_SECONDS).status == 0

    def arm(self) -> None:
        super().arm()
        self._clock = read_clock(self.guest, timeout_seconds=_ANSWER_SECONDS)

    def release(self) -> None:
        asked = time.monotonic()
        self.guest.put(f"{self.bench.place}/go", b"\n" * self.job.clones, timeout_seconds=_ANSWER_SECONDS)
        # three commands: open the file, write, close; the write releases the load
        self._asked = self.started = (asked + time.monotonic()) / 2
        self._marks.append(("go", self.started))

    def read(self, mark: str) -> Mapping[str, object] | None:
        """Read QEMU's counters of the disk by libvirt; without them only one layer is missing."""
        self._marks.append((mark, time.monotonic()))
        begun = time.monotonic_ns()
        with contextlib.suppress(VirtuneError):
            stats, exits = self.bench.block_statistics(), self.bench.exits()
            found = {"t": (begun + time.monotonic_ns()) // 2, "stats": stats}
            return found if exits is None else found | {"exits": exits}
        return None

    def over(self, seconds: float, *, due: bool) -> bool:
        """Wait a tick; ask whether it has ended, more often after its planned end."""
        if (trouble := self.bench.trouble()) is not None:
            raise LoadError(trouble)
        now = time.monotonic()
        if now - self._asked >= (_ENDING_SECONDS if due else _LOOK_SECONDS):
            self._asked = now
            if self.has_ended(0):
                return True
        time.sleep(seconds)
        return False

    def result(self) -> tuple[bytes, bytes, bytes]:
        """Return fio's JSON and its logs.

        Raises LoadError where the guest's clock, by which fio measured, did not keep the host's time meanwhile.
        """
        bench = self.bench
        speed = wrong_speed(self._clock, read_clock(self.guest, timeout_seconds=_ANSWER_SECONDS))
        if speed is not None:
            raise LoadError(speed_words(bench.way.domain, speed), hint=SPEED_HINT)
        said = must(self.guest, ["sh", "-c", _COLLECT, "sh", bench.place], timeout_seconds=_RESULT_SECONDS).split()
        whole = self.fetched(f"{bench.place}/all")
        if len(said) != 3 or not all(word.isdigit() for word in said):
            raise GuestError("the guest does not say how long its load's result is")
        first, second, third = accumulate(int(word) for word in said)
        self._counters = _counters(whole[third:], self._clock.boot, self._marks)
        return whole[:first], whole[first:second], whole[second:third]

    def keep(self, keep: Keep, number: int) -> None:  # noqa: ARG002 - a domain is loaded alone
        keep.capture("domain.xml", self.bench.xml)
        keep.capture("guest-counters.jsonl", self._counters)


def _counters(counted: bytes, clock: float, marks: list[tuple[str, float]]) -> bytes:
    """Return the guest's counters as JSON lines, its clock turned into the host's.

    `clock` is the host's monotonic clock at the guest's boot, derived from an agent's answer and some hundredths of a
    second late.
    """
    samples: list[dict[str, object]] = [{"t": int(at * 1e9), "mark": mark} for mark, at in marks]
    for part in counted.decode(errors="replace").split("== ")[1:]:
        uptime, _, text = part.partition("\n")
        with contextlib.suppress(ValueError, IndexError):
            at = clock + float(uptime.split()[0])
            samples.append({"t": int(at * 1e9), "uptime": uptime, "text": text})
    head = {"schema": SCHEMA, "files": ["/proc/stat", "/proc/diskstats", "/proc/interrupts"]}
    lines = [head, *sorted(samples, key=lambda sample: int(str(sample["t"])))]
    return "".join(json.dumps(line) + "\n" for line in lines).encode()


@contextlib.contextmanager
def session(stack: Stack, place: Surroundings) -> Iterator["DomainSession"]:
    """Yield the rig of one domain, locked against other runs of virtune.

    Remains of a killed run in the domain are removed first. Raises RigError when the domain is not left as it was
    found.
    """
    way = place.access.get(stack.domain or "")
    if not isinstance(way, DomainAccess):
        raise RigError("rig=libvirt needs a domain, and a way into it")
    home = shell.data_directory() / "plugged"
    with alone_in(home, way.uuid, way.domain):
        for left in written_down(home):
            if left.uuid == way.uuid and left.abandoned:
                take_out(left, way.virsh, way.guest)
                strike_out(home, left)
        before = way.dump()
        plugged = write_down(home, uri=way.virsh.uri, uuid=way.uuid, domain=way.domain, scratch=place.scratch)
        found = DomainSession(way, plugged, before)
        try:
            # our scripts, in a new directory in the guest's memory
            words = [word for name, content in scripts().items() for word in (name, content.decode())]
            furnish = ["sh", "-c", _FURNISH, "sh", f"/run/{plugged.name}", *words]
            must(way.guest, furnish, timeout_seconds=_SHORT_SECONDS)
            yield found
        finally:
            take_out(plugged, way.virsh, way.guest)
            strike_out(home, plugged)
        found.require_as_found()


class DomainSession:
    """One domain, with virtune's directory and disk in it."""

    def __init__(self, way: DomainAccess, plugged: Plugged, before: DumpedDomain) -> None:
        self._way, self._plugged, self._before = way, plugged, before
        self._place = f"/run/{plugged.name}"
        self._engines = RingOwners()
        self._count = 0

    @contextlib.contextmanager
    def up(self, stack: Stack, ground: DiskImageSpec, *, restart: bool = False) -> Iterator[DomainBench]:  # noqa: ARG002
        """Attach a disk, and detach it when the block ends; every stack gets a new disk, so `restart` adds nothing.

        Raises RigError when it does not come up, or when the domain is not restored afterwards.
        """
        if ground.image is None:
            raise RigError("a disk without an image cannot be plugged into a domain")
        require_possible(self._way, stack)
        begun, image = time.monotonic(), ground.image.resolve()
        # libvirt takes no snapshot of a read-only disk
        ground = replace(ground, writes=ground.writes or stack.during == "snapshot")
        target = free_target(*(text.encode() for text in (self._before.live, self._before.inactive) if text))
        xml = plug_xml(stack, image=str(image), target=target, name=self._plugged.name, writable=ground.writes)
        bare = self._rings()
        try:
            with as_file(xml) as name:
                try:
                    self._way.virsh.run("attach-device", self._way.uuid, name, "--live")
                except LibvirtRefused as refusal:
                    raise _explained(refusal.message, self._way.domain, image) from None
            new = self._engines.opened(loops_of(stack), bare, self._rings())
            yield self._bench(stack, ground, xml, target, new, begun)
        except BaseException:
            sweep_guest(self._way.guest, f"{self._plugged.name}/load")
            raise
        finally:
            unplug(self._way.virsh, self._way.uuid, self._way.domain, self._plugged.name)
        self.require_as_found()

    def require_as_found(self) -> None:
        """Raise RigError when the domain is not as it was before virtune came."""
        now = self._way.dump()
        for when, before, after in (
            ("as it runs", self._before.live, now.live),
            ("for its next start", self._before.inactive, now.inactive),
        ):
            if before == after:
                continue
            if after is None or before is None:
                raise RigError(f"{self._way.domain} stopped while virtune measured in it")
            differs = "; ".join(foreign(asked=before.encode(), found=after.encode())[:5]) or "in order or addresses"
            raise RigError(
                f"the configuration of {self._way.domain} {when} is not what it was: {differs}",
                hint="somebody changed it meanwhile, or a disk of virtune's stayed: `virtune host clean` removes it",
            )

    def _bench(
        self, stack: Stack, ground: DiskImageSpec, xml: str, target: str, new: set[Ring], begun: float
    ) -> DomainBench:
        live = (self._way.dump().live or "").encode()
        disk = find_plugged(live, self._plugged.name)
        if disk is None:
            raise RigError(f"libvirt took the disk, and {self._way.domain} does not show it")
        asked = read_document(xml.encode()).root
        program = ("sh", f"{self._place}/disk")
        seen = seen_in_guest(self._way.guest, self._plugged.name, stack.kernel, program=program)
        path, size = seen.get("device", ""), int(seen.get("sectors", "0")) * 512
        if not path.startswith("/dev/") or size < ground.size_bytes:
            raise RigError(f"the guest sees a disk of {size} bytes, and the image has {ground.size_bytes}")
        kind = domain_element(read_document(live)).get("type") or ""
        accelerator, why = accelerator_of(kind, self._way.process)
        pid = 0 if self._way.process is None else self._way.process.pid
        self._count += 1
        checks = self._checks(stack, ground, asked, disk, seen, new)
        return DomainBench(
            target=GuestTarget(path=path, size_bytes=ground.size_bytes),
            image=ground.image,
            command=f"virsh -c {self._way.virsh.uri} attach-device {self._way.domain} DISK.xml --live\n{xml}",
            processes={"guest": pid} if pid else {},
            in_force=InForce(checks=(Check("accelerator", accelerator, accelerator, why), *checks)),
            changeover=Changeover(
                swapped="disk", seconds=time.monotonic() - begun, process=pid, carried=self._count - 1
            ),
            stack=stack,
            way=self._way,
            disk=target,
            place=f"{self._place}/load",
            scripts=self._place,
            accelerator=f"{accelerator}: {why}\n",
            seen=seen,
            xml=live.decode(),
            brought=self._engines.of(loops_of(stack)),
            during=self._job(stack, ground, target),
        )

    def _job(self, stack: Stack, ground: DiskImageSpec, target: str) -> DomainJob | None:
        if stack.during == "none" or ground.copy is None or ground.image is None:
            return None
        where = (self._way.virsh, self._way.uuid, target, ground.copy.resolve())
        if stack.during == "snapshot":
            return DomainSnapshots(*where, image=ground.image.resolve(), disk=stack.disk)
        return DomainJob(stack.during, *where)

    def _checks(
        self,
        stack: Stack,
        ground: DiskImageSpec,
        asked: Element,
        disk: Element,
        seen: Mapping[str, str],
        new: set[Ring],
    ) -> Iterator[Check]:
        image = ground.image
        if image is None:
            return
        if self._way.process is not None:
            yield engine_check(stack.disk.aio, new, self._rings())
        yield from cache_check(stack, self._way.process, image, disk, seen)
        yield from image_checks(stack, image)
        yield from disk_checks(stack, asked, disk, seen, vcpus=self._way.vcpus, writes=ground.writes)

    def _rings(self) -> Rings:
        return Rings() if self._way.process is None else self._way.process.rings()


def _explained(said: str, domain: str, image: Path) -> Exception:
    """Return what libvirt's refusal of a disk means."""
    if "No more available PCI" in said:
        return PreconditionError(
            f"{domain} has no free PCI slot, so no disk can be plugged in",
            hint="a q35 domain needs a spare <controller type='pci' model='pcie-root-port'/> (at a power-off)",
        )
    if "Permission denied" in said or "Could not open" in said:
        return PreconditionError(
            f"the QEMU of {domain} cannot open {image}",
            hint=f"its user must be able to pass through every directory above (`chmod o+x {image.parent}`), or "
            "`--scratch DIR` names one that it can, such as one below /var/lib/libvirt/images",
        )
    return RigError(f"libvirt did not plug the disk into {domain}: {said.partition('`: ')[2] or said}")
