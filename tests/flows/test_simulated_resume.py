# SPDX-License-Identifier: Apache-2.0
"""What becomes of trials that are over, on a simulated rig: a failed one runs again, a finished one does not."""

from pathlib import Path

import pytest

from virtune.cli import run
from virtune.model.evidence import StudyRecord
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
    assert run(["resume", "last", "-q", "--store", str(path)]) == 0
    assert kept(path) == before


def test_a_load_that_failed_runs_once_more(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    found = study(tmp_path / "store.sqlite", "simulated:failing", "--rounds", "12")
    failed = [one for one in found.attempts if one.failure is not None and one.attempt == 1]
    assert failed, "this scenario has loads fail"
    assert {one.trial.number for one in failed} == {one.trial.number for one in found.attempts if one.attempt == 2}
