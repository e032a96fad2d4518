# SPDX-License-Identifier: Apache-2.0
"""A study on many hosts: it runs on each host by itself, is followed over SSH, found again, and gathered.

Nothing rests on this process, on ssh or on the network: a task is begun by its name, and whoever asks again finds it.
The plan of a run is kept here, so that `fleet run --again` goes on after this process was killed.
"""

import contextlib
import re
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import FIRST_COMPLETED, Future, wait
from dataclasses import dataclass, replace
from datetime import datetime
from functools import partial
from itertools import count
from pathlib import Path
from statistics import fmean
from threading import Event as Flag
from types import MappingProxyType
from typing import Generic, TypeVar

from pydantic import TypeAdapter

from virtune.bounded import read_bounded, write_whole
from virtune.fleet.schedule import next_task, shared, tasks_of, whole_seconds
from virtune.fleet.ssh import HostError
from virtune.flows.fleet.ask import FleetAccess, OtherVersionError, Ready, ask_each, reached, threads
from virtune.flows.fleet.here import (
    GOES_ON,
    LINE_MAX,
    LOOK_MAX,
    PLAN_MAX,
    line_of,
    look_command,
    looked,
    progress_in,
    require_words,
    said_by,
)
from virtune.flows.fleet.results import FleetPlace, pull
from virtune.flows.stored.show import study_id
from virtune.model.errors import PreconditionError, UsageError, VirtuneError, words_of
from virtune.model.fleet import (
    WAITING,
    FleetChange,
    FleetHost,
    FleetRun,
    FleetTask,
    KeptRun,
    TaskProgress,
    TaskState,
    Unreached,
)
from virtune.model.text import printable
from virtune.probe.backends import UNKNOWN
from virtune.shell import Warden, data_directory

_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9-]{0,63}")
_BYTES_MAX = 16 * 1024**2

Plan = TypeVar("Plan", FleetRun, FleetChange)


@dataclass(frozen=True, slots=True, kw_only=True)
class KeptPlans(Generic[Plan]):
    """The plans of one kind: `what` is one of them in a sentence, `made_by` says which command makes one."""

    kind: type[Plan]
    folder: str
    what: str
    made_by: str

    def keep(self, plan: Plan) -> None:
        """Write a plan, whole or not at all. Raises PreconditionError where it cannot be written."""
        try:
            self.place.mkdir(mode=0o700, parents=True, exist_ok=True)
            write_whole(self.place / f"{plan.name}.json", TypeAdapter(self.kind).dump_json(plan))
        except OSError as error:
            raise PreconditionError(f"cannot keep the {self.what} in {self.place}: {words_of(error)}") from None

    def find(self, name: str) -> Plan:
        """Return a plan by its name, the beginning of it, or `last`. Raises UsageError where there is none."""
        known = self.names()
        fitting = known[-1:] if name == "last" else [one for one in known if name and one.startswith(name)]
        fitting = [name] if name in fitting else fitting
        if len(fitting) > 1:
            hint = f"write more of it: {', '.join(fitting[:5])}"
            raise UsageError(f"{printable(name, most=60)!r} fits {len(fitting)} {self.what}s", hint=hint)
        if not fitting:
            hint = f"the newest here: {', '.join(known[-3:])}" if known else self.made_by
            raise UsageError(f"no {self.what} {printable(name, most=60)!r} of a fleet", hint=hint)
        try:
            return TypeAdapter(self.kind).validate_json(read_bounded(self.place / f"{fitting[0]}.json", _BYTES_MAX))
        except (OSError, ValueError):
            raise PreconditionError(f"the plan of the {self.what} {fitting[0]} is damaged") from None

    def names(self) -> list[str]:
        """Return the names of all plans, the newest last."""
        return sorted(path.stem for path in self.place.glob("*.json") if _NAME.fullmatch(path.stem))

    @property
    def place(self) -> Path:
        return data_directory() / self.folder


RUNS = KeptPlans(kind=FleetRun, folder="fleet-runs", what="run", made_by="`virtune fleet run` makes one")
CHANGES = KeptPlans(
    kind=FleetChange,
    folder="fleet-changes",
    what="change",
    made_by="`virtune fleet apply` says the name of the change that it makes",
)


