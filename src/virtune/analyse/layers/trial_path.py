# SPDX-License-Identifier: Apache-2.0
"""A trial's data path: facts for finding its bottleneck, from its captures and measurement."""

import math
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence

from virtune.analyse.layers.measured import depth_of, flush_rate, layers_of
from virtune.analyse.trial.boundaries import device_of
from virtune.analyse.trial.derive import used_by
from virtune.analyse.trial.gates import is_direct, medium
from virtune.analyse.trial.thread_costs import thread_costs
from virtune.model.bottleneck import CONTROL_GROUP, Bottleneck, Cause, DataPath
from virtune.model.counters import Use, group_limits
from virtune.model.layers import Operation, OperationKind
from virtune.model.measurement import Measurement
from virtune.model.stack import LIMITS, Stack
from virtune.model.workload import Workload

WORKERS = 64
"""QEMU's default for the largest number of pool threads (thread-pool-max, QEMU 7.0 and later)."""


def path_of(parts: Mapping[str, bytes], measured: Measurement, stack: Stack, workload: Workload) -> DataPath:
    """Return the facts of a trial."""
    used = used_by(parts, stack)
    iops = measured.get("iops") or 0.0
    layers, depth = layers_of([measured], stack, workload), depth_of(workload)
    latency, operations = measured.get("latency.mean"), tuple(_operations(measured, workload))
    flushing = sum(one.in_flight for one in operations if one.kind == "flush")
    return DataPath(
        iops=iops,
        bandwidth=measured.get("bandwidth") or 0.0,
        layers=layers,
        depth=depth,
        idle=None if depth is None or latency is None else max(0.0, depth - iops * latency / 1e9 - flushing),
        offered=_offered(workload),
        threads=() if used is None else thread_costs(parts, used),
        serving="load" if stack.kind.front == "file" else "iothread" if stack.in_iothread else "main",
        polling=bool(stack.poll_max_ns) or (stack.in_iothread and stack.poll_max_ns is None),
        workers_max=_workers(stack),
        limits=_limits(stack, measured) | _group_limits(used, measured),
        limited_by={limit.unit: limit.knob for limit in LIMITS if limit.qmp in stack.disk.limits},
        throttled=None if used is None or used.throttled_seconds is None else used.throttled_seconds / used.seconds,
        latency_ns=latency,
        stands_in_ns=float(stack.disk.null_latency_ns) if stack.disk.backend == "null-co" else None,
        served=_served(measured, used, stack),
        device_busy=used.disks[0].busy_percent / 100 if used is not None and used.disks else None,
        load_busy=_load_busy(measured),
        foreign_cpus=None if used is None else used.foreign_cpus,
        device_ns=_device_ns(used, stack, workload),
        others_share=None if used is None or not used.disks else used.foreign_share(used.disks[0].name),
        tables=stack.disk.format == "qcow2" and stack.disk.backend == "file",
        guest_polls=stack.machine.is_bare and stack.kind.own_guest and not _said(parts, "hipri=0"),
        load_polls=_said(parts, "hipri=1") or _said(parts, "hipri"),
        emulated=parts.get("accelerator.txt", b"").startswith(b"tcg"),
        operations=operations,
    )


def _operations(measured: Measurement, workload: Workload) -> Iterator[Operation]:
    """Yield what the load did of each kind; fio times flushes apart, and one comes after every so many writes."""
    rates: tuple[tuple[OperationKind, float | None, float | None], ...] = (
        ("read", measured.get("read.iops"), measured.get("read.latency.mean")),
        ("write", measured.get("write.iops"), measured.get("write.latency.mean")),
        ("flush", flush_rate(measured, workload), measured.get("sync.mean")),
    )
    for kind, iops, mean in rates:
        if iops and mean:
            moved = measured.get(f"{kind}.bandwidth") or 0.0
            yield Operation(kind=kind, iops=iops, bandwidth=moved, mean_ns=mean, in_flight=iops * mean / 1e9)


