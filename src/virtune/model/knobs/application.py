# SPDX-License-Identifier: Apache-2.0
"""Knobs of the application in the guest, whose part fio plays (K01..K05)."""

from functools import partial

from virtune.model.knob import Change, Choice, Knob, Layer, Risk
from virtune.model.knobs.domains import AT_LEAST_ONE, COUNT, ON_OFF
from virtune.model.knobs.sources import (
    FIO,
    IO_URING_SETUP,
    TRIED,
    code,
    documented,
    posted,
    qemu_commit,
    unverified,
)

_knob = partial(Knob, layer=Layer.APPLICATION, change=Change.GUEST)

KNOBS: tuple[Knob, ...] = (
    _knob(
        id="workload.ioengine",
        number="K01",
        domain=Choice(values=("sync", "psync", "libaio", "io_uring", "mmap")),
        default="psync",
        what="How fio issues its I/O.",
        why=(
            "libaio with direct=0 blocks while it submits: a requested depth of 32 is then really 1, and the "
            "time shows as submission latency instead of completion latency."
        ),
        spelled={"fio": "ioengine="},
        source=(documented(FIO),),
    ),
    _knob(
        id="workload.direct",
        number="K01",
        domain=Choice(values=("0", "1")),
        default="0",
        what="Whether fio opens the file with O_DIRECT.",
        why="With direct=0 the guest's RAM is measured, and with cache=writeback the host's RAM as well.",
        spelled={"fio": "direct="},
        source=(documented(FIO),),
    ),
    _knob(
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
    _knob(
        id="workload.numjobs",
        number="K02",
        domain=AT_LEAST_ONE,
        default="1",
        what="How many clones of a fio job run.",
        why=(
            "One job submits from one CPU at a time and so uses one virtqueue at a time: effects of several "
            "queues show only with numjobs of at least the number of vCPUs."
        ),
        spelled={"fio": "numjobs="},
        source=(documented(FIO), code("Linux blk-mq: the queue follows from the submitting CPU")),
    ),
    _knob(
        id="workload.batch_submit",
        number="K02",
        domain=AT_LEAST_ONE,
        default="1",
        what="How many I/Os fio hands over in one submission.",
        why="Batches share one system call and one notification of the device.",
        spelled={"fio": "iodepth_batch_submit="},
        source=(documented(FIO),),
    ),
    _knob(
        id="workload.fsync",
        number="K03",
        domain=COUNT,
        default="0",
        risk=Risk.DATA,
        risk_note="Recommending a cache mode from a measurement without flushes is how data gets lost.",
        what="After how many writes fio calls fsync; 0 never.",
        why="With frequent flushes, the cache mode and the time of a flush decide the result.",
        spelled={"fio": "fsync="},
        source=(documented(FIO),),
    ),
    _knob(
        id="workload.fdatasync",
        number="K03",
        domain=COUNT,
        default="0",
        risk=Risk.DATA,
        risk_note="Recommending a cache mode from a measurement without flushes is how data gets lost.",
        what="After how many writes fio calls fdatasync; 0 never.",
        why="Like fsync, but metadata that is not needed to read the data back is not flushed.",
        spelled={"fio": "fdatasync="},
        source=(documented(FIO),),
    ),
    _knob(
        id="workload.sync",
        number="K03",
        domain=Choice(values=("0", "1", "sync", "dsync")),
        default="0",
        needs=("QEMU 10.0 for FUA writes", "aio=native or io_uring for FUA writes"),
        what="Whether every write is durable when it returns (O_SYNC, O_DSYNC).",
        why=(
            "A virtio-blk guest never issues FUA, so each such write is a write and a flush: two requests. QEMU "
            "10.0 and newer use FUA towards the host; with cache=directsync the author of the change measured "
            "45.6k IOPS before and 56.1k after, at depth 1 (4 KiB, sync=1). aio=threads does not get it."
        ),
        spelled={"fio": "sync="},
        source=(
            TRIED + ": queue/fua reads 0",
            posted("commit 984a32f17e8d"),
            qemu_commit("984a32f17e8d"),
            qemu_commit("d402da1360"),
        ),
    ),
    _knob(
        id="workload.hipri",
        number="K04",
        domain=ON_OFF,
        default="off",
        needs=("guest.blk_poll_queues above 0 (guest kernel 5.19)",),
        risk=Risk.PERFORMANCE,
        risk_note="One guest vCPU runs at 100 %.",
        what="Whether the application polls for completions (RWF_HIPRI, IORING_SETUP_IOPOLL).",
        why=(
            "Saves the interrupt: the author of the patch measured 339k IOPS without and 380k with it, with one "
            "job. Without poll queues in the guest the request completes by interrupt or is refused, depending "
            "on the kernel (unverified which)."
        ),
        spelled={"fio": "hipri"},
        source=(posted("virtio_blk.poll_queues, Linux 5.19"), unverified("which kernels refuse and which fall back")),
    ),
    _knob(
        id="workload.sqthread_poll",
        number="K05",
        domain=ON_OFF,
        default="off",
        needs=("guest kernel 5.11 with CAP_SYS_NICE, 5.13 without",),
        risk=Risk.PERFORMANCE,
        risk_note="Burns one more vCPU, in the guest's kernel thread iou-sqp-PID.",
        what="Whether fio's io_uring uses a kernel thread in the guest that polls for submissions (SQPOLL).",
        why="This is the only place on the path where a user can turn SQPOLL on: no version of QEMU exposes it.",
        spelled={"fio": "sqthread_poll"},
        source=(documented(IO_URING_SETUP), TRIED + ": QEMU's ring has SqThread -1"),
    ),
)
"""In the order of the knowledge base."""
