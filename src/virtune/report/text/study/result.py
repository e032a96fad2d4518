# SPDX-License-Identifier: Apache-2.0
"""A study's result as text: the answer, then the tables, the differences with their intervals, the verdicts."""

import math
from collections.abc import Iterable, Iterator, Sequence

from rich.console import Group, RenderableType
from rich.text import Text

from virtune.model.metric import BY_ID, Metric
from virtune.model.reason import Reason
from virtune.model.result import ArmSummary, Result, Value
from virtune.model.study import Study
from virtune.model.units import format_bytes, format_seconds
from virtune.model.verdict import Comparison, Verdict
from virtune.model.workload import Workload
from virtune.report.reproduce import AGAIN, command_again
from virtune.report.text.columns import SideBySide
from virtune.report.text.layout import Column, Paragraph, Records
from virtune.report.text.study import imported
from virtune.report.text.study.answer import STYLE, answer, change_cell, change_text, forest, judged_label, legend
from virtune.report.text.study.arms import arm_lines
from virtune.report.text.study.basis import resting_on, stopped_text
from virtune.report.text.study.clients import programs_of
from virtune.report.text.study.first_read import first_read_lines
from virtune.report.text.study.header import host_line
from virtune.report.text.study.notes import count_words, notes, repeats_of
from virtune.report.text.study.table_words import (
    TOGETHER,
    TYPICAL,
    changes_words,
    marks_words,
    together_words,
    values_words,
)
from virtune.report.text.study.verified import verified
from virtune.report.text.words import change_words, count_text, difference_text, quantity, share_text
from virtune.report.view import ViewCell, ViewRow, WorkloadView, workload_view, worth


def render(result: Result, facts: str = "", *, first: Sequence[RenderableType] = ()) -> Group:
    """Lay out a result for a terminal: the answer, where it was measured, then tables, settings, warnings and notes.

    `facts` are those of the host, as JSON; `first` comes before the tables.
    """
    study = result.study
    parts: list[RenderableType] = [headline(result), *answer(result), *first, *_about(result, facts)]
    for workload in study.workloads:
        parts += _workload(result, workload)
    parts += verified(result)
    parts += notes(result)
    if command := command_again(study):
        # one line, so that it can be pasted
        again = Text(f"  {command}", no_wrap=True, overflow="ignore")
        parts += [Text("\nto repeat it", style="bold"), Paragraph(Text(AGAIN, style="dim"), indent=2), again]
    return Group(*parts)


def headline(result: Result) -> Text:
    """Name the study in one line, and its title, if any, in a second one."""
    study = result.study
    if study.imported:
        return imported.headline(result)
    total = len(study.trials)
    text = Text()
    text.append(f"{study.label} {study.id}", style="bold")
    whole = result.trials_done == total
    # rounds of a sequential study are added one by one, so a total says nothing
    trials = count_text(total, "trial") if whole and study.sequential else f"{result.trials_done} of {total} trials"
    text.append(f"  {trials}", style="" if whole else "yellow")
    again = sum(map(repeats_of, result.arms))
    text.append(f" and {count_text(again, 'repeat')}" if again else "")
    text.append(f"\n{study.title}" if study.title else "")
    return text


def about(result: Result, facts: str) -> Iterator[str]:
    """Yield how long, in which order and on which host a study was measured."""
    study = result.study
    if not study.imported:
        span = f"target {study.target}" if study.target else _disk_words(study)
        times_run = " x ".join(_times_run(study))
        took = "" if result.elapsed_seconds is None else f", {format_seconds(result.elapsed_seconds)} in all"
        times = f"{format_seconds(study.seconds)} (+ {format_seconds(study.ramp_seconds)} warm-up)"
        ended = f"; {said}" if (said := stopped_text(result)) else ""
        yield f"{times_run} x {times}, in random order (seed {study.seed}), {span}{took}{ended}"
        yield from first_read_lines(study)
    yield host_line(study, facts, programs_of(result))


