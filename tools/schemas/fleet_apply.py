# SPDX-License-Identifier: Apache-2.0
"""The schema of what `virtune fleet apply --json` writes."""

from tools.schemas.typed import Typed, schema_of
from virtune.report.json.fleet_apply import SCHEMA, FleetApplyDocument


def schema() -> str:
    """Return the schema as text."""
    return schema_of(SCHEMA, "A change of the VMs of many hosts", FleetApplyDocument, Typed())
