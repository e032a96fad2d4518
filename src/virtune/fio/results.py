# SPDX-License-Identifier: Apache-2.0
"""Read fio's result in any of its formats: JSON, JSON+ or normal text, up to size limits."""

import codecs
import re

from virtune.fio.consistency import require_consistent
from virtune.fio.results_json import holds_json, read_json
from virtune.fio.results_text import read_text
from virtune.model.errors import ReadError
from virtune.model.measurement import FioResult
from virtune.model.units import format_bytes

LIMIT = 32 * 1024**2
"""The longest text accepted, in bytes or characters. fio's JSON+ takes about 50 kB a job, so this is some 600
jobs; parsing a longer one would take gigabytes of memory, and it is not one fio result."""

_TERSE = re.compile(r"^(?:\d;fio-\d|[2-5];[^;\n]{1,200};\d)", re.MULTILINE)


def text_of(content: bytes) -> str:
    """Decode any bytes: UTF-8, or UTF-16 as some shells redirect it, with replacement characters for the rest."""
    encoding = "utf-16" if content.startswith((codecs.BOM_UTF16_LE, codecs.BOM_UTF16_BE)) else "utf-8-sig"
    return content.decode(encoding, errors="replace")


def read_result(text: str) -> FioResult:
    """Read one fio result, choosing the form by its content; raises ReadError with one sentence and a hint."""
    refuse_length(len(text))
    if not text.strip():
        raise ReadError("this is empty", hint="fio --output-format=json+ --output=result.json ... writes a result")
    if holds_json(text):
        return require_consistent(read_json(text))
    if _TERSE.search(text):
        raise ReadError(
            "fio's terse format is not supported: its fields have no names",
            hint="run fio with --output-format=json+, or read its normal output",
        )
    return read_text(text)


def refuse_length(length: int) -> None:
    """Raise ReadError for a text that is too long to be one fio result, before it is parsed."""
    if length > LIMIT:
        raise ReadError(
            f"this is longer than {format_bytes(LIMIT)}, and no fio result beyond that is read",
            hint="give fio's own output only, without logs around it",
        )
