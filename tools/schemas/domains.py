# SPDX-License-Identifier: Apache-2.0
"""The schema of domains: what `virtune probe --connect URI --json` writes."""

from tools.schemas.audit import NAMED
from tools.schemas.typed import Typed, schema_of
from virtune.report.json.domains import SCHEMA, DomainDiskPart, DomainPart, DomainsDocument, RunningPart

PARTS = {DomainPart: "Domain", RunningPart: "Running", DomainDiskPart: "Disk"}


def schema() -> str:
    """Return the schema as text."""
    return schema_of(SCHEMA, "Domains and their disks", DomainsDocument, Typed(named={**NAMED, **PARTS}))
