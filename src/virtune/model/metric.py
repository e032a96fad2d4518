# SPDX-License-Identifier: Apache-2.0
"""Metrics: what is compared, in which unit, and which way is better.

Latency has two kinds, named as fio names them. Total latency (`lat`) begins when an I/O is submitted; it gives the
metrics `latency.*`. Completion latency (`clat`) begins when the submitting call has returned; it gives the metrics
`clat.*`. fio prints percentiles of completion latency unless `lat_percentiles` is set, so a result that was made
elsewhere may have no percentiles of total latency: `Metric.instead` then replaces it, under a label that says so.
"""

from collections.abc import Iterator
from dataclasses import dataclass
from functools import partial
from typing import Annotated, Literal, get_args

from virtune.model.errors import PlanError
from virtune.model.text import did_you_mean

Boundary = Literal["application", "guest", "ring", "backend", "device"]
"""Where requests are timed, from the top: fio's own latency; the guest's block layer; the virtqueue, from offered to
completed; QEMU's block layer, from when a request was taken off the virtqueue; the host's block layer.
"""

BOUNDARIES: tuple[Boundary, ...] = get_args(Boundary)

ThreadRole = Literal["vcpu", "iothread", "main", "worker", "uring", "kernel", "other"]

THREAD_ROLES: tuple[ThreadRole, ...] = get_args(ThreadRole)

PERCENTILES: tuple[float, ...] = (50.0, 70.0, 90.0, 95.0, 99.0, 99.9, 99.99)
"""The percentiles that every table shows: those of the studies that virtune reproduces, and the tail."""

FLUSH_PERCENTILES: tuple[float, ...] = (50.0, 99.0, 99.9)
"""Flushes are fewer than I/Os, so fewer of their percentiles are meaningful."""

DIRECTION_PERCENTILES: tuple[float, ...] = (50.0, 99.0, 99.9)
"""Those that tables show of reads and of writes by themselves."""

A_METRIC_NAME = {"$ref": "#/$defs/MetricName"}
"""The id of a metric, in the terms of a result's schema."""

MeasuredAs = Annotated[
    str | None,
    "The metric of completion latency that was measured in its place; null where it was itself.",
    {"anyOf": [A_METRIC_NAME, {"type": "null"}]},
]

DIRECTIONS: tuple[Literal["read", "write"], ...] = ("read", "write")
"""The directions of a mixed load that have their own metrics, by the prefix of their ids."""

DISKS_MAX = 8
"""The most disks of one guest, or files of the host, that share a load."""

Distribution = Literal["latency", "clat", "sync", "read.latency", "read.clat", "write.latency", "write.clat"]
DISTRIBUTIONS: tuple[Distribution, ...] = get_args(Distribution)
"""The distributions that percentiles may be taken of: total or completion latency of all I/Os or of one direction,
and flushes.
"""


@dataclass(frozen=True, slots=True, kw_only=True)
class Metric:
    """A quantity: its id in JSON, a short label, the base unit and which direction is better.

    `percent` is set for percentiles: those of several trials come from merged histograms, never from a mean. `of`
    names the distribution that a percentile is of. `over` is how rounds are combined: their mean, minimum or maximum.
    `compared` is False for utilisation of a CPU or device: more is worse at equal IOPS and natural at more IOPS.
    `told` is False for metrics that tables show only on request. `instead` is the metric of completion latency that
    replaces this one where total latency was not measured. `direction` is set for the metrics of reads or of writes
    by themselves.
    """

    id: str
    label: str
    unit: Literal["1/s", "B/s", "ns", "%", "s/io", "1/io"]
    better: Literal["higher", "lower"]
    percent: float | None = None
    compared: bool = True
    of: Distribution = "latency"
    over: Literal["mean", "min", "max"] = "mean"
    told: bool = True
    instead: str | None = None
    direction: Literal["read", "write"] | None = None


_less = partial(Metric, better="lower", told=False)
"""Of what less is better, shown on request only."""


