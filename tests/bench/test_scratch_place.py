# SPDX-License-Identifier: Apache-2.0
"""Scratch images lie where nobody else can exchange them, under whatever name; nothing beside them is written."""

import json
import os
import shutil
import subprocess
import sys
import tempfile
from pathlib import Path

import pytest
from tests.bench.place_names import NAMES

from virtune.bench.scratch import Scratch, drop_cache, require_safe, scratch_files, scratch_place
from virtune.model.errors import MissingToolError, PreconditionError
from virtune.model.facts import Unknown
from virtune.model.stack import Disk
from virtune.probe.images import cachestat
from virtune.shell import Warden

MIB = 1024**2
STRANGER = 65534


@pytest.mark.real
@pytest.mark.parametrize("kind", NAMES)
def test_an_image_is_made_under_every_name_and_nothing_beside_it_is_touched(
    kind: str, tmp_path: Path, warden: Warden
) -> None:
    beside = {tmp_path / name: os.urandom(64) * 40_000 for name in ("foo", "bar", "a", "back", "filename", "2")}
    for path, content in beside.items():
        path.write_bytes(content)
    with Scratch(tmp_path / NAMES[kind], span_bytes=2 * MIB, say=lambda _: None) as scratch:
        image = scratch.image_for(Disk(), warden)
        assert image.parent == tmp_path / NAMES[kind]
        assert {*scratch_files(image.parent)} == {image, image.with_name(image.name + ".virtune.json")}
    assert {*tmp_path.iterdir()} == {*beside, tmp_path / NAMES[kind]}
    assert all(path.read_bytes() == content for path, content in beside.items())


def test_a_directory_that_another_user_made_is_refused(tmp_path: Path) -> None:
    place = tmp_path / "virtune-0"
    place.mkdir(mode=0o755)
    os.chown(place, STRANGER, -1)
    with pytest.raises(
        PreconditionError, match=r"it belongs to nobody, who could exchange what lies in it"
    ) as caught:
        scratch_place(place)
    assert caught.value.hint is not None
    assert "--scratch DIR" in caught.value.hint
    assert list(place.iterdir()) == []


EXCHANGES = """
import os, sys
place, victim = sys.argv[1:]
os.setgid(65534), os.setuid(65534)
print("begun", flush=True)
inner = os.path.join(place, "virtune-scratch-0")
images = [os.path.join(inner, "virtune-2097152.raw" + end) for end in ("", ".partial", ".virtune.json")]
tries = [(os.rename, name, name + "~") for name in (inner, *images)]
tries += [(os.symlink, victim, name) for name in images]
tries += [(os.unlink, name) for name in images] + [(os.open, name, os.O_RDWR) for name in images]
while True:
    for exchange, *names in tries:
        try:
            exchange(*names)
        except OSError:
            continue
        print("exchanged", exchange, names, flush=True)
"""


@pytest.mark.real
def test_nobody_else_can_exchange_an_image_between_its_check_and_its_use(warden: Warden) -> None:
    """QEMU and fio open an image by its name; another user tries all the time to have that lead elsewhere."""
    with tempfile.TemporaryDirectory(dir="/var/tmp") as directory:
        place = Path(directory, "everybody's")
        place.mkdir()
        for path, mode in ((place.parent, 0o755), (place, 0o1777)):
            path.chmod(mode)
        victim = Path(directory, "victim")
        victim.write_bytes(b"v" * 2 * MIB)
        words = [sys.executable, "-c", EXCHANGES, str(place), str(victim)]
        with subprocess.Popen(words, stdout=subprocess.PIPE, text=True) as other:
            assert other.stdout is not None
            assert other.stdout.readline() == "begun\n"
            for number in range(5):
                with Scratch(place, span_bytes=2 * MIB, say=lambda _: None, passing=number % 2 > 0) as scratch:
                    assert scratch.image_for(Disk(), warden).stat().st_uid == os.getuid()
            other.kill()
            assert other.stdout.read() == ""
        assert victim.read_bytes() == b"v" * 2 * MIB


def test_a_directory_below_one_of_another_user_s_is_refused(tmp_path: Path) -> None:
    above = tmp_path / "theirs"
    place = above / "deep" / "ours"
    place.mkdir(parents=True)
    os.chown(above, STRANGER, -1)
    with pytest.raises(PreconditionError, match=r"theirs belongs to nobody"):
        scratch_place(place)
    link = tmp_path / "link"
    link.symlink_to(place)
    with pytest.raises(PreconditionError, match=r"theirs belongs to nobody"):
        scratch_place(link)


@pytest.mark.parametrize(("mode", "safe"), [(0o777, False), (0o1777, True), (0o755, True), (0o775, True)])
def test_above_it_others_may_write_only_where_they_cannot_rename(mode: int, safe: bool, tmp_path: Path) -> None:
    above = tmp_path / "above"
    place = above / "ours"
    place.mkdir(parents=True)
    above.chmod(mode)  # its group is root's own, which has nobody else in it
    if safe:
        assert scratch_place(place) == place
        return
    with pytest.raises(PreconditionError, match="others may rename what lies in"):
        scratch_place(place)


def test_a_group_with_others_in_it_is_others(tmp_path: Path) -> None:
    above = tmp_path / "above"
    (above / "ours").mkdir(parents=True)
    os.chown(above, -1, STRANGER)
    above.chmod(0o775)
    with pytest.raises(PreconditionError, match="others may rename what lies in"):
        scratch_place(above / "ours")


