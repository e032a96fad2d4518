# SPDX-License-Identifier: Apache-2.0
"""A used-up quota of the disk with what is stored: one sentence, nothing half-written, and it goes on once there is
room.
"""

import contextlib
import gzip
import sqlite3
import subprocess
from collections.abc import Iterator, Sequence
from datetime import UTC, datetime
from pathlib import Path

import pytest
from tests.apply.shelf import UUID, WEB, Shelf
from tests.conftest import User, eventually
from tests.fleet.machines import machines
from tests.rationed import no_quota, rationed, use_up

from virtune.apply.journal import Journal, Step
from virtune.cli import run
from virtune.flows.domains.apply import apply, undo
from virtune.model.domain import SettingChange
from virtune.model.errors import VirtuneError
from virtune.model.finding import Advice
from virtune.store.store import Store

pytestmark = [pytest.mark.real, pytest.mark.xdist_group("loop devices")]

KEPT = Path(__file__).parents[1] / "store" / "data" / "older-method.sqlite.gz"
"""A store whose measurements are of an older method."""

STUDY = "20261122-184255-3883"
AFTER = WEB.replace("cache='unsafe'", "cache='none'")
CACHE = SettingChange(knob="disk.cache", at="vda", value="none")


@pytest.fixture
def place(tmp_path: Path) -> Iterator[Path]:
    with rationed(tmp_path) as found:
        yield found


@pytest.fixture
def kept(tmp_path: Path) -> Path:
    made = tmp_path / "kept.sqlite"
    made.write_bytes(gzip.decompress(KEPT.read_bytes()))
    return made


def lift(place: Path) -> None:
    subprocess.run(no_quota(of=place), check=True)


def counts(store: Path) -> dict[str, int]:
    """How many rows each table has; the file is sound, and whole."""
    with contextlib.closing(sqlite3.connect(store)) as db:
        assert db.execute("pragma integrity_check").fetchall() == [("ok",)]
        names = [name for (name,) in db.execute("select name from sqlite_master where type = 'table'")]
        return {name: db.execute(f"select count(*) from {name}").fetchone()[0] for name in names}  # noqa: S608


def refused(words: Sequence[object], capfd: pytest.CaptureFixture[str], status: int = 1) -> str:
    """Run a verb that must fail in one sentence; returns it."""
    capfd.readouterr()
    assert run([str(word) for word in words]) == status
    (said,) = [line for line in capfd.readouterr().err.splitlines() if line.startswith(("error", "Traceback"))]
    return said


def test_a_store_on_a_disk_that_copies_what_is_written_maps_no_file(place: Path, tmp_path: Path) -> None:
    """A page of a mapped file that finds no room there when it is written to ends the process by SIGBUS."""
    modes = {}
    for home in (place, tmp_path):
        with Store(home / "store"), contextlib.closing(sqlite3.connect(home / "store")) as db:
            modes[home] = db.execute("pragma journal_mode").fetchone()
    assert modes == {place: ("delete",), tmp_path: ("wal",)}


