# SPDX-License-Identifier: Apache-2.0
"""Latency against achieved IOPS at offered loads: how much an arm carries before its queue grows."""

from collections.abc import Iterator, Sequence
from typing import Any

from virtune.model.metric import BY_ID
from virtune.model.result import ArmKnee, LoadPoint, LoadSweep, Result, Value
from virtune.model.search import Limit
from virtune.model.text import format_count, format_ns
from virtune.model.workload import Workload
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
from virtune.report.pages.result import value_text
from virtune.report.words import estimate_text, quantity


def load_curves(result: Result) -> Iterator[Chart]:
    """Yield a picture of p99 over IOPS at offered loads for each workload that was offered."""
    for probe in (one for one in result.study.workloads if one.probe):
        chart = _load_curve(result, probe)
        if chart is not None:
            yield chart


def _load_curve(result: Result, probe: Workload) -> Chart | None:
    rows: list[dict[str, Any]] = []
    shown: list[tuple[str, ...]] = []
    for load in result.study.offered_under(probe):
        for arm in result.study.arms:
            iops, tail = (result.value(arm.name, load.name, name) for name in ("iops", "latency.p99"))
            if iops is None or tail is None or tail.value <= 0:
                continue
            ends = {"low": tail.low / 1e6, "high": tail.high / 1e6} if tail.low and tail.high else {}
            row = {"arm": arm.name, "load": load.name, "iops": iops.value, "latency": tail.value / 1e6}
            rows.append({**row, "offered": load.offered_iops, **ends})
            shown.append((arm.name, load.name, value_text(BY_ID["iops"], iops), _with_ends(tail)))
    if len(rows) < 2:
        return None
    limits = [one for one in latency_limits(result.study) if one.metric == "latency.p99"]
    knees = [one for one in result.knees if one.workload == probe.name]
    return Chart(
        name=file_name("loads", probe.name),
        title=f"{probe.name}: {_tails(rows, len(result.study.arms))}",
        reading=(
            "Each mark is one offered load: to the right more I/Os a second were carried, upwards the slowest "
            "hundredth took longer, with a 95 % interval. Where a curve turns up, the arm is near what it can carry."
            + (" A vertical line is the knee of its arm, with a band for its interval: " if knees else "")
            + ("; ".join(f"{one.arm} {estimate_text(one.knee)}" for one in knees) + "." if knees else "")
            + (" The dashed line across is the limit that was asked for." if limits else "")
        ),
        spec=specification(_spec(result, rows, limits, knees), height=300),
        columns=("arm", "offered load", "IOPS", "latency p99"),
        rows=tuple(shown),
    )


def _with_ends(tail: Value) -> str:
    """Write a percentile with its interval, where it has one."""
    metric = BY_ID["latency.p99"]
    text = value_text(metric, tail)
    if tail.low is None or tail.high is None:
        return text
    return f"{text} [{quantity(metric, tail.low)}, {quantity(metric, tail.high)}]"


def _tails(rows: list[dict[str, Any]], arms: int) -> str:
    """Say between which arms the tail lies at the greatest load that all arms have."""
    by_load: dict[str, list[dict[str, Any]]] = {}
    for row in sorted(rows, key=lambda row: float(row["offered"])):
        by_load.setdefault(row["load"], []).append(row)
    shared = [found for found in by_load.values() if len(found) == arms]
    if not shared:
        return "latency p99 at the loads that were offered"
    low, high = (choose(shared[-1], key=lambda row: float(row["latency"])) for choose in (min, max))
    least, most = (format_ns(float(row["latency"]) * 1e6) for row in (low, high))
    at = f"at {format_count(float(low['offered']))} IOPS offered latency p99 is {least}"
    return at if least == most else f"{at} ({low['arm']}) to {most} ({high['arm']})"


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


def _spec(
    result: Result, rows: list[dict[str, Any]], limits: Sequence[Limit], knees: Sequence[ArmKnee]
) -> dict[str, Any]:
    ends = [row[end] for row in rows for end in ("latency", "low", "high") if end in row]
    y = {"field": "latency", "type": "quantitative", "scale": {"type": "log", "nice": False},
         "axis": {"title": "latency p99 in ms, lower is better", "format": "~g",
                  "values": axis_ticks([*ends, *(one.value / 1e6 for one in limits)])}}  # fmt: skip
    x = {"field": "iops", "type": "quantitative",
         "axis": {"title": "achieved IOPS, higher is better", "format": "~s"}}  # fmt: skip
    legend = {"title": None, "symbolOpacity": 1, "symbolType": "stroke", "symbolStrokeWidth": 2}
    colour = {"field": "arm", "type": "nominal", "scale": arms_scale(result.study), "legend": legend}
    dash = {"field": "arm", "type": "nominal", "scale": dash_scale(result.study), "legend": legend}
    bends = [
        {"arm": one.arm, "iops": one.knee.iops, "low": one.knee.low or one.knee.iops,
         "high": one.knee.high or one.knee.iops, "what": f"knee of {one.arm}"}
        for one in knees
    ]  # fmt: skip
    return {
        "data": {"values": rows},
        "encoding": {"x": x, "color": colour},
        "layer": [
            *_knee_layers(bends, x),
            {"mark": {"type": "line", "strokeWidth": 1.5},
             "encoding": {"y": y, "strokeDash": dash, "order": {"field": "offered"}}},
            {"transform": [{"filter": "isValid(datum.low)"}], "mark": {"type": "rule", "strokeWidth": 1.5},
             "encoding": {"y": {**y, "field": "low"}, "y2": {"field": "high"}}},
            {"mark": {"type": "point", "filled": True, "size": 60, "opacity": 1}, "encoding": {"y": y}},
            *(one | {"encoding": {**one["encoding"], "color": None}} for one in limit_lines(limits, y)),
        ],
    }  # fmt: skip


