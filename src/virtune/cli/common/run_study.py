# SPDX-License-Identifier: Apache-2.0
"""From the options of a verb to a study, a search or a proof that runs, and its result on stdout."""

from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any, TypeVar

import click
from rich.live import Live

from virtune.bench.volumes import seen_at
from virtune.cli.common.options import read_options, say_options
from virtune.cli.common.progress import Face, carried_now, most_text, under_face
from virtune.cli.common.result_output import ResultOutput
from virtune.cli.common.results import proof_shown, show_proof, show_result, show_tuning
from virtune.flows.probe import wait_until_quiet
from virtune.flows.run.preconditions import Leave
from virtune.flows.run.question import LOOK_SECONDS, Question, facts_text, its_load, study_for
from virtune.flows.run.study import Finished, rehearse, run_study
from virtune.flows.run.trial import all_seconds, directory_of
from virtune.flows.run.tune import beforehand, brought_up, expected_seconds, finished_tuning, tune, tuning_study
from virtune.flows.stored.show import current, seen_costs
from virtune.model.errors import StorePlace, UsageError
from virtune.model.event import Event, Noticed, Say, SearchMoved
from virtune.model.evidence import compared_unseen
from virtune.model.study import Study, StudyKind
from virtune.model.study_options import StudyOptions
from virtune.model.text import format_bytes, format_seconds, printable
from virtune.model.tuning import Tuning
from virtune.report.pages.diagnose import load_known
from virtune.report.pages.tune import live, state_line
from virtune.report.reproduce import question_of
from virtune.store.store import Store

Asked = TypeVar("Asked", bound=StudyOptions)


def with_its_load(asked: Asked, vm: str | None, check: Callable[[Asked], object] | None = None) -> Asked:
    """Return options with the load that the disk of a running VM has, where that was asked for. All else is checked
    first, since to look takes a while.

    Raises UsageError where no VM, or another load, was named, and what `check` raises.
    """
    if not asked.its_load:
        return asked
    if vm is None:
        raise UsageError("--its-load is the load of the VM of --like", hint="`--like VM[:DISK] --its-load`")
    if asked.workloads:
        raise UsageError("--its-load takes the place of --workload", hint="leave one of them out")
    if check is not None:
        check(asked)
    click.echo(printable(f"looking at the load of {vm} for {LOOK_SECONDS:g} s"), err=True)
    seen = its_load(vm, asked.connect)
    click.echo(printable(f"its load: --workload '{seen.workload}'; {load_known(seen)}"), err=True)
    return replace(asked, workloads=(seen.workload,))


def when_quiet(study: Study, facts: str, seconds: float | None, *, quiet: bool) -> str:
    """Wait for a quiet host where that was asked for; returns its facts, which are those of then."""
    if seconds is None:
        return facts
    with Face(quiet=quiet) as say:
        target = seen_at(study.scratch) if study.target is None else Path(study.target)
        wait_until_quiet(seconds, say, scratch=directory_of(study), target=target)
    return facts_text(Path(study.scratch))


def ask_for(
    kind: StudyKind, words: dict[str, Any], out: ResultOutput, *, plan: Path | None = None, builtin: str = ""
) -> int:
    """Run the study that was asked for, by all that click parsed, of which `out` took its part, and show its result;
    returns the exit code.
    """
    asked = read_options("study" if builtin else kind, words)
    question = Question.of(asked, kind, plan=plan, builtin=builtin, conditions=out.conditions)
    study = study_for(with_its_load(question, question.like, study_for))
    leave = Leave(write_to=asked.allow_write_to, in_use=asked.allow_in_use)
    if words["dry_run"]:
        return show_plan(study, leave)
    facts = when_quiet(study, "", out.wait_quiet, quiet=out.quiet) or facts_text(Path(study.scratch))
    if out.verbose:
        say_options(study)
    with Store(words["store"]) as store:
        return going_on(
            store, study, lambda say: run_study(study, store=store, say=say, leave=leave, facts=facts), out
        )


def show_plan(study: Study, leave: Leave, words: str = "") -> int:
    """Check what is asked for, say what would be measured, and measure nothing; returns 0. `words` say how long that
    would take, where it is no fixed number of trials.
    """
    with Face() as say:
        rehearse(study, say, leave)
    arms = [
        f"{arm.name}: {', '.join(f'{name}={value}' for name, value in arm.settings) or 'as the rig is set up'}"
        for arm in study.arms[:_ARMS_SHOWN]
    ]
    more = len(study.arms) - len(arms)
    writes = study.precondition or any(one.writes for one in study.workloads)
    places = [f"{path}, which is {'written to' if writes else 'read'}" for path in study.targets.values()]
    if study.volume is not None:
        places += [
            f"a scratch volume of {format_bytes(study.span_bytes)} in {study.volume.words}, removed afterwards"
        ]
    if not places or any(not study.loads_target(arm.stack) for arm in study.arms):
        places += [f"{format_bytes(study.span_bytes)} of scratch image in {study.scratch}"]
    place = "; ".join(places)
    directories = sorted({arm.stack.directory for arm in study.arms if arm.stack.directory is not None})
    place += f"; in {', '.join(directories)} where an arm names it" if directories else ""
    lines = (
        *([] if words else [question_of(study)]),
        *(f"  {one}" for one in arms),
        *([f"  and {more} more"] if more else []),
        *(f"load {one.name}: {one.meaning}" for one in study.workloads),
        f"on {place}",
        words or f"{most_text(study)}{format_seconds(all_seconds(study))}, set-up included",
        *(f"warning: {one}" for one in (*study.caveats, *compared_unseen(study.arms))),
        "nothing was measured (--dry-run)",
    )
    for line in lines:
        click.echo(printable(line))
    return 0


