# SPDX-License-Identifier: Apache-2.0
"""The virtqueues of an export are read in the memory of the process that drives it."""

import mmap
import os
import struct
from collections.abc import Iterator, Sequence

import pytest

from virtune.bench.live.rings import ExportRings

DESCRIPTOR, REQUEST = 16, 33


def memory_of(size: int, queues: Sequence[tuple[int, int, int]]) -> bytes:
    """The queues as libblkio lays them out, each with its offered, taken and completed index."""
    parts = []
    for offered, taken, completed in queues:
        available = struct.pack("<HH", 0, offered) + bytes(2 * size) + bytes(4)
        used = struct.pack("<HH", 0, completed) + bytes(8 * size) + struct.pack("<HH", taken, 0)
        part = bytes(DESCRIPTOR * size) + available + used + bytes(REQUEST * size)
        parts.append(part + bytes(-len(part) % 16))
    return b"".join(parts)


@pytest.fixture
def ring_file() -> Iterator[int]:
    number = os.memfd_create("virtio-ring")
    yield number
    os.close(number)


@pytest.mark.parametrize("size", [128, 1024, 32768])
def test_every_queue_is_read_where_its_driver_put_it(ring_file: int, size: int) -> None:
    queues = [(7, 5, 3), (2, 1, 65_535), (0, 0, 0)]
    os.write(ring_file, memory_of(size, queues))
    rings = ExportRings(os.getpid())
    assert rings.read() == queues
    assert [rings.size(number) for number in range(len(rings))] == [size] * 3
    with mmap.mmap(ring_file, 0) as memory:
        struct.pack_into("<H", memory, DESCRIPTOR * size + 2, 9)
    assert rings.read()[0] == (9, 5, 3), "it is the memory itself that is read"


def test_a_load_that_has_only_begun_to_make_its_queues_has_none_yet(ring_file: int) -> None:
    """The file is there before it has a size, and a trial is valid without its rings."""
    assert os.fstat(ring_file).st_size == 0
    with pytest.raises(OSError, match="unknown layout"):
        ExportRings(os.getpid())


def test_another_layout_is_not_guessed(ring_file: int) -> None:
    os.write(ring_file, memory_of(128, [(7, 5, 3)]) + bytes(16))
    with pytest.raises(OSError, match="unknown layout"):
        ExportRings(os.getpid())


def test_a_process_without_an_export_has_no_rings() -> None:
    with pytest.raises(OSError, match="drives no export"):
        ExportRings(os.getpid())
