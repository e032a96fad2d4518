# SPDX-License-Identifier: Apache-2.0
"""A study on many hosts: it runs on each host by itself, is followed over SSH, found again, and gathered.

Nothing rests on this process, on ssh or on the network: a task is begun by its name, and whoever asks again finds it.
The plan of a run is kept here, so that `fleet run --again` goes on after this process was killed.
"""

import contextlib
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import FIRST_COMPLETED, Future, ThreadPoolExecutor, wait
from dataclasses import dataclass, replace
from threading import Event as Flag

from virtune.bounded import read_bounded
from virtune.fleet.schedule import next_task, shared
from virtune.fleet.ssh import SSH_FAILED, HostError, connected
from virtune.flows.fleet.ask import FleetAccess, OtherVersionError, Ready, ask_each, ready_on
from virtune.flows.fleet.forecast import MetFleet
from virtune.flows.fleet.gather import pull
from virtune.flows.fleet.here import LINE_MAX, progress_in, said_by
from virtune.flows.fleet.place import FleetPlace
from virtune.flows.fleet.plan import OpenTasks
from virtune.model.errors import VirtuneError
from virtune.model.fleet import FleetHost, FleetRun, FleetTask, TaskProgress, TaskState, Unreached
from virtune.shell import Child, Warden

_TICK_SECONDS = 0.1
_AGAIN_SECONDS = (1.0, 2.0, 5.0, 10.0, 30.0)
"""How long to wait before a host that was lost is tried again; the last of them from then on."""

_TRIES_MAX = 200
"""A study that is killed again and again is given up, and so is a link that never holds."""

Say = Callable[[FleetTask, TaskProgress], None]


class _EndedError(HostError):
    """The virtune of a host ended without saying how far the task is."""


