# SPDX-License-Identifier: Apache-2.0
"""Make text from files and other programs safe to show, and take off what others put before its lines. What a
misspelled word may have meant. And sizes and times: read from text at the door, written back for people.

Sizes follow fio's default (`kb_base=1024`): `4k` is 4096 bytes. Times need their unit, except that a bare
number means seconds. Numbers meant for people get three to four significant digits, never more than was measured.
"""

import itertools
import math
import re
from collections import Counter
from collections.abc import Iterable
from dataclasses import dataclass
from difflib import get_close_matches
from enum import StrEnum
from typing import Annotated, NewType, Self

A_MOMENT = {"pattern": r"^\d{4}-\d{2}-\d{2}T\d{2}:\d{2}:\d{2}\+00:00$"}
"""An instant in UTC, as `datetime.isoformat` writes it, in JSON Schema's terms."""

NOT_NEGATIVE = {"minimum": 0}
AT_LEAST_ONE = {"minimum": 1}
SHARE = {"minimum": 0, "maximum": 1}

Name = Annotated[str, "A name."]

LEFT_OUT = "in no document"
"""Marks a field of a record that its part of a document has not (`Annotated[Histogram, LEFT_OUT]`)."""


@dataclass(frozen=True, slots=True)
class At:
    """Where in its source a document's key has its value, if not in the attribute of its name: `path.iops`, or
    `path?.iops` where the path may be None and the value then is so, too; with `or_null` an empty text and a zero
    there mean that there is none. A field of a record may have another `key` than its name.
    """

    path: str = ""
    or_null: bool = False
    key: str = ""


def printable(text: str, *, keep: str = "", most: int | None = None) -> str:
    """Return text without control characters: each unprintable character becomes `?`, except those in `keep`.

    At most `most` characters are returned.
    """
    return "".join(character if character.isprintable() or character in keep else "?" for character in text[:most])


class Worded(StrEnum):
    """Codes for programs, each with its `words` for people."""

    words: str

    def __new__(cls, code: str, *words: str) -> Self:
        made = str.__new__(cls, code)
        made._value_, made.words = code, "".join(words)
        return made


_FORMULA = ("=", "+", "-", "@", "\t", "\r")
"""The characters that begin a formula in a spreadsheet; names may come from untrusted files."""


def spreadsheet_cell(text: str) -> str:
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


LONGEST = 40
"""Comparing words costs the square of their length, and nobody misspells a longer one."""


def did_you_mean(word: str, choices: Iterable[str], *, cutoff: float = 0.6) -> str | None:
    """Return "did you mean `x`?" for the choice closest to the word, None when none is close.

    `cutoff` is how much of the two must agree (difflib's ratio); more where the word may well be right elsewhere.
    """
    known = sorted(choices)
    folded = {choice.casefold(): choice for choice in reversed(known)}
    close = get_close_matches(word[:LONGEST].casefold(), folded, n=1, cutoff=cutoff)
    return f"did you mean `{folded[close[0]]}`?" if close else None


def quoted(text: str) -> str:
    """Quote what a user wrote for a message: one line, not too long, nothing that could garble a terminal."""
    return repr(text if len(text) <= 60 else text[:57] + "...")


def setting_text(value: object) -> str:
    """Write a value as settings are written: a switch is on or off."""
    return ("on" if value else "off") if isinstance(value, bool) else str(value)


Bytes = NewType("Bytes", int)

_SIZE = re.compile(r"(?P<n>\d{1,18})(?P<unit>[kmgtpKMGTP]?)(?:i?[bB])?", re.ASCII)
_POWER = {"": 0, "k": 1, "m": 2, "g": 3, "t": 4, "p": 5}
_TIME = re.compile(r"(?P<n>\d{1,12}(?:\.\d{1,9})?)\s*(?P<unit>us|ms|s(?:ec)?|m(?:in)?|h)?", re.ASCII)
_TIMES = re.compile(
    r"(?:(\d{1,6})\s*h)?\s*(?:(\d{1,6})\s*m(?:in)?)?\s*(?:(\d{1,6}(?:\.\d{1,9})?)\s*s(?:ec)?)?", re.ASCII
)
_SECONDS = {"us": 1e-6, "ms": 1e-3, "s": 1.0, "m": 60.0, "h": 3600.0}


