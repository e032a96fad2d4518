# SPDX-License-Identifier: Apache-2.0
"""A bundle that is imported is the study as it was, once however often; a damaged one is refused in one sentence."""

import io
import json
import random
import time
import zipfile
from pathlib import Path

import pytest
from tests.flows.hostile_bundles import KINDS, Hostile, little_memory
from tests.store.at_once import begun, changed

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
    words = ["explain", "import", str(tmp_path / "study.zip"), "--store", str(tmp_path / "other.sqlite")]
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


def merged(content: bytes, store: Store) -> int:
    with read_bundle(io.BytesIO(content), source="x") as bundled:
        return merge(bundled, store).attempts


def test_a_study_that_has_gone_on_gets_its_new_trials(made: Path, tmp_path: Path) -> None:
    whole = packed(made)
    with Store(tmp_path / "store.sqlite") as store:
        assert merged(begun(whole, 3, finished=False), store) == 3
        name = store.find("last")
        assert not store.get(name).finished
        assert merged(whole, store) == 1
        assert merged(whole, store) == 0
        assert merged(begun(whole, 3, finished=False), store) == 0
        assert store.get(name).finished
        other = changed(whole, "/study.json", lambda text: json.dumps(json.loads(text) | {"facts": "{}"}).encode())
        with pytest.raises(StoreError, match="the store has another study"):
            merged(other, store)


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
        "it has no rows of a study": [changed(good, "/study.json", b"").replace(b"study.json", b"studi.json")],
        "a newer virtune made it": [changed(good, "/study.json", json.dumps(rows | {"format": 2}).encode())],
        "is not what was exported": [changed(good, capture, b"other")],
        "an arm that the study does not have": [changed(good, "/study.json", json.dumps(other_arm).encode())],
        "its facts are damaged": [changed(good, "/study.json", json.dumps(rows | {"facts": "[]"}).encode())],
    }  # fmt: skip
    for said, contents in cases.items():
        for content in contents:
            with pytest.raises(ReadError, match=said), read_bundle(io.BytesIO(content), source="x.zip"):
                pytest.fail("it was read")


def test_one_that_unpacks_to_more_than_is_allowed_is_refused(made: Path) -> None:
    good = packed(made)
    with zipfile.ZipFile(io.BytesIO(good)) as one:
        size = sum(member.file_size for member in one.infolist())
    with read_bundle(io.BytesIO(good), source="x.zip", most_bytes=size):
        pass
    with (
        pytest.raises(ReadError, match="it unpacks to more than"),
        read_bundle(io.BytesIO(good), source="x.zip", most_bytes=size // 10),
    ):
        pytest.fail("it was read")


@pytest.mark.parametrize("seed", [1, *(pytest.param(n, marks=pytest.mark.long) for n in range(2, 12))])
@pytest.mark.parametrize("hostile", KINDS, ids=[one.__name__ for one in KINDS])
def test_a_hostile_bundle_costs_one_sentence(
    hostile: Hostile, seed: int, made: Path, tmp_path: Path, capfd: Capture
) -> None:
    chance = random.Random(f"{hostile.__name__} {seed}")
    (tmp_path / "x.zip").write_bytes(hostile(packed(made), chance))
    place = tmp_path / "store.sqlite"
    begun_at = time.process_time()
    with little_memory():
        assert run(["explain", "import", str(tmp_path / "x.zip"), "--store", str(place)]) in (1, 2)
    assert time.process_time() - begun_at < 10
    said = capfd.readouterr().err
    assert "is not a bundle that can be imported: " in said
    assert len(said.splitlines()) <= 3
    assert not place.exists()
