# SPDX-License-Identifier: Apache-2.0
"""Of the languages whose files are lines of words, every field of a reading is as it should be, not only some."""

import itertools
from collections.abc import Callable

import pytest

from virtune.dialects.bhyve import BHYVE, VM_BHYVE
from virtune.dialects.languages import language_of
from virtune.dialects.nova import NOVA
from virtune.dialects.vmx import VMX
from virtune.dialects.xl import XL
from virtune.model.domain import DiskSource, Domain, DomainDisk, SettingChange, SourceKind
from virtune.model.errors import PlanError, ReadError

NOVA_TEXT = b"""[DEFAULT]
virt_type = xen

[libvirt]
hw_disk_discard = sometimes
virt_type = qemu
disk_cachemodes = 'file=directsync,network=writeback'
"""
VMX_TEXT = b"""config.version = "8"
virtualHW.version = "19"
displayName = "Build host"
numvcpus = "99999"
mainMem.useNamedFile = "FALSE"
scsi0.virtualDev = "LSILogic"
scsi0:0.fileName = "a.vmdk"
scsi0:0.mode = "Independent-Nonpersistent"
scsi0:0.virtualSSD = "1"
scsi0:0.writeThrough = "true"
scsi0:1.present = "FALSE"
scsi0:1.fileName = "gone.vmdk"
nvme0:0.present = "true"
nvme0:0.fileName = "/dev/sdb"
nvme0:0.virtualSSD = "0"
nvme0:0.writeThrough = "no"
"""
BHYVE_TEXT = b"""name=db
uuid=6e8f
cpus=99999
pci.0.2.0.device=virtio-blk
pci.0.2.0.path=/dev/zvol/a
pci.0.2.0.ro=on
pci.0.2.0.nodelete=YES
pci.0.3.0.device=ahci
pci.0.3.0.port.0.type=cd
pci.0.3.0.port.0.path=/x.iso
pci.0.4.0.device=nvme
pci.0.4.0.path=/srv/b.img
pci.0.4.0.ioslots=64
pci.0.4.0.nocache=1
pci.0.4.0.direct=true
pci.0.5.0.device=virtio-net
pci.0.5.0.path=/no/disk
"""
VM_BHYVE_TEXT = b"""loader="grub"
cpu=99999
uuid="6e8f"
disk1_type="nvme"
disk1_name="data"
disk1_dev="sparse-zvol"
disk1_opts="direct,ioslots=64,ro,nodelete"
disk0_name="/dev/ada1"
disk0_type="virtio-blk"
disk2_type="other"
disk2_name="c.img"
"""
XL_TEXT = b"""type = "hvm"
name = "web"
uuid = '6e8f'
vcpus = 6
disk = [ 'nbd:host,xvda,r', '/srv/b.qcow2,qcow2,hda,rw,discard,direct-io-safe' ]
disk += [ 'backendtype=phy,no-discard,vdev=sda1,target=/dev/vg/c' ]
"""

