# SPDX-License-Identifier: Apache-2.0
"""A store in a PostgreSQL database: its tables are in the schema `virtune`, so that others' are beside them.

libpq reads the URL and finds the password where it always does (`~/.pgpass`, PGPASSWORD, a service file).
"""

import contextlib
import re
import zlib
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import sqlalchemy as sa
from sqlalchemy.dialects.postgresql import ARRAY, JSONB, insert

from virtune.model.errors import MissingToolError, ReadOnlyStoreError, StoreError
from virtune.model.store_place import DatabaseUrl
from virtune.store.postgres_views import changed_postgres_views, make_postgres_views
from virtune.store.schema import DISTRIBUTIONS, METADATA, indexes_for

SCHEMA = "virtune"

indexes_for("postgresql")

_CONNECT_SECONDS = 15
"""How long a server may take to answer; a URL with connect_timeout says otherwise."""

_MAKING = 0x76697274
"""The lock under which a store is made or brought to another format: `virt`."""

_CLAIMING = _MAKING + 1
"""The first number of the locks under which one process derives a study."""

_MERGING = _MAKING + 2
"""The first number of the locks under which a study is added to."""

_PGPASS = "~/.pgpass or PGPASSWORD has it for libpq"
_OWNER = f"the owner of the database may `CREATE SCHEMA {SCHEMA} AUTHORIZATION USER`"
_NO_ANSWER = (
    "[Cc]onnection refused|No such file or directory|[Tt]imed out|timeout expired|could not translate host name"
    "|Name or service|failed to resolve host|No route to host|Network is unreachable|starting up|shutting down"
)
_LOST = (
    "server closed the connection|terminating connection|connection is (?:lost|closed)|consuming input failed"
    "|SSL connection has been closed"
)
_NOT_LET_IN = r"no pg_hba\.conf entry|Peer authentication failed|Ident authentication failed"
_REASONS = (
    ("no password supplied", "the server wants a password, and none is known", _PGPASS),
    ("authentication failed for user", "the server refuses the password", _PGPASS),
    ('database ".*" does not exist', "there is no such database on the server", "`createdb NAME` makes one"),
    ('role ".*" does not exist', "the server has no such user", "`createuser NAME` makes one"),
    (_NOT_LET_IN, "the server does not let this user in from here", "pg_hba.conf on the server says who may"),
    ("permission denied|must be owner", "this user may not do that there", _OWNER),
    (_LOST, "the connection to the server was lost", "what was finished is kept"),
    (_NO_ANSWER, "no server answers there", "is PostgreSQL running, and the host's name right?"),
    ("too many (?:clients|connections)|connection slots", "the server has no connection to spare", None),
    ("No space left on device|could not extend file", "no space is left on the server", None),
)
"""What libpq and the server say, in plain words, and the next thing to do."""


