# SPDX-License-Identifier: Apache-2.0
"""How the intervals of a comparison narrowed from round to round: why it stopped where it did."""

import math
from collections.abc import Sequence
from typing import Any

from virtune.model.metric import BY_ID
from virtune.model.result import Result, Stopped
from virtune.model.units import format_share
from virtune.model.verdict import Comparison, Interval, Verdict
from virtune.report.charts.chart import Chart, arms_scale, dash_scale, file_name, specification
from virtune.report.charts.forest import LABEL, ticks_of
from virtune.report.words import change_words, count_text, end_words

PAIRS_MAX = 6
"""More bands than these cover one another."""

_STOPPED = {
    Stopped.DECIDED: "so it stopped",
    Stopped.ROUNDS: "then its rounds were over",
    Stopped.BUDGET: "then its time was over",
}

_REACH = (math.log(1.02), math.log(4))


def narrowing(result: Result, workload: str) -> Chart | None:
    """Draw the interval of each pair after each round; None where there are fewer than two rounds of intervals."""
    study = result.study
    found = [
        (number, one, one.ratio)
        for number, verdicts in result.looked
        for one in verdicts
        if one.workload == workload and one.metric == study.metric and one.baseline == study.baseline
        and one.ratio is not None and _drawable(one.ratio)
    ]  # fmt: skip
    names = list(dict.fromkeys(one.candidate for _, one, _ in found))[:PAIRS_MAX]
    pairs = [one for one in result.verdicts if one.workload == workload and one.metric == study.metric]
    found = [each for each in found if each[1].candidate in names]
    numbers = sorted({number for number, _, _ in found})
    if len(numbers) < 2:
        return None
    metric, middle = BY_ID[study.metric], numbers[len(numbers) // 2]
    late = [abs(math.log(end)) for number, _, ratio in found if number >= middle for end in (ratio.low, ratio.high)]
    widest = max(abs(math.log(ratio.estimate)) for _, _, ratio in found)
    reach = max(min(max(late) * 1.1, _REACH[1]), widest * 1.02, _REACH[0])
    beyond = any(abs(math.log(end)) > reach for _, _, ratio in found for end in (ratio.low, ratio.high))
    rows = [
        {"round": number, "arm": one.candidate, "low": max(math.log(ratio.low), -reach),
         "estimate": math.log(ratio.estimate), "high": min(math.log(ratio.high), reach)}
        for number, one, ratio in found
    ]  # fmt: skip
    return Chart(
        name=file_name("narrowing", workload),
        title=_title(result, workload, pairs),
        reading=(
            f"Each band is the interval of one arm's difference in {metric.label} from {study.baseline}, as it was "
            "after each round; the line is the estimate. A pair is decided when its band has left the dashed line, "
            f"or lies within the grey one (±{format_share(study.margin)})."
            + (" Bands that end at the edge reach beyond the picture." if beyond else "")
            + (f" {len(names)} of {count_text(len(pairs), 'pair')} are shown." if len(pairs) > len(names) else "")
        ),
        spec=specification(_spec(result, rows, reach, f"difference in {metric.label}"), height=260),
        columns=("round", "pair", "low", "difference", "high", "verdict"),
        rows=tuple(
            (str(number), f"{one.candidate} against {one.baseline}", end_words(ratio.low, ratio.estimate),
             change_words(ratio.estimate), end_words(ratio.high, ratio.estimate), one.verdict.value)
            for number, one, ratio in found
        ),
    )  # fmt: skip


def _drawable(ratio: Interval) -> bool:
    return 0 < ratio.low <= ratio.high < math.inf


def _title(result: Result, workload: str, pairs: Sequence[Comparison]) -> str:
    """Say how many of all pairs are decided, whether they are drawn or not."""
    rounds = count_text(max(number for number, _ in result.looked), "round")
    decided = sum(one.verdict is not Verdict.UNDECIDED for one in pairs)
    stopped = "" if result.stopped is None else f", {_STOPPED[result.stopped]}"
    return f"{workload}: after {rounds} {decided} of {count_text(len(pairs), 'pair')} decided{stopped}"


def _spec(result: Result, rows: list[dict[str, Any]], reach: float, title: str) -> dict[str, Any]:
    margin = math.log1p(result.study.margin)
    rounds = sorted({row["round"] for row in rows})
    axis = {"title": "round", "format": "d", "tickMinStep": 1, "values": rounds, "labelOverlap": True}
    x = {"field": "round", "type": "quantitative", "scale": {"zero": False, "nice": False}, "axis": axis}
    y = {"type": "quantitative", "scale": {"domain": [-reach, reach], "nice": False},
         "axis": {"title": title, "labelExpr": LABEL, "values": ticks_of(reach)}}  # fmt: skip
    legend = {"title": None, "values": list(dict.fromkeys(row["arm"] for row in rows)), "symbolOpacity": 1,
              "symbolType": "stroke", "symbolStrokeWidth": 2}  # fmt: skip
    colour = {"field": "arm", "type": "nominal", "scale": arms_scale(result.study), "legend": legend}
    dash = {"field": "arm", "type": "nominal", "scale": dash_scale(result.study), "legend": legend}
    ends = [{"from": max(-margin, -reach), "to": min(margin, reach), "first": rounds[0], "last": rounds[-1]}]
    return {
        "data": {"values": rows},
        "layer": [
            {"data": {"values": ends}, "mark": {"type": "rect", "color": "#888888", "opacity": 0.18},
             "encoding": {"y": {**y, "field": "from"}, "y2": {"field": "to"}, "x": {**x, "field": "first"},
                          "x2": {"field": "last"}}},
            {"data": {"values": [{"zero": 0}]},
             "mark": {"type": "rule", "color": "currentColor", "strokeDash": [4, 3], "opacity": 0.7},
             "encoding": {"y": {**y, "field": "zero"}}},
            {"mark": {"type": "area", "opacity": 0.2},
             "encoding": {"x": x, "y": {**y, "field": "low"}, "y2": {"field": "high"}, "color": colour}},
            {"mark": {"type": "line", "strokeWidth": 2, "point": {"size": 25}},
             "encoding": {"x": x, "y": {**y, "field": "estimate"}, "color": colour, "strokeDash": dash}},
        ],
    }  # fmt: skip
