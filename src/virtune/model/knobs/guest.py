# SPDX-License-Identifier: Apache-2.0
"""Knobs that are turned in a guest: its load, its machine, its disk and the queues of that."""

from functools import partial

from virtune.model.knob import AskDevice, Change, Choice, Knob, Layer, Number, Risk, Size, Switch, Text
from virtune.model.knobs.domains import AT_LEAST_ONE, COUNT, ON_OFF
from virtune.model.knobs.sources import (
    BHYVE,
    FIO,
    KUBEVIRT_CODE,
    LIBVIRT_XML,
    PROXMOX_CODE,
    QEMU_9_0,
    QEMU_DISKS,
    QEMU_MAN,
    TRIED,
    code,
    documented,
    linux_commit,
    posted,
    qemu_commit,
    tried,
    unverified,
    vendor,
)

_application = partial(Knob, layer=Layer.APPLICATION, change=Change.GUEST)
"""In the order of the knowledge base."""

_guest_system = partial(Knob, layer=Layer.GUEST_KERNEL)
"""In the order of the knowledge base."""

_device = partial(Knob, layer=Layer.DEVICE)
_SECTOR = Size(low=512, high=2 * 1024**2, power_of_two=True)
"""In the order of the knowledge base."""

_machine = partial(Knob, layer=Layer.DEVICE, number="K44")
"""In the order of the knowledge base."""

_queues = partial(Knob, layer=Layer.DEVICE)
"""In the order of the knowledge base."""


