# SPDX-License-Identifier: Apache-2.0
"""Two studies side by side: the figures of every arm of both, without a verdict, since they did not run in turn."""

from dataclasses import dataclass

from virtune.model.result import Result
from virtune.report.text.study.answer import change_text
from virtune.report.text.study.result import value_text, verdict_sentence
from virtune.report.view import ResultView, view_of


@dataclass(frozen=True, slots=True, kw_only=True)
class StudySide:
    """One of the two: its names, and its verdicts in words."""

    id: str
    label: str
    arms: tuple[str, ...]
    verdicts: tuple[str, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class StudyPair:
    """Both, and a table for each workload: its name, why its figures are not comparable, if so, and rows: a metric's
    label, then a cell for each arm of the one and of the other.
    """

    sides: tuple[StudySide, StudySide]
    tables: tuple[tuple[str, str, tuple[tuple[str, ...], ...]], ...]
    alone: tuple[str, ...]
    comparable: bool


def pair_of(first: Result, second: Result) -> StudyPair:
    """Set two results side by side; `alone` are the workloads that only one of them has."""
    views = (view_of(first), view_of(second))
    names = [[one.workload.name for one in view.workloads] for view in views]
    shared = [name for name in names[0] if name in names[1]]
    return StudyPair(
        sides=(_side(first, views[0]), _side(second, views[1])),
        tables=tuple((name, _worth(views, name), _rows(views, name)) for name in shared),
        alone=tuple(name for both in names for name in both if name not in shared),
        comparable=first.study.simulated == second.study.simulated,
    )


def _side(result: Result, view: ResultView) -> StudySide:
    said = tuple(verdict_sentence(one).plain for workload in view.workloads for one in workload.verdicts)
    return StudySide(id=result.study.id, label=result.study.label, arms=view.arms, verdicts=said)


def _worth(views: tuple[ResultView, ResultView], name: str) -> str:
    """Name each side whose figures of a workload are not comparable, with the reason."""
    said = (one.worth for view in views for one in view.workloads if one.workload.name == name and one.worth)
    return "; ".join(dict.fromkeys(said))


def _rows(views: tuple[ResultView, ResultView], name: str) -> tuple[tuple[str, ...], ...]:
    found = [next(one for one in view.workloads if one.workload.name == name) for view in views]
    labels = dict.fromkeys(row.label for one in found for row in one.rows)
    rows = []
    for label in labels:
        cells: list[str] = []
        for view, one in zip(views, found, strict=True):
            row = next((row for row in one.rows if row.label == label), None)
            if row is None:
                cells += ["-"] * len(view.arms)
                continue
            for cell in row.cells:
                change = "" if cell.change is None else change_text(cell.change)
                cells.append(f"{value_text(row.metric, cell.value)}{f' ({change})' if change else ''}")
        rows.append((label, *cells))
    return tuple(rows)
