# SPDX-License-Identifier: Apache-2.0
"""`virtune audit` and `advise` on the configurations of other systems, as a user calls them."""

import shutil
from pathlib import Path

import pytest
from tests.conftest import User
from tests.published import complaints, strictly

CAPTURES = Path(__file__).parents[1] / "captures"


def test_a_proxmox_vm_is_audited_in_its_own_language(user: User, tmp_path: Path) -> None:
    unnamed = tmp_path / "no-ending"
    shutil.copy(CAPTURES / "proxmox" / "windows-sata.conf", unnamed)
    ran = user.run("audit", str(unnamed), status=4)
    assert "error   R01  sata0    cache=unsafe   (line 12)" in ran.stdout
    assert "+sata0: local-zfs:vm-205-disk-1,cache=none,size=128G" in ran.stdout
    ran = user.run("audit", str(CAPTURES / "proxmox" / "snapshots-and-pending.conf"), status=4)
    assert "cache none now, writeback after a power-off" in ran.stdout


def test_a_change_is_shown_as_a_difference_and_as_command_lines(user: User, tmp_path: Path) -> None:
    file = tmp_path / "101.conf"
    shutil.copy(CAPTURES / "proxmox" / "debian-scsi-single.conf", file)
    ran = user.run("apply", "advise", str(file), "--set", "disk.cache@scsi1=none")
    assert "--- web-01" in ran.stdout
    assert "  $ qm set 101 --scsi1 local-lvm:vm-101-disk-1,backup=0,cache=none," in ran.stdout
    refused = user.run("apply", "advise", str(file), "--set", "device.queue_size@scsi1=256", status=2)
    assert "cannot be written into a Proxmox configuration" in refused.stderr


def test_a_folder_of_all_sorts_is_read_by_content(user: User, tmp_path: Path) -> None:
    folder = tmp_path / "all"
    shutil.copytree(CAPTURES / "proxmox", folder / "proxmox")
    shutil.copytree(CAPTURES / "kubevirt", folder / "kubevirt")
    (folder / "other.conf").write_text("[Unit]\nDescription=nothing of ours\n")
    found = strictly(user.run("audit", str(folder), "--json", "--fail-on", "never").stdout)
    assert complaints("audit", found) == []
    names = {one["domain"] for one in found["domains"]}
    assert {"fedora-web", "win2k22", "one-line", "web-01", "db-02"} <= names
    assert found["unread"] == []
    advice = strictly(user.run("apply", "advise", str(folder), "--template", "flash", "--json").stdout)
    assert complaints("advice", advice) == []
    assert any(one["commands"] for one in advice["domains"])


@pytest.mark.parametrize("text", [b"hello\n", b"\0\0\0", b""])
def test_a_file_that_is_named_and_nothing_known_is_said(user: User, tmp_path: Path, text: bytes) -> None:
    file = tmp_path / "what.conf"
    file.write_bytes(text)
    assert "not read:" in user.run("audit", str(file), status=2).stdout