def _percentiles(
    of: Distribution, percentiles: tuple[float, ...], *, told: tuple[float, ...], instead: str | None = None
) -> Iterator[Metric]:
    for percent in percentiles:
        yield Metric(
            id=f"{of}.p{percent:g}",
            label=f"{of.replace('.', ' ')} p{percent:g}",
            unit="ns",
            better="lower",
            percent=percent,
            of=of,
            told=percent in told,
            instead=None if instead is None else f"{instead}.p{percent:g}",
            direction=next((one for one in DIRECTIONS if of.startswith(one)), None),
        )


def _of_direction(
    direction: Literal["read", "write"], latency: Distribution, completion: Distribution
) -> tuple[Metric, ...]:
    more = partial(Metric, better="higher", direction=direction)
    mean = partial(Metric, unit="ns", better="lower", direction=direction)
    clat = f"{direction}.clat.mean"
    return (
        more(id=f"{direction}.iops", label=f"{direction} IOPS", unit="1/s"),
        more(id=f"{direction}.bandwidth", label=f"{direction} bandwidth", unit="B/s", told=False),
        mean(id=f"{direction}.latency.mean", label=f"{direction} latency mean", instead=clat),
        *_percentiles(latency, PERCENTILES, told=DIRECTION_PERCENTILES, instead=completion),
        mean(id=clat, label=f"{direction} clat mean", told=False),
        *_percentiles(completion, PERCENTILES, told=()),
    )


def _of_layers() -> Iterator[Metric]:
    for boundary in BOUNDARIES[1:]:
        yield _less(id=f"below.{boundary}", label=f"time below {boundary}", unit="ns")
    for boundary in BOUNDARIES[1:]:
        yield _less(id=f"requests.{boundary}", label=f"requests at {boundary}", unit="%", compared=False)


def _of_threads() -> Iterator[Metric]:
    for role in (*THREAD_ROLES, "load"):
        yield _less(id=f"cpu.io.{role}", label=f"CPU per I/O, {role}", unit="s/io")
    for role in (*THREAD_ROLES, "load"):
        yield _less(id=f"switches.io.{role}", label=f"context switches per I/O, {role}", unit="1/io")
    yield _less(id="exits.io", label="KVM exits per I/O", unit="1/io")
    for role in (*THREAD_ROLES, "load"):
        yield _less(id=f"wait.{role}", label=f"CPU wait, {role}", unit="%", compared=False)
    for mode in ("usr", "sys"):
        yield _less(id=f"cpu.host.{mode}", label=f"host CPU {mode}", unit="%", compared=False)


def _of_disks() -> Iterator[Metric]:
    for number in range(1, DISKS_MAX + 1):
        yield Metric(id=f"disk.{number}.iops", label=f"disk {number} IOPS", unit="1/s", better="higher", told=False)
        yield _less(id=f"disk.{number}.latency.mean", label=f"disk {number} latency mean", unit="ns")


def _of_extremes() -> Iterator[Metric]:
    time = partial(_less, unit="ns", compared=False)
    for kind, name in (("slat", "slat"), ("clat", "clat"), ("lat", "latency")):
        if kind != "lat":
            yield time(id=f"{name}.min", label=f"{kind} min", over="min")
            yield time(id=f"{name}.max", label=f"{kind} max", over="max")
        yield time(id=f"{name}.stdev", label=f"{kind} stdev")
    iops = partial(Metric, unit="1/s", better="higher", compared=False, told=False)
    yield iops(id="iops.min", label="IOPS min", over="min")
    yield iops(id="iops.max", label="IOPS max", over="max")
    yield iops(id="iops.stdev", label="IOPS stdev")


def _of_load() -> Iterator[Metric]:
    """Yield what the load's own processes were held up by, and the requests that were merged on their way."""
    for name, label in (("ctx", "context switches"), ("majf", "major faults"), ("minf", "minor faults")):
        yield _less(id=f"load.{name}", label=f"load {label}", unit="1/s", compared=False)
    yield _less(id="cpu.idle", label="QEMU CPU when idle", unit="%", compared=False)
    of_device = partial(Metric, better="higher", compared=False, told=False)
    yield of_device(id="disk.merged", label="requests merged", unit="%")
    yield of_device(id="device.writes", label="device writes", unit="1/s")
    yield of_device(id="device.written_bytes", label="device bytes written", unit="B/s")
    yield of_device(id="device.reached", label="bytes written that reached the device", unit="%")


