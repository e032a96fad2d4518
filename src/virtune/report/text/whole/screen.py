# SPDX-License-Identifier: Apache-2.0
"""The end of a run on one screen: the verdict, a row for each arm, what was verified, and as many warnings as fit."""

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass

from rich.console import Console, ConsoleOptions, Group, RenderableType, RenderResult
from rich.segment import Segment
from rich.text import Text

from virtune.model.condition import ThresholdResult
from virtune.model.evidence import data_kept
from virtune.model.metric import BY_ID
from virtune.model.published import PublishedStudy
from virtune.model.remark import Weight
from virtune.model.result import Result
from virtune.model.tuning import Tuning
from virtune.model.verdict import Comparison, Verdict
from virtune.report.text.builtin.studies import ending
from virtune.report.text.forest import axis, axis_of, bar
from virtune.report.text.layout import Column, FirstThatFits, Paragraph, Records
from virtune.report.text.search import tune
from virtune.report.text.search.tune_arms import arms_table
from virtune.report.text.study import imported
from virtune.report.text.study.answer import STYLE, change_cell, is_told, legend, matrix
from virtune.report.text.study.arms import arm_lines
from virtune.report.text.study.basis import drift_warnings, what_deciding_takes
from virtune.report.text.study.notes import WARNING_STYLE, WORD, rejections, short_warnings
from virtune.report.text.study.result import about, headline, standing, value_text
from virtune.report.text.study.table_words import level_words
from virtune.report.text.study.thresholds import conditions
from virtune.report.text.study.verified import not_verified, settings_of
from virtune.report.text.words import count_text, names_text
from virtune.report.view import ResultView, WorkloadView, view_of

ROWS_LEAST = 4
"""The fewest arms that are shown, however low the terminal is."""

MORE_LINES = 2
"""The lines at the end of a shortened list: how many more there are, and an empty one."""

_COLUMNS = ("latency.mean", "latency.p99", "cpu_per_io")
"""What is shown of each arm besides the metric of the verdicts."""

NAMES = 5
"""The most names of arms or settings in one line."""

_ORDER = (Verdict.BETTER, Verdict.WORSE, Verdict.SAME, Verdict.UNDECIDED)


@dataclass(frozen=True, slots=True, kw_only=True)
class Screen:
    """A result within `lines` lines (None: no limit); `virtune show` prints what is left out.

    A built-in study shows its own table, and its `authors`' results if there is room, instead of the general table.
    `facts` are those of the host, as JSON; `rulings` the outcomes of --fail-if, which are never left out.
    """

    result: Result
    facts: str
    rulings: Sequence[ThresholdResult] = ()
    lines: int | None = None
    authors: PublishedStudy | None = None

    def __rich_console__(self, console: Console, options: ConsoleOptions) -> RenderResult:
        """Lay out the required parts, then rows and warnings in the lines that are left."""
        result, view = self.result, view_of(self.result)

        def height(parts: Sequence[RenderableType]) -> int:
            return sum(len(console.render_lines(part, options, pad=False)) for part in parts)

        head: list[RenderableType] = [headline(result), *verdict_lines(result, view), Text("")]
        measured: list[RenderableType] = [
            Paragraph(Text(line, style="dim"), hanging=2) for line in about(result, self.facts)
        ]
        below: list[RenderableType] = []
        going_on = dict.fromkeys(line for basis in result.basis for line in what_deciding_takes(result, basis))
        below += [Paragraph(Text(line, style="yellow"), hanging=2) for line in [*left_open(result), *going_on][:1]]
        below.append(verified_line(result))
        said = list(screen_warnings(result))
        above = [*conditions(self.rulings), Text("")]
        if self.lines is not None:
            # the answer stays on a low screen: on which host it is, is in `virtune show`
            least = height([*head, *above, *below, *said[:1], *_table(result, view, ROWS_LEAST)]) + bool(said[1:])
            while len(measured) > 1 and least + height(measured) > self.lines:
                measured.pop()
        below = [*above, *measured, *below]
        # the first warning is always there, whatever the table needs
        left = None if self.lines is None else self.lines - height([*head, *below, *said[:1]]) - bool(said[1:])
        table = _table(result, view, None if left is None else max(ROWS_LEAST, left - MORE_LINES))
        with_authors, own = ending(result, self.authors, self.facts), ending(result)
        choices = [[*with_authors, *table], with_authors, [*own, *table], own] if own else []
        if self.lines is None and len(result.study.compared) > 1:
            # a log does not scroll: of many workloads the general table is a line for every pair
            choices = choices[1:]
        table = next((one for one in choices if left is None or height(one) <= left), table)
        meaning = _meaning(result, self.facts)
        spare = None if left is None else left - height(table)
        while meaning and spare is not None and height(meaning) > spare:
            meaning.pop()
        shown = [*head, *table, *meaning, *below]
        rest = None if self.lines is None else self.lines - height(shown)
        for part in (*shown, *fitting(said, rest, height)):
            for line in console.render_lines(part, options, pad=False):
                yield from line
                yield Segment.line()


