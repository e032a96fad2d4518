# SPDX-License-Identifier: Apache-2.0
"""The pages of studies, searches, sweeps, checks, proofs, diagnoses, audits and fleets, as plain values: the template
lays them out and computes nothing.
"""

import math
import re
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import ClassVar

from rich.text import Text

from virtune.model.bottleneck import EMULATED_WORDS, Cause, Diagnosis
from virtune.model.evidence import Check, StudyRecord
from virtune.model.facts import Difference
from virtune.model.finding import Audited, Severity, Unread
from virtune.model.fleet import (
    FleetEffect,
    FleetHistory,
    FleetLevel,
    FleetReport,
    HostAudit,
    HostHistory,
    Unreached,
)
from virtune.model.live import Layers
from virtune.model.metric import BY_ID
from virtune.model.published import PublishedStudy
from virtune.model.result import Fitness, LoadSweep, Result
from virtune.model.study import Study
from virtune.model.text import format_share
from virtune.model.tuning import Recommendation, Tuning
from virtune.model.verdict import Comparison, Interval, ProofOutcome, Verdict
from virtune.report.charts import charts_of, labelled
from virtune.report.charts.audit import audit_map
from virtune.report.charts.chart import Chart
from virtune.report.charts.fleet import fleet_charts, history_charts, rule_map
from virtune.report.charts.forest import FOREST
from virtune.report.charts.loads import sweep_curve
from virtune.report.charts.stacked import times_of
from virtune.report.charts.tradeoff import pareto, race
from virtune.report.pages import brief, check, diagnose, fleet, sweep, tune
from virtune.report.pages import result as results
from virtune.report.pages.builtin import ending
from virtune.report.pages.evidence import note_lines, reading_notes, resting_on, warning_lines
from virtune.report.pages.study import arm_lines, host_line, host_text, host_words, settings_of, vm_cost_notes
from virtune.report.render.forest import axis_ends, axis_of
from virtune.report.render.terminal import Paragraph, SideBySide, Table
from virtune.report.reproduce import AGAIN, command_again, fleet_again, question_of, tune_again
from virtune.report.view import SIMULATED_ONLY, ResultView, view_of
from virtune.report.words import change_words, count_text, methods_text


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
    MARKS: ClassVar[Mapping[str, str]] = results.MARKS
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
        whole = (
            found.sentence
            if found.sentence[:1] in _VERDICTS
            else f"{self.MARKS.get(found.verdict, '')} {found.sentence}".strip()
        )
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
        found = Counter((one.verdict, one.said or one.verdict) for one in self.verdicts)
        told = (f"{found[key]} {key[1]}" for word in results.MARKS for key in sorted(found) if key[0] == word)
        return f"{len(self.verdicts)} verdicts: {', '.join(told)}"


def page_of(
    result: Result,
    record: StudyRecord,
    charts: Sequence[Chart] | None = None,
    published: PublishedStudy | None = None,
) -> ReportPage:
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
        finding=VerdictLine(brief.finding(result, view).plain),
        forests=tuple(_forests(result, view)),
        limits=tuple(map(str, (*brief.beside(result), *brief.limits(result)))),
        trust="; ".join(filter(None, (brief.trust(result), study.begun, host_words(study, record.facts)))),
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
    yield "trials", study.trials_text(result.trials_done, finished=result.finished)
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


_MARKS = {Recommendation.CHANGE: "better", Recommendation.KEEP: "same", Recommendation.UNDECIDED: "undecided"}
_SEVERITIES = tuple(reversed(Severity))
_FINDINGS_MAX = 2_000


