# SPDX-License-Identifier: Apache-2.0
"""Every rule of the audit fires where it should, and is silent where it should be."""

import json
import pkgutil
from dataclasses import replace
from typing import Any

import pytest
from tests.advise.cases import (
    BESIDE,
    BHYVE,
    CASES,
    GOOD,
    IOTUNE,
    ONE,
    PIN,
    QCOW2_BIG,
    SCSI,
    SECOND,
    SPARSE,
    XL,
    Case,
    on,
    other,
    runs,
    scsi,
    xml,
)

from virtune.advise.audit import audit, rules
from virtune.advise.rule import rule
from virtune.dialects.languages import language_of
from virtune.dialects.libvirt.domain import read_domain
from virtune.dialects.proxmox import live, read
from virtune.model.finding import ImageView, Running, Subject
from virtune.model.knob import Change, Risk
from virtune.model.knobs import BY_ID

NODE = (
    "kvm -blockdev file,node-name=a,filename=/a,aio=native,cache.direct={},cache.no-flush=on"
    " -device virtio-blk,drive=a"
)
VMX = (
    'config.version = "8"\nscsi0:0.fileName = "a.vmdk"\nscsi0:0.present = "TRUE"\n'
    'sched.scsi0:0.throughputCap = "{}"\n'
)
HVM = "type = 'hvm'\n"
SINGLE = "scsihw: virtio-scsi-single\n"
TWO = "<iothreads>2</iothreads>"
VDB = "<disk type='file'>{}<source file='/b'/><target dev='vdb' bus='virtio'/></disk>"
VSCSI = "<controller type='scsi' index='0' model='virtio-scsi'>{}</controller>"
GROUPS = "<throttlegroups><throttlegroup><group_name>slow</group_name>{}</throttlegroup></throttlegroups>"
FILTER = "<throttlefilters><throttlefilter group='{}'/></throttlefilters>"


def lun(bus: str) -> bytes:
    return xml(bus=bus).replace(b"device='disk'", b"device='lun'")


KUBEVIRT = """apiVersion: kubevirt.io/v1
kind: VirtualMachineInstance
metadata: {{name: a}}
spec:
  domain:
    devices:
      disks:
      - name: root
        disk: {{bus: virtio}}
        {}
  volumes:
  - name: root
    persistentVolumeClaim: {{claimName: root}}
"""

