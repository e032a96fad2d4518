# SPDX-License-Identifier: Apache-2.0
"""The data path of a trial, or of each disk of the running VMs between two samples: the facts for finding its
bottleneck, with the time of a request split into layers: differences of the means that were measured at the
boundaries.

A difference is reported only where both boundaries counted the same requests, and where its confidence interval over
rounds excludes 0; else the layer is joined with its neighbour, so that no layer is negative and all add up to the
application's own latency. Source of the method: linux-kvm.org, Virtio/Block/Latency (2010): every lower layer must be
smaller than the one above it.
"""

import itertools
import math
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from statistics import fmean, median

from virtune.analyse.layers.bottleneck import judge
from virtune.analyse.stats.student import mean_and_radius
from virtune.analyse.trial.counters import Timed, device_of
from virtune.analyse.trial.gates import is_direct, medium
from virtune.analyse.trial.usage import thread_costs, use, used_by
from virtune.model.bottleneck import (
    CONTROL_GROUP,
    Bottleneck,
    Cause,
    DataPath,
    DiskFrame,
    ThreadFrame,
    TopFrame,
    VmFrame,
)
from virtune.model.counters import (
    UNSEEN,
    Counters,
    RoleUse,
    ThreadCost,
    ThreadUse,
    Use,
    group_limits,
    thread_role,
)
from virtune.model.live import (
    BELOW,
    DEVIATION,
    WAIT_UNSEEN,
    DiskCount,
    DiskRates,
    Layers,
    LiveDisk,
    LiveSample,
    LiveVm,
    Operation,
    OperationKind,
    RequestLayer,
    RingRates,
    Way,
    began_anew,
    histograms_between,
    rates_between,
    ring_rates_between,
    throttled_rates,
)
from virtune.model.measurement import Measurement
from virtune.model.metric import BOUNDARIES, Boundary
from virtune.model.stack import LIMITS, Stack
from virtune.model.text import format_count, format_ns, format_share
from virtune.model.workload import Workload

CONFIDENCE = 0.95

_AT: Mapping[Boundary, str] = {
    "application": "the load",
    "guest": "the guest's block layer",
    "ring": "the virtqueue",
    "backend": "QEMU's block layer",
    "device": "this host's disk",
}

Passed = Mapping[Boundary, Sequence[float]]
"""The measurements at each boundary, one value per round."""


def split(way: Way, below_ns: Passed, requests: Passed, iops: Sequence[float], *, depth: float | None) -> Layers:
    """Split the application's latency into layers. `below_ns` is the mean latency from each boundary down in every
    round, `requests` each boundary's number of requests per request of the application. Where that is not measured,
    as of a running VM, the first measured boundary takes its place. `depth` is how many I/Os may be in flight, None
    where the load has no such bound. Raises ValueError if no boundary was measured.
    """
    top = next((one for one in BOUNDARIES if below_ns.get(one)), None)
    if top is None:
        raise ValueError("no boundary was seen")
    total = below_ns[top]
    reasons: list[str] = []
    stands = [one for one in BOUNDARIES if one == top or _counts_the_same(one, top, below_ns, requests, reasons)]
    esxtop = _esxtop({one: fmean(below_ns[one]) for one in stands})  # joining leaves boundaries out
    layers = _joined(way, stands, below_ns, iops, reasons)
    # no latency is below 0, so an interval that is says nothing
    layers = [one if (one.low_ns or 0.0) >= 0 else replace(one, low_ns=None, high_ns=None) for one in layers]
    if len(total) > 1 and any(one.low_ns is None for one in layers):
        reasons.append(f"no interval where it would reach below 0: {len(total)} rounds that differ so are too few")
    return Layers(
        way=way,
        rounds=len(total),
        total_ns=fmean(total),
        layers=tuple(layers),
        idle=None if depth is None else max(0.0, depth - _in_flight(iops, total)),
        reasons=tuple(reasons),
        top=top,
        **esxtop,
    )


