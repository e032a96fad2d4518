# SPDX-License-Identifier: Apache-2.0
"""The schema of `virtune diagnose --json`."""

from tools.schemas.typed import Typed, schema_of
from virtune.report.json.diagnose import SCHEMA, DiagnoseDocument


def schema() -> str:
    """Return the schema as text."""
    return schema_of(SCHEMA, "A diagnosis", DiagnoseDocument, Typed())
