# SPDX-License-Identifier: Apache-2.0
"""Knobs of the guest's block layer and its virtio drivers (K04, K06..K14)."""

from functools import partial

from virtune.model.knob import NO_LIMIT, Change, Choice, Knob, Layer, Number, Risk
from virtune.model.knobs.domains import AT_LEAST_ONE, COUNT, MICROSECONDS
from virtune.model.knobs.sources import (
    SYSFS_BLOCK,
    TUNED,
    code,
    documented,
    posted,
    tried,
    unverified,
)

_knob = partial(Knob, layer=Layer.GUEST_KERNEL)

KNOBS: tuple[Knob, ...] = (
    _knob(
        id="guest.scheduler",
        number="K06",
        domain=Choice(values=("none", "mq-deadline", "kyber", "bfq")),
        default="(mq-deadline with one hardware queue, none with several)",
        change=Change.GUEST,
        what="The I/O scheduler of the guest for one disk.",
        why=(
            "`none` on fast storage, since the host schedules again; bfq or mq-deadline on a hard disk or for "
            "fairness. Raising num-queues changes the default scheduler without a message: set the scheduler by "
            "name when you compare queue counts."
        ),
        spelled={"linux": "/sys/block/vdX/queue/scheduler"},
        source=(code("Linux, elevator default by number of hardware queues"), tried("one queue reads mq-deadline")),
    ),
    _knob(
        id="guest.nr_requests",
        number="K07",
        domain=AT_LEAST_ONE,
        default="(256 read on a single-queue disk with mq-deadline)",
        change=Change.GUEST,
        what="How many requests the guest's block layer holds for one queue.",
        why=(
            "Above it, tasks wait before their request reaches the device: fio counts this time, "
            "/sys/block/*/stat does not."
        ),
        spelled={"linux": "/sys/block/vdX/queue/nr_requests"},
        source=(tried("256 with mq-deadline"), unverified("the formula 2 x min(hardware depth, 128)")),
    ),
    _knob(
        id="guest.rq_affinity",
        number="K08",
        domain=Choice(values=("0", "1", "2")),
        default="1",
        change=Change.GUEST,
        what="Which CPU completes a request: 1 the submitter's group, 2 exactly the submitter's CPU.",
        why="virtio spreads its interrupts over queues already when num-queues equals the number of vCPUs.",
        spelled={"linux": "/sys/block/vdX/queue/rq_affinity"},
        source=(documented(SYSFS_BLOCK),),
    ),
    _knob(
        id="guest.nomerges",
        number="K09",
        domain=Choice(values=("0", "1", "2")),
        default="0",
        change=Change.GUEST,
        what="How hard the guest tries to merge neighbouring requests; with 2 it does not try.",
        why="2 saves CPU for purely random I/O and hurts small sequential I/O.",
        spelled={"linux": "/sys/block/vdX/queue/nomerges"},
        source=(documented(SYSFS_BLOCK),),
    ),
    _knob(
        id="guest.read_ahead_kb",
        number="K10",
        domain=Number(low=0, high=NO_LIMIT, unit="KiB"),
        default="128",
        change=Change.GUEST,
        risk=Risk.PERFORMANCE,
        risk_note="A large value on copy-on-write or network images inflates random reads.",
        what="How far ahead the guest reads.",
        why="Matters only for buffered sequential reads. tuned's throughput-performance sets at least 4096.",
        spelled={"linux": "/sys/block/vdX/queue/read_ahead_kb"},
        source=(documented(SYSFS_BLOCK), documented(TUNED)),
    ),
    _knob(
        id="guest.max_sectors_kb",
        number="K10",
        domain=Number(low=1, high=NO_LIMIT, unit="KiB"),
        default="(chosen by the guest's kernel)",
        change=Change.GUEST,
        what="The largest request the guest sends.",
        why="Together with seg-max it decides into how many requests a large read is cut.",
        spelled={"linux": "/sys/block/vdX/queue/max_sectors_kb"},
        source=(documented(SYSFS_BLOCK),),
    ),
    _knob(
        id="guest.blk_poll_queues",
        number="K11",
        domain=COUNT,
        default="0",
        needs=("guest kernel 5.19",),
        change=Change.GUEST_REBOOT,
        risk=Risk.PERFORMANCE,
        risk_note="The poll queues are taken from num-queues, and a vCPU that polls runs at 100 %.",
        what="How many queues of a virtio-blk disk are kept for polled completions.",
        why=(
            "The guest half of polling by the application: about +10 % at depth 1, as measured by the author of "
            "the patch."
        ),
        spelled={"linux": "virtio_blk.poll_queues= (module parameter)"},
        source=(code("Linux virtio_blk"), posted("virtio_blk.poll_queues, Linux 5.19")),
    ),
    _knob(
        id="guest.blk_request_queues",
        number="K11",
        domain=COUNT,
        default="0",
        change=Change.GUEST_REBOOT,
        what="How many of the offered virtqueues the guest uses; 0 all.",
        why="Lets a guest use fewer queues than the host offers without a change on the host.",
        spelled={"linux": "virtio_blk.num_request_queues= (module parameter)"},
        source=(code("Linux virtio_blk"),),
    ),
    _knob(
        id="guest.blk_queue_depth",
        number="K11",
        domain=COUNT,
        default="0",
        change=Change.GUEST_REBOOT,
        what="How many requests the guest keeps in one virtqueue; 0 what the device offers.",
        why="Bounds the depth that reaches the host.",
        spelled={"linux": "virtio_blk.queue_depth= (module parameter)"},
        source=(code("Linux virtio_blk"),),
    ),
    _knob(
        id="guest.scsi_poll_queues",
        number="K04",
        domain=COUNT,
        default="(none)",
        change=Change.GUEST_REBOOT,
        risk=Risk.PERFORMANCE,
        risk_note="A vCPU that polls runs at 100 %.",
        what="How many queues of a virtio-scsi controller are kept for polled completions.",
        why="As on virtio-blk: the author of the patch measured 207k IOPS without and 296k with them.",
        spelled={"linux": "virtscsi_poll_queues (module parameter)"},
        source=(posted("virtscsi_poll_queues"),),
    ),
    _knob(
        id="guest.io_poll",
        number="K12",
        domain=Choice(values=("0", "1")),
        default="(1 where poll queues exist, else 0)",
        change=Change.GUEST,
        what="Whether a disk's queue takes polled I/O. Never worth writing.",
        why="Modern kernels ignore what is written here; poll queues decide.",
        spelled={"linux": "/sys/block/vdX/queue/io_poll"},
        source=(tried("reads 0 without poll queues"), unverified("that writes are ignored")),
    ),
    _knob(
        id="guest.io_poll_delay",
        number="K12",
        domain=Number(low=-1, high=NO_LIMIT, unit="us"),
        default="(no effect on modern kernels)",
        change=Change.GUEST,
        what="How long hybrid polling sleeps before it polls. Never worth writing.",
        why="The file is still there on kernel 6.18 and has no effect.",
        spelled={"linux": "/sys/block/vdX/queue/io_poll_delay"},
        source=(tried("the file exists"), unverified("that it has no effect")),
    ),
    _knob(
        id="guest.rotational",
        number="K13",
        domain=Choice(values=("0", "1")),
        default="1",
        change=Change.GUEST,
        what="Whether the guest treats the disk as a hard disk.",
        why=(
            "virtio-blk has no field that says SSD, so the guest assumes a hard disk: write-back throttling "
            "aims at 75 ms, and file systems choose accordingly. Buffered writes only, never O_DIRECT. No "
            "published number found."
        ),
        spelled={"linux": 'udev: ATTR{queue/rotational}="0"'},
        source=(tried("a virtio-blk disk reads 1"),),
    ),
    _knob(
        id="guest.wbt_lat_usec",
        number="K13",
        domain=MICROSECONDS,
        default="75000",
        change=Change.GUEST,
        what="The latency that write-back throttling in the guest aims at; 2000 is the default of an SSD.",
        why="A virtio-blk disk gets the value of a spinning disk. Only buffered write-back is affected.",
        spelled={"linux": 'udev: ATTR{queue/wbt_lat_usec}="2000"'},
        source=(tried("75000 on a virtio-blk disk"),),
    ),
    _knob(
        id="guest.write_cache",
        number="K14",
        domain=Choice(values=("write back", "write through")),
        default="(what the device announces)",
        change=Change.GUEST,
        risk=Risk.DATA,
        risk_note="`write through` on a device that caches loses data on a power cut. virtune only reads it.",
        what="Whether the guest's kernel believes that the disk has a volatile cache.",
        why="Writing it does not change the device; it only makes the guest's kernel stop sending flushes.",
        spelled={"linux": "/sys/block/vdX/queue/write_cache"},
        source=(documented(SYSFS_BLOCK),),
    ),
)
"""In the order of the knowledge base."""
