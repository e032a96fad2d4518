# SPDX-License-Identifier: Apache-2.0
"""The pages of a search, a sweep of loads, and an audit of many VMs: the same parts as the page of a comparison."""

from collections.abc import Sequence
from dataclasses import replace

from virtune.model.evidence import StudyRecord
from virtune.model.finding import Audited, Finding, Severity, Unread
from virtune.model.metric import BY_ID
from virtune.model.result import Result
from virtune.model.sweep import LoadSweep
from virtune.model.tuning import Recommendation, Tuning
from virtune.report.charts import labelled
from virtune.report.charts.audit_map import audit_map
from virtune.report.charts.chart import Chart
from virtune.report.charts.loads import sweep_curve
from virtune.report.charts.race import pareto, race
from virtune.report.html.page import MARKS, ReportPage, VerdictLine, host_text, page_of
from virtune.report.html.table import Table
from virtune.report.reproduce import tune_again
from virtune.report.text.search import sweep as sweep_text
from virtune.report.text.search import tune as tune_text
from virtune.report.text.search.tune_arms import STATE, standing_rows
from virtune.report.text.study.arms import vm_cost_notes
from virtune.report.text.study.header import host_line
from virtune.report.text.study.notes import reading_notes
from virtune.report.text.words import count_text, methods_text
from virtune.report.view import SIMULATED_ONLY

_MARKS = {Recommendation.CHANGE: "better", Recommendation.KEEP: "same", Recommendation.UNDECIDED: "undecided"}
_SEVERITIES = tuple(reversed(Severity))
_FINDINGS_MAX = 2_000


def search_charts(known: Tuning, record: StudyRecord) -> tuple[Chart, ...]:
    """Return the pictures of a search."""
    made = (chart for chart in (race(known, record), pareto(known, record)) if chart is not None)
    return tuple(labelled(known.study, made))


def search_page(known: Tuning, record: StudyRecord) -> ReportPage:
    """Return the page of a search: what it found, its race, speed against cost, every configuration."""
    study, search = known.study, known.study.search
    assert search is not None  # noqa: S101 - a Tuning is of a search
    word = _MARKS[known.recommendation]
    lines = [line.plain for line in tune_text.answer_lines(known)]
    sections = dict(tune_text.sections(known, record.facts))
    metric = BY_ID[study.metric]
    return ReportPage(
        title=f"{study.label} {study.id}",
        question=f"Which of {len(search.ranked)} configurations is best: {search.goal.words}?",
        facts=(
            ("study", study.id), ("begun", study.created), ("goal", search.goal.words), ("mode", search.mode),
            ("host", host_line(study, record.facts)), ("derived by", methods_text(record.methods)),
        ),
        label=SIMULATED_ONLY if study.simulated else "",
        verdicts=tuple(
            VerdictLine(verdict="" if below else word, mark="" if below else MARKS[word], sentence=line)
            for below, line in enumerate(lines)
        ),
        settings=None,
        unsettled="Each slice's settings were read back while it ran; one that differed would have ended the search.",
        warnings=tuple(("warning", text) for text in tune_text.warnings(known)),
        notes=(*vm_cost_notes(study), *reading_notes(study), *sections["cost"], *sections["not ranked"]),
        charts=search_charts(known, record),
        tables=(
            Table(caption=f"configurations, {metric.label}",
                  columns=("configuration", metric.label, "against the leader", STATE),
                  rows=tuple(standing_rows(known))),
        ),
        again=tune_again(study),
        host=host_text(record.facts),
    )  # fmt: skip


def sweep_page(known: LoadSweep, result: Result, record: StudyRecord) -> ReportPage:
    """Return the page of a sweep: saturation, knee and limit, and the curve with them."""
    chart = sweep_curve(known, result)
    lines = (VerdictLine(verdict="", mark="", sentence=line) for line in sweep_text.answer_lines(known))
    charts = () if chart is None else tuple(labelled(known.study, [chart]))
    page = page_of(sweep_text.without_saturation(result), record, charts)
    columns, rows = sweep_text.curve(known, result)
    loads = Table(caption="loads; < less was done than offered", columns=columns, rows=tuple(rows))
    return replace(
        page,
        question=f"How much load does {known.study.arms[0].name} carry?",
        verdicts=tuple(lines),
        tables=(loads, *page.tables),
    )


def audit_page(audited: Sequence[Audited], unread: Sequence[Unread]) -> ReportPage:
    """Return the page of an audit: findings by severity, VMs by rules, and every finding with its advice."""
    findings = [(one, finding) for one in audited for finding in one.findings]
    findings.sort(key=lambda pair: -pair[1].rule.severity.rank)
    counts = {one: sum(finding.rule.severity is one for _, finding in findings) for one in _SEVERITIES}
    chart = audit_map(audited)
    marks = {Severity.ERROR: "worse", Severity.WARNING: "undecided", Severity.TRY: "same"}
    told = findings[:_FINDINGS_MAX]
    more = len(findings) - len(told)
    return ReportPage(
        title=f"audit of {count_text(len(audited), 'VM')}",
        question="What in the configuration of these VMs' disks costs performance or risks data?",
        facts=(
            ("VMs", str(len(audited))), ("with findings", str(sum(bool(one.findings) for one in audited))),
            ("not audited", str(sum(bool(one.not_audited) for one in audited))),
            ("with rules that could not look", str(sum(bool(one.not_looked_at) for one in audited))),
        ),
        label="",
        verdicts=tuple(
            VerdictLine(verdict=marks[one], mark=MARKS[marks[one]], sentence=_counted(count, one))
            for one, count in counts.items()
        ),
        settings=None,
        unsettled="An audit reads configurations and measures nothing.",
        warnings=(
            *(("unread", f"{one.origin}: {one.because}") for one in unread),
            *(("not audited", f"{one.domain}: {one.not_audited}") for one in audited if one.not_audited),
        ),
        notes=(f"{count_text(more, 'more finding')}: `virtune audit --json` has all",) if more > 0 else (),
        charts=() if chart is None else (chart,),
        tables=(
            Table(caption="findings, the worst first", columns=("VM", "place", "rule", "severity", "found", "advice"),
                  rows=tuple(_row(one, finding) for one, finding in told)),
        ),
        again="",
        host="not part of this page",
    )  # fmt: skip


def _counted(count: int, severity: Severity) -> str:
    words = {Severity.ERROR: "error", Severity.WARNING: "warning", Severity.TRY: "thing worth measuring"}
    if severity is Severity.TRY and count != 1:
        return f"{count:,} things worth measuring"
    return count_text(count, words[severity])


def _row(one: Audited, finding: Finding) -> tuple[str, ...]:
    rule, seen = finding.rule, finding.seen
    return (one.domain, finding.at or "-", f"{rule.id} {rule.name}", rule.severity.value, seen.seen, seen.advice)
