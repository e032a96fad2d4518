# SPDX-License-Identifier: Apache-2.0
"""From a trial's raw evidence to its Measurement: fio's figures, the host's counters, and remarks on both."""

import contextlib
import itertools
import json
import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import fields, replace

from virtune.analyse.trial.counters import boundaries_of, boundary_values
from virtune.analyse.trial.explain import explain
from virtune.analyse.trial.gates import (
    RESIDENT_BYTES,
    ended_itself,
    is_direct,
    medium,
    own_pressure,
    read_gates,
    served_share,
)
from virtune.analyse.trial.measure import disk_values, meant_of, measurement_of, unlike_disks
from virtune.analyse.trial.rejection import read_profile
from virtune.analyse.trial.usage import cost_values, period_remarks, used_by
from virtune.fio.results import read_result, text_of
from virtune.model.counters import DiskUse, Use
from virtune.model.errors import LoadError, ReadError
from virtune.model.evidence import (
    BARRIER,
    DISKS,
    EACH_OPERATION,
    FIO_OUTPUTS,
    IDLE,
    VM_JOBS,
    Check,
    data_kept,
    of_guest,
    unverified_remarks,
)
from virtune.model.measurement import DeviceUse, FioResult, Measurement
from virtune.model.remark import EMULATED, GATE_BY_ID, KVM_WITHOUT_HARDWARE, SIMULATED, Remark, Weight, remark_of
from virtune.model.stack import Stack
from virtune.model.text import format_share, printable
from virtune.model.workload import BACKGROUND, Workload

CACHED_READS = 0.5
"""Below this share of device reads to fio's reads, more than half of the reads never reached the device."""

UNSERVED_READS = 0.5
"""Stalls of the host make the counters and fio's mean differ, but never by half."""

SKEW_SECONDS = 0.05
"""Guests that start within this time count as starting together: a tenth of the default ramp, which is not measured.
"""

_OF_SINGLE_RUNS = frozenset({"spread", "short-run", "tail-unresolved"})
"""Remarks for single runs only. A trial is one of several, and the rounds answer these questions."""

_AT_THE_GATES = frozenset({"little", "saturated-cpu", "rate-unmet"})
"""Warnings that the gates give with limits of their own."""


def derive(
    parts: Mapping[str, bytes], *, stack: Stack, workload: Workload, checks: Sequence[Check] | None = None
) -> Measurement:
    """Derive a trial's measurement. `parts` are its captures by name, `checks` the verification of its settings, None
    where there was none, as in imported results.

    Raises LoadError when fio's output or the rig's records of the guests (start barrier, disks) cannot be read, or
    when the load failed.
    """
    outputs = _read(parts)
    every = _together(outputs)
    result = _measured(every, workload)
    failed = [load for load in every.loads if load.error]
    if failed:
        raise LoadError(f"fio reports error {failed[0].error} in job {failed[0].name!r}")
    base = measurement_of(result)
    if base.get("iops") in (None, 0.0):
        raise LoadError("fio completed no I/O")
    used = used_by(parts, stack)
    # a load that was over before its end was looked at has no such figures; who disturbed it is told all the same
    of_load = used if b'"stop"' in parts.get("counters.jsonl", b"") else None
    values = (*base.values, *_values(parts, outputs, of_load, stack, workload))
    # an imported run cannot be repeated, so none is rejected: it is explained like any fio result
    ours = "counters.jsonl" in parts
    periods = period_remarks(parts.get(EACH_OPERATION, b"")) if workload.recorded else ()
    seen = result if used is None or not workload.buffered else replace(result, devices=_devices(used))
    said = (*_said(seen, workload, ours=ours), *(ended_itself(result.loads) if ours else ()))
    readings = read_gates(every, used, stack, workload) if ours else ()
    at_gates = [remark for reading in readings if (remark := reading.remark()) is not None]
    more = [] if used is None else [*_cached(every, used, stack, workload)]
    if used is not None and not any(one.gate.id == "cpu-wait" and one.weight is not None for one in readings):
        more += own_pressure(used, stack)
    gates = tuple((reading.gate.id, reading.value) for reading in readings)
    profile, seconds = read_profile(parts.get("iops.log", b""))
    return replace(
        base,
        values=values,
        remarks=(*_of_rig(parts, stack, workload, checks), *unlike_disks(values), *periods, *said, *at_gates, *more),
        gates=gates,
        profile=profile,
        profile_seconds=seconds,
    )


def _values(
    parts: Mapping[str, bytes], outputs: Sequence[FioResult], used: Use | None, stack: Stack, workload: Workload
) -> Iterator[tuple[str, float]]:
    """Yield the metrics beside fio's own, one extractor after the other; each is silent without its evidence."""
    every = _together(outputs)
    result, iops = _measured(every, workload), measurement_of(every).get("iops")  # CPU was spent on I/Os of all jobs
    if used is not None:
        yield from _host_values(iops, used)
        yield from _written(every, used)
    yield from boundary_values(boundaries_of(parts, used, stack), iops)
    if used is not None:
        yield from cost_values(parts, used, iops)
    if workload.recorded:
        yield from _extremes(result)
    if stack.kind.in_guest:
        busy = [one.devices[0].busy_percent for one in outputs if one.devices]
        yield from [("disk.util", math.fsum(busy) / len(busy))] if busy else ()
    yield from disk_values(result, stack)
    yield from _when_idle(parts)
    if (skew := _skew(parts)) is not None:
        yield "guests.skew", skew * 1e9


