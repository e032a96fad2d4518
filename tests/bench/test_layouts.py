# SPDX-License-Identifier: Apache-2.0
"""Scratch images of several files: a chain of backing images, an external data file, an encrypted image."""

import json
import subprocess
from collections import Counter
from dataclasses import replace
from pathlib import Path

import pytest
from tests.bench.loading import ground
from tests.conftest import bare_guest

from virtune.bench.qemu.load import find_guest
from virtune.bench.qemu.rig import BareSession, Guests
from virtune.bench.scratch import Scratch, bytes_to_fill, is_ours, scratch_files
from virtune.bench.verify import require_verified
from virtune.dialects.qemu.images import chain_of, data_file_of, files_of, image_node, key_of, secret_words
from virtune.model.errors import PreconditionError
from virtune.model.stack import Disk, Machine, Stack
from virtune.model.text import Bytes
from virtune.shell import Warden

pytestmark = pytest.mark.real

MIB = 1024**2
SMALL = 8 * MIB
CHAIN = Disk(format="qcow2", backing_depth=4)
DATA_FILE = Disk(format="qcow2", data_file=True)
LUKS = Disk(format="qcow2", encryption="luks")
LAYOUTS = {
    "chain": CHAIN,
    "large clusters": replace(CHAIN, cluster_size=Bytes(MIB), extended_l2=True),
    "of a filesystem": replace(CHAIN, backing_depth=2, filesystem="ext4"),
    "data file": DATA_FILE,
    "data file of a filesystem": replace(DATA_FILE, filesystem="ext4"),
    "luks": LUKS,
}


def scratch_in(directory: Path) -> Scratch:
    return Scratch(directory, span_bytes=SMALL, say=lambda _: None)


def qemu(*words: str) -> str:
    return subprocess.run(words, capture_output=True, check=True, text=True).stdout


def opened_as(disk: Disk, image: Path) -> str:
    return f"json:{json.dumps(image_node(disk, image))}"


@pytest.mark.parametrize("name", LAYOUTS)
def test_a_disk_of_several_files_holds_what_the_raw_image_does_and_is_made_once(
    name: str, tmp_path: Path, warden: Warden
) -> None:
    disk = LAYOUTS[name]
    with scratch_in(tmp_path) as scratch:
        needed = bytes_to_fill(tmp_path, [(disk, 0)], span_bytes=SMALL)
        image = scratch.image_for(disk, warden)
        inodes = {path: path.stat().st_ino for path in tmp_path.iterdir()}
        assert scratch.image_for(disk, warden) == image
        assert {path: path.stat().st_ino for path in tmp_path.iterdir()} == inodes
        raw = scratch.image_for(replace(Disk(), filesystem=disk.filesystem), warden)
    assert set(files_of(disk, image)) <= scratch.made
    assert bytes_to_fill(tmp_path, [(disk, 0)], span_bytes=SMALL) == 0
    assert needed >= 2 * SMALL
    secret, copy = secret_words(disk, image), tmp_path / "copy"
    qemu("qemu-img", "convert", *secret, "-O", "raw", opened_as(disk, image), str(copy))
    assert "identical" in qemu("qemu-img", "compare", "-f", "raw", "-F", "raw", str(raw), str(copy))
    assert set(scratch_files(tmp_path)) == {*tmp_path.iterdir()} - {copy, tmp_path / "virtune.lock"}


