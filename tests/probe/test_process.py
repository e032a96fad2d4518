# SPDX-License-Identifier: Apache-2.0
"""What is read from /proc/PID: what is there, what is not, and what we may not see, are three answers."""

import os
import shutil
import struct
import subprocess
from pathlib import Path

import pytest
from tests.conftest import eventually

from virtune.probe.process import RING_FILES, Process, Rings, Thread, shown_of_ring

AT = 0x1000
URING, CONTEXT = ("io_uring", 3), ("native", AT)
MAGIC = 0xA10A10A1


@pytest.fixture
def shown(tmp_path: Path) -> Path:
    """A process with an io_uring, a native context and an open file, as the kernel shows it."""
    place = tmp_path / "7"
    (place / "fd").mkdir(parents=True)
    (place / "fd" / "3").symlink_to("anon_inode:[io_uring]")
    (place / "fd" / "4").symlink_to(tmp_path / "image.raw")
    (place / "fdinfo").mkdir()
    (place / "fdinfo" / "3").write_text("SqTail:\t41\nCachedSqHead:\t41\nCqHead:\t36\nCqTail:\t37\nUserFiles:\t0\n")
    (place / "fdinfo" / "4").write_text(f"pos:\t0\nflags:\t0{os.O_DIRECT | os.O_RDWR:o}\nmnt_id:\t14\n")
    (place / "maps").write_text(f"{AT:x}-{AT + 4096:x} rw-s 00000000 00:10 3 /[aio] (deleted)\n")
    (place / "task" / "8").mkdir(parents=True)
    (place / "task" / "8" / "comm").write_text("IO io1\n")
    (place / "task" / "8" / "schedstat").write_text("1500 20 3\n")
    (place / "task" / "8" / "status").write_text("Name:\tIO io1\nCpus_allowed_list:\t0-1,4\n")
    memory(place, 5)
    return place


def memory(place: Path, tail: int, *, magic: int = MAGIC) -> None:
    (place / "mem").write_bytes(bytes(AT) + struct.pack("=6I", 0, 128, 0, tail, magic, 1))


def test_rings_are_counted_and_told_how_far_they_have_come(shown: Path) -> None:
    rings = Process(7, shown.parent).rings()
    assert rings == Rings(places={URING: 37, CONTEXT: 5})  # completions, not submissions
    assert (rings.count("io_uring"), rings.count("native"), rings.unseen) == (1, 1, False)
    memory(shown, 6)
    assert Process(7, shown.parent).rings().places[CONTEXT] == 6


def test_a_mapping_that_is_no_ring_we_know_is_there_and_says_nothing(shown: Path) -> None:
    memory(shown, 5, magic=0)
    rings = Process(7, shown.parent).rings()
    assert rings.places[CONTEXT] is None
    assert rings.unseen


def test_a_kernel_that_shows_no_completions_leaves_the_ring_unseen(shown: Path) -> None:
    (shown / "fdinfo" / "3").write_text("pos:\t0\nflags:\t02000002\nUserFiles:\t0\n")  # as Linux 5.10 shows it
    rings = Process(7, shown.parent).rings()
    assert (rings.places[URING], rings.unseen) == (None, True)


def test_memory_that_may_not_be_read_leaves_the_context_unseen(shown: Path) -> None:
    (shown / "mem").unlink()
    assert Process(7, shown.parent).rings().places == {URING: 37, CONTEXT: None}


@pytest.mark.parametrize(("part", "kind"), [("fd", "io_uring"), ("maps", "native")])
def test_what_we_may_not_look_into_is_hidden_and_not_empty(shown: Path, part: str, kind: str) -> None:
    # as root everything may be read, so another error of the kernel's stands for "permission denied"
    place = shown / part
    shutil.rmtree(place) if place.is_dir() else place.unlink()
    place.symlink_to(place)
    rings = Process(7, shown.parent).rings()
    assert rings.hidden == {kind}
    assert rings.unseen
    if part == "fd":
        assert Process(7, shown.parent).descriptors() is None
        assert Process(7, shown.parent).opened(shown.parent / "image.raw") is None


def test_a_process_that_is_gone_holds_nothing(tmp_path: Path) -> None:
    gone = Process(7, tmp_path)
    assert gone.rings() == Rings()
    assert (gone.descriptors(), list(gone.threads()), gone.exists) == ({}, [], False)


def test_how_a_file_is_open_is_read_as_octal(shown: Path) -> None:
    assert Process(7, shown.parent).opened(shown.parent / "image.raw") == {4: os.O_DIRECT | os.O_RDWR}
    assert Process(7, shown.parent).opened(shown.parent / "other.raw") == {}


def test_threads_have_a_name_a_time_and_cpus(shown: Path) -> None:
    process = Process(7, shown.parent)
    assert list(process.threads()) == [Thread(tid=8, name="IO io1", cpu_ns=1500)]
    assert (process.cpus_of(8), process.cpus_of(9)) == ("0-1,4", None)


def test_our_own_process_has_no_ring_and_a_program() -> None:
    assert Process(os.getpid()).rings() == Rings()
    assert Process(os.getpid()).program() == Path("/proc/self/exe").readlink()


@pytest.mark.parametrize(
    ("text", "shown"),
    [
        ("UserFiles:\t0\nUserBufs:\t0\n", True),
        ("UserFiles:\t2\n    0: <none>\n    1: /dev/sdb\nUserBufs:\t0\n", True),
        ("UserFiles:\t2\nUserBufs:\t0\n", False),  # Linux 6.1, of a ring in use
        ("pos:\t0\nflags:\t02\n", False),  # Linux 6.18, of a ring in use
    ],
)
def test_the_files_of_a_ring_are_only_known_where_the_kernel_lists_them(
    text: str, shown: bool, shown_at: Path
) -> None:
    shown_at.write_text(text)
    assert bool(RING_FILES.search(shown_of_ring(shown_at, RING_FILES, until=0.0))) is shown


@pytest.fixture
def shown_at(tmp_path: Path) -> Path:
    return tmp_path / "fdinfo"


@pytest.mark.real
def test_a_ring_is_told_while_it_is_in_use(tmp_path: Path) -> None:
    """Linux 6.18 shows nothing of a ring that somebody uses at that instant: two of three reads of this load's."""
    words = ("--name=load", f"--filename={tmp_path / 'image'}", "--size=16M", "--rw=randread", "--bs=4k", "--thread")
    load = subprocess.Popen(
        ("fio", *words, "--ioengine=io_uring", "--iodepth=32", "--runtime=60", "--time_based"),
        stdout=subprocess.DEVNULL,
    )
    try:
        process = Process(load.pid)
        assert eventually(lambda: any(process.rings().places.values()))
        seen = [place for _ in range(200) for place in process.rings().places.values()]
    finally:
        load.kill()
        load.wait()
    assert len(seen) == 200
    assert None not in seen
