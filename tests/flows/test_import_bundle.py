# SPDX-License-Identifier: Apache-2.0
"""A bundle that is imported is the study as it was, once however often; a damaged one is refused in one sentence."""

import io
import json
import zipfile
from dataclasses import replace
from pathlib import Path

import pytest

from virtune.cli import run
from virtune.flows.reports.export import bundle
from virtune.flows.stored.import_bundle import merge, read_bundle
from virtune.model.errors import ReadError, StoreError
from virtune.store.store import Store

Capture = pytest.CaptureFixture[str]


@pytest.fixture(scope="module")
def made(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A store with one simulated comparison."""
    place = tmp_path_factory.mktemp("made")
    words = ["--arm", "a:rig=simulated", "--arm", "b:rig=simulated,disk.aio=io_uring", "--rounds", "2", "--quiet"]
    assert run(["compare", *words, "--scratch", str(place / "s"), "--store", str(place / "store.sqlite")]) == 0
    return place / "store.sqlite"


def packed(store: Path) -> bytes:
    with Store(store, reading=True) as kept:
        return bundle(kept, kept.find("last"), pages=False)


def test_a_study_goes_through_a_bundle_unchanged_and_only_once(made: Path, tmp_path: Path, capfd: Capture) -> None:
    (tmp_path / "study.zip").write_bytes(packed(made))
    words = ["import", str(tmp_path / "study.zip"), "--store", str(tmp_path / "other.sqlite")]
    assert run(words) == 0
    assert "4 trials" in capfd.readouterr().out
    assert run(words) == 0
    assert "nothing new" in capfd.readouterr().out
    with Store(made, reading=True) as one, Store(tmp_path / "other.sqlite", reading=True) as other:
        name = one.find("last")
        assert other.get(name) == one.get(name)
        for trial in one.get(name).trials:
            assert other.captures(name, trial.trial.number) == one.captures(name, trial.trial.number)
    assert packed(tmp_path / "other.sqlite") == packed(made)


def test_a_study_that_has_gone_on_gets_its_new_trials(made: Path, tmp_path: Path) -> None:
    whole = read_bundle(packed(made), source="x")
    half = replace(whole, attempts=whole.attempts[:3], finished=False)
    with Store(tmp_path / "store.sqlite") as store:
        assert merge(half, store).attempts == 3
        assert not store.get(whole.study.id).finished
        assert merge(whole, store).attempts == 1
        assert merge(whole, store).attempts == 0
        assert store.get(whole.study.id).finished
        with pytest.raises(StoreError, match="the store has another study"):
            merge(replace(whole, facts='{"other": 1}'), store)


def changed(content: bytes, member: str, text: bytes) -> bytes:
    """A bundle with one member replaced."""
    file = io.BytesIO()
    with zipfile.ZipFile(io.BytesIO(content)) as old, zipfile.ZipFile(file, "w") as new:
        for one in old.infolist():
            new.writestr(one, text if one.filename.endswith(member) else old.read(one))
    return file.getvalue()


def test_a_damaged_bundle_is_refused_in_one_sentence(made: Path) -> None:
    good = packed(made)
    with zipfile.ZipFile(io.BytesIO(good)) as one:
        rows = json.loads(next(one.read(name) for name in one.namelist() if name.endswith("/study.json")))
        capture = next(name for name in one.namelist() if "/captures/" in name)
    other_arm = {**rows, "attempts": [{**rows["attempts"][0]}]}
    other_arm["attempts"][0]["record"] = {**rows["attempts"][0]["record"], "trial": {
        **rows["attempts"][0]["record"]["trial"], "arm": "stranger"}}  # fmt: skip
    cases = {
        "damaged or another file": [b"", b"PK", good[:-200], changed(good, "/study.json", b"{}"),
                                    changed(good, "/study.json", b"[" * 100_000)],
        "an older virtune made it": [changed(good, "/study.json", b"").replace(b"study.json", b"studi.json")],
        "a newer virtune made it": [changed(good, "/study.json", json.dumps(rows | {"format": 2}).encode())],
        "is not what was exported": [changed(good, capture, b"other")],
        "an arm that the study does not have": [changed(good, "/study.json", json.dumps(other_arm).encode())],
        "its facts are damaged": [changed(good, "/study.json", json.dumps(rows | {"facts": "[]"}).encode())],
    }  # fmt: skip
    for said, contents in cases.items():
        for content in contents:
            with pytest.raises(ReadError, match=said):
                read_bundle(content, source="x.zip")


def test_one_that_unpacks_to_too_much_is_refused_however_often_a_member_is_named(made: Path) -> None:
    good = packed(made)
    with zipfile.ZipFile(io.BytesIO(good)) as one:
        size = sum(member.file_size for member in one.infolist())
        rows = json.loads(next(one.read(name) for name in one.namelist() if name.endswith("/study.json")))
    read_bundle(good, source="x.zip", most_bytes=size)
    rows["attempts"][0]["captures"] *= 1000
    with pytest.raises(ReadError, match="it unpacks to more than"):
        read_bundle(changed(good, "/study.json", json.dumps(rows).encode()), source="x.zip", most_bytes=10 * size)
