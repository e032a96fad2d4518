# SPDX-License-Identifier: Apache-2.0
"""A study's result as text: the answer, then the tables, the differences with their intervals, the verdicts, and
the outcomes of --fail-if.
"""

import math
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import replace

from rich.console import Group, RenderableType
from rich.text import Text

from virtune.model.metric import BY_ID, Metric
from virtune.model.reason import Reason
from virtune.model.result import LoadRuling, Result, Value
from virtune.model.study import Study
from virtune.model.text import format_bytes, format_seconds, format_share
from virtune.model.verdict import PLANNED_ROUNDS_MIN, REPEATS_MIN, Comparison, Outcome, ThresholdResult, Verdict
from virtune.model.workload import Workload
from virtune.report.pages import evidence
from virtune.report.pages.study import (
    arm_lines,
    first_read_lines,
    host_line,
    in_service_lines,
    time_words,
    to_repeat,
    verified,
)
from virtune.report.render import terminal
from virtune.report.render.forest import axis, axis_of, bar
from virtune.report.reproduce import command_again
from virtune.report.view import ViewCell, ViewRow, WorkloadView, workload_view, worth
from virtune.report.words import (
    TOO_FEW,
    TOO_WIDE,
    change_words,
    count_text,
    difference_text,
    names_text,
    quantity,
    share_text,
)

MARKS: Mapping[str, str] = {Verdict.BETTER: "▲", Verdict.WORSE: "▼", Verdict.SAME: "■", Verdict.UNDECIDED: "○"}
"""The symbol of a verdict, so that it can be read without colour."""

STYLE = {Verdict.BETTER: "green", Verdict.WORSE: "red", Verdict.SAME: "cyan", Verdict.UNDECIDED: "yellow"}


def answer(result: Result) -> list[RenderableType]:
    """Return a line per arm for one workload, a row per workload for several; empty without comparisons."""
    study = result.study
    if len(study.arms) < 2 or not study.compared:
        return []
    title = f"{judged_label(result)} against {study.baseline}"
    if len(study.compared) > 1:
        return [terminal.heading(title), matrix(result)]
    workload = study.compared[0]
    return [terminal.heading(f"{workload.name}: {title}"), forest(result, workload), *legend(result)]


def legend(result: Result) -> list[RenderableType]:
    """Say what the brackets and the drawn bars are; empty where no interval is shown."""
    study = result.study
    found = [one for one in result.verdicts if (one.metric, one.baseline) == (study.metric, study.baseline)]
    if not any(has_interval(one) for one in found):
        return []
    together = ", for all verdicts together" if len(result.verdicts) > 1 else ""
    words = f"[low, high], drawn as a bar: {format_share(study.confidence)} confidence interval of the change from"
    return terminal.paragraphs([f"{words} {study.baseline}{together}; the axis is logarithmic"], "dim")


def judged_label(result: Result) -> str:
    shown = (one.measured.label for one in result.verdicts if one.metric == result.study.metric)
    return next(shown, BY_ID[result.study.metric].label)


def forest(result: Result, workload: Workload) -> RenderableType:
    found = list(_against_baseline(result, workload))
    reach = axis_of(one.ratio for one in found if one.ratio is not None and is_told(one))
    table = terminal.Table(["", "", "", axis(reach, "0"), ""], indent=2)
    for one in found:
        verdict, cost = Text(one.said, style=STYLE[one.verdict]), Text(_cost(result, one), style="dim")
        table.add_row(Text(one.candidate, style="bold"), verdict, change_cell(one), bar_cell(one, reach), cost)
    return terminal.FirstThatFits([table], [table.only(0, 1, 2, 3)], [table.only(0, 1, 2)])


def bar_cell(comparison: Comparison | None, reach: float) -> Text:
    if comparison is None or comparison.ratio is None or not is_told(comparison):
        return Text("")
    ratio = comparison.ratio
    return Text(bar(ratio.low, ratio.estimate, ratio.high, reach), style=STYLE[comparison.verdict])


def is_told(comparison: Comparison) -> bool:
    """Whether there are enough rounds to show an interval: as many as its study takes to decide anything. An interval
    of fewer may be millions of percent wide.
    """
    if comparison.change is not None:
        return comparison.rounds >= REPEATS_MIN
    return comparison.rounds >= PLANNED_ROUNDS_MIN and comparison.reason is not Reason.TOO_FEW


