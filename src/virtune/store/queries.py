# SPDX-License-Identifier: Apache-2.0
"""The questions that a store asks its database, the rows that it writes, and rows made values again: any row is
either read or reported as damaged. And what was worked out of finished studies and kept beside them, so that a
fleet's report reads no trial.

All of it can be worked out again: a row that is missing, damaged, of another method or of fewer attempts is none.
"""

import hashlib
import json
import re
import zlib
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import datetime
from functools import cache
from typing import Any

import sqlalchemy as sa
from pydantic import TypeAdapter, ValidationError

from virtune.model.errors import PlanError, StoreError
from virtune.model.evidence import Capture, Damaged, FinishedStudy, InForce, Listed, TrialRecord
from virtune.model.measurement import METHOD, Measurement
from virtune.model.study import Study, Trial
from virtune.plan.codec import study_from_json, study_to_json
from virtune.store.schema import CAPTURES, MEASUREMENTS, STUDIES, SUMMARIES, TRIALS, Backend

_MAX_CAPTURE_BYTES = 256 * 1024**2

_ID = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{0,63}")
"""A study's id becomes part of the names of files."""


SEPARATOR = "/"
"""Between the host and the id of a study that another host measured; neither has one in it."""

_HOST = re.compile(r"[A-Za-z0-9_][A-Za-z0-9._-]{0,252}")


def own_id(key: str) -> tuple[str, str]:
    """Return the host and the id of a study from what it is kept under; the host is empty of an own study."""
    host, _, name = key.rpartition(SEPARATOR)
    return host, name


def text_of(raw: bytes) -> str:
    """Return a text from SQLite; invalid UTF-8 is kept as bytes, so that only its row counts as damaged."""
    return raw.decode("utf-8", "surrogateescape")


def listed(name: object, text: object, finished: object, done: int, failed: int) -> Listed | Damaged:
    """Read a row of the studies' table; returns it as damaged, with the reason, where it cannot be read."""
    try:
        if not isinstance(text, str):
            return Damaged(id=str(name), why=f"it is kept as {type(text).__name__}, not as text")
        study = study_from_json(text)
        host, own = own_id(name) if isinstance(name, str) else ("", name)
        require_sound(study, own, host=host)
        return Listed(study=study, finished=bool(finished), done=done, failed=failed, host=host)
    except (PlanError, ValueError, RecursionError) as error:
        newer = getattr(error, "hint", None)
        return Damaged(id=str(name), why=f"{error}; {newer}" if newer else str(error))


def require_sound(study: Study, name: object, *, host: str = "") -> None:
    """Raise ValueError for invalid values that the types do not exclude."""
    if host and not _HOST.fullmatch(host):
        raise ValueError("its host has no name that virtune gives")
    if study.id != name:
        raise ValueError(f"it says that it is study {study.id[:80]!r}")
    if not _ID.fullmatch(study.id):
        raise ValueError("its id is not one that virtune makes")
    datetime.fromisoformat(study.created)


def facts_of(text: object) -> str | None:
    """Return a host's stored facts, the JSON text of an object or empty; None where they are damaged."""
    if text == "":
        return ""
    try:
        return text if isinstance(text, str) and isinstance(json.loads(text), dict) else None
    except (ValueError, RecursionError):
        return None


def record_of(row: Any, study: Study, planned: Mapping[int, Trial]) -> TrialRecord:
    """Read an attempt; raises StoreError for one that is damaged.

    The study holds what the rows lack: which trials run in a new process. A search plans no trials beforehand, so for
    its trials only the row is known.
    """
    whole = (row.number, row.round, row.attempt)
    said = (row.arm, row.workload, row.ended, row.in_force, *(() if row.failure is None else (row.failure,)))
    sound = all(isinstance(one, int) and one >= 1 for one in whole) and all(isinstance(one, str) for one in said)
    # a result that was made elsewhere may not say when it ended
    if not sound or not (_is_time(row.ended) or (study.imported and row.ended == "")):
        raise StoreError(f"trial {row.number!r} of study {study.id} is damaged: a column holds something else")
    if row.arm not in {arm.name for arm in study.arms}:
        raise StoreError(f"trial {row.number} of study {study.id} is damaged: the study has no arm {row.arm!r}")
    if row.workload not in {one.name for one in study.workloads}:
        raise StoreError(f"trial {row.number} of study {study.id} is damaged: it has no workload {row.workload!r}")
    ran = Trial(number=row.number, round=row.round, arm=row.arm, workload=row.workload)
    asked = planned.get(ran.number, ran)
    return TrialRecord(
        trial=asked if replace(asked, restart=False) == ran else ran,
        attempt=row.attempt,
        ended=row.ended,
        in_force=load(InForce, row.in_force),
        measurement=None if row.measurement is None else load(Measurement, row.measurement),
        failure=row.failure,
    )


def _is_time(text: str) -> bool:
    try:
        return bool(datetime.fromisoformat(text))
    except ValueError:
        return False


def capture_of(name: object, content: Any) -> Capture:
    """Read a capture; raises StoreError for one that is damaged."""
    if not isinstance(name, str):
        raise StoreError("a capture in the store is damaged: its name is no text")
    return Capture(name=name, content=_unpacked(content))


@dataclass(frozen=True, slots=True, kw_only=True)
class PackedCapture:
    """A capture as the store keeps it: `stream` is its content packed by zlib."""

    name: str
    stream: bytes


def packer() -> "zlib._Compress":
    """Return what packs a capture piece by piece, as `packed` does at once."""
    return zlib.compressobj(6)  # fio's json+ shrinks to a fifth


