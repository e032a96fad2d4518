# SPDX-License-Identifier: Apache-2.0
"""The content of a result for all outputs: the same verdicts, rows and figures for terminal, Markdown and HTML.

A view defines the content and its order; the outputs define the layout. Figures stay numbers with their metric,
interval and verdict, so that nothing is computed twice and all outputs have the same figures.
"""

from collections.abc import Iterator
from dataclasses import dataclass, replace

from virtune.model.metric import METRICS, Metric
from virtune.model.remark import EMULATED
from virtune.model.result import Result, Value
from virtune.model.verdict import Comparison
from virtune.model.workload import Workload

_CHANGE_SHOWN = frozenset((
    "iops", "latency.mean", "latency.p50", "latency.p90", "latency.p95", "latency.p99", "latency.p99.9",
    "read.iops", "read.latency.mean", "read.latency.p50", "read.latency.p99", "read.latency.p99.9",
    "write.iops", "write.latency.mean", "write.latency.p50", "write.latency.p99", "write.latency.p99.9",
    "sync.mean", "sync.p99", "cpu_per_io",
))  # fmt: skip
"""The metrics whose change is shown. Bandwidth changes like IOPS, and CPU utilisation is covered by CPU per I/O."""

_OF_AN_OS = frozenset(("cpu.load.usr", "cpu.load.sys"))
"""What a load without an operating system, as in a bare guest, reports as zero because nobody counts it."""

FUNCTIONAL_ONLY = "functional only: a guest under emulation"

SIMULATED_ONLY = "simulated: invented figures, no disk was measured"


@dataclass(frozen=True, slots=True, kw_only=True)
class ViewCell:
    """One metric of one arm: its value, and how it differs from the baseline's (None for the baseline itself).

    Where the metric is compared, the value is that of a typical round, so that values differ as the changes say.
    """

    arm: str
    value: Value | None
    change: Comparison | None


@dataclass(frozen=True, slots=True, kw_only=True)
class ViewRow:
    """One metric of all arms. Changes of a `judged` row are verdicts with a common error bound; all others have their
    own.
    """

    metric: Metric
    label: str
    judged: bool
    cells: tuple[ViewCell, ...]

    @property
    def changes(self) -> bool:
        """Whether any arm's difference from the baseline is known."""
        found = (cell.change for cell in self.cells)
        return any(one is not None and (one.ratio is not None or one.change is not None) for one in found)


@dataclass(frozen=True, slots=True, kw_only=True)
class WorkloadView:
    """One workload: its rows, its verdicts, and why its figures are not comparable (`worth`), if so.

    `typical`: the rows are of a typical round. `together` are then the percentiles of all rounds' I/Os together.
    """

    workload: Workload
    worth: str
    rows: tuple[ViewRow, ...]
    verdicts: tuple[Comparison, ...]
    typical: bool
    together: tuple[ViewRow, ...]

    def row(self, metric: str) -> ViewRow | None:
        return next((row for row in self.rows if row.metric.id == metric), None)

    def against(self, metric: str, baseline: str) -> dict[str, Comparison]:
        return {one.candidate: one for one in self.verdicts if (one.metric, one.baseline) == (metric, baseline)}


@dataclass(frozen=True, slots=True, kw_only=True)
class ResultView:
    """A whole result. `arms` are their names, the baseline first."""

    arms: tuple[str, ...]
    workloads: tuple[WorkloadView, ...]


def view_of(result: Result) -> ResultView:
    study = result.study
    names = (study.baseline, *(arm.name for arm in study.arms if arm.name != study.baseline))
    return ResultView(arms=names, workloads=tuple(workload_view(result, one) for one in study.workloads))


def workload_view(result: Result, workload: Workload) -> WorkloadView:
    rows = tuple(_rows(result, workload))
    typical = any(_is_typical(row) for row in rows)
    # beside percentiles of a typical round those of all rounds would be taken for the same
    apart = any(_is_typical(row) and row.metric.percent is not None for row in rows)
    return WorkloadView(
        workload=workload,
        worth=worth(result, workload.name),
        rows=tuple(_typical_row(row) for row in rows if not apart or row.metric.percent is None or _is_typical(row)),
        verdicts=tuple(one for one in result.verdicts if one.workload == workload.name),
        typical=typical,
        together=tuple(
            # without changes, which are those of a typical round
            replace(row, judged=False, cells=tuple(replace(cell, change=None) for cell in row.cells))
            for row in rows
            if apart and row.metric.percent is not None
        ),
    )


def _is_typical(row: ViewRow) -> bool:
    """Whether the values of a compared metric are known of a typical round."""
    return row.metric.compared and any(
        cell.value is not None and cell.value.typical is not None for cell in row.cells
    )


def _typical_row(row: ViewRow) -> ViewRow:
    cells = [replace(cell, value=_of_a_round(row, cell.value)) for cell in row.cells]
    # where an arm's percentile is left out, so is its change, which rests on as few rounds
    told = [replace(one, change=one.change if one.value is not None or row.judged else None) for one in cells]
    return replace(row, cells=tuple(told) if _is_typical(row) else tuple(cells))


def _of_a_round(row: ViewRow, value: Value | None) -> Value | None:
    """Return a value as it is in a typical round; a percentile of all rounds is never put beside one of a round."""
    if value is None or value.typical is None:
        return None if _is_typical(row) and row.metric.percent is not None else value
    return value.of_a_round


def worth(result: Result, workload: str) -> str:
    """Return why the figures of a workload are not comparable: an arm was simulated, or ran in a guest without KVM.
    Empty for others.
    """
    if result.study.simulated:
        return SIMULATED_ONLY
    summaries = (one for one in result.arms if one.workload == workload)
    emulated = any(one.remark.id == EMULATED.id for summary in summaries for one in summary.remarks)
    return FUNCTIONAL_ONLY if emulated else ""


def _rows(result: Result, workload: Workload) -> Iterator[ViewRow]:
    study = result.study
    names = (study.baseline, *(arm.name for arm in study.arms if arm.name != study.baseline))
    summaries = {name: result.summary(name, workload.name) for name in names}
    changes = {(c.candidate, c.metric): c for c in result.differences if c.workload == workload.name}
    # a verdict's interval is wider, because all verdicts hold together, and a figure has only one interval
    verdicts = (c for c in result.verdicts if (c.workload, c.baseline) == (workload.name, study.baseline))
    changes |= {(c.candidate, c.metric): c for c in verdicts}
    bare = {arm.name for arm in study.arms if arm.stack.kind.own_guest and arm.stack.machine.is_bare}
    for metric in METRICS:
        values = {name: None if found is None else found.get(metric.id) for name, found in summaries.items()}
        if metric.id in _OF_AN_OS:
            values |= dict.fromkeys(bare)
        measured = [value for value in values.values() if value is not None]
        if not measured:
            continue
        judged = metric.id in study.judged
        shown = judged or metric.id in _CHANGE_SHOWN
        told = {name: change for name in names if shown and (change := changes.get((name, metric.id)))}
        if not judged and any(value.bound is not None for value in measured):
            # a change without an interval would be of other figures than the bounds beside it
            told = {name: change for name, change in told.items() if change.ratio is not None}
        yield ViewRow(
            metric=metric,
            label=measured[0].measured.label,
            judged=judged,
            cells=tuple(ViewCell(arm=name, value=value, change=told.get(name)) for name, value in values.items()),
        )
