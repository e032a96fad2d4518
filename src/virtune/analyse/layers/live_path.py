# SPDX-License-Identifier: Apache-2.0
"""The data path of a running VM's disk: facts for finding its bottleneck, from the counters of QEMU and the host."""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace

from virtune.analyse.layers.split import split
from virtune.analyse.trial.boundaries import Timed, timed_disk
from virtune.analyse.trial.thread_costs import thread_costs
from virtune.model.bottleneck import CONTROL_GROUP, DataPath
from virtune.model.counters import Use
from virtune.model.layers import BOUNDARIES, DEVIATION, Boundary, Layers
from virtune.model.live import (
    DiskCount,
    DiskRates,
    LiveDisk,
    LiveVm,
    RingRates,
    began_anew,
    rates_between,
    throttled_rates,
)
from virtune.model.threads import ThreadCost
from virtune.model.units import format_share

_ENOUGH_SEEN = 30
"""With fewer requests seen in the virtqueue, all samples together, their mean number is not believed: of independent
samples its standard error is 1 / sqrt(30), 18 %."""

_ENOUGH_BYTES = 1024**2
"""With fewer bytes read, page-cache hits are not estimated; with fewer moved by a device, nor are others on it."""


@dataclass(frozen=True, slots=True, kw_only=True)
class LivePath:
    """A disk of a running VM between two counts."""

    disk: LiveDisk
    rates: DiskRates
    path: DataPath


def live_paths(
    vm: LiveVm,
    disks: Sequence[LiveDisk],
    counts: tuple[Mapping[str, DiskCount], Mapping[str, DiskCount]],
    used: Use | None,
    rings: Mapping[str, Sequence[RingRates]],
) -> Iterator[LivePath]:
    """Yield what each of these disks of a VM did between two counts. `used` has the VM's process under the role
    `guest`. A disk that is not in both counts, or whose counters began anew, is left out.
    """
    before, after = counts
    both = [name for name in after if name in before and not began_anew(before[name], after[name])]
    known = {one.target: one for one in (*disks, *vm.disks)}
    read = {
        name: after[name].read_bytes - before[name].read_bytes
        for name in both
        if name not in known or known[name].path is not None  # what comes over a network is no read of a device
    }
    direct_read = sum(count for name, count in read.items() if name in known and known[name].direct)
    between = {name: rates_between(before[name], after[name]) for name in both}
    between = {name: one for name, one in between.items() if one.seconds > 0}
    served = _thread_iops(known, between)
    for disk in disks:
        rates = between.get(disk.target)
        if rates is None:
            continue
        mine = None if used is None else _of_disk(used, disk.devices)
        path = live_path(disk, rates, mine, rings=rings.get(disk.target, ()), all_read=sum(read.values()),
                         direct_read=direct_read)  # fmt: skip
        group = [
            between[name] for name, one in known.items() if disk.group and one.group == disk.group and name in between
        ]
        done = throttled_rates(group or [rates])
        yield LivePath(
            disk=disk,
            rates=rates,
            path=replace(
                path,
                emulated=vm.emulated,
                origin="libvirt" if vm.uri else "monitor",
                thread_iops=served,
                limits={**path.limits, **{unit: (limit, done[unit]) for unit, limit in disk.limits.items()}},
            ),
        )


def _thread_iops(disks: Mapping[str, LiveDisk], rates: Mapping[str, DiskRates]) -> dict[str, float]:
    """Return the rate of the disks of each IOThread, of the main loop, and of all, by `DataPath.thread_iops`."""
    found = {"main": 0.0, "": 0.0}
    for target, one in rates.items():
        iops = one.requests / one.seconds if one.seconds > 0 else 0.0
        threads = [name[:15] for name in disks[target].threads] if target in disks else []
        for key in ("", *(threads or ["main"])):
            found[key] = found.get(key, 0.0) + iops
    return found


def _of_disk(used: Use, devices: Sequence[str]) -> Use:
    """Keep only the devices below one disk, from the top of the chain down."""
    kept = [found for name in devices if (found := used.disk(name)) is not None]
    return replace(used, disks=tuple(kept))


