# SPDX-License-Identifier: Apache-2.0
"""A result on one screen, with as many rows and warnings as fit, and the plain report with everything."""

import itertools
import json
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from statistics import median

from rich.console import Console, ConsoleOptions, Group, RenderableType, RenderResult
from rich.segment import Segment
from rich.text import Text

from virtune.model.durability import durability_of
from virtune.model.evidence import StudyRecord, data_kept
from virtune.model.metric import BY_ID
from virtune.model.published import PublishedStudy
from virtune.model.remark import Weight
from virtune.model.result import Fitness, LoadSweep, Result
from virtune.model.study import Study
from virtune.model.text import format_ns, format_seconds, format_share
from virtune.model.tuning import Tuning
from virtune.model.verdict import Comparison, ThresholdResult, Verdict
from virtune.model.workload import Workload
from virtune.report.pages import check, evidence, sweep, tune
from virtune.report.pages import result as results
from virtune.report.pages.builtin import ending
from virtune.report.pages.study import all_checks, arm_lines, not_verified, option_lines, settings_of
from virtune.report.pages.tune import arms_table
from virtune.report.render import terminal
from virtune.report.render.forest import axis, axis_of
from virtune.report.view import ResultView, WorkloadView, view_of
from virtune.report.words import count_text, methods_text, names_text, quantity

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
        result, view, height = self.result, view_of(self.result), terminal.height_of(console, options)
        head: list[RenderableType] = [results.headline(result), *verdict_lines(result, view), Text("")]
        measured = terminal.paragraphs(results.about(result, self.facts), "dim", indent=0)
        takes = evidence.what_deciding_takes
        going_on = dict.fromkeys(line for basis in result.basis for line in takes(result, basis))
        still_open = [*left_open(result), *going_on][:1]
        below = [*terminal.paragraphs(still_open, "yellow", indent=0), verified_line(result)]
        said = list(screen_warnings(result))
        above = [*results.conditions(self.rulings), Text("")]
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
        known, height = self.known, terminal.height_of(console, options)
        head = [tune.headline(known), Text(""), *terminal.paragraphs(tune.answer_lines(known), indent=0), Text("")]
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
            text.append(f"{words.format(study.baseline)}: ", style=f"bold {results.STYLE[verdict]}")
            text.append(names_text([comparison.candidate for comparison in same], NAMES))
        return [terminal.paragraph(text.append(results.standing(result, one.workload)))]
    every = [comparison for _, found in judged for comparison in found]
    for verdict, same in _by_verdict(every):
        text.append(", " if text else f"{count_text(len(every), 'pair')} against {study.baseline}: ")
        text.append(f"{len(same)} {verdict.value}", style=f"bold {results.STYLE[verdict]}")
    return [terminal.paragraph(text)]


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
    intervals = results.legend(result) if len(result.study.compared) == 1 else []
    if intervals and result.typical:
        typical = f"values: {results.level_words(result.study)}"
        intervals.append(terminal.paragraph(typical, "dim", indent=2))
    return [*intervals, *terminal.paragraphs(arm_lines(result.study, facts), "dim", indent=0)]


def _table(result: Result, view: ResultView, most: int | None) -> list[RenderableType]:
    """Return the rows with the verdicts: for one workload a row per arm, for several a row per workload."""
    study = result.study
    shown = [one for one in view.workloads if not one.workload.probe and one.rows]
    if len(shown) == 1:
        return _arms(result, view, shown[0], _most(len(view.arms), most))
    if len(study.arms) > 1 and shown:
        label = BY_ID[study.metric].label
        title = Text(f"{label} against {study.baseline}", style="bold").append(
            results.standing(result, shown[0].workload)
        )
        rows_max = None if most is None else _most(len(shown), most - 1)  # the title is a line
        return [title, results.matrix(result, rows_max), *_more(len(shown), rows_max, "workload")]
    if not shown:
        return []
    most = _most(len(shown), most)
    rows = [(one.workload.name, *_values(one, study.baseline, study.metric)) for one in shown[:most]]
    table = terminal.Table(["workload", *terminal.right(*_titles(shown[0], study.metric))], rows)
    return [table, *_more(len(shown), most, "workload")]


