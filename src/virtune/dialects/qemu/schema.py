# SPDX-License-Identifier: Apache-2.0
"""Read QEMU's self-description (`query-qmp-schema` and property lists) for one knob at a time. The schema hides the
names of types, so a member is found by its path: command, argument, variant, member.

A value that was not compiled in is missing from its enumeration, so querying is more reliable than the version.
"""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from virtune.model.knob import Answer, AskDevice, AskObject, AskSchema, Support

Entities = Mapping[str, Mapping[str, Any]]
"""The schema by the (hidden) names of its entities."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Member:
    """One member of a command's arguments: its kind, its words if it is an enumeration, its special features."""

    kind: str
    values: tuple[str, ...] = ()
    features: tuple[str, ...] = ()


def entities(schema: Sequence[Mapping[str, Any]]) -> Entities:
    """Index a parsed reply of `query-qmp-schema`."""
    return {entity["name"]: entity for entity in schema}


def find_member(known: Entities, ask: AskSchema) -> Member | None:
    """Return the member that is asked for, None where this build does not have it."""
    command = known.get(ask.command)
    if command is None or command.get("meta-type") != "command":
        return None
    type_name: str = command["arg-type"]
    found: Mapping[str, Any] | None = None
    for name in ask.member.split("."):
        found = next((m for m in _members(known, type_name, ask.variant) if m["name"] == name), None)
        if found is None:
            return None
        type_name = found["type"]
    return None if found is None else _member(known, found)


def answer_schema(ask: AskSchema, known: Entities, *, program: str) -> Answer:
    """Return a program's answer on a knob, from its schema."""
    member = find_member(known, ask)
    if member is None:
        return Answer(program=program, standing=Support.ABSENT, detail=f"no {_path(ask)}")
    detail = f"{_path(ask)}: {', '.join((member.kind, *member.features))}"
    if member.values:
        return Answer(program=program, standing=Support.VALUES, values=member.values, detail=detail)
    return Answer(program=program, standing=Support.EXISTS, detail=detail)


def answer_properties(ask: AskDevice | AskObject, reply: Mapping[str, Any], *, program: str) -> Answer:
    """Say what a reply of `device-list-properties` or `qom-list-properties` says about a knob."""
    type_name = ask.device if isinstance(ask, AskDevice) else ask.object
    if "error" in reply:
        detail = f"no {type_name}: {reply['error'].get('desc', 'unknown error')}"
        return Answer(program=program, standing=Support.ABSENT, detail=detail)
    found = next((p for p in reply["return"] if p["name"] == ask.property), None)
    if found is None:
        return Answer(program=program, standing=Support.ABSENT, detail=f"no {ask.property} of {type_name}")
    default = f", default {_word(found['default-value'])}" if "default-value" in found else ""
    detail = f"{type_name} {ask.property}: {found['type']}{default}"
    return Answer(program=program, standing=Support.EXISTS, detail=detail)


def _members(known: Entities, type_name: str, variant: str | None) -> Iterator[Mapping[str, Any]]:
    """The members of an object, with those of its variant; of an alternate, the members of all that it may be."""
    entity = known.get(type_name, {})
    match entity.get("meta-type"):
        case "object":
            yield from entity.get("members", ())
            for case in entity.get("variants", ()):
                if case["case"] == variant:
                    yield from _members(known, case["type"], variant)
        case "alternate":
            for member in entity.get("members", ()):
                yield from _members(known, member["type"], variant)


def _member(known: Entities, member: Mapping[str, Any]) -> Member:
    entity = known.get(member["type"], {})
    features = tuple(member.get("features", ()))
    match entity.get("meta-type"):
        case "enum":
            # Since QEMU 6.2 an enumeration lists `members`; `values` is the older form, kept for old clients.
            words = tuple(m["name"] for m in entity["members"]) if "members" in entity else tuple(entity["values"])
            return Member(kind="enum", values=words, features=features)
        case "builtin":
            return Member(kind=str(entity.get("json-type", "value")), features=features)
        case "array":
            return Member(kind="list", features=features)
        case kind:
            return Member(kind=str(kind or "value"), features=features)


def _path(ask: AskSchema) -> str:
    return " ".join(word for word in (ask.command, ask.variant, ask.member) if word)


def _word(value: object) -> str:
    return {True: "on", False: "off"}[value] if isinstance(value, bool) else str(value)
