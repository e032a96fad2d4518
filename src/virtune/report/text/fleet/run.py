# SPDX-License-Identifier: Apache-2.0
"""A study on many hosts as text: a line for each host with its state, its progress and its last verdict."""

from collections.abc import Iterator, Mapping, Sequence

from virtune.model.errors import UsageError
from virtune.model.fleet_task import FleetRun, HostDrift, TaskProgress, TaskState
from virtune.model.text import printable
from virtune.model.units import format_seconds
from virtune.report.text.fleet.hosts import columns, names
from virtune.report.text.words import change_words, count_text

SAID_MAX = 120
"""Characters of what a host said that a line shows."""


def run_lines(
    run: FleetRun, found: Mapping[str, TaskProgress], left: float | None, *, most: int | None = None
) -> Iterator[str]:
    """Yield the table of a run, and how long what is left takes, in seconds. With `most` so many lines at most: of
    more hosts those of which there is something to see.
    """
    shown = list(run.tasks)
    if most is not None and len(shown) > most - _OTHER_LINES:
        shown.sort(key=lambda one: _TO_SEE.index(found.get(one.name, _WAITING).state))
        shown = shown[: max(1, most - _OTHER_LINES - 1)]
    rows: list[tuple[str, ...]] = [("host", "state", "trials", "left", "study", "verdict so far")]
    rows += [_row(task.host.name, found.get(task.name, _WAITING)) for task in shown]
    yield from columns(rows)
    if len(shown) < len(run.tasks):
        yield f"and {len(run.tasks) - len(shown)} more"
    states = [found.get(task.name, _WAITING).state for task in run.tasks]
    counts = [(state, states.count(state)) for state in TaskState if state in states]
    yield ", ".join(f"{number} {state}" for state, number in counts)
    hints: dict[str, dict[str, None]] = {}
    for task in shown:
        if hint := found.get(task.name, _WAITING).hint:
            hints.setdefault(hint, {})[task.host.name] = None
    yield from (printable(f"{names([*hosts])}: {hint}") for hint, hosts in hints.items())
    if left:
        yield f"at most about {format_seconds(left)} left"


def planned_line(run: FleetRun, left: float | None) -> str:
    """Say what a run will do, before its first host is measured."""
    hosts = count_text(len({task.host.name for task in run.tasks}), "host")
    together = f", {run.at_once} at once" if run.at_once > 1 else ", one after the other"
    takes = f": at most about {format_seconds(left)}" if left else ""
    return f"run {run.name}: {hosts}{together}{takes}"


def ended_lines(
    run: FleetRun, found: Mapping[str, TaskProgress], drift: Sequence[HostDrift], place: str
) -> Iterator[str]:
    """Yield what is said when a run is over: the table, the drift of the reference host, and where to read on."""
    yield from run_lines(run, found, None)
    for one in drift:
        yield (
            f"reference host {run.reference}, {one.workload}: {change_words(one.estimate)} {one.metric} "
            f"({change_words(one.low)} to {change_words(one.high)}) after {one.hours:.1f} h"
        )
    each = [found.get(task.name, _WAITING) for task in run.tasks]
    open_ = [task for task in each if task.state is not TaskState.FINISHED]
    if all(task.code == UsageError.exit_code for task in open_):
        goes_on = "its words are wrong, so begin another run"
    else:
        goes_on = f"`virtune fleet run --again {run.name}` goes on"
    if open_:
        yield f"{len(open_)} of {len(run.tasks)} not finished: {goes_on}"
    if len(open_) < len(run.tasks):
        yield f"studies: {place}; `virtune fleet report` says what they say together"


_WAITING = TaskProgress(state=TaskState.WAITING)
_OTHER_LINES = 3
"""The heads of the columns, the states counted, and the time left."""

_TO_SEE = (
    TaskState.RUNNING, TaskState.LOST, TaskState.KILLED, TaskState.FAILED, TaskState.FINISHED, TaskState.WAITING,
)  # fmt: skip


def _row(host: str, found: TaskProgress) -> tuple[str, ...]:
    trials = f"{found.done}/{found.total or '?'}" if found.done or found.total else "-"
    left = "-" if found.left_seconds is None else format_seconds(found.left_seconds)
    said = printable(found.said or found.verdict or "-", most=SAID_MAX)
    return (host, found.state, trials, left, printable(found.study or "-", most=SAID_MAX), said)
