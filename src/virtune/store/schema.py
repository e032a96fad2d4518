# SPDX-License-Identifier: Apache-2.0
"""The tables: studies, their trials, the raw captures and the measurements derived from them; the SQL views for
other tools: one row for each study, trial, measured value and verified setting; and what SQLite and PostgreSQL do
differently: how a store is opened, made and read, and what their errors mean.

The number of the format is kept in `PRAGMA user_version` on SQLite, in the table `virtune_store` on PostgreSQL. The
views are made when a store is opened for writing, and anew where their text has changed; no table is touched, so that
they are no new format, and a store without them is read as before.
"""

import contextlib
from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping, Sequence
from contextlib import AbstractContextManager
from typing import Any

import sqlalchemy as sa
from sqlalchemy import Column, ForeignKey, Index, Integer, LargeBinary, MetaData, String, Table, UniqueConstraint
from sqlalchemy.types import TypeEngine

from virtune.model.errors import StoreError
from virtune.model.metric import METRICS

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

    def put_new(self, table: sa.Table) -> sa.Insert:
        """Return what stores rows where there are none with the same key."""
        insert: sa.Insert = self.insert(table).on_conflict_do_nothing()
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