@dataclass(frozen=True, slots=True, kw_only=True)
class SearchScreen:
    """The result of a search within `lines` lines (None: no limit)."""

    known: Tuning
    lines: int | None = None

    def __rich_console__(self, console: Console, options: ConsoleOptions) -> RenderResult:
        """Lay out the answer, then the configurations and notes in the lines that are left."""

        def height(parts: Sequence[RenderableType]) -> int:
            return sum(len(console.render_lines(part, options, pad=False)) for part in parts)

        known = self.known
        head: list[RenderableType] = [tune.headline(known), Text("")]
        head += [*(Paragraph(line, hanging=2) for line in tune.answer_lines(known)), Text("")]
        said = [item("note", text, "yellow") for text in tune.warnings(known)]
        left = None if self.lines is None else self.lines - height([*head, *said[:1]]) - bool(said[1:])
        rows = None if left is None else max(ROWS_LEAST, left - MORE_LINES)
        table = arms_table(known, rows)
        while rows is not None and left is not None and rows > ROWS_LEAST and height([table]) > left:
            rows -= 1
            table = arms_table(known, rows)
        rest = None if self.lines is None else self.lines - height([*head, table])
        yield Group(*head, table, *fitting(said, rest, height))


def verdict_lines(result: Result, view: ResultView) -> list[RenderableType]:
    """Return the arms that are better, worse, the same or undecided in a line; for several workloads how often."""
    study = result.study
    judged = [(one, list(one.against(study.metric, study.baseline).values())) for one in view.workloads]
    judged = [(one, found) for one, found in judged if found]
    if not judged:
        return []
    text = Text()
    if len(judged) == 1:
        one, found = judged[0]
        for verdict, same in _by_verdict(found):
            words = verdict.value if verdict is Verdict.UNDECIDED else _TOLD[verdict]
            text.append("; " if text else "")
            text.append(f"{words.format(study.baseline)}: ", style=f"bold {STYLE[verdict]}")
            text.append(names_text([comparison.candidate for comparison in same], NAMES))
        return [Paragraph(text.append(standing(result, one.workload)), hanging=2)]
    every = [comparison for _, found in judged for comparison in found]
    for verdict, same in _by_verdict(every):
        text.append(", " if text else f"{count_text(len(every), 'pair')} against {study.baseline}: ")
        text.append(f"{len(same)} {verdict.value}", style=f"bold {STYLE[verdict]}")
    return [Paragraph(text, hanging=2)]


def left_open(result: Result) -> Iterator[str]:
    """Yield why pairs are undecided that more rounds will not decide, each reason once."""
    why: dict[str, list[str]] = {}
    for one in result.verdicts:
        if one.verdict is Verdict.UNDECIDED and one.closed:
            why.setdefault(one.why, []).append(one.candidate)
    for text, arms in why.items():
        yield f"undecided: {names_text(list(dict.fromkeys(arms)), NAMES)}: {text}"


