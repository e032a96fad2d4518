# SPDX-License-Identifier: Apache-2.0
"""Observe a disk's virtqueues from outside: the number of requests in them, read from QEMU's memory, which is never
written.

A split ring's indices lie in the guest's memory: how many requests the driver has offered, how many the device has
taken (the `avail_event` that QEMU writes with each), how many it has completed. QEMU's own figures begin when a
request is taken, so only the rings show the wait before that. QEMU reports once where the rings are
(`x-query-virtio-queue-status`, 7.2 and later, and `gpa2hva`); after that it is not queried again.
"""

import contextlib
import ctypes
import errno
import itertools
import json
import mmap
import os
import re
import struct
import threading
import time
from collections.abc import Callable, Hashable, Iterable, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, field, fields
from typing import Generic, Protocol, Self, TypeVar

from virtune.bench.qmp import Monitor
from virtune.model.errors import RigError
from virtune.model.live import STALL_SECONDS, RingCount, RingRates, ring_rates_between
from virtune.probe.process import Process

INTERVAL_SECONDS = 0.002
"""How often the rings of a running VM's disk are read. On a busy 2-core host that took 3 % of a CPU with one ring,
4 % with 16 and 7 % with 64, for some seconds only."""

TRIAL_INTERVAL_SECONDS = 0.01
"""How often they are read in a trial, whose figures must not be affected: one ring takes 5 us, 16 take 27."""

WRAP = 2**16
"""The indices of a ring have 16 bits."""

_QUEUES_MAX = 64

_HOST_ADDRESS = re.compile(r" is (0x[0-9a-f]+)")


class Piece(ctypes.Structure):
    """A piece of a process's memory."""

    _fields_ = (("base", ctypes.c_void_p), ("size", ctypes.c_size_t))


def copy_from(pid: int, here: Piece, there: "ctypes.Array[Piece]") -> None:
    """Copy pieces of a process's memory into one of ours; raises OSError where they may not be read."""
    done = _LIBRARY.process_vm_readv(pid, ctypes.byref(here), 1, there, len(there), 0)
    if done != here.size:
        number = ctypes.get_errno() or errno.EIO
        raise OSError(number, os.strerror(number))


_LIBRARY = ctypes.CDLL(None, use_errno=True)


@dataclass(frozen=True, slots=True)
class _Ring:
    """The addresses of a ring's three indices in QEMU's memory, and its size."""

    offered: int
    taken: int
    completed: int
    size: int


class RingMemory(Protocol):
    """The rings of one disk, wherever their memory is."""

    def __len__(self) -> int:
        """How many rings there are."""
        ...

    def read(self) -> list[tuple[int, int, int]]:
        """Return for each ring how many requests were offered, taken and completed, each modulo 65536. Raises OSError
        when they can no longer be read.
        """
        ...

    def size(self, index: int) -> int:
        """How many requests a ring holds."""
        ...


class RingReader(RingMemory):
    """The rings of one disk of a VM; raises OSError when QEMU's memory may not be read."""

    def __init__(self, monitor: Monitor, pid: int, queues: "Sequence[QueueAddresses]") -> None:
        self._pid = pid
        rings = ((one.size, address_of(monitor, one.avail), address_of(monitor, one.used)) for one in queues)
        self._rings = tuple(_Ring(at + 2, used + 4 + 8 * size, used + 2, size) for size, at, used in rings)
        places = [place for one in self._rings for place in (one.offered, one.taken, one.completed)]
        self._values = (ctypes.c_uint16 * len(places))()
        self._here = Piece(ctypes.addressof(self._values), ctypes.sizeof(self._values))
        self._there = (Piece * len(places))(*(Piece(place, 2) for place in places))
        self.read()

    @classmethod
    def of(cls, monitor: Monitor, pid: int, device: str) -> Self:
        """The rings of a device, by its path of QEMU's objects; none where they cannot be seen."""
        found = queues_of(monitor, device)
        return cls(monitor, pid, () if isinstance(found, str) else found)

    def __len__(self) -> int:
        return len(self._rings)

    def read(self) -> list[tuple[int, int, int]]:
        if not self._rings:
            return []
        copy_from(self._pid, self._here, self._there)
        values = list(self._values)
        return list(zip(values[::3], values[1::3], values[2::3], strict=True))

    def size(self, index: int) -> int:
        return self._rings[index].size


@dataclass(slots=True)
class RingSeen:
    """The observations of one ring: time-weighted sums and the latest indices; with the first ring of a disk, how
    long none of its rings has completed a request while some were in them.
    """

    completed: int = 0
    seconds: float = 0.0
    offered: float = 0.0
    taken: float = 0.0
    samples: int = 0
    torn: int = 0
    last: tuple[int, int, int] = field(default=(0, 0, 0))
    size: int = 0
    quiet: float = 0.0
    stalled: float = 0.0
    stalls: int = 0
    before: int = 0

    @property
    def inside(self) -> int:
        """How many requests were in it when it was last read; 0 where that look was torn."""
        found = (self.last[0] - self.last[2]) % WRAP
        return found if found <= self.size else 0

    def count(self) -> RingCount:
        """Return the sums as they are now."""
        return RingCount(**{one.name: getattr(self, one.name) for one in fields(RingCount)})


