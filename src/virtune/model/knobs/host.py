# SPDX-License-Identifier: Apache-2.0
"""Knobs that are turned on this host: QEMU's IOThreads, where threads and memory lie, what runs beside a trial."""

from functools import partial

from virtune.model.knob import (
    AskDevice,
    AskObject,
    AskSchema,
    Change,
    Choice,
    Knob,
    Layer,
    Risk,
    Size,
    Text,
)
from virtune.model.knobs.domains import COUNT, NANOSECONDS
from virtune.model.knobs.sources import (
    BHYVE,
    KUBEVIRT,
    LIBVIRT_NEWS,
    LIBVIRT_XML,
    NOVA_CODE,
    PROXMOX_CODE,
    QEMU_9_0,
    QEMU_10_0,
    RED_HAT_MAPPING,
    SCSI_MULTIQUEUE,
    TRIED,
    VIRSH,
    XEN,
    code,
    documented,
    posted,
    tried,
    unverified,
)

_iothread = partial(Knob, layer=Layer.DEVICE)
"""In the order of the knowledge base."""

_placement = partial(Knob, layer=Layer.PLACEMENT)
_CPUS = Text(shape="CPU list, as 2-3,8")
"""In the order of the knowledge base."""

_host = partial(Knob, layer=Layer.HOST, change=Change.LIVE)
_POLLS = "Host CPU, for every VM of the host: it is no setting of one VM."
_IDLE = "Larger values leave more unwritten data to lose when the host crashes."
"""In the order of the knowledge base."""


KNOBS: tuple[Knob, ...] = (
    _iothread(
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
    _iothread(
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
    _iothread(
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
    _iothread(
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
    _placement(
        id="vcpu.pin",
        number="K84",
        domain=_CPUS,
        default="(any CPU)",
        change=Change.LIVE,
        risk=Risk.PERFORMANCE,
        risk_note=(
            "A vCPU and an IOThread on one core hurt each other, at depth 1 also on the two threads of one core."
        ),
        what="On which host CPUs each vCPU runs.",
        why="Keeps caches warm and neighbours away.",
        spelled={
            "libvirt": "<cputune><vcpupin vcpu='0' cpuset='2'/></cputune>, virsh vcpupin --live",
            "qemu": "none: taskset on the thread ids of query-cpus-fast",
            "proxmox": "affinity: (whole VM)",
            "kubevirt": "cpu.dedicatedCpuPlacement: true",
            "openstack": "hw:cpu_policy=dedicated",
            "xen": "dom0_vcpus_pin for dom0, which does the I/O",
            "bhyve": "-p",
        },
        source=(documented(LIBVIRT_XML), documented(VIRSH), documented(XEN), documented(BHYVE)),
        place=("pins", "vcpu"),
    ),
    _placement(
        id="load.pin",
        number="K84",
        domain=_CPUS,
        default="(any CPU)",
        change=Change.LIVE,
        what="On which host CPUs the load runs, where it runs on the host: without a guest.",
        why="Bare metal with one or two cores, beside guests with one or two vCPUs.",
        spelled={"linux": "taskset -c"},
        source=(tried("fio on one of two CPUs"),),
        place=("pins", "load"),
    ),
    _placement(
        id="emulator.pin",
        number="K85",
        domain=_CPUS,
        default="(any CPU)",
        change=Change.LIVE,
        what="On which host CPUs QEMU's main loop and workers run.",
        why="Keeps them off the vCPUs' cores.",
        spelled={
            "libvirt": "<cputune><emulatorpin cpuset=/></cputune>, virsh emulatorpin --live",
            "kubevirt": "isolateEmulatorThread",
            "openstack": "hw:emulator_threads_policy=isolate | share",
        },
        source=(documented(LIBVIRT_XML), documented(VIRSH)),
        place=("pins", "emulator"),
    ),
    _placement(
        id="iothread.pin",
        number="K86",
        domain=_CPUS,
        default="(any CPU)",
        needs=("libvirt 1.2.9",),
        change=Change.LIVE,
        what="On which host CPUs an IOThread runs.",
        why="The NUMA node of the device and of the vCPUs is the right one.",
        spelled={
            "libvirt": "<cputune><iothreadpin iothread='1' cpuset='4'/></cputune>, virsh iothreadpin --live",
            "qemu": "none: taskset on the thread ids of query-iothreads",
            "proxmox": "affinity: (whole VM)",
            "kubevirt": "automatic with dedicatedCpuPlacement",
            "openstack": "with the emulator's CPUs",
        },
        source=(documented(LIBVIRT_XML), documented(VIRSH)),
        place=("pins", "iothread"),
    ),
    _placement(
        id="memory.hugepages",
        number="K88",
        domain=Size(low=65536, high=16 * 1024**3, power_of_two=True),
        default="(none)",
        ask=AskSchema(command="object-add", member="hugetlb", variant="memory-backend-memfd"),
        change=Change.POWEROFF,
        risk=Risk.AVAILABILITY,
        risk_note="The VM does not start where the pages are not reserved.",
        what="The size of the huge pages that hold the guest's memory, such as 2M or 1G.",
        why="Fewer TLB misses. No reliable published number for disk I/O was found.",
        spelled={
            "libvirt": "<memoryBacking><hugepages/></memoryBacking>",
            "qemu": "-object memory-backend-file | memory-backend-memfd,hugetlb=on",
            "proxmox": "hugepages:",
            "kubevirt": "memory.hugepages.pageSize",
            "openstack": "hw:mem_page_size",
        },
        source=(documented(LIBVIRT_XML),),
        place=("machine", "hugepages"),
    ),
    _host(
        id="host.cache",
        number="K97",
        domain=Choice(values=("cold", "warm", "as-found")),
        default="cold",
        what=(
            "How much of the images is in the host's page cache when a trial begins: nothing, all, what is found."
            " With `as-found` they are not read once before the first trial either."
        ),
        why=(
            "A disk that is opened through the page cache is as fast as memory where its image is cached. Whoever "
            "measures two settings one after the other without dropping it measures the order."
        ),
        source=(tried("reads of a cold and of a warm image"),),
        place=("cache_state",),
    ),
    _host(
        id="disk.place",
        number="K97",
        domain=Choice(values=("target", "scratch")),
        default="target",
        change=Change.REPLUG,
        what="Whether the study's --target is loaded, or a scratch image although there is a target.",
        why="A raw device beside a regular file, as arms of one run.",
        source=(tried("a loop device beside a scratch file"),),
        place=("place",),
    ),
    _host(
        id="host.neighbour",
        number="K98",
        domain=Choice(values=("none", "cpu", "io")),
        default="none",
        what=(
            "What another process of the host does while the load runs: burn every CPU, or read a scratch image of "
            "its own, 4 KiB at random places, 32 in flight."
        ),
        why="VMs seldom run alone; how a disk's latency takes a busy neighbour is a result of its own.",
        source=(tried("both kinds beside a load"),),
        place=("neighbour",),
    ),
)
