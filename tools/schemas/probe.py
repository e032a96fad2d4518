# SPDX-License-Identifier: Apache-2.0
"""The schema of a host's facts: what `virtune probe --json` writes and every study keeps."""

from tools.schemas.facts_words import FACTS
from tools.schemas.typed import Typed, schema_of
from virtune.report.json.probe import SCHEMA, ProbeDocument


def schema() -> str:
    """Return the schema as text."""
    return schema_of(SCHEMA, "The facts of a host", ProbeDocument, Typed(FACTS))
