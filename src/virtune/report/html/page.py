# SPDX-License-Identifier: Apache-2.0
"""The content of a study's page, as plain values: the template lays them out and computes nothing."""

import math
import re
from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field, replace
from typing import ClassVar

from rich.text import Text

from virtune.model.evidence import Check, StudyRecord
from virtune.model.published import PublishedStudy
from virtune.model.result import Result
from virtune.model.study import Study
from virtune.model.text import format_share
from virtune.model.verdict import Comparison, Interval, Verdict
from virtune.report.charts import charts_of
from virtune.report.charts.chart import Chart
from virtune.report.pages import result as results
from virtune.report.pages.brief import finding, limits, trust
from virtune.report.pages.builtin import ending
from virtune.report.pages.evidence import note_lines, resting_on, warning_lines
from virtune.report.pages.study import arm_lines, host_text, host_words, settings_of
from virtune.report.render.forest import axis_ends, axis_of
from virtune.report.render.terminal import Paragraph, SideBySide, Table
from virtune.report.reproduce import AGAIN, command_again, question_of
from virtune.report.view import ResultView, view_of
from virtune.report.words import methods_text


@dataclass(slots=True, kw_only=True)
class Block:
    """A piece of a built-in study's part: a heading, then a table, then lines; each may be absent."""

    heading: str = ""
    table: Table | None = None
    lines: list[str] = field(default_factory=list)


def study_part(result: Result, published: PublishedStudy | None = None, facts: str = "") -> tuple[Block, ...]:
    """Return what a page has of a built-in study: its own table and words, as in the terminal, and its authors'
    figures; nothing for other studies.

    A text alone stands above what follows: a heading where it begins a line of its own, else a table's caption.
    """
    caption, blocks = "", list[Block]()
    for part in ending(result, published, facts):
        if isinstance(part, Text):
            caption = part.plain.strip()
            blocks += [Block(heading=caption)] if part.plain.startswith("\n") else []
        elif isinstance(part, Paragraph):
            blocks[-1].lines.append(part.text.plain)
        elif isinstance(part, Table | SideBySide):
            table = (part if isinstance(part, Table) else part.table(part.arms)).filled()
            table.caption = caption
            blocks += [Block()] if blocks[-1].table is not None or blocks[-1].lines else []
            blocks[-1].table = table
    return tuple(blocks)


_OWN_PICTURES = ("bars", "extents", "loads", "offered", "operations")
"""How the names of the pictures begin that the authors of the studies drew."""

_VERDICTS = {mark: verdict for verdict, mark in results.MARKS.items()}

_VERDICTS_MAX = 12
"""The most verdicts that are shown at once; of more the others are folded away."""

_WORST_LAST = (True, None, False)
"""The result of verifying a setting: verified, unverified, another value than requested."""


@dataclass(frozen=True, slots=True)
class VerdictLine:
    """One verdict: the whole sentence and its word, empty for a line below another; `said` is the word as it is said
    to people, where that is another.
    """

    sentence: str
    verdict: str = ""
    said: str = ""

    @property
    def mark(self) -> str:
        """The symbol of its word."""
        return results.MARKS.get(self.verdict, "")


@dataclass(frozen=True, slots=True, kw_only=True)
class ForestRow:
    """A row of a forest plot that a page draws itself, so that its words keep their size on a narrow screen: the
    places of estimate and interval are shares of the axis in percent, None where there is no interval.
    """

    name: str
    verdict: str
    words: str
    word: str = ""
    places: tuple[float, float, float] | None = None
    beyond: tuple[bool, bool] = (False, False)

    @property
    def mark(self) -> str:
        """The symbol of its verdict."""
        return results.MARKS.get(self.verdict, "")


@dataclass(frozen=True, slots=True, kw_only=True)
class Forest:
    """What is drawn of one workload and metric, the labels of its axis, and the band of differences that are too
    small to matter, in percent of the axis.
    """

    title: str
    rows: tuple[ForestRow, ...]
    ends: tuple[str, str] = ("", "")
    band: tuple[float, float] = (50.0, 50.0)


