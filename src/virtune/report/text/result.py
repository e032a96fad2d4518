# SPDX-License-Identifier: Apache-2.0
"""A study's result for people: the table, the differences with their intervals, the verdicts in words."""

from collections.abc import Iterator, Sequence
from typing import assert_never

from rich.console import Group, RenderableType
from rich.padding import Padding
from rich.table import Table
from rich.text import Text

from virtune.model.durability import durability_of
from virtune.model.metric import BY_ID, METRICS, Metric
from virtune.model.remark import EMULATED, Weight
from virtune.model.result import ArmRemark, ArmSummary, Result, Value
from virtune.model.study import Arm, Study
from virtune.model.units import format_bytes, format_count, format_ns, format_seconds
from virtune.model.verdict import Comparison, Verdict
from virtune.model.workload import Workload
from virtune.report.text import imported
from virtune.report.text.basis import resting_on
from virtune.report.text.clients import loaded_by
from virtune.report.text.columns import SideBySide
from virtune.report.text.verified import verified
from virtune.report.text.words import difference_text, percent_text

ROUNDS_TOLD = 6
"""Of fewer rounds no interval is shown: none of them can decide anything, and the widest run into the millions."""

REPEATS_TOLD = 4
"""The same of runs that are not paired: each arm's repeats add to what is known."""

_COMPARED = (
    "iops", "latency.mean", "latency.p50", "latency.p90", "latency.p95", "latency.p99", "latency.p99.9",
    "sync.mean", "sync.p99", "cpu_per_io",
)  # fmt: skip
"""What is shown against the baseline. Bandwidth says what IOPS says; shares of a CPU say what CPU per I/O says."""

_STYLE = {Verdict.BETTER: "green", Verdict.WORSE: "red", Verdict.SAME: "cyan", Verdict.UNDECIDED: "yellow"}


def render(result: Result) -> RenderableType:
    """Set a result for a terminal: per workload a table, differences and verdicts; then what to beware of."""
    parts: list[RenderableType] = [headline(result)]
    for workload in result.study.workloads:
        parts += _workload(result, workload)
    parts += verified(result)
    parts += notes(result)
    return Group(*parts)


def headline(result: Result) -> Text:
    """Say what was run, in two lines."""
    study = result.study
    if study.imported:
        return imported.headline(result)
    total = len(study.trials)
    text = Text()
    text.append(f"{study.kind} {study.id}", style="bold")
    text.append(f"  {result.trials_done} of {total} trials", style="" if result.trials_done == total else "yellow")
    span = f"target {study.target}" if study.target else f"span {format_bytes(study.span_bytes)}"
    count = study.rounds_begun or study.rounds
    rounds = "1 round" if count == 1 else f"{count} rounds"
    times = f"{format_seconds(study.seconds)} (+ {format_seconds(study.ramp_seconds)} ramp)"
    text.append(f"\n{rounds} x {times}, interleaved at random (seed {study.seed}), {span}")
    return text


def value_text(metric: Metric, value: Value | None) -> str:
    """Write a value with its unit; `-` where it was not measured, `~` before a percentile that is not resolved, `>=`
    before the least that one is, where nothing bounds it from above.
    """
    if value is None:
        return "-"
    if value.low is not None and value.high is None:
        return f">={_with_unit(metric, value.low)}"
    written = _with_unit(metric, value.value)
    return written if value.resolved else f"~{written}"


def _with_unit(metric: Metric, number: float) -> str:
    match metric.unit:
        case "1/s":
            return format_count(number)
        case "B/s":
            return f"{number / 1e6:,.0f} MB/s" if number >= 1e8 else f"{number / 1e6:,.1f} MB/s"
        case "ns":
            return format_ns(number)
        case "%":
            return f"{number:.1f} %"
        case "s/io":
            return format_ns(number * 1e9)
        case _:
            assert_never(metric.unit)