def _in_flight(iops: Sequence[float], times_ns: Sequence[float]) -> float:
    """By Little's law in every round: it does not hold for means over these, as slow ones do few I/Os for long."""
    return fmean(rate * time / 1e9 for rate, time in zip(iops, times_ns, strict=True))


def device_counts_others(layers: Layers | None) -> bool:
    """Whether this host's disk did others' requests, or not all of these, so that its times are not theirs."""
    return layers is None or any(one.startswith(f"{_AT['device']} counted ") for one in layers.reasons)


def _counts_the_same(one: Boundary, top: Boundary, below_ns: Passed, requests: Passed, reasons: list[str]) -> bool:
    """Whether a boundary was measured in every round and counted the same requests as the topmost one."""
    if len(below_ns.get(one, ())) != len(below_ns[top]):
        return False
    ratio = median(requests[one]) if requests.get(one) else math.nan
    if abs(1 - ratio) <= DEVIATION:
        return True
    if ratio < 1:
        counted, why = f"{format_share(ratio)} of", "the rest was merged, or did not reach it"
    else:
        counted, why = f"{format_count(ratio)} times", "others use it, requests were split, or flushes are in it"
    reasons.append(f"{_AT[one]} counted {counted} the requests of {_AT[top]} ({why}): its share is not known")
    return False


def _joined(
    way: Way, stands: list[Boundary], below_ns: Passed, iops: Sequence[float], reasons: list[str]
) -> list[RequestLayer]:
    """Join layers until the time of each is shown to be above 0: its interval, or for a single round its mean."""
    while True:
        layers = _between(way, stands, below_ns, iops)
        shown = [(one.mean_ns if one.low_ns is None else one.low_ns) > 0 for one in layers]
        if all(shown) or len(stands) == 1:
            return layers
        wrong = shown.index(False)
        # the device's own time is the last to be joined
        above = wrong + 1 >= len(stands) or (stands[wrong + 1] == "device" and wrong > 0)
        lost = stands.pop(wrong if above else wrong + 1)
        found = layers[wrong]
        ends = [format_ns(end) for end in (found.low_ns, found.high_ns) if end is not None]
        interval = f" [{', '.join(ends)}]" if ends else ""
        reasons.append(
            f"the time between {_AT[found.boundary]} and what lies below is {format_ns(found.mean_ns)}{interval},"
            f" which is not clearly above 0: {_AT[lost]} is not told apart"
        )


def _between(way: Way, stands: Sequence[Boundary], below_ns: Passed, iops: Sequence[float]) -> list[RequestLayer]:
    """Return the layer below each of these boundaries, down to the next one or to the end."""
    layers, total = [], fmean(below_ns[stands[0]])
    for one, below in zip(stands, (*stands[1:], None), strict=True):
        lower = [0.0] * len(below_ns[one]) if below is None else below_ns[below]
        end = len(BOUNDARIES) if below is None else BOUNDARIES.index(below)
        each = [upper - under for upper, under in zip(below_ns[one], lower, strict=True)]
        mean, radius = mean_and_radius(each, CONFIDENCE)  # the rounds are the observations
        labels = (BELOW[way][between] for between in BOUNDARIES[BOUNDARIES.index(one) : end])
        layers.append(
            RequestLayer(
                boundary=one,
                label=" + ".join(filter(None, labels)),
                mean_ns=mean,
                low_ns=None if radius is None else mean - radius,
                high_ns=None if radius is None else mean + radius,
                in_flight=_in_flight(iops, each),
                share=mean / total,
            )
        )
    return layers


def _esxtop(below: Mapping[Boundary, float]) -> dict[str, float | None]:
    """Return esxtop's figures. What is longer than the whole that it is a part of is measured of other requests."""
    ring, backend, device = below.get("ring"), below.get("backend"), below.get("device")
    guest = backend if ring is None else ring  # without virtqueue samples, from where QEMU takes a request off
    return {
        "gavg_ns": guest,
        "davg_ns": device,
        "kavg_ns": None if guest is None or device is None or guest < device else guest - device,
        "qavg_ns": None if ring is None or backend is None or ring < backend else ring - backend,
    }


