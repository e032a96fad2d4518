# SPDX-License-Identifier: Apache-2.0
"""All studies with their evidence, crash-safely in one database: a trial is in it whole or not at all.

A trial is on the disk when `add_trial` returns. Raw captures are kept beside the measurements, which carry the number
of the method that derived them, so that a newer method can derive them again. Studies of other hosts are kept under
`HOST/STUDY`, since two hosts may have studies of one id; an own study is kept under its id.
"""

import contextlib
import itertools
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from types import TracebackType
from typing import Any, Self

import sqlalchemy as sa
from sqlalchemy.exc import SQLAlchemyError

from virtune.model.errors import DatabaseUrl, StoreError, StorePlace, UsageError
from virtune.model.evidence import (
    Capture,
    Damaged,
    FinishedStudy,
    Listed,
    StudiesPage,
    StudyMethods,
    StudyRecord,
    TrialRecord,
)
from virtune.model.measurement import Measurement
from virtune.model.study import Study
from virtune.plan.codec import study_to_json
from virtune.store.queries import (
    CAPTURES,
    FORMAT,
    MEASUREMENTS,
    NEWEST_FIRST,
    ORDERS,
    SEPARATOR,
    STUDIES,
    SUMMARIES,
    TRIALS,
    Backend,
    PackedCapture,
    attempt_of,
    by_method,
    capture_of,
    ended_of,
    facts_of,
    finished_of,
    finished_rows,
    is_ours,
    listed,
    listed_rows,
    own_id,
    put_measurement,
    put_study,
    put_trial,
    question_of,
    record_of,
    results_of,
    summaries_of,
    trials_of,
)

_APART = "`--store FILE` keeps them apart"


