# SPDX-License-Identifier: Apache-2.0
"""Proxmox VE's configuration: what its defaults are, what is history, what waits, and the same as `qm set`."""

from pathlib import Path

import pytest

from virtune.dialects.languages import language_of
from virtune.dialects.proxmox import PROXMOX, commands, live, placed, storages
from virtune.model.domain import HELD_HERE, DiskSource, Domain, SettingChange, aio_of, cache_of
from virtune.model.errors import PlanError, ReadError

PLACE = Path(__file__).parents[1] / "captures" / "proxmox"


def text_of(name: str) -> bytes:
    return (PLACE / f"{name}.conf").read_bytes()


def read(name: str) -> Domain:
    return PROXMOX.read(text_of(name))


def test_defaults_are_those_of_proxmox() -> None:
    domain = read("debian-scsi-single")
    assert (domain.name, domain.vcpus, domain.kind) == ("web-01", 4, "kvm")
    assert domain.uuid == "b3247ab1-1fe6-428e-965b-08a1b64a8746"
    cdrom, first, second = domain.disks
    assert (cdrom.target, cdrom.device, cdrom.source.kind) == ("ide2", "cdrom", "none")
    assert first.source == DiskSource(kind="volume", name="local-lvm:vm-101-disk-0")
    assert (first.cache, first.io, first.discard, first.detect_zeroes) == ("none", None, "unmap", "unmap")
    assert (first.bus, first.rotation_rate, first.format) == ("scsi", 1, "raw")
    assert second.cache == "writeback"
    assert [domain.threads_of(disk) for disk in (first, second)] == [(1,), (2,)]


NODE = """lvmthin: thin
\tvgname pve
lvm: thick
\tvgname pve
cifs: windows
zfspool: tank
nfs: nas
rbd: ceph
\tkrbd 0
rbd: mapped
\tkrbd 1
btrfs: copies
btrfs: plain
\tnocow 1
iscsidirect: target
"""


@pytest.mark.parametrize(
    ("disk", "engine", "cache"),
    [
        ("thin:1", "io_uring", "none"), ("thin:1,cache=writeback", "io_uring", "writeback"),
        ("thick:1", "native", "none"), ("thick:1,cache=directsync", "native", "directsync"),
        ("thick:1,cache=writeback", "threads", "writeback"), ("thick:1,aio=io_uring", "io_uring", "none"),
        ("windows:1", "native", "none"), ("windows:1,cache=unsafe", "threads", "unsafe"),
        ("tank:1", "io_uring", "none"), ("nas:1/vm.qcow2", "io_uring", "none"),
        ("mapped:1", "io_uring", "none"), ("mapped:1,cache=writethrough", "threads", "writethrough"),
        ("copies:1", "io_uring", "writeback"), ("copies:1,cache=none", "io_uring", "none"),
        ("plain:1", "io_uring", "none"),
    ],
)  # fmt: skip
def test_the_type_of_a_storage_decides_what_is_not_written(disk: str, engine: str, cache: str) -> None:
    (found,) = placed(PROXMOX.read(f"scsi0: {disk}\n".encode()), storages(NODE)).disks
    assert (aio_of(found), cache_of(found), HELD_HERE in found.options) == (engine, cache, True)


@pytest.mark.parametrize(("disk", "protocol"), [("ceph:1", "rbd"), ("target:1", "iscsi")])
def test_what_qemu_reaches_by_itself_is_no_file_here(disk: str, protocol: str) -> None:
    (found,) = placed(PROXMOX.read(f"scsi0: {disk},aio=native,cache=writeback\n".encode()), storages(NODE)).disks
    assert (found.source, found.opened_here) == (DiskSource(kind="network", name=disk, protocol=protocol), False)


def test_a_storage_that_the_node_does_not_know_and_a_path_stay_as_they_are() -> None:
    read = PROXMOX.read(b"scsi0: other:1\nscsi1: /dev/sdb\nscsi2: none,media=cdrom\n")
    assert placed(read, storages(NODE)) == read


