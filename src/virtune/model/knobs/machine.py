# SPDX-License-Identifier: Apache-2.0
"""Knobs of the virtual machine: the QEMU program, machine type, CPUs and memory (K44)."""

from functools import partial

from virtune.model.knob import Change, Choice, Knob, Layer, Number, Risk, Size, Switch, Text
from virtune.model.knobs.domains import AT_LEAST_ONE
from virtune.model.knobs.sources import LIBVIRT_XML, QEMU_9_0, QEMU_MAN, code, documented, tried, unverified, vendor

_knob = partial(Knob, layer=Layer.DEVICE, number="K44")

KNOBS: tuple[Knob, ...] = (
    _knob(
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
    _knob(
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
    _knob(
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
    _knob(
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
    _knob(
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
    _knob(
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
    _knob(
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
    _knob(
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
    _knob(
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
    _knob(
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
    _knob(
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
    _knob(
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
    _knob(
        id="disks.second",
        domain=Text(shape="settings joined by +, such as throttle_iops=200+bus=virtio-scsi"),
        default="(as the first disk)",
        change=Change.LIVE,
        what="In which settings every second of several disks differs: its bus, or its limits.",
        why="Whether a slow disk slows the disk beside it.",
        source=(tried("two disks of one guest, one with a limit"),),
        place=("second",),
    ),
)
"""In the order of the knowledge base."""
