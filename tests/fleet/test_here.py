# SPDX-License-Identifier: Apache-2.0
"""A task of a fleet on this host, where it does not come to running."""

import contextlib
import fcntl
import os
import re
import subprocess
import time
from pathlib import Path
from threading import Thread

import pytest
from tests.conftest import eventually

from virtune.flows.fleet.here import begin, follow, own_store, place_of, progress_of
from virtune.model.errors import PreconditionError
from virtune.model.fleet import TaskState
from virtune.store.progress import ProgressFile, RunProgress


def test_a_task_that_is_begun_again_forgets_the_process_that_carried_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The number may be another process's by now, and `stop` ends whatever has it."""
    monkeypatch.setenv("XDG_DATA_HOME", str(tmp_path))
    place = place_of("run-0")
    place.log.mkdir(parents=True)  # so that it cannot start
    place.carrier.write_text(str(os.getpid()))
    with pytest.raises(PreconditionError, match="cannot begin run-0"):
        begin("run-0", ["check"])
    assert place.carrier.read_text().strip() == ""


def test_a_task_that_is_about_to_begin_waits_and_was_not_killed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Who asks between the task's words and its lock is told so, and not that it was killed."""
    monkeypatch.setenv("XDG_DATA_HOME", str(tmp_path))
    place = place_of("run-0")
    place.path.mkdir(parents=True)
    place.words.write_text('["check"]')
    assert progress_of("run-0").state is TaskState.WAITING
    place.carrier.write_text("1234")
    assert progress_of("run-0").state is TaskState.KILLED


@pytest.mark.parametrize(
    ("study", "run", "silent", "said"),
    [
        ("s1", {"quiet_seconds": 100.0, "now": "trial 3 of 9"}, 150.0, r"nothing for 2 min 3\d s in: trial 3 of 9"),
        ("s1", {"quiet_seconds": 100.0, "step": "fill", "now": "x"}, 7201.0, r"nothing for 2 h.* in: fill"),
        ("s1", {"quiet_seconds": 100.0, "now": "trial 3 of 9"}, 98.0, ""),
        ("s1", {"now": "of a run that has not said how long it may be silent"}, 1e6, ""),
        ("s1", None, 1e6, ""),
        ("", None, 901.0, r"nothing for 15 min.*: no study was begun"),
        ("", None, 890.0, ""),
    ],
)
def test_a_task_in_which_nothing_happens_is_stuck(
    study: str, run: dict[str, object] | None, silent: float, said: str, tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:  # fmt: skip
    """What carries it is there, and says nothing for longer than anything that it does takes."""
    monkeypatch.setenv("XDG_DATA_HOME", str(tmp_path))
    place = place_of("run-0")
    place.path.mkdir(parents=True)
    for path, text in ((place.words, '["check"]'), (place.study, study), (place.carrier, "1")):
        path.write_text(text)
    os.utime(place.carrier, (time.time() - silent,) * 2)
    with place.lock.open("w") as lock, contextlib.ExitStack() as running:
        fcntl.flock(lock, fcntl.LOCK_EX)
        if run is not None:
            file = running.enter_context(ProgressFile(own_store(), study))
            file.write(RunProgress(study=study, title="t", beat=time.time() - silent, **run))  # type: ignore[arg-type]
        found = progress_of("run-0")
    assert found.state is (TaskState.STUCK if said else TaskState.RUNNING)
    assert re.fullmatch(said, found.said)
    assert bool(found.hint) == bool(said)


def test_two_that_begin_a_task_while_somebody_asks_do_not_wait_for_each_other(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("XDG_DATA_HOME", str(tmp_path))
    place = place_of("run-0")
    place.log.mkdir(parents=True)  # so that it cannot start
    said: list[str] = []

    def try_it() -> None:
        try:
            begin("run-0", ["check"])
        except PreconditionError as error:
            said.append(error.message)

    both = [Thread(target=try_it, daemon=True) for _ in range(2)]
    with place.lock.open("w") as asker:
        fcntl.flock(asker, fcntl.LOCK_SH)
        for one in both:
            one.start()
        time.sleep(0.1)  # both have met it, as a rule; whether they did changes nothing in what must come out
    for one in both:
        one.join(60)
    assert not any(one.is_alive() for one in both)
    assert "cannot begin run-0" in said[0], "one of them had the lock"


def test_the_end_of_a_followed_task_is_noticed_without_a_look(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A look each second would cost a host that is measured a percent of a CPU."""
    monkeypatch.setenv("XDG_DATA_HOME", str(tmp_path))
    place, said = place_of("run-0"), list[TaskState]()
    place.path.mkdir(parents=True)
    place.words.write_text('["check"]')
    with place.lock.open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        carrier = subprocess.Popen(["sleep", "600"], pass_fds=[lock.fileno()])  # it carries the lock on
    with carrier:
        place.carrier.write_text(f"{carrier.pid}    ")

        def listen() -> None:
            for one in follow("run-0", seconds=500.0):
                said.append(one.state)

        listener = Thread(target=listen, daemon=True)
        try:
            listener.start()
            assert eventually(lambda: bool(said))
        finally:
            carrier.kill()
        listener.join(100)
    assert said == [TaskState.RUNNING, TaskState.KILLED]
