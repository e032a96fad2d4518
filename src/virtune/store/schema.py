# SPDX-License-Identifier: Apache-2.0
"""The tables: studies, their trials, the raw captures and the measurements derived from them.

History of the format (kept in `PRAGMA user_version` on SQLite, in the table `virtune_store` on PostgreSQL):

1  first version
2  two indexes from which studies are counted; studies of other hosts under `HOST/STUDY`
3  what the report of a fleet needs of each study
"""

from sqlalchemy import (
    Column,
    ForeignKey,
    Index,
    Integer,
    LargeBinary,
    MetaData,
    String,
    Table,
    UniqueConstraint,
)
from sqlalchemy.types import TypeEngine

FORMAT = 3

ADDED = {"summaries": 3}
"""The tables that came later than the first format, and with which."""

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
