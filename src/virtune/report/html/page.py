# SPDX-License-Identifier: Apache-2.0
"""The content of a study's page, as plain values: the template lays them out and computes nothing."""

import json
from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace

from rich.console import RenderableType
from rich.text import Text

from virtune.model.evidence import Check, StudyRecord
from virtune.model.published import PublishedStudy
from virtune.model.result import Result
from virtune.model.study import Study
from virtune.model.units import format_bytes, format_seconds, format_share
from virtune.model.verdict import Comparison, Verdict
from virtune.report.charts import charts_of
from virtune.report.charts.chart import Chart
from virtune.report.pages.builtin import ending
from virtune.report.pages.evidence import note_lines, programs_of, resting_on, warning_lines
from virtune.report.pages.result import (
    TOGETHER,
    TYPICAL,
    change_text,
    changes_words,
    legend,
    marks_words,
    together_words,
    value_text,
    values_words,
)
from virtune.report.pages.result import verdict_sentence as sentence_of
from virtune.report.pages.study import arm_lines, first_read_lines, host_line, settings_of
from virtune.report.render.terminal import Paragraph, Records, Section, SideBySide
from virtune.report.reproduce import AGAIN, command_again, question_of
from virtune.report.view import ResultView, ViewRow, view_of
from virtune.report.words import methods_text


@dataclass(frozen=True, slots=True, kw_only=True)
class Table:
    """A table: a caption, the heads of its columns (the first names the rows), its rows as text, and below them what
    they show.
    """

    caption: str
    columns: tuple[str, ...]
    rows: tuple[tuple[str, ...], ...]
    notes: tuple[str, ...] = ()

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
class Block:
    """A piece of it: a heading, then a table, then lines; each may be absent."""

    heading: str = ""
    table: Table | None = None
    lines: tuple[str, ...] = ()


def study_part(result: Result, published: PublishedStudy | None = None, facts: str = "") -> tuple[Block, ...]:
    """Return the blocks of a built-in study; none for other studies."""
    return tuple(_blocks(ending(result, published, facts), f"study {result.study.builtin}"))


def _blocks(parts: Sequence[RenderableType], name: str) -> Iterator[Block]:
    """A text alone stands above what follows: a heading where it begins a line of its own, else a table's caption."""
    caption, block = name, Block()
    for part in parts:
        if isinstance(part, Text):
            if part.plain.startswith("\n"):
                if block != Block():
                    yield block
                block = Block(heading=part.plain.strip())
                caption = block.heading
            else:
                caption = part.plain
        elif isinstance(part, Paragraph):
            block = replace(block, lines=(*block.lines, part.text.plain))
        elif isinstance(part, Records | SideBySide):
            records = part if isinstance(part, Records) else part.table(part.arms)
            if block.table is not None or block.lines:
                yield block
                block = Block()
            block = replace(block, table=_table(records, caption))
    if block != Block():
        yield block


def _table(records: Records, caption: str) -> Table:
    rows = [[_plain(cell) for cell in row] for row in records.rows if not isinstance(row, Section)]
    filled = [place for place in range(len(records.columns)) if any(row[place] for row in rows)]
    return Table(
        caption=caption,
        columns=tuple(records.columns[place].title for place in filled),
        rows=tuple(tuple(row[place] for place in filled) for row in rows),
    )


def _plain(cell: Text | str) -> str:
    return cell.plain if isinstance(cell, Text) else cell


MARKS = {"better": "▲", "worse": "▼", "same": "■", "undecided": "○"}
"""The symbol of a verdict, so that it can be read without colour."""

_OWN_PICTURES = ("bars", "extents", "loads", "offered", "operations")
"""How the names of the pictures begin that the authors of the studies drew."""

_VERDICTS_MAX = 12
"""The most verdicts that are shown at once; of more the others are folded away."""

_WORST_LAST = (True, None, False)
"""The result of verifying a setting: verified, unverified, another value than requested."""


@dataclass(frozen=True, slots=True, kw_only=True)
class VerdictLine:
    """One verdict: its word, its mark and the whole sentence."""

    verdict: str
    mark: str
    sentence: str