@dataclass(frozen=True, slots=True, kw_only=True)
class FleetPolicy:
    """How hosts are shared out: so many at once, in batches, a reference host between them, what they share."""

    at_once: int = 1
    batch: int | None = None
    reference: str = ""
    shares: str = "shares"
    seed: int = 0


def plan_run(
    hosts: Sequence[FleetHost], words: Sequence[str], policy: FleetPolicy, *, now: datetime, virtune: str
) -> FleetRun:
    """Plan a study on these hosts and keep the plan. Raises UsageError for words that no fleet can run, and for a
    reference that is not among the hosts.
    """
    run = new_run(words, policy, now=now, virtune=virtune)
    tasks = tasks_of(run.name, hosts, reference=policy.reference, batch=policy.batch, seed=policy.seed)
    run = replace(run, tasks=tasks)
    RUNS.keep(run)
    return run


def new_run(words: Sequence[str], policy: FleetPolicy, *, now: datetime, virtune: str) -> FleetRun:
    """Return a run without tasks. Raises UsageError for words that no fleet can run."""
    require_words(words)
    return FleetRun(
        name=study_id(now), created=now.isoformat(timespec="seconds"), words=tuple(words), tasks=(), virtune=virtune,
        at_once=policy.at_once, shares=policy.shares, reference=policy.reference,
    )  # fmt: skip


class OpenTasks:
    """Which tasks of a run may still run on their hosts: noted here before each begins, and when its end was seen.

    So `--again` knows of a host that gives no answer whether it may still load what it shares with others, and
    `status` what the run said of one that failed before anything began there.
    """

    def __init__(self, run: FleetRun) -> None:
        self._path = RUNS.place / f"{run.name}.open"
        self._found, self._begun, self._whole = dict[str, TaskProgress](), set[str](), True
        with contextlib.suppress(OSError):
            # what a crash of this host left of a line names no task, and the next line must not be joined to it
            text = self._path.read_text(errors="replace")
            self._whole = not text or text.endswith("\n")
            for line in text.split("\n"):
                self._note(line)

    def __contains__(self, task: FleetTask) -> bool:
        return self._found.get(task.name, WAITING).state is TaskState.RUNNING

    def is_new(self, task: FleetTask) -> bool:
        """Whether a task never began."""
        return task.name not in self._begun

    def begins(self, task: FleetTask) -> None:
        """Note that a task begins. Raises PreconditionError where that cannot be kept."""
        try:
            self._keep(f"+{task.name}")
        except OSError as error:
            raise PreconditionError(f"cannot write {self._path}: {words_of(error)}") from None

    def ended(self, task: FleetTask, how: TaskProgress) -> None:
        """Note that the end of a task was seen; where that cannot be kept, a later call asks its host once more."""
        with contextlib.suppress(OSError):
            self._keep(f"-{task.name} {line_of(how)}")

    def end_of(self, task: FleetTask) -> TaskProgress:
        """Return how a task ended; LOST where it began and its end was not seen here."""
        return TaskProgress(state=TaskState.LOST) if task in self else self._found.get(task.name, WAITING)

    def _keep(self, line: str) -> None:
        with self._path.open("a") as file:
            file.write(f"{line}\n" if self._whole else f"\n{line}\n")
        self._whole = True
        self._note(line)

    def _note(self, line: str) -> None:
        name, _, how = line[1:].partition(" ")
        self._found[name] = TaskProgress(state=TaskState.LOST)
        if line.startswith("+"):
            self._begun.add(name)
            how = TaskState.RUNNING
        with contextlib.suppress(HostError):
            # an older virtune wrote the state alone
            self._found[name] = progress_in(how if how.startswith("{") else f'{{"state": "{how}"}}')


def kept_runs() -> tuple[list[KeptRun], list[str]]:
    """Return the runs that are kept here, the newest last, and the names of those whose plan is damaged."""
    found, damaged = list[KeptRun](), list[str]()
    for name in RUNS.names():
        try:
            run = RUNS.find(name)
        except PreconditionError:
            damaged.append(name)
            continue
        noted, states = OpenTasks(run), dict[str, set[TaskState]]()
        for task in run.tasks:
            states.setdefault(task.host.name, set()).add(noted.end_of(task).state)
        # of a host with several tasks what is worst counts
        worst = [next(one for one in _WORST_FIRST if one in mine) for mine in states.values()]
        finished, failed, open_ = map(worst.count, (TaskState.FINISHED, TaskState.FAILED, TaskState.LOST))
        found.append(KeptRun(run=run, hosts=len(worst), finished=finished, failed=failed, open=open_))
    return found, damaged


