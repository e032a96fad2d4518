# SPDX-License-Identifier: Apache-2.0
"""One search over several hosts over real ssh: one on which a setting does something else, a controller that is
killed; and what hosts may say of their configurations."""

import json
import os
import shutil
import signal
import subprocess
import sys
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from tests.conftest import eventually
from tests.fleet.machines import Machine, Machines, machines
from tests.published import complaints

from virtune.cli import run
from virtune.flows.fleet.ask import FleetAccess
from virtune.flows.fleet.here import ARMS_MAX
from virtune.flows.fleet.results import FleetFolder
from virtune.flows.fleet.run import RUNS, Carrying, OpenTasks
from virtune.flows.fleet.tune import common_arms, search_fleet, shared_out, wrong_arms
from virtune.model.errors import UsageError
from virtune.model.evidence import Listed
from virtune.model.fleet import FleetHost, FleetPhase, FleetRun, FleetSearch, FleetTask, TaskState
from virtune.model.tuning import Recommendation
from virtune.report.pages.fleet import tuned_lines
from virtune.store.store import Store

Capture = pytest.CaptureFixture[str]
SEARCH = ["--set", "rig=simulated", "--vary", "disk.aio"]

PLANTED = """
import virtune.bench.simulated as hardware
usual = hardware.effect_of
hardware.effect_of = lambda stack: usual(stack) * (FACTOR if stack.disk.aio == "native" else 1.0)
"""
"""What makes a host's simulated disk another one."""

FACTORS = {"a": 0.85, "b": 0.85, "c": 1.35}
"""Of native on each host: io_uring is the best on two and in the mean of all three, and native on the last."""


@pytest.fixture(scope="module")
def fleet(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Machines]:
    """Three hosts, of which the last one is of another kind."""
    with machines(tmp_path_factory.mktemp("tune"), *FACTORS) as found:
        for name, factor in FACTORS.items():
            machine = found.by_name[name]
            (machine.place / "planted").mkdir()
            text = PLANTED.replace("FACTOR", f"{factor}")
            (machine.place / "planted" / "sitecustomize.py").write_text(text)
            program = machine.place / "bin" / "virtune"
            *before, last = program.read_text().splitlines(keepends=True)
            program.write_text("".join([*before, f"export PYTHONPATH={machine.place}/planted:$PYTHONPATH\n", last]))
        yield found


@pytest.fixture(autouse=True)
def home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Plans of searches are kept apart from everybody else's."""
    monkeypatch.setenv("XDG_DATA_HOME", str(tmp_path / "home"))


def studies(machine: Machine) -> int:
    """How many studies a host has measured."""
    with Store(machine.place / "data" / "virtune" / "virtune.sqlite", reading=True) as store:
        return sum(isinstance(one, Listed) for one in store.list())


def begun(machine: Machine) -> bool:
    return any((machine.place / "data" / "virtune" / "fleet-tasks").glob("*/study"))


