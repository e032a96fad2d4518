# SPDX-License-Identifier: Apache-2.0
"""One study on several hosts over real ssh, and what may befall it: cut off, killed, a full disk; nothing is lost."""

import contextlib
import fcntl
import json
import os
import shutil
import signal
import subprocess
import sys
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from tests.conftest import User, eventually
from tests.fleet.machines import Machine, Machines, call, machines

from virtune.cli import run
from virtune.flows.fleet.ask import FleetAccess
from virtune.flows.fleet.here import line_of
from virtune.flows.fleet.run import watched
from virtune.model.evidence import Listed
from virtune.model.fleet import FleetHost, FleetRun, FleetTask, TaskProgress, TaskState
from virtune.store.store import Store

pytestmark = [pytest.mark.real, pytest.mark.xdist_group("fleet")]

Capture = pytest.CaptureFixture[str]
STUDY = ["compare", "--arm", "x:rig=simulated", "--arm", "y:rig=simulated,disk.aio=io_uring", "--seed", "3"]


@pytest.fixture(scope="module")
def fleet(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Machines]:
    """Four hosts."""
    with machines(tmp_path_factory.mktemp("run"), "a", "b", "c", "d") as found:
        yield found


@pytest.fixture(autouse=True)
def home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Plans of runs are kept apart from everybody else's."""
    monkeypatch.setenv("XDG_DATA_HOME", str(tmp_path / "home"))


def document(words: list[str], capfd: Capture, status: int = 0) -> dict[str, Any]:
    capfd.readouterr()
    assert run(words) == status
    found: dict[str, Any] = json.loads(capfd.readouterr().out)
    return found


def task_of(machine: Machine) -> Path:
    """The directory of a host's only new task."""
    (found,) = (machine.place / "data" / "virtune" / "fleet-tasks").glob("*")
    return found


def stopped(machine: Machine) -> int:
    """Wait until a host's study runs, and stop its process in mid-run; returns its number."""

    def begun() -> bool:
        with contextlib.suppress(ValueError, OSError):
            return (task_of(machine) / "study").exists() and bool((task_of(machine) / "pid").read_text().strip())
        return False

    assert eventually(begun, seconds=120)
    pid = int((task_of(machine) / "pid").read_text())
    os.kill(pid, signal.SIGSTOP)
    return pid


def kept(machine: Machine) -> list[tuple[str, int, int]]:
    """The studies in a host's own store, with their trials and attempts."""
    with Store(machine.place / "data" / "virtune" / "virtune.sqlite", reading=True) as store:
        ids = [one.study.id for one in store.list() if isinstance(one, Listed)]
        return [(one, len(store.get(one).trials), len(store.get(one).attempts)) for one in ids]


def new_task(machine: Machine) -> None:
    """Forget the tasks and studies of a host."""
    shutil.rmtree(machine.place / "data" / "virtune", ignore_errors=True)


def test_a_connection_that_is_cut_and_a_study_that_is_killed_cost_no_trial(
    fleet: Machines, tmp_path: Path, capfd: Capture
) -> None:
    machine = fleet.by_name["b"]
    new_task(machine)
    failed: list[BaseException] = []

    def disturb() -> None:
        try:
            pid = stopped(machine)
            first = machine.sessions()
            for one in first:
                os.kill(one, signal.SIGKILL)
            assert eventually(lambda: not set(machine.sessions()) <= set(first), seconds=120), "not connected again"
            os.kill(pid, signal.SIGKILL)  # its guard and the connection go on
        except BaseException as error:  # noqa: BLE001 - told to the test
            failed.append(error)

    other = threading.Thread(target=disturb)
    other.start()
    try:
        asked = ["fleet", "run", "--ssh-config", str(fleet.config), "--host", "b", "--into", str(tmp_path / "all")]
        (one,) = document([*asked, "--json", *STUDY], capfd)["tasks"]
    finally:
        other.join()
    assert failed == []
    assert (one["state"], one["trials_done"]) == ("finished", 12)
    assert kept(machine) == [(one["study"], 12, 12)]
    with Store(tmp_path / "all" / "b.sqlite", reading=True) as store:
        assert len(store.get(one["study"]).attempts) == 12