def verdict_sentence(comparison: Comparison) -> Text:
    """Say one verdict in words."""
    metric = BY_ID[comparison.metric]
    text = Text()
    words = {
        Verdict.BETTER: "is better than",
        Verdict.WORSE: "is worse than",
        Verdict.SAME: "is the same as",
        Verdict.UNDECIDED: "against",
    }
    text.append(comparison.candidate, style="bold")
    text.append(f" {words[comparison.verdict]} ")
    text.append(comparison.baseline, style="bold")
    if comparison.verdict is Verdict.UNDECIDED:
        text.append(": ")
        text.append("undecided", style=_STYLE[comparison.verdict])
    if comparison.ratio is not None:
        text.append(f", {metric.label} ")
        told = _told(comparison)
        difference = difference_text(comparison.ratio) if told else f"{percent_text(comparison.ratio.estimate)} %"
        text.append(difference, style=_STYLE[comparison.verdict])
    elif comparison.change is not None:
        text.append(f", {metric.label} {percent_text(comparison.change)} %", style=_STYLE[comparison.verdict])
    if comparison.verdict in (Verdict.UNDECIDED, Verdict.SAME):
        text.append(f": {comparison.why}", style="dim")
    return text


def notes(result: Result) -> list[RenderableType]:
    """Say what to beware of: remarks of the rounds, failures, and how to read the figures."""
    lines: list[Text] = []
    for weight, style in ((Weight.INVALID, "red"), (Weight.WARNING, "yellow")):
        for same in _by_kind(result, weight).values():
            who = _whose(result, same)
            lines.append(_bullet(f"{same[0][1].remark.text} (rounds: {who})", style, weight.value))
    lines += [_bullet(text, "yellow", "trials") for text in rejections(result)]
    for summary in result.arms:
        lines += [_bullet(f"{summary.arm}: a trial failed: {reason}", "red", "failed") for reason in summary.failures]
    if result.study.imported:
        lines += [_bullet(text, "yellow", "warning") for text in imported.warnings(result.study)]
    lines += [_bullet(text, "dim", "note") for text in (*reading_notes(result.study), *loaded_by(result))]
    return [Text("\nto beware of", style="bold"), *(Padding(line, (0, 0, 0, 2)) for line in lines)] if lines else []


def rejections(result: Result) -> Iterator[str]:
    """Say how many attempts of each arm were invalid and why, what was let in nevertheless, and how the ramp grew."""
    for workload in result.study.workloads:
        told = []
        for summary in (one for one in result.arms if one.workload == workload.name and one.invalid):
            causes = ", ".join(f"{cause} {count}" for cause, count in summary.invalid)
            told.append(f"{summary.arm} {causes} of {summary.attempts}")
        if told:
            yield f"invalid attempts ({workload.name}), repeated at most twice and all kept: {'; '.join(told)}"
    yield from (pardon.text for pardon in result.pardons)
    yield from (finding.text for finding in result.ramps)


def reading_notes(study: Study) -> Iterator[str]:
    """Say what of the set-up a reader must know to read the figures rightly."""
    if study.imported:
        yield from imported.notes(study)
        return
    yield from _export_notes(study)
    domains = dict.fromkeys(arm.stack.domain for arm in study.arms if arm.stack.domain is not None)
    if domains:
        yield (
            f"measured in place, in {', '.join(domains)} as it runs: whatever else it does meanwhile is part of the "
            "figures; a scratch disk was plugged in for each trial, and the domain's own disks were not touched"
        )
    if any(arm.stack.disk.cache in ("writeback", "writethrough", "unsafe") for arm in study.arms):
        yield (
            "arms with cache=writeback, writethrough or unsafe go through the host's page cache, dropped before each "
            f"trial; a span of {format_bytes(study.span_bytes)} fits into it, so it warms while they run"
        )
    if study.at_load:
        yield (
            "loads are offered at a rate: virtune-load counts latency from when an I/O was due, "
            "fio from when it was handed over; an arm that does less than 99 % of it is saturated, and its latency "
            "that of a queue that only grows"
        )
    if any(job.get("fsync", "0") != "0" for workload in study.workloads for job in workload):
        yield "the latencies are those of reads and writes; a flush is waited for besides, and is `sync mean`"
    yield from _durability_notes(study)
    if any(arm.stack.disk.cache == "unsafe" for arm in study.arms):
        yield "cache=unsafe ignores flushes: it loses data when the host dies, whatever its speed"