@pytest.mark.parametrize(("yes", "no"), [("1", "0"), ("on", "off"), ("Yes", "no"), ("true", "FALSE")])
def test_booleans_have_all_of_proxmox_s_words(yes: str, no: str) -> None:
    def line(word: str) -> str:
        return f"iothread={word},ssd={word},ro={word},snapshot={word},scsiblock={word},detect_zeroes={word}"

    text = f"scsi0: local:1,{line(yes)}\nscsi1: local:2,{line(no)}\nscsihw: virtio-scsi-single\nkvm: {no}\n"
    domain = PROXMOX.read(text.encode())
    on, off = domain.disks
    assert domain.kind == "qemu"
    assert [domain.threads_of(disk) for disk in (on, off)] == [(1,), ()]
    assert (on.rotation_rate, on.read_only, on.transient, on.device, on.detect_zeroes) == (1, True, True, "lun", "on")
    assert (off.rotation_rate, off.read_only, off.transient, off.device) == (None, False, False, "disk")
    assert off.detect_zeroes == "off"
    assert PROXMOX.read(text.replace(f"kvm: {no}", f"kvm: {yes}").encode()).kind == "kvm"


@pytest.mark.parametrize(
    ("line", "machine"),
    [
        ("q35", "q35"),
        ("type=q35,viommu=virtio", "q35"),
        ("viommu=intel,type=pc-q35-9.0+pve1", "pc-q35-9.0"),
        ("viommu=x", None),
    ],
)
def test_the_machine_s_type_is_read_of_its_properties(line: str, machine: str | None) -> None:
    assert PROXMOX.read(f"scsi0: local:1\nmachine: {line}\n".encode()).machine == machine


@pytest.mark.parametrize(
    "text",
    [
        b"# minimal\nsmbios1: uuid=6cf17dc3-8341-4ecc-aebd-7503f2583fb3\n",
        b"vmgenid: 6cf17dc3-8341-4ecc-aebd-7503f2583fb3\n",
        b"agent: 1\nostype: l26\nmemory: 512\n",
        b"# TEST\ncpu: host\nvga: std\n",
    ],
)
def test_a_vm_without_disks_is_a_vm(text: bytes) -> None:
    assert language_of(text) is PROXMOX
    assert PROXMOX.read(text).disks == ()


def test_a_setting_that_proxmox_does_not_know_makes_a_short_text_another_s() -> None:
    with pytest.raises(ReadError):
        language_of(b"vga: std\nresolution: 800x600\n")


def test_a_thread_that_proxmox_ignores_serves_nothing() -> None:
    domain = read("lsi-iothread-ignored")
    disk = domain.disk("scsi0")
    assert disk is not None
    assert "iothread is ignored" in disk.options
    assert (domain.threads, domain.threads_of(disk)) == ((), ())


def test_snapshots_are_history_and_what_waits_is_the_next_start() -> None:
    text = text_of("snapshots-and-pending")
    domain = read("snapshots-and-pending")
    now = live(text)
    assert now is not None
    waiting, running = domain.disk("virtio0"), now.disk("virtio0")
    assert waiting is not None
    assert running is not None
    assert (waiting.cache, waiting.io, waiting.line) == ("writeback", "threads", 18)
    assert (running.cache, running.io, running.line) == ("none", "native", 12)
    second = domain.disk("virtio1")
    assert second is not None
    assert dict(second.limits) == {
        "read_iops_sec": 5000,
        "write_iops_sec": 2000,
        "write_bytes_sec": 126353408,
        "write_bytes_sec_max": 251658240,
    }
    changed = PROXMOX.alter(text, SettingChange(knob="disk.aio", at="virtio0", value="native"))
    assert changed == text.replace(b"aio=threads", b"aio=native")
    assert live(text_of("debian-scsi-single")) is None


def test_a_whole_disk_a_scratch_disk_and_an_image() -> None:
    domain = read("passthrough-and-qcow2")
    assert [(disk.target, disk.source.kind, disk.format) for disk in domain.disks] == [
        ("scsi0", "volume", "qcow2"),
        ("scsi3", "block", "raw"),
        ("scsi4", "file", "raw"),
        ("virtio15", "volume", "raw"),
    ]
    scratch = domain.disk("scsi4")
    assert scratch is not None
    assert (scratch.transient, scratch.detect_zeroes) == (True, "off")
    controller = domain.controller_of(domain.disks[0])
    assert controller is not None
    assert (controller.queues, controller.iothread, domain.host_devices) == (4, 1, 1)


