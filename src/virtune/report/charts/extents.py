# SPDX-License-Identifier: Apache-2.0
"""Single I/Os: the least, mean and greatest time on every system, one picture for each background load, and each I/O
against its index.
"""

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from virtune.model.result import Result
from virtune.model.study import Study
from virtune.model.text import format_ns
from virtune.model.workload import Workload
from virtune.report.charts.chart import MOST_ARMS, Chart, arms_scale, axis_ticks, file_name, specification

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
        rows = [row for one in workloads for row in _rows(result, one)]
        if rows:
            yield _extents(result.study, load, rows)


def _extents(study: Study, load: str, rows: list[dict[str, Any]]) -> Chart:
    under = f"beside {load} background processes" if load not in ("", "0") else "alone"
    slowest = max(rows, key=lambda row: float(row["max"]))
    return Chart(
        name=file_name("extents", f"load-{load}" if load else "single"),
        title=f"{under}: the slowest I/O took {format_ns(slowest['max'] * 1e6)}, on {slowest['arm']}",
        reading=(
            "Each line goes from the quickest I/O to the slowest, the mark is the mean. A long line to the right of "
            "its mark is a system that is usually quick and sometimes stalls."
        ),
        spec=specification(_extents_spec(study, rows)),
        columns=("workload", "arm", "least", "mean", "greatest"),
        rows=tuple(
            (row["workload"], row["arm"], *(format_ns(row[end] * 1e6) for end in ("min", "mean", "max")))
            for row in rows
        ),
    )


def _rows(result: Result, workload: Workload) -> Iterator[dict[str, Any]]:
    for arm in result.study.arms:
        values = [result.value(arm.name, workload.name, end) for end in _ENDS]
        least, mean, greatest = [0.0 if one is None else one.value / 1e6 for one in values]
        if least > 0 and mean > 0:
            kind = workload.name.partition(_LOAD)[0]
            yield {"arm": arm.name, "workload": kind, "min": least, "mean": mean, "max": greatest}


def _extents_spec(study: Study, rows: list[dict[str, Any]]) -> dict[str, Any]:
    names = [arm.name for arm in study.arms]
    ticks = axis_ticks([row[end] for row in rows for end in ("min", "max")])
    tens = [tick for tick in ticks if f"{tick:e}".startswith("1")]
    x = {
        "type": "quantitative", "scale": {"type": "log", "nice": False},
        "axis": {"title": "time of an I/O in ms, lower is better", "values": tens if len(tens) > 2 else ticks,
                 "format": "~g"},
    }  # fmt: skip
    colour = {"field": "arm", "type": "nominal", "scale": arms_scale(study), "legend": None}
    header = {"title": None, "labelAngle": 0, "labelAlign": "left"}
    return {
        "data": {"values": rows},
        "facet": {"row": {"field": "workload", "type": "nominal", "sort": None, "header": header}},
        "spec": {
            "width": 420, "height": _ROW * len(names),
            "encoding": {"y": {"field": "arm", "type": "nominal", "sort": names, "axis": {"title": None}},
                         "color": colour},
            "layer": [
                {"mark": {"type": "rule", "strokeWidth": 2},
                 "encoding": {"x": {"field": "min", **x}, "x2": {"field": "max"}}},
                {"mark": {"type": "point", "filled": True, "size": 50, "opacity": 1},
                 "encoding": {"x": {"field": "mean", **x}}},
            ],
        },
    }  # fmt: skip


def each_operation(study: Study, workload: str, series: Series) -> Chart | None:
    """Draw the time of each I/O of a trial against its index, a panel for each arm; None without any."""
    drawn = {arm: latencies[:DRAWN_MAX] for arm, latencies in series.items()}
    rows = [
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
        spec=specification(_each_spec(study, rows)),
        columns=("arm", "I/Os", "least", "greatest"),
        rows=tuple(
            (name, str(len(one)), format_ns(min(one)), format_ns(max(one))) for name, one in series.items() if one
        ),
    )


def _each_spec(study: Study, rows: list[dict[str, Any]]) -> dict[str, Any]:
    names = [arm.name for arm in study.arms]
    ticks = axis_ticks([row["ms"] for row in rows])
    tens = [tick for tick in ticks if f"{tick:e}".startswith("1")]
    header = {"title": None, "labelAngle": 0, "labelAlign": "left"}
    y = {
        "field": "ms", "type": "quantitative", "scale": {"type": "log", "nice": False},
        "axis": {"title": "ms", "values": tens if len(tens) > 2 else ticks, "format": "~g"},
    }  # fmt: skip
    colour = {"field": "arm", "type": "nominal", "scale": arms_scale(study), "legend": None}
    return {
        "data": {"values": rows},
        "facet": {"row": {"field": "arm", "type": "nominal", "sort": names, "header": header}},
        "spec": {
            "width": 460, "height": 80,
            "encoding": {"x": {"field": "index", "type": "quantitative", "axis": {"title": "I/O", "tickMinStep": 1}},
                         "y": y, "color": colour},
            # no words for a screen reader on hundreds of marks: the table below has the numbers
            "layer": [{"mark": {"type": "line", "strokeWidth": 0.7, "opacity": 0.6, "aria": False}},
                      {"mark": {"type": "point", "filled": True, "size": 14, "opacity": 1, "aria": False}}],
        },
    }  # fmt: skip
