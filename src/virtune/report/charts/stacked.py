# SPDX-License-Identifier: Apache-2.0
"""Bars of parts that add up, one for each arm: a request's time by layer, requests in flight, CPU time by thread."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from statistics import fmean
from typing import Any

from virtune.model.evidence import StudyRecord
from virtune.model.layers import Layers
from virtune.model.result import Result
from virtune.model.units import format_ns, format_share
from virtune.report.charts.chart import MOST_ARMS, PALETTE, Chart, file_name, specification
from virtune.report.text.vm.layers import in_flight_text

_THREADS = {
    "load": "load generator", "vcpu": "vCPUs", "iothread": "IOThreads", "main": "QEMU main loop",
    "worker": "QEMU workers", "uring": "io_uring workers", "kernel": "vhost and KVM", "other": "other QEMU threads",
}  # fmt: skip
"""The words for each kind of thread, in the order of the bars."""

_IDLE = "not handed over by the load"


@dataclass(frozen=True, slots=True, kw_only=True)
class _Part:
    """A piece of an arm's bar, with the interval of its size where there is one."""

    arm: str
    part: str
    size: float
    low: float | None = None
    high: float | None = None


def layer_times(result: Result, workload: str) -> Chart | None:
    """Draw where the time of a request goes in each arm; None where nothing was seen below the load."""
    return times_of(_layers(result, workload), workload)


def times_of(found: Mapping[str, Layers], workload: str) -> Chart | None:
    """Draw the same of arms, or disks, whose layers are known; None where nobody's could be told apart."""
    if all(len(layers.layers) < 2 for layers in found.values()):
        return None
    parts = [
        _Part(arm=arm, part=one.label, size=one.mean_ns / 1e3, low=_us(one.low_ns), high=_us(one.high_ns))
        for arm, layers in found.items()
        for one in layers.layers
    ]
    if not parts:
        return None
    arm, layers = next(iter(found.items()))
    most = max(layers.layers, key=lambda one: one.mean_ns)
    said = f"{format_share(most.share)} of a request's time in {arm} is in: {most.label}"
    return Chart(
        name=file_name("layers", workload),
        title=f"{workload}: {said}",
        reading=(
            "Each bar is the mean latency of one arm over its rounds, cut into the layers that a request passes,"
            " from the load on the left to the device on the right. The line at the end of a piece is its 95 %"
            " interval over rounds. Layers add up to an arithmetic mean; the tables' means over rounds are geometric."
        ),
        spec=specification(_spec(parts, "mean time of a request in us, lower is better"), height=_height(parts)),
        columns=("arm", "layer", "mean", "95 % interval", "share"),
        rows=tuple(
            (name, one.label, format_ns(one.mean_ns), _interval(one.low_ns, one.high_ns), format_share(one.share))
            for name, layers in found.items()
            for one in layers.layers
        ),
    )


def layer_load(result: Result, workload: str) -> Chart | None:
    """Draw how many requests are in each layer on average; None where nothing was seen below the load."""
    return in_flight_of(_layers(result, workload), workload)


def in_flight_of(found: Mapping[str, Layers], workload: str) -> Chart | None:
    """Draw the same of arms, or disks, whose layers are known; None where nobody's could be told apart."""
    if all(len(layers.layers) < 2 for layers in found.values()):
        return None
    parts = [
        _Part(arm=arm, part=one.label, size=one.in_flight) for arm, layers in found.items() for one in layers.layers
    ]
    if not parts:
        return None
    parts += [
        _Part(arm=arm, part=_IDLE, size=layers.idle)
        for arm, layers in found.items()
        if layers.idle is not None and layers.idle >= 0.05
    ]
    fullest = max(parts, key=lambda one: one.size)
    return Chart(
        name=file_name("in-flight", workload),
        title=f"{workload}: most requests of {fullest.arm} are in: {fullest.part} ({in_flight_text(fullest.size)})",
        reading=(
            "Each bar is the mean number of requests under way in one arm, by the layer where they are (rate times "
            "time, Little's law). Where most of them are, requests wait or are worked on."
        ),
        spec=specification(_spec(parts, "requests in flight, mean"), height=_height(parts)),
        columns=("arm", "layer", "in flight"),
        rows=tuple((one.arm, one.part, in_flight_text(one.size)) for one in parts),
    )


