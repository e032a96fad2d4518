# SPDX-License-Identifier: Apache-2.0
"""What tests of rigs share: the rigs themselves, and a storage daemon that lies."""

import os
import stat
from collections.abc import Iterator
from pathlib import Path

import pytest
from tests.conftest import eventually, marked_processes

from virtune.bench.port import Session, Surroundings, session
from virtune.shell import Warden


@pytest.fixture
def rigs(warden: Warden) -> Iterator[Session]:
    with session(Surroundings(warden=warden, scratch=warden.directory)) as found:
        yield found
    assert eventually(lambda: marked_processes() == [])


@pytest.fixture
def lying_path(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> str:
    """A PATH on which `qemu-storage-daemon` is one that always opens images with aio=threads."""
    shim = tmp_path / "bin" / "qemu-storage-daemon"
    shim.parent.mkdir()
    shim.write_text(Path(__file__).with_name("lying_daemon.py").read_text())
    shim.chmod(shim.stat().st_mode | stat.S_IXUSR)
    monkeypatch.setenv("REAL_PATH", os.environ["PATH"])
    path = f"{shim.parent}:{os.environ['PATH']}"
    monkeypatch.setenv("PATH", path)
    return path
