# SPDX-License-Identifier: Apache-2.0
"""A storage daemon that lies of what it wrote, for the checks that find that."""

import os
import shutil
from collections.abc import Callable
from pathlib import Path

import pytest

from virtune.shell import run as run_command


@pytest.fixture
def lying(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Callable[..., None]:
    """Have the storage daemon lie of some of its writes, as `lying_writes.c` says."""
    source, shim = Path(__file__).parents[1] / "bench" / "lying_writes.c", tmp_path / "bin" / "qemu-storage-daemon"
    run_command(["cc", "-shared", "-fPIC", "-o", str(tmp_path / "lie.so"), str(source)], timeout_seconds=60)
    shim.parent.mkdir()
    real = shutil.which("qemu-storage-daemon")
    shim.write_text(f'#!/bin/sh\nLD_PRELOAD={tmp_path}/lie.so exec {real} "$@"\n')
    shim.chmod(0o755)
    monkeypatch.setenv("PATH", f"{shim.parent}:{os.environ['PATH']}")

    def lie(**words: object) -> None:
        for name, value in (
            {"how": "lost", "from": 0, "to": 2**40, "skip": 0, "often": 1000, "seed": 1} | words
        ).items():
            monkeypatch.setenv(f"LIE_{name.upper()}", str(value))

    return lie