_ARMS_SHOWN = 20


def going_on(store: Store, study: Study, work: Callable[[Say], Finished], out: ResultOutput) -> int:
    """Run the trials with a progress display, then show the result; when interrupted, the result so far.

    Returns the exit code of the conditions.
    """

    def show(found: Finished) -> int:
        record, result = found
        return show_result(result, record, out, brief=not out.verbose, proved=proof_shown(store, record, result))

    face = Face(quiet=out.quiet, verbose=out.verbose)
    return under_face(face, work, lambda: _so_far(store, study.id), show, store=store, study=study)


def _so_far(store: Store, study: str) -> Finished | None:
    """Return an interrupted study with its result; None where nothing of it was measured."""
    record, result = current(store, study)
    return (record, result) if result.trials_done else None


class RaceFace(Face):
    """Shows a search while it runs: on a terminal its arms with shrinking intervals, elsewhere a line a block."""

    def __init__(self, *, quiet: bool = False, verbose: bool = False) -> None:
        super().__init__(quiet=quiet, verbose=verbose)
        self._table: Live | None = None
        self._said = ""

    def __exit__(self, *_: object) -> None:
        if self._table is not None:
            self._table.stop()
        super().__exit__()

    def __call__(self, event: Event) -> None:
        """Show one event."""
        if isinstance(event, SearchMoved):
            self._move(event)
        elif self._table is None or isinstance(event, Noticed):
            super().__call__(event)

    def _move(self, event: SearchMoved) -> None:
        if self._quiet:
            return
        if not self._live:
            state = state_line(event.known, None)
            if state != self._said:
                self._line(state_line(event.known, event.seconds_left))
            self._said = state
            return
        if self._table is None:
            self._shown.stop()
            self._table = Live(console=self._console, auto_refresh=False, transient=True)
            self._table.start()
        self._table.update(live(event.known, event.seconds_left), refresh=True)


def tune_for(asked: dict[str, Any]) -> None:
    """Run the search that was asked for and show what it says."""
    out = ResultOutput.read(asked)
    options = read_options("tune", asked)
    study, facts = tuning_study(with_its_load(options, options.like, tuning_study))
    leave = Leave(write_to=asked["allow_write_to"], in_use=asked["allow_in_use"])
    if asked["dry_run"]:
        show_plan(study, leave, beforehand(study))
        return
    facts = when_quiet(study, facts, out.wait_quiet, quiet=out.quiet)
    if out.verbose:
        say_options(study)
    with Store(asked["store"]) as store:
        seen = seen_costs(store, study)
        if not out.quiet:
            click.echo(beforehand(study, seen), err=True)
        if (carried := carried_now()) is not None:
            study = brought_up(study, leave) if carried.up else study
            carried.planned(study, expected_seconds(study, seen))
        searching(
            store, study, lambda say: tune(study, store=store, say=say, leave=leave, facts=facts, seen=seen), out
        )


def searching(store: Store, study: Study, work: Callable[[Say], Tuning], out: ResultOutput) -> None:
    """Run a search with a progress display, then show its result; when interrupted, the result so far."""

    def so_far() -> Tuning | None:
        known = finished_tuning(store, study.id)
        return known if known.standing.slices else None

    def show(known: Tuning) -> None:
        show_tuning(store, known, out, brief=not out.verbose)

    under_face(RaceFace(quiet=out.quiet, verbose=out.verbose), work, so_far, show, store=store, study=study)


def run_proof(path: StorePlace, study: str, number: int | None, asked: StudyOptions, out: ResultOutput) -> None:
    """Run the comparison that tests the accusation of a stored study, and write the verdict."""
    from virtune.flows.run.prove import plan_proof, proven

    with Store(path) as store:
        name = store.find(study)
        store.require_own(name)
        planned = plan_proof(store, name, number, asked)
        if (test := planned.study) is None:
            show_proof(planned.accused, None, out)
            return
        under_face(
            Face(quiet=out.quiet, verbose=out.verbose),
            lambda say: run_study(test, store=store, say=say, leave=Leave(), facts=planned.facts),
            lambda: _so_far(store, test.id),
            lambda ran: show_proof(proven(store, planned.accused, *ran), ran, out),
            store=store,
            study=test,
        )
