# SPDX-License-Identifier: Apache-2.0
"""The ext4 that stands for a power cut loses what it had in memory alone, and leaves nothing behind."""

import contextlib
import os
import signal
import threading
import time
from collections.abc import Iterator
from pathlib import Path

import pytest
from tests.bench.loops import loops_on
from tests.conftest import eventually
from tests.killed import dies

from virtune.bench.cut import SIZE_BYTES, CutDisk, cut_disk
from virtune.bounded import opened

pytestmark = [pytest.mark.real, pytest.mark.xdist_group("loop devices")]

KEPT, LOST = b"k" * 4096, b"l" * 4096


@contextlib.contextmanager
def image_of(disk: CutDisk) -> Iterator[int]:
    with opened(disk.image, os.O_RDWR | os.O_CREAT) as file:
        yield file


def test_what_was_flushed_is_there_after_each_cut_and_what_was_not_is_gone(tmp_path: Path) -> None:
    with cut_disk(tmp_path) as disk:
        with image_of(disk) as file:
            os.ftruncate(file, 2**20)
            os.fsync(file)
        for number in range(1, 4):
            with image_of(disk) as file:
                os.pwrite(file, KEPT, number * 8192)
                os.fdatasync(file)
                os.pwrite(file, LOST, number * 8192 + 4096)
                disk.cut()
                with pytest.raises(OSError, match="Input/output error"):
                    os.fdatasync(file)
            disk.start_again()
            with image_of(disk) as file:
                for before in range(1, number + 1):
                    assert os.pread(file, 8192, before * 8192) == KEPT + bytes(4096), before


def test_a_file_that_was_made_and_not_flushed_is_gone_as_well(tmp_path: Path) -> None:
    with cut_disk(tmp_path) as disk:
        with image_of(disk) as file:
            os.pwrite(file, LOST, 0)
        disk.cut()
        disk.start_again()
        assert not disk.image.exists()


def test_it_starts_again_when_the_last_file_of_the_one_before_is_closed(tmp_path: Path) -> None:
    """To mount it earlier would give the one back that was cut off, in which every access fails."""
    with cut_disk(tmp_path) as disk, contextlib.ExitStack() as held:
        held.enter_context(image_of(disk))
        disk.cut()
        closing = threading.Timer(0.3, held.close)
        closing.start()
        begun = time.monotonic()
        disk.start_again()
        assert time.monotonic() - begun > 0.2
        closing.join()
        with image_of(disk) as file:
            os.pwrite(file, KEPT, 0)
            os.fsync(file)


def test_nothing_of_it_is_seen_and_nothing_is_left(tmp_path: Path) -> None:
    with cut_disk(tmp_path) as disk:
        assert list(tmp_path.iterdir()) == []
        (loop,) = loops_on(tmp_path)
        assert f" /dev/{loop} " not in Path("/proc/self/mountinfo").read_text()
        assert int(Path(f"/sys/block/{loop}/size").read_text()) * 512 == SIZE_BYTES
        with image_of(disk) as file:
            os.fsync(file)
    assert eventually(lambda: not loops_on(tmp_path))
    with pytest.raises(FileNotFoundError), cut_disk(tmp_path / "none"):
        pass
    assert not loops_on(tmp_path)


@pytest.mark.parametrize("instant", ["made", "in use", "cut off", "while it waits for an open file"])
def test_one_that_is_killed_leaves_nothing(instant: str, tmp_path: Path) -> None:
    def work() -> None:
        with cut_disk(tmp_path) as disk, image_of(disk) as file:
            if instant != "made":
                os.pwrite(file, LOST, 0)
            if instant not in ("made", "in use"):
                disk.cut()
            if instant.startswith("while"):
                threading.Timer(0.1, os.kill, (os.getpid(), signal.SIGKILL)).start()
                disk.start_again()
            os.kill(os.getpid(), signal.SIGKILL)

    assert dies(work)
    assert eventually(lambda: not loops_on(tmp_path))
    assert list(tmp_path.iterdir()) == []
