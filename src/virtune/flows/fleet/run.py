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
from virtune.flows.fleet.ask import FleetAccess, Ready, ask_each, ready_on
from virtune.flows.fleet.gather import pull
from virtune.flows.fleet.here import read_line, said_by
from virtune.flows.fleet.place import FleetPlace
from virtune.model.errors import VirtuneError
from virtune.model.fleet import FleetHost, Unreached
from virtune.model.fleet_task import FleetRun, FleetTask, TaskProgress, TaskState
from virtune.shell import Child, Warden

_LINE_MAX = 16 * 1024
_TICK_SECONDS = 0.1
_AGAIN_SECONDS = (1.0, 2.0, 5.0, 10.0, 30.0)
"""How long to wait before a host that was lost is tried again; the last of them from then on."""

_TRIES_MAX = 200
"""A study that is killed again and again is given up, and so is a link that never holds."""

Say = Callable[[FleetTask, TaskProgress], None]


@dataclass(frozen=True, slots=True, kw_only=True)
class Carrying:
    """How tasks are followed: for how long a lost host is tried again, and where its studies go."""

    access: FleetAccess
    place: FleetPlace
    patience_seconds: float


def run_fleet(run: FleetRun, carrying: Carrying, *, say: Say) -> dict[str, TaskProgress]:
    """Run the tasks of a run to their ends and return how each ended, by its name; a failure concerns its task only.

    Hosts are told apart before any is measured: one by two names would be measured twice at once.
    """
    carrying.place.prepare()
    hosts = list({task.host.name: task.host for task in run.tasks}.values())
    refused = {
        one.host.name: TaskProgress(state=TaskState.FAILED, said=one.because)
        for one in ask_each(hosts, carrying.access, lambda _: None)
        if isinstance(one, Unreached)
    }
    found = {task.name: refused[task.host.name] for task in run.tasks if task.host.name in refused}
    for task in run.tasks:
        if task.name in found:
            say(task, found[task.name])
    waiting = [task for task in run.tasks if task.name not in found]
    return found | _carried(run, waiting, carrying, say)


def _carried(run: FleetRun, waiting: list[FleetTask], carrying: Carrying, say: Say) -> dict[str, TaskProgress]:
    found: dict[str, TaskProgress] = {}
    running: dict[Future[TaskProgress], FleetTask] = {}
    over = Flag()
    # the warden goes first: without their connections the threads end
    with ThreadPoolExecutor(max_workers=run.at_once) as pool, Warden("fleet") as warden:
        follower = _Follower(run=run, carrying=carrying, warden=warden, say=say, over=over)
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
    warden: Warden
    say: Say
    over: Flag

    def carry(self, task: FleetTask) -> TaskProgress:
        """Begin a task, follow it to its end and gather its study; a lost connection is made again."""
        begun, last = False, TaskProgress(state=TaskState.WAITING)
        lost_since, tries = time.monotonic(), 0
        while True:
            try:
                for last in self._followed(task, tries):
                    begun, lost_since = True, time.monotonic()
                    self.say(task, last)
            except VirtuneError as error:
                tries += 1
                gone = time.monotonic() - lost_since > self.carrying.patience_seconds
                if not begun or gone or tries > _TRIES_MAX or self.over.is_set() or not isinstance(error, HostError):
                    state = TaskState.LOST if begun else TaskState.FAILED
                    return replace(last, state=state, said=error.message)
                last = replace(last, state=TaskState.LOST, said=error.message)
                self.say(task, last)
            else:
                return last
            self.over.wait(_AGAIN_SECONDS[min(tries, len(_AGAIN_SECONDS)) - 1])

    def _followed(self, task: FleetTask, tries: int) -> Iterator[TaskProgress]:
        """Yield how far a task is until it ends; its study is here when the last is yielded."""
        name = f"{task.name.rpartition('.')[2]}-{tries}"
        access = self.carrying.access
        with connected(self.warden, task.host, name=name, connect_seconds=access.connect_seconds) as connection:
            ready = ready_on(connection, access)
            # begun and followed by one Python: the host is being measured
            words = (ready.virtune, "fleet", "here", task.name, "--follow", "--", *self.run.words)
            found = TaskProgress(state=TaskState.WAITING)
            with self.warden.running(connection.command(words), name=f"{name}f") as child:
                for found in _lines(child, self.over):
                    if found.state is TaskState.RUNNING:
                        yield found
            if found.state is TaskState.KILLED:
                raise HostError("its study was killed there")
            if found.state is TaskState.FINISHED:
                self._gather(ready, found.study)
        yield found

    def _gather(self, ready: Ready, study: str) -> None:
        with self.carrying.place.of(ready.connection.host.name) as store:
            pull(ready, self.carrying.access, store, study)


def _lines(child: Child, over: Flag) -> Iterator[TaskProgress]:
    """Yield what a followed task says until it no longer runs. Raises HostError where it ends without having said so:
    the connection was lost, or the task could not begin.
    """
    told = ""
    while True:
        status = child.poll()
        line = _last_line(child)
        if line and line != told:
            told = line
            found = _read(line)
            yield found
            if found.state is not TaskState.RUNNING:
                return
        if status is not None:
            if status == SSH_FAILED:
                raise HostError("the connection was lost")
            raise HostError(said_by(_tail(child)) or "it ended without a reason")
        if over.wait(_TICK_SECONDS):
            raise HostError("stopped waiting")


def _last_line(child: Child) -> str:
    """Return the last whole line of what it said of the task."""
    whole = _tail(child).rpartition("\n")[0].splitlines()
    return next((line for line in reversed(whole) if line.startswith("{")), "")


def _tail(child: Child) -> str:
    with contextlib.suppress(OSError):
        return read_bounded(child.log, _LINE_MAX, from_end=True).decode(errors="replace")
    return ""


def _read(text: str) -> TaskProgress:
    try:
        return read_line(text.strip())
    except ValueError:
        raise HostError("what its virtune said of the task is not to be understood") from None


def states_of(run: FleetRun, access: FleetAccess, *, stop: bool = False) -> Mapping[str, TaskProgress]:
    """Ask every host how far its tasks are, or to stop them; by the names of the tasks."""
    mine: dict[str, list[FleetTask]] = {}
    for task in run.tasks:
        mine.setdefault(task.host.name, []).append(task)

    def asked(ready: Ready) -> list[TaskProgress]:
        words = ["--stop"] if stop else []
        return [
            _read(
                ready.connection.run(
                    (ready.virtune, "fleet", "here", task.name, *words),
                    timeout_seconds=access.timeout_seconds, most_bytes=_LINE_MAX,
                ).stdout
            )
            for task in mine[ready.connection.host.name]
        ]  # fmt: skip

    found: dict[str, TaskProgress] = {}
    for one in ask_each(_hosts(run.tasks), access, asked):
        if isinstance(one, Unreached):
            lost = TaskProgress(state=TaskState.LOST, said=one.because)
            found |= {task.name: lost for task in mine[one.host.name]}
        else:
            found |= {task.name: said for task, said in zip(mine[one[0].name], one[2], strict=True)}
    return found


def _hosts(tasks: Sequence[FleetTask]) -> list[FleetHost]:
    return list({task.host.name: task.host for task in tasks}.values())
