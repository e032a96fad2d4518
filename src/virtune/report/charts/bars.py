# SPDX-License-Identifier: Apache-2.0
"""Bars of IOPS: one for each arm, with the spread of its rounds."""

from typing import Any

from virtune.model.metric import BY_ID
from virtune.model.result import Result
from virtune.report.charts.chart import MOST_ARMS, Chart, arms_scale, file_name, specification
from virtune.report.pages.result import largest_decided, value_text

_ROW = 26


def iops_bars(result: Result, workload: str) -> Chart | None:
    """Draw the IOPS of every arm; None for fewer than two."""
    rows: list[dict[str, Any]] = []
    shown: list[tuple[str, ...]] = []
    for arm in result.study.arms:
        found = result.value_of_a_round(arm.name, workload, "iops")
        if found is None:
            continue
        reach = found.value * (found.spread or 0.0)
        text = str(value_text(BY_ID["iops"], found))
        low, high = max(0.0, found.value - reach), found.value + reach
        rows.append({"arm": arm.name, "iops": found.value, "low": low, "high": high, "text": text})
        shown.append((arm.name, text, "-" if found.spread is None else f"{found.spread:.1%}", str(found.rounds)))
    if not 2 <= len(rows) <= MOST_ARMS:
        return None
    return Chart(
        name=file_name("bars", workload),
        title=f"{workload}: {largest_decided(result, workload, 'iops')}",
        reading=(
            "Each bar is an arm's IOPS as in the table, the thin line one standard deviation of a round each way. "
            "Whether two arms differ is said by the intervals of their difference, not by these lines."
        ),
        spec=specification(_spec(result, rows), height=_ROW * len(rows)),
        columns=("arm", "IOPS", "spread of rounds", "rounds"),
        rows=tuple(shown),
    )


def _spec(result: Result, rows: list[dict[str, Any]]) -> dict[str, Any]:
    y = {"field": "arm", "type": "nominal", "sort": None, "axis": {"title": None, "labelLimit": 300, "grid": False}}
    x = {"type": "quantitative", "scale": {"zero": True}, "axis": {"title": "IOPS, higher is better", "format": "~s"}}
    colour = {"field": "arm", "type": "nominal", "scale": arms_scale(result.study), "legend": None}
    return {
        "data": {"values": rows},
        "encoding": {"y": y},
        "layer": [
            {"mark": {"type": "bar", "opacity": 0.75},
             "encoding": {"x": {"field": "iops", **x}, "color": colour, "description": {"field": "text"}}},
            {"mark": {"type": "rule", "strokeWidth": 1.5, "color": "currentColor"},
             "encoding": {"x": {"field": "low", **x}, "x2": {"field": "high"}}},
        ],
    }  # fmt: skip
