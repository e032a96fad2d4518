# SPDX-License-Identifier: Apache-2.0
"""Read fio's result in any of its formats: JSON, JSON+ or normal text, up to size limits."""

import codecs
import re
from collections.abc import Callable, Sequence
from typing import TypeVar

from virtune.fio.consistency import require_consistent
from virtune.fio.results_json import MARKS, MOST_RUNS, FioRun, holds_json, json_runs
from virtune.fio.results_text import read_text, split_runs
from virtune.model.errors import ReadError
from virtune.model.measurement import FioResult
from virtune.model.text import format_bytes, without_prefix

LIMIT = 32 * 1024**2
"""The longest text accepted, in bytes or characters. fio's JSON+ takes about 50 kB a job, so this is some 600
jobs; parsing a longer one would take gigabytes of memory, and it is not one fio result."""

_T = TypeVar("_T")

_TERSE = re.compile(r"^(?:\d;fio-\d|[2-5];[^;\n]{1,200};\d)", re.MULTILINE)


def text_of(content: bytes) -> str:
    """Decode any bytes: UTF-8, or UTF-16 as some shells redirect it, with replacement characters for the rest."""
    encoding = "utf-16" if content.startswith((codecs.BOM_UTF16_LE, codecs.BOM_UTF16_BE)) else "utf-8-sig"
    return content.decode(encoding, errors="replace")


def read_result(text: str) -> FioResult:
    """Read the fio result of one run; raises ReadError with one sentence and a hint, also where there are several."""
    runs = read_runs(text)
    if len(runs) > 1:
        raise ReadError(f"this holds {len(runs)} fio runs", hint="give each run a file of its own")
    return runs[0].result


def read_runs(text: str) -> list[FioRun]:
    """Read every run in a text, choosing the form by its content; raises ReadError with one sentence and a hint."""
    refuse_length(len(text))
    if not text.strip():
        raise ReadError("this is empty", hint="fio --output-format=json+ --output=result.json ... writes a result")
    bare = without_prefix(text, MARKS) if '"fio version"' in text else text
    if holds_json(bare):
        runs = json_runs(bare)
        for number, run in enumerate(runs, 1):
            _of_run(number, len(runs), require_consistent, run.result)
        return runs
    if _TERSE.search(text):
        raise ReadError(
            "fio's terse format is not supported: its fields are told by their place alone, which differs by version",
            hint="run fio with --output-format=json+, or read its normal output",
        )
    parts = split_runs(text)
    if len(parts) > MOST_RUNS:
        raise ReadError(f"this holds more than {MOST_RUNS:,} fio runs", hint="give a part of it")
    return [
        FioRun(text=part, result=_of_run(number, len(parts), read_text, part)) for number, part in enumerate(parts, 1)
    ]


def run_of(runs: Sequence[FioRun], number: int) -> FioRun:
    """Return the run with that number, from 1; raises ReadError when there is none."""
    if not 1 <= number <= len(runs):
        count = f"{len(runs)} runs" if len(runs) > 1 else "one run"
        raise ReadError(f"there is no run {number} in it", hint=f"it holds {count}")
    return runs[number - 1]


def _of_run(number: int, count: int, read: Callable[[_T], FioResult], given: _T) -> FioResult:
    """Read one of several runs; a ReadError says which."""
    try:
        return read(given)
    except ReadError as error:
        if count == 1:
            raise
        raise ReadError(f"run {number} of {count}: {error.message}", hint=error.hint) from None


def refuse_length(length: int) -> None:
    """Raise ReadError for a text that is too long to be one fio result, before it is parsed."""
    if length > LIMIT:
        raise ReadError(
            f"this is longer than {format_bytes(LIMIT)}, and no fio result beyond that is read",
            hint="give fio's own output only, without logs around it",
        )
