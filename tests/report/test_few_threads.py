# SPDX-License-Identifier: Apache-2.0
"""A report where the user may start no more threads: a sentence, and not the end of the process by a signal."""

import os
import resource
import shutil
import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest
from tests.another_user import as_user

from virtune.cli import run

pytestmark = pytest.mark.real

UID = 2_000_000 + os.getpid()
"""Of nobody in particular: the limit counts all threads of a user."""


@pytest.fixture
def home() -> Iterator[Path]:
    place = Path(tempfile.mkdtemp(dir="/tmp", prefix="vu"))
    yield place
    shutil.rmtree(place)


def test_a_report_says_in_a_sentence_that_no_thread_can_be_started(home: Path) -> None:
    store, page = home / "store.sqlite", home / "page.html"
    words = ("compare", "--rig", "simulated", "--vary", "disk.aio=threads,io_uring", "--rounds", "2", "-q")
    assert run([*words, "--store", str(store)]) in (0, 4, 5)
    for path in (home, *home.iterdir()):
        os.chown(path, UID, UID)
    before = resource.getrlimit(resource.RLIMIT_NPROC)
    resource.setrlimit(resource.RLIMIT_NPROC, (3, before[1]))  # root itself has no such limit
    try:
        (done,) = as_user(UID, home, ("report", "last", "--store", str(store), "-o", str(page)))
    finally:
        resource.setrlimit(resource.RLIMIT_NPROC, before)
    assert done.status == 3, done
    assert "threads can be started, and pictures need" in done.stderr
    assert "Traceback" not in done.stderr
    assert not page.exists()
