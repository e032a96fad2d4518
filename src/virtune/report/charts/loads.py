# SPDX-License-Identifier: Apache-2.0
"""Latency against achieved IOPS at offered loads: how much an arm carries before its queue grows."""

from collections.abc import Sequence
from typing import Any

from virtune.model.goal import Limit
from virtune.model.metric import BY_ID
from virtune.model.result import Result
from virtune.model.sweep import LoadPoint, LoadSweep
from virtune.model.units import format_count, format_ns
from virtune.report.charts.chart import (
    Chart,
    arms_scale,
    axis_ticks,
    dash_scale,
    file_name,
    latency_limits,
    specification,
)
from virtune.report.text.result import value_text


def load_curve(result: Result) -> Chart | None:
    """Draw p99 over IOPS of every offered load; None for studies that offered none."""
    if not result.study.at_load:
        return None
    rows: list[dict[str, Any]] = []
    shown: list[tuple[str, ...]] = []
    for workload in (one for one in result.study.workloads if not one.probe):
        for arm in result.study.arms:
            iops, tail = (result.value(arm.name, workload.name, name) for name in ("iops", "latency.p99"))
            if iops is None or tail is None or tail.value <= 0:
                continue
            rows.append({"arm": arm.name, "load": workload.name, "iops": iops.value, "latency": tail.value / 1e6})
            shown.append(
                (arm.name, workload.name, value_text(BY_ID["iops"], iops), value_text(BY_ID["latency.p99"], tail))
            )
    if len(rows) < 2:
        return None
    limits = [one for one in latency_limits(result.study) if one.metric == "latency.p99"]
    return Chart(
        name=file_name("loads", "all"),
        title=_least_tail(rows, len(result.study.arms)),
        reading=(
            "Each mark is one offered load: to the right more I/Os a second were carried, upwards the slowest "
            "hundredth took longer. Where a curve turns up, the arm is near what it can carry."
            + (" The dashed line across is the limit that was asked for." if limits else "")
        ),
        spec=specification(_spec(result, rows, limits), height=300),
        columns=("arm", "offered load", "IOPS", "latency p99"),
        rows=tuple(shown),
    )


def _least_tail(rows: list[dict[str, Any]], arms: int) -> str:
    """Say which arm has the lowest tail at the last load that all arms have."""
    by_load: dict[str, list[dict[str, Any]]] = {}
    for row in rows:
        by_load.setdefault(row["load"], []).append(row)
    shared = [(load, found) for load, found in by_load.items() if len(found) == arms]
    if not shared:
        return "Latency p99 at the loads that were offered"
    load, found = shared[-1]
    least = min(found, key=lambda row: float(row["latency"]))
    return f"Under {load} {least['arm']} has the lowest latency p99, {format_ns(float(least['latency']) * 1e6)}"


def sweep_curve(known: LoadSweep, result: Result | None = None) -> Chart | None:
    """Draw latency over achieved IOPS of a sweep with its knee and its limit; None before there are two loads.

    The latency is the one that was limited, if one was and `result` has it; else the mean.
    """
    points = sorted(known.points, key=lambda one: one.offered)
    if len(points) < 2:
        return None
    limit, limited = _limited(known, points, result)
    label = BY_ID["latency.mean" if limit is None else limit.metric].label
    rows = [
        {"offered": one.offered, "iops": one.iops, "latency": limited[one.workload] / 1e6,
         "state": "load carried" if one.met else "less was done than offered"}
        for one in points
    ]  # fmt: skip
    marks = _marks(known)
    knee = "no knee found" if known.knee is None else f"the knee is at {format_count(known.knee.iops)} IOPS"
    return Chart(
        name="sweep",
        title=f"{known.study.workloads[0].name}: {knee}",
        reading=(
            "Each mark is an offered load: to the right more I/Os a second were carried, upwards each took longer. "
            "Vertical lines stand at what was found, with a band for its interval. A hollow mark is a load of which "
            "less was done than offered."
            + ("" if limit is None else " The dashed line across is the limit that was asked for.")
        ),
        spec=specification(_sweep_spec(rows, marks, limit, label), height=300),
        columns=("offered IOPS", "achieved IOPS", label, "carried"),
        rows=tuple(
            (
                format_count(one.offered),
                format_count(one.iops),
                format_ns(limited[one.workload]),
                "yes" if one.met else "no",
            )
            for one in points
        ),
    )


def _limited(
    known: LoadSweep, points: Sequence[LoadPoint], result: Result | None
) -> tuple[Limit | None, dict[str, float]]:
    """Return the limit on a latency, if each load has that latency, and by workload what is drawn of each load."""
    arm, limit = known.study.arms[0].name, next(iter(latency_limits(known.study)), None)
    found = {
        one.workload: value.value
        for one in points
        if limit is not None and result is not None and (value := result.value(arm, one.workload, limit.metric))
    }
    if len(found) == len(points):
        return limit, found
    return None, {one.workload: one.latency_ns for one in points}


