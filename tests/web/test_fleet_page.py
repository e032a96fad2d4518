# SPDX-License-Identifier: Apache-2.0
"""The page of a fleet's run that another process carries, and what it says of one that nobody carries any more."""

import os
import subprocess
import sys
from collections.abc import Iterator
from dataclasses import replace
from datetime import UTC, datetime
from pathlib import Path

import pytest
from tests.conftest import eventually
from tests.fleet.told_hosts import ToldHosts, line, told_here
from tests.web.pages import HOSTILE, Page, served
from tests.web.streams import following

from virtune.cli import run
from virtune.cli.fleet_verbs.run import ShownRun
from virtune.flows.fleet.run import RUNS, FleetPolicy, OpenTasks, plan_run
from virtune.model.fleet import FleetRun, FleetSearch, TaskProgress, TaskState
from virtune.store.progress import ProgressFile, run_of
from virtune.store.store import Store

NOW = datetime(2026, 1, 1, tzinfo=UTC)
GOES_ON = "".join(
    line(
        TaskState.RUNNING, study="20260101-000000-0001", done=number, total=400, left_seconds=100.0, verdict="better"
    )
    for number in range(400)
)
WRONG = line(TaskState.FAILED, said=f"it broke {HOSTILE}", hint=f"mend it {HOSTILE}")