_WORST_FIRST = (TaskState.FAILED, TaskState.LOST, TaskState.WAITING, TaskState.FINISHED)


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
    """Let each host plan its study, and keep what they say: what one cannot run is known before any is measured."""
    refused, met = plans_of(run, access)
    if met:
        said = ((one, met.get(one.host.name)) for one in run.tasks)
        new = (replace(one, expected_seconds=how.left_seconds, loads=how.loads) if how else one for one, how in said)
        RUNS.keep(run := replace(run, tasks=tuple(new)))
    return MetFleet(run=run, refused=refused)


def plans_of(
    run: FleetRun, access: FleetAccess, *, up: bool = False
) -> tuple[dict[str, TaskProgress], dict[str, TaskProgress]]:
    """Tell hosts apart, since one by two names would be measured twice at once, and let each plan its study: what it
    cannot run, and how long it takes. What began earlier is not planned again. With `up` each brings the
    configurations of its search up once, and names those that start. Returns the plans of the hosts that cannot run
    it, and of those that can, by their names.
    """
    noted = OpenTasks(run)
    new = {task.host.name: task for task in run.tasks if noted.is_new(task)}

    def planned(ready: Ready) -> TaskProgress | None:
        task = new.get(ready.name)
        if task is None:
            return None
        words = ("fleet", "here", task.name, "--estimate", *(["--up"] if up else []), "--", *run.words)
        said = progress_in(ready.asked(*words, most_bytes=PLAN_MAX))
        return said if task.host.label(run.shares) is not None else _unless_unknown(said)

    refused, met = dict[str, TaskProgress](), dict[str, TaskProgress]()
    for one in ask_each([*{task.host.name: task.host for task in run.tasks}.values()], access, planned):
        said = _unanswered(one, TaskState.FAILED) if isinstance(one, Unreached) else one.said
        if said is not None:
            (refused if said.state is TaskState.FAILED else met)[one.host.name] = said
    return refused, met


def _unanswered(host: Unreached, state: TaskState) -> TaskProgress:
    """Say why a host gave no answer as how far its task is."""
    return TaskProgress(state=state, said=host.because, hint=host.hint or "")


def _unless_unknown(said: TaskProgress) -> TaskProgress:
    """Refuse a host whose disk lies on storage of which nobody says whether other hosts load it, too."""
    names = [one.removeprefix(UNKNOWN) for one in said.loads if one.startswith(UNKNOWN)]
    if not names or said.state is TaskState.FAILED:
        return said
    hint = "give its host a label: shares=NAME, equal for hosts that share it, another for each that does not"
    told = f"other hosts may load what its disk lies on ({names[0]}), and nothing here tells"
    return TaskProgress(state=TaskState.FAILED, said=told, hint=hint)


def sharing(run: FleetRun) -> Mapping[str, Sequence[str]]:
    """Return the back ends that several hosts of a run load, with the names of these hosts."""
    found: dict[str, dict[str, None]] = {}
    for task in run.tasks:
        for one in sorted(shared(task, run.shares)):
            found.setdefault(one, {})[task.host.name] = None
    return {one: [*hosts] for one, hosts in found.items() if len(hosts) > 1}


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


MAY_LOAD = (TaskState.LOST, TaskState.STUCK)
"""States of tasks that are given up, and may go on all the same."""

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
    """How tasks are followed: for how long a host that is lost or stuck is waited for, where its studies go, and
    whether what is stuck is stopped at once.
    """

    access: FleetAccess
    place: FleetPlace
    patience_seconds: float
    stop_stuck: bool = False


