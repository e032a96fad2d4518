# SPDX-License-Identifier: Apache-2.0
"""Speed against cost: IOPS over CPU time per I/O, with the durability of a completed write as the shape."""

import math
from collections.abc import Iterator
from typing import Any

from virtune.model.durability import durability_of
from virtune.model.evidence import StudyRecord
from virtune.model.metric import BY_ID
from virtune.model.result import Result
from virtune.model.tuning import Place, Tuning
from virtune.report.charts.chart import MOST_ARMS, PALETTE, Chart, colours_of, file_name, filled
from virtune.report.pages.result import largest_decided, value_text
from virtune.report.pages.tune import runner_rows
from virtune.report.words import quantity


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
        meanings[promise.value] = promise.words
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
        title=f"{workload}, speed and its price: {largest_decided(result, workload, 'iops')}",
        reading=(
            "Up is faster, left is cheaper: the best arms are at the top left. The shape says what a write survives"
            f" ({'; '.join(f'{name}: {meaning}' for name, meaning in meanings.items())}); an arm with a weaker"
            " promise is not simply faster."
            + (f" The crosses are the intervals of the differences from {result.study.baseline}." if crosses else "")
        ),
        spec=filled("cost", height=280, rows=rows, colours=colours_of(result.study.arm_names)),
        columns=("arm", "IOPS", "CPU per I/O", "durability"),
        rows=tuple(shown),
    )


def _ends(result: Result, arm: str, workload: str) -> dict[str, float]:
    """Return where an arm lies by the intervals of its differences from the baseline, which has none itself."""
    found: dict[str, float] = {}
    every, baseline = (*result.verdicts, *result.differences), result.study.baseline
    for metric, name, scale in (("iops", "iops", 1.0), ("cpu_per_io", "cost", 1e6)):
        base, pair = result.value(baseline, workload, metric), (workload, metric, arm, baseline)
        mine = (one for one in every if (one.workload, one.metric, one.candidate, one.baseline) == pair)
        ratio = next((one.ratio for one in mine), None)
        if base is not None and ratio is not None and 0 < ratio.low <= ratio.high <= WIDEST * ratio.low:
            found |= {f"{name}_low": base.shown * ratio.low * scale, f"{name}_high": base.shown * ratio.high * scale}
    return found


WIDEST = 4.0
"""An interval whose ends are further apart than this factor would leave no room for the marks."""

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
            "better), the plain mean of all blocks so far. A line ends where its configuration was out, or the "
            "search over. The verdicts rest on the table's intervals, in whose means a block that is far off counts "
            "less."
        ),
        spec=filled(
            "race", height=300, rows=rows, ends=[*last.values()], named=named, colours=PALETTE[: len(named)],
            blocks=list(range(1, len(blocks) + 1, max(1, len(blocks) // 10))),
            names=_apart([row for row in last.values() if row["arm"] in named], rows),
            title=f"{BY_ID[metric].label} against the leader in %",
        ),
        columns=("configuration", "against the leader", "blocks", "out after block"),
        rows=tuple(
            (arm, f"{row['ratio']:+.1f} %", str(sums[arm][1]), str(out.get(arm) or "-")) for arm, row in last.items()
        ),
    )  # fmt: skip


def _by_block(record: StudyRecord, workload: str, metric: str) -> dict[int, dict[str, float]]:
    found: dict[int, dict[str, float]] = {}
    for one in record.trials:
        value = None if one.measurement is None else one.measurement.get(metric)
        if one.trial.workload == workload and value is not None and value > 0:
            found.setdefault(one.trial.round, {})[one.trial.arm] = value
    return found


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
    front: list[dict[str, Any]] = []
    for row in sorted(rows, key=lambda one: (one["cost"], -one["iops"])):
        if not front or row["iops"] > front[-1]["iops"]:
            front.append(row)
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
        spec=filled("pareto", height=300, rows=rows, front=front, colour=_colour([row["arm"] for row in rows])),
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


def _colour(names: list[str]) -> dict[str, Any]:
    """Return how marks are coloured: of a few all have colours, of more only those on the line have names."""
    if len(names) > _NAMED:
        return {"value": PALETTE[0]}
    legend = {"title": None, "symbolOpacity": 1}
    return {"field": "arm", "type": "nominal", "legend": legend, "scale": colours_of(names)}


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
        spec=filled("bars", height=_ROW * len(rows), rows=rows, colours=colours_of(result.study.arm_names)),
        columns=("arm", "IOPS", "spread of rounds", "rounds"),
        rows=tuple(shown),
    )
