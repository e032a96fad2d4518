# SPDX-License-Identifier: Apache-2.0
"""The schema of an audit: what `virtune audit --json` writes."""

from tools.schemas.typed import Typed, schema_of
from virtune.report.json.audit import SCHEMA, AuditDocument, FindingPart, TurnPart

NAMED = {FindingPart: "Finding", TurnPart: "Turn"}
"""The parts that are definitions, by their names."""


def schema() -> str:
    """Return the schema as text."""
    return schema_of(SCHEMA, "An audit of domains", AuditDocument, Typed(named=NAMED))