def search_page(known: Tuning, record: StudyRecord) -> ReportPage:
    study, search = known.study, known.search
    first, *more = map(str, tune.answer_lines(known))
    sections = dict(tune.sections(known, record.facts))
    charts = (chart for chart in (race(known, record), pareto(known, record)) if chart is not None)
    metric = BY_ID[study.metric]
    raced = [
        (
            ForestRow(name=arm, verdict=_PLACED.get(state.partition(" (")[0], "undecided"), word=state, words=told),
            ratio,
        )
        for arm, state, told, ratio in tune.runner_rows(known)[: tune.ROWS_MAX]
    ]
    return ReportPage(
        title=f"{study.label} {study.id}",
        finding=VerdictLine(first, _MARKS[known.recommendation]),
        forests=(forest_of(f"{metric.label} against the leader", raced, study.margin),),
        limits=tuple(brief.of_slices(tune.warnings(known))),
        trust=f"{tune.trust(known)}; {host_words(study, record.facts)}",
        question=f"Which of {len(search.ranked)} configurations is best: {search.goal.words}?",
        facts=(
            ("study", study.id), ("begun", study.created), ("goal", search.goal.words), ("mode", search.mode),
            ("host", host_line(study, record.facts)), ("derived by", methods_text(record.methods)),
        ),
        label=SIMULATED_ONLY if study.simulated else "",
        verdicts=(VerdictLine(first, _MARKS[known.recommendation]), *map(VerdictLine, more)),
        unsettled="Each slice's settings were read back while it ran; one that differed would have ended the search.",
        warnings=tuple(("warning", text) for text in tune.warnings(known)),
        notes=(*vm_cost_notes(study), *reading_notes(study), *sections["cost"], *sections["not ranked"]),
        charts=tuple(labelled(study, charts)),
        tables=(
            Table(["configuration", metric.label, "against the leader", tune.STATE], tune.standing_rows(known),
                  caption=f"configurations, {metric.label}"),
        ),
        again=tune_again(study),
        host=host_text(record.facts),
    )  # fmt: skip


_PLACED = {"leads": "better", "out": "worse", "failed": "worse", "as good": "same", "no better": "same"}


def sweep_page(known: LoadSweep, result: Result, record: StudyRecord) -> ReportPage:
    chart = sweep_curve(known, result)
    charts = () if chart is None else tuple(labelled(known.study, [chart]))
    page = page_of(sweep.without_saturation(result), record, charts)
    columns, rows = sweep.curve(known, result)
    loads = Table(columns, rows, caption=f"loads; < less was done than offered; {sweep.TOGETHER_WORDS}")
    first, *more = sweep.answer_lines(known)
    worst = results.passed_line(known.rulings)
    passed = "" if worst is None else f"{worst.plain}; "
    return replace(
        page,
        finding=VerdictLine(f"{passed}{known.study.arms[0].name}, {known.study.workloads[0].name}: {first}"),
        question=f"How much load does {known.study.arms[0].name} carry?",
        verdicts=tuple(map(VerdictLine, (first, *more))),
        tables=(loads, *page.tables),
    )


def audit_page(audited: Sequence[Audited], unread: Sequence[Unread]) -> ReportPage:
    findings = [(one, finding) for one in audited for finding in one.findings]
    findings.sort(key=lambda pair: -pair[1].rule.severity.rank)
    counts = {one: sum(finding.rule.severity is one for _, finding in findings) for one in _SEVERITIES}
    chart = audit_map(audited)
    marks = {Severity.ERROR: "worse", Severity.WARNING: "undecided", Severity.TRY: "same"}
    table = Table(["VM", "place", "rule", "severity", "found", "advice"], caption="findings, the worst first")
    for one, finding in findings[:_FINDINGS_MAX]:
        rule, seen = finding.rule, finding.seen
        words = (f"{rule.id} {rule.name}", rule.severity.value, seen.seen, seen.advice)
        table.add_row(one.domain, finding.at or "-", *words)
    more = len(findings) - _FINDINGS_MAX
    return ReportPage(
        title=f"audit of {count_text(len(audited), 'VM')}",
        question="What in the configuration of these VMs' disks costs performance or risks data?",
        facts=(
            ("VMs", str(len(audited))), ("with findings", str(sum(bool(one.findings) for one in audited))),
            ("not audited", str(sum(bool(one.not_audited) for one in audited))),
            ("with rules that could not look", str(sum(bool(one.not_looked_at) for one in audited))),
        ),
        verdicts=tuple(VerdictLine(_counted(count, one), marks[one]) for one, count in counts.items()),
        unsettled="An audit reads configurations and measures nothing.",
        warnings=(
            *(("unread", f"{one.origin}: {one.because}") for one in unread),
            *(("not audited", f"{one.domain}: {one.not_audited}") for one in audited if one.not_audited),
        ),
        notes=(f"{count_text(more, 'more finding')}: `virtune audit --json` has all",) if more > 0 else (),
        charts=() if chart is None else (chart,),
        tables=(table,),
    )  # fmt: skip


