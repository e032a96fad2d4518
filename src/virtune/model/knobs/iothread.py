# SPDX-License-Identifier: Apache-2.0
"""Knobs of the threads that run the virtual device: IOThreads, their polling and their pools (K32..K34, K36..K39)."""

from functools import partial

from virtune.model.knob import NO_LIMIT, AskDevice, AskObject, AskSchema, Change, Knob, Layer, Number, Risk, Text
from virtune.model.knobs.domains import COUNT, NANOSECONDS
from virtune.model.knobs.sources import (
    KUBEVIRT,
    LIBVIRT_NEWS,
    LIBVIRT_XML,
    NOVA_CODE,
    PROXMOX_CODE,
    QEMU_9_0,
    QEMU_10_0,
    QEMU_QMP,
    RED_HAT_MAPPING,
    SCSI_MULTIQUEUE,
    TRIED,
    VIRSH,
    code,
    documented,
    posted,
    tried,
    unverified,
    vendor,
)

_knob = partial(Knob, layer=Layer.DEVICE)

KNOBS: tuple[Knob, ...] = (
    _knob(
        id="device.iothread",
        number="K32",
        domain=Text(shape="id of an IOThread"),
        default="(none: QEMU's main loop)",
        needs=("virtio-blk or virtio-scsi", "device.ioeventfd=on", "QEMU 2.1, libvirt 1.2.8"),
        ask=AskDevice(device="virtio-blk-pci", property="iothread"),
        change=Change.REPLUG,
        risk=Risk.PERFORMANCE,
        risk_note=(
            "One more busy thread. Some old pairs of block job and IOThread had bugs before QEMU 6 (unverified)."
        ),
        what="The thread that runs a disk's event loop.",
        why=(
            "Without one the disk shares a thread and a lock with monitor, VNC and timers. An IOThread helps "
            "where there are several disks, and keeps stalls of the main loop away. It also switches polling "
            "on, so moving a disk into an IOThread changes two things at once. A disk that is attached cannot "
            "change its IOThread."
        ),
        spelled={
            "libvirt": (
                "<iothreads>N</iothreads> + <driver iothread='1'/> (virtio-scsi: on the controller). <iothreads> "
                "alone moves no disk"
            ),
            "qemu": "-object iothread,id=io1 + -device virtio-blk-pci,iothread=io1",
            "proxmox": "iothread=1 (virtio, or scsi with virtio-scsi-single; ignored elsewhere with a warning)",
            "kubevirt": "ioThreadsPolicy: shared | auto, dedicatedIOThread: true (bus virtio only)",
            "openstack": "automatic <iothreads>1</iothreads> since 2026.1, attached to no disk (by code reading)",
        },
        source=(
            tried("libvirt's mapping; x-blockdev-set-iothread refuses an attached disk"),
            documented(LIBVIRT_XML),
            code(PROXMOX_CODE),
            documented(KUBEVIRT),
            code(NOVA_CODE),
        ),
        place=("device", "iothread"),
    ),
    _knob(
        id="iothread.count",
        number="K33",
        domain=COUNT,
        default="0",
        ask=AskSchema(command="object-add", member="id", variant="iothread"),
        change=Change.LIVE,
        risk=Risk.PERFORMANCE,
        risk_note="With aio=native each one reserves 1024 of fs.aio-max-nr.",
        what="How many IOThreads a VM has, and how disks share them.",
        why="One IOThread is about one host core of I/O processing. Threads that no disk names do nothing.",
        spelled={
            "libvirt": "<iothreads>N</iothreads>, virsh iothreadadd | iothreaddel",
            "qemu": "-object iothread,id=, QMP object-add",
            "kubevirt": "ioThreadsPolicy: auto (at most 2 x CPUs) | supplementalPool",
        },
        source=(
            tried("object-add at run time, 1024 events a context"),
            documented(KUBEVIRT),
            vendor("IBM: 16 IOThreads, round robin"),
        ),
    ),
    _knob(
        id="device.iothread_vq_mapping",
        number="K34",
        domain=Text(shape="IOThreads, optionally with queues: io1+io2, io1:0-1+io2:2-3"),
        default="(none: one thread)",
        needs=(
            "virtio-blk: QEMU 9.0, libvirt 10.0",
            "virtio-scsi: QEMU 10.0, libvirt 11.2",
            "no device.iothread on the same disk",
            "a guest that submits from several CPUs",
        ),
        ask=AskDevice(device="virtio-blk-pci", property="iothread-vq-mapping"),
        change=Change.REPLUG,
        risk=Risk.PERFORMANCE,
        risk_note="Nothing to gain at depth 1, and polling costs one CPU for each thread.",
        what="Spreads the virtqueues of one disk over several IOThreads.",
        why=(
            "Without it, all queues of a disk run in one host thread. The author of the patch measured, for "
            "virtio-scsi 4k random reads at depth 64 on 4 vCPUs: 189,576 IOPS with 1 thread, 312,698 with 2, "
            "346,744 with 4. qcow2 still takes one lock for its metadata; the gain there is unverified."
        ),
        spelled={
            "libvirt": "<driver queues='8'><iothreads><iothread id='1'/><iothread id='2'/></iothreads></driver>",
            "qemu": (
                "-device "
                '\'{"driver":"virtio-blk-pci",...,"iothread-vq-mapping":[{"iothread":"io1"},{"iothread":"io2"}]}\''
            ),
            "proxmox": "args: only",
            "kubevirt": "ioThreadsPolicy: supplementalPool + ioThreads.supplementalPoolThreadCount (1.5)",
        },
        source=(
            documented(QEMU_9_0),
            documented(QEMU_10_0),
            documented(LIBVIRT_NEWS),
            posted(SCSI_MULTIQUEUE),
            documented(RED_HAT_MAPPING),
            unverified("gain on qcow2, and the numbers for virtio-blk"),
        ),
        place=("device", "iothread_vq_mapping"),
    ),
    _knob(
        id="iothread.poll_max_ns",
        number="K36",
        domain=NANOSECONDS,
        default="32768",
        needs=("disks that are in an IOThread", "libvirt 9.4 in XML, 4.10 live"),
        ask=AskObject(object="iothread", property="poll-max-ns"),
        change=Change.LIVE,
        risk=Risk.PERFORMANCE,
        risk_note="Uses host CPU even where there is little I/O.",
        what="How long an IOThread busy-waits before it blocks; 0 never.",
        why=(
            "Saves a wake-up for each request. Useless where the back end is much slower than the window "
            "(hard disk, network above 100 us): set 0. The main loop never polls this way."
        ),
        spelled={
            "libvirt": (
                "<iothreadids><iothread id='1'><poll max='32768'/></iothread></iothreadids>, virsh iothreadset "
                "--poll-max-ns"
            ),
            "qemu": "-object iothread,poll-max-ns=, QMP qom-set /objects/ID poll-max-ns",
            "proxmox": "args: only",
        },
        source=(tried("default, and live by qom-set"), documented(VIRSH), code("QEMU, adaptive polling since 2.9")),
        place=("poll_max_ns",),
    ),
    _knob(
        id="iothread.poll_grow",
        number="K36",
        domain=Number(low=0, high=NO_LIMIT),
        default="0",
        ask=AskObject(object="iothread", property="poll-grow"),
        change=Change.LIVE,
        what="The factor by which the polling time grows; 0 doubles it.",
        why="Part of the adaptive algorithm.",
        spelled={"libvirt": "<poll grow='2'/>, virsh iothreadset --poll-grow", "qemu": "-object iothread,poll-grow="},
        source=(tried("default, and live by qom-set"), documented(VIRSH)),
    ),
    _knob(
        id="iothread.poll_shrink",
        number="K36",
        domain=Number(low=0, high=NO_LIMIT),
        default="0",
        ask=AskObject(object="iothread", property="poll-shrink"),
        change=Change.LIVE,
        what="The divisor by which the polling time shrinks; 0 goes back to no polling.",
        why="Part of the adaptive algorithm.",
        spelled={
            "libvirt": "<poll shrink='0'/>, virsh iothreadset --poll-shrink",
            "qemu": "-object iothread,poll-shrink=",
        },
        source=(tried("default, and live by qom-set"), documented(VIRSH)),
    ),
    _knob(
        id="iothread.poll_weight",
        number="K37",
        domain=Number(low=0, high=NO_LIMIT),
        default="(not known)",
        needs=("a QEMU that has it; after 11.0, most likely 11.1 (unverified)",),
        ask=AskObject(object="iothread", property="poll-weight"),
        change=Change.LIVE,
        what="Damps the adaptive polling of an IOThread.",
        why=(
            "The author of the patch measured, on s390x with one IOThread, 10 to 25 % less CPU for 3 to 8 % "
            "less throughput."
        ),
        spelled={"libvirt": "<poll weight=/>, virsh iothreadset --poll-weight (by IBM's documents)"},
        source=(
            posted("poll-weight, v5 of 2026-04-23"),
            vendor("IBM's documents, for libvirt"),
            unverified("in which release it is"),
        ),
    ),
    _knob(
        id="iothread.aio_max_batch",
        number="K38",
        domain=COUNT,
        default="0",
        needs=("QEMU 6.1",),
        ask=AskObject(object="iothread", property="aio-max-batch"),
        change=Change.LIVE,
        what="How many requests an IOThread hands to the kernel in one system call; 0 the engine's default.",
        why="A smaller batch lets the first request start earlier. The engine's default is 32 (unverified).",
        spelled={"qemu": "-object iothread,aio-max-batch=, QMP qom-set"},
        source=(documented(QEMU_QMP), unverified("that the engine's default is 32")),
    ),
    _knob(
        id="disk.aio_max_batch",
        number="K38",
        domain=COUNT,
        default="0",
        needs=("QEMU 6.2",),
        ask=AskSchema(command="blockdev-add", member="aio-max-batch", variant="file"),
        change=Change.REPLUG,
        what=("How many requests of one image go to the kernel in one system call; 0 takes the IOThread's limit."),
        why="It cannot be changed at run time: `Cannot change the option 'aio-max-batch'`.",
        spelled={"qemu": "-blockdev driver=file,...,aio-max-batch="},
        source=(tried("blockdev-reopen refuses it"), documented(QEMU_QMP)),
    ),
    _knob(
        id="iothread.thread_pool_min",
        number="K39",
        domain=COUNT,
        default="0",
        needs=("QEMU 7.1, libvirt 8.5",),
        ask=AskObject(object="iothread", property="thread-pool-min"),
        change=Change.LIVE,
        what="How many worker threads an IOThread keeps ready.",
        why=(
            "Above 0 no request waits for a thread to start. Matters for aio=threads, and for discard, "
            "write-zeroes and ioctl."
        ),
        spelled={
            "libvirt": "<iothread id='1' thread_pool_min='2'/>, <defaultiothread>",
            "qemu": "-object iothread,thread-pool-min=",
        },
        source=(TRIED, documented(LIBVIRT_XML)),
    ),
    _knob(
        id="iothread.thread_pool_max",
        number="K39",
        domain=COUNT,
        default="64",
        needs=("QEMU 7.1, libvirt 8.5",),
        ask=AskObject(object="iothread", property="thread-pool-max"),
        change=Change.LIVE,
        what="How many worker threads an IOThread may have.",
        why=(
            "With aio=threads it bounds the requests in flight; raise it when the threads named `worker` stand at 64."
        ),
        spelled={
            "libvirt": "<iothread id='1' thread_pool_max='8'/>, <defaultiothread>",
            "qemu": "-object iothread,thread-pool-max=",
        },
        source=(TRIED, documented(LIBVIRT_XML)),
        place=("thread_pool_max",),
    ),
)
"""In the order of the knowledge base."""
