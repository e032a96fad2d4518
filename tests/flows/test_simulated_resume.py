# SPDX-License-Identifier: Apache-2.0
"""What becomes of trials that are over, on a simulated rig: a failed one runs again, a finished one does not."""

import random
import sqlite3
import time
from pathlib import Path

import pytest
from tests.conftest import User

from virtune.cli import run
from virtune.model.evidence import StudyRecord
from virtune.store.progress import ProgressFile
from virtune.store.store import Store


def study(path: Path, rig: str, *more: str) -> StudyRecord:
    words = ("compare", "--rig", rig, "--vary", "disk.aio=threads,io_uring", "--seed", "3", "-q", *more)
    run([*words, "--store", str(path)])
    return kept(path)


def kept(path: Path) -> StudyRecord:
    with Store(path, reading=True) as store:
        return store.get(store.find("last"))


def test_a_finished_study_has_nothing_to_resume(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    path = tmp_path / "store.sqlite"
    before = study(path, "simulated", "--rounds", "4")
    assert before.finished
    assert len(before.attempts) == 8
    assert run(["compare", "resume", "last", "-q", "--store", str(path)]) == 0
    assert kept(path) == before


def test_a_load_that_failed_runs_once_more(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    found = study(tmp_path / "store.sqlite", "simulated:failing", "--rounds", "12")
    failed = [one for one in found.attempts if one.failure is not None and one.attempt == 1]
    assert failed, "this scenario has loads fail"
    assert {one.trial.number for one in failed} == {one.trial.number for one in found.attempts if one.attempt == 2}


def stopped_after(trials: int, path: Path) -> None:
    """Leave of a finished study what a kill after so many trials leaves."""
    with sqlite3.connect(path) as store:
        store.execute("PRAGMA foreign_keys = ON")
        store.execute("DELETE FROM trials WHERE number > ?", (trials,))
        store.execute("UPDATE studies SET finished = 0")


# equal counts are the same after six rounds, equal times never
ALIKE = ("compare", "--arm", "a:", "--arm", "b:", "--metric", "latency.mean")
SEQUENTIAL = (*ALIKE, "--rounds", "12", "--margin", "0.001", "--confidence", "0.999")
AT_LOAD = ("compare", "--arm", "a:", "--arm", "b:", "--at-load", "50%", "--rounds", "6", "--margin", "0.001")
SEARCH = ("tune", "--vary", "disk.aio=threads,native,io_uring", "--confirm", "2", "--budget", "60s")


@pytest.mark.parametrize(
    ("words", "trials"),
    # in the midst of a round or a block, early and late; while the saturation is measured, and afterwards
    [(SEQUENTIAL, (5, 17)), (AT_LOAD, (1, 13)), (SEARCH, (4, 11))],
    ids=["compare", "at a load", "tune"],
)
def test_a_killed_study_goes_on_in_the_order_that_it_would_have_had(
    words: tuple[str, ...], trials: tuple[int, ...], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    path = tmp_path / "store.sqlite"
    assert run([*words, "--rig", "simulated", "--seed", "11", "-q", "--store", str(path)]) == 0
    whole = order(path)
    assert len(whole) > max(trials)
    for last in trials:
        stopped_after(last, path)
        assert order(path) == whole[:last]
        assert run(["compare", "resume", "last", "-q", "--store", str(path)]) == 0
        assert order(path) == whole, last


def test_a_study_that_another_process_runs_is_not_run_a_second_time(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    path = tmp_path / "store.sqlite"
    before = study(path, "simulated", "--rounds", "4")
    stopped_after(5, path)
    resume = ["compare", "resume", "last", "-q", "--store", str(path)]
    with ProgressFile(path, before.study.id):
        assert run(resume) == 3
        assert f"another process runs study {before.study.id} now" in capsys.readouterr().err
        assert len(kept(path).attempts) == 5
    assert run(resume) == 0
    assert order(path) == sorted((one.number, one.round, one.arm) for one in before.study.trials)


@pytest.mark.parametrize("seed", [1, *(pytest.param(n, marks=pytest.mark.long) for n in range(2, 20))])
def test_what_several_resume_at_once_is_measured_once(user: User, seed: int, tmp_path: Path) -> None:
    path, chance = tmp_path / "store.sqlite", random.Random(seed)
    assert run([*SEQUENTIAL, "--rig", "simulated", "--seed", str(seed), "-q", "--store", str(path)]) == 0
    whole = order(path)
    stopped_after(chance.randrange(2, 8), path)
    running = []
    for number in range(3):
        (name := tmp_path / f"{number}.sqlite").symlink_to(path)
        running.append(user.start("compare", "resume", "last", "-q", "--store", str(name)))
        time.sleep(chance.uniform(0, 0.1))
    ended = [(*one.communicate(60), one.returncode) for one in running]
    assert 0 in [code for *_, code in ended]
    for _, said, code in ended:
        assert code == 0 or (code == 3 and "another process runs study" in said), said
    assert order(path) == whole
    assert len(kept(path).attempts) == len(whole)
    assert kept(path).finished


def order(path: Path) -> list[tuple[int, int, str]]:
    trials = (one.trial for one in kept(path).trials)
    return sorted((one.number, one.round, one.arm) for one in trials)