def _counted(count: int, severity: Severity) -> str:
    words = {Severity.ERROR: "error", Severity.WARNING: "warning", Severity.TRY: "thing worth measuring"}
    if severity is Severity.TRY and count != 1:
        return f"{count:,} things worth measuring"
    return count_text(count, words[severity])


def check_page(fitness: Fitness, result: Result, record: StudyRecord) -> ReportPage:
    """Return the page of a check.

    Its two arms are the same, so it says FIT or NOT FIT where a comparison says which arm is better, and has no
    picture of a verdict.
    """
    page = page_of(result, record)
    rows = ((name.removeprefix("in "), text) for name, text in check.reach_rows(fitness))
    caption = "minimum detectable effect of a comparison of two arms"
    reaches = Table(["a comparison of", "detects differences from"], rows, caption=caption)
    noise = Table(["figure", "value"], check.noise_rows(fitness), caption="noise")
    advice = ((one.weight.value, f"{one.text} ({one.advice})" if one.advice else one.text) for one in fitness.advice)
    return replace(
        page,
        question="Is this host fit for measurements, and which difference can they show?",
        finding=(found := VerdictLine(check.sentence(fitness), "worse" if fitness.unfit else "better")),
        forests=(),
        verdicts=(found,),
        warnings=tuple(dict.fromkeys((*page.warnings, *advice))),
        notes=(check.confidence_text(fitness), *page.notes),
        charts=tuple(one for one in page.charts if not one.name.startswith(FOREST)),
        rests=(),
        tables=(*(one for one in (reaches, noise) if one.rows), *page.tables),
    )


_PROOF_MARKS = {ProofOutcome.CONFIRMED: "better", ProofOutcome.REFUTED: "worse"}


def proof_page(one: Diagnosis, result: Result, record: StudyRecord) -> ReportPage:
    page = page_of(result, record)
    if one.proof is None:
        return page
    first = VerdictLine(diagnose.proof_headline(one, one.proof), _PROOF_MARKS.get(one.proof.outcome, "undecided"))
    lines = (*one.found.evidence, *diagnose.proof_sentences(one.proof))
    return replace(
        page,
        finding=first,
        question=f"Is {one.found.cause.words} what limits {one.disk} under {one.workload}?",
        verdicts=(first, *map(VerdictLine, lines), *page.verdicts),
    )


_CAUSE_MARKS = {Cause.UNDECIDED: "undecided", Cause.NOT_BOUND: "same", Cause.IDLE: "same"}


def diagnosis_page(found: Sequence[Diagnosis]) -> ReportPage:
    disks = ", ".join(dict.fromkeys(one.disk for one in found))
    loads: dict[str, dict[str, Layers]] = {one.workload: {} for one in found}
    for one in found:  # disks under one load share a picture
        loads[one.workload] |= {} if one.layers is None else {one.disk: one.layers}
    charts = (times_of(layers, workload) for workload, layers in loads.items())
    return ReportPage(
        title=f"diagnosis of {count_text(len(found), 'disk')}: {disks}",
        question="What limits these disks under their load?",
        facts=tuple((one.disk, f"{one.workload}: {diagnose.rates_text(one)}") for one in found),
        verdicts=tuple(line for one in found for line in _lines(one)),
        unsettled="A diagnosis looks at a disk as it is, and verifies no settings.",
        warnings=tuple(warning for one in found for warning in _diagnosis_warnings(one)),
        notes=tuple(f"{one.disk}: {line}" for one in found for line in _notes(one)),
        charts=tuple(filter(None, charts)),
        tables=tuple(table for one in found for table in _diagnosis_tables(one)),
        again="\n".join(f"{diagnose.load_again(one)}  # {diagnose.load_known(one)}" for one in found if one.rate),
        unrepeated="A diagnosis changes nothing: look again with `virtune diagnose`.",
    )


