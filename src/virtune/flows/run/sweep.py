# SPDX-License-Identifier: Apache-2.0
"""The verb `sweep`: increase the load until a stack is saturated, then add loads around the knee or limit."""

from dataclasses import replace
from pathlib import Path

from virtune.analyse.study.offered_load import swept
from virtune.analyse.study.verdicts import require_measured
from virtune.flows.run import trial as trials
from virtune.flows.run.preconditions import Leave
from virtune.flows.run.prepare import begun
from virtune.flows.run.question import Question, facts_text, study_for
from virtune.flows.run.study import loaded, prepared, taken_up
from virtune.flows.stored.show import by_todays_method, seen_costs
from virtune.model.errors import Interrupted, PlanError, StoreError
from virtune.model.event import Say, StudyPlanned, StudyStarted, TrialEnded, TrialStarted
from virtune.model.evidence import StudyRecord
from virtune.model.result import LoadSweep
from virtune.model.search import SweepPlan
from virtune.model.study import Study
from virtune.plan.goal import parse_limit
from virtune.plan.loads import FIRST_SHARES, next_step, sweep_study
from virtune.plan.trials import SeenCosts
from virtune.store.store import Store

LIKELY_LOADS = 5
"""The expected number of loads beyond the first ones: a gap of 1.25 is halved three times."""


def sweep_for(question: Question) -> tuple[Study, str]:
    """Return the requested sweep, and the facts of this host as JSON text; raises PlanError."""
    limit = next((parse_limit(text) for text in question.subject_to), None)
    for one in question.conditions:
        if one.metric != "iops" or one.relation != "<" or one.value is None:
            raise PlanError(
                f"`{one.text}`: a sweep is judged by the load that it carries, or at which a limit holds",
                hint="`--fail-if 'iops < 20k'`, and the limit after --subject-to",
            )
    study = study_for(question)
    plan = SweepPlan(limit=limit, loads=question.loads, rounds=study.rounds)
    return sweep_study(study, plan), facts_text(Path(study.scratch))


def run_sweep(study: Study, *, store: Store, say: Say, leave: Leave, facts: str) -> LoadSweep:
    """Store a new sweep and run it to its end; returns its result.

    Raises Interrupted when the user stopped it (finished trials are kept), LoadError when nothing could be measured.
    """
    seen = seen_costs(store, study)
    pace = trials.Pace(study, done=0, busy=trials.host_is_busy(), seen=seen)
    announced = StudyPlanned(
        study=study, seconds=trials.before_seconds(study, seen) + _seconds_left(study, pace, done=0)
    )
    with prepared(study, say, leave, announced=announced) as tools:
        study = begun(study, loaded(study, tools), tools, store)
        store.add_study(study, facts=facts)
        _steps(study, tools, seen, store=store, say=say)
    return finished_sweep(store, study.id)


def resume_sweep(record: StudyRecord, *, store: Store, say: Say, leave: Leave) -> LoadSweep:
    """Resume a sweep, in the middle of a block if it was killed there."""
    if not record.finished:
        with taken_up(record, store, say, leave) as (again, tools):
            _steps(again.study, tools, seen_costs(store, record.study), store=store, say=say)
    return finished_sweep(store, record.study.id)


def finished_sweep(store: Store, study_id: str) -> LoadSweep:
    """Mark a sweep as finished when its curve is complete, and return its result."""
    return sweep_of(store, by_todays_method(store, study_id))


def sweep_of(store: Store, record: StudyRecord) -> LoadSweep:
    """Return the result of a sweep that was read; mark it as finished when its curve is complete."""
    known = swept(record)
    done = record.finished
    if not done and store.writable and not record.left and record.trials and next_step(known, record) is None:
        store.finish(record.study.id)
        done = True
    return replace(known, finished=done)


def _seconds_left(study: Study, pace: trials.Pace, *, done: int) -> float:
    """Return about how long the rest takes: the trials that are planned, or as many as a curve is likely to need."""
    plan = study.sweep
    if plan is None:
        raise StoreError(f"study {study.id} is no sweep")
    likely = plan.rounds * (1 + (len(plan.loads) or len(FIRST_SHARES) + LIKELY_LOADS))
    return (max(likely, len(study.trials)) - done) * pace.left(study.trials[:1])


def _steps(study: Study, tools: trials.Tools, seen: SeenCosts, *, store: Store, say: Say) -> None:
    """Run the trials left, then step after step until the curve is complete."""
    record = store.get(study.id)
    ended = len(study.trials) - len(trials.still_to_run(record))
    pace = trials.Pace(study, done=ended, busy=trials.host_is_busy(), seen=seen)
    say(StudyStarted(study=study, done=ended, seconds_left=_seconds_left(study, pace, done=ended)))
    try:
        while True:
            attempts = trials.Attempts(study, tools, store=store, say=say, pace=pace)
            left = trials.still_to_run(record)
            for trial in left:
                place = trials.place_of(study, trial, pace)
                if study.sweep is None or not study.sweep.loads:  # how many rounds there will be is not known
                    place = replace(place, rounds=None)
                say(TrialStarted(trial=trial, place=place, seconds_left=_seconds_left(study, pace, done=ended)))
                made = attempts.make(trial)
                ended += 1
                summary = trials.summary_of(made, offered=study.workload(trial.workload).offered_iops)
                say(TrialEnded(trial=trial, place=place, summary=summary, failure=made.failure))
            record = store.get(study.id)
            require_measured(record.trials)
            step = next_step(swept(record), record)
            if step is None:
                return
            study = step
            store.replace_study(study)  # before it runs, so that a killed sweep resumes exactly
            record = replace(record, study=study)
    except KeyboardInterrupt:
        hint = f"continue with `virtune compare resume {study.id}`"
        raise Interrupted(f"interrupted; {ended} trials are stored", hint=hint) from None
