# SPDX-License-Identifier: Apache-2.0
"""Bars of parts that add up, one for each arm: a request's time by layer, CPU time by thread."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from math import fsum
from statistics import fmean
from typing import Any

from virtune.model.evidence import StudyRecord
from virtune.model.live import Layers, RequestLayer
from virtune.model.metric import BOUNDARIES
from virtune.model.result import Result
from virtune.model.text import format_ns, format_share
from virtune.report.charts.chart import MOST_ARMS, PALETTE, Chart, file_name, filled
from virtune.report.pages.result import largest_decided
from virtune.report.words import names_text

_GROUPS_TOLD, _NAMES_TOLD = 2, 2
"""The most layers, and arms of each, that a title names."""

_THREADS = {
    "load": "load generator", "vcpu": "vCPUs", "iothread": "IOThreads", "main": "QEMU main loop",
    "worker": "QEMU workers", "uring": "io_uring workers", "kernel": "vhost and KVM", "other": "other QEMU threads",
}  # fmt: skip
"""The words for each kind of thread, in the order of the bars."""


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
    if len(result.study.arms) > MOST_ARMS:
        return None
    found = {one.arm: one.layers for one in result.arms if one.workload == workload and one.layers is not None}
    return times_of(found, workload)


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
    return Chart(
        name=file_name("layers", workload),
        title=f"{workload}: {_where_most(found)}",
        reading=(
            "The mean latency of each arm, cut into the layers that a request passes, from the load to the device;"
            " the line at the end of a piece is its 95 % interval. Sums differ slightly from the tables."
        ),
        spec=_spec(
            parts,
            {one.label: PALETTE[BOUNDARIES.index(one.boundary)] for each in found.values() for one in each.layers},
            "mean time of a request in us, lower is better",
        ),
        columns=("arm", "layer", "mean", "95 % interval", "share"),
        rows=tuple(
            (name, one.label, format_ns(one.mean_ns), _interval(one.low_ns, one.high_ns), format_share(one.share))
            for name, layers in found.items()
            for one in layers.layers
        ),
    )


def _where_most(found: Mapping[str, Layers]) -> str:
    """Say in which layer most of a request's time goes, by the arms that agree; in several where none has clearly
    more than another.
    """
    groups: dict[str, list[str]] = {}
    for arm, layers in found.items():
        groups.setdefault(" and ".join(_most(layers.layers)), []).append(arm)
    said = [f"{layers} ({names_text(arms, _NAMES_TOLD)})" for layers, arms in groups.items()]
    if len(groups) == 1 and len(found) > 1:
        said = [f"{next(iter(groups))}, in every arm"]
    more = f"; {len(said) - _GROUPS_TOLD} more" if len(said) > _GROUPS_TOLD else ""
    return f"most of a request's time goes to: {'; '.join(said[:_GROUPS_TOLD])}{more}"


def _most(layers: Sequence[RequestLayer]) -> list[str]:
    """Name the layer with the greatest part, and those whose part is the same in the table or within its interval."""
    top = max(layers, key=lambda one: one.mean_ns)
    return [
        one.label
        for one in layers
        if one is top
        or format_share(one.share) == format_share(top.share)
        or (one.high_ns is not None and top.low_ns is not None and one.high_ns >= top.low_ns)
    ]


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
        spent = {
            words: fmean(values)
            for role, words in _THREADS.items()
            if (values := [value for one in used if (value := one.get(f"cpu.io.{role}")) is not None])
        }
        whole = result.value_of_a_round(arm, workload, "cpu_per_io")
        # the parts are means of trials, and the table's value is that of a typical round: the bar is as long as it
        scale = whole.value / total if whole is not None and (total := fsum(spent.values())) > 0 else 1.0
        parts += [_Part(arm=arm, part=words, size=one * scale * 1e6) for words, one in spent.items() if one > 0]
    if not parts or len(result.study.arms) > MOST_ARMS:
        return None
    return Chart(
        name=file_name("threads", workload),
        title=f"{workload}: {largest_decided(result, workload, 'cpu_per_io')}",
        reading=(
            "CPU time per I/O on this host, by the kind of thread that spends it. 10 us per I/O: one CPU does 100,000"
            " IOPS."
        ),
        spec=_spec(
            parts, dict(zip(_THREADS.values(), PALETTE, strict=True)), "CPU time per I/O in us, lower is better"
        ),
        columns=("arm", "threads", "CPU time per I/O"),
        rows=tuple((one.arm, one.part, format_ns(one.size * 1e3)) for one in parts),
    )


def _us(nanoseconds: float | None) -> float | None:
    return None if nanoseconds is None else nanoseconds / 1e3


def _interval(low: float | None, high: float | None) -> str:
    return "-" if low is None or high is None else f"{format_ns(low)} to {format_ns(high)}"


def _spec(parts: Sequence[_Part], colours: Mapping[str, str], title: str) -> dict[str, Any]:
    """Return the specification; `colours` gives a layer or thread the same one in all pictures."""
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
    columns = max(1, min(3, 100 // max(map(len, kinds))))  # so that no label covers its neighbour
    scale = {"domain": kinds, "range": [colours[kind] for kind in kinds]}
    return filled(
        "stacked", height=36 * len(names) + 10, rows=rows, arms=names, colours=scale, columns=columns, title=title
    )
