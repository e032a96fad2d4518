# SPDX-License-Identifier: Apache-2.0
"""A task of a fleet on this host: begun once, running by itself, found again by its name.

Each task has a directory. Its lock is held by the process that carries the task, and the kernel drops it with that
process, so a task that was killed is known from one that goes on. A task that was killed is begun again by the same
call: its study is resumed. The store is this host's own.
"""

import contextlib
import fcntl
import json
import os
import re
import select
import signal
import sys
import time
from collections.abc import Iterator, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any, TypeGuard

from pydantic import TypeAdapter

from virtune.bounded import opened, read_bounded, write_whole
from virtune.fleet.ssh import HostError, error_in
from virtune.model import errors
from virtune.model.errors import PreconditionError, UsageError
from virtune.model.fleet import WAITING, TaskProgress, TaskState
from virtune.model.text import format_seconds, printable
from virtune.probe.backends import NAME_MAX
from virtune.shell import data_directory, detach, last_line
from virtune.store.progress import RunProgress, run_in, run_of

VERBS = ("compare", "check", "measure", "study", "sweep", "tune")
"""What a task may run: what makes a study."""

OURS = ("--store", "--json", "--quiet", "-q", "--report", "--markdown", "--junit", "--verbose", "-v", "--dry-run",
        "--help", "-h", "--help-all")  # fmt: skip
"""Options that a task has from the fleet, those that would write files on the host, and those that make no study."""

_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{0,79}")
_END_BYTES = 4096
"""How a task ended is written over blanks that were written before it began, so that a full disk cannot hide it."""

_NUMBER_BYTES = 16
"""Room for the number of a process, which is written over blanks, too."""

_READ_MAX = 64 * 1024
_SAID_MAX = 300

LINE_MAX, PLAN_MAX = 16 * 1024, 64 * 1024
"""The longest line of a task, and of one that is only planned."""

LOOK_MAX = 1024**2 + 2 * _READ_MAX
"""The most that the files of a task have: a run says how far it is in up to 1 MiB."""

ARMS_MAX = 64
"""The most configurations of one search over many hosts; of a larger one a host names one more, and no other."""

BREACHED = (4, 5)
"""Exit codes of a study that ran to its end, whose conditions are or may be breached."""

_INTERRUPTED = 130
_ASKED_SECONDS = 0.01
"""How long one who asks holds the lock at most; it takes some microseconds."""

LOOK_FIRST_SECONDS, LOOK_SECONDS = 0.5, 10.0
"""How soon a followed task is looked at again; the time doubles up to the longest one. Its end is noticed at once,
without a look. With many more processes than CPUs a look cost 9 ms of CPU, by cold caches (benchmarks/fleet_idle.py),
and following may cost a host that is measured 0.5 % at most."""

_UNKNOWN_SECONDS = 2.0
"""How soon a task is looked at again whose process is not known yet, or is just gone."""

_NUMBER_MAX = 1e9
"""The largest number that a host may give of trials, or of seconds."""

_PLANNED_SECONDS = 900.0
"""A study is planned in seconds; on storage that gives no answer it waits for ever."""

GOES_ON = (TaskState.RUNNING, TaskState.STUCK)
"""States of a task that a process carries."""

_LOADS_MAX = 256
"""The most back ends that a host may name."""

_PROGRESS = TypeAdapter(TaskProgress)


class TaskPlace:
    """The directory of a task: what it runs (`words`), what the process that carries it locks (`lock`), its number
    (`carrier`), the id of the study once that is known, what it printed (`log`), and how it ended (`end`).
    """

    def __init__(self, path: Path) -> None:
        self.path = path
        self.words, self.lock, self.carrier = path / "words.json", path / "lock", path / "pid"
        self.study, self.log, self.end = path / "study", path / "log", path / "end"


def place_of(task: str) -> TaskPlace:
    """Return the directory of a task. Raises UsageError for what is no name of one."""
    if not _NAME.fullmatch(task):
        raise UsageError(f"{printable(task, most=80)!r} is not the name of a task")
    return TaskPlace(data_directory() / "fleet-tasks" / task)


