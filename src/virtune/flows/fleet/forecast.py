# SPDX-License-Identifier: Apache-2.0
"""How long a study on many hosts takes: what each host expects beforehand, and what those that run expect."""

from collections.abc import Mapping
from dataclasses import dataclass, replace
from statistics import fmean

from virtune.fleet.schedule import whole_seconds
from virtune.flows.fleet.ask import FleetAccess, Ready, ask_each
from virtune.flows.fleet.here import LINE_MAX, progress_in
from virtune.flows.fleet.kept_plans import RUNS
from virtune.flows.fleet.plan import OpenTasks
from virtune.model.fleet import FleetRun, TaskProgress, TaskState, Unreached


@dataclass(frozen=True, slots=True, kw_only=True)
class MetFleet:
    """A run whose hosts were asked: its tasks with the time that each expects, and the hosts that cannot run it."""

    run: FleetRun
    refused: Mapping[str, TaskProgress]

    @property
    def refused_tasks(self) -> Mapping[str, TaskProgress]:
        """What is known of the tasks of those hosts, by their names."""
        return {one.name: self.refused[one.host.name] for one in self.run.tasks if one.host.name in self.refused}


def meet(run: FleetRun, access: FleetAccess) -> MetFleet:
    """Tell hosts apart, since one by two names would be measured twice at once, and let each plan its study: what it
    cannot run is known before any host is measured, and how long it takes. What began earlier is not planned again.
    """
    noted = OpenTasks(run)
    new = {task.host.name: task for task in run.tasks if noted.is_new(task)}

    def planned(ready: Ready) -> TaskProgress | None:
        task = new.get(ready.connection.host.name)
        if task is None:
            return None
        words = (ready.virtune, "fleet", "here", task.name, "--estimate", "--", *run.words)
        done = ready.connection.run(words, timeout_seconds=access.timeout_seconds, most_bytes=LINE_MAX)
        return progress_in(done.stdout)

    refused, seconds = {}, {}
    for one in ask_each(list({task.host.name: task.host for task in run.tasks}.values()), access, planned):
        if isinstance(one, Unreached):
            refused[one.host.name] = TaskProgress(state=TaskState.FAILED, said=one.because, hint=one.hint or "")
        elif one[2] is not None and one[2].state is TaskState.FAILED:
            refused[one[0].name] = one[2]
        elif one[2] is not None:
            seconds[one[0].name] = one[2].left_seconds
    if seconds:
        tasks = (replace(one, expected_seconds=seconds.get(one.host.name, one.expected_seconds)) for one in run.tasks)
        run = replace(run, tasks=tuple(tasks))
        RUNS.keep(run)
    return MetFleet(run=run, refused=refused)


def left_seconds(run: FleetRun, found: Mapping[str, TaskProgress]) -> float | None:
    """Return the expected time until all hosts are measured; None where no host has said how long it takes.

    A task that has not begun takes as long as its host said, else as those that run are expected to, from begin to
    end.
    """
    running = {name: one for name, one in found.items() if one.state is TaskState.RUNNING}
    left = {name: one.left_seconds for name, one in running.items() if one.left_seconds is not None}
    whole = [seconds * running[name].total / (running[name].total - running[name].done)
             for name, seconds in left.items() if running[name].total > running[name].done]  # fmt: skip
    usual = fmean(whole) if whole else None
    for task in run.tasks:
        seconds = usual if task.expected_seconds is None else task.expected_seconds
        if seconds is not None and (task.name not in found or found[task.name].state is TaskState.WAITING):
            left[task.name] = seconds
    return whole_seconds(run.tasks, left, running, at_once=run.at_once, shares=run.shares) if left else None
