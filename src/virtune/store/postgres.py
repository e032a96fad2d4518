# SPDX-License-Identifier: Apache-2.0
"""A store in a PostgreSQL database: its tables are in the schema `virtune`, so that others' are beside them, and so
are its SQL views, with the same names and columns as in SQLite.

libpq reads the URL and finds the password where it always does (`~/.pgpass`, PGPASSWORD, a service file).

A record that cannot be read is left out of them: `virtune_json` gives null for what is no JSON.
"""

import contextlib
import re
import zlib
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import sqlalchemy as sa
from sqlalchemy.dialects.postgresql import ARRAY, JSONB, insert

from virtune.model.errors import DatabaseUrl, ReadOnlyStoreError, StoreError
from virtune.model.metric import METRICS
from virtune.store.queries import DISTRIBUTIONS, Backend, indexes_for
from virtune.store.queries import VIEWS as SQLITE_VIEWS

_UNITS = " ".join(f"WHEN '{one.id}' THEN '{one.unit}'" for one in METRICS)

FUNCTION = """
CREATE OR REPLACE FUNCTION virtune_json(kept text) RETURNS jsonb LANGUAGE plpgsql IMMUTABLE PARALLEL SAFE AS $$
BEGIN
    RETURN kept::jsonb;
EXCEPTION WHEN OTHERS THEN
    RETURN NULL;
END $$
"""

_HOST = "CASE strpos({0}, '/') WHEN 0 THEN '' ELSE split_part({0}, '/', 1) END AS host"
_STUDY = "substr({0}, strpos({0}, '/') + 1) AS study"
_OF_STUDY = f"{_HOST.format('s.id')}, {_STUDY.format('s.id')}"
_OF_TRIAL = f"{_HOST.format('t.study_id')}, {_STUDY.format('t.study_id')}"

_NEWEST = """LATERAL (SELECT o.method, virtune_json(o.measurement) AS measurement FROM measurements AS o
        WHERE o.trial_id = t.id ORDER BY o.method DESC LIMIT 1) AS m"""

_ITEMS = "jsonb_array_elements(CASE jsonb_typeof({0}) WHEN 'array' THEN {0} ELSE '[]' END)"

_COUNTS = """CASE WHEN t.attempt =
        (SELECT max(o.attempt) FROM trials AS o WHERE o.study_id = t.study_id AND o.number = t.number)
        AND NOT coalesce(m.measurement -> 'remarks' @> '[{"weight": "invalid"}]', false) THEN 1 ELSE 0 END"""

VIEWS = {
    "view_studies": f"""
SELECT {_OF_STUDY}, s.kind, s.created, s.finished, j.study ->> 'title' AS title, j.study ->> 'metric' AS metric,
    j.study ->> 'baseline' AS baseline, (j.study ->> 'seconds')::double precision AS seconds,
    (SELECT count(DISTINCT t.number) FROM trials AS t WHERE t.study_id = s.id AND t.failure IS NULL) AS trials_done,
    (SELECT count(*) FROM trials AS t WHERE t.study_id = s.id AND t.failure IS NOT NULL) AS attempts_failed
FROM studies AS s, LATERAL (SELECT virtune_json(s.study) AS study) AS j WHERE j.study IS NOT NULL
""",  # noqa: S608 - of constants
    "view_trials": f"""
SELECT {_OF_TRIAL}, t.number AS trial, t.attempt, t.round, t.workload, t.arm, t.ended, t.failure, m.method,
    CASE WHEN m.measurement IS NULL THEN 0 ELSE {_COUNTS} END AS counts
FROM trials AS t LEFT JOIN {_NEWEST} ON m.measurement IS NOT NULL
""",  # noqa: S608 - of constants
    "view_values": f"""
SELECT {_OF_TRIAL}, s.kind, t.number AS trial, t.attempt, t.round, t.workload, t.arm, t.ended,
    {_COUNTS} AS counts, m.method, v.value ->> 0 AS metric,
    CASE v.value ->> 0 {_UNITS} ELSE '' END AS unit, (v.value ->> 1)::double precision AS value
FROM trials AS t JOIN {_NEWEST} ON m.measurement IS NOT NULL
    JOIN studies AS s ON s.id = t.study_id, LATERAL {_ITEMS.format("m.measurement -> 'values'")} AS v
""",  # noqa: S608 - of constants
    "view_settings": f"""
SELECT {_OF_TRIAL}, t.number AS trial, t.attempt, t.workload, t.arm,
    c.value ->> 'setting' AS setting, c.value ->> 'asked' AS requested, c.value ->> 'found' AS found,
    c.value ->> 'proof' AS proof,
    CASE WHEN c.value ->> 'found' IS NULL THEN 'unverified'
        WHEN c.value ->> 'found' = c.value ->> 'asked' THEN 'verified' ELSE 'differs' END AS state
FROM trials AS t, LATERAL {_ITEMS.format("virtune_json(t.in_force) -> 'checks'")} AS c
""",  # noqa: S608 - of constants
}

assert VIEWS.keys() == SQLITE_VIEWS.keys()  # noqa: S101 - one list of views, in two languages


def _mark(query: str) -> str:
    """Return what tells one text of a view from another."""
    return f"virtune {zlib.crc32((FUNCTION + query).encode()):08x}"


SCHEMA = "virtune"

