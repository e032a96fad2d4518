# SPDX-License-Identifier: Apache-2.0
"""One SQLite file holds all studies, crash-safely: a trial is in it whole or not at all.

Write-ahead log with `synchronous=FULL`: a trial is on the disk when `add_trial` returns. Raw captures are kept beside
the measurements, which carry the number of the method that derived them, so that a newer method can derive them
again.
"""

import contextlib
import os
import shutil
import sqlite3
import zlib
from collections.abc import Iterator, Sequence
from pathlib import Path
from types import TracebackType
from typing import Any, Self
from urllib.parse import quote

import sqlalchemy as sa
from sqlalchemy.exc import SQLAlchemyError

from virtune.model.errors import ReadOnlyStoreError, StoreError, UsageError
from virtune.model.evidence import Capture, Damaged, InForce, Listed, StudiesPage, StudyRecord, TrialRecord
from virtune.model.measurement import METHOD, Measurement
from virtune.model.study import Study
from virtune.plan.codec import study_to_json
from virtune.store.rows import capture_of, dump, facts_of, listed, record_of, text_of
from virtune.store.schema import CAPTURES, FORMAT, MEASUREMENTS, METADATA, STUDIES, TRIALS
from virtune.store.views import make_views

_ELSEWHERE = "`--store FILE` names another file"

_ROOM_BYTES = 1024**2
"""With less free space than this, a disk error is reported as a full disk."""