def _arms(result: Result, view: ResultView, one: WorkloadView, most: int | None) -> list[RenderableType]:
    study = result.study
    found = one.against(study.metric, study.baseline)
    told = [each.ratio for each in found.values() if each.ratio is not None and results.is_told(each)]
    reach = axis_of(told)
    changed = f"{BY_ID[study.metric].label} change" if found else ""
    drawn = axis(reach, "0") if told else ""
    table = terminal.Table([one.workload.name, "", changed, drawn, *terminal.right(*_titles(one, study.metric))])
    for arm in view.arms[:most]:
        verdict = found.get(arm)
        word = Text("" if len(view.arms) == 1 else "baseline")
        if verdict is not None:
            word = Text(verdict.verdict.value, style=results.STYLE[verdict.verdict])
        change = "" if verdict is None else results.change_cell(verdict)
        cells = _values(one, arm, study.metric)
        table.add_row(Text(arm, style="bold"), word, change, results.bar_cell(verdict, reach), *cells)
    # the narrower, the fewer figures; the interval drawn stays longest
    last = len(table.columns)
    ways = [tuple(range(end)) for end in range(last, 4, -1)] + [(0, 1, 2, 3), (0, 1, 2, 4), (0, 1, 2)]
    fits = terminal.FirstThatFits(*([table.only(*(number for number in keep if number < last))] for keep in ways))
    return [fits, *_more(len(view.arms), most, "arm")]


def _titles(one: WorkloadView, metric: str) -> list[str]:
    return [row.label for name in dict.fromkeys((metric, *_COLUMNS)) if (row := one.row(name)) is not None]


def _values(one: WorkloadView, arm: str, metric: str) -> list[str]:
    rows = (row for name in dict.fromkeys((metric, *_COLUMNS)) if (row := one.row(name)) is not None)
    cells = ((row.metric, {cell.arm: cell.value for cell in row.cells}.get(arm)) for row in rows)
    return [results.value_text(metric, value) for metric, value in cells]


def _most(count: int, most: int | None) -> int | None:
    """Return how many of `count` rows are shown: the line that says that one is left out would take its room."""
    return None if most is None or count <= most + 1 else most


def _more(count: int, most: int | None, word: str) -> list[RenderableType]:
    left = 0 if most is None else count - most
    return [Text(f"and {count_text(left, f'more {word}')}", style="dim")] if left > 0 else []


def verified_line(result: Result) -> terminal.Paragraph:
    """Say in a line that all settings were read back, else which were not."""
    if wrong := not_verified(result):
        told = (f"{names_text(what, NAMES)} ({names_text(arms, 3)})" for what, arms in wrong.items())
        more = f" and in other ways {len(wrong) - 1} more times" if len(wrong) > 1 else ""
        return terminal.paragraph(f"settings not verified: {next(told)}{more}", "red")
    found = list(settings_of(result))
    unknown = [arm for arm, mark, _ in found if mark == "?"]
    if unknown or not found:
        whose = f" of {names_text(unknown, NAMES)}" if unknown else ""
        return terminal.paragraph(f"settings{whose} cannot be verified", "yellow")
    arms = "all arms" if len(found) > 1 else "the arm"
    if result.study.simulated:
        return terminal.paragraph(f"settings of {arms} taken by the simulation", "green")
    said = f"settings of {arms} verified: read back from the running processes"
    if all(data_kept(one.in_force) for one in result.arms):
        said += f"; the data of {arms} checked: all was read as it was written"
    return terminal.paragraph(said, "green")


def screen_warnings(result: Result) -> Iterator[terminal.Paragraph]:
    """Yield failures and warnings, the worst first; notes on how to read figures are left to `virtune show`."""
    failures = (f"{summary.arm}: {reason}" for summary in result.arms for reason in summary.failures)
    yield from (item("failed", text, "red") for text in failures)
    weights = (Weight.INVALID, Weight.WARNING)
    short = ((weight, text) for weight in weights for text in evidence.short_warnings(result, weight))
    yield from (item(evidence.WORD[weight], text, terminal.WEIGHT_STYLE[weight]) for weight, text in short)
    yield from (item("warning", text, "yellow") for text in evidence.drift_warnings(result))
    yield from (item("trials", text, "yellow") for text in evidence.rejections(result))
    if result.study.imported:
        yield from (item("warning", text, "yellow") for text in evidence.imported_warnings(result.study))


def item(word: str, text: str, style: str) -> terminal.Paragraph:
    """Return a remark with the word before it."""
    return terminal.paragraph(Text(f"{word}: ", style=style).append(text, style="not bold default"))


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


@dataclass(frozen=True, slots=True, kw_only=True)
class CheckScreen:
    """A check within `lines` lines (None: no limit); `virtune show` prints what is left out."""

    fitness: Fitness
    lines: int | None = None

    def __rich_console__(self, console: Console, options: ConsoleOptions) -> RenderResult:
        """Lay out the verdict, then figures and advice in the lines that are left."""
        fitness, height = self.fitness, terminal.height_of(console, options)
        head = terminal.paragraph(check.headline(fitness))
        texts = ((one.weight, f"{one.text} ({one.advice})" if one.advice else one.text) for one in fitness.advice)
        said = [item(weight.value, text, terminal.WEIGHT_STYLE[weight]) for weight, text in texts]
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
        yield terminal.paragraph(f"disturbances: {names_text(disturbed, NAMES) or 'none'}")
    if fitness.neighbours:
        names = [f"{one.name} ({one.pid}) {check.took_text(one)}" for one in fitness.neighbours]
        yield terminal.paragraph(f"other processes: {names_text(names, 3)}")


