# SPDX-License-Identifier: Apache-2.0
"""One SQLite file holds all studies, crash-safely: a trial is in it whole or not at all.

Write-ahead log with `synchronous=FULL`: what `add_trial` returned from is on the disk. Raw captures are kept beside
the measurements, which carry the number of the method that derived them, so that a better method can derive again.
"""

import contextlib
import zlib
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from functools import cache
from pathlib import Path
from types import TracebackType
from typing import Any, Self

import sqlalchemy as sa
from pydantic import TypeAdapter, ValidationError
from sqlalchemy.exc import SQLAlchemyError

from virtune.model.errors import PlanError, StoreError, UsageError
from virtune.model.evidence import Capture, Damaged, InForce, Listed, StudyRecord, TrialRecord
from virtune.model.measurement import METHOD, Measurement
from virtune.model.study import Study, Trial
from virtune.plan.codec import study_from_json, study_to_json
from virtune.store.schema import CAPTURES, FORMAT, MEASUREMENTS, METADATA, STUDIES, TRIALS

_MAX_CAPTURE_BYTES = 256 * 1024**2


class Store:
    """Studies, trials, captures and measurements in one SQLite file. Use as a context manager."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self._engine = sa.create_engine(f"sqlite:///{path}")
        sa.event.listen(self._engine, "connect", _pragmas)

    def __enter__(self) -> Self:
        try:
            self.path.parent.mkdir(parents=True, exist_ok=True)
            with self._transaction() as db:
                found = db.execute(sa.text("PRAGMA user_version")).scalar_one()
                if found > FORMAT:
                    raise StoreError(f"{self.path} was written by a newer virtune", hint="use that one, or `--store`")
                if found < FORMAT:
                    self._make(db)
        except OSError as error:
            hint = "`--store FILE` puts it elsewhere"
            raise StoreError(f"cannot make {self.path.parent}: {error.strerror}", hint=hint) from None
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._engine.dispose()

    def _make(self, db: sa.Connection) -> None:
        tables = {*sa.inspect(db).get_table_names()}
        if tables and tables.isdisjoint(METADATA.tables):
            hint = "`--store FILE` names another file"
            raise StoreError(f"{self.path} is a database of another program", hint=hint)
        db.execute(sa.text("PRAGMA journal_mode=WAL"))  # the file itself keeps this
        METADATA.create_all(db)
        db.execute(sa.text(f"PRAGMA user_version = {FORMAT}"))

    def add_study(self, study: Study, *, facts: str) -> None:
        """Keep a study before its first trial. `facts` is the JSON text of the host's facts."""
        with self._transaction() as db:
            _put_study(db, study, facts=facts, finished=False)

    def replace_study(self, study: Study) -> None:
        """Keep what became of a study under the same id, whole or not at all: its trials stay as they are."""
        with self._transaction() as db:
            db.execute(STUDIES.update().where(STUDIES.c.id == study.id).values(study=study_to_json(study)))

    def finish(self, study_id: str) -> None:
        """Mark a study as finished: nothing is left to run."""
        with self._transaction() as db:
            db.execute(STUDIES.update().where(STUDIES.c.id == study_id).values(finished=1))

    def add_trial(self, study_id: str, record: TrialRecord, captures: Sequence[Capture]) -> None:
        """Keep a trial that is over. When this returns, it is on the disk."""
        with self._transaction() as db:
            _put_trial(db, study_id, record, captures)

    def add_whole(self, record: StudyRecord, captures: Sequence[Sequence[Capture]]) -> None:
        """Keep a study that is over, with the captures of each of its trials: all of it or nothing."""
        study = record.study
        with self._transaction() as db:
            _put_study(db, study, facts=record.facts, finished=record.finished)
            for trial, mine in zip(record.trials, captures, strict=True):
                _put_trial(db, study.id, trial, mine)

    def add_measurement(self, study_id: str, number: int, measurement: Measurement) -> None:
        """Keep what a newer method derived from a trial's captures, beside what older methods had derived."""
        with self._transaction() as db:
            key: int = db.execute(_last_attempt(study_id, number)).scalar_one()
            _put_measurement(db, key, measurement)

    def list(self) -> tuple[Listed | Damaged, ...]:
        """Return all studies, the newest first; one that is damaged spoils none of the others."""
        done = sa.func.count(sa.distinct(sa.case((TRIALS.c.failure.is_(None), TRIALS.c.number))))
        failed = sa.func.count(sa.case((TRIALS.c.failure.is_not(None), TRIALS.c.id)))
        query = (
            sa.select(STUDIES.c.id, STUDIES.c.study, STUDIES.c.finished, done, failed)
            .outerjoin(TRIALS, TRIALS.c.study_id == STUDIES.c.id)
            .group_by(STUDIES.c.id)
            .order_by(sa.literal_column("studies.rowid").desc())
        )
        with self._transaction() as db:
            rows = db.execute(query).all()
        return tuple(_listed(*row) for row in rows)

    def find(self, name: str) -> str:
        """Return the id of the study that `name` means: an id, the beginning of one, or `last`."""
        with self._transaction() as db:
            ids = [
                row.id
                for row in db.execute(sa.select(STUDIES.c.id).order_by(sa.literal_column("studies.rowid").desc()))
            ]
        if name == "last" and ids:
            return str(ids[0])
        fitting = [found for found in ids if found == name] or [
            found for found in ids if name and found.startswith(name)
        ]
        if len(fitting) == 1:
            return str(fitting[0])
        if fitting:
            raise UsageError(
                f"{name!r} fits {len(fitting)} studies", hint=f"write more of it: {', '.join(fitting[:5])}"
            )
        raise UsageError(f"no study {name!r} in {self.path}", hint="`virtune list` shows all studies")

    def get(self, study_id: str) -> StudyRecord:
        """Return a study with its trials; each with the measurement of the newest method that is kept."""
        with self._transaction() as db:
            row = db.execute(sa.select(STUDIES).where(STUDIES.c.id == study_id)).one_or_none()
            if row is None:
                raise StoreError(f"no study {study_id!r} in {self.path}")
            trials = db.execute(_trials_of(study_id)).all()
        study = _listed(row.id, row.study, row.finished, 0, 0)
        if isinstance(study, Damaged):
            hint = "`virtune list` shows the others"
            raise StoreError(f"study {study_id} in {self.path} is damaged: {study.why}", hint=hint)
        planned = {one.number: one for one in study.study.trials}
        attempts = tuple(_record(trial, planned) for trial in trials)
        last = {record.trial.number: record for record in attempts}
        return StudyRecord(
            study=study.study,
            facts=row.facts,
            finished=bool(row.finished),
            trials=tuple(last.values()),
            attempts=attempts,
        )

    def captures(self, study_id: str, number: int) -> tuple[Capture, ...]:
        """Return the raw evidence of a trial's last attempt."""
        with self._transaction() as db:
            key = _last_attempt(study_id, number).scalar_subquery()
            rows = db.execute(sa.select(CAPTURES).where(CAPTURES.c.trial_id == key).order_by(CAPTURES.c.name)).all()
        return tuple(Capture(name=row.name, content=_unpacked(row.content)) for row in rows)

    @contextlib.contextmanager
    def _transaction(self) -> Iterator[sa.Connection]:
        try:
            with self._engine.begin() as connection:
                yield connection
        except SQLAlchemyError as error:
            reason = str(getattr(error, "orig", None) or error).splitlines()[0]
            hint = (
                "free some room, or use `--store FILE`" if "full" in reason else "`--store FILE` names another file"
            )
            raise StoreError(f"cannot use the store {self.path}: {reason}", hint=hint) from None


