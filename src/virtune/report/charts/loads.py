# SPDX-License-Identifier: Apache-2.0
"""Latency against achieved IOPS at offered loads: how much an arm carries before its queue grows."""

from typing import Any

from virtune.model.metric import BY_ID
from virtune.model.result import Result
from virtune.report.charts.chart import Chart, arms_scale, axis_ticks, dash_scale, file_name, specification
from virtune.report.text.result import value_text


def load_curve(result: Result) -> Chart | None:
    """Draw p99 over IOPS of every offered load; None for studies that offered none."""
    if not result.study.at_load and result.study.sweep is None:
        return None
    rows: list[dict[str, Any]] = []
    shown: list[tuple[str, ...]] = []
    for workload in (one for one in result.study.workloads if not one.probe):
        for arm in result.study.arms:
            summary = result.summary(arm.name, workload.name)
            iops, tail = (None if summary is None else summary.get(name) for name in ("iops", "latency.p99"))
            if iops is None or tail is None or tail.value <= 0:
                continue
            rows.append({"arm": arm.name, "load": workload.name, "iops": iops.value, "latency": tail.value / 1e6})
            shown.append(
                (arm.name, workload.name, value_text(BY_ID["iops"], iops), value_text(BY_ID["latency.p99"], tail))
            )
    if len(rows) < 2:
        return None
    return Chart(
        name=file_name("loads", "all"),
        title="Latency p99 at equal offered loads",
        reading=(
            "Each mark is one offered load: to the right more I/Os a second were carried, upwards the slowest "
            "hundredth took longer. Where a curve turns up, the arm is near what it can carry."
        ),
        spec=specification(_spec(result, rows), height=300),
        columns=("arm", "offered load", "IOPS", "latency p99"),
        rows=tuple(shown),
    )


def _spec(result: Result, rows: list[dict[str, Any]]) -> dict[str, Any]:
    colour = {"field": "arm", "type": "nominal", "scale": arms_scale(result.study), "legend": {"title": None}}
    dash = {"field": "arm", "type": "nominal", "scale": dash_scale(result.study), "legend": {"title": None}}
    return {
        "data": {"values": rows},
        "encoding": {
            "x": {"field": "iops", "type": "quantitative",
                  "axis": {"title": "achieved IOPS, higher is better", "format": "~s"}},
            "y": {"field": "latency", "type": "quantitative", "scale": {"type": "log", "nice": False},
                  "axis": {"title": "latency p99 in ms, lower is better", "format": "~g",
                           "values": axis_ticks([row["latency"] for row in rows])}},
            "color": colour,
        },
        "layer": [
            {"mark": {"type": "line", "strokeWidth": 1.5}, "encoding": {"strokeDash": dash}},
            {"mark": {"type": "point", "filled": True, "size": 60, "opacity": 1}},
        ],
    }  # fmt: skip
