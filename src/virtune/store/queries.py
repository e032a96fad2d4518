# SPDX-License-Identifier: Apache-2.0
"""The tables of a store: studies, their trials, the raw captures and the measurements derived from them; the SQL
views for other tools: one row for each study, trial, measured value and verified setting; what SQLite and PostgreSQL
do differently; the questions that a store asks its database, the rows that it writes, and rows made values again: any
row is either read or reported as damaged.

The number of the format is kept in `PRAGMA user_version` on SQLite, in the table `virtune_store` on PostgreSQL. The
views are made when a store is opened for writing, and anew where their text has changed; no table is touched, so that
they are no new format, and a store without them is read as before.

What was worked out of finished studies is kept beside them, so that a fleet's report reads no trial. All of it can be
worked out again: a row that is missing, damaged, of another method or of fewer attempts is none.
"""

import contextlib
import hashlib
import json
import re
import zlib
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass, replace
from datetime import datetime
from functools import cache
from typing import Any

import sqlalchemy as sa
from pydantic import TypeAdapter, ValidationError
from sqlalchemy import Column, ForeignKey, Index, Integer, LargeBinary, MetaData, String, Table, UniqueConstraint
from sqlalchemy.types import TypeEngine

from virtune.model.errors import PlanError, StoreError
from virtune.model.evidence import Capture, Damaged, FinishedStudy, InForce, Listed, TrialRecord
from virtune.model.measurement import METHOD, Measurement
from virtune.model.metric import METRICS
from virtune.model.study import Study, Trial
from virtune.plan.codec import study_from_json, study_to_json

FORMAT = 1

METADATA = MetaData()


def _text(length: int) -> TypeEngine[str]:
    """A text. SQLite ignores how long it may be, PostgreSQL would refuse a longer one."""
    return String(length).with_variant(String(), "postgresql")


def indexes_for(dialect: str) -> None:
    """Have indexes hold only the rows that they are for, in a database of this dialect. To say so where they are
    declared would load both databases' dialects for either.
    """
    for table in METADATA.tables.values():
        for index in table.indexes:
            index.dialect_options[dialect]["where"] = index.info.get("where")


STUDIES = Table(
    "studies",
    METADATA,
    Column("id", _text(32), primary_key=True),
    Column("created", _text(40), nullable=False),
    Column("kind", _text(16), nullable=False),
    Column("study", String, nullable=False),
    Column("facts", String, nullable=False),
    Column("finished", Integer, nullable=False, default=0),
)

TRIALS = Table(
    "trials",
    METADATA,
    Column("id", Integer, primary_key=True),
    Column("study_id", ForeignKey("studies.id", ondelete="CASCADE"), nullable=False, index=True),
    Column("number", Integer, nullable=False),
    # 1, and 2 where the first attempt failed and the trial was run again: both are kept
    Column("attempt", Integer, nullable=False),
    Column("round", Integer, nullable=False),
    Column("arm", _text(200), nullable=False),
    Column("workload", _text(200), nullable=False),
    Column("ended", _text(40), nullable=False),
    Column("failure", String),
    Column("in_force", String, nullable=False),
    UniqueConstraint("study_id", "number", "attempt"),
)

# a list counts trials from these alone: the rows of a million trials have gigabytes
Index("trials_done", TRIALS.c.study_id, TRIALS.c.number, info={"where": TRIALS.c.failure.is_(None)})
Index("trials_failed", TRIALS.c.study_id, info={"where": TRIALS.c.failure.is_not(None)})

CAPTURES = Table(
    "captures",
    METADATA,
    Column("trial_id", ForeignKey("trials.id", ondelete="CASCADE"), primary_key=True),
    Column("name", _text(64), primary_key=True),
    # zlib; fio's json+ shrinks to a fifth
    Column("content", LargeBinary, nullable=False),
)

DISTRIBUTIONS = ("histogram", "flushes", "others")
"""The keys of a measurement that are distributions: most of its text."""

MEASUREMENTS = Table(
    "measurements",
    METADATA,
    Column("trial_id", ForeignKey("trials.id", ondelete="CASCADE"), primary_key=True),
    Column("method", Integer, primary_key=True),
    Column("measurement", String, nullable=False),
)

SUMMARIES = Table(
    "summaries",
    METADATA,
    Column("study_id", ForeignKey("studies.id", ondelete="CASCADE"), primary_key=True),
    # a digest of what the study asks, by which ten thousand studies are told apart without being read
    Column("question", String, nullable=False),
    # by what the summary was made, of so many attempts: any other is made anew. All three are empty at first
    Column("method", String, nullable=False),
    Column("attempts", Integer, nullable=False),
    Column("summary", String, nullable=False),
)


