# SPDX-License-Identifier: Apache-2.0
"""Speed against cost: IOPS over CPU time per I/O, with the durability of a completed write as the shape."""

from collections.abc import Mapping
from typing import Any

from virtune.model.durability import durability_of
from virtune.model.metric import BY_ID
from virtune.model.result import Result
from virtune.model.units import format_ns
from virtune.report.charts.chart import Chart, arms_scale, file_name, specification
from virtune.report.text.result import value_text

SPEED_AND_COST: Mapping[str, Any] = {
    "x": {"field": "cost", "type": "quantitative", "scale": {"zero": True},
          "axis": {"title": "CPU time per I/O in us, lower is better"}},
    "y": {"field": "iops", "type": "quantitative", "scale": {"zero": True},
          "axis": {"title": "IOPS, higher is better", "format": "~s"}},
}  # fmt: skip
"""The axes of IOPS over CPU time per I/O, from zero on, so that distances are in proportion."""


def speed_against_cost(result: Result, workload: str) -> Chart | None:
    """Draw IOPS against CPU time per I/O; None where fewer than two arms have both."""
    rows: list[dict[str, Any]] = []
    shown: list[tuple[str, ...]] = []
    for arm in result.study.arms:
        iops, cost = (result.value(arm.name, workload, name) for name in ("iops", "cpu_per_io"))
        if iops is None or cost is None or not arm.stack.kind.made_here:
            continue
        promise = durability_of(arm.stack).promise.value
        rows.append({"arm": arm.name, "iops": iops.value, "cost": cost.value * 1e6, "survives": promise})
        shown.append((arm.name, value_text(BY_ID["iops"], iops), value_text(BY_ID["cpu_per_io"], cost), promise))
    if len(rows) < 2:
        return None
    cheapest = min(rows, key=lambda row: float(row["cost"]))
    least = format_ns(float(cheapest["cost"]) * 1e3)
    return Chart(
        name=file_name("cost", workload),
        title=f"{workload}: {cheapest['arm']} takes the least CPU per I/O, {least}",
        reading=(
            "Up is faster, left is cheaper: the best arms are at the top left. The shape says what a completed write "
            "survives; an arm with a weaker promise is not simply faster."
        ),
        spec=specification(_spec(result, rows), height=280),
        columns=("arm", "IOPS", "CPU per I/O", "durability"),
        rows=tuple(shown),
    )


def _spec(result: Result, rows: list[dict[str, Any]]) -> dict[str, Any]:
    colour = {"field": "arm", "type": "nominal", "scale": arms_scale(result.study), "legend": None}
    shape = {"field": "survives", "type": "nominal", "legend": {"title": "durability"}}
    return {
        "data": {"values": rows},
        "encoding": SPEED_AND_COST,
        "layer": [
            {"mark": {"type": "point", "filled": True, "size": 110, "opacity": 1},
             "encoding": {"color": colour, "shape": shape}},
            {"mark": {"type": "text", "align": "left", "dx": 9, "dy": -7, "fontSize": 12, "color": "currentColor"},
             "encoding": {"text": {"field": "arm"}}},
        ],
    }  # fmt: skip