@pytest.mark.long(
    always="that a host may still be measuring is known to the next call in each run (test_schedule.py)"
)
def test_a_controller_that_is_killed_finds_the_study_again_and_measures_nothing_beside_it(
    fleet: Machines, tmp_path: Path, capfd: Capture
) -> None:
    for name in ("c", "d"):
        new_task(fleet.by_name[name])
    machine = fleet.by_name["c"]
    (tmp_path / "hosts").write_text("c shares=san\nd shares=san\n")  # which seed 0 leaves in this order
    place = ["--into", str(tmp_path / "all"), "--json"]
    hosts = ["-i", str(tmp_path / "hosts"), "--ssh-config", str(fleet.config)]
    words = [sys.executable, "-m", "virtune", "fleet", "run", *hosts, *place, *STUDY]
    with subprocess.Popen(words, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL) as controller:
        try:
            pid = stopped(machine)
        finally:
            controller.kill()
    again = ["fleet", "run", "--again", "last", "--patience", "1s", *place]
    machine.link("down")
    try:
        states = states_of(document(again, capfd, status=1))
    finally:
        machine.link("up")
    assert states == {"c": "lost", "d": "waiting"}, "c may still be measuring what d shares with it"
    assert states_of(document(["fleet", "status", "--json"], capfd)) == {"c": "running", "d": "waiting"}
    os.kill(pid, signal.SIGCONT)
    found = document(again, capfd)
    assert states_of(found) == {"c": "finished", "d": "finished"}
    (one,) = [one for one in found["tasks"] if one["host"] == "c"]
    assert kept(machine) == [(one["study"], 12, 12)]
    capfd.readouterr()
    assert run(["fleet", "status"]) == 0
    assert f"c     finished  12/12   -     {one['study']}  y: better" in capfd.readouterr().out


def states_of(found: dict[str, Any]) -> dict[str, str]:
    return {one["host"]: one["state"] for one in found["tasks"]}


@pytest.mark.long(always="a connection that is cut is in each run, above")
def test_a_link_that_is_down_in_mid_run_costs_no_trial(fleet: Machines, tmp_path: Path, capfd: Capture) -> None:
    machine = fleet.by_name["a"]
    new_task(machine)
    failed: list[BaseException] = []

    def disturb() -> None:
        try:
            pid = stopped(machine)
            machine.link("down")
            try:
                os.kill(pid, signal.SIGCONT)
                ended = task_of(machine) / "end"
                assert eventually(lambda: bool(ended.read_text().strip()), seconds=120), "it went on without the link"
            finally:
                machine.link("up")
        except BaseException as error:  # noqa: BLE001 - told to the test
            failed.append(error)

    other = threading.Thread(target=disturb)
    other.start()
    try:
        asked = ["fleet", "run", "--ssh-config", str(fleet.config), "--host", "a", "--into", str(tmp_path / "all")]
        (one,) = document([*asked, "--json", *STUDY], capfd)["tasks"]
    finally:
        other.join()
    assert failed == []
    assert kept(machine) == [(one["study"], 12, 12)]
    with Store(tmp_path / "all" / "a.sqlite", reading=True) as store:
        assert store.is_finished(one["study"])


def test_a_full_disk_and_an_unknown_option_are_one_sentence_each(
    fleet: Machines, tmp_path: Path, capfd: Capture
) -> None:
    machine = fleet.by_name["d"]
    new_task(machine)
    assert machine.sshd is not None
    inside = ["nsenter", "-t", str(machine.sshd.pid), "-m", "--"]
    data = machine.place / "data" / "virtune"
    data.mkdir()
    call(*inside, "mount", "-t", "tmpfs", "-o", "size=80k", "none", str(data))
    try:
        asked = ["fleet", "run", "--ssh-config", str(fleet.config), "--host", "d", "--into", str(tmp_path / "all")]
        (one,) = document([*asked, "--json", *STUDY], capfd, status=1)["tasks"]
        assert one["state"] == "failed"
        assert "no space left on" in one["because"]
    finally:
        call(*inside, "umount", "-l", str(data))
    assert run([*asked, *STUDY, "--no-such-option"]) == 1
    said = capfd.readouterr().out
    assert "d     failed  -       -     -      no such option '--no-such-option'" in said
    assert "\nd: `virtune compare --help`\n1 of 1 not finished: its words are wrong, so begin another run\n" in said