class Backend(ABC):
    """One kind of database. `name` is what messages call the place, `writable` whether it takes measurements,
    `summarises` whether a reader may see what is worked out of them.
    """

    hint: str
    insert: Callable[[sa.Table], Any]
    """What makes an INSERT of this database's kind, which knows what to do where a key is there."""

    def __init__(self, name: str, engine: sa.Engine) -> None:
        self.name, self.engine, self.writable, self.summarises = name, engine, True, True

    @abstractmethod
    def open(self, *, reading: bool) -> int:
        """Connect and return the number of the store's format, 0 for a new one. Raises StoreError."""

    @abstractmethod
    def transaction(self, *, writing: bool) -> AbstractContextManager[sa.Connection]:
        """Begin a transaction that ends with the block. One that reads sees the store as it was at its first query,
        whatever others write meanwhile; one that writes may wait for others first.
        """

    def alone(self, db: sa.Connection, name: str = "") -> None:  # noqa: B027 - nothing, where a writer is alone
        """Keep what is called so to this writing transaction until it ends; without a name the store's making."""

    @abstractmethod
    def format_of(self, db: sa.Connection) -> int:
        """Return the number of the store's format."""

    @abstractmethod
    def tables(self, db: sa.Connection) -> Mapping[str, set[str]]:
        """Return the columns of every table where the store's would be."""

    def make(self, db: sa.Connection) -> None:
        """Make the tables of a new store."""
        METADATA.create_all(db)

    @abstractmethod
    def set_format(self, db: sa.Connection, number: int) -> None:
        """Note the format of the store."""

    @abstractmethod
    def changed_views(self, db: sa.Connection) -> Sequence[str]:
        """Return the SQL views that are missing or are not as they are today."""

    @abstractmethod
    def make_views(self, db: sa.Connection) -> None:
        """Make those views."""

    def settle(self) -> None:  # noqa: B027 - mostly nothing
        """Do what a store that was made just now needs and no transaction can do."""

    @abstractmethod
    def has_words(self, column: sa.Column[str], words: str) -> sa.ColumnElement[bool]:
        """Return the condition that a text has these words in it, in small letters or capitals."""

    @abstractmethod
    def without_distributions(self, column: sa.Column[str]) -> sa.ColumnElement[str]:
        """Return a measurement's text without its distributions, which are most of it."""

    def put(self, table: sa.Table, row: Mapping[str, Any], key: Sequence[str]) -> sa.Insert:
        """Return what stores a row in the place of one with the same key."""
        insert: sa.Insert = self.insert(table).values(**row).on_conflict_do_update(index_elements=key, set_=dict(row))
        return insert

    def put_new(self, table: sa.Table, key: Sequence[str]) -> sa.Insert:
        """Return what stores rows where there are none with the same key; any other conflict is an error."""
        insert: sa.Insert = self.insert(table).on_conflict_do_nothing(index_elements=key)
        return insert

    def claimed(self, name: str, *, wait: bool) -> AbstractContextManager[bool]:  # noqa: ARG002 - of a file no need
        """Keep what is called so for this process during the block, and give whether it does; with `wait` it does as
        soon as no other process keeps it. A claim ends with its process. Of a file everybody has it: its processes
        are of one machine, and share the work out beforehand.
        """
        return contextlib.nullcontext(enter_result=True)

    @abstractmethod
    def explained(self, error: BaseException) -> StoreError:
        """Say a database's error in one sentence."""


def is_ours(found: Mapping[str, set[str]], *, format_number: int) -> bool:
    """Whether tables are those of a store and not of another program, which may use the same names. Only a new
    store, or one that a killed virtune left, has no number of a format yet, and not all of its tables.
    """
    ours = METADATA.tables.keys() <= found.keys() if format_number else found.keys() <= METADATA.tables.keys()
    known = found.keys() & METADATA.tables.keys()
    return ours and all({*METADATA.tables[name].columns.keys()} <= found[name] for name in known)


_UNITS = " ".join(f"WHEN '{one.id}' THEN '{one.unit}'" for one in METRICS)

_NEWEST = """
    JOIN measurements AS m ON m.trial_id = t.id
        AND m.method = (SELECT max(o.method) FROM measurements AS o WHERE o.trial_id = t.id)
        AND json_valid(m.measurement)
"""

_LAST = "t.attempt = (SELECT max(o.attempt) FROM trials AS o WHERE o.study_id = t.study_id AND o.number = t.number)"

