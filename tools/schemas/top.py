# SPDX-License-Identifier: Apache-2.0
"""The schema of `virtune top --once --json`."""

from tools.schemas.typed import Typed, schema_of
from virtune.report.json.top import SCHEMA, TopDocument


def schema() -> str:
    """Return the schema as text."""
    return schema_of(SCHEMA, "The disks of running VMs", TopDocument, Typed())