def _pragmas(connection: Any, _: object) -> None:
    cursor = connection.cursor()
    for pragma in ("busy_timeout=10000", "synchronous=FULL", "foreign_keys=ON"):
        cursor.execute(f"PRAGMA {pragma}")
    cursor.close()


def _trials_of(study_id: str) -> sa.Select[Any]:
    """Every attempt in order, so that a later one replaces an earlier one, with the newest method's measurement."""
    newest = (
        sa.select(MEASUREMENTS.c.trial_id, sa.func.max(MEASUREMENTS.c.method).label("method"))
        .where(MEASUREMENTS.c.method <= METHOD)
        .group_by(MEASUREMENTS.c.trial_id)
        .subquery()
    )
    return (
        sa.select(TRIALS, MEASUREMENTS.c.measurement)
        .outerjoin(newest, newest.c.trial_id == TRIALS.c.id)
        .outerjoin(
            MEASUREMENTS,
            sa.and_(MEASUREMENTS.c.trial_id == newest.c.trial_id, MEASUREMENTS.c.method == newest.c.method),
        )
        .where(TRIALS.c.study_id == study_id)
        .order_by(TRIALS.c.number, TRIALS.c.attempt)
    )


def _last_attempt(study_id: str, number: int) -> sa.Select[int]:
    wanted = (TRIALS.c.study_id == study_id, TRIALS.c.number == number)
    return sa.select(TRIALS.c.id).where(*wanted).order_by(TRIALS.c.attempt.desc()).limit(1)


