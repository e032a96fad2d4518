# SPDX-License-Identifier: Apache-2.0
"""The store's SQL views say what the CSV and the document say, and a store without them is read as before."""

import csv
import gzip
import io
import sqlite3
from pathlib import Path

import pytest

from virtune.flows.reports.export import measurements_csv
from virtune.store.queries import VIEWS
from virtune.store.store import Store

KEPT = Path(__file__).parent / "data" / "older-method.sqlite.gz"
COMPARE = "20261122-184255-3883"
GUIDE = Path(__file__).parents[2] / "docs" / "guide" / "recipes.md"


@pytest.fixture
def place(tmp_path: Path) -> Path:
    """A store that was written before there were views."""
    made = tmp_path / "before.sqlite"
    made.write_bytes(gzip.decompress(KEPT.read_bytes()))
    return made


def _views(place: Path) -> dict[str, str]:
    with sqlite3.connect(f"file:{place}?mode=ro", uri=True) as db:
        return dict(db.execute("select name, sql from sqlite_master where type = 'view'").fetchall())


def _asked(place: Path, query: str) -> list[dict[str, object]]:
    with sqlite3.connect(f"file:{place}?mode=ro", uri=True) as db:
        db.row_factory = sqlite3.Row
        return [dict(row) for row in db.execute(query)]


def test_the_views_hold_what_the_csv_holds(place: Path) -> None:
    with Store(place) as kept:
        rows = list(csv.DictReader(io.StringIO(measurements_csv(kept, COMPARE))))  # stores figures of today's method
    found = _asked(place, f"select * from view_values where study = '{COMPARE}'")  # noqa: S608 - our own id
    columns = ("study", "trial", "attempt", "round", "workload", "arm", "ended", "counts", "metric", "unit")
    mine = {tuple(str(row[name]) for name in columns): row["value"] for row in found}
    assert mine == {tuple(row[name] for name in columns): float(row["value"]) for row in rows}
    trials = _asked(place, f"select * from view_trials where study = '{COMPARE}'")  # noqa: S608 - our own id
    assert {(row["trial"], row["counts"]) for row in trials} == {
        (int(row["trial"]), int(row["counts"])) for row in rows
    }
    settings = _asked(place, "select distinct state from view_settings where setting = 'disk.cache'")
    assert settings == [{"state": "verified"}]
    with Store(place, reading=True) as kept:
        listed = {one.study.id: one.done for one in kept.list()}  # type: ignore[union-attr]
    assert {row["study"]: row["trials_done"] for row in _asked(place, "select * from view_studies")} == listed


def test_reading_makes_no_view_and_writing_makes_them_once(place: Path) -> None:
    before = place.read_bytes()
    with Store(place, reading=True) as kept:
        assert kept.find("last")
    assert place.read_bytes() == before
    with Store(place):
        pass
    assert _views(place).keys() == VIEWS.keys()
    made = place.read_bytes()
    with Store(place):
        pass
    assert place.read_bytes() == made


def test_a_view_of_an_older_virtune_is_made_anew_and_a_table_of_its_name_is_left(place: Path) -> None:
    with sqlite3.connect(place) as db:
        db.execute("create view view_values as select 1 as one")
        db.execute("create table view_settings (mine text)")
    with Store(place):
        pass
    assert "json_each" in _views(place)["view_values"]
    assert _asked(place, "select count(*) as n from view_settings") == [{"n": 0}]


def test_a_damaged_record_is_left_out_and_the_others_are_found(place: Path) -> None:
    with Store(place):
        pass
    every = "select count(distinct trial) as n from view_values where study = ?".replace("?", f"'{COMPARE}'")
    (before,) = _asked(place, every)
    with sqlite3.connect(place) as db:
        (first,) = db.execute("select min(id) from trials where study_id = ?", (COMPARE,)).fetchone()
        db.execute("update measurements set measurement = '{' where trial_id = ?", (first,))
        db.execute("update trials set in_force = '{' where id = ?", (first,))
        db.execute("update studies set study = '{' where id <> ?", (COMPARE,))
    (after,) = _asked(place, every)
    assert after["n"] == before["n"] - 1  # type: ignore[operator]
    assert [row["study"] for row in _asked(place, "select study from view_studies")] == [COMPARE]
    assert _asked(place, f"select 1 from view_settings where study = '{COMPARE}'")  # noqa: S608 - our own id


def test_the_guide_names_every_view_and_column(place: Path) -> None:
    with Store(place):
        pass
    text = GUIDE.read_text()
    for view in VIEWS:
        assert f"`{view}`" in text
        for column in _asked(place, f"select name from pragma_table_info('{view}')"):  # noqa: S608 - our own names
            assert f"`{column['name']}`" in text.partition(f"`{view}`")[2].split("\n")[0], (view, column)


def test_the_query_of_the_guide_runs(place: Path) -> None:
    with Store(place):
        pass
    query = GUIDE.read_text().partition("```sql\n")[2].partition("```")[0]
    newest = _asked(place, query)
    assert newest
    assert all(row["iops"] and row["rounds"] for row in newest)