def _lines(one: Diagnosis) -> Iterator[VerdictLine]:
    cause = one.found.cause
    rounds = f" (in {one.found.rounds} of {one.found.of} rounds)" if one.found.of > 1 else ""
    yield VerdictLine(f"{one.disk}: {one.found.claim}{rounds}", _CAUSE_MARKS.get(cause, "worse"))
    yield from map(VerdictLine, (*one.found.evidence, f"next: {one.found.experiment}"))


def _diagnosis_warnings(one: Diagnosis) -> Iterator[tuple[str, str]]:
    if one.path.emulated:
        yield "emulated", f"{one.disk}: {EMULATED_WORDS}"
    yield from (("not seen", f"{one.disk}: {line}") for line in one.missing)


def _notes(one: Diagnosis) -> Iterator[str]:
    if one.no_guideline:
        yield f"no tuning guideline here: {one.no_guideline}"
    yield from diagnose.varies(one)
    if one.worst is not None:
        yield diagnose.worst_text(one.worst)
    if one.exits_per_io is not None:
        yield diagnose.exits_text(one.exits_per_io)


def _diagnosis_tables(one: Diagnosis) -> Iterator[Table]:
    if any(each.mean_ns is not None for each in one.path.operations):
        yield diagnose.operations_table(one.path.operations, f"{one.disk}: its requests").filled()
    if one.layers is not None:
        yield diagnose.layers_table(one.layers, f"{one.disk}: where the time of a request goes").filled()
    if threads := diagnose.shown_threads(one.path.threads):
        yield diagnose.threads_table(threads, one.path, f"{one.disk}: threads, the busiest first").filled()
    if one.guideline is not None:
        leaf, guideline = one.guideline.leaf, one.guideline.guideline
        yield Table(
            ["question", "answer", "evidence"],
            (*diagnose.answers(one.guideline), ("so", leaf.text, "; ".join(diagnose.published_of(leaf)))),
            caption=f"{one.disk}: guideline: {guideline.title} ({guideline.source})",
        )


_TRAITS_FIRST = 2
"""So much of what odd hosts have is said with the verdict; the table has all."""


def fleet_audit_page(
    audits: Sequence[HostAudit], lost: Sequence[Unreached], differing: Sequence[Difference] = ()
) -> ReportPage:
    page = audit_page(*fleet.together(audits))
    picture = rule_map(audits)
    values = (
        (one.key, "; ".join(f"{each.value} on {fleet.names(each.hosts)}" for each in one.values)) for one in differing
    )
    facts = Table(["fact", "values"], values, caption="facts that differ between hosts")
    head, *rows = fleet.rules_over_hosts(audits, named=True)
    over = Table(head, rows, caption="rules over hosts")
    failed = tuple(("failed", f"{one.host.name}: {one.because}") for one in lost)
    return replace(
        page,
        title=f"audit of {count_text(len(audits), 'host')}",
        facts=(
            ("hosts", f"{len(audits)} of {len(audits) + len(lost)} answered"),
            ("facts that differ between hosts", str(len(differing))),
            *page.facts,
        ),
        warnings=(*failed, *page.warnings),
        charts=page.charts if picture is None else (picture, *page.charts),
        tables=(over, *((facts,) if differing else ()), *page.tables),
    )


def fleet_report_page(found: FleetReport) -> ReportPage:
    study = found.study
    return ReportPage(
        title=f"{study.label} on {count_text(len(found.hosts), 'host')}",
        question=question_of(study),
        facts=(
            ("hosts", str(len(found.hosts))), ("metric", BY_ID[study.metric].label), ("baseline", study.baseline),
            ("derived by", methods_text(found.methods)),
        ),
        label=SIMULATED_ONLY if study.simulated else "",
        verdicts=(*(_effect_line(one, study.baseline) for one in found.effects),
                  *(_level_line(one, study.metric) for one in found.levels)),
        unsettled="Each host read its own settings back while its study ran: `virtune show` of its study has them.",
        warnings=tuple(_fleet_warnings(found)),
        charts=tuple(labelled(study, fleet_charts(found))),
        tables=tuple(_fleet_tables(found)),
        again=fleet_again(study),
        host="Each host's facts are kept with its study; those that set odd hosts apart are in the tables.",
    )  # fmt: skip


