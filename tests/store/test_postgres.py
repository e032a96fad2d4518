# SPDX-License-Identifier: Apache-2.0
"""A store in PostgreSQL: what every store promises, the same views, and one sentence for whatever is wrong there."""

import gzip
import json
import sqlite3
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import psycopg
import pytest
from tests.conftest import User, eventually
from tests.postgres import Server
from tests.store.kept import COMPARE, IMPORT, KEPT, moved
from tests.store.store_contract import CAPTURES, STUDY, StoreContract, record

from virtune.cli import run
from virtune.flows.stored.derive import derive_studies
from virtune.flows.stored.show import by_todays_method, current
from virtune.model.errors import DatabaseUrl, StoreError, StorePlace
from virtune.model.evidence import DerivedStudy, Listed
from virtune.model.measurement import METHOD
from virtune.store.queries import VIEWS
from virtune.store.store import Store

pytestmark = pytest.mark.xdist_group("postgres")


@pytest.fixture
def url(postgres: Server) -> DatabaseUrl:
    """An empty database."""
    return postgres.new_database("v")


@pytest.fixture
def store(url: DatabaseUrl) -> Iterator[Store]:
    """A store with one study."""
    with Store(url) as found:
        found.add_study(STUDY, facts='{"a": 1}')
        yield found


def asked(url: DatabaseUrl, query: str) -> list[tuple[Any, ...]]:
    with psycopg.connect(url.text, options="-c search_path=virtune") as db:
        return db.execute(query.encode()).fetchall()


class TestPostgresStore(StoreContract):
    """What every store promises."""

    NEWER = "update virtune_store set format = 99"
    NO_STREAMS = r"update captures set content = '\x00ff'"

    def sql(self, store: Store, *statements: str) -> None:
        with psycopg.connect(str(store.place), options="-c search_path=virtune") as db:
            for statement in statements:
                db.execute(statement.encode())

    def empty(self, store: Store) -> StorePlace:
        self.sql(store, "drop schema virtune cascade")
        store._backend.engine.dispose()
        return store.place

    def require_sound(self, place: StorePlace) -> None:
        url = DatabaseUrl(str(place))
        assert eventually(lambda: not asked(url, "select 1 from pg_locks where locktype = 'advisory'"))
        others = "select pid from pg_stat_activity where application_name = 'virtune'"
        assert eventually(lambda: not asked(url, others)), "a connection was left"


def test_what_is_written_is_on_the_disk_before_it_returns(store: Store) -> None:
    with store._backend.engine.connect() as connection:  # the tests' server itself says off
        assert connection.exec_driver_sql("SHOW synchronous_commit").scalar_one() == "on"


def test_an_attempt_that_the_database_refuses_is_not_taken_for_one_kept(store: Store, url: DatabaseUrl) -> None:
    """Rows that were copied in by their numbers, as some restore a database, leave its counter behind them."""
    store.add_trial(STUDY.id, record(1), CAPTURES)
    asked(url, "select setval('trials_id_seq', 1, false)")
    with pytest.raises(StoreError, match="duplicate key"):
        store.add_trial(STUDY.id, record(2), CAPTURES)
    assert [one.trial.number for one in store.get(STUDY.id).trials] == [1]
    assert not store.add_trial(STUDY.id, record(1), CAPTURES), "the same again is the same"


def test_a_kept_store_moved_there_says_and_shows_the_same(url: DatabaseUrl, tmp_path: Path) -> None:
    place = tmp_path / "before.sqlite"
    place.write_bytes(gzip.decompress(KEPT.read_bytes()))
    copied = tmp_path / "copied.sqlite"
    for target in (copied, url):
        with Store(place) as before, Store(target) as after:
            listed = [one for one in before.list() if isinstance(one, Listed)]
            for one in reversed(listed):
                moved(before, after, one.study.id)
            assert after.list() == before.list()
            for one in listed:
                assert current(after, one.study.id) == current(before, one.study.id)
    for name in VIEWS:
        with sqlite3.connect(copied) as db:
            found = db.execute(f"select * from {name}")  # noqa: S608 - our own names
            columns, mine = [one[0] for one in found.description], set(found.fetchall())
        with psycopg.connect(url.text, options="-c search_path=virtune") as other:
            cursor = other.execute(f"select * from {name}".encode())  # noqa: S608 - our own names
            assert [one.name for one in cursor.description or ()] == columns
            theirs = set(cursor.fetchall())
        assert theirs == mine, name
        assert mine


