# SPDX-License-Identifier: Apache-2.0
"""A libvirt domain with a disk on each of three buses, changes that libvirt refuses, and those that it takes."""

HEAD = "<domain type='qemu'><name>w</name><memory unit='MiB'>256</memory><vcpu>2</vcpu>"
DISKS = """
    <disk type='file' device='disk'>
      <driver name='qemu' type='raw'/>
      <source file='/nowhere/a.img'/>
      <target dev='vda' bus='virtio'/>
    </disk>
    <disk type='file' device='disk'>
      <driver name='qemu' type='raw'/>
      <source file='/nowhere/b.img'/>
      <target dev='sda' bus='sata' rotation_rate='1'/>
      <iotune><read_bytes_sec>9000000</read_bytes_sec></iotune>
      <address type='drive' controller='0' bus='0' target='0' unit='0'/>
    </disk>
    <disk type='file' device='disk'>
      <driver name='qemu' type='qcow2'/>
      <source file='/nowhere/c.qcow2'/>
      <target dev='sdb' bus='scsi'/>
    </disk>
    <controller type='scsi' index='0' model='virtio-scsi'/>
"""
OS = "<os><type arch='x86_64' machine='q35'>hvm</type></os>"
EMULATOR = "<emulator>/usr/bin/qemu-system-x86_64</emulator>"
DOMAIN = f"{HEAD}{OS}<devices>{EMULATOR}{DISKS}</devices></domain>".encode()

NOT_STARTED = {
    "device.num_queues@vda=1025": "vda has 1,025 queues, and QEMU takes at most 1,024",
    "scsi.num_queues@scsi:0=1023": "scsi:0 has 1,023 queues",
    "device.rotation_rate@sda=65536": "sda turns 65,536 times a minute, and QEMU takes at most 65,535",
}
"""libvirt takes it, and the VM does not start."""

REFUSED = {
    "disk.aio@vda=native": "needs cache none or directsync, and the cache of vda is not set",
    "device.num_queues@sda=4": "queues= is for virtio disks, and the bus of sda is sata",
    "device.packed@sda=on": "packed= is for virtio disks",
    "device.event_idx@sda=off": "event_idx= is for virtio disks",
    "device.ioeventfd@sdb=on": "ioeventfd= is for virtio disks, and the bus of sdb is scsi",
    "device.page_per_vq@sda=on": "page_per_vq= is for virtio disks",
    "device.iothread@sda=1 iothread.count=1": "iothread= is for virtio disks",
    "device.iothread@vda=1": "vda names IOThread 1, and it has none",
    "device.iothread@scsi:0=2 iothread.count=1": "scsi:0 names IOThread 2, and it has 1",
    "device.iothread@vda=0": "numbered from 1",
    "iothread.pin@iothread:1=0": "there is no IOThread 1",
    "iothread.poll_max_ns@iothread:1=0": "there is no IOThread 1",
    "disk.throttle_bps@sda=5000": "a limit for all (bytes_sec) and read_bytes_sec",
    "device.rotation_rate@vda=1": "rotation_rate= is for SCSI, SATA and IDE disks",
    "disk.cache_size@sda=33554432": "for qcow2 images, and sda is raw",
    "disk.discard_no_unref@vda=on": "for qcow2 images, and vda is raw",
    "vcpu.pin@vcpu:9=0": "there is no vCPU 9 to pin: it has 2",
    "iothread.count=99999": "99,999 IOThreads are more than a host can have",
    "device.bus@sda=ide": "its machine type has no IDE controller",
    "disk.throttle_iops_max@vda=500": "needs the limit total_iops_sec",
    "disk.throttle_group@vda=slow": "needs a limit",
    "device.iothread_vq_mapping@vda=1+2": "vda names IOThread 1, and it has none",
    "device.iothread_vq_mapping@vda=1+1 iothread.count=1": "to one IOThread twice",
    "device.iothread_vq_mapping@vda=1:0+2:1 iothread.count=2": "no number of queues",
    "device.iothread_vq_mapping@vda=1+2 iothread.count=2 device.iothread@vda=1": "it is one or the other",
    "iothread.quota=5": "libvirt takes 1,000 to",
    "iothread.count@vda=1": "is of the whole domain",
    "vcpu.pin=1": "is a setting of a vCPU",
    "vcpu.pin@iothread:1=1": "is a setting of a vCPU",
    "disk.cache=none": "disk.cache needs a disk: write disk.cache@DISK=none",
    "disk.cache@vdq=none": "no disk 'vdq'",
    "scsi.num_queues@vda=2": "is of a controller",
}
"""Changes that libvirt or QEMU refuses, and the words that say why."""