def run_fleet(
    met: MetFleet, carrying: Carrying, *, say: Say, known: Mapping[str, TaskProgress] = MappingProxyType({})
) -> dict[str, TaskProgress]:
    """Run tasks to their ends and return how each ended, by its name; a failure concerns its task only. Those whose
    end is `known` are not run again.
    """
    carrying.place.prepare()
    run, open_, over = met.run, OpenTasks(met.run), Flag()
    # a task that an earlier call began may run on its host, answer or none
    begun = {one.name for one in run.tasks if one in open_}
    found = {**known, **{name: one for name, one in met.refused_tasks.items() if name not in begun}}
    # first those that may run already: of what shares something with them nothing may begin
    waiting = [one for one in run.tasks if one.name not in found]
    waiting.sort(key=lambda one: (one.part, one.name not in begun))

    def ends(task: FleetTask, how: TaskProgress) -> None:
        found[task.name] = how
        say(task, how)

    for task in (one for one in run.tasks if one.name in found and one.name not in known):
        open_.ended(task, found[task.name])
        say(task, found[task.name])
    running: dict[Future[TaskProgress], FleetTask] = {}
    with threads(run.at_once) as (pool, warden):
        follower = _Follower(run=run, carrying=carrying, open=open_, warden=warden, say=say, over=over)
        try:
            while waiting or running:
                lost = [one for one in run.tasks if one.name in found and found[one.name].state in MAY_LOAD]
                now = partial(next_task, lost=lost, at_once=run.at_once, shares=run.shares)
                while begins := now(waiting, running.values()):
                    waiting.remove(begins)
                    running[pool.submit(follower.carry, begins)] = begins
                if not running:
                    # what is left shares something with a host that was lost, and may still be measuring
                    left = waiting.pop(0)
                    ends(left, _left_out(left, {one: found[one.name].state for one in lost}, run.shares))
                    continue
                for ended in wait(running, return_when=FIRST_COMPLETED).done:
                    ends(running.pop(ended), ended.result())
        finally:
            over.set()
    return found


def _left_out(task: FleetTask, lost: Mapping[FleetTask, TaskState], shares: str) -> TaskProgress:
    mine, said = shared(task, shares), "could not begin"
    for one, state in lost.items():
        if one.host.name == task.host.name or mine & shared(one, shares):
            how = "is stuck" if state is TaskState.STUCK else "was lost"
            said = f"{one.host.name} {how}, and may still load what this host shares"
            break
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
        begun, last = False, WAITING
        heard, tries, waits = time.monotonic(), 0, 0
        while True:
            try:
                for last in self._followed(task, tries):
                    self.say(task, last)
                    begun, waits = True, 0
                    if last.state is not TaskState.STUCK:
                        heard = time.monotonic()
                    elif time.monotonic() - heard > self.carrying.patience_seconds:
                        return last
            except VirtuneError as error:
                tries, waits = tries + 1, waits + 1
                state, again = self._after(error, task, begun=begun)
                gone = time.monotonic() - heard > self.carrying.patience_seconds
                if not again or gone or tries > _TRIES_MAX or self.over.is_set():
                    last = replace(last, state=state, said=error.message, hint=error.hint or "")
                    if state is not TaskState.LOST:
                        self.open.ended(task, last)
                    return last
                last = replace(last, state=state if state is TaskState.LOST else last.state, said=error.message)
                self.say(task, last)
            else:
                self.open.ended(task, last)
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
        with reached(self.warden, task.host, self.carrying.access, name=name) as ready:
            self.open.begins(task)
            # begun and followed by one Python: the host is being measured
            words = (task.name, "--follow", "--", *(task.words or self.run.words))
            found, stopped = WAITING, ""
            for found in said_lines(ready, self.warden, words, self.over, name=name):
                if found.state is TaskState.STUCK and self.carrying.stop_stuck and not stopped:
                    stopped = found.said
                    ready.asked("fleet", "here", task.name, "--stop", most_bytes=LINE_MAX)
                if found.state in GOES_ON:
                    yield found
            if stopped and found.state not in GOES_ON:
                found = replace(found, state=TaskState.FAILED, said=f"stopped: {stopped}")
            if found.state in (TaskState.KILLED, TaskState.WAITING):
                raise HostError("its study was killed there")
            if found.state is TaskState.FINISHED:
                try:
                    with self.carrying.place.of(ready.name) as store:
                        pull(ready, store, found.study)
                except VirtuneError as error:
                    said = f"finished there, and not gathered: {error.message}"
                    raise _NotGatheredError(said, hint=error.hint) from None
        yield found


