# SPDX-License-Identifier: Apache-2.0
"""Which host is measured when, how long all of it takes, and what is known here of what runs there."""

from itertools import pairwise
from pathlib import Path

import pytest

from virtune.fleet.schedule import next_task, tasks_of, whole_seconds
from virtune.flows.fleet.run import RUNS, OpenTasks, left_seconds
from virtune.model.fleet import FleetHost, FleetRun, FleetTask, TaskProgress, TaskState
from virtune.report.pages.fleet import planned_line, run_lines

SAN = {"b": "san", "c": "san,nas", "d": "nas"}


def hosts(names: str) -> list[FleetHost]:
    return [FleetHost(name=one, target=one, labels=(("shares", SAN[one]),) if one in SAN else ()) for one in names]


def tasks(names: str, **asked: object) -> tuple[FleetTask, ...]:
    return tasks_of("r", hosts(names), **{"reference": "", "batch": None, "seed": 1} | asked)  # type: ignore[arg-type]


def fleet_run(names: str, *, at_once: int = 8, expected: float | None = None) -> FleetRun:
    every = tuple(
        FleetTask(name=one.name, host=one.host, part=one.part, expected_seconds=expected) for one in tasks(names)
    )
    return FleetRun(name="r", created="2026-01-01T00:00:00+00:00", words=("check",), tasks=every, at_once=at_once,
                    shares="shares")  # fmt: skip


def together(waiting: list[FleetTask], *, at_once: int, lost: str = "") -> list[str]:
    """The hosts that begin at once, in their order."""
    every, running = list(waiting), list[FleetTask]()
    gone = [one for one in waiting if one.host.name in lost]
    left = [one for one in every if one not in gone]
    while task := next_task(left, running, lost=gone, at_once=at_once, shares="shares"):
        left.remove(task)
        running.append(task)
    return [one.host.name for one in running]


def test_what_shares_a_back_end_never_begins_at_once() -> None:
    for seed in range(20):
        begun = together(list(tasks("abcde", seed=seed)), at_once=8)
        assert {"a", "e"} <= set(begun)
        used = [part for one in begun for part in SAN.get(one, "").split(",") if part]
        assert len(used) == len(set(used))
    assert set(together(list(tasks("abcde")), at_once=8, lost="c")) == {"a", "e"}, "c may still load both"
    assert len(together(list(tasks("abcde")), at_once=1)) == 1


def test_the_reference_host_is_alone_before_between_and_after_batches() -> None:
    every = tasks("abcde", reference="a", batch=2)
    assert [one.host.name for one in every][0::3] == ["a", "a", "a"]
    assert [one.part for one in every] == [0, 1, 1, 2, 3, 3, 4]
    assert together(list(every), at_once=8) == ["a"]
    assert all(one.part <= two.part for one, two in pairwise(every))


@pytest.mark.parametrize(
    ("names", "asked", "at_once", "seconds"),
    [
        ("aefg", {}, 8, 10),
        ("aefg", {}, 2, 20),
        ("aefg", {}, 3, 20),
        ("bc", {}, 8, 20),
        ("bd", {}, 8, 10),
        ("aef", {"reference": "a", "batch": 1}, 8, 50),
    ],
)
def test_the_time_of_all_is_that_of_the_order_in_which_they_may_run(
    names: str, asked: dict[str, object], at_once: int, seconds: float
) -> None:
    every = tasks(names, **asked)
    each = {one.name: 10.0 for one in every}
    assert whole_seconds(every, each, (), at_once=at_once, shares="shares") == seconds
    half = each | {every[0].name: 4.0}  # the first has run for six seconds
    assert whole_seconds(every, half, [every[0].name], at_once=at_once, shares="shares") >= seconds - 6


def test_the_time_left_is_what_hosts_expect_and_else_what_those_that_run_take() -> None:
    run = fleet_run("bc", expected=30.0)
    assert left_seconds(run, {}) == 60, "they share a back end"
    first = run.tasks[0].name
    assert left_seconds(run, {first: TaskProgress(state=TaskState.FAILED)}) == 30
    unknown = fleet_run("ae", at_once=1)
    assert left_seconds(unknown, {}) is None
    half = TaskProgress(state=TaskState.RUNNING, done=6, total=12, left_seconds=20.0)
    assert left_seconds(unknown, {unknown.tasks[0].name: half}) == 20 + 40
    assert planned_line(run, 60.0, {}) == "run r: 2 hosts, 8 at once: measuring takes at most about 60 s"
    assert planned_line(unknown, None, {}) == "run r: 2 hosts, one after the other"
    assert planned_line(unknown, None, {"nfs 10.0.0.5": ["a", "b"]}) == (
        "run r: 2 hosts, one after the other\nnever at once: a, b, which share nfs 10.0.0.5"
    )


def test_a_table_fits_its_terminal_and_shows_what_there_is_to_see() -> None:
    run = fleet_run("abcdefghijklmnopqrst")
    found = {one.name: TaskProgress(state=TaskState.FINISHED) for one in run.tasks}
    found[run.tasks[-1].name] = TaskProgress(state=TaskState.RUNNING, left_seconds=60.0, study="\x1b[31m")
    found[run.tasks[-2].name] = TaskProgress(state=TaskState.FAILED, said="[/red] \x07")
    lines = list(run_lines(run, found, 60.0, most=10))
    assert len(lines) == 10
    assert lines[1].startswith(f"{run.tasks[-1].host.name}     running")
    assert lines[2].startswith(f"{run.tasks[-2].host.name}     failed")
    assert lines[-3:] == ["and 14 more", "1 running, 18 finished, 1 failed", "at most about 60 s left"]
    assert all(line.isprintable() for line in lines)
    assert len(list(run_lines(run, found, None))) == 22


def test_what_began_and_was_not_seen_to_end_is_known_to_the_next_call(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("XDG_DATA_HOME", str(tmp_path))
    run = fleet_run("abc")
    RUNS.keep(run)
    noted = OpenTasks(run)
    for one in run.tasks[:2]:
        noted.begins(one)
    noted.ended(run.tasks[0], TaskProgress(state=TaskState.FINISHED))
    again = OpenTasks(RUNS.find("last"))
    assert [one in again for one in run.tasks] == [False, True, False]
    assert [again.is_new(one) for one in run.tasks] == [False, False, True]
    with (RUNS.place / f"{run.name}.open").open("ab") as file:
        file.write(b"\0\xff\xfe+r.")  # a host lost its power
    torn = OpenTasks(run)
    assert [one in torn for one in run.tasks] == [False, True, False]
    torn.begins(run.tasks[2])
    assert [one in OpenTasks(run) for one in run.tasks] == [False, True, True]
