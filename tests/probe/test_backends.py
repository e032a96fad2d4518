# SPDX-License-Identifier: Apache-2.0
"""What other hosts may load, too, is named alike on every host that uses it."""

from pathlib import Path

import pytest
from tests.probe.machines import unpack

from virtune.probe.backends import backends_of

FSID = "5f3b2c1a-0000-4000-8000-00000000abcd"
MOUNTS = {
    ("nfs4", "filer:/a", "rw,vers=4.2,addr=10.0.0.5"): ("nfs 10.0.0.5",),
    ("nfs", "10.0.0.5:/other", "rw,addr=10.0.0.5"): ("nfs 10.0.0.5",),
    ("nfs4", "filer:/a", "rw"): ("nfs filer",),
    ("cifs", "//win/vms", "rw,addr=10.0.0.9"): ("cifs 10.0.0.9",),
    ("smb3", "//win/vms", "rw"): ("cifs win",),
    ("ceph", "mon2:6789,mon1:6789:/vms", "rw"): ("ceph mon1:6789", "ceph mon2:6789"),
    ("ceph", f"admin@{FSID}.cephfs=/vms", "rw"): (f"ceph {FSID}",),
    ("ceph", "mon1:6789:/", f"rw,fsid={FSID}"): (f"ceph {FSID}",),
    ("fuse.glusterfs", "g1:/vol/sub", "rw"): ("gluster vol",),
    ("glusterfs", "g2:/vol", "rw"): ("gluster vol",),
    ("virtiofs", "share", "rw"): ("unknown: virtiofs share",),
    ("fuse.sshfs", "me@there:/d", "rw"): ("unknown: fuse.sshfs me@there:/d",),
    ("lustre", "mgs@tcp:/fs", "rw"): ("unknown: lustre mgs@tcp:/fs",),
    ("tmpfs", "tmpfs", "rw"): (),
    ("zfs", "tank/vms", "rw"): (),
}


@pytest.mark.parametrize(("mount", "names"), MOUNTS.items(), ids=[f"{one[0]} {one[1]}" for one in MOUNTS])
def test_a_server_has_one_name_whatever_a_host_calls_it(
    mount: tuple[str, str, str], names: tuple[str, ...], tmp_path: Path
) -> None:
    kind, source, options = mount
    root = unpack("loop-on-ext4", tmp_path)
    table = root / "proc/self/mountinfo"
    table.write_text(
        f"{table.read_text()}99 25 0:77 / /vms rw - {kind} {source} {options}\n".replace("99 25", _id(table))
    )
    assert backends_of("/vms/a/disk.img", root) == names
    assert backends_of("/home/x", root) == ()


def _id(table: Path) -> str:
    """A mount's own number and that of the root, below which it lies."""
    root = next(line.split()[0] for line in table.read_text().splitlines() if line.split()[4] == "/")
    return f"9999 {root}"


def disk(root: Path, number: str, home: str, **files: str) -> None:
    """Make a whole block device in sysfs."""
    place = root / "sys/devices" / home
    place.mkdir(parents=True)
    for name, text in {"dev": number, **files}.items():
        path = place / name.replace("__", "/")
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text + "\n")
    for link in (root / "sys/dev/block" / number, root / "sys/class/block" / place.name):
        link.parent.mkdir(parents=True, exist_ok=True)
        link.symlink_to(place)


def written(path: Path, text: str) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(text + "\n")


ISCSI = "platform/host3/session7/target3:0:0/3:0:0:1/block/sdc"
FC = "pci0/host5/rport-5:0-2/target5:0:0/5:0:0:1/block/sdd"


def test_a_disk_of_a_network_is_named_by_its_target(tmp_path: Path) -> None:
    written(tmp_path / "sys/class/iscsi_session/session7/targetname", "iqn.2026-11.org.example:vms")
    written(tmp_path / "sys/class/fc_remote_ports/rport-5:0-2/node_name", "0x5006016080000001")
    written(tmp_path / "sys/bus/rbd/devices/3/cluster_fsid", FSID)
    disk(tmp_path, "8:32", ISCSI, device__wwid="naa.600140512345678901234567890abcde")
    disk(tmp_path, "8:48", FC)
    disk(tmp_path, "252:48", "rbd/3/block/rbd3")
    disk(tmp_path, "252:64", "rbd/4/block/rbd4")
    disk(tmp_path, "259:1", "nvme-fabrics/ctl/nvme1/nvme1n1", device__transport="tcp", device__subsysnqn="nqn.x")
    disk(tmp_path, "259:2", "sub/nvme-subsys2/nvme2n1", device__nvme5__transport="rdma", device__subsysnqn="nqn.y")
    disk(tmp_path, "259:3", "pci0/nvme/nvme3/nvme3n1", device__transport="pcie", device__subsysnqn="nqn.z")
    disk(tmp_path, "8:64", "ata1/block/sde", device__wwid="t10.ATA     QEMU HARDDISK      QM00001")
    disk(tmp_path, "147:0", "virtual/block/drbd0")
    disk(tmp_path, "43:0", "virtual/block/nbd0")
    names = {name: backends_of(f"/dev/{name}", tmp_path) for name in (
        "sdc", "sdd", "rbd3", "rbd4", "nvme1n1", "nvme2n1", "nvme3n1", "sde", "drbd0", "nbd0",
    )}  # fmt: skip
    assert names == {
        "sdc": ("disk 600140512345678901234567890abcde", "iscsi iqn.2026-11.org.example:vms"),
        "sdd": ("fc 0x5006016080000001",),
        "rbd3": (f"ceph {FSID}",),
        "rbd4": ("unknown: rbd4",),
        "nvme1n1": ("nvme nqn.x",),
        "nvme2n1": ("nvme nqn.y",),
        "nvme3n1": (),
        "sde": (),
        "drbd0": ("unknown: drbd0",),
        "nbd0": ("unknown: nbd0",),
    }


def test_a_loop_device_is_as_shared_as_its_file(tmp_path: Path) -> None:
    root = unpack("loop-on-ext4", tmp_path)
    table = root / "proc/self/mountinfo"
    (file,) = (path.read_text().strip() for path in root.glob("sys/**/loop/backing_file"))
    place = str(Path(file).parent)
    table.write_text(f"{table.read_text()}{_id(table)} 0:77 / {place} rw - nfs4 filer:/a rw,addr=10.0.0.5\n")
    assert backends_of("/mnt/loop/file", root) == ("nfs 10.0.0.5",)
