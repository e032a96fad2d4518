# SPDX-License-Identifier: Apache-2.0
"""`virtune show derive` gives a kept store today's figures once, keeps the older ones, and names what is damaged."""

import gzip
import json
import sqlite3
from pathlib import Path
from typing import Any

import pytest
from tests.published import complaints

from virtune.cli import run
from virtune.flows.stored.derive import derive_studies
from virtune.flows.stored.show import current
from virtune.model.measurement import METHOD
from virtune.store.store import Store

KEPT = Path(__file__).parents[1] / "store" / "data" / "older-method.sqlite.gz"
COMPARE = "20261122-184255-3883"
Capture = pytest.CaptureFixture[str]


@pytest.fixture
def place(tmp_path: Path) -> Path:
    """A store whose measurements are of an older method."""
    made = tmp_path / "before.sqlite"
    made.write_bytes(gzip.decompress(KEPT.read_bytes()))
    return made


def document(words: list[str], capfd: Capture, status: int = 0) -> dict[str, dict[str, Any]]:
    capfd.readouterr()
    assert run(["show", "derive", *words, "--json"]) == status
    found = json.loads(capfd.readouterr().out)
    assert complaints("derive", found) == []
    assert found["method"] == METHOD
    return {one["id"]: one for one in found["studies"]}


def methods(place: Path) -> list[tuple[int, int]]:
    with sqlite3.connect(place) as db:
        return db.execute("select method, count(*) from measurements group by method").fetchall()


def test_every_study_gets_today_s_figures_once_and_the_older_ones_stay(place: Path, capfd: Capture) -> None:
    before = dict(methods(place))
    found = document(["--store", str(place)], capfd)
    assert len(found) == 4
    assert sum(one["derived"] + one["unreadable"] for one in found.values()) == sum(before.values())
    assert found[COMPARE]["derived"] == 16
    after = dict(methods(place))
    assert {one: after[one] for one in before} == before
    assert after[METHOD] == sum(one["derived"] for one in found.values())
    again = document(["--store", str(place), COMPARE], capfd)
    assert (again[COMPARE]["derived"], again[COMPARE]["current"]) == (0, 16)
    with Store(place, reading=True) as store:
        record, _ = current(store, COMPARE)
    assert record.methods == (METHOD,)


def test_a_damaged_study_is_named_and_the_others_are_derived(place: Path, capfd: Capture) -> None:
    with sqlite3.connect(place) as db:
        db.execute("update studies set study = '{' where id = ?", (COMPARE,))
    found = document(["--store", str(place)], capfd, status=1)
    assert "is damaged" in found[COMPARE]["because"]
    assert sum(one["derived"] for one in found.values()) > 0
    assert run(["show", "derive", "--store", str(place)]) == 1
    assert f"{COMPARE}: study {COMPARE} in {place} is damaged" in capfd.readouterr().out


def test_the_studies_of_a_fleet_are_derived_by_several_processes(place: Path, tmp_path: Path) -> None:
    together = tmp_path / "fleet.sqlite"
    with Store(place, reading=True) as one:
        records = [one.get(name) for name in (listed.name for listed in one.methods())]
        captures = [[one.captures(each.study.id, trial.trial.number) for trial in each.trials] for each in records]
    for host in ("h1", "h2"):
        with Store(together, host=host) as store:
            for record, mine in zip(records, captures, strict=True):
                store.add_whole(record, mine)
    # by default so few attempts are not worth another process
    found = {one.name: one for one in derive_studies(together, (), processes=2, each=10)}
    assert next(iter(found)).startswith("h2/"), "the newest first"
    each = [{name.partition("/")[2]: one for name, one in found.items() if name.startswith(host)} for host in
            ("h1", "h2")]  # fmt: skip
    assert each[0][COMPARE].derived == 16
    counts = [[(row.derived, row.unreadable) for row in mine.values()] for mine in each]
    assert counts == [counts[0]] * 2
