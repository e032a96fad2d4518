# SPDX-License-Identifier: Apache-2.0
"""The progress display of a study on a terminal: the running trial, progress, time left, and the undecided pairs."""

import time
from collections.abc import Sequence
from dataclasses import dataclass

from rich.console import Console, ConsoleOptions, RenderResult
from rich.progress_bar import ProgressBar
from rich.table import Table
from rich.text import Text

from virtune.model.text import format_seconds, format_share, printable
from virtune.model.verdict import Comparison, Outcome, ThresholdResult, Verdict
from virtune.report.pages.result import STYLE, arms_text
from virtune.report.render.forest import axis_of, bar
from virtune.report.words import count_text, difference_text

ROUNDS_FORESEEN = 500
"""More rounds than this take hours: such a forecast only says that the host is too noisy."""

PAIRS_SHOWN = 8
"""Open pairs in the block; those that are furthest from decided."""

_BAR, _NARROW_BAR = 24, 12
"""Characters of the bar; a narrow terminal has room for the shorter one beside what stands to its right."""

_NARROW = 90


def rounds_left_text(found: Comparison) -> str:
    """Return how many more rounds decide a pair, if that is a realistic number."""
    if found.rounds_left is None or found.rounds_left > ROUNDS_FORESEEN:
        return "too noisy to estimate"
    return f"about {count_text(found.rounds_left, 'round')} more"


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
    `now` the trial that runs, `until` when all is expected to be over; `most` stands before the time left.
    """

    step: tuple[str, float | None] | None = None
    step_left: float | None = None
    now: str = ""
    done: int = 0
    total: int = 0
    until: float | None = None
    most: str = "about "
    verdicts: Sequence[Comparison] = ()
    rulings: Sequence[ThresholdResult] = ()

    def __rich_console__(self, console: Console, options: ConsoleOptions) -> RenderResult:
        """Set the block at the width there is: no line is longer."""
        wide = _NARROW_BAR if options.max_width < _NARROW else _BAR
        if self.step is not None:
            what, share = self.step
            left = "" if self.step_left is None else f"about {format_seconds(self.step_left)} left"
            yield self._line(what, _bar(share or 0.0, wide), "" if share is None else format_share(share), left)
        if self.total:
            yield _cut(self.now or "starting")
            yield self._line("", _bar(self.done / self.total, wide), *self._standing())
            yield from self._pairs(options.max_width)

    def _standing(self) -> list[str]:
        told = [f"{self.done} of {self.total} trials" if self.most == "about " else count_text(self.done, "trial")]
        if self.until is not None:
            told.append(f"{self.most}{format_seconds(max(0.0, self.until - time.monotonic()))} left")
        if self.verdicts:
            decided = sum(one.verdict is not Verdict.UNDECIDED for one in self.verdicts)
            told.append(f"{decided} of {len(self.verdicts)} pairs decided")
        if self.rulings:
            known = sum(one.outcome is not Outcome.UNDECIDED for one in self.rulings)
            told.append(f"{known} of {len(self.rulings)} conditions")
        return told

    def _line(self, first: str, bar_: ProgressBar, *rest: str) -> Table:
        grid = Table.grid(padding=(0, 1))
        cells: list[Text | ProgressBar] = [bar_, _cut(", ".join(part for part in rest if part))]
        grid.add_row(*([_cut(first)] if first else []), *cells)
        return grid

    def _pairs(self, width: int) -> RenderResult:
        """Yield a line for each pair that is open, the longest to go last, and for each open condition."""
        open_ = sorted(
            (one for one in self.verdicts if one.rounds_left is not None), key=lambda one: one.rounds_left or 0
        )[-PAIRS_SHOWN:]
        told = [one.ratio for one in open_ if one.ratio is not None]
        reach = axis_of(told)
        grid = Table.grid(padding=(0, 1))
        for one in open_:
            ratio = one.ratio
            drawn = "" if ratio is None else bar(ratio.low, ratio.estimate, ratio.high, reach)
            difference = "" if ratio is None else difference_text(ratio)
            cells = [
                _cut(f"  {one.candidate}{whose(one, self.verdicts)}"),
                Text(difference, style=STYLE[one.verdict]),
            ]
            # a narrow terminal has no room for the drawing
            grid.add_row(*cells, *([Text(drawn)] if width >= _NARROW else []), _cut(rounds_left_text(one)))
        if open_:
            yield grid
        for ruling in [one for one in self.rulings if one.outcome is Outcome.UNDECIDED][:PAIRS_SHOWN]:
            yield _cut(f"  {ruling.condition.text} for {arms_text(ruling)}: undecided")


def _bar(share: float, width: int) -> ProgressBar:
    return ProgressBar(total=1.0, completed=min(1.0, share), width=width)


def _cut(text: str) -> Text:
    """Return one line that ends where the terminal does."""
    return Text(printable(text), no_wrap=True, overflow="ellipsis")
