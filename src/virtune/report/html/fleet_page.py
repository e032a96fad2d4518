# SPDX-License-Identifier: Apache-2.0
"""The pages of a fleet: an audit with its rules over hosts and what differs between them, and what the same study
says on many hosts.
"""

from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import replace

from virtune.model.fleet import Difference, FleetEffect, FleetLevel, FleetReport, HostAudit, Unreached
from virtune.model.metric import BY_ID
from virtune.report.charts import labelled
from virtune.report.charts.fleet import fleet_charts, rule_map
from virtune.report.fleet_audit import rule_rows
from virtune.report.html.other_pages import audit_page
from virtune.report.html.page import MARKS, ReportPage, VerdictLine
from virtune.report.html.table import Table
from virtune.report.reproduce import command_again, question_of
from virtune.report.text.fleet.hosts import names, together
from virtune.report.text.fleet.report import (
    effect_lines,
    level_lines,
    odd_words,
    others_words,
    rank_rows,
    trait_lines,
)
from virtune.report.text.words import change_words, count_text, methods_text
from virtune.report.view import SIMULATED_ONLY

_TRAITS_FIRST = 2
"""So much of what odd hosts have is said with the verdict; the table has all."""


def fleet_audit_page(
    audits: Sequence[HostAudit], lost: Sequence[Unreached], differing: Sequence[Difference] = ()
) -> ReportPage:
    """Return the page: findings by severity, rules by hosts and by VMs, facts that differ between hosts, and every
    finding with its advice.
    """
    page = audit_page(*together(audits))
    picture = rule_map(audits)
    facts = Table(
        caption="facts that differ between hosts",
        columns=("fact", "values"),
        rows=tuple((one.key, "; ".join(f"{value} on {names(on)}" for value, on in one.values)) for one in differing),
    )
    over = Table(
        caption="rules over hosts",
        columns=("rule", "severity", "hosts", "VMs", "found on", "not on"),
        rows=tuple(
            (f"{row.rule.id} {row.rule.name}", row.rule.severity.value, str(len(row.hosts)), str(row.domains),
             names(row.hosts), names(row.without) or "-")
            for row in rule_rows(audits)
        ),
    )  # fmt: skip
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
        settings=None,
        unsettled="Each host read its own settings back while its study ran: `virtune show` of its study has them.",
        warnings=tuple(_warnings(found)),
        notes=(),
        charts=tuple(labelled(study, fleet_charts(found))),
        tables=tuple(_tables(found)),
        again=again and again.replace("virtune", "virtune fleet run -i hosts.txt", 1),
        host="Each host's facts are kept with its study; those that set odd hosts apart are in the tables.",
    )  # fmt: skip


def _effect_line(effect: FleetEffect, baseline: str) -> VerdictLine:
    """The verdict that most hosts gave, and the whole answer."""
    counts = Counter(verdict.value for _, verdict in effect.verdicts)
    word = counts.most_common(1)[0][0] if counts else ""
    return VerdictLine(verdict=word, mark=MARKS.get(word, ""), sentence="; ".join(effect_lines(effect, baseline)))


def _level_line(level: FleetLevel, metric: str) -> VerdictLine:
    """Which hosts are odd and what they have; marked as worse where one of them is, and not where it is ahead."""
    ahead = 1 if BY_ID[metric].better == "higher" else -1
    odd = [one.distance * ahead for one in level.points if one.odd]
    word = ("worse" if min(odd) < 0 else "better") if odd else "undecided" if level.refused else "same"
    first, *more = level_lines(level)
    has = list(trait_lines(level))[:_TRAITS_FIRST]
    return VerdictLine(verdict=word, mark=MARKS[word], sentence=f"{first}: {'; '.join([*more, *has])}")


def _warnings(found: FleetReport) -> Iterator[tuple[str, str]]:
    if found.others:
        yield "warning", others_words(found.others)
    for level in found.levels:
        if level.refused is not None:
            yield "warning", f"{level.workload}: hosts are not compared: {level.refused}"
        if level.left_out:
            yield "warning", f"{level.workload}: too few rounds for a standard error on {names(level.left_out)}"


def _tables(found: FleetReport) -> Iterator[Table]:
    for level in found.levels:
        if level.traits:
            yield Table(
                caption=f"{level.workload}: what odd hosts have and others seldom have",
                columns=("fact", "value", "usual value", "odd hosts with it", "others with it"),
                rows=tuple(
                    (
                        one.key,
                        one.value,
                        one.usual,
                        f"{one.odd_with} of {one.odd}",
                        f"{one.others_with} of {one.others}",
                    )
                    for one in level.traits
                ),
            )
    for effect in found.effects:
        ratios = dict(effect.ratios)
        yield Table(
            caption=f"{effect.candidate} against {found.study.baseline} ({effect.workload}) on each host",
            columns=("host", "verdict", "difference", "low", "high", ""),
            rows=tuple(
                (host, verdict.value,
                 *(change_words(one) for one in (ratios[host].estimate, ratios[host].low, ratios[host].high)),
                 odd_words(host, effect.points))
                if host in ratios else (host, verdict.value, "", "", "", "too few rounds")
                for host, verdict in effect.verdicts
            ),
        )  # fmt: skip
    for level in found.levels:
        if level.ranks:
            columns, *rows = rank_rows(level)
            yield Table(caption=f"{level.workload}: ranks of {level.arm}", columns=columns, rows=tuple(rows))
