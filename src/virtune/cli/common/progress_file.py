# SPDX-License-Identifier: Apache-2.0
"""A flow's events, kept as how far its run is, for the local page of another process."""

import math
import time
from collections.abc import Callable, Sequence
from dataclasses import replace
from types import TracebackType
from typing import Self

from virtune.cli.common.live import rounds_left_text
from virtune.cli.common.progress import most_text, place_text
from virtune.model.errors import StorePlace
from virtune.model.event import (
    Event,
    RoundJudged,
    SearchMoved,
    StepEnded,
    StepProgressed,
    StepStarted,
    StudyPlanned,
    StudyStarted,
    TrialEnded,
    TrialStarted,
)
from virtune.model.study import Study
from virtune.model.tuning import Tuning
from virtune.model.verdict import Comparison, Interval, Outcome, ThresholdResult, Verdict
from virtune.report.pages.tune import runner_rows, state_line
from virtune.report.words import difference_text
from virtune.store.progress import NAME_MAX, PairProgress, ProgressFile, RoundInterval, RunProgress

PAIRS_MAX = 24
POINTS_MAX = 64
"""Rounds of a pair's history; where there are more, every other one is dropped."""

_LEAST, _GREATEST = 1e-4, 1e4
"""Ratios are kept between these: an interval of two rounds may reach from almost nothing to almost everything."""


class Recorded:
    """Passes events on, and keeps how far the run is in a file beside the store."""

    def __init__(self, say: Callable[[Event], None], *, store: StorePlace, study: Study) -> None:
        self._say, self._file = say, ProgressFile(store, study.id)
        self.run = RunProgress(study=study.id, title=study.label[:NAME_MAX], most=most_text(study))

    def __enter__(self) -> Self:
        self._file.__enter__()
        self._file.write(self.run)
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._file.__exit__(kind, error, trace)

    def __call__(self, event: Event) -> None:
        """Pass an event on."""
        self._say(event)
        moved = after(self.run, event, now=time.time())
        if moved is not self.run:
            self.run = moved
            self._file.write(moved)


def after(run: RunProgress, event: Event, *, now: float) -> RunProgress:
    """Return how far a run is after an event; the same value where the event says nothing of it."""
    match event:
        case StepStarted(what=what):
            return replace(run, step=what[:NAME_MAX], share=None)
        case StepProgressed(what=what, fraction=fraction):
            # a step says so many times a second; whole percents are enough
            share = round(fraction, 2)
            return run if (what[:NAME_MAX], share) == (run.step, run.share) else replace(run, step=what, share=share)
        case StepEnded():
            return replace(run, step="", share=None)
        case StudyPlanned(seconds=seconds):
            return replace(run, until=now + seconds)
        case StudyStarted(study=study, done=done, seconds_left=left):
            return replace(run, done=done, total=len(study.trials), until=now + left)
        case TrialStarted(trial=trial, place=place, seconds_left=left):
            words = f"{place_text(trial, place, run.most)}: {trial.workload[:NAME_MAX]}, {trial.arm[:NAME_MAX]}"
            return replace(run, now=words, until=now + left)
        case TrialEnded(trial=trial):
            return replace(run, done=run.done + 1, total=max(trial.number, run.total))
        case RoundJudged():
            return _judged(run, event, now)
        case SearchMoved(known=known, seconds_left=left):
            return _moved(run, known, None if left is None else now + left)
        case _:
            return run


def _judged(run: RunProgress, event: RoundJudged, now: float) -> RunProgress:
    earlier = {_key(one): one.rounds for one in run.pairs}
    pairs = []
    for one in event.verdicts[:PAIRS_MAX]:
        found = _pair(one)
        pairs.append(replace(found, rounds=with_point(earlier.get(_key(found), ()), event.round, one.ratio)))
    return replace(
        run,
        pairs=tuple(pairs),
        decided=sum(one.verdict is not Verdict.UNDECIDED for one in event.verdicts),
        compared=len(event.verdicts),
        conditions=tuple(_condition(one) for one in event.rulings[:PAIRS_MAX]),
        until=now + event.seconds_left,
    )


def _key(one: PairProgress) -> tuple[str, str, str, str]:
    return one.candidate, one.baseline, one.workload, one.metric


def _pair(one: Comparison) -> PairProgress:
    return PairProgress(
        candidate=one.candidate[:NAME_MAX],
        baseline=one.baseline[:NAME_MAX],
        workload=one.workload[:NAME_MAX],
        metric=one.measured.label,
        verdict=one.verdict.value,
        difference="" if one.ratio is None else difference_text(one.ratio),
        left="" if one.rounds_left is None else rounds_left_text(one),
    )


def with_point(points: Sequence[RoundInterval], number: int, ratio: Interval | None) -> tuple[RoundInterval, ...]:
    """Return a history with one round more."""
    if ratio is None:
        return tuple(points)
    low, estimate, high = (_kept(end) for end in (ratio.low, ratio.estimate, ratio.high))
    found = [*(one for one in points if one.round < number),
             RoundInterval(round=number, low=low, estimate=estimate, high=high)]  # fmt: skip
    return tuple(found[1::2] if len(found) > POINTS_MAX else found)


def _kept(ratio: float) -> float:
    return 1.0 if math.isnan(ratio) else min(max(ratio, _LEAST), _GREATEST)


def _condition(one: ThresholdResult) -> str:
    state = "undecided so far" if one.outcome is Outcome.UNDECIDED else one.outcome.value
    return f"{one.condition.text[:NAME_MAX]}: {state}"


def _moved(run: RunProgress, known: Tuning, until: float | None) -> RunProgress:
    """Return the progress of a search: its configurations against the leader, after each block."""
    earlier = {one.candidate: one.rounds for one in run.pairs}
    leader = (known.standing.leader or "")[:NAME_MAX]
    same = {one.baseline for one in run.pairs} <= {leader}  # against another leader it is another history
    pairs = [
        PairProgress(
            candidate=arm[:NAME_MAX], baseline=leader, workload=known.study.workloads[0].name[:NAME_MAX],
            metric=known.study.metric, verdict=state, difference=told, left="",
            rounds=with_point(earlier.get(arm[:NAME_MAX], ()) if same else (), known.standing.blocks, ratio),
        )
        for arm, state, told, ratio in runner_rows(known)[:PAIRS_MAX]
    ]  # fmt: skip
    return replace(run, pairs=tuple(pairs), search=state_line(known, None)[: 4 * NAME_MAX], until=until)
