# SPDX-License-Identifier: Apache-2.0
"""The schema of what `virtune fleet report --json` writes."""

from tools.schemas.typed import Typed, schema_of
from virtune.report.json.fleet_report import SCHEMA, FleetReportDocument


def schema() -> str:
    """Return the schema as text."""
    return schema_of(SCHEMA, "The report of a fleet", FleetReportDocument, Typed())