def own_store() -> Path:
    return data_directory() / "virtune.sqlite"


def require_words(words: Sequence[str]) -> None:
    """Raise UsageError for a verb that makes no study, and for options that the fleet itself gives."""
    if not words or (words[0] not in VERBS and list(words[:2]) != ["host", "check"]):
        said = f", and {printable(words[0], most=80)!r} makes none" if words else ", and none is named"
        hint = f"end the command with one of {', '.join(VERBS)} and its options"
        raise UsageError(f"a fleet runs studies{said}", hint=hint)
    for option in (word.partition("=")[0] for word in words[1:]):
        if option in OURS:
            raise UsageError(f"{option} has no place in a study of a fleet", hint="leave it out")


def begin(task: str, words: Sequence[str]) -> TaskProgress:
    """Begin a task, or go on with one that was killed; one that runs or is over is left as it is.

    Raises UsageError where a task of this name runs other words, PreconditionError where nothing can be written.
    """
    require_words(words)
    place = place_of(task)
    try:
        place.path.mkdir(mode=0o700, parents=True, exist_ok=True)
        text = json.dumps(list(words))
        if not place.words.exists():
            write_whole(place.words, text.encode())
        elif _text(place.words) != text:
            raise UsageError(f"a task {task} is here already, and runs something else")
        with opened(place.lock, os.O_RDWR | os.O_CREAT) as descriptor:
            if _taken(descriptor) and not _is_over(_end_in(_text(place.end))):
                write_whole(place.end, b" " * _END_BYTES)
                write_whole(place.carrier, b" " * _NUMBER_BYTES)  # an older carrier's number may be anybody's now
                carry = ("fleet", "here", task, "--carry", str(descriptor))
                # the lock goes with the descriptor: there is no moment in which nobody holds it
                started = detach([sys.executable, "-m", "virtune", *carry], log=place.log, keep=[descriptor])
                _write_over(place.carrier, str(started).encode())
    except OSError as error:
        raise PreconditionError(f"cannot begin {task} in {place.path}: {errors.words_of(error)}") from None
    return progress_of(task)


def progress_of(task: str) -> TaskProgress:
    """Return how far a task is."""
    place = place_of(task)
    if not place.words.exists():
        return WAITING
    study = study_of(task)
    run, began = run_of(own_store(), study) if study else None, 0.0
    with contextlib.suppress(OSError):
        began = place.carrier.stat().st_mtime
    carrier, held = _text(place.carrier).strip(), _is_held(place.lock)
    return _progress(study, run, carrier, began, _end_in(_text(place.end)), held=held, now=time.time())


def look_command(tasks: Sequence[str]) -> list[str]:
    """Return what prints the files of tasks on their host, without a Python: that host is being measured."""
    return ["sh", "-c", _LOOK, "sh", *tasks]


_LOOK = """
cd "${XDG_DATA_HOME:-$HOME/.local/share}/virtune" 2> /dev/null || exit 0
date +%s || exit 0
for task; do
  place=fleet-tasks/$task study= run= carrier= began=0 held=0
  [ -e "$place/words.json" ] || continue
  read -r study < "$place/study"
  file=virtune.sqlite-run-$study
  [ ! -e "$file" ] || flock -n -s "$file" true || run=$(head -n 1 "$file")
  [ ! -e "$place/pid" ] || began=$(stat -c %Y "$place/pid")
  read -r carrier < "$place/pid"
  [ ! -e "$place/lock" ] || flock -n -s "$place/lock" true || held=$?
  printf '%s\\n' "$task" "$study" "$run" "$carrier" "$began" "$held" "$(head -c 65536 "$place/end")"
done 2> /dev/null
"""
"""The end is read when it is known whether a process carries the task: it is written before that one is gone."""


