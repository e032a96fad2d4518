# SPDX-License-Identifier: Apache-2.0
"""What the store promises: it gives back what it got, keeps each attempt, and says what is wrong in one sentence."""

import os
import signal
import sqlite3
import subprocess
import sys
import textwrap
from dataclasses import replace
from pathlib import Path

import pytest

from virtune.analyse.study.summarise import summarise
from virtune.analyse.trial.rejection import unsettled
from virtune.cli import run
from virtune.model.errors import StoreError, UsageError
from virtune.model.evidence import Capture, Changeover, Check, InForce, Listed, TrialRecord
from virtune.model.measurement import METHOD, Histogram, Measurement
from virtune.model.remark import Remark, Weight
from virtune.model.stack import Disk, Stack
from virtune.model.study import Arm, Study, StudyKind, Trial
from virtune.model.workload import Job, Workload
from virtune.store.sqlite import Store

WORKLOAD = Workload(name="w", meaning="m", jobs=(Job(name="j", options=(("rw", "randread"),)),))
TRIALS = tuple(Trial(number=n, round=1 + n // 3, arm="ab"[n % 2], workload="w") for n in range(1, 5))
STUDY = Study(
    id="20260101-000000-aaaa",
    created="2026-01-01T00:00:00+00:00",
    kind=StudyKind.COMPARE,
    arms=(
        Arm(name="a", stack=Stack()),
        Arm(name="b", stack=Stack(disk=Disk(aio="native")), settings=(("disk.aio", "native"),)),
    ),
    baseline="a",
    workloads=(WORKLOAD,),
    rounds=2,
    seconds=1.0,
    ramp_seconds=0.5,
    seed=7,
    scratch="/x",
    span_bytes=1024,
    trials=TRIALS,
)
MEASURED = Measurement(
    values=(("iops", 1234.5), ("latency.mean", 1e6)),
    histogram=Histogram(bins=((100, 3), (200, 4))),
    remarks=(Remark(id="spread", weight=Weight.WARNING, text="t", advice="a"),),
)
CHECK = Check(setting="disk.aio", asked="native", found=None, proof="p")
CAPTURES = (Capture(name="fio.json", content=b'{"x": 1}' * 100), Capture(name="odd", content=bytes(range(256))))


def record(number: int, *, failure: str | None = None) -> TrialRecord:
    return TrialRecord(
        trial=TRIALS[number - 1],
        ended="2026-01-01T00:00:01+00:00",
        in_force=InForce(checks=(CHECK,)),
        measurement=None if failure else MEASURED,
        failure=failure,
    )


@pytest.fixture
def store(tmp_path: Path) -> Store:
    with Store(tmp_path / "deep" / "store.sqlite") as found:
        found.add_study(STUDY, facts='{"a": 1}')
    return found


def test_it_gives_back_what_it_got(store: Store) -> None:
    store.add_trial(STUDY.id, record(1), CAPTURES)
    kept = store.get(STUDY.id)
    assert kept.study == STUDY
    assert kept.facts == '{"a": 1}'
    assert kept.trials == (record(1),)
    assert store.captures(STUDY.id, 1) == CAPTURES
    assert [trial.number for trial in kept.left] == [2, 3, 4]


def test_trials_in_a_process_of_their_own_are_so_when_they_are_read_again(store: Store) -> None:
    asked = replace(STUDY, id="anew", trials=tuple(replace(one, restart=True) for one in TRIALS))
    store.add_study(asked, facts="")
    carried = Changeover(swapped="disk", seconds=0.1, process=7, carried=1)
    made = [replace(record(one.number), trial=one, in_force=InForce(changeover=carried)) for one in asked.trials]
    disturbed = replace(MEASURED, remarks=(Remark(id="cpu-wait", weight=Weight.INVALID, text="others"),))
    for one in (*made[:3], replace(made[3], measurement=disturbed)):
        store.add_trial(asked.id, one, ())
    kept = store.get(asked.id)
    assert tuple(one.trial for one in kept.trials) == asked.trials
    assert summarise(kept).basis[0].starts == len(asked.trials)
    assert unsettled(kept.attempts) == asked.trials[3]  # goes on in a process of its own


def test_a_row_that_is_not_as_its_study_says_is_read_as_it_is(store: Store) -> None:
    store.add_trial(STUDY.id, replace(record(1), trial=replace(TRIALS[0], arm="a")), ())
    assert store.get(STUDY.id).trials[0].trial == replace(TRIALS[0], arm="a")


def test_every_attempt_is_kept_and_the_last_one_counts(store: Store) -> None:
    store.add_trial(STUDY.id, record(1, failure="broke"), CAPTURES[:1])
    assert store.get(STUDY.id).left == TRIALS
    store.add_trial(STUDY.id, record(1), CAPTURES)
    kept = store.get(STUDY.id)
    assert [trial.attempt for trial in kept.trials] == [2]
    assert kept.trials[0].measurement == MEASURED
    (listed,) = store.list()
    assert isinstance(listed, Listed)
    assert (listed.done, listed.failed, listed.finished) == (1, 1, False)


def test_a_newer_method_s_measurement_is_kept_beside_and_read_first(store: Store) -> None:
    store.add_trial(STUDY.id, replace(record(1), measurement=replace(MEASURED, method=METHOD - 1)), ())
    assert store.get(STUDY.id).trials[0].measurement == replace(MEASURED, method=METHOD - 1)
    better = replace(MEASURED, values=(("iops", 1.0),))
    store.add_measurement(STUDY.id, 1, better, attempt=1)
    assert store.get(STUDY.id).trials[0].measurement == better


def test_what_a_later_virtune_derived_is_left_to_it(store: Store) -> None:
    store.add_trial(STUDY.id, record(1), ())
    later = replace(MEASURED, method=METHOD + 1, values=(("iops", 1.0),))
    store.add_measurement(STUDY.id, 1, later, attempt=1)
    assert store.get(STUDY.id).trials[0].measurement == MEASURED


def test_what_is_written_is_on_the_disk_before_it_returns(store: Store) -> None:
    """A lost power supply cannot be tried here: SQLite is asked how it writes."""
    with store._engine.connect() as connection:
        assert connection.exec_driver_sql("PRAGMA synchronous").scalar_one() == 2  # FULL
        assert connection.exec_driver_sql("PRAGMA journal_mode").scalar_one() == "wal"


def test_studies_are_found_by_the_beginning_of_their_id_and_by_last(store: Store) -> None:
    store.add_study(replace(STUDY, id="20260102-000000-bbbb", created="2026-01-02T00:00:00+00:00"), facts="")
    assert store.find("last") == "20260102-000000-bbbb"
    assert store.find("20260101") == STUDY.id
    assert [listed.study.id for listed in store.list() if isinstance(listed, Listed)] == [
        "20260102-000000-bbbb",
        STUDY.id,
    ]
    with pytest.raises(UsageError, match="'2026' fits 2 studies"):
        store.find("2026")
    with pytest.raises(UsageError, match="no study 'x'"):
        store.find("x")


def test_a_trial_that_is_killed_half_way_is_not_in_it_and_the_others_are(store: Store) -> None:
    store.add_trial(STUDY.id, record(1), CAPTURES)
    script = textwrap.dedent(f"""
        import os, sys
        sys.path.insert(0, {str(Path(__file__).parents[2])!r})
        from tests.store.test_sqlite import STUDY, record
        from virtune.store.sqlite import Store
        class Dying(list):
            def __iter__(self):
                os.kill(os.getpid(), {int(signal.SIGKILL)})
        from pathlib import Path
        with Store(Path({str(store.path)!r})) as found:
            found.add_trial(STUDY.id, record(2), Dying())
    """)
    done = subprocess.run([sys.executable, "-c", script], env=os.environ, check=False)
    assert done.returncode == -signal.SIGKILL
    kept = store.get(STUDY.id)
    assert [trial.trial.number for trial in kept.trials] == [1]
    store.add_trial(STUDY.id, record(2), CAPTURES)
    assert len(store.get(STUDY.id).trials) == 2


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


def test_a_store_of_a_newer_virtune_is_left_alone(store: Store) -> None:
    with sqlite3.connect(store.path) as db:
        db.execute("pragma user_version = 99")
    db.close()
    with pytest.raises(StoreError, match="written by a newer virtune"), Store(store.path):
        pytest.fail("opened")


def test_damaged_records_and_captures_are_one_sentence(store: Store) -> None:
    store.add_trial(STUDY.id, record(1), CAPTURES)
    with sqlite3.connect(store.path) as db:
        db.execute("update captures set content = x'00ff'")
        db.execute("update measurements set measurement = '{\"values\": 3}'")
    db.close()
    with pytest.raises(StoreError, match="damaged"):
        store.captures(STUDY.id, 1)
    with pytest.raises(StoreError, match="damaged"):
        store.get(STUDY.id)


@pytest.mark.parametrize("content", ["'text'", "substr(content, 1, length(content) - 4)", "substr(content, 1, 9)"])
def test_a_capture_that_is_no_whole_stream_is_damaged(content: str, store: Store) -> None:
    store.add_trial(STUDY.id, record(1), CAPTURES)
    with sqlite3.connect(store.path) as db:
        db.execute(f"update captures set content = {content} where name = 'odd'")  # noqa: S608
    db.close()
    with pytest.raises(StoreError, match="a capture in the store is damaged"):
        store.captures(STUDY.id, 1)


def test_reading_a_store_does_not_write_to_it(store: Store) -> None:
    with sqlite3.connect(store.path) as db:
        before = db.execute("pragma data_version").fetchone()
        with Store(store.path) as again:
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
    assert run(["list", "--store", str(path)]) == 1
    assert "is no store of virtune's" in capsys.readouterr().err
    assert path.stat().st_size == 0


def test_a_place_that_cannot_be_made_is_one_sentence(tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    with pytest.raises(StoreError, match="cannot make"), Store(tmp_path / "file" / "store.sqlite"):
        pytest.fail("opened")
