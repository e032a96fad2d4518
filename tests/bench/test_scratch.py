# SPDX-License-Identifier: Apache-2.0
"""Scratch images: filled in full, used again only while valid, refused where they cannot be made."""

import json
import os
import resource
import shutil
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from itertools import chain
from pathlib import Path

import pytest
from tests.rationed import rationed

from virtune.bench.scratch import Scratch, is_ours, never_written, require_place, scratch_files
from virtune.flows.clean import clean
from virtune.model.errors import PreconditionError, RigError
from virtune.model.event import Event, StepEnded, StepStarted
from virtune.model.stack import Disk
from virtune.model.text import Bytes
from virtune.shell import Warden
from virtune.warden import MARK

pytestmark = pytest.mark.real

SMALL = 8 * 1024**2


def scratch_in(directory: Path, events: list[Event] | None = None, *, span: int = SMALL) -> Scratch:
    heard: list[Event] = [] if events is None else events
    return Scratch(directory, span_bytes=span, say=heard.append)


def test_an_image_is_written_in_full_and_incompressible(tmp_path: Path, warden: Warden) -> None:
    with scratch_in(tmp_path / "new" / "place") as scratch:
        image = scratch.image_for(Disk(), warden)
    assert image.stat().st_size == SMALL
    assert never_written(image, SMALL) == 0
    assert len(subprocess.run(["gzip", "-1c", image], capture_output=True, check=True).stdout) > 0.95 * SMALL


def test_a_valid_image_is_used_again_and_a_changed_one_is_not(tmp_path: Path, warden: Warden) -> None:
    events: list[Event] = []
    with scratch_in(tmp_path, events) as scratch:
        image = scratch.image_for(Disk(), warden)
        inode = image.stat().st_ino
        assert scratch.image_for(Disk(aio="native"), warden).stat().st_ino == inode
        assert sum(isinstance(event, StepStarted) for event in events) == 1
        subprocess.run(["fallocate", "--punch-hole", "--offset=0", "--length=65536", image], check=True)
        assert never_written(image, SMALL) == 65536
        assert never_written(scratch.image_for(Disk(), warden), SMALL) == 0
    assert sum(isinstance(event, StepStarted) for event in events) == 2
    assert sum(isinstance(event, StepEnded) for event in events) == 2


def test_what_has_no_witness_of_its_own_inode_is_not_ours(tmp_path: Path, warden: Warden) -> None:
    with scratch_in(tmp_path) as scratch:
        image = scratch.image_for(Disk(), warden)
        assert is_ours(image)
        copy = tmp_path / "copy"
        shutil.copy(image, copy)
        os.replace(copy, image)
        assert not is_ours(image)


def test_qcow2_images_hold_data_in_every_cluster(tmp_path: Path, warden: Warden) -> None:
    with scratch_in(tmp_path) as scratch:
        image = scratch.image_for(Disk(format="qcow2", cluster_size=Bytes(131072), extended_l2=True), warden)
    found = subprocess.run(["qemu-img", "map", "--output=json", image], capture_output=True, check=True, text=True)
    assert all(part["data"] and not part["zero"] for part in json.loads(found.stdout))
    info = json.loads(subprocess.run(["qemu-img", "info", "--output=json", image], capture_output=True).stdout)
    assert info["cluster-size"] == 131072


def test_two_virtunes_do_not_measure_in_one_place(tmp_path: Path) -> None:
    with (
        scratch_in(tmp_path),
        pytest.raises(PreconditionError, match="another virtune is measuring in"),
        scratch_in(tmp_path),
    ):
        pytest.fail("the second one came in")


