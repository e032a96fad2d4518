# SPDX-License-Identifier: Apache-2.0
"""Several users of one host: what one of them made is in no other one's way, and out of every other one's reach."""

import os
import shutil
import subprocess
import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest
from tests.another_user import as_user

from virtune.flows.scratch_default import default_scratch

pytestmark = pytest.mark.real

UID = 64_777
"""Of nobody in particular; processes need no account."""


@pytest.fixture
def home() -> Iterator[Path]:
    place = Path(tempfile.mkdtemp(dir="/tmp", prefix="vu"))
    os.chown(place, UID, UID)
    scratch = Path(f"/var/tmp/virtune-{UID}")
    assert not scratch.exists()
    yield place
    shutil.rmtree(place)
    shutil.rmtree(scratch, ignore_errors=True)


def run(home: Path, *words: str) -> subprocess.CompletedProcess[str]:
    env = {"HOME": str(home), "PATH": os.environ["PATH"], "NO_COLOR": "1", "PYTHONDONTWRITEBYTECODE": "1"}
    return subprocess.run(
        as_user(UID, *words),
        env=env, capture_output=True, text=True, timeout=120, check=False,
    )  # fmt: skip


MEASURE = ("measure", "--rig", "metal", "--span", "8MiB", "--rounds", "1", "--seconds", "200ms", "--ramp", "0s")


def test_each_user_has_a_scratch_directory_of_their_own_by_default(home: Path) -> None:
    assert default_scratch() == Path(f"/var/tmp/virtune-{os.geteuid()}")
    for words in (("probe",), ("clean",), MEASURE, ("list",), ("clean", "--images")):
        done = run(home, *words)
        assert done.returncode == 0, (words, done.stderr)
    place = Path(f"/var/tmp/virtune-{UID}")
    assert place.stat().st_uid == UID
    assert list(place.iterdir()) == []


def test_another_user_s_scratch_directory_is_refused_in_one_sentence(home: Path, tmp_path: Path) -> None:
    theirs = Path(tempfile.mkdtemp(dir="/var/tmp", prefix="vu"))
    try:
        for mode in (0o711, 0o700, 0o755):
            theirs.chmod(mode)
            for words, status in ((MEASURE, 3), (("probe",), 0), (("clean",), 1)):
                done = run(home, *words, "--scratch", str(theirs))
                assert done.returncode == status, (mode, words, done.stderr)
                assert "Traceback" not in done.stderr
                assert (f"cannot use {theirs} for scratch files: it belongs to root" in done.stderr) is (status > 0)
    finally:
        theirs.rmdir()
