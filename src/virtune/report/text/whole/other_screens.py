# SPDX-License-Identifier: Apache-2.0
"""The end of a check and of a sweep on one screen: what was found, its figures, and as many warnings as fit."""

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass

from rich.console import Console, ConsoleOptions, Group, RenderableType, RenderResult
from rich.text import Text

from virtune.model.fitness import Fitness
from virtune.model.result import Result
from virtune.model.sweep import LoadSweep
from virtune.model.units import format_bandwidth
from virtune.report.text.host import check
from virtune.report.text.layout import Paragraph
from virtune.report.text.search import sweep
from virtune.report.text.whole.screen import NAMES, ROWS_LEAST, fitting, item, screen_warnings, verified_line
from virtune.report.text.words import count_text, names_text

_Height = Callable[[Sequence[RenderableType]], int]


@dataclass(frozen=True, slots=True, kw_only=True)
class CheckScreen:
    """A check within `lines` lines (None: no limit); `virtune show` prints what is left out."""

    fitness: Fitness
    lines: int | None = None

    def __rich_console__(self, console: Console, options: ConsoleOptions) -> RenderResult:
        """Lay out the verdict, then figures and advice in the lines that are left."""
        fitness, height = self.fitness, _height(console, options)
        head = Paragraph(check.headline(fitness), hanging=2)
        said = [
            item(
                one.weight.value,
                f"{one.text} ({one.advice})" if one.advice else one.text,
                check.WEIGHT_STYLE[one.weight],
            )
            for one in fitness.advice
        ]
        left = None if self.lines is None else self.lines - height([head, *said[:1]]) - bool(said[1:])
        body = list(_figures(fitness))
        while body and left is not None and height(body) > left:
            body.pop()
        rest = None if self.lines is None else self.lines - height([head, *body])
        yield Group(head, *body, *fitting(said, rest, height))


def _figures(fitness: Fitness) -> Iterator[RenderableType]:
    """Yield the figures of a check, the most needed first."""
    if any(one.blocks for one in fitness.reaches):
        rows = [*check.reach_rows(fitness), *check.slice_rows(fitness, others=False)]
        yield Group(Text("minimum detectable effect", style="bold"), check.figures_table(rows))
    if noise := list(check.noise_rows(fitness)):
        yield Group(Text("noise", style="bold"), check.figures_table(noise))
    disturbed = [f"{one.label} {one.standing}" for one in fitness.gates if one.standing != "clear"]
    if fitness.gates:
        told = names_text(disturbed, NAMES) or "none"
        yield Paragraph(Text(f"disturbances: {told}"), hanging=2)
    if fitness.neighbours:
        names = [
            f"{one.name} ({one.pid}) {one.cpus:.2f} CPUs"
            + ("" if one.bandwidth_bps is None else f" {format_bandwidth(one.bandwidth_bps)}")
            for one in fitness.neighbours
        ]
        yield Paragraph(Text(f"other processes: {names_text(names, 3)}"), hanging=2)


@dataclass(frozen=True, slots=True, kw_only=True)
class SweepScreen:
    """A sweep within `lines` lines (None: no limit). `facts` are those of the host, as JSON."""

    known: LoadSweep
    result: Result
    facts: str
    lines: int | None = None

    def __rich_console__(self, console: Console, options: ConsoleOptions) -> RenderResult:
        """Lay out what was found, then loads and warnings in the lines that are left."""
        known, height = self.known, _height(console, options)
        study = known.study
        title = Text(f"{study.label} {study.id}", style="bold")
        title.append("" if known.finished else "  not finished", style="yellow")
        title.append(f"  {study.arms[0].name}, {study.workloads[0].name}", style="not bold default")
        head = [
            Paragraph(title, hanging=2),
            *(Paragraph(Text(one), indent=2, hanging=2) for one in sweep.answer_lines(known)),
        ]
        result = sweep.without_saturation(self.result)
        loads, *marks, host = (
            Paragraph(Text(line, style="dim"), hanging=2) for line in sweep.measured_lines(known, self.facts)
        )
        below: list[RenderableType] = [loads, *marks, host, verified_line(result)]
        said = list(screen_warnings(result))
        table: list[RenderableType] = [Text(""), sweep.curve_table(known, result), Text("")]
        if self.lines is not None:
            needed = height([*head, *said[:1]]) + bool(said[1:])
            if needed + height([*below, *table]) > self.lines:
                below = [loads, host, below[-1]]  # what the marks mean is in `virtune show`
            table = self._table(result, self.lines - needed - height(below), height)
        rest = None if self.lines is None else self.lines - height([*head, *table, *below])
        yield Group(*head, *table, *below, *fitting(said, rest, height))

    def _table(self, result: Result, room: int, height: _Height) -> list[RenderableType]:
        """Return as many loads as there is room for, those around what was found."""
        known, count = self.known, len(self.known.points)
        table: list[RenderableType] = [Text(""), sweep.curve_table(known, result), Text("")]
        rows = count
        while rows > ROWS_LEAST and height(table) > room:
            rows -= 1
            more = Text(f"and {count_text(count - rows, 'more load')}", style="dim")
            table = [sweep.curve_table(known, result, rows), more]
        return table


def _height(console: Console, options: ConsoleOptions) -> _Height:
    """Return what counts the lines of some parts."""

    def height(parts: Sequence[RenderableType]) -> int:
        return sum(len(console.render_lines(part, options, pad=False)) for part in parts)

    return height
