# SPDX-License-Identifier: Apache-2.0
"""The schema of what `virtune fleet audit --json` writes."""

from tools.schemas.typed import Typed, schema_of
from virtune.report.json.fleet import AUDIT, FleetAuditDocument


def schema() -> str:
    """Return the schema as text."""
    return schema_of(AUDIT, "The audit of many hosts", FleetAuditDocument, Typed())