class Store:
    """Studies, trials, captures and measurements in one database. Use as a context manager.

    With `reading` nothing is created: a store must be there, and may be read-only. An id without a host means a study
    of `host`; empty is this host.
    """

    def __init__(self, place: StorePlace, *, reading: bool = False, host: str = "") -> None:
        self.place, self.host, self._reading = place, host, reading
        self._backend: Backend
        if isinstance(place, DatabaseUrl):
            from virtune.store.postgres import Postgres

            self._backend = Postgres(place)
        else:
            from virtune.store.sqlite import SqliteFile

            self._backend = SqliteFile(place)
        self.writable = True  # unless it is another user's, or on a medium that is read-only
        self._summarises = True  # unless it is only read, by one who may not

    def __enter__(self) -> Self:
        try:
            self._open()
        except BaseException:
            self._backend.engine.dispose()
            raise
        return self

    def _open(self) -> None:
        found = self._backend.open(reading=self._reading)
        self.writable = self.writable and self._backend.writable
        self._require_known(found)
        if not found and self._reading:
            raise StoreError(f"{self._backend.name} is no store of virtune's", hint=self._backend.hint)
        self._summarises = not self._reading or self._backend.summarises
        if not self._reading:
            self._prepare()
            self._backend.settle()

    def _prepare(self) -> None:
        """Make what is missing. A killed virtune leaves the store as it was."""
        with self._transaction() as db:  # mostly nothing is missing, and nobody is waited for
            if self._format(db) == FORMAT and not self._backend.changed_views(db):
                return
        with self._transaction(writing=True) as db:
            self._backend.alone(db)
            self._make(db, self._format(db))

    def _format(self, db: sa.Connection) -> int:
        found = self._backend.format_of(db)
        if not is_ours(self._backend.tables(db), format_number=found):
            raise StoreError(f"{self._backend.name} is a database of another program", hint=self._backend.hint)
        self._require_known(found)
        return found

    def _require_known(self, found: int) -> None:
        if found > FORMAT:
            raise StoreError(
                f"{self._backend.name} was written by a newer virtune", hint="use that one, or `--store`"
            )

    def _make(self, db: sa.Connection, found: int) -> None:
        if not found:
            self._backend.make(db)
            self._backend.set_format(db, FORMAT)
        self._backend.make_views(db)

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._backend.engine.dispose()

    def add_study(self, study: Study, *, facts: str) -> None:
        """Store a study before its first trial. `facts` is the JSON text of the host's facts."""
        with self._transaction(writing=True) as db:
            put_study(db, self._key(study.id), study, facts=facts, finished=False)

    def replace_study(self, study: Study) -> None:
        """Replace a study under the same id atomically; its trials stay as they are."""
        with self._transaction(writing=True) as db:
            self._replace(db, study)

    def label(self, study_id: str, change: Callable[[Study], Study]) -> Study:
        """Give a finished study another title, note or tags, and return it; whoever does so meanwhile is waited for.

        Raises UsageError while trials may be added, since whoever adds them writes the study anew.
        """
        key = self._key(study_id)
        with self._transaction(writing=True) as db:
            self._backend.alone(db, key)
            row = db.execute(sa.select(STUDIES).where(STUDIES.c.id == key)).one()
            found = listed(row.id, row.study, row.finished, 0, 0)
            if isinstance(found, Damaged):
                raise StoreError(f"study {study_id} in {self._backend.name} is damaged: {found.why}")
            if not found.finished:
                raise UsageError(f"study {study_id} is not finished", hint=f"`virtune compare resume {study_id}`")
            changed = change(found.study)
            self._replace(db, changed)
        return changed

    def _replace(self, db: sa.Connection, study: Study) -> None:
        key = self._key(study.id)
        db.execute(STUDIES.update().where(STUDIES.c.id == key).values(study=study_to_json(study)))
        if self._summarises:
            db.execute(SUMMARIES.delete().where(SUMMARIES.c.study_id == key))  # what was worked out of the old one

    def finish(self, study_id: str) -> None:
        """Mark a study as finished: nothing is left to run."""
        with self._transaction(writing=True) as db:
            db.execute(STUDIES.update().where(STUDIES.c.id == self._key(study_id)).values(finished=1))

    def add_trial(self, study_id: str, record: TrialRecord, captures: Sequence[Capture]) -> bool:
        """Store an attempt at a trial and return whether it was new: one that is there is left as it is. When this
        returns, it is on the disk.
        """
        with self._transaction(writing=True) as db:
            return put_trial(db, self._backend, self._key(study_id), record, captures)

    def merge(
        self,
        study: Study,
        attempts: Iterable[tuple[TrialRecord, Iterable[Capture | PackedCapture]]],
        *,
        facts: str,
        finished: bool,
    ) -> tuple[int, bool]:
        """Store what is not there yet of a study, all of it or nothing; return how many attempts were new, and
        whether the study was. Whoever else adds to it meanwhile is waited for. Of an attempt that is there the
        captures are not asked for.

        Raises StoreError where another study has this id, or an attempt was made twice, as when a study goes on in
        two places.
        """
        key = self._key(study.id)
        with self._transaction(writing=True) as db:
            self._backend.alone(db, key)
            before = db.execute(sa.select(STUDIES).where(STUDIES.c.id == key)).one_or_none()
            if before is None:
                put_study(db, key, study, facts=facts, finished=finished)
            elif (before.created, before.facts) != (study.created, facts):
                raise StoreError(f"the store has another study {study.id}", hint=_APART)
            there = ended_of(db, key)
            new = 0
            for record, captures in attempts:
                place = (record.trial.number, record.attempt)
                if place not in there:
                    new += put_trial(db, self._backend, key, record, captures)
                elif there[place] != record.ended:
                    said = (
                        f"the store has another attempt {record.attempt} at trial {record.trial.number} of {study.id}"
                    )
                    raise StoreError(said, hint=_APART)
            if before is not None and (new or (finished and not before.finished)):
                # a search, and loads from a measured saturation, come with its trials
                self._replace(db, study)
                if finished:
                    db.execute(STUDIES.update().where(STUDIES.c.id == key).values(finished=1))
        return new, before is None

    def add_whole(self, record: StudyRecord, captures: Sequence[Sequence[Capture]]) -> None:
        """Store a finished study with the captures of all its trials, atomically."""
        study, key = record.study, self._key(record.study.id)
        with self._transaction(writing=True) as db:
            put_study(db, key, study, facts=record.facts, finished=record.finished)
            for trial, mine in zip(record.trials, captures, strict=True):
                put_trial(db, self._backend, key, trial, mine)

    def add_measurement(self, study_id: str, number: int, measurement: Measurement, *, attempt: int) -> None:
        """Store the measurement that a newer method derived from an attempt's captures, besides the older ones."""
        with self._transaction(writing=True) as db:
            row: int = db.execute(attempt_of(self._key(study_id), number, attempt)).scalar_one()
            put_measurement(db, self._backend, row, measurement)

    def list(self, *, own: bool = False) -> tuple[Listed | Damaged, ...]:
        """Return all studies, or only those of `host`, the newest first; a damaged one is marked, and the others are
        still read.
        """
        with self._transaction() as db:
            rows = db.execute(listed_rows(*self._of_host(only=own))).all()
        return tuple(listed(*row) for row in rows)

    def finished(self, kinds: Sequence[str], *, own: bool = False) -> tuple[FinishedStudy, ...]:
        """Return every finished study of these kinds, or only those of `host`, the newest first. Those that were
        asked for before are not read: a fleet has ten thousand of them. Damaged ones are left out.
        """
        fits = (STUDIES.c.kind.in_(kinds), *self._of_host(only=own))
        with self._transaction() as db:
            rows = db.execute(finished_rows(*fits, known=self._summarises)).all()
        found, new = finished_of(rows)
        if new and self.keeps_summaries:
            with contextlib.suppress(StoreError), self._transaction(writing=True) as db:
                empty = {"method": "", "attempts": 0, "summary": ""}
                told = [{"study_id": key, "question": digest, **empty} for key, digest in new.items()]
                db.execute(self._backend.put_new(SUMMARIES, ("study_id",)), told)
        return tuple(found)

    @property
    def keeps_summaries(self) -> bool:
        """Whether what is worked out of studies can be kept here."""
        return self._summarises and self.writable

    def summaries(self, studies: Sequence[tuple[str, str]], *, method: str) -> Mapping[tuple[str, str], str]:
        """Return the kept summaries of studies, each a host and an id: those that `method` made of all attempts that
        there are now.
        """
        keys = {self._key_of(*one): one for one in studies}
        with self._transaction() as db:
            found = summaries_of(db, [*keys], method=method) if self._summarises else {}
        return {keys[key]: text for key, text in found.items()}

    def put_summary(self, study_id: str, summary: str, *, method: str, attempts: int) -> None:
        """Keep what `method` made of a study that had so many attempts, in the place of an older summary."""
        row = {"study_id": self._key(study_id), "question": question_of(self.text(study_id))}
        with self._transaction(writing=True) as db:
            whole = {**row, "method": method, "attempts": attempts, "summary": summary}
            db.execute(self._backend.put(SUMMARIES, whole, ("study_id",)))

    def text(self, study_id: str) -> str:
        """Return the text of a study as it is kept; empty where there is none."""
        found = self._column_of(study_id, STUDIES.c.study)
        return found if isinstance(found, str) else ""

    def methods(self, study_id: str | None = None) -> tuple[StudyMethods, ...]:
        """Return of every study how many of its measurements are of today's method, the newest study first, or of
        one study alone. Studies are not read.
        """
        with self._transaction() as db:
            rows = db.execute(by_method(None if study_id is None else self._key(study_id))).all()
        return tuple(
            StudyMethods(name=name, current=every - older, older=older)
            for name, every, older in rows
            if isinstance(name, str)
        )

    @contextlib.contextmanager
    def claimed(self, study_id: str, *, wait: bool = False) -> Iterator[bool]:
        """Keep a study, or another name, for this process during the block, and give whether it does; with `wait` it
        does as soon as no other machine keeps it. Only of a database, which several machines use, another one may.
        """
        try:
            with self._backend.claimed(self._key(study_id), wait=wait) as mine:
                yield mine
        except SQLAlchemyError as error:
            raise self._backend.explained(error) from None

    def page(
        self, *, words: str, kind: str, limit: int, offset: int, own: bool = False, order: str = "newest"
    ) -> StudiesPage:
        """Return the studies from `offset` on, in one of ORDERS, that have these words in them or in their host's
        name and are of that kind; empty words and an empty kind fit all. Reads no more studies than it returns.
        """
        fits = [STUDIES.c.kind == kind] if kind else []
        if words:
            # a study's text holds its id, title, arms and workloads, its key another host's name
            has = self._backend.has_words
            fits.append(has(STUDIES.c.study, words) | has(STUDIES.c.id, words))
        fitting = sa.select(STUDIES.c.id).where(*fits, *self._of_host(only=own)).order_by(*ORDERS[order])
        with self._transaction() as db:
            every = db.execute(fitting).scalars().all()
            kinds = db.execute(sa.select(STUDIES.c.kind).distinct().order_by(STUDIES.c.kind)).scalars().all()
            # ids that are damaged cannot be given back to the database as they were read
            rows = db.execute(listed_rows(ids=fitting.limit(limit).offset(offset), order=order)).all()
        return StudiesPage(
            rows=tuple(listed(*row) for row in rows),
            total=len(every),
            kinds=tuple(one for one in kinds if isinstance(one, str)),
        )

    def hosts(self) -> tuple[str, ...]:
        """Return the names of the other hosts that have studies here."""
        there = STUDIES.c.id.contains(SEPARATOR)
        with self._transaction() as db:
            ids = db.execute(sa.select(STUDIES.c.id).where(there)).scalars().all()
        return tuple(sorted({own_id(one)[0] for one in ids if isinstance(one, str)}))

    def find(self, name: str) -> str:
        """Return the id of the study that `name` means: an id, the beginning of one, `last`, or `@TAG`, the newest
        with that tag, of this host where it has one; of another host `HOST/ID`, or its id alone where no other study
        has it. From now on ids mean that host's studies.
        """
        if name.startswith("@"):
            return self._tagged(name[1:])
        with self._transaction() as db:
            rows = db.execute(sa.select(STUDIES.c.id).order_by(NEWEST_FIRST)).all()
        keys = [row.id for row in rows if isinstance(row.id, str)]
        fitting = keys[:1] if name == "last" else _fitting(keys, name)
        if len(fitting) == 1:
            self.host, found = own_id(fitting[0])
            return found
        if fitting:
            raise UsageError(
                f"{name!r} fits {len(fitting)} studies", hint=f"write more of it: {', '.join(fitting[:5])}"
            )
        raise UsageError(f"no study {name!r} in {self._backend.name}", hint="`virtune show list` shows all studies")

    def _tagged(self, tag: str) -> str:
        columns = STUDIES.c.id, STUDIES.c.study, STUDIES.c.finished
        has_it = self._backend.has_words(STUDIES.c.study, f'"{tag}"')
        chosen: Listed | None = None
        with self._transaction() as db:  # the newest of many will do, so that not all are read
            for row in db.execute(sa.select(*columns).where(has_it).order_by(NEWEST_FIRST)):
                found = listed(*row, done=0, failed=0)
                if isinstance(found, Listed) and tag in found.study.tags:
                    chosen = found if chosen is None or not found.host else chosen
                    if not found.host:
                        break
        if chosen is None:
            raise UsageError(
                f"no study in {self._backend.name} has the tag {tag!r}",
                hint=f"`virtune show label STUDY --tag {tag or 'good'}` gives it to one",
            )
        self.host = chosen.host
        return chosen.study.id

    def has(self, study_id: str) -> bool:
        """Whether there is a study of this id, whole or damaged."""
        return self._column_of(study_id, STUDIES.c.id) is not None

    def is_finished(self, study_id: str) -> bool:
        """Whether there is a study of this id of which nothing is left to run; its trials are not read."""
        return bool(self._column_of(study_id, STUDIES.c.finished))

    def _column_of(self, study_id: str, column: sa.Column[Any]) -> Any:
        with self._transaction() as db:
            return db.execute(sa.select(column).where(STUDIES.c.id == self._key(study_id))).scalar_one_or_none()

    def get(self, study_id: str, *, distributions: bool = True) -> StudyRecord:
        """Return a study with its trials; each with the measurement of the newest method that is kept. Without
        `distributions` it is read in half the time, for whoever needs neither percentiles nor pictures.
        """
        key, place = self._key(study_id), self._backend.name
        with self._transaction() as db:
            row = db.execute(sa.select(STUDIES).where(STUDIES.c.id == key)).one_or_none()
            if row is None:
                raise StoreError(f"no study {study_id!r} in {place}")
            kept = MEASUREMENTS.c.measurement
            wanted = kept if distributions else self._backend.without_distributions(kept)
            trials = db.execute(trials_of(key, wanted)).all()
        study, facts = listed(row.id, row.study, row.finished, 0, 0), facts_of(row.facts)
        if isinstance(study, Damaged):
            hint = "`virtune show list` shows the others"
            raise StoreError(f"study {study_id} in {place} is damaged: {study.why}", hint=hint)
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
        key = self._key(study_id)
        where = TRIALS.c.study_id == key
        with self._transaction() as db:
            facts = db.execute(sa.select(STUDIES.c.facts).where(STUDIES.c.id == key)).scalar_one_or_none()
            rows = db.execute(sa.select(TRIALS.c.arm, TRIALS.c.ended).where(where).order_by(TRIALS.c.id)).all()
        return str(facts), tuple((str(row.arm), str(row.ended)) for row in rows)

    def captures(self, study_id: str, number: int, *, attempt: int | None = None) -> tuple[Capture, ...]:
        """Return the raw evidence of one attempt at a trial, the last one by default."""
        with self._transaction() as db:
            row = attempt_of(self._key(study_id), number, attempt).scalar_subquery()
            rows = db.execute(sa.select(CAPTURES).where(CAPTURES.c.trial_id == row)).all()
        return tuple(capture_of(one.name, one.content) for one in sorted(rows, key=lambda one: str(one.name)))

    def results(self, study_id: str) -> Iterator[tuple[tuple[int, int], Mapping[str, bytes]]]:
        """Yield for every attempt, by number and attempt, the captures that say what its load was told and gave. A
        damaged one is left out.
        """
        with self._transaction() as db:
            rows = db.execute(results_of(self._key(study_id)))
            for place, found in itertools.groupby(rows, key=lambda row: (row.number, row.attempt)):
                kept: dict[str, bytes] = {}
                for row in found:
                    with contextlib.suppress(StoreError):
                        kept[row.name] = capture_of(row.name, row.content).content
                yield place, kept

    def require_own(self, study_id: str) -> None:
        """Raise UsageError for a study of another host: its trials cannot go on here."""
        if self.host:
            raise UsageError(
                f"study {study_id} was measured on the host {self.host}, and this is another one",
                hint="go on with it there, then `virtune fleet gather`",
            )

    def _key(self, study_id: str) -> str:
        """Return what a study's rows are kept under."""
        return self._key_of(self.host, study_id)

    @staticmethod
    def _key_of(host: str, study_id: str) -> str:
        return f"{host}{SEPARATOR}{study_id}" if host else study_id

    def _of_host(self, *, only: bool) -> Iterator[sa.ColumnElement[bool]]:
        if only and self.host:
            yield STUDIES.c.id.startswith(f"{self.host}{SEPARATOR}", autoescape=True)
        elif only:
            yield ~STUDIES.c.id.contains(SEPARATOR)

    @contextlib.contextmanager
    def _transaction(self, *, writing: bool = False) -> Iterator[sa.Connection]:
        try:
            with self._backend.transaction(writing=writing) as connection:
                yield connection
        except (SQLAlchemyError, UnicodeError) as error:
            raise self._backend.explained(error) from None


def _fitting(keys: Sequence[str], name: str) -> Sequence[str]:
    """Return the keys that a name means: exactly, else by how they begin, with the host or without."""
    if not name:
        return []
    exact = [key for key in keys if key == name] or [key for key in keys if own_id(key)[1] == name]
    return exact or [key for key in keys if key.startswith(name) or own_id(key)[1].startswith(name)]