def test_derive_leaves_the_figures_that_were_there(
    place: Path, kept: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    store = place / "store"
    store.write_bytes(kept.read_bytes())
    with Store(store):
        before = counts(store)
    use_up(place)
    capfd.readouterr()
    assert run(["show", "derive", "--store", str(store)]) == 1
    said = capfd.readouterr()
    assert ("disk quota exceeded in" in said.out, said.err) == (True, ""), "it names each study with the reason"
    lift(place)
    assert counts(store) == before
    assert run(["show", "derive", "--store", str(store)]) == 0
    assert counts(store)["measurements"] > before["measurements"]


def test_import_and_export_leave_nothing_half_written(
    place: Path, kept: Path, tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    bundle, store = tmp_path / "bundle.zip", place / "store"
    assert run(["show", "export", STUDY, "--store", str(kept), "--bundle", str(bundle)]) == 0
    with Store(store):
        before = counts(store)
    use_up(place)
    assert "disk quota exceeded in" in refused(["explain", "import", bundle, "--store", store], capfd)
    out = place / "out.zip"
    said = refused(["show", "export", STUDY, "--store", kept, "--bundle", out], capfd, status=3)
    assert said == f"error: cannot write {out}: Disk quota exceeded"
    lift(place)
    assert counts(store) == before
    assert {one.name for one in place.iterdir()} == {"store"}
    assert run(["explain", "import", str(bundle), "--store", str(store)]) == 0
    assert run(["show", "export", STUDY, "--store", str(store), "--bundle", str(out)]) == 0


def test_gather_says_it_once_and_takes_all_once_there_is_room(
    place: Path, kept: Path, tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    with machines(tmp_path, "a") as fleet:
        there = fleet.by_name["a"].place / "data" / "virtune" / "virtune.sqlite"
        there.parent.mkdir(parents=True)
        there.write_bytes(kept.read_bytes())
        asked = ["fleet", "gather", "--ssh-config", fleet.config, "--host", "a", "--into", place / "into", STUDY]
        (place / "into").mkdir()
        use_up(place)
        capfd.readouterr()
        assert run([str(word) for word in asked]) == 1
        said = capfd.readouterr()
        assert "quota" in said.out + said.err
        assert "Traceback" not in said.err
        lift(place)
        assert run([str(word) for word in asked]) == 0
        with Store(place / "into" / "a.sqlite", reading=True) as store:
            assert len(store.get(STUDY).trials) == 16


@pytest.mark.parametrize("verb", [None, "define"])
def test_a_change_whose_journal_cannot_be_written_is_not_made_or_put_back(verb: str | None, place: Path) -> None:
    """`verb`: the call of libvirt before which the quota is used up; before the first step where there is none."""
    shelf, journal = Shelf(), Journal(place / "journal")
    calls: list[str] = []

    def watch(words: Sequence[str]) -> None:
        calls.append(words[0])
        if words[0] == verb and calls.count(words[0]) == 1:
            use_up(place)

    shelf.seen = watch
    advice = Advice(turns=(CACHE,), after=AFTER.encode(), diff="", effects=())
    with journal.alone():
        pass
    if verb is None:
        use_up(place)
    with pytest.raises((VirtuneError, OSError), match=r"(?i)quota"):
        apply(shelf, UUID, advice, WEB.encode(), journal=journal, when=datetime(2026, 1, 1, tzinfo=UTC))
    lift(place)
    assert journal.damaged() == ()
    if verb is None:
        assert (journal.entries(), shelf.xml) == ((), WEB)
        return
    (entry,) = journal.entries()
    if shelf.xml != WEB:
        assert entry.open
        undo(shelf, entry, journal=journal, anyway=False)
        assert journal.read(entry.id).steps[-1] is Step.UNDONE
    assert shelf.xml == WEB


def trials(store: Path) -> int:
    """How many attempts are kept so far."""
    with (
        contextlib.suppress(sqlite3.Error),
        contextlib.closing(sqlite3.connect(f"file:{store}?mode=ro", uri=True)) as db,
    ):
        return int(db.execute("select count(*) from trials").fetchone()[0])
    return 0


@pytest.mark.parametrize(
    ("verb", "what"),
    [
        ("compare", "scratch"),
        pytest.param("tune", "scratch", marks=pytest.mark.long(always="compare-scratch")),
        pytest.param("tune", "store", marks=pytest.mark.long(always="compare-scratch")),
    ],
)
def test_a_run_whose_store_or_scratch_has_no_room_any_more_ends_with_a_sentence_and_goes_on(
    verb: str, what: str, place: Path, tmp_path: Path
) -> None:
    store, scratch = (place if what == one else tmp_path / "other" for one in ("store", "scratch"))
    for one in (store, scratch):
        one.mkdir(exist_ok=True)
    kept = ["--store", str(store / "store")]
    user = User(tmp_path, scratch / "images")
    words = ["--vary", "disk.aio=threads,native", "--workload", "rw=randwrite,bs=4k,iodepth=4"]
    words += ["--seconds", "200ms", "--ramp", "0"]
    words += ["--budget", "100s", "--confirm", "2"] if verb == "tune" else ["--rounds", "8", "--margin", "0.1%"]
    begun = user.start(verb, *words, *kept)
    assert eventually(lambda: trials(store / "store") >= 4, seconds=120)
    use_up(place)
    _, said = begun.communicate(120)
    assert begun.returncode == 1, said
    (error,) = [line for line in said.splitlines() if line.startswith("error")]
    assert "disk quota exceeded" in error or "takes nothing more: " in error, error
    assert "`virtune compare resume" in said
    assert "Traceback" not in said
    lift(place)
    before = trials(store / "store")
    assert before >= 4
    user.run("compare", "resume", "last", *kept)
    assert trials(store / "store") > before