def layers_of(measured: Sequence[Measurement], stack: Stack, workload: Workload) -> Layers | None:
    """Return the layers over all rounds; None where nothing was measured below the application."""
    rounds = [one for one in measured if one.get("latency.mean") is not None and one.get("iops")]

    def of(metric: str) -> list[float]:
        return [value for one in rounds if (value := one.get(metric)) is not None]

    below = {one: of(f"below.{one}") for one in BOUNDARIES[1:]}
    if not any(map(any, below.values())):
        return None
    requests = {one: [each * 0.01 for each in of(f"requests.{one}")] for one in BOUNDARIES[1:]}
    depth = depth_of(workload)
    if depth is not None:  # what waits for a flush is handed over, too
        depth -= fmean(flush_rate(one, workload) * (one.get("sync.mean") or 0.0) / 1e9 for one in rounds)
    way: Way = "guest" if stack.kind.in_guest else "export" if stack.kind.front == "export" else "file"
    return split(way, {"application": of("latency.mean"), **below}, requests, of("iops"), depth=depth)


def flush_rate(measured: Measurement, workload: Workload) -> float:
    """Return how many flushes a second a load did: one after every so many writes; 0 where its jobs differ."""
    after = {int(job.get("fsync", "") or job.get("fdatasync", "") or "0") for job in workload}
    count = after.pop() if len(after) == 1 else 0
    return (measured.get("write.iops") or 0.0) / count if count else 0.0


def depth_of(workload: Workload) -> float | None:
    """Return how many I/Os may be in flight; None for a load that pauses by itself, or if unknown."""
    paused = any(name.startswith(("rate", "thinktime")) for job in workload for name, _ in job.options)
    return None if paused or workload.verbatim is not None or workload.counted else float(workload.depth)


_ENOUGH_SEEN = 30
"""With fewer requests seen in the virtqueue, all samples together, their mean number is not believed: of independent
samples its standard error is 1 / sqrt(30), 18 %."""

_FEW_SEEN = 2
"""So few requests more or less than QEMU counted may be of the moments of both looks."""

_FEW_MORE = 10
"""With no more requests than this that QEMU did not count, none is told of: a guest asks for a disk's name."""

_SKEW_SECONDS = 0.2
"""So much of what one of two counts of a disk has done may be missing in the other: a QEMU with a quota runs in
bursts of a tenth of a second, and may do so at both ends of a look."""

_ENOUGH_BYTES = 1024**2
"""With fewer bytes read, page-cache hits are not estimated; with fewer moved by a device, nor are others on it."""


def live_paths(
    vm: LiveVm,
    disks: Sequence[LiveDisk],
    counts: tuple[Mapping[str, DiskCount], Mapping[str, DiskCount]],
    used: Use | None,
    rings: Mapping[str, Sequence[RingRates]],
) -> Iterator[tuple[LiveDisk, DiskRates, DataPath]]:
    """Yield what each of these disks of a VM did between two counts. `used` has the VM's process under the role
    `guest`. A disk that is not in both counts, or whose counters began anew, is left out.
    """
    used = with_names(used or UNSEEN, vm.threads)
    known = {one.target: one for one in (*disks, *vm.disks)}
    counted = {name: found for name in counts[1] if (found := _rates(*counts, name)) is not None}
    over_network = {name for name, one in known.items() if one.path is None}  # no read of a device
    read = {name: one.read_bytes for name, one in counted.items() if name not in over_network}
    all_read = sum(read.values())
    direct_read = sum(count for name, count in read.items() if name in known and known[name].direct)
    between = {name: one for name, one in counted.items() if one.seconds > 0}
    served = _thread_iops(known, between)
    for disk in disks:
        if (rates := between.get(disk.target)) is None:
            continue
        group = [
            between[name] for name, one in known.items() if disk.group and one.group == disk.group and name in between
        ]
        path = live_path(disk, rates, used, rings=rings.get(disk.target, ()), all_read=all_read,
                         direct_read=direct_read, group=group)  # fmt: skip
        path = replace(path, emulated=vm.emulated, origin="libvirt" if vm.uri else "monitor", thread_iops=served)
        yield disk, rates, path


