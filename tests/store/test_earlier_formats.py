# SPDX-License-Identifier: Apache-2.0
"""Stores of before open as before: a kept one of format 1 and method 7, with what that program said of it."""

import gzip
import json
import sqlite3
from pathlib import Path
from typing import Any

import pytest
import sqlalchemy as sa
from alembic.autogenerate import compare_metadata
from alembic.migration import MigrationContext
from tests.store.kept import COMPARE, DATA, IMPORT, KEPT

from virtune.flows.stored.show import current
from virtune.model.evidence import Listed
from virtune.store.schema import FORMAT, METADATA
from virtune.store.store import Store

SAID: dict[str, Any] = json.loads((DATA / "format-1-method-7.json").read_text())
CHECK, TUNE = "20261122-184338-7540", "20261122-184358-4b1a"


@pytest.fixture
def store(tmp_path: Path) -> Store:
    place = tmp_path / "before.sqlite"
    place.write_bytes(gzip.decompress(KEPT.read_bytes()))
    with Store(place) as found:
        return found


def test_every_study_of_it_is_listed_and_read(store: Store) -> None:
    listed = [one for one in store.list() if isinstance(one, Listed)]
    assert {one.study.id: (one.study.kind, one.done) for one in listed} == {
        COMPARE: ("compare", 16), IMPORT: ("import", 1), CHECK: ("check", 3), TUNE: ("tune", 22),
    }  # fmt: skip
    for name in (COMPARE, IMPORT, CHECK, TUNE):
        assert store.get(name).study.id == name


def test_its_tables_become_those_of_a_new_store(store: Store, tmp_path: Path) -> None:
    """`store` was opened for writing, which brings it to today's format."""
    with sqlite3.connect(str(store.place)) as db:
        assert db.execute("pragma user_version").fetchone() == (FORMAT,)
    engine = sa.create_engine(f"sqlite:///{store.place}")
    with engine.connect() as connection:
        assert compare_metadata(MigrationContext.configure(connection), METADATA) == []
    engine.dispose()


@pytest.mark.parametrize("name", [COMPARE, IMPORT])
def test_its_raw_captures_give_the_figures_that_they_gave(store: Store, name: str) -> None:
    _, result = current(store, name)
    values = {
        f"{arm.arm} {arm.workload} {value.metric}": value.value
        for arm in result.arms
        for value in arm.values
        if value.metric in ("iops", "bandwidth")
    }
    assert values == pytest.approx(SAID[name]["values"], rel=1e-9)


def test_its_verdicts_stand(store: Store) -> None:
    _, result = current(store, COMPARE)
    for said, now in zip(SAID[COMPARE]["verdicts"], result.verdicts, strict=True):
        assert (now.candidate, now.baseline, now.verdict) == (said["candidate"], said["baseline"], said["verdict"])
        assert now.ratio is not None
        assert [now.ratio.estimate, now.ratio.low, now.ratio.high] == pytest.approx(
            [said["ratio"]["estimate"], said["ratio"]["low"], said["ratio"]["high"]], rel=1e-6
        )
