# SPDX-License-Identifier: Apache-2.0
"""What the disks of the running VMs did between two samples: rates, layers, threads, limits."""

import itertools
import math
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import replace

from virtune.analyse.layers.bottleneck import judge
from virtune.analyse.layers.path import LivePath, live_paths
from virtune.analyse.trial.usage import thread_costs, use
from virtune.model.bottleneck import DiskFrame, ThreadFrame, TopFrame, VmFrame
from virtune.model.counters import Counters, ThreadCost, Use
from virtune.model.errors import StoreError
from virtune.model.live import (
    DiskCount,
    LiveDisk,
    LiveSample,
    LiveVm,
    RingCount,
    RingRates,
    began_anew,
    rates_between,
    ring_rates_between,
)

_APART = 0.2
"""A virtqueue that completed this much more or less than QEMU counted is read at a place where it no longer is: the
guest has set its device up anew."""

_FEW = 64
"""Requests that may be between the two counts at any moment."""

_SHARED = ("worker", "uring", "kernel")
"""Roles of threads that serve all disks of a VM."""


def frame(before: LiveSample, after: LiveSample) -> TopFrame | None:
    """Return what happened between two samples; None where they are of one moment or in the wrong order."""
    if after.host.t_ns <= before.host.t_ns:
        return None
    try:
        used = use(Counters(samples=(before.host, after.host)))
    except StoreError:
        return None
    vms = tuple(_vm(one, before, after, used) for one in after.vms)
    return TopFrame(
        wall_seconds=after.host.wall_seconds,
        seconds=used.seconds,
        vms=vms,
        host=used,
        missing=(*not_watched(after.vms), *after.missing, *_silent(after), *_unreadable(after.vms, used)),
    )


def rings_moved(before: LiveSample, after: LiveSample) -> bool:
    """Whether a disk's virtqueues are no longer where they were: their count differs from QEMU's."""
    return any(
        _moved(found, before.counts[vm][disk], after.counts[vm][disk])
        for vm, disks in after.rings.items()
        for disk, counts in disks.items()
        if disk in before.counts.get(vm, {})
        and disk in after.counts.get(vm, {})
        and (found := ring_rates_between(before.rings.get(vm, {}).get(disk, ()), counts)) is not None
    )


def disk_series(samples: Sequence[LiveSample], vm: str, disk: str) -> list[tuple[float, float, float, float]]:
    """Return of each interval between samples a disk's IOPS, bytes a second, latency in ns, and requests in flight,
    as QEMU counts them; zeros where it was not there. Where none was completed, those are in flight that wait.
    """
    found = []
    for before, after in itertools.pairwise(samples):
        then, now = before.counts.get(vm, {}).get(disk), after.counts.get(vm, {}).get(disk)
        same = then is not None and now is not None and now.t_ns > then.t_ns and not began_anew(then, now)
        rates = rates_between(then, now) if same and then is not None and now is not None else None
        if rates is None or rates.requests <= 0:
            waiting = sum(one.inside for one in after.rings.get(vm, {}).get(disk, ())) if same else 0
            found.append((0.0, 0.0, 0.0, float(waiting)))
            continue
        moved = (rates.read_bytes + rates.written_bytes) / rates.seconds
        found.append(
            (rates.requests / rates.seconds, moved, rates.total_ns / rates.requests, max(0.0, rates.in_flight))
        )
    return found