MORE: tuple[tuple[str, Case, Case], ...] = (
    ("R70", other(XL.format("/srv/a.raw,raw,xvda,rw")), other(XL.format("/dev/vg/a,raw,xvda,rw"))),
    ("R70", other(XL.format("/dev/vg/a,qcow2,xvda,rw")), other(XL.format("phy:/dev/vg/a,xvda,w"))),
    ("R70", other(XL.format("tap:aio:/srv/a.raw,xvda,w")), other(XL.format("drbd:app01,xvda,w"))),
    ("R70", other(XL.format("file:/srv/a.raw,xvda,w")), other(XL.format("rbd:pool/image,raw,xvda,w"))),
    (
        "R70",
        other(XL.format("vdev=xvda,target=/srv/a.raw")),
        other(XL.format("vdev=xvda,script=block-x,target=/srv/a.raw")),
    ),
    ("R72", other(HVM + XL.format("phy:/dev/vg/a,hda,w")), other(HVM + XL.format("phy:/dev/vg/a,xvda,w"))),
    ("R72", other(HVM + XL.format("phy:/dev/vg/a,sda,w")), other(HVM + XL.format("file:/srv/a.iso,sda:cdrom,r"))),
    ("R72", other(HVM + XL.format("/a.img,,hda")), other(HVM + XL.format("/a.iso,,hdc,cdrom"))),
    # libvirt opens what VMs share with cache=none, and a LUN's requests do not pass the page cache
    ("R18", on(xml()), on(xml(inner="<shareable/>"))),
    ("R18", on(xml("cache='writeback'", inner="<shareable/>")), on(lun("scsi"))),
    (
        "R18",
        on(lun("virtio")),
        other("kvm -blockdev file,node-name=a,filename=/dev/fdset/1 -device virtio-blk,drive=a"),
    ),
    ("R10", on(xml("io='native'")), on(xml("io='native'", inner="<shareable/>"))),
    ("R36", on(xml("queues='1025'")), on(xml("queues='65535'"))),
    # libvirt takes 0 for what is not set, QEMU refuses it
    (
        "R36",
        other("kvm -drive file=/a,if=none,id=a -device virtio-blk,drive=a,num-queues=0"),
        on(xml("queues='0' queue_size='0'")),
    ),
    (
        "R34",
        other("kvm -smp 4 -drive file=/a,if=none,id=a -device virtio-blk,drive=a,num-queues=1"),
        other("kvm -smp 4 -drive file=/a,if=none,id=a -device virtio-blk,drive=a,num-queues=0"),
    ),
    # QEMU's two flags have one word, which does not tell that the page cache is passed by
    (
        "R10",
        other("kvm -drive file=/a,if=virtio,format=raw,cache=unsafe,aio=native"),
        other("kvm -drive file=/a,if=virtio,format=raw,cache=none,cache.no-flush=on,aio=native"),
    ),
    ("R10", other(NODE.format("off")), other(NODE.format("on"))),
    ("R10", on(xml("io='native'")), on(xml("io='default'"))),
    # over rbd QEMU ignores the engine, and Proxmox's name of a storage does not say what it is
    (
        "R10",
        other("scsi0: /dev/vg/a,aio=native,cache=writeback\n"),
        other("scsi0: ceph:vm-100-disk-1,aio=native,cache=writeback\n"),
    ),
    *(("R47", other(VMX.format(cap)), other(VMX.format("off"))) for cap in ("200", "1KIOps", "80IOps")),
    ("R47", other(VMX.format("200")), other(VMX.format("unlimited"))),
    (
        "R93",
        other("scsi0: ceph:vm-100-disk-1,aio=native,cache=writeback\n"),
        other("scsi0: /dev/vg/a,aio=native,cache=writeback\n"),
    ),
    # of several disks one without an IOThread is in the main loop, and what is idle R29 says
    ("R30", on(xml("iothread='1'", rest=ONE, more=VDB.format(""))), on(xml(rest=ONE, more=VDB.format("")))),
    (
        "R30",
        on(scsi("x86_64", "q35", VSCSI.format(""))),
        on(
            scsi("x86_64", "q35", VSCSI.format("<driver iothread='1'/>")).replace(b"<vcpu>", ONE.encode() + b"<vcpu>")
        ),
    ),
    ("R30", on(scsi("aarch64", "virt")), on(scsi("x86_64", "pc"))),
    ("R30", other("scsi0: local:1\n" + SINGLE), other("scsi0: local:1,iothread=1\n" + SINGLE)),
    ("R30", other("scsi0: local:1\nscsihw: virtio-scsi-pci\n"), other("scsi0: local:1\nscsihw: lsi\n")),
    (
        "R29",
        on(xml("iothread='1'", rest=TWO)),
        on(xml("iothread='1'", rest=TWO, more=VDB.format("<driver iothread='2'/>"))),
    ),
    ("R86", on(scsi("x86_64", "pc-q35-7.2")), on(scsi("aarch64", "virt-7.2"))),
    ("R86", on(scsi("ppc64", "pseries")), on(scsi("s390x", "s390-ccw-virtio"))),
    ("R86", on(scsi("x86_64", "pc", SCSI.format("auto"))), on(scsi("sparc", "SS-5"))),
    (
        "R47",
        on(xml(rest=GROUPS.format("<total_iops_sec>9</total_iops_sec>"), inner=FILTER.format("slow"))),
        on(xml(rest=GROUPS.format("<total_iops_sec>9</total_iops_sec>"), inner=FILTER.format("other"))),
    ),
    (
        "R08",
        on(xml(kind="file"), replace(SPARSE, free_share=0.049)),
        on(xml(kind="file"), replace(SPARSE, free_share=0.05)),
    ),
    ("R36", on(xml("queue_size='2048'")), on(xml("queue_size='1024'"))),
    ("R36", on(xml("queue_size='2'")), on(xml("queue_size='4'"))),
    ("R12", on(xml("io='io_uring'"), kernel=(5, 0)), on(xml("io='io_uring'"), kernel=(5, 1))),
    ("R12", on(xml("io='io_uring'"), qemu=(4, 2)), on(xml("io='io_uring'"), qemu=(5, 0))),
    ("R12", on(xml("io='io_uring'"), io_uring_usable=False), on(xml("io='io_uring'"), io_uring_usable=True)),
    ("R14", on(xml("io='io_uring'"), qemu=(10, 1, 3)), on(xml("io='io_uring'"), qemu=(10, 0, 3))),
    ("R14", on(xml("io='io_uring'"), qemu=(7, 1, 0)), on(xml("io='io_uring'"), qemu=(7, 2, 0))),
    (
        "R14",
        on(xml("io='io_uring'", bus="sata"), qemu=(10, 2, 0)),
        on(xml("io='io_uring'", bus="sata"), qemu=(10, 2, 2)),
    ),
    (
        "R22",
        on(xml(form="qcow2"), replace(QCOW2_BIG, size_bytes=256 * 1024**3 + 2**20, extended_l2=False)),
        on(xml(form="qcow2"), replace(QCOW2_BIG, size_bytes=128 * 1024**3, extended_l2=True)),
    ),
    (
        "R22",
        on(xml(form="qcow2"), replace(QCOW2_BIG, size_bytes=256 * 1024**3, extended_l2=True)),
        on(xml(form="qcow2"), replace(QCOW2_BIG, size_bytes=256 * 1024**3, extended_l2=False)),
    ),
    ("R25", on(xml(kind="file"), SPARSE), on(xml(kind="file", inner="<shareable/>"), SPARSE)),
    ("R76", on(xml(inner="<transient/>")), on(xml(inner="<transient/><readonly/>"))),
    ("R76", other("virtio0: a:b,snapshot=1\n"), other("virtio0: a:b,snapshot=0\n")),
    ("R76", other("kvm -drive file=/a,snapshot=on"), other("kvm -drive file=/a")),
    (
        "R76",
        other("kvm -snapshot -drive file=/a"),
        other("kvm -snapshot -drive file=/a,snapshot=off -blockdev file,node-name=b,filename=b -device nvme,drive=b"),
    ),
    ("R91", on(xml("cache='unsafe'", inner="<shareable/>")), on(xml(inner="<shareable/>"))),
    (
        "R91",
        other("kvm -drive file=/a,if=none,id=a -device virtio-blk,drive=a,share-rw=on"),
        other("kvm -drive file=/a,if=none,id=a,cache=none -device virtio-blk,drive=a,share-rw=on"),
    ),
    (
        "R91",
        other(KUBEVIRT.format("shareable: true\n        cache: writeback")),
        other(KUBEVIRT.format("shareable: true")),
    ),
    (
        "R92",
        on(xml(more=SECOND.format("<source file='/d'/><shareable/>"), kind="file")),
        on(xml(more=SECOND.format("<source file='/d'/><readonly/>"), kind="file")),
    ),
    (
        "R92",
        on(xml(more=SECOND.format("<source file='/d'/>"), kind="file", inner="<shareable/>")),
        on(xml(more=SECOND.format("<source file='/d'/><shareable/>"), kind="file", inner="<shareable/>")),
    ),
    ("R92", other("scsi0: a:b\nscsi1: a:b\n"), other("scsi0: a:b\nscsi1: a:b,snapshot=1\n")),
    (
        "R92",
        other("kvm -blockdev file,node-name=a,filename=/a -device virtio-blk,drive=a -device virtio-blk,drive=a"),
        other("kvm -drive file=/a -drive file=/b"),
    ),
    ("R89", other("virtio0: a:b,werror=ignore,rerror=ignore\n"), other("virtio0: a:b,werror=enospc\n")),
    ("R90", other("virtio0: a:b,rerror=ignore\n"), other("virtio0: a:b,werror=ignore\n")),
    ("R89", other("kvm -drive file=/a,werror=ignore"), other("kvm -drive file=/a,werror=report")),
    (
        "R89",
        other("kvm -drive file=/a,if=none,id=a -device virtio-blk,drive=a,werror=ignore"),
        other("kvm -drive file=/a,if=none,id=a,werror=ignore -device virtio-blk,drive=a,werror=stop"),
    ),
    (
        "R90",
        other("kvm -drive file=/a,if=none,id=a,rerror=ignore -device virtio-blk,drive=a,rerror=auto"),
        other("kvm -blockdev file,node-name=a,filename=/a -device virtio-blk,drive=a,werror=ignore"),
    ),
    ("R89", other(KUBEVIRT.format("errorPolicy: ignore")), other(KUBEVIRT.format("errorPolicy: report"))),
    (
        "R13",
        runs(xml("io='io_uring'"), xml("io='io_uring'"), rings=0, qemu=(10, 1)),
        runs(xml("io='io_uring'"), xml("io='io_uring'"), rings=0, qemu=(10, 2)),
    ),
    (
        "R13",
        runs(xml("io='native' cache='none'"), xml(), contexts=0, qemu=(10, 2)),
        runs(xml("io='threads'"), xml(), contexts=0),
    ),
)
"""More places where a rule's answer turns: one that it finds something in, and one much like it that it does not."""


