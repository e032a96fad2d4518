# SPDX-License-Identifier: Apache-2.0
"""Samples of a host with two running VMs, second after second, in the kernel's and QEMU's own counters.

sql1: vda waits for its device, vdb is idle and unplugged in second 8. mail: a disk behind a limit, whose virtqueue is
seen, and which has no device of this host.
"""

import json
from dataclasses import replace
from itertools import pairwise
from typing import Any

from virtune.analyse.layers.path import frame
from virtune.analyse.trial.counters import SCHEMA, read_counters
from virtune.model.bottleneck import Cause, DiskLook, TopFrame
from virtune.model.live import DiskCount, LatencyBins, LiveDisk, LiveSample, LiveVm, RingCount

HEADER = json.dumps({"schema": SCHEMA, "ticks_per_second": 100}).encode() + b"\n"

UNPLUGGED = 8
"""The second from which vdb is gone."""

NO_RINGS = "the wait in the virtqueue: asking where it lies would taint a domain of libvirt's"


def reads_of(second: int) -> int:
    """vda's reads: 10,000 to 14,000 a second, in a row that repeats."""
    return sum(10_000 + 1_000 * (one % 5) for one in range(1, second + 1))


def stat(pid: int, user: int) -> str:
    return f"{pid} (qemu-system-x86) S 1 1 1 0 -1 0 9 0 0 0 {user} 0 0 0 20 0 1 0 77"


def kernel_line(second: int) -> dict[str, Any]:
    """What the sampler writes of a host with two CPUs."""
    reads = reads_of(second)
    ns = second * 10**9
    return {
        "t": ns,
        "wall": 1.7e9 + second,
        "stat": f"cpu {90 * second} 0 {30 * second} {80 * second} 0 0 0 0 0 0\n",
        "diskstats": [
            f"259 0 nvme0n1 {reads} 0 {reads * 8} {reads * 3 // 10} 0 0 0 0 4 {second * 900} {second * 4000}"
        ],
        "threads": {
            "sql1": {
                "100": ["qemu-system-x86", second, 0, second * 10**7, 0],
                "101": ["CPU 0/KVM", 30 * second, 10 * second, 4 * ns // 10, ns // 100],
                "102": ["IO iothread1", 10 * second, 10 * second, 2 * ns // 10, ns // 1000],
            },
            "mail": {"200": ["qemu-system-x86", 5 * second, 5 * second, ns // 10, 0]},
        },
        "processes": {
            "sql1": {"100": {"stat": stat(100, 61 * second), "io": f"read_bytes: {reads * 4096}\nwrite_bytes: 0"}},
            "mail": {"200": {"stat": stat(200, 10 * second), "io": ""}},
        },
        "pressure": {"cpu": f"some avg10=0.00 avg60=0.00 avg300=0.00 total={second * 20_000}"},
        "loadavg": "1.50 1.00 0.50 2/300 4711",
    }


def vms_at(second: int) -> tuple[LiveVm, ...]:
    vda = LiveDisk(target="vda", path="/images/sql1.raw", threads=("IO iothread1",), devices=("nvme0n1",))
    vdb = LiveDisk(target="vdb", path="/images/sql1-log.raw", devices=("nvme0n1",))
    disk0 = LiveDisk(target="disk0", path=None, limits={"write.iops": 2_000.0})
    return (
        LiveVm(name="sql1", pid=100, disks=(vda, vdb) if second < UNPLUGGED else (vda,)),
        LiveVm(name="mail", pid=200, disks=(disk0,)),
    )


def live(second: int, *, offset_ns: int = 0) -> LiveSample:
    """The sample of a second. QEMU's counts may be some ns later than the kernel's."""
    reads, ns = reads_of(second), second * 10**9 + offset_ns
    kernel = json.dumps(kernel_line(second), separators=(",", ":")).encode() + b"\n"
    nothing = {"reads": 0, "writes": 0, "flushes": 0, "read_bytes": 0, "written_bytes": 0, "read_ns": 0,
               "write_ns": 0, "flush_ns": 0}  # fmt: skip
    counts = {
        "sql1": {
            "vda": DiskCount(
                t_ns=ns, **{**nothing, "reads": reads, "read_bytes": reads * 4096, "read_ns": reads * 400_000}
            ),
            "vdb": DiskCount(t_ns=ns, **nothing),
        },
        "mail": {
            "disk0": DiskCount(
                t_ns=ns,
                **{**nothing, "writes": 2_000 * second, "written_bytes": 2_000 * second * 8192,
                   "write_ns": 2_000 * second * 1_000_000},
            ),
        },
    }  # fmt: skip
    if second >= UNPLUGGED:
        del counts["sql1"]["vdb"]
    ring = RingCount(
        completed=2_000 * second,
        seconds=float(second),
        offered=3.0 * second,
        taken=2.0 * second,
        samples=200 * second,
    )
    return LiveSample(
        kernel=kernel,
        host=read_counters(HEADER + kernel).samples[0],
        vms=vms_at(second),
        counts=counts,
        rings={"mail": {"disk0": (ring,)}},
        missing=(NO_RINGS,),
    )


BINS = LatencyBins((1_000_000, 20_000_000, 50_000_000), (900, 80, 19, 1))
"""What a QEMU kept of a thousand reads."""


def frames(seconds: int) -> list[TopFrame]:
    """What was done in each of the first seconds."""
    found = [frame(before, after) for before, after in pairwise(map(live, range(1, seconds + 2)))]
    return [one for one in found if one is not None]


def kept_by_qemu(sample: LiveSample, times: int) -> LiveSample:
    """The same with QEMU's histogram of vda's reads."""
    bins = LatencyBins(BINS.boundaries_ns, tuple(times * one for one in BINS.bins))
    return replace(sample, histograms={"sql1": {"vda": {"read": bins}}})


def look(at: float, latency_ms: float | None, waiting: float = 0.0, disk: str = "vda") -> DiskLook:
    """A look at a disk of sql1, whose requests took so long."""
    return DiskLook(
        wall_seconds=at, seconds=10.0, vm="sql1", disk=disk, iops=100.0 if latency_ms else 0.0, bandwidth=1e6,
        in_flight=1.0, stalled=0.0,
        latency_ns=None if latency_ms is None else latency_ms * 1e6, waiting_seconds=waiting, cause=Cause.DEVICE,
        evidence=("it takes long",),
    )  # fmt: skip
