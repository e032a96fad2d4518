# SPDX-License-Identifier: Apache-2.0
"""Observe which places of a disk are asked for: the newest request of each virtqueue, as the guest's driver wrote it.

QEMU counts requests and bytes and no places, so only the virtqueue tells whether they follow one another. Of a
request its header is read (read or write, and its first sector), never data; and nothing is written. A look counts if
the queue offered nothing new while it was made: what was read is then of the request that it seems to be of.
"""

import contextlib
import ctypes
import errno
import os
import struct
import threading
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import NamedTuple

from virtune.bench.live.rings import WRAP as _WRAP
from virtune.bench.live.rings import QueueAddresses, address_of
from virtune.bench.qmp import Monitor
from virtune.model.errors import RigError
from virtune.model.live import Move

INTERVAL_SECONDS = 0.01
"""How often the newest request is looked at: a look of one queue takes five system calls."""

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
    """How many requests a queue was offered, modulo 65536, and the first sector of the newest one."""

    offered: int
    sector: int


class PlaceReader:
    """The newest request in each virtqueue of a virtio-blk disk.

    `low` and `high` are what to add to an address of the guest's memory below and beyond 4 GiB to find it in QEMU's,
    None where there is none.
    """

    def __init__(self, pid: int, queues: Sequence[QueuePlace], *, low: int | None, high: int | None) -> None:
        self._pid, self._queues, self._low, self._high = pid, tuple(queues), low, high
        self._library = ctypes.CDLL(None, use_errno=True)

    def __len__(self) -> int:
        return len(self._queues)

    def newest(self, number: int) -> Newest | None:
        """Return the newest request of a queue; None if it is no read or write, another one came meanwhile, or it
        cannot be read.
        """
        queue = self._queues[number]
        try:
            index = self._index(queue)
            place = 4 + 2 * ((index - 1) % queue.size)
            (entry,) = struct.unpack("<H", self._read(queue.offered + place, 2))
            address, flags = self._descriptor(queue.descriptors + 16 * (entry % queue.size))
            if flags & _INDIRECT:
                address, _ = self._descriptor(self._here(address))
            kind, _, sector = _HEADER.unpack(self._read(self._here(address), _HEADER.size))
            same = self._index(queue) == index
        except OSError:
            return None
        return Newest(index, sector) if same and kind in (_READ, _WRITE) else None

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
        here = _Piece(ctypes.addressof(buffer), count)
        there = _Piece(place, count)
        done = self._library.process_vm_readv(self._pid, ctypes.byref(here), 1, ctypes.byref(there), 1, 0)
        if done != count:
            number = ctypes.get_errno() or errno.EIO
            raise OSError(number, os.strerror(number))
        return buffer.raw


class _Piece(ctypes.Structure):
    _fields_ = (("base", ctypes.c_void_p), ("size", ctypes.c_size_t))


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
    """Look at the newest requests in a separate thread while the block runs; the list grows by every two looks of a
    queue that showed different requests.
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
                before = last.get(number)
                last[number] = now
                if before is not None and (requests := (now.offered - before.offered) % _WRAP):
                    found.append(Move(requests=requests, sectors=now.sector - before.sector))

    thread = threading.Thread(target=run, name="places", daemon=True)
    thread.start()
    try:
        yield found
    finally:
        over.set()
        thread.join()