def found(case: Case) -> list[str]:
    return [finding.rule.id for finding in audit(case.subject)]


def test_every_rule_has_a_case() -> None:
    assert CASES.keys() == {one.id for one in rules()}


def test_every_row_has_a_check() -> None:
    rows = json.loads(pkgutil.get_data("virtune.advise", "rules.json") or b"")
    assert [row["id"] for row in rows] == [one.id for one in rules()]


@pytest.mark.parametrize("identity", CASES)
def test_a_rule_fires_and_is_silent(identity: str) -> None:
    fires, silent = CASES[identity]
    assert identity in found(fires)
    assert identity not in found(silent)


@pytest.mark.parametrize(("identity", "fires", "silent"), MORE)
def test_a_rule_turns_where_it_should(identity: str, fires: Case, silent: Case) -> None:
    assert identity in found(fires)
    assert identity not in found(silent)


@pytest.mark.parametrize("identity", CASES)
def test_what_a_rule_advises_can_be_written_and_fixes_it(identity: str) -> None:
    text, subject = CASES[identity][0]
    for finding in audit(subject):
        if finding.rule.id != identity or not finding.seen.turns:
            continue
        assert all(turn.knob in BY_ID for turn in finding.seen.turns)
        language = language_of(text)
        mended = language.alter(text, *finding.seen.turns)
        assert identity not in found(Case(mended, replace(subject, domain=language.read(mended))))


