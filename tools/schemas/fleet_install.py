# SPDX-License-Identifier: Apache-2.0
"""The schema of what `virtune fleet install --json` writes."""

from tools.schemas.typed import Typed, schema_of
from virtune.report.json.fleet_install import SCHEMA, FleetInstallDocument


def schema() -> str:
    """Return the schema as text."""
    return schema_of(SCHEMA, "What was installed on many hosts", FleetInstallDocument, Typed())