def change_cell(comparison: Comparison | None) -> Text:
    """Write a change with its interval, or why there is none; `-` where nothing was measured."""
    words = "" if comparison is None else change_text(comparison)
    if comparison is None or not words:
        return Text("-", style="dim")
    return Text(words, style=STYLE[comparison.verdict] if has_interval(comparison) else "dim")


def change_text(comparison: Comparison) -> str:
    """Write a change with its interval: `-12.3 % [-15.0, -9.5]`, or why it has none; empty without a change."""
    change = comparison.change if comparison.ratio is None else comparison.ratio.estimate
    if change is None:
        return ""
    unit = "round" if comparison.change is None else "run"
    if comparison.ratio is not None and has_interval(comparison):
        return difference_text(comparison.ratio, TOO_WIDE.replace("round", unit))
    if comparison.reason is Reason.BETWEEN_RUNS:
        return change_words(change)
    return f"{change_words(change)} [{TOO_FEW.replace('round', unit)}]"


def has_interval(comparison: Comparison) -> bool:
    return comparison.ratio is not None and is_told(comparison)


def matrix(result: Result, most: int | None = None) -> RenderableType:
    """Lay out several workloads: a row for each of the first `most`, with the verdict and the change of each arm."""
    study = result.study
    others = [arm.name for arm in study.arms if arm.name != study.baseline]
    table = terminal.Table(["workload", *others], indent=2)
    for workload in study.compared[:most]:
        found = {one.candidate: one for one in _against_baseline(result, workload)}
        table.add_row(workload.name, *(_short(found.get(name)) for name in others))
    return table


def _short(comparison: Comparison | None) -> Text:
    if comparison is None:
        return Text("-", style="dim")
    change = comparison.change if comparison.ratio is None else comparison.ratio.estimate
    words = f"{MARKS[comparison.verdict]} {comparison.said}"
    words += "" if change is None else f" {change_words(change)}"
    return Text(words, style=STYLE[comparison.verdict])


def _against_baseline(result: Result, workload: Workload) -> Iterator[Comparison]:
    study = result.study
    for one in result.verdicts:
        if (one.workload, one.metric, one.baseline) == (workload.name, study.metric, study.baseline):
            yield one


def _cost(result: Result, verdict: Comparison) -> str:
    """Say how CPU per I/O differs, if the difference is significant."""
    if verdict.metric == "cpu_per_io":
        return ""
    for one in result.differences:
        same = (one.workload, one.candidate, one.metric) == (verdict.workload, verdict.candidate, "cpu_per_io")
        if same and one.ratio is not None and is_told(one) and one.verdict in (Verdict.BETTER, Verdict.WORSE):
            return f"CPU per I/O {'perhaps ' if one.unsure else ''}{change_words(one.ratio.estimate)}"
    return ""


TYPICAL = "typical round"
"""The head of a table whose values differ between arms as their changes say."""

TOGETHER = "all rounds together"
"""The head of the percentiles of all I/Os of an arm."""


def level_words(study: Study) -> str:
    """Say which values are means of an arm's own rounds, and which the baseline's times a change."""
    base, robust = study.baseline, " (extreme ones count less)" if study.sequential else ""
    return f"for {base} the mean of its own rounds{robust}, for every other arm {base}'s value times its change"


