# SPDX-License-Identifier: Apache-2.0
"""Every verb that a fleet runs tells whoever carries it which study it makes, before the first trial."""

from pathlib import Path

import pytest

from virtune.cli import run
from virtune.cli.common.progress import CarriedStudy
from virtune.flows.fleet.here import VERBS, progress_in
from virtune.model.evidence import Listed
from virtune.model.fleet import TaskState
from virtune.store.store import Store

CAPTURES = Path(__file__).parents[1] / "captures" / "fio"

QUICK = {
    "compare": ("--vary", "disk.aio=threads,io_uring", "--rounds", "20"),
    "check": ("--seconds", "10s"),
    "measure": ("--rounds", "1"),
    "sweep": ("--loads", "50%,100%", "--rounds", "1"),
    "tune": ("--vary", "disk.aio=threads,io_uring", "--budget", "1m"),
}
"""Each verb with what makes it short. `study` runs what `compare` or `tune` run."""


@pytest.mark.parametrize("verb", [one for one in VERBS if one != "study"])
def test_a_verb_that_a_fleet_runs_tells_its_study(verb: str, tmp_path: Path) -> None:
    told: list[str] = []
    carried = CarriedStudy(begin=told.append)
    place = tmp_path / "store.sqlite"
    assert (
        run([verb, "--rig", "simulated", "--seed", "1", "-q", "--store", str(place), *QUICK[verb]], carried=carried)
        == 0
    )
    with Store(place, reading=True) as store:
        assert told == [one.study.id for one in store.list() if isinstance(one, Listed)]
    assert carried.run is not None
    assert carried.run.study == told[0]
    assert carried.run.total == carried.run.done or verb == "tune", "what was not needed is not left"


def test_words_that_make_no_study_are_refused_where_a_fleet_plans_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("XDG_DATA_HOME", str(tmp_path))
    results = [str(CAPTURES / name) for name in ("buffered.both", "fsync.both")]
    assert run(["fleet", "here", "x.0", "--estimate", "--", "compare", "--different-jobs", *results]) == 0
    found = progress_in(capfd.readouterr().out)
    assert (found.state, found.code, found.said) == (TaskState.FAILED, 2, "these words make no study")