def test_a_lock_that_a_child_of_a_killed_virtune_still_shares_is_waited_for(tmp_path: Path) -> None:
    script = f"""
import os, time
from pathlib import Path
from virtune.bench.scratch import Scratch
with Scratch(Path({str(tmp_path)!r}), span_bytes=1, say=lambda _: None):
    if os.fork() == 0:
        time.sleep(0.8)
        os._exit(0)
    print("forked", flush=True)
    os.kill(os.getpid(), 9)
"""
    with subprocess.Popen([sys.executable, "-c", script], stdout=subprocess.PIPE) as killed:
        assert killed.stdout is not None
        assert killed.stdout.readline() == b"forked\n"
        assert killed.wait(60) == -signal.SIGKILL
        with scratch_in(tmp_path):
            pass


def test_an_unusable_place_is_one_sentence(tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    with (
        pytest.raises(PreconditionError, match=r"cannot use .*file/below for scratch files") as caught,
        scratch_in(tmp_path / "file" / "below"),
    ):
        pytest.fail("a file became a directory")
    assert caught.value.hint is not None
    assert "--scratch" in caught.value.hint


def test_halves_that_a_killed_run_left_are_removed_and_nothing_else(tmp_path: Path) -> None:
    (tmp_path / "virtune-1.raw.partial").touch()
    (tmp_path / "mine.raw").touch()
    (tmp_path / "virtune-mine.raw").touch()
    with scratch_in(tmp_path):
        assert sorted(path.name for path in tmp_path.iterdir()) == ["mine.raw", "virtune-mine.raw", "virtune.lock"]


def test_only_what_virtune_made_is_listed_for_removal(tmp_path: Path, warden: Warden) -> None:
    (tmp_path / "virtune-mine.raw").touch()
    with scratch_in(tmp_path) as scratch:
        image = scratch.image_for(Disk(), warden)
    assert set(scratch_files(tmp_path)) == {image, image.with_name(image.name + ".virtune.json")}


@pytest.fixture
def small_disk(tmp_path: Path) -> Iterator[Path]:
    """A filesystem of 24 MiB in memory, to be filled."""
    place = tmp_path / "small"
    place.mkdir()
    subprocess.run(["mount", "-t", "tmpfs", "-o", "size=100m", "none", place], check=True)
    yield place
    subprocess.run(["umount", "-l", place], check=True)


def test_a_disk_without_room_is_refused_before_anything_is_written(small_disk: Path, warden: Warden) -> None:
    with (
        scratch_in(small_disk, span=200 * 1024**2) as scratch,
        pytest.raises(PreconditionError, match="free: the scratch image needs 200 MiB, and 64 MiB stay free"),
    ):
        scratch.image_for(Disk(), warden)
    assert list(scratch_files(small_disk)) == []


def test_only_what_is_not_there_yet_has_to_find_room(small_disk: Path, warden: Warden) -> None:
    def require(*images: tuple[Disk, int], place: Path = small_disk, span: int = SMALL) -> None:
        require_place(place, images, span_bytes=span)

    require((Disk(), 0), place=small_disk / "not" / "yet")
    with scratch_in(small_disk) as scratch:
        image = scratch.image_for(Disk(), warden)
    (small_disk / "of others").write_bytes(bytes(40 * 1024**2))  # now fewer than 64 MiB are free
    require((Disk(), 0))
    with scratch_in(small_disk) as scratch:
        assert scratch.image_for(Disk(), warden) == image, "a run needs no room for it either"
        with pytest.raises(PreconditionError, match="free: the scratch image needs 8 MiB, and 64 MiB stay free"):
            scratch.image_for(Disk(), warden, 1)
    with pytest.raises(
        PreconditionError, match=r"52\.0 MiB free: the scratch images need 8 MiB, and 64 MiB stay free"
    ):
        require((Disk(), 0), (Disk(), 1))
    with pytest.raises(PreconditionError, match="free: the scratch image needs 16 MiB, and 64 MiB stay free"):
        require((Disk(), 0), span=2 * SMALL)


def test_a_disk_that_fills_up_meanwhile_is_one_sentence_and_leaves_nothing(small_disk: Path, warden: Warden) -> None:
    class Thief(Scratch):
        """Takes the room away after it was looked for, as a neighbour would."""

        def _require_room(self, size: int) -> None:
            super()._require_room(size)
            with (small_disk / "thief").open("wb") as file:
                file.write(bytes(80 * 1024**2))

    with (
        Thief(small_disk, span_bytes=32 * 1024**2, say=lambda _: None) as scratch,
        pytest.raises(PreconditionError, match="became full while the scratch image was made"),
    ):
        scratch.image_for(Disk(), warden)
    assert list(scratch_files(small_disk)) == []


@pytest.fixture
def disk_with_quota(tmp_path: Path) -> Iterator[Path]:
    """A disk with 25 MiB for us, of which statfs does not tell."""
    with rationed(tmp_path) as place:
        subprocess.run(["btrfs", "qgroup", "limit", "25M", place], check=True)
        yield place


@pytest.mark.parametrize(
    "disk", [Disk(), Disk(format="qcow2"), Disk(filesystem="ext4"), Disk(filesystem="xfs")], ids=str
)
def test_a_used_up_quota_is_one_sentence_and_leaves_nothing_half_made(
    disk: Disk, disk_with_quota: Path, warden: Warden
) -> None:
    span = (32 if disk == Disk() else 16) * 1024**2
    said = "the disk quota was used up while the scratch image was made in"
    with scratch_in(disk_with_quota, span=span) as scratch, pytest.raises(PreconditionError, match=said):
        scratch.image_for(disk, warden)
    whole = {f"virtune-{span}.raw", f"virtune-{span}.raw.virtune.json"}
    assert {one.name for one in scratch_files(disk_with_quota)} == (set() if disk == Disk() else whole)


def test_a_conversion_is_ended_with_its_run_and_says_when_the_disk_is_full(
    small_disk: Path, tmp_path: Path, warden: Warden, monkeypatch: pytest.MonkeyPatch
) -> None:
    class Late(Scratch):
        """Looks for room before somebody takes it."""

        def _require_room(self, size: int) -> None:
            """There was enough of it."""

    real, place = shutil.which("qemu-img"), tmp_path / "bin"
    place.mkdir()
    (place / "qemu-img").write_text(f'#!/bin/sh\necho "${MARK}" > {tmp_path}/mark\nexec {real} "$@"\n')
    (place / "qemu-img").chmod(0o755)
    monkeypatch.setenv("PATH", str(place), prepend=os.pathsep)
    with Late(small_disk, span_bytes=SMALL, say=lambda _: None) as scratch:
        scratch.image_for(Disk(format="qcow2"), warden)
        # what carries the run's mark does not outlive it
        assert (tmp_path / "mark").read_text().strip() == warden.run_id
        room = shutil.disk_usage(small_disk).free - SMALL // 2
        with (small_disk / "thief").open("wb") as file:
            file.truncate(0)
            os.posix_fallocate(file.fileno(), 0, room)
        with pytest.raises(PreconditionError, match=r"small/.* became full while the scratch image was made"):
            scratch.image_for(Disk(format="qcow2", cluster_size=Bytes(131072)), warden)


def test_a_place_where_everybody_writes_gets_a_directory_of_our_own(tmp_path: Path, warden: Warden) -> None:
    shared = tmp_path / "shared"
    shared.mkdir()
    shared.chmod(0o1777)
    with scratch_in(shared) as scratch:
        image = scratch.image_for(Disk(), warden)
    assert image.parent == shared / f"virtune-scratch-{os.geteuid()}"
    assert image.parent.stat().st_mode & 0o066 == 0, "nobody else lists or writes; QEMU's user may pass through"


def test_a_link_under_an_image_s_name_is_neither_written_through_nor_removed(tmp_path: Path, warden: Warden) -> None:
    victim = tmp_path / "victim"
    victim.write_bytes(b"precious" * 1024**2)
    place = tmp_path / "place"
    place.mkdir(mode=0o700)
    image = place / f"virtune-{SMALL}.raw"
    image.symlink_to(victim)
    found = victim.stat()
    forged = {"format": 2, "made_by": "virtune", "span": SMALL, "device": found.st_dev, "inode": found.st_ino}
    image.with_name(image.name + ".virtune.json").write_text(json.dumps(forged))
    with scratch_in(place) as scratch, pytest.raises(PreconditionError, match="virtune did not create it"):
        scratch.image_for(Disk(), warden)
    assert image.readlink() == victim
    assert victim.read_bytes() == b"precious" * 1024**2


def test_a_witness_that_never_ends_is_read_up_to_a_limit(tmp_path: Path) -> None:
    image = tmp_path / f"virtune-{SMALL}.raw"
    image.write_bytes(b"x")
    witness = image.with_name(image.name + ".virtune.json")
    witness.symlink_to("/dev/zero")
    assert not is_ours(image)
    witness.unlink()
    with witness.open("wb") as file:
        file.truncate(2**40)
    assert not is_ours(image)


def test_a_file_of_somebody_else_s_under_an_image_s_name_is_left_alone(tmp_path: Path, warden: Warden) -> None:
    theirs = tmp_path / f"virtune-{SMALL}.raw"
    theirs.write_text("all I have")
    with scratch_in(tmp_path) as scratch, pytest.raises(PreconditionError, match="virtune did not create it"):
        scratch.image_for(Disk(), warden)
    assert theirs.read_text() == "all I have"


KILLED = """
import os, sys
from pathlib import Path
from virtune.bench.scratch import Scratch, scratch_files
from virtune.model.stack import Disk
from virtune.shell import Warden
place, span, old = Path(sys.argv[1]), int(sys.argv[2]), sys.argv[3] == "True"
disk = Disk(**eval(sys.argv[4]))
def scratch():
    return Scratch(place, span_bytes=span, say=lambda _: None)
def killed_at(instant, warden):
    count = 0
    def die(event, arguments):
        nonlocal count
        made = event == "open" and isinstance(arguments[0], str) and arguments[2] & os.O_CREAT
        if (made or event in ("os.remove", "os.rename", "os.truncate")) and f"virtune-{span}" in str(arguments[0]):
            count += 1
            if count > instant:
                os.kill(os.getpid(), 9)
    with scratch() as found:
        sys.addaudithook(die)
        found.image_for(disk, warden)
with Warden("killed") as warden:
    for instant in range(60):
        if old:
            with scratch() as found:
                os.truncate(found.image_for(disk, warden), span // 2)
        if (child := os.fork()) == 0:
            killed_at(instant, warden)
            os._exit(0)
        ended = os.waitpid(child, 0)[1]
        left = {*place.iterdir()} - {place / "virtune.lock"}
        assert left == {*scratch_files(place)}, (instant, left)
        with scratch() as found:
            found.image_for(disk, warden)
        for path in place.iterdir():
            path.unlink()
        if ended == 0:
            break
    print(instant)
"""


@pytest.mark.parametrize(
    ("disk", "old", "least"),
    [({}, False, 4), ({}, True, 5), ({"format": "qcow2", "data_file": True}, False, 12)],
)
def test_killed_at_any_instant_every_image_is_found_again(
    disk: dict[str, object], old: bool, least: int, tmp_path: Path
) -> None:
    words = [sys.executable, "-c", KILLED, str(tmp_path), str(SMALL), str(old), repr(disk)]
    done = subprocess.run(words, check=False, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    assert least <= int(done.stdout) < 59, "so many instants there are"


@pytest.mark.parametrize("name", ["virtune-notes.txt.partial", "virtune-thesis.tex", "virtune-x.partial"])
def test_names_that_only_look_like_ours_are_left_alone(name: str, tmp_path: Path) -> None:
    (tmp_path / name).write_text("mine")
    (tmp_path / f"{name}.virtune.json").write_text("{}")
    with scratch_in(tmp_path):
        assert list(scratch_files(tmp_path)) == []
    assert (tmp_path / name).read_text() == "mine"


def test_a_qcow2_image_that_was_trimmed_is_made_anew(tmp_path: Path, warden: Warden) -> None:
    with scratch_in(tmp_path) as scratch:
        image = scratch.image_for(Disk(format="qcow2"), warden)
        inode = image.stat().st_ino
        subprocess.run(["qemu-io", "-f", "qcow2", "-c", "discard 0 4M", "--discard=unmap", image], check=False)
        subprocess.run(["fallocate", "--punch-hole", "--offset=1M", "--length=4M", image], check=True)
        assert scratch.image_for(Disk(format="qcow2"), warden).stat().st_ino != inode


def test_a_directory_that_somebody_removes_meanwhile_is_one_sentence(tmp_path: Path, warden: Warden) -> None:
    place = tmp_path / "place"
    with scratch_in(place) as scratch:
        scratch.image_for(Disk(), warden)
        shutil.rmtree(place)
        with pytest.raises(PreconditionError, match=r"cannot make .*\.raw: No such file or directory"):
            scratch.image_for(Disk(), warden)


def test_a_limit_of_file_sizes_is_named(tmp_path: Path, warden: Warden) -> None:
    before = resource.getrlimit(resource.RLIMIT_FSIZE)
    with scratch_in(tmp_path) as scratch:
        resource.setrlimit(resource.RLIMIT_FSIZE, (SMALL // 2, before[1]))
        try:
            with pytest.raises(PreconditionError, match="is larger than a file may be here") as caught:
                scratch.image_for(Disk(), warden)
        finally:
            resource.setrlimit(resource.RLIMIT_FSIZE, before)
    assert "ulimit -f" in (caught.value.hint or "")
    assert {one.name for one in tmp_path.iterdir()} == {"virtune.lock"}


def test_a_program_that_makes_no_image_is_named(
    tmp_path: Path, warden: Warden, monkeypatch: pytest.MonkeyPatch
) -> None:
    programs = tmp_path / "bin"
    programs.mkdir()
    (programs / "qemu-img").write_text("#!/bin/sh\nexit 0\n")
    (programs / "qemu-img").chmod(0o755)
    monkeypatch.setenv("PATH", f"{programs}:{os.environ['PATH']}")
    with (
        scratch_in(tmp_path / "place") as scratch,
        pytest.raises(RigError, match="`qemu-img` reported success and made no qcow2 image"),
    ):
        scratch.image_for(Disk(format="qcow2"), warden)


def test_all_is_gone_after_clean_with_images_and_who_waits_locks_anew(tmp_path: Path) -> None:
    def removed(*, images: bool) -> list[str]:
        return [
            one for one in chain(*clean(tmp_path, images=images)) if str(tmp_path) in one
        ]  # not others' killed runs

    with scratch_in(tmp_path):
        pass
    assert removed(images=False) == []
    assert [one.name for one in tmp_path.iterdir()] == ["virtune.lock"]
    assert removed(images=True) == []
    assert list(tmp_path.iterdir()) == []
    with scratch_in(tmp_path) as first:
        second = scratch_in(tmp_path)
        waiting = threading.Thread(target=second.__enter__)
        waiting.start()
        time.sleep(0.2)  # now it waits for the lock that is removed
        first.remove_lock()
    waiting.join()
    with pytest.raises(PreconditionError, match="another virtune is measuring"), scratch_in(tmp_path):
        pytest.fail("two hold the directory")
    second.__exit__(None, None, None)


def test_an_image_that_cannot_be_read_says_so_and_why(tmp_path: Path) -> None:
    with pytest.raises(RigError, match=r"cannot read .*/image: no such file or directory$"):
        never_written(tmp_path / "image", 1)