METRICS: tuple[Metric, ...] = (
    Metric(id="iops", label="IOPS", unit="1/s", better="higher"),
    Metric(id="bandwidth", label="bandwidth", unit="B/s", better="higher"),
    Metric(id="latency.mean", label="latency mean", unit="ns", better="lower", instead="clat.mean"),
    *_percentiles("latency", PERCENTILES, told=PERCENTILES, instead="clat"),
    *_of_direction("read", "read.latency", "read.clat"),
    *_of_direction("write", "write.latency", "write.clat"),
    Metric(id="slat.mean", label="slat mean", unit="ns", better="lower"),
    Metric(id="clat.mean", label="clat mean", unit="ns", better="lower"),
    *_percentiles("clat", PERCENTILES, told=()),
    Metric(id="sync.mean", label="sync mean", unit="ns", better="lower"),
    *_percentiles("sync", FLUSH_PERCENTILES, told=FLUSH_PERCENTILES),
    Metric(id="cpu.load.usr", label="load CPU usr", unit="%", better="lower", compared=False),
    Metric(id="cpu.load.sys", label="load CPU sys", unit="%", better="lower", compared=False),
    Metric(id="cpu.rig", label="QEMU CPU", unit="%", better="lower", compared=False),
    Metric(id="cpu_per_io", label="CPU per I/O", unit="s/io", better="lower"),
    Metric(id="device.util", label="device busy", unit="%", better="lower", compared=False),
    Metric(id="latency.min", label="latency min", unit="ns", better="lower", compared=False, over="min"),
    Metric(id="latency.max", label="latency max", unit="ns", better="lower", compared=False, over="max"),
    Metric(id="guests.skew", label="start skew", unit="ns", better="lower", compared=False, over="max"),
    Metric(id="disk.util", label="guest disk busy", unit="%", better="lower", compared=False),
    *_of_layers(),
    *_of_threads(),
    *_of_disks(),
    *_of_extremes(),
    *_of_load(),
)

BY_ID: dict[str, Metric] = {metric.id: metric for metric in METRICS}

_SHORT: dict[str, str] = {
    "bw": "bandwidth",
    "lat": "latency.mean",
    "latency": "latency.mean",
    **{f"p{percent:g}": f"latency.p{percent:g}" for percent in PERCENTILES},
}

ALIASES: dict[str, str] = {
    **_SHORT,
    "clat": "clat.mean",
    "slat": "slat.mean",
    **{f"lat.p{percent:g}": f"latency.p{percent:g}" for percent in PERCENTILES},
    **{f"{one}.{short}": f"{one}.{whole}" for one in DIRECTIONS for short, whole in _SHORT.items()},
}
"""Shorter words for a metric, as fio's users write them."""

FAMILIES = (
    "iops, bandwidth (bw), latency.mean (lat), latency.p50 to latency.p99.99 (p99), slat.mean, clat.mean and "
    "clat.p50 to clat.p99.99, sync.mean, sync.p50, sync.p99, sync.p99.9, cpu_per_io; of reads or writes alone "
    "read.iops, write.latency.p99 and so on"
)
"""The metrics that can be compared, in one line, for error messages."""


def metric_id(word: str) -> str | None:
    """Return the id of the metric that a word names, in any case; None for an unknown word."""
    names = (ALIASES.get(name, name) for name in (word.strip(), word.strip().lower()))
    return next((name for name in names if name in BY_ID), None)


def checked_metric(name: str) -> str:
    """Return the id of a metric, or of a shorter word for it; raises PlanError with what may have been meant."""
    found = metric_id(name)
    if found is None:
        raise PlanError(f"no metric {name!r}", hint=did_you_mean(name, (*BY_ID, *ALIASES)) or f"one of {FAMILIES}")
    return found