def forest_of(title: str, rows: Sequence[tuple[ForestRow, Interval | None]], margin: float) -> Forest:
    """Return a forest plot of these ratios on one axis."""
    reach = axis_of(ratio for _, ratio in rows if ratio is not None)
    scale = math.log1p(reach)

    def place(ratio: float) -> float:
        return 50 + 50 * max(-1.0, min(1.0, math.log(max(ratio, 1e-9)) / scale))

    drawn = [
        one if ratio is None else replace(
            one, places=(place(ratio.low), place(ratio.estimate), place(ratio.high)),
            beyond=(ratio.low < 1 / (1 + reach), ratio.high > 1 + reach),
        )
        for one, ratio in rows
    ]  # fmt: skip
    return Forest(
        title=title, rows=tuple(drawn), ends=axis_ends(reach) if any(ratio for _, ratio in rows) else ("", ""),
        band=(place(1 / (1 + margin)), place(1 + margin)),
    )  # fmt: skip


def _forests(result: Result, view: ResultView) -> Iterator[Forest]:
    """Yield a forest plot of each workload and metric that verdicts are about."""
    study, baseline = result.study, result.study.baseline
    for one in view.workloads:
        for metric in dict.fromkeys(verdict.metric for verdict in one.verdicts):
            found = [verdict for verdict in one.verdicts if verdict.metric == metric]
            rows = [
                (
                    ForestRow(
                        name=each.candidate + ("" if each.baseline == baseline else f" against {each.baseline}"),
                        verdict=each.verdict.value, word=each.said, words=results.change_text(each),
                    ),
                    each.ratio if results.has_interval(each) else None,
                )
                for each in found
            ]  # fmt: skip
            measured = found[0].measured
            title = f"{one.workload.name}: {measured.label} against {baseline}, {measured.better} is better"
            yield forest_of(title, rows, study.margin)


@dataclass(frozen=True, slots=True, kw_only=True)
class ReportPage:
    """A whole page. `charts` are in the order of the page; `label` is shown where figures are not comparable,
    `unsettled` where there are no settings to show, `unrepeated` where no command repeats it. `own` is what
    a built-in study begins with, `rests` what the verdicts rest on, `settled` the
    settings of each arm in a row. `finding` is the headline, where it is not the title; `forests` stand below it,
    then `limits`, what limits it, `arms`, what was measured, and `trust`, on what it rests in a line.
    """

    title: str
    question: str
    finding: VerdictLine | None = None
    forests: tuple[Forest, ...] = ()
    limits: tuple[str, ...] = ()
    trust: str = ""
    arms: str = ""
    FORESTS: ClassVar[int] = 2
    facts: tuple[tuple[str, str], ...]
    label: str = ""
    verdicts: tuple[VerdictLine, ...]
    settings: Table | None = None
    unsettled: str = "These results were made elsewhere: nothing was verified."
    warnings: tuple[tuple[str, str], ...]
    notes: tuple[str, ...] = ()
    charts: tuple[Chart, ...]
    tables: tuple[Table, ...]
    again: str = ""
    again_words: str = AGAIN
    unrepeated: str = "Nothing was measured by virtune."
    host: str = "not part of this page"
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
    def headline(self) -> tuple[tuple[str, str], ...]:
        """The finding in pieces, each with the verdict whose mark it begins with."""
        found = self.finding or VerdictLine(self.title)
        whole = found.sentence if found.sentence[:1] in _VERDICTS else f"{found.mark} {found.sentence}".strip()
        pieces = re.split(f"(?=[{''.join(_VERDICTS)}] )", whole)
        return tuple((_VERDICTS.get(piece[:1], ""), piece) for piece in pieces if piece)

    @property
    def pictures(self) -> tuple[Chart, ...]:
        """The pictures that are drawn: a forest plot is not where the page has one already."""
        return tuple(one for one in self.charts if not self.forests or not one.name.startswith("forest"))

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
        found = Counter((one.verdict, one.said or one.verdict) for one in self.verdicts)
        told = (f"{found[key]} {key[1]}" for word in results.MARKS for key in sorted(found) if key[0] == word)
        return f"{len(self.verdicts)} verdicts: {', '.join(told)}"


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
    several = len(study.compared) > 1
    named = [(f"{one.name}: " if several else "", one) for one in study.compared] if result.verdicts else []
    verdicts = (
        (one, f"{one.workload}: {said}")
        for each in view.workloads
        for one, said in zip(each.verdicts, results.verdict_sentences(each.verdicts), strict=True)
    )
    return ReportPage(
        title=f"{study.label} {study.id}",
        finding=VerdictLine(finding(result, view).plain),
        forests=tuple(_forests(result, view)),
        limits=tuple(map(str, limits(result))),
        trust="; ".join(filter(None, (trust(result), study.begun, host_words(study, record.facts)))),
        arms="; ".join(arm_lines(study, record.facts)),
        question=question_of(study),
        facts=tuple(_facts(result, record)),
        label=next((one.worth for one in view.workloads if one.worth), ""),
        verdicts=tuple(VerdictLine(sentence, one.verdict.value, one.said) for one, sentence in verdicts),
        settings=_settings(result),
        warnings=tuple(warning_lines(result)),
        notes=tuple(note_lines(result)),
        charts=tuple(charts_of(result, record) if charts is None else charts),
        tables=tuple(_tables(view, study)),
        again=command_again(study),
        host=host_text(record.facts),
        own=study_part(result, published, record.facts),
        rests=tuple(f"{name}{line}" for name, one in named for line in resting_on(result, one)),
        settled=Table(["arm", "", "read back"], settings_of(result), caption="Settings of each arm"),
    )


