# SPDX-License-Identifier: Apache-2.0
"""Against the offered load: IOPS, how busy the device is, and the host's CPU in programs and in the kernel."""

from collections.abc import Iterator
from typing import Any

from virtune.model.metric import BY_ID
from virtune.model.result import Result
from virtune.model.workload import Workload
from virtune.report.charts.chart import MOST_ARMS, Chart, arms_scale, dash_scale, file_name, specification
from virtune.report.pages.result import value_text

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
        spec=specification(_spec(result, rows)),
        columns=("arm", "offered", *(BY_ID[name].label for name in _SHOWN)),
        rows=tuple(shown),
    )


def _spec(result: Result, rows: list[dict[str, Any]]) -> dict[str, Any]:
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
