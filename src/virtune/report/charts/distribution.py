# SPDX-License-Identifier: Apache-2.0
"""Latencies by percentile and by round, every trial in the order of time, and single I/Os on every system."""

import math
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from datetime import datetime
from functools import cache
from typing import Any

from virtune.model.evidence import StudyRecord, TrialRecord
from virtune.model.measurement import Histogram
from virtune.model.metric import BY_ID, Metric
from virtune.model.remark import label_of
from virtune.model.result import Result
from virtune.model.study import Study, Trial
from virtune.model.text import format_ns
from virtune.model.workload import Workload
from virtune.report.charts import chart
from virtune.report.charts.chart import MOST_ARMS, Chart, colours_of, file_name, filled, tens_of
from virtune.report.pages.result import largest_decided
from virtune.report.words import quantity

_STEPS = 12
"""Points for each tenfold of 1/(1-p): closer ones are one pixel apart."""

_TOLD = (50.0, 90.0, 99.0, 99.9, 99.99)


def percentile_curve(result: Result, workload: str) -> chart.Chart | None:
    """Draw each arm's latencies by percentile; None where no arm has a distribution."""
    arms = {
        one.arm: one.histogram
        for one in result.arms
        if one.workload == workload and one.histogram is not None and one.histogram.count > 0
    }
    if not arms or len(arms) > chart.MOST_ARMS:
        return None
    rows = [row for arm, histogram in arms.items() for row in _rows(arm, histogram)]
    limits = [
        {"from": 1.0, "to": 1 / (1 - percent / 100), "limit": limit.value / 1e6, "text": limit.text}
        for limit in chart.latency_limits(result.study)
        # the curve is of reads and writes together
        if BY_ID[limit.metric].of == "latency"
        and (percent := BY_ID[limit.metric].percent) is not None
        and percent < 100
    ]
    return chart.Chart(
        name=chart.file_name("percentiles", workload),
        title=_title(result, arms, workload) + _of_flushes(result, workload),
        reading=(
            "All I/Os of an arm together. Further right: slower, rarer I/Os. Thin: fewer than 100 I/Os beyond, so it"
            " says little."
            + (" The dashed line is the limit that was asked for, up to its percentile." if limits else "")
        ),
        spec=chart.filled(
            "percentiles", height=320, rows=rows, limits=limits, **chart.scales_of(result.study.arm_names),
            ticks=chart.axis_ticks([row["latency"] for row in rows] + [one["limit"] for one in limits]),
        ),
        columns=("arm", "I/Os", *(f"p{percent:g}" for percent in _TOLD)),
        rows=tuple(
            (arm, f"{histogram.count:,}", *(_told(histogram, percent) for percent in _TOLD))
            for arm, histogram in arms.items()
        ),
    )  # fmt: skip


def _title(result: Result, arms: dict[str, Histogram], workload: str) -> str:
    tails = {arm: histogram.percentile(99.0) or 0.0 for arm, histogram in arms.items()}
    if len(tails) < 2:
        ((arm, one),) = arms.items()
        return (
            f"{workload}: half of the I/Os of {arm} take at most {_told(one, 50.0)}, 99 % at most {_told(one, 99.0)}"
        )
    least, most = format_ns(min(tails.values())), format_ns(max(tails.values()))
    if least == most:
        return f"{workload}: latency p99 is {least} in all arms"
    # the curve is of all I/Os together, and the table's p99 that of a typical round
    return f"{workload}: {largest_decided(result, workload, 'latency.p99', valued=False)}"


def _of_flushes(result: Result, workload: str) -> str:
    """Say what flushes took, which are in no latency; empty for a load without."""
    each = [(one.arm, one.get("sync.mean")) for one in result.arms if one.workload == workload]
    told = [f"{format_ns(found.value)} ({arm})" for arm, found in each if found is not None]
    if len(told) > _ARMS_SAID:
        return "; its flushes are not in it"
    return f"; its flushes, which are not in it, take {', '.join(told)} on average" if told else ""


_ARMS_SAID = 3


def _told(histogram: Histogram, percent: float) -> str:
    value = histogram.percentile(percent)
    if value is None:
        return "-"
    return format_ns(value) if histogram.resolves(percent) else f"~{format_ns(value)}"


def _rows(arm: str, histogram: Histogram) -> Iterator[dict[str, Any]]:
    for step in range(int(math.log10(max(histogram.count, 10)) * _STEPS) + 1):
        beyond = 10 ** (step / _STEPS)
        percent = 100 * (1 - 1 / beyond)
        value = histogram.percentile(percent)
        if value is not None and value > 0:
            yield {"arm": arm, "x": beyond, "latency": value / 1e6, "few": not histogram.resolves(percent)}


_BINS_PER_DOUBLING = 4
_MOST_PANELS = 8
_MOST_COLUMNS = 60


