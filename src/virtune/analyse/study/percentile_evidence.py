# SPDX-License-Identifier: Apache-2.0
"""The evidence of a workload's trials for a percentile: which kind of latency it is of, and whether there are enough
I/Os.
"""

import math
from collections.abc import Iterable, Mapping
from dataclasses import replace

from virtune.model.evidence import TrialRecord
from virtune.model.measurement import Measurement
from virtune.model.metric import BY_ID, DISTRIBUTIONS, METRICS, Distribution, Metric
from virtune.model.reason import Reason, because
from virtune.model.study import Study
from virtune.model.threads import THREAD_ROLES
from virtune.model.verdict import Comparison

BEYOND = 20
"""The fewest latencies of a trial that must lie beyond a percentile for it to be used."""

StandIns = Mapping[tuple[str, str], str]
"""(workload, metric) -> the metric of completion latency that was measured instead."""


def stand_ins(trials: Iterable[TrialRecord]) -> dict[tuple[str, str], str]:
    """Return where completion latency replaces total latency: in all trials of a workload if one of them has no total
    latency. So two kinds of latency are never compared with one another.
    """
    found: dict[tuple[str, str], str] = {}
    for record in trials:
        if record.measurement is None:
            continue
        measured = dict(record.measurement.values)
        for metric in METRICS:
            if metric.instead in measured and metric.id not in measured:
                found[record.trial.workload, metric.id] = metric.instead
    return found


def measured_in_place(found: StandIns, workload: str, metric: Metric) -> Metric:
    """Return the metric that was measured for a requested one under a workload: itself, or that of completion
    latency.
    """
    return BY_ID[found.get((workload, metric.id), metric.id)]


def counts_of(measurement: Measurement) -> dict[Distribution, int]:
    """Return the number of latencies in each distribution of a trial."""
    if not (measurement.histogram or measurement.flushes or measurement.others):
        return {}  # as of a study that was read without them
    found = {kind: measurement.histogram_of(kind) for kind in DISTRIBUTIONS}
    return {kind: histogram.count for kind, histogram in found.items() if histogram is not None}


IN_STUDIES = frozenset({
    "cpu.host.usr", "cpu.host.sys", "cpu.idle", "slat.min", "slat.max", "slat.stdev", "clat.min", "clat.max",
    "clat.stdev", "latency.stdev", "iops.min", "iops.max", "iops.stdev", "load.ctx", "load.majf", "load.minf",
    "disk.merged", "device.writes", "device.written_bytes", "device.reached",
    *(f"clat.p{percent}" for percent in (50, 70, 90, 95, 99)), *(f"switches.io.{role}" for role in THREAD_ROLES),
})  # fmt: skip
"""The metrics that only the tables of built-in studies have."""


def enough_for(metric: Metric, count: float) -> bool:
    """Whether so many latencies are enough for a percentile; True for a metric that is not a percentile."""
    return metric.percent is None or count * (1 - metric.percent / 100) >= BEYOND


def told_metrics(study: Study, workload: str, trials: Iterable[TrialRecord]) -> list[Metric]:
    """Return the metrics to show for a workload: the usual and the requested ones, and those of reads and writes
    where it does both.
    """
    mixed = any(
        len(one.measurement.directions) > 1
        for one in trials
        if one.measurement is not None and one.trial.workload == workload
    )
    asked = {*study.judged, *(threshold.metric for threshold in study.conditions)}
    asked |= IN_STUDIES if study.builtin else set()
    return [one for one in METRICS if one.id in asked or (one.told and (mixed or one.direction is None))]


def named(
    comparison: Comparison, metric: Metric, actual: Metric, trials: Iterable[TrialRecord], *, enough: bool
) -> Comparison:
    """Label a comparison with the requested metric and the one measured instead, and mark it where no trial of an arm
    has enough I/Os for the percentile. `enough`: its workload has had the rounds that a verdict takes.
    """
    so_named = replace(comparison, metric=metric.id, measured_as=None if actual is metric else actual.id)
    if comparison.rounds or actual.percent is None:
        return so_named
    least = _least_counted(comparison, actual, trials)
    if not least or enough_for(actual, least):
        return so_named
    needed = math.ceil(round(BEYOND / (1 - actual.percent / 100), 6))
    times = math.ceil(needed / least)
    why = because(
        Reason.TOO_FEW_IOS,
        percent=f"{actual.percent:g}",
        needed=f"{needed:,}",
        had=f"{least:,}",
        times="twice" if times == 2 else f"{times:,} times",
    )
    return replace(so_named, why=why.text, reason=why.reason, closed=comparison.closed or enough)


def _least_counted(comparison: Comparison, metric: Metric, trials: Iterable[TrialRecord]) -> int:
    """Return the number of latencies in the largest trial of the arm with fewer; 0 where nothing was counted."""
    most = dict.fromkeys((comparison.baseline, comparison.candidate), 0)
    for record in trials:
        if record.trial.arm in most and record.trial.workload == comparison.workload and record.measurement:
            histogram = record.measurement.histogram_of(metric.of)
            count = 0 if histogram is None else histogram.count
            most[record.trial.arm] = max(count, most[record.trial.arm])
    return min((count for count in most.values() if count), default=0)