def fleet_history_page(found: FleetHistory) -> ReportPage:
    study = found.study
    lines = [_history_line(one) for one in sorted(found.hosts, key=lambda one: not one.changes)]
    reference = (("reference", found.reference),) if found.reference else ()
    return ReportPage(
        title=f"{study.label} over time on {count_text(len({one.host for one in found.hosts}), 'host')}",
        question="Which host changed, when, and which recorded fact changed with it?",
        facts=(("metric", BY_ID[study.metric].label), ("baseline", study.baseline), *reference),
        label=SIMULATED_ONLY if study.simulated else "",
        verdicts=tuple(lines),
        unsettled="Each host read its own settings back while its studies ran: `virtune show` of a study has them.",
        warnings=(),
        charts=tuple(labelled(study, history_charts(found))),
        tables=(),
        again=fleet_again(study),
        host="Each host's facts are kept with its studies; those that changed with a level are named above.",
    )


def _history_line(one: HostHistory) -> VerdictLine:
    first, *more = fleet.host_history_lines(one)
    return VerdictLine(
        "; ".join([first, *(line.strip() for line in more)]),
        "same" if one.judged and not one.changes else "undecided",
    )


def _effect_line(effect: FleetEffect, baseline: str) -> VerdictLine:
    counts = Counter(one.verdict.value for one in effect.verdicts)
    word = counts.most_common(1)[0][0] if counts else ""
    return VerdictLine("; ".join(fleet.effect_lines(effect, baseline)), word)


def _level_line(level: FleetLevel, metric: str) -> VerdictLine:
    """Which hosts are odd and what they have; marked as worse where one of them is, and not where it is ahead."""
    ahead = 1 if BY_ID[metric].better == "higher" else -1
    odd = [one.distance * ahead for one in level.points if one.odd]
    word = ("worse" if min(odd) < 0 else "better") if odd else "undecided" if level.refused or level.group else "same"
    first, *more = fleet.level_lines(level)
    has = list(fleet.trait_lines(level))[:_TRAITS_FIRST]
    return VerdictLine(f"{first}: {'; '.join([*more, *has])}", word)


def _fleet_warnings(found: FleetReport) -> Iterator[tuple[str, str]]:
    if found.others:
        yield "warning", fleet.others_words(found.others)
    for level in found.levels:
        if level.refused is not None:
            yield "warning", f"{level.workload}: hosts are not compared: {level.refused}"
        if level.left_out:
            yield "warning", f"{level.workload}: too few rounds for a standard error on {fleet.names(level.left_out)}"


def _fleet_tables(found: FleetReport) -> Iterator[Table]:
    for level in found.levels:
        if level.traits:
            table = Table(
                ["fact", "value", "usual value", "odd hosts with it", "others with it"],
                caption=f"{level.workload}: what odd hosts have and others seldom have",
            )
            for one in level.traits:
                odd, others = f"{one.odd_with} of {one.odd}", f"{one.others_with} of {one.others}"
                table.add_row(one.key, one.value, one.usual, odd, others)
            yield table
    for effect in found.effects:
        caption = f"{effect.candidate} against {found.study.baseline} ({effect.workload}) on each host"
        table = Table(["host", "verdict", "difference", "low", "high", ""], caption=caption)
        for each in effect.verdicts:
            ends, said = ["", "", ""], "too few rounds"
            if each.ratio is not None:
                ends = [change_words(end) for end in (each.ratio.estimate, each.ratio.low, each.ratio.high)]
                said = fleet.odd_words(each.host, effect.points)
            table.add_row(each.host, each.verdict.value, *ends, said)
        yield table
    for level in found.levels:
        if level.ranks:
            head, *rows = fleet.rank_rows(level)
            yield Table(head, rows, caption=f"{level.workload}: ranks of {level.arm}")