_Key = TypeVar("_Key", bound=Hashable)


class RingWatch(Generic[_Key]):
    """Samples the rings of several disks in one thread while the block runs.

    A disk whose memory can no longer be read (its VM ended) keeps what was seen of it.
    """

    def __init__(self, readers: Mapping[_Key, RingMemory], *, interval_seconds: float) -> None:
        self._readers = dict(readers)
        self._seen = {key: [RingSeen(last=one) for one in reader.read()] for key, reader in readers.items()}
        self._interval = interval_seconds
        self._before = time.monotonic()
        self._end = threading.Event()
        self._lock = threading.Lock()
        self._thread = threading.Thread(target=self._run, name="rings", daemon=True)

    def __enter__(self) -> Self:
        self._before = time.monotonic()
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._end.set()
        self._thread.join()

    def counts(self) -> dict[_Key, tuple[RingCount, ...]]:
        """Return the sums of each disk's rings, up to now."""
        with self._lock:
            self._look()
            return {key: tuple(one.count() for one in seen) for key, seen in self._seen.items()}

    def mark(self) -> None:
        """Note what is completed by now, before QEMU is asked for its counts: all of it is in these."""
        with self._lock:
            self._look()
            for one in itertools.chain.from_iterable(self._seen.values()):
                one.before = one.completed

    def _run(self) -> None:
        over = False
        while not over and self._readers:
            over = self._end.wait(self._interval)  # and once more at the end, or what came last is not counted
            with self._lock:
                self._look()

    def _look(self) -> None:
        now = time.monotonic()
        for key, reader in list(self._readers.items()):
            try:
                values = reader.read()
            except OSError:
                del self._readers[key]
                continue
            seen = self._seen[key]
            before = [(one.completed, one.inside) for one in seen]
            for index, (one, value) in enumerate(zip(seen, values, strict=True)):
                add(one, value, now - self._before, size=reader.size(index))
            waits = any(inside for _, inside in before) and any(one.inside for one in seen)
            done = any(one.completed > completed for one, (completed, _) in zip(seen, before, strict=True))
            wait(seen[0], now - self._before, waits=waits and not done)
        self._before = now


@contextlib.contextmanager
def sampled(reader: RingMemory, *, interval_seconds: float = INTERVAL_SECONDS) -> Iterator[list[RingRates]]:
    """Sample rings in a separate thread while the block runs; the list has one entry when it is over."""
    found: list[RingRates] = []
    with RingWatch({"": reader}, interval_seconds=interval_seconds) as watch:
        yield found
    if (rates := ring_rates_between((), watch.counts()[""])) is not None:
        found.append(rates)


def add(seen: RingSeen, value: tuple[int, int, int], seconds: float, *, size: int) -> None:
    """Add a sample of one ring, with its weight in seconds."""
    offered, taken, completed = value
    seen.size = size
    seen.completed += (completed - seen.last[2]) % WRAP
    seen.last = value
    seen.samples += 1
    seen.seconds += seconds
    inside, at_work = (offered - completed) % WRAP, (taken - completed) % WRAP
    if inside > size:  # read between two of the device's steps
        seen.torn += 1
        seen.seconds -= seconds
        return
    seen.offered += inside * seconds
    if at_work <= inside:
        seen.taken += at_work * seconds
    else:
        seen.torn += 1


def wait(seen: RingSeen, seconds: float, *, waits: bool) -> None:
    """Add to how long none of a disk's requests has been completed; `waits`: none was since the look before, though
    some were in flight then and are now.
    """
    before = seen.quiet
    seen.quiet = before + seconds if waits else 0.0
    if seen.quiet >= STALL_SECONDS:
        begins = before < STALL_SECONDS
        seen.stalls += begins
        seen.stalled += seen.quiet if begins else seconds


@dataclass(frozen=True, slots=True, kw_only=True)
class QueueAddresses:
    """A split ring by its addresses in the guest's memory; `kind` is the device (`virtio-blk`)."""

    kind: str
    size: int
    desc: int
    avail: int
    used: int


def queues_of(monitor: Monitor, device: str) -> list[QueueAddresses] | str:
    """Return the split rings of the virtio device at a path of QEMU's objects, or why there are none to be seen. Of a
    SCSI controller they are those of requests, without its queues for commands and events.
    """
    why = "its device is not virtio"
    for path in (f"{device}/virtio-backend", device):  # the second is a device of virtio-mmio
        try:
            found = _queues_at(monitor, path)
        except RigError as error:
            if "has not been found" in error.message:
                return "this QEMU does not say where virtqueues lie (7.2 and later do)"
            continue
        except (KeyError, ValueError, TypeError):
            why = "QEMU's answer about it was not understood"
            continue
        if found:
            return found
        why = "the guest has not set it up"
    return why


