# SPDX-License-Identifier: Apache-2.0
"""The runs whose JSON stands in one text: `fio --output-format=json ... >> file` appends, and people do it in loops.

A run with --status-interval writes its result again and again, each with all I/Os since its begin; the last is the
run's, the others are states of it.
"""

from dataclasses import dataclass

from virtune.fio.results_json import AGAIN, FioObject, objects, result_of
from virtune.model.errors import ReadError
from virtune.model.measurement import FioResult

MOST_RUNS = 1000
"""A loop over all loads of a big comparison makes some hundred runs; each takes memory and a column of a table."""


@dataclass(frozen=True, slots=True, kw_only=True)
class FioRun:
    """One run: its own part of the text, its result, and how many states of it the text had."""

    text: str
    result: FioResult
    states: int = 1


@dataclass(frozen=True, slots=True)
class _State:
    """One result with the moment when it was written, and since when its I/O runs, both in seconds since 1970."""

    result: FioResult
    written: float | None
    began: float | None


def json_runs(text: str) -> list[FioRun]:
    """Read every run whose JSON or JSON+ is in a text; raises ReadError when there is none."""
    runs: list[FioRun] = []
    last: _State | None = None
    for piece, document in objects(text):
        if len(runs) == MOST_RUNS:
            raise ReadError(f"this holds more than {MOST_RUNS:,} fio runs", hint="give a part of it")
        state = _state(document)
        states = 1
        if last is not None and _goes_on(last, state):
            states += runs.pop().states
        runs.append(FioRun(text=piece, result=state.result, states=states))
        last = state
    if not runs:
        raise ReadError("there is no complete fio JSON in this", hint=AGAIN)
    return runs


def _state(document: FioObject) -> _State:
    result = result_of(document)
    milliseconds = document.get("timestamp_ms")
    exact = isinstance(milliseconds, int | float) and not isinstance(milliseconds, bool)
    # without milliseconds the earliest moment that it may have been written at, and below the latest
    written = float(milliseconds) / 1000 if exact and milliseconds else result.ended
    if written is None:
        return _State(result, None, None)
    took = max((stream.seconds or 0.0 for load in result.loads for stream in load.streams), default=0.0)
    if result.elapsed is not None:
        took = max(took, result.elapsed - 1)  # rounded up
    return _State(result, written, written - took + (0 if exact else 1))


def _goes_on(earlier: _State, later: _State) -> bool:
    """Whether the later is of the same run: the same jobs with no fewer I/Os, which began before the earlier was
    written.
    """
    jobs, others = ([(one.name, one.group, one.jobs) for one in state.result.loads] for state in (earlier, later))
    if jobs != others:
        return False
    begins, more = ([one.began for one in state.result.loads] for state in (earlier, later))
    if None not in begins and None not in more:
        return begins == more
    counts, further = _counts(earlier.result), _counts(later.result)
    grown = all(further.get(key, 0) >= ios for key, ios in counts.items())
    return grown and later.began is not None and earlier.written is not None and later.began < earlier.written


def _counts(result: FioResult) -> dict[tuple[int, str], int]:
    """Return the I/Os of each job's directions."""
    return {
        (number, stream.direction): stream.ios or 0
        for number, load in enumerate(result.loads)
        for stream in load.streams
    }