def _durability_notes(study: Study) -> Iterator[str]:
    """Say it where arms do not promise the same of a guest's writes: then one of them does less, not only faster."""
    found = [(arm.name, durability_of(arm.stack)) for arm in study.arms]
    classes = {durability.promise: durability for _, durability in found}
    if len(classes) < 2:
        return
    told = (
        f"{', '.join(name for name, one in found if one.promise is promise)}: {durability.words}"
        for promise, durability in classes.items()
    )
    yield f"the arms promise different things, so who is faster may only do less: {'; '.join(told)}"


def _export_notes(study: Study) -> Iterator[str]:
    """Say what the way to the disk adds to its figures."""
    metal = any(arm.stack.rig == "metal" for arm in study.arms)
    exports = {arm.stack.export for arm in study.arms if arm.stack.rig == "storage-daemon"}
    others = exports - {"vhost-user-blk"}
    if metal and others:
        way = "/".join(sorted(others)).upper()
        yield (
            f"the arms that are reached over {way}, which a guest's virtio disk is not, hold the export's cost too "
            "against metal; among themselves they compare fairly"
        )
    if "vhost-user-blk" in exports:
        against = "; against metal the difference holds the virtqueue's cost, as in a guest" if metal else ""
        yield (
            "arms over vhost-user-blk show what a guest's virtio queue would see, without the guest's own cost: no "
            f"guest kernel, no exits, no interrupts{against}"
        )
    if len(exports) > 1:
        yield "arms with different exports differ by what the exports cost as well, not by the disk's settings alone"


def _workload(result: Result, workload: Workload) -> list[RenderableType]:
    study = result.study
    title = Text(f"\n{workload.name}", style="bold")
    title.append(f"  {workload.meaning}", style="not bold dim")
    if workload.probe:
        return [title, _saturation(result, workload)]
    parts: list[RenderableType] = [title]
    base, others = study.arm(study.baseline), [arm for arm in study.arms if arm.name != study.baseline]
    parts.append(SideBySide(lambda arms: _values(result, workload, [base, *arms]), others))
    if len(study.arms) > 1:
        parts.append(SideBySide(lambda arms: _differences(result, workload, arms), others))
        verdicts = [c for c in result.verdicts if c.workload == workload.name]
        metrics = ", ".join(BY_ID[metric].label for metric in study.judged)
        parts.append(Text(f"\nverdicts on {metrics}", style="bold").append(standing(result, workload)))
        parts += [Padding(verdict_sentence(comparison), (0, 0, 0, 2)) for comparison in verdicts]
        parts += [Padding(Text(line, style="dim"), (0, 0, 0, 2)) for line in resting_on(result, workload)]
    return parts


FUNCTIONAL_ONLY = "functional only: a guest under emulation"
"""What figures are worth that describe the emulator."""


def functional_only(result: Result, workload: str) -> bool:
    """Whether any arm of a workload ran in a guest without KVM: then its figures rank nothing."""
    summaries = (one for one in result.arms if one.workload == workload)
    return any(one.remark.id == EMULATED for summary in summaries for one in summary.remarks)


def standing(result: Result, workload: Workload) -> Text:
    """Say it where the figures of a workload rank nothing."""
    emulated = functional_only(result, workload.name)
    return Text(f"  {FUNCTIONAL_ONLY}" if emulated else "", style="not bold yellow")


def _saturation(result: Result, workload: Workload) -> Text:
    """Say where the baseline alone was saturated: what the offered loads are shares of."""
    summary = result.summary(result.study.baseline, workload.name)
    value = None if summary is None else summary.get("iops")
    if summary is None or value is None:
        return Text("  the baseline's saturation is not measured yet", style="yellow")
    rounds = "1 round" if value.rounds == 1 else f"{value.rounds} rounds"
    text = (
        f"  {summary.arm} is saturated at {value_text(BY_ID['iops'], value)} a second ({rounds}, before the others)"
    )
    return Text(text + ("" if value.spread is None else f", spread {value.spread:.1%}"))


