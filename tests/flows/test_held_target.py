# SPDX-License-Identifier: Apache-2.0
"""A target is what its name led to when it was looked at: what is put in its place meanwhile is not written to."""

import contextlib
import hashlib
import os
import threading
from collections.abc import Iterator
from pathlib import Path

import pytest
from tests.conftest import User

pytestmark = [pytest.mark.real, pytest.mark.once]

MIB = 1024**2
WRITING = ("--workload", "rw=randwrite,bs=4k,iodepth=4", "--rounds", "1", "--seconds", "200ms", "--ramp", "0s")


@contextlib.contextmanager
def flipping(link: Path, names: tuple[Path, Path]) -> Iterator[None]:
    """Let a name lead to one file and then to the other, all the time."""
    over = threading.Event()

    def flip() -> None:
        turn = 0
        while not over.wait(0.002):
            fresh = link.with_name("fresh")
            fresh.symlink_to(names[turn := 1 - turn])
            fresh.rename(link)

    thread = threading.Thread(target=flip)
    thread.start()
    try:
        yield
    finally:
        over.set()
        thread.join()


def sum_of(path: Path) -> str:
    return hashlib.sha256(path.read_bytes()).hexdigest()


@pytest.mark.parametrize("rig", ["metal", "storage-daemon"])
def test_a_name_that_changes_its_meaning_never_has_the_other_file_written(rig: str, user: User) -> None:
    ours, victim, link = user.home / "ours", user.home / "victim", user.home / "flip"
    ours.write_bytes(os.urandom(16 * MIB))
    victim.write_bytes(b"\xeb\x3c\x90QFI" + os.urandom(16 * MIB))
    with victim.open("r+b") as file:
        file.write(b"QFI\xfb")  # refused when it is looked at
    link.symlink_to(ours)
    before, untouched = sum_of(victim), sum_of(ours)
    done = []
    with flipping(link, (ours, victim)):
        for _ in range(4):
            ran = user.run("measure", "--rig", rig, *WRITING, "--target", str(link), "--allow-write-to", str(link),
                           status=None)  # fmt: skip
            done.append(ran.status)
            assert ran.status == 0 or "is a qcow2 image" in ran.stderr or "virtune did not create" in ran.stderr
    assert sum_of(victim) == before
    assert (sum_of(ours) != untouched) is (0 in done)


def test_a_target_of_any_name_is_loaded_and_its_name_is_in_the_evidence(user: User) -> None:
    target = user.home / "disk#1;a:b %s"
    target.write_bytes(os.urandom(4 * MIB))
    beside = user.home / "disk"
    beside.write_bytes(b"precious")
    user.run(
        "compare", "measure", "--rig", "metal", *WRITING, "--target", str(target), "--allow-write-to", str(target)
    )
    assert beside.read_bytes() == b"precious"
    words = user.run("show", "last", "--trial", "1", "--capture", "choices.txt").stdout
    assert f": {target}, held open" in words
    assert words.split(": ")[0] in user.run("show", "last", "--trial", "1", "--capture", "job.fio").stdout