class Store:
    """Studies, trials, captures and measurements in one SQLite file. Use as a context manager.

    With `reading` nothing is created: the file must exist and be a store, and may be read-only.
    """

    def __init__(self, path: Path, *, reading: bool = False) -> None:
        self.path, self._reading = path, reading
        self.writable = True  # unless it is another user's, or on a medium that is read-only
        self._engine = _engine(path, "mode=rw" if reading else "mode=rwc")

    def __enter__(self) -> Self:
        try:
            if not self._reading:
                self.path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
                with contextlib.suppress(OSError):
                    # studies hold facts on the host, its paths and VMs that are private; SQLite creates files as 0644
                    os.close(os.open(self.path, os.O_RDWR | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o600))
            found = self._format()
        except OSError as error:
            hint = "`--store FILE` puts it elsewhere"
            raise StoreError(f"cannot make {self.path.parent}: {error.strerror}", hint=hint) from None
        if found > FORMAT:
            raise StoreError(f"{self.path} was written by a newer virtune", hint="use that one, or `--store`")
        if found < FORMAT and self._reading:
            raise StoreError(f"{self.path} is no store of virtune's", hint=_ELSEWHERE)
        if not self._reading:
            with self._transaction() as db:
                self._require_ours(db, whole=found == FORMAT)
                if found < FORMAT:
                    self._make(db)
                make_views(db)
        return self

    def _format(self) -> int:
        """Open the file for writing or reading and return the number of its format."""
        if not self._reading:
            return self._version()
        if os.access(self.path, os.W_OK):
            with contextlib.suppress(ReadOnlyStoreError):
                return self._version()
        self.writable = False
        self._open("mode=ro")
        with contextlib.suppress(ReadOnlyStoreError):
            return self._version()
        # without write access, SQLite cannot read a log that was not checkpointed, and would ignore it
        log = self.path.with_name(f"{self.path.name}-wal")
        if _size(log):
            hint = f"copy {self.path} and {log.name} to a directory of your own, and name that copy with `--store`"
            raise StoreError(f"the store {self.path} may only be read, and its last trials cannot be", hint=hint)
        self._open("mode=ro&immutable=1")
        return self._version()

    def _open(self, how: str) -> None:
        self._engine.dispose()
        self._engine = _engine(self.path, how)

    def _version(self) -> int:
        with self._transaction() as db:
            db.execute(sa.text("SELECT count(*) FROM sqlite_master")).all()
            return int(db.execute(sa.text("PRAGMA user_version")).scalar_one())

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._engine.dispose()

    def _require_ours(self, db: sa.Connection, *, whole: bool) -> None:
        """Raise StoreError for a database of another program, even with the same format number and table names. Only
        a new store, or one that a killed virtune left, is not `whole`.
        """
        seen = sa.inspect(db)
        names = {*seen.get_table_names()}
        ours = METADATA.tables.keys() <= names if whole else names <= METADATA.tables.keys()
        for name in names & METADATA.tables.keys():
            columns = {one["name"] for one in seen.get_columns(name)}
            ours = ours and {*METADATA.tables[name].columns.keys()} <= columns
        if not ours:
            raise StoreError(f"{self.path} is a database of another program", hint=_ELSEWHERE)

    def _make(self, db: sa.Connection) -> None:
        db.execute(sa.text("PRAGMA journal_mode=WAL"))  # the file itself keeps this
        METADATA.create_all(db)
        db.execute(sa.text(f"PRAGMA user_version = {FORMAT}"))

    def add_study(self, study: Study, *, facts: str) -> None:
        """Store a study before its first trial. `facts` is the JSON text of the host's facts."""
        with self._transaction() as db:
            _put_study(db, study, facts=facts, finished=False)

    def replace_study(self, study: Study) -> None:
        """Replace a study under the same id atomically; its trials stay as they are."""
        with self._transaction() as db:
            db.execute(STUDIES.update().where(STUDIES.c.id == study.id).values(study=study_to_json(study)))

    def finish(self, study_id: str) -> None:
        """Mark a study as finished: nothing is left to run."""
        with self._transaction() as db:
            db.execute(STUDIES.update().where(STUDIES.c.id == study_id).values(finished=1))

    def add_trial(self, study_id: str, record: TrialRecord, captures: Sequence[Capture]) -> None:
        """Store a finished trial. When this returns, it is on the disk."""
        with self._transaction() as db:
            _put_trial(db, study_id, record, captures)

    def add_whole(self, record: StudyRecord, captures: Sequence[Sequence[Capture]]) -> None:
        """Store a finished study with the captures of all its trials, atomically."""
        study = record.study
        with self._transaction() as db:
            _put_study(db, study, facts=record.facts, finished=record.finished)
            for trial, mine in zip(record.trials, captures, strict=True):
                _put_trial(db, study.id, trial, mine)

    def add_measurement(self, study_id: str, number: int, measurement: Measurement, *, attempt: int) -> None:
        """Store the measurement that a newer method derived from an attempt's captures, besides the older ones."""
        with self._transaction() as db:
            key: int = db.execute(_attempt(study_id, number, attempt)).scalar_one()
            _put_measurement(db, key, measurement)

    def list(self) -> tuple[Listed | Damaged, ...]:
        """Return all studies, the newest first; a damaged one is marked, and the others are still read."""
        query = (
            sa.select(STUDIES.c.id, STUDIES.c.study, STUDIES.c.finished, *_DONE_AND_FAILED)
            .outerjoin(TRIALS, TRIALS.c.study_id == STUDIES.c.id)
            .group_by(STUDIES.c.id)
            .order_by(sa.literal_column("studies.rowid").desc())
        )
        with self._transaction() as db:
            rows = db.execute(query).all()
        return tuple(listed(*row) for row in rows)

    def page(self, *, words: str, kind: str, limit: int, offset: int) -> StudiesPage:
        """Return the newest studies from `offset` on that have these words in them and are of that kind; empty
        words and an empty kind fit all. Reads no more studies than it returns.
        """
        fits = [STUDIES.c.kind == kind] if kind else []
        if words:
            # a study's text holds its id, title, arms and workloads; LIKE reads it faster than lower() writes it anew
            fits.append(STUDIES.c.study.contains(words, autoescape=True))
        fitting = sa.select(STUDIES.c.id).where(*fits).order_by(sa.literal_column("studies.rowid").desc())
        with self._transaction() as db:
            every = db.execute(fitting).scalars().all()
            kinds = db.execute(sa.select(STUDIES.c.kind).distinct().order_by(STUDIES.c.kind)).scalars().all()
            ids = every[offset : offset + limit]
            chosen = sa.select(STUDIES.c.id, STUDIES.c.study, STUDIES.c.finished).where(STUDIES.c.id.in_(ids))
            rows = {row.id: row for row in db.execute(chosen)}
            counts = {row[0]: row[1:] for row in db.execute(_counts(ids))}
        return StudiesPage(
            rows=tuple(listed(*rows[one], *counts.get(one, (0, 0))) for one in ids if one in rows),
            total=len(every),
            kinds=tuple(one for one in kinds if isinstance(one, str)),
        )

    def find(self, name: str) -> str:
        """Return the id of the study that `name` means: an id, the beginning of one, or `last`."""
        with self._transaction() as db:
            rows = db.execute(sa.select(STUDIES.c.id).order_by(sa.literal_column("studies.rowid").desc())).all()
        ids = [row.id for row in rows if isinstance(row.id, str)]
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

    def has(self, study_id: str) -> bool:
        """Whether there is a study of this id, whole or damaged."""
        with self._transaction() as db:
            return db.execute(sa.select(STUDIES.c.id).where(STUDIES.c.id == study_id)).first() is not None

    def get(self, study_id: str) -> StudyRecord:
        """Return a study with its trials; each with the measurement of the newest method that is kept."""
        with self._transaction() as db:
            row = db.execute(sa.select(STUDIES).where(STUDIES.c.id == study_id)).one_or_none()
            if row is None:
                raise StoreError(f"no study {study_id!r} in {self.path}")
            trials = db.execute(_trials_of(study_id)).all()
        study, facts = listed(row.id, row.study, row.finished, 0, 0), facts_of(row.facts)
        if isinstance(study, Damaged):
            hint = "`virtune list` shows the others"
            raise StoreError(f"study {study_id} in {self.path} is damaged: {study.why}", hint=hint)
        planned = {one.number: one for one in study.study.trials}
        attempts = tuple(record_of(trial, study.study, planned) for trial in trials)
        last = {record.trial.number: record for record in attempts}
        return StudyRecord(
            study=study.study,
            facts=facts or "",
            facts_damaged=facts is None,
            finished=bool(row.finished),
            trials=tuple(last.values()),
            attempts=attempts,
        )

    def moments(self, study_id: str) -> tuple[str, tuple[tuple[str, str], ...]]:
        """Return a study's stored facts, and for every attempt in order its arm and its end."""
        where = TRIALS.c.study_id == study_id
        with self._transaction() as db:
            facts = db.execute(sa.select(STUDIES.c.facts).where(STUDIES.c.id == study_id)).scalar_one_or_none()
            rows = db.execute(sa.select(TRIALS.c.arm, TRIALS.c.ended).where(where).order_by(TRIALS.c.id)).all()
        return str(facts), tuple((str(row.arm), str(row.ended)) for row in rows)

    def captures(self, study_id: str, number: int, *, attempt: int | None = None) -> tuple[Capture, ...]:
        """Return the raw evidence of one attempt at a trial, the last one by default."""
        with self._transaction() as db:
            key = _attempt(study_id, number, attempt).scalar_subquery()
            rows = db.execute(sa.select(CAPTURES).where(CAPTURES.c.trial_id == key).order_by(CAPTURES.c.name)).all()
        return tuple(capture_of(row.name, row.content) for row in rows)

    @contextlib.contextmanager
    def _transaction(self) -> Iterator[sa.Connection]:
        try:
            with self._engine.begin() as connection:
                yield connection
        except UnicodeDecodeError as error:  # SQLite quotes the damaged text, and Python cannot decode the quotation
            raise StoreError(f"the store {self.path} is damaged: {error.reason}", hint=_ELSEWHERE) from None
        except SQLAlchemyError as error:
            raise self._explained(str(getattr(error, "orig", None) or error).splitlines()[0]) from None

    def _explained(self, reason: str) -> StoreError:
        """Translate SQLite's error into a plain sentence."""
        place = self.path.parent
        with contextlib.suppress(OSError):
            if "full" in reason or ("disk I/O" in reason and shutil.disk_usage(place).free < _ROOM_BYTES):
                hint = "free some room, or use `--store FILE`"
                return StoreError(f"cannot write to the store {self.path}: no space left on {place}", hint=hint)
        if "readonly" in reason or "unable to open" in reason:
            if self._reading:
                return ReadOnlyStoreError(f"cannot open the store {self.path}", hint=_ELSEWHERE)
            said = f"cannot write to the store {self.path}: it or its directory may only be read"
            return ReadOnlyStoreError(said, hint=_ELSEWHERE)
        return StoreError(f"cannot use the store {self.path}: {reason}", hint=_ELSEWHERE)