class Postgres:
    """The database of a store, for reading or writing."""

    hint = "`--store` names another place"

    def __init__(self, url: DatabaseUrl) -> None:
        self.name, self.writable, self.summarises = url.text, True, True
        self.engine = _engine(url)

    def open(self, *, reading: bool) -> int:
        """Connect and return the number of the store's format, 0 where there is none yet."""
        try:
            with self.engine.begin() as db:
                found = _format(db)
                if reading and found:
                    self.writable, self.summarises = _allowed(db)
                return found
        except (sa.exc.SQLAlchemyError, UnicodeError) as error:
            raise self.explained(error) from None

    def transaction(self, *, writing: bool) -> contextlib.AbstractContextManager[sa.Connection]:
        """Begin a transaction. One that writes sees what others have committed while it waited for them."""
        return (self.engine if writing else self.engine.execution_options(isolation_level="REPEATABLE READ")).begin()

    def alone(self, db: sa.Connection, name: str = "") -> None:
        """Wait for a lock, which the server drops with the transaction."""
        key = f"{_MERGING}, {_number(name)}" if name else str(_MAKING)
        db.execute(sa.text(f"SELECT pg_advisory_xact_lock({key})"))

    def format_of(self, db: sa.Connection) -> int:
        """Return the format."""
        return _format(db)

    def tables(self, db: sa.Connection) -> Mapping[str, set[str]]:
        """Return the columns of every table in our schema."""
        asked = "SELECT table_name, column_name FROM information_schema.columns WHERE table_schema = :schema"
        kinds = "SELECT table_name FROM information_schema.views WHERE table_schema = :schema"
        views = set(db.execute(sa.text(kinds), {"schema": SCHEMA}).scalars())
        found: dict[str, set[str]] = {}
        for table, column in db.execute(sa.text(asked), {"schema": SCHEMA}):
            if table not in views and table != "virtune_store":
                found.setdefault(table, set()).add(column)
        return found

    def make(self, db: sa.Connection) -> None:
        """Make the schema and the tables of a new store."""
        if db.execute(sa.text("SELECT to_regnamespace(:schema)"), {"schema": SCHEMA}).scalar_one() is None:
            db.execute(sa.text(f"CREATE SCHEMA {SCHEMA}"))
        METADATA.create_all(db)
        # the order in which studies came, by the name that it has in SQLite
        db.execute(sa.text("ALTER TABLE studies ADD COLUMN rowid bigint GENERATED ALWAYS AS IDENTITY UNIQUE"))

    def set_format(self, db: sa.Connection, number: int) -> None:
        """Note the format."""
        db.execute(sa.text("CREATE TABLE IF NOT EXISTS virtune_store (format integer NOT NULL)"))
        db.execute(sa.text("DELETE FROM virtune_store"))
        db.execute(sa.text("INSERT INTO virtune_store VALUES (:number)"), {"number": number})

    def changed_views(self, db: sa.Connection) -> Sequence[str]:
        """Return the SQL views that are to be made."""
        return changed_postgres_views(db)

    def make_views(self, db: sa.Connection) -> None:
        """Make the SQL views."""
        make_postgres_views(db)

    def settle(self) -> None:
        """Do nothing: all was done in the transaction."""

    def has_words(self, column: sa.Column[str], words: str) -> sa.ColumnElement[bool]:
        """PostgreSQL's LIKE tells small letters from capitals, ILIKE does not."""
        escaped = re.sub(r"([%_\\])", r"\\\1", words)
        return column.ilike(f"%{escaped}%", escape="\\")

    def without_distributions(self, column: sa.Column[str]) -> sa.ColumnElement[str]:
        """Return a measurement without its distributions; a damaged one ends the query."""
        names = sa.cast(sa.literal(f"{{{','.join(DISTRIBUTIONS)}}}"), ARRAY(sa.String))
        return sa.cast(sa.cast(column, JSONB).op("-")(names), sa.String)

    def put(self, table: sa.Table, row: Mapping[str, Any], key: Sequence[str]) -> sa.Insert:
        """Return what stores a row in the place of one with the same key."""
        return insert(table).values(**row).on_conflict_do_update(index_elements=list(key), set_=dict(row))

    def put_new(self, table: sa.Table) -> sa.Insert:
        """Return what stores rows where there are none with the same key."""
        return insert(table).on_conflict_do_nothing()

    @contextlib.contextmanager
    def claimed(self, name: str, *, wait: bool) -> Iterator[bool]:
        """Keep a name by a lock of this session, which the server drops when its connection is gone."""
        number = _number(name)
        asked = "pg_advisory_lock" if wait else "pg_try_advisory_lock"
        with self.engine.connect() as db:
            mine = db.execute(sa.text(f"SELECT {asked}({_CLAIMING}, {number})")).scalar_one() is not False
            db.commit()
            try:
                yield mine
            finally:
                if mine:
                    db.execute(sa.text(f"SELECT pg_advisory_unlock({_CLAIMING}, {number})"))
                    db.commit()

    def explained(self, error: BaseException) -> StoreError:
        """Translate libpq's or the server's error into a plain sentence, which holds nothing that was sent."""
        reason = " ".join(str(getattr(error, "orig", None) or error).split())
        kind = ReadOnlyStoreError if "read-only transaction" in reason else StoreError
        for pattern, words, hint in _REASONS:
            if re.search(pattern, reason):
                return kind(f"cannot use the store {self.name}: {words}", hint=hint or self.hint)
        return kind(f"cannot use the store {self.name}: {reason.partition(' DETAIL: ')[0][:300]}", hint=self.hint)


def _number(name: str) -> int:
    """Return the second number of a lock; two names that share one wait for each other, and nothing else."""
    return zlib.crc32(name.encode("utf-8", "surrogateescape")) - 2**31


def _engine(url: DatabaseUrl) -> sa.Engine:
    try:
        import psycopg
    except ImportError:
        raise MissingToolError(
            "the Python package psycopg is not installed, and a store in PostgreSQL needs it",
            hint="`pip install 'virtune[postgres]'`",
        ) from None
    waits = {} if "connect_timeout=" in url.text else {"connect_timeout": _CONNECT_SECONDS}
    name = {} if "application_name=" in url.text else {"application_name": "virtune"}

    def connect() -> Any:
        return psycopg.connect(url.text, **waits, **name)  # type: ignore[arg-type]

    engine = sa.create_engine("postgresql+psycopg://", creator=connect, poolclass=sa.QueuePool)
    sa.event.listen(engine, "connect", _prepare, insert=True)
    return engine


def _prepare(connection: Any, _: object) -> None:
    """Find our tables without their schema, and have what is committed on the server's disk."""
    connection.execute(f"SET search_path = {SCHEMA}")
    connection.execute(
        "SELECT set_config('synchronous_commit', 'on', false) WHERE current_setting('synchronous_commit') = 'off'"
    )
    connection.commit()


_THERE = """SELECT count(*) FROM pg_catalog.pg_class AS c JOIN pg_catalog.pg_namespace AS n ON n.oid = c.relnamespace
WHERE n.nspname = 'virtune' AND c.relname = 'virtune_store'"""


def _format(db: sa.Connection) -> int:
    # not by to_regclass, whose answer is the cache's: who waited for another's making would not see that
    if not db.execute(sa.text(_THERE)).scalar_one():
        return 0
    return int(db.execute(sa.text("SELECT coalesce(max(format), 0) FROM virtune.virtune_store")).scalar_one())


def _allowed(db: sa.Connection) -> tuple[bool, bool]:
    """Return whether measurements may be written, and whether summaries may be read: their table came later than the
    others, on which a reader may have been granted his rights.
    """
    asked = """SELECT has_table_privilege('virtune.measurements', 'INSERT') AND NOT pg_is_in_recovery(),
        coalesce(has_table_privilege(to_regclass('virtune.summaries'), 'SELECT'), false)"""
    writes, reads = db.execute(sa.text(asked)).one()
    return bool(writes), bool(reads)