class _NotGatheredError(VirtuneError):
    """A study that ended on its host could not be brought here."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Carrying:
    """How tasks are followed: for how long a lost host is tried again, and where its studies go."""

    access: FleetAccess
    place: FleetPlace
    patience_seconds: float


def run_fleet(met: MetFleet, carrying: Carrying, *, say: Say) -> dict[str, TaskProgress]:
    """Run tasks to their ends and return how each ended, by its name; a failure concerns its task only."""
    carrying.place.prepare()
    run, refused, open_ = met.run, met.refused, OpenTasks(met.run)
    # a task that an earlier call began may run on its host, answer or none
    found = {one.name: refused[one.host.name] for one in run.tasks if one.host.name in refused and one not in open_}
    for task in run.tasks:
        if task.name in found:
            say(task, found[task.name])
    # first those that may run already: of what shares something with them nothing may begin
    waiting = sorted(
        (one for one in run.tasks if one.name not in found), key=lambda one: (one.part, one not in open_)
    )
    return found | _carried(run, waiting, carrying, open_, say)


def _carried(
    run: FleetRun, waiting: list[FleetTask], carrying: Carrying, open_: OpenTasks, say: Say
) -> dict[str, TaskProgress]:
    found: dict[str, TaskProgress] = {}
    running: dict[Future[TaskProgress], FleetTask] = {}
    over = Flag()
    # the warden goes first: without their connections the threads end
    with ThreadPoolExecutor(max_workers=run.at_once) as pool, Warden("fleet") as warden:
        follower = _Follower(run=run, carrying=carrying, open=open_, warden=warden, say=say, over=over)
        try:
            while waiting or running:
                lost = [task for task in run.tasks if _may_run(found.get(task.name))]
                while task := next_task(
                    waiting, running.values(), lost=lost, at_once=run.at_once, shares=run.shares
                ):  # fmt: skip
                    waiting.remove(task)
                    running[pool.submit(follower.carry, task)] = task
                if not running:
                    # what is left shares something with a host that was lost, and may still be measuring
                    task = waiting.pop(0)
                    found[task.name] = _left_out(task, lost, run.shares)
                    say(task, found[task.name])
                    continue
                for ended in wait(running, return_when=FIRST_COMPLETED).done:
                    task = running.pop(ended)
                    found[task.name] = ended.result()
                    say(task, found[task.name])
        except BaseException:
            over.set()
            pool.shutdown(wait=False, cancel_futures=True)
            raise
    return found


def _may_run(found: TaskProgress | None) -> bool:
    return found is not None and found.state is TaskState.LOST


def _left_out(task: FleetTask, lost: Sequence[FleetTask], shares: str) -> TaskProgress:
    mine = shared(task.host, shares)
    names = [one.host.name for one in lost if one.host.name == task.host.name or mine & shared(one.host, shares)]
    said = f"{names[0]} was lost, and may still load what this host shares" if names else "could not begin"
    return TaskProgress(state=TaskState.WAITING, said=said)


@dataclass(frozen=True, slots=True, kw_only=True)
class _Follower:
    """Carries one task after the other, each over connections of its own."""

    run: FleetRun
    carrying: Carrying
    open: OpenTasks
    warden: Warden
    say: Say
    over: Flag

    def carry(self, task: FleetTask) -> TaskProgress:
        """Begin a task, follow it to its end and gather its study; a lost connection is made again."""
        begun, last = False, TaskProgress(state=TaskState.WAITING)
        heard, tries, waits = time.monotonic(), 0, 0
        while True:
            try:
                for last in self._followed(task, tries):
                    begun, heard, waits = True, time.monotonic(), 0
                    self.say(task, last)
            except VirtuneError as error:
                tries, waits = tries + 1, waits + 1
                state, again = self._after(error, task, begun=begun)
                gone = time.monotonic() - heard > self.carrying.patience_seconds
                if not again or gone or tries > _TRIES_MAX or self.over.is_set():
                    if state is not TaskState.LOST:
                        self.open.ended(task)
                    return replace(last, state=state, said=error.message, hint=error.hint or "")
                last = replace(last, state=state if state is TaskState.LOST else last.state, said=error.message)
                self.say(task, last)
            else:
                self.open.ended(task)
                return last
            self.over.wait(_AGAIN_SECONDS[min(waits, len(_AGAIN_SECONDS)) - 1])

    def _after(self, error: VirtuneError, task: FleetTask, *, begun: bool) -> tuple[TaskState, bool]:
        """Return what becomes of a task after an error, and whether it is tried again."""
        if isinstance(error, _NotGatheredError):
            return TaskState.FAILED, True
        if task not in self.open or (isinstance(error, _EndedError) and not begun):
            return TaskState.FAILED, False
        return TaskState.LOST, isinstance(error, HostError) and not isinstance(error, OtherVersionError)

    def _followed(self, task: FleetTask, tries: int) -> Iterator[TaskProgress]:
        """Yield how far a task is until it ends; its study is here when the last is yielded."""
        name = f"{task.name.rpartition('.')[2]}-{tries}"
        access = self.carrying.access
        with connected(self.warden, task.host, name=name, connect_seconds=access.connect_seconds) as connection:
            ready = ready_on(connection, access)
            # begun and followed by one Python: the host is being measured
            words = (ready.virtune, "fleet", "here", task.name, "--follow", "--", *self.run.words)
            found = TaskProgress(state=TaskState.WAITING)
            self.open.begins(task)
            with self.warden.running(connection.command(words), name=f"{name}f") as child:
                for found in said_lines(child, self.over):
                    if found.state is TaskState.RUNNING:
                        yield found
            if found.state in (TaskState.KILLED, TaskState.WAITING):
                raise HostError("its study was killed there")
            if found.state is TaskState.FINISHED:
                self._gather(ready, found.study)
        yield found

    def _gather(self, ready: Ready, study: str) -> None:
        try:
            with self.carrying.place.of(ready.connection.host.name) as store:
                pull(ready, self.carrying.access, store, study)
        except VirtuneError as error:
            said = f"finished there, and not gathered: {error.message}"
            raise _NotGatheredError(said, hint=error.hint) from None


def said_lines(child: Child, over: Flag) -> Iterator[TaskProgress]:
    """Yield what a followed task says until it no longer runs. Raises HostError where it ends without having said so:
    the connection was lost, or the task could not begin.
    """
    told = ""
    while True:
        status = child.poll()
        line = _last_line(child)
        if line and line != told:
            told = line
            found = progress_in(line)
            yield found
            if found.state is not TaskState.RUNNING:
                return
        if status is not None:
            if status == SSH_FAILED:
                raise HostError("the connection was lost")
            said, hint = said_by(_tail(child))
            raise _EndedError(said or "it ended without a reason", hint=hint or None)
        if over.wait(_TICK_SECONDS):
            raise HostError("stopped waiting")


def _last_line(child: Child) -> str:
    """Return the last whole line of what it said of the task."""
    whole = _tail(child).rpartition("\n")[0].splitlines()
    return next((line for line in reversed(whole) if line.startswith("{")), "")


def _tail(child: Child) -> str:
    with contextlib.suppress(OSError):
        return read_bounded(child.log, LINE_MAX, from_end=True).decode(errors="replace")
    return ""


def states_of(run: FleetRun, access: FleetAccess, *, stop: bool = False) -> Mapping[str, TaskProgress]:
    """Ask every host how far its tasks are, or to stop them; by the names of the tasks."""
    mine: dict[str, list[FleetTask]] = {}
    for task in run.tasks:
        mine.setdefault(task.host.name, []).append(task)

    def asked(ready: Ready) -> list[TaskProgress]:
        words = ["--stop"] if stop else []
        return [
            progress_in(
                ready.connection.run(
                    (ready.virtune, "fleet", "here", task.name, *words),
                    timeout_seconds=access.timeout_seconds, most_bytes=LINE_MAX,
                ).stdout
            )
            for task in mine[ready.connection.host.name]
        ]  # fmt: skip

    found: dict[str, TaskProgress] = {}
    for one in ask_each(_hosts(run.tasks), access, asked):
        if isinstance(one, Unreached):
            lost = TaskProgress(state=TaskState.LOST, said=one.because, hint=one.hint or "")
            found |= {task.name: lost for task in mine[one.host.name]}
        else:
            found |= {task.name: said for task, said in zip(mine[one[0].name], one[2], strict=True)}
    return found


def _hosts(tasks: Sequence[FleetTask]) -> list[FleetHost]:
    return list({task.host.name: task.host for task in tasks}.values())