_DONE_AND_FAILED = (
    sa.func.count(sa.distinct(sa.case((TRIALS.c.failure.is_(None), TRIALS.c.number)))),
    sa.func.count(sa.case((TRIALS.c.failure.is_not(None), TRIALS.c.id))),
)


def _counts(ids: Sequence[str]) -> sa.Select[Any]:
    """Count of these studies the trials that are done and the attempts that failed."""
    wanted = TRIALS.c.study_id.in_(ids)
    return sa.select(TRIALS.c.study_id, *_DONE_AND_FAILED).where(wanted).group_by(TRIALS.c.study_id)


def _engine(path: Path, how: str) -> sa.Engine:
    """Return an engine for a file; `how` is what SQLite's URI says after the name."""
    uri = f"file:{quote(str(path.absolute()))}?{how}"  # a name may hold `?`, `#` and `%`
    engine = sa.create_engine("sqlite:///", creator=lambda: sqlite3.connect(uri, uri=True), poolclass=sa.QueuePool)
    sa.event.listen(engine, "connect", _prepare)
    return engine


def _prepare(connection: Any, _: object) -> None:
    connection.text_factory = text_of
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


def _attempt(study_id: str, number: int, attempt: int | None) -> sa.Select[int]:
    wanted = [TRIALS.c.study_id == study_id, TRIALS.c.number == number]
    wanted += [] if attempt is None else [TRIALS.c.attempt == attempt]
    return sa.select(TRIALS.c.id).where(*wanted).order_by(TRIALS.c.attempt.desc()).limit(1)


def _size(path: Path) -> int:
    try:
        return path.stat().st_size
    except OSError:
        return 0


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
            in_force=dump(InForce, record.in_force),
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
    row = {"trial_id": key, "method": measurement.method, "measurement": dump(Measurement, measurement)}
    db.execute(MEASUREMENTS.insert().prefix_with("OR REPLACE", dialect="sqlite").values(**row))