@pytest.mark.long(always="gathering is in each run, in test_chain.py")
def test_what_cannot_be_kept_here_is_gathered_later(fleet: Machines, tmp_path: Path, capfd: Capture) -> None:
    machine = fleet.by_name["d"]
    new_task(machine)
    asked = ["fleet", "run", "--ssh-config", str(fleet.config), "--host", "d", "--into", str(tmp_path / "all")]
    blocked = tmp_path / "all" / "d.sqlite"
    blocked.mkdir(parents=True)
    (one,) = document([*asked, "--patience", "1s", "--json", *STUDY], capfd, status=1)["tasks"]
    assert one["state"] == "failed"
    assert "finished there, and not gathered: cannot use the store" in one["because"]
    blocked.rmdir()
    place = ["--into", str(tmp_path / "all"), "--json"]
    (one,) = document(["fleet", "run", "--again", "last", *place], capfd)["tasks"]
    assert kept(machine) == [(one["study"], 12, 12)]


def test_one_that_is_interrupted_before_any_study_began_says_so(user: User, tmp_path: Path) -> None:
    programs, asked = tmp_path / "bin", tmp_path / "asked"
    programs.mkdir()
    (programs / "ssh").write_text(f"#!/bin/sh\ntouch {asked}\nexec sleep 600\n")
    (programs / "ssh").chmod(0o755)
    user.env["PATH"] = f"{programs}:{user.env['PATH']}"
    (tmp_path / "hosts").write_text("a\nb\n")
    child = user.start("fleet", "run", "-i", str(tmp_path / "hosts"), *STUDY)
    assert eventually(asked.exists, seconds=120)
    child.send_signal(signal.SIGINT)
    _, said = child.communicate(timeout=120)
    assert "interrupted: no study had begun on any host" in said
    assert "begins them" in said


def test_words_that_no_fleet_runs_are_refused_before_any_host_is_asked(fleet: Machines, capfd: Capture) -> None:
    asked = ["fleet", "run", "--ssh-config", str(fleet.config)]
    for words, said in (
        (["clean"], "a fleet runs studies, and 'clean' makes none"),
        (["host", "check", "--store", "x"], "--store has no place in a study of a fleet"),
        ([*STUDY, "--dry-run"], "--dry-run has no place in a study of a fleet"),
        (["measure", "--help-all"], "--help-all has no place in a study of a fleet"),
        (["tune", "-h"], "-h has no place in a study of a fleet"),
        (["--reference", "z", "check"], "the reference host 'z' is not among the hosts"),
        (["--again", "last", "check"], "--again goes on with a run, which has its study already"),
    ):
        assert run([*asked, *words]) == 2
        assert said in capfd.readouterr().err
    assert run(["fleet", "status", "nosuch"]) == 2
    assert "no run 'nosuch' of a fleet" in capfd.readouterr().err


def test_a_watched_task_is_followed_over_one_connection(fleet: Machines) -> None:
    """Each look anew would connect and start a Python on a host that is being measured."""
    machine, name = fleet.by_name["a"], "watched.0"
    new_task(machine)
    there = machine.place / "data" / "virtune" / "fleet-tasks" / name
    there.mkdir(parents=True)
    (there / "words.json").write_text('["check"]')
    (there / "pid").write_text(str(os.getpid()))
    program, calls = machine.place / "bin" / "virtune", machine.place / "calls"
    before = program.read_text()
    program.write_text(before.replace("#!/bin/sh\n", f'#!/bin/sh\necho "$@" >> {calls}\n'))
    host = FleetHost(name="a", target="a", config=str(fleet.config))
    task = FleetTask(name=name, host=host, part=0)
    asked = FleetRun(name="watched", created="", words=("check",), tasks=(task,), at_once=1, shares="shares")
    states: list[TaskState] = []
    try:
        with (there / "lock").open("w") as lock:
            fcntl.flock(lock, fcntl.LOCK_EX)
            for found in watched(asked, FleetAccess(), seconds=0.1):
                states.append(found[name].state)
                if len(states) == 5 and states[-1] is TaskState.RUNNING:
                    (there / "end").write_text(line_of(TaskProgress(state=TaskState.FINISHED, code=0)))
    finally:
        program.write_text(before)
    said = [line for line in calls.read_text().splitlines() if line != "--version"]
    assert said == [f"fleet here {name} --follow"], "a look reads files, and starts no Python"
    assert states == [TaskState.RUNNING] * (len(states) - 1) + [TaskState.FINISHED]
    assert len(states) > 5
