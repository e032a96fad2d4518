# SPDX-License-Identifier: Apache-2.0
"""The schema of advice: what `virtune advise --json` writes."""

from tools.schemas.typed import Typed, schema_of
from virtune.report.json.advice import SCHEMA, AdviceDocument
from virtune.report.json.audit import TurnPart


def schema() -> str:
    """Return the schema as text."""
    return schema_of(SCHEMA, "Advice for domains", AdviceDocument, Typed(named={TurnPart: "Turn"}))
