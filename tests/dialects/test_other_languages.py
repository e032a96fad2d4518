# SPDX-License-Identifier: Apache-2.0
"""Proxmox, xl, .vmx and bhyve: read, altered in the one line that is named, refused where they have no words."""

import contextlib
import time
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from virtune.dialects.bhyve import BHYVE
from virtune.dialects.language import Language
from virtune.dialects.languages import language_of
from virtune.dialects.vmx import VMX
from virtune.dialects.xl import XL
from virtune.model.domain import Domain, DomainDisk, SettingChange
from virtune.model.errors import PlanError, ReadError
from virtune.model.knobs import BY_ID

VMS = Path(__file__).parents[1] / "captures" / "vms"


def text_of(name: str) -> bytes:
    return (VMS / name).read_bytes()


def domain_of(name: str) -> Domain:
    return language_of(text_of(name)).read(text_of(name))


@pytest.mark.parametrize(
    ("name", "language"),
    [("101.conf", "proxmox"), ("freebsd.conf", "bhyve"), ("pv1.cfg", "xl"), ("win10.vmx", "vmx")],
)
def test_a_language_is_known_by_what_is_in_a_file(name: str, language: str) -> None:
    assert language_of(text_of(name)).name == language
    assert domain_of(name).language == language


def test_what_is_no_vm_is_refused() -> None:
    for noise in (text_of("other.conf"), b"", b"hello", b"a = 1\n"):
        with pytest.raises(ReadError):
            language_of(noise)


def test_proxmox_is_read_with_its_own_defaults_and_without_snapshots() -> None:
    web, db = domain_of("101.conf"), domain_of("102.conf")
    assert (web.name, web.vcpus, [disk.target for disk in web.disks if disk.holds_data]) == (
        "web",
        2,
        ["scsi0", "scsi1"],
    )
    first, second = (disk for disk in web.disks if disk.holds_data)
    assert (first.cache, first.io, first.discard, first.detect_zeroes) == ("none", None, "unmap", "unmap")
    assert (second.cache, second.io, second.line) == ("unsafe", "threads", 14)
    assert (web.threads_of(first), db.vcpus) == ((), 8)
    assert [db.threads_of(disk) for disk in db.disks] == [(1,), (2,), ()]
    assert (db.disks[1].source.kind, db.disks[1].limits, db.disks[2].format) == (
        "block",
        (("read_iops_sec", 5000),),
        "qcow2",
    )


def test_xen_is_read_in_both_its_forms() -> None:
    pv, hvm = domain_of("pv1.cfg"), domain_of("hvm.cfg")
    assert [(one.target, one.driver, one.source.name) for one in pv.disks] == [
        ("xvda", "qdisk", "/srv/domu.raw"),
        ("xvdb", None, "/dev/vg0/data"),
        ("xvdc", "qdisk", "/dev/vg0/ro"),
    ]
    assert [one.read_only for one in pv.disks] == [False, False, True]
    assert [one.line for one in pv.disks] == [7, 8, 9]
    assert (hvm.vcpus, [(one.bus, one.device) for one in hvm.disks]) == (4, [("ide", "disk"), ("ide", "cdrom")])


def test_vmware_and_bhyve_are_read() -> None:
    win, bsd = domain_of("win10.vmx"), domain_of("freebsd.conf")
    assert (win.name, win.vcpus) == ("Windows 10", 4)
    assert [(one.target, one.bus, one.device) for one in win.disks] == [
        ("nvme0:0", "nvme", "disk"),
        ("scsi0:1", "scsi", "disk"),
        ("sata0:1", "sata", "cdrom"),
    ]
    assert win.disks[1].driver == "pvscsi"
    assert [(one.target, one.cache, one.bus) for one in bsd.disks] == [
        ("pci.0.2.0", "writethrough", "virtio"),
        ("pci.0.3.0", "none", "nvme"),
    ]


