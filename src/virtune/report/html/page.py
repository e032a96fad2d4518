# SPDX-License-Identifier: Apache-2.0
"""The content of a study's page, as plain values: the template lays them out and computes nothing."""

import json
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from virtune.model.evidence import Check, StudyRecord
from virtune.model.result import Result
from virtune.model.units import format_bytes, format_seconds, format_share
from virtune.model.verdict import Comparison
from virtune.report.charts import charts_of
from virtune.report.charts.chart import Chart
from virtune.report.reproduce import command_again, question_of
from virtune.report.text.study.answer import change_text, legend
from virtune.report.text.study.arms import arm_lines
from virtune.report.text.study.header import host_line
from virtune.report.text.study.notes import note_lines, warning_lines
from virtune.report.text.study.result import value_text
from virtune.report.text.study.result import verdict_sentence as sentence_of
from virtune.report.text.words import methods_text
from virtune.report.view import ResultView, view_of

MARKS = {"better": "▲", "worse": "▼", "same": "■", "undecided": "○"}
"""The symbol of a verdict, so that it can be read without colour."""

_WORST_LAST = (True, None, False)
"""The result of verifying a setting: verified, unverified, another value than requested."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Table:
    """A table: a caption, the heads of its columns (the first names the rows), and its rows as text."""

    caption: str
    columns: tuple[str, ...]
    rows: tuple[tuple[str, ...], ...]

    @property
    def kinds(self) -> tuple[str, ...]:
        """How each column is set: figures, words that need room, or short texts that stay on a line; else empty."""
        return tuple(_kind([row[place] for row in self.rows]) for place in range(len(self.columns)))


_SHORT, _LONG = 32, 40
"""Characters of a text that stays on its line, and of one whose column needs room."""


def _kind(cells: Sequence[str]) -> str:
    longest = max(map(len, cells), default=0)
    if longest > _LONG:
        return "words"
    if all(cell[:1] in "0123456789+-~>" for cell in cells):  # an empty one too
        return "number"
    return "short" if longest <= _SHORT else ""


@dataclass(frozen=True, slots=True, kw_only=True)
class VerdictLine:
    """One verdict: its word, its mark and the whole sentence."""

    verdict: str
    mark: str
    sentence: str


@dataclass(frozen=True, slots=True, kw_only=True)
class ReportPage:
    """A whole page. `charts` are in the order of the page; `label` is shown where figures are not comparable,
    `unsettled` where there are no settings to show, `unrepeated` where no command repeats it.
    """

    title: str
    question: str
    facts: tuple[tuple[str, str], ...]
    label: str
    verdicts: tuple[VerdictLine, ...]
    settings: Table | None
    unsettled: str = "These results were made elsewhere: nothing was verified."
    warnings: tuple[tuple[str, str], ...]
    notes: tuple[str, ...]
    charts: tuple[Chart, ...]
    tables: tuple[Table, ...]
    again: str
    unrepeated: str = "Nothing was measured by virtune."
    host: str


def page_of(result: Result, record: StudyRecord, charts: Sequence[Chart] | None = None) -> ReportPage:
    """Return the page of a comparison, a single stack, a check or an import."""
    study = result.study
    view = view_of(result)
    limits = [one.worth for one in view.workloads if one.worth]
    return ReportPage(
        title=f"{study.label} {study.id}",
        question=question_of(study),
        facts=tuple(_facts(result, record)),
        label=limits[0] if limits else "",
        verdicts=tuple(_verdict(one) for workload in view.workloads for one in workload.verdicts),
        settings=_settings(result),
        warnings=tuple(warning_lines(result)),
        notes=tuple(note_lines(result)),
        charts=tuple(charts_of(result, record) if charts is None else charts),
        tables=tuple(_tables(view, study.baseline)),
        again=command_again(study),
        host=host_text(record.facts),
    )


def _facts(result: Result, record: StudyRecord) -> Iterator[tuple[str, str]]:
    study = result.study
    yield "study", study.id
    yield "begun", study.created
    for line in arm_lines(study):
        what, _, words = line.partition(" ")
        yield what, words
    yield "trials", f"{result.trials_done} of {len(study.trials)}"
    if not study.imported:
        yield (
            "each trial",
            (
                f"one arm under one workload for {format_seconds(study.seconds)}, after"
                f" {format_seconds(study.ramp_seconds)} of warm-up"
            ),
        )
        yield "load on", study.target or f"a scratch image of {format_bytes(study.span_bytes)} in {study.scratch}"
    yield "host", host_line(study, record.facts)
    yield "derived by", f"virtune's {methods_text(record.methods)}"
    if legend(result):
        together = ", for all verdicts together" if len(result.verdicts) > 1 else ""
        yield "[low, high]", f"{format_share(study.confidence)} confidence interval of the difference{together}"


def host_text(facts: str) -> str:
    """Return the facts of a host as indented JSON."""
    try:
        return json.dumps(json.loads(facts), indent=1)
    except ValueError:
        return "not recorded"


def _verdict(one: Comparison) -> VerdictLine:
    word = one.verdict.value
    return VerdictLine(verdict=word, mark=MARKS[word], sentence=f"{one.workload}: {sentence_of(one).plain}")


def _settings(result: Result) -> Table | None:
    rows = []
    for arm in result.study.arms:
        seen: dict[tuple[str, str], Check] = {}
        every = (one for summary in result.arms if summary.arm == arm.name for one in summary.in_force)
        # a setting's result is the worst over all workloads and guests; of two equal ones the later, made under load
        for one in sorted(every, key=lambda check: _WORST_LAST.index(check.agrees)):
            seen[one.setting, one.asked] = one
        rows += [
            (arm.name, f"{one.setting}={one.asked}", "not seen" if one.found is None else one.found,
             {True: "verified", False: "DIFFERS", None: "unverified"}[one.agrees], one.proof)
            for one in seen.values()
        ]  # fmt: skip
    if not rows:
        return None
    return Table(
        caption="Settings as read back from what ran",
        columns=("arm", "requested", "found", "", "how it was seen"),
        rows=tuple(rows),
    )


def _tables(view: ResultView, baseline: str) -> Iterator[Table]:
    """Yield of each workload the values of all arms, and how each differs from the baseline."""
    for one in view.workloads:
        workload = one.workload
        yield Table(
            caption=f"{workload.name}: {workload.meaning}",
            columns=("", *view.arms),
            rows=tuple((row.label, *(value_text(row.metric, cell.value) for cell in row.cells)) for row in one.rows),
        )
        if any(row.changes for row in one.rows):
            yield Table(
                caption=f"{workload.name}: difference from {baseline}; the intervals of verdicts hold together, those"
                " of all other metrics each by itself",
                columns=("", *view.arms[1:]),
                rows=tuple(
                    (row.label, *(_change(cell.change) for cell in row.cells[1:])) for row in one.rows if row.changes
                ),
            )


def _change(change: Comparison | None) -> str:
    words = "" if change is None else change_text(change)
    return words if change is None or change.ratio is None else f"{words} {change.verdict.value}"
