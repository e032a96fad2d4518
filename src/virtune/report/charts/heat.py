# SPDX-License-Identifier: Apache-2.0
"""The latency heat map: how the I/Os of every round were spread over latencies, one panel an arm."""

import math
from collections import Counter
from functools import cache
from typing import Any

from virtune.model.evidence import StudyRecord, TrialRecord
from virtune.model.result import Result
from virtune.model.units import format_ns
from virtune.report.charts.chart import Chart, axis_ticks, file_name, specification

_BINS_PER_DOUBLING = 4
_MOST_PANELS = 8
_MOST_COLUMNS = 60


def heat_map(result: Result, record: StudyRecord, workload: str) -> Chart | None:
    """Draw the latencies of each round; None where trials have no distributions, or there are too many arms."""
    names = [arm.name for arm in result.study.arms]
    trials = [
        one for one in record.trials
        if one.trial.workload == workload and one.measurement is not None and one.measurement.histogram is not None
    ]  # fmt: skip
    if not trials or len(names) > _MOST_PANELS or result.study.imported:
        return None
    each = math.ceil(max(one.trial.round for one in trials) / _MOST_COLUMNS)
    counts: Counter[tuple[str, int, int]] = Counter()
    totals: Counter[tuple[str, int]] = Counter()
    for one in trials:
        assert one.measurement is not None and one.measurement.histogram is not None  # noqa: S101, PT018 - chosen so
        column = (one.trial.round - 1) // each
        for value, count in one.measurement.histogram.bins:
            counts[one.trial.arm, column, _row_of(value)] += count
        totals[one.trial.arm, column] += one.measurement.histogram.count
    rows: list[dict[str, Any]] = [
        {"arm": arm, "round": column * each + 0.5, "to": (column + 1) * each + 0.5,
         "low": 2 ** (number / _BINS_PER_DOUBLING) / 1e6, "high": 2 ** ((number + 1) / _BINS_PER_DOUBLING) / 1e6,
         "share": math.log10(count / totals[arm, column] * 100)}
        for (arm, column, number), count in sorted(counts.items())
    ]  # fmt: skip
    return Chart(
        name=file_name("heat", workload),
        title=f"{workload}: {_said(trials)}",
        reading=(
            "Darker means more I/Os. A second band is a second way that I/Os are served; a column that differs is a "
            "round that something disturbed; what all panels share comes from below them, not from the arm."
        ),
        spec=specification(_spec(rows, names), height=150),
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
    )


def _said(trials: list[TrialRecord]) -> str:
    """Say between which values the tail of a round lay."""
    tails: dict[str, list[float]] = {}
    for one in trials:
        tail = one.measurement and one.measurement.histogram and one.measurement.histogram.percentile(99.0)
        if tail:
            tails.setdefault(one.trial.arm, []).append(tail)
    if not tails:
        return "no round has enough I/Os for its latency p99"
    every = [tail for one in tails.values() for tail in one]
    low, high = format_ns(min(every)), format_ns(max(every))
    if low == high:
        return f"latency p99 is {low} in each round"
    return f"latency p99 of a round lies between {low} and {high}"


@cache
def _row_of(nanoseconds: int) -> int:
    """Return the row of a latency; the same few thousand values come in every trial."""
    return math.floor(math.log2(max(nanoseconds, 1)) * _BINS_PER_DOUBLING)


def _spec(rows: list[dict[str, Any]], names: list[str]) -> dict[str, Any]:
    every = axis_ticks([row["low"] for row in rows])
    tens = [tick for tick in every if f"{tick:e}".startswith("1")]
    ticks = tens if len(tens) > 2 else every
    shares = [row["share"] for row in rows]
    powers = [power for power in (-2, -1, 0, 1) if min(shares) <= power <= max(shares)]
    return {
        "data": {"values": rows},
        "facet": {"row": {"field": "arm", "type": "nominal", "sort": names, "header": {"title": None, "labelAngle": 0,
                                                                                        "labelAlign": "left"}}},
        "spec": {
            "width": 520, "height": 130,
            # no words for a screen reader on thousands of cells: the table below has the numbers
            "mark": {"type": "rect", "aria": False},
            "encoding": {
                "x": {"field": "round", "type": "quantitative", "scale": {"nice": False, "zero": False},
                      "axis": {"title": "round", "grid": False, "tickMinStep": 1, "format": "d"}},
                "x2": {"field": "to"},
                "y": {"field": "low", "type": "quantitative", "scale": {"type": "log", "nice": False},
                      "axis": {"title": "latency in ms", "values": ticks, "format": "~g", "grid": False}},
                "y2": {"field": "high"},
                "color": {"field": "share", "type": "quantitative",
                          "scale": {"scheme": "viridis", "reverse": True},
                          "legend": {"title": "% of I/Os",
                                     "labelExpr": "format(pow(10, datum.value), '~g')", "values": powers}},
            },
        },
    }  # fmt: skip
