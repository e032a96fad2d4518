# SPDX-License-Identifier: Apache-2.0
"""From a trial's raw evidence to its Measurement: fio's figures, the host's counters, and what they mean together."""

from collections.abc import Iterator, Mapping
from dataclasses import replace

from virtune.analyse.counters import read_counters
from virtune.analyse.explain import explain
from virtune.analyse.fio import read_result, text_of
from virtune.analyse.imported import meant_of
from virtune.analyse.measure import measurement_of
from virtune.analyse.use import use
from virtune.model.counters import DiskUse, Use
from virtune.model.errors import LoadError, ReadError, StoreError
from virtune.model.evidence import FIO_OUTPUTS
from virtune.model.measurement import FioResult, Measurement
from virtune.model.remark import Remark, Weight
from virtune.model.stack import DIRECT_CACHES, Stack
from virtune.model.workload import Workload

CACHED_READS = 0.5
"""Below this share of device reads to fio's reads, more than half of the reads never reached the device."""

DIRECT_CACHED_READS = 0.9
"""A direct stack reads everything from the device; the tenth is room for the edges of the measured window."""

RESIDENT_BYTES = 1024**2
"""Less of the image than this in the page cache cannot serve reads that are spread over all of it."""

WINDOW_SECONDS = 0.25
"""In less than this the kernel's clock ticks of 10 ms are too coarse, and fio's own start weighs too much."""

UNSERVED_READS = 0.5
"""A host that stalls moves the counters' window and fio's mean apart, but never by half."""

PRESSURE_PERCENT = 25.0
"""From this share of time in which some task waited for a CPU, the CPU is part of what is measured (method, 6)."""

FOREIGN_SHARE = 0.10
"""From this share of the device's bytes that is not the load's, the trial was not alone on the device (method, 6)."""


_OF_SINGLE_RUNS = frozenset({"spread", "short-run", "tail-unresolved"})
"""What is to be said of a run that stands alone. A trial is one of several, and rounds answer these."""


def derive(parts: Mapping[str, bytes], *, stack: Stack, workload: Workload) -> Measurement:
    """Derive what a trial measured. `parts` are its captures by name.

    Raises LoadError when fio's output cannot be read or says that the load failed.
    """
    try:
        output = next(parts[name] for name in FIO_OUTPUTS if name in parts)
        result = meant_of(read_result(text_of(output)), parts)
    except (ReadError, StopIteration) as error:
        raise LoadError(f"fio's output cannot be read: {error}") from None
    failed = [load for load in result.loads if load.error]
    if failed:
        raise LoadError(f"fio reports error {failed[0].error} in job {failed[0].name!r}")
    base = measurement_of(result)
    if base.get("iops") in (None, 0.0):
        raise LoadError("fio completed no I/O")
    used = _use(parts)
    values = base.values if used is None else (*base.values, *_host_values(base, used))
    meant = all(job.get("direct", "1") in ("0", "false") or job.get("ioengine", "") == "mmap" for job in workload)
    said = tuple(
        # a workload that is buffered on purpose may be compared with itself, and is told what it measures
        replace(r, weight=Weight.WARNING) if meant and r.id == "page-cache" else r
        for r in explain(result)
        if r.weight is not Weight.NOTE and r.id not in _OF_SINGLE_RUNS
    )
    more = () if used is None else tuple(_host_remarks(result, used, stack, workload))
    return replace(base, values=values, remarks=(*said, *more))


def _use(parts: Mapping[str, bytes]) -> Use | None:
    """Return what the host used in the measured time; None when its counters cannot be read or say nothing of it."""
    try:
        counters = read_counters(parts["counters.jsonl"])
        used = use(counters, begin_ns=counters.mark("begin"), end_ns=counters.mark("stop"))
    except (KeyError, StoreError):
        return None
    load = used.role("load")
    saw_the_load = load is not None and load.cpu_seconds > 0
    return used if saw_the_load and used.seconds >= WINDOW_SECONDS else None


