# SPDX-License-Identifier: Apache-2.0
"""The tables: studies, their trials, the raw captures and the measurements derived from them.

History of the format (kept in `PRAGMA user_version` on SQLite):

1  first version
"""

from sqlalchemy import Column, ForeignKey, Integer, LargeBinary, MetaData, String, Table, UniqueConstraint

FORMAT = 1

METADATA = MetaData()

STUDIES = Table(
    "studies",
    METADATA,
    Column("id", String(32), primary_key=True),
    Column("created", String(40), nullable=False),
    Column("kind", String(16), nullable=False),
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
    Column("arm", String(200), nullable=False),
    Column("workload", String(200), nullable=False),
    Column("ended", String(40), nullable=False),
    Column("failure", String),
    Column("in_force", String, nullable=False),
    UniqueConstraint("study_id", "number", "attempt"),
)

CAPTURES = Table(
    "captures",
    METADATA,
    Column("trial_id", ForeignKey("trials.id", ondelete="CASCADE"), primary_key=True),
    Column("name", String(64), primary_key=True),
    # zlib; fio's json+ shrinks to a fifth
    Column("content", LargeBinary, nullable=False),
)

MEASUREMENTS = Table(
    "measurements",
    METADATA,
    Column("trial_id", ForeignKey("trials.id", ondelete="CASCADE"), primary_key=True),
    Column("method", Integer, primary_key=True),
    Column("measurement", String, nullable=False),
)