ALTERED = {
    "101.conf": (
        SettingChange(knob="disk.cache", at="scsi1", value="none"),
        b"scsi1: local-zfs:vm-101-disk-1,cache=none,aio=threads,size=100G",
    ),
    "102.conf": (
        SettingChange(knob="disk.aio", at="scsi0", value=None),
        b"scsi0: local-zfs:vm-102-disk-0,cache=none,detect_zeroes=0,discard=on,iothread=1,size=64G,ssd=1",
    ),
    "pv1.cfg": (
        SettingChange(knob="disk.discard", at="xvdb", value="unmap"),
        b'         "/dev/vg0/data,raw,xvdb,rw,discard",',
    ),
    "win10.vmx": (SettingChange(knob="device.rotation_rate", at="scsi0:1", value="1"), b'scsi0:1.virtualSSD = "1"'),
    "freebsd.conf": (SettingChange(knob="disk.cache", at="pci.0.2.0", value="directsync"), b"pci.0.2.0.nocache=true"),
}


@pytest.mark.parametrize(
    ("name", "turn", "line"),
    [
        ("win10.vmx", SettingChange(knob="device.scsi_controller", at="scsi0:1", value="mptsas1068"),
         b'scsi0.virtualDev = "lsisas1068"'),
        ("freebsd.conf", SettingChange(knob="disk.discard", at="pci.0.2.0", value="ignore"),
         b"pci.0.2.0.nodelete=true"),
        ("freebsd.conf", SettingChange(knob="nvme.max_ioqpairs", at="pci.0.3.0", value="32"), b"pci.0.3.0.maxq=32"),
    ],
)  # fmt: skip
def test_one_line_more_or_another_and_back(name: str, turn: SettingChange, line: bytes) -> None:
    text = text_of(name)
    altered = language_of(text).alter(text, turn)
    assert [one for one in altered.splitlines() if one not in text.splitlines()] == [line]
    assert language_of(altered).alter(altered, turn) == altered
    if name == "freebsd.conf":
        assert domain_of(name).disks[0].discard is None
        there = language_of(text).read(altered).disk(turn.at)
        assert there is not None
        assert there.discard == ("ignore" if turn.knob == "disk.discard" else None)
        taken = language_of(text).alter(altered, SettingChange(knob=turn.knob, at=turn.at, value=None))
        assert taken == text if turn.knob == "nvme.max_ioqpairs" else b"nodelete=false" in taken


def test_what_only_some_disks_have_is_refused_for_others() -> None:
    for name, turn in (
        ("freebsd.conf", SettingChange(knob="nvme.max_ioqpairs", at="pci.0.2.0", value="4")),
        ("freebsd.conf", SettingChange(knob="nvme.max_ioqpairs", at="pci.0.3.0", value="no")),
        ("win10.vmx", SettingChange(knob="device.scsi_controller", at="nvme0:0", value="pvscsi")),
        ("win10.vmx", SettingChange(knob="device.scsi_controller", at="scsi0:1", value="virtio-scsi-pci")),
    ):
        with pytest.raises(PlanError):
            language_of(text_of(name)).alter(text_of(name), turn)


@pytest.mark.parametrize("name", ALTERED)
def test_only_the_named_line_changes(name: str) -> None:
    text = text_of(name)
    turn, line = ALTERED[name]
    altered = language_of(text).alter(text, turn)
    before, after = text.splitlines(), altered.splitlines()
    assert [one for one in after if one not in before] == [line]
    assert len([one for one in before if one not in after]) <= 1
    assert altered.count(b"\r\n") - text.count(b"\r\n") == (len(after) - len(before) if b"\r\n" in text else 0)
    assert language_of(altered).alter(altered, turn) == altered


@pytest.mark.parametrize("language", [XL, VMX, BHYVE], ids=lambda language: language.name)
def test_what_a_language_cannot_say_is_refused_with_the_reason(language: Language) -> None:
    assert len(language.refusals) >= 5
    for knob, because in language.refusals.items():
        assert knob in BY_ID
        with pytest.raises(PlanError, match=r"cannot be written into an? .*: ") as caught:
            language.alter(b"", SettingChange(knob=knob, at="scsi0", value="1"))
        assert because in caught.value.message


@pytest.mark.parametrize("name", ALTERED)
def test_a_disk_that_is_not_there_is_said(name: str) -> None:
    turn, _ = ALTERED[name]
    with pytest.raises(PlanError, match="no disk 'nope'"):
        language_of(text_of(name)).alter(text_of(name), SettingChange(knob=turn.knob, at="nope", value=turn.value))