def parse_bytes(text: str) -> Bytes:
    """Read a size: `512`, `4k`, `1M`, `10GiB`; powers of 1024, as in fio, for which only `KiB` is 1000.

    Raises ValueError with a sentence that says what may be written.
    """
    match = _SIZE.fullmatch(text.strip())
    if match is None:
        raise ValueError(f"not a size: {text!r} (write 512, 4k, 1M or 10G)")
    return Bytes(int(match["n"]) * 1024 ** _POWER[match["unit"].lower()])


def parse_seconds(text: str) -> float:
    """Read a time: `500ms`, `5s`, `2m` or `2min`, `1h`, and as it is written here, `2 min 50 s` or `2m50s`; a bare
    number is seconds.

    Raises ValueError with a sentence that says what may be written.
    """
    if (match := _TIME.fullmatch(text.strip())) is not None:
        return float(match["n"]) * _SECONDS[(match["unit"] or "s").removesuffix("ec").removesuffix("in")]
    if (match := _TIMES.fullmatch(text.strip())) is not None and any(match.groups()):
        parts = (float(value or 0) for value in match.groups())
        return sum(part * scale for part, scale in zip(parts, (3600.0, 60.0, 1.0), strict=True))
    raise ValueError(f"not a time: {text!r} (write 500ms, 5s, 2m or 2m30s)")


def format_bytes(size: float) -> str:
    """Write a size with binary units: `4 KiB`, `1.5 GiB`."""
    for unit in ("B", "KiB", "MiB", "GiB", "TiB"):
        if abs(size) < 1024 or unit == "TiB":
            return f"{_digits(size)} {unit}"
        size /= 1024
    raise AssertionError("unreachable")


def format_count(number: float) -> str:
    """Write a count or a rate: `512`, `9,425`, `93.4k`, `1.25M`."""
    if abs(number) < 10_000:
        return f"{number:,.0f}" if abs(number) >= 100 else _digits(number)
    for unit, scale in (("k", 1e3), ("M", 1e6)):
        if abs(number) < scale * 1e3:
            return _digits(number / scale) + unit
    return _digits(number / 1e9) + "G"


def format_bandwidth(bytes_per_second: float) -> str:
    """Write bytes a second in decimal units, as fio does in parentheses and vendors do: `410 kB/s`, `3,825 MB/s`."""
    if 0 < bytes_per_second < 1e6:
        return f"{_digits(bytes_per_second / 1e3)} kB/s"
    megabytes = bytes_per_second / 1e6
    return f"{megabytes:,.0f} MB/s" if megabytes >= 100 else f"{megabytes:,.1f} MB/s"


def format_share(share: float, decimals: int = 0, *, signed: bool = False) -> str:
    """Write a share (1.0 is all of it) as a percentage: `27 %`; with one decimal `26.8 %`, signed `+26.8 %`.

    What falls short of all is not rounded to it: 0.996 is `99.6 %`.
    """
    sign, size = "+" if signed else "", abs(share)
    if size >= 1 or round(size * 100, decimals) < 100:
        return f"{share * 100:{sign},.{decimals}f} %"
    finer = 10 if size < 0.999 else 100
    return f"{math.trunc(share * 100 * finer) / finer:{sign}g} %"


def format_ns(nanoseconds: float) -> str:
    """Write a time measured in nanoseconds with the unit that keeps it readable."""
    for unit, scale in (("ns", 1.0), ("us", 1e3), ("ms", 1e6)):
        if abs(nanoseconds) < scale * 1e3:
            return f"{_digits(nanoseconds / scale)} {unit}"
    return f"{_digits(nanoseconds / 1e9)} s"


def format_seconds(seconds: float) -> str:
    """Write a duration a person waits for: `0.4 s`, `95 s`, `2 min 35 s`, `1 h 05 min`."""
    if seconds < 100:
        return f"{seconds:.1f} s" if seconds < 10 else f"{seconds:.0f} s"
    minutes, rest = divmod(round(seconds), 60)
    if minutes < 60:
        return f"{minutes} min {rest:02d} s"
    hours, minutes = divmod(minutes, 60)
    return f"{hours} h {minutes:02d} min"


def _digits(number: float) -> str:
    """Three significant digits, without an exponent; a whole number of units is written as one."""
    return _measured(number).removesuffix(".00").removesuffix(".0") if number == round(number) else _measured(number)


def _measured(number: float) -> str:
    """Three significant digits, without an exponent: as many for 6 as for 5.99, so that a column reads as one."""
    magnitude = abs(number)
    if magnitude >= 100 or number == 0:
        return f"{number:.0f}"
    return f"{number:.1f}" if magnitude >= 10 else f"{number:.2f}"