def test_the_configuration_of_the_study_and_a_domain_of_another_hypervisor_are_left_in_peace() -> None:
    host: dict[str, Any] = {
        "qemu": (7, 2, 22),
        "libvirt": (9, 0, 0),
        "kernel": (6, 1),
        "cpus": 8,
        "io_uring_disabled": 0,
    }
    assert found(on(GOOD, ImageView(rotational=False, scheduler="none"), **host)) == []
    assert found(on(xml("cache='unsafe'").replace(b"'kvm'", b"'xen'"))) == []


@pytest.mark.parametrize(
    ("text", "turns"),
    [
        (xml("iothread='3'", rest="<iothreadids><iothread id='3'/></iothreadids>", more=VDB.format("")),
         [("iothread.count", "", "2"), ("device.iothread", "vdb", "1")]),
        (scsi("x86_64", "q35", VSCSI.format("")), [("iothread.count", "", "1"), ("device.iothread", "scsi:0", "1")]),
        (scsi("aarch64", "virt"), []),
        (f"scsi0: local:1\n{SINGLE}".encode(), [("iothread.count", "", "1"), ("device.iothread", "scsi0", "1")]),
        (
            b"scsi0: local:1\nscsihw: virtio-scsi-pci\n",
            [("device.scsi_controller", "", "virtio-scsi-single"), ("iothread.count", "", "1"),
             ("device.iothread", "scsi0", "1")],
        ),
    ],
)  # fmt: skip
def test_an_iothread_of_one_s_own_is_written_where_it_can_be(text: bytes, turns: list[tuple[str, str, str]]) -> None:
    domain = language_of(text).read(text)
    (seen,) = [one.seen for one in audit(Subject(domain=domain)) if one.rule.id == "R30"]
    assert [(one.knob, one.at, one.value) for one in seen.turns] == turns
    if turns:
        mended = language_of(text).read(language_of(text).alter(text, *seen.turns))
        assert "R30" not in [one.rule.id for one in audit(Subject(domain=mended))]
        assert all(mended.threads_of(disk) for disk in mended.disks)


