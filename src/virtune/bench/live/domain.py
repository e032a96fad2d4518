# SPDX-License-Identifier: Apache-2.0
"""The interface for observing a running VM (its disks, its process, its counters), and a running libvirt domain over
a read-only connection.

Which places of a disk are asked for is told by the newest request of each virtqueue, as the guest's driver wrote it.
QEMU counts requests and bytes and no places, so only the virtqueue tells whether they follow one another. Of a
request its header is read (read or write, and its first sector), never data; and nothing is written. A look counts if
the queue offered nothing new while it was made: what was read is then of the request that it seems to be of.
"""

import contextlib
import ctypes
import errno
import os
import re
import struct
import threading
import time
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import NamedTuple, Protocol

from virtune.bench.live.rings import WRAP as _WRAP
from virtune.bench.live.rings import Piece, QueueAddresses, RingReader, address_of, copy_from
from virtune.bench.qmp import Monitor
from virtune.dialects.libvirt.domain import limits_command, read_domain, without
from virtune.model.domain import Domain, DomainDisk
from virtune.model.errors import NO_END, PreconditionError, RigError
from virtune.model.live import DiskCount, Histograms, LiveDisk, LiveVm, Move
from virtune.model.stack import LIMITS, POLL_DEFAULT_NS, THROUGH_CACHES
from virtune.probe.process import Process, process_of_domain, processes_of_domains
from virtune.virsh import LibvirtRefused, Virsh

INTERVAL_SECONDS = 0.01
"""How often the newest request is looked at: a look of one queue takes four to nine system calls."""

_MIB, _FOUR_GIB = 1 << 20, 1 << 32
"""A guest's memory has a hole below 4 GiB; what lies beyond it is elsewhere in QEMU's memory."""

_DESCRIPTOR = struct.Struct("<QIHH")
_HEADER = struct.Struct("<IIQ")
_INDIRECT = 4
_READ, _WRITE = 0, 1


@dataclass(frozen=True, slots=True, kw_only=True)
class QueuePlace:
    """Where a split ring lies in QEMU's memory: its ring of offered requests and its descriptors."""

    offered: int
    descriptors: int
    size: int


class Newest(NamedTuple):
    """How many requests a queue was offered, modulo 65536, the first sector of the newest one, and that of the one
    before it, None where that was over when the newest one came.
    """

    offered: int
    sector: int
    before: int | None


class PlaceReader:
    """The newest request in each virtqueue of a virtio-blk disk.

    `low` and `high` are what to add to an address of the guest's memory below and beyond 4 GiB to find it in QEMU's,
    None where there is none.
    """

    def __init__(self, pid: int, queues: Sequence[QueuePlace], *, low: int | None, high: int | None) -> None:
        self._pid, self._queues, self._low, self._high = pid, tuple(queues), low, high

    def __len__(self) -> int:
        return len(self._queues)

    def newest(self, number: int) -> Newest | None:
        """Return the newest request of a queue; None if it is no read or write, another one came meanwhile, or it
        cannot be read.
        """
        queue = self._queues[number]
        try:
            _, index, *ring = struct.unpack(f"<{2 + queue.size}H", self._read(queue.offered, 4 + 2 * queue.size))
            last, other = (ring[(index - back) % queue.size] % queue.size for back in (1, 2))
            sector, before = self._sector(queue, last), None
            if other != last and index != 1:  # one that is over gives its descriptor to the next one
                with contextlib.suppress(OSError):
                    before = self._sector(queue, other)
            same = self._index(queue) == index
        except OSError:
            return None
        return Newest(index, sector, before) if same and sector is not None else None

    def _sector(self, queue: QueuePlace, entry: int) -> int | None:
        """Return the first sector of a request, None for one that is no read or write."""
        address, flags = self._descriptor(queue.descriptors + 16 * entry)
        if flags & _INDIRECT:
            address, _ = self._descriptor(self._here(address))
        kind, _, sector = _HEADER.unpack(self._read(self._here(address), _HEADER.size))
        return sector if kind in (_READ, _WRITE) else None

    def _index(self, queue: QueuePlace) -> int:
        return int(struct.unpack("<H", self._read(queue.offered + 2, 2))[0])

    def _descriptor(self, place: int) -> tuple[int, int]:
        address, _, flags, _ = _DESCRIPTOR.unpack(self._read(place, _DESCRIPTOR.size))
        return address, flags

    def _here(self, address: int) -> int:
        offset = self._low if address < _FOUR_GIB else self._high
        if offset is None:
            raise OSError(errno.EFAULT, os.strerror(errno.EFAULT))
        return offset + address

    def _read(self, place: int, count: int) -> bytes:
        buffer = ctypes.create_string_buffer(count)
        copy_from(self._pid, Piece(ctypes.addressof(buffer), count), (Piece * 1)(Piece(place, count)))
        return buffer.raw


