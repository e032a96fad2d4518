# SPDX-License-Identifier: Apache-2.0
"""The schema of a fleet's inventory: what `virtune fleet inventory --json` writes."""

from tools.schemas.typed import Typed, schema_of
from virtune.report.json.fleet_inventory import SCHEMA, InventoryDocument


def schema() -> str:
    """Return the schema as text."""
    return schema_of(SCHEMA, "The hosts of a fleet", InventoryDocument, Typed())