def _knee_layers(bends: list[dict[str, Any]], x: dict[str, Any]) -> list[dict[str, Any]]:
    """Return the knees as lines with bands and words: none where none was found."""
    if not bends:
        return []
    data = {"values": bends}
    return [
        {"data": data, "mark": {"type": "rect", "opacity": 0.12},
         "encoding": {"x": {**x, "field": "low"}, "x2": {"field": "high"}}},
        {"data": data, "mark": {"type": "rule", "strokeDash": [4, 3], "strokeWidth": 1.5}},
        {"data": data,
         "mark": {"type": "text", "align": "left", "baseline": "bottom", "dx": 4, "dy": -3, "fontSize": 11,
                  "angle": 90},
         "encoding": {"y": {"value": 4}, "text": {"field": "what"}, "color": {"value": "currentColor"}}},
    ]  # fmt: skip


_SHOWN = ("iops", "device.util", "cpu.host.usr", "cpu.host.sys")


def against_offered(result: Result) -> Iterator[Chart]:
    """Yield a picture for each workload that was offered at several rates."""
    for probe in (one for one in result.study.workloads if one.probe):
        chart = _against_offered(result, probe)
        if chart is not None:
            yield chart


def _against_offered(result: Result, probe: Workload) -> Chart | None:
    loads = result.study.offered_under(probe)
    if len(loads) < 2 or len(result.study.arms) > MOST_ARMS:
        return None
    rows: list[dict[str, Any]] = []
    shown: list[tuple[str, ...]] = []
    for arm in result.study.arms:
        for load in loads:
            found = [(BY_ID[name], result.value(arm.name, load.name, name)) for name in _SHOWN]
            rows += [
                {"arm": arm.name, "offered": load.offered_iops, "of": metric.label, "value": value.value}
                for metric, value in found
                if value is not None
            ]
            cells = ("-" if value is None else str(value_text(metric, value)) for metric, value in found)
            shown.append((arm.name, f"{load.offered_iops:,.0f}", *cells))
    if not rows:
        return None
    return Chart(
        name=file_name("offered", probe.name),
        title=f"{probe.name}: what {len(loads)} offered loads came to",
        reading=(
            "Where the curve of IOPS leaves the straight line, less is done than offered: the arm is saturated. A "
            "device that is busy all the time before that, or more CPU in the kernel than in programs, says why."
        ),
        spec=specification(_offered_spec(result, rows)),
        columns=("arm", "offered", *(BY_ID[name].label for name in _SHOWN)),
        rows=tuple(shown),
    )


def _offered_spec(result: Result, rows: list[dict[str, Any]]) -> dict[str, Any]:
    labels = [BY_ID[name].label for name in _SHOWN]
    present = [label for label in labels if any(row["of"] == label for row in rows)]
    colour = {"field": "arm", "type": "nominal", "scale": arms_scale(result.study), "legend": {"title": None}}
    dash = {"field": "arm", "type": "nominal", "scale": dash_scale(result.study), "legend": {"title": None}}
    header = {"title": None, "labelAngle": 0, "labelAlign": "left"}
    return {
        "data": {"values": rows},
        "facet": {"row": {"field": "of", "type": "nominal", "sort": present, "header": header}},
        "resolve": {"scale": {"y": "independent"}},
        "spec": {
            "width": 420, "height": 120,
            "encoding": {
                "x": {"field": "offered", "type": "quantitative",
                      "axis": {"title": "offered I/Os a second", "format": "~s"}},
                "y": {"field": "value", "type": "quantitative", "scale": {"zero": True},
                      "axis": {"title": None, "format": "~s"}},
                "color": colour,
            },
            "layer": [{"mark": {"type": "line", "strokeWidth": 1.5}, "encoding": {"strokeDash": dash}},
                      {"mark": {"type": "point", "filled": True, "size": 40, "opacity": 1}}],
        },
    }  # fmt: skip