def packed(content: bytes) -> bytes:
    """Return a capture's content as it is kept."""
    one = packer()
    return one.compress(content) + one.flush()


def _unpacked(content: bytes) -> bytes:
    """Decompress up to a limit, so that an untrusted store cannot fill the memory."""
    unpacker = zlib.decompressobj()
    try:
        text = unpacker.decompress(content, _MAX_CAPTURE_BYTES)
    except (zlib.error, TypeError) as error:
        raise StoreError(f"a capture in the store is damaged: {error}") from None
    if unpacker.unconsumed_tail:
        raise StoreError(f"a capture in the store is larger than {_MAX_CAPTURE_BYTES} bytes")
    if not unpacker.eof:
        raise StoreError("a capture in the store is damaged: it is cut short")
    return text


@cache
def _adapter(kind: type) -> TypeAdapter[Any]:
    return TypeAdapter(kind)


def dump(kind: type, value: object) -> str:
    """Write a value as JSON text."""
    return _adapter(kind).dump_json(value).decode()


def load(kind: type, text: str) -> Any:
    try:
        return _adapter(kind).validate_json(text)
    except ValidationError as error:
        raise StoreError(f"a record in the store is damaged: {error.errors()[0]['msg']}") from None
    except (ValueError, TypeError) as error:
        raise StoreError(f"a record in the store is damaged: {error}") from None


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


def results_of(key: str) -> sa.Select[Any]:
    """Select of every attempt the jobs of its load, the command line and the results."""
    name = CAPTURES.c.name
    return (
        sa.select(TRIALS.c.number, TRIALS.c.attempt, name, CAPTURES.c.content)
        .join(CAPTURES, CAPTURES.c.trial_id == TRIALS.c.id)
        .where(TRIALS.c.study_id == key)
        .where(name.like("job%.fio") | name.like("fio%.json") | (name == "command.txt"))
        .order_by(TRIALS.c.number, TRIALS.c.attempt)
        .execution_options(yield_per=100)
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


_ASKED = ("kind", "baseline", "arms", "workloads", "metric", "seconds", "simulated")
"""What a study asks, not when, where or how often: studies that differ in none of these are alike."""

_DIGEST = 32


def question_of(text: str) -> str:
    """Return a digest of what a study asks. Raises ValueError or TypeError for what is not the JSON of a study."""
    plain = json.loads(text)
    asked = json.dumps({one: plain[one] for one in _ASKED if one in plain})
    return hashlib.sha256(asked.encode()).hexdigest()[:_DIGEST]


def finished_rows(*conditions: sa.ColumnElement[bool], known: bool) -> sa.Select[Any]:
    """Select finished studies, the newest first: with the text of each whose digest is not known, or none is."""
    where = (STUDIES.c.finished == 1, *conditions)
    if not known:
        columns = (STUDIES.c.id, STUDIES.c.created, sa.null().label("question"), STUDIES.c.study)
        return sa.select(*columns).where(*where).order_by(NEWEST_FIRST)
    text = sa.case((SUMMARIES.c.question.is_(None), STUDIES.c.study)).label("study")
    return (
        sa.select(STUDIES.c.id, STUDIES.c.created, SUMMARIES.c.question, text)
        .outerjoin(SUMMARIES, SUMMARIES.c.study_id == STUDIES.c.id)
        .where(*where)
        .order_by(NEWEST_FIRST)
    )


def finished_of(rows: Iterable[Any]) -> tuple[list[FinishedStudy], dict[str, str]]:
    """Read such rows; a damaged one is left out. Also returns, by the studies' keys, the digests that are new."""
    found, new = [], {}
    for row in rows:
        try:
            if not (isinstance(row.id, str) and isinstance(row.created, str)):
                continue
            question = row.question
            if not isinstance(question, str):
                question = new[row.id] = question_of(row.study)
        except (ValueError, TypeError, RecursionError):
            continue
        host, name = own_id(row.id)
        found.append(FinishedStudy(host=host, id=name, created=row.created, question=question))
    return found, new


def put_questions(db: sa.Connection, backend: Backend, questions: Mapping[str, str]) -> None:
    """Keep the digests of studies that have none."""
    empty = {"method": "", "attempts": 0, "summary": ""}
    rows = [{"study_id": key, "question": digest, **empty} for key, digest in questions.items()]
    if rows:
        db.execute(backend.put_new(SUMMARIES), rows)


def put_summary(db: sa.Connection, backend: Backend, row: Mapping[str, Any]) -> None:
    """Keep the summary of a study in the place of an older one."""
    db.execute(backend.put(SUMMARIES, row, ("study_id",)))


def forget_summary(db: sa.Connection, key: str) -> None:
    """Forget what was worked out of a study that is replaced."""
    db.execute(SUMMARIES.delete().where(SUMMARIES.c.study_id == key))


def summaries_of(db: sa.Connection, keys: Sequence[str], *, method: str) -> dict[str, str]:
    """Return the summaries of studies by their keys: those that this method made of all attempts there are."""
    counts = (
        sa.select(TRIALS.c.study_id, sa.func.count().label("attempts"))
        .where(TRIALS.c.study_id.in_(keys))
        .group_by(TRIALS.c.study_id)
        .subquery()
    )
    asked = (
        sa.select(SUMMARIES.c.study_id, SUMMARIES.c.summary)
        .join(counts, counts.c.study_id == SUMMARIES.c.study_id)
        .where(SUMMARIES.c.method == method, SUMMARIES.c.attempts == counts.c.attempts)
    )
    return {row.study_id: row.summary for row in db.execute(asked) if isinstance(row.summary, str)}