def _disk_words(study: Study) -> str:
    """Say how much disk the arms load: the span of every image that one of them has."""
    most = max(stack.disks * (stack.guests if stack.own_images else 1) for stack in (arm.stack for arm in study.arms))
    span = format_bytes(study.span_bytes)
    return f"{span} of disk" if most == 1 else f"{most} x {span} of disk"


def _times_run(study: Study) -> Iterator[str]:
    yield count_text(study.rounds_begun or study.rounds, "round")
    for many, word in ((study.arms, "arm"), (study.workloads, "workload")):
        if len(many) > 1:
            yield count_text(len(many), word)


def _about(result: Result, facts: str) -> Iterator[RenderableType]:
    yield Text("")
    said = (*arm_lines(result.study, facts), *about(result, facts))
    yield from (Paragraph(Text(line, style="dim"), hanging=2) for line in said)
    if words := count_words(result):
        yield Text(f"{words}, see below", style="yellow")


def value_text(metric: Metric, value: Value | None) -> str:
    """Write a value with its unit; `-` where it was not measured, `~` before a percentile that is not resolved, `>=`
    before a lower bound.
    """
    if value is None:
        return "-"
    if value.low is not None and value.high is None:
        return f">={quantity(metric, value.low)}"
    written = quantity(metric, value.value)
    return written if value.resolved else f"~{written}"


def largest_decided(result: Result, workload: str, metric: str, *, valued: bool = True) -> str:
    """Name the arm whose difference from the baseline on a metric is the largest of those that a verdict decides,
    with its value in the tables; say that none is decided, or that all are the same, where that is so.
    """
    label, baseline = BY_ID[metric].label, result.study.baseline
    found = [
        one
        for one in (*result.verdicts, *result.differences)
        if (one.workload, one.metric, one.baseline) == (workload, metric, baseline)
    ]
    found = list({one.candidate: one for one in reversed(found)}.values())
    decided = [
        (abs(math.log(one.ratio.estimate)), one.candidate, one.ratio.estimate)
        for one in found
        if one.ratio is not None and one.verdict in (Verdict.BETTER, Verdict.WORSE)
    ]
    if not decided:
        same = bool(found) and all(one.verdict is Verdict.SAME for one in found)
        return f"{label} is the same in all arms" if same else f"no difference in {label} is decided"
    _, arm, change = max(decided)
    value = f"{value_text(BY_ID[metric], result.value_of_a_round(arm, workload, metric))}, " if valued else ""
    most = f" ({len(decided)} of {count_text(len(found), 'arm')} differ from it)" if len(found) > 1 else ""
    return f"{label} of {arm} is {value}{change_words(change)} against {baseline}{most}"


def verdict_sentence(comparison: Comparison) -> Text:
    """Return one verdict in words: the arms, the metric, the difference, and the reason if none was found."""
    words = {
        Verdict.BETTER: "is better than",
        Verdict.WORSE: "is worse than",
        Verdict.SAME: "is the same as",
        Verdict.UNDECIDED: "against",
    }
    style = STYLE[comparison.verdict]
    undecided = comparison.verdict is Verdict.UNDECIDED
    text = Text()
    text.append(comparison.candidate, style="bold")
    text.append(f" {words[comparison.verdict]} ")
    text.append(comparison.baseline, style="bold")
    text.append(": undecided" if undecided else "", style=style)
    text.append(f", {comparison.measured.label}")
    change = change_text(comparison)
    text.append(f" {change}" if change else "", style=style)
    if undecided or comparison.verdict is Verdict.SAME:
        text.append(f"; {comparison.why}", style="dim")
    if comparison.other_mean is not None and comparison.reason is not Reason.PLAIN_MEAN:
        text.append(f"; plain means: {difference_text(comparison.other_mean)}", style="dim")
    return text