def said_lines(
    ready: Ready, warden: Warden, words: Sequence[str], over: Flag, *, name: str
) -> Iterator[TaskProgress]:
    """Follow a task by these words, and yield what it says until it no longer runs. Raises HostError where it ends
    without having said so: the connection was lost, or the task could not begin.
    """
    command, told = ready.connection.command((ready.virtune, "fleet", "here", *words)), ""
    with warden.running(command, name=f"{name}f") as child:
        while True:
            status, text = child.poll(), ""
            with contextlib.suppress(OSError):
                text = read_bounded(child.log, LINE_MAX, from_end=True).decode(errors="replace")
            whole = text.rpartition("\n")[0].splitlines()
            line = next((line for line in reversed(whole) if line.startswith("{")), "")
            if line and line != told:
                told = line
                yield (found := progress_in(line))
                if found.state not in GOES_ON:
                    return
            if status is not None:
                others = "\n".join(line for line in text.splitlines() if not line.startswith("{"))
                if (lost := ready.connection.lost(status, others)) is not None:
                    raise lost
                said, hint = said_by(text)
                raise _EndedError(said or "it ended without a reason", hint=hint or None)
            if over.wait(_TICK_SECONDS):
                raise HostError("stopped waiting")


def states_of(run: FleetRun, access: FleetAccess, *, stop: bool = False) -> Mapping[str, TaskProgress]:
    """Ask every host how far its tasks are, or to stop them; by the names of the tasks. One that failed is as the run
    said, unless it goes on; where it never began its host is not asked.
    """
    noted, mine = OpenTasks(run), dict[str, list[FleetTask]]()
    failed = {one.name: end for one in run.tasks if (end := noted.end_of(one)).state is TaskState.FAILED}
    for task in (one for one in run.tasks if one.name not in failed or not noted.is_new(one)):
        mine.setdefault(task.host.name, []).append(task)

    def asked(ready: Ready) -> list[TaskProgress]:
        tasks = [task.name for task in mine[ready.name]]
        seen = {} if stop else looked(ready.answered(look_command(tasks), most_bytes=len(tasks) * LOOK_MAX))
        ends = ["--stop"] * stop
        # of a task without files that can be read so, its virtune knows: it may be another user's
        return [seen.get(one) or progress_in(ready.asked("fleet", "here", one, *ends, most_bytes=LINE_MAX))
                for one in tasks]  # fmt: skip

    found: dict[str, TaskProgress] = {}
    for one in ask_each([tasks[0].host for tasks in mine.values()], access, asked, same=stop):
        tasks = mine[one.host.name]
        said = [_unanswered(one, TaskState.LOST)] * len(tasks) if isinstance(one, Unreached) else one.said
        found |= {task.name: how for task, how in zip(tasks, said, strict=True)}
    return found | {name: end for name, end in failed.items() if found.get(name, end).state not in GOES_ON}


_TOLD = (TaskState.RUNNING, TaskState.FINISHED, TaskState.FAILED)
"""States of tasks that are followed or over: these hosts are not asked again."""


def watched(
    run: FleetRun, access: FleetAccess, *, seconds: float | None = None, stop: bool = False
) -> Iterator[Mapping[str, TaskProgress]]:
    """Yield how far the tasks of a run are, by their names: once, or every so many `seconds` until none of them runs.
    With `stop` they are asked to stop first.

    A task that runs is followed over one connection, since each new look would connect to a host that is being
    measured. The others are asked each time, but for those that are over.
    """
    found, numbers, ending = dict(states_of(run, access, stop=stop)), count(), Flag()

    def follow(task: FleetTask, warden: Warden) -> None:
        name = f"w{next(numbers)}"
        try:
            with reached(warden, task.host, access, name=name) as ready:
                for said in said_lines(ready, warden, (task.name, "--follow"), ending, name=name):
                    found[task.name] = said
        except VirtuneError as error:
            found[task.name] = TaskProgress(state=TaskState.LOST, said=error.message, hint=error.hint or "")

    yield dict(found)
    if seconds is None:
        return
    following: dict[str, Future[None]] = {}
    with threads(max(1, len(run.tasks))) as (pool, warden):
        try:
            while running := [one for one in run.tasks if found[one.name].state is TaskState.RUNNING]:
                for task in running:
                    if task.name not in following or following[task.name].done():
                        following[task.name] = pool.submit(follow, task, warden)
                ending.wait(seconds)
                rest = tuple(one for one in run.tasks if found[one.name].state not in _TOLD)
                found.update(states_of(replace(run, tasks=rest), access) if rest else {})
                yield dict(found)
        finally:
            ending.set()
