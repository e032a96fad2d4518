# SPDX-License-Identifier: Apache-2.0
"""A study on many hosts as text: a line for each host with its state, its progress and its last verdict."""

from collections.abc import Iterator, Mapping, Sequence
from statistics import fmean

from virtune.model.fleet_task import FleetRun, HostDrift, TaskProgress, TaskState
from virtune.model.text import printable
from virtune.model.units import format_seconds
from virtune.report.text.fleet import columns
from virtune.report.text.words import change_words

_SAID_MAX = 120


def run_lines(run: FleetRun, found: Mapping[str, TaskProgress]) -> Iterator[str]:
    """Yield the table of a run, and how long what is left takes."""
    rows: list[tuple[str, ...]] = [("host", "state", "trials", "left", "study", "verdict so far")]
    rows += [_row(task.host.name, found.get(task.name, _WAITING)) for task in run.tasks]
    yield from columns(rows)
    states = [found.get(task.name, _WAITING).state for task in run.tasks]
    counts = [(state, states.count(state)) for state in TaskState if state in states]
    yield ", ".join(f"{number} {state}" for state, number in counts)
    left = left_seconds(run, found)
    if left:
        yield f"about {format_seconds(left)} left"


def left_seconds(run: FleetRun, found: Mapping[str, TaskProgress]) -> float | None:
    """Return the expected time until all hosts are measured; None before any host has said how long it takes.

    Tasks that have not begun are taken to last as long as those that run are expected to, from begin to end.
    """
    running = [one for one in found.values() if one.state is TaskState.RUNNING and one.left_seconds is not None]
    left = [one.left_seconds or 0.0 for one in running]
    waiting = sum(task.name not in found or found[task.name].state is TaskState.WAITING for task in run.tasks)
    if not left:
        return None
    whole = [one.left_seconds * one.total / (one.total - one.done)
             for one in running if one.left_seconds and one.total > one.done]  # fmt: skip
    rounds = -(-waiting // run.at_once)
    return max(left) + (rounds * fmean(whole) if whole else 0.0)


def ended_lines(
    run: FleetRun, found: Mapping[str, TaskProgress], drift: Sequence[HostDrift], place: str
) -> Iterator[str]:
    """Yield what is said when a run is over: the table, the drift of the reference host, and where to read on."""
    yield from run_lines(run, found)
    for one in drift:
        yield (
            f"reference host {run.reference}, {one.workload}: {change_words(one.estimate)} {one.metric} "
            f"({change_words(one.low)} to {change_words(one.high)}) after {one.hours:.1f} h"
        )
    open_ = [task for task in run.tasks if found.get(task.name, _WAITING).state is not TaskState.FINISHED]
    if open_:
        yield f"{len(open_)} of {len(run.tasks)} not finished: `virtune fleet run --again {run.name}` goes on"
    yield f"studies: {place}; `virtune fleet report` says what they say together"


_WAITING = TaskProgress(state=TaskState.WAITING)


def _row(host: str, found: TaskProgress) -> tuple[str, ...]:
    trials = f"{found.done}/{found.total or '?'}" if found.done or found.total else "-"
    left = "-" if found.left_seconds is None else format_seconds(found.left_seconds)
    said = printable(found.said or found.verdict or "-", most=_SAID_MAX)
    return (host, found.state, trials, left, found.study or "-", said)
