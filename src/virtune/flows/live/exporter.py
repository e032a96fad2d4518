# SPDX-License-Identifier: Apache-2.0
"""The figures of running VMs' disks for Prometheus, over HTTP: what `virtune watch --listen` answers.

Counters are QEMU's own since its start, but for those by layer and the stalls, which begin with the watch. A label
has few values: a disk has some twenty series, and with histograms forty more for each kind of request that it sees.
"""

import contextlib
import itertools
import threading
from collections.abc import Iterator
from typing import TYPE_CHECKING, Any

from virtune.analyse.watch import Alarms
from virtune.flows.live.watch import Look
from virtune.model.bottleneck import DiskFrame
from virtune.model.errors import PreconditionError, UsageError, words_of
from virtune.model.live import DiskCount
from virtune.model.text import printable

if TYPE_CHECKING:
    from prometheus_client.core import Metric

METRICS = {
    "virtune_disk_operations_total": ("Requests completed, by QEMU's counters.", "vm disk operation"),
    "virtune_disk_bytes_total": ("Bytes read and written, by QEMU's counters.", "vm disk operation"),
    "virtune_disk_operation_seconds_total": (
        "Time of all requests together, in QEMU and below.",
        "vm disk operation",
    ),
    "virtune_disk_failed_operations_total": ("Requests that failed or were invalid.", "vm disk"),
    "virtune_disk_latency_seconds": ("Time of requests in QEMU and below, where QEMU keeps it.", "vm disk operation"),
    "virtune_disk_layer_seconds_total": ("Time of all requests by layer, since the watch began.", "vm disk layer"),
    "virtune_disk_layer_operations_total": ("Requests whose layers were seen, since the watch began.", "vm disk"),
    "virtune_disk_stalled_seconds_total": (
        "Time with requests and none completed, since the watch began.",
        "vm disk",
    ),
    "virtune_disk_limited_by": ("1 for what limits the disk now.", "vm disk cause"),
    "virtune_disk_in_flight": ("Requests under way at a time, the mean of the last interval.", "vm disk"),
    "virtune_disk_oldest_seconds": ("For how long requests have waited and none was completed.", "vm disk"),
    "virtune_disk_limit_used_ratio": ("How much of its nearest limit the disk uses.", "vm disk"),
    "virtune_rule_holds": ("1 where a rule of the watch holds.", "vm disk rule"),
    "virtune_watch_vms": ("Running VMs that are watched.", ""),
    "virtune_watch_unseen_vms": ("Running VMs that could not be looked at.", ""),
    "virtune_watch_last_look_timestamp_seconds": ("When the figures were taken, since 1970.", ""),
    "virtune_watch_monitor_held_seconds": ("For how long monitors were held at the last look.", ""),
}
"""Every metric with its help and its labels. Those in `_total` are counters, the latency is a histogram."""

_LAYERS = {"ring": "virtqueue", "backend": "qemu", "device": "device"}
_CLIENT_SECONDS = 10


