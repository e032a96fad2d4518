# SPDX-License-Identifier: Apache-2.0
"""`virtune diagnose --prove`: run the comparison that tests an accusation, and write the verdict."""

import json
from pathlib import Path

import click

from virtune.cli.common.output import put, say_report, screen_lines, write_report
from virtune.cli.common.progress import Face, under_face
from virtune.cli.common.result_output import STDOUT, ResultOutput, write_markdown
from virtune.flows.reports.report import page_html
from virtune.flows.run.preconditions import Leave
from virtune.flows.run.prove import PlannedProof, plan_proof, proven
from virtune.flows.run.study import run_study
from virtune.flows.stored.show import current
from virtune.model.bottleneck import Diagnosis
from virtune.model.errors import StorePlace, UsageError
from virtune.model.event import Say
from virtune.model.evidence import StudyRecord
from virtune.model.result import Result
from virtune.model.study_options import StudyOptions
from virtune.report.html.page import proof_page
from virtune.report.json.live import diagnose_document
from virtune.report.markdown import proof_markdown
from virtune.report.pages.diagnose import DiagnosisScreen, render
from virtune.store.store import Store

_Ran = tuple[StudyRecord, Result] | None
"""The comparison of a proof; None where nothing was measured."""


def run_proof(path: StorePlace, study: str, number: int | None, asked: StudyOptions, out: ResultOutput) -> None:
    """Test the accusation of a stored study and write the verdict."""
    with Store(path) as store:
        name = store.find(study)
        store.require_own(name)
        planned = plan_proof(store, name, number, asked)
        if planned.study is None:
            _show(planned.accused, None, out)
        else:
            _measured(store, planned, out)


def _measured(store: Store, planned: PlannedProof, out: ResultOutput) -> None:
    study, facts = planned.study, planned.facts
    assert study is not None  # noqa: S101 - the caller asked

    def work(say: Say) -> _Ran:
        return run_study(study, store=store, say=say, leave=Leave(), facts=facts)

    def so_far() -> _Ran:
        record, result = current(store, study.id)
        return (record, result) if result.trials_done else None

    def show(ran: _Ran) -> None:
        _show(planned.accused if ran is None else proven(store, planned.accused, *ran), ran, out)

    under_face(Face(quiet=out.quiet, verbose=out.verbose), work, so_far, show, store=store, study=study)


def _show(found: Diagnosis, ran: _Ran, out: ResultOutput) -> None:
    if out.report is not None:
        _write(found, ran, out.report)
    if out.as_json:
        click.echo(json.dumps(diagnose_document([found]), indent=2))
    elif out.markdown != STDOUT:
        put(render([found]) if out.verbose else DiagnosisScreen(found=[found], lines=screen_lines()))
    if out.markdown is not None:
        result, facts = (None, "") if ran is None else (ran[1], ran[0].facts)
        write_markdown(out.markdown, proof_markdown(found, result, facts))
    if out.report is not None:
        say_report(out.report)


def _write(found: Diagnosis, ran: _Ran, path: Path) -> None:
    def page() -> str:
        if ran is None:
            raise UsageError("nothing was measured, so there is no page", hint="`--markdown FILE` has the reason")
        record, result = ran
        return page_html(proof_page(found, result, record))

    write_report(path, page=page, plain=lambda: render([found]))