def looked(text: str) -> dict[str, TaskProgress]:
    """Return how far tasks are by what `look_command` printed, by their names, of those that it could look at. Raises
    HostError for anything else.
    """
    (now, *lines), found = text.split("\n") if text else ["0"], dict[str, TaskProgress]()
    try:
        for first in range(0, len(lines) - 1, 7):
            task, study, run, carrier, began, held, end = lines[first : first + 7]
            if held in ("0", "1") and began:
                known = told if (told := run_in(run)) and told.study == study else None
                seen = (study, known, carrier, float(began), _end_in(end))
                found[task] = _checked(_progress(*seen, held=held == "1", now=float(now)))
    except (ValueError, OverflowError):
        raise _not_understood() from None
    return found


def _progress(
    study: str,
    run: RunProgress | None,
    carrier: str,
    began: float,
    end: TaskProgress | None,
    *,
    held: bool,
    now: float,
) -> TaskProgress:
    """Return how far a task is that was begun, by what its files say, read in this order."""
    if _is_over(end):
        return end
    if not held:
        # without a word of its process it is about to begin, or was killed before it did
        gone = bool(study or end or carrier)
        return TaskProgress(state=TaskState.KILLED if gone else TaskState.WAITING, study=study)
    if silent := _silent(study, run, began, now):
        hint = "`virtune fleet status --stop` ends it; what it waits for is often storage that gives no answer"
        return TaskProgress(state=TaskState.STUCK, study=study, said=silent, hint=hint, **_come_to(run))
    left = None if run is None or run.until is None else max(0.0, round(run.until - now))
    return TaskProgress(state=TaskState.RUNNING, study=study, left_seconds=left, **_come_to(run))


def _silent(study: str, run: RunProgress | None, began: float, now: float) -> str:
    """Say for how long nothing has happened in a task that is held, where that is longer than anything in it takes.

    Of a run that cannot write how far it is that is not known.
    """
    if run is not None and run.hangs(now):
        doing = run.step or run.now or "it was to begin"
        return f"nothing for {format_seconds(now - run.beat)} in: {doing}"[:_SAID_MAX]
    if not study and began and now - began > _PLANNED_SECONDS:
        return f"nothing for {format_seconds(now - began)}: no study was begun"
    return ""


def follow(task: str, *, seconds: float = LOOK_FIRST_SECONDS) -> Iterator[TaskProgress]:
    """Yield how far a task is now and then, first after so many seconds, and at its end, until it no longer runs.

    That it is said also where nothing changed tells whoever says it that the connection is gone.
    """
    while True:
        yield (found := progress_of(task))
        if found.state not in GOES_ON:
            return
        _await_end(place_of(task), seconds)
        seconds = min(2 * seconds, LOOK_SECONDS)


def _await_end(place: TaskPlace, seconds: float) -> None:
    """Wait so long, or until the process that carries a task is gone; meanwhile it costs nothing."""
    try:
        carrier = os.pidfd_open(int(_text(place.carrier)))
    except (OSError, ValueError):
        time.sleep(min(seconds, _UNKNOWN_SECONDS))
        return
    try:
        ending = select.poll()
        ending.register(carrier, select.POLLIN)
        ending.poll(seconds * 1000)
    finally:
        os.close(carrier)


def words_of(task: str) -> tuple[str, ...]:
    """Return what a task runs."""
    found = json.loads(_text(place_of(task).words))
    return tuple(str(one) for one in found)


def begun(task: str, study: str) -> None:
    """Note the study of a task, so that it can be resumed by whoever comes next."""
    write_whole(place_of(task).study, study.encode())


def ended(task: str, *, code: int, said: str, hint: str, run: RunProgress | None) -> None:
    """Note how a task ended, over the blanks that were kept for it."""
    state = TaskState.FINISHED if code in (0, *BREACHED) else TaskState.FAILED
    said, hint, study = said[:_SAID_MAX], hint[:_SAID_MAX], study_of(task)
    end = TaskProgress(state=state, study=study, code=code, said=said, hint=hint, **_come_to(run))
    _write_over(place_of(task).end, line_of(end).encode().ljust(_END_BYTES))


def study_of(task: str) -> str:
    """Return the study of a task; empty where none was begun."""
    return _text(place_of(task).study).strip()


