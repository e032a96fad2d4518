# SPDX-License-Identifier: Apache-2.0
"""SQL views of a SQLite store, for other tools: one row for each study, trial, measured value and verified setting.

They are made when a store is opened for writing, and anew where their text has changed; no table is touched, so that
they are no new format, and a store without them is read as before.
"""

import sqlalchemy as sa

from virtune.model.metric import METRICS

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


def changed_sqlite_views(db: sa.Connection) -> list[str]:
    """Return the views that a store does not have as they are here; a table of the same name is left alone."""
    rows = db.exec_driver_sql("SELECT name, type, sql FROM sqlite_master WHERE name LIKE 'view\\_%' ESCAPE '\\'")
    known = {name: (kind, text) for name, kind, text in rows}
    return [name for name in VIEWS if known.get(name, ("view", ""))[0] == "view" and known.get(name) != _made(name)]


def make_sqlite_views(db: sa.Connection) -> None:
    """Make the views that a store does not have as they are here."""
    for name in changed_sqlite_views(db):
        db.exec_driver_sql(f"DROP VIEW IF EXISTS {name}")
        db.exec_driver_sql(_made(name)[1])


def _made(name: str) -> tuple[str, str]:
    return "view", f"CREATE VIEW {name} AS {VIEWS[name].strip()}"
