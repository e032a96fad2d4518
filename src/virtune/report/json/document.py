# SPDX-License-Identifier: Apache-2.0
"""The types of which documents are made.

A document is a TypedDict. `Annotated` gives each key its words and, as a mapping, its limits in JSON Schema's terms.
mypy compares it with the code that makes the document, and the published schema is generated from it
(`tools/schemas/typed.py`).
"""

from enum import Enum, auto
from typing import Annotated

IDENTITY = "What this document is, and the version of its schema."
"""The words of the key `schema`."""

ProgramVersion = Annotated[str, "The version of virtune that wrote this document."]

A_MOMENT = {"pattern": r"^\d{4}-\d{2}-\d{2}T\d{2}:\d{2}:\d{2}\+00:00$"}

Moment = Annotated[str, A_MOMENT]
"""An instant in UTC, as `datetime.isoformat` writes it."""

Sentence = Annotated[str, "A sentence."]
Name = Annotated[str, "A name."]

CODE = "The same as a code, which stays the same whatever the words are."
"""The words of the key `reason`."""

NOT_NEGATIVE = {"minimum": 0}
POSITIVE = {"exclusiveMinimum": 0}
AT_LEAST_ONE = {"minimum": 1}
NOT_EMPTY = {"minItems": 1}


class Keys(Enum):
    """Of what the keys of a mapping are names; the schema lists them."""

    METRICS = auto()
    """Of metrics; one that is missing was not measured."""

    UNITS = auto()
    """Of metrics, all of them; the values are their units."""

    CAUSES = auto()
    """Of the remarks that make a trial invalid."""

    GATES = auto()
    """Of gates; one that is missing was not read."""
