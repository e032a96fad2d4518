# SPDX-License-Identifier: Apache-2.0
"""One look at the disks of this host's VMs, as a JSON document with a published schema."""

from typing import Any

from virtune import __version__
from virtune.model.bottleneck import CAUSE_WORDS
from virtune.model.counters import DiskUse
from virtune.model.frame import DiskFrame, ThreadFrame, TopFrame, VmFrame
from virtune.report.json.layers import layers_document

SCHEMA = "virtune/top/1"


def top_document(frame: TopFrame) -> dict[str, Any]:
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


def _vm(one: VmFrame) -> dict[str, Any]:
    return {
        "vm": one.vm,
        "disks": [_disk(disk) for disk in one.disks],
        "threads": [_thread(thread) for thread in one.threads],
    }


def _disk(one: DiskFrame) -> dict[str, Any]:
    rates = one.rates
    return {
        "disk": one.disk,
        "seconds": rates.seconds,
        "iops": one.path.iops,
        "bandwidth_bps": one.path.bandwidth,
        "read": {"iops": rates.reads / rates.seconds, "bandwidth_bps": rates.read_bytes / rates.seconds},
        "write": {"iops": rates.writes / rates.seconds, "bandwidth_bps": rates.written_bytes / rates.seconds},
        "flushes_per_second": rates.flushes / rates.seconds,
        "latency_ns": one.latency_ns,
        "in_flight": one.in_flight,
        "cpu_per_io_ns": one.cpu_per_io_ns,
        "layers": layers_document(one.path.layers),
        "bottleneck": {
            "cause": one.found.cause.value,
            "text": CAUSE_WORDS[one.found.cause],
            "evidence": list(one.found.evidence),
            "experiment": one.found.experiment,
        },
    }


def _thread(one: ThreadFrame) -> dict[str, Any]:
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


def _host(frame: TopFrame) -> dict[str, Any]:
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


def _device(one: DiskUse, seconds: float) -> dict[str, Any]:
    mean = one.latency_us_mean
    return {
        "name": one.name,
        "read": {"iops": one.reads / seconds, "bandwidth_bps": one.read_bytes / seconds},
        "write": {"iops": one.writes / seconds, "bandwidth_bps": one.written_bytes / seconds},
        "latency_ns": None if mean is None else mean * 1e3,
        "in_flight": one.queue_depth_mean,
        "busy_percent": one.busy_percent,
    }
