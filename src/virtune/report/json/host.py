# SPDX-License-Identifier: Apache-2.0
"""A host as a JSON document: its facts, whose keys name their units, and a check of it.

A fact that could not be read is null, and `unknown` says under its path (`cpu.governors`) why.
"""

from collections.abc import Mapping
from dataclasses import fields, is_dataclass
from enum import Enum
from typing import Annotated, Any, TypedDict

from virtune.model.facts import HostFacts, Unknown
from virtune.model.reason import OF_HOSTS, Reason
from virtune.model.remark import Remark
from virtune.model.result import Fitness
from virtune.report.json.document import IDENTITY, ProgramVersion, part, types_of
from virtune.report.json.parts import RemarkPart

PROBE = "virtune/probe/1"


class ProbeDocument(TypedDict):
    """What `virtune host probe --json` writes. The unit of a fact is in its name."""

    schema: Annotated[str, IDENTITY, {"const": PROBE}]
    host: Annotated[Any, HostFacts, "All facts. One that could not be read is null, and `unknown` says why."]
    findings: Annotated[list[RemarkPart], "What to know before measuring on this host, the most severe first."]
    unknown: Annotated[
        Mapping[str, Annotated[str, "The reason in one clause."]],
        "Why a fact is not known, by its path below `host` (cpu.governors, disks[0].device.model).",
    ]


CheckDocument: Any = TypedDict(
    "CheckDocument",
    {
        "schema": Annotated[str, IDENTITY, {"const": "virtune/check/2"}],
        "virtune": ProgramVersion,
        **types_of(Fitness),  # type: ignore[misc]  # its other keys are the record's
        "advice": Annotated[list[RemarkPart], "What to do about it, the most severe first."],
        "unfit_reasons": Annotated[
            list[Annotated[Reason, {"enum": [*OF_HOSTS]}]], "The codes of these reasons, in the same order."
        ],
    },
)
CheckDocument.__doc__ = "What `virtune host check --json` writes. Seconds, bytes, 1/s and shares (0 to 1) throughout."


def probe_document(facts: HostFacts, remarks: tuple[Remark, ...]) -> ProbeDocument:
    unknown: dict[str, str] = {}
    host = _plain(facts, "", unknown)
    return part(ProbeDocument, host=host, findings=remarks, unknown=unknown)


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


def check_document(fitness: Fitness) -> Mapping[str, Any]:
    document: Mapping[str, Any] = part(CheckDocument, fitness)
    return document