def _listed(name: object, text: object, finished: object, done: int, failed: int) -> Listed | Damaged:
    """Read a study that somebody else may have written to: whatever is in its row, it is read or called damaged."""
    try:
        if not isinstance(text, str):
            return Damaged(id=str(name), why=f"it is kept as {type(text).__name__}, not as text")
        return Listed(study=study_from_json(text), finished=bool(finished), done=done, failed=failed)
    except (PlanError, ValueError, RecursionError) as error:
        newer = getattr(error, "hint", None)
        return Damaged(id=str(name), why=f"{error}; {newer}" if newer else str(error))


def _put_study(db: sa.Connection, study: Study, *, facts: str, finished: bool) -> None:
    row = {"id": study.id, "created": study.created, "kind": study.kind, "study": study_to_json(study)}
    db.execute(STUDIES.insert().values(**row, facts=facts, finished=int(finished)))


def _put_trial(db: sa.Connection, study_id: str, record: TrialRecord, captures: Sequence[Capture]) -> None:
    trial = record.trial
    attempt = db.execute(
        sa.select(sa.func.count())
        .select_from(TRIALS)
        .where(TRIALS.c.study_id == study_id, TRIALS.c.number == trial.number)
    ).scalar_one()
    inserted = db.execute(
        TRIALS.insert().values(
            study_id=study_id,
            number=trial.number,
            attempt=attempt + 1,
            round=trial.round,
            arm=trial.arm,
            workload=trial.workload,
            ended=record.ended,
            failure=record.failure,
            in_force=_dump(InForce, record.in_force),
        )
    )
    assert inserted.inserted_primary_key is not None  # noqa: S101 - an insert of one row has one
    key: int = inserted.inserted_primary_key[0]
    for capture in captures:
        content = zlib.compress(capture.content, 6)
        db.execute(CAPTURES.insert().values(trial_id=key, name=capture.name, content=content))
    if record.measurement is not None:
        _put_measurement(db, key, record.measurement)


def _put_measurement(db: sa.Connection, key: int, measurement: Measurement) -> None:
    row = {"trial_id": key, "method": measurement.method, "measurement": _dump(Measurement, measurement)}
    db.execute(MEASUREMENTS.insert().prefix_with("OR REPLACE", dialect="sqlite").values(**row))


def _record(row: Any, planned: Mapping[int, Trial]) -> TrialRecord:
    """Read an attempt. A study knows more of its trials than the rows do: which were to be in a process of their own.

    A search plans none beforehand, so of its trials nothing is known beside the row.
    """
    ran = Trial(number=row.number, round=row.round, arm=row.arm, workload=row.workload)
    asked = planned.get(ran.number, ran)
    return TrialRecord(
        trial=asked if replace(asked, restart=False) == ran else ran,
        attempt=row.attempt,
        ended=row.ended,
        in_force=_load(InForce, row.in_force),
        measurement=None if row.measurement is None else _load(Measurement, row.measurement),
        failure=row.failure,
    )


def _unpacked(content: bytes) -> bytes:
    """Unpack with a bound, so that a store from elsewhere cannot fill the memory."""
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


def _dump(kind: type, value: object) -> str:
    return _adapter(kind).dump_json(value).decode()


def _load(kind: type, text: str) -> Any:
    try:
        return _adapter(kind).validate_json(text)
    except ValidationError as error:
        raise StoreError(f"a record in the store is damaged: {error.errors()[0]['msg']}") from None
