# SPDX-License-Identifier: Apache-2.0
"""Files that a user names are read up to a limit, and a FIFO without a writer is not waited for for ever."""

import os
import threading
import time
from pathlib import Path

import pytest

from virtune.bounded import read_up_to


@pytest.fixture
def fifo(tmp_path: Path) -> Path:
    os.mkfifo(tmp_path / "fifo")
    return tmp_path / "fifo"


def test_a_file_is_read_up_to_the_limit(tmp_path: Path) -> None:
    path = tmp_path / "file"
    path.write_bytes(b"x" * 3_000_000)
    assert len(read_up_to(path, 2_500_000)) == 2_500_000
    assert read_up_to(path, 10_000_000) == path.read_bytes()
    assert len(read_up_to(Path("/dev/zero"), 5000)) == 5000
    with pytest.raises(IsADirectoryError):
        read_up_to(tmp_path, 10)


def test_a_fifo_that_nobody_writes_to_is_an_error_in_time(fifo: Path) -> None:
    begun = time.monotonic()
    with pytest.raises(OSError, match="it is a FIFO, and no program writes to it"):
        read_up_to(fifo, 10, writer_seconds=0.2)
    assert 0.2 < time.monotonic() - begun < 60


@pytest.mark.parametrize("wait", [0.0, 0.3])
def test_a_fifo_is_read_to_the_end_of_its_writer_however_slow(wait: float, fifo: Path) -> None:
    def write() -> None:
        time.sleep(wait)
        with fifo.open("wb", buffering=0) as file:
            for _ in range(3):
                time.sleep(wait)
                file.write(b"x" * 100_000)

    writer = threading.Thread(target=write)
    writer.start()
    assert read_up_to(fifo, 10**6) == b"x" * 300_000
    writer.join()
