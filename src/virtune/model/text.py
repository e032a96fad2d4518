# SPDX-License-Identifier: Apache-2.0
"""Make text from files and other programs safe to show, and take off what others put before its lines."""

import itertools
import re
from collections import Counter


def printable(text: str, *, keep: str = "", most: int | None = None) -> str:
    """Return text without control characters: each unprintable character becomes `?`, except those in `keep`.

    At most `most` characters are returned.
    """
    return "".join(character if character.isprintable() or character in keep else "?" for character in text[:most])


_FORMULA = ("=", "+", "-", "@", "\t", "\r")
"""The characters that begin a formula in a spreadsheet; names may come from untrusted files."""


def spreadsheet_cell(text: str) -> str:
    """Return a name that no spreadsheet takes for a formula."""
    return f"'{text}" if text.startswith(_FORMULA) else text


ESCAPE = re.compile(r"\x1b(?:\[[0-?]*[ -/]*[@-~]|[@-Z\\-_])")
"""What a terminal takes for a colour or a movement."""

_PREFIX_MAX = 200
_MARKS_MAX = 1000
_PREFIXES_MAX = 8
_NUMBERS = re.compile(r"\d+|\b(?:Jan|Feb|Mar|Apr|May|Jun|Jul|Aug|Sep|Oct|Nov|Dec|Mon|Tue|Wed|Thu|Fri|Sat|Sun)\b")
"""What of a time stamp changes."""

_BLANKS = re.compile(r"[ \t]+")


def prefix_of(text: str, marks: re.Pattern[str]) -> re.Pattern[str] | None:
    """Return a pattern of what a log, a quotation or a numbering puts before each line of a text; None where nothing
    does.

    `marks` is what certain lines begin with. What stands before two different ones is a prefix: the same on each line
    but for its numbers, as a time stamp is. Before the brace of JSON in one line, once is enough.
    """
    seen: dict[str, set[str]] = {}
    counts: Counter[str] = Counter()
    last = -1
    for mark in itertools.islice(marks.finditer(text), _MARKS_MAX):
        begin = max(text.rfind("\n", 0, mark.start()), text.rfind("\r", 0, mark.start())) + 1
        if begin == last or mark.start() - begin > _PREFIX_MAX:
            continue
        last = begin
        before = ESCAPE.sub("", text[begin : mark.start()]).strip(" \t\ufeff")
        if before.endswith("{"):
            seen.setdefault(_generalised(before.removesuffix("{").rstrip()), set()).update("{}")
        if shape := _generalised(before):
            counts[shape] += 1
            seen.setdefault(shape, set()).add(mark[0])
    shapes = [shape for shape, kinds in seen.items() if shape and len(kinds) > 1]
    shapes.sort(key=lambda shape: (-counts[shape], -len(shape)))
    return re.compile(rf"[ \t]*(?:{'|'.join(shapes[:_PREFIXES_MAX])})[ \t]*", re.ASCII) if shapes else None


def without_prefix(text: str, marks: re.Pattern[str]) -> str:
    """Return a text without colours, and without what stands before its lines, if anything does."""
    if "\x1b" in text:
        text = ESCAPE.sub("", text)
    prefix = prefix_of(text, marks)
    return text if prefix is None else re.sub(rf"^{prefix.pattern}", "", text, flags=re.ASCII | re.MULTILINE)


def _generalised(before: str) -> str:
    """Write a prefix as a pattern with any numbers and any blanks; empty for an empty one."""
    words = (_NUMBERS.split(word) for word in _BLANKS.split(before))
    shape = r"[ \t]+".join(r"(?:\d+|[A-Z][a-z]{2})".join(map(re.escape, parts)) for parts in words)
    return shape + (r"(?!\w)" if before[-1:].isalnum() else "") if before else ""
