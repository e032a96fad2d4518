# SPDX-License-Identifier: Apache-2.0
"""What takes long, under a progress display on a terminal, with how far it is kept for the local page and a fleet."""

import contextlib
import math
import signal
import sys
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from types import FrameType
from typing import Self, TypeVar

import click
from rich.console import Console, ConsoleOptions, RenderResult
from rich.live import Live
from rich.text import Text

from virtune.model import event as events
from virtune.model.errors import Interrupted, LoadError, NotInForceError, StoreError, StorePlace, VirtuneError
from virtune.model.evidence import compared_unseen
from virtune.model.reason import Reason
from virtune.model.study import Study, Trial
from virtune.model.text import format_seconds, format_share, printable
from virtune.model.tuning import Tuning
from virtune.model.verdict import Comparison, Interval, Outcome, ThresholdResult, Verdict
from virtune.report.pages.study import guest_words
from virtune.report.pages.tune import runner_rows, state_line
from virtune.report.words import change_words, count_text, difference_text
from virtune.store.progress import NAME_MAX, PairProgress, ProgressFile, RoundInterval, RunProgress, runs_already
from virtune.store.store import Store

ROUNDS_FORESEEN = 500
"""More rounds than this take hours: such a forecast only says that the host is too noisy."""

FORETOLD_FROM = 12
"""The fewest rounds that foretell anything. By simulation of two and three arms (plans of 100 rounds, differences
of 0 to 20 %, noise of 5 to 20 %) the round that decides is within a factor of 2 of the forecast in 65 % of the cases
after 6 rounds, in 73 % after 10, in 83 % after 12 and in 87 % after 16. How many rounds are to come is so in half of
them at most: so the round is told. Half of those whose forecast was beyond their plan were decided within it.
"""


def rounds_left_text(found: Comparison, number: int, ahead: int | None) -> str:
    """Say after round `number` by which round a pair may be decided, or that its plan, which has `ahead` rounds left,
    may be too short; empty where its rounds are too few to tell.
    """
    if found.rounds_left is None or found.rounds < FORETOLD_FROM or ahead == 0:
        return ""
    guess = f"(a guess from {count_text(found.rounds, 'round')})"
    if ahead is not None and found.rounds_left > ahead:
        return f"may take more than the {count_text(ahead, 'round')} left {guess}"
    if found.rounds_left > ROUNDS_FORESEEN:
        return "too noisy to estimate"
    return f"perhaps by round {number + found.rounds_left:,} {guess}"


def whose(found: Comparison, among: Sequence[Comparison]) -> str:
    """Write of which workload and metric a pair is, where `among` are several."""
    workloads, metrics = {one.workload for one in among}, {one.metric for one in among}
    told = [found.workload] if len(workloads) > 1 else []
    told += [found.measured.label] if len(metrics) > 1 else []
    return f" ({', '.join(told)})" if told else ""


@dataclass(slots=True, kw_only=True)
class LiveBlock:
    """The present state of the display. Its owner updates the fields; times are those of `time.monotonic`.

    `step` is what is made ready with how far it is (None: not known), `step_left` how many seconds it still takes,
    `now` the trial that runs, `until` when all is expected to be over, `again` how many trials were repeated; `most`
    stands before the time left.
    """

    step: tuple[str, float | None] | None = None
    step_left: float | None = None
    now: str = ""
    total: int = 0
    again: int = 0
    until: float | None = None
    most: str = "about "
    verdicts: Sequence[Comparison] = ()
    rulings: Sequence[ThresholdResult] = ()

    def __rich_console__(self, console: Console, options: ConsoleOptions) -> RenderResult:
        """Say it in one line, which ends where the terminal does."""
        if self.step is not None:
            what, share = self.step
            left = "" if self.step_left is None else f", about {format_seconds(self.step_left)} left"
            yield _cut(f"{what}{'' if share is None else f', {format_share(share)}'}{left}")
        elif self.total:
            yield _cut("; ".join([*self._standing(), self.now or "starting"]))

    def _standing(self) -> list[str]:
        told = []
        if self.until is not None:
            told.append(f"{self.most}{format_seconds(max(0.0, self.until - time.monotonic()))} left")
        if self.verdicts:
            decided = sum(one.verdict is not Verdict.UNDECIDED for one in self.verdicts)
            told.append(f"{decided} of {len(self.verdicts)} pairs decided")
        if self.rulings:
            known = sum(one.outcome is not Outcome.UNDECIDED for one in self.rulings)
            told.append(f"{known} of {len(self.rulings)} conditions")
        return told + ([f"{self.again} repeated"] if self.again else [])


