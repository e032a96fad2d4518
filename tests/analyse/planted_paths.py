# SPDX-License-Identifier: Apache-2.0
"""Data paths in which something is planted that limits the disk."""

from collections.abc import Mapping
from dataclasses import replace
from typing import Any

from virtune.analyse.layers.path import split
from virtune.model.bottleneck import Cause, DataPath
from virtune.model.counters import ThreadCost
from virtune.model.live import Layers, Operation
from virtune.model.metric import Boundary

SHARES: Mapping[Boundary, float] = {"application": 0.2, "guest": 0.2, "ring": 0.2, "backend": 0.2, "device": 0.2}
"""An I/O whose time goes everywhere alike: no layer has half of it."""


def thread(role: Any, name: str, *, busy: float, stalled: float = 0.0) -> ThreadCost:
    return ThreadCost(
        role=role, name=name, tid=7, seconds=10.0, cpu_seconds=10 * busy, user_seconds=5 * busy,
        system_seconds=5 * busy, wait_seconds=10 * stalled,
    )  # fmt: skip


def layers(shares: Mapping[Boundary, float], *, iops: float = 10e3, depth: float = 8.0) -> Layers:
    """The layers of a load that keeps `depth` I/Os in flight."""
    total, names = depth / iops * 1e9, list(shares)
    below = {one: [total * sum(shares[name] for name in names[index:])] for index, one in enumerate(names)}
    return split("guest", below, {one: [1.0] for one in names[1:]}, [iops], depth=depth)


def path(shares: Mapping[Boundary, float] = SHARES, *, depth: float = 8.0, **facts: Any) -> DataPath:
    """A guest at work in which nothing is the limit, but for what is planted."""
    quiet = {
        "iothread": thread("iothread", "IO iothread0", busy=0.3),
        "vcpu": thread("vcpu", "CPU 0/KVM", busy=0.5),
    } | facts.pop("threads", {})
    found = layers(shares, depth=depth)
    return DataPath(
        iops=10e3, bandwidth=41e6, layers=found, depth=depth, idle=facts.pop("idle", 0.0), serving="iothread",
        threads=tuple(quiet.values()), latency_ns=found.total_ns, **facts,
    )  # fmt: skip


def of(**kinds: tuple[float, float]) -> tuple[Operation, ...]:
    """Operations by kind: how many a second, and the mean time of each in ns."""
    return tuple(
        Operation(kind=kind, iops=iops, bandwidth=0.0, mean_ns=mean, in_flight=iops * mean / 1e9)  # type: ignore[arg-type]
        for kind, (iops, mean) in kinds.items()
    )


def mostly(boundary: Boundary, share: float) -> dict[Boundary, float]:
    rest = (1 - share) / (len(SHARES) - 1)
    return {one: share if one == boundary else rest for one in SHARES}


STARVED = thread("iothread", "IO iothread0", busy=0.3, stalled=0.3)


SPINNING = thread("vcpu", "CPU 0/KVM", busy=0.99)


WORKER = thread("worker", "worker", busy=0.25)


NEAR = {"iops": (12_500.0, 10_000.0)}
"""A limit of which 80 % are done: a main loop without a CPU lets the next request go too late."""


