# SPDX-License-Identifier: Apache-2.0
"""`virtune fleet here`: what a fleet asks of the virtune of a host. No user types it."""

import contextlib
import io
import os
import signal
import sys
from collections.abc import Sequence
from typing import TYPE_CHECKING, TextIO

import click

from virtune.model.errors import UsageError

if TYPE_CHECKING:
    from virtune.model.fleet import TaskProgress

TAIL_MAX = 8000


@click.command(name="here", hidden=True)
@click.argument("task")
@click.argument("words", nargs=-1, type=click.UNPROCESSED)
@click.option("--follow", is_flag=True, help="Go on until it no longer runs, a line for each change.")
@click.option("--estimate", is_flag=True, help="Say how long it would take, and begin nothing.")
@click.option("--up", is_flag=True, help="Bring the configurations of a search up once, and name those that start.")
@click.option("--stop", is_flag=True, help="Ask it to stop; what is finished is kept.")
@click.option("--rows", is_flag=True, help="Write the study TASK as a bundle of its rows and captures.")
@click.option("--changes", is_flag=True, help="Write what the journal of the change TASK holds.")
@click.option("--carry", type=int, default=None, metavar="FD", help="Run it, holding this lock.")
def here(task: str, words: tuple[str, ...], *, carry: int | None, **asked: bool) -> int:
    """Begin TASK with the WORDS of a study, or say how far it is: a line of JSON."""
    from virtune.flows.fleet import here as fleet_here

    if carry is not None:
        return _carry(task, carry)
    if asked["rows"]:
        from virtune.flows.stored.import_bundle import rows_bundle
        from virtune.store.store import Store

        with Store(fleet_here.own_store(), reading=True) as store:
            sys.stdout.buffer.write(rows_bundle(store, task))
        return 0
    if asked["changes"]:
        from virtune.apply.journal import Journal
        from virtune.flows.fleet.apply import JOURNALS, entries_text
        from virtune.shell import data_directory

        click.echo(entries_text(Journal(data_directory() / JOURNALS / task)))
        return 0
    if asked["estimate"]:
        click.echo(fleet_here.line_of(_estimated(words, up=asked["up"])))
        return 0
    if words:
        fleet_here.begin(task, words)
    if asked["stop"]:
        fleet_here.stop(task)
    for found in fleet_here.follow(task) if asked["follow"] else (fleet_here.progress_of(task),):
        click.echo(fleet_here.line_of(found))
        sys.stdout.flush()
    return 0


class Kept(io.TextIOBase):
    """Keeps the end of what is written, and writes it on where it can: a full disk does not end a study."""

    def __init__(self, stream: TextIO | None) -> None:
        self._stream, self.tail = stream, ""

    def write(self, text: str) -> int:
        """Keep a text and write it."""
        self.tail = (self.tail + text)[-TAIL_MAX:]
        if self._stream is not None:
            with contextlib.suppress(OSError):
                self._stream.write(text)
                self._stream.flush()
        return len(text)

    def writable(self) -> bool:
        """Whether this can be written to."""
        return True


def _estimated(words: Sequence[str], *, up: bool) -> "TaskProgress":
    """Plan a study up to its first step: how long it would take, or why it cannot run here. With `up` configurations
    that do not come up are left out of a search.
    """
    from virtune.bench.volumes import seen_at
    from virtune.cli import run
    from virtune.cli.common.progress import CarriedStudy, EstimatedError
    from virtune.flows.fleet import here as fleet_here
    from virtune.model.fleet import TaskProgress, TaskState
    from virtune.model.study import Study
    from virtune.probe.backends import backends_of

    fleet_here.require_words(words)
    told: list[TaskProgress] = []

    def planned(study: Study, seconds: float | None) -> None:
        loads = backends_of(study.target or seen_at(study.scratch))
        arms = study.arms[: fleet_here.ARMS_MAX + 1] if study.search else ()
        named = tuple((one.name, one.settings) for one in arms)
        told.append(TaskProgress(state=TaskState.WAITING, left_seconds=seconds, loads=loads, arms=named))
        raise EstimatedError("only how long it takes was asked")

    err = Kept(None)
    with contextlib.redirect_stdout(Kept(None)), contextlib.redirect_stderr(err):
        code = run([*words, "--quiet"], carried=CarriedStudy(begin=lambda _: None, planned=planned, up=up))
    if told:
        return told[0]
    said, hint = fleet_here.said_by(err.tail) if code else ("these words make no study", "name what to measure")
    return TaskProgress(state=TaskState.FAILED, code=code or UsageError.exit_code, said=said, hint=hint)


def _carry(task: str, lock: int) -> int:
    """Run a task to its end; the lock is held until this process is gone."""
    from virtune.cli import run
    from virtune.cli.common.progress import CarriedStudy
    from virtune.flows.fleet import here as fleet_here
    from virtune.store.store import Store

    os.set_inheritable(lock, False)  # noqa: FBT003 - it has no other form
    signal.signal(signal.SIGHUP, signal.SIG_IGN)
    signal.signal(signal.SIGTERM, signal.default_int_handler)
    words, study = fleet_here.words_of(task), fleet_here.study_of(task)
    if study:
        with Store(fleet_here.own_store()) as store:
            # it was killed after it had told its name: without the study in the store it begins anew
            words = ("resume", study) if store.has(study) else words
    carried = CarriedStudy(begin=lambda name: fleet_here.begun(task, name))
    err = Kept(sys.stderr)
    with contextlib.redirect_stdout(Kept(sys.stdout)), contextlib.redirect_stderr(err):
        code = run([*words, "--quiet"], carried=carried)
    said, hint = ("", "") if code in (0, *fleet_here.BREACHED) else fleet_here.said_by(err.tail)
    fleet_here.ended(task, code=code, said=said, hint=hint, run=carried.run)
    return code