def values_words(view: WorkloadView, study: Study) -> Iterator[str]:
    """Yield what the values are, where they are of a typical round, and whose CPU time is meant."""
    if view.typical:
        yield f"{TYPICAL}: {level_words(study)}"
    shown = {row.metric.id for row in view.rows}
    if view.typical and shown & {"cpu.load.usr", "cpu.rig", "device.util"}:
        yield "CPU and device use in %: for each arm the median of its own rounds"
    stacks = (arm.stack for arm in study.arms)
    fronts = {one.export if one.kind.front == "export" else one.kind.front for one in stacks}
    if "slat.mean" in shown and fronts >= {"file", "vhost-user-blk"}:
        yield "slat: the time to submit an I/O: a system call, or an entry written into a virtio queue"
    if shown & {"cpu.load.usr", "cpu.rig"}:
        both = "; CPU per I/O: of both together, in each round" if "cpu_per_io" in shown else ""
        several = sum(int(job.get("numjobs", "1")) for job in view.workload.jobs) > 1
        whose = "of the program that does the I/O" + ", the mean of its jobs" * several
        yield f"load CPU: {whose}, QEMU CPU: of QEMU; 100 % is one CPU{both}"
        if guests := [arm.name for arm in study.arms if arm.stack.kind.in_guest]:
            names = names_text(guests, 3)
            yield f"load CPU of {names}: the load runs on the VM's vCPUs, whose time is in CPU per I/O only"
        polling = [arm.name for arm in study.arms if arm.stack.kind.in_guest and arm.stack.machine.is_bare]
        waits = all(job.get("hipri", "1") == "0" for job in view.workload.jobs)
        if polling and "cpu_per_io" in shown and not waits:
            names = names_text(polling, 3)
            yield f"CPU per I/O of {names}: its vCPU looks for completions all the time, also when there are none"
    if "device.util" in shown:
        yield (
            "device busy: the share of time in which this host's disk had a request; near 100 % it was never idle,"
            " which is a limit only where a disk serves one request at a time"
        )


def marks_words(view: WorkloadView, study: Study) -> Iterator[str]:
    """Yield what the percentiles of all rounds are, and what `>=` and `~` before percentiles say, where shown."""
    if view.together:
        yield f"{TOGETHER}: of all I/Os of an arm; a few bad rounds can decide the highest percentiles"
    values = [cell.value for row in view.together or view.rows for cell in row.cells if cell.value is not None]
    if any(one.bound is not None for one in values):
        yield (
            ">=: at least this (95 % confidence); measure ten minutes to know it: what delays I/Os so much is rare"
        )
    if any(not one.resolved and one.bound is None for one in values):
        why = "the middle one of several results whose distributions are not known, or " if study.imported else ""
        yield f"~: uncertain, as {why}fewer than 100 I/Os were slower"


def changes_words(view: WorkloadView, study: Study) -> Iterator[str]:
    """Yield with which confidence the intervals of changes hold, where any are shown: those of verdicts together, all
    others each.
    """
    changes = ((row, [cell.change for cell in row.cells if cell.change is not None]) for row in view.rows)
    shown = [row for row, found in changes if any(map(has_interval, found))]
    if not shown:
        return
    judged = " and ".join(row.label for row in shown if row.judged)
    each = "in other rows each by itself" if judged else "each holds by itself"
    told = [f"for {judged} all of them hold together"] if judged else []
    told += [each] if any(not row.judged for row in shown) else []
    looks = "; all allow for a check after every round, and are wider for it" if study.sequential else ""
    yield f"[low, high] is a {format_share(study.confidence)} confidence interval: {', '.join(told)}{looks}"


OF_OUTCOME = {Outcome.BREACHED: "red", Outcome.HELD: "green", Outcome.UNDECIDED: "yellow"}


def passed_line(rulings: Sequence[ThresholdResult | LoadRuling]) -> Text | None:
    """Say whether the conditions passed, as the exit code does: one breach fails, and what is undecided did not pass.
    None without conditions.
    """
    if not rulings:
        return None
    found = Counter(one.outcome for one in rulings)
    worst = next(one for one in PASSED if found[one])
    first = f"{PASSED[worst]}: {found[worst]} of {count_text(len(rulings), 'condition')} {worst}"
    told = (f"{found[one]} {one}" for one in PASSED if found[one] and one is not worst)
    return Text(", ".join((first, *told)), style=f"bold {OF_OUTCOME[worst]}")


PASSED = {
    Outcome.BREACHED: "FAILED",
    Outcome.UNDECIDED: "UNDECIDED whether it passes",
    Outcome.HELD: "PASSED",
}
"""What an outcome makes of all conditions, the worst first."""


def condition_lines(result: Result, rulings: Sequence[ThresholdResult]) -> Iterator[Text]:
    for one in rulings:
        yield Text.assemble(
            f"{one.condition.text}: ", (one.outcome.value, OF_OUTCOME[one.outcome]), f" for {sentence(result, one)}"
        )


