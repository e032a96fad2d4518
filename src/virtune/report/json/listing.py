# SPDX-License-Identifier: Apache-2.0
"""The studies of a store as JSON documents: their list, and what was derived again of them."""

from collections.abc import Sequence
from typing import Annotated, Any, TypedDict

from virtune.model.evidence import Damaged, DerivedStudy, Listed
from virtune.model.measurement import METHOD
from virtune.model.study import StudyKind
from virtune.report.json import document as doc
from virtune.report.json.document import maker, part

LIST = "virtune/list/2"


class _Study(TypedDict):
    """One study."""

    id: Annotated[
        str,
        "By which `show`, `resume` and `explain` find it; the beginning is enough. HOST/ID of another host's.",
        doc.At("name"),
    ]
    created: Annotated[doc.Moment, "When it was begun, in UTC.", doc.At("study.created")]
    title: Annotated[str, "What was to be found out, in its author's words; may be empty.", doc.At("study.title")]
    note: Annotated[str, "What was noted of it; may be empty.", doc.At("study.note")]
    tags: Annotated[list[str], "Its tags; `@TAG` finds the newest study with one."]
    kind: Annotated[StudyKind, "The verb that made it.", doc.At("study.kind")]
    arms: Annotated[list[doc.Name], "The names of its arms, in the order they were given.", doc.NOT_EMPTY]
    workloads: Annotated[list[doc.Name], "The names of its workloads.", doc.NOT_EMPTY]
    trials: Annotated[
        int | None,
        "Trials that it consists of, at most while it is not finished; null of a search, which chooses them.",
        doc.AT_LEAST_ONE,
    ]
    trials_done: Annotated[int, "Trials that gave a measurement.", doc.NOT_NEGATIVE, doc.At("done")]
    attempts_failed: Annotated[
        int, "Attempts at trials that failed; a trial is tried twice.", doc.NOT_NEGATIVE, doc.At("failed")
    ]
    finished: Annotated[bool, "Whether every trial gave a measurement."]


class ListDocument(TypedDict):
    """What `virtune show list --json` writes."""

    schema: Annotated[str, doc.IDENTITY, {"const": LIST}]
    studies: Annotated[list[_Study], "The studies in the store, the newest first."]
    damaged: Annotated[Any, list[Damaged], "Those that cannot be read."]


class DeriveDocument(TypedDict):
    """What `virtune show derive --json` writes."""

    schema: Annotated[str, doc.IDENTITY, {"const": "virtune/derive/1"}]
    virtune: doc.ProgramVersion
    method: Annotated[int, "The method by which was derived.", doc.AT_LEAST_ONE]
    studies: Annotated[
        Any,
        list[DerivedStudy],
        "The studies, the newest first, or as they were named; of a database, which several machines may derive at "
        "once, from some study on.",
    ]


def listing_document(studies: Sequence[Listed | Damaged]) -> ListDocument:
    return part(
        ListDocument,
        studies=[one for one in studies if isinstance(one, Listed)],
        damaged=[one for one in studies if isinstance(one, Damaged)],
    )


@maker
def _listed(listed: Listed) -> _Study:
    study = listed.study
    return part(
        _Study,
        listed,
        tags=[*study.tags],
        arms=[arm.name for arm in study.arms],
        workloads=[workload.name for workload in study.workloads],
        trials=study.most_trials(finished=listed.finished),
    )


def derive_document(studies: Sequence[DerivedStudy]) -> DeriveDocument:
    return part(DeriveDocument, method=METHOD, studies=studies)
