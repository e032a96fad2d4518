# SPDX-License-Identifier: Apache-2.0
"""The schema of what `virtune fleet probe --json` writes."""

from tools.schemas.typed import Typed, schema_of
from virtune.report.json.fleet import PROBE, FleetProbeDocument


def schema() -> str:
    """Return the schema as text."""
    return schema_of(PROBE, "The probe of many hosts", FleetProbeDocument, Typed())