def sentence(result: Result, ruling: ThresholdResult) -> str:
    """Return the arm, the measured change or value, how the table has it, and the reason for the outcome."""
    comparison = ruling.comparison
    seen = ruling_text(ruling)
    # that of all I/Os together stands in tables: a few bad rounds decide it
    typical = " in a typical round" if ruling.condition.value is not None and comparison.measured.percent else ""
    what = f"{comparison.measured.label}{typical} {seen}{in_table(result, ruling)}: " if seen else ""
    return f"{arms_text(ruling)} ({comparison.workload}): {what}{ruling.why}"


def in_table(result: Result, ruling: ThresholdResult) -> str:
    """Say which value the table of a result has of what a limit is on, and what that is, where it is another one: a
    limit is judged by an arm's own rounds, which have an interval.
    """
    comparison, limit = ruling.comparison, ruling.condition.value
    shown = result.value_of_a_round(comparison.candidate, comparison.workload, comparison.metric)
    if limit is None or shown is None:
        return ""
    told = value_text(comparison.measured, shown)
    if ruling_text(ruling).split(" [")[0] == told:
        return ""
    pooled = comparison.measured.percent is not None and shown.typical is None
    what = "of the I/Os of all rounds together" if pooled else f"by its change from {result.study.baseline}"
    if not pooled and comparison.candidate == result.study.baseline:
        what = "as changes are from it"
    return f" ({told} in the table: {what})"


def arms_text(ruling: ThresholdResult) -> str:
    """Name the arms of a condition: its own, and for a change the baseline."""
    comparison = ruling.comparison
    alone = ruling.condition.value is not None
    return comparison.candidate if alone else f"{comparison.candidate} against {comparison.baseline}"


def ruling_text(ruling: ThresholdResult) -> str:
    """Return the measured change or value, with its interval if any; empty if not measured."""
    comparison, limit = ruling.comparison, ruling.condition.value
    metric, ratio = comparison.measured, comparison.ratio
    if limit is None:
        return change_text(comparison)
    if ratio is None:
        return "" if comparison.change is None else quantity(metric, comparison.change * limit)
    low, high = (quantity(metric, end * limit) for end in (ratio.low, ratio.high))
    return f"{quantity(metric, ratio.estimate * limit)} [{low}, {high}]"


def render(result: Result, facts: str = "", *, first: Sequence[RenderableType] = ()) -> Group:
    """Lay out a result; `facts` are those of the host, as JSON, and `first` comes before the tables."""
    study = result.study
    said = terminal.paragraphs((*arm_lines(study, facts), *about(result, facts)), "dim", indent=0)
    counted = [Text(f"{words}, see below", style="yellow")] if (words := evidence.count_words(result)) else []
    workloads = (part for workload in study.workloads for part in _workload(result, workload))
    below = [*verified(result), *evidence.notes(result), *to_repeat(command_again(study))]
    return Group(headline(result), *answer(result), *first, Text(""), *said, *counted, *workloads, *below)


def headline(result: Result) -> Text:
    study = result.study
    if study.imported:
        return evidence.imported_headline(result)
    done, finished = result.trials_done, result.finished
    whole = done == study.most_trials(finished=finished)
    # rounds of a sequential study are added one by one, so a total says nothing
    trials = (
        count_text(done, "trial")
        if whole and study.sequential
        else f"{study.trials_text(done, finished=finished)} trials"
    )
    again = sum(map(evidence.repeats_of, result.arms))
    return Text.assemble(
        (f"{study.label} {study.id}", "bold"),
        (f"  {trials}", "" if whole else "yellow"),
        f" and {count_text(again, 'repeat')}" if again else "",
        f"\n{study.words}" if study.words else "",
    )


def about(result: Result, facts: str) -> Iterator[str]:
    study = result.study
    if not study.imported:
        counts = {"round": _rounds(result), "arm": len(study.arms), "workload": len(study.workloads)}
        told = (count_text(count, word) for word, count in counts.items() if count > 1 or word == "round")
        # the span of every image that one of the arms has
        stacks = (arm.stack for arm in study.arms)
        most = max(one.disks * (one.guests if one.own_images else 1) for one in stacks)
        span = f"{'' if most == 1 else f'{most} x '}{format_bytes(study.span_bytes)} of disk"
        span = f"target {study.target}" if study.target else span
        took = "" if result.elapsed_seconds is None else f", {format_seconds(result.elapsed_seconds)} in all"
        times = f"{time_words(study)} (+ {format_seconds(study.ramp_seconds)} warm-up)"
        ended = f"; {said}" if (said := evidence.stopped_text(result)) else ""
        yield f"{' x '.join(told)} x {times}, in random order (seed {study.seed}), {span}{took}{ended}"
        yield from (*first_read_lines(study), *in_service_lines(study))
    yield host_line(study, facts, evidence.programs_of(result.arms))