@pytest.mark.parametrize(
    ("text", "whose"),
    [
        (xml(), "of its own"),
        (scsi("aarch64", "virt"), "for its controller"),
        (f"scsi0: local:1\n{SINGLE}".encode(), "of its own"),
        (b"scsi0: local:1\nscsihw: virtio-scsi-pci\n", "of its own, for which scsihw must be virtio-scsi-single"),
    ],
)
def test_whose_iothread_it_would_be_is_said(text: bytes, whose: str) -> None:
    (seen,) = [one.seen for one in audit(Subject(domain=language_of(text).read(text))) if one.rule.id == "R30"]
    assert seen.advice == f"at depth 8 and more, compare with an IOThread {whose}"


def test_another_controller_is_no_replug_whichever_rule_asks_for_it() -> None:
    asked = other("scsi0: local:1,iothread=1\nscsihw: virtio-scsi-pci\n")
    costs = {one.rule.id: (one.takes, one.risk) for one in audit(asked.subject) if one.rule.id in ("R30", "R31")}
    assert costs == dict.fromkeys(("R30", "R31"), (Change.POWEROFF, Risk.AVAILABILITY))
    (implied,) = [one for one in audit(on(scsi("aarch64", "virt")).subject) if one.rule.id == "R30"]
    assert (implied.seen.turns, implied.takes) == ((), Change.POWEROFF)


def test_of_several_groups_the_smaller_limit_is_told() -> None:
    groups = GROUPS.format("<total_iops_sec>9</total_iops_sec><read_bytes_sec>0</read_bytes_sec>")
    groups = groups.replace("</throttlegroups>", "<throttlegroup><group_name>b</group_name>"
                            "<total_iops_sec>5</total_iops_sec></throttlegroup></throttlegroups>")  # fmt: skip
    both = FILTER.format("slow").replace("/></", "/><throttlefilter group='b'/></")
    (disk,) = read_domain(xml(rest=groups, inner=both)).disks
    assert (disk.limits, disk.options) == ((("total_iops_sec", 5),), frozenset({"throttlefilters"}))


def test_a_paused_domain_and_a_disk_that_is_only_plugged_in_are_told() -> None:
    paused = runs(GOOD, GOOD, state="paused", reason="I/O error")
    assert "R08" in found(paused)
    extra = GOOD.replace(b"</devices>", b"<disk><source file='/x'/><target dev='vdb' bus='virtio'/></disk></devices>")
    assert "R80" in found(runs(extra, GOOD))
    assert found(runs(GOOD, GOOD)) == []


