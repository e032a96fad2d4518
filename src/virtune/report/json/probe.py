# SPDX-License-Identifier: Apache-2.0
"""A host's facts for programs: one document whose keys name their units.

A fact that could not be read is null, and `unknown` says under its path (`cpu.governors`) why.
"""

from dataclasses import fields, is_dataclass
from enum import Enum
from typing import Any

from virtune.model.facts import HostFacts, Unknown
from virtune.model.remark import Remark

SCHEMA = "virtune/probe/1"


def probe_document(facts: HostFacts, remarks: tuple[Remark, ...]) -> dict[str, Any]:
    """Return the document that `virtune probe --json` writes."""
    unknown: dict[str, str] = {}
    host = _plain(facts, "", unknown)
    return {
        "schema": SCHEMA,
        "host": host,
        "findings": [_plain(remark, "", {}) for remark in remarks],
        "unknown": unknown,
    }


def _plain(value: object, path: str, unknown: dict[str, str]) -> Any:
    if isinstance(value, Unknown):
        unknown[path] = value.because
        return None
    if is_dataclass(value):
        members = ((field.name, getattr(value, field.name)) for field in fields(value))
        return {name: _plain(member, f"{path}.{name}".lstrip("."), unknown) for name, member in members}
    if isinstance(value, tuple):
        return [_plain(member, f"{path}[{index}]", unknown) for index, member in enumerate(value)]
    return value.value if isinstance(value, Enum) else value