def _cut(text: str) -> Text:
    """Return one line that ends where the terminal does."""
    return Text(printable(text), no_wrap=True, overflow="ellipsis")


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


def round_line(
    number: int,
    verdicts: Sequence[Comparison],
    rulings: Sequence[ThresholdResult],
    ahead: int | None = None,
) -> str:
    """Write in one line what is known after a round: how many pairs and conditions are decided, and the pair that
    has the longest to go. `ahead` are the rounds that the plan still has, None where that is not known.
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
    left = rounds_left_text(last, number, ahead)
    return f"{line}; the longest to go: {pair_text(last)}{whose(last, verdicts)}{f', {left}' if left else ''}"


def plan_text(study: Study) -> str:
    """Say what is compared, what a round is, and which pairs are to be decided."""
    others = len(study.arms) - 1
    of_all = "each arm with each other" if study.pairs == "all" else f"each of the others with {study.baseline}"
    each = of_all if others > 1 else " and ".join(arm.name for arm in study.arms)
    pairs = others if study.pairs == "baseline" else others * (others + 1) // 2
    names = ", ".join(arm.name for arm in study.arms[:_NAMED])
    more = f" and {others + 1 - _NAMED} more" if others >= _NAMED else ""
    under = f" under {len(study.workloads)} workloads" if len(study.workloads) > 1 else ""
    until = "the pair is" if pairs == 1 else f"{count_text(pairs, 'pair')} are"
    return (
        f"compares {others + 1} arms ({names}{more}){under}, {each}: {format_seconds(study.seconds)} of each in turn,"
        f" in random order, until {until} decided"
    )


def place_text(trial: Trial, place: events.TrialPlace, most: str) -> str:
    """Write where a trial stands: `round 3 of 6, trial 2 of 4`, with "at most" where it is not known how many."""
    rounds = "" if place.rounds is None else f" of {most.removesuffix('about ')}{place.rounds}"
    return f"round {trial.round}{rounds}, trial {place.number} of {place.of}"


def left_text(most: str, seconds: float) -> str:
    """What ends a round's line: nothing after the last one."""
    return f"; {most}{format_seconds(seconds)} left" if seconds >= 1 else ""


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
        self._verbose, self._looks_from, self._looked_at = verbose, math.inf, False
        self._lines = verbose or not self._live
        self._block = LiveBlock()
        self._shown = Live(
            get_renderable=lambda: self._block, console=self._console, transient=True, refresh_per_second=2
        )

    def __enter__(self) -> Self:
        if self._live:
            self._shown.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._shown.stop()

    def __call__(self, event: events.Event) -> None:
        """Show one event."""
        if self._quiet:
            return
        if isinstance(event, events.Noticed):
            self._block.again += event.of_trial
            if event.of_trial and not self._verbose:
                return
            self._console.print(f"note: {printable(event.text)}", style="yellow", markup=False)
            return
        self._draw(event)
        if self._lines:
            self._write(event)

    def _draw(self, event: events.Event) -> None:
        block = self._block
        match event:
            case events.StepStarted(what=what):
                block.step, block.step_left = (printable(what), None), None
            case events.StepProgressed(what=what, fraction=fraction, seconds_left=left):
                block.step, block.step_left = (printable(what), fraction), left
            case events.StepEnded():
                block.step = None
            case events.StudyStarted(study=study, seconds_left=left):
                block.most, block.total = most_text(study), len(study.trials)
                block.until, self._looked_at = time.monotonic() + left, study.sequential
            case events.TrialStarted(trial=trial, place=place, seconds_left=left):
                block.now = f"{place_text(trial, place, block.most)}: {trial.workload}, {trial.arm}"
                block.until = time.monotonic() + left
            case events.RoundJudged(verdicts=verdicts, rulings=rulings, seconds_left=left):
                block.verdicts, block.rulings = verdicts, rulings
                block.until = time.monotonic() + left
            case _:
                pass

    def _write(self, event: events.Event) -> None:
        most = self._block.most
        match event:
            case events.StepStarted(what=what):
                self._line(what)
            case events.StudyPlanned(study=study, seconds=seconds):
                if study.sequential and len(study.arms) > 1:
                    self._line(plan_text(study))
                if guests := guest_words(study.arms):
                    self._line(f"guests {guests}")
                for likeness in study.likeness:
                    self._line(likeness)
                for caveat in (*study.caveats, *compared_unseen(study.arms)):
                    self._line(f"warning: {caveat}")
                self._line(f"{most_text(study)}{format_seconds(seconds)}, set-up included")
            case events.StudyStarted(study=study, done=done, seconds_left=left):
                self._looks_from = study.fewest_rounds if study.sequential and len(study.arms) > 1 else math.inf
                kept = f"{count_text(done, 'trial')} already stored, " if done else ""
                self._line(f"{kept}{most}{format_seconds(left)} left")
            case events.TrialEnded(trial=trial, place=place, summary=summary):
                # a log has a line for each round, of which the last trial is the one that says how far it is
                if self._verbose or (place.number == place.of and trial.round < self._looks_from):
                    # what a look says at a round's end, a run without looks says here
                    ahead = "" if self._looked_at else self._left()
                    self._line(f"{place_text(trial, place, most)}  {trial.workload}  {trial.arm}: {summary}{ahead}")
            case events.RoundJudged(verdicts=verdicts, seconds_left=left) if verdicts:
                again = f", {self._block.again} repeated" if self._block.again else ""
                line = round_line(event.round, verdicts, event.rulings, event.ahead)
                self._line(f"{line}{again}{left_text(most, left)}")
            case _:
                pass

    def _left(self) -> str:
        until = self._block.until
        return "" if until is None else left_text(self._block.most, until - time.monotonic())

    def _line(self, text: str) -> None:
        self._console.print(printable(text, keep="\n"), markup=False)