@given(st.sampled_from(sorted(ALTERED)), st.binary(max_size=60), st.integers(0, 900))
def test_any_bytes_are_read_or_refused(name: str, noise: bytes, at: int) -> None:
    text = text_of(name)
    hostile = text[:at] + noise + text[at + len(noise) // 2 :]
    with contextlib.suppress(ReadError):
        found = language_of(hostile).read(hostile)
        assert found.vcpus >= 0


@pytest.mark.parametrize(
    ("before", "after"),
    [
        ("format=raw, vdev=xvda, target=/srv/a,b.raw", "format=raw, vdev=xvda, no-discard,target=/srv/a,b.raw"),
        ("/dev/vg/a,raw,xvda,rw, discard ", "/dev/vg/a,raw,xvda,rw, no-discard "),
        ("vdev=xvda,discard,target=/a,discard", "vdev=xvda,no-discard,target=/a,discard"),
        ("/dev/vg/a,,xvda", "/dev/vg/a,,xvda,no-discard"),
    ],
)
def test_what_follows_a_target_belongs_to_it(before: str, after: str) -> None:
    """xl takes all behind `target=` for the name of the image, so a flag there would open another one."""
    text = f"name = 'a'\ndisk = [ '{before}' ]\n".encode()
    altered = XL.alter(text, SettingChange(knob="disk.discard", at="xvda", value="ignore"))
    assert altered == text.replace(before.encode(), after.encode())
    (was,), (now,) = XL.read(text).disks, XL.read(altered).disks
    assert (was.source, now.discard) == (now.source, "ignore")


@pytest.mark.parametrize(
    ("before", "after"),
    [
        ("/dev/vg/a,raw,xvda,rw, discard", "/dev/vg/a,raw,xvda,rw"),
        ("vdev=xvda,no-discard,target=/a,discard", "vdev=xvda,target=/a,discard"),
        ("/dev/vg/a,,xvda", "/dev/vg/a,,xvda"),
    ],
)
def test_xen_s_own_default_for_discards_is_no_flag(before: str, after: str) -> None:
    text = f"name = 'a'\ndisk = [ '{before}' ]\n".encode()
    altered = XL.alter(text, SettingChange(knob="disk.discard", at="xvda", value=None))
    assert altered == text.replace(before.encode(), after.encode())


@pytest.mark.parametrize("empty", ["", ",", ",,", ", ,"])
@pytest.mark.parametrize("value", ["unmap", "ignore"])
def test_a_disk_of_xen_with_empty_places_at_its_end_can_be_changed(empty: str, value: str) -> None:
    text = f"name = 'a'\ndisk = [ '/dev/vg/a,,hdb{empty}' ]\n".encode()
    altered = XL.alter(text, SettingChange(knob="disk.discard", at="hdb", value=value))
    (was,), (now,) = XL.read(text).disks, XL.read(altered).disks
    assert (now.discard, now.source, now.format, now.read_only) == (value, was.source, was.format, was.read_only)


@pytest.mark.parametrize("word", ["lsilogic", "LSILOGIC", "LsiLogic", "PVSCSI"])
def test_the_case_of_vmware_s_words_does_not_matter(word: str) -> None:
    text = f'config.version = "8"\nscsi0.virtualDev = "{word}"\nscsi0:0.fileName = "a.vmdk"\n'.encode()
    assert language_of(text).read(text).disks[0].driver == word.lower()


@pytest.mark.parametrize(("name", "disks"), [
    ("101.conf", "ide2, scsi0, scsi1"), ("pv1.cfg", "xvda, xvdb, xvdc"), ("freebsd.conf", "pci.0.2.0, pci.0.3.0"),
    ("win10.vmx", "nvme0:0, sata0:1, scsi0:1"),
])  # fmt: skip
def test_of_a_disk_that_is_not_there_it_is_said_which_are(name: str, disks: str) -> None:
    language = language_of(text_of(name))
    knob = "disk.discard" if name == "pv1.cfg" else "disk.cache"
    for at, says in (("nosuch", "there is no disk 'nosuch' here"), ("", f"{knob} needs a disk: write {knob}@DISK=")):
        with pytest.raises(PlanError, match=says) as refused:
            language.alter(text_of(name), SettingChange(knob=knob, at=at, value=None))
        assert refused.value.hint == f"its disks: {disks}"


def test_vm_bhyve_s_drive_for_cds_holds_no_data_of_the_guest() -> None:
    text = b'disk0_type="ahci-hd"\ndisk0_name="a.img"\ndisk1_type="ahci-cd"\ndisk1_name="/x.iso"\n'
    disks = language_of(text).read(text).disks
    assert [(one.bus, one.holds_data) for one in disks] == [("sata", True), ("sata", False)]


def xl_disk(words: str) -> DomainDisk:
    (disk,) = XL.read(f'name = "a"\ndisk = [ "{words}" ]\n'.encode()).disks
    return disk


@pytest.mark.parametrize(
    ("words", "vdev", "name", "form", "kind", "device"),
    [
        ("phy:/dev/vg/a,xvda,w", "xvda", "/dev/vg/a", "raw", "block", "disk"),
        ("file:/root/b.iso,hdc:cdrom,r", "hdc", "/root/b.iso", "raw", "file", "cdrom"),
        ("tap:aio:/srv/a.img,xvda,w", "xvda", "/srv/a.img", "raw", "file", "disk"),
        ("tap2:tapdisk:vhd:/srv/a.vhd,xvda", "xvda", "/srv/a.vhd", "vhd", "file", "disk"),
        ("qcow2:/srv/a,hda,rw", "hda", "/srv/a", "qcow2", "file", "disk"),
        ("iscsi:iqn.2001-05.com.x:0-8a,xvda,w", "xvda", "iqn.2001-05.com.x:0-8a", "raw", "network", "disk"),
        ("drbd:app01,hda,w", "hda", "app01", "raw", "network", "disk"),
        ("/a.iso,,hdc,cdrom", "hdc", "/a.iso", "raw", "file", "cdrom"),
        ("/a.iso,,hdc,,cdrom", "hdc", "/a.iso", "raw", "file", "cdrom"),
        ("/a.img,qcow2,sda,,", "sda", "/a.img", "qcow2", "file", "disk"),
        (",hdc:cdrom,r", "hdc", "", "empty", "none", "cdrom"),
        (",,hdc:cdrom,r", "hdc", "", "raw", "none", "cdrom"),
        ("devtype=cdrom,,,hdc", "hdc", "", "raw", "none", "cdrom"),
        ("cdrom,no-discard,vdev=hda,target=/a,b.iso", "hda", "/a,b.iso", "raw", "file", "cdrom"),
        ("format=qcow2, /srv/a,xvda", "xvda", "/srv/a", "qcow2", "file", "disk"),
        ("trusted,grant_usage=1,vdev=xvda,target=/dev/a", "xvda", "/dev/a", "raw", "block", "disk"),
    ],
)
def test_xl_s_disks_are_read_by_xl_s_own_rules(
    words: str, vdev: str, name: str, form: str, kind: str, device: str
) -> None:
    disk = xl_disk(words)
    assert (disk.target, disk.source.name, disk.format, disk.source.kind, disk.device) == (
        vdev,
        name,
        form,
        kind,
        device,
    )
    assert disk.bus == {"xv": "xen", "hd": "ide", "sd": "scsi"}[vdev[:2]]
    assert disk.read_only == words.endswith(",r")


@pytest.mark.parametrize(
    ("words", "because"),
    [
        ("/srv/a,xvda,w", "line 2: 'xvda' is no format"),
        ("/srv/a,raw,xvda,x", "line 2: 'x' is no access"),
        ("/srv/a,raw,xvda:floppy,w", "line 2: 'floppy' is no devtype"),
        ("/srv/a,raw,xvda,w,more", "line 2: 'more' is more than xl takes"),
        ("/srv/a", "line 2: a disk without the name of a device"),
    ],
)
def test_what_xl_refuses_of_a_disk_is_refused_with_its_line(words: str, because: str) -> None:
    with pytest.raises(ReadError, match=because):
        xl_disk(words)


def test_the_old_form_is_altered_like_the_new_one() -> None:
    text = b"name = 'a'\ndisk = [ 'phy:/dev/vg/a,xvda,w', 'file:/srv/b.img,xvdb,w' ]\n"
    turn = SettingChange(knob="disk.discard", at="xvdb", value="unmap")
    assert XL.alter(text, turn) == text.replace(b"xvdb,w", b"xvdb,w,discard")


def test_a_list_of_disks_without_an_end_is_said() -> None:
    """The disks were passed over, and nothing was found in a VM that has them."""
    with pytest.raises(ReadError, match="line 2: the list of disks has no end"):
        XL.read(b"name = 'a'\ndisk = [ 'phy:/dev/vg/a,xvda,w', 'file:b ]\n")
    python = b'name = \'a\'\ndisk = [ "phy:/dev/a,hda,w", """phy:/dev/b\'",hdb,w""" ]\n'
    assert [one.source.name for one in XL.read(python).disks] == ["/dev/a", "/dev/b'\""]


def test_a_vm_without_disks_is_a_vm() -> None:
    text = b"name = 'a'\nmemory = 512\nkernel = '/boot/vmlinuz'\nvif = [ '' ]\n"
    assert language_of(text).name == "xl"
    assert language_of(text).read(text).disks == ()


def test_xen_s_disks_in_comments_are_none() -> None:
    """A disk of before, kept in a comment, was read and altered in place of the one that is there."""
    text = b"""name = 'a'
disk = [ # the guest's disks
  # '/dev/old,raw,xvda,rw', ] of before
  '/dev/new#1,raw,xvda,rw' # not "yet"
]
"""
    (disk,) = XL.read(text).disks
    assert (disk.source.name, disk.line) == ("/dev/new#1", 4)
    altered = XL.alter(text, SettingChange(knob="disk.discard", at="xvda", value="unmap"))
    assert altered == text.replace(b"new#1,raw,xvda,rw", b"new#1,raw,xvda,rw,discard")
    assert XL.read(b"name = 'a'\n# disk = [ '/dev/old,raw,xvda,rw' ]\n").disks == ()


@pytest.mark.parametrize(
    "text",
    [
        b"\n" * 19_000,
        b"disk=[\n" * 19_000,
        b"disk=[\n" + b"'a'\n" * 19_000,
        b" \t" * 400_000 + b"x",
        b"scsi0: local:1\n" + b"".join(b"k%d: 1\n" % one for one in range(19_000))
        + b"[PENDING]\ndelete: " + b",".join(b"n%d" % one for one in range(90_000)) + b"\n",
    ],
    ids=["nothing", "heads", "strings", "blanks", "deleted"],
)  # fmt: skip
def test_no_text_takes_its_reader_long(text: bytes) -> None:
    """Each was read in the square of its length before: these took minutes, and a folder's audit stood still."""
    begun = time.process_time()
    with contextlib.suppress(ReadError):
        language_of(text).read(text)
    assert time.process_time() - begun < 3


def test_only_a_line_feed_ends_a_line_and_the_last_may_have_none() -> None:
    """A carriage return inside a note made another setting be written over."""
    head = b'config.version = "8"\r\nannotation = "x\ry"\r\nscsi0:0.virtualSSD = "0"\r\n'
    text = head + b'memsize = "512"\r\nscsi0:0.fileName = "a.vmdk"'
    altered = VMX.alter(text, SettingChange(knob="device.rotation_rate", at="scsi0:0", value="1"))
    assert altered == text.replace(b'SSD = "0"', b'SSD = "1"')
    altered = VMX.alter(text, SettingChange(knob="disk.cache", at="scsi0:0", value="writethrough"))
    assert altered == text + b'\r\nscsi0:0.writeThrough = "TRUE"'
    text = b"# x\ry\nname=a\npci.0.2.0.device=virtio-blk\npci.0.2.0.direct=false\npci.0.2.0.path=/x"
    altered = BHYVE.alter(text, SettingChange(knob="disk.cache", at="pci.0.2.0", value="directsync"))
    assert altered == text.replace(b"=false", b"=true") + b"\npci.0.2.0.nocache=true"


def test_vmware_writes_through_where_it_is_told_to() -> None:
    text = text_of("win10.vmx")
    altered = VMX.alter(text, SettingChange(knob="disk.cache", at="scsi0:1", value="writethrough"))
    assert [one for one in altered.splitlines() if one not in text.splitlines()] == [b'scsi0:1.writeThrough = "TRUE"']
    assert [one.cache for one in VMX.read(altered).disks][:2] == ["writeback", "writethrough"]
    with pytest.raises(PlanError, match="it has writeback, writethrough"):
        VMX.alter(text, SettingChange(knob="disk.cache", at="scsi0:1", value="none"))


def test_a_limit_of_vmware_that_is_no_number_of_ios_is_named() -> None:
    text = b'config.version = "8"\nscsi0:0.fileName = "a.vmdk"\nsched.scsi0:0.ThroughputCap = "%s"\n'
    for word, limit in ((b"2kiops", 2000), (b"off", 0), (b"", 0), (b"unlimited", 0), (b"0", 0)):
        domain = VMX.read(text % word)
        assert (dict(domain.disks[0].limits).get("total_iops_sec", 0), domain.elsewhere) == (limit, ())
    domain = VMX.read(text % b"10MBps")
    assert (domain.disks[0].limits, domain.elsewhere) == ((), ("sched.scsi0:0.ThroughputCap = '10MBps'",))


def test_a_vmx_is_known_whatever_the_case_of_its_keys_and_its_empty_drives_are_empty() -> None:
    text = b"""CONFIG.VERSION = "8"
ide0:0.DEVICETYPE = "atapi-cdrom"
ide0:0.FILENAME = "emptyBackingString"
ide1:0.deviceType = "cdrom-raw"
ide1:0.fileName = "/dev/scd0"
scsi0:0.deviceType = "scsi-passthru"
scsi0:0.fileName = "/vmfs/devices/genscsi/naa.5"
scsi0:1.fileName = "a.vmdk"
"""
    language = language_of(text)
    assert language.name == "vmx"
    assert [(one.device, one.source.kind) for one in language.read(text).disks] == [
        ("cdrom", "none"),
        ("cdrom", "block"),
        ("lun", "block"),
        ("disk", "file"),
    ]


def test_bhyve_s_ahci_has_its_disks_at_ports() -> None:
    text = b"""name=a
pci.0.3.0.device=ahci
pci.0.3.0.port.0.type=hd
pci.0.3.0.port.0.path=/srv/a.img
pci.0.3.0.port.0.direct=true
pci.0.3.0.port.1.type=cd
pci.0.3.0.port.1.path=/srv/b.iso
pci.0.4.0.device=virtio-blk
pci.0.4.0.path=/dev/zvol/a
pci.0.5.0.device=virtio-net
pci.0.5.0.path=/x
"""
    disks = BHYVE.read(text).disks
    assert [(one.target, one.device, one.bus, one.cache, one.line) for one in disks] == [
        ("pci.0.3.0.port.0", "disk", "sata", "writethrough", 4),
        ("pci.0.3.0.port.1", "cdrom", "sata", "writeback", 7),
        ("pci.0.4.0", "disk", "virtio", "writeback", 9),
    ]
    turn = SettingChange(knob="disk.cache", at="pci.0.3.0.port.0", value="directsync")
    altered = BHYVE.alter(text, turn)
    assert altered == text.replace(b"a.img\n", b"a.img\npci.0.3.0.port.0.nocache=true\n")


def test_vm_bhyve_has_its_options_in_a_list() -> None:
    text = (VMS.parent / "vm-bhyve" / "debian.conf").read_bytes()
    language = language_of(text)
    domain = language.read(text)
    assert [(one.target, one.bus, one.cache) for one in domain.disks] == [
        ("disk0", "virtio", "writeback"),
        ("disk1", "nvme", "writethrough"),
    ]
    once = language.alter(text, SettingChange(knob="disk.cache", at="disk1", value="none"))
    assert once == text.replace(b"direct,sectorsize=512/4096", b"sectorsize=512/4096,nocache")
    made = language.alter(text, SettingChange(knob="disk.cache", at="disk0", value="none"))
    assert made == text.replace(b'"disk0.img"\n', b'"disk0.img"\ndisk0_opts="nocache"\n')