@pytest.mark.real
@pytest.mark.xdist_group("fleet")
def test_a_search_over_hosts_goes_on_after_a_kill_and_names_the_host_where_another_is_better(
    fleet: Machines, tmp_path: Path, capfd: Capture
) -> None:
    hosts = [word for name in fleet.by_name for word in ("--host", name)]
    words = ["fleet", "tune", "--ssh-config", str(fleet.config), *hosts, *SEARCH]
    with (tmp_path / "log").open("wb") as log:
        killed = subprocess.Popen([sys.executable, "-m", "virtune", *words], stdout=log, stderr=log)
        assert eventually(lambda: begun(fleet.by_name["a"]), seconds=120), (tmp_path / "log").read_text()
        os.kill(killed.pid, signal.SIGKILL)
        killed.wait(60)
    assert "3 configurations race on 3 hosts" in (tmp_path / "log").read_text()
    assert run(["fleet", "tune", "--again", "last", "--json"]) == 0
    told: dict[str, Any] = json.loads(capfd.readouterr().out)
    assert complaints("fleet-tune", told) == []
    assert {one["state"] for one in told["tasks"]} == {"finished"}
    # nothing was measured twice: each host has a study for each of its tasks
    by_host = {name: sum(one["host"] == name for one in told["tasks"]) for name in fleet.by_name}
    assert {name: studies(machine) for name, machine in fleet.by_name.items()} == by_host
    assert (told["phase"], told["winner"], told["recommendation"]) == ("over", "io_uring", "change")
    assert (told["of_their_kind"], told["confirming"], told["simulated"]) == (False, [], True)
    assert {(one["host"], one["arm"]) for one in told["better_there"]} == {("c", "native")}
    effect = told["confirmed"][0]
    assert [one["verdict"] for one in effect["verdicts"]] == ["better"] * 3

    # a search that is over is told again, and nothing is measured
    assert run(["fleet", "tune", "--again", "last"]) == 0
    lines = capfd.readouterr().out.splitlines()
    assert lines[0] == "change to io_uring: better than baseline on the same hosts, on fresh data"
    assert any(line.startswith("on c native is better than io_uring: +") for line in lines)
    assert {name: studies(machine) for name, machine in fleet.by_name.items()} == by_host
    assert run(["fleet", "run", "--again", "last"]) == 2
    assert "is a search" in capfd.readouterr().err


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (["--budget", "10m"], "--budget has no place in one search over many hosts"),
        (["--like", "web1"], "--like has no place in one search over many hosts"),
        (["--rig", "libvirt:web1"], "names a VM of one host"),
        (["--vary"], "--vary"),
        (["--dry-run"], "--dry-run has no place in one search over many hosts"),
        (["--confirm", "3"], "--confirm 3 can decide nothing"),
    ],
)
def test_options_that_no_search_over_hosts_can_have_are_refused_before_a_host_is_asked(
    words: list[str], said: str, tmp_path: Path, capfd: Capture
) -> None:
    (tmp_path / "hosts").write_text("nowhere.invalid\nelsewhere.invalid\n")
    assert run(["fleet", "tune", "-i", str(tmp_path / "hosts"), *words]) == 2
    assert said in capfd.readouterr().err


def test_a_run_that_is_no_search_is_not_gone_on_with_as_one(capfd: Capture) -> None:
    task = FleetTask(name="r.1", host=FleetHost(name="a", target="nowhere.invalid"), part=0)
    RUNS.keep(FleetRun(name="r", created="2026-01-01T00:00:00+00:00", words=("check",), tasks=(task,), at_once=1,
                       shares="shares"))  # fmt: skip
    assert run(["fleet", "tune", "--again", "r"]) == 2
    assert "is no search" in capfd.readouterr().err


