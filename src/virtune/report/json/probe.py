# SPDX-License-Identifier: Apache-2.0
"""A host's facts for programs: one document whose keys name their units.

A fact that could not be read is null, and `unknown` says under its path (`cpu.governors`) why.
"""

from collections.abc import Mapping
from dataclasses import fields, is_dataclass
from enum import Enum
from typing import Annotated, Any, TypedDict

from virtune.model.facts import HostFacts, Unknown
from virtune.model.remark import Remark
from virtune.report.json.document import IDENTITY
from virtune.report.json.parts import RemarkPart, remark_part

SCHEMA = "virtune/probe/1"


class ProbeDocument(TypedDict):
    """What `virtune probe --json` writes. The unit of a fact is in its name."""

    schema: Annotated[str, IDENTITY, {"const": SCHEMA}]
    host: Annotated[Any, HostFacts, "All facts. One that could not be read is null, and `unknown` says why."]
    findings: Annotated[list[RemarkPart], "What to know before measuring on this host, the most severe first."]
    unknown: Annotated[
        Mapping[str, Annotated[str, "The reason in one clause."]],
        "Why a fact is not known, by its path below `host` (cpu.governors, disks[0].device.model).",
    ]


def probe_document(facts: HostFacts, remarks: tuple[Remark, ...]) -> ProbeDocument:
    """Return the document that `virtune probe --json` writes."""
    unknown: dict[str, str] = {}
    host = _plain(facts, "", unknown)
    return {
        "schema": SCHEMA,
        "host": host,
        "findings": [remark_part(remark) for remark in remarks],
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
