# SPDX-License-Identifier: Apache-2.0
"""The percentile curve: latency from the median to the tail, on HdrHistogram's axis."""

import math
from collections.abc import Iterator
from typing import Any

from virtune.model.measurement import Histogram
from virtune.model.metric import BY_ID
from virtune.model.result import Result
from virtune.model.units import format_ns
from virtune.report.charts.chart import (
    MOST_ARMS,
    Chart,
    arms_scale,
    axis_ticks,
    dash_scale,
    file_name,
    latency_limits,
    specification,
)
from virtune.report.pages.result import largest_decided

_STEPS = 12
"""Points for each tenfold of 1/(1-p): closer ones are one pixel apart."""

_TOLD = (50.0, 90.0, 99.0, 99.9, 99.99)


def percentile_curve(result: Result, workload: str) -> Chart | None:
    """Draw each arm's latencies by percentile; None where no arm has a distribution."""
    arms = {
        one.arm: one.histogram
        for one in result.arms
        if one.workload == workload and one.histogram is not None and one.histogram.count > 0
    }
    if not arms or len(arms) > MOST_ARMS:
        return None
    rows = [row for arm, histogram in arms.items() for row in _rows(arm, histogram)]
    limits = [
        {"from": 1.0, "to": 1 / (1 - percent / 100), "limit": limit.value / 1e6, "text": limit.text}
        for limit in latency_limits(result.study)
        # the curve is of reads and writes together
        if BY_ID[limit.metric].of == "latency"
        and (percent := BY_ID[limit.metric].percent) is not None
        and percent < 100
    ]
    return Chart(
        name=file_name("percentiles", workload),
        title=_title(result, arms, workload),
        reading=(
            "All I/Os of an arm together. From left to right the curve goes ever further into the slowest ones; "
            "lower is better. Where it is thin, fewer than 100 I/Os lie beyond, and it says little."
            + (" The dashed line is the limit that was asked for, up to its percentile." if limits else "")
        ),
        spec=specification(_spec(result, rows, limits), height=320),
        columns=("arm", "I/Os", *(f"p{percent:g}" for percent in _TOLD)),
        rows=tuple(
            (arm, f"{histogram.count:,}", *(_told(histogram, percent) for percent in _TOLD))
            for arm, histogram in arms.items()
        ),
    )


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


def _spec(result: Result, rows: list[dict[str, Any]], limits: list[dict[str, Any]]) -> dict[str, Any]:
    labels = (
        "datum.value < 1.5 ? '0 %' : datum.value < 3 ? '50 %' : datum.value < 15 ? '90 %' :"
        " datum.value < 150 ? '99 %' : datum.value < 1500 ? '99.9 %' : datum.value < 15000 ? '99.99 %' : '99.999 %'"
    )
    x = {
        "field": "x", "type": "quantitative", "scale": {"type": "log", "nice": False},
        "axis": {"title": "percentile of I/Os", "values": [1, 2, 10, 100, 1000, 10000, 100000], "labelExpr": labels},
    }  # fmt: skip
    ticks = axis_ticks([row["latency"] for row in rows] + [one["limit"] for one in limits])
    y = {
        "field": "latency", "type": "quantitative", "scale": {"type": "log", "nice": False},
        "axis": {"title": "latency in ms, lower is better", "values": ticks, "format": "~g"},
    }  # fmt: skip
    colour = {"field": "arm", "type": "nominal", "scale": arms_scale(result.study), "legend": {"title": None}}
    dash = {"field": "arm", "type": "nominal", "scale": dash_scale(result.study), "legend": {"title": None}}
    line = {"type": "line", "interpolate": "step-after"}
    both = {"x": x, "y": y, "color": colour, "strokeDash": dash}
    return {
        "data": {"values": rows},
        "layer": [
            {"transform": [{"filter": "!datum.few"}], "mark": {**line, "strokeWidth": 2.2}, "encoding": both},
            {"mark": {**line, "strokeWidth": 0.8, "opacity": 0.7}, "encoding": both},
            *_limit_layers(limits, x, y),
        ],
    }


def _limit_layers(limits: list[dict[str, Any]], x: dict[str, Any], y: dict[str, Any]) -> list[dict[str, Any]]:
    """Return the limits as steps: none where none was asked for."""
    if not limits:
        return []
    at = {"x": {**x, "field": "from"}, "y": {**y, "field": "limit"}}
    return [
        {"data": {"values": limits},
         "mark": {"type": "rule", "strokeDash": [5, 4], "strokeWidth": 1.5, "color": "currentColor"},
         "encoding": {**at, "x2": {"field": "to"}}},
        {"data": {"values": limits},
         "mark": {"type": "text", "align": "left", "baseline": "bottom", "dx": 4, "dy": -3, "fontSize": 11,
                  "color": "currentColor"},
         "encoding": {**at, "text": {"field": "text"}}},
    ]  # fmt: skip