NOVA_DISKS: tuple[tuple[str, SourceKind, str | None, str], ...] = (
    ("file", "file", None, "directsync"),
    ("block", "block", None, "none"),
    ("network", "network", "network", "writeback"),
    ("mount", "dir", None, "none"),
)
WHOLE: dict[str, tuple[bytes, Domain]] = {
    "nova": (
        NOVA_TEXT,
        Domain(
            name="", uuid=None, kind="qemu", line=5, vcpus=1, language="nova",
            disks=tuple(
                DomainDisk(
                    target=target, line=7, driver="qemu", cache=cache,
                    source=DiskSource(kind=kind, name=f"all {target} disks", protocol=protocol),
                )
                for target, kind, protocol, cache in NOVA_DISKS
            ),
        ),
    ),
    "vmx": (
        VMX_TEXT,
        Domain(
            name="Build host", uuid=None, kind="vmware", line=1, vcpus=99_999, machine="19", language="vmx",
            written=frozenset({"mainmem.usenamedfile"}),
            disks=(
                DomainDisk(
                    target="scsi0:0", line=8, bus="scsi", source=DiskSource(kind="file", name="a.vmdk"),
                    driver="lsilogic", format="vmdk", cache="writethrough", rotation_rate=1,
                    options=frozenset({"independent-nonpersistent"}),
                ),
                DomainDisk(
                    target="nvme0:0", line=14, device="disk", bus="nvme", format="vmdk", cache="writeback",
                    source=DiskSource(kind="block", name="/dev/sdb"), options=frozenset({"persistent"}),
                ),
            ),
        ),
    ),
    "bhyve": (
        BHYVE_TEXT,
        Domain(
            name="db", uuid="6e8f", kind="bhyve", line=1, vcpus=99_999, language="bhyve",
            disks=(
                DomainDisk(
                    target="pci.0.2.0", line=5, bus="virtio", source=DiskSource(kind="block", name="/dev/zvol/a"),
                    format="raw", cache="writeback", discard="ignore", read_only=True,
                ),
                DomainDisk(
                    target="pci.0.3.0.port.0", line=10, device="cdrom", bus="sata", format="raw", cache="writeback",
                    source=DiskSource(kind="file", name="/x.iso"),
                ),
                DomainDisk(
                    target="pci.0.4.0", line=12, bus="nvme", source=DiskSource(kind="file", name="/srv/b.img"),
                    format="raw", cache="directsync", options=frozenset({"nocache", "direct", "ioslots=64"}),
                ),
            ),
        ),
    ),
    "vm-bhyve": (
        VM_BHYVE_TEXT,
        Domain(
            name="", uuid="6e8f", kind="bhyve", line=1, vcpus=99_999, language="vm-bhyve",
            disks=(
                DomainDisk(
                    target="disk0", line=8, bus="virtio", source=DiskSource(kind="block", name="/dev/ada1"),
                    format="raw", cache="writeback",
                ),
                DomainDisk(
                    target="disk1", line=5, bus="nvme", source=DiskSource(kind="block", name="data"),
                    format="raw", cache="writethrough", discard="ignore", read_only=True,
                    options=frozenset({"direct", "ioslots=64"}),
                ),
                DomainDisk(
                    target="disk2", line=11, source=DiskSource(kind="file", name="c.img"),
                    format="raw", cache="writeback",
                ),
            ),
        ),
    ),
    "xl": (
        XL_TEXT,
        Domain(
            name="web", uuid="6e8f", kind="xen", line=1, vcpus=6, machine="hvm", language="xl",
            disks=(
                DomainDisk(
                    target="xvda", line=5, bus="xen", format="raw", read_only=True, options=frozenset({"script"}),
                    source=DiskSource(kind="network", name="host", protocol="nbd"),
                ),
                DomainDisk(
                    target="hda", line=5, bus="ide", source=DiskSource(kind="file", name="/srv/b.qcow2"),
                    format="qcow2", discard="unmap", options=frozenset({"direct-io-safe", "discard"}),
                ),
                DomainDisk(
                    target="sda1", line=6, bus="scsi", source=DiskSource(kind="block", name="/dev/vg/c"),
                    driver="phy", format="raw", discard="ignore", options=frozenset({"no-discard"}),
                ),
            ),
        ),
    ),
}  # fmt: skip


@pytest.mark.parametrize("name", WHOLE)
def test_every_field_of_a_reading_is_right(name: str) -> None:
    text, expected = WHOLE[name]
    assert language_of(text).name == name
    assert language_of(text).read(text) == expected


CPUS = {"vmx": b'numvcpus = "%s"', "bhyve": b"cpus=%s", "vm-bhyve": b"cpu=%s", "xl": b"vcpus = %s"}


@pytest.mark.parametrize("name", CPUS)
def test_a_number_of_cpus_that_is_none_is_one(name: str) -> None:
    text, domain = WHOLE[name]
    line = CPUS[name] % str(domain.vcpus).encode()
    assert text.count(line) == 1
    cases = [(b"", 1), (b"3", 3)] + ([] if name == "xl" else [(b"many", 1), (b"100000", 1)])
    for word, cpus in cases:
        altered = text.replace(line, CPUS[name] % word if name != "xl" or word else b"")
        assert language_of(altered).read(altered).vcpus == cpus
    gone = text.replace(line + b"\n", b"")
    assert language_of(gone).read(gone).vcpus == 1