_TOLD = {Verdict.BETTER: "better than {}", Verdict.WORSE: "worse than {}", Verdict.SAME: "same as {}"}


def _by_verdict(found: Sequence[Comparison]) -> Iterator[tuple[Verdict, list[Comparison]]]:
    for verdict in _ORDER:
        if same := [one for one in found if one.verdict is verdict]:
            yield verdict, same


def _meaning(result: Result, facts: str) -> list[RenderableType]:
    """Say what the intervals, the values and the arms of the table are; `virtune show` has it where a screen has no
    room.
    """
    intervals = legend(result) if len(result.study.compared) == 1 else []
    if intervals and result.typical:
        typical = f"values: {level_words(result.study)}"
        intervals.append(Paragraph(Text(typical, style="dim"), indent=2, hanging=2))
    return [*intervals, *(Paragraph(Text(line, style="dim"), hanging=2) for line in arm_lines(result.study, facts))]


def _table(result: Result, view: ResultView, most: int | None) -> list[RenderableType]:
    """Return the rows with the verdicts: for one workload a row per arm, for several a row per workload."""
    study = result.study
    shown = [one for one in view.workloads if not one.workload.probe and one.rows]
    if len(shown) == 1:
        return _arms(result, view, shown[0], _most(len(view.arms), most))
    if len(study.arms) > 1 and shown:
        label = BY_ID[study.metric].label
        title = Text(f"{label} against {study.baseline}", style="bold").append(standing(result, shown[0].workload))
        rows_max = None if most is None else _most(len(shown), most - 1)  # the title is a line
        return [title, matrix(result, rows_max), *_more(len(shown), rows_max, "workload")]
    names = [one.workload.name for one in shown]
    rows = [(Text(name), *_values(one, study.baseline, study.metric)) for name, one in zip(names, shown, strict=True)]
    if not rows:
        return []
    most = _most(len(rows), most)
    return [_records("workload", shown[0], study.metric, rows[:most]), *_more(len(rows), most, "workload")]


def _arms(result: Result, view: ResultView, one: WorkloadView, most: int | None) -> list[RenderableType]:
    study = result.study
    found = one.against(study.metric, study.baseline)
    told = [each.ratio for each in found.values() if each.ratio is not None and is_told(each)]
    reach = axis_of(told)
    rows = []
    for arm in view.arms[:most]:
        verdict = found.get(arm)
        style = "" if verdict is None else STYLE[verdict.verdict]
        drawn = ""
        if verdict is not None and verdict.ratio is not None and is_told(verdict):
            drawn = bar(verdict.ratio.low, verdict.ratio.estimate, verdict.ratio.high, reach)
        word = "" if len(view.arms) == 1 else "baseline" if verdict is None else verdict.verdict.value
        change = Text("") if verdict is None else change_cell(verdict)
        cells = _values(one, arm, study.metric)
        rows.append((Text(arm, style="bold"), Text(word, style=style), change, Text(drawn, style=style), *cells))
    changed = f"{BY_ID[study.metric].label} change" if found else ""
    columns = [Column(title=one.workload.name), Column(title=""), Column(title=changed)]
    columns.append(Column(title=axis(reach, "0") if told else ""))
    columns += [Column(title=title, right=True) for title in _titles(one, study.metric)]
    # the narrower, the fewer figures; the interval drawn stays longest
    last = len(columns)
    ways = [tuple(range(end)) for end in range(last, 4, -1)] + [(0, 1, 2, 3), (0, 1, 2, 4), (0, 1, 2)]
    fits = FirstThatFits(
        *(
            [Records([columns[n] for n in keep if n < last], [[row[n] for n in keep if n < last] for row in rows])]
            for keep in ways
        )
    )
    return [fits, *_more(len(view.arms), most, "arm")]