def live_path(
    disk: LiveDisk,
    rates: DiskRates,
    used: Use | None,
    *,
    rings: Sequence[RingRates],
    all_read: int,
    direct_read: int = 0,
) -> DataPath:
    """Return the facts of a disk under load. `rings` are the observations of its virtqueues; `all_read` is the number
    of bytes read from all disks of its VM that lie on this host, since the process's counters do not separate disks,
    and `direct_read` how many of these passed the page cache by.
    """
    threads = () if used is None else _carrying(disk, thread_costs({}, used))
    timed = None if used is None or not used.disks or not disk.direct else timed_disk(used.disks[0], used.seconds)
    done, role = throttled_rates([rates]), None if used is None else used.role("guest")
    held, quiet = _held(rates, used, rings)
    return DataPath(
        iops=rates.requests / rates.seconds,
        bandwidth=done["bps"],
        layers=_layers(disk, rates, used, rings),
        threads=threads,
        serving="iothread" if disk.threads else "main",
        polling=disk.polling,
        limits={
            **{unit: (limit, done[unit]) for unit, limit in disk.limits.items()},
            # of the whole group: that of several disks may be reached before one of them alone is near it
            **{f"{CONTROL_GROUP}{unit}": (limit, done[unit]) for unit, limit in disk.group_limits.items()},
        },
        lifts=disk.lifts,
        served=None if used is None or disk.path is None else _served(used, all_read, direct_read, disk),
        device_busy=used.disks[0].busy_percent / 100 if used is not None and used.disks else None,
        foreign_cpus=None if used is None else used.foreign_cpus,
        device_ns=None if timed is None or rates.uncompared > DEVIATION else timed.mean_ns,
        others_share=_others(used) if timed is not None else None,
        tables=disk.tables,
        operations=rates.operations,
        failed=None if rates.failed is None else max(0, rates.failed) / rates.seconds,
        held=held,
        held_seconds=quiet,
        stalled=min(1.0, sum(one.stalled_seconds for one in rings) / rates.seconds),
        stalls=sum(one.stalls for one in rings),
        seconds=rates.seconds,
        ring_size=sum(one.size for one in rings),
        faults=0.0 if role is None or used is None else (role.major_faults or 0) / used.seconds,
        memory_pressure=None if used is None else _memory_pressure(used),
        protocol=disk.protocol,
        direct=disk.direct,
        unread=disk.unread,
    )


def _held(rates: DiskRates, used: Use | None, rings: Sequence[RingRates]) -> tuple[int | None, float]:
    """Return how many requests were in flight at the end, and for how long none had been completed; None where that
    is not seen. Without a virtqueue the host's device tells, unless it has completed anybody's.
    """
    if rings:
        return sum(one.inside for one in rings), max(one.quiet_seconds for one in rings)
    if rates.requests or used is None or not used.disks:
        return None, 0.0
    stuck = used.disks[0].stuck
    return (stuck, used.seconds) if stuck else (None, 0.0)


def _others(used: Use | None) -> float | None:
    """Return the share of the device's bytes that others caused; None where it moved too few to say so."""
    if used is None or used.disks[0].read_bytes + used.disks[0].written_bytes < _ENOUGH_BYTES:
        return None
    return used.foreign_share(used.disks[0].name, ("guest",))


def _memory_pressure(used: Use) -> float | None:
    found = next((one.some_percent for one in used.pressure if one.resource == "memory"), None)
    return None if found is None else found / 100


def _layers(disk: LiveDisk, rates: DiskRates, used: Use | None, rings: Sequence[RingRates]) -> Layers | None:
    if rates.requests <= 0:
        return None
    timed: dict[Boundary, Timed] = {}
    if rates.total_ns > 0:  # QEMU can be told not to take their time
        timed["backend"] = Timed(requests=rates.requests, seconds=rates.seconds, total_ns=rates.total_ns)
    for one in rings:
        whole = one.offered_mean * one.seconds * 1e9
        # QEMU times a request when it ends: one that hangs is in it, and no wait in the virtqueue
        hung = one.inside * one.quiet_seconds * 1e9 > DEVIATION * whole
        if one.completed > 0 and one.offered_mean * one.samples >= _ENOUGH_SEEN and not hung:
            timed["ring"] = Timed(requests=one.completed, seconds=one.seconds, total_ns=whole)
    others = rates.uncompared
    if used is not None and used.disks and disk.path is not None and others <= DEVIATION:
        device = timed_disk(used.disks[0], used.seconds)
        timed |= {} if device is None else {"device": device}
    top = next((one for one in BOUNDARIES if one in timed), None)
    if top is None:
        return None
    below: dict[Boundary, Sequence[float]] = {one: [found.mean_ns] for one, found in timed.items()}
    ratios: dict[Boundary, Sequence[float]] = {one: [found.rate / timed[top].rate] for one, found in timed.items()}
    found = split("guest", below, ratios, [rates.requests / rates.seconds], depth=None)
    if others <= DEVIATION or not disk.devices:
        return found
    why = (
        f"{format_share(others)} of the requests are flushes or discards, for which this host's disk does more or"
        " less than one request: its time is not told apart"
    )
    return replace(found, reasons=(*found.reasons, why))


def _carrying(disk: LiveDisk, threads: Sequence[ThreadCost]) -> tuple[ThreadCost, ...]:
    """Return the threads without the IOThreads of other disks. A thread's name is cut to 15 bytes by the kernel."""
    names = {name[:15] for name in disk.threads}
    return tuple(one for one in threads if one.role != "iothread" or not names or one.name in names)


def throttled_share(used: Use) -> float | None:
    """Return for how many seconds a second the sampled control groups held the VM's CPUs back, all CPUs added up;
    None
    if its process is unseen.
    """
    if used.role("guest") is None or used.throttled_seconds is None:
        return None
    return used.throttled_seconds / used.seconds


def _served(used: Use, all_read: int, direct_read: int, disk: LiveDisk) -> float | None:
    role = used.role("guest")
    if role is None or role.read_bytes is None:
        return None
    if disk.direct:
        # no memory of this host serves it: only more than was asked for says something, of its image's tables
        return role.read_bytes / all_read if _ENOUGH_BYTES <= all_read <= role.read_bytes else None
    cached = all_read - direct_read
    return max(0, role.read_bytes - direct_read) / cached if cached >= _ENOUGH_BYTES else None
