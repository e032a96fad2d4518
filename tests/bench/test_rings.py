# SPDX-License-Identifier: Apache-2.0
"""A QEMU's rings and threads, as the kernel shows them: what may not be read is unknown, and never called idle."""

import os
import shutil
import struct
from pathlib import Path

import pytest

from virtune.bench.qemu.settings import Engines, engine_check_under_load, rings_of, spent_by
from virtune.model.stack import Disk, Stack

NATIVE = Stack(rig="qemu", disk=Disk(aio="native"))
AT = 0x1000
CONTEXT = ("native", AT)
BUSY_NS = 50_000_000


@pytest.fixture
def shown(tmp_path: Path) -> Path:
    """A process with an io_uring and a native context, as the kernel shows it."""
    place = tmp_path / "7"
    (place / "fd").mkdir(parents=True)
    (place / "fd" / "3").symlink_to("anon_inode:[io_uring]")
    (place / "fdinfo").mkdir()
    (place / "fdinfo" / "3").write_text("pos:\t0\nSqTail:\t41\n")
    (place / "maps").write_text(f"{AT:x}-{AT + 4096:x} rw-s 00000000 00:10 3 /[aio] (deleted)\n")
    memory(place, 5)
    return place


def memory(place: Path, tail: int) -> None:
    ring = struct.pack("<IIIII", 0, 128, 0, tail, 0xA10A10A1)
    (place / "mem").write_bytes(bytes(AT) + ring)


def test_rings_are_read_and_the_one_that_moved_is_named(shown: Path) -> None:
    before = rings_of(7, proc=shown.parent)
    assert before == {("io_uring", 3): 41, CONTEXT: 5}
    memory(shown, 6)
    check = engine_check_under_load(NATIVE, before, rings_of(7, proc=shown.parent), {CONTEXT}, BUSY_NS)
    assert check is not None
    assert (check.found, check.agrees) == ("native", True)


def test_workers_are_the_engine_only_where_every_ring_was_seen_to_stand(shown: Path) -> None:
    rings = rings_of(7, proc=shown.parent)
    check = engine_check_under_load(NATIVE, rings, rings, {CONTEXT}, BUSY_NS)
    assert check is not None
    assert (check.found, check.agrees) == ("threads", False)
    (shown / "mem").unlink()
    unread = rings_of(7, proc=shown.parent)
    assert unread == {("io_uring", 3): 41, CONTEXT: None}
    check = engine_check_under_load(NATIVE, unread, unread, {CONTEXT}, BUSY_NS)
    assert check is not None
    assert (check.found, check.agrees) == (None, None)
    assert "a ring of native moved under load is not ours to see" in check.proof
    # a ring of another loop is no reason to doubt
    check = engine_check_under_load(NATIVE, unread, unread, {("io_uring", 3)}, BUSY_NS)
    assert check is not None
    assert check.found == "threads"


@pytest.mark.parametrize("hidden", ["maps", "fd"])
def test_where_the_kernel_says_nothing_nothing_is_concluded(shown: Path, hidden: str) -> None:
    place = shown / hidden
    place.unlink() if place.is_file() else shutil.rmtree(place)
    rings = rings_of(7, proc=shown.parent)
    check = engine_check_under_load(NATIVE, rings, rings, set(), BUSY_NS)
    assert check is not None
    assert check.found is None
    assert Engines().opened(("main",), {}, rings) <= {("io_uring", 3), CONTEXT}, "what is hidden came with no image"


def test_our_own_process_has_none() -> None:
    assert rings_of(os.getpid()) == {}


def test_time_is_told_by_role_by_iothread_and_by_vcpu() -> None:
    threads = [(7, "qemu", 1), (8, "CPU 0/KVM", 2), (9, "CPU 11/TCG", 3), (10, "IO io1", 4), (11, "worker", 5)]
    spent = spent_by(7, [*threads, (12, "worker", 6)])
    assert spent.by_role == {"main": 1, "vcpu": 5, "iothread": 4, "worker": 11}
    assert (spent.by_iothread, spent.by_vcpu) == ({"io1": 4}, {"0": 2, "11": 3})
