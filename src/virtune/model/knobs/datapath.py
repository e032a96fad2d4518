# SPDX-License-Identifier: Apache-2.0
"""Knobs that move the data path out of QEMU, and back ends without storage (K75..K83)."""

from functools import partial

from virtune.model.knob import AskDevice, AskSchema, Change, Choice, Knob, Layer, Number, Risk, Text
from virtune.model.knobs.domains import ON_OFF
from virtune.model.knobs.sources import (
    CEPH,
    LIBVIRT_NEWS,
    LIBVIRT_XML,
    QEMU_11_0,
    QEMU_QMP,
    code,
    documented,
    posted,
    qemu_commit,
    tried,
    unverified,
)

_knob = partial(Knob, layer=Layer.BACKEND)

KNOBS: tuple[Knob, ...] = (
    _knob(
        id="storage.vhost_user_blk",
        number="K75",
        domain=Text(shape="socket of the back end"),
        default="(none: QEMU does the I/O)",
        needs=("guest RAM that is shared (memfd, access mode shared)", "libvirt 7.1"),
        ask=AskDevice(device="vhost-user-blk-pci", property="chardev"),
        change=Change.POWEROFF,
        risk=Risk.AVAILABILITY,
        risk_note=(
            "No block jobs, no snapshots, no throttle and no statistics of QEMU. SPDK polls on CPUs of its "
            "own, at 100 %."
        ),
        what="A process outside QEMU (SPDK, qemu-storage-daemon, others) serves the guest's virtqueues.",
        why="Several queues, and one polling target that VMs share.",
        spelled={
            "libvirt": "<disk type='vhostuser'><source type='unix' path=/></disk> + <memoryBacking>",
            "qemu": "-chardev socket + -device vhost-user-blk-pci",
            "proxmox": "args: only",
        },
        source=(tried("libvirt's mapping"), documented(LIBVIRT_XML)),
    ),
    _knob(
        id="disk.export",
        number="K76",
        domain=Choice(values=("nbd", "fuse", "vhost-user-blk")),
        default="nbd",
        needs=("fuse: QEMU 6.0 built with it, /dev/fuse", "vhost-user-blk: QEMU 5.2, and virtune-load to load it"),
        ask=AskSchema(command="block-export-add", member="type"),
        change=Change.REPLUG,
        what=(
            "How qemu-storage-daemon offers the disk: over an NBD socket, as a file by FUSE, or as the virtqueues of "
            "a guest's disk by vhost-user-blk."
        ),
        why=(
            "The export is what virtune loads when it measures without a guest. vhost-user-blk is what a "
            "guest's virtio disk sees, without the guest's own cost: 4 KiB random reads at depth 32 ran at 50 "
            "to 78 thousand IOPS in a trial where NBD and FUSE gave 24 to 42. The daemon also exports VDUSE "
            "(7.1). The export itself is part of what is measured: compare within one kind only. The FUSE export of "
            "QEMU 7.2 and of 10.0 does not keep data: of several writes in flight some land in the place of others, "
            "as `--check-data` shows."
        ),
        spelled={"qemu": "qemu-storage-daemon --export nbd | fuse | vhost-user-blk | vduse-blk"},
        source=(
            tried("nbd, fuse and vhost-user-blk of one daemon, in alternation"),
            tried("2 and 16 writes in flight on the FUSE exports of QEMU 7.2.22 and 10.0.2, read back"),
            code("QEMU, qapi/block-export.json"),
            documented(QEMU_QMP),
        ),
        place=("export",),
    ),
    _knob(
        id="export.num_queues",
        number="K76",
        domain=Number(low=1, high=65535),
        default="1",
        needs=("disk.export=vhost-user-blk",),
        ask=AskSchema(command="block-export-add", member="num-queues", variant="vhost-user-blk"),
        change=Change.REPLUG,
        what="How many virtqueues a vhost-user-blk export offers.",
        why=(
            "A guest uses one queue for each vCPU; a load with numjobs=N uses up to N. With numjobs=4, arms "
            "with 1, 2 and 4 queues have the same number of I/Os in flight. One thread serves all queues, so "
            "more queues alone use no more host CPU."
        ),
        spelled={"qemu": "--export vhost-user-blk,...,num-queues=4"},
        source=(
            tried("the server answers GET_QUEUE_NUM with it; 1, 2 and 3 queues"),
            code("QEMU, qapi/block-export.json"),
        ),
        place=("num_queues",),
    ),
    _knob(
        id="export.iothread",
        number="K76",
        domain=ON_OFF,
        default="(on for vhost-user-blk in virtune; off for nbd and fuse: the daemon's main loop)",
        needs=(
            "QEMU 5.2",
            "nbd: a QEMU newer than 7.2",
            "several IOThreads: later than 10.0, probably 11.0 (unverified)",
        ),
        ask=AskSchema(command="block-export-add", member="iothread"),
        change=Change.REPLUG,
        risk=Risk.AVAILABILITY,
        risk_note="With an NBD export QEMU 7.2 aborts when a client disconnects, so virtune refuses both together.",
        what="Whether an IOThread serves the export of qemu-storage-daemon, or the daemon's main loop.",
        why=(
            "An IOThread polls, the main loop does not. The author of the patch measured, for FUSE with 4 "
            "threads and random aio: reads +27 %, writes +186 %, sync -1 to -11 %."
        ),
        spelled={"qemu": "--object iothread,id=ID --export ...,iothread=ID (newer: a list of ids)"},
        source=(
            tried("vhost-user-blk and fuse in an IOThread; the abort of nbd in one"),
            tried("the schemas of 7.2.22 and 10.0.2: an export takes one IOThread, and maps no queues"),
            posted("the series for multi-threaded FUSE exports"),
            documented(QEMU_11_0),
            unverified("in which release several threads are"),
        ),
        place=("iothread",),
    ),
    _knob(
        id="storage.vdpa",
        number="K77",
        domain=Text(shape="vhost-vdpa device"),
        default="(none)",
        needs=("kernel 5.15 for VDUSE", "libvirt 9.8 with QEMU 8.1", "locked, shared guest RAM"),
        ask=AskSchema(command="blockdev-add", member="path", variant="virtio-blk-vhost-vdpa"),
        change=Change.POWEROFF,
        risk=Risk.AVAILABILITY,
        risk_note="Limits on migration.",
        what="A virtio-blk device in hardware, or in a process behind VDUSE.",
        why="The guest's virtqueues are served without QEMU.",
        spelled={"libvirt": "<disk type='vhostvdpa'>", "qemu": "-blockdev driver=virtio-blk-vhost-vdpa"},
        source=(documented(LIBVIRT_NEWS),),
    ),
    _knob(
        id="storage.libblkio",
        number="K78",
        domain=Choice(
            values=(
                "io_uring",
                "nvme-io_uring",
                "virtio-blk-vhost-user",
                "virtio-blk-vhost-vdpa",
                "virtio-blk-vfio-pci",
            )
        ),
        default="(none)",
        needs=("QEMU 7.2 with libblkio compiled in",),
        ask=AskSchema(command="blockdev-add", member="path", variant="nvme-io_uring"),
        change=Change.REPLUG,
        what="QEMU's block drivers on libblkio.",
        why=(
            "nvme-io_uring (kernel 5.19, /dev/ngXnY) and vfio-pci go round the host's block layer. Debian 12 "
            "does not compile it in; Fedora has qemu-block-blkio."
        ),
        spelled={"qemu": "-blockdev driver=io_uring | nvme-io_uring | virtio-blk-..."},
        source=(tried("absent in Debian 12's build"), documented(QEMU_QMP)),
    ),
    _knob(
        id="storage.nvme_userspace",
        number="K79",
        domain=Text(shape="PCI address and namespace"),
        default="(none: the host's driver)",
        needs=("QEMU 2.12, libvirt 6.0", "VFIO"),
        ask=AskSchema(command="blockdev-add", member="namespace", variant="nvme"),
        change=Change.POWEROFF,
        risk=Risk.AVAILABILITY,
        risk_note="Takes the disk away from the host, and gives it to one VM alone.",
        what="QEMU drives the NVMe disk itself, past the host's kernel.",
        why=(
            "Against aio=native: 4k random reads at depth 1 10.5k -> 21.6k IOPS, random writes 30.7k -> "
            "37.0k. Snapshots and throttle stay."
        ),
        spelled={"libvirt": "<disk type='nvme'>", "qemu": "nvme://0000:01:00.0/1", "proxmox": "args: only"},
        source=(qemu_commit("bdd6a90a9e5f"), documented(LIBVIRT_XML)),
    ),
    _knob(
        id="storage.vfio_pci",
        number="K80",
        domain=Text(shape="PCI address, as 0000:01:00.0, or target for the drive of --target"),
        default="(none)",
        needs=("an IOMMU", "a whole function or an SR-IOV VF", "all of the guest's RAM pinned"),
        ask=AskDevice(device="vfio-pci", property="host"),
        change=Change.POWEROFF,
        risk=Risk.AVAILABILITY,
        risk_note="No overcommitted RAM, no balloon, no live migration, no snapshots.",
        what="The guest drives a real NVMe disk.",
        why="Nearest to bare metal. What remains are interrupts and idle exits. No statistics of QEMU.",
        spelled={
            "libvirt": "<hostdev mode='subsystem' type='pci' managed='yes'>",
            "qemu": "-device vfio-pci",
            "proxmox": "hostpciN",
            "kubevirt": "hostDevices",
            "openstack": "flavor pci_passthrough:alias",
        },
        source=(documented(LIBVIRT_XML), code("QEMU, block statistics")),
        place=("device", "vfio_pci"),
    ),
    _knob(
        id="storage.vhost_blk",
        number="K81",
        domain=Text(shape="for information: not in mainline Linux"),
        default="(none)",
        change=Change.POWEROFF,
        what="An out-of-tree kernel module that serves virtqueues. Information only.",
        why=(
            "By the author of the 2022 patch, random reads at depth 128: host 95.8k IOPS, QEMU 57.5k, "
            "vhost-blk 95.6k."
        ),
        spelled={},
        source=(posted("vhost-blk, 2022"),),
    ),
    _knob(
        id="storage.ublk",
        number="K82",
        domain=Text(shape="/dev/ublkbN"),
        default="(none)",
        needs=("kernel 6.0",),
        change=Change.OFFLINE,
        what="A block device of the host that is served in user space. No option of QEMU.",
        why="For QEMU it is a block device like any other.",
        spelled={"linux": "ublk"},
        source=(unverified("no source of its own in our knowledge base"),),
    ),
    _knob(
        id="disk.backend",
        number="K83",
        domain=Choice(values=("file", "null-co", "rbd")),
        default="file",
        ask=AskSchema(command="blockdev-add", member="driver"),
        change=Change.REPLUG,
        risk=Risk.DATA,
        risk_note="null-co keeps nothing of what is written.",
        what=(
            "What the disk rests on: a file, null-co, which answers without any storage, or rbd, Ceph's librbd "
            "inside QEMU (disk.rbd names the pool)."
        ),
        why=(
            "null-co shows the ceiling of the way through QEMU: latency of the disk minus latency of null-co "
            "is the share of storage. Reads of known zeroes never reach it, so virtune leaves read-zeroes "
            "off."
        ),
        spelled={
            "libvirt": "qemu:commandline only",
            "qemu": "-blockdev driver=null-co,size=1073741824 (plain bytes: 1G makes QEMU exit)",
        },
        source=(tried("size must be plain bytes"), tried("rbd on a cluster of one monitor and one OSD")),
        place=("disk", "backend"),
    ),
    _knob(
        id="disk.rbd",
        number="K83",
        domain=Text(shape="POOL[/NAMESPACE][:id=USER][:conf=FILE]"),
        default="none",
        needs=("disk.backend=rbd", "QEMU's rbd driver (Debian: qemu-block-extra)", "the program rbd (ceph-common)"),
        ask=AskSchema(command="blockdev-add", member="pool", variant="rbd"),
        change=Change.REPLUG,
        what=(
            "The pool of a Ceph cluster in which virtune makes an image for the run, from its scratch image; it is "
            "removed after the run, and nothing else in the pool is read or written."
        ),
        why=(
            "Most disks under Proxmox and OpenStack are RBD images that QEMU opens by librbd, without a device of "
            "the host: aio= means nothing there, and cache= switches librbd's own cache. A run that is killed "
            "leaves its image, named virtune-run-...: `rbd rm` removes it."
        ),
        spelled={
            "qemu": "-blockdev driver=rbd,pool=,image=,conf=,user=",
            "libvirt": "<disk type='network'><source protocol='rbd' name='POOL/IMAGE'/>",
        },
        source=(tried("a cluster of one monitor and one OSD"), documented(CEPH)),
        place=("disk", "rbd"),
    ),
    _knob(
        id="disk.null_latency_ns",
        number="K83",
        domain=Number(low=0, high=60 * 10**9, unit="ns"),
        default="0",
        needs=("disk.backend=null-co",),
        ask=AskSchema(command="blockdev-add", member="latency-ns", variant="null-co"),
        change=Change.REPLUG,
        in_guest=Change.SWAP,
        what="How long null-co waits before it answers.",
        why="A device of known latency: what is measured above it is the way through QEMU.",
        spelled={"qemu": "-blockdev driver=null-co,latency-ns="},
        source=(tried("2 ms asked, 2.21 to 2.29 ms measured at depth 1"),),
        place=("disk", "null_latency_ns"),
    ),
)
"""In the order of the knowledge base."""