@dataclass(frozen=True, slots=True, kw_only=True)
class ReportPage:
    """A whole page. `charts` are in the order of the page; `label` is shown where figures are not comparable,
    `unsettled` where there are no settings to show, `unrepeated` where no command repeats it. `own` is what
    a built-in study begins with, `rests` what the verdicts rest on, `settled` the
    settings of each arm in a row.
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
    again_words: str = AGAIN
    unrepeated: str = "Nothing was measured by virtune."
    host: str
    own: tuple[Block, ...] = ()
    rests: tuple[str, ...] = ()
    settled: Table | None = None

    @property
    def foremost(self) -> tuple[VerdictLine, ...]:
        """The verdicts that are shown at once: all, or of many those that are decided."""
        if len(self.verdicts) <= _VERDICTS_MAX:
            return self.verdicts
        return tuple(one for one in self.verdicts if one.verdict != Verdict.UNDECIDED)[:_VERDICTS_MAX]

    @property
    def foremost_pictures(self) -> tuple[str, ...]:
        """The names of the pictures that are shown at once: all, or those of a built-in study's own."""
        names = tuple(one.name for one in self.charts if not one.name.startswith("forest"))
        return (self.own and tuple(name for name in names if name.startswith(_OWN_PICTURES))) or names

    @property
    def further_pictures(self) -> tuple[str, ...]:
        """The names of those that are folded away."""
        shown = self.foremost_pictures
        return tuple(one.name for one in self.charts if not one.name.startswith("forest") and one.name not in shown)

    @property
    def counts(self) -> str:
        """How many verdicts there are of each kind."""
        found = Counter(one.verdict for one in self.verdicts)
        return f"{len(self.verdicts)} verdicts: {', '.join(f'{found[word]} {word}' for word in MARKS if found[word])}"


def page_of(
    result: Result,
    record: StudyRecord,
    charts: Sequence[Chart] | None = None,
    published: PublishedStudy | None = None,
) -> ReportPage:
    """Return the page of a comparison, a single stack, a check or an import; `published` are the figures of a
    built-in study's authors.
    """
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
        tables=tuple(_tables(view, study)),
        again=command_again(study),
        host=host_text(record.facts),
        own=study_part(result, published, record.facts),
        rests=tuple(_rests(result)),
        settled=Table(
            caption="Settings of each arm", columns=("arm", "", "read back"), rows=tuple(settings_of(result))
        ),
    )


def _rests(result: Result) -> Iterator[str]:
    """Yield what the verdicts rest on, with their workload where there are several."""
    several = len(result.study.compared) > 1
    for workload in result.study.compared if result.verdicts else ():
        yield from (f"{workload.name}: {line}" if several else line for line in resting_on(result, workload))


def _facts(result: Result, record: StudyRecord) -> Iterator[tuple[str, str]]:
    study = result.study
    yield "study", study.id
    yield "begun", study.created
    for line in arm_lines(study, record.facts):
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
        yield from (("read before", line) for line in first_read_lines(study))
    yield "host", host_line(study, record.facts, programs_of(result))
    yield "computed by", f"{methods_text(record.methods)} of virtune (docs/method.md)"
    if legend(result):
        together = ", for all verdicts together" if len(result.verdicts) > 1 else ""
        yield "[low, high]", f"{format_share(study.confidence)} confidence interval of the change{together}"


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


def _tables(view: ResultView, study: Study) -> Iterator[Table]:
    """Yield of each workload the values of all arms, and how each differs from the baseline."""
    for one in view.workloads:
        workload = one.workload
        yield Table(
            caption=f"{workload.name}: {workload.meaning}",
            columns=(TYPICAL if one.typical else "", *view.arms),
            rows=_values(one.rows),
            notes=(*values_words(one, study), *(() if one.together else marks_words(one.rows))),
        )
        if one.together:
            yield Table(
                caption=f"{workload.name}: latency percentiles of all I/Os",
                columns=(TOGETHER, *view.arms),
                rows=_values(one.together),
                notes=tuple(together_words(one)),
            )
        if any(row.changes for row in one.rows):
            yield Table(
                caption=f"{workload.name}: change from {study.baseline}",
                columns=("", *view.arms[1:]),
                rows=tuple(
                    (row.label, *(_change(cell.change) for cell in row.cells[1:])) for row in one.rows if row.changes
                ),
                notes=tuple(changes_words(one, study)),
            )


def _values(rows: Sequence[ViewRow]) -> tuple[tuple[str, ...], ...]:
    return tuple((row.label, *(value_text(row.metric, cell.value) for cell in row.cells)) for row in rows)


def _change(change: Comparison | None) -> str:
    words = "" if change is None else change_text(change)
    return words if change is None or change.ratio is None else f"{words} {change.verdict.value}"