def test_what_waits_in_a_proxmox_file_is_told_as_it_is() -> None:
    text = b"""boot: order=virtio1
virtio0: a:0,iothread=1
virtio1: a:1,iothread=1
virtio2: a:2,iothread=1
virtio3: a:3,iothread=1

[PENDING]
delete: virtio0
virtio2: a:2,iothread=1,cache=writeback
virtio3: a:3
"""
    now, (then,) = live(text), read(text)
    assert now is not None
    running = Running(state="unknown", reason="", live=now)
    found = [one for one in audit(Subject(domain=then, running=running)) if one.rule.id == "R80"]
    assert [(one.line, one.at, one.seen.seen) for one in found] == [
        (8, "virtio0", "[PENDING] deletes it: it is gone after a power-off"),
        (9, "virtio2", "cache none now, writeback after a power-off"),
        (10, "virtio3", "iothread 1 now, unset after a power-off"),
    ]
    assert "add it" not in found[0].seen.advice


LIFTED = "`virsh -c qemu:///system blkdeviotune g vda --total-iops-sec {} --live` lifts it, and so does a power-off"


@pytest.mark.parametrize(
    ("live", "configured", "said"),
    [
        (IOTUNE, "", {"total_iops_sec=500 on the running VM alone": LIFTED.format(0)}),
        ("", IOTUNE, {"total_iops_sec=500 from the next start on, and none now": ""}),
        (IOTUNE, IOTUNE, {"total_iops_sec=500": ""}),
        (IOTUNE, IOTUNE.replace("500", "9"), {
            "total_iops_sec=9 from the next start on": "",
            "total_iops_sec=500 on the running VM alone": LIFTED.format(9).replace(
                "lifts it", "brings back total_iops_sec=9"
            ),
        }),
    ],
)  # fmt: skip
def test_a_limit_is_told_whether_the_running_vm_has_it_or_its_configuration(
    live: str, configured: str, said: dict[str, str]
) -> None:
    subject = replace(runs(xml(inner=live), xml(inner=configured)).subject, connect="qemu:///system")
    found = [one for one in audit(subject) if one.rule.id in ("R47", "R80")]
    assert {one.rule.id for one in found} == {"R47"}
    assert [one.seen.seen for one in found] == list(said)
    assert all(advice in one.seen.advice for one, advice in zip(found, said.values(), strict=True))


def test_rules_say_why_whence_and_what_it_takes() -> None:
    for one in rules():
        assert len(one.why) > 40, one.id
        assert one.why.endswith("."), one.id
        assert len(one.source) > 10, one.id
        assert one.name.count("-") >= 1, one.id


def test_a_count_of_cpus_does_not_say_which_are_online() -> None:
    assert "R84" not in found(on(xml(rest=PIN.format("64-65")), cpus=4))


@pytest.mark.parametrize(
    ("iothread", "memory", "nodes", "said"),
    [
        ("3", "", "0-1 2-3", ["iothread:1 is pinned to 3, and all vCPUs to NUMA node 0"]),
        ("1", "1", "0-1 2-3", ["memory on NUMA node 1, and all vCPUs on node 0"]),
        ("2-3", "1", "0-1 2-3", ["iothread:1 is pinned to 2-3", "memory on NUMA node 1"]),
        ("1-2", "0-1", "0-1 2-3", []),
        ("3", "1", "0-3", []),
        ("3", "1", "0,2 1,3", ["iothread:1 is pinned to 3", "memory on NUMA node 1"]),
    ],
)
def test_what_lies_on_another_node_than_the_vcpus_is_named(
    iothread: str, memory: str, nodes: str, said: list[str]
) -> None:
    tune = f"<numatune><memory mode='strict' nodeset='{memory}'/></numatune>" if memory else ""
    case = on(xml(rest=BESIDE.format(iothread) + tune), cpus=4, nodes=dict(enumerate(nodes.split())))
    seen = [one.seen.seen for one in audit(case.subject) if one.rule.id == "R88"]
    assert len(seen) == len(said)
    assert all(one.startswith(words) for one, words in zip(seen, said, strict=True))


def test_bhyve_s_own_slots_are_seen() -> None:
    assert "R74" in found(other(BHYVE.format("nvme", "")))
    assert "R74" not in found(other(BHYVE.format("nvme", "pci.0.2.0.ioslots=64")))


def test_two_rules_cannot_have_one_id() -> None:
    with pytest.raises(ValueError, match="R01"):
        rule("R01")(lambda subject: iter(()))
