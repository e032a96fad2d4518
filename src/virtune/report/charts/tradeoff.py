# SPDX-License-Identifier: Apache-2.0
"""Speed against cost: IOPS over CPU time per I/O, with the durability of a completed write as the shape."""

from collections.abc import Mapping
from typing import Any

from virtune.model.durability import durability_of
from virtune.model.metric import BY_ID
from virtune.model.result import Result
from virtune.report.charts.chart import Chart, arms_scale, file_name, specification
from virtune.report.pages.result import largest_decided, value_text

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
    meanings: dict[str, str] = {}
    for arm in result.study.arms:
        iops, cost = (result.value(arm.name, workload, name) for name in ("iops", "cpu_per_io"))
        if iops is None or cost is None or not arm.stack.kind.made_here:
            continue
        promise = durability_of(arm.stack).promise
        meanings[promise.value] = promise.meaning
        iops, cost = iops.of_a_round, cost.of_a_round  # as in the table, and as the intervals
        row = {"arm": arm.name, "iops": iops.value, "cost": cost.value * 1e6, "survives": promise.value}
        rows.append(row | _ends(result, arm.name, workload))
        shown.append(
            (arm.name, value_text(BY_ID["iops"], iops), value_text(BY_ID["cpu_per_io"], cost), promise.value)
        )
    if len(rows) < 2:
        return None
    crosses = any("iops_low" in row or "cost_low" in row for row in rows)
    return Chart(
        name=file_name("cost", workload),
        title=f"{workload}: {largest_decided(result, workload, 'cpu_per_io')}",
        reading=(
            "Up is faster, left is cheaper: the best arms are at the top left. The shape says what a write survives"
            f" ({'; '.join(f'{name}: {meaning}' for name, meaning in meanings.items())}); an arm with a weaker"
            " promise is not simply faster."
            + (f" The crosses are the intervals of the differences from {result.study.baseline}." if crosses else "")
        ),
        spec=specification(_spec(result, rows), height=280),
        columns=("arm", "IOPS", "CPU per I/O", "durability"),
        rows=tuple(shown),
    )


def _ends(result: Result, arm: str, workload: str) -> dict[str, float]:
    """Return where an arm lies by the intervals of its differences from the baseline, which has none itself."""
    found: dict[str, float] = {}
    for metric, name, scale in (("iops", "iops", 1.0), ("cpu_per_io", "cost", 1e6)):
        base = result.value(result.study.baseline, workload, metric)
        ratio = next(
            (
                one.ratio
                for one in (*result.verdicts, *result.differences)
                if (one.workload, one.metric, one.candidate, one.baseline)
                == (workload, metric, arm, result.study.baseline)
            ),
            None,
        )
        if base is not None and ratio is not None and 0 < ratio.low <= ratio.high <= WIDEST * ratio.low:
            found |= {f"{name}_low": base.shown * ratio.low * scale, f"{name}_high": base.shown * ratio.high * scale}
    return found


WIDEST = 4.0
"""An interval whose ends are further apart than this factor would leave no room for the marks."""


def crosses() -> list[dict[str, Any]]:
    """Return the layers that draw intervals both ways, of the rows that have them."""
    return [
        {"transform": [{"filter": f"isValid(datum.{name}_low)"}],
         "mark": {"type": "rule", "strokeWidth": 1.2, "opacity": 0.8, "color": "currentColor"},
         "encoding": {axis: {**SPEED_AND_COST[axis], "field": f"{name}_low"}, f"{axis}2": {"field": f"{name}_high"}}}
        for axis, name in (("y", "iops"), ("x", "cost"))
    ]  # fmt: skip


def _spec(result: Result, rows: list[dict[str, Any]]) -> dict[str, Any]:
    colour = {"field": "arm", "type": "nominal", "scale": arms_scale(result.study), "legend": None}
    shape = {"field": "survives", "type": "nominal", "legend": {"title": "durability", "orient": "bottom"}}
    return {
        "data": {"values": rows},
        "encoding": SPEED_AND_COST,
        "layer": [
            *(one | {"encoding": {**one["encoding"], "color": colour}} for one in crosses()),
            {"mark": {"type": "point", "filled": True, "size": 110, "opacity": 1},
             "encoding": {"color": colour, "shape": shape}},
            {"mark": {"type": "text", "align": "left", "dx": 9, "dy": -7, "fontSize": 12, "color": "currentColor"},
             "encoding": {"text": {"field": "arm"}}},
        ],
    }  # fmt: skip