def heat_map(result: Result, record: StudyRecord, workload: str) -> chart.Chart | None:
    """Draw the latencies of each round; None where trials have no distributions, or there are too many arms."""
    names = result.study.arm_names
    trials = [
        (one.trial, one.measurement.histogram) for one in record.trials
        if one.trial.workload == workload and one.measurement is not None and one.measurement.histogram is not None
    ]  # fmt: skip
    if not trials or len(names) > _MOST_PANELS or result.study.imported:
        return None
    each = math.ceil(max(trial.round for trial, _ in trials) / _MOST_COLUMNS)
    counts: Counter[tuple[str, int, int]] = Counter()
    totals: Counter[tuple[str, int]] = Counter()
    for trial, histogram in trials:
        column = (trial.round - 1) // each
        for value, count in histogram.bins:
            counts[trial.arm, column, _row_of(value)] += count
        totals[trial.arm, column] += histogram.count
    rows: list[dict[str, Any]] = [
        {"arm": arm, "round": column * each + 0.5, "to": (column + 1) * each + 0.5,
         "low": 2 ** (number / _BINS_PER_DOUBLING) / 1e6, "high": 2 ** ((number + 1) / _BINS_PER_DOUBLING) / 1e6,
         "share": math.log10(count / totals[arm, column] * 100)}
        for (arm, column, number), count in sorted(counts.items())
    ]  # fmt: skip
    shares = [row["share"] for row in rows]
    return chart.Chart(
        name=chart.file_name("heat", workload),
        title=f"{workload}: {_said(trials)}",
        reading=(
            "Darker means more I/Os. Two bands: two speeds, e.g. cache and disk. A column that differs: a disturbed"
            " round. Alike in all panels: it is the host."
        ),
        spec=chart.filled(
            "heat", height=150, rows=rows, arms=names, ticks=chart.tens_of([row["low"] for row in rows]),
            powers=[power for power in (-2, -1, 0, 1) if min(shares) <= power <= max(shares)],
        ),
        columns=("arm", "rounds", "I/Os", "fastest", "slowest bin"),
        rows=tuple(
            (
                name,
                str(len({one["round"] for one in rows if one["arm"] == name})),
                f"{sum(total for (arm, _), total in totals.items() if arm == name):,}",
                format_ns(1e6 * min((one["low"] for one in rows if one["arm"] == name), default=0)),
                format_ns(1e6 * max((one["high"] for one in rows if one["arm"] == name), default=0)),
            )
            for name in names
        ),
    )  # fmt: skip


def _said(trials: list[tuple[Trial, Histogram]]) -> str:
    """Say between which values the tail of a round lay."""
    tails = [tail for _, histogram in trials if (tail := histogram.percentile(99.0))]
    if not tails:
        return "no round has enough I/Os for its latency p99"
    low, high = format_ns(min(tails)), format_ns(max(tails))
    if low == high:
        return f"latency p99 is {low} in each round"
    return f"latency p99 of a round lies between {low} and {high}"


@cache
def _row_of(nanoseconds: int) -> int:
    """Return the row of a latency; the same few thousand values come in every trial."""
    return math.floor(math.log2(max(nanoseconds, 1)) * _BINS_PER_DOUBLING)


_SCALES = {
    "1/s": (1.0, ""),
    "B/s": (1e6, " in MB/s"),
    "ns": (1e6, " in ms"),
    "%": (1.0, " in %"),
    "s/io": (1e-6, " in us"),
    "1/io": (1.0, ""),
}

_LONG_SECONDS = 180
_SECONDS = ("seconds since the study began", "format(datum.value, '~g')")
_MINUTES = ("minutes since the study began", "format(datum.value / 60, '.3~g')")


def rounds_in_time(result: Result, record: StudyRecord, workload: str) -> chart.Chart | None:
    """Draw the main metric of every attempt; None where there are fewer than two or they have no times."""
    study, metric = result.study, BY_ID[result.study.metric]
    if study.imported or len(study.arms) > chart.MOST_ARMS:
        return None
    attempts = [one for one in record.attempts or record.trials if one.trial.workload == workload]
    last = {(one.trial.number, one.attempt) for one in record.trials}
    rows = [
        row
        for one in attempts
        if (row := _row(result, one, metric, last=(one.trial.number, one.attempt) in last)) is not None
    ]
    if len(rows) < 2:
        return None
    clock = _MINUTES if max(row["second"] for row in rows) > _LONG_SECONDS else _SECONDS
    bad = sum(not row["counts"] for row in rows)
    return chart.Chart(
        name=chart.file_name("rounds", workload),
        title=f"{workload}: {len(rows)} trials in order of time" + (f", {bad} of them did not count" if bad else ""),
        reading=(
            "Each mark is one trial. If all arms move together, the host changed. Hollow marks do not count:"
            " disturbed, or repeated."
        ),
        spec=chart.filled(
            "rounds", height=260, rows=rows, **chart.scales_of(study.arm_names), since=clock[0], clock=clock[1],
            title=f"{metric.label}{_SCALES[metric.unit][1]}, {metric.better} is better",
        ),
        columns=("second", "arm", "round", metric.label, "did it count"),
        rows=tuple((f"{row['second']:.0f}", row["arm"], str(row["round"]), row["shown"], row["why"]) for row in rows),
    )  # fmt: skip


