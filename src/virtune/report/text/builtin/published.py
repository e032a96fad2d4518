# SPDX-License-Identifier: Apache-2.0
"""Published figures of others: next to the result of a built-in study, and as a list to judge a result by."""

from collections.abc import Iterator, Sequence

from rich.console import RenderableType
from rich.text import Text

from virtune.model.metric import BY_ID
from virtune.model.published import AuthorsValue, PublishedFigure, PublishedStudy, ServiceLevel
from virtune.model.remark_kinds import EMULATED, SIMULATED
from virtune.model.result import Result
from virtune.model.study import Study
from virtune.model.workload import Workload
from virtune.report.text.layout import Column, Paragraph, Records
from virtune.report.text.study.clients import programs_of
from virtune.report.text.study.header import host_line
from virtune.report.text.study.result import value_text
from virtune.report.text.words import quantity


def beside(result: Result, published: PublishedStudy, facts: str = "") -> list[RenderableType]:
    """Lay out the authors' figures next to this host's, and the differences in set-up; `facts` are the host's."""
    arms = {"", *(arm.name for arm in result.study.arms)}
    figures = (one for one in published.figures if {one.arm, one.of} <= arms)
    rows = [(one, at) for one in figures for at in _workloads(result, one) if _still(result.study, one, at)]
    lines = [
        f"published: {published.source}; {published.machine}",
        f"here: {host_line(result.study, facts, programs_of(result))}",
        *(f"differs: {one}" for one in published.differs),
        *_not_comparable(result),
    ]
    parts: list[RenderableType] = [Text("\nwhat the authors printed, and this host", style="bold")]
    if rows:
        titles = ("arm", "workload", "metric", "published", "here", "here / published")
        table = Records([Column(title=title, right=index > 2) for index, title in enumerate(titles)])
        for one, workload in rows:
            table.add_row(*_row(result, one, workload))
        parts.append(table)
    return [*parts, *(Paragraph(Text(line, style="dim"), indent=2, hanging=2) for line in lines)]


def listing(studies: Sequence[tuple[str, str, Sequence[str], Sequence[str]]]) -> RenderableType:
    """Lay out a line for each study: its name, its question, its arms and its rigs."""
    wrapped = (Column(title=title, wraps=True, least=16) for title in ("question", "compares", "rigs"))
    rows = [(name, title, ", ".join(compared), ", ".join(rigs)) for name, title, compared, rigs in studies]
    return Records([Column(title="built-in study"), *wrapped], rows)


def figures_list(figures: Sequence[PublishedFigure]) -> RenderableType:
    """Lay out published comparisons, each with its conditions and its source."""
    titles = ("no.", "compares", "result", "conditions", "source")
    table = Records([Column(title=title, wraps=index > 0, least=14) for index, title in enumerate(titles)])
    for one in figures:
        source = one.source if one.seen == "read" else f"{one.source} (as quoted elsewhere)"
        table.add_row(str(one.number), one.compares, one.result, one.conditions, source)
    return table


def levels_list(levels: Sequence[ServiceLevel]) -> RenderableType:
    """Lay out the service levels that `--fail-if` knows by name."""
    titles = ("--fail-if", "stands for", "shown by --workload", "about", "source")
    table = Records([Column(title=title, wraps=index > 2, least=14) for index, title in enumerate(titles)])
    for one in levels:
        table.add_row(one.name, ", ".join(one.conditions), one.workload, one.about, one.source)
    return table


def _workloads(result: Result, one: AuthorsValue) -> tuple[Workload, ...]:
    """Return the workload of the study that a value is of, if any: the first whose name begins as it says.

    The authors' IOPS are what was carried at most, so of several offered loads it is the greatest; their latencies
    are those of a closed loop, which no offered load is.
    """
    found = [workload for workload in result.study.compared if workload.name.startswith(one.workload)]
    offered = [workload for workload in found if workload.offered_iops]
    if not offered:
        return tuple(found[:1])
    return (max(offered, key=lambda workload: workload.offered_iops or 0),) if one.metric == "iops" else ()


def _still(study: Study, one: AuthorsValue, workload: Workload) -> bool:
    """Whether what a value is of is as in the built-in study."""
    return study.keeps(one.arm or study.baseline, workload) and (not one.of or study.keeps(one.of))


def _row(result: Result, one: AuthorsValue, workload: Workload) -> tuple[str, ...]:
    metric = BY_ID[one.metric]
    arm = one.arm or result.study.baseline
    value = result.value_of_a_round(arm, workload.name, one.metric)
    label = metric.label
    if one.of:
        label = f"{label} by {one.of}"
        other = result.value_of_a_round(one.of, workload.name, one.metric)
        here = None if value is None or other is None or not other.value else value.value / other.value
        said = "-" if here is None else f"{here:.2f} x"
        ratio = "-" if here is None else f"{here / one.value:.2f} x"
        return arm, workload.name, label, f"{one.value:.2f} x", said, ratio
    ratio = "-" if value is None or metric.unit == "%" else f"{value.value / one.value:.2f} x"
    return arm, workload.name, label, quantity(metric, one.value), value_text(metric, value), ratio


def _not_comparable(result: Result) -> Iterator[str]:
    """Warn where this host's figures do not describe a disk."""
    said = {one.remark.id for arm in result.arms for one in arm.remarks}
    if EMULATED.id in said:
        yield "the guests here ran under software emulation, so their figures are not comparable with these"
    if SIMULATED.id in said:
        yield "the figures here are invented (rig=simulated)"