VALUES: dict[str, dict[str, tuple[str | None, ...]]] = {
    "nova": {"disk.cache": ("none", "writethrough", "writeback", "directsync", "unsafe", None),
             "disk.discard": ("unmap", "ignore", None)},
    "vmx": {"disk.cache": ("writethrough", "writeback", None), "device.rotation_rate": ("1", "0", None),
            "disk.throttle_iops": ("200", "3000", None)},
    "bhyve": {"disk.cache": ("none", "directsync", "writethrough", "writeback", None),
              "disk.discard": ("ignore", "unmap", None)},
    "vm-bhyve": {"disk.cache": ("none", "directsync", "writethrough", "writeback", None),
                 "disk.discard": ("ignore", "unmap", None)},
    "xl": {"disk.discard": ("unmap", "ignore", None)},
}  # fmt: skip
FIELDS: dict[str, Callable[[DomainDisk], object]] = {
    "disk.cache": lambda disk: disk.cache,
    "disk.discard": lambda disk: disk.discard,
    "device.rotation_rate": lambda disk: disk.rotation_rate,
    "disk.throttle_iops": lambda disk: next((str(value) for _, value in disk.limits), None),
}
DEFAULTS = {("nova", "disk.cache"): "none", ("xl", "disk.discard"): None, ("nova", "disk.discard"): None}


def stood(name: str, knob: str, value: str | None) -> object:
    """What a reader says after a turn: a default may have no word of its own."""
    if value is None:
        return DEFAULTS.get((name, knob), "writeback" if knob == "disk.cache" else None)
    if knob == "device.rotation_rate":
        return 1 if value == "1" else None
    return None if value == "unmap" and "bhyve" in name else value


@pytest.mark.parametrize("name", WHOLE)
def test_every_value_of_every_disk_is_written_over_every_other_and_nothing_else_moves(name: str) -> None:
    text, domain = WHOLE[name]
    language = language_of(text)
    for disk, (knob, values) in itertools.product(domain.disks, VALUES[name].items()):
        for first, second in itertools.product(values, repeat=2):
            altered = text
            for value in (first, second):
                altered = language.alter(altered, SettingChange(knob=knob, at=disk.target, value=value))
                now = language.read(altered)
                there = now.disk(disk.target)
                assert there is not None
                assert FIELDS[knob](there) == stood(name, knob, value)
                for one, was in zip(now.disks, domain.disks, strict=True):
                    shared = name == "nova" and knob == "disk.discard"
                    assert one.source == was.source
                    for other, field in FIELDS.items():
                        if (one.target != disk.target and not shared) or other != knob:
                            assert field(one) == field(was)
            again = language.alter(altered, SettingChange(knob=knob, at=disk.target, value=second))
            assert again == altered


@pytest.mark.parametrize("name", WHOLE)
def test_a_value_that_a_language_lacks_is_refused(name: str) -> None:
    text, domain = WHOLE[name]
    for knob in VALUES[name]:
        with pytest.raises(PlanError):
            language_of(text).alter(text, SettingChange(knob=knob, at=domain.disks[0].target, value="sideways"))


@pytest.mark.parametrize(("read", "text"), [
    (NOVA.read, b"[DEFAULT]\nvirt_type = kvm\n"), (VMX.read, b'memsize = "512"\n'),
    (BHYVE.read, b"name=a\n"), (VM_BHYVE.read, b'cpu=1\n'), (XL.read, b"vcpus = 1\n"),
], ids=WHOLE)  # fmt: skip
def test_a_text_that_has_nothing_of_a_language_is_refused(read: Callable[[bytes], object], text: bytes) -> None:
    with pytest.raises(ReadError):
        read(text)
