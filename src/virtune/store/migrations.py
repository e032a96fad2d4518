# SPDX-License-Identifier: Apache-2.0
"""Bring a store of an older format to today's: one function for each format, by Alembic's operations.

Alembic writes what each database understands (SQLite cannot alter most of a table in place). The number of the format
is kept where it was before there was Alembic (`store/schema.py`), so that an older virtune refuses a newer store.
"""

from collections.abc import Callable

import sqlalchemy as sa
from alembic.migration import MigrationContext
from alembic.operations import Operations

from virtune.store.schema import FORMAT


def migrate(db: sa.Connection, found: int) -> None:
    """Change the tables of a store of format `found` until they are today's, within the caller's transaction."""
    operations = Operations(MigrationContext.configure(db))
    for number in range(found + 1, FORMAT + 1):
        _TO[number](operations)


def _to_2(op: Operations) -> None:
    """Two indexes from which a list counts."""
    done, failed = sa.text("failure IS NULL"), sa.text("failure IS NOT NULL")
    op.create_index("trials_done", "trials", ["study_id", "number"], sqlite_where=done, postgresql_where=done)
    op.create_index("trials_failed", "trials", ["study_id"], sqlite_where=failed, postgresql_where=failed)


def _to_3(op: Operations) -> None:
    """A table of what can be worked out again; it fills as it is needed."""
    study = sa.Column("study_id", sa.String(32).with_variant(sa.String(), "postgresql"), primary_key=True)
    texts = [sa.Column(name, sa.String, nullable=False) for name in ("question", "method", "summary")]
    attempts = sa.Column("attempts", sa.Integer, nullable=False)
    of_study = sa.ForeignKeyConstraint(["study_id"], ["studies.id"], ondelete="CASCADE")
    op.create_table("summaries", study, *texts, attempts, of_study)


_TO: dict[int, Callable[[Operations], None]] = {2: _to_2, 3: _to_3}
