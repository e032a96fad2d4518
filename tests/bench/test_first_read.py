# SPDX-License-Identifier: Apache-2.0
"""Images are read once past the page cache: all of what was asked for, in a bounded time, at one pace."""

import os
import threading
from collections import Counter
from pathlib import Path

import pytest

from virtune.bench.surroundings import BLOCK_BYTES, in_turn, read_once, set_cache
from virtune.model.facts import Residency
from virtune.probe.images import cachestat

SIZE = 24 * BLOCK_BYTES
ENDLESS = 4 * 1024**4
"""Of a sparse file: reading it takes memory's time, and no machine comes to its end in a test."""


@pytest.fixture
def image(scratch_directory: Path) -> Path:
    """A file on a disk that the page cache does not have."""
    path = scratch_directory / f"first-read-{os.getpid()}"
    path.write_bytes(os.urandom(SIZE))
    set_cache([path], "cold")
    return path


@pytest.fixture
def endless(tmp_path: Path) -> Path:
    path = tmp_path / "endless"
    with path.open("wb") as file:
        file.truncate(ENDLESS)
    return path


def read_by_us() -> int:
    """The bytes that this process had fetched from disks, as the kernel counts them."""
    counts = dict(line.split(": ") for line in Path("/proc/self/io").read_text().splitlines())
    return int(counts["read_bytes"])


def cached(path: Path) -> int:
    found = cachestat(path)
    assert isinstance(found, Residency)
    return found.cached_bytes


def nothing(share: float, seconds: float) -> None:
    assert 0 <= share <= 1
    assert seconds >= 0


def test_all_of_it_comes_from_the_disk_and_nothing_is_in_the_page_cache(image: Path) -> None:
    before = read_by_us()
    found = read_once({image: SIZE}, limit_seconds=60, heard=nothing)
    assert SIZE <= read_by_us() - before < SIZE + BLOCK_BYTES
    assert (found.images, found.size_bytes, found.read_bytes, found.why) == (1, SIZE, SIZE, "")
    assert cached(image) == 0


def test_what_is_in_the_page_cache_stays_there(image: Path) -> None:
    set_cache([image], "warm")
    before = read_by_us()
    read_once({image: SIZE}, limit_seconds=60, heard=nothing)
    assert read_by_us() - before >= SIZE
    # a read that dropped what it read would drop a block at least; the kernel reclaims single pages of its own accord
    assert cached(image) > SIZE - BLOCK_BYTES


def test_of_a_target_only_what_trials_load_is_read(image: Path) -> None:
    before = read_by_us()
    found = read_once({image: SIZE // 3}, limit_seconds=60, heard=nothing)
    assert found.read_bytes == SIZE // 3
    assert read_by_us() - before < SIZE // 3 + BLOCK_BYTES


def test_a_part_of_a_block_at_the_end_is_read_too(tmp_path: Path) -> None:
    path = tmp_path / "odd"
    path.write_bytes(b"x" * (BLOCK_BYTES + 1000))
    found = read_once({path: BLOCK_BYTES + 1000}, limit_seconds=60, heard=nothing)
    assert (found.read_bytes, found.why) == (BLOCK_BYTES + 1000, "")


def test_it_ends_when_its_time_is_over_and_says_so(endless: Path) -> None:
    found = read_once({endless: ENDLESS}, limit_seconds=0.2, heard=nothing)
    assert 0 < found.read_bytes < ENDLESS
    assert found.why == "the 0.2 s for it were over"
    assert found.seconds >= 0.2


def test_an_interrupt_stops_it_and_closes_the_image(endless: Path) -> None:
    threads, open_ = threading.active_count(), len(os.listdir("/proc/self/fd"))

    def interrupt(share: float, seconds: float) -> None:
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        read_once({endless: ENDLESS}, limit_seconds=600, heard=interrupt)
    assert threading.active_count() == threads
    assert len(os.listdir("/proc/self/fd")) == open_


def test_an_image_that_cannot_be_read_ends_nothing(tmp_path: Path, image: Path) -> None:
    found = read_once({tmp_path / "gone": SIZE, image: SIZE}, limit_seconds=60, heard=nothing)
    assert (found.read_bytes, found.why) == (0, "No such file or directory")


def test_images_of_any_size_are_equally_far_at_any_time() -> None:
    sizes = {1: 100 * BLOCK_BYTES, 2: 100 * BLOCK_BYTES, 3: 20 * BLOCK_BYTES + 5}
    done: Counter[int] = Counter()
    seen = []
    for descriptor, offset in in_turn([*sizes.items()]):
        done[descriptor] += BLOCK_BYTES
        seen.append((descriptor, offset))
        assert abs(done[1] - done[2]) <= 16 * BLOCK_BYTES
    assert len(seen) == len(set(seen)) == 100 + 100 + 21
    assert [offset for descriptor, offset in seen if descriptor == 1] == [n * BLOCK_BYTES for n in range(100)]