def test_the_change_as_qm_set() -> None:
    text = text_of("debian-scsi-single")
    after = PROXMOX.alter(
        text,
        SettingChange(knob="disk.cache", at="scsi1", value="none"),
        SettingChange(knob="disk.throttle_bps", at="scsi1", value="157286400"),
        SettingChange(knob="device.iothread", at="scsi0", value=None),
    )
    second = "local-lvm:vm-101-disk-1"
    assert PROXMOX.commands is not None
    assert PROXMOX.commands(text, after, "101") == (
        "qm set 101 --scsi0 local-lvm:vm-101-disk-0,discard=on,size=32G,ssd=1",
        f"qm set 101 --scsi1 {second},backup=0,cache=none,discard=on,iothread=1,size=200G,ssd=1,mbps=150",
    )
    assert PROXMOX.commands(text, text, "101") == ()
    odd = text.replace(b"local-lvm:vm-101-disk-1", b"local lvm;rm")
    changed = PROXMOX.alter(odd, SettingChange(knob="disk.cache", at="scsi1", value="none"))
    assert PROXMOX.commands(odd, changed, "web")[0].startswith("qm set VMID --scsi1 'local lvm;rm,")


@pytest.mark.parametrize(
    ("name", "turn", "says"),
    [
        (
            "lsi-iothread-ignored",
            SettingChange(knob="device.iothread", at="scsi0", value="1"),
            "virtio-scsi-single comes first",
        ),
        ("windows-sata", SettingChange(knob="device.iothread", at="sata0", value="1"), "only virtio and scsi"),
        (
            "snapshots-and-pending",
            SettingChange(knob="device.rotation_rate", at="virtio0", value="1"),
            "virtio-blk cannot",
        ),
        (
            "snapshots-and-pending",
            SettingChange(knob="disk.throttle_iops", at="virtio1", value="9"),
            "this one has iops_rd",
        ),
        ("windows-sata", SettingChange(knob="disk.detect_zeroes", at="sata0", value="unmap"), "discard=on"),
        ("debian-scsi-single", SettingChange(knob="disk.detect_zeroes", at="scsi0", value="on"), "unmap and off"),
        ("debian-scsi-single", SettingChange(knob="scsi.num_queues", at="scsi0", value="1"), "2 queues or more"),
        (
            "debian-scsi-single",
            SettingChange(knob="disk.cache", at="scsi0", value="none,x=1"),
            "cannot be written here",
        ),
        ("debian-scsi-single", SettingChange(knob="disk.throttle_iops", at="scsi0", value="1,x"), "no value"),
        ("debian-scsi-single", SettingChange(knob="device.bus", at="scsi0", value="virtio"), "the disk's name"),
        ("debian-scsi-single", SettingChange(knob="disk.cache", at="memory", value="none"), "no disk 'memory'"),
    ],
    ids=lambda one: one if isinstance(one, str) else "",
)
def test_what_cannot_be_is_refused_with_its_reason(name: str, turn: SettingChange, says: str) -> None:
    with pytest.raises(PlanError, match=says):
        PROXMOX.alter(text_of(name), turn)


@pytest.mark.parametrize("line", [b"cores: many", b"scsi1: a:b,iops=x", b"scsi1: a:b,queues=9e9", b"sockets: 99999"])
def test_numbers_that_are_none_are_refused_with_their_line(line: bytes) -> None:
    with pytest.raises(ReadError, match="line 3"):
        PROXMOX.read(b"ostype: l26\nscsihw: virtio-scsi-single\n" + line + b"\n")


@pytest.mark.parametrize(("name", "vmid"), [("101", "101"), ("web-20240501", "VMID"), ("101.old", "VMID")])
def test_only_a_name_that_is_a_vmid_is_one(name: str, vmid: str) -> None:
    before, after = b"scsi0: local:1\n", b"scsi0: local:1,cache=none\n"
    assert commands(before, after, name) == (f"qm set {vmid} --scsi0 local:1,cache=none",)
