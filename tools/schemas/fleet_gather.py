# SPDX-License-Identifier: Apache-2.0
"""The schema of what `virtune fleet gather --json` writes."""

from tools.schemas.typed import Typed, schema_of
from virtune.report.json.fleet_gather import SCHEMA, GatherDocument


def schema() -> str:
    """Return the schema as text."""
    return schema_of(SCHEMA, "What was gathered from many hosts", GatherDocument, Typed())