def _workload(result: Result, workload: Workload) -> list[RenderableType]:
    study = result.study
    title = Text(f"\n{workload.name}", style="bold")
    title.append(f"  {workload.meaning}", style="not bold dim")
    if workload.probe:
        return [Paragraph(title), _saturation(result, workload)]
    parts: list[RenderableType] = [Paragraph(title)]
    if len(study.compared) > 1 and len(study.arms) > 1:
        parts += [Text(f"{judged_label(result)} against {study.baseline}"), forest(result, workload)]
        parts += legend(result) if workload == study.compared[0] else []
    view = workload_view(result, workload)
    base, others = study.baseline, [arm.name for arm in study.arms if arm.name != study.baseline]
    parts.append(SideBySide(lambda arms: _values(result, view, [base, *arms]), others))
    parts += _dim(values_words(view, study))
    if view.together:
        parts.append(SideBySide(lambda arms: _together(view, [base, *arms]), others))
    parts += _dim(together_words(view) if view.together else marks_words(view.rows))
    if len(study.arms) > 1:
        parts.append(SideBySide(lambda arms: _differences(result, view, arms), others))
        parts += _dim(changes_words(view, study))
        metrics = ", ".join(dict.fromkeys(comparison.measured.label for comparison in view.verdicts))
        parts.append(Text(f"\nverdicts on {metrics}", style="bold").append(standing(result, workload)))
        parts += [Paragraph(verdict_sentence(comparison), indent=2, hanging=2) for comparison in view.verdicts]
        parts += _dim(resting_on(result, workload))
    return parts


def _dim(lines: Iterable[str]) -> list[Paragraph]:
    return [Paragraph(Text(line, style="dim"), indent=2, hanging=2) for line in lines]


def standing(result: Result, workload: Workload) -> Text:
    """Warn where the figures of a workload are not comparable."""
    said = worth(result, workload.name)
    return Text(f"  {said}" if said else "", style="not bold yellow")


def _saturation(result: Result, workload: Workload) -> Text:
    """Return the baseline's saturation, of which the offered loads are shares."""
    value = result.value(result.study.baseline, workload.name, "iops")
    if value is None:
        return Text("  the baseline's saturation is not measured yet", style="yellow")
    rounds = count_text(value.rounds, "round")
    done = value_text(BY_ID["iops"], value)
    text = f"  {result.study.baseline} is saturated at {done} a second ({rounds}, before the others)"
    return Text(text + ("" if value.spread is None else f", spread {share_text(value.spread)}"))


def _values(result: Result, view: WorkloadView, arms: Sequence[str]) -> Records:
    rows = _rows(view.rows, arms)
    summaries = [result.summary(arm, view.workload.name) for arm in arms]
    spreads = [None if summary is None else _spread(summary, result.study.metric) for summary in summaries]
    if any(spread is not None for spread in spreads):
        words = ("-" if spread is None else share_text(spread) for spread in spreads)
        label = f"sd of {judged_label(result)} over rounds"
        rows.append(tuple(Text(word, style="dim") for word in (label, *words)))
    return _table(TYPICAL if view.typical else "", arms, rows, above=False)


def _together(view: WorkloadView, arms: Sequence[str]) -> Records:
    return _table(TOGETHER, arms, _rows(view.together, arms))


def _rows(rows: Sequence[ViewRow], arms: Sequence[str]) -> list[tuple[Text | str, ...]]:
    return [(row.label, *(value_text(row.metric, cell.value) for cell in _cells(row, arms))) for row in rows]


def _differences(result: Result, view: WorkloadView, arms: Sequence[str]) -> Records:
    study = result.study
    judged = sorted((row for row in view.rows if row.judged), key=lambda row: study.judged.index(row.metric.id))
    rows: list[tuple[Text | str, ...]] = [
        (row.label, *(change_cell(cell.change) for cell in _cells(row, arms)))
        for row in (*judged, *(row for row in view.rows if not row.judged))
        if row.changes
    ]
    return _table(f"change from {study.baseline}", arms, rows)


def _cells(row: ViewRow, arms: Sequence[str]) -> Iterator[ViewCell]:
    return (cell for cell in row.cells if cell.arm in arms)


def _table(
    corner: str, arms: Sequence[str], rows: Sequence[tuple[Text | str, ...]], *, above: bool = True
) -> Records:
    columns = [Column(title=corner), *(Column(title=arm, right=True) for arm in arms)]
    return Records(columns, rows, above=above)


def _spread(summary: ArmSummary, metric: str) -> float | None:
    value = summary.get(metric)
    return None if value is None else value.spread