def _rates(before: Mapping[str, DiskCount], after: Mapping[str, DiskCount], disk: str) -> DiskRates | None:
    then, now = before.get(disk), after.get(disk)
    return None if then is None or now is None or began_anew(then, now) else rates_between(then, now)


def _fault_ns(disk: LiveDisk, used: Use) -> float | None:
    """Return how long a page takes that is read back: the mean of requests at the devices that are swapped to."""
    found = [one for name in disk.swap if (one := used.disk(name)) is not None and one.reads]
    return max((one.latency_us_mean * 1e3 for one in found if one.latency_us_mean is not None), default=None)


def _thread_iops(disks: Mapping[str, LiveDisk], rates: Mapping[str, DiskRates]) -> dict[str, float]:
    """Return the rate of the disks of each IOThread, of the main loop, and of all, by `DataPath.thread_iops`."""
    found = {"main": 0.0, "": 0.0}
    for target, one in rates.items():
        threads = disks[target].threads if target in disks else ()
        for key in ("", *(threads or ["main"])):
            found[key] = found.get(key, 0.0) + one.requests / one.seconds
    return found


def with_names(used: Use, names: Mapping[int, str]) -> Use:
    """Return what was used with QEMU's names, by thread id, of threads whose own name tells no role or was cut."""

    def named(one: ThreadUse) -> ThreadUse:
        name = names.get(one.tid, "")
        cut = thread_role(one.comm, main=False) == "other" or name.startswith(one.comm)
        return replace(one, comm=name) if name and cut and not one.first else one

    return replace(used, roles=tuple(replace(role, threads=tuple(map(named, role.threads))) for role in used.roles))


_OF_DISK = ("polling", "lifts", "tables", "protocol", "direct", "unread", "front", "writethrough", "relimited")
"""What a DataPath has of its LiveDisk as it is there."""


def live_path(
    disk: LiveDisk, rates: DiskRates, used: Use, *, rings: Sequence[RingRates], all_read: int, direct_read: int = 0,
    group: Sequence[DiskRates] = (),
) -> DataPath:  # fmt: skip
    """Return the facts of a disk under load. `rings` are the observations of its virtqueues; `all_read` is the number
    of bytes read from all disks of its VM that lie on this host, since the process's counters do not separate disks,
    and `direct_read` how many of these passed the page cache by. `group` are all disks that have its limits together.
    """
    own = replace(used, disks=tuple(one for name in disk.devices if (one := used.disk(name)) is not None))
    timed = device_of(own) if disk.direct else None
    done, together, role = throttled_rates([rates]), throttled_rates(group or [rates]), used.role("guest")
    held, quiet = _held(rates, own, rings)
    return DataPath(
        **{name: getattr(disk, name) for name in _OF_DISK},
        iops=rates.requests / rates.seconds,
        bandwidth=done["bps"],
        layers=_layers(disk, rates, own, rings),
        threads=tuple(
            one
            for one in thread_costs({}, used)
            if one.role != "iothread" or not disk.threads or one.name in disk.threads  # else it serves others
        ),
        serving="iothread" if disk.threads else "main",
        limits={
            **{unit: (limit, together[unit]) for unit, limit in disk.limits.items()},
            # of the whole group: that of several disks may be reached before one of them alone is near it
            **{f"{CONTROL_GROUP}{unit}": (limit, done[unit]) for unit, limit in disk.group_limits.items()},
        },
        throttled=None if role is None or role.held_back_seconds is None else role.held_back_seconds / used.seconds,
        served=None if disk.path is None else _served_live(role, all_read, direct_read, disk),
        device_busy=_busy(own),
        foreign_cpus=used.foreign_cpus,
        device_ns=None if timed is None or rates.uncompared > DEVIATION else timed.mean_ns,
        others_share=_others(own) if timed is not None else None,
        operations=rates.operations,
        failed=None if rates.failed is None else max(0, rates.failed) / rates.seconds,
        held=held,
        held_seconds=quiet,
        stalled=min(1.0, sum(one.stalled_seconds for one in rings) / rates.seconds),
        stalls=sum(one.stalls for one in rings),
        seconds=rates.seconds,
        ring_size=sum(one.size for one in rings),
        faults=0.0 if role is None else (role.major_faults or 0) / used.seconds,
        fault_ns=_fault_ns(disk, used),
        memory_pressure=used.some_waited("memory"),
        uncounted=_uncounted(rates, rings),
    )


