# SPDX-License-Identifier: Apache-2.0
"""Inputs of which one thing is another: a number doubled or 0, a word of another input, a part that is left out.

A rule that reads two numbers and says a sentence has more ways to be wrong than examples are written for. So each
thing of every input that tests have is turned, one at a time.
"""

import dataclasses
import json
import re
import zlib
from collections import defaultdict, deque
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from enum import Enum
from pathlib import Path
from typing import Any

from virtune.model.errors import VirtuneError

Donors = Mapping[tuple[type, str], list[Any]]
"""What a field of a class is in any of the inputs."""

DONORS_MAX = 3
ELEMENTS_MAX = 2
"""Of a sequence only the first elements are turned: what is true of two is true of more."""


LIMITS: Mapping[str, Sequence[float]] = json.loads((Path(__file__).parent / "limits.json").read_text())
"""By the name of a field, numbers that code compares it with (`limits`): one turned at random is never at a limit."""


def _at_limits(name: str, value: Any) -> Iterator[tuple[str, Any]]:
    if isinstance(value, bool) or not isinstance(value, int | float):
        return
    kind = type(value)
    for limit in LIMITS.get(name, ()):
        if kind(limit) == limit != value:
            yield f"@{limit:g}", kind(limit)


def donors_of(inputs: Iterable[object]) -> Donors:
    """Return the values that each field has in these inputs, in the order in which they are met."""
    found: dict[tuple[type, str], list[Any]] = defaultdict(list)
    left, seen = deque(inputs), set[int]()
    while left:
        one = left.popleft()
        if id(one) in seen:
            continue
        seen.add(id(one))
        if dataclasses.is_dataclass(one) and not isinstance(one, type):
            for field in dataclasses.fields(one):
                value, known = getattr(one, field.name), found[type(one), field.name]
                if value not in known:
                    known.append(value)
                left.append(value)
        elif isinstance(one, tuple | list):
            left += one[:DONORS_MAX]
        elif isinstance(one, Mapping):
            left += one.values()
    return found


def turned(one: Any, donors: Donors) -> Iterator[tuple[str, Any]]:
    """Yield the input with each of its things turned, and what was done. What its class refuses is left out."""
    if dataclasses.is_dataclass(one) and not isinstance(one, type):
        for field in dataclasses.fields(one):
            if not field.init:
                continue
            value = getattr(one, field.name)
            others = [other for other in donors.get((type(one), field.name), ()) if other != value][:DONORS_MAX]
            ways = [
                *_of_value(value, donors),
                *_at_limits(field.name, value),
                *((f"~{number}", other) for number, other in enumerate(others)),
            ]
            for way, new in ways:
                try:
                    yield f".{field.name}{way}", dataclasses.replace(one, **{field.name: new})
                except (ValueError, TypeError):
                    continue


def _of_value(value: Any, donors: Donors) -> Iterator[tuple[str, Any]]:
    match value:
        case bool():
            yield "!", not value
        case Enum() | str() | bytes():
            pass
        case int():
            yield from {"=0": 0, "/2": value // 2, "*2": value * 2, "*20": value * 20, "+1": value + 1}.items()
        case float():
            yield from {"=0": 0.0, "/2": value / 2, "*2": value * 2, "*20": value * 20}.items()
        case tuple():
            if value:
                yield "=()", ()
            for at, part in enumerate(value[:ELEMENTS_MAX]):
                yield from ((f"[{at}]{way}", _put(value, at, new)) for way, new in _part(part, donors))
        case Mapping():
            if value:
                yield "={}", {}
            for key, part in list(value.items())[:ELEMENTS_MAX]:
                yield from ((f"[{key}]{way}", {**value, key: new}) for way, new in _part(part, donors))
        case _:
            yield from turned(value, donors)


def _part(part: Any, donors: Donors) -> Iterator[tuple[str, Any]]:
    return _of_value(part, donors)


def _put(value: tuple[Any, ...], at: int, new: Any) -> Any:
    whole = (*value[:at], new, *value[at + 1 :])
    return type(value)(*whole) if hasattr(value, "_fields") else whole


def kept(name: str, share: int) -> bool:
    """Whether a case is one of those that are run, where one of `share` is: always the same ones."""
    return zlib.crc32(name.encode()) % share == 0


NUMBER = re.compile(r"(?<![\w.])\d+(?:\.\d+)?")


def turned_text(text: str) -> Iterator[tuple[str, str]]:
    """Yield a text without each of its lines, with each line twice, and with each number doubled, 0 and gone."""
    lines = text.splitlines(keepends=True)
    for at, line in enumerate(lines):
        yield f"-{at}", "".join((*lines[:at], *lines[at + 1 :]))
        yield f"+{at}", "".join((*lines[:at], line, *lines[at:]))
    for found in NUMBER.finditer(text):
        value = float(found.group()) * 2 if "." in found.group() else int(found.group()) * 2
        for new in (str(value), "0", ""):
            yield f"{found.start()}{new}", text[: found.start()] + new + text[found.end() :]
    for found in re.finditer(r"\b(on|off|yes|no|true|false|none|native|threads|io_uring|writeback)\b", text):
        new = OTHER[found.group()]
        yield f"{found.start()}{new}", text[: found.start()] + new + text[found.end() :]


OTHER = {
    "on": "off", "off": "on", "yes": "no", "no": "yes", "true": "false", "false": "true", "none": "writethrough",
    "native": "io_uring", "threads": "native", "io_uring": "threads", "writeback": "unsafe",
}  # fmt: skip
"""In place of a word."""


IMPOSSIBLE = (ArithmeticError, ValueError, TypeError, LookupError, AssertionError)
"""What an input that cannot be may raise; no reader lets one in."""

OTHERS_WORDS = re.compile(r"(it is no (?:XML|YAML)): .*")
"""What a parser of another project says is its own affair."""

Answers = Iterator[Sequence[str]]


def asked(answer: Callable[..., Iterable[str]], *of: Any) -> Sequence[str]:
    """Return what is said of something, or the sentence of the error."""
    try:
        return list(answer(*of))
    except VirtuneError as error:
        said = OTHERS_WORDS.sub(r"\1", str(error))
        return [f"{type(error).__name__}: {said}", *([error.hint] if error.hint else [])]
    except IMPOSSIBLE:
        return []


def each(inputs: Sequence[Any], share: int) -> Iterator[Any]:
    """Yield the inputs with one thing turned, one of `share` of them."""
    donors = donors_of(inputs)
    for number, one in enumerate(inputs):
        yield one
        for way, other in turned(one, donors):
            if kept(f"{number}{way}", share):
                yield other