def bottleneck_of(found: Sequence[Bottleneck]) -> Bottleneck | None:
    """Return the bottleneck that more than half of an arm's rounds show, else `undecidable`."""
    if not found:
        return None
    counts = Counter(one.cause for one in found)
    cause, rounds = counts.most_common(1)[0]
    if rounds * 2 <= len(found):
        said = ", ".join(f"{one.value} {count}" for one, count in counts.most_common())
        return Bottleneck(
            cause=Cause.UNDECIDED,
            evidence=(f"the rounds do not agree: {said}",),
            experiment="more rounds, on a quieter host",
            rounds=rounds,
            of=len(found),
        )
    first = next(one for one in found if one.cause is cause)
    return Bottleneck(cause=cause, evidence=first.evidence, experiment=first.experiment, rounds=rounds, of=len(found))


def _workers(stack: Stack) -> int | None:
    """Return the largest number of pool threads that do the disk's I/O; None without a pool."""
    if stack.kind.front == "file" or stack.disk.backend != "file" or stack.disk.aio != "threads":
        return None
    return stack.thread_pool_max or WORKERS


def _offered(workload: Workload) -> float | None:
    """Return the rate at which I/Os are offered; None if any job is a closed loop."""
    if workload.offered_iops is not None:
        return workload.offered_iops
    rates = [(job.get("rate_iops", ""), int(job.get("numjobs", "1"))) for job in workload]
    if not rates or not all(rate.isdecimal() for rate, _ in rates):
        return None
    return float(sum(int(rate) * clones for rate, clones in rates))


def _limits(stack: Stack, measured: Measurement) -> dict[str, tuple[float, float]]:
    """Return each limit of QEMU's throttle with the measured rate in the same unit."""
    found, asked = {}, stack.disk.limits
    for limit in LIMITS:
        allowed, done = asked.get(limit.qmp), measured.get(limit.unit.replace("bps", "bandwidth"))
        if allowed and done is not None:
            found[limit.unit] = (float(allowed), done)
    return found


def _group_limits(used: Use | None, measured: Measurement) -> dict[str, tuple[float, float]]:
    """Return the limits that our control groups set on the disk, each with the measured rate in the same unit."""
    if used is None or not used.disks:
        return {}
    found: dict[str, tuple[float, float]] = {}
    numbers = {one.number for one in used.disks}
    for unit, limit in group_limits(used.io_limits, numbers).items():
        done = measured.get(unit.replace("bps", "bandwidth"))
        if done is not None:
            found[f"{CONTROL_GROUP}{unit}"] = (limit, done)
    return found


def _device_ns(used: Use | None, stack: Stack, workload: Workload) -> float | None:
    """Return the mean time of all requests at the device; None where the load does not wait for it."""
    timed = None if used is None or stack.spread is not None else device_of(used)
    return timed.mean_ns if timed is not None and is_direct(stack, workload) else None


def _said(parts: Mapping[str, bytes], option: str) -> bool:
    """Whether a line of the job is this option (`hipri=1`: poll, the default of a guest without a system)."""
    return option.encode() in parts.get("job.fio", b"").splitlines()


def _served(measured: Measurement, used: Use | None, stack: Stack) -> float | None:
    """Return the share of reads that the device served; None without reads or without a device."""
    reads = measured.get("read.bandwidth")
    if used is None or not used.disks or not reads or stack.disk.backend != "file" or stack.spread is not None:
        return None
    # others may read from the device as well, so the bytes that our own processes read are the better bound
    own = [role.read_bytes for role in used.roles if role.read_bytes is not None]
    return min(medium(used).read_bytes, max(own, default=medium(used).read_bytes)) / used.seconds / reads


def _load_busy(measured: Measurement) -> float | None:
    parts = [measured.get("cpu.load.usr"), measured.get("cpu.load.sys")]
    known = [one for one in parts if one is not None]
    return math.fsum(known) / 100 if len(known) == len(parts) else None
