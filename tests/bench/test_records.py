# SPDX-License-Identifier: Apache-2.0
"""Records of disks in domains and of images in Ceph: only the very file that virtune wrote is believed."""

import json
import os
import shutil
from collections.abc import Callable
from pathlib import Path

import pytest

from virtune import shell
from virtune.bench import rbd
from virtune.bench.libvirt import access
from virtune.flows.clean import clean

UUID = "c7a5fdbd-cdaf-9455-926a-d65c16db1809"
IMAGE = "virtune-run-20260101-000000-abcd-0123456789abcdef"


def edited(record: Path, **said: object) -> None:
    """Change a record in place, which keeps its inode."""
    record.write_text(json.dumps({**json.loads(record.read_text()), **said}))


def replaced(record: Path) -> None:
    kept = record.with_name("kept")
    shutil.copy2(record, kept)
    record.unlink()
    kept.rename(record)


def as_a_fifo(record: Path) -> None:
    record.unlink()
    os.mkfifo(record, 0o600)


def behind_a_link(record: Path) -> None:
    record.rename(record.with_name("kept"))
    record.symlink_to("kept")


SPOILT: dict[str, Callable[[Path], object]] = {
    "a copy": replaced,
    "a FIFO": as_a_fifo,
    "a link": behind_a_link,
    "writable by others": lambda record: record.chmod(0o666),
    "deep": lambda record: record.write_text("[" * 100_000),
    "empty": lambda record: os.truncate(record, 0),
    "half": lambda record: os.truncate(record, 30),
    "a list": lambda record: record.write_text("[]"),
    "long": lambda record: edited(record, more="x" * 10_000),
    "itself no object": lambda record: edited(record, self=1),
}
LEADS_ELSEWHERE: dict[str, Callable[[Path], object]] = {
    "another directory": lambda record: edited(record, uuid="../../elsewhere"),
    "another name": lambda record: edited(record, name="virtune-00000000"),
    "a number for a text": lambda record: edited(record, scratch=5),
    "a text for a number": lambda record: edited(record, owner="1"),
    "a name no path has": lambda record: edited(record, scratch="\0"),
}


@pytest.mark.parametrize("spoil", [*SPOILT.values(), *LEADS_ELSEWHERE.values()], ids=[*SPOILT, *LEADS_ELSEWHERE])
def test_a_spoilt_record_of_a_disk_is_named_and_left(
    spoil: Callable[[Path], object], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("XDG_DATA_HOME", str(tmp_path / "data"))
    home = shell.data_directory() / "plugged"
    home.mkdir(parents=True)
    plugged = access.write_down(home, uri="test:///default", uuid=UUID, domain="vm", scratch=tmp_path / "scratch")
    assert access.written_down(home) == [plugged]
    record = home / f"{plugged.name}.json"
    spoil(record)
    before = sorted(tmp_path.rglob("*"))
    assert access.written_down(home) == []
    removed, _, strange = clean(tmp_path / "scratch", images=False)
    assert not [one for one in removed if "vm" in one]
    assert [one for one in strange if str(record) in one]
    if spoil in SPOILT.values():  # of the others the file is virtune's own
        access.strike_out(home, plugged)
    assert sorted(tmp_path.rglob("*")) == before


WRONG_PLACES: dict[str, Callable[[Path], object]] = {
    "no pool": lambda record: edited(record, place="a,b;c"),
    "endless": lambda record: edited(record, size_bytes=float("inf")),
    "no number": lambda record: edited(record, size_bytes="many"),
}


@pytest.mark.parametrize("spoil", [*SPOILT.values(), *WRONG_PLACES.values()], ids=[*SPOILT, *WRONG_PLACES])
def test_a_spoilt_record_of_an_image_in_ceph_is_left(
    spoil: Callable[[Path], object], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("XDG_DATA_HOME", str(tmp_path / "data"))
    record = rbd.records() / f"{IMAGE}.json"
    record.parent.mkdir(parents=True)
    with record.open("w") as file:
        found = os.fstat(file.fileno())
        own = {"device": found.st_dev, "inode": found.st_ino}
        file.write(json.dumps({"place": "vms", "size_bytes": 1, "self": own}))
    record.chmod(0o600)
    assert [one.name for one in rbd.abandoned()] == [IMAGE]
    spoil(record)
    assert list(rbd.abandoned()) == []
    assert os.path.lexists(record)
