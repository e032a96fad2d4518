# SPDX-License-Identifier: Apache-2.0
"""The questions that a store asks its database, and the rows that it writes."""

from collections.abc import Iterable
from typing import Any

import sqlalchemy as sa

from virtune.model.evidence import Capture, InForce, TrialRecord
from virtune.model.measurement import METHOD, Measurement
from virtune.model.study import Study
from virtune.plan.codec import study_to_json
from virtune.store.backend import Backend
from virtune.store.rows import PackedCapture, dump, packed
from virtune.store.schema import CAPTURES, MEASUREMENTS, STUDIES, TRIALS

NEWEST_FIRST: sa.ColumnElement[int] = sa.literal_column("studies.rowid").desc()
"""SQLite numbers its rows so; in PostgreSQL the table has such a column."""


def counted(ids: sa.Select[tuple[str]] | None = None) -> tuple[sa.Subquery, sa.Subquery]:
    """Count by study the trials that are done and the attempts that failed, of all studies or of these.

    Both are answered from an index alone: the rows of a million trials have gigabytes.
    """
    fits = [] if ids is None else [TRIALS.c.study_id.in_(ids)]
    done = sa.select(TRIALS.c.study_id, sa.func.count(sa.distinct(TRIALS.c.number)).label("done"))
    failed = sa.select(TRIALS.c.study_id, sa.func.count().label("failed"))
    return (
        done.where(TRIALS.c.failure.is_(None), *fits).group_by(TRIALS.c.study_id).subquery(),
        failed.where(TRIALS.c.failure.is_not(None), *fits).group_by(TRIALS.c.study_id).subquery(),
    )


def listed_rows(*conditions: sa.ColumnElement[bool], ids: sa.Select[tuple[str]] | None = None) -> sa.Select[Any]:
    """Select studies with what a list shows of each, the newest first."""
    done, failed = counted(ids)
    fits = [] if ids is None else [STUDIES.c.id.in_(ids)]
    zero = sa.literal(0)
    return (
        sa.select(
            STUDIES.c.id,
            STUDIES.c.study,
            STUDIES.c.finished,
            sa.func.coalesce(done.c.done, zero),
            sa.func.coalesce(failed.c.failed, zero),
        )
        .outerjoin(done, done.c.study_id == STUDIES.c.id)
        .outerjoin(failed, failed.c.study_id == STUDIES.c.id)
        .where(*conditions, *fits)
        .order_by(NEWEST_FIRST)
    )


def trials_of(key: str, measurement: sa.ColumnElement[str]) -> sa.Select[Any]:
    """Every attempt in order, so that a later one replaces an earlier one, with the newest method's measurement."""
    newest = (
        sa.select(MEASUREMENTS.c.trial_id, sa.func.max(MEASUREMENTS.c.method).label("method"))
        .join(TRIALS, TRIALS.c.id == MEASUREMENTS.c.trial_id)
        .where(MEASUREMENTS.c.method <= METHOD, TRIALS.c.study_id == key)
        .group_by(MEASUREMENTS.c.trial_id)
        .subquery()
    )
    return (
        sa.select(TRIALS, measurement.label("measurement"))
        .outerjoin(newest, newest.c.trial_id == TRIALS.c.id)
        .outerjoin(
            MEASUREMENTS,
            sa.and_(MEASUREMENTS.c.trial_id == newest.c.trial_id, MEASUREMENTS.c.method == newest.c.method),
        )
        .where(TRIALS.c.study_id == key)
        .order_by(TRIALS.c.number, TRIALS.c.attempt)
    )


def by_method(key: str | None = None) -> sa.Select[Any]:
    """Select of every study, the newest first, how many measurements are of today's method and of an older one; with
    a key of this study alone.
    """
    of_trial = sa.select(MEASUREMENTS.c.trial_id, sa.func.max(MEASUREMENTS.c.method).label("method"))
    if key is not None:
        of_trial = of_trial.join(TRIALS, TRIALS.c.id == MEASUREMENTS.c.trial_id).where(TRIALS.c.study_id == key)
    newest = of_trial.where(MEASUREMENTS.c.method <= METHOD).group_by(MEASUREMENTS.c.trial_id).subquery()
    older = sa.func.sum(sa.case((newest.c.method < METHOD, 1), else_=0)).label("older")
    counts = (
        sa.select(TRIALS.c.study_id, sa.func.count().label("all"), older)
        .join(newest, newest.c.trial_id == TRIALS.c.id)
        .group_by(TRIALS.c.study_id)
        .subquery()
    )
    zero = sa.literal(0)
    return (
        sa.select(STUDIES.c.id, sa.func.coalesce(counts.c.all, zero), sa.func.coalesce(counts.c.older, zero))
        .outerjoin(counts, counts.c.study_id == STUDIES.c.id)
        .where(*([] if key is None else [STUDIES.c.id == key]))
        .order_by(NEWEST_FIRST)
    )


def attempt_of(key: str, number: int, attempt: int | None) -> sa.Select[int]:
    """Select the row of an attempt at a trial; None is the last one."""
    wanted = [TRIALS.c.study_id == key, TRIALS.c.number == number]
    wanted += [] if attempt is None else [TRIALS.c.attempt == attempt]
    return sa.select(TRIALS.c.id).where(*wanted).order_by(TRIALS.c.attempt.desc()).limit(1)


def ended_of(db: sa.Connection, key: str) -> dict[tuple[int, int], str]:
    """Return every attempt of a study, by its trial's number and its own, with its end."""
    asked = sa.select(TRIALS.c.number, TRIALS.c.attempt, TRIALS.c.ended).where(TRIALS.c.study_id == key)
    return {(row.number, row.attempt): row.ended for row in db.execute(asked)}


def put_study(db: sa.Connection, key: str, study: Study, *, facts: str, finished: bool) -> None:
    row = {"id": key, "created": study.created, "kind": study.kind, "study": study_to_json(study)}
    db.execute(STUDIES.insert().values(**row, facts=facts, finished=int(finished)))


def put_trial(
    db: sa.Connection, backend: Backend, key: str, record: TrialRecord, captures: Iterable[Capture | PackedCapture]
) -> bool:
    """Store an attempt with its captures and its measurement, and return whether it was new. One that is there is
    left as it is, and its captures are not asked for.
    """
    trial = record.trial
    done = db.execute(
        backend.put_new(TRIALS)
        .values(
            study_id=key,
            number=trial.number,
            attempt=record.attempt,
            round=trial.round,
            arm=trial.arm,
            workload=trial.workload,
            ended=record.ended,
            failure=record.failure,
            in_force=dump(InForce, record.in_force),
        )
        .execution_options(preserve_rowcount=True)
    )
    if not done.rowcount:
        return False
    row: int = db.execute(attempt_of(key, trial.number, record.attempt)).scalar_one()
    for capture in captures:
        content = capture.stream if isinstance(capture, PackedCapture) else packed(capture.content)
        db.execute(CAPTURES.insert().values(trial_id=row, name=capture.name, content=content))
    if record.measurement is not None:
        put_measurement(db, backend, row, record.measurement)
    return True


def put_measurement(db: sa.Connection, backend: Backend, row: int, measurement: Measurement) -> None:
    values = {"trial_id": row, "method": measurement.method, "measurement": dump(Measurement, measurement)}
    db.execute(backend.put(MEASUREMENTS, values, ("trial_id", "method")))