def cpu_by_thread(result: Result, record: StudyRecord, workload: str) -> Chart | None:
    """Draw the CPU time per I/O of each arm by kind of thread; None where no trial has it."""
    parts = []
    for arm in (one.name for one in result.study.arms):
        every = [
            one.measurement for one in record.trials
            if one.trial.arm == arm and one.trial.workload == workload and one.measurement is not None
        ]  # fmt: skip
        # the trials of the table: where none counts, those that were disturbed
        used = [one for one in every if result.counts(arm, one)] or every
        for role, words in _THREADS.items():
            values = [value for one in used if (value := one.get(f"cpu.io.{role}")) is not None]
            if values and fmean(values) > 0:
                parts.append(_Part(arm=arm, part=words, size=fmean(values) * 1e6))
    if not parts or len(result.study.arms) > MOST_ARMS:
        return None
    totals = {
        arm: sum(one.size for one in parts if one.arm == arm) for arm in dict.fromkeys(one.arm for one in parts)
    }
    least = min(totals, key=lambda arm: totals[arm])
    return Chart(
        name=file_name("threads", workload),
        title=f"{workload}: an I/O of {least} costs {format_ns(totals[least] * 1e3)} of CPU time",
        reading=(
            "Each bar is the CPU time that one I/O of an arm takes on this host, by the kind of thread that spends "
            "it: the mean of the trials that count. A thread that spends 10 us for each I/O is full at 100,000 IOPS."
        ),
        spec=specification(_spec(parts, "CPU time per I/O in us, lower is better"), height=_height(parts)),
        columns=("arm", "threads", "CPU time per I/O"),
        rows=tuple((one.arm, one.part, format_ns(one.size * 1e3)) for one in parts),
    )


def _layers(result: Result, workload: str) -> dict[str, Layers]:
    if len(result.study.arms) > MOST_ARMS:
        return {}
    return {one.arm: one.layers for one in result.arms if one.workload == workload and one.layers is not None}


def _us(nanoseconds: float | None) -> float | None:
    return None if nanoseconds is None else nanoseconds / 1e3


def _interval(low: float | None, high: float | None) -> str:
    return "-" if low is None or high is None else f"{format_ns(low)} to {format_ns(high)}"


def _height(parts: Sequence[_Part]) -> int:
    return 36 * len({one.arm for one in parts}) + 10


def _spec(parts: Sequence[_Part], title: str) -> dict[str, Any]:
    names, kinds = (list(dict.fromkeys(words)) for words in ((p.arm for p in parts), (p.part for p in parts)))
    ends: dict[str, float] = {}
    rows = []
    for one in parts:
        begin = ends.get(one.arm, 0.0)
        ends[one.arm] = begin + one.size
        row = {"arm": one.arm, "part": one.part, "from": begin, "to": ends[one.arm]}
        if one.low is not None and one.high is not None:
            row |= {"low": begin + max(0.0, one.low), "high": begin + one.high}
        rows.append(row)
    y = {"field": "arm", "type": "nominal", "sort": names, "axis": {"title": None, "labelLimit": 220},
         "scale": {"padding": 0.3}}  # fmt: skip
    columns = max(1, min(3, 100 // max(map(len, kinds))))  # so that no label covers its neighbour
    colours = [PALETTE[at % len(PALETTE)] for at in range(len(kinds))]
    x = {"field": "from", "type": "quantitative", "scale": {"zero": True}, "axis": {"title": title}}
    legend = {"title": None, "orient": "bottom", "columns": columns, "labelLimit": 560}
    colour = {"field": "part", "type": "nominal", "scale": {"domain": kinds, "range": colours}, "legend": legend}
    return {
        "data": {"values": rows},
        "encoding": {"y": y},
        "layer": [
            {"mark": {"type": "bar", "stroke": "currentColor", "strokeWidth": 0.6},
             "encoding": {"x": x, "x2": {"field": "to"}, "color": colour}},
            {"transform": [{"filter": "isValid(datum.low)"}],
             "mark": {"type": "rule", "strokeWidth": 2, "color": "currentColor"},
             "encoding": {"x": {**x, "field": "low"}, "x2": {"field": "high"}}},
        ],
    }  # fmt: skip
