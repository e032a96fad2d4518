# SPDX-License-Identifier: Apache-2.0
"""The answer of a comparison, before its tables: each arm's interval as a bar, its verdict, its CPU cost per I/O."""

from collections.abc import Iterator

from rich.console import RenderableType
from rich.text import Text

from virtune.model.metric import BY_ID
from virtune.model.reason import Reason
from virtune.model.result import Result
from virtune.model.units import format_share
from virtune.model.verdict import PLANNED_ROUNDS_MIN, Comparison, Verdict
from virtune.model.workload import Workload
from virtune.report.text.forest import axis, axis_of, bar
from virtune.report.text.layout import Column, FirstThatFits, Paragraph, Records
from virtune.report.text.words import TOO_FEW, change_words, difference_text

REPEATS_TOLD = 4
"""With fewer unpaired runs of each no interval is shown: it cannot decide anything, and may be very wide."""

STYLE = {Verdict.BETTER: "green", Verdict.WORSE: "red", Verdict.SAME: "cyan", Verdict.UNDECIDED: "yellow"}


def answer(result: Result) -> list[RenderableType]:
    """Return a line per arm for one workload, a row per workload for several; empty without comparisons."""
    study = result.study
    if len(study.arms) < 2 or not study.compared:
        return []
    several = len(study.compared) > 1
    where = "" if several else f"{study.compared[0].name}: "
    title = Text(f"\n{where}{judged_label(result)} against {study.baseline}", style="bold")
    return [title, matrix(result)] if several else [title, forest(result, study.compared[0]), *legend(result)]


def legend(result: Result) -> list[RenderableType]:
    """Say what the brackets and the drawn bars are; empty where no interval is shown."""
    study = result.study
    found = [one for one in result.verdicts if (one.metric, one.baseline) == (study.metric, study.baseline)]
    if not any(has_interval(one) for one in found):
        return []
    return [Paragraph(Text(legend_words(result), style="dim"), indent=2, hanging=2)]


def legend_words(result: Result) -> str:
    """Say what the brackets and the drawn bars are."""
    study = result.study
    together = ", for all verdicts together" if len(result.verdicts) > 1 else ""
    words = f"[low, high], drawn as a bar: {format_share(study.confidence)} confidence interval of the change from"
    return f"{words} {study.baseline}{together}; the axis is logarithmic"


def judged_label(result: Result) -> str:
    """Return the name of the main metric, as it was measured."""
    shown = (one.measured.label for one in result.verdicts if one.metric == result.study.metric)
    return next(shown, BY_ID[result.study.metric].label)


def forest(result: Result, workload: Workload) -> RenderableType:
    """Draw every arm of one workload against the baseline, on the main metric."""
    found = list(_against_baseline(result, workload))
    told = [one.ratio for one in found if one.ratio is not None and is_told(one)]
    reach = axis_of(told)
    rows = []
    for one in found:
        style = STYLE[one.verdict]
        drawn = ""
        if one.ratio is not None and is_told(one):
            drawn = bar(one.ratio.low, one.ratio.estimate, one.ratio.high, reach)
        rows.append(
            (
                Text(one.candidate, style="bold"),
                Text(one.verdict.value, style=style),
                change_cell(one),
                Text(drawn, style=style),
                Text(_cost(result, one), style="dim"),
            )
        )
    columns = [Column(title=""), Column(title=""), Column(title=""), Column(title=axis(reach, "0")), Column(title="")]
    ways = ((0, 1, 2, 3, 4), (0, 1, 2, 3), (0, 1, 2))
    return FirstThatFits(
        *([Records([columns[n] for n in keep], [[row[n] for n in keep] for row in rows], indent=2)] for keep in ways)
    )


def is_told(comparison: Comparison) -> bool:
    """Whether there are enough rounds to show an interval: as many as its study takes to decide anything. An interval
    of fewer may be millions of percent wide. Unpaired repeats can decide with fewer.
    """
    if comparison.change is not None:
        return comparison.rounds >= REPEATS_TOLD
    return comparison.rounds >= PLANNED_ROUNDS_MIN and comparison.reason is not Reason.TOO_FEW


def change_cell(comparison: Comparison | None) -> Text:
    """Write a change with its interval, or why there is none; `-` where nothing was measured."""
    words = "" if comparison is None else change_text(comparison)
    if comparison is None or not words:
        return Text("-", style="dim")
    return Text(words, style=STYLE[comparison.verdict] if has_interval(comparison) else "dim")


def change_text(comparison: Comparison) -> str:
    """Write a change with its interval: `-12.3 % [-15.0, -9.5]`, or why it has none; empty without a change."""
    change = comparison.change if comparison.ratio is None else comparison.ratio.estimate
    if change is None:
        return ""
    if comparison.ratio is not None and has_interval(comparison):
        return difference_text(comparison.ratio)
    unit = "round" if comparison.change is None else "run"
    return f"{change_words(change)} [{TOO_FEW.replace('round', unit)}]"


def has_interval(comparison: Comparison) -> bool:
    """Whether a change is written with its interval."""
    return comparison.ratio is not None and is_told(comparison)


def matrix(result: Result, most: int | None = None) -> RenderableType:
    """Lay out several workloads: a row for each of the first `most`, with the verdict and the change of each arm."""
    study = result.study
    others = [arm.name for arm in study.arms if arm.name != study.baseline]
    rows = []
    for workload in study.compared[:most]:
        found = {one.candidate: one for one in _against_baseline(result, workload)}
        rows.append((Text(workload.name), *(_short(found.get(name)) for name in others)))
    return Records([Column(title="workload"), *(Column(title=name) for name in others)], rows, indent=2)


def _short(comparison: Comparison | None) -> Text:
    if comparison is None:
        return Text("-", style="dim")
    change = comparison.change if comparison.ratio is None else comparison.ratio.estimate
    words = comparison.verdict.value + ("" if change is None else f" {change_words(change)}")
    return Text(words, style=STYLE[comparison.verdict])


def _against_baseline(result: Result, workload: Workload) -> Iterator[Comparison]:
    study = result.study
    for one in result.verdicts:
        if (one.workload, one.metric, one.baseline) == (workload.name, study.metric, study.baseline):
            yield one


def _cost(result: Result, verdict: Comparison) -> str:
    """Say how CPU per I/O differs, if the difference is significant."""
    if verdict.metric == "cpu_per_io":
        return ""
    for one in result.differences:
        same = (one.workload, one.candidate, one.metric) == (verdict.workload, verdict.candidate, "cpu_per_io")
        if same and one.ratio is not None and is_told(one) and one.verdict in (Verdict.BETTER, Verdict.WORSE):
            return f"CPU per I/O {change_words(one.ratio.estimate)}"
    return ""