def _of_rig(
    parts: Mapping[str, bytes], stack: Stack, workload: Workload, checks: Sequence[Check] | None
) -> Iterator[Remark]:
    """Remarks that follow from the rig, not from the load's figures."""
    yield from () if checks is None else unverified_remarks(stack, checks)
    if not stack.kind.measures:
        yield SIMULATED.remark(
            text="simulated: these figures come from a formula and a seed, and no disk was measured"
        )
    yield from _of_accelerator(parts.get("accelerator.txt", b""))
    if (skew := _skew(parts)) is not None and skew > SKEW_SECONDS:
        # rounded up, so that it never reads like the limit itself
        text = f"the guests began {math.ceil(skew * 1e3)} ms apart, more than {SKEW_SECONDS * 1e3:.0f} ms"
        yield remark_of("start-skew", text=text)
    yield from _of_jobs(parts)
    yield from _on_one_disk(parts)
    yield from _through_fuse(stack, workload, checks or ())


def _of_jobs(parts: Mapping[str, bytes]) -> Iterator[Remark]:
    """A job that stood still, as a backup that nobody reads, took nothing from the load."""
    with _readable(VM_JOBS):
        jobs = dict[str, bool](json.loads(parts.get(VM_JOBS, b"{}")))
    for moved, how in ((True, "did"), (False, "had open, though it did not go on,")):
        if told := ", ".join(printable(name) for name in jobs if jobs[name] is moved):
            text = f"while it was measured libvirt {how} this with the VM: {told}"
            yield remark_of("vm-job", text=text, weight=Weight.INVALID if moved else Weight.WARNING)


def _said(result: FioResult, workload: Workload, *, ours: bool) -> tuple[Remark, ...]:
    """Remarks on the load's own figures; for a trial some of them are left to the gates."""
    weights = {"contradiction": Weight.INVALID} if ours else {}
    if workload.buffered:  # on purpose: it may be compared with itself, and the remark says what it measures
        weights |= {"page-cache": Weight.WARNING}
    return tuple(
        replace(r, weight=weights.get(r.id, r.weight))
        for r in explain(result)
        if r.weight is not Weight.NOTE and r.id not in _OF_SINGLE_RUNS
        if not ours or r.weight is Weight.INVALID or r.id not in _AT_THE_GATES
    )


def _read(parts: Mapping[str, bytes]) -> list[FioResult]:
    """Read fio's output from every guest that ran it. Raises LoadError where it cannot be read."""
    try:
        name = next(name for name in FIO_OUTPUTS if name in parts)
        names = itertools.takewhile(parts.__contains__, (of_guest(name, number) for number in itertools.count()))
        return [meant_of(read_result(text_of(parts[one])), parts) for one in names]
    except (ReadError, StopIteration) as error:
        raise LoadError(f"fio's output cannot be read: {error}") from None


def _together(outputs: Sequence[FioResult]) -> FioResult:
    loads = tuple(load for one in outputs for load in one.loads)
    return replace(outputs[0], loads=loads, devices=tuple(device for one in outputs for device in one.devices))


def _skew(parts: Mapping[str, bytes]) -> float | None:
    """Return how many seconds lay between the first I/O of the first guest and that of the last."""
    with _readable(BARRIER):
        return float(json.loads(parts[BARRIER])["skew_seconds"]) if BARRIER in parts else None


def _when_idle(parts: Mapping[str, bytes]) -> Iterator[tuple[str, float]]:
    """Yield the CPU time of the stack's processes in the time after the load, in % of one CPU."""
    if IDLE in parts:
        with _readable(IDLE):
            idle = json.loads(parts[IDLE])
            used = float(idle["cpu_seconds"]) / float(idle["seconds"]) * 100
        yield "cpu.idle", used


def _on_one_disk(parts: Mapping[str, bytes]) -> Iterator[Remark]:
    with _readable(DISKS):
        images = json.loads(parts[DISKS])["disks"] if DISKS in parts else []
        shared = sorted(set[str].intersection(*map(set, images))) if images else []
        disks = ", ".join(shared)
    if shared:
        yield remark_of("one-disk", text=f"the images that guests.spread keeps apart both lie on {disks}")


def _through_fuse(stack: Stack, workload: Workload, checks: Sequence[Check]) -> Iterator[Remark]:
    exported = stack.kind.front == "export" and stack.export == "fuse" and stack.disk.backend != "null-co"
    if exported and workload.writes and workload.depth > 1 and not data_kept(checks):
        yield remark_of(
            "fuse-writes",
            text=f"{workload.depth} requests in flight, writes among them, went through a FUSE export, and nobody"
            " checked that their data were kept: QEMU 7.2.22 and 10.0.2 put some in the place of others",
        )


