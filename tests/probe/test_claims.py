# SPDX-License-Identifier: Apache-2.0
"""Why a device must not be written to: on recorded machines, and on real loop devices."""

import contextlib
import os
import shutil
import stat
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest
from tests.planted_pci import PlantedPci
from tests.probe.machines import unpack

from virtune.model.facts import Claim, ClaimKind
from virtune.probe.claims import claims, node_at
from virtune.probe.devices import backing_of
from virtune.probe.host import nvme_idle

pytestmark = [pytest.mark.real, pytest.mark.xdist_group("loop devices")]
"""`losetup --find` opens every loop device for a moment, so tests that make some do not run beside one another."""

NEEDS = [name for name in ("losetup", "mkfs.ext4", "blkid", "mount") if shutil.which(name) is None]
CANNOT = (
    "needs root" if os.geteuid() else
    f"needs {', '.join(NEEDS)} (apt-get install mount e2fsprogs util-linux)" if NEEDS else
    "" if Path("/dev/loop-control").exists() else "needs loop devices (modprobe loop)"
)  # fmt: skip
real = pytest.mark.skipif(bool(CANNOT), reason=CANNOT)


def kinds(path: str, root: Path = Path("/")) -> list[str]:
    return [claim.kind.value for claim in claims(path, root)]


def lasting(device: str) -> list[Claim]:
    """What is claimed at two looks: other tests probe this host, and open every device for a moment."""
    again = claims(device)
    return [claim for claim in claims(device) if claim in again]


def command(*words: str) -> str:
    return subprocess.run(words, check=True, capture_output=True, text=True).stdout.strip()


@contextlib.contextmanager
def loop(tmp_path: Path) -> Iterator[str]:
    image = tmp_path / "image"
    image.write_bytes(bytes(16 << 20))
    device = command("losetup", "--find", "--show", str(image))
    try:
        yield device
    finally:
        command("losetup", "--detach", device)


def test_a_drive_below_raid_and_lvm_is_claimed_on_every_level(tmp_path: Path) -> None:
    found = claims("/dev/nvme0n1", unpack("lvm-on-raid", tmp_path))
    assert {claim.kind for claim in found} == {ClaimKind.HELD, ClaimKind.MOUNTED, ClaimKind.SWAP}
    texts = [claim.text for claim in found]
    assert "nvme0n1p1 is part of md0" in texts
    assert "dm-0 is mounted on /var/lib/my images (xfs)" in texts
    assert "dm-1 is swap space" in texts


def test_the_other_partition_of_a_mounted_disk_is_free(tmp_path: Path) -> None:
    root = unpack("loop-on-ext4", tmp_path)
    assert kinds("/dev/sda1", root) == []
    assert kinds("/dev/sda2", root) == ["mounted"]
    assert kinds("/dev/sda", root) == ["mounted"]


def test_every_member_of_a_mounted_btrfs_is_claimed(tmp_path: Path) -> None:
    root = unpack("btrfs-on-two-disks", tmp_path)
    assert "mounted" in kinds("/dev/sdc", root)


def test_what_is_no_block_device_has_no_claims(tmp_path: Path) -> None:
    assert claims(tmp_path) == ()
    assert claims("/dev/null") == ()


@real
def test_an_empty_loop_device_is_free(tmp_path: Path) -> None:
    with loop(tmp_path) as device:
        assert lasting(device) == []
        assert backing_of(device).devices[0].label == str(tmp_path / "image")


@real
def test_a_filesystem_is_a_claim_and_a_mount_another(tmp_path: Path) -> None:
    with loop(tmp_path) as device:
        command("mkfs.ext4", "-q", device)
        assert [claim.text for claim in lasting(device)] == [f"{device} holds ext4"]
        point = tmp_path / "mount point"
        point.mkdir()
        command("mount", device, str(point))
        try:
            assert [claim.kind.value for claim in lasting(device)] == ["mounted", "held", "signed"]
            assert backing_of(point / "x").names[0] == Path(device).name
        finally:
            command("umount", str(point))


@real
def test_a_process_that_has_it_open_is_named(tmp_path: Path) -> None:
    with loop(tmp_path) as device, Path(device).open("rb") as stream:
        child = subprocess.Popen(["sleep", "60"], stdin=stream)
        try:
            (claim,) = lasting(device)
            assert claim.kind is ClaimKind.OPEN
            assert str(child.pid) in claim.text
        finally:
            child.kill()
            child.wait()


@real
def test_a_process_that_has_it_open_in_a_jail_is_named(tmp_path: Path) -> None:
    with loop(tmp_path) as device:
        node = tmp_path / "node"
        os.mknod(node, 0o600 | stat.S_IFBLK, os.stat(device).st_rdev)
        with node.open("rb") as stream, subprocess.Popen(["sleep", "60"], stdin=stream) as child:
            found = lasting(device)
            child.kill()
        assert [(one.kind, str(child.pid) in one.text) for one in found] == [(ClaimKind.OPEN, True)]


def test_an_nvme_drive_that_something_uses_below_the_block_layer_is_claimed(tmp_path: Path) -> None:
    pci = PlantedPci(tmp_path)
    pci.drive()
    drive = "/dev/nvme0n1"
    assert claims(drive, tmp_path) == ()
    generic = tmp_path / "sys/class/nvme-generic/ng0n1"
    generic.mkdir(parents=True)
    (generic / "dev").write_text("240:7\n")
    opened = {"c 240:7": ["process 1 (xnvme)"], "c 240:8": ["process 2"], "240:7": ["process 3"]}
    assert [one.text for one in claims(drive, tmp_path, opened)] == ["nvme0n1 is open in process 1 (xnvme)"]
    assert node_at(Path("/dev/null")) == "c 1:3"
    assert node_at(tmp_path) is None


@pytest.mark.parametrize(("at", "path"), [("namespaces/1", "/dev/nvme0n1"), ("passthru", "/dev/nvme0")])
def test_an_nvme_drive_that_is_offered_to_other_hosts_is_claimed(tmp_path: Path, at: str, path: str) -> None:
    pci = PlantedPci(tmp_path)
    pci.drive()
    pci.drive("0000:02:00.0", number=1)
    place = tmp_path / "sys/kernel/config/nvmet/subsystems/nqn.x" / at
    place.mkdir(parents=True)
    (place / "device_path").write_text(f"{path}\n")
    for enabled, found in (("0", []), ("1", ["held"])):
        (place / "enable").write_text(f"{enabled}\n")
        assert kinds("/dev/nvme0n1", tmp_path) == found
        assert kinds("/dev/nvme1n1", tmp_path) == []
        assert nvme_idle(tmp_path) == {"nvme0n1": not found, "nvme1n1": True}
    hidden = tmp_path / "sys/block/nvme1c0n1"  # a path to a namespace, beside it
    hidden.mkdir()
    (hidden / "size").write_text("8\n")
    (tmp_path / "sys/class/block/nvme1n1").unlink()
    assert nvme_idle(tmp_path) == {"nvme0n1": False, "nvme1n1": None}, "without its node nothing can be asked of it"


@real
def test_a_read_only_device_is_a_claim(tmp_path: Path) -> None:
    image = tmp_path / "image"
    image.write_bytes(bytes(1 << 20))
    device = command("losetup", "--read-only", "--find", "--show", str(image))
    try:
        assert kinds(device) == ["read-only"]
    finally:
        command("losetup", "--detach", device)
