# SPDX-License-Identifier: Apache-2.0
"""A census: how often each sentence is said of many inputs, and what its numbers add up to.

A fault that is seen in any of thousands of answers changes a count or a sum. A line of a census is one sentence, its
numbers left out, so that who changes a sentence changes one line.
"""

import dataclasses
import math
import re
import zlib
from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping
from enum import Enum

NUMBER = re.compile(r"(?<![\w.])[-+]?(?:\d{1,3}(?:,\d{3})+|\d+)(?:\.\d+)?(?:e[-+]?\d+)?")


class Census:
    """Counts lines. `add` them, and `said` is what is written down."""

    def __init__(self) -> None:
        self._count: dict[str, int] = defaultdict(int)
        self._total: dict[str, float] = defaultdict(float)

    def add(self, lines: Iterable[str]) -> None:
        """Count lines of an answer; the place of a number in its line counts as well."""
        for line in lines:
            numbers = [float(one.replace(",", "")) for one in NUMBER.findall(line)]
            words = NUMBER.sub("#", line)
            self._count[words] += 1
            self._total[words] += sum(place * weight(value) for place, value in enumerate(numbers, 1))

    @property
    def said(self) -> str:
        """A line for each sentence: how often, what its numbers add up to, and the sentence."""
        rows = ((words, count, self._total[words]) for words, count in sorted(self._count.items()))
        return "".join(f"{count:6} {_rounded(total):>12} {words}\n" for words, count, total in rows)


def weight(value: float) -> float:
    """Return what a number adds: small ones count beside large ones, and a sign counts."""
    return math.copysign(math.log1p(abs(value)), value) if math.isfinite(value) else 1e3


def _rounded(total: float) -> str:
    return f"{total:.2f}" if total else ""


LEFT_OUT = frozenset({"study", "bins"})
"""Parts of answers that are as long as they are given."""


def flat(value: object, at: str = "") -> Iterator[str]:
    """Yield a line for each thing of an answer: where it stands, without the place in its row, and what it is. Of
    long words only a checksum is told.
    """
    match value:
        case Enum():
            yield f"{at} {value.name}"
        case None | bool():
            yield f"{at} {value}"
        case int() | float():
            yield f"{at} {value:.9g}"
        case str() | bytes():
            text = value if isinstance(value, str) else value.decode(errors="replace")
            yield f"{at} {text!r}" if len(text) < 60 else f"{at} {len(text)} {zlib.crc32(text.encode())}"
        case Mapping():
            for key, inner in value.items():
                yield from flat(inner, f"{at}[{key}]")
        case tuple() | list() | set() | frozenset():
            yield f"{at} of {len(value)}"
            for inner in sorted(value, key=repr) if isinstance(value, set | frozenset) else value:
                yield from flat(inner, at)
        case _ if dataclasses.is_dataclass(value):
            for field in dataclasses.fields(value):
                inner = getattr(value, field.name)
                if field.name not in LEFT_OUT and inner != field.default:
                    yield from flat(inner, f"{at}.{field.name}")
        case _:
            yield f"{at} {type(value).__name__}"