def test_a_damaged_record_is_left_out_of_the_views(url: DatabaseUrl, store: Store) -> None:
    for number in (1, 2, 3):
        store.add_trial(STUDY.id, record(number), ())
    every = "select count(distinct trial) from view_values"
    assert asked(url, every) == [(3,)]
    with psycopg.connect(url.text, options="-c search_path=virtune") as db:
        db.execute("update measurements set measurement = '{' where trial_id = 1")
        db.execute("""update measurements set measurement = '{"values": 3}' where trial_id = 2""")
        db.execute("update trials set in_force = '{' where number = 1")
    assert asked(url, every) == [(1,)]
    assert asked(url, "select distinct trial from view_settings order by 1") == [(2,), (3,)]
    assert asked(url, "select trial, counts from view_trials order by 1") == [(1, 0), (2, 1), (3, 1)]


def test_the_views_are_made_once_and_anew_where_their_text_changed(url: DatabaseUrl, store: Store) -> None:
    before = asked(url, "select oid from pg_class where relname like 'view%' order by 1")
    with Store(url):
        pass
    assert asked(url, "select oid from pg_class where relname like 'view%' order by 1") == before
    with psycopg.connect(url.text, options="-c search_path=virtune") as db:
        db.execute("comment on view view_values is 'virtune 0'")
    with Store(url):
        pass
    assert asked(url, "select oid from pg_class where relname like 'view%' order by 1") != before


def test_two_that_make_a_store_at_once_make_one(url: DatabaseUrl) -> None:
    failed: list[BaseException] = []

    def make() -> None:
        try:
            with Store(url) as found:
                assert found.list() == ()
        except BaseException as error:  # noqa: BLE001 - told to the test
            failed.append(error)

    makers = [threading.Thread(target=make) for _ in range(4)]
    for one in makers:
        one.start()
    for one in makers:
        one.join()
    assert failed == []


def said(url: str, capfd: pytest.CaptureFixture[str]) -> str:
    assert run(["show", "list", "--store", url]) == 1
    err = capfd.readouterr().err
    assert err.startswith("error: ")
    assert "s3cret" not in err
    assert "Traceback" not in err
    return err


