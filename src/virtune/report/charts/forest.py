# SPDX-License-Identifier: Apache-2.0
"""The forest plot: every difference with its interval, and the band of differences within the margin."""

import math
from collections.abc import Mapping, Sequence
from typing import Any

from virtune.model.metric import BY_ID
from virtune.model.result import Result, Stopped
from virtune.model.text import format_share
from virtune.model.verdict import Comparison, Interval, Verdict
from virtune.report.charts.chart import MOST_ARMS, SHAPES, Chart, file_name, filled, scales_of
from virtune.report.pages.result import change_text, is_told
from virtune.report.render.forest import axis_of
from virtune.report.words import change_words, count_text, end_words

FOREST = "forest"
"""How the name of a forest plot begins."""

ROW = 30

_RISES = (0.01, 0.02, 0.05, 0.1, 0.2, 0.5, 1.0, 3.0, 9.0, 99.0, 999.0, 9999.0)
_FALLS = (-0.01, -0.02, -0.05, -0.1, -0.2, -0.33, -0.5, -0.75, -0.9, -0.99, -0.999, -0.9999)
"""Differences at which an axis may be labelled."""

_APART = 0.28
"""Labels are at least so far from one another, as a share of the axis to one side."""

LABEL = (
    "abs(datum.value) < 1e-9 ? '0 %' : datum.value > log(9.99) ? 'x' + format(exp(datum.value), ',.0f') :"
    " format(100 * (exp(datum.value) - 1), '+.4~g') + ' %'"
)


def forest(result: Result, workload: str) -> Chart | None:
    """Draw the verdicts of a workload; None where nothing is compared."""
    pairs = [one for one in result.verdicts if one.workload == workload]
    drawn = [(one, one.ratio) for one in pairs if one.ratio is not None and is_told(one)]
    ratios = [(one, ratio) for one, ratio in drawn if 0 < ratio.estimate < math.inf][:MOST_ARMS]
    if not ratios:
        return None
    found = [one for one, _ in ratios]
    reach = math.log1p(axis_of(ratio for _, ratio in ratios))
    rows = [
        forest_row(f"{one.candidate} against {one.baseline}", one.verdict.value, ratio, reach,
                   text=f"{change_text(one)}  {one.said}")
        for one, ratio in ratios
    ]  # fmt: skip
    metric, margin = BY_ID[found[0].metric], math.log1p(result.study.margin)
    better = f"{metric.better} is better"
    mine = [one for one in pairs if one.metric == metric.id]  # those without an interval too
    decided, verb = sum(one.verdict is not Verdict.UNDECIDED for one in mine), "is" if len(mine) == 1 else "are"
    return Chart(
        name=file_name(FOREST, workload),
        title=f"{workload}: {decided} of {count_text(len(mine), 'pair')} {verb} decided on {metric.label}",
        reading=(
            f"Each row is one pair of arms: the mark is the estimated difference in {metric.label} ({better}), the"
            f" line its {format_share(result.study.confidence)} confidence interval. Inside the grey band"
            f" (±{format_share(result.study.margin)}) a difference is too small to matter. An arrow says that the"
            " interval goes on."
        ),
        spec=forest_spec(rows, reach, margin, f"difference in {metric.label}, {better}"),
        columns=("pair", "verdict", "difference", "low", "high", "rounds that count"),
        rows=tuple(
            (
                f"{one.candidate} against {one.baseline}",
                one.said,
                *map(change_words, (one.ratio.estimate, one.ratio.low, one.ratio.high)),
                str(one.rounds),
            )
            for one in found
            if one.ratio is not None
        ),
    )


def ticks_of(reach: float) -> list[float]:
    """Return where an axis that reaches so far each way is labelled, all in natural logarithms."""
    found = [0.0]
    for side in (_RISES, _FALLS):
        last = (1 + _APART) * reach
        for place in (math.log1p(one) for one in reversed(side)):
            if _APART * reach <= abs(place) <= min(reach * 1.0001, last - _APART * reach):
                found.append(place)
                last = abs(place)
    return sorted(found)


def forest_row(name: str, verdict: str, ratio: Interval, reach: float, *, text: str) -> dict[str, Any]:
    """Return a row; `verdict` is the word by which its mark is chosen, and the interval is cut to the axis."""
    low, high = (math.log(max(bound, 1e-9)) for bound in (ratio.low, ratio.high))
    return {
        "pair": name,
        "verdict": verdict,
        "estimate": math.log(ratio.estimate),
        "low": max(low, -reach),
        "high": min(high, reach),
        "beyond_low": low < -reach,
        "beyond_high": high > reach,
        "text": text,
    }


def forest_spec(
    rows: Sequence[Mapping[str, Any]], reach: float, margin: float, title: str, marks: Mapping[str, str] = SHAPES
) -> dict[str, Any]:
    """Return the specification of a forest plot; `marks` are the shapes of the words in its rows."""
    return filled(
        "forest", height=ROW * len(rows), rows=rows, domain=[-reach, reach], labels=LABEL, ticks=ticks_of(reach),
        title=title, band=[{"from": -min(margin, reach), "to": min(margin, reach)}],
        shapes={"domain": list(marks), "range": list(marks.values())},
        right=24 + max(len(row["text"]) for row in rows),  # a browser's font may be wider than ours
    )  # fmt: skip


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
        and one.ratio is not None and 0 < one.ratio.low <= one.ratio.high < math.inf
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
    margin = math.log1p(study.margin)
    band = [{"from": max(-margin, -reach), "to": min(margin, reach), "first": numbers[0], "last": numbers[-1]}]
    rows = [
        {"round": number, "arm": one.candidate, "low": max(math.log(ratio.low), -reach),
         "estimate": math.log(ratio.estimate), "high": min(math.log(ratio.high), reach)}
        for number, one, ratio in found
    ]  # fmt: skip
    return Chart(
        name=file_name("narrowing", workload),
        title=_narrowing_title(result, workload, pairs),
        reading=(
            f"Each band is the interval of one arm's difference in {metric.label} from {study.baseline}, as it was "
            "after each round; the line is the estimate. A pair is decided when its band has left the dashed line, "
            f"or lies within the grey one (±{format_share(study.margin)})."
            + (" Bands that end at the edge reach beyond the picture." if beyond else "")
            + (f" {len(names)} of {count_text(len(pairs), 'pair')} are shown." if len(pairs) > len(names) else "")
        ),
        spec=filled(
            "narrowing", height=260, rows=rows, names=names, rounds=numbers, domain=[-reach, reach], labels=LABEL,
            ticks=ticks_of(reach), title=f"difference in {metric.label}", band=band, **scales_of(study.arm_names),
        ),
        columns=("round", "pair", "low", "difference", "high", "verdict"),
        rows=tuple(
            (str(number), f"{one.candidate} against {one.baseline}", end_words(ratio.low, ratio.estimate),
             change_words(ratio.estimate), end_words(ratio.high, ratio.estimate), one.said)
            for number, one, ratio in found
        ),
    )  # fmt: skip


def _narrowing_title(result: Result, workload: str, pairs: Sequence[Comparison]) -> str:
    """Say how many of all pairs are decided, whether they are drawn or not."""
    rounds = count_text(max(number for number, _ in result.looked), "round")
    decided = sum(one.verdict is not Verdict.UNDECIDED for one in pairs)
    stopped = "" if result.stopped is None else f", {_STOPPED[result.stopped]}"
    return f"{workload}: after {rounds} {decided} of {count_text(len(pairs), 'pair')} decided{stopped}"
