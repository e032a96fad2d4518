# SPDX-License-Identifier: Apache-2.0
"""How much of a file is cached, and how much was never written: on real files of ext4 (or the like) and tmpfs."""

import os
from collections.abc import Iterator
from pathlib import Path

import pytest

from virtune.model.facts import Extents, Residency, Unknown
from virtune.probe.devices import backing_of
from virtune.probe.images import cachestat, unwritten_bytes

MIB = 1 << 20


def extents(path: Path, length: int) -> Extents:
    found = unwritten_bytes(path, length)
    assert isinstance(found, Extents), found
    return found


def write(path: Path, offset: int, length: int) -> None:
    descriptor = os.open(path, os.O_WRONLY | os.O_CREAT)
    os.pwrite(descriptor, os.urandom(length), offset)
    os.close(descriptor)


@pytest.fixture(params=["disk", "memory"])
def place(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Path]:
    if request.param == "disk":
        yield tmp_path / "file"
        return
    shm = Path("/dev/shm")
    if backing_of(shm).filesystem != "tmpfs":
        pytest.skip("/dev/shm is no tmpfs here; mount one there")
    path = shm / f"virtune-test-{os.getpid()}"
    yield path
    path.unlink(missing_ok=True)


def test_a_written_file_has_nothing_unwritten(place: Path) -> None:
    write(place, 0, 4 * MIB)
    assert extents(place, 4 * MIB).never_written_bytes == 0
    assert extents(place, 1 * MIB).length_bytes == 1 * MIB


def test_a_truncated_file_is_one_hole(place: Path) -> None:
    place.touch()
    os.truncate(place, 4 * MIB)
    assert extents(place, 4 * MIB).hole_bytes == 4 * MIB


def test_a_hole_in_the_middle_is_counted(place: Path) -> None:
    write(place, 0, MIB)
    write(place, 3 * MIB, MIB)
    found = extents(place, 4 * MIB)
    assert (found.hole_bytes, found.never_written_bytes) == (2 * MIB, 2 * MIB)
    assert extents(place, 2 * MIB).hole_bytes == MIB


def test_preallocated_blocks_were_never_written(place: Path) -> None:
    write(place, 0, MIB)
    descriptor = os.open(place, os.O_RDWR)
    os.posix_fallocate(descriptor, 0, 4 * MIB)
    os.close(descriptor)
    found = extents(place, 4 * MIB)
    assert found.never_written_bytes == 3 * MIB
    if found.method == "fiemap":
        assert (found.hole_bytes, found.unwritten_bytes) == (0, 3 * MIB)
        # what has just been written into preallocated blocks counts as written, flushed or not
        write(place, MIB, MIB)
        assert extents(place, 4 * MIB).unwritten_bytes == 2 * MIB


def test_beyond_the_end_is_a_hole(place: Path) -> None:
    write(place, 0, MIB)
    assert extents(place, 3 * MIB).hole_bytes == 2 * MIB


def test_many_extents_are_read_in_batches(tmp_path: Path) -> None:
    path = tmp_path / "file"
    for index in range(700):
        write(path, index * 16384, 4096)
    found = extents(path, 700 * 16384)
    assert found.never_written_bytes == 700 * 12288


def test_what_a_device_holds_is_unknown_and_a_missing_file_an_error(tmp_path: Path) -> None:
    assert isinstance(unwritten_bytes("/dev/null", 1), Unknown)
    with pytest.raises(FileNotFoundError):
        unwritten_bytes(tmp_path / "missing", 1)


def test_the_page_cache_holds_what_was_written(place: Path) -> None:
    write(place, 0, 4 * MIB)
    found = cachestat(place)
    assert isinstance(found, Residency), found
    assert found.cached_bytes == 4 * MIB


def test_what_is_dropped_is_no_longer_cached(tmp_path: Path) -> None:
    path = tmp_path / "file"
    write(path, 0, 4 * MIB)
    descriptor = os.open(path, os.O_RDWR)
    os.fsync(descriptor)
    os.posix_fadvise(descriptor, 0, 0, os.POSIX_FADV_DONTNEED)
    os.close(descriptor)
    found = cachestat(path)
    assert isinstance(found, Residency)
    assert found.cached_bytes < MIB
    assert found.dirty_bytes in (0, None)


def test_a_file_that_is_not_there_is_unknown_with_the_reason(tmp_path: Path) -> None:
    found = cachestat(tmp_path / "missing")
    assert isinstance(found, Unknown)
    assert "no such file" in found.because