def _host_values(base: Measurement, used: Use) -> Iterator[tuple[str, float]]:
    daemon, load = used.role("daemon"), used.role("load")
    if daemon is not None:
        yield "cpu.rig", daemon.cpu_seconds / used.seconds * 100
    iops = base.get("iops")
    if load is not None and iops:
        spent = load.cpu_seconds + (daemon.cpu_seconds if daemon is not None else 0.0)
        yield "cpu_per_io", spent / used.seconds / iops
    # the first device is what the filesystem sits on; those below it count the same I/O again
    if used.disks:
        yield "device.util", used.disks[0].busy_percent


def _host_remarks(result: FioResult, used: Use, stack: Stack, workload: Workload) -> Iterator[Remark]:
    yield from _cached(result, used, stack, workload)
    for pressure in used.pressure:
        if pressure.resource == "cpu" and (pressure.some_percent or 0.0) > PRESSURE_PERCENT:
            yield Remark(
                id="cpu-pressure",
                weight=Weight.WARNING,
                text=f"tasks waited for a CPU {pressure.some_percent:.0f} % of the time: CPUs are part of the limit",
                advice="fewer jobs, or fewer neighbours; compare CPU per I/O as well as IOPS",
            )
    foreign = used.foreign_share(used.disks[0].name) if used.disks and stack.disk.cache in DIRECT_CACHES else None
    if foreign is not None and foreign > FOREIGN_SHARE:
        yield Remark(
            id="foreign-io",
            weight=Weight.WARNING,
            text=f"{foreign:.0%} of what {used.disks[0].name} moved was not this load's",
            advice="find who else uses the device, or measure when it is quiet",
        )


def _medium(used: Use) -> DiskUse:
    """Return the device whose reads tell what the page cache did not serve.

    A loop device counts every read, whether its file's pages came from below or from memory: the one below it tells.
    """
    loops = (disk for disk in used.disks if not disk.name.startswith("loop"))
    return next(loops, used.disks[0]) if used.disks[0].name.startswith("loop") else used.disks[0]


def _cached(result: FioResult, used: Use, stack: Stack, workload: Workload) -> Iterator[Remark]:
    """Reads that never reached the device came from the host's page cache (bytes, because requests are merged).

    A stack that is meant to be direct is called cached only when the image is seen in the page cache as well: the
    device's bytes are those of the counters' window and fio's are a mean, and a host that stalls moves them apart.
    """
    if not used.disks and stack.disk.backend == "file":
        yield Remark(
            id="no-device",
            weight=Weight.WARNING,
            text="no block device is seen behind the image (memory, an overlay, a network?), so it cannot be told "
            "whether a disk served it or only a page cache",
            advice="`--scratch DIR` on the disk that is meant; `virtune probe --scratch DIR` says what DIR lies on",
        )
    streams = (stream for load in result.loads for stream in load.streams if stream.direction == "read")
    asked = sum(stream.bandwidth_bps for stream in streams) * used.seconds
    if not used.disks or asked <= 0 or stack.disk.backend != "file":
        return
    disk = _medium(used)
    share = disk.read_bytes / asked
    direct = stack.rig == "metal" or stack.disk.cache in DIRECT_CACHES
    unexpected = direct and all(job.get("direct", "1") not in ("0", "false") for job in workload)
    resident = max((cache.end_bytes for cache in used.caches), default=0)
    if share >= (DIRECT_CACHED_READS if unexpected else CACHED_READS):
        return
    if unexpected and resident < RESIDENT_BYTES:
        if share < UNSERVED_READS:
            yield Remark(
                id="unserved",
                weight=Weight.INVALID,
                text=f"{disk.name} served {share:.0%} of what was read, and no page cache had the rest",
                advice="blocks that hold no data are answered without the disk: fill the image anew",
            )
        return
    yield Remark(
        id="page-cache",
        weight=Weight.INVALID if unexpected else Weight.WARNING,
        text=f"{disk.name} served {share:.0%} of the bytes that were read, the page cache the rest",
        advice="this says nothing of the disk" if unexpected else "compare it only with arms that are cached as well",
    )