def _marks(known: LoadSweep) -> list[dict[str, Any]]:
    told = [("knee", known.knee), ("most within the limit", known.most), ("saturation", known.saturation)]
    return [
        {"iops": one.iops, "low": one.low or one.iops, "high": one.high or one.iops, "what": what}
        for what, one in told
        if one is not None
    ]


def _sweep_spec(
    rows: list[dict[str, Any]], marks: list[dict[str, Any]], limit: Limit | None, label: str
) -> dict[str, Any]:
    x = {
        "field": "iops",
        "type": "quantitative",
        "axis": {"title": "achieved IOPS, higher is better", "format": "~s"},
    }
    y = {"field": "latency", "type": "quantitative", "scale": {"type": "log", "nice": False},
         "axis": {"title": f"{label} in ms, lower is better", "format": "~g",
                  "values": axis_ticks([*(row["latency"] for row in rows), *_limits(limit)])}}  # fmt: skip
    point = {"type": "point", "size": 60, "opacity": 1, "color": "currentColor"}
    return {
        "data": {"values": rows},
        "encoding": {"x": x},
        "layer": [
            {"data": {"values": marks}, "mark": {"type": "rect", "color": "#888888", "opacity": 0.2},
             "encoding": {"x": {**x, "field": "low"}, "x2": {"field": "high"}}},
            {"data": {"values": marks}, "mark": {"type": "rule", "strokeDash": [4, 3], "color": "currentColor"}},
            {"data": {"values": marks},
             "mark": {"type": "text", "align": "left", "baseline": "top", "dx": 4, "fontSize": 11, "angle": 90,
                      "color": "currentColor"},
             "encoding": {"y": {"value": 4}, "text": {"field": "what"}}},
            {"mark": {"type": "line", "strokeWidth": 1.5, "color": "currentColor"},
             "encoding": {"y": y, "order": {"field": "offered"}}},
            {"transform": [{"filter": "datum.state == 'load carried'"}], "mark": {**point, "filled": True},
             "encoding": {"y": y}},
            {"transform": [{"filter": "datum.state != 'load carried'"}], "mark": {**point, "filled": False},
             "encoding": {"y": y}},
            *limit_lines([] if limit is None else [limit], y),
        ],
    }  # fmt: skip


def _limits(limit: Limit | None) -> list[float]:
    return [] if limit is None else [limit.value / 1e6]


def limit_lines(limits: Sequence[Limit], y: dict[str, Any]) -> list[dict[str, Any]]:
    """Return the layers of latency limits as lines across: none where none was asked for."""
    if not limits:
        return []
    data = {"values": [{"limit": one.value / 1e6, "text": one.text} for one in limits]}
    at = {"y": {**y, "field": "limit"}}
    return [
        {"data": data, "mark": {"type": "rule", "strokeDash": [5, 4], "strokeWidth": 1.5, "color": "currentColor"},
         "encoding": {**at, "x": None}},
        {"data": data,
         "mark": {"type": "text", "align": "left", "baseline": "bottom", "dx": 4, "dy": -3, "fontSize": 11,
                  "color": "currentColor"},
         "encoding": {**at, "x": {"value": 0}, "text": {"field": "text"}}},
    ]  # fmt: skip


def _spec(result: Result, rows: list[dict[str, Any]], limits: Sequence[Limit]) -> dict[str, Any]:
    ticks = axis_ticks([*(row["latency"] for row in rows), *(one.value / 1e6 for one in limits)])
    y = {"field": "latency", "type": "quantitative", "scale": {"type": "log", "nice": False},
         "axis": {"title": "latency p99 in ms, lower is better", "format": "~g", "values": ticks}}  # fmt: skip
    colour = {"field": "arm", "type": "nominal", "scale": arms_scale(result.study), "legend": {"title": None}}
    dash = {"field": "arm", "type": "nominal", "scale": dash_scale(result.study), "legend": {"title": None}}
    return {
        "data": {"values": rows},
        "encoding": {
            "x": {"field": "iops", "type": "quantitative",
                  "axis": {"title": "achieved IOPS, higher is better", "format": "~s"}},
            "y": y, "color": colour,
        },
        "layer": [
            {"mark": {"type": "line", "strokeWidth": 1.5}, "encoding": {"strokeDash": dash}},
            {"mark": {"type": "point", "filled": True, "size": 60, "opacity": 1}},
            *(one | {"encoding": {**one["encoding"], "color": None}} for one in limit_lines(limits, y)),
        ],
    }  # fmt: skip