def _titles(one: WorkloadView, metric: str) -> list[str]:
    return [row.label for name in dict.fromkeys((metric, *_COLUMNS)) if (row := one.row(name)) is not None]


def _values(one: WorkloadView, arm: str, metric: str) -> list[Text]:
    rows = (row for name in dict.fromkeys((metric, *_COLUMNS)) if (row := one.row(name)) is not None)
    return [
        Text(value_text(row.metric, next((cell.value for cell in row.cells if cell.arm == arm), None)))
        for row in rows
    ]


def _records(head: str, one: WorkloadView, metric: str, rows: Sequence[Sequence[Text]]) -> Records:
    columns = [Column(title=head), *(Column(title=title, right=True) for title in _titles(one, metric))]
    return Records(columns, rows)


def _most(count: int, most: int | None) -> int | None:
    """Return how many of `count` rows are shown: the line that says that one is left out would take its room."""
    return None if most is None or count <= most + 1 else most


def _more(count: int, most: int | None, word: str) -> list[RenderableType]:
    left = 0 if most is None else count - most
    return [Text(f"and {count_text(left, f'more {word}')}", style="dim")] if left > 0 else []


def verified_line(result: Result) -> Paragraph:
    """Say in a line that all settings were read back, else which were not."""
    if wrong := not_verified(result):
        told = (f"{names_text(what, NAMES)} ({names_text(arms, 3)})" for what, arms in wrong.items())
        more = f" and in other ways {len(wrong) - 1} more times" if len(wrong) > 1 else ""
        return Paragraph(Text(f"settings not verified: {next(told)}{more}", style="red"), hanging=2)
    found = list(settings_of(result))
    unknown = [arm for arm, mark, _ in found if mark == "?"]
    if unknown or not found:
        whose = f" of {names_text(unknown, NAMES)}" if unknown else ""
        return Paragraph(Text(f"settings{whose} cannot be verified", style="yellow"), hanging=2)
    arms = "all arms" if len(found) > 1 else "the arm"
    if result.study.simulated:
        return Paragraph(Text(f"settings of {arms} taken by the simulation", style="green"), hanging=2)
    said = f"settings of {arms} verified: read back from the running processes"
    if all(data_kept(one.in_force) for one in result.arms):
        said += f"; the data of {arms} checked: all was read as it was written"
    return Paragraph(Text(said, style="green"), hanging=2)


def screen_warnings(result: Result) -> Iterator[Paragraph]:
    """Yield failures and warnings, the worst first; notes on how to read figures are left to `virtune show`."""
    for summary in result.arms:
        for reason in summary.failures:
            yield item("failed", f"{summary.arm}: {reason}", "red")
    for weight in (Weight.INVALID, Weight.WARNING):
        for text in short_warnings(result, weight):
            yield item(WORD[weight], text, WARNING_STYLE[weight])
    for text in drift_warnings(result):
        yield item("warning", text, "yellow")
    for text in rejections(result):
        yield item("trials", text, "yellow")
    if result.study.imported:
        for text in imported.warnings(result.study):
            yield item("warning", text, "yellow")


def item(word: str, text: str, style: str) -> Paragraph:
    return Paragraph(Text(f"{word}: ", style=style).append(text, style="not bold default"), hanging=2)


def fitting(
    said: Sequence[RenderableType], room: int | None, height: Callable[[Sequence[RenderableType]], int]
) -> list[RenderableType]:
    """Return the first warnings that fit, at least one, and how many more there are."""
    if room is None or height(said) <= room:
        return list(said)
    shown = [*said[:1]]
    while len(shown) < len(said) and height([*shown, said[len(shown)]]) <= room - 1:
        shown.append(said[len(shown)])
    left = len(said) - len(shown)
    return [*shown, Text(f"and {left} more, in `virtune show`", style="yellow")] if left else shown
