# SPDX-License-Identifier: Apache-2.0
"""The cases of the rules of the audit."""

from dataclasses import replace
from typing import Any, NamedTuple

from virtune.dialects.languages import language_of
from virtune.dialects.libvirt.domain import read_domain
from virtune.model.finding import HostView, ImageView, ProcessDisk, Running, Subject, Version

QCOW2_BIG = ImageView(
    size_bytes=1024**4, allocated_bytes=1024**4, cluster_bytes=65536, extended_l2=False, backing=False
)
SPARSE = ImageView(size_bytes=10 * 1024**3, allocated_bytes=1024**3, filesystem="ext4", free_share=0.5)
FULL = replace(SPARSE, allocated_bytes=10 * 1024**3)


def xml(
    driver: str = "", *, bus: str = "virtio", rest: str = "", machine: str = "pc-q35-7.2", vcpus: int = 2,
    kind: str = "block", inner: str = "", form: str = "raw", more: str = "",
) -> bytes:  # fmt: skip
    source = {
        "block": "<source dev='/d'/>",
        "file": "<source file='/d'/>",
        "network": "<source protocol='rbd' name='p/v'/>",
    }[kind]
    return f"""<domain type='kvm'>
  <name>g</name>
  <vcpu>{vcpus}</vcpu>
  {rest}
  <os><type machine='{machine}'>hvm</type></os>
  <devices>
    <disk type='{kind}' device='disk'>
      <driver name='qemu' type='{form}' {driver}/>
      {source}
      <target dev='vda' bus='{bus}'/>
      {inner}
    </disk>
    {more}
  </devices>
</domain>
""".encode()


class Case(NamedTuple):
    """A text and what rules see of it."""

    text: bytes
    subject: Subject


def on(text: bytes, image: ImageView | None = None, running: Running | None = None, **host: Any) -> Case:
    view = HostView(images={} if image is None else {"/d": image}, **host)
    return Case(text, Subject(domain=read_domain(text), host=view, running=running))


def runs(
    now: bytes, then: bytes, *, state: str = "running", reason: str = "booted", direct: bool | None = None,
    rings: int = 1, contexts: int = 1, qemu: Version = (7, 2, 22),
) -> Case:  # fmt: skip
    shown = (ProcessDisk(target="vda", direct=direct),)
    running = Running(
        state=state, reason=reason, live=read_domain(now), pid=1, rings=rings, contexts=contexts, disks=shown
    )
    return on(then, running=running, qemu=qemu)


ONE = "<iothreads>1</iothreads>"
GOOD = xml("cache='none' io='io_uring' discard='unmap' iothread='1'", rest=ONE)
THREAD_0 = "<iothreads>1</iothreads><iothreadids><iothread id='1'><poll max='{}'/></iothread></iothreadids>"
HIDDEN = "<features><kvm><hidden state='on'/></kvm></features>"
GPU = "<hostdev mode='subsystem' type='pci'/>"
WEIGHT = "<blkiotune><weight>500</weight></blkiotune>"
PIN = "<cputune><vcpupin vcpu='0' cpuset='{}'/></cputune>"
BESIDE = f"{ONE}<cputune><vcpupin vcpu='0' cpuset='0'/><iothreadpin iothread='1' cpuset='{{}}'/></cputune>"
MAPPED = b"><iothreads><iothread id='1'/><iothread id='2'/></iothreads></driver>"
CHAIN = "<backingStore><backingStore><backingStore><backingStore/></backingStore></backingStore></backingStore>"
SECOND = "<disk type='file'>{}<target dev='vdb' bus='virtio'/></disk>"
IOTUNE = "<iotune><total_iops_sec>500</total_iops_sec></iotune>"

XL = "disk = ['{}']"
VMX = 'config.version = "8"\nscsi0:0.present = "TRUE"\nscsi0:0.fileName = "a.vmdk"\nscsi0:0.mode = "{}"\n{}'
BHYVE = "pci.0.2.0.device={}\npci.0.2.0.path=/x\n{}\n"
SCSI = "<controller type='scsi' index='0' model='{}'/>"
FLAVOURLESS = '{{"disk_format": "raw", "properties": {{"os_require_quiesce": "yes"{}}}}}'
VM_BHYVE = 'disk0_type="nvme"\ndisk0_name="a.img"\ndisk0_opts="{}"\n'
PVE = "scsi0: local:1,iothread=1\nscsihw: {}\n"


def other(text: str) -> Case:
    return Case(text.encode(), Subject(domain=language_of(text.encode()).read(text.encode())))


