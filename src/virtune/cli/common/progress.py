# SPDX-License-Identifier: Apache-2.0
"""Show a flow's events while it works: a live display on a terminal, a line per trial elsewhere or with -v.

Everything goes to stderr, so that stdout holds the result and nothing else.
"""

import sys
import time
from collections.abc import Sequence
from types import TracebackType
from typing import Self

from rich.console import Console
from rich.live import Live

from virtune.cli.common.live import LiveBlock, rounds_left_text, whose
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
from virtune.model.reason import Reason
from virtune.model.study import Study, Trial
from virtune.model.text import format_seconds, printable
from virtune.model.verdict import Comparison, Outcome, ThresholdResult, Verdict
from virtune.report.pages.study import guest_words
from virtune.report.words import change_words, count_text, difference_text

_NAMED = 8
"""The most arms that are named before a comparison begins."""


def pair_text(found: Comparison) -> str:
    """Write a pair with its interval so far; of too few rounds without one, which would look like a verdict's."""
    pair = f"{found.candidate} against {found.baseline}"
    if found.ratio is None:
        return pair
    if found.reason is Reason.TOO_FEW:
        return f"{pair}, {change_words(found.ratio.estimate)} so far"
    return f"{pair}, {difference_text(found.ratio)}"


def round_line(number: int, verdicts: Sequence[Comparison], rulings: Sequence[ThresholdResult]) -> str:
    """Write in one line what is known after a round: how many pairs and conditions are decided, and the pair that
    has the longest to go.
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
    return f"{line}; the longest to go: {pair_text(last)}{whose(last, verdicts)}, {rounds_left_text(last)}"


def plan_text(study: Study) -> str:
    """Say what is compared, what a round is, and which pairs are to be decided."""
    others = len(study.arms) - 1
    of_all = "each arm with each other" if study.pairs == "all" else f"each of the others with {study.baseline}"
    each = of_all if others > 1 else " and ".join(arm.name for arm in study.arms)
    pairs = others if study.pairs == "baseline" else others * (others + 1) // 2
    names = ", ".join(arm.name for arm in study.arms[:_NAMED])
    more = f" and {others + 1 - _NAMED} more" if others >= _NAMED else ""
    under = f" under {len(study.workloads)} workloads" if len(study.workloads) > 1 else ""
    return (
        f"{others + 1} arms (what is compared): {names}{more}; a round measures each of them once{under} for "
        f"{format_seconds(study.seconds)}, in random order; {count_text(pairs, 'pair')} to decide: {each}"
    )


def place_text(trial: Trial, place: TrialPlace, most: str) -> str:
    """Write where a trial stands: `round 3 of 6, trial 2 of 4`, with "at most" where it is not known how many."""
    rounds = "" if place.rounds is None else f" of {most.removesuffix('about ')}{place.rounds}"
    return f"round {trial.round}{rounds}, trial {place.number} of {place.of}"


def most_text(study: Study) -> str:
    """What stands before a forecast: a study that stops when it knows may end sooner."""
    return "at most about " if study.sequential else "about "


class Face:
    """Shows events. Use as a context manager; call it with each event.

    With `verbose` a line for each trial is written on a terminal, too, above the block.
    """

    def __init__(self, *, quiet: bool = False, verbose: bool = False) -> None:
        self._console = Console(stderr=True, highlight=False, soft_wrap=not sys.stderr.isatty())
        self._quiet = quiet
        self._live = sys.stderr.isatty() and not quiet
        self._lines = verbose or not self._live
        self._block = LiveBlock()
        self._shown = Live(
            get_renderable=lambda: self._block, console=self._console, transient=True, refresh_per_second=2
        )

    def __enter__(self) -> Self:
        if self._live:
            self._shown.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._shown.stop()

    def __call__(self, event: Event) -> None:
        """Show one event."""
        if self._quiet:
            return
        if isinstance(event, Noticed):
            self._console.print(f"note: {printable(event.text)}", style="yellow", markup=False)
            return
        self._draw(event)
        if self._lines:
            self._write(event)

    def _draw(self, event: Event) -> None:
        block = self._block
        match event:
            case StepStarted(what=what):
                block.step, block.step_left = (printable(what), None), None
            case StepProgressed(what=what, fraction=fraction, seconds_left=left):
                block.step, block.step_left = (printable(what), fraction), left
            case StepEnded():
                block.step = None
            case StudyStarted(study=study, done=done, seconds_left=left):
                block.most, block.total, block.done = most_text(study), len(study.trials), done
                block.until = time.monotonic() + left
            case TrialStarted(trial=trial, place=place, seconds_left=left):
                block.now = f"{place_text(trial, place, block.most)}: {trial.workload}, {trial.arm}"
                block.until = time.monotonic() + left
            case TrialEnded(trial=trial):
                block.done, block.total = block.done + 1, max(trial.number, block.total)
            case RoundJudged(verdicts=verdicts, rulings=rulings, seconds_left=left):
                block.verdicts, block.rulings = verdicts, rulings
                block.until = time.monotonic() + left
            case _:
                pass

    def _write(self, event: Event) -> None:
        most = self._block.most
        match event:
            case StepStarted(what=what):
                self._line(what)
            case StudyPlanned(study=study, seconds=seconds):
                if study.sequential and len(study.arms) > 1:
                    self._line(plan_text(study))
                if guests := guest_words(study.arms):
                    self._line(f"guests {guests}")
                for unequal in study.unequal_guests:
                    self._line(f"warning: {unequal}")
                self._line(f"{most_text(study)}{format_seconds(seconds)}, set-up included")
            case StudyStarted(done=done, seconds_left=left):
                kept = f"{count_text(done, 'trial')} already stored, " if done else ""
                self._line(f"{kept}{most}{format_seconds(left)} left")
            case TrialStarted(trial=trial, place=place, seconds_left=left):
                # forecasts get better as trials run, and a log need not say so each time
                if place.number == 1 and trial.round > 1 and trial.round & (trial.round - 1) == 0:
                    self._line(f"{most}{format_seconds(left)} left")
            case TrialEnded(trial=trial, place=place, summary=summary):
                self._line(f"{place_text(trial, place, most)}  {trial.workload}  {trial.arm}: {summary}")
            case RoundJudged(round=number, verdicts=verdicts, rulings=rulings):
                self._line(round_line(number, verdicts, rulings))
            case _:
                pass

    def _line(self, text: str) -> None:
        self._console.print(printable(text, keep="\n"), markup=False)