def _write_over(path: Path, content: bytes) -> None:
    """Write into a file in place, which needs no room on the disk where it has been that long before."""
    with opened(path, os.O_WRONLY | os.O_CREAT) as descriptor:
        os.pwrite(descriptor, content, 0)
        os.fsync(descriptor)


def stop(task: str) -> None:
    """Ask a task that runs to stop, as Ctrl-C would; what is finished is kept, and a later call goes on with it."""
    place = place_of(task)
    with contextlib.suppress(OSError, ValueError):
        if _is_held(place.lock):
            os.kill(int(_text(place.carrier)), signal.SIGTERM)


def line_of(progress: TaskProgress) -> str:
    """Write how far a task is as one line of JSON."""
    return _PROGRESS.dump_json(progress).decode()


def progress_in(text: str) -> TaskProgress:
    """Read the line of another host. Raises HostError for anything else."""
    try:
        return _checked(_PROGRESS.validate_json(text.strip()))
    except ValueError:
        raise _not_understood() from None


def _checked(found: TaskProgress) -> TaskProgress:
    """Return what another host says of a task. Raises ValueError for what cannot be so."""
    numbers = (found.done, found.total, found.left_seconds or 0.0, abs(found.code or 0))
    # its numbers are some, and its study's id may be a word of a command
    named = not found.study or _NAME.fullmatch(found.study)
    few = len(found.loads) <= _LOADS_MAX and len(found.arms) <= ARMS_MAX + 1
    if not (all(0 <= one <= _NUMBER_MAX for one in numbers) and named and few):
        raise ValueError(found.study)
    return replace(found, loads=tuple(printable(one, most=NAME_MAX) for one in found.loads))


def _not_understood() -> HostError:
    return HostError("what its virtune said of the task is not to be understood")


def _end_in(text: str) -> TaskProgress | None:
    try:
        return _PROGRESS.validate_json(text.strip())
    except ValueError:
        return None


def _is_over(end: TaskProgress | None) -> TypeGuard[TaskProgress]:
    """Whether a task that does not run has nothing left to do."""
    return end is not None and end.code != _INTERRUPTED


def _text(path: Path) -> str:
    with contextlib.suppress(OSError):
        return read_bounded(path, _READ_MAX).decode(errors="replace")
    return ""


def _taken(descriptor: int) -> bool:
    """Lock a task for the one who carries it; False where somebody does already."""
    while not _locks(descriptor, fcntl.LOCK_EX):
        if not _locks(descriptor, fcntl.LOCK_SH):
            return False
        # somebody only asks. Two who begin at once would wait for each other if they kept what they asked with
        fcntl.flock(descriptor, fcntl.LOCK_UN)
        time.sleep(_ASKED_SECONDS)
    return True


def _locks(descriptor: int, how: int) -> bool:
    """Lock a task where no other lock stands against it: all who ask share one, for a moment."""
    with contextlib.suppress(BlockingIOError):
        fcntl.flock(descriptor, how | fcntl.LOCK_NB)
        return True
    return False


def _is_held(lock: Path) -> bool:
    """Whether a process carries the task."""
    with contextlib.suppress(OSError), opened(lock, os.O_RDONLY) as descriptor:
        return not _locks(descriptor, fcntl.LOCK_SH)
    return False


def _come_to(run: RunProgress | None) -> dict[str, Any]:
    """Return how far a run is, with the verdicts so far: of one pair its own, of several how many are decided."""
    if run is None:
        return {}
    said = run.search or (f"{run.decided} of {run.compared} decided" if run.compared else "")
    if not run.search and run.compared == 1 and run.pairs:
        one = run.pairs[0]
        said = f"{one.candidate}: {one.verdict}{f', {one.difference}' if one.difference else ''}"
    return {"done": run.done, "total": run.total, "verdict": said[:_SAID_MAX]}


def said_by(log: str) -> tuple[str, str]:
    """Return the last error in what was printed, else its last line, and the hint; empty where there is none."""
    said, hint = error_in(log) or (last_line(log) or "", "")
    return said, hint or ""
