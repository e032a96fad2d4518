# SPDX-License-Identifier: Apache-2.0
"""Several users of one host: what one of them made is in no other one's way, and out of every other one's reach."""

import os
import shutil
import tempfile
from collections.abc import Iterator, Sequence
from pathlib import Path

import pytest
from tests.another_user import as_user

from virtune.shell import default_scratch

pytestmark = pytest.mark.real

UID = 1_000_000 + os.getpid()
"""Of nobody in particular, and of no other run of these tests; processes need no account."""


@pytest.fixture
def home() -> Iterator[Path]:
    place = Path(tempfile.mkdtemp(dir="/tmp", prefix="vu"))
    os.chown(place, UID, UID)
    scratch = Path(f"/var/tmp/virtune-{UID}")
    assert not scratch.exists()
    yield place
    shutil.rmtree(place)
    shutil.rmtree(scratch, ignore_errors=True)


MEASURE = (
    "compare",
    "measure",
    "--rig",
    "metal",
    "--span",
    "8MiB",
    "--rounds",
    "1",
    "--seconds",
    "200ms",
    "--ramp",
    "0s",
)


def test_each_user_has_a_scratch_directory_of_their_own_by_default(home: Path) -> None:
    assert default_scratch() == Path(f"/var/tmp/virtune-{os.geteuid()}")
    for done in as_user(UID, home, ("probe",), ("clean",), MEASURE, ("list",), ("clean", "--images")):
        assert done.status == 0, done
    place = Path(f"/var/tmp/virtune-{UID}")
    assert place.stat().st_uid == UID
    assert list(place.iterdir()) == []


SEARCHED, HIDDEN, READ = (0o711, ()), (0o700, (("probe", 0), ("clean", 1))), (0o755, ())
"""What others may do in a directory, and what else is asked for there."""


@pytest.mark.parametrize(
    "modes", [(HIDDEN,), pytest.param((SEARCHED, HIDDEN, READ), marks=pytest.mark.long)], ids=len
)
def test_another_user_s_scratch_directory_is_refused_in_one_sentence(
    modes: Sequence[tuple[int, Sequence[tuple[str, int]]]], home: Path, tmp_path: Path
) -> None:
    theirs = Path(tempfile.mkdtemp(dir="/var/tmp", prefix="vu"))
    try:
        for mode, more in modes:
            theirs.chmod(mode)
            place = ("--scratch", str(theirs))
            asked: dict[Sequence[str], int] = {(*MEASURE, *place): 3}
            asked.update({(word, *place): status for word, status in more})
            for done, status in zip(as_user(UID, home, *asked), asked.values(), strict=True):
                assert done.status == status, (mode, done)
                assert "Traceback" not in done.stderr
                assert (f"cannot use {theirs} for scratch files: it belongs to root" in done.stderr) is (status > 0)
    finally:
        theirs.rmdir()
