# SPDX-License-Identifier: Apache-2.0
"""Events: progress that a flow reports while it works. The command line decides how to show them."""

import contextlib
from collections.abc import Callable, Iterator
from dataclasses import dataclass

from virtune.model.study import Study, Trial
from virtune.model.tuning import Tuning
from virtune.model.verdict import Comparison, ThresholdResult


@dataclass(frozen=True, slots=True, kw_only=True)
class StepStarted:
    """A long step has begun. `fraction` of a known whole comes with StepProgressed."""

    what: str


@dataclass(frozen=True, slots=True, kw_only=True)
class StepProgressed:
    """A step has come this far (0..1). `seconds_left` is None where that is not known."""

    what: str
    fraction: float
    seconds_left: float | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class StepEnded:
    """A step is over."""

    what: str


@dataclass(frozen=True, slots=True, kw_only=True)
class StudyPlanned:
    """A study is about to be prepared, with a forecast of its whole duration, preparation included."""

    study: Study
    seconds: float


@dataclass(frozen=True, slots=True, kw_only=True)
class StudyStarted:
    """A study begins or goes on; `done` trials are already in the store."""

    study: Study
    done: int
    seconds_left: float


@dataclass(frozen=True, slots=True, kw_only=True)
class TrialPlace:
    """A trial's position: its number in its round, the trials of that round, and the most rounds there can be."""

    number: int
    of: int
    rounds: int | None


@dataclass(frozen=True, slots=True, kw_only=True)
class TrialStarted:
    """A trial begins."""

    trial: Trial
    place: TrialPlace
    seconds_left: float


@dataclass(frozen=True, slots=True, kw_only=True)
class TrialEnded:
    """A trial is over and kept. `summary` is one line; `failure` its reason when it gave no measurement."""

    trial: Trial
    place: TrialPlace
    summary: str
    failure: str | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class RoundJudged:
    """An interim analysis after a round of a sequential study: every pair's verdict, every condition's result, and
    how many rounds the plan may still have (None: unknown).
    """

    round: int
    verdicts: tuple[Comparison, ...]
    rulings: tuple[ThresholdResult, ...] = ()
    seconds_left: float
    ahead: int | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Noticed:
    """Something the user should know although nothing failed; `of_trial` is why a single trial is repeated, of which
    a busy host has many.
    """

    text: str
    of_trial: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class SearchMoved:
    """A block of a search is over: its results so far, and a forecast of the time left (None: unknown)."""

    known: Tuning
    seconds_left: float | None


Event = (
    StepStarted | StepProgressed | StepEnded | StudyPlanned | StudyStarted | TrialStarted | TrialEnded | RoundJudged
    | SearchMoved | Noticed
)  # fmt: skip

Say = Callable[[Event], None]


@contextlib.contextmanager
def step(what: str, say: Say, *, told: bool = True, timed: bool = False) -> Iterator[Callable[[float, float], None]]:
    """Say that a step begins and, unless the block fails, that it is over; yields what is given how much of how much
    is done, of a `timed` one in seconds. Where it is not to be `told` of, nothing is said of its ends.
    """

    def come(done: float, of: float) -> None:
        left = max(0.0, of - done) if timed else None
        say(StepProgressed(what=what, fraction=min(1.0, done / of), seconds_left=left))

    if told:
        say(StepStarted(what=what))
    yield come
    if told:
        say(StepEnded(what=what))