@pytest.fixture
def told(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> ToldHosts:
    return told_here(tmp_path, monkeypatch)


@pytest.fixture
def page(tmp_path: Path) -> Iterator[Page]:
    with Store(tmp_path / "kept.sqlite"), served(tmp_path / "kept.sqlite") as found:
        yield found


@pytest.fixture
def carried(told: ToldHosts, tmp_path: Path) -> Iterator["subprocess.Popen[bytes]"]:
    """A run of three hosts in a process of its own: one goes on, one is stuck, one failed."""
    told.add("goes-on", follow=GOES_ON)
    told.add("stuck", follow=line(TaskState.STUCK, done=3, total=40, said="nothing for 16 min in: a trial") * 400)
    told.add("wrong", follow=WRONG)
    (tmp_path / "hosts").write_text("goes-on\nstuck\nwrong\n")
    argv = [sys.executable, "-m", "virtune", "fleet", "run", "-i", str(tmp_path / "hosts"), "-q", "check"]
    with subprocess.Popen(argv, env=os.environ, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL) as process:
        try:
            yield process
        finally:
            process.kill()


def test_a_run_is_followed_until_its_process_is_killed(
    carried: "subprocess.Popen[bytes]", page: Page, capsys: pytest.CaptureFixture[str]
) -> None:
    def told_all() -> bool:
        found = run_of(RUNS.place, RUNS.names()[-1]) if RUNS.names() else None
        return found is not None and {row[1] for row in found.rows[1:]} == {"running", "stuck", "failed"}

    assert eventually(told_all, seconds=60)
    (name,) = RUNS.names()
    assert f'<a href="/live/{name}">fleet check {name}</a>' in page.get("/")[1]
    status, text, _ = page.get(f"/live/{name}")
    assert (status, "<b>running</b>" in text, "1 of 3 studies" in text) == (200, True, True)
    assert '<tr><th scope="row">stuck</th><td class="warn">stuck</td><td>3/40</td>' in text
    assert "<dt>now</dt><dd>1 running, 1 failed, 1 stuck</dd>" in text
    assert "better" in text
    assert "it broke &lt;script&gt;" in text
    assert "mend it &lt;script&gt;" in text
    assert "<script>" not in text
    with following(page, name) as stream:
        first, then = stream.event()[1], stream.event()[1]
        assert first != then, "how far it is"
        assert run(["fleet", "run", "--again", name]) == 3
        said = capsys.readouterr().err
        assert f"another process carries the run {name} now" in said
        assert f"`virtune fleet status {name} --watch 10s` shows how far it is" in said
        carried.kill()
        told = [stream.event()]
        while told[-1][0] != "over":
            told.append(stream.event())
    for text in (told[-2][1], page.get(f"/live/{name}")[1]):
        assert "<b>not running here</b>" in text
        assert f"`virtune fleet run --again {name}` goes on" in text
        assert "<dt>seen last</dt><dd>1 failed, 2 lost</dd>" in text
    assert "running now" not in page.get("/")[1]


def test_runs_are_listed_and_a_damaged_plan_is_named(
    carried: "subprocess.Popen[bytes]", page: Page, tmp_path: Path
) -> None:
    assert eventually(lambda: bool(RUNS.names()), seconds=60)
    (name,) = RUNS.names()
    (RUNS.place / "20250101-000000-dead.json").write_text("{")
    text = page.get("/fleets")[1]
    assert f'<th scope="row"><a href="/live/{name}">{name}</a></th>' in text
    assert "The plan of the run 20250101-000000-dead is damaged." in text
    status, said, _ = page.get("/live/20250101-000000-dead")
    assert (status, "is damaged" in said) == (404, True)
    assert carried.poll() is None


def planned(told: ToldHosts) -> FleetRun:
    """A kept run of one host that nobody carries."""
    return plan_run([told.add("a")], ("check",), FleetPolicy(), now=NOW, virtune="virtune")


def test_what_is_told_of_a_run_that_nobody_carries_is_what_goes_on_with_it(told: ToldHosts, page: Page) -> None:
    search = FleetSearch(hosts=(), slice_seconds=1.0, arms=(), left_out=(), metric="iops", margin=0.03, racing=(),
                         confirming=(), options=(), confirm_rounds=0)  # fmt: skip
    first = planned(told)
    for found, again in ((replace(first, search=search), "tune"), (replace(first, name="later"), "run")):
        RUNS.keep(found)
        assert f"`virtune fleet {again} --again {found.name}` goes on" in page.get(f"/live/{found.name}")[1]
        for task in found.tasks:
            OpenTasks(found).ended(task, TaskProgress(state=TaskState.FINISHED))
        over = page.get(f"/live/{found.name}")[1]
        assert ("`virtune fleet report` says" in over) == (again == "run"), "a search may have turns left"
    (RUNS.place / "later-copy.json").write_bytes((RUNS.place / "later.json").read_bytes())
    assert page.get("/live/later")[0] == page.get("/fleets")[0] == 200, "a name is no beginning of another one"


@pytest.mark.parametrize("what", ["gone", "damaged"])
def test_a_plan_that_is_lost_while_its_page_is_open_ends_the_page(what: str, told: ToldHosts, page: Page) -> None:
    run_ = planned(told)
    with ProgressFile(RUNS.place, run_.name) as file:
        file.write(ShownRun(run_, quiet=True).progress())
        with following(page, run_.name) as stream:
            assert "<b>running</b>" in stream.event()[1]
            if what == "gone":
                (RUNS.place / f"{run_.name}.json").unlink()
            else:
                (RUNS.place / f"{run_.name}.json").write_text("{")
            file.__exit__(None, None, None)
            assert "<b>gone</b>: nothing of it that can be read is kept here now" in stream.event()[1]
            assert stream.event()[0] == "over"


def test_a_large_run_is_told_within_what_is_read_and_no_host_fills_its_bar(told: ToldHosts) -> None:
    run_ = planned(told)
    (task,) = run_.tasks
    run_ = replace(run_, tasks=tuple(replace(task, name=f"{run_.name}.{number}") for number in range(5000)))
    shown = ShownRun(run_, quiet=True)
    shown.found = {one.name: TaskProgress(state=TaskState.LOST, said="ä" * 500) for one in run_.tasks}
    shown.found[run_.tasks[4000].name] = TaskProgress(state=TaskState.STUCK, done=10**9, total=1)
    with ProgressFile(RUNS.place, run_.name) as file:
        file.write(shown.progress())
        found = run_of(RUNS.place, run_.name)
    assert found is not None
    assert found.rows[1][1] == "stuck"
    assert (len(found.rows), found.now, found.share) == (1001, "4999 lost, 1 stuck", 1 / 5000)


@pytest.mark.usefixtures("told")
def test_without_a_run_it_is_said_how_one_is_made(page: Page) -> None:
    assert "No run is kept here: `virtune fleet run` makes one." in page.get("/fleets")[1]
