# SPDX-License-Identifier: Apache-2.0
"""The SQL views of a store in PostgreSQL: the same names and columns as in SQLite.

A record that cannot be read is left out of them: `virtune_json` gives null for what is no JSON.
"""

import zlib

import sqlalchemy as sa

from virtune.model.metric import METRICS
from virtune.store.views import VIEWS as SQLITE_VIEWS

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


def changed_postgres_views(db: sa.Connection) -> list[str]:
    """Return the views that a store does not have as they are here; their text is kept as their comment."""
    views = "relkind = 'v' AND relnamespace = 'virtune'::regnamespace"
    asked = f"SELECT relname, obj_description(oid) FROM pg_class WHERE {views}"  # noqa: S608 - of constants
    known = {row[0]: row[1] for row in db.exec_driver_sql(asked)}
    return [name for name, query in VIEWS.items() if known.get(name) != _mark(query)]


def make_postgres_views(db: sa.Connection) -> None:
    """Make the views that a store does not have as they are here."""
    changed = changed_postgres_views(db)
    if changed:
        db.exec_driver_sql(FUNCTION)
    for name in changed:
        db.exec_driver_sql(f"DROP VIEW IF EXISTS {name}")
        db.exec_driver_sql(f"CREATE VIEW {name} AS {_driver(VIEWS[name])}")
        db.exec_driver_sql(f"COMMENT ON VIEW {name} IS '{_mark(VIEWS[name])}'")


def _driver(query: str) -> str:
    """Write a query for psycopg, to which a percent sign is the beginning of a parameter."""
    return query.strip().replace("%", "%%")


def _mark(query: str) -> str:
    """Return what tells one text of a view from another."""
    return f"virtune {zlib.crc32((FUNCTION + query).encode()):08x}"
