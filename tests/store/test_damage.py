# SPDX-License-Identifier: Apache-2.0
"""One damaged row leaves the others readable, every damage is one sentence, and what may only be read is read."""

import contextlib
import os
import shutil
import sqlite3
import subprocess
import zlib
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path
from random import Random

import pytest
import sqlalchemy as sa
from tests.store.store_contract import CAPTURES, MEASURED, STUDY, record

from virtune.cli import run
from virtune.flows.stored.show import current
from virtune.model.errors import StoreError, UsageError, VirtuneError
from virtune.model.evidence import Damaged, Listed
from virtune.model.measurement import METHOD
from virtune.store.store import Store

IDS = tuple(f"2026010{number}-000000-aaaa" for number in (1, 2, 3))
FACTS = '{"host": {"cpu": {"model": "x"}}, "findings": []}'


@pytest.fixture
def place(tmp_path: Path) -> Path:
    """A store with three studies of four trials."""
    path = tmp_path / "studies" / "store.db"
    with Store(path) as store:
        for name in IDS:
            store.add_study(replace(STUDY, id=name), facts=FACTS)
            for number in range(1, 5):
                store.add_trial(name, record(number), CAPTURES)
            store.finish(name)
    return path


def damage(path: Path, statement: str, *values: object) -> None:
    with sqlite3.connect(path) as db:
        db.execute("pragma synchronous = off")
        db.execute(statement, values)
    db.close()


STUDY_DAMAGE = {
    "no UTF-8": "update studies set study = cast(X'7bff22' as text) where rowid = 2",
    "no UTF-8 in a name": "update studies set study = cast(replace(study, '/x', X'ff') as text) where rowid = 2",
    "a blob": "update studies set study = X'ff' where rowid = 2",
    "nothing": "update studies set study = '' where rowid = 2",
    "another's": "update studies set study = (select study from studies where rowid = 1) where rowid = 2",
    "no date": "update studies set study = replace(study, '2026-01-01T00:00:00+00:00', 'soon') where rowid = 2",
    "deep": "update studies set study = replace(hex(zeroblob(50000)), '00', '[') where rowid = 2",
}


