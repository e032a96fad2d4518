# SPDX-License-Identifier: Apache-2.0
"""The shape of QEMU's answers to the commands whose answers are read; another shape is refused at the door.

A monitor may belong to a program that is broken or hostile. Only what somebody reads is described; whatever else an
answer has is let through unread.

Of QEMU's self-description (`query-qmp-schema` and property lists) one knob is read at a time. The schema hides the
names of types, so a member is found by its path: command, argument, variant, member. A value that was not compiled in
is missing from its enumeration, so querying is more reliable than the version.
"""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cache
from types import MappingProxyType
from typing import Annotated, Any, Required

from pydantic import Field, TypeAdapter, ValidationError
from typing_extensions import TypedDict

from virtune.model.knob import Answer, AskDevice, AskObject, AskSchema, Support
from virtune.model.text import printable, setting_text

_MANY = 1024
"""Entries of a list: far more disks or CPUs than a machine can have. Each disk costs some commands more."""

Count = Annotated[int, Field(ge=0, le=2**63 - 1)]
"""QEMU counts in 64 bits with a sign."""

_Word = Annotated[str, Field(max_length=64 * 1024)]
_Address = Annotated[int, Field(ge=0, le=2**64 - 1)]
_Whole = Annotated[int, Field(ge=-(2**63), le=2**64 - 1)]
_Real = Annotated[float, Field(allow_inf_nan=False)]
Value = bool | _Whole | _Real | _Word | None


FAILURES = tuple(
    f"{how}_{what}_operations" for how in ("failed", "invalid") for what in ("rd", "wr", "flush", "unmap")
)
"""The counters of requests that failed, and of those that asked for what is not there."""


def _object(always: Mapping[str, Any], seldom: Mapping[str, Any] = MappingProxyType({})) -> Any:
    """Return the type of an object that has some keys always, and others where QEMU has something to say."""
    return TypedDict("_Object", {name: Required[kind] for name, kind in always.items()} | seldom, total=False)  # type: ignore[operator]


def _list(of: Any, most: int | None = _MANY, *, least: int = 0) -> Any:
    return Annotated[list[of], Field(min_length=least, max_length=most)]


_CACHE = _object(dict.fromkeys(("writeback", "direct", "no-flush"), bool))
_IMAGE = _object(
    {"filename": _Word}, {"cluster-size": Count, "format-specific": _object({}, {"data": dict[str, Any]})}
)
_INSERTED = _object(
    {"file": _Word, "ro": bool, "drv": _Word, "image": _IMAGE, "cache": _CACHE}
    | dict.fromkeys(("iops", "iops_rd", "iops_wr", "bps", "bps_rd", "bps_wr"), Count),
    {"node-name": _Word, "group": _Word},
)
_BINS = _object({"boundaries": _list(Count), "bins": _list(Count, _MANY + 1)})
_COUNTERS = _object(
    dict.fromkeys((f"{what}_operations" for what in ("rd", "wr", "flush")), Count)
    | dict.fromkeys((f"{what}_total_time_ns" for what in ("rd", "wr", "flush")), Count)
    | {"rd_bytes": Count, "wr_bytes": Count},
    dict.fromkeys((*FAILURES, "unmap_operations", "unmap_total_time_ns"), Count)
    | dict.fromkeys((f"{what}_latency_histogram" for what in ("rd", "wr", "flush")), _BINS),
)
_PROPERTIES = _list(_object({"name": _Word, "type": _Word}), None)
_MEMBERS = _list(_object({}, {"name": _Word, "type": _Word, "features": list[_Word]}), None)
_VARIANTS = _list(_object({"case": _Word, "type": _Word}), None)

_READ: Mapping[str, Any] = {
    "query-status": _object({"running": bool, "status": _Word}),
    "query-name": _object({}, {"name": _Word}),
    "query-kvm": _object({"enabled": bool}),
    "query-version": _object({"qemu": _object(dict.fromkeys(("major", "minor", "micro"), Count)), "package": _Word}),
    "query-block": _list(_object({"device": _Word, "removable": bool}, {"qdev": _Word, "inserted": _INSERTED})),
    "query-blockstats": _list(_object({"stats": _COUNTERS}, dict.fromkeys(("device", "qdev", "node-name"), _Word))),
    "query-named-block-nodes": _list(_object(
        {"node-name": _Word, "drv": _Word, "cache": _CACHE},
        {"file": _Word, "detect_zeroes": _Word, "image": _IMAGE, "encrypted": bool},
    ), None),
    "query-block-jobs": _list(_object({"device": _Word, "type": _Word})),
    "query-jobs": _list(_object(
        {"id": _Word, "type": _Word, "status": _Word, "current-progress": Count}, {"error": _Word},
    )),
    "x-debug-query-block-graph": _object({
        "nodes": _list(_object({"id": Count, "type": _Word, "name": _Word}), 64 * _MANY),
        "edges": _list(_object({"parent": Count, "child": Count, "name": _Word}), 64 * _MANY),
    }),
    "query-block-exports": _list(_object({"type": _Word}), None),
    "query-stats": _list(_object({"stats": _list(_object({"name": _Word, "value": Count}))})),
    "query-migrate": _object({}, {"status": _Word}),
    "query-cpus-fast": _list(_object({"qom-path": _Word}, {"cpu-index": Count, "thread-id": Count}), None, least=1),
    "query-iothreads": _list(_object({"id": _Word, "thread-id": Count}, {"poll-max-ns": Count})),
    "query-memory-size-summary": _object({"base-memory": Count}),
    "x-query-virtio-status": _object({
        "name": _Word, "num-vqs": Count, "guest-features": _object({"transports": list[_Word]}),
    }),
    "x-query-virtio-queue-status": _object(
        {"vring-num": Annotated[int, Field(ge=0, le=32768)]}
        | dict.fromkeys(("vring-desc", "vring-avail", "vring-used"), _Address)
    ),
    "human-monitor-command": _Word,
    "query-qmp-schema": _list(_object(
        {"name": _Word, "meta-type": _Word},
        {"arg-type": _Word, "json-type": _Word, "members": _MEMBERS, "values": list[_Word], "variants": _VARIANTS},
    ), None),
    "device-list-properties": _PROPERTIES,
    "qom-list-properties": _PROPERTIES,
    "qom-list": _PROPERTIES,
    "qom-get": Value,
    "qom-get iothread": _Word,
    "qom-get parent_bus": _Word,
    "qom-get poll-max-ns": Count,
    "qom-get limits": dict[str, Count],
    "qom-get iothread-vq-mapping": _list(_object({"iothread": _Word}, {"vqs": list[Count] | None}), None),
}  # fmt: skip
"""What is read of an answer, by its command; of `qom-get` by the property too, where it is no single value."""


def read_answer(command: str, arguments: Mapping[str, Any], said: object) -> Any:
    """Return an answer that has the shape of QEMU's, and None for a command whose answer nobody reads. Raises
    ValueError with what is wrong with it.
    """
    own = f"{command} {arguments.get('property')}"
    name = own if own in _READ else command
    if name not in _READ:
        return None
    try:
        _shape(name).validate_python(said, strict=True)
    except ValidationError as error:
        first = error.errors(include_url=False, include_input=False, include_context=False)[0]
        place = ".".join(printable(str(part), most=60) for part in first["loc"])
        raise ValueError(f"{place or 'it'}: {first['msg'][:1].lower()}{first['msg'][1:]}") from None
    return said


@cache
def _shape(name: str) -> TypeAdapter[Any]:
    return TypeAdapter(_READ[name])


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
    default = f", default {setting_text(found['default-value'])}" if "default-value" in found else ""
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
