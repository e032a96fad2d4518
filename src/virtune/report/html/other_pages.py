# SPDX-License-Identifier: Apache-2.0
"""The pages of searches, sweeps, checks, proofs, diagnoses, audits and fleets: the same parts as a comparison's."""

from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import replace

from virtune.model.bottleneck import EMULATED_WORDS, Cause, Diagnosis
from virtune.model.evidence import StudyRecord
from virtune.model.finding import Audited, Severity, Unread
from virtune.model.fleet import Difference, FleetEffect, FleetLevel, FleetReport, HostAudit, Unreached
from virtune.model.metric import BY_ID
from virtune.model.result import Fitness, LoadSweep, Result
from virtune.model.tuning import Recommendation, Tuning
from virtune.model.verdict import Interval, ProofOutcome
from virtune.report.charts import labelled
from virtune.report.charts.chart import Chart
from virtune.report.charts.fleet import audit_map, fleet_charts, rule_map
from virtune.report.charts.forest import FOREST
from virtune.report.charts.loads import sweep_curve
from virtune.report.charts.stacked import times_of
from virtune.report.charts.tradeoff import pareto, race
from virtune.report.html.page import ForestRow, ReportPage, VerdictLine, forest_of, page_of
from virtune.report.pages import check, diagnose, fleet, sweep, tune
from virtune.report.pages.brief import of_slices
from virtune.report.pages.evidence import reading_notes
from virtune.report.pages.study import host_line, host_text, host_words, vm_cost_notes
from virtune.report.render.terminal import Table
from virtune.report.reproduce import command_again, question_of, tune_again
from virtune.report.view import SIMULATED_ONLY
from virtune.report.words import change_words, count_text, methods_text

_MARKS = {Recommendation.CHANGE: "better", Recommendation.KEEP: "same", Recommendation.UNDECIDED: "undecided"}
_SEVERITIES = tuple(reversed(Severity))
_FINDINGS_MAX = 2_000


def search_page(known: Tuning, record: StudyRecord) -> ReportPage:
    """Return the page of a search: what it found, its race, speed against cost, every configuration."""
    study, search = known.study, known.study.search
    assert search is not None  # noqa: S101 - a Tuning is of a search
    first, *more = map(str, tune.answer_lines(known))
    sections = dict(tune.sections(known, record.facts))
    charts = (chart for chart in (race(known, record), pareto(known, record)) if chart is not None)
    metric = BY_ID[study.metric]
    return ReportPage(
        title=f"{study.label} {study.id}",
        finding=VerdictLine(first, _MARKS[known.recommendation]),
        forests=(forest_of(f"{metric.label} against the leader", _race_rows(known), study.margin),),
        limits=tuple(of_slices(tune.warnings(known))),
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


def _race_rows(known: Tuning) -> list[tuple[ForestRow, Interval | None]]:
    """Return the best configurations against the one that leads."""
    rows = tune.runner_rows(known)[: tune.ROWS_MAX]
    tones = [_PLACED.get(state.partition(" (")[0], "undecided") for _, state, _, _ in rows]
    return [
        (ForestRow(name=arm, verdict=tone, word=state, words=told), ratio)
        for tone, (arm, state, told, ratio) in zip(tones, rows, strict=True)
    ]


def sweep_page(known: LoadSweep, result: Result, record: StudyRecord) -> ReportPage:
    """Return the page of a sweep: saturation, knee and limit, and the curve with them."""
    chart = sweep_curve(known, result)
    charts = () if chart is None else tuple(labelled(known.study, [chart]))
    page = page_of(sweep.without_saturation(result), record, charts)
    columns, rows = sweep.curve(known, result)
    loads = Table(columns, rows, caption="loads; < less was done than offered")
    first, *more = sweep.answer_lines(known)
    return replace(
        page,
        finding=VerdictLine(f"{known.study.arms[0].name}, {known.study.workloads[0].name}: {first}"),
        question=f"How much load does {known.study.arms[0].name} carry?",
        verdicts=tuple(map(VerdictLine, (first, *more))),
        tables=(loads, *page.tables),
    )


def audit_page(audited: Sequence[Audited], unread: Sequence[Unread]) -> ReportPage:
    """Return the page of an audit: findings by severity, VMs by rules, and every finding with its advice."""
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
    """Return the page."""
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
    """Return the page of the diagnoses of one or more disks."""
    disks = ", ".join(dict.fromkeys(one.disk for one in found))
    return ReportPage(
        title=f"diagnosis of {count_text(len(found), 'disk')}: {disks}",
        question="What limits these disks under their load?",
        facts=tuple((one.disk, f"{one.workload}: {diagnose.rates_text(one)}") for one in found),
        verdicts=tuple(line for one in found for line in _lines(one)),
        unsettled="A diagnosis looks at a disk as it is, and verifies no settings.",
        warnings=tuple(warning for one in found for warning in _diagnosis_warnings(one)),
        notes=tuple(f"{one.disk}: {line}" for one in found for line in _notes(one)),
        charts=tuple(_diagnosis_charts(found)),
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


def _diagnosis_charts(found: Sequence[Diagnosis]) -> Iterator[Chart]:
    """Yield the pictures of each load: disks under one load share them."""
    for workload in dict.fromkeys(one.workload for one in found):
        layers = {one.disk: one.layers for one in found if one.workload == workload and one.layers is not None}
        if (chart := times_of(layers, workload)) is not None:
            yield chart


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
    """Return the page: findings by severity, rules by hosts and by VMs, facts that differ between hosts, and every
    finding with its advice.
    """
    page = audit_page(*fleet.together(audits))
    picture = rule_map(audits)
    values = ((one.key, "; ".join(f"{value} on {fleet.names(on)}" for value, on in one.values)) for one in differing)
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
    """Return the page of a fleet's report: does it help everywhere, which host is odd and what has it, the ranks."""
    study = found.study
    again = command_again(study)
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
        again=again and again.replace("virtune", "virtune fleet run -i hosts.txt", 1),
        host="Each host's facts are kept with its study; those that set odd hosts apart are in the tables.",
    )  # fmt: skip


def _effect_line(effect: FleetEffect, baseline: str) -> VerdictLine:
    """The verdict that most hosts gave, and the whole answer."""
    counts = Counter(verdict.value for _, verdict in effect.verdicts)
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
        ratios = dict(effect.ratios)
        caption = f"{effect.candidate} against {found.study.baseline} ({effect.workload}) on each host"
        table = Table(["host", "verdict", "difference", "low", "high", ""], caption=caption)
        for host, verdict in effect.verdicts:
            if host in ratios:
                ends = (ratios[host].estimate, ratios[host].low, ratios[host].high)
                table.add_row(host, verdict.value, *map(change_words, ends), fleet.odd_words(host, effect.points))
            else:
                table.add_row(host, verdict.value, "", "", "", "too few rounds")
        yield table
    for level in found.levels:
        if level.ranks:
            head, *rows = fleet.rank_rows(level)
            yield Table(head, rows, caption=f"{level.workload}: ranks of {level.arm}")