def _values(result: Result, workload: Workload, arms: Sequence[Arm]) -> Table:
    table = _table("", [arm.name for arm in arms])
    summaries = [result.summary(arm.name, workload.name) for arm in arms]
    for metric in METRICS:
        values = [None if summary is None else summary.get(metric.id) for summary in summaries]
        if any(value is not None for value in values):
            table.add_row(metric.label, *(value_text(metric, value) for value in values))
    spreads = [None if summary is None else _spread(summary, result.study.metric) for summary in summaries]
    if any(spread is not None for spread in spreads):
        words = ("-" if spread is None else f"{spread:.1%}" for spread in spreads)
        table.add_row("spread of rounds", *words, style="dim")
    return table


def _differences(result: Result, workload: Workload, arms: Sequence[Arm]) -> Table:
    study = result.study
    label = f"against {study.baseline}"
    table = _table(f"\n{label}", [arm.name for arm in arms])
    found = {(c.candidate, c.metric): c for c in result.differences if c.workload == workload.name}
    for name in _COMPARED:
        cells = [found.get((arm.name, name)) for arm in arms]
        if any(cell is not None and (cell.ratio is not None or cell.change is not None) for cell in cells):
            table.add_row(BY_ID[name].label, *(change_cell(cell) for cell in cells))
    return table


def _told(comparison: Comparison) -> bool:
    """Whether there is enough behind an interval to show it; repeats that are not paired can decide with fewer."""
    return comparison.rounds >= (ROUNDS_TOLD if comparison.change is None else REPEATS_TOLD)


def change_cell(comparison: Comparison | None) -> Text:
    if comparison is not None and comparison.ratio is None and comparison.change is not None:
        return Text(f"{percent_text(comparison.change)} %", style="dim")
    if comparison is None or comparison.ratio is None:
        return Text("-", style="dim")
    if not _told(comparison):
        return Text(f"{percent_text(comparison.ratio.estimate)} %", style="dim")
    return Text(difference_text(comparison.ratio), style=_STYLE[comparison.verdict])


def _table(corner: str, columns: Sequence[str]) -> Table:
    table = Table(box=None, pad_edge=False, padding=(0, 2, 0, 0), header_style="bold")
    table.add_column(corner, no_wrap=True, min_width=16)
    for column in columns:
        table.add_column(column, justify="right", no_wrap=True, vertical="bottom")
    return table


def _by_kind(result: Result, weight: Weight) -> dict[str, list[tuple[ArmSummary, ArmRemark]]]:
    """Group the remarks of that weight by their kind, the arm with the most rounds first."""
    found: dict[str, list[tuple[ArmSummary, ArmRemark]]] = {}
    for summary in result.arms:
        for beware in summary.remarks:
            if beware.remark.weight is weight:
                found.setdefault(beware.remark.id, []).append((summary, beware))
    return {kind: sorted(same, key=lambda pair: -pair[1].rounds) for kind, same in found.items()}


def _whose(result: Result, same: list[tuple[ArmSummary, ArmRemark]]) -> str:
    """Say in how many rounds of each arm a remark was made; of each workload where there are several."""
    several = len(result.study.workloads) > 1
    counts: dict[str, list[tuple[str, str]]] = {}
    for summary, remark in same:
        counts.setdefault(summary.arm, []).append((summary.workload, f"{remark.rounds}/{summary.rounds}"))
    words = []
    for arm, found in counts.items():
        alike = len(found) == len(result.study.workloads) and len({count for _, count in found}) == 1
        if several and alike:
            words.append(f"{arm} {found[0][1]} of each workload")
        else:
            words += [f"{arm} {f'{name} ' if several else ''}{count}" for name, count in found]
    return ", ".join(words)


def _spread(summary: ArmSummary, metric: str) -> float | None:
    value = summary.get(metric)
    return None if value is None else value.spread


def _bullet(text: str, style: str, word: str) -> Text:
    line = Text()
    line.append(f"{word}: ", style=style)
    line.append(text, style="dim" if word == "note" else "")
    return line
