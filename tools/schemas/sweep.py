# SPDX-License-Identifier: Apache-2.0
"""The schema of a sweep: what `virtune sweep` writes with `--json`."""

from tools.schemas.typed import Typed, schema_of
from virtune.report.json.sweep import SCHEMA, SweepDocument


def schema() -> str:
    """Return the schema as text."""
    return schema_of(SCHEMA, "One stack under more and more load", SweepDocument, Typed())
