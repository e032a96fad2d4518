# SPDX-License-Identifier: Apache-2.0
"""A fleet over weeks: the runs that are kept, and which host changed when, with the fact that changed with it."""

import json
import math
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from pathlib import Path
from random import Random
from typing import Any

import pytest
from tests.published import complaints

from virtune.analyse.stats.changes import steps
from virtune.cli import run
from virtune.flows.fleet.results import FleetFolder, fleet_history
from virtune.flows.fleet.run import RUNS, FleetPolicy, OpenTasks, plan_run
from virtune.flows.reports.report import svgs
from virtune.model.evidence import StudyRecord
from virtune.model.fleet import FleetHost, TaskProgress, TaskState
from virtune.report.charts.fleet import history_charts
from virtune.report.pages.fleet import host_history_lines
from virtune.store.store import Store

pytestmark = pytest.mark.xdist_group("fleet history")  # what is made for the module is made once

Capture = pytest.CaptureFixture[str]
WEEKS, UPDATED = 14, 8
"""So many studies, a week apart; one host is slower from its ninth on, with another kernel."""


def document(words: list[str], name: str, capfd: Capture) -> dict[str, Any]:
    capfd.readouterr()
    assert run(["fleet", name, "--json", *words]) == 0
    found: dict[str, Any] = json.loads(capfd.readouterr().out)
    assert complaints(f"fleet-{name}", found) == []
    return found


@pytest.mark.parametrize("values", [[], [1.0], [1.0] * 20, [1.0, 2.0] * 3])
def test_no_step_is_seen_where_there_is_none_to_see(values: list[float]) -> None:
    assert steps(values, error=0.05, seed=1) == ()


def test_a_planted_step_is_found_where_it_is_and_seldom_one_that_is_not() -> None:
    chance = Random(7)
    quiet = [steps([chance.gauss(0, 1) for _ in range(14)], error=0.05, seed=one) for one in range(200)]
    # 200 series at 5 %: more than 20 have a chance of 1 in 500
    assert sum(map(bool, quiet)) <= 20
    near = 0
    for number in range(50):
        series = [chance.gauss(0 if index < 8 else -3, 1) for index in range(14)]
        near += [abs(one.index - 8) <= 1 for one in steps(series, error=0.05, seed=number)][:1] == [True]
    assert near >= 40


def test_two_steps_are_told_apart() -> None:
    chance = Random(3)
    series = [level + chance.gauss(0, 0.1) for level in (*[0.0] * 8, *[2.0] * 8, *[1.0] * 8)]
    assert [one.index for one in steps(series, error=0.05, seed=1)] == [8, 16]
    one_of_400 = [level + chance.gauss(0, 0.1) for level in (*[0.0] * 12, *[1.0] * 12)]
    assert [one.index for one in steps(one_of_400, error=0.05 / 400, seed=1)] == [12]


@pytest.fixture(scope="module")
def measured(tmp_path_factory: pytest.TempPathFactory) -> StudyRecord:
    """One simulated measurement."""
    place = tmp_path_factory.mktemp("one")
    words = ["--rig", "simulated", "--rounds", "5", "--quiet", "--seed", "1", "--store", str(place / "store.sqlite")]
    assert run(["measure", *words, "--scratch", str(place / "s")]) == 0
    with Store(place / "store.sqlite") as store:
        return store.get(store.find("last"))


