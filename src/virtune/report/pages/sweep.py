# SPDX-License-Identifier: Apache-2.0
"""A sweep as text: its results in a sentence each, the curve as a table, and a bar chart."""

import math
from collections.abc import Iterator, Sequence
from dataclasses import replace

from rich.console import Group
from rich.text import Text

from virtune.model.metric import BY_ID
from virtune.model.result import ArmSummary, LoadEstimate, LoadPoint, LoadSweep, Result, out_of_order
from virtune.model.text import format_bytes, format_count, format_ns, format_seconds, format_share
from virtune.report.pages.evidence import notes
from virtune.report.pages.result import TOGETHER, passed_line, value_text
from virtune.report.pages.study import arm_lines, first_read_lines, host_line, to_repeat
from virtune.report.render.terminal import Table, paragraphs, right
from virtune.report.reproduce import sweep_again
from virtune.report.words import estimate_text

TOGETHER_WORDS = f"{TOGETHER}: rates and shares are means of the time, latencies and CPU per I/O of all I/Os"
"""Of what the figures of a load are."""

BAR = 14
"""Characters of the longest bar; each bar is mean latency on a logarithmic scale."""

_COLUMNS = {
    "latency.mean": "mean",
    "latency.p99": "p99",
    "cpu.load.usr": "load usr",
    "cpu.load.sys": "load sys",
    "cpu.rig": "QEMU CPU",
    "cpu_per_io": "CPU per I/O",
    "device.util": "busy",
}
"""The metrics next to each load, if measured."""


def render(known: LoadSweep, result: Result, facts: str = "") -> Group:
    study = known.study
    title = Text(f"{study.label} {study.id}", style="bold")
    title.append("" if known.finished else "  not finished", style="yellow")
    title.append(f"\n{study.words}" if study.words else "")
    title.append(f"\n{study.arms[0].name}, {study.workloads[0].name}")
    below = [Text(""), *paragraphs(measured_lines(known, facts), "dim", indent=0), *notes(without_saturation(result))]
    passed = filter(None, (passed_line(known.rulings),))
    answer = [title, Text(""), *paragraphs((*passed, *answer_lines(known))), Text("")]
    return Group(*answer, curve_table(known, result), *below, *to_repeat(sweep_again(study)))


def without_saturation(result: Result) -> Result:
    """Leave out the warning of an offered load that was not achieved: a sweep does that on purpose."""
    arms = (
        replace(arm, remarks=tuple(one for one in arm.remarks if one.remark.id != "rate-unmet"))
        for arm in result.arms
    )
    return replace(result, arms=tuple(arms))


def answer_lines(known: LoadSweep) -> Iterator[str]:
    """Return each result of a sweep in a sentence, or why there is none; after what its conditions come to."""
    yield from (f"{one.condition.text}: {one.outcome.value}: {one.text}" for one in known.rulings)
    plan = known.study.sweep
    if known.most is not None and plan is not None and plan.limit is not None:
        may = "holds" if known.most.low is not None else "may hold"  # of no load is it shown that it does
        open_end = (known.most.low is None) != (known.most.high is None)
        once = " (a load beside it has a single trial)" if open_end and _once(known.points, known.most) else ""
        yield f"{plan.limit.text} {may} up to {_bounded(known.points, known.most)}{once}"
        yield from _out_of_order(known.points)
    if known.saturation is not None:
        found, best = known.saturation, max((one.iops for one in known.points), default=0.0)
        told = _carried(known.points, found)
        if best <= max(found.iops, found.high or 0.0):
            yield f"saturation: it carries at most {told}{_driven(known.points)}"
        else:
            yield (
                f"saturation: {told} at the first loads that it did not meet; what it carries varies,"
                f" since one load achieved {format_count(best)}"
            )
    if known.closed_loop is not None:
        yield f"closed loop, without an offered rate: {estimate_text(known.closed_loop)}"
    if known.knee is not None:
        yield (f"knee: {_bounded(known.points, known.knee)}; beyond it latency grows faster than throughput")
    yield from (one.text for one in known.why)


def _bounded(points: Sequence[LoadPoint], found: LoadEstimate) -> str:
    """Return what was found with its interval; where it has none as the loads beside it ran once each, that."""
    if found.low is not None or found.high is not None or not _once(points, found):
        return estimate_text(found)
    alone = len(points[_claimed(points, found)].achieved) < 2
    return f"{format_count(found.iops)} IOPS ({_SINGLE if alone else _ONE_BESIDE})"


def _once(points: Sequence[LoadPoint], found: LoadEstimate) -> bool:
    """Whether of a load that is claimed, or of one beside it, a single trial counts."""
    at = _claimed(points, found)
    return any(len(one.achieved) < 2 for one in points[max(0, at - 1) : at + 2])