def place_reader(monitor: Monitor, pid: int, queues: Sequence[QueueAddresses]) -> PlaceReader | None:
    """Return the reader of a disk's places; None for another device than virtio-blk, or where QEMU does not tell."""
    with contextlib.suppress(RigError, KeyError, ValueError, TypeError):
        found = [one for one in queues if one.kind == "virtio-blk"]
        places = [
            QueuePlace(
                offered=address_of(monitor, one.avail), descriptors=address_of(monitor, one.desc), size=one.size
            )
            for one in found
        ]
        if places:
            known = found[0].desc
            low = _beyond(monitor, known if known < _FOUR_GIB else _MIB)
            high = _beyond(monitor, max(known, _FOUR_GIB))
            return PlaceReader(pid, places, low=low, high=high)
    return None


def _beyond(monitor: Monitor, address: int) -> int | None:
    """Return what to add to addresses beside this one; None where the guest has no memory there."""
    with contextlib.suppress(RigError, ValueError):
        return address_of(monitor, address) - address
    return None


@contextlib.contextmanager
def watched_moves(reader: PlaceReader, *, interval_seconds: float = INTERVAL_SECONDS) -> Iterator[list[Move]]:
    """Look at the newest requests in a separate thread while the block runs; the list grows by each look that finds
    another one: by the move from the one before it, or from that of the look before.
    """
    found: list[Move] = []
    over = threading.Event()

    def run() -> None:
        last: dict[int, Newest] = {}
        while not over.wait(interval_seconds):
            for number in range(len(reader)):
                now = reader.newest(number)
                if now is None:
                    continue
                then = last.get(number)
                last[number] = now
                if then is None or not (requests := (now.offered - then.offered) % _WRAP):
                    continue
                if now.before is not None:
                    found.append(Move(requests=1, sectors=now.sector - now.before))
                else:
                    found.append(Move(requests=requests, sectors=now.sector - then.sector))

    thread = threading.Thread(target=run, name="places", daemon=True)
    thread.start()
    try:
        yield found
    finally:
        over.set()
        thread.join()


_COUNT = re.compile(r"^\s*block\.(\d+)\.([a-z.]+)=(.*)$", re.MULTILINE)

_EXITS = re.compile(r"^\s*vcpu\.\d+\.exits\.sum=(\d+)$", re.MULTILINE)

_NO_EXITS = "KVM exits: libvirt reports none; it does from 9.0 on, of guests that run on KVM, with QEMU 7.1 and later"

_DOMAIN = re.compile(r"^Domain: '(.*)'$", re.MULTILINE)
"""What comes before each domain's part of an answer of `virsh domstats`: its name."""

_NO_RINGS = (
    "the wait in the virtqueue, and whether requests follow one another on the disk: asking where it lies would taint"
    " a domain of libvirt's; of a QEMU started by hand `--qmp` shows both"
)

_NO_HISTOGRAMS = "percentiles: asking a domain of libvirt's for histograms would taint it"

_FIELDS = {
    "reads": "rd.reqs", "writes": "wr.reqs", "flushes": "fl.reqs", "read_bytes": "rd.bytes",
    "written_bytes": "wr.bytes", "read_ns": "rd.times", "write_ns": "wr.times", "flush_ns": "fl.times",
}  # fmt: skip