def _rounds(result: Result) -> int:
    """How many rounds were measured, wholly or in part: a study that was interrupted has more in its plan."""
    study = result.study
    each = sum(trial.round == 1 for trial in study.trials)
    return math.ceil(result.trials_done / each) if each else study.rounds


def value_text(metric: Metric, value: Value | None) -> str:
    """Write a value with its unit; `-` where it was not measured, `~` before a percentile that is not resolved, `>=`
    before a lower bound.
    """
    if value is None:
        return "-"
    if value.bound is not None:
        return f">={quantity(metric, value.bound)}"
    written = quantity(metric, value.value)
    return written if value.resolved else f"~{written}"


def changed_value(row: ViewRow, cell: ViewCell) -> str:
    change = "" if cell.change is None else change_text(cell.change)
    return f"{value_text(row.metric, cell.value)}{f' ({change})' if change else ''}"


def largest_decided(result: Result, workload: str, metric: str, *, valued: bool = True) -> str:
    """Name the arm whose difference from the baseline on a metric is the largest of those that a verdict decides,
    of the sure ones where there are any, with its value in the tables; say that none is decided, or that all are the
    same, where that is so.
    """
    label, baseline = BY_ID[metric].label, result.study.baseline
    every = (*result.differences[::-1], *result.verdicts[::-1])  # a verdict stands above a difference
    mine = (one for one in every if (one.workload, one.metric, one.baseline) == (workload, metric, baseline))
    found = list({one.candidate: one for one in mine}.values())
    changed = [one for one in found if one.verdict in (Verdict.BETTER, Verdict.WORSE)]
    decided = [
        (not one.unsure, abs(math.log(one.ratio.estimate)), one.candidate, one.ratio.estimate)
        for one in changed
        if one.ratio is not None
    ]
    if not decided:
        same = bool(found) and all(one.verdict is Verdict.SAME for one in found)
        return f"{label} is the same in all arms" if same else f"no difference in {label} is decided"
    sure, _, arm, change = max(decided)
    value = f"{value_text(BY_ID[metric], result.value_of_a_round(arm, workload, metric))}, " if valued else ""
    rest = sum(one.verdict is Verdict.UNDECIDED for one in found)
    rest_of = f", {rest} undecided" if rest else ""
    most = f" ({len(decided)} of {count_text(len(found), 'arm')} differ from it{rest_of})" if len(found) > 1 else ""
    perhaps = "" if sure else "perhaps "
    return f"{label} of {arm} is {value}{perhaps}{change_words(change)} against {baseline}{most}"


def verdict_sentences(verdicts: Iterable[Comparison]) -> Iterator[Text]:
    """Yield verdicts in words. What few rounds leave open is said once, and of others how many they were."""
    told: set[str] = set()
    for one in verdicts:
        again = one.reason is Reason.FEW_ROUNDS and one.why in told
        yield verdict_sentence(replace(one, why=one.why.partition(":")[0]) if again else one)
        told.add(one.why)


def relation(comparison: Comparison) -> str:
    """Return how an arm stands to the baseline, in words between their names. Of what was not measured in turn it is
    said of the runs: the host may have changed between them.
    """
    verb = "is" if comparison.change is None else "measured"
    match comparison.verdict:
        case Verdict.UNDECIDED:
            return "against"
        case Verdict.SAME:
            return f"{verb} the same as"
        case _:
            return f"{verb} {comparison.said} than"


def verdict_sentence(comparison: Comparison) -> Text:
    style, undecided = STYLE[comparison.verdict], comparison.verdict is Verdict.UNDECIDED
    text = Text.assemble(
        (comparison.candidate, "bold"),
        f" {relation(comparison)} ",
        (comparison.baseline, "bold"),
        (": undecided" if undecided else "", style),
        f", {comparison.measured.label}",
        (f" {change}" if (change := change_text(comparison)) else "", style),
    )
    if undecided or comparison.verdict is Verdict.SAME or comparison.reason is Reason.FEW_ROUNDS:
        text.append(f"; {comparison.why}", style="dim")
    if comparison.other_mean is not None and comparison.reason is not Reason.PLAIN_MEAN:
        text.append(f"; plain means: {difference_text(comparison.other_mean)}", style="dim")
    return text


