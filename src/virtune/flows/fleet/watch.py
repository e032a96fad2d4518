# SPDX-License-Identifier: Apache-2.0
"""How far the tasks of a run are, again and again, at next to no cost for the hosts that are measured meanwhile."""

from collections.abc import Iterator, Mapping
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import dataclass, field, replace
from itertools import count
from threading import Event as Flag

from virtune.fleet.ssh import connected
from virtune.flows.fleet.ask import FleetAccess, ready_on
from virtune.flows.fleet.run import said_lines, states_of
from virtune.model.errors import VirtuneError
from virtune.model.fleet import FleetRun, FleetTask, TaskProgress, TaskState
from virtune.shell import Warden

_TOLD = (TaskState.RUNNING, TaskState.FINISHED, TaskState.FAILED)
"""States of tasks that are followed or over: these hosts are not asked again."""


def watched(run: FleetRun, access: FleetAccess, *, seconds: float) -> Iterator[Mapping[str, TaskProgress]]:
    """Yield how far the tasks of a run are, by their names, so often, until none of them runs.

    A task that runs is followed over one connection, since each new look would connect and start a Python on a host
    that is being measured. The others are asked each time, but for those that are over.
    """
    # the warden goes first: without their connections the threads end
    with ThreadPoolExecutor(max_workers=max(1, len(run.tasks))) as pool, Warden("fleet") as warden:
        watch = _Watch(access=access, warden=warden)
        try:
            watch.found.update(states_of(run, access))
            following: dict[str, Future[None]] = {}
            while True:
                yield dict(watch.found)
                running = [one for one in run.tasks if watch.found[one.name].state is TaskState.RUNNING]
                if not running:
                    return
                for task in running:
                    if task.name not in following or following[task.name].done():
                        following[task.name] = pool.submit(watch.follow, task)
                watch.ending.wait(seconds)
                rest = tuple(one for one in run.tasks if watch.found[one.name].state not in _TOLD)
                if rest:
                    watch.found.update(states_of(replace(run, tasks=rest), access))
        finally:
            watch.ending.set()
            pool.shutdown(wait=False, cancel_futures=True)


@dataclass(frozen=True, slots=True, kw_only=True)
class _Watch:
    """Follows tasks, each in a thread of its own."""

    access: FleetAccess
    warden: Warden
    found: dict[str, TaskProgress] = field(default_factory=dict)
    ending: Flag = field(default_factory=Flag)
    numbers: Iterator[int] = field(default_factory=count)

    def follow(self, task: FleetTask) -> None:
        """Note what a task says until it no longer runs, or its host is lost."""
        name = f"w{next(self.numbers)}"
        seconds = self.access.connect_seconds
        try:
            with connected(self.warden, task.host, name=name, connect_seconds=seconds) as connection:
                ready = ready_on(connection, self.access)
                words = connection.command((ready.virtune, "fleet", "here", task.name, "--follow"))
                with self.warden.running(words, name=f"{name}f") as child:
                    for said in said_lines(child, self.ending):
                        self.found[task.name] = said
        except VirtuneError as error:
            self.found[task.name] = TaskProgress(state=TaskState.LOST, said=error.message, hint=error.hint or "")