@dataclass(frozen=True, slots=True, kw_only=True)
class SweepScreen:
    """A sweep within `lines` lines (None: no limit). `facts` are those of the host, as JSON."""

    known: LoadSweep
    result: Result
    facts: str
    lines: int | None = None

    def __rich_console__(self, console: Console, options: ConsoleOptions) -> RenderResult:
        """Lay out what was found, then loads and warnings in the lines that are left."""
        known, study, height = self.known, self.known.study, terminal.height_of(console, options)
        title = Text(f"{study.label} {study.id}", style="bold")
        title.append("" if known.finished else "  not finished", style="yellow")
        title.append(f"  {study.arms[0].name}, {study.workloads[0].name}", style="not bold default")
        head = [terminal.paragraph(title), *terminal.paragraphs(sweep.answer_lines(known))]
        result = sweep.without_saturation(self.result)
        measured = terminal.paragraphs(sweep.measured_lines(known, self.facts), "dim", indent=0)
        below = [*measured, verified_line(result)]
        said = list(screen_warnings(result))
        table: list[RenderableType] = [Text(""), sweep.curve_table(known, result), Text("")]
        if self.lines is not None:
            needed = height([*head, *said[:1]]) + bool(said[1:])
            if needed + height([*below, *table]) > self.lines:
                below = [measured[0], *below[-2:]]  # what the marks mean is in `virtune show`
            rows = count = len(known.points)
            while rows > ROWS_LEAST and needed + height([*below, *table]) > self.lines:
                rows -= 1  # those around what was found stay
                table = [sweep.curve_table(known, result, rows), *_more(count, rows, "load")]
        rest = None if self.lines is None else self.lines - height([*head, *table, *below])
        yield Group(*head, *table, *below, *fitting(said, rest, height))


REFERENCE = "The result ends here. What follows is its evidence, to look things up and to check them."
"""What stands between what a reader of a report needs, and what proves it."""

_HOST_TITLE = "host: what virtune found on it before the study, as JSON"
_OPTIONS_TITLE = "options: their values, and where each came from"


def plain_report(result: Result, record: StudyRecord, published: PublishedStudy | None = None) -> RenderableType:
    """Return the whole report: result, single rounds, method, arms, workloads, host; for a built-in study also its
    authors' results.
    """
    study = result.study
    stacks = [arm.stack for arm in study.arms if arm.stack.kind.made_here]
    promises = dict.fromkeys(durability_of(stack).promise for stack in stacks)
    meanings = [Text(f"durability {promise}: {promise.words}") for promise in promises]
    correlations = filter(None, map(evidence.correlation_text, result.basis))
    return Group(
        results.render(result, record.facts, first=ending(result, published, record.facts)),
        Text(f"\n{REFERENCE}"),
        *_section("single rounds", _rounds(result, record)),
        *_section("verified settings, check by check", all_checks(result)),
        *_section("how it was measured", _joined(_method(result, record), correlations)),
        *_section(_OPTIONS_TITLE, _joined(option_lines(study))),
        *_section("arms: what was asked of each", Group(_arms_asked(study), *meanings)),
        *_section("workloads: their fio jobs", _joined(*map(_jobs, study.workloads))),
        *_section(_HOST_TITLE, _joined(_host(record.facts))),
    )


def plain_search(known: Tuning, facts: str, written: Sequence[tuple[str, str, tuple[str, ...]]]) -> RenderableType:
    """Return the whole report of a search: its result, the configuration lines of the winner, and the host.

    `written` holds a title, the text and notes for each program; `facts` are those of the host, as JSON.
    """
    parts: list[RenderableType] = [tune.render(known, facts)]
    for title, text, notes in written:
        lines = "\n".join([text, *(f"note: {note}" for note in notes)]).strip()
        parts += _section(title, Text(lines, no_wrap=True, overflow="ignore"))
    options = _section(_OPTIONS_TITLE, _joined(option_lines(known.study)))
    return Group(*parts, *options, *_section(_HOST_TITLE, _joined(_host(facts))))


def _joined(*lines: Iterable[str]) -> Text:
    return Text("\n".join(itertools.chain(*lines)))


def _section(title: str, body: RenderableType) -> tuple[RenderableType, RenderableType]:
    return Text(f"\n{title}\n{'-' * len(title)}"), body


