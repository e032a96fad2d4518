# SPDX-License-Identifier: Apache-2.0
"""The race of a search: every configuration relative to the leader after each block, and when it was eliminated."""

import math
from collections.abc import Iterator
from typing import Any

from virtune.model.durability import durability_of
from virtune.model.evidence import StudyRecord
from virtune.model.metric import BY_ID
from virtune.model.standing import Place
from virtune.model.tuning import Tuning
from virtune.report.charts.chart import PALETTE, Chart, file_name, specification
from virtune.report.charts.tradeoff import SPEED_AND_COST, WIDEST, crosses
from virtune.report.pages.tune import runner_rows
from virtune.report.words import quantity

_NAMED = 7
"""So many configurations have a colour of their own; the others are grey."""

_LINES_MAX = 64


def race(known: Tuning, record: StudyRecord) -> Chart | None:
    """Draw the running mean of each configuration's ratio to the leader; None before there are two blocks."""
    leader, workload, metric = known.standing.leader, known.study.workloads[0].name, known.study.metric
    values = _by_block(record, workload, metric)
    blocks = [number for number, found in sorted(values.items()) if leader in found][: known.standing.blocks]
    if leader is None or len(blocks) < 2:
        return None
    out = {one.arm: one.out_after for one in known.standing.runners if one.place is Place.ELIMINATED}
    arms = [one.arm for one in known.standing.runners][:_LINES_MAX]
    sums: dict[str, tuple[float, int]] = {}
    rows: list[dict[str, Any]] = []
    for place, number in enumerate(blocks, 1):
        for arm in (one for one in arms if one in values[number]):
            total, count = sums.get(arm, (0.0, 0))
            sums[arm] = (total + math.log(values[number][arm] / values[number][leader]), count + 1)
            rows.append({"block": place, "arm": arm, "ratio": 100 * (math.exp(sums[arm][0] / sums[arm][1]) - 1)})
    named = [leader, *(one.arm for one in known.standing.runners if one.arm != leader and one.arm not in out)]
    named = (named + [arm for arm in arms if arm not in named])[:_NAMED]
    last = {row["arm"]: row for row in rows}
    better = BY_ID[metric].better
    return Chart(
        name=file_name("race", workload),
        title=f"{leader} leads after {known.standing.blocks} blocks; {len(out)} of {len(arms)} are out",
        reading=(
            f"Each line is a configuration: how its {BY_ID[metric].label} differs from the leader's ({better} is "
            "better), the mean of all blocks so far. A line ends where its configuration was out. The verdicts "
            "rest on intervals, which the table of configurations has."
        ),
        spec=specification(_spec(rows, [*last.values()], named, BY_ID[metric].label), height=300),
        columns=("configuration", "against the leader", "blocks", "out after block"),
        rows=tuple(
            (arm, f"{row['ratio']:+.1f} %", str(sums[arm][1]), str(out.get(arm) or "-")) for arm, row in last.items()
        ),
    )


def _by_block(record: StudyRecord, workload: str, metric: str) -> dict[int, dict[str, float]]:
    found: dict[int, dict[str, float]] = {}
    for one in record.trials:
        value = None if one.measurement is None else one.measurement.get(metric)
        if one.trial.workload == workload and value is not None and value > 0:
            found.setdefault(one.trial.round, {})[one.trial.arm] = value
    return found


