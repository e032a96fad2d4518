# SPDX-License-Identifier: Apache-2.0
"""The virtqueues of a vhost-user export, read in the memory of the load generator that drives it.

libblkio, the driver in it, has all queues one after the other in one memory file: descriptors, the ring of offered
requests, the ring of completed ones, then its own part of each request. That file is mapped here too, read-only, so a
look costs no system call.
"""

import mmap
import os
import struct

from virtune.probe.process import Process

_NAME = "virtio-ring"
_REQUEST_BYTES = 33
"""Of each request: its header of 16 bytes, a status, and 16 bytes for discards."""

_SIZES = tuple(2**power for power in range(7, 16))
"""Queues have a power of two entries; virtune-load makes them no smaller than 128."""

_INDEX = struct.Struct("<H")


class ExportRings:
    """The rings of the export that a process drives; raises OSError when it has none, or may not be read."""

    def __init__(self, pid: int) -> None:
        found = Process(pid).memory_file(_NAME)
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
        """Return for each ring how many requests were offered, taken and completed, each modulo 65536."""
        return [self._read(begin) for begin in self._begins]

    def size(self, index: int) -> int:  # noqa: ARG002 - all have the same
        """How many requests a ring holds."""
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
