# SPDX-License-Identifier: Apache-2.0
"""What becomes of each answer that a host of a fleet may give."""

import fcntl
import gzip
import json
from collections.abc import Sequence
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest
from tests.fleet.told_hosts import ToldHosts, line, told_here
from tests.golden.golden_cases import STORE, studies

from virtune import __version__
from virtune.cli import run
from virtune.fleet.ssh import HostError
from virtune.flows.fleet.apply import make_change, plan_change, undo_change, vms_by_host
from virtune.flows.fleet.ask import FleetAccess
from virtune.flows.fleet.here import progress_in
from virtune.flows.fleet.results import FleetFolder, gather
from virtune.flows.fleet.run import (
    Carrying,
    FleetPolicy,
    OpenTasks,
    kept_runs,
    meet,
    plan_run,
    run_fleet,
    sharing,
    states_of,
    watched,
)
from virtune.flows.stored.import_bundle import rows_bundle
from virtune.model.errors import UsageError
from virtune.model.fleet import FleetHost, FleetRun, GatheredHost, TaskProgress, TaskState, Unreached
from virtune.store.store import Store

NOW = datetime(2026, 1, 1, tzinfo=UTC)
ACCESS = FleetAccess(timeout_seconds=60.0)
STUDY = studies()["one-arm"]
RUNNING = line(TaskState.RUNNING, study=STUDY, done=1, total=3, left_seconds=9.0)
DONE = line(TaskState.FINISHED, study=STUDY, done=3, total=3, code=0)
ERROR = "error: no fio there\nhint: install it\n"