def _spec(rows: list[dict[str, Any]], ends: list[dict[str, Any]], named: list[str], label: str) -> dict[str, Any]:
    colour = {
        "condition": {"test": {"field": "arm", "oneOf": named}, "field": "arm", "type": "nominal",
                      "scale": {"domain": named, "range": list(PALETTE[: len(named)])}, "legend": None},
        "value": "#999999",
    }  # fmt: skip
    last = max(row["block"] for row in rows)
    ticks = list(range(1, last + 1, max(1, last // 10)))
    x = {"field": "block", "type": "quantitative", "axis": {"title": "block", "format": "d", "values": ticks}}
    y = {"field": "ratio", "type": "quantitative", "axis": {"title": f"{label} against the leader in %"}}
    return {
        "data": {"values": rows},
        "encoding": {"x": x, "y": y},
        "layer": [
            {"mark": {"type": "line", "strokeWidth": 1.5}, "encoding": {"color": colour, "detail": {"field": "arm"}}},
            {"data": {"values": ends}, "mark": {"type": "point", "filled": True, "size": 40},
             "encoding": {"color": colour}},
            {"data": {"values": _apart([row for row in ends if row["arm"] in named], rows)},
             "mark": {"type": "text", "align": "left", "dx": 7, "fontSize": 11, "color": "currentColor"},
             "encoding": {"y": {**y, "field": "label"}, "text": {"field": "arm"}}},
        ],
    }  # fmt: skip


def _apart(ends: list[dict[str, Any]], rows: list[dict[str, Any]]) -> list[dict[str, Any]]:
    """Return the ends of lines with places for their names, so that none covers another at its block."""
    ratios = [row["ratio"] for row in rows]
    gap = _LABEL_SHARE * (max(ratios) - min(ratios))
    least: dict[int, float] = {}
    placed = []
    for row in sorted(ends, key=lambda row: float(row["ratio"])):
        label = max(row["ratio"], least.get(row["block"], -math.inf))
        least[row["block"]] = label + gap
        placed.append({**row, "label": label})
    return placed


_LABEL_SHARE = 0.05
"""The height of a name as a share of the picture's."""


def pareto(known: Tuning, record: StudyRecord) -> Chart | None:
    """Draw speed against CPU per I/O of every configuration of a search; None where fewer than two have both."""
    workload = known.study.workloads[0].name
    means: dict[str, dict[str, list[float]]] = {}
    for one in record.trials:
        if one.trial.workload == workload and one.measurement is not None:
            for metric in ("iops", "cpu_per_io"):
                value = one.measurement.get(metric)
                if value is not None and value > 0:
                    means.setdefault(one.trial.arm, {}).setdefault(metric, []).append(math.log(value))
    rows: list[dict[str, Any]] = []
    for arm, found in means.items():
        if len(found) == 2:
            iops, cost = (math.exp(sum(found[name]) / len(found[name])) for name in ("iops", "cpu_per_io"))
            promise = durability_of(known.study.arm(arm).stack).promise.value
            rows.append({"arm": arm, "iops": iops, "cost": cost * 1e6, "survives": promise})
    if len(rows) < 2:
        return None
    rows = [row | ends for row, ends in zip(rows, _intervals(known, rows), strict=True)]
    front = _frontier(rows)
    named = {row["arm"] for row in front}
    return Chart(
        name=file_name("pareto", workload),
        title=f"{len(front)} of {len(rows)} configurations: no other is both faster and cheaper",
        reading=(
            "Up is faster, left is cheaper. The line joins configurations than which none is faster and cheaper. "
            "Marks are means of all slices, so neighbours on the line may be equal"
            + (f"; lines through them are intervals of the differences from {known.standing.leader}." if any(
                "iops_low" in row or "cost_low" in row for row in rows) else ".")
        ),
        spec=specification(_pareto_spec(rows, front), height=300),
        columns=("configuration", "IOPS", "CPU per I/O", "on the line"),
        rows=tuple(
            (row["arm"], quantity(BY_ID["iops"], row["iops"]), quantity(BY_ID["cpu_per_io"], row["cost"] / 1e6),
             "yes" if row["arm"] in named else "no")
            for row in rows
        ),
    )  # fmt: skip


def _intervals(known: Tuning, rows: list[dict[str, Any]]) -> Iterator[dict[str, float]]:
    """Yield where each configuration lies by the race's interval, which is of the metric that was searched for."""
    name = {"iops": "iops", "cpu_per_io": "cost"}.get(known.study.metric, "")
    base = next((row.get(name) for row in rows if row["arm"] == known.standing.leader), None)
    ratios = {arm: ratio for arm, _, _, ratio in runner_rows(known)}
    for row in rows:
        ratio = ratios.get(row["arm"])
        if base is None or ratio is None or not 0 < ratio.low <= ratio.high <= WIDEST * ratio.low:
            yield {}
        else:
            yield {f"{name}_low": base * ratio.low, f"{name}_high": base * ratio.high}


def _frontier(rows: list[dict[str, Any]]) -> list[dict[str, Any]]:
    front: list[dict[str, Any]] = []
    for row in sorted(rows, key=lambda one: (one["cost"], -one["iops"])):
        if not front or row["iops"] > front[-1]["iops"]:
            front.append(row)
    return front


def _pareto_spec(rows: list[dict[str, Any]], front: list[dict[str, Any]]) -> dict[str, Any]:
    """Return the specification: those on the line have their names beside them, of a few all have colours."""
    line = {"type": "line", "strokeWidth": 1.5, "color": PALETTE[0], "interpolate": "step-after"}
    names = [row["arm"] for row in rows]
    shape = {"field": "survives", "type": "nominal", "legend": {"title": "durability", "orient": "bottom"}}
    colour: dict[str, Any] = {"value": PALETTE[0]}
    if len(names) <= _NAMED:
        colour = {"field": "arm", "type": "nominal", "legend": {"title": None, "symbolOpacity": 1},
                  "scale": {"domain": names, "range": list(PALETTE[: len(names)])}}  # fmt: skip
    lines = [{**one, "encoding": {**one["encoding"], "color": colour}} for one in crosses()]
    return {
        "encoding": SPEED_AND_COST,
        "layer": [
            {"data": {"values": front}, "mark": line},
            *({"data": {"values": rows}, **one} for one in lines),
            {"data": {"values": rows}, "mark": {"type": "point", "filled": True, "size": 70, "opacity": 1},
             "encoding": {"shape": shape, "color": colour}},
            {"data": {"values": front},
             "mark": {"type": "text", "align": "left", "dx": 8, "dy": -6, "fontSize": 11, "color": "currentColor"},
             "encoding": {"text": {"field": "arm"}}},
        ],
    }  # fmt: skip
