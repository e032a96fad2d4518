# SPDX-License-Identifier: Apache-2.0
"""One look at the disks of this host's VMs, as a JSON document with a published schema."""

from typing import Annotated, TypedDict

from virtune import __version__
from virtune.model.bottleneck import CAUSE_WORDS, Cause
from virtune.model.counters import DiskUse
from virtune.model.frame import DiskFrame, ThreadFrame, TopFrame, VmFrame
from virtune.model.threads import THREAD_ROLES
from virtune.report.json.document import IDENTITY, NOT_NEGATIVE, POSITIVE, ProgramVersion, Sentence
from virtune.report.json.layers import LayersPart, OperationPart, layers_document, operations_document

SCHEMA = "virtune/top/3"


class _Way(TypedDict):
    """Reads, or writes."""

    iops: Annotated[float, "I/Os a second.", NOT_NEGATIVE]
    bandwidth_bps: Annotated[float, "Bytes a second.", NOT_NEGATIVE]


class _Bottleneck(TypedDict):
    """What limits the disk."""

    cause: Annotated[Cause, "The cause; `undecidable` where nothing stands out."]
    text: Annotated[str, "The cause in words."]
    evidence: Annotated[list[Sentence], "By what it was seen."]
    experiment: Annotated[str, "What to try next."]


class _Limit(TypedDict):
    """A limit that is set on a disk."""

    unit: Annotated[str, "What it limits: `iops`, `read.bps`; that of a control group begins with `control group, `."]
    allowed: Annotated[float, "What it allows in a second.", NOT_NEGATIVE]
    done: Annotated[float, "What was done in a second.", NOT_NEGATIVE]


class _Disk(TypedDict):
    """A disk of a VM."""

    disk: Annotated[str, "Its target in the VM, or the id of its device."]
    seconds: Annotated[float, "The time between the two counts of it.", POSITIVE]
    iops: Annotated[float, "Requests a second: reads, writes, flushes and discards.", NOT_NEGATIVE]
    bandwidth_bps: Annotated[float, "Bytes a second, read and written.", NOT_NEGATIVE]
    read: _Way
    write: _Way
    flushes_per_second: Annotated[float, "Flushes a second."]
    operations: Annotated[list[OperationPart], "Its requests by what they ask for; without discards where unknown."]
    failed_per_second: Annotated[float | None, "Requests that failed; null where they are not counted.", NOT_NEGATIVE]
    latency_ns: Annotated[
        float | None,
        "Mean time of a request, from where it is first seen; null without requests.",
        NOT_NEGATIVE,
    ]
    in_flight: Annotated[
        float,
        "Requests under way at a time, on average (Little's law); where none was completed, how many wait.",
        NOT_NEGATIVE,
    ]
    waiting_seconds: Annotated[
        float | None,
        "How long at least none had been completed by the end while some were in flight; null where that is unseen.",
        NOT_NEGATIVE,
    ]
    cpu_per_io_ns: Annotated[
        float | None,
        "CPU time of QEMU's threads for each I/O, without vCPUs; null where it is unknown.",
        NOT_NEGATIVE,
    ]
    layers: LayersPart | None
    limits: Annotated[list[_Limit], "The limits that are set on it."]
    bottleneck: _Bottleneck


class _Thread(TypedDict):
    """A thread of QEMU."""

    tid: Annotated[int, "Its id.", NOT_NEGATIVE]
    name: Annotated[str, "Its name."]
    role: Annotated[str, "What it does.", {"enum": list(THREAD_ROLES)}]
    cpu_share: Annotated[float, "How much of a CPU it used, 0 to 1.", NOT_NEGATIVE]
    user_share: Annotated[float, "User time as a share of a CPU, by clock ticks of 10 ms.", NOT_NEGATIVE]
    system_share: Annotated[float, "Kernel time as a share of a CPU, by clock ticks of 10 ms.", NOT_NEGATIVE]
    wait_share: Annotated[float | None, "Share of the time in which it could have run and had no CPU.", NOT_NEGATIVE]


class _Vm(TypedDict):
    """A running VM."""

    vm: Annotated[str, "Its name."]
    emulated: Annotated[bool, "Whether it runs without KVM (TCG), so that its figures are the emulator's."]
    disks: Annotated[list[_Disk], "Its disks."]
    threads: Annotated[list[_Thread], "The threads of its QEMU; none where they are not visible."]


class _Pressure(TypedDict):
    """Stalls on a resource (PSI)."""

    resource: Annotated[str, "cpu, io or memory."]
    some_percent: Annotated[float | None, "Time in which some task was stalled."]
    full_percent: Annotated[float | None, "Time in which all tasks were stalled."]


class _Device(TypedDict):
    """A block device below the disks."""

    name: Annotated[str, "Its name in /proc/diskstats."]
    read: _Way
    write: _Way
    latency_ns: Annotated[float | None, "Mean time of a request; null without requests.", NOT_NEGATIVE]
    in_flight: Annotated[float, "Requests under way at a time, on average.", NOT_NEGATIVE]
    busy_percent: Annotated[float, "Time with a request under way.", NOT_NEGATIVE]