@contextlib.contextmanager
def _readable(capture: str) -> Iterator[None]:
    """Have what reads a capture of ours raise LoadError where it is damaged."""
    try:
        yield
    except (ValueError, KeyError, TypeError, ZeroDivisionError, RecursionError):
        raise LoadError(f"the trial's {capture} cannot be read: it is damaged") from None


def _measured(result: FioResult, workload: Workload) -> FioResult:
    """Leave out background jobs."""
    kept = tuple(load for load in result.loads if load.name != BACKGROUND)
    return result if workload.verbatim is not None or not kept else replace(result, loads=kept)


def _extremes(result: FioResult) -> Iterator[tuple[str, float]]:
    kinds = [stream.lat for stream in result.streams if stream.lat is not None]
    least = [kind.min_ns for kind in kinds if kind.min_ns is not None]
    greatest = [kind.max_ns for kind in kinds if kind.max_ns is not None]
    if least and greatest:
        yield "latency.min", min(least)
        yield "latency.max", max(greatest)


def _host_values(iops: float | None, used: Use) -> Iterator[tuple[str, float]]:
    daemon, load, guest = used.role("daemon"), used.role("load"), used.role("guest")
    if guest is not None:  # its vCPUs run the load, all other threads of its QEMU serve the disk
        vcpus = sum(thread.cpu_seconds for thread in guest.threads if thread.comm.startswith("CPU "))
        yield "cpu.rig", max(0.0, guest.cpu_seconds - vcpus) / used.seconds * 100
        yield from [("cpu_per_io", guest.cpu_seconds / used.seconds / iops)] if iops else ()
    if daemon is not None:
        yield "cpu.rig", daemon.cpu_seconds / used.seconds * 100
    if load is not None and iops:
        spent = load.cpu_seconds + (daemon.cpu_seconds if daemon is not None else 0.0)
        yield "cpu_per_io", spent / used.seconds / iops
    # the first device holds the filesystem; those below it count the same I/O again
    if used.disks:
        yield "device.util", used.disks[0].busy_percent


def _devices(used: Use) -> tuple[DeviceUse, ...]:
    """This host's device by our own counters, which are of the measured time alone."""
    both = {one.name for one in fields(DeviceUse)} & {one.name for one in fields(DiskUse)}
    return tuple(DeviceUse(**{name: getattr(one, name) for name in both}) for one in used.disks[:1])


def _written(result: FioResult, used: Use) -> Iterator[tuple[str, float]]:
    """What this host's device was given to write meanwhile, and its share of what the load wrote."""
    streams = [stream for stream in result.streams if stream.direction == "write"]
    if not used.disks or not streams or used.seconds <= 0:
        return
    device = used.disks[0]
    asked = math.fsum(stream.bandwidth_bps for stream in streams)
    yield "device.writes", device.writes / used.seconds
    yield "device.written_bytes", device.written_bytes / used.seconds
    if asked > 0:
        yield "device.reached", device.written_bytes / used.seconds / asked * 100


def _of_accelerator(said: bytes) -> Iterator[Remark]:
    if said.startswith(b"tcg"):
        yield EMULATED.remark(
            text="functional only: the guest ran under software emulation (TCG), so these numbers describe the "
            "emulator and are not comparable",
        )
    if said.startswith(b"kvm") and KVM_WITHOUT_HARDWARE.encode() in said:
        yield remark_of(
            "kvm-without-hardware",
            text="the guest ran under a KVM without hardware virtualization, which emulates in software what a CPU"
            " does elsewhere. Every exit to QEMU takes long: the fewer I/Os are in flight, the more of their latency"
            " is such exits. Its difference from arms without a VM includes this, by an amount that is not known;"
            " VMs are compared with one another on equal terms",
        )


def _cached(result: FioResult, used: Use, stack: Stack, workload: Workload) -> Iterator[Remark]:
    """Reads that never reached the device came from the host's page cache, or from blocks that hold no data.

    For a direct stack, a gate reports caching only if the image is also found in the page cache.
    """
    if stack.disk.backend != "file" or stack.spread is not None or stack.device.vfio_pci is not None:
        return  # of two disks neither served all, and what a guest has itself the host neither sees nor caches
    if not used.disks:
        yield remark_of(
            "no-device",
            text="no block device is seen behind the image (memory, an overlay, a network?), so it cannot be told "
            "whether a disk served it or only a page cache",
        )
    share = served_share(result, used, workload)
    if share is None:
        return
    if not is_direct(stack, workload):
        if share < CACHED_READS:
            yield GATE_BY_ID["page-cache"].remark(
                weight=Weight.WARNING,
                text=f"{medium(used).name} served {format_share(share)} of the bytes read, the page cache the rest",
                advice="compare it only with other cached arms",
            )
    elif share < UNSERVED_READS and max((cache.end_bytes for cache in used.caches), default=0) < RESIDENT_BYTES:
        yield remark_of(
            "unserved",
            text=f"{medium(used).name} served {format_share(share)} of the bytes read, and none came from the page"
            " cache: cached elsewhere, or counters incomplete",
            advice="blocks without data are answered without the disk: fill the image again",
        )