def _vm(vm: LiveVm, before: LiveSample, after: LiveSample, used: Use) -> VmFrame:
    role = used.role(vm.name)
    own = replace(used, roles=() if role is None else (replace(role, role="guest"),))
    then, now = before.counts.get(vm.name, {}), after.counts.get(vm.name, {})
    rings = dict(_rings(before.rings.get(vm.name, {}), after.rings.get(vm.name, {}), then, now))
    paths = [_beside(after.vms, vm, one) for one in live_paths(vm, vm.disks, (then, now), own, rings)]
    costs = thread_costs({}, own)
    served: dict[tuple[str, ...], float] = {}
    for one in paths:
        served[one.disk.threads] = served.get(one.disk.threads, 0.0) + one.path.iops
    iops = math.fsum(one.path.iops for one in paths)
    return VmFrame(
        vm=vm.name,
        disks=tuple(
            DiskFrame(
                vm=vm.name,
                disk=one.disk.target,
                rates=one.rates,
                path=one.path,
                found=judge(one.path),
                cpu_per_io_ns=_cpu_per_io_ns(one.disk, served, costs) if one.path.iops > 0 else None,
            )
            for one in paths
        ),
        threads=tuple(ThreadFrame(vm=vm.name, cost=one, iops=iops) for one in costs),
        seen=bool(costs),
        emulated=vm.emulated,
    )


def _beside(vms: Sequence[LiveVm], vm: LiveVm, found: LivePath) -> LivePath:
    """Return what a disk did with the names of the other VMs that have a disk on its device."""
    device = found.disk.devices[:1]
    names = [one.name for one in vms if one.name != vm.name and any(disk.devices[:1] == device for disk in one.disks)]
    return replace(found, path=replace(found.path, neighbours=tuple(names))) if device and names else found


def _rings(
    before: Mapping[str, Sequence[RingCount]],
    after: Mapping[str, Sequence[RingCount]],
    then: Mapping[str, DiskCount],
    now: Mapping[str, DiskCount],
) -> Iterator[tuple[str, tuple[RingRates, ...]]]:
    for disk, counts in after.items():
        found = ring_rates_between(before.get(disk, ()), counts)
        both = disk in then and disk in now
        if found is not None and both and not _moved(found, then[disk], now[disk]):
            yield disk, (found,)


def _moved(found: RingRates, then: DiskCount, now: DiskCount) -> bool:
    rates = rates_between(then, now)
    if rates.seconds <= 0:
        return False
    # the two are read one after the other, on a busy host seconds apart: their rates are compared
    expected = (rates.requests + (rates.failed or 0)) * found.seconds / rates.seconds
    return abs(found.completed - expected) > max(_FEW, _APART * expected)


def _cpu_per_io_ns(
    disk: LiveDisk, served: Mapping[tuple[str, ...], float], costs: Iterable[ThreadCost]
) -> float | None:
    """Return the CPU time for an I/O of a disk: of the threads that serve it, each shared among the I/Os of all disks
    that it serves. `served` is the rate of the disks that the same threads serve. vCPUs are left out, since they run
    the guest's programs.
    """
    names = {name[:15] for name in disk.threads}
    mine = [one for one in costs if (one.role == "main" if not names else one.name in names)]
    shared = [one for one in costs if one.role in _SHARED]
    beside, everyone = served[disk.threads], math.fsum(served.values())
    if not mine or beside <= 0:
        return None
    own, others = (math.fsum(one.busy for one in group) for group in (mine, shared))
    return (own / beside + others / everyone) * 1e9


def not_watched(vms: Sequence[LiveVm]) -> tuple[str, ...]:
    """Say which VMs cannot be looked at, and why."""
    return tuple(f"{one.name}: {one.failed}" for one in vms if one.failed)


def _silent(after: LiveSample) -> Iterator[str]:
    """Say which VMs have disks and gave no counters of them."""
    names = [one.name for one in after.vms if one.disks and not after.counts.get(one.name)]
    if names:
        yield (
            f"the disks of {_some(names)}: the QEMU gives no counters; it hangs, is stopped, or a job of libvirt"
            " holds it (`virsh domjobinfo`)"
        )


def _some(names: Sequence[str]) -> str:
    return ", ".join(names[:3]) + (" and others" if len(names) > 3 else "")


def _unreadable(vms: Sequence[LiveVm], used: Use) -> Iterator[str]:
    """Say once for all VMs what their processes do not show."""
    names = [
        one.name
        for one in vms
        if one.pid is not None and (role := used.role(one.name)) is not None and role.read_bytes is None
    ]
    if names:
        why = "/proc/PID/io is for root and QEMU's own user only"
        yield f"how much of the reads of {_some(names)} reached a device: {why}"
