# SPDX-License-Identifier: Apache-2.0
"""Which places of a disk are asked for, read from a virtqueue: here one that lies in this test's own memory."""

import ctypes
import os
import struct
from collections.abc import Iterator
from dataclasses import dataclass, field

import pytest
from tests.conftest import eventually

from virtune.bench.live.domain import PlaceReader, QueuePlace, watched_moves

SIZE = 8
AVAIL, DESCRIPTORS, HEADERS, TABLES = 0, 64, 512, 1024
READ, WRITE, FLUSH = 0, 1, 4


@dataclass
class Driver:
    """A guest's driver: it offers requests in a split ring, each with a header of its own."""

    memory: ctypes.Array[ctypes.c_char] = field(default_factory=lambda: ctypes.create_string_buffer(4096))
    offered: int = 0

    @property
    def base(self) -> int:
        return ctypes.addressof(self.memory)

    def reader(self, *, pid: int | None = None) -> PlaceReader:
        queue = QueuePlace(offered=self.base + AVAIL, descriptors=self.base + DESCRIPTORS, size=SIZE)
        return PlaceReader(os.getpid() if pid is None else pid, [queue], low=self.base, high=None)

    def put(self, place: int, content: bytes) -> None:
        ctypes.memmove(self.base + place, content, len(content))

    def offer(self, sector: int, *, kind: int = READ, indirect: bool = False, header: int | None = None) -> None:
        slot = self.offered % SIZE
        where = HEADERS + 16 * slot if header is None else header
        if header is None:
            self.put(where, struct.pack("<IIQ", kind, 0, sector))
        if indirect:
            table = TABLES + 16 * slot
            self.put(table, struct.pack("<QIHH", where, 16, 1, 1))
            self.put(DESCRIPTORS + 16 * slot, struct.pack("<QIHH", table, 48, 4, 0))
        else:
            self.put(DESCRIPTORS + 16 * slot, struct.pack("<QIHH", where, 16, 1, 1))
        self.put(AVAIL + 4 + 2 * slot, struct.pack("<H", slot))
        self.offered = (self.offered + 1) % 2**16
        self.put(AVAIL + 2, struct.pack("<H", self.offered))


@pytest.mark.parametrize("indirect", [False, True])
def test_the_newest_request_is_read_with_its_place(*, indirect: bool) -> None:
    driver = Driver()
    reader = driver.reader()
    before = None
    for number, sector in enumerate((8, 16, 2**40, 7), 1):
        driver.offer(sector, kind=WRITE if number % 2 else READ, indirect=indirect)
        assert reader.newest(0) == (number, sector, before)
        before = sector


def test_indices_wrap() -> None:
    driver = Driver(offered=2**16 - 1)
    driver.offer(24)
    assert driver.reader().newest(0) == (0, 24, 0)


def test_what_is_no_read_or_write_and_what_cannot_be_read_is_not_seen() -> None:
    driver = Driver()
    reader = driver.reader()
    driver.offer(0, kind=FLUSH)
    assert reader.newest(0) is None
    driver.offer(8, header=2**40)
    assert reader.newest(0) is None, "a place that is not mapped"
    driver.offer(8, header=2**33)
    assert reader.newest(0) is None, "beyond 4 GiB, where this guest has no memory"
    driver.offer(8)
    assert reader.newest(0) == (4, 8, None)
    assert driver.reader(pid=2**22 + 1).newest(0) is None, "no such process"


def sectors() -> Iterator[int]:
    yield from range(0, 8 * 10**6, 8)


def test_moves_are_from_one_look_to_the_next() -> None:
    driver, places = Driver(), sectors()
    driver.offer(next(places))
    with watched_moves(driver.reader(), interval_seconds=0.001) as moves:

        def enough() -> bool:
            driver.offer(next(places))
            return len(moves) >= 20

        assert eventually(enough, seconds=60)
    assert all(one.requests > 0 and one.sectors == 8 * one.requests for one in moves), moves
