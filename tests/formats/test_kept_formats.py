# SPDX-License-Identifier: Apache-2.0
"""What earlier versions wrote is read: `tests/formats/kept_formats.py` says how each was made."""

import csv
import gzip
import io
import json
import math
import shutil
from pathlib import Path

import pytest
from tests.conftest import User
from tests.formats.kept_formats import DATA

from virtune.apply.journal import Journal
from virtune.flows.live.history import kept_looks

pytestmark = pytest.mark.parametrize("version", sorted(one.name for one in DATA.iterdir()))


def told(version: str, of: str) -> object:
    """What that version itself read of it."""
    return json.loads((DATA / version / "said.json").read_text())[of]


def test_a_store_is_shown_compared_and_written_to(version: str, user: User) -> None:
    user.store.write_bytes(gzip.decompress((DATA / version / "store.sqlite.gz").read_bytes()))
    studies = told(version, "studies")
    assert isinstance(studies, list)
    store = ("--store", str(user.store))
    listed = {one["id"]: one for one in user.run("show", "list", "--json", *store).json()["studies"]}
    for one in studies:
        assert one.items() <= listed[one["id"]].items()
        assert one["id"] in user.run("show", one["id"], *store).stdout
        document = user.run("show", one["id"], "--json", *store).json()
        assert one["id"] in json.dumps(document)
    assert len(user.run("show", "export", *store).stdout.splitlines()) > len(studies)
    user.run("compare", "measure", "--rig", "simulated", "--rounds", "4", "--seed", "2", *store)
    assert len(user.run("show", "list", "--json", *store).json()["studies"]) == len(studies) + 1


def test_a_plan_is_run_as_it_is_written(version: str, user: User) -> None:
    user.run("compare", str(DATA / version / "plan.toml"), "--scratch", str(user.scratch), "--store", str(user.store))
    document = user.run("show", "last", "--json", "--store", str(user.store)).json()
    study = document["study"]
    assert list(dict.fromkeys(one["name"] for one in document["arms"])) == ["threads", "io_uring", "writeback"]
    assert (study["baseline"], study["metric"], study["margin"]) == ("threads", "latency.mean", 0.05)
    assert len(study["workloads"]) == 2


def test_a_recording_is_replayed_with_the_same_figures(version: str, user: User) -> None:
    now = user.run("top", "--replay", str(DATA / version / "recording.jsonl"), "--csv").stdout
    then = told(version, "recording")
    assert isinstance(then, str)
    rows, kept = (list(csv.DictReader(io.StringIO(text))) for text in (now, then))
    assert len(kept) >= 2
    assert [{name: row[name] for name in kept[0]} for row in rows] == kept, "columns may come, and none goes"


def test_a_history_is_read(version: str) -> None:
    looks, torn = kept_looks(DATA / version / "history", 0, math.inf)
    assert [[one.vm, one.disk, round(one.wall_seconds, 3)] for one in looks] == told(version, "history")
    assert looks
    assert not torn


def test_a_journal_is_read_and_the_change_that_was_cut_short_is_open(version: str, tmp_path: Path) -> None:
    shutil.copytree(DATA / version / "journal", tmp_path / "journal")
    entries = Journal(tmp_path / "journal").entries()
    assert [[one.id, [step.value for step in one.steps]] for one in entries] == told(version, "journal")
    assert [one.domain for one in entries if one.open] == ["mail"]