def _busy(used: Use) -> float | None:
    return used.disks[0].busy_percent / 100 if used.disks else None


def _uncounted(rates: DiskRates, rings: Sequence[RingRates]) -> float:
    """Return how many requests a second the virtqueues completed that QEMU does not count; 0 where they are few."""
    counted = rates.requests + max(0, rates.failed or 0)
    more = sum(one.within for one in rings) - counted
    return more / rates.seconds if more > max(_FEW_MORE, DEVIATION * counted) else 0.0


def _held(rates: DiskRates, used: Use, rings: Sequence[RingRates]) -> tuple[int | None, float]:
    """Return how many requests were in flight at the end, and for how long none had been completed; None where that
    is not seen. Without a virtqueue the host's device tells, unless it has completed anybody's.
    """
    if rings:
        return sum(one.inside for one in rings), max(one.quiet_seconds for one in rings)
    if rates.requests or not used.disks:
        return None, 0.0
    stuck = used.disks[0].stuck
    return (stuck, used.seconds) if stuck else (None, 0.0)


def _others(used: Use) -> float | None:
    """Return the share of the device's bytes that others caused; None where it moved too few to say so."""
    if used.disks[0].read_bytes + used.disks[0].written_bytes < _ENOUGH_BYTES:
        return None
    return used.foreign_share(used.disks[0].name, ("guest",))


def _layers(disk: LiveDisk, rates: DiskRates, used: Use, rings: Sequence[RingRates]) -> Layers | None:
    if rates.requests <= 0:
        return None
    timed: dict[Boundary, Timed] = {}
    if rates.total_ns > 0:  # QEMU can be told not to take their time
        timed["backend"] = Timed(requests=rates.requests, seconds=rates.seconds, total_ns=rates.total_ns)
    unseen = []
    for one in rings:
        whole, seen = one.offered_mean * one.seconds * 1e9, one.offered_mean * one.samples
        # QEMU times a request when it ends: one that hangs is in it, and no wait in the virtqueue
        hung = one.inside * one.quiet_seconds * 1e9 > DEVIATION * whole
        if one.completed > 0 and seen >= _ENOUGH_SEEN and not hung:
            timed["ring"] = Timed(requests=_both_count(one, rates), seconds=one.seconds, total_ns=whole)
        elif one.completed > 0 and not hung:
            looks = f"{one.samples} looks found {seen:.0f} requests there, of {_ENOUGH_SEEN} that are needed"
            unseen.append(f"{WAIT_UNSEEN}: {looks}: look for longer")
    others = rates.uncompared
    if disk.path is not None and others <= DEVIATION and (device := device_of(used)) is not None:
        timed["device"] = device
    if not timed:
        return None
    top = min(timed, key=BOUNDARIES.index)
    below: dict[Boundary, Sequence[float]] = {one: [found.mean_ns] for one, found in timed.items()}
    ratios: dict[Boundary, Sequence[float]] = {one: [found.rate / timed[top].rate] for one, found in timed.items()}
    found = split("guest", below, ratios, [rates.requests / rates.seconds], depth=None)
    found = replace(found, reasons=(*found.reasons, *unseen))
    if others <= DEVIATION or not disk.devices:
        return found
    why = (
        f"{format_share(others)} of the requests are flushes or discards, for which this host's disk does more or"
        " less than one request: its time is not told apart"
    )
    return replace(found, reasons=(*found.reasons, why))