PAIRS_MAX = 24
POINTS_MAX = 64
"""Rounds of a pair's history; where there are more, every other one is dropped."""

_LEAST, _GREATEST = 1e-4, 1e4
"""Ratios are kept between these: an interval of two rounds may reach from almost nothing to almost everything."""


_QUIET_SECONDS, _QUIET_TRIALS = 900.0, 3
"""How long a run may say nothing: a guest boots, a disk is made ready, a trial runs. What has a time limit of its own
ends before."""


class Recorded:
    """Passes events on, and keeps how far the run is in a file beside the store."""

    def __init__(self, say: events.Say, *, store: StorePlace, study: Study) -> None:
        self._say, self._file = say, ProgressFile(store, study.id)
        self.run = RunProgress(
            study=study.id, title=study.label[:NAME_MAX], most=most_text(study), beat=time.time(),
            quiet_seconds=_QUIET_SECONDS + _QUIET_TRIALS * (study.ramp_seconds + study.seconds),
        )  # fmt: skip

    def __enter__(self) -> Self:
        self._file.__enter__()
        self._file.write(self.run)
        return self

    def __exit__(self, *_: object) -> None:
        self._file.__exit__(None, None, None)

    def __call__(self, event: events.Event) -> None:
        """Pass an event on."""
        self._say(event)
        moved = after(self.run, event, now=time.time())
        if moved is not self.run:
            self.run = replace(moved, beat=time.time())
            self._file.write(self.run)


