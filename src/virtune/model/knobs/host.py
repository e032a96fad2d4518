# SPDX-License-Identifier: Apache-2.0
"""Knobs of the host's kernel: limits, polling, schedulers, interrupts, write-back, cgroups (K91..K98, K103)."""

from functools import partial

from virtune.model.knob import NO_LIMIT, Change, Choice, Knob, Layer, Number, Risk, Text
from virtune.model.knobs.domains import AT_LEAST_ONE, BYTES, COUNT, MICROSECONDS, NANOSECONDS, PERCENT
from virtune.model.knobs.sources import (
    CGROUP,
    CLOUD_HYPERVISOR,
    HALT_POLLING,
    LIBVIRT_XML,
    RING_FLAGS,
    SYSCTL_FS,
    SYSCTL_KERNEL,
    SYSCTL_VM,
    SYSFS_BLOCK,
    TUNED,
    VIRSH,
    code,
    documented,
    linux_commit,
    posted,
    tried,
    unverified,
    vendor,
)

_knob = partial(Knob, layer=Layer.HOST, change=Change.LIVE)
_POLLS = "Host CPU, for every VM of the host: it is no setting of one VM."
_IDLE = "Larger values leave more unwritten data to lose when the host crashes."

KNOBS: tuple[Knob, ...] = (
    _knob(
        id="host.aio_max_nr",
        number="K91",
        domain=Number(low=0, high=NO_LIMIT),
        default="65536",
        what="How many events of Linux AIO all processes together may reserve.",
        why=(
            "Each event loop of QEMU with aio=native reserves 1024: 64 of them use up the default. New disks "
            "then fail, or fall back to threads with one line in a log. 1048576 is a safe value; fs.aio-nr "
            "shows what is in use."
        ),
        spelled={"linux": "fs.aio-max-nr"},
        source=(tried("4 disks in the main loop 1024, on 4 IOThreads 5120"), code("QEMU 5.0"), documented(SYSCTL_FS)),
    ),
    _knob(
        id="host.io_uring_disabled",
        number="K92",
        domain=Choice(values=("0", "1", "2")),
        default="0",
        needs=("kernel 6.6",),
        risk=Risk.SECURITY,
        risk_note="A lower value lets more processes use io_uring.",
        what="Who may use io_uring: 0 all, 1 one group, 2 nobody.",
        why=(
            "Above 0 aio=io_uring fails, or before QEMU 10.2 becomes threads in silence. RHEL 9 ships 2 (by "
            "Cloud Hypervisor's notes)."
        ),
        spelled={"linux": "kernel.io_uring_disabled"},
        source=(documented(SYSCTL_KERNEL), vendor(CLOUD_HYPERVISOR)),
    ),
    _knob(
        id="host.halt_poll_ns",
        number="K93",
        domain=NANOSECONDS,
        default="200000",
        risk=Risk.PERFORMANCE,
        risk_note=_POLLS,
        what="How long the host polls for a vCPU that halts, before it gives the CPU away; 0 never.",
        why=(
            "Helps at depth 1: the wake-up is saved. TCP round trips 34 -> 27 us in the commit that brought "
            "it. A guest with cpuidle-haltpoll may switch it off for itself."
        ),
        spelled={"linux": "/sys/module/kvm/parameters/halt_poll_ns"},
        source=(tried("200000 on x86"), documented(HALT_POLLING), linux_commit("aca6ff29c406")),
    ),
    _knob(
        id="host.halt_poll_ns_grow",
        number="K93",
        domain=COUNT,
        default="2",
        risk=Risk.PERFORMANCE,
        risk_note=_POLLS,
        what="The factor by which the host's halt polling grows.",
        why="Part of the adaptive algorithm.",
        spelled={"linux": "/sys/module/kvm/parameters/halt_poll_ns_grow"},
        source=(documented(HALT_POLLING),),
    ),
    _knob(
        id="host.halt_poll_ns_grow_start",
        number="K93",
        domain=NANOSECONDS,
        default="10000",
        risk=Risk.PERFORMANCE,
        risk_note=_POLLS,
        what="The first step by which the host's halt polling grows from 0.",
        why="Part of the adaptive algorithm.",
        spelled={"linux": "/sys/module/kvm/parameters/halt_poll_ns_grow_start"},
        source=(documented(HALT_POLLING),),
    ),
    _knob(
        id="host.halt_poll_ns_shrink",
        number="K93",
        domain=COUNT,
        default="0",
        risk=Risk.PERFORMANCE,
        risk_note=_POLLS,
        what="The divisor by which the host's halt polling shrinks; 0 goes back to no polling.",
        why="Part of the adaptive algorithm.",
        spelled={"linux": "/sys/module/kvm/parameters/halt_poll_ns_shrink"},
        source=(documented(HALT_POLLING),),
    ),
    _knob(
        id="host.scheduler",
        number="K94",
        domain=Choice(values=("none", "mq-deadline", "kyber", "bfq")),
        default="(none on NVMe, mq-deadline on SATA)",
        what="The I/O scheduler of the host's disk.",
        why="On hard disks bfq shares fairly among VMs and makes io.weight work.",
        spelled={"linux": "/sys/block/DEV/queue/scheduler"},
        source=(code("Linux, elevator default"), documented(CGROUP)),
    ),
    _knob(
        id="host.nvme_poll_queues",
        number="K95",
        domain=COUNT,
        default="0",
        change=Change.HOST_REBOOT,
        what="How many queues of an NVMe disk are kept for polled completions (or reload the module).",
        why="Alone it does nothing for a VM: QEMU never asks for polled completions, since its ring has no IOPOLL.",
        spelled={"linux": "nvme.poll_queues= (module parameter)"},
        source=(code("QEMU, flags of the ring"), posted(RING_FLAGS)),
    ),
    _knob(
        id="host.irq_affinity",
        number="K96",
        domain=Text(shape="isolcpus=managed_irq,CPU list"),
        default="(managed: one vector for each queue)",
        change=Change.HOST_REBOOT,
        what="Which CPU takes a disk's interrupts.",
        why=(
            "The nvme driver manages them, and irqbalance has no effect. Isolated CPUs with managed_irq keep "
            "them off the vCPUs' cores."
        ),
        spelled={"linux": "isolcpus=managed_irq,..."},
        source=(unverified("no source of its own in our knowledge base"),),
    ),
    _knob(
        id="host.rq_affinity",
        number="K96",
        domain=Choice(values=("0", "1", "2")),
        default="1",
        what="As guest.rq_affinity, on the host's disk.",
        why="As in the guest.",
        spelled={"linux": "/sys/block/DEV/queue/rq_affinity"},
        source=(documented(SYSFS_BLOCK),),
    ),
    _knob(
        id="host.nomerges",
        number="K96",
        domain=Choice(values=("0", "1", "2")),
        default="0",
        what="As guest.nomerges, on the host's disk.",
        why="As in the guest.",
        spelled={"linux": "/sys/block/DEV/queue/nomerges"},
        source=(documented(SYSFS_BLOCK),),
    ),
    _knob(
        id="host.nr_requests",
        number="K96",
        domain=AT_LEAST_ONE,
        default="(chosen by the driver)",
        what="As guest.nr_requests, on the host's disk.",
        why="As in the guest.",
        spelled={"linux": "/sys/block/DEV/queue/nr_requests"},
        source=(documented(SYSFS_BLOCK),),
    ),
    _knob(
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
    _knob(
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
    _knob(
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
    _knob(
        id="host.dirty_background_ratio",
        number="K97",
        domain=PERCENT,
        default="10",
        risk=Risk.DATA,
        risk_note=_IDLE,
        what=(
            "At which share of dirty memory the host begins to write back. Setting it clears dirty_background_bytes."
        ),
        why="tuned's virtual-host sets 5. No effect on O_DIRECT.",
        spelled={"linux": "vm.dirty_background_ratio"},
        source=(documented(SYSCTL_VM), documented(TUNED)),
    ),
    _knob(
        id="host.dirty_background_bytes",
        number="K97",
        domain=BYTES,
        default="0",
        risk=Risk.DATA,
        risk_note=_IDLE,
        what=(
            "As host.dirty_background_ratio, in bytes; 0 means that the ratio counts. Setting it clears the ratio."
        ),
        why="On a host with much RAM a percentage is too coarse. No effect on O_DIRECT.",
        spelled={"linux": "vm.dirty_background_bytes"},
        source=(documented(SYSCTL_VM),),
    ),
    _knob(
        id="host.dirty_ratio",
        number="K97",
        domain=PERCENT,
        default="20",
        risk=Risk.DATA,
        risk_note=_IDLE,
        what="At which share of dirty memory a writer must write back itself. Setting it clears dirty_bytes.",
        why=(
            "With cache=writeback on 512 GB of RAM, 20 % are 100 GB of dirty data and stalls of minutes. No "
            "effect on O_DIRECT."
        ),
        spelled={"linux": "vm.dirty_ratio"},
        source=(documented(SYSCTL_VM),),
    ),
    _knob(
        id="host.dirty_bytes",
        number="K97",
        domain=BYTES,
        default="0",
        risk=Risk.DATA,
        risk_note=_IDLE,
        what="As host.dirty_ratio, in bytes; 0 means that the ratio counts. Setting it clears the ratio.",
        why="Use bytes on hosts with much RAM and cache=writeback. No effect on O_DIRECT.",
        spelled={"linux": "vm.dirty_bytes"},
        source=(documented(SYSCTL_VM),),
    ),
    _knob(
        id="host.io_max",
        number="K98",
        domain=Text(shape="rbps, wbps, riops, wiops of a device"),
        default="(no limit)",
        risk=Risk.PERFORMANCE,
        risk_note="Looks like a slow disk, for all of a VM's disks on the device.",
        what="A limit of the VM's cgroup on one device.",
        why="Acts on QEMU's threads; QEMU's own throttle acts earlier and on one disk.",
        spelled={"linux": "io.max", "libvirt": "<blkiotune><device><read_bytes_sec>, virsh blkiotune --live"},
        source=(documented(CGROUP), documented(LIBVIRT_XML), documented(VIRSH)),
    ),
    _knob(
        id="host.io_weight",
        number="K98",
        domain=Number(low=1, high=10000),
        default="100",
        needs=("bfq or io.cost on the device",),
        what="The share of a device that the VM's cgroup gets under contention.",
        why="Without bfq or io.cost it does nothing at all.",
        spelled={
            "linux": "io.weight",
            "libvirt": "<blkiotune><weight>, virsh blkiotune --live",
            "proxmox": "cpuunits only",
        },
        source=(documented(CGROUP), documented(LIBVIRT_XML)),
    ),
    _knob(
        id="host.io_latency",
        number="K98",
        domain=Text(shape="target of a device in us"),
        default="(none)",
        what="A latency that the kernel keeps for the VM's cgroup by slowing others.",
        why="Protects one VM at the cost of its neighbours.",
        spelled={"linux": "io.latency"},
        source=(documented(CGROUP),),
    ),
    _knob(
        id="host.io_cost",
        number="K98",
        domain=Text(shape="io.cost.qos, io.cost.model"),
        default="(off)",
        what="The kernel's model of what an I/O costs on a device.",
        why="Makes io.weight work without bfq.",
        spelled={"linux": "io.cost.qos, io.cost.model"},
        source=(documented(CGROUP),),
    ),
    _knob(
        id="host.wbt_lat_usec",
        number="K103",
        domain=MICROSECONDS,
        default="(2000 on SSD, 75000 on spinning disks)",
        what="The latency that write-back throttling on the host aims at.",
        why="Only buffered writes, never O_DIRECT.",
        spelled={"linux": "/sys/block/DEV/queue/wbt_lat_usec"},
        source=(documented(SYSFS_BLOCK),),
    ),
    _knob(
        id="host.read_ahead_kb",
        number="K103",
        domain=COUNT,
        default="128",
        what="How far ahead the host reads, also on md arrays.",
        why="Only buffered sequential reads.",
        spelled={"linux": "/sys/block/DEV/queue/read_ahead_kb"},
        source=(documented(SYSFS_BLOCK),),
    ),
    _knob(
        id="host.scsi_queue_depth",
        number="K103",
        domain=COUNT,
        default="(chosen by the driver)",
        what="How many commands a SCSI LUN takes.",
        why="Many VMs on one LUN share it.",
        spelled={"linux": "/sys/block/sdX/device/queue_depth"},
        source=(unverified("no source of its own in our knowledge base"),),
    ),
)
"""In the order of the knowledge base."""
