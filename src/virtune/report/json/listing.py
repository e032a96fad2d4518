# SPDX-License-Identifier: Apache-2.0
"""The list of studies as a JSON document."""

from collections.abc import Sequence
from typing import Annotated, TypedDict

from virtune.model.evidence import Damaged, Listed
from virtune.model.study import StudyKind
from virtune.report.json.document import AT_LEAST_ONE, IDENTITY, NOT_EMPTY, NOT_NEGATIVE, Moment, Name

SCHEMA = "virtune/list/1"


class _Study(TypedDict):
    """One study."""

    id: Annotated[
        str, "By which `show`, `resume` and `explain` find it; the beginning is enough. HOST/ID of another host's."
    ]
    created: Annotated[Moment, "When it was begun, in UTC."]
    kind: Annotated[StudyKind, "The verb that made it."]
    arms: Annotated[list[Name], "The names of its arms, in the order they were given.", NOT_EMPTY]
    workloads: Annotated[list[Name], "The names of its workloads.", NOT_EMPTY]
    trials: Annotated[int | None, "Trials that it consists of; null of a search, which chooses them.", AT_LEAST_ONE]
    trials_done: Annotated[int, "Trials that gave a measurement.", NOT_NEGATIVE]
    attempts_failed: Annotated[int, "Attempts at trials that failed; a trial is tried twice.", NOT_NEGATIVE]
    finished: Annotated[bool, "Whether every trial gave a measurement."]


class _Damaged(TypedDict):
    """A study that cannot be read."""

    id: Annotated[str, "Its id."]
    why: Annotated[str, "What is wrong with it."]


class ListDocument(TypedDict):
    """What `virtune list --json` writes."""

    schema: Annotated[str, IDENTITY, {"const": SCHEMA}]
    studies: Annotated[list[_Study], "The studies in the store, the newest first."]
    damaged: Annotated[list[_Damaged], "Those that cannot be read."]


def listing_document(studies: Sequence[Listed | Damaged]) -> ListDocument:
    """Return the list as plain JSON values."""
    return {
        "schema": SCHEMA,
        "studies": [
            {
                "id": listed.name,
                "created": listed.study.created,
                "kind": listed.study.kind,
                "arms": [arm.name for arm in listed.study.arms],
                "workloads": [workload.name for workload in listed.study.workloads],
                "trials": None if listed.study.search is not None else len(listed.study.trials),
                "trials_done": listed.done,
                "attempts_failed": listed.failed,
                "finished": listed.finished,
            }
            for listed in studies
            if isinstance(listed, Listed)
        ],
        "damaged": [{"id": study.id, "why": study.why} for study in studies if isinstance(study, Damaged)],
    }
