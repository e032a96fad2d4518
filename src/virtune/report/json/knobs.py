# SPDX-License-Identifier: Apache-2.0
"""Knobs as a JSON document."""

import re
from collections.abc import Mapping, Sequence
from typing import Annotated, Any, TypedDict

from virtune.model import knob as kinds
from virtune.report.json.document import IDENTITY, NOT_EMPTY, Name, ProgramVersion, part
from virtune.report.pages.knobs import EVIDENCE, Answers

_TAGS = {"pattern": f"^({'|'.join(map(re.escape, EVIDENCE))}) "}


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
    domain: Annotated[Any, kinds.Domain, "What may be written."]
    ask: Annotated[Any, kinds.Ask | None, "The question to QEMU by which it is looked for; null where there is none."]
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