@pytest.fixture
def told(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> ToldHosts:
    return told_here(tmp_path, monkeypatch)


@pytest.fixture(scope="module")
def rows(tmp_path_factory: pytest.TempPathFactory) -> bytes:
    """A study as a host sends it."""
    path = tmp_path_factory.mktemp("kept") / "kept.sqlite"
    path.write_bytes(gzip.decompress(STORE.read_bytes()))
    with Store(path) as store:
        return rows_bundle(store, STUDY)


def planned(hosts: Sequence[FleetHost], **policy: object) -> FleetRun:
    return plan_run(hosts, ("check",), FleetPolicy(**policy), now=NOW, virtune="virtune")  # type: ignore[arg-type]


def ran(run: FleetRun, tmp_path: Path) -> tuple[dict[str, TaskProgress], list[tuple[str, TaskState]]]:
    """How each host's task ended, by its host, and all that was said meanwhile."""
    said: list[tuple[str, TaskState]] = []
    carrying = Carrying(access=ACCESS, place=FleetFolder(tmp_path / "gathered"), patience_seconds=0.0)
    found = run_fleet(meet(run, ACCESS), carrying, say=lambda task, how: said.append((task.host.name, how.state)))
    return {one.host.name: found[one.name] for one in run.tasks}, said


STUCK = line(TaskState.STUCK, study=STUDY, done=1, total=3, said="nothing for 16 min in: a trial")
ENDS: dict[str, tuple[dict[str, str], TaskState, str, bool]] = {
    "failed": ({"follow": RUNNING + line(TaskState.FAILED, said="it broke")}, TaskState.FAILED, "it broke", False),
    "killed": ({"follow": line(TaskState.KILLED)}, TaskState.LOST, "its study was killed there", True),
    "waits": ({"follow": line()}, TaskState.LOST, "its study was killed there", True),
    "lost": ({"follow": RUNNING, "follow_code": "255"}, TaskState.LOST, "the connection was lost", True),
    "cannot": ({"follow": "", "follow_err": ERROR, "follow_code": "3"}, TaskState.FAILED, "no fio there", False),
    "ended": ({"follow": RUNNING, "follow_err": ERROR, "follow_code": "3"}, TaskState.LOST, "no fio there", True),
    "stuck": ({"follow": RUNNING + STUCK}, TaskState.STUCK, "nothing for 16 min in: a trial", True),
    "mute": ({"follow": "", "follow_code": "3"}, TaskState.FAILED, "it ended without a reason", False),
    "strange": ({"follow": '{"state": "new"}\n'}, TaskState.LOST, "not to be understood", True),
    "damaged": ({"follow": DONE, "rows": "no bundle"}, TaskState.FAILED, "finished there, and not gathered", False),
}
"""What a host says, how its task ended then, in what words, and whether it may still run there."""


@pytest.mark.parametrize("case", ENDS)
def test_a_task_ends_as_its_host_says(case: str, told: ToldHosts, tmp_path: Path) -> None:
    files, state, words, still = ENDS[case]
    run = planned([told.add("a", **files)])
    found, said = ran(run, tmp_path)
    assert (found["a"].state, words in found["a"].said) == (state, True), found
    assert (found["a"].hint == "install it") == ("follow_err" in files)
    assert (run.tasks[0] in OpenTasks(run)) is still
    assert said[-1] == ("a", state)
    assert (("a", TaskState.RUNNING) in said) == ("running" in files["follow"])
    assert sum("--follow" in one for one in told.calls("a")) == 1, "there was no patience for a second time"


def test_a_study_that_ended_is_here_and_is_not_run_or_pulled_again(
    told: ToldHosts, tmp_path: Path, rows: bytes
) -> None:
    host = told.add("a", follow=RUNNING + DONE, estimate=line(left_seconds=7.0))
    (tmp_path / "told/hosts/a/rows").write_bytes(rows)
    run = planned([host])
    assert meet(run, ACCESS).run.tasks[0].expected_seconds == 7.0
    found, said = ran(run, tmp_path)
    assert (found["a"].state, found["a"].study) == (TaskState.FINISHED, STUDY)
    assert [state for _, state in said] == [TaskState.RUNNING, TaskState.FINISHED, TaskState.FINISHED]
    place = FleetFolder(tmp_path / "gathered")
    assert (list(place.hosts()), [one.id for one in place.finished(["measure"])]) == (["a"], [STUDY])
    assert run.tasks[0] not in OpenTasks(run)
    ran(run, tmp_path)
    assert sum("--rows" in one for one in told.calls("a")) == 1
    assert sum("--estimate" in one for one in told.calls("a")) == 2, "what has begun is not planned again"


def test_hosts_that_cannot_run_it_are_refused_and_the_others_go_on(
    told: ToldHosts, tmp_path: Path, rows: bytes
) -> None:
    fails = {"follow": line(TaskState.FAILED, said="tried")}
    no_disk = line(TaskState.FAILED, said="no disk", hint="h")
    hosts = [
        told.add("a", **fails), told.add("b", calls_itself="a", **fails), FleetHost(name="c", target="nowhere"),
        told.add("d", version="virtune 0.0.1\n"), told.add("e", estimate=no_disk),
        told.add("f", version="", version_code="127"),
    ]  # fmt: skip
    found, said = ran(planned(hosts, at_once=3), tmp_path)
    assert {name: one.state for name, one in found.items()} == dict.fromkeys("abcdef", TaskState.FAILED)
    one, twin = ("a", "b") if found["a"].said == "tried" else ("b", "a")
    assert found[twin].said.startswith(f"calls itself 'a', as {one} does: one host twice")
    assert (found["c"].said, found["c"].hint) == (
        "its name is not known", "give it an address in ssh_config, or `ssh=ADDRESS` in the inventory"
    )  # fmt: skip
    assert (found["d"].said, "--upgrade" in found["d"].hint) == (
        f"has virtune 0.0.1, and this is {__version__}",
        True,
    )
    assert (found["e"].said, found["e"].hint) == ("no disk", "h")
    assert "is not installed there" in found["f"].said
    assert said[-1] == (one, TaskState.FAILED), "who is refused is said first"


def test_what_failed_before_it_began_is_listed_and_told_as_the_run_said_it(
    told: ToldHosts, tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    no_disk = line(TaskState.FAILED, said="no disk", hint="h", code=2)
    hosts = [told.add("a", estimate=no_disk, state=line()), FleetHost(name="c", target="nowhere")]
    run_ = planned(hosts)
    found, _ = ran(run_, tmp_path)
    (kept,), _ = kept_runs()
    assert (kept.hosts, kept.finished, kept.failed, kept.open) == (2, 0, 2, 0)
    assert {one.host.name: states_of(run_, ACCESS)[one.name] for one in run_.tasks} == found
    assert run(["fleet", "status", "--json"]) == 1, "as the run itself ends"
    tasks = json.loads(capfd.readouterr().out)["tasks"]
    assert {one["host"]: one["state"] for one in tasks} == {"a": "failed", "c": "failed"}
    # it may be there by now: what never began is planned again, and is told by its host once it began
    told.tell("a", "estimate", line())
    told.tell("a", "follow", RUNNING + line(TaskState.FAILED, said="it broke"))
    again, _ = ran(run_, tmp_path)
    assert (again["a"].said, again["c"]) == ("it broke", found["c"])


def test_what_shares_something_with_a_lost_host_waits(told: ToldHosts, tmp_path: Path) -> None:
    lost = {"follow": RUNNING, "follow_code": "255"}
    hosts = [told.add("a", shares="san", **lost), told.add("b", shares="san", **lost), told.add("c", **lost)]
    found, _ = ran(planned(hosts, at_once=1, seed=1), tmp_path)
    first, second = ("a", "b") if found["a"].state is TaskState.LOST else ("b", "a")
    assert (found[second].state, found["c"].state) == (TaskState.WAITING, TaskState.LOST)
    assert found[second].said == f"{first} was lost, and may still load what this host shares"


NFS, SSHFS = "nfs 10.0.0.5", "unknown: fuse.sshfs me@there:/d"


def test_hosts_that_see_one_back_end_are_never_measured_at_once_without_a_label(
    told: ToldHosts, tmp_path: Path
) -> None:
    """All are begun as soon as they may: the one that is lost holds its export, and not the others' disks."""
    lost = {"follow": RUNNING, "follow_code": "255"}
    loads = {"a": (NFS, "disk 1"), "b": (NFS,), "c": ("disk 1",), "d": ("disk 2",), "e": ()}
    hosts = [told.add(name, estimate=line(loads=one), **lost) for name, one in loads.items()]
    run = meet(planned(hosts, at_once=8, seed=2), ACCESS).run
    assert {task.host.name: task.loads for task in run.tasks} == loads
    assert sharing(run) == {
        "disk 1": [one.host.name for one in run.tasks if one.host.name in "ac"],
        NFS: [one.host.name for one in run.tasks if one.host.name in "ab"],
    }
    found, _ = ran(run, tmp_path)
    states = {name: one.state for name, one in found.items()}
    assert states["d"] is states["e"] is TaskState.LOST
    assert TaskState.WAITING in (states["a"], states["b"])
    assert TaskState.WAITING in (states["a"], states["c"])


def test_storage_that_others_may_load_is_refused_unless_a_label_says_who_does(
    told: ToldHosts, tmp_path: Path
) -> None:
    said = line(loads=(SSHFS,))
    hosts = [told.add("a", estimate=said, follow=DONE), told.add("b", estimate=said, shares="here", follow=RUNNING)]
    found, _ = ran(planned(hosts), tmp_path)
    assert found["a"].state is TaskState.FAILED
    assert (
        found["a"].said
        == "other hosts may load what its disk lies on (fuse.sshfs me@there:/d), and nothing here tells"
    )
    assert "shares=NAME" in found["a"].hint
    assert found["b"].state is TaskState.LOST, "it was begun"


@pytest.mark.parametrize("loads", [["x"] * 300, [1], "nfs", [None]])
def test_a_host_cannot_name_more_than_some_back_ends(loads: object) -> None:
    with pytest.raises(HostError, match="not to be understood"):
        progress_in(json.dumps({"state": "waiting", "loads": loads}))
    (one,) = progress_in(json.dumps({"state": "waiting", "loads": ["a\x1b[31m" + "b" * 900]})).loads
    assert len(one) <= 200
    assert "\x1b" not in one


def test_what_shares_something_with_a_stuck_host_waits(told: ToldHosts, tmp_path: Path) -> None:
    found, _ = ran(planned([told.add(one, shares="nas", follow=STUCK) for one in "ab"], seed=1), tmp_path)
    first, second = ("a", "b") if found["a"].state is TaskState.STUCK else ("b", "a")
    assert (found[first].state, found[second].state) == (TaskState.STUCK, TaskState.WAITING)
    assert found[second].said == f"{first} is stuck, and may still load what this host shares"


@pytest.mark.parametrize(
    "after", [line(TaskState.KILLED, study=STUDY), line(TaskState.FAILED, study=STUDY, code=130)]
)
def test_a_stuck_study_is_stopped_where_that_was_asked_and_not_begun_again(
    after: str, told: ToldHosts, tmp_path: Path
) -> None:
    run = planned([told.add("a", follow=STUCK + after, stop=STUCK)])
    carrying = Carrying(access=ACCESS, place=FleetFolder(tmp_path / "g"), patience_seconds=600.0, stop_stuck=True)
    (found,) = run_fleet(meet(run, ACCESS), carrying, say=lambda *_: None).values()
    assert (found.state, found.said) == (TaskState.FAILED, "stopped: nothing for 16 min in: a trial")
    assert sum("--stop" in call for call in told.calls("a")) == 1
    assert sum("--follow" in call for call in told.calls("a")) == 1


def test_every_host_is_asked_how_far_it_is_or_to_stop(told: ToldHosts) -> None:
    hosts = [told.add("a", state=RUNNING, stop=line(TaskState.KILLED)), FleetHost(name="b", target="nowhere")]
    run = planned(hosts)
    for stop, state in ((False, TaskState.RUNNING), (True, TaskState.KILLED)):
        found = states_of(run, ACCESS, stop=stop)
        assert {one.host.name: found[one.name].state for one in run.tasks} == {"a": state, "b": TaskState.LOST}
    assert [one.endswith("--stop") for one in told.calls("a") if "here" in one] == [False, True]


@pytest.mark.parametrize(
    ("program", "body", "said"),
    [
        ("head", "dd if=/dev/zero bs=1M count=3 2> /dev/null | tr '\\0' x", "more than"),
        ("stat", "echo -inf", "not to be understood"),
        ("date", "exec sleep 60", "no end after 2 s: a shell of ours"),
    ],
)
def test_a_look_that_goes_wrong_costs_its_host_alone(
    program: str, body: str, said: str, told: ToldHosts, tmp_path: Path
) -> None:
    """Its own programs answer: no end, too much, or what is none."""
    run = planned([told.add("a"), told.add("b", state=RUNNING)])
    (task,) = (one for one in run.tasks if one.host.name == "a")
    place = tmp_path / "data" / "virtune" / "fleet-tasks" / task.name
    place.mkdir(parents=True)
    for file, text in (("words.json", '["check"]'), ("pid", "1"), ("end", "x")):
        (place / file).write_text(text)
    its = tmp_path / "told" / "hosts" / "a" / program
    its.write_text(f"#!/bin/sh\n{body}\n")
    its.chmod(0o755)
    with (place / "lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        found = states_of(run, replace(ACCESS, timeout_seconds=2.0))
    states = {one.host.name: found[one.name] for one in run.tasks}
    assert (states["a"].state, states["b"].state) == (TaskState.LOST, TaskState.RUNNING)
    assert said in states["a"].said


def test_a_run_is_watched_until_nothing_of_it_runs(told: ToldHosts) -> None:
    hosts = [told.add("a", state=RUNNING, follow=RUNNING + DONE), told.add("b", state=line(TaskState.FAILED)),
             told.add("c", state=line())]  # fmt: skip
    run = planned(hosts)
    seen = [
        {one.host.name: found[one.name].state for one in run.tasks} for found in watched(run, ACCESS, seconds=0.2)
    ]
    assert seen[0] == {"a": TaskState.RUNNING, "b": TaskState.FAILED, "c": TaskState.WAITING}
    assert seen[-1] == seen[0] | {"a": TaskState.FINISHED}
    asked = {name: sum(one.startswith("fleet") for one in told.calls(name)) for name in "abc"}
    assert (asked["a"], asked["b"], asked["c"] > 1) == (2, 1, True), "who runs is followed, who is over is not asked"


def listed(*ids: object) -> str:
    return json.dumps({"schema": "virtune/list/2", "studies": [{"id": one} for one in ids]})


@pytest.mark.parametrize(
    ("text", "names", "said"),
    [
        (listed(STUDY), (), ""), (listed(STUDY), (STUDY[:6],), ""), (listed(STUDY), ("x",), "has no study 'x'"),
        (listed(f"other/{STUDY}"), (), "none"), (listed(), (), "none"), (listed("a b"), (), "is damaged"),
        (listed(7), (), "is damaged"), ("{}", (), "is not the document"), ("x", (), "is not the document"),
        (json.dumps({"schema": "virtune/list/2", "studies": 3}), (), "is damaged"),
        (listed("20250101-000000-0000"), (), "gave another study than 20250101-000000-0000"),
    ],
)  # fmt: skip
def test_studies_of_a_host_are_gathered_or_it_is_said_why_not(
    text: str, names: tuple[str, ...], said: str, told: ToldHosts, tmp_path: Path, rows: bytes
) -> None:
    host = told.add("a", list=text)
    (tmp_path / "told/hosts/a/rows").write_bytes(rows)
    (found,) = gather([host], ACCESS, FleetFolder(tmp_path / "here"), studies=names)
    if isinstance(found, Unreached):
        assert said
        assert said in found.because
        return
    assert isinstance(found, GatheredHost)
    assert [one.id for one in found.studies] == ([] if said else [STUDY])
    (again,) = gather([host], ACCESS, FleetFolder(tmp_path / "here"), studies=names)
    assert isinstance(again, GatheredHost)
    assert again.studies == (), "what is here whole is not pulled again"


def test_a_change_goes_on_in_steps_until_one_fails_and_is_undone_where_it_was_made(told: ToldHosts) -> None:
    kept = [{"id": "e1", "undone": False}, {"id": "e2", "undone": False}, {"id": "e0", "undone": True}]
    entries = {"schema": "virtune/journal/1", "damaged": [], "entries": kept}
    good = {"apply": "", "changes": json.dumps(entries), "undo": ""}
    hosts = [told.add(name, **good) for name in "abcdef"]
    told.tell("c", "apply_code", "3")
    told.tell("c", "changes", json.dumps({**entries, "entries": []}))
    told.tell("d", "changes", json.dumps({**entries, "damaged": ["e9: gone"]}))
    every = vms_by_host(hosts, ["web", "a/db", "a/web"])
    assert [(one.host.name, one.vms) for one in every][:2] == [("a", ("web", "db")), ("b", ("web",))]
    for wrong in ("z/web", "a/"):
        with pytest.raises(UsageError, match="is chosen"):
            vms_by_host(hosts, [wrong])
    change = plan_change(every, ("--template", "flash"), now=NOW + timedelta(days=1))
    made = make_change(change, ACCESS, canary=1, batch=2, say=lambda _: None)
    states = ["changed", "changed", "failed", "untouched", "untouched", "untouched"]
    assert [one.state for one in made] == states
    assert (made[0].said, made[1].said) == ("2 VMs", "1 VMs")
    (applied,) = (one for one in told.calls("a") if one.startswith("apply"))
    assert applied.endswith(f"/{change.name} --yes --template flash -- web db")
    no_canary = make_change(replace(change, hosts=change.hosts[:2]), ACCESS, canary=0, batch=5, say=lambda _: None)
    assert [one.state for one in no_canary] == ["changed", "changed"]
    back = {one.name: (one.state, one.said) for one in undo_change(change, ACCESS, say=lambda _: None)}
    assert list(back) == list("fedcba"), "the last first"
    assert (back["a"], back["c"], back["d"][0]) == (("undone", "2 VMs"), ("untouched", None), "failed")
    assert "2 VMs were undone, and its journal is damaged: e9: gone" in str(back["d"][1])
    assert [one[-2:] for one in told.calls("a") if one.startswith("undo")] == ["e2", "e1"]