CASES: dict[str, tuple[Case, Case]] = {
    "R01": (on(xml("cache='unsafe'")), on(xml("cache='unsafe'", inner="<transient/>"))),
    "R04": (
        on(xml("discard='unmap'", form="qcow2"), qemu=(11, 0, 0)),
        on(xml("discard='unmap'", form="qcow2"), qemu=(11, 0, 1)),
    ),
    "R08": (
        on(xml(kind="file"), replace(SPARSE, free_share=0.01)),
        on(xml(kind="file"), replace(FULL, free_share=0.01)),
    ),
    "R10": (on(xml("io='native' cache='writeback'")), on(xml("io='native' cache='directsync'"))),
    "R11": (
        on(xml("io='native' cache='none'", kind="file"), SPARSE),
        on(xml("io='native' cache='none'", kind="file"), FULL),
    ),
    "R12": (
        on(xml("io='io_uring'"), io_uring_disabled=2),
        on(xml("io='io_uring'"), io_uring_disabled=0, qemu=(7, 2)),
    ),
    "R13": (
        runs(xml("io='io_uring'"), xml("io='io_uring'"), rings=0),
        runs(xml("io='io_uring'"), xml("io='io_uring'")),
    ),
    "R14": (
        on(xml("io='io_uring'", bus="sata"), qemu=(10, 2, 1)),
        on(xml("io='io_uring'", bus="virtio"), qemu=(10, 2, 1)),
    ),
    "R16": (on(xml("io='native'", kind="network")), on(xml(kind="network"))),
    "R17": (
        on(xml("io='native' cache='none'"), aio_used=65000, aio_limit=65536),
        on(xml("io='native' cache='none'"), aio_used=1000, aio_limit=65536),
    ),
    "R18": (on(xml()), on(xml("cache='none'"))),
    "R19": (on(xml("cache='directsync'"), qemu=(9, 2, 0)), on(xml("cache='directsync'"), qemu=(10, 0, 0))),
    "R20": (
        on(xml("cache='none'", kind="file"), replace(FULL, filesystem="btrfs", copy_on_write=True)),
        on(xml("cache='none'", kind="file"), replace(FULL, filesystem="btrfs", copy_on_write=False)),
    ),
    "R22": (on(xml(form="qcow2"), QCOW2_BIG), on(xml(form="qcow2"), replace(QCOW2_BIG, size_bytes=256 * 1024**3))),
    "R23": (
        on(xml(inner=CHAIN, form="qcow2")),
        on(xml(inner="<backingStore><backingStore/></backingStore>", form="qcow2")),
    ),
    "R24": (on(xml(form="qcow2"), replace(QCOW2_BIG, backing=True)), on(xml(form="qcow2"), QCOW2_BIG)),
    "R25": (on(xml(), ImageView(rotational=False)), on(xml(), ImageView(rotational=True))),
    "R26": (on(xml("detect_zeroes='on'")), other("virtio0: local:1,cache=none\n")),
    "R27": (on(xml(bus="sata")), on(xml(bus="scsi"))),
    "R85": (other(FLAVOURLESS.format("")), other(FLAVOURLESS.format(', "hw_qemu_guest_agent": "yes"'))),
    "R86": (on(xml(bus="scsi", more=SCSI.format("lsilogic"))), on(xml(bus="scsi", more=SCSI.format("virtio-scsi")))),
    "R28": (on(xml(bus="nvme")), on(xml())),
    "R29": (on(xml(rest=ONE)), on(GOOD)),
    "R30": (on(xml()), on(GOOD)),
    "R33": (on(xml(form="qcow2").replace(b" />", MAPPED, 1)), on(xml().replace(b" />", MAPPED, 1))),
    "R34": (on(xml(machine="pc-i440fx-5.1")), on(xml(machine="pc-i440fx-5.2"))),
    "R36": (on(xml("queue_size='500'")), on(xml("queue_size='512'"))),
    "R37": (on(xml(rest=THREAD_0.format(0)), libvirt=(9, 0, 0)), on(xml(rest=THREAD_0.format(0)), libvirt=(9, 4, 0))),
    "R38": (on(xml(machine="pc-q35-rhel8.3.0")), on(xml(machine="pc-q35-rhel8.4.0"))),
    "R39": (on(xml("iothread='1'", rest=THREAD_0.format(0))), on(xml("iothread='1'", rest=THREAD_0.format(5000)))),
    "R41": (on(xml(vcpus=8), cpus=4), on(xml(vcpus=4), cpus=4)),
    "R43": (on(xml(rest=HIDDEN)), on(xml(rest=HIDDEN, more=GPU))),
    "R44": (on(xml(), governors=("powersave",)), on(xml(), governors=("performance",))),
    "R45": (
        on(xml(), memory_bytes=256 * 10**9, dirty_percent=20, dirty_bytes=0),
        on(xml(), memory_bytes=256 * 10**9, dirty_percent=20, dirty_bytes=10**9),
    ),
    "R46": (on(xml(rest=WEIGHT), ImageView(scheduler="none")), on(xml(rest=WEIGHT), ImageView(scheduler="bfq"))),
    "R47": (on(xml(inner=IOTUNE)), on(xml(inner="<iotune><total_iops_sec>0</total_iops_sec></iotune>"))),
    "R31": (other(PVE.format("virtio-scsi-pci")), other(PVE.format("virtio-scsi-single"))),
    "R70": (
        other(XL.format("format=raw,vdev=xvda,backendtype=qdisk,target=/srv/a.raw")),
        other(XL.format("format=raw,vdev=xvda,backendtype=qdisk,direct-io-safe,target=/srv/a.raw")),
    ),
    "R71": (
        other(XL.format("format=raw,vdev=xvda,backendtype=qdisk,target=/dev/vg/a")),
        other(XL.format("format=raw,vdev=xvda,backendtype=phy,target=/dev/vg/a")),
    ),
    "R72": (
        other("type = 'hvm'\n" + XL.format("/dev/vg/a,raw,hda,rw")),
        other("type = 'pv'\n" + XL.format("/dev/vg/a,raw,hda,rw")),
    ),
    "R73": (
        other(BHYVE.format("virtio-blk", "pci.0.2.0.direct=true")),
        other(BHYVE.format("virtio-blk", "pci.0.2.0.direct=true\npci.0.2.0.nocache=true")),
    ),
    "R74": (other(VM_BHYVE.format("direct")), other(VM_BHYVE.format("direct,ioslots=64"))),
    "R76": (other(VMX.format("independent-nonpersistent", "")), other(VMX.format("independent-persistent", ""))),
    "R77": (other(VMX.format("persistent", 'mainMem.useNamedFile = "FALSE"')), other(VMX.format("persistent", ""))),
    "R80": (runs(xml("cache='none'"), xml()), runs(xml("cache='writeback'"), xml())),
    "R81": (
        runs(xml("cache='none'"), xml("cache='none'"), direct=False),
        runs(xml("cache='none'"), GOOD, direct=True),
    ),
    "R82": (on(xml("detect_zeroes='unmap'")), on(xml("detect_zeroes='unmap' discard='unmap'"))),
    "R83": (on(xml("iothread='2'", rest=ONE)), on(GOOD)),
    "R84": (
        on(xml(rest=PIN.format("1,3-7,^4,^6")), cpus=4, online=(0, 2, 4, 6)),
        on(xml(rest=PIN.format("6")), cpus=4, online=(0, 2, 4, 6)),
    ),
    "R87": (
        on(xml(rest=BESIDE.format(0)), cpus=2, online=(0, 1)),
        on(xml(rest=BESIDE.format(1)), cpus=2, online=(0, 1)),
    ),
    "R89": (on(xml("error_policy='ignore'")), on(xml("error_policy='stop'"))),
    "R91": (
        on(xml("cache='writethrough'", inner="<shareable/>")),
        on(xml("cache='directsync'", inner="<shareable/>")),
    ),
    "R92": (
        on(xml(more=SECOND.format("<source file='/d'/>"), kind="file")),
        on(xml(more=SECOND.format("<source file='/e'/>"), kind="file")),
    ),
    "R93": (
        other("scsi0: ceph:vm-100-disk-1,aio=native,cache=writeback\n"),
        other("scsi0: ceph:vm-100-disk-1,aio=native,cache=none\n"),
    ),
    "R90": (on(xml("rerror_policy='ignore'")), on(xml("rerror_policy='report'"))),
    "R88": (
        on(xml(rest=BESIDE.format(3)), cpus=4, nodes={0: "0-1", 1: "2-3"}),
        on(xml(rest=BESIDE.format(1)), cpus=4, nodes={0: "0-1", 1: "2-3"}),
    ),
}
"""By rule: a subject that it finds something in, and one much like it that it does not."""


def scsi(arch: str, machine: str, more: str = "") -> bytes:
    text = xml(bus="scsi", machine=machine, more=more).replace(b"machine=", f"arch='{arch}' machine=".encode())
    return text.replace(b"vda", b"sda")
