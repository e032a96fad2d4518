# SPDX-License-Identifier: Apache-2.0
"""Read the gates: what a trial's evidence says of disturbances other than the disk (see `virtune.model.gate`).

CPU pressure from other processes is separated from the rig's own. PSI cannot do that: a pool of 64 workers on two
CPUs makes "some task waits" true most of the time, on an otherwise idle machine. So the measure is how long the
threads of rig and load waited for a CPU, and the part of it for which other processes had the CPUs.
"""

import math
from collections.abc import Iterator
from dataclasses import dataclass

from virtune.analyse.trial.validity_rules import done_of, in_flight, shortfall
from virtune.fio.job_options import SYNCHRONOUS
from virtune.model.counters import DiskUse, Use
from virtune.model.gate import GATE_BY_ID, Gate
from virtune.model.measurement import FioResult
from virtune.model.remark import Remark, Weight
from virtune.model.remark_kinds import CPU_PRESSURE
from virtune.model.stack import DIRECT_CACHES, Stack
from virtune.model.units import format_bytes, format_count, format_seconds, format_share
from virtune.model.workload import Workload

RESIDENT_BYTES = 1024**2
"""If less of the image than this is in the page cache, the cache cannot serve reads that are spread over all of it.
"""

LITTLE_BPS = 128 * 1024
"""Other processes with less I/O than this (bytes a second) do not disturb, however small the load is."""

PRESSURE_PERCENT = 25.0
"""From this share of time on in which some task waited for a CPU, the CPU affects the measurement."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Reading:
    """One gate's reading in one trial, in the gate's unit, with its meaning in words."""

    gate: Gate
    value: float
    text: str

    @property
    def weight(self) -> Weight | None:
        """The severity of the reading; None when it is within both limits."""
        if self.gate.invalid is not None and self.value > self.gate.invalid:
            return Weight.INVALID
        return Weight.WARNING if self.gate.flag is not None and self.value > self.gate.flag else None

    def remark(self) -> Remark | None:
        """Return its remark; None when it is within both limits."""
        if self.weight is None:
            return None
        return self.gate.remark(weight=self.weight, text=self.text)


def read_gates(result: FioResult, used: Use | None, stack: Stack, workload: Workload) -> tuple[Reading, ...]:
    """Read every gate for which there is evidence; a gate without evidence passes.

    `used` is the host's resource use in the measured time, None if unknown.
    """
    found = list(_of_load(result))
    if used is not None:
        found += [*_of_cpu(used), *_of_device(result, used, stack, workload), *_of_host(used, workload)]
    return tuple(found)


def _reading(gate: str, value: float, text: str) -> Reading:
    return Reading(gate=GATE_BY_ID[gate], value=value, text=text)


def _of_load(result: FioResult) -> Iterator[Reading]:
    idle = [any(name.startswith(("rate", "thinktime")) for name, _ in load.options or ()) for load in result.loads]
    flying = [in_flight(load) for load in result.loads]
    asked = [load.jobs if load.engine in SYNCHRONOUS else load.depth for load in result.loads]
    short = [
        1 - found / meant
        for found, meant, free in zip(flying, asked, idle, strict=True)
        if found is not None and meant and not free
    ]
    if short:
        yield _reading(
            "generator",
            max(0.0, *short),
            f"{format_share(max(short))} of the time passed outside the I/Os (Little's law): the load"
            " generator, not only"
            " the disk,"
            " was the limit",
        )
    cpu = [
        (load.usr_percent + load.sys_percent) / 100
        for load in result.loads
        if load.usr_percent is not None and load.sys_percent is not None
    ]
    if cpu:
        yield _reading(
            "saturated-cpu",
            max(cpu),
            f"a job of the load kept its CPU {format_share(max(cpu))} busy: it may be the limit rather than the disk",
        )
    for load in result.loads:
        offered, unmet = load.rate_asked_iops, shortfall(load)
        if offered and unmet is not None:
            yield _reading(
                "rate-unmet",
                unmet,
                f"saturated: {format_count(offered)} operations a second were offered and"
                f" {format_count(done_of(load))} done, so its latencies are those of an ever-growing queue,"
                " and its percentiles are not compared",
            )


def _of_cpu(used: Use) -> Iterator[Reading]:
    if used.cpu is not None:
        yield _reading(
            "steal",
            used.cpu.steal_percent / 100,
            f"CPU steal {used.cpu.steal_percent:.1f} %: the physical host ran other VMs meanwhile",
        )
        if (waiting := _waiting(used)) is not None:
            lost = math.prod(waiting)
            told = format_share(lost, 1 if lost < 0.1 else 0)
            yield _reading(
                "cpu-wait",
                lost,
                f"CPU contention: other processes kept QEMU and the load waiting for about {told} of the time in"
                " which these wanted a CPU",
            )
    if used.throttled_seconds is not None:
        share = min(1.0, used.throttled_seconds / used.seconds)
        text = f"a control group throttled the CPU for {format_seconds(used.throttled_seconds)} of the measured time"
        yield _reading("cpu-throttled", share, text)
    if used.heat_throttles is not None:
        text = f"thermal throttling: {used.heat_throttles} events"
        yield _reading("cpu-heat", used.heat_throttles, text)
    if used.frequency_ratio is not None:
        text = f"the fastest CPU dropped to {format_share(used.frequency_ratio)} of its initial frequency"
        yield _reading("frequency", max(0.0, 1 - used.frequency_ratio), text)


def _waiting(used: Use) -> tuple[float, float] | None:
    """Return the share of runnable time that our threads waited, and the part of others in the busy time.

    Without schedstat the PSI share of time in which some task waited is used, which is never less.
    """
    if used.cpu is None or not used.roles or used.cpu.busy_seconds <= 0 or (foreign := used.foreign_cpus) is None:
        return None
    waits = [role.wait_seconds for role in used.roles if role.wait_seconds is not None]
    if waits:
        wanted = math.fsum(role.cpu_seconds for role in used.roles) + math.fsum(waits)
        waited = math.fsum(waits) / wanted if wanted else 0.0
    else:
        some = pressure_percent(used)
        if some is None:
            return None
        waited = some / 100
    return waited, foreign * used.seconds / used.cpu.busy_seconds


def pressure_percent(used: Use) -> float | None:
    """Return the share of time in which some task waited for a CPU, in %."""
    return next((one.some_percent for one in used.pressure if one.resource == "cpu"), None)


def own_pressure(used: Use) -> Iterator[Remark]:
    """`cpu-pressure`: our own threads compete for the CPUs. The trial is valid, but CPU-limited."""
    some = pressure_percent(used)
    if some is not None and some > PRESSURE_PERCENT:
        yield CPU_PRESSURE.remark(
            text=f"the CPUs are part of the limit: for {some:.0f} % of the time some thread had to wait for a CPU,"
            " mostly one of QEMU or the load itself",
        )


def _of_device(result: FioResult, used: Use, stack: Stack, workload: Workload) -> Iterator[Reading]:
    direct = is_direct(stack, workload)
    if used.drive_over_c is not None:
        where = "above" if used.drive_over_c > 0 else "below"
        text = f"the drive is {abs(used.drive_over_c):.0f} degrees {where} its throttling limit"
        yield _reading("drive-heat", used.drive_over_c, text)
    if not used.disks or stack.disk.backend != "file" or not direct or stack.spread is not None:
        return
    disk = _whole(used.disks)
    foreign = used.foreign_share(disk.name)
    moved = disk.read_bytes + disk.written_bytes
    if foreign is not None:
        enough = foreign * moved >= LITTLE_BPS * used.seconds
        part = f"{format_bytes(foreign * moved)} of {format_bytes(moved)}"
        text = f"{format_share(foreign)} of the I/O of {disk.name}, {part}, was not of QEMU or the load"
        yield _reading(
            "foreign-io",
            foreign if enough else 0.0,
            text,
        )
    served = served_share(result, used, workload)
    resident = max((cache.end_bytes for cache in used.caches), default=0)
    if served is not None:
        text = f"{medium(used).name} served {format_share(served)} of the bytes read, the page cache the rest"
        value = max(0.0, 1 - served) if resident >= RESIDENT_BYTES else 0.0
        yield _reading(
            "page-cache",
            value,
            text,
        )


def is_direct(stack: Stack, workload: Workload) -> bool:
    """Whether all I/O is meant to bypass the host's page cache."""
    return workload.direct and (stack.kind.front == "file" or stack.disk.cache in DIRECT_CACHES)


