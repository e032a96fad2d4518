# SPDX-License-Identifier: Apache-2.0
"""Results where they were asked for: of each kind of study a page or a document on stdout, a report, Markdown."""

from collections.abc import Callable
from typing import TYPE_CHECKING

import click
from rich.console import Group, RenderableType
from rich.text import Text

from virtune.cli.common.output import screen_lines, show, write_report
from virtune.cli.common.result_output import STDOUT, ResultOutput, exit_code, write_markdown, write_text
from virtune.model.bottleneck import Diagnosis
from virtune.model.errors import UsageError
from virtune.model.evidence import StudyRecord
from virtune.model.published import PublishedStudy
from virtune.model.result import Fitness, LoadSweep, Result
from virtune.model.study import StudyKind
from virtune.model.tuning import Tuning
from virtune.report import junit as xml
from virtune.report import markdown as md
from virtune.report.json.host import check_document
from virtune.report.json.live import diagnose_document
from virtune.report.json.result import result_document, sweep_document
from virtune.report.json.tune import tuning_document
from virtune.report.pages import brief as briefly
from virtune.report.pages import check, diagnose, sweep, tune, whole
from virtune.report.pages import result as results
from virtune.report.pages.builtin import ending
from virtune.report.render.terminal import paragraphs, section, unbroken

if TYPE_CHECKING:
    from virtune.store.store import Store


def _deliver(
    out: ResultOutput,
    *,
    page: Callable[[], RenderableType],
    document: Callable[[], object],
    plain: Callable[[], RenderableType],
    html: Callable[[], str],
    markdown: Callable[[], str] = str,
) -> None:
    """Write a result where it was asked for; what is not asked for is not made."""
    if out.report is not None:
        write_report(out.report, page=html, plain=plain)
    if out.as_json or out.markdown != STDOUT:
        show(document, page, as_json=out.as_json)
    if out.markdown is not None:
        write_markdown(out.markdown, markdown())
    if out.report is not None:
        click.echo(f"\nthe whole result with its evidence: {out.report}", err=True)


def show_check(found: Fitness, *, as_json: bool, limit: float | None = None, brief: bool = False) -> None:
    """Write what a check found to stdout; `limit` is the share of `--fail-if-noisier`.

    With `brief` it takes a dozen lines.
    """
    page = briefly.of_check if brief else check.render
    show(lambda: check_document(found), lambda: page(found, limit), as_json=as_json)


def show_result(
    result: Result, record: StudyRecord, out: ResultOutput, *, brief: bool = False, proved: Diagnosis | None = None
) -> int:
    """Write a result to the requested outputs; returns the exit code of its conditions.

    With `brief` it takes a dozen lines. `proved` is what a study that tests a diagnosis says of it, which
    a terminal shows first.
    """
    if record.study.kind is StudyKind.CHECK and out.stdout_alone:
        from virtune.flows.run.check import fitness

        show_check(fitness(record), as_json=out.as_json, brief=brief)
        return 0
    rulings, authors, facts = out.rulings(record), _authors(record), record.facts

    def html() -> str:
        from virtune.flows.reports.report import page_text

        return page_text(result, record)

    def page() -> RenderableType:
        proof = [] if proved is None else [*diagnose.proof_lines(proved), ""]
        if brief:
            return Group(*proof, briefly.of_result(result, facts, rulings, authors))
        head = paragraphs(filter(None, (results.passed_line(rulings), briefly.finding(result))), indent=0)
        conditions = section("--fail-if conditions", results.condition_lines(result, rulings))
        body = results.render(result, facts, first=ending(result, authors, facts))
        return Group(*proof, *head, body, *conditions)

    _deliver(
        out,
        page=page,
        document=lambda: result_document(result, record, rulings),
        plain=lambda: whole.plain_report(result, record, authors),
        html=html,
        markdown=lambda: md.markdown(result, rulings, facts),
    )
    if out.junit is not None:
        write_text(out.junit, xml.junit(result, rulings, facts))
    return exit_code({ruling.outcome for ruling in rulings})


def _authors(record: StudyRecord) -> PublishedStudy | None:
    """Return what the authors of a built-in study printed; None of any other."""
    if not record.study.builtin:
        return None
    from virtune.flows.reports.report import published_study

    return published_study(record.study.builtin)


def proof_shown(store: "Store", record: StudyRecord, result: Result) -> Diagnosis | None:
    """Return the verdict on the diagnosis that a study tests; None for any other study."""
    if record.study.accusation is None:
        return None
    from virtune.flows.run.prove import proof_of

    return proof_of(store, record, result)


def show_tuning(store: "Store", known: Tuning, out: ResultOutput, *, brief: bool = False) -> None:
    """Write what a search says where it was asked for. With `brief` it takes a dozen lines."""
    from virtune.flows.reports.render import spelled

    words, facts = spelled(known), store.get(known.study.id).facts

    def page() -> RenderableType:
        # as it is, whatever the width: it is to be pasted
        each = ((one.title, one.text, *(f"note: {note}" for note in one.notes)) for one in words)
        pasted = (unbroken(Text("\n" + "\n".join(filter(None, parts)))) for parts in each)
        return briefly.of_search(known, facts) if brief else Group(tune.render(known, facts), *pasted)

    _deliver(
        out,
        page=page,
        document=lambda: tuning_document(known, facts, words),
        plain=lambda: whole.plain_search(known, facts, words),
        html=lambda: _html(store, known.study.id),
        markdown=lambda: md.tuning_markdown(known, facts, words),
    )


def show_sweep(store: "Store", known: LoadSweep, out: ResultOutput, *, brief: bool = False) -> int:
    """Write the result of a sweep to stdout, and to a file if one was named; return the exit code of its conditions.

    With `brief` it takes a dozen lines.
    """
    from virtune.flows.stored.show import current

    record, result = current(store, known.study.id)
    page = briefly.of_sweep if brief else sweep.render
    _deliver(
        out,
        page=lambda: page(known, result, record.facts),
        document=lambda: sweep_document(known, result, facts=record.facts),
        plain=lambda: sweep.render(known, result, record.facts),
        html=lambda: _html(store, known.study.id),
    )
    return exit_code([one.outcome for one in known.rulings])


def show_proof(found: Diagnosis, ran: tuple[StudyRecord, Result] | None, out: ResultOutput) -> None:
    """Write a diagnosis with the verdict of the comparison that tested it; None where there was nothing to run."""

    def html() -> str:
        from virtune.flows.reports.report import page_html
        from virtune.report.html.page import proof_page

        if ran is None:
            raise UsageError("nothing was measured, so there is no page", hint="`--markdown FILE` has the reason")
        record, result = ran
        return page_html(proof_page(found, result, record))

    result, facts = (None, "") if ran is None else (ran[1], ran[0].facts)
    whole_page = diagnose.render([found])
    _deliver(
        out,
        page=lambda: whole_page if out.verbose else diagnose.DiagnosisScreen(found=[found], lines=screen_lines()),
        document=lambda: diagnose_document([found]),
        plain=lambda: whole_page,
        html=html,
        markdown=lambda: md.proof_markdown(found, result, facts),
    )


def _html(store: "Store", study: str) -> str:
    from virtune.flows.reports.report import report_html

    return report_html(store, study)
