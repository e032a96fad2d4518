# SPDX-License-Identifier: Apache-2.0
"""Guests that are spread: their image lies where it was asked for, by whatever name, and which disks that are."""

import json
from pathlib import Path

import pytest

from virtune.bench.port import DiskImageSpec
from virtune.bench.qemu.rig import spread_check
from virtune.bench.scratch import scratch_place
from virtune.flows.run.trial import disks_below
from virtune.model.stack import Stack
from virtune.probe.devices import backing_of


@pytest.mark.parametrize("ending", ["", "/", "/../elsewhere"])
@pytest.mark.parametrize("mode", [0o711, 0o770])
def test_a_directory_is_itself_by_every_name_and_who_else_may_write_there(
    tmp_path: Path, ending: str, mode: int
) -> None:
    place = tmp_path / "elsewhere"
    place.mkdir()
    place.chmod(mode)
    link = tmp_path / "link"
    link.symlink_to(place)
    for asked in (place, link):
        words = f"{asked}{ending}" if asked is place else str(asked)
        image = scratch_place(Path(words)) / "virtune-1.raw"
        assert (image.parent.name == "elsewhere") is (mode == 0o711)
        assert spread_check(words, image).agrees is True
    other = spread_check(str(place), tmp_path / "virtune-1.raw")
    assert (other.agrees, other.found) == (False, str(tmp_path.resolve()))
    assert spread_check(str(place), None).agrees is None


def test_the_disks_below_both_images_are_kept(tmp_path: Path) -> None:
    images = [tmp_path / "a.raw", tmp_path / "b.raw"]
    for image in images:
        image.write_bytes(b"")
    spread = DiskImageSpec(image=images[0], second=images[1], size_bytes=1, writes=False)
    (kept,) = disks_below(Stack(rig="qemu", spread="/other"), spread)
    disks = [disk.name for disk in backing_of(tmp_path).disks]
    assert (kept.name, json.loads(kept.content)) == ("disks.json", {"disks": [disks, disks]})
    assert not list(disks_below(Stack(rig="qemu"), DiskImageSpec(image=images[0], size_bytes=1, writes=False)))