def _workload(result: Result, workload: Workload) -> list[RenderableType]:
    study = result.study
    title = terminal.Paragraph(terminal.heading(workload.name, Text(f"  {workload.meaning}", style="not bold dim")))
    if workload.probe:
        return [title, _saturation(result, workload)]
    parts: list[RenderableType] = [title]
    if len(study.compared) > 1 and len(study.arms) > 1:
        parts += [Text(f"{judged_label(result)} against {study.baseline}"), forest(result, workload)]
        parts += legend(result) if workload == study.compared[0] else []
    view = workload_view(result, workload)
    base, others = study.baseline, [arm.name for arm in study.arms if arm.name != study.baseline]
    parts.append(terminal.SideBySide(lambda arms: _values(result, view, [base, *arms]), others))
    parts += terminal.paragraphs(values_words(view, study), "dim")
    if view.together:
        all_rounds = view.together
        parts.append(
            terminal.SideBySide(lambda arms: values_table(TOGETHER, all_rounds, [base, *arms], above=True), others)
        )
    parts += terminal.paragraphs(marks_words(view, result.study), "dim")
    if len(study.arms) > 1:
        parts.append(terminal.SideBySide(lambda arms: _differences(result, view, arms), others))
        parts += terminal.paragraphs(changes_words(view, study), "dim")
        metrics = ", ".join(dict.fromkeys(comparison.measured.label for comparison in view.verdicts))
        parts.append(terminal.heading(f"verdicts on {metrics}", standing(result, workload)))
        parts += terminal.paragraphs(verdict_sentences(view.verdicts))
        parts += terminal.paragraphs(evidence.resting_on(result, workload), "dim")
    return parts


def standing(result: Result, workload: Workload) -> Text:
    """Warn where the figures of a workload are not comparable."""
    said = worth(result, workload.name)
    return Text(f"  {said}" if said else "", style="not bold yellow")


def _saturation(result: Result, workload: Workload) -> Text:
    """Return the baseline's saturation, of which the offered loads are shares."""
    value = result.value(result.study.baseline, workload.name, "iops")
    if value is None:
        return Text("  the baseline's saturation is not measured yet", style="yellow")
    rounds, done = count_text(value.rounds, "round"), value_text(BY_ID["iops"], value)
    text = f"  {result.study.baseline} is saturated at {done} a second ({rounds}, before the others)"
    return Text(text + ("" if value.spread is None else f", spread {share_text(value.spread)}"))


def values_table(
    head: str,
    rows: Sequence[ViewRow],
    arms: Sequence[str],
    *,
    caption: str = "",
    notes: Iterable[str] = (),
    above: bool = False,
) -> terminal.Table:
    table = terminal.Table([head, *terminal.right(*arms)], caption=caption, notes=notes, above=above)
    for row in rows:
        table.add_row(row.label, *(value_text(row.metric, cell.value) for cell in row.cells if cell.arm in arms))
    return table


def _values(result: Result, view: WorkloadView, arms: Sequence[str]) -> terminal.Table:
    table = values_table(TYPICAL if view.typical else "", view.rows, arms)
    values = [result.value(arm, view.workload.name, result.study.metric) for arm in arms]
    spreads = [None if value is None else value.spread for value in values]
    if any(spread is not None for spread in spreads):
        words = ("-" if spread is None else share_text(spread) for spread in spreads)
        label = f"sd of {judged_label(result)} over rounds"
        table.add_row(*(Text(word, style="dim") for word in (label, *words)))
    return table


def _differences(result: Result, view: WorkloadView, arms: Sequence[str]) -> terminal.Table:
    """The changes of some arms, those that are judged first."""
    judged = result.study.judged
    table = terminal.Table([f"change from {result.study.baseline}", *terminal.right(*arms)], above=True)
    for row in sorted(view.rows, key=lambda row: judged.index(row.metric.id) if row.judged else len(judged)):
        if row.changes:
            table.add_row(row.label, *(change_cell(cell.change) for cell in row.cells if cell.arm in arms))
    return table