def after(run: RunProgress, event: events.Event, *, now: float) -> RunProgress:
    """Return how far a run is after an event; the same value where the event says nothing of it."""
    match event:
        case events.StepStarted(what=what):
            return replace(run, step=what[:NAME_MAX], share=None)
        case events.StepProgressed(what=what, fraction=fraction):
            # a step says so many times a second; whole percents are enough
            share = round(fraction, 2)
            return run if (what[:NAME_MAX], share) == (run.step, run.share) else replace(run, step=what, share=share)
        case events.StepEnded():
            return replace(run, step="", share=None)
        case events.StudyPlanned(seconds=seconds):
            return replace(run, until=now + seconds)
        case events.StudyStarted(study=study, done=done, seconds_left=left):
            return replace(
                run, done=done, total=study.most_trials(finished=False) or len(study.trials), until=now + left
            )
        case events.TrialStarted(trial=trial, place=place, seconds_left=left):
            words = f"{place_text(trial, place, run.most)}: {trial.workload[:NAME_MAX]}, {trial.arm[:NAME_MAX]}"
            return replace(run, now=words, until=now + left)
        case events.TrialEnded(trial=trial):
            return replace(run, done=run.done + 1, total=max(trial.number, run.total))
        case events.RoundJudged():
            return _judged(run, event, now)
        case events.SearchMoved(known=known, seconds_left=left):
            return _moved(run, known, None if left is None else now + left)
        case _:
            return run


def _judged(run: RunProgress, event: events.RoundJudged, now: float) -> RunProgress:
    earlier = {_key(one): one.rounds for one in run.pairs}
    pairs = []
    for one in event.verdicts[:PAIRS_MAX]:
        found = _pair(one, event)
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


def _pair(one: Comparison, event: events.RoundJudged) -> PairProgress:
    return PairProgress(
        candidate=one.candidate[:NAME_MAX],
        baseline=one.baseline[:NAME_MAX],
        workload=one.workload[:NAME_MAX],
        metric=one.measured.label,
        verdict=one.said,
        difference="" if one.ratio is None else difference_text(one.ratio),
        left=rounds_left_text(one, event.round, event.ahead),
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


class EstimatedError(VirtuneError):
    """Ends a study before its first step: only how long it would take was asked."""


@dataclass(slots=True)
class CarriedStudy:
    """`begin` is called with the id of the study before its first trial; `run` is how far it was at the end.

    `planned` is called with the study and the expected seconds when all preconditions hold and nothing is made yet;
    None where no time can be said. It may raise EstimatedError. With `up` the configurations of a search are brought
    up before, and it has those that start.
    """

    begin: Callable[[str], None]
    planned: Callable[[Study, float | None], None] = lambda *_: None
    up: bool = False
    run: RunProgress | None = None


def carried_now() -> CarriedStudy | None:
    """Return what carries the command that runs; None where a user called it."""
    context = click.get_current_context(silent=True)
    return None if context is None else context.find_object(CarriedStudy)


Found = TypeVar("Found")
Answer = TypeVar("Answer")


def under_face(
    face: Face,
    work: Callable[[events.Say], Found],
    so_far: Callable[[], Found | None],
    show: Callable[[Found], Answer],
    *,
    store: Store,
    study: Study,
) -> Answer:
    """Run what takes long under a face, then show what it found; when it is interrupted, what there is of it."""
    signal.signal(signal.SIGTERM, interrupt)
    recorded, carried = Recorded(face, store=store.place, study=study), carried_now()
    if carried is not None:
        carried.begin(study.id)
    try:
        # the file tells of runs on this host, the claim of those of other hosts in one database
        with recorded as say, store.claimed(f"run {study.id}") as alone, face:
            if not alone:
                raise runs_already(study.id)
            found = work(_heard(say, carried))
        if study.sequential:  # what was not needed is not left
            recorded.run = replace(recorded.run, total=recorded.run.done)
    except (Interrupted, LoadError, NotInForceError):
        with contextlib.suppress(StoreError):  # it ended before it was kept: then there is nothing of it to show
            part = so_far()
            if part is not None:
                show(part)
        raise
    finally:
        if carried is not None:
            carried.run = recorded.run
    return show(found)


def _heard(say: events.Say, carried: CarriedStudy | None) -> events.Say:
    """Return what also tells whoever carries a study how long it is expected to take."""
    if carried is None:
        return say

    def heard(event: events.Event) -> None:
        say(event)
        if isinstance(event, events.StudyPlanned):
            carried.planned(event.study, event.seconds)

    return heard


def interrupt(number: int, frame: FrameType | None) -> None:  # noqa: ARG001 - the signal's own words
    """Take a request to end as Ctrl-C: what is finished is kept and everything comes down."""
    raise KeyboardInterrupt