def test_each_image_of_a_chain_has_an_equal_share_and_the_measured_one_none(tmp_path: Path, warden: Warden) -> None:
    with scratch_in(tmp_path) as scratch:
        image = scratch.image_for(CHAIN, warden)
    held = Counter[int]()
    for part in json.loads(qemu("qemu-img", "map", "--output=json", str(image))):
        held[part["depth"]] += part["length"]
    assert held == dict.fromkeys(range(1, 5), SMALL // 4)
    *_, base = chain_of(CHAIN, image)
    assert {one["depth"] for one in json.loads(qemu("qemu-img", "map", "--output=json", str(base)))} == {0}


def test_what_an_arm_wrote_above_a_chain_is_gone_before_the_next_trial(tmp_path: Path, warden: Warden) -> None:
    with scratch_in(tmp_path) as scratch:
        image = scratch.image_for(CHAIN, warden)
        before = image.stat()
        qemu("qemu-io", "-f", "qcow2", "-c", "write 1M 1M", str(image))
        assert image.stat().st_size > before.st_size + MIB
        assert scratch.image_for(CHAIN, warden) == image
    after = image.stat()
    assert (after.st_size, after.st_ino) == (before.st_size, before.st_ino), "a resumed study knows it again"
    assert is_ours(image)


@pytest.mark.parametrize("disk", [CHAIN, DATA_FILE, LUKS], ids=["chain", "data file", "luks"])
def test_where_one_file_is_gone_all_are_made_anew(disk: Disk, tmp_path: Path, warden: Warden) -> None:
    with scratch_in(tmp_path) as scratch:
        image = scratch.image_for(disk, warden)
        beside = key_of(disk, image) or data_file_of(disk, image) or chain_of(disk, image)[1]
        born = {path: path.stat().st_mtime_ns for path in files_of(disk, image)}
        beside.unlink()
        scratch.image_for(disk, warden)
    assert all(path.stat().st_mtime_ns > at for path, at in born.items())
    assert is_ours(beside)


def test_a_passphrase_is_random_and_only_its_user_reads_it(tmp_path: Path, warden: Warden) -> None:
    texts = set()
    for name in ("one", "other"):
        with scratch_in(tmp_path / name) as scratch:
            key = key_of(LUKS, scratch.image_for(LUKS, warden))
            assert key is not None
            assert key.stat().st_mode & 0o777 == 0o600
            texts.add(key.read_text())
    assert {len(text) for text in texts} == {64}
    assert len(texts) == 2


def test_there_must_be_room_for_what_is_written_above_a_chain(tmp_path: Path, warden: Warden) -> None:
    class Small(Scratch):
        """A disk that has so much room left."""

        free = 2**40

        def _require_room(self, size: int) -> None:
            if size > self.free:
                raise PreconditionError("no room")

    with Small(tmp_path, span_bytes=SMALL, say=lambda _: None) as scratch:
        image = scratch.image_for(CHAIN, warden)
        subprocess.run(["qemu-io", "-c", "write 0 4M", str(image)], check=True, capture_output=True)
        scratch.free = SMALL - 1
        with pytest.raises(PreconditionError, match="no room"):
            scratch.image_for(CHAIN, warden)
        scratch.free = SMALL
        assert scratch.image_for(CHAIN, warden) == image


def test_a_chain_without_room_is_refused_before_any_of_it_is_made(tmp_path: Path, warden: Warden) -> None:
    place = tmp_path / "small"
    place.mkdir()
    subprocess.run(["mount", "-t", "tmpfs", "-o", "size=84m", "none", place], check=True)
    try:
        said = "free: the scratch image needs 22 MiB, and 64 MiB stay free"
        with scratch_in(place) as scratch, pytest.raises(PreconditionError, match=said):
            scratch.image_for(CHAIN, warden)
        assert {path.name for path in scratch_files(scratch.directory)} == {
            f"virtune-{SMALL}.raw",
            f"virtune-{SMALL}.raw.virtune.json",
        }
    finally:
        subprocess.run(["umount", "-l", place], check=True)


@pytest.mark.xdist_group("guests")
def test_one_bare_guest_goes_from_layout_to_layout(scratch: Scratch, warden: Warden) -> None:
    bare_guest()
    guest = find_guest()
    machines = Guests(lambda: BareSession(guest, warden))
    asked = {
        "disk.backing_depth": (replace(CHAIN, backing_depth=2), "2"),
        "disk.data_file": (DATA_FILE, "on"),
        "disk.encryption": (LUKS, "luks"),
    }
    try:
        for knob, (disk, value) in asked.items():
            stack = Stack(rig="qemu", machine=Machine(system="bare"), disk=replace(disk, cache="writeback"))
            with machines.up(stack, ground(stack, scratch, warden)) as bench:
                require_verified(knob, bench.in_force.checks)
                found = {check.setting: check.found for check in bench.in_force.checks}
                assert (found[knob], found["O_DIRECT"]) == (value, "off")
                assert bench.changeover is not None
                assert bench.changeover.swapped == (None if knob == "disk.backing_depth" else "nodes")
    finally:
        machines.give_up()
