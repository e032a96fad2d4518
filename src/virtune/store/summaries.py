# SPDX-License-Identifier: Apache-2.0
"""What was worked out of finished studies and kept beside them, so that a fleet's report reads no trial.

All of it can be worked out again: a row that is missing, damaged, of another method or of fewer attempts is none.
"""

import hashlib
import json
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

import sqlalchemy as sa

from virtune.model.evidence import FinishedStudy
from virtune.store.backend import Backend
from virtune.store.queries import NEWEST_FIRST
from virtune.store.rows import own_id
from virtune.store.schema import STUDIES, SUMMARIES, TRIALS

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


def put_questions(db: sa.Connection, backend: Backend, questions: Mapping[str, str]) -> None:
    """Keep the digests of studies that have none."""
    empty = {"method": "", "attempts": 0, "summary": ""}
    rows = [{"study_id": key, "question": digest, **empty} for key, digest in questions.items()]
    if rows:
        db.execute(backend.put_new(SUMMARIES), rows)


def put_summary(db: sa.Connection, backend: Backend, row: Mapping[str, Any]) -> None:
    """Keep the summary of a study in the place of an older one."""
    db.execute(backend.put(SUMMARIES, row, ("study_id",)))


def forget_summary(db: sa.Connection, key: str) -> None:
    """Forget what was worked out of a study that is replaced."""
    db.execute(SUMMARIES.delete().where(SUMMARIES.c.study_id == key))


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
