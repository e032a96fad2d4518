# SPDX-License-Identifier: Apache-2.0
"""Kept results that were exchanged between trials are found out by the name that each load was given."""

import json
import re
import shutil
import sqlite3
import zlib
from collections.abc import Callable
from pathlib import Path

import pytest

from virtune.cli import run
from virtune.fio.as_asked import another_trial, identity_of
from virtune.flows.reports.export import bundle
from virtune.flows.stored.show import by_todays_method
from virtune.model.remark import ANOTHER_TRIAL
from virtune.store.store import Store

pytestmark = pytest.mark.real

Capture = pytest.CaptureFixture[str]


@pytest.fixture(scope="module")
def made(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A store with a comparison of two arms, two rounds each."""
    place = tmp_path_factory.mktemp("made")
    words = ["--arm", "a:rig=metal", "--arm", "b:rig=metal,host.cache=cold", "--rounds", "2", "--span", "8M"]
    words += [
        "--seconds",
        "200ms",
        "--ramp",
        "0",
        "--attempts",
        "1",
        "--quiet",
        "--workload",
        "rw=randread,numjobs=2",
    ]
    assert run(["compare", *words, "--scratch", str(place / "s"), "--store", str(place / "store.sqlite")]) == 0
    return place / "store.sqlite"


@pytest.fixture
def store(made: Path, tmp_path: Path) -> Path:
    return Path(shutil.copy(made, tmp_path / "store.sqlite"))


def invalid(store: Path) -> dict[int, str]:
    """The invalid trials, and what is said of each."""
    with Store(store, reading=True) as kept:
        record = by_todays_method(kept, kept.find("last"))
    return {
        one.trial.number: remark.text
        for one in record.trials
        if one.measurement is not None
        for remark in one.measurement.remarks
        if remark.id == ANOTHER_TRIAL.id
    }


def exchange(store: Path, one: int, other: int, *names: str) -> None:
    """Exchange captures of two trials."""
    with sqlite3.connect(store) as db:
        for name in names:
            ids = [
                db.execute("select id from trials where number = ?", (number,)).fetchone()[0]
                for number in (one, other)
            ]
            texts = [
                db.execute("select content from captures where trial_id = ? and name = ?", (row, name)).fetchone()[0]
                for row in ids
            ]
            for row, text in zip(ids, reversed(texts), strict=True):
                db.execute("update captures set content = ? where trial_id = ? and name = ?", (text, row, name))


def test_kept_results_of_their_own_trials_are_believed(store: Path, capsys: Capture) -> None:
    assert invalid(store) == {}
    assert run(["show", "last", "--store", str(store)]) == 0
    assert "another-trial" not in capsys.readouterr().out


@pytest.mark.parametrize("names", [("fio.json",), ("job.fio", "fio.json"), ("job.fio",)])
@pytest.mark.parametrize("other", [2, 3, 4])
def test_results_that_were_exchanged_make_both_trials_invalid(
    store: Path, other: int, names: tuple[str, ...]
) -> None:
    """Trials of the other arm, and of the other round."""
    exchange(store, 1, other, *names)
    found = invalid(store)
    assert found.keys() == {1, other}
    assert f"but that of trial {other}, attempt 1, of study" in found[1]
    assert "but that of trial 1, attempt 1, of study" in found[other]


def edited(store: Path, name: str, change: Callable[[str], str], number: int = 1) -> None:
    """Change a capture of a trial, as one who knows how it is kept."""
    with sqlite3.connect(store) as db:
        where = "name = ? and trial_id = (select id from trials where number = ?)"
        (text,) = db.execute(f"select content from captures where {where}", (name, number)).fetchone()  # noqa: S608
        packed = zlib.compress(change(zlib.decompress(text).decode()).encode())
        db.execute(f"update captures set content = ? where {where}", (packed, name, number))  # noqa: S608


def test_a_result_whose_name_was_taken_away_or_of_which_one_clone_is_another_is_invalid(store: Path) -> None:
    edited(store, "fio.json", lambda text: re.sub(r'"desc(ription)?" *:', '"was" :', text), 1)
    edited(store, "fio.json", lambda text: re.sub("/2/1/0/", "/2/1/1/", text), 2)
    edited(store, "fio.json", lambda text: text.replace('"desc" : "virtune', '"desc" : "other', 1), 3)
    assert invalid(store).keys() == {1, 2, 3}
    assert "one that names no trial" in invalid(store)[1]
    assert run(["show", "last", "--store", str(store)]) == 0


def test_a_retry_s_result_in_the_place_of_the_first_is_invalid(store: Path) -> None:
    with sqlite3.connect(store) as db:
        db.execute("update trials set attempt = 2 where number = 4")
    assert invalid(store).keys() == {4}
    assert "that of trial 4, attempt 1, of study" in invalid(store)[4]


def test_what_was_kept_without_names_and_what_is_damaged_is_not_judged(store: Path) -> None:
    edited(store, "job.fio", lambda text: re.sub("description=.*\n", "", text), 1)
    edited(store, "fio.json", lambda _: "{ broken", 2)
    with sqlite3.connect(store) as db:
        db.execute("update captures set content = x'00' where name = 'fio.json' and trial_id = 3")
    assert invalid(store) == {}


def test_a_bundle_in_which_results_were_exchanged_says_so_when_it_is_imported(
    store: Path, tmp_path: Path, capsys: Capture
) -> None:
    exchange(store, 2, 3, "fio.json")
    with Store(store, reading=True) as kept:
        name = kept.find("last")
        (tmp_path / "study.zip").write_bytes(bundle(kept, name, pages=False))
    assert run(["explain", "import", str(tmp_path / "study.zip"), "--store", str(tmp_path / "other.sqlite")]) == 0
    said = capsys.readouterr()
    for one, other in ((2, 3), (3, 2)):
        assert f"trial {one} is invalid: its result is that of trial {other}, attempt 1, of study {name}" in said.err
    assert run(["show", "last", "--store", str(tmp_path / "other.sqlite"), "--json"]) == 0
    assert capsys.readouterr().out.count("the kept result is not that of this trial") >= 2


def test_each_guest_has_a_result_of_its_own() -> None:
    names = [identity_of("s", 1, 1, guest, "0" * 16) for guest in (0, 1)]
    results = [json.dumps({"jobs": [{"jobname": "a", "desc": name}]}).encode() for name in names]
    jobs = {
        "job.fio": f"[global]\ndescription={names[0]}\n".encode(),
        "job-2.fio": f"description={names[1]}\n".encode(),
    }
    own = jobs | {"fio.json": results[0], "fio-2.json": results[1]}
    assert another_trial(own, study="s", trial=1, attempt=1) is None
    swapped = jobs | {"fio.json": results[1], "fio-2.json": results[0]}
    assert another_trial(swapped, study="s", trial=1, attempt=1) is not None
