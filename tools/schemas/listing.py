# SPDX-License-Identifier: Apache-2.0
"""The schema of the list of studies: what `virtune list --json` writes."""

from tools.schemas.typed import Typed, schema_of
from virtune.report.json.listing import SCHEMA, ListDocument


def schema() -> str:
    """Return the schema as text."""
    return schema_of(SCHEMA, "The studies in a store", ListDocument, Typed())