indexes_for("postgresql")

_CONNECT_SECONDS = 15
"""How long a server may take to answer; a URL with connect_timeout says otherwise."""

_MAKING = 0x76697274
"""The lock under which a store is made: `virt`."""

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


class Postgres(Backend):
    """The database of a store, for reading or writing."""

    hint = "`--store` names another place"
    insert = staticmethod(insert)

    def __init__(self, url: DatabaseUrl) -> None:
        super().__init__(url.text, _engine(url))

    def open(self, *, reading: bool) -> int:
        try:
            with self.engine.begin() as db:
                found = _format(db)
                if reading and found:
                    self.writable, self.summarises = map(bool, db.execute(sa.text(_ALLOWED)).one())
                return found
        except (sa.exc.SQLAlchemyError, UnicodeError) as error:
            raise self.explained(error) from None

    def transaction(self, *, writing: bool) -> contextlib.AbstractContextManager[sa.Connection]:
        # one that writes sees what others have committed while it waited for them
        return (self.engine if writing else self.engine.execution_options(isolation_level="REPEATABLE READ")).begin()

    def alone(self, db: sa.Connection, name: str = "") -> None:
        # the server drops the lock with the transaction
        key = f"{_MERGING}, {_number(name)}" if name else str(_MAKING)
        db.execute(sa.text(f"SELECT pg_advisory_xact_lock({key})"))

    def format_of(self, db: sa.Connection) -> int:
        return _format(db)

    def tables(self, db: sa.Connection) -> Mapping[str, set[str]]:
        asked = "SELECT table_name, column_name FROM information_schema.columns WHERE table_schema = :schema"
        kinds = "SELECT table_name FROM information_schema.views WHERE table_schema = :schema"
        views = set(db.execute(sa.text(kinds), {"schema": SCHEMA}).scalars())
        found: dict[str, set[str]] = {}
        for table, column in db.execute(sa.text(asked), {"schema": SCHEMA}):
            if table not in views and table != "virtune_store":
                found.setdefault(table, set()).add(column)
        return found

    def make(self, db: sa.Connection) -> None:
        if db.execute(sa.text("SELECT to_regnamespace(:schema)"), {"schema": SCHEMA}).scalar_one() is None:
            db.execute(sa.text(f"CREATE SCHEMA {SCHEMA}"))
        super().make(db)
        # the order in which studies came, by the name that it has in SQLite
        db.execute(sa.text("ALTER TABLE studies ADD COLUMN rowid bigint GENERATED ALWAYS AS IDENTITY UNIQUE"))

    def set_format(self, db: sa.Connection, number: int) -> None:
        db.execute(sa.text("CREATE TABLE IF NOT EXISTS virtune_store (format integer NOT NULL)"))
        db.execute(sa.text("DELETE FROM virtune_store"))
        db.execute(sa.text("INSERT INTO virtune_store VALUES (:number)"), {"number": number})

    def changed_views(self, db: sa.Connection) -> Sequence[str]:
        # their text is kept as their comment
        views = "relkind = 'v' AND relnamespace = 'virtune'::regnamespace"
        asked = f"SELECT relname, obj_description(oid) FROM pg_class WHERE {views}"  # noqa: S608 - of constants
        known = {row[0]: row[1] for row in db.exec_driver_sql(asked)}
        return [name for name, query in VIEWS.items() if known.get(name) != _mark(query)]

    def make_views(self, db: sa.Connection) -> None:
        changed = self.changed_views(db)
        if changed:
            db.exec_driver_sql(FUNCTION)
        for name in changed:
            db.exec_driver_sql(f"DROP VIEW IF EXISTS {name}")
            # psycopg takes a percent sign for the beginning of a parameter
            db.exec_driver_sql(f"CREATE VIEW {name} AS {VIEWS[name].strip().replace('%', '%%')}")
            db.exec_driver_sql(f"COMMENT ON VIEW {name} IS '{_mark(VIEWS[name])}'")

    def has_words(self, column: sa.Column[str], words: str) -> sa.ColumnElement[bool]:
        # LIKE tells small letters from capitals
        escaped = re.sub(r"([%_\\])", r"\\\1", words)
        return column.ilike(f"%{escaped}%", escape="\\")

    def without_distributions(self, column: sa.Column[str]) -> sa.ColumnElement[str]:
        # a damaged one ends the query
        names = sa.cast(sa.literal(f"{{{','.join(DISTRIBUTIONS)}}}"), ARRAY(sa.String))
        return sa.cast(sa.cast(column, JSONB).op("-")(names), sa.String)

    @contextlib.contextmanager
    def claimed(self, name: str, *, wait: bool) -> Iterator[bool]:
        # by a lock of this session, which the server drops when its connection is gone
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
        # the sentence holds nothing that was sent
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
    except ImportError as error:  # where it is there, and PostgreSQL's library below it is not, it names nothing
        raise type(error)(str(error), name="psycopg") from None
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


_ALLOWED = """SELECT has_table_privilege('virtune.measurements', 'INSERT') AND NOT pg_is_in_recovery(),
    coalesce(has_table_privilege(to_regclass('virtune.summaries'), 'SELECT'), false)"""
"""Whether measurements may be written, and whether summaries may be read: their table came later than the others, on
which a reader may have been granted his rights.
"""
