# SPDX-License-Identifier: Apache-2.0
"""A store in a SQLite file: what every store promises, what is SQLite's own, and files that are something else."""

import contextlib
import sqlite3
import subprocess
import sys
from pathlib import Path

import pytest
from tests.store.store_contract import CAPTURES, STUDY, StoreContract, record

from virtune.cli import run
from virtune.cli.show import NEWEST
from virtune.model.errors import StoreError, StorePlace
from virtune.store.store import Store


@pytest.fixture
def store(tmp_path: Path) -> Store:
    with Store(tmp_path / "deep" / "store.sqlite") as found:
        found.add_study(STUDY, facts='{"a": 1}')
    return found


class TestSqliteStore(StoreContract):
    """What every store promises."""

    NEWER = "pragma user_version = 99"
    NO_STREAMS = "update captures set content = x'00ff'"

    def sql(self, store: Store, *statements: str) -> None:
        with sqlite3.connect(str(store.place)) as db:
            for statement in statements:
                db.execute(statement)
        db.close()

    def empty(self, store: Store) -> Path:
        return Path(str(store.place)).with_name("new.sqlite")

    def require_sound(self, place: StorePlace) -> None:
        with contextlib.closing(sqlite3.connect(str(place), timeout=0)) as db:
            assert db.execute("pragma integrity_check").fetchall() == [("ok",)]
            assert db.execute("pragma foreign_key_check").fetchall() == []
            assert db.execute("pragma journal_mode").fetchone() == ("wal",)
            db.execute("begin exclusive")


def test_a_file_needs_nothing_of_postgresql(store: Store) -> None:
    """To load its dialect takes a tenth of a command's CPU time."""
    program = f"""
import sys
from pathlib import Path
from virtune.store.store import Store
with Store(Path({str(store.place)!r})) as found:
    assert found.get({STUDY.id!r}).study.id == {STUDY.id!r}
print([one for one in sys.modules if "postgresql" in one])
"""
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, timeout=60)
    assert (done.stderr, done.stdout.strip()) == ("", "[]")


def test_what_is_written_is_on_the_disk_before_it_returns(store: Store) -> None:
    """A lost power supply cannot be tried here: SQLite is asked how it writes."""
    with store._backend.engine.connect() as connection:
        assert connection.exec_driver_sql("PRAGMA synchronous").scalar_one() == 2  # FULL
        assert connection.exec_driver_sql("PRAGMA journal_mode").scalar_one() == "wal"


def test_a_list_shows_the_newest_studies_and_says_how_many_are_older(
    store: Store, capfd: pytest.CaptureFixture[str]
) -> None:
    names = [f"20260101-000000-{number:04x}" for number in range(NEWEST)]
    with sqlite3.connect(str(store.place)) as db:
        columns = "created, kind, replace(study, id, ?), facts, finished"
        copied = f"insert into studies select ?, {columns} from studies where id = ?"  # noqa: S608 - of constants
        db.executemany(copied, [(name, name, STUDY.id) for name in names])
    db.close()
    place = ["--store", str(store.place)]
    assert run(["show", "list", *place]) == 0
    shown = capfd.readouterr()
    assert names[0] in shown.out
    assert STUDY.id not in shown.out
    assert shown.err == "1 older: `virtune show list --all`\n"
    for words in (["--all"], ["--json"]):
        assert run(["show", "list", *words, *place]) == 0
        shown = capfd.readouterr()
        assert STUDY.id in shown.out
        assert shown.err == ""


@pytest.mark.parametrize("content", [b"not a database, and long enough to be read as one" * 100, b""])
def test_what_is_no_store_is_one_sentence(content: bytes, tmp_path: Path) -> None:
    path = tmp_path / "x.sqlite"
    path.write_bytes(content)
    if not content:
        with Store(path) as found:
            assert found.list() == ()
        return
    with pytest.raises(StoreError, match=r"cannot use the store .*not a database"), Store(path):
        pytest.fail("opened")


@pytest.mark.parametrize("content", ["'text'", "substr(content, 1, length(content) - 4)", "substr(content, 1, 9)"])
def test_a_capture_that_is_no_whole_stream_is_damaged(content: str, store: Store) -> None:
    store.add_trial(STUDY.id, record(1), CAPTURES)
    with sqlite3.connect(str(store.place)) as db:
        db.execute(f"update captures set content = {content} where name = 'odd'")  # noqa: S608
    db.close()
    with pytest.raises(StoreError, match="a capture in the store is damaged"):
        store.captures(STUDY.id, 1)


def test_reading_a_store_does_not_write_to_it(store: Store) -> None:
    with sqlite3.connect(str(store.place)) as db:
        before = db.execute("pragma data_version").fetchone()
        with Store(store.place) as again:
            assert len(again.list()) == 1
        assert db.execute("pragma data_version").fetchone() == before
        assert db.execute("pragma journal_mode").fetchone() == ("wal",)
    db.close()


def test_a_database_of_another_program_is_left_as_it_was(tmp_path: Path) -> None:
    path = tmp_path / "browser.sqlite"
    with sqlite3.connect(path) as db:
        db.execute("create table history (url text)")
    db.close()
    before = path.read_bytes()
    with pytest.raises(StoreError, match="is a database of another program"), Store(path):
        pytest.fail("opened")
    assert path.read_bytes() == before


@pytest.mark.parametrize("version", [0, 1])
@pytest.mark.parametrize(
    "tables",
    [
        "create table studies (name text)",  # a name of ours, and nothing else of it
        "create table studies (id, created, kind, study, facts, finished); create table grades (id)",
        "create table history (url text)",
    ],
)
def test_a_database_that_looks_like_ours_at_first_is_left_as_it_was(
    tables: str, version: int, tmp_path: Path
) -> None:
    path = tmp_path / "university.sqlite"
    with sqlite3.connect(path) as db:
        db.executescript(f"{tables}; pragma user_version={version}")
    db.close()
    before = path.read_bytes()
    with pytest.raises(StoreError, match="is a database of another program"), Store(path):
        pytest.fail("opened")
    assert path.read_bytes() == before


def test_an_unfinished_store_of_a_killed_virtune_is_finished(tmp_path: Path) -> None:
    path = tmp_path / "store.sqlite"
    with sqlite3.connect(path) as db:
        db.execute("create table studies (id, created, kind, study, facts, finished)")
    db.close()
    with Store(path) as store:
        assert store.list() == ()


def test_what_is_made_is_for_nobody_else_to_read(tmp_path: Path) -> None:
    path = tmp_path / "virtune" / "store.sqlite"
    with Store(path) as store:
        assert store.list() == ()
        seen = {one.name: one.stat().st_mode & 0o777 for one in (path.parent, *path.parent.iterdir())}
    assert seen.pop("virtune") == 0o700
    assert {*seen.values()} == {0o600}, seen


def test_an_empty_file_is_no_store_to_read(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    path = tmp_path / "empty"
    path.touch()
    assert run(["show", "list", "--store", str(path)]) == 1
    assert "is no store of virtune's" in capsys.readouterr().err
    assert path.stat().st_size == 0


def test_a_place_that_cannot_be_made_is_one_sentence(tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    with pytest.raises(StoreError, match="cannot make"), Store(tmp_path / "file" / "store.sqlite"):
        pytest.fail("opened")
