# SPDX-License-Identifier: Apache-2.0
"""The schema of what `virtune derive --json` writes."""

from tools.schemas.typed import Typed, schema_of
from virtune.report.json.derive import SCHEMA, DeriveDocument


def schema() -> str:
    """Return the schema as text."""
    return schema_of(SCHEMA, "What was derived again", DeriveDocument, Typed())
