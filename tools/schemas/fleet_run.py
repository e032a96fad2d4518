# SPDX-License-Identifier: Apache-2.0
"""The schema of what `virtune fleet run --json` writes."""

from tools.schemas.typed import Typed, schema_of
from virtune.report.json.fleet_run import SCHEMA, FleetRunDocument


def schema() -> str:
    """Return the schema as text."""
    return schema_of(SCHEMA, "A study on many hosts", FleetRunDocument, Typed())
