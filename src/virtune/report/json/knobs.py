# SPDX-License-Identifier: Apache-2.0
"""Knobs as a JSON document."""

import re
from collections.abc import Mapping, Sequence
from typing import Annotated, Any, Literal, TypedDict, cast

from virtune.model import knob as kinds
from virtune.report.json.document import IDENTITY, NOT_EMPTY, Name, ProgramVersion, maker, part
from virtune.report.pages.knobs import EVIDENCE, Answers

_TAGS = {"pattern": f"^({'|'.join(map(re.escape, EVIDENCE))}) "}

_Low = Annotated[int, "The smallest value."]
_High = Annotated[int, "The largest value; 2^63 - 1 where nobody documents a bound."]
_PowerOfTwo = Annotated[bool, "Whether it must be a power of two."]
_Command = "Which question."
_Kind = "The kind of values."


class _Choice(TypedDict):
    """One of a few words."""

    kind: Annotated[Literal["choice"], _Kind]
    values: Annotated[list[Annotated[str, "A word."]], "The words.", NOT_EMPTY]


class _Number(TypedDict):
    """A whole number in a range."""

    kind: Annotated[Literal["number"], _Kind]
    low: _Low
    high: _High
    unit: Annotated[str, "Its unit; empty for a count."]
    power_of_two: _PowerOfTwo


class _Size(TypedDict):
    """A number of bytes in a range."""

    kind: Annotated[Literal["size"], _Kind]
    low: _Low
    high: _High
    power_of_two: _PowerOfTwo


class _Switch(TypedDict):
    """On or off."""

    kind: Annotated[Literal["switch"], _Kind]


class _Text(TypedDict):
    """Free text."""

    kind: Annotated[Literal["text"], _Kind]
    shape: Annotated[str, "What it looks like, in words."]


DomainOfKnob = _Choice | _Number | _Size | _Switch | _Text


class _AskSchema(TypedDict):
    """Asks QMP query-qmp-schema."""

    kind: Annotated[Literal["AskSchema"], _Command]
    command: Annotated[str, "The QMP command whose arguments are looked at."]
    member: Annotated[str, "The argument, perhaps dotted (cache.direct)."]
    variant: Annotated[str | None, "The variant that it belongs to (qcow2); null where it belongs to all."]


class _AskDevice(TypedDict):
    """Asks QMP device-list-properties."""

    kind: Annotated[Literal["AskDevice"], _Command]
    device: Annotated[str, "The type of device."]
    property: Annotated[str, "The property."]


class _AskObject(TypedDict):
    """Asks QMP qom-list-properties."""

    kind: Annotated[Literal["AskObject"], _Command]
    object: Annotated[str, "The type of object."]
    property: Annotated[str, "The property."]


AskOfKnob = _AskSchema | _AskDevice | _AskObject


class KnobPart(TypedDict):
    """One thing that can be turned."""

    id: Annotated[str, "Its name, `room.word` (disk.aio)."]
    number: Annotated[str, "The topic that it belongs to; knobs of one topic share it.", {"pattern": "^K[0-9]+$"}]
    layer: Annotated[kinds.Layer, "The level of the I/O path."]
    default: Annotated[str, "What the system does when nobody turns it: a value, or words in round brackets."]
    needs: Annotated[list[Annotated[str, "One condition, in words."]], "What must be there for it to work."]
    change: Annotated[kinds.Change, "What it takes to turn it on a system that runs."]
    in_guest: Annotated[kinds.Change | None, "The same in a guest of virtune's own, null where it is no other."]
    risk: Annotated[kinds.Risk, "The worst that turning it can do."]
    risk_note: Annotated[str, "That in words; empty where there is no risk."]
    what: Annotated[str, "What it is."]
    why: Annotated[str, "Why one would turn it."]
    spelled: Annotated[Mapping[str, Annotated[str, "The words to write."]], "How each system writes it, by system."]
    source: Annotated[
        list[Annotated[str, "Evidence and source.", _TAGS]],
        f"Where this is known from. Each begins with its evidence: {', '.join(EVIDENCE)}.",
        NOT_EMPTY,
    ]
    place: Annotated[list[Name], "The path of what it sets in a stack; empty where virtune turns nothing."]
    domain: Annotated[DomainOfKnob, "What may be written."]
    ask: Annotated[AskOfKnob | None, "The question to QEMU by which it is looked for; null where there is none."]
    answers: Annotated[Any, list[kinds.Answer], "What each program said; empty without a question."]


class KnobsDocument(TypedDict):
    """What `virtune host knobs --json` writes."""

    schema: Annotated[str, IDENTITY, {"const": "virtune/knobs/1"}]
    virtune: ProgramVersion
    asked: Annotated[bool, "Whether the installed QEMU was asked; false with `--no-ask`."]
    knobs: Annotated[list[KnobPart], "The knobs that were chosen, in the order of the I/O path."]


def knobs_document(knobs: Sequence[kinds.Knob], answers: Answers, *, asked: bool) -> KnobsDocument:
    return part(KnobsDocument, asked=asked, knobs=[_knob(one, answers.get(one.id, ())) for one in knobs])


def _knob(knob: kinds.Knob, answers: Sequence[kinds.Answer]) -> KnobPart:
    return part(KnobPart, knob, answers=answers)


_DOMAINS: Mapping[type, Any] = {
    kinds.Choice: _Choice,
    kinds.Number: _Number,
    kinds.Size: _Size,
    kinds.Switch: _Switch,
    kinds.Text: _Text,
}
_ASKS: Mapping[type, Any] = {kinds.AskSchema: _AskSchema, kinds.AskDevice: _AskDevice, kinds.AskObject: _AskObject}


@maker
def _domain(domain: kinds.Domain) -> DomainOfKnob:
    return cast("DomainOfKnob", part(_DOMAINS[type(domain)], domain))


@maker
def _ask(ask: kinds.Ask) -> AskOfKnob:
    return cast("AskOfKnob", part(_ASKS[type(ask)], ask))