class LiveView(Protocol):
    """A view of a VM that changes nothing, unless histograms are asked for."""

    vm: LiveVm
    histograms: Mapping[str, Histograms] = {}

    def counts(self) -> Mapping[str, DiskCount]:
        """Return what QEMU has counted of each disk by now, by its target."""
        ...

    def rings(self, target: str) -> RingReader | str:
        """Return the virtqueues of a disk, or say why they cannot be seen."""
        ...

    def places(self, target: str) -> PlaceReader | None:  # noqa: ARG002 - most cannot be seen
        """Return what sees which places of a disk are asked for; None where they cannot be seen."""
        return None

    def exits(self) -> int | str:
        """Return how often KVM has left the guest for the host, all vCPUs together, or why that is not known."""
        ...

    def keep_histograms(self) -> str:
        """Have QEMU keep histograms; returns why it does not, else nothing."""
        return _NO_HISTOGRAMS

    def take_histograms_back(self) -> None:
        """End the histograms that were asked for here."""
        return

    def rest(self) -> None:
        """Hold nothing that others may want until the next question."""
        return

    def look_again(self) -> None:
        """Read its disks anew: some came or went, or have other limits."""
        return


class LiveDomain(LiveView):
    """A running domain, of which a command to the monitor, which is libvirt's, would show more, and taint it."""

    def __init__(self, virsh: Virsh, name: str) -> None:
        """Raises PreconditionError when there is no such domain, or it does not run."""
        self._virsh, self.uuid = virsh, virsh.uuid(name)
        found = virsh.dump([self.uuid])
        if not found or found[0].live is None:
            raise PreconditionError(
                f"{name} does not run", hint=f"`virsh -c {virsh.uri} list` shows those that do; it needs its own load"
            )
        local = virsh.facts().local
        self._process = process_of_domain(self.uuid) if local else None
        self.vm = _vm(found[0].live, self._process, uri=virsh.uri, local=local)

    def look_again(self) -> None:
        found = self._virsh.dump([self.uuid])
        if found and found[0].live is not None:
            self.vm = _vm(found[0].live, self._process, uri=self._virsh.uri, local=self._virsh.facts().local)

    def counts(self) -> Mapping[str, DiskCount]:
        begun = time.monotonic_ns()
        try:
            said = self._virsh.run("domstats", "--block", self.uuid)
        except LibvirtRefused as refusal:
            if NO_END not in refusal.message:
                raise
            said = ""
        # the answer takes some milliseconds; its time is taken as the middle
        found = counts_of(said, (begun + time.monotonic_ns()) // 2)
        require_counts(self.vm, found)
        return found

    def rings(self, target: str) -> str:  # noqa: ARG002 - a domain's monitor is libvirt's
        return _NO_RINGS

    def exits(self) -> int | str:
        found = exits_in(self._virsh.run("domstats", "--vcpu", self.uuid))
        return _NO_EXITS if found is None else found


def require_counts(vm: LiveVm, found: Mapping[str, DiskCount]) -> None:
    """Raise PreconditionError where a VM's QEMU gave no counters of its disks: libvirt then leaves them out, or waits
    for them without an end.
    """
    if vm.disks and not found:
        hint = f"`virsh -c {vm.uri} domjobinfo {vm.name}` names a job that holds it"
        if vm.pid is not None:
            hint += f"; `ps -o stat= {vm.pid}` shows T where a signal stopped it"
        raise PreconditionError(f"the QEMU of {vm.name} does not answer libvirt: it hangs, or is held up", hint=hint)


class LiveSource(Protocol):
    """The running VMs behind one door: a libvirt, or a QEMU's monitor."""

    def vms(self) -> tuple[LiveVm, ...]:
        """Return the VMs as they were when last counted."""
        ...

    def counts(self) -> Mapping[str, Mapping[str, DiskCount]]:
        """Return what QEMU has counted of each disk by now, by VM and target."""
        ...

    def rings(self, vm: str, target: str) -> RingReader | str:
        """Return the virtqueues of a disk, or say why they cannot be seen."""
        ...

    def histograms(self) -> Mapping[str, Mapping[str, Histograms]]:
        """Return the histograms that QEMU kept of each disk when last counted, by VM and target."""
        return {}

    def take_histograms_back(self) -> None:
        """End the histograms that were asked for here."""
        return

    def rest(self) -> None:
        """Hold nothing that others may want until the next question."""
        return


class LiveDomains(LiveSource):
    """All running domains of a libvirt, with one command of virsh for each sample. A command to a monitor, which is
    libvirt's, would show more, and taint the domain.
    """

    def __init__(self, virsh: Virsh) -> None:
        self._virsh = virsh
        self._local = virsh.facts().local
        self._vms: dict[str, LiveVm] = {}
        self._shape: dict[str, frozenset[str]] | None = None

    def vms(self) -> tuple[LiveVm, ...]:
        return tuple(self._vms.values())

    def counts(self) -> Mapping[str, Mapping[str, DiskCount]]:
        """Return QEMU's counters of each disk, by domain and target. What came or went meanwhile is looked at."""
        begun = time.monotonic_ns()
        said = self._virsh.run("domstats", "--block", "--list-running")
        now = (begun + time.monotonic_ns()) // 2
        _, *parts = _DOMAIN.split(said)
        found = {name: counts_of(part, now) for name, part in zip(parts[::2], parts[1::2], strict=True)}
        shape = {name: frozenset(disks) for name, disks in found.items()}
        if shape != self._shape:
            self._shape, self._vms = shape, dict(self._look())
        return found

    def rings(self, vm: str, target: str) -> str:  # noqa: ARG002 - a domain's monitor is libvirt's
        return _NO_RINGS

    def _look(self) -> Iterator[tuple[str, LiveVm]]:
        running = self._virsh.run("list", "--uuid", "--state-running").split()
        processes = processes_of_domains() if self._local else {}
        for one in self._virsh.dump(running):
            if one.live is not None:
                vm = _vm(one.live, processes.get(one.uuid), uri=self._virsh.uri, local=self._local)
                yield vm.name, vm


def _vm(xml: str, process: Process | None, *, uri: str, local: bool) -> LiveVm:
    domain = read_domain(xml.encode())
    unseen = f"threads and the host's device: no QEMU of {domain.name} is seen here; call virtune on its host"
    return LiveVm(
        name=domain.name,
        pid=None if process is None else process.pid,
        disks=tuple(_disk(domain, one, uri=uri, local=local) for one in domain.disks if one.is_disk),
        missing=() if process is not None else (unseen,),
        uri=uri,
        emulated=domain.kind == "qemu",
    )


def exits_in(said: str) -> int | None:
    """Read the exits of all vCPUs in an answer of `virsh domstats --vcpu`; None where it has none."""
    found = [int(count) for count in _EXITS.findall(said)]
    return sum(found) if found else None


def counts_of(said: str, t_ns: int) -> dict[str, DiskCount]:
    """Read the answer of `virsh domstats --block`; a disk without counters is left out."""
    rows: dict[str, dict[str, str]] = {}
    for number, name, value in _COUNT.findall(said):
        rows.setdefault(number, {})[name] = value
    found = {}
    for row in rows.values():
        values = {ours: int(row[theirs]) for ours, theirs in _FIELDS.items() if row.get(theirs, "").isdigit()}
        if "name" in row and {"reads", "writes", "read_ns", "write_ns"} <= values.keys():
            found[row["name"]] = DiskCount(t_ns=t_ns, **(dict.fromkeys(_FIELDS, 0) | values))
    return found


def _disk(domain: Domain, disk: DomainDisk, *, uri: str, local: bool) -> LiveDisk:
    numbers = domain.threads_of(disk)
    asked = dict(disk.limits)
    limits = {limit.unit: (limit.libvirt, float(value)) for limit in LIMITS if (value := asked.get(limit.libvirt))}
    polls = {one.number: one.poll_max_ns for one in domain.threads if one.poll_max_ns is not None}
    return LiveDisk(
        target=disk.target,
        path=disk.source.name if local and disk.source.kind in ("file", "block") else None,
        threads=tuple(f"IO iothread{number}" for number in numbers),
        polling=any(polls.get(number, POLL_DEFAULT_NS) > 0 for number in numbers),
        direct=disk.cache in ("none", "directsync"),
        tables=disk.format == "qcow2",
        group=disk.limits_group,
        protocol=disk.source.protocol or {"file": "file", "block": "host_device"}.get(disk.source.kind, ""),
        unread=("a backing image",) if disk.backing else (),
        front=disk.bus.upper() if disk.bus in ("ide", "usb", "sd") else "",
        writethrough=disk.cache in THROUGH_CACHES,
        limits={unit: value for unit, (_, value) in limits.items()},
        lifts={
            unit: command
            for unit, (name, _) in limits.items()
            if (command := limits_command(uri, domain.name, disk, without(name, disk))) is not None
        },
    )