def _queues_at(monitor: Monitor, path: str) -> list[QueueAddresses] | str:
    status = monitor.execute("x-query-virtio-status", {"path": path})
    if "PACKED" in str(status.get("guest-features", {}).get("transports")):
        return "it is a packed ring, and only split rings are read"
    found, kind = [], str(status.get("name"))
    for number in range(2 * (kind == "virtio-scsi"), min(int(status["num-vqs"]), _QUEUES_MAX)):
        ring = monitor.execute("x-query-virtio-queue-status", {"path": path, "queue": number})
        size, desc, avail, used = (int(ring[f"vring-{name}"]) for name in ("num", "desc", "avail", "used"))
        if size and avail and used:
            found.append(QueueAddresses(kind=kind, size=size, desc=desc, avail=avail, used=used))
    return found


def address_of(monitor: Monitor, physical: int) -> int:
    """Return where an address of the guest's memory is in QEMU's; raises ValueError where it is not."""
    said = monitor.execute("human-monitor-command", {"command-line": f"gpa2hva {physical:#x}"})
    shown = _HOST_ADDRESS.search(str(said))
    if shown is None:
        raise ValueError(f"no address for {physical:#x}")
    return int(shown[1], 16)


_EXPORTED = "virtio-ring"
_REQUEST_BYTES = 33
"""Of each request: its header of 16 bytes, a status, and 16 bytes for discards."""

_SIZES = tuple(2**power for power in range(7, 16))
"""Queues have a power of two entries; virtune-load makes them no smaller than 128."""

_INDEX = struct.Struct("<H")


class ExportRings(RingMemory):
    """The rings of the export that a process drives; raises OSError when it has none, or may not be read.

    libblkio, the driver in a load generator, has all queues one after the other in one memory file: descriptors, the
    ring of offered requests, the ring of completed ones, then its own part of each request. That file is mapped here
    too, read-only, so a look costs no system call.
    """

    def __init__(self, pid: int) -> None:
        found = Process(pid).memory_file(_EXPORTED)
        if found is None:
            raise FileNotFoundError(f"process {pid} drives no export")
        with found:
            whole = os.fstat(found.fileno()).st_size
            self._size, count = _shape(whole)  # of a file that has no size yet, too
            self._memory = mmap.mmap(found.fileno(), whole, prot=mmap.PROT_READ)
        stride = _bytes_of(self._size)
        self._begins = [number * stride for number in range(count)]

    def __len__(self) -> int:
        return len(self._begins)

    def read(self) -> list[tuple[int, int, int]]:
        return [self._read(begin) for begin in self._begins]

    def size(self, index: int) -> int:  # noqa: ARG002 - all have the same
        return self._size

    def _read(self, begin: int) -> tuple[int, int, int]:
        """Read the last step of a request first, so that none is counted as completed that was not offered."""
        size = self._size
        offered = begin + 16 * size
        completed = offered + 8 + 2 * size
        places = completed + 2, completed + 4 + 8 * size, offered + 2
        last, taken, first = (_INDEX.unpack_from(self._memory, place)[0] for place in places)
        return first, taken, last


def _bytes_of(size: int) -> int:
    """Return the bytes of a queue with so many entries."""
    return (16 * size + 8 + 2 * size + 8 + 8 * size + _REQUEST_BYTES * size + 15) & ~15


def _shape(size_bytes: int) -> tuple[int, int]:
    """Return the entries of each queue and how many queues there are; raises OSError for another layout."""
    for size in _SIZES:
        count, rest = divmod(size_bytes, _bytes_of(size))
        if count and not rest:
            return size, count
    raise OSError(f"{size_bytes} bytes of virtqueues in an unknown layout")


class TrialRings:
    """The rings of a trial's disks, each sampled from `begin` to `end` if found. A trial is valid without them."""

    def __init__(self) -> None:
        self._found: list[list[RingRates]] = []
        self._ends = contextlib.ExitStack()

    def begin(self, finds: Iterable[Callable[[], RingMemory]]) -> None:
        """Sample the rings that these find; they may raise OSError."""
        for find in finds:
            rates: list[RingRates] = []
            with contextlib.suppress(OSError):
                reader = find()
                if len(reader):
                    rates = self._ends.enter_context(sampled(reader, interval_seconds=TRIAL_INTERVAL_SECONDS))
            self._found.append(rates)

    def end(self) -> None:
        """End it, if it has not ended."""
        self._ends.close()

    def contents(self) -> Iterator[tuple[int, str]]:
        """Yield what was seen, as captures with the disks' numbers."""
        self.end()
        for number, found in enumerate(self._found):
            yield from ((number, json.dumps(asdict(rates)) + "\n") for rates in found)