def test_where_everybody_writes_a_directory_that_was_prepared_for_us_is_refused(tmp_path: Path) -> None:
    shared = tmp_path / "shared"
    inner = shared / f"virtune-scratch-{os.geteuid()}"
    inner.mkdir(parents=True)
    shared.chmod(0o1777)
    assert scratch_place(shared) == inner
    os.chown(inner, STRANGER, -1)
    with pytest.raises(PreconditionError, match="it belongs to nobody"):
        scratch_place(shared)
    inner.rmdir()
    (tmp_path / "evil").mkdir()
    inner.symlink_to(tmp_path / "evil")
    with pytest.raises(PreconditionError, match="is no directory"):
        scratch_place(shared)
    assert list((tmp_path / "evil").iterdir()) == []


def test_a_directory_that_others_write_to_is_not_safe_itself(tmp_path: Path) -> None:
    place = tmp_path / "place"
    place.mkdir()
    require_safe(place)
    place.chmod(0o1777)
    with pytest.raises(PreconditionError, match="others may write to it"):
        require_safe(place)


def test_a_lock_that_is_a_link_is_not_followed(tmp_path: Path) -> None:
    victim, place = tmp_path / "victim", tmp_path / "place"
    place.mkdir()
    (place / "virtune.lock").symlink_to(victim)
    with pytest.raises(PreconditionError, match="Too many levels"), Scratch(place, span_bytes=1, say=lambda _: None):
        pytest.fail("the link was followed")
    assert not victim.exists()


@pytest.mark.parametrize("end", ["", ".virtune.json", ".partial"])
@pytest.mark.parametrize("what", ["link", "link to nothing", "directory"])
def test_what_is_not_ours_under_the_names_of_what_is_made_is_left_alone(
    end: str, what: str, tmp_path: Path, warden: Warden
) -> None:
    victim, place = tmp_path / "victim", tmp_path / "place"
    place.mkdir()
    name = place / f"virtune-{2 * MIB}.raw{end}"
    if what == "directory":
        name.mkdir()
    else:
        name.symlink_to(victim)
    if what == "link":
        victim.write_text("mine")
    with (
        Scratch(place, span_bytes=2 * MIB, say=lambda _: None) as scratch,
        pytest.raises(PreconditionError, match="is in the way; virtune did not create it") as caught,
    ):
        scratch.image_for(Disk(), warden)
    assert str(name) in caught.value.message
    assert name.is_dir() if what == "directory" else name.readlink() == victim
    assert victim.exists() == (what == "link")


@pytest.fixture
def without_programs(monkeypatch: pytest.MonkeyPatch) -> None:
    """Whoever would fill an image finds no fio, and so is found out."""
    monkeypatch.setenv("PATH", "/nowhere")


def kept(place: Path, *, content: bytes = b"x" * 2 * MIB) -> Path:
    """An image with its witness, as an earlier run left it."""
    image = place / f"virtune-{2 * MIB}.raw"
    image.write_bytes(content)
    found = image.stat()
    words = {"format": 2, "made_by": "virtune", "span": 2 * MIB, "device": found.st_dev, "inode": found.st_ino}
    image.with_name(f"{image.name}.virtune.json").write_text(json.dumps(words))
    return image


@pytest.mark.usefixtures("without_programs")
def test_an_image_is_used_again_only_when_it_is_ours_and_written_in_full(tmp_path: Path, warden: Warden) -> None:
    def used(content: bytes = b"x" * 2 * MIB, *, hole: bool = False, copied: bool = False) -> bool:
        image = kept(tmp_path, content=content)
        if hole:
            os.truncate(image, MIB)
            os.truncate(image, 2 * MIB)
        if copied:
            shutil.copy(image, tmp_path / "copy")
            (tmp_path / "copy").rename(image)
        with Scratch(tmp_path, span_bytes=2 * MIB, say=lambda _: None) as scratch:
            try:
                return scratch.image_for(Disk(), warden) == image
            except MissingToolError:
                return False

    assert used()
    assert not used(hole=True)
    with pytest.raises(PreconditionError, match="virtune did not create it"):
        used(copied=True)
    assert not used(content=b"x" * MIB)
    assert not used(content=b"x" * 3 * MIB)


def test_a_file_in_the_way_that_is_not_ours_stays(tmp_path: Path, warden: Warden) -> None:
    theirs = tmp_path / f"virtune-{2 * MIB}.raw"
    theirs.write_text("all I have")
    with (
        Scratch(tmp_path, span_bytes=2 * MIB, say=lambda _: None) as scratch,
        pytest.raises(PreconditionError, match="is in the way; virtune did not create it"),
    ):
        scratch.image_for(Disk(), warden)
    assert theirs.read_text() == "all I have"


def test_a_dropped_file_is_no_longer_in_the_page_cache(tmp_path: Path) -> None:
    image = kept(tmp_path)
    cached = cachestat(image)
    if isinstance(cached, Unknown) or not cached.cached_bytes:
        pytest.skip("this kernel or filesystem shows no page cache (cachestat needs Linux 6.5)")
    drop_cache(image)
    left = cachestat(image)
    assert not isinstance(left, Unknown)
    assert left.cached_bytes == 0
