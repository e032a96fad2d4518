# SPDX-License-Identifier: Apache-2.0
"""How a flow's events are shown while it works: bars with the time left on a terminal, plain lines elsewhere.

Everything goes to stderr, so that stdout holds the result and nothing else.
"""

import sys
from collections.abc import Sequence
from types import TracebackType
from typing import Self

from rich.console import Console
from rich.progress import BarColumn, Progress, TaskID, TextColumn

from virtune.model.condition import Outcome, ThresholdResult
from virtune.model.event import (
    Event,
    Noticed,
    RoundJudged,
    StepEnded,
    StepProgressed,
    StepStarted,
    StudyPlanned,
    StudyStarted,
    TrialEnded,
    TrialPlace,
    TrialStarted,
)
from virtune.model.study import Study, Trial
from virtune.model.units import format_seconds, format_share
from virtune.model.verdict import Comparison, Verdict
from virtune.report.text.thresholds import arms_text
from virtune.report.text.words import count_text, difference_text

ROUNDS_FORESEEN = 500
"""More rounds than this take hours: such a forecast only says that the host is too noisy."""

PAIRS_SHOWN = 8
"""Open pairs under the bar; those that are furthest from decided."""


def pair_text(found: Comparison) -> str:
    """Write a pair with its interval so far."""
    difference = "" if found.ratio is None else f": {difference_text(found.ratio)}"
    return f"{found.candidate} against {found.baseline}{difference}"


def round_line(number: int, verdicts: Sequence[Comparison], rulings: Sequence[ThresholdResult]) -> str:
    """Write in one line what is known after a round: how many pairs and conditions are decided, and the pair that is
    furthest from it.
    """
    decided = sum(found.verdict is not Verdict.UNDECIDED for found in verdicts)
    line = f"round {number}: {decided} of {len(verdicts)} pairs decided"
    if rulings:
        known = sum(one.outcome is not Outcome.UNDECIDED for one in rulings)
        line += f", {known} of {len(rulings)} conditions"
    open_ = [found for found in verdicts if found.rounds_left is not None]
    if not open_:
        return line
    last = max(open_, key=lambda found: found.rounds_left or 0)
    return f"{line}; {pair_text(last)}, {_left(last)}"


def _left(found: Comparison) -> str:
    """Say how many more rounds decide a pair, where that is a number to wait for."""
    if found.rounds_left is None or found.rounds_left > ROUNDS_FORESEEN:
        return "too noisy to estimate"
    return f"about {count_text(found.rounds_left, 'round')} more"


def place_text(trial: Trial, place: TrialPlace, most: str) -> str:
    """Write where a trial stands: `round 3 of 6, trial 2 of 4`, with "at most" where it is not known how many."""
    rounds = "" if place.rounds is None else f" of {most.removesuffix('about ')}{place.rounds}"
    return f"round {trial.round}{rounds}, trial {place.number} of {place.of}"


def _most(study: Study) -> str:
    """What stands before a forecast: a study that stops when it knows may end sooner."""
    return "at most about " if study.sequential else "about "


class Face:
    """Shows events. Use as a context manager; call it with each event."""

    def __init__(self, *, quiet: bool = False) -> None:
        self._console = Console(stderr=True, highlight=False, soft_wrap=not sys.stderr.isatty())
        self._quiet = quiet
        self._live = sys.stderr.isatty() and not quiet
        self._progress = Progress(
            TextColumn("{task.description}"),
            BarColumn(bar_width=30),
            TextColumn("{task.fields[left]}"),
            console=self._console,
            transient=True,
            disable=not self._live,
        )
        self._step: TaskID | None = None
        self._study: TaskID | None = None
        self._pairs: list[TaskID] = []
        self._most = "about "

    def __enter__(self) -> Self:
        self._progress.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._progress.stop()

    def __call__(self, event: Event) -> None:
        """Show one event."""
        if self._quiet:
            return
        if isinstance(event, Noticed):
            self._console.print(f"note: {event.text}", style="yellow", markup=False)
        elif self._live:
            self._draw(event)
        else:
            self._write(event)

    def _draw(self, event: Event) -> None:
        match event:
            case StepStarted(what=what):
                self._step = self._progress.add_task(what, total=1.0, left="")
            case StepProgressed(fraction=fraction) if self._step is not None:
                self._progress.update(self._step, completed=fraction, left=format_share(fraction))
            case StepEnded() if self._step is not None:
                self._progress.remove_task(self._step)
                self._step = None
            case StudyStarted(study=study, done=done, seconds_left=left):
                self._most = _most(study)
                total = len(study.trials)
                words = self._left(left)
                self._study = self._progress.add_task("measuring", total=total, completed=done, left=words)
            case TrialStarted(trial=trial, place=place, seconds_left=left) if self._study is not None:
                what = f"{place_text(trial, place, self._most)}  {trial.workload}  {trial.arm}"
                self._progress.update(self._study, description=what, left=self._left(left))
            case TrialEnded(trial=trial) if self._study is not None:
                self._progress.update(self._study, advance=1, total=max(trial.number, self._total()))
            case RoundJudged(verdicts=verdicts, rulings=rulings):
                self._show_pairs(verdicts)
                self._show_conditions(rulings)
            case _:
                pass

    def _write(self, event: Event) -> None:
        match event:
            case StepStarted(what=what):
                self._line(what)
            case StudyPlanned(study=study, seconds=seconds):
                self._line(f"{_most(study)}{format_seconds(seconds)}, set-up included")
            case StudyStarted(study=study, done=done, seconds_left=left):
                self._most = _most(study)
                kept = f"{count_text(done, 'trial')} already stored, " if done else ""
                self._line(f"{kept}{self._left(left)}")
            case TrialStarted(trial=trial, place=place, seconds_left=left):
                # forecasts get better as trials run, and a log need not say so each time
                if place.number == 1 and trial.round > 1 and trial.round & (trial.round - 1) == 0:
                    self._line(self._left(left))
            case TrialEnded(trial=trial, place=place, summary=summary):
                self._line(f"{place_text(trial, place, self._most)}  {trial.workload}  {trial.arm}: {summary}")
            case RoundJudged(round=number, verdicts=verdicts, rulings=rulings):
                self._line(round_line(number, verdicts, rulings))
            case _:
                pass

    def _show_pairs(self, verdicts: Sequence[Comparison]) -> None:
        """One row a pair that is open, the longest to go last: its interval shrinks, its bar fills."""
        for row in self._pairs:
            self._progress.remove_task(row)
        open_ = sorted((one for one in verdicts if one.rounds_left is not None), key=lambda one: one.rounds_left or 0)
        self._pairs = [
            self._progress.add_task(
                f"  {pair_text(one)}",
                total=one.rounds + (one.rounds_left or 0),
                completed=one.rounds,
                left=_left(one),
            )
            for one in open_[-PAIRS_SHOWN:]
        ]

    def _show_conditions(self, rulings: Sequence[ThresholdResult]) -> None:
        """One row a condition that is undecided, below the pairs: what the study may still be waiting for."""
        open_ = [one for one in rulings if one.outcome is Outcome.UNDECIDED]
        self._pairs += [
            self._progress.add_task(f"  {one.condition.text} for {arms_text(one)}", total=1, left="undecided")
            for one in open_[:PAIRS_SHOWN]
        ]

    def _left(self, seconds: float) -> str:
        return f"{self._most}{format_seconds(seconds)} left"

    def _total(self) -> float:
        task = next((one for one in self._progress.tasks if one.id == self._study), None)
        return 0.0 if task is None or task.total is None else task.total

    def _line(self, text: str) -> None:
        self._console.print(text, markup=False)