def _facts(result: Result, record: StudyRecord) -> Iterator[tuple[str, str]]:
    study = result.study
    yield "study", study.id
    yield "begun", study.created
    for line in arm_lines(study, record.facts):
        what, _, words = line.partition(" ")
        yield what, words
    yield "trials", f"{result.trials_done} of {len(study.trials)}"
    *measured, host = results.about(result, record.facts)
    yield from (("measured", line) for line in measured)
    yield "host", host
    yield "computed by", f"{methods_text(record.methods)} of virtune (docs/method.md)"
    if results.legend(result):
        together = ", for all verdicts together" if len(result.verdicts) > 1 else ""
        yield "[low, high]", f"{format_share(study.confidence)} confidence interval of the change{together}"


def _settings(result: Result) -> Table | None:
    columns = ["arm", "requested", "found", "", "how it was seen"]
    table = Table(columns, caption="Settings as read back from what ran")
    words = {True: "verified", False: "DIFFERS", None: "unverified"}
    for arm in result.study.arms:
        seen: dict[tuple[str, str], Check] = {}
        every = (one for summary in result.arms if summary.arm == arm.name for one in summary.in_force)
        # a setting's result is the worst over all workloads and guests; of two equal ones the later, made under load
        for one in sorted(every, key=lambda check: _WORST_LAST.index(check.agrees)):
            seen[one.setting, one.asked] = one
        for one in seen.values():
            found = "not seen" if one.found is None else one.found
            table.add_row(arm.name, f"{one.setting}={one.asked}", found, words[one.agrees], one.proof)
    return table if table.rows else None


def _tables(view: ResultView, study: Study) -> Iterator[Table]:
    """Yield of each workload the values of all arms, and how each differs from the baseline."""
    for one in view.workloads:
        name, marks = one.workload.name, tuple(results.marks_words(one, study))
        notes = (*results.values_words(one, study), *(() if one.together else marks))
        head, caption = results.TYPICAL if one.typical else "", f"{name}: {one.workload.meaning}"
        yield results.values_table(head, one.rows, view.arms, caption=caption, notes=notes)
        if one.together:
            caption = f"{name}: latency percentiles of all I/Os"
            yield results.values_table(results.TOGETHER, one.together, view.arms, caption=caption, notes=marks)
        if any(row.changes for row in one.rows):
            caption = f"{name}: change from {study.baseline}"
            changes = Table(["", *view.arms[1:]], caption=caption, notes=results.changes_words(one, study))
            for row in one.rows:
                if row.changes:
                    changes.add_row(row.label, *(_change(cell.change) for cell in row.cells[1:]))
            yield changes


def _change(change: Comparison | None) -> str:
    words = "" if change is None else results.change_text(change)
    return words if change is None or change.ratio is None else f"{words} {change.said}"