TAKEN = (
    "disk.aio@vda=native disk.cache@vda=none",
    "device.iothread@vda=1 iothread.count=1",
    "device.iothread@scsi:0=1 iothread.count=1 iothread.pin@iothread:1=0",
    "device.num_queues@vda=2 device.packed@vda=on device.event_idx@vda=off device.page_per_vq@vda=on",
    "device.iommu_platform@vda=off device.ats@vda=off",
    "disk.throttle_bps@sda=5000 disk.throttle_bps_read@sda=",
    "disk.throttle_iops@vda=100 disk.throttle_iops_max@vda=500 disk.throttle_iops_max_length@vda=5",
    "disk.throttle_iops@vda=100 disk.throttle_iops_size@vda=4096 disk.throttle_group@vda=slow",
    "disk.cache_size@sdb=33554432",
    "device.rotation_rate@sdb=1",
    "device.rotation_rate@sda=0",
    "device.werror@vda=enospc device.rerror@sda=stop",
    "device.werror@vda=auto",
    "device.physical_block_size@vda=4096",
    "device.scsi_controller@scsi:0=lsi53c895a",
    "vcpu.pin@vcpu:1=0 emulator.pin=0 iothread.quota=5000 iothread.period=10000",
    "iothread.count=2 iothread.scheduler@iothread:2=batch emulator.scheduler=idle",
    "cpu.kvm_hint_dedicated=on cpu.kvm_poll_control=on",
    "device.bus@sda=virtio-blk",
    "device.bus@sda=virtio-scsi disk.cache@sda=none",
    "device.bus@vda=ahci",
    "device.bus@sdb=usb",
    "iothread.count=1 device.iothread@vda=1 device.num_queues@vda=2 device.bus@vda=ahci",
)
"""Changes that libvirt takes."""

_A = "<disk type='file'><driver name='qemu' type='{3}' {0}>{4}</driver><source file='/nowhere/{1}'/>{2}"
_SPLIT = "<iotune><total_{0}_sec>9</total_{0}_sec><{1}_{0}_sec>9</{1}_{0}_sec></iotune>"
_SCSI = "<controller type='scsi' index='0' model='{0}'><driver {1}/></controller>"
_TABLES = "<metadata_cache><max_size unit='bytes'>33554432</max_size></metadata_cache>"
_TWO_KINDS = "<iotune><total_iops_sec>9</total_iops_sec><read_bytes_sec>9</read_bytes_sec></iotune>"


def _disk(driver: str = "", inner: str = "", *, at: str = "vda", bus: str = "virtio", form: str = "raw",
          image: str = "a", inside: str = "", more: str = "") -> str:  # fmt: skip
    return f"{_A.format(driver, image, inner, form, inside)}<target dev='{at}' bus='{bus}' {more}/></disk>"


def _with(devices: str, rest: str = "<iothreads>1</iothreads>") -> bytes:
    return f"{HEAD}{rest}{OS}<devices>{EMULATOR}{devices}</devices></domain>".encode()


AS_IT_STANDS: dict[str, tuple[bytes, str]] = {
    "iops in all and each": (_with(_disk(inner=_SPLIT.format("iops", "read"))), "a limit for all (iops_sec)"),
    "bytes in all and each": (_with(_disk(inner=_SPLIT.format("bytes", "write"))), "a limit for all (bytes_sec)"),
    "rotation of virtio": (_with(_disk(more="rotation_rate='1'")), "rotation_rate= is for"),
    "tables of raw": (_with(_disk(inside=_TABLES)), "for qcow2 images, and vda is raw"),
    "queues of SATA": (_with(_disk("queues='2'", at="sda", bus="sata")), "queues= is for virtio disks"),
    "queues of SCSI": (_with(_disk("queues='2'", at="sda", bus="scsi")), "queues= is for virtio disks"),
    "IOThread of SATA": (_with(_disk("iothread='1'", at="sda", bus="sata")), "iothread= is for virtio disks"),
    "IOThread that is not there": (_with(_disk("iothread='2'")), "vda names IOThread 2"),
    "copied on read and read-only": (_with(_disk("copy_on_read='on'", "<readonly/>")), "vda is read-only"),
    "shared qcow2": (_with(_disk(inner="<shareable/>", form="qcow2")), "vda is shared, which needs raw"),
    "one name": (_with(_disk() + _disk(image="b")), "two disks are called vda"),
    "one name on two buses": (
        _with(_disk(at="sda", bus="sata") + _disk(at="sda", bus="scsi", image="b")),
        "two disks are called sda",
    ),
    "IOThread of an LSI": (_with(_SCSI.format("lsilogic", "iothread='1'")), "iothread= is for virtio-scsi"),
    "IOThread of no model": (_with(_SCSI.format("auto", "iothread='1'")), "and scsi:0 is emulated"),
    "queues of an LSI": (_with(_SCSI.format("lsilogic", "queues='2'")), "queues= is for virtio-scsi"),
    "WWN of virtio": (_with(_disk(inner="<wwn>5000c50015ea71ad</wwn>")), "<wwn> of vda"),
    "read-only SATA": (_with(_disk(inner="<readonly/>", at="sda", bus="sata")), "which the bus sata cannot be"),
}
"""Domains that libvirt refuses, and the words that say why."""

STANDS: dict[str, bytes] = {
    "shared qcow2, read-only": _with(_disk(inner="<shareable/><readonly/>", form="qcow2")),
    "shared raw": _with(_disk("cache='writeback'", "<shareable/>")),
    "no queues": _with(_disk("queues='0' queue_size='0'")),
    "size of a queue on SATA": _with(_disk("queue_size='64'", at="sda", bus="sata")),
    "IOThread of virtio-scsi": _with(_SCSI.format("virtio-transitional", "iothread='1' queues='0'")),
    "limits of two kinds": _with(_disk(inner=_TWO_KINDS)),
    "pin of no vCPU": _with(_disk(), "<cputune><vcpupin vcpu='5' cpuset='0'/></cputune>"),
    "one image twice": _with(_disk() + _disk(at="vdb")),
}
"""Domains much like these that libvirt takes."""
