# SPDX-License-Identifier: Apache-2.0
"""Which devices stand behind a path: on recorded machines, and on the one we run on."""

import os
from pathlib import Path

import pytest
from tests.probe.machines import unpack

from virtune.model.facts import Unknown
from virtune.probe.devices import all_disks, backing_of, device_facts, node_number
from virtune.probe.tree import Mount, mount_of

pytestmark = pytest.mark.real


def test_lvm_on_raid_goes_down_to_both_drives(tmp_path: Path) -> None:
    root = unpack("lvm-on-raid", tmp_path)
    backing = backing_of("/var/lib/my images/a/b.qcow2", root)
    assert (backing.filesystem, backing.mount_point) == ("xfs", "/var/lib/my images")
    assert "noatime" in backing.options
    assert backing.names == ("dm-0", "md0", "nvme0n1p1", "nvme1n1p1", "nvme0n1", "nvme1n1")
    assert [device.kind for device in backing.devices] == ["dm", "md", "partition", "partition", "disk", "disk"]
    assert backing.devices[0].label == "vg0-images"
    assert backing.devices[1].on == ("nvme0n1p1", "nvme1n1p1")
    assert [disk.name for disk in backing.disks] == ["nvme0n1", "nvme1n1"]
    assert backing.gap is None


def test_a_volume_is_found_by_its_mapper_name(tmp_path: Path) -> None:
    root = unpack("lvm-on-raid", tmp_path)
    backing = backing_of("/dev/mapper/vg0-images", root)
    assert backing.filesystem is None
    assert backing.names[:2] == ("dm-0", "md0")


def test_a_loop_device_goes_down_through_its_file(tmp_path: Path) -> None:
    root = unpack("loop-on-ext4", tmp_path)
    backing = backing_of("/mnt/loop/file", root)
    assert backing.names[0] == "loop0"
    assert backing.devices[0].label == "/srv/disk.img"


def test_a_mount_hidden_by_a_later_one_does_not_count(tmp_path: Path) -> None:
    root = unpack("loop-on-ext4", tmp_path)
    assert backing_of("/srv/empty/x", root).filesystem == "nfs4"
    assert "filer:/srv" in (backing_of("/srv/x", root).gap or "")
    assert backing_of("/home/x", root).names == ("sda2", "sda")


def test_a_root_on_a_loop_device_whose_file_is_out_of_sight_ends_the_chain(tmp_path: Path) -> None:
    root = unpack("loop-on-ext4", tmp_path)
    (root / "proc/self/mountinfo").write_text("25 1 7:0 / / ro - squashfs /dev/loop0 ro\n")
    backing = backing_of("/home/x", root)
    assert backing.names == ("loop0",)
    assert "cannot be seen from here" in (backing.gap or "")


def test_a_btrfs_subvolume_has_every_device_of_its_pool(tmp_path: Path) -> None:
    root = unpack("btrfs-on-two-disks", tmp_path)
    backing = backing_of("/var/lib/images/disk.raw", root)
    assert backing.mount_point == "/var/lib/images"
    assert backing.names == ("sdb", "sdc")


def test_an_overlay_says_why_it_has_no_device(tmp_path: Path) -> None:
    root = unpack("container", tmp_path)
    hidden = backing_of("/home/x", root)
    assert (hidden.filesystem, hidden.devices) == ("overlay", ())
    assert "upper layer" in (hidden.gap or "")
    assert backing_of("/data/x", root).names == ("vda",)


def test_an_overlay_whose_upper_layer_is_in_sight_has_its_device(tmp_path: Path) -> None:
    root = unpack("overlay-in-sight", tmp_path)
    assert backing_of("/merged/x", root).names == ("vda",)


def test_the_queue_of_a_disk_is_read(tmp_path: Path) -> None:
    facts = device_facts("sda", unpack("loop-on-ext4", tmp_path))
    assert (facts.scheduler, facts.schedulers) == ("mq-deadline", ("none", "mq-deadline", "bfq"))
    assert (facts.model, facts.firmware, facts.driver) == ("EXAMPLE HDD 1TB", "AX01", "sd")
    assert (facts.queue_depth, facts.nr_requests, facts.rotational, facts.queues) == (32, 64, True, 1)
    assert (facts.size_bytes, facts.wbt_us, facts.write_cache) == (1953525168 * 512, 75000, "write back")


def test_a_partition_has_its_own_size_and_its_disks_queue(tmp_path: Path) -> None:
    facts = device_facts("nvme0n1p1", unpack("lvm-on-raid", tmp_path))
    assert facts.size_bytes == 3907027120 * 512
    assert (facts.scheduler, facts.queues, facts.driver) == ("none", 4, "nvme")
    assert facts.model == "EXAMPLE NVMe 2TB"


def test_what_is_not_there_says_so(tmp_path: Path) -> None:
    facts = device_facts("nothing", unpack("container", tmp_path))
    assert facts.scheduler == Unknown("/sys/class/block/nothing/queue/scheduler: not there")


def test_no_mount_table_is_a_gap_and_no_failure(tmp_path: Path) -> None:
    assert "mountinfo" in (backing_of("/x", tmp_path).gap or "")


def test_unbound_loop_devices_are_not_disks(tmp_path: Path) -> None:
    assert all_disks(unpack("loop-on-ext4", tmp_path)) == ("loop0", "sda")


def test_this_machine_agrees_with_the_kernel(tmp_path: Path) -> None:
    backing = backing_of(tmp_path / "not" / "there" / "yet")
    assert backing.filesystem
    assert backing.devices or backing.gap
    number = tmp_path.stat().st_dev
    if os.major(number) and backing.devices:
        assert backing.devices[0].number == f"{os.major(number)}:{os.minor(number)}"
    assert node_number(str(tmp_path)) is None


@pytest.mark.parametrize("path", ["/proc/self", "/sys"])
def test_filesystems_without_a_device_say_so(path: str) -> None:
    assert backing_of(path).gap


def _mount(number: int, parent: int, point: str) -> Mount:
    return Mount(
        id=number,
        parent=parent,
        shown="/",
        number=f"0:{number}",
        point=point,
        options=(),
        filesystem="tmpfs",
        source=str(number),
    )


def test_the_last_of_stacked_mounts_is_the_one_seen() -> None:
    table = (_mount(1, 0, "/"), _mount(2, 1, "/a"), _mount(3, 2, "/a"), _mount(4, 3, "/a/b"))
    found = {path: mount_of(path, table) for path in ("/", "/a", "/a/b/c", "/ab")}
    assert {path: mount.id if mount else None for path, mount in found.items()} == {
        "/": 1, "/a": 3, "/a/b/c": 4, "/ab": 1,
    }  # fmt: skip
