# SPDX-License-Identifier: Apache-2.0
"""Metrics: what is compared, in which unit, and which way is better."""

from dataclasses import dataclass
from typing import Literal

PERCENTILES: tuple[float, ...] = (50.0, 70.0, 90.0, 95.0, 99.0, 99.9, 99.99)
"""The percentiles every table shows: those of the studies virtune reproduces, and the tail people pay for."""

FLUSH_PERCENTILES: tuple[float, ...] = (50.0, 99.0, 99.9)
"""Flushes are fewer than I/Os, so fewer of their percentiles say anything."""

Distribution = Literal["latency", "sync"]
DISTRIBUTIONS: tuple[Distribution, ...] = ("latency", "sync")
"""What percentiles may be of: I/Os, and flushes."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Metric:
    """A quantity: its id in JSON, a short label, the base unit and which way is better.

    `percent` is set for percentiles: those of several trials come from merged histograms, never from a mean.
    `of` names the distribution that a percentile is of.
    `over` says what stands for several rounds: their mean, the least or the greatest of them.
    `compared` is False for shares of a CPU or device: more of them is worse at equal IOPS and natural at more IOPS.
    """

    id: str
    label: str
    unit: Literal["1/s", "B/s", "ns", "%", "s/io"]
    better: Literal["higher", "lower"]
    percent: float | None = None
    compared: bool = True
    of: Distribution = "latency"
    over: Literal["mean", "min", "max"] = "mean"


METRICS: tuple[Metric, ...] = (
    Metric(id="iops", label="IOPS", unit="1/s", better="higher"),
    Metric(id="bandwidth", label="bandwidth", unit="B/s", better="higher"),
    Metric(id="latency.mean", label="latency mean", unit="ns", better="lower"),
    *(
        Metric(
            id=f"latency.p{percent:g}",
            label=f"latency p{percent:g}",
            unit="ns",
            better="lower",
            percent=percent,
        )
        for percent in PERCENTILES
    ),
    Metric(id="slat.mean", label="slat mean", unit="ns", better="lower"),
    Metric(id="clat.mean", label="clat mean", unit="ns", better="lower"),
    Metric(id="sync.mean", label="sync mean", unit="ns", better="lower"),
    *(
        Metric(
            id=f"sync.p{percent:g}",
            label=f"sync p{percent:g}",
            unit="ns",
            better="lower",
            percent=percent,
            of="sync",
        )
        for percent in FLUSH_PERCENTILES
    ),
    Metric(id="cpu.load.usr", label="load CPU usr", unit="%", better="lower", compared=False),
    Metric(id="cpu.load.sys", label="load CPU sys", unit="%", better="lower", compared=False),
    Metric(id="cpu.rig", label="QEMU CPU", unit="%", better="lower", compared=False),
    Metric(id="cpu_per_io", label="CPU per I/O", unit="s/io", better="lower"),
    Metric(id="device.util", label="device busy", unit="%", better="lower", compared=False),
    Metric(id="latency.min", label="latency min", unit="ns", better="lower", compared=False, over="min"),
    Metric(id="latency.max", label="latency max", unit="ns", better="lower", compared=False, over="max"),
    Metric(id="guests.skew", label="start skew", unit="ns", better="lower", compared=False, over="max"),
    Metric(id="disk.util", label="guest disk busy", unit="%", better="lower", compared=False),
)

BY_ID: dict[str, Metric] = {metric.id: metric for metric in METRICS}