class Exported:
    """The figures of the last look, as Prometheus' library collects them."""

    def __init__(self, alarms: Alarms) -> None:
        self._alarms = alarms
        self._lock = threading.Lock()
        self._look: Look | None = None
        self._sums: dict[tuple[str, ...], float] = {}

    def take(self, look: Look) -> None:
        """Have these figures from now on; a disk that is gone is forgotten."""
        here = {(one.vm, one.disk) for one in look.frame.disks}
        with self._lock:
            self._look = look
            self._sums = {key: value for key, value in self._sums.items() if key[1:3] in here}
            for one in look.frame.disks:
                for key, value in _risen(one):
                    self._sums[key] = self._sums.get(key, 0.0) + value

    def describe(self) -> list[Any]:
        """Return nothing, or the metrics would be collected twice."""
        return []

    def collect(self) -> "Iterator[Metric]":
        from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily, HistogramMetricFamily

        families: dict[str, Any] = {
            name: (CounterMetricFamily if name.endswith("_total") else GaugeMetricFamily)(
                name, words, labels=of.split()
            )
            for name, (words, of) in METRICS.items()
        }
        words, of = METRICS["virtune_disk_latency_seconds"]
        times = HistogramMetricFamily("virtune_disk_latency_seconds", words, labels=of.split())
        families["virtune_disk_latency_seconds"] = times
        with self._lock:
            for (name, *labels), value in () if self._look is None else self._values(self._look):
                if value is not None:
                    families[f"virtune_{name}"].add_metric(_told(*labels), value)
            for vm, disks in {} if self._look is None else self._look.sample.histograms.items():
                for disk, kind, found in ((d, k, f) for d, kinds in disks.items() for k, f in kinds.items()):
                    ends = (*(repr(end / 1e9) for end in found.boundaries_ns), "+Inf")
                    buckets = list(zip(ends, itertools.accumulate(found.bins), strict=True))
                    if any(found.bins):
                        times.add_metric(_told(vm, disk, kind), buckets, sum_value=None)  # QEMU keeps no sum
                        count = dict(zip(of.split(), _told(vm, disk, kind), strict=True))
                        times.add_sample("virtune_disk_latency_seconds_count", count, buckets[-1][1])
        yield from families.values()

    def _values(self, look: Look) -> "Iterator[tuple[tuple[str, ...], float | None]]":
        """Yield metric and labels with the value, None where it is not known."""
        for one in look.frame.disks:
            disk = (one.vm, one.disk)
            count = look.sample.counts.get(one.vm, {}).get(one.disk)
            for name, *kind, value in () if count is None else _counted(count):
                yield (f"disk_{name}", *disk, *kind), value
            yield ("disk_limited_by", *disk, one.found.cause.value), 1
            yield ("disk_in_flight", *disk), one.in_flight
            yield ("disk_oldest_seconds", *disk), None if one.path.held is None else one.path.held_seconds
            yield ("disk_limit_used_ratio", *disk), one.path.limit_used
            for rule in self._alarms.rules:
                yield ("rule_holds", *disk, rule.text), (one.vm, one.disk, rule) in self._alarms.raised
        yield from self._sums.items()
        yield ("watch_vms",), sum(not vm.failed for vm in look.sample.vms)
        yield ("watch_unseen_vms",), sum(bool(vm.failed) for vm in look.sample.vms)
        yield ("watch_last_look_timestamp_seconds",), look.frame.wall_seconds
        yield ("watch_monitor_held_seconds",), look.held_seconds


def _told(*labels: str) -> list[str]:
    """Return the values of labels, alike in every series of a disk: queries join these by them."""
    return [printable(one, most=200) for one in labels]


def _risen(one: DiskFrame) -> "Iterator[tuple[tuple[str, ...], float]]":
    """Yield what a disk adds to the counters that begin with the watch."""
    seconds, layers = one.rates.seconds, () if one.path.layers is None else one.path.layers.layers
    yield ("disk_stalled_seconds_total", one.vm, one.disk), one.path.stalled * seconds
    yield ("disk_layer_operations_total", one.vm, one.disk), one.path.iops * seconds if layers else 0.0
    for layer in layers:
        name = "joined" if layer.joined else _LAYERS.get(layer.boundary, "other")
        yield ("disk_layer_seconds_total", one.vm, one.disk, name), layer.mean_ns * one.path.iops * seconds / 1e9


def _counted(count: DiskCount) -> "Iterator[tuple[Any, ...]]":
    for kind, done, moved, time_ns in (
        ("read", count.reads, count.read_bytes, count.read_ns),
        ("write", count.writes, count.written_bytes, count.write_ns),
        ("flush", count.flushes, None, count.flush_ns),
        ("discard", count.discards, None, count.discard_ns),
    ):
        yield "operations_total", kind, done
        yield "bytes_total", kind, moved
        yield "operation_seconds_total", kind, None if time_ns is None else time_ns / 1e9
    yield "failed_operations_total", count.failed


@contextlib.contextmanager
def listening(address: str, exported: Exported) -> Iterator[str]:
    """Answer scrapes of /metrics at ADDRESS:PORT while the block runs; yields the address that it has.

    Raises UsageError for what is no address, PreconditionError where it cannot be had.
    """
    from prometheus_client import CollectorRegistry, start_http_server

    host, _, port = address.rpartition(":")
    if not host or not (port.isascii() and port.isdecimal()) or int(port) > 65535:
        raise UsageError(f"--listen is ADDRESS:PORT, not {address[:60]!r}", hint="`--listen 127.0.0.1:9177`")
    registry = CollectorRegistry()
    registry.register(exported)
    try:
        server, _ = start_http_server(int(port), host.strip("[]"), registry)
    except OSError as error:
        hint = "port 0 takes any free one"
        raise PreconditionError(f"cannot listen on {address}: {words_of(error)}", hint=hint) from None
    server.RequestHandlerClass.timeout = _CLIENT_SECONDS  # type: ignore[attr-defined]  # of one that says nothing
    try:
        yield f"{host}:{server.server_port}"
    finally:
        server.shutdown()
        server.server_close()