def _carried(points: Sequence[LoadPoint], found: LoadEstimate) -> str:
    """Return the saturation with its interval, and that it has none where each load beyond it ran once."""
    single = found.low is None and all(len(one.achieved) == 1 for one in points if not one.met)
    return f"{format_count(found.iops)} IOPS ({_SINGLE})" if single else estimate_text(found)


def _driven(points: Sequence[LoadPoint]) -> str:
    """Say that the program that makes the load may be the limit, where it used up its CPUs at most loads beyond."""
    beyond = [one for one in points if not one.met]
    full, rounds = sum(one.driven for one in beyond), sum(len(one.achieved) for one in beyond)
    return "; the load generator's full CPU may be the limit" if 2 * full > rounds else ""


_SINGLE = "from single trials: no interval; more --rounds give one"
_ONE_BESIDE = "a load beside it has a single trial: no interval; more --rounds give one"


def _out_of_order(points: Sequence[LoadPoint]) -> Iterator[str]:
    """Say where a load broke the limit and a greater one kept it, as one sees in the table."""
    if (found := out_of_order(points)) is not None:
        least, most = (format_count(one.offered) for one in found)
        yield f"loads are out of order: {least} broke the limit and {most} kept it; more --rounds tell"


def curve(known: LoadSweep, result: Result) -> tuple[tuple[str, ...], list[tuple[str, ...]]]:
    """Return the heads and a row for each offered load; `<` marks one of which less was done than offered."""
    arm = known.study.arms[0].name
    summaries = [result.summary(arm, point.workload) for point in known.points]
    told = [one for one in _COLUMNS if any(_cell(summary, one) != "-" for summary in summaries)]
    rows = []
    for point, summary in zip(known.points, summaries, strict=True):
        done = f"{format_count(point.iops)}{'' if point.met else ' <'}"
        rows.append((format_count(point.offered), done, *(_cell(summary, metric) for metric in told)))
    return ("offered", "achieved", *(_COLUMNS[one] for one in told)), rows


def curve_table(known: LoadSweep, result: Result, most: int | None = None) -> Table:
    """Lay out a row for each load; at most `most`, those around what was found."""
    heads, rows = curve(known, result)
    means = [point.latency_ns for point in known.points]
    drawn = [(*row, _bar(mean, means)) for row, mean in zip(rows, means, strict=True)]
    begin = 0 if most is None else _begin(known, most)
    return Table([*right(*heads), "latency"], drawn[begin : None if most is None else begin + most])


def _begin(known: LoadSweep, most: int) -> int:
    """Return the first of `most` loads, of which what was found is the middle; without it the last ones."""
    count = len(known.points)
    found = known.most or known.knee or known.saturation
    if found is None:
        return max(0, count - most)
    return max(0, min(_claimed(known.points, found) - (most - 1) // 2, count - most))


def _claimed(points: Sequence[LoadPoint], found: LoadEstimate) -> int:
    """Return the load that is claimed: the one that achieved just this, or else the greatest that was offered within
    it. What a saturated one achieved may be nearer, and tells nothing.
    """
    exact = next((at for at, one in enumerate(points) if one.iops == found.iops), None)
    within = max((at for at, one in enumerate(points) if one.offered <= found.iops), default=0)
    return within if exact is None else exact


def _cell(summary: ArmSummary | None, metric: str) -> str:
    return value_text(BY_ID[metric], None if summary is None else summary.get(metric))


def _bar(value: float, among: list[float]) -> str:
    """Draw a latency as a bar: each doubling over the least is equally long."""
    low, high = min(among), max(among)
    share = 0.0 if high <= low else math.log(value / low) / math.log(high / low)
    return "#" * (1 + round(share * (BAR - 1)))


def measured_lines(known: LoadSweep, facts: str) -> Iterator[str]:
    """Yield what was offered in which order, what the marks mean, and where; `facts` are the host's, as JSON."""
    study = known.study
    rounds = 0 if study.sweep is None else study.sweep.rounds
    span = f"target {study.target}" if study.target else f"span {format_bytes(study.span_bytes)}"
    yield (
        f"{len(known.points)} loads x {rounds} rounds x {format_seconds(study.seconds)}"
        f" (+ {format_seconds(study.ramp_seconds)} warm-up), in random order (seed {study.seed}), {span}"
    )
    yield from first_read_lines(study)
    if known.points:
        least = format_ns(min(one.latency_ns for one in known.points))
        yield (
            f"< saturated: less than {format_share(known.met_share, 1)} of what was offered was done, in the mean of"
            f" its trials; bars: mean latency from {least} on, doublings equally long"
        )
        yield f"rows: {TOGETHER_WORDS}"
        yield "intervals (95 %) are those of the time of these trials; a disk that changes is told by another sweep"
    yield from arm_lines(study, facts)
    yield host_line(study, facts)