def _both_count(ring: RingRates, rates: DiskRates) -> float:
    """Return how many requests a virtqueue completed: QEMU's count where few differ, as they begin and end apart."""
    counted = rates.requests * ring.seconds / rates.seconds
    doubt = _FEW_SEEN + _SKEW_SECONDS * counted / ring.seconds
    few = 0 < counted < _ENOUGH_SEEN
    return counted if few and abs(ring.completed - counted) <= doubt else ring.completed


def _served_live(role: RoleUse | None, all_read: int, direct_read: int, disk: LiveDisk) -> float | None:
    if role is None or role.read_bytes is None:
        return None
    if disk.direct:
        # no memory of this host serves it: only more than was asked for says something, of its image's tables
        return role.read_bytes / all_read if _ENOUGH_BYTES <= all_read <= role.read_bytes else None
    cached = all_read - direct_read
    return max(0, role.read_bytes - direct_read) / cached if cached >= _ENOUGH_BYTES else None


WORKERS = 64
"""QEMU's default for the largest number of pool threads (thread-pool-max, QEMU 7.0 and later)."""


def path_of(parts: Mapping[str, bytes], measured: Measurement, stack: Stack, workload: Workload) -> DataPath:
    """Return the facts of a trial."""
    used = used_by(parts, stack) or UNSEEN
    iops = measured.get("iops") or 0.0
    layers, depth = layers_of([measured], stack, workload), depth_of(workload)
    latency, operations = measured.get("latency.mean"), tuple(_operations(measured, workload))
    flushing = sum(one.in_flight for one in operations if one.kind == "flush")
    waits = stack.spread is None and is_direct(stack, workload)  # else for more than the device
    timed = device_of(used) if waits else None
    pooled = stack.kind.front != "file" and stack.disk.backend == "file" and stack.disk.aio == "threads"
    on_cpu = measured.get("cpu.load.usr"), measured.get("cpu.load.sys")
    return DataPath(
        iops=iops,
        bandwidth=measured.get("bandwidth") or 0.0,
        layers=layers,
        depth=depth,
        idle=None if depth is None or latency is None else max(0.0, depth - iops * latency / 1e9 - flushing),
        offered=_offered(workload),
        threads=thread_costs(parts, used),
        serving="load" if stack.kind.front == "file" else "iothread" if stack.in_iothread else "main",
        polling=bool(stack.poll_max_ns) or (stack.in_iothread and stack.poll_max_ns is None),
        workers_max=(stack.thread_pool_max or WORKERS) if pooled else None,
        limits=_limits(stack, measured, used),
        limited_by={limit.unit: limit.knob for limit in LIMITS if limit.qmp in stack.disk.limits},
        throttled=None if used.throttled_seconds is None else used.throttled_seconds / used.seconds,
        latency_ns=latency,
        stands_in_ns=float(stack.disk.null_latency_ns) if stack.disk.backend == "null-co" else None,
        served=_served(measured, used, stack),
        device_busy=_busy(used),
        load_busy=None if None in on_cpu else math.fsum(one or 0.0 for one in on_cpu) / 100,
        foreign_cpus=used.foreign_cpus,
        device_ns=None if timed is None else timed.mean_ns,
        others_share=used.foreign_share(used.disks[0].name) if used.disks else None,
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
    answer = next(one for one in found if one.cause is cause)
    if rounds * 2 <= len(found):
        said = ", ".join(f"{one.value} {count}" for one, count in counts.most_common())
        told = (f"the rounds do not agree: {said}",)
        answer = Bottleneck(cause=Cause.UNDECIDED, evidence=told, experiment="more rounds, on a quieter host")
    return replace(answer, rounds=rounds, of=len(found))


def _offered(workload: Workload) -> float | None:
    """Return the rate at which I/Os are offered; None if any job is a closed loop."""
    if workload.offered_iops is not None:
        return workload.offered_iops
    rates = [(job.get("rate_iops", ""), int(job.get("numjobs", "1"))) for job in workload]
    if not rates or not all(rate.isdecimal() for rate, _ in rates):
        return None
    return float(sum(int(rate) * clones for rate, clones in rates))


def _limits(stack: Stack, measured: Measurement, used: Use) -> dict[str, tuple[float, float]]:
    """Return each limit of QEMU's throttle and of our control groups on the disk, with the rate in the same unit."""
    limits = {limit.unit: float(stack.disk.limits.get(limit.qmp) or 0) for limit in LIMITS}
    groups = group_limits(used.io_limits, {one.number for one in used.disks})
    limits |= {f"{CONTROL_GROUP}{unit}": limit for unit, limit in groups.items()}
    done = {unit: measured.get(unit.removeprefix(CONTROL_GROUP).replace("bps", "bandwidth")) for unit in limits}
    return {unit: (limit, rate) for unit, limit in limits.items() if limit and (rate := done[unit]) is not None}


def _said(parts: Mapping[str, bytes], option: str) -> bool:
    """Whether a line of the job is this option (`hipri=1`: poll, the default of a guest without a system)."""
    return option.encode() in parts.get("job.fio", b"").splitlines()


def _served(measured: Measurement, used: Use, stack: Stack) -> float | None:
    """Return the share of reads that the device served; None without reads or without a device."""
    reads = measured.get("read.bandwidth")
    if not used.disks or not reads or stack.disk.backend != "file" or stack.spread is not None:
        return None
    # others may read from the device as well, so the bytes that our own processes read are the better bound
    own = [role.read_bytes for role in used.roles if role.read_bytes is not None]
    return min(medium(used).read_bytes, max(own, default=medium(used).read_bytes)) / used.seconds / reads


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
    used = use(Counters(samples=(before.host, after.host)))
    return TopFrame(
        wall_seconds=after.host.wall_seconds,
        seconds=used.seconds,
        vms=tuple(_vm(one, before, after, used) for one in after.vms),
        host=used,
        missing=(*not_watched(after.vms), *after.missing, *_unseen(after, used)),
    )


def rings_moved(before: LiveSample, after: LiveSample) -> bool:
    """Whether a disk's virtqueues are no longer where they were: their count differs from QEMU's."""
    return any(moved for vm in after.rings for _, _, moved in _rings(before, after, vm))


def disk_series(samples: Sequence[LiveSample], vm: str, disk: str) -> list[tuple[float, float, float, float]]:
    """Return a disk's IOPS, bytes a second, latency in ns, and requests in flight (those that wait, where none was
    completed) of each interval between samples; zeros where it was not there.
    """
    return [_point(before, after, vm, disk) for before, after in itertools.pairwise(samples)]


def _point(before: LiveSample, after: LiveSample, vm: str, disk: str) -> tuple[float, float, float, float]:
    rates = _rates(before.counts.get(vm, {}), after.counts.get(vm, {}), disk)
    if rates is None or rates.seconds <= 0:
        return 0.0, 0.0, 0.0, 0.0
    if rates.requests <= 0:
        return 0.0, 0.0, 0.0, float(sum(one.inside for one in after.rings.get(vm, {}).get(disk, ())))
    moved = (rates.read_bytes + rates.written_bytes) / rates.seconds
    return rates.requests / rates.seconds, moved, rates.total_ns / rates.requests, max(0.0, rates.in_flight)


def _vm(vm: LiveVm, before: LiveSample, after: LiveSample, used: Use) -> VmFrame:
    role = used.role(vm.name)
    own = with_names(replace(used, roles=() if role is None else (replace(role, role="guest"),)), vm.threads)
    counts = before.counts.get(vm.name, {}), after.counts.get(vm.name, {})
    rings = {disk: (found,) for disk, found, moved in _rings(before, after, vm.name) if not moved}
    earlier = [disk for one in before.vms if one.name == vm.name for disk in one.disks]
    disks = [one.beside(earlier) for one in vm.disks]  # a block job may have ended
    paths = [
        (disk, rates, replace(path, neighbours=_neighbours(after.vms, vm, disk)))
        for disk, rates, path in live_paths(vm, disks, counts, own, rings)
    ]
    costs = thread_costs({}, own)
    iops = math.fsum(path.iops for _, _, path in paths)
    return VmFrame(
        vm=vm.name,
        disks=tuple(
            DiskFrame(
                vm=vm.name,
                disk=disk.target,
                rates=rates,
                path=path,
                found=judge(path),
                cpu_per_io_ns=_cpu_per_io_ns(disk, path, costs) if path.iops > 0 else None,
                histograms=histograms_between(
                    *(one.histograms.get(vm.name, {}).get(disk.target, {}) for one in (before, after))
                ),
                devices=disk.devices,
            )
            for disk, rates, path in paths
        ),
        threads=tuple(ThreadFrame(vm=vm.name, cost=one, iops=iops) for one in costs),
        seen=bool(costs),
        emulated=vm.emulated,
    )


def _neighbours(vms: Sequence[LiveVm], vm: LiveVm, disk: LiveDisk) -> tuple[str, ...]:
    """Return the names of the other VMs that have a disk on the device of this one."""
    others = [one for one in vms if one.name != vm.name] if disk.devices else []
    return tuple(one.name for one in others if any(its.devices[:1] == disk.devices[:1] for its in one.disks))


def _rings(before: LiveSample, after: LiveSample, vm: str) -> Iterator[tuple[str, RingRates, bool]]:
    """Yield what the virtqueues of each disk did, and whether they are no longer where they were."""
    then, now = before.counts.get(vm, {}), after.counts.get(vm, {})
    for disk, counts in after.rings.get(vm, {}).items():
        found = ring_rates_between(before.rings.get(vm, {}).get(disk, ()), counts)
        if found is None or disk not in then or disk not in now:
            continue
        rates, moved = rates_between(then[disk], now[disk]), False
        if rates.seconds > 0:
            # the two are read one after the other, on a busy host seconds apart: their rates are compared
            expected = (rates.requests + (rates.failed or 0)) * found.seconds / rates.seconds
            moved = abs(found.completed - expected) > max(_FEW, _APART * expected)
        yield disk, found, moved


def _cpu_per_io_ns(disk: LiveDisk, path: DataPath, costs: Iterable[ThreadCost]) -> float | None:
    """Return the CPU time for an I/O of a disk: of the threads that serve it, and of others beside it. vCPUs are left
    out, since they run the guest's programs.
    """
    mine = [one for one in costs if (one.name in disk.threads if disk.threads else one.role == "main")]
    shared = [one for one in costs if one.role in _SHARED]
    return math.fsum(one.busy / path.iops_of(one) for one in (*mine, *shared)) * 1e9 if mine else None


def not_watched(vms: Sequence[LiveVm]) -> tuple[str, ...]:
    """Say which VMs cannot be looked at, and why."""
    return tuple(f"{one.name}: {one.failed}" for one in vms if one.failed)


def _unseen(after: LiveSample, used: Use) -> Iterator[str]:
    """Say once for all VMs whose disks gave no counters, and whose processes do not show what they read."""
    silent = [one.name for one in after.vms if one.disks and not after.counts.get(one.name)]
    roles = [used.role(one.name) for one in after.vms if one.pid is not None]
    closed = [role.role for role in roles if role is not None and role.read_bytes is None]
    if silent:
        yield (
            f"the disks of {_some(silent)}: the QEMU gives no counters; it hangs, is stopped, or a job of libvirt"
            " holds it (`virsh domjobinfo`)"
        )
    if closed:
        why = "/proc/PID/io is for root and QEMU's own user only"
        yield f"how much of the reads of {_some(closed)} reached a device: {why}"


def _some(names: Sequence[str]) -> str:
    return ", ".join(names[:3]) + (" and others" if len(names) > 3 else "")