KNOBS: tuple[Knob, ...] = (
    _application(
        id="workload.iodepth",
        number="K02",
        domain=AT_LEAST_ONE,
        default="1",
        change=Change.LIVE,
        what="How many I/Os one fio job keeps in flight.",
        why=(
            "Most other knobs help at one depth and do nothing or hurt at another: polling and pinning matter "
            "at depth 1, several queues and IOThread mapping only at depth 32 and more. Compare at several "
            "depths."
        ),
        spelled={"fio": "iodepth="},
        source=(documented(FIO),),
        place=("load_depth",),
    ),
    _guest_system(
        id="disk.filesystem",
        number="K15",
        domain=Choice(values=("none", "ext4", "xfs")),
        default="none",
        change=Change.REPLUG,
        what=(
            "The filesystem that a test guest mounts from its disk, to load a file in it; with none it loads the "
            "disk itself. It is made on scratch images only: ext4 by mke2fs, xfs by mkfs.xfs, which has the file in "
            "memory twice meanwhile, and before xfsprogs 6.13 takes none of 2 GiB or more."
        ),
        why=(
            "Applications use files. A filesystem divides and merges requests, keeps a journal and has locks of its "
            "own; a raw disk shows what is below it."
        ),
        spelled={"linux": "mke2fs -t ext4 or mkfs.xfs on the image, mount in the guest"},
        source=(tried("a file on ext4, on xfs and the disk itself, by turns"),),
        place=("disk", "filesystem"),
    ),
    _device(
        id="device.bus",
        number="K21",
        domain=Choice(values=("virtio-blk", "virtio-scsi", "nvme", "ahci", "ide", "usb")),
        default="(chosen by whoever makes the VM)",
        needs=("the driver in the guest's initramfs before its boot disk moves",),
        change=Change.POWEROFF,
        in_guest=Change.REPLUG,
        risk=Risk.AVAILABILITY,
        risk_note="Device names change (sda -> vda): a guest whose fstab has no UUIDs may not boot.",
        what="Which kind of disk the guest sees.",
        why=(
            "virtio-blk is fastest. virtio-scsi is for more than about 28 disks, SCSI commands, reservations "
            "and multipath. IDE and AHCI have no IOThread and take 1 or 32 commands. Emulated NVMe has no "
            "IOThread either and stays below virtio-blk (its author measured 35k to 313k IOPS, depending on "
            "depth and ioeventfd)."
        ),
        spelled={
            "libvirt": "<target bus='virtio|scsi|sata|ide|usb'/>, <controller type='scsi' model='virtio-scsi'/>",
            "qemu": "-device virtio-blk-pci | virtio-scsi-pci + scsi-hd | nvme | ide-hd",
            "proxmox": "--virtioN | --scsiN | --sataN | --ideN",
            "kubevirt": "disk.bus: virtio | scsi | sata",
            "openstack": "image hw_disk_bus",
            "xen": "specification=virtio (default xen); xvda (PV) against emulated hda",
            "vmware": 'scsi0.virtualDev = "pvscsi", nvme0.present, sata0.present',
            "bhyve": "-s N,virtio-blk | ahci-hd | nvme | virtio-scsi",
        },
        source=(
            documented(QEMU_DISKS),
            tried("neither ide-hd nor nvme has a property iothread"),
            posted("emulated NVMe with ioeventfd"),
            unverified("VMware's keys"),
        ),
        place=("device", "bus"),
    ),
    _device(
        id="device.logical_block_size",
        number="K28",
        domain=_SECTOR,
        default="512",
        ask=AskDevice(device="virtio-blk-pci", property="logical_block_size"),
        change=Change.POWEROFF,
        in_guest=Change.REPLUG,
        risk=Risk.DATA,
        risk_note="An existing disk becomes unreadable: its partition table counts in these blocks.",
        what="The smallest block the guest can address.",
        why="4096 removes read-modify-write on 4Kn back ends. Must not exceed physical_block_size.",
        spelled={
            "libvirt": "<blockio logical_block_size='512'/>",
            "qemu": "-device ...,logical_block_size=",
            "kubevirt": "blockSize.custom.logical, or matchVolume",
            "proxmox": "args: only",
            "bhyve": "sectorsize=logical[/physical]",
        },
        source=(tried("logical above physical is refused"), documented(LIBVIRT_XML)),
        place=("device", "logical_block_size"),
    ),
    _device(
        id="device.physical_block_size",
        number="K28",
        domain=_SECTOR,
        default="512",
        ask=AskDevice(device="virtio-blk-pci", property="physical_block_size"),
        change=Change.POWEROFF,
        in_guest=Change.REPLUG,
        what="The block that the medium writes at once, as the guest is told.",
        why="4096 makes the guest's mkfs and partitioner align, at no cost in compatibility.",
        spelled={
            "libvirt": "<blockio physical_block_size='4096'/>",
            "qemu": "-device ...,physical_block_size=",
            "kubevirt": "blockSize.custom.physical, or matchVolume",
            "proxmox": "args: only",
            "bhyve": "sectorsize=logical[/physical]",
        },
        source=(TRIED, documented(LIBVIRT_XML)),
        place=("device", "physical_block_size"),
    ),
    _machine(
        id="machine.emulator",
        domain=Text(shape="path of a qemu-system program"),
        default="(qemu-system-x86_64 of the PATH)",
        change=Change.POWEROFF,
        needs=("that program's own firmware: a script that gives it -L may stand for it",),
        risk=Risk.AVAILABILITY,
        risk_note="A machine of a newer version does not migrate back to an older QEMU.",
        what="The QEMU that runs the guest.",
        why=(
            "What a disk can have, and how fast it is, changes from release to release: device.iothread_vq_mapping "
            "came with 9.0. Compare two that are installed side by side before you upgrade."
        ),
        spelled={"libvirt": "<devices><emulator>", "proxmox": "none: the host's package"},
        source=(documented(QEMU_9_0), documented(LIBVIRT_XML)),
        place=("machine", "emulator"),
    ),
    _machine(
        id="machine.type",
        domain=Text(shape="pc or q35, with a version, or microvm"),
        default="(the newest one when the VM was made)",
        change=Change.POWEROFF,
        risk=Risk.AVAILABILITY,
        risk_note="Windows may detect its hardware anew.",
        what="The virtual board and the version whose defaults it keeps.",
        why=(
            "The version freezes defaults (queue-size, num-queues, seg-max): a new QEMU with "
            "machine='pc-q35-4.0' still runs with the old ones. Check this first. microvm has no PCI: virtio-mmio, "
            "which virtune drives with guest.system=bare."
        ),
        spelled={"libvirt": "<os><type machine='q35'/></os>", "qemu": "-machine", "proxmox": "machine:"},
        source=(code("QEMU, compat properties of machine types"), documented(QEMU_MAN)),
        place=("machine", "type"),
    ),
    _machine(
        id="machine.cpu",
        domain=Text(shape="QEMU's name of a CPU model"),
        default="(host on KVM, max without; libvirt's and Proxmox's differ)",
        change=Change.POWEROFF,
        risk=Risk.AVAILABILITY,
        risk_note="A guest that has the host's own CPU model migrates only to hosts with the same one.",
        what="The CPU that the guest sees.",
        why=(
            "A model without the host's features makes the guest apply mitigations that this CPU does not need, "
            "and hides instructions that make checksums and encryption fast."
        ),
        spelled={
            "libvirt": "<cpu mode='host-passthrough'/>",
            "qemu": "-cpu",
            "proxmox": "cpu:",
            "openstack": "[libvirt]cpu_mode",
        },
        source=(documented(LIBVIRT_XML), unverified("how much of it reaches disk I/O")),
        place=("machine", "cpu"),
    ),
    _machine(
        id="machine.vcpus",
        domain=AT_LEAST_ONE,
        default="(chosen by whoever makes the VM; virtune's guests with Linux have 2, without an operating system 1)",
        change=Change.POWEROFF,
        risk=Risk.PERFORMANCE,
        risk_note="More vCPUs than the host has CPUs wait for each other.",
        what="How many CPUs the guest has.",
        why=(
            "The default of device.num_queues follows it, and one vCPU submits from one queue: effects of several "
            "queues and IOThreads need several vCPUs."
        ),
        spelled={"libvirt": "<vcpu>", "qemu": "-smp", "proxmox": "cores:", "kubevirt": "cpu.cores"},
        source=(documented(LIBVIRT_XML), code("QEMU, virtio-blk-pci: num-queues from the number of vCPUs")),
        place=("machine", "vcpus"),
    ),
    _machine(
        id="machine.memory",
        domain=Size(low=1024**2, high=2**50),
        default="(chosen by whoever makes the VM; virtune's guests have 512M)",
        change=Change.POWEROFF,
        risk=Risk.AVAILABILITY,
        risk_note="A host that runs out of memory kills processes.",
        what="How much memory the guest has.",
        why="Bounds the guest's page cache, which only buffered I/O uses.",
        spelled={"libvirt": "<memory>", "qemu": "-m", "proxmox": "memory:", "kubevirt": "memory.guest"},
        source=(documented(LIBVIRT_XML), documented(QEMU_MAN)),
        place=("machine", "memory"),
    ),
    _machine(
        id="guest.system",
        domain=Choice(values=("bare", "linux")),
        default="(bare where no setting and no workload needs Linux, and `virtune-guest` is built)",
        needs=(
            "bare: virtune-guest, which `tools/setup` builds where there is a Rust toolchain",
            "bare: disks on virtio-blk, virtio-scsi or NVMe",
        ),
        change=Change.POWEROFF,
        what="What runs in virtune's own guest: Linux with fio, or the load alone, without an operating system.",
        why=(
            "A guest without an operating system is ready in half a second and adds nothing of its own: what is "
            "measured is the way from the doorbell through QEMU to the medium and back. What the guest's kernel adds "
            "(system calls, block layer, scheduler, interrupts) only a guest with Linux shows."
        ),
        source=(tried("a guest that is the load, booted through PVH"),),
        place=("machine", "system"),
    ),
    _machine(
        id="guests.count",
        domain=Number(low=1, high=64),
        default="1",
        change=Change.LIVE,
        what="How many guests have the disk and share the load, its clones divided among them.",
        why=(
            "Compares one fio in each of many VMs with the same number of fio jobs in one big VM. Each of the "
            "many has a main loop (or IOThread) of its own; the big one has one for all. The load of both is "
            "the same; vCPUs and memory are those of each guest, so that many have more unless machine.vcpus and "
            "machine.memory divide them: a result says how much each arm has, and warns where that differs."
        ),
        spelled={"libvirt": "several domains", "qemu": "several processes"},
        source=(tried("1, 2 and 4 guests behind one barrier"),),
        place=("guests",),
    ),
    _machine(
        id="guests.idle",
        domain=Number(low=0, high=64),
        default="0",
        change=Change.LIVE,
        what="How many guests run beside those with the load and do nothing.",
        why="What a neighbour costs by being there alone: timers, polling, memory.",
        spelled={"libvirt": "several domains", "qemu": "several processes"},
        source=(tried("a second guest with a disk of its own and no load"),),
        place=("idle_guests",),
    ),
    _machine(
        id="guests.images",
        domain=Switch(),
        default="off",
        change=Change.REPLUG,
        what="Whether each guest has an image of its own; otherwise, and with --target, all share one.",
        why="VMs seldom share an image, and the page cache and the filesystem serve a shared one better.",
        spelled={"libvirt": "<source file=/> of each domain", "qemu": "-blockdev ...,filename="},
        source=(tried("two guests on two images"),),
        place=("own_images",),
    ),
    _machine(
        id="guests.spread",
        domain=Text(shape="absolute path of a scratch directory on another disk"),
        default="(all images are in the scratch directory)",
        change=Change.REPLUG,
        what="Where the image of every second guest lies, or of every second disk of one guest.",
        why="One disk below all guests, or two: whether the disk is what they wait for.",
        spelled={"libvirt": "<source file=/> of each domain", "qemu": "-blockdev ...,filename="},
        source=(tried("two guests on files in two directories"),),
        place=("spread",),
    ),
    _machine(
        id="disks.count",
        domain=Number(low=1, high=8),
        default="1",
        change=Change.LIVE,
        what=(
            "How many disks the guest has, or how many files rig=metal loads, each with an image of its own; with "
            "--target all are that one."
        ),
        why=(
            "The clones of the load are divided among them, so that the load is the same. One disk has one device, "
            "one IOThread and one image; several show what these limit."
        ),
        spelled={"libvirt": "several <disk>", "qemu": "several -device"},
        source=(tried("1, 2 and 4 disks in one guest"), vendor("Hitachi, about 2016: N block devices in one VM")),
        place=("disks",),
    ),
    _machine(
        id="disks.iothreads",
        domain=Switch(),
        default="off",
        change=Change.LIVE,
        what="Whether each of several disks has an IOThread of its own, named after device.iothread.",
        why="A disk's requests are served by one thread; several disks in one thread wait for one another.",
        spelled={"libvirt": "<driver iothread='N'/> of each disk", "qemu": "iothread= of each -device"},
        source=(vendor("Hitachi, about 2016: IOThreads must be set on every block device of the VM"),),
        place=("own_iothreads",),
    ),
    _machine(
        id="disks.second",
        domain=Text(shape="settings joined by +, such as throttle_iops=200+bus=virtio-scsi"),
        default="(as the first disk)",
        change=Change.LIVE,
        what="In which settings every second of several disks differs: its bus, or its limits.",
        why="Whether a slow disk slows the disk beside it.",
        source=(tried("two disks of one guest, one with a limit"),),
        place=("second",),
    ),
    _queues(
        id="device.num_queues",
        number="K22",
        domain=Number(low=1, high=65535),
        default="(one for each vCPU on PCI since QEMU 5.2, 1 before; 65535 means automatic)",
        needs=("libvirt 3.9",),
        ask=AskDevice(device="virtio-blk-pci", property="num-queues"),
        change=Change.REPLUG,
        risk=Risk.AVAILABILITY,
        risk_note="Must be equal on both ends of a live migration.",
        what="How many virtqueues a virtio-blk disk offers.",
        why=(
            "Helps mostly because interrupts stay on the CPU that submitted: when the default changed from 1 "
            "queue to one for each vCPU, 101 disks on 32 vCPUs went from 78k to 104k IOPS. All queues run in "
            "one host thread unless iothread_vq_mapping spreads them. Each queue costs an MSI-X vector, an "
            "eventfd and a handler to poll: 100 disks x 32 queues once brought a loop down to 10k IOPS."
        ),
        spelled={
            "libvirt": "<driver queues='4'/>",
            "qemu": "-device virtio-blk-pci,num-queues=4",
            "kubevirt": "domain.devices.blockMultiQueue: true",
            "xen": "blkback and blkfront max_queues",
            "cloud-hypervisor": "num_queues= (default 1)",
            "firecracker": "one queue, fixed",
        },
        source=(
            TRIED,
            qemu_commit("9445e1e15e66"),
            qemu_commit("d37d0e365afb"),
            qemu_commit("e4346192f1c2"),
            code(KUBEVIRT_CODE),
        ),
        place=("device", "num_queues"),
    ),
    _queues(
        id="scsi.num_queues",
        number="K22",
        domain=Number(low=1, high=2**32 - 1),
        default="(one for each vCPU on PCI since QEMU 5.2; 4294967295 means automatic)",
        ask=AskDevice(device="virtio-scsi-pci", property="num_queues"),
        change=Change.POWEROFF,
        in_guest=Change.REPLUG,
        risk=Risk.AVAILABILITY,
        risk_note="Must be equal on both ends of a live migration.",
        what="How many request queues a virtio-scsi controller offers.",
        why="As num_queues of virtio-blk; all disks of the controller share them.",
        spelled={
            "libvirt": "<controller type='scsi' model='virtio-scsi'><driver queues='4'/></controller>",
            "qemu": "-device virtio-scsi-pci,num_queues=4",
            "proxmox": "queues= (scsi with virtio-scsi-single only)",
        },
        source=(tried("libvirt's mapping, the property and its default"), code(PROXMOX_CODE)),
        place=("device", "scsi_num_queues"),
    ),
    _queues(
        id="device.queue_size",
        number="K23",
        domain=Number(low=4, high=1024, power_of_two=True),
        default="256",
        needs=("libvirt 7.8",),
        ask=AskDevice(device="virtio-blk-pci", property="queue-size"),
        change=Change.REPLUG,
        risk=Risk.AVAILABILITY,
        risk_note="Must match at migration. libvirt 9.0 takes 500, and the VM then fails to start.",
        what="How many descriptors one virtqueue holds (128 before QEMU 5.0).",
        why=(
            "For large depth or large I/O: 128 -> 256 gave up to +4 % at 1 MiB. Nothing is published beyond "
            "256. Costs guest memory."
        ),
        spelled={
            "libvirt": "<driver queue_size='512'/>",
            "qemu": "-device virtio-blk-pci,queue-size=512",
            "proxmox": "args: only",
            "xen": "max_ring_page_order; one page is 32 requests",
            "cloud-hypervisor": "queue_size= (default 128)",
            "firecracker": "256, fixed",
        },
        source=(
            tried("must be a power of 2 (max 1024); SeaBIOS boots with 512 and 1024"),
            qemu_commit("c9b7d9ec21df"),
            linux_commit("86839c56dee2"),
        ),
        place=("device", "queue_size"),
    ),
    _queues(
        id="device.packed",
        number="K25",
        domain=ON_OFF,
        default="off",
        needs=("QEMU 4.2, libvirt 6.3",),
        ask=AskDevice(device="virtio-blk-pci", property="packed"),
        change=Change.REPLUG,
        what="Whether the virtqueue is a packed ring.",
        why="Mostly for vhost and hardware vDPA; no published gain with QEMU's own virtio-blk was found.",
        spelled={
            "libvirt": "<driver packed='on'/>",
            "qemu": "-device virtio-blk-pci,packed=on",
            "proxmox": "args: only",
            "openstack": "image hw_virtio_packed_ring",
        },
        source=(documented(LIBVIRT_XML), code("QEMU, property packed")),
        place=("device", "packed"),
    ),
    _queues(
        id="device.event_idx",
        number="K26",
        domain=ON_OFF,
        default="on",
        ask=AskDevice(device="virtio-blk-pci", property="event_idx"),
        change=Change.REPLUG,
        what="Whether notifications that nobody needs are left out.",
        why='libvirt: "should leave alone unless you know what you are doing".',
        spelled={"libvirt": "<driver event_idx='on'/>", "qemu": "-device ...,event_idx=on"},
        source=(documented(LIBVIRT_XML), TRIED),
        place=("device", "event_idx"),
    ),
    _queues(
        id="nvme.max_ioqpairs",
        number="K40",
        domain=COUNT,
        default="64",
        ask=AskDevice(device="nvme", property="max_ioqpairs"),
        change=Change.POWEROFF,
        in_guest=Change.REPLUG,
        what="How many pairs of I/O queues the emulated NVMe offers.",
        why="All of them run in QEMU's main loop: emulated NVMe has no IOThread.",
        spelled={
            "libvirt": "<target bus='nvme'/> (11.5, serial mandatory)",
            "qemu": "-device nvme,max_ioqpairs=",
            "bhyve": "maxq= (default 16); ioslots= (default 8) bounds the I/Os in flight",
        },
        source=(TRIED, documented(BHYVE)),
        place=("device", "max_ioqpairs"),
    ),
)
