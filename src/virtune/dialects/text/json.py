# SPDX-License-Identifier: Apache-2.0
"""Other people's JSON: one object of it, read with the place of each member, and altered only there (pure)."""

import json
import re
from dataclasses import dataclass
from typing import Any

from virtune.dialects.text.lines import Page
from virtune.model.errors import ReadError

_BLANK = re.compile(r"[ \t\r\n]*")
_DECODER = json.JSONDecoder()


@dataclass(frozen=True, slots=True)
class Member:
    """One member of an object: its name and value, where its name begins, where its value stands."""

    name: str
    value: Any
    start: int
    value_start: int
    end: int


@dataclass(frozen=True, slots=True)
class Object:
    """One object: its members in their order, and where it stands."""

    members: tuple[Member, ...]
    start: int
    end: int

    def member(self, name: str) -> Member | None:
        """Return a member by its name."""
        return next((one for one in self.members if one.name == name), None)

    def value(self, name: str) -> Any:
        """Return the value of a member, None where there is none."""
        found = self.member(name)
        return None if found is None else found.value


def read_object(page: Page, start: int = 0) -> Object:
    """Read the object that begins at a place; raises ReadError for text that is no such thing."""
    text = page.text
    try:
        at = _after(text, _blank(text, start), "{")
        members: list[Member] = []
        while text[at : at + 1] != "}":
            name, end = _DECODER.raw_decode(text, at)
            value_start = _blank(text, _after(text, _blank(text, end), ":"))
            value, value_end = _DECODER.raw_decode(text, value_start)
            members.append(Member(str(name), value, at, value_start, value_end))
            at = _blank(text, value_end)
            if text[at : at + 1] == ",":
                at = _blank(text, at + 1)
        return Object(tuple(members), _blank(text, start), at + 1)
    except (ValueError, RecursionError):
        raise ReadError("it is no JSON object") from None


def set_member(page: Page, place: Object, name: str, value: str) -> bytes:
    """Return the bytes with one member set, at its place or as the last."""
    found, written = place.member(name), json.dumps(value)
    if found is not None:
        return page.spliced(found.value_start, found.end, written)
    new = f"{json.dumps(name)}: {written}"
    if not place.members:
        return page.spliced(place.start, place.end, f"{{{new}}}")
    last = place.members[-1]
    gap = page.text[_before(page.text, last.start) : last.start]
    return page.spliced(last.end, last.end, f",{gap}{new}")


def remove_member(page: Page, place: Object, name: str) -> bytes:
    """Return the bytes without one member."""
    names = [one.name for one in place.members]
    if name not in names:
        return page.spliced(0, 0, "")
    at = names.index(name)
    if at > 0:
        return page.spliced(place.members[at - 1].end, place.members[at].end, "")
    if len(names) > 1:
        return page.spliced(place.members[0].start, place.members[1].start, "")
    return page.spliced(place.start, place.end, "{}")


def _blank(text: str, at: int) -> int:
    found = _BLANK.match(text, at)
    return at if found is None else found.end()


def _before(text: str, at: int) -> int:
    """Where the blanks before a place begin."""
    while at > 0 and text[at - 1] in " \t\r\n":
        at -= 1
    return at


def _after(text: str, at: int, mark: str) -> int:
    if text[at : at + 1] != mark:
        raise ValueError(mark)
    return _blank(text, at + 1)