def test_whatever_is_wrong_there_is_one_sentence(
    postgres: Server, url: DatabaseUrl, capfd: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    assert "is no store of virtune's" in said(url.text, capfd)
    assert "no server answers there" in said("postgresql:///x?host=/nowhere", capfd)
    assert "no server answers there" in said("postgresql://127.0.0.1:9/x", capfd)
    assert "there is no such database on the server" in said(postgres.url("nosuch").text, capfd)
    web = postgres.url("v", "web").text
    assert "the server wants a password, and none is known" in said(web, capfd)
    monkeypatch.setenv("PGPASSWORD", "wrong-s3cret")
    assert "the server refuses the password" in said(web, capfd)
    monkeypatch.setenv("PGPASSWORD", "s3cret")
    with Store(url) as made:
        made.add_study(STUDY, facts="")
        made.finish(STUDY.id)
    assert "this user may not do that there" in said(web, capfd)
    reading = ["GRANT USAGE ON SCHEMA virtune TO web", "GRANT SELECT ON ALL TABLES IN SCHEMA virtune TO web"]
    postgres.sql(*reading, database="v")
    assert run(["show", "list", "--store", web]) == 0
    assert STUDY.id in capfd.readouterr().out
    with Store(DatabaseUrl(web), reading=True) as seen:
        assert not seen.writable
        assert [one.id for one in seen.finished(["compare"])] == [STUDY.id]
    with pytest.raises(StoreError, match="this user may not do that there"), Store(DatabaseUrl(web)) as refused:
        refused.finish(STUDY.id)
    postgres.sql("REVOKE ALL ON virtune.summaries FROM web", database="v")  # it came later than what was granted
    with Store(DatabaseUrl(web), reading=True) as seen:
        assert [one.id for one in seen.finished(["compare"])] == [STUDY.id]
        assert seen.summaries([("", STUDY.id)], method="1") == {}
        assert not seen.keeps_summaries
    assert "no study 'x' in postgresql://" in _usage(["show", "x", "--store", url.text], capfd)


def _usage(words: list[str], capfd: pytest.CaptureFixture[str]) -> str:
    assert run(words) == 2
    return capfd.readouterr().err


@pytest.mark.parametrize("form", ["postgresql://u:s3cret@h/d", "postgres:///d?password=s3cret&host=h"])
def test_a_password_in_the_url_is_refused_and_not_repeated(form: str, capfd: pytest.CaptureFixture[str]) -> None:
    err = _usage(["show", "list", "--store", form], capfd)
    assert "has a password, which the process list would show" in err
    assert "s3cret" not in err


def test_a_schema_of_another_program_is_left_as_it_was(url: DatabaseUrl) -> None:
    with psycopg.connect(url.text) as db:
        db.execute("create schema virtune")
        db.execute("create table virtune.studies (name text)")
    with pytest.raises(StoreError, match="is a database of another program"), Store(url):
        pytest.fail("opened")
    assert asked(url, "select count(*) from information_schema.tables where table_schema = 'virtune'") == [(1,)]


def test_a_connection_that_is_cut_is_one_sentence_and_what_was_finished_is_kept(
    postgres: Server, url: DatabaseUrl, store: Store
) -> None:
    store.add_trial(STUDY.id, record(1), CAPTURES)
    postgres.sql("select pg_terminate_backend(pid) from pg_stat_activity where datname = 'v'")
    with pytest.raises(StoreError, match="the connection to the server was lost"):
        store.add_trial(STUDY.id, record(2), CAPTURES)
    with Store(url, reading=True) as again:
        assert [one.trial.number for one in again.get(STUDY.id).trials] == [1]


def test_a_comparison_is_kept_there_and_shown(
    url: DatabaseUrl, tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    words = ["--arm", "a:rig=simulated", "--arm", "b:rig=simulated,disk.aio=io_uring", "--rounds", "2", "--quiet"]
    assert run(["compare", *words, "--scratch", str(tmp_path), "--store", url.text]) == 0
    capfd.readouterr()
    assert run(["show", "--json", "--store", url.text]) == 0
    assert len(json.loads(capfd.readouterr().out)["arms"]) == 2
    kept = asked(url, "select study || facts from studies")
    assert "postgresql" not in str(kept), "where studies are kept is no part of them"


def test_what_another_machine_derives_now_is_left_to_it_and_waited_for(url: DatabaseUrl, tmp_path: Path) -> None:
    place = tmp_path / "before.sqlite"
    place.write_bytes(gzip.decompress(KEPT.read_bytes()))
    with Store(place) as before, Store(url) as after:
        moved(before, after, COMPARE)
        moved(before, after, IMPORT)
    found: list[DerivedStudy] = []

    def derive() -> None:
        found.extend(derive_studies(url, (), processes=1))

    here = threading.Thread(target=derive, daemon=True)
    with Store(url) as other:
        with other.claimed(COMPARE) as mine:
            assert mine
            here.start()
            assert eventually(lambda: not other.methods(IMPORT)[0].older, seconds=120), "the other one was not begun"
            assert eventually(lambda: bool(asked(url, "select 1 from pg_locks where not granted"))), "nobody waits"
            assert other.methods(COMPARE)[0].older == 16
            by_todays_method(other, COMPARE)
        here.join(120)
    assert {one.name: (one.derived, one.current) for one in found} == {IMPORT: (1, 0), COMPARE: (0, 16)}
    assert asked(url, "select method, count(*) from measurements where method > 0 group by method") == [(METHOD, 17)]


def test_a_study_that_another_host_runs_is_not_run_a_second_time(
    url: DatabaseUrl, user: User, tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    words = ["--arm", "a:rig=simulated", "--arm", "b:rig=simulated,disk.aio=io_uring", "--rounds", "4", "--quiet"]
    assert run(["compare", *words, "--scratch", str(tmp_path), "--store", url.text]) == 0
    with psycopg.connect(url.text, options="-c search_path=virtune") as db:
        db.execute("delete from trials where number > 3")
        db.execute("update studies set finished = 0")
    with Store(url) as other, other.claimed(f"run {other.find('last')}"):
        assert run(["compare", "resume", "--quiet", "--store", url.text]) == 3
        assert "another process runs study" in capfd.readouterr().err
        assert asked(url, "select count(*) from trials") == [(3,)]
    running = []
    for number in range(3):
        user.env["XDG_DATA_HOME"] = str(tmp_path / f"host{number}")
        running.append(user.start("compare", "resume", "--quiet", "--store", url.text))
    for one in running:
        one.communicate(60)
    codes = {one.returncode for one in running}
    assert codes <= {0, 3}
    assert 0 in codes
    assert asked(url, "select number, count(*) from trials group by number order by 1") == [
        (n, 1) for n in range(1, 9)
    ]