@pytest.mark.parametrize("statement", STUDY_DAMAGE.values(), ids=STUDY_DAMAGE)
def test_one_damaged_study_leaves_the_others_readable(
    statement: str, place: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    damage(place, statement)
    with Store(place, reading=True) as store:
        found = store.list()
        assert [type(one) for one in found] == [Listed, Damaged, Listed]
        for good in (IDS[0], IDS[2]):
            assert len(store.get(store.find(good)).trials) == 4
        assert store.find("last") == IDS[2]
        with pytest.raises(StoreError, match=rf"study {IDS[1]} in .* is damaged"):
            store.get(IDS[1])
    assert run(["show", "list", "--store", str(place)]) == 0
    out = capsys.readouterr().out
    assert IDS[0] in out
    assert "damaged in" in out


@pytest.mark.parametrize("name", [b"\xff", "../../evil", "a\0b", "x" * 300, "\udcff"])
def test_an_invalid_id_leaves_the_other_studies_readable(
    name: object, place: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    if isinstance(name, str):
        kept = name.encode(errors="surrogateescape")
        change = (
            "update studies set id = cast(? as text), study = replace(study, id, cast(? as text)) where rowid = 2"
        )
        damage(place, change, kept, kept)
    else:
        damage(place, "update studies set id = ? where rowid = 2", name)
    with Store(place, reading=True) as store:
        assert [type(one) for one in store.list()] == [Listed, Damaged, Listed]
        assert len(store.get(store.find(IDS[0])).trials) == 4
        with pytest.raises(UsageError, match="no study 'nosuch'"):
            store.find("nosuch")
    for words in (["show", "2026"], ["show", "nosuch"], ["show", "../../evil"], ["resume", "../../evil"]):
        assert run([*words, "--store", str(place)]) in (1, 2)
    for words in (["list"], ["show", "list", "--json"], ["show", IDS[0]]):
        assert run([*words, "--store", str(place)]) == 0
    capsys.readouterr()


def test_damaged_facts_leave_the_measurements_readable(
    place: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    for facts in ("substr(facts, 1, 20)", "X'ff'", "'[]'", "'3'", "cast(X'ff' as text)"):
        damage(place, f"update studies set facts = {facts} where rowid = 3")  # noqa: S608 - what is listed above
        for words in (["--json"], ["--report", str(tmp_path / "report")], []):
            assert run(["show", IDS[2], *words, "--store", str(place)]) == 0
            assert f"the facts of this study's host are damaged in {place}" in capsys.readouterr().err
        damage(place, "update studies set facts = ? where rowid = 3", FACTS)
    assert run(["show", IDS[2], "--store", str(place)]) == 0
    assert "damaged" not in capsys.readouterr().err


@pytest.mark.parametrize(
    ("statement", "says"),
    [
        ("update trials set number = 'x' where id = 10", "a column holds something else"),
        ("update trials set attempt = X'00' where id = 10", "a column holds something else"),
        ("update trials set round = 0 where id = 10", "a column holds something else"),
        ("update trials set failure = 3.5 where id = 10", None),
        ("update trials set arm = 'zz' where id = 10", "the study has no arm 'zz'"),
        ("update trials set workload = 'zz' where id = 10", "it has no workload 'zz'"),
        ("update trials set ended = 'soon' where id = 10", "a column holds something else"),
        ("update trials set in_force = '{' where id = 10", "a record in the store is damaged"),
        ("update trials set in_force = cast(X'22ff22' as text) where id = 10", "is damaged"),
        ("update measurements set measurement = X'00' where trial_id = 10", "a record in the store is damaged"),
    ],
)
def test_a_damaged_trial_is_named_and_the_other_studies_stay_readable(
    statement: str, says: str | None, place: Path
) -> None:
    damage(place, statement)
    with Store(place, reading=True) as store:
        if says is None:
            assert store.get(IDS[2]).trials[1].failure == "3.5"  # a column of text makes text of it
        else:
            with pytest.raises(StoreError, match=says):
                store.get(IDS[2])
        assert len(store.get(IDS[0]).trials) == 4


def columns(path: Path) -> list[tuple[str, str]]:
    with sqlite3.connect(path) as db:
        tables = [name for (name,) in db.execute("select name from sqlite_master where type = 'table'")]
        found = [(table, row[1]) for table in tables for row in db.execute(f"pragma table_info({table})")]
    db.close()
    return found


VALUES = (
    "X'ff'",
    "X'00'",
    "''",
    "-1",
    "1e300",
    "'\u202e'",
    "cast(X'ff' as text)",
    "9223372036854775807",
    "'{}'",
    "'[]'",
)


def readers(path: Path) -> Iterator[Callable[[], object]]:
    """All that reads a store."""

    def every(what: Callable[[Store, str], object]) -> Callable[[], object]:
        def tried() -> None:
            with Store(path, reading=True) as store:
                for name in IDS:
                    with contextlib.suppress(VirtuneError):
                        what(store, name)

        return tried

    yield every(lambda store, _: store.list())
    yield every(lambda store, name: current(store, store.find(name)))
    yield every(lambda store, name: store.captures(name, 1))


def test_whatever_a_cell_holds_is_read_or_one_sentence(place: Path, tmp_path: Path) -> None:
    damaged = tmp_path / "damaged.db"
    every = [(*cell, value) for cell in columns(place) for value in VALUES]
    tried = 0
    for table, column, value in Random(8).sample(every, 60):
        shutil.copy(place, damaged)
        try:
            damage(damaged, f"update {table} set {column} = {value} where rowid = 1")  # noqa: S608 - listed above
        except sqlite3.Error:
            continue  # SQLite itself does not take it
        tried += 1
        for read in readers(damaged):
            read()
    assert tried > 40


def test_whatever_bits_flip_it_is_read_or_one_sentence(place: Path, tmp_path: Path) -> None:
    whole, chance = place.read_bytes(), Random(8)
    damaged = tmp_path / "damaged.db"
    for _ in range(60):
        content = bytearray(whole)
        for at in chance.sample(range(100 if chance.random() < 0.5 else 4096), 2):  # the schema is in the first page
            content[at] ^= 1 << chance.randrange(8)
        damaged.write_bytes(content)
        for read in readers(damaged):
            with contextlib.suppress(StoreError):
                read()


def test_what_was_added_is_on_the_disk_when_that_returns(tmp_path: Path) -> None:
    connections: list[sqlite3.Connection] = []

    def note(connection: sqlite3.Connection, _: object) -> None:
        connections.append(connection)

    sa.event.listen(sa.Pool, "connect", note)
    try:
        with Store(tmp_path / "store.db") as store:
            store.add_study(STUDY, facts="")
            assert connections
            for connection in connections:
                # 2 is FULL: each commit is fsynced; and a write-ahead log loses nothing of those
                assert connection.execute("pragma synchronous").fetchone() == (2,)
                assert connection.execute("pragma journal_mode").fetchone() == ("wal",)
                assert connection.execute("pragma foreign_keys").fetchone() == (1,)
    finally:
        sa.event.remove(sa.Pool, "connect", note)


def test_what_a_newer_virtune_derived_is_not_read(place: Path) -> None:
    with Store(place) as store:
        newer = replace(MEASURED, method=METHOD + 1, values=(("iops", 99.0),))
        store.add_measurement(IDS[0], 1, newer, attempt=1)
        assert store.get(IDS[0]).trials[0].measurement == MEASURED


def test_a_capture_that_would_fill_the_memory_is_refused(place: Path) -> None:
    packer = zlib.compressobj(1)
    bomb = b"".join(packer.compress(bytes(2**20)) for _ in range(257)) + packer.flush()
    damage(place, "update captures set content = ? where trial_id = 1 and name = 'odd'", bomb)
    with (
        Store(place) as store,
        pytest.raises(StoreError, match="a capture in the store is larger than 268435456 bytes"),
    ):
        store.captures(IDS[0], 1)


@pytest.fixture
def sealed(place: Path) -> Iterator[Path]:
    """The store on a filesystem that may only be read, with figures of an older method."""
    damage(place, "update measurements set method = 1, measurement = json_set(measurement, '$.method', 1)")
    mount = ["mount", "--bind", str(place.parent), str(place.parent)]
    subprocess.run(mount, check=True)
    try:
        subprocess.run(["mount", "-o", "remount,bind,ro", str(place.parent)], check=True)
        yield place
    finally:
        subprocess.run(["umount", str(place.parent)], check=True)


def test_a_store_that_may_only_be_read_is_read(sealed: Path, capsys: pytest.CaptureFixture[str]) -> None:
    place = ["--store", str(sealed)]
    assert run(["show", "list", *place]) == 0
    assert IDS[0] in capsys.readouterr().out
    assert run(["show", "last", "--json", *place]) == 0
    with Store(sealed, reading=True) as store:
        assert not store.writable
        assert len(store.get(IDS[0]).trials) == 4
    with pytest.raises(StoreError, match="may only be read"), Store(sealed) as store:
        store.finish(IDS[0])


def test_a_log_that_cannot_be_written_back_is_said_and_not_left_out(place: Path, tmp_path: Path) -> None:
    live = tmp_path / "live" / "store.db"
    with Store(live) as store:
        store.add_study(STUDY, facts="")
        copied = place.parent / "copied.db"
        for end in ("", "-wal"):
            shutil.copy(f"{live}{end}", f"{copied}{end}")
    subprocess.run(["mount", "--bind", str(place.parent), str(place.parent)], check=True)
    try:
        subprocess.run(["mount", "-o", "remount,bind,ro", str(place.parent)], check=True)
        with pytest.raises(StoreError, match="its last trials cannot be") as caught, Store(copied, reading=True):
            pytest.fail("opened")
        assert "copied.db-wal to a directory of your own" in (caught.value.hint or "")
    finally:
        subprocess.run(["umount", str(place.parent)], check=True)


@pytest.mark.parametrize("verb", ["list", "derive", "import"])
def test_a_store_that_is_no_file_is_said_to_be_none(
    verb: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    os.mkfifo(tmp_path / "fifo")
    words = [verb, *([str(tmp_path / "any")] if verb == "import" else []), "--store", str(tmp_path / "fifo")]
    (tmp_path / "any").write_text("{}")
    assert run(words) in (1, 2)
    said = capsys.readouterr().err
    assert "fifo: it is not a regular file" in said or (verb == "import" and "no fio result" in said)


def test_reading_makes_no_store(tmp_path: Path) -> None:
    empty, missing = tmp_path / "empty", tmp_path / "missing"
    empty.touch()
    with pytest.raises(StoreError, match="empty is no store of virtune's"), Store(empty, reading=True):
        pytest.fail("opened")
    with pytest.raises(StoreError, match="cannot open the store"), Store(missing, reading=True):
        pytest.fail("opened")
    assert empty.stat().st_size == 0
    assert list(tmp_path.iterdir()) == [empty]


@pytest.mark.parametrize("name", ["a?b#c%41.db", "file:x?mode=memory", ":memory:"])
def test_any_name_is_a_file_s_name(name: str, tmp_path: Path) -> None:
    with Store(tmp_path / name) as store:
        store.add_study(STUDY, facts="")
    assert (tmp_path / name).stat().st_size > 0
    with Store(tmp_path / name, reading=True) as store:
        assert len(store.list()) == 1


def test_a_full_disk_is_said_plainly(tmp_path: Path) -> None:
    small = tmp_path / "small"
    small.mkdir()
    subprocess.run(["mount", "-t", "tmpfs", "-o", "size=400k", "none", str(small)], check=True)
    try:
        with pytest.raises(StoreError, match=f"no space left on {small}") as caught, Store(small / "s.db") as store:
            for number in range(1, 5000):
                store.add_study(replace(STUDY, id=f"s{number}"), facts="")
        assert "free some room" in (caught.value.hint or "")
    finally:
        subprocess.run(["umount", str(small)], check=True)
