# SPDX-License-Identifier: Apache-2.0
"""What was derived again of stored studies, as a JSON document."""

from collections.abc import Sequence
from typing import Annotated, TypedDict

from virtune import __version__
from virtune.model.measurement import METHOD
from virtune.report.json.document import AT_LEAST_ONE, IDENTITY, NOT_NEGATIVE, ProgramVersion

SCHEMA = "virtune/derive/1"


class _Study(TypedDict):
    """One study."""

    id: Annotated[str, "Its id; of another host's study HOST/ID."]
    derived: Annotated[int, "Attempts at trials that got new figures.", NOT_NEGATIVE]
    current: Annotated[int, "Attempts whose figures are by this method already.", NOT_NEGATIVE]
    unreadable: Annotated[int, "Attempts that this method cannot read: their older figures stay.", NOT_NEGATIVE]
    because: Annotated[str | None, "Why the study was left out: it is damaged; null where it was not."]


class DeriveDocument(TypedDict):
    """What `virtune derive --json` writes."""

    schema: Annotated[str, IDENTITY, {"const": SCHEMA}]
    virtune: ProgramVersion
    method: Annotated[int, "The method by which was derived.", AT_LEAST_ONE]
    studies: Annotated[
        list[_Study],
        "The studies, the newest first, or as they were named; of a database, which several machines may derive at "
        "once, from some study on.",
    ]


def derive_document(rows: Sequence[tuple[str, int, int, int, str]]) -> DeriveDocument:
    """Return what was derived: of each study its name, the three counts, and why it was left out."""
    return {
        "schema": SCHEMA,
        "virtune": __version__,
        "method": METHOD,
        "studies": [
            {"id": name, "derived": derived, "current": current, "unreadable": unreadable, "because": because or None}
            for name, derived, current, unreadable, because in rows
        ],
    }