PLANTED: tuple[tuple[Cause, DataPath], ...] = (
    (Cause.DEVICE, path(mostly("device", 0.55))),
    (Cause.DEVICE, path(mostly("device", 0.9), device_busy=1.0)),
    (Cause.DEVICE, path(stands_in_ns=500_000.0)),
    (Cause.DEVICE, replace(path(stands_in_ns=700_000.0), layers=None)),
    (Cause.BACKEND, path(mostly("backend", 0.6))),
    (Cause.RING, path(mostly("ring", 0.6))),
    (Cause.IOTHREAD, path(threads={"iothread": thread("iothread", "IO iothread0", busy=0.92)})),
    (Cause.IOTHREAD, path(threads={"iothread": thread("iothread", "IO iothread0", busy=0.8, stalled=0.15)})),
    (Cause.IOTHREAD, path(threads={"iothread": thread("iothread", "IO iothread0", busy=0.7, stalled=0.25)})),
    (Cause.MAIN_LOOP, replace(path(threads={"main": thread("main", "qemu", busy=0.97)}), serving="main")),
    (Cause.VCPU, path(threads={"vcpu": thread("vcpu", "CPU 0/KVM", busy=0.99)})),
    (Cause.WORKERS, path(mostly("backend", 0.8), depth=32.0, workers_max=1)),
    (Cause.WORKERS, path(mostly("device", 0.8), depth=128.0, workers_max=64)),
    (Cause.DEPTH, path(mostly("device", 0.9), depth=1.0)),
    (Cause.DEPTH, path(depth=1.0)),
    (Cause.THROTTLE, path(limits={"iops": (10_200.0, 10_000.0)})),
    (Cause.THROTTLE, path(limits={"iops": (99_000.0, 10_000.0), "read.bps": (42e6, 41e6)})),
    (Cause.THROTTLE, path(throttled=0.4)),
    (
        Cause.THROTTLE,
        replace(
            path(
                mostly("backend", 0.9),
                limits=NEAR,
                device_ns=20_000.0,
                threads={"main": thread("main", "qemu", busy=0.3, stalled=0.4)},
            ),
            serving="main",
        ),
    ),
    (Cause.HOST_CPU, path(threads={"iothread": thread("iothread", "IO iothread0", busy=0.3, stalled=0.25)})),
    (Cause.HOST_CPU, path(threads={"vcpu": thread("vcpu", "CPU 0/KVM", busy=0.5, stalled=0.5)}, foreign_cpus=1.0)),
    (
        Cause.HOST_CPU,
        path(mostly("ring", 0.9), threads={"iothread": thread("iothread", "IO iothread0", busy=0.06, stalled=0.4)}),
    ),
    (Cause.PAGE_CACHE, path(served=0.3)),
    (Cause.PAGE_CACHE, path(mostly("application", 0.9), served=0.0)),
    (Cause.LOAD, path(idle=4.0)),
    (Cause.LOAD, path(mostly("application", 0.7), load_busy=0.98)),
    (Cause.NOT_BOUND, path(offered=10_000.0)),
    (Cause.DEVICE, path({"application": 0.6, "ring": 0.4}, device_ns=600_000.0, others_share=0.8)),
    (Cause.DEVICE, path({"application": 1.0}, device_ns=801_000.0)),
    (Cause.DEVICE, path({"application": 1.0}, device_ns=1_700_000.0, others_share=0.9)),
    (Cause.DEVICE, path(mostly("device", 0.6), threads={"vcpu": thread("vcpu", "CPU 0/KVM", busy=0.99)})),
    (Cause.DEVICE, path(mostly("device", 0.7), threads={"iothread": STARVED})),
    (Cause.BACKEND, path(served=1.6, tables=True)),
    (Cause.WORKERS, path(depth=32.0, workers_max=1, device_ns=70_000.0, threads={"iothread": STARVED, "w": WORKER})),
    (Cause.VCPU, path(mostly("application", 0.6), threads={"vcpu": SPINNING}, guest_polls=True)),
    (Cause.VCPU, path(idle=3.0, threads={"vcpu": SPINNING}, guest_polls=True)),
    (Cause.LOAD, path({"application": 1.0}, threads={"load": thread("load", "fio", busy=0.8, stalled=0.15)})),
    (Cause.DEPTH, path(depth=1.0, threads={"iothread": thread("iothread", "IO iothread0", busy=0.99)}, polling=True)),
    (Cause.NOT_BOUND, path(offered=10_000.0, threads={"vcpu": SPINNING, "iothread": STARVED})),
    (Cause.HUNG, DataPath(iops=0.0, held=9, held_seconds=6.0)),
    (Cause.HUNG, path(held=9, held_seconds=3.0)),
    (Cause.FLUSH, path(operations=of(write=(50, 2e6), flush=(50, 18e6)))),
    (Cause.FLUSH, path(depth=1.0, operations=of(read=(10, 1e5), flush=(2, 200e6)))),
    (Cause.DISCARD, path(operations=of(write=(50, 1e6), discard=(1300, 1e6)))),
    (Cause.MEMORY, path(faults=8.0, memory_pressure=0.6)),
    (Cause.MEMORY, path(depth=1.0, faults=44.5, fault_ns=2.96e6, memory_pressure=0.0)),
    (Cause.MEMORY, path(depth=1.0, faults=2_000.0)),
    (Cause.DEPTH, path(depth=1.0, faults=44.5, fault_ns=0.1e6)),
    (Cause.MEMORY, DataPath(iops=0.0, faults=8.0, memory_pressure=0.6)),
    (Cause.DEPTH, path({"ring": 0.2, "backend": 0.6, "device": 0.2}, depth=3.0, ring_size=4)),
    (Cause.UNDECIDED, path()),
    (Cause.UNDECIDED, DataPath(iops=0.0)),
    (Cause.UNDECIDED, DataPath(iops=0.0, held=0, faults=8.0)),
    (Cause.IDLE, DataPath(iops=0.0, held=0)),
    (Cause.IDLE, DataPath(iops=0.0, held=0, others_share=1.0, unread=("a backing image: /base.raw",))),
    (Cause.UNDECIDED, DataPath(iops=0.0, failed=30.0)),
    (Cause.UNDECIDED, DataPath(iops=0.0, held=3, held_seconds=0.1)),
    (Cause.UNDECIDED, DataPath(iops=500.0)),
)