@pytest.fixture(scope="module")
def fleet(measured: StudyRecord, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Three hosts on one storage that gives 4 % less each month; `b` is 7 % slower with a newer kernel."""
    folder, chance, first = tmp_path_factory.mktemp("fleet"), Random(5), datetime(2026, 1, 5, tzinfo=UTC)
    for host in ("a", "b", "c"):
        with Store(folder / f"{host}.sqlite") as store:
            for week in range(WEEKS):
                newer = host == "b" and week >= UPDATED
                factor = math.exp(-0.01 * week + chance.gauss(0, 0.004)) * (0.93 if newer else 1)
                facts = {"kernel": {"release": "6.8" if newer else "6.1"}, "scratch": {"used": str(week)}}
                store.add_whole(
                    _later(measured, first + timedelta(weeks=week), factor, facts), [() for _ in measured.trials]
                )
    return folder


def _later(record: StudyRecord, begun: datetime, factor: float, facts: dict[str, Any]) -> StudyRecord:
    """The same study at another time, its figures times a factor."""
    trials = tuple(
        replace(
            one,
            ended=(begun + timedelta(minutes=10)).isoformat(),
            measurement=replace(
                one.measurement, values=tuple((name, value * factor) for name, value in one.measurement.values)
            ),
        )
        for one in record.trials
        if one.measurement is not None
    )
    study = replace(record.study, id=f"{begun:%Y%m%d}-000000-0000", created=begun.isoformat())
    return replace(record, study=study, trials=trials, attempts=trials, facts=json.dumps({"host": facts}))


def test_the_host_that_changed_is_named_with_the_time_and_the_fact(fleet: Path, capfd: Capture) -> None:
    found = document(["--from", str(fleet), "--reference", "a"], "history", capfd)
    hosts = {one["host"]: one for one in found["hosts"]}
    assert {name: len(one["levels"]) for name, one in hosts.items()} == dict.fromkeys("abc", WEEKS)
    assert hosts["c"]["changes"] == [], "what all share is taken out"
    (change,) = hosts["b"]["changes"]
    assert (change["last"], change["study"]) == ("20260223-000000-0000", "20260302-000000-0000")
    assert change["low"] < 0.93 < change["high"]
    assert change["facts"] == [{"key": "kernel.release", "before": "6.1", "after": "6.8"}]
    assert hosts["a"]["changes"], "its own level went down"
    capfd.readouterr()
    assert run(["fleet", "history", "--from", str(fleet), "--reference", "a", "--host", "b", "--host", "c"]) == 0
    said = capfd.readouterr().out
    assert "2026-03-02: -" in said
    assert "kernel.release: 6.1 before, 6.8 after" in said
    assert "no change beyond its own variation; 14 studies in 13.0 weeks" in said


def test_the_picture_shows_the_change_and_what_the_reference_moved_apart(fleet: Path, tmp_path: Path) -> None:
    found = fleet_history(FleetFolder(fleet), reference="a")
    (chart,) = history_charts(found)
    assert chart.title == "randread-4k: 1 of 2 hosts changed"
    of = {name: [row for row in chart.spec["data"]["values"] if row["host"] == name] for name in ("b", "c")}
    assert [row["part"] for row in of["b"]] == [0] * UPDATED + [1] * (WEEKS - UPDATED)
    outside = [row for rows in of.values() for row in rows if not row["low"] <= row["value"] <= row["high"]]
    assert len(outside) <= 2, "of 28 studies 1.4 lie outside of two standard deviations"
    (svg,) = svgs([chart])
    assert svg.count('stroke-dasharray="4,3"') == 2, "the change of b, and the reference's own"
    page = tmp_path / "weeks.html"
    assert run(["fleet", "history", "--from", str(fleet), "--reference", "a", "--html", str(page)]) == 0
    assert "kernel.release: 6.1 before, 6.8 after" in page.read_text()


def test_a_host_with_too_few_studies_is_said_to_be_one_and_not_called_unchanged(fleet: Path) -> None:
    found = fleet_history(FleetFolder(fleet), reference="a")
    few = [
        replace(one, levels=one.levels[-5:], expected=one.expected[-5:], judged=False) if one.host == "c" else one
        for one in found.hosts
    ]
    (chart,) = history_charts(replace(found, hosts=tuple(few)))
    assert chart.title == "randread-4k: 1 of 1 host changed"
    assert "Too few studies to say of c, which have no band." in chart.reading
    assert not any("low" in row for row in chart.spec["data"]["values"] if row["host"] == "c")
    (line,) = host_history_lines(next(one for one in few if one.host == "c"))
    assert line.startswith("c (randread-4k): too few studies to say; 5 studies")


def test_without_a_reference_all_hosts_of_one_storage_change(fleet: Path, capfd: Capture) -> None:
    found = document(["--from", str(fleet)], "history", capfd)
    assert all(one["changes"] for one in found["hosts"])


def test_one_study_of_each_host_has_no_history(measured: StudyRecord, tmp_path: Path, capfd: Capture) -> None:
    with Store(tmp_path / "a.sqlite") as store:
        store.add_whole(measured, [() for _ in measured.trials])
    assert run(["fleet", "history", "--from", str(tmp_path)]) == 2
    assert "no host in" in capfd.readouterr().err
    assert run(["fleet", "history", "--from", str(tmp_path), "--reference", "x"]) == 2
    assert "no study of 'x' is in" in capfd.readouterr().err


def test_runs_are_listed_with_how_their_hosts_ended(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capfd: Capture
) -> None:
    monkeypatch.setenv("XDG_DATA_HOME", str(tmp_path))
    assert run(["fleet", "runs"]) == 0
    assert "no run is kept here" in capfd.readouterr().out
    hosts = [FleetHost(name=name, target=name) for name in "abcd"]
    made = plan_run(
        hosts, ["compare", "x", "y"], FleetPolicy(reference="a"), now=datetime.now(UTC), virtune="virtune"
    )
    noted, first = OpenTasks(made), {task.host.name: task for task in reversed(made.tasks)}
    for name in "abc":
        noted.begins(first[name])
    noted.ended(first["a"], TaskProgress(state=TaskState.FINISHED))
    noted.ended(first["b"], TaskProgress(state=TaskState.FAILED))
    (RUNS.place / "20260101-000000-aaaa.json").write_text("{")
    found = document([], "runs", capfd)
    assert found["damaged"] == ["20260101-000000-aaaa"]
    (one,) = found["runs"]
    assert (one["run"], one["reference"], one["words"]) == (made.name, "a", ["compare", "x", "y"])
    assert [one[key] for key in ("hosts", "finished", "failed", "open")] == [4, 0, 1, 1], "a is measured once more"
    capfd.readouterr()
    assert run(["fleet", "runs"]) == 0
    said = capfd.readouterr().out
    assert f"{made.name}  " in said
    assert "compare x y" in said
    assert "the plan of the run 20260101-000000-aaaa is damaged" in said
