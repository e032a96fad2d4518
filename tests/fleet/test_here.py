# SPDX-License-Identifier: Apache-2.0
"""A task of a fleet on this host, where it does not come to running."""

import contextlib
import fcntl
import os
import re
import shutil
import subprocess
import time
from dataclasses import replace
from pathlib import Path
from threading import Thread

import pytest
from tests.conftest import eventually

from virtune.fleet.ssh import HostError
from virtune.flows.fleet.here import begin, ended, follow, look_command, looked, own_store, place_of, progress_of
from virtune.model.errors import PreconditionError
from virtune.model.fleet import TaskProgress, TaskState
from virtune.store.progress import ProgressFile, RunProgress


def looked_at(task: str) -> TaskProgress:
    """How far a task is, by its files as another host reads them."""
    done = subprocess.run(look_command([task]), capture_output=True, text=True, check=True)
    assert done.stderr == ""
    return looked(done.stdout)[task]


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
    assert progress_of("run-0").state is looked_at("run-0").state is TaskState.WAITING
    place.carrier.write_text("1234")
    assert progress_of("run-0").state is looked_at("run-0").state is TaskState.KILLED


@pytest.mark.parametrize(
    ("study", "run", "silent", "said"),
    [
        ("s1", {"quiet_seconds": 100.0, "now": "trial 3 of 9"}, 152.0, r"nothing for 2 min 3\d s in: trial 3 of 9"),
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
        every = progress_of("run-0"), looked_at("run-0")
    for found in every:
        assert found.state is (TaskState.STUCK if said else TaskState.RUNNING)
        assert re.fullmatch(said, found.said)
        assert bool(found.hint) == bool(said)
    assert looked_at("run-0") == progress_of("run-0")
    assert progress_of("run-0").state is TaskState.KILLED


def test_a_look_from_outside_finds_what_the_host_itself_would_say(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("XDG_DATA_HOME", str(tmp_path / "none"))
    done = subprocess.run(look_command(["run-0"]), capture_output=True, text=True, check=True)
    assert (looked(done.stdout), done.stdout) == ({}, ""), "where nothing was begun there is no directory"
    monkeypatch.setenv("XDG_DATA_HOME", str(tmp_path))
    place = place_of("run-0")
    place.path.mkdir(parents=True)
    for path, text in ((place.words, '["check"]'), (place.study, "s1"), (place.carrier, "1  ")):
        path.write_text(text)
    left = RunProgress(
        study="s1", title="t", until=time.time() + 3600, done=3, total=9, search="3 of 4 'are' \\n out"
    )
    with place.lock.open("w") as lock, ProgressFile(own_store(), "s1") as file:
        fcntl.flock(lock, fcntl.LOCK_EX)
        file.write(left)
        found, said = looked_at("run-0"), progress_of("run-0")
        assert (found.state, found.done, found.total, found.verdict) == (TaskState.RUNNING, 3, 9, left.search)
        assert (said.state, said.done, said.total, said.verdict) == (TaskState.RUNNING, 3, 9, left.search)
        assert 3500 < (found.left_seconds or 0) <= 3601
        other = '{"virtune_run":1,"study":"s2","title":"t","done":7,"total":9}'
        for what, text in (("torn", '{"virtune_run":1,"study":"s'), ("no run", "[]"), ("of another study", other)):
            own_store().with_name("virtune.sqlite-run-s1").write_text(f"{text}\n")
            assert looked_at("run-0") == progress_of("run-0"), what
    ended("run-0", code=0, said="all 'is' said", hint="", run=left)
    assert looked_at("run-0") == progress_of("run-0")
    assert looked_at("run-0").state is TaskState.FINISHED
    ended("run-0", code=1, said="\x01" * 300, hint="\x02" * 300, run=replace(left, search="\x03" * 300))
    assert place.end.stat().st_size > 4096
    assert looked_at("run-0") == progress_of("run-0")
    ended("run-0", code=130, said="", hint="", run=left)
    assert looked_at("run-0").state is progress_of("run-0").state is TaskState.KILLED
    assert sorted(one.name for one in place.path.iterdir()) == ["end", "lock", "pid", "study", "words.json"]
    found_at = {name: shutil.which(name) or "" for name in ("date", "stat", "flock", "head", "true")}
    for lacking in ("date", "stat", "flock"):
        programs = tmp_path / f"without-{lacking}"
        programs.mkdir()
        for name in found_at.keys() - {lacking}:
            (programs / name).symlink_to(found_at[name])
        monkeypatch.setenv("PATH", str(programs))
        done = subprocess.run(["/bin/sh", *look_command(["run-0"])[1:]], capture_output=True, text=True, check=True)
        assert looked(done.stdout) == {}, "what cannot be looked at so is not known: its virtune is asked"


RUNS = {"until": '"until":{}', "beat": '"quiet_seconds":1.0,"beat":{}', "done": '"done":{}', "total": '"total":{}'}


@pytest.mark.parametrize(
    "text",
    [
        "1\nrun-0\n",
        "1\nrun-0\ns\n\n1\nx\n0\n\n",
        "1\nr\na b\n\n1\n1\n1\n\n",
        "x\nt\ns\n\n1\n1\n1\n\n",
        *(f"{number}\nt\n\n\n1\n1\n1\n\n" for number in ("inf",)),
        *(f"1e9\nt\n\n\n1\n{number}\n1\n\n" for number in ("-inf", "x")),
        *(f'1e9\nt\ns\n{{"virtune_run":1,"study":"s","title":"t",{RUNS["until"].format(number)}}}\n1\n1\n1\n\n'
          for number in ("Infinity", "1e400", "NaN", "1e300")),
        f'1e9\nt\ns\n{{"virtune_run":1,"study":"s","title":"t",{RUNS["beat"].format("-1e400")}}}\n1\n1\n1\n\n',
        f'1e9\nt\ns\n{{"virtune_run":1,"study":"s","title":"t",{RUNS["done"].format("-1")}}}\n1\n1\n1\n\n',
        f'1e9\nt\ns\n{{"virtune_run":1,"study":"s","title":"t",{RUNS["total"].format("9" * 30)}}}\n1\n1\n1\n\n',
    ],
)  # fmt: skip
def test_what_no_look_prints_is_not_understood(text: str) -> None:
    with pytest.raises(HostError, match="not to be understood"):
        looked(text)


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