def _row(result: Result, one: TrialRecord, metric: Metric, *, last: bool) -> dict[str, Any] | None:
    """Return a mark of an attempt; only the last one of a trial may count."""
    measured = one.measurement.get(metric.id) if one.measurement is not None else None
    try:
        second = (datetime.fromisoformat(one.ended) - datetime.fromisoformat(result.study.created)).total_seconds()
    except (ValueError, TypeError):
        return None
    if measured is None or one.measurement is None:
        return None
    causes = ", ".join(map(label_of, one.measurement.causes))
    counts = last and result.counts(one.trial.arm, one.measurement)
    told = f"{causes}; repeated" if causes else "repeated"
    return {
        "second": second,
        "arm": one.trial.arm,
        "round": one.trial.round,
        "value": measured / _SCALES[metric.unit][0],
        "shown": quantity(metric, measured),
        "counts": counts,
        "why": f"no: {causes if last else told}" if not counts else f"yes, although: {causes}" if causes else "yes",
    }


_ENDS = ("latency.min", "latency.mean", "latency.max")
_LOAD = "-load"
"""Before the number of background processes, in the name of a workload of the built-in study."""

_ROW = 16

DRAWN_MAX = 1_000
"""The most I/Os of an arm that are drawn. Each is two marks: 10,000 of two arms made 3.7 MB of a page."""

Series = Mapping[str, Sequence[int]]
"""The time of each I/O in ns, by arm."""


def extents(result: Result) -> Iterator[Chart]:
    """Yield a picture for each background load; nothing where no I/O was timed by itself."""
    if len(result.study.arms) > MOST_ARMS:
        return
    loads: dict[str, list[Workload]] = {}
    for workload in result.study.compared:
        if workload.recorded:
            loads.setdefault(workload.name.partition(_LOAD)[2], []).append(workload)
    for load, workloads in loads.items():
        rows = [row for one in workloads for row in _extent_rows(result, one)]
        if rows:
            yield _extents(result.study, load, rows)


def _extents(study: Study, load: str, rows: list[dict[str, Any]]) -> Chart:
    under = f"beside {load} background processes" if load not in ("", "0") else "alone"
    slowest = max(rows, key=lambda row: float(row["max"]))
    names = study.arm_names
    return Chart(
        name=file_name("extents", f"load-{load}" if load else "single"),
        title=f"{under}: the slowest I/O took {format_ns(slowest['max'] * 1e6)}, on {slowest['arm']}",
        reading=(
            "Each line goes from the quickest I/O to the slowest, the mark is the mean. A long line to the right of "
            "its mark is a system that is usually quick and sometimes stalls."
        ),
        spec=filled(
            "extents", rows=rows, panel=_ROW * len(names), arms=names, colours=colours_of(names),
            ticks=tens_of([row[end] for row in rows for end in ("min", "max")]),
        ),
        columns=("workload", "arm", "least", "mean", "greatest"),
        rows=tuple(
            (row["workload"], row["arm"], *(format_ns(row[end] * 1e6) for end in ("min", "mean", "max")))
            for row in rows
        ),
    )  # fmt: skip


def _extent_rows(result: Result, workload: Workload) -> Iterator[dict[str, Any]]:
    for arm in result.study.arms:
        values = [result.value(arm.name, workload.name, end) for end in _ENDS]
        least, mean, greatest = [0.0 if one is None else one.value / 1e6 for one in values]
        if least > 0 and mean > 0:
            kind = workload.name.partition(_LOAD)[0]
            yield {"arm": arm.name, "workload": kind, "min": least, "mean": mean, "max": greatest}


def each_operation(study: Study, workload: str, series: Series) -> Chart | None:
    """Draw the time of each I/O of a trial against its index, a panel for each arm; None without any."""
    drawn = {arm: latencies[:DRAWN_MAX] for arm, latencies in series.items()}
    rows: list[dict[str, Any]] = [
        {"arm": arm, "index": index, "ms": latency / 1e6}
        for arm, latencies in drawn.items()
        for index, latency in enumerate(latencies, 1)
        if latency > 0
    ]
    if not rows:
        return None
    arm, slowest = max(((arm, max(one)) for arm, one in drawn.items() if one), key=lambda pair: pair[1])
    cut = any(len(one) > DRAWN_MAX for one in series.values())
    which = f"the first {DRAWN_MAX:,} I/Os" if cut else "every single I/O"
    return Chart(
        name=file_name("operations", workload),
        title=f"{workload}: {which} of a trial; the slowest took {format_ns(slowest)}, on {arm}",
        reading=(
            "Each mark is one I/O, in the order in which they were made. Peaks at equal distances have something "
            "with a period behind them: a timer, a poll, a flush. A step is another way that I/Os are served."
        ),
        spec=filled(
            "operations", rows=rows, arms=study.arm_names, colours=colours_of(study.arm_names),
            ticks=tens_of([row["ms"] for row in rows]),
        ),
        columns=("arm", "I/Os", "least", "greatest"),
        rows=tuple(
            (name, str(len(one)), format_ns(min(one)), format_ns(max(one))) for name, one in series.items() if one
        ),
    )  # fmt: skip