_VALID = """NOT EXISTS (
    SELECT 1 FROM json_each(m.measurement, '$.remarks') AS r WHERE json_extract(r.value, '$.weight') = 'invalid')"""

_HOST = "CASE instr({0}, '/') WHEN 0 THEN '' ELSE substr({0}, 1, instr({0}, '/') - 1) END AS host"
"""The other host that measured a study; empty for this one."""

_STUDY = "substr({0}, instr({0}, '/') + 1) AS study"

_OF_STUDY = f"{_HOST.format('s.id')}, {_STUDY.format('s.id')}"
_OF_TRIAL = f"{_HOST.format('t.study_id')}, {_STUDY.format('t.study_id')}"

VIEWS = {
    "view_studies": f"""
SELECT {_OF_STUDY}, s.kind, s.created, s.finished,
    json_extract(s.study, '$.title') AS title, json_extract(s.study, '$.metric') AS metric,
    json_extract(s.study, '$.baseline') AS baseline, json_extract(s.study, '$.seconds') AS seconds,
    (SELECT count(DISTINCT t.number) FROM trials AS t WHERE t.study_id = s.id AND t.failure IS NULL) AS trials_done,
    (SELECT count(*) FROM trials AS t WHERE t.study_id = s.id AND t.failure IS NOT NULL) AS attempts_failed
FROM studies AS s WHERE json_valid(s.study)
""",  # noqa: S608 - of constants
    "view_trials": f"""
SELECT {_OF_TRIAL}, t.number AS trial, t.attempt, t.round, t.workload, t.arm, t.ended, t.failure, m.method,
    m.measurement IS NOT NULL AND {_LAST} AND {_VALID} AS counts
FROM trials AS t LEFT {_NEWEST.strip()}
""",  # noqa: S608 - of constants
    "view_values": f"""
SELECT {_OF_TRIAL}, s.kind, t.number AS trial, t.attempt, t.round, t.workload, t.arm, t.ended,
    {_LAST} AND {_VALID} AS counts, m.method, json_extract(v.value, '$[0]') AS metric,
    CASE json_extract(v.value, '$[0]') {_UNITS} ELSE '' END AS unit, json_extract(v.value, '$[1]') AS value
FROM trials AS t {_NEWEST.strip()}
    JOIN studies AS s ON s.id = t.study_id, json_each(m.measurement, '$.values') AS v
""",  # noqa: S608 - of constants
    "view_settings": f"""
SELECT {_OF_TRIAL}, t.number AS trial, t.attempt, t.workload, t.arm,
    json_extract(c.value, '$.setting') AS setting, json_extract(c.value, '$.asked') AS requested,
    json_extract(c.value, '$.found') AS found, json_extract(c.value, '$.proof') AS proof,
    CASE WHEN json_extract(c.value, '$.found') IS NULL THEN 'unverified'
        WHEN json_extract(c.value, '$.found') = json_extract(c.value, '$.asked') THEN 'verified'
        ELSE 'differs' END AS state
FROM trials AS t, json_each(CASE WHEN json_valid(t.in_force) THEN t.in_force ELSE '{{}}' END, '$.checks') AS c
""",  # noqa: S608 - of constants
}
"""Every view by its name with its query. Values are in base units (ns, bytes, 1/s, CPU seconds per I/O)."""


_MAX_CAPTURE_BYTES = 256 * 1024**2

_ID = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{0,63}")
"""A study's id becomes part of the names of files."""


SEPARATOR = "/"
"""Between the host and the id of a study that another host measured; neither has one in it."""

_HOST_NAME = re.compile(r"[A-Za-z0-9_][A-Za-z0-9._-]{0,252}")


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
    if host and not _HOST_NAME.fullmatch(host):
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

_OF_HOST = sa.case((STUDIES.c.id.contains(SEPARATOR), STUDIES.c.id), else_="")
ORDERS: Mapping[str, tuple[sa.ColumnElement[Any], ...]] = {
    "newest": (NEWEST_FIRST,),
    "oldest": (sa.literal_column("studies.rowid"),),
    "kind": (STUDIES.c.kind, NEWEST_FIRST),
    "host": (_OF_HOST, NEWEST_FIRST),
}
"""In which order studies may be listed; this host's are before those of others."""


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


def listed_rows(
    *conditions: sa.ColumnElement[bool], ids: sa.Select[tuple[str]] | None = None, order: str = "newest"
) -> sa.Select[Any]:
    """Select studies with what a list shows of each, in one of ORDERS."""
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
        .order_by(*ORDERS[order])
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
        backend.put_new(TRIALS, ("study_id", "number", "attempt"))
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
