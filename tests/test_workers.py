# SPDX-License-Identifier: Apache-2.0
"""Work is divided among processes, keeps its order, and leaves none of them behind."""

import contextlib
import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from tests.conftest import eventually
from virtune.model.errors import VirtuneError
from virtune.workers import divided

pytestmark = pytest.mark.real


def double(number: int) -> int:
    return 2 * number


def end_at_two(number: int) -> int:
    if number == 2:
        os.kill(os.getpid(), signal.SIGKILL)
    return number


def note(place: str) -> None:
    """Say which process this is, and stay."""
    (Path(place) / str(os.getpid())).touch()
    signal.pause()


def test_what_is_done_comes_in_the_order_of_the_tasks_and_a_killed_process_is_one_sentence() -> None:
    assert list(divided(double, range(5), processes=1)) == [0, 2, 4, 6, 8]
    assert list(divided(double, range(5), processes=2)) == [0, 2, 4, 6, 8]
    with pytest.raises(VirtuneError, match="one of the processes that did the work was killed"):
        list(divided(end_at_two, range(5), processes=2))


def test_processes_end_with_the_one_that_was_killed(tmp_path: Path) -> None:
    program = (
        "from tests.test_workers import note\nfrom virtune.workers import divided\n"
        f"if __name__ == '__main__': list(divided(note, [{str(tmp_path)!r}] * 2, processes=2))"
    )
    root = Path(__file__).parents[1]
    with subprocess.Popen([sys.executable, "-c", program], cwd=root) as process:
        try:
            assert eventually(lambda: len(list(tmp_path.iterdir())) == 2, seconds=60)
        finally:
            process.kill()
    workers = [int(one.name) for one in tmp_path.iterdir()]
    assert eventually(lambda: not any(map(lives, workers)), seconds=60)


def lives(pid: int) -> bool:
    """Whether a process runs; one that has ended may wait to be reaped."""
    with contextlib.suppress(OSError):
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] != "Z"
    return False
