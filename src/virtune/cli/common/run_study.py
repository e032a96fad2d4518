# SPDX-License-Identifier: Apache-2.0
"""From the options of `measure` and `compare` to a study that runs, and its result on stdout."""

from collections.abc import Callable
from dataclasses import dataclass, fields
from pathlib import Path
from typing import Any

from virtune.cli.common.options import read_options, say_options
from virtune.cli.common.output import proof_shown, say_more, show_result
from virtune.cli.common.progress import Face
from virtune.cli.common.result_output import ResultOutput
from virtune.cli.common.under_face import under_face
from virtune.flows.run.preconditions import Leave
from virtune.flows.run.question import Question, study_for
from virtune.flows.run.study import run_study
from virtune.flows.stored.show import current
from virtune.model.errors import StorePlace
from virtune.model.event import Event
from virtune.model.evidence import StudyRecord
from virtune.model.result import Result
from virtune.model.study import Study, StudyKind
from virtune.store.store import Store


@dataclass(frozen=True, slots=True, kw_only=True)
class StudyRequest:
    """The options of one call, and what becomes of its result."""

    question: Question
    leave: Leave
    store: StorePlace
    out: ResultOutput

    @classmethod
    def read(
        cls, kind: StudyKind, words: dict[str, Any], out: ResultOutput, *, plan: Path | None = None, builtin: str = ""
    ) -> "StudyRequest":
        """Sort what click parsed, of which `out` took its part."""
        options = read_options("study" if builtin else kind, words)
        return cls(
            question=Question(
                kind=kind,
                plan=plan,
                builtin=builtin,
                conditions=out.conditions,
                **{one.name: getattr(options, one.name) for one in fields(options)},
            ),
            leave=Leave(write_to=options.allow_write_to, in_use=options.allow_in_use),
            store=words["store"],
            out=out,
        )


def ask_for(asked: StudyRequest) -> int:
    """Run the requested study and show its result; returns the exit code."""
    study, facts = study_for(asked.question)
    if asked.out.verbose:
        say_options(study)
    with Store(asked.store) as store:
        return going_on(
            store,
            study,
            lambda say: run_study(study, store=store, say=say, leave=asked.leave, facts=facts),
            asked.out,
        )


def going_on(
    store: Store,
    study: Study,
    work: Callable[[Callable[[Event], None]], tuple[StudyRecord, Result]],
    out: ResultOutput,
) -> int:
    """Run the trials with a progress display, then show the result; when interrupted, the result so far.

    Returns the exit code of the conditions.
    """

    def so_far() -> tuple[StudyRecord, Result] | None:
        record, result = current(store, study.id)
        return (record, result) if result.trials_done else None

    def show(found: tuple[StudyRecord, Result]) -> int:
        record, result = found
        return show_result(result, record, out, brief=not out.verbose, proved=proof_shown(store, record, result))

    face = Face(quiet=out.quiet, verbose=out.verbose)
    code = under_face(face, work, so_far, show, store=store, study=study)
    say_more(silent=out.silent)
    return code