class _Host(TypedDict):
    """The host."""

    busy_percent: Annotated[float | None, "Of all CPUs together, busy.", NOT_NEGATIVE]
    user_percent: Annotated[float | None, "In user programs, guests included.", NOT_NEGATIVE]
    system_percent: Annotated[float | None, "In the kernel, interrupts included.", NOT_NEGATIVE]
    iowait_percent: Annotated[float | None, "Idle with I/O outstanding.", NOT_NEGATIVE]
    steal_percent: Annotated[float | None, "CPU steal: taken by other VMs on the physical host.", NOT_NEGATIVE]
    foreign_cpus: Annotated[float | None, "CPUs used by others than the QEMUs of these VMs.", NOT_NEGATIVE]
    load_1min: Annotated[float | None, "The load average over a minute.", NOT_NEGATIVE]
    pressure: Annotated[list[_Pressure], "Pressure by resource."]
    devices: Annotated[list[_Device], "Block devices below the disks."]


class TopDocument(TypedDict):
    """The disks of this host's running VMs over one interval."""

    schema: Annotated[str, IDENTITY, {"const": SCHEMA}]
    virtune: ProgramVersion
    time: Annotated[float, "When the interval ended, in seconds since 1970."]
    seconds: Annotated[float, "How long it was.", POSITIVE]
    vms: Annotated[list[_Vm], "The running VMs."]
    host: _Host
    missing: Annotated[list[Sentence], "What could not be seen, and what it would add."]


def top_document(frame: TopFrame) -> TopDocument:
    """Return a frame in base units."""
    return {
        "schema": SCHEMA,
        "virtune": __version__,
        "time": frame.wall_seconds,
        "seconds": frame.seconds,
        "vms": [_vm(one) for one in frame.vms],
        "host": _host(frame),
        "missing": list(frame.missing),
    }


def _vm(one: VmFrame) -> _Vm:
    return {
        "vm": one.vm,
        "emulated": one.emulated,
        "disks": [_disk(disk) for disk in one.disks],
        "threads": [_thread(thread) for thread in one.threads],
    }


def _disk(one: DiskFrame) -> _Disk:
    rates = one.rates
    return {
        "disk": one.disk,
        "seconds": rates.seconds,
        "iops": one.path.iops,
        "bandwidth_bps": one.path.bandwidth,
        "read": {"iops": rates.reads / rates.seconds, "bandwidth_bps": rates.read_bytes / rates.seconds},
        "write": {"iops": rates.writes / rates.seconds, "bandwidth_bps": rates.written_bytes / rates.seconds},
        "flushes_per_second": rates.flushes / rates.seconds,
        "operations": operations_document(one.path.operations),
        "failed_per_second": None if rates.failed is None else max(0, rates.failed) / rates.seconds,
        "latency_ns": one.latency_ns,
        "in_flight": one.in_flight,
        "waiting_seconds": None if one.path.held is None else one.path.held_seconds,
        "cpu_per_io_ns": one.cpu_per_io_ns,
        "layers": layers_document(one.path.layers),
        "limits": [
            {"unit": unit, "allowed": allowed, "done": done} for unit, (allowed, done) in one.path.limits.items()
        ],
        "bottleneck": {
            "cause": one.found.cause,
            "text": CAUSE_WORDS[one.found.cause],
            "evidence": list(one.found.evidence),
            "experiment": one.found.experiment,
        },
    }


def _thread(one: ThreadFrame) -> _Thread:
    cost = one.cost
    return {
        "tid": cost.tid,
        "name": cost.name,
        "role": cost.role,
        "cpu_share": cost.busy,
        "user_share": cost.user_seconds / cost.seconds,
        "system_share": cost.system_seconds / cost.seconds,
        "wait_share": None if cost.wait_seconds is None else cost.stalled,
    }


def _host(frame: TopFrame) -> _Host:
    cpu = frame.host.cpu
    return {
        "busy_percent": None if cpu is None else cpu.busy_percent,
        "user_percent": None if cpu is None else cpu.user_percent,
        "system_percent": None if cpu is None else cpu.system_percent,
        "iowait_percent": None if cpu is None else cpu.iowait_percent,
        "steal_percent": None if cpu is None else cpu.steal_percent,
        "foreign_cpus": frame.host.foreign_cpus,
        "load_1min": frame.host.load_1min,
        "pressure": [
            {"resource": one.resource, "some_percent": one.some_percent, "full_percent": one.full_percent}
            for one in frame.host.pressure
        ],
        "devices": [_device(one, frame.seconds) for one in frame.host.disks],
    }


def _device(one: DiskUse, seconds: float) -> _Device:
    mean = one.latency_us_mean
    return {
        "name": one.name,
        "read": {"iops": one.reads / seconds, "bandwidth_bps": one.read_bytes / seconds},
        "write": {"iops": one.writes / seconds, "bandwidth_bps": one.written_bytes / seconds},
        "latency_ns": None if mean is None else mean * 1e3,
        "in_flight": one.queue_depth_mean,
        "busy_percent": one.busy_percent,
    }