def served_share(result: FioResult, used: Use, workload: Workload) -> float | None:
    """Return the device's bytes read over fio's (bytes, because requests are merged).

    None where nothing was read, and for a load that ends after a number of I/Os, which is too short for a bandwidth.
    The device's bytes are those of the counters' window and fio's are a mean: stalls of the host make them differ.
    """
    if workload.recorded:
        return None
    streams = (stream for load in result.loads for stream in load.streams if stream.direction == "read")
    asked = math.fsum(stream.bandwidth_bps for stream in streams) * used.seconds
    return medium(used).read_bytes / asked if used.disks and asked > 0 else None


def medium(used: Use) -> DiskUse:
    """Return the device whose reads show what the page cache did not serve.

    A loop device counts every read, also those from the cached pages of its file, so the device below it is used.
    """
    below = (disk for disk in used.disks if not disk.name.startswith("loop"))
    return next(below, used.disks[0]) if used.disks[0].name.startswith("loop") else used.disks[0]


def _whole(disks: tuple[DiskUse, ...]) -> DiskUse:
    """Return the whole disk of a partition, as others may use its other partitions; else the filesystem's device."""
    first, last = disks[0], disks[-1]
    return last if len(disks) == 2 and first.name.startswith(last.name) else first


def _of_host(used: Use, workload: Workload) -> Iterator[Reading]:
    limits = len(used.io_limits)
    text = f"a control group limits our I/O: {'; '.join(used.io_limits)}"
    yield _reading("io-limit", limits, text)
    if used.swapped_pages is not None:
        rate = used.swapped_pages / used.seconds
        text = f"the host swapped {used.swapped_pages} pages, {rate:.0f} a second"
        yield _reading("swap", rate, text)
    faults = [role.major_faults for role in used.roles if role.major_faults is not None]
    if faults and all(job.get("ioengine", "") != "mmap" for job in workload):
        text = f"{sum(faults)} major page faults: QEMU or the load waited for memory to be read from disk"
        yield _reading("major-faults", sum(faults), text)
    text = (
        f"the clock stepped by {format_seconds(used.clock_step_seconds)}, or the machine was suspended for that long"
    )
    yield _reading("clock-step", used.clock_step_seconds, text)
    changes = max(0, len(used.clock_sources) - 1)
    text = f"the kernel changed its clock source: {' to '.join(used.clock_sources)}"
    yield _reading("clock-source", changes, text)
