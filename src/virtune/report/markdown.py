# SPDX-License-Identifier: Apache-2.0
"""A result as GitHub's Markdown, short enough for a comment on a change: conditions, figures, verdicts, bewares.

Names and remarks come from files of strangers. All of their text is escaped, so that none of it becomes markup, a
link, a mention or HTML.
"""

import re
from collections.abc import Iterator, Sequence

from virtune.model.condition import Outcome, ThresholdResult
from virtune.model.metric import BY_ID, METRICS
from virtune.model.remark import Weight
from virtune.model.result import Result
from virtune.model.text import printable
from virtune.model.workload import Workload
from virtune.report.text import imported
from virtune.report.text.clients import loaded_by
from virtune.report.text.result import (
    FUNCTIONAL_ONLY,
    change_cell,
    functional_only,
    headline,
    reading_notes,
    value_text,
    verdict_sentence,
)
from virtune.report.text.thresholds import change_text

_SPECIAL = re.compile(r"([\\`*_{}\[\]()#|~!$^=])")
_BREAK = "\u200b"
"""A space without width: it parts what would be taken for a mention or an address."""


def markdown(result: Result, rulings: Sequence[ThresholdResult]) -> str:
    """Return the result as Markdown, ending in a newline."""
    return "\n".join([*_head(result), *_conditions(result, rulings), *_workloads(result), *_bewares(result)]) + "\n"


def plain(text: str) -> str:
    """Return text that Markdown shows as it is: one line, no markup, no HTML, no link, nobody mentioned."""
    shown = printable(text)
    shown = shown.replace("&", "&amp;").replace("<", "&lt;").replace(">", "&gt;")
    shown = _SPECIAL.sub(r"\\\1", shown)
    return re.sub(r"(?i)(@|://|\bwww(?=\.))", rf"\1{_BREAK}", shown)


def _head(result: Result) -> Iterator[str]:
    first, _, rest = headline(result).plain.partition("\n")
    yield f"### virtune: {plain(first)}\n"
    yield f"{plain(rest)}\n"


def _conditions(result: Result, rulings: Sequence[ThresholdResult]) -> Iterator[str]:
    if not rulings:
        return
    words = {Outcome.BREACHED: "**breached**", Outcome.HELD: "held", Outcome.UNDECIDED: "**undecided**"}
    rows = (
        (
            plain(ruling.condition.text),
            plain(ruling.comparison.workload),
            plain(f"{ruling.comparison.candidate} against {ruling.comparison.baseline}"),
            plain(change_text(ruling)) or "-",
            words[ruling.outcome],
            plain(f"{_worth(result, ruling.comparison.workload)}{ruling.why}"),
        )
        for ruling in rulings
    )
    yield from _table(("fails if", "workload", "arm", "change", "outcome", "why"), rows)


def _worth(result: Result, workload: str) -> str:
    return f"{FUNCTIONAL_ONLY}; " if functional_only(result, workload) else ""


def _workloads(result: Result) -> Iterator[str]:
    for workload in result.study.workloads:
        yield f"#### {plain(workload.name)}\n"
        yield f"{plain(workload.meaning)}\n"
        if functional_only(result, workload.name):
            yield f"**{FUNCTIONAL_ONLY}**\n"
        yield from _values(result, workload)
        for comparison in result.verdicts:
            if comparison.workload == workload.name:
                yield f"* {plain(verdict_sentence(comparison).plain)}"
        yield ""


def _values(result: Result, workload: Workload) -> Iterator[str]:
    """One row a metric: its value for each arm, and behind those of the others the change against the baseline."""
    study = result.study
    base = study.baseline
    names = [base, *(arm.name for arm in study.arms if arm.name != base)]
    changes = {(c.candidate, c.metric): c for c in result.differences if c.workload == workload.name}
    rows = []
    for metric in METRICS:
        summaries = [result.summary(name, workload.name) for name in names]
        values = [None if summary is None else summary.get(metric.id) for summary in summaries]
        if any(value is not None for value in values):
            cells = [plain(value_text(metric, value)) for value in values]
            told = [change_cell(changes.get((name, metric.id))).plain for name in names[1:]]
            both = (
                f"{cell} ({plain(one)})" if one != "-" else cell for cell, one in zip(cells[1:], told, strict=True)
            )
            rows.append((plain(BY_ID[metric.id].label), cells[0], *both))
    yield from _table(("", *(plain(name) for name in names)), rows)


def _bewares(result: Result) -> Iterator[str]:
    lines = []
    for weight in (Weight.INVALID, Weight.WARNING):
        for summary in result.arms:
            lines += [
                f"* {weight.value}: {plain(f'{summary.arm}, {summary.workload}: {one.remark.text}')}"
                f" ({one.rounds} of {summary.rounds} rounds)"
                for one in summary.remarks
                if one.remark.weight is weight
            ]
    for summary in result.arms:
        lines += [f"* failed: {plain(f'{summary.arm}, {summary.workload}: {why}')}" for why in summary.failures]
    if result.study.imported:
        lines += [f"* warning: {plain(text)}" for text in imported.warnings(result.study)]
    lines += [f"* note: {plain(text)}" for text in (*reading_notes(result.study), *loaded_by(result))]
    if lines:
        yield "#### To beware of\n"
        yield from lines


def _table(head: Sequence[str], rows: Iterator[Sequence[str]] | Sequence[Sequence[str]]) -> Iterator[str]:
    yield f"| {' | '.join(head)} |"
    yield f"|{'|'.join(' --- ' for _ in head)}|"
    for row in rows:
        yield f"| {' | '.join(row)} |"
    yield ""