@pytest.fixture(scope="module")
def turn(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """What three hosts measured in one turn: the store of each."""
    place = tmp_path_factory.mktemp("turn")
    arms = ["--arm", "baseline:rig=simulated", "--arm", "io_uring:rig=simulated,disk.aio=io_uring"]
    for name in "abc":
        store = ["--store", str(place / f"{name}.sqlite")]
        assert run(["compare", *arms, "--rounds", "6", "--all-rounds", *store, "-q"]) == 0
    return place


def searched(turn: Path, place: Path, *, confirms: bool) -> FleetRun:
    """A search whose first turn was measured on a and b, and on c too late to count; nobody answers any more."""
    made = dict[str, str]()
    for name in "abc":
        with Store(Path(shutil.copy(turn / f"{name}.sqlite", place)), reading=True) as kept:
            made[name] = kept.find("last")
    hosts = tuple(
        FleetTask(name=f"s.{one}", host=FleetHost(name=one, target="nowhere.invalid"), part=0) for one in "abc"
    )
    first = [replace(one, counted=made[one.host.name] if one.host.name != "c" else "") for one in hosts]
    then = [replace(one, name=f"{one.name}.2", part=1, confirms=confirms, words=("compare",)) for one in hosts[:2]]
    search = FleetSearch(
        hosts=hosts, slice_seconds=1.0, arms=(("baseline", BASE), ("io_uring", URING)), left_out=(), metric="iops",
        margin=0.03, options=(), racing=("a", "b", "c"), confirming=(), confirm_rounds=6,
    )  # fmt: skip
    found = FleetRun(name="s", created="2026-01-01T00:00:00+00:00", words=("tune",), tasks=(*first, *then), at_once=4,
                     shares="shares", search=search)  # fmt: skip
    RUNS.keep(found)
    return found


@pytest.mark.parametrize("confirms", [False, True])
@pytest.mark.xdist_group("fleet turn")  # so that it is measured once
def test_a_search_ends_where_no_host_is_left_and_what_came_too_late_changes_nothing(
    confirms: bool, turn: Path, tmp_path: Path
) -> None:
    asked, heard = searched(turn, tmp_path, confirms=confirms), list[int]()
    carrying = Carrying(access=FleetAccess(connect_seconds=2), place=FleetFolder(tmp_path), patience_seconds=1.0)
    known, ended = search_fleet(
        asked, carrying, say=lambda *_: None, begins=lambda one, _: heard.append(len(one.tasks))
    )
    assert heard == [2], "the tasks of the last turn alone"
    assert (known.phase, known.winner, known.hosts) == (FleetPhase.OVER, "io_uring", ("a", "b"))
    assert (known.confirmed, known.recommendation) == ((), Recommendation.UNDECIDED)
    assert {ended[one].state for one in ("s.a", "s.b")} == {TaskState.FINISHED}
    assert (ended["s.c"].state, ended["s.c"].said) == (TaskState.FAILED, "it had not ended when the next turn began")
    lines = list(tuned_lines(known, ended))
    assert lines[0] == "ahead: io_uring; it was not confirmed on fresh data"
    assert len(RUNS.find("s").tasks) == len(asked.tasks), "no turn without hosts was planned"


@pytest.mark.xdist_group("fleet turn")
def test_a_search_whose_hosts_are_all_lost_stays_open_for_their_studies(turn: Path, tmp_path: Path) -> None:
    asked = searched(turn, tmp_path, confirms=False)
    for task in asked.tasks[3:]:
        OpenTasks(asked).begins(task)
    carrying = Carrying(access=FleetAccess(connect_seconds=2), place=FleetFolder(tmp_path), patience_seconds=0.1)
    known, ended = search_fleet(asked, carrying, say=lambda *_: None, begins=lambda *_: None)
    assert {ended[one.name].state for one in asked.tasks[3:]} == {TaskState.LOST}
    assert known.phase is not FleetPhase.OVER
    assert [(one.part, one.counted) for one in RUNS.find("s").tasks[3:]] == [(1, ""), (1, "")]
    lines = list(tuned_lines(known, ended))
    assert lines[0] == "ahead so far: io_uring, after 2 turns"
    assert lines[-1] == "`virtune fleet tune --again s` goes on"


BASE = (("rig", "simulated"),)
NATIVE = (*BASE, ("disk.aio", "native"))
URING = (*BASE, ("disk.aio", "io_uring"))


def test_what_not_every_host_can_run_is_left_out_and_said() -> None:
    found = {"a": (("baseline", BASE), ("aio=native", NATIVE), ("aio=io_uring", URING)),
             "b": (("baseline", BASE), ("aio=io_uring", URING))}  # fmt: skip
    arms, left_out = common_arms(found)
    assert arms == (("baseline", BASE), ("aio-io_uring", URING))
    assert left_out == (("aio-native", ("b",)),)


def test_names_of_configurations_become_such_as_an_arm_may_have_and_stay_apart() -> None:
    found = {"a": (("base line", BASE), ("x" * 100, NATIVE), ("base+line", URING))}
    assert [name for name, _ in common_arms(found)[0]] == ["base-line", "arm-1", "base_line"]


@pytest.mark.parametrize(
    ("settings", "said"),
    [
        ((("disk.aio", "native,disk.cache=unsafe"),), "none"),
        ((("disk.cache", "--allow-in-use"),), "none"),
        ((("no.such", "x"),), "none"),
        ((("machine.emulator", "/bin/a,b"),), "comma"),
    ],
)
def test_what_a_host_says_is_no_configuration_of_ours_is_refused(
    settings: tuple[tuple[str, str], ...], said: str
) -> None:
    assert said in wrong_arms((("baseline", BASE), ("x", settings)))


def test_too_many_configurations_and_too_few_are_refused() -> None:
    many = tuple((f"n{number}", (("iothread.poll_max_ns", str(number)),)) for number in range(ARMS_MAX + 1))
    assert "more than 64" in wrong_arms(many)
    with pytest.raises(UsageError, match="no two configurations"):
        common_arms({"a": (("baseline", BASE), ("n", NATIVE)), "b": (("baseline", BASE), ("u", URING))})


@pytest.mark.parametrize(("hosts", "apart"), [(2, 0), (4, 0), (5, 1), (6, 2), (9, 3), (20, 6)])
def test_a_third_of_the_hosts_takes_no_part_where_there_are_enough(hosts: int, apart: int) -> None:
    names = [f"h{number:02}" for number in range(hosts)]
    racing, confirming = shared_out(names, seed=1)
    assert len(confirming) == apart
    assert sorted([*racing, *confirming]) == names
    assert shared_out(names, seed=1) == (racing, confirming)
    assert shared_out(names, seed=1, confirm=0) == (tuple(names), ())