def _rounds(result: Result, record: StudyRecord) -> terminal.Table:
    """The main metric of every round: a line per round and workload, a column per arm."""
    study = result.study
    measured_as = (value.measured for one in result.arms for value in one.values if value.metric == study.metric)
    metric = next(measured_as, BY_ID[study.metric])
    table = terminal.Table([f"{metric.label}: workload", *terminal.right("round", *(arm.name for arm in study.arms))])
    found = {(t.trial.workload, t.trial.round, t.trial.arm): t for t in record.trials}
    for workload in study.workloads:
        for number in range(1, (study.rounds_begun or study.rounds) + 1):
            cells = []
            for arm in study.arms:
                trial = found.get((workload.name, number, arm.name))
                measured = None if trial is None or trial.measurement is None else trial.measurement.get(metric.id)
                cells.append("-" if measured is None else quantity(metric, measured))
            table.add_row(workload.name, str(number), *cells)
    return table


def _method(result: Result, record: StudyRecord) -> Iterator[str]:
    study = result.study
    if study.imported:
        yield from evidence.imported_method(study)
        return
    yield f"virtune's {methods_text(record.methods)}; {result.trials_done} of {len(study.trials)} trials, each of"
    yield f"{format_seconds(study.seconds)} after {format_seconds(study.ramp_seconds)} of warm-up."
    yield "Every round runs every arm under every workload once, in a new random order (the seed is above);"
    yield "each trial starts and stops its stack, and begins with the image dropped from the page cache."
    yield from _changeovers(record)
    yield "A difference is a mean of the logarithms of the ratios within rounds, never computed from the number of"
    yield f"I/Os. 'same' means: the whole interval lies within a factor of {1 + study.margin:g}, up or down."
    if len(study.arms) > 1:
        yield from _decided(study)
    if result.typical:
        yield f"The table's values are of a typical round: {results.level_words(study)}."
        yield "A plain mean over all rounds would differ from the verdicts where some rounds were disturbed."
    yield "Percentiles of all rounds together come from the load's histograms, added over rounds, never from a mean;"
    yield "~ marks one with fewer than 100 I/Os beyond it."


def _decided(study: Study) -> Iterator[str]:
    """Say how its verdicts come about; docs/method.md has it at length."""
    shared = "Bonferroni over all pairs" if study.pairs == "all" else f"Dunnett: every arm against {study.baseline}"
    metrics = ", ".join(BY_ID[metric].label for metric in study.judged)
    yield f"Verdicts on {metrics} hold together at {format_share(study.confidence)} ({shared},"
    yield "and Bonferroni over workloads and metrics), and a sign test must agree; the intervals of all other metrics"
    yield f"hold at {format_share(study.confidence)} each."
    if not study.sequential:
        yield "The number of rounds was fixed beforehand, so the intervals are Student's t."
        return
    first = study.fewest_rounds
    yield f"The verdicts were looked at after every round from round {first} on, and the allowed error is spread"
    yield "over these looks up to the planned end (Lan and DeMets), so that all together keep it. Intervals are"
    yield "robust against single dips (Huber's weights), take the noise of each arm from all pairs, and are wider"
    yield "where consecutive rounds are correlated. docs/method.md has the sources."


def _changeovers(record: StudyRecord) -> Iterator[str]:
    """Describe how arms were started: how many were swapped in a running process, how fast, and why new ones were
    needed.
    """
    ways = [trial.in_force.changeover for trial in record.trials if trial.in_force.changeover is not None]
    swaps = [way for way in ways if way.swapped is not None]
    if swaps:
        took = f"{format_ns(median(way.seconds for way in swaps) * 1e9)} (median)"
        yield f"{len(swaps)} of {len(ways)} trials were switched within a running process, in {took}."
    for why, count in Counter(way.why for way in ways if way.swapped is None).items():
        yield f"New processes: {count} ({why})."


def _arms_asked(study: Study) -> terminal.Table:
    table = terminal.Table(["", *terminal.wide(""), ""])
    for arm in study.arms:
        known, settings, silent = "", arm.options, "its files do not say"
        if arm.stack.kind.made_here:
            known = f"durability: {durability_of(arm.stack).promise.value}"
            settings, silent = (*arm.settings, *arm.options), f"rig={arm.stack.rig}, everything else default"
        told = ", ".join(f"{name}={value}" for name, value in settings)
        table.add_row(Text(arm.name, style="bold"), told or silent, known)
    return table


def _jobs(workload: Workload) -> Iterator[str]:
    yield f"{workload.name}: {workload.meaning}"
    for job in workload:
        yield f"  [{job.name}] " + " ".join(f"{name}={value}" for name, value in job.options)


def _host(facts: str) -> Iterator[str]:
    """The facts of the host at the start of the study, as they were read."""
    if not facts:
        yield "not recorded"
        return
    yield from json.dumps(json.loads(facts), indent=1).splitlines()
